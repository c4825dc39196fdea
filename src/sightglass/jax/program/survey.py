"""Find what a program will log from its jaxpr, before it is traced again: how often, with which shapes, and where.

Loops and branches need this: a scan's carry must exist before the scan, and the branches of a `cond` must return equal
trees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.logs.reduction import is_number
from sightglass.jax.pytree import PyTree

from . import compat
from .primitive import LogEvent, Site, log_p

CollectedAs = Callable[[str, Site], str | None]
"""Returns the name under which a key of a log is collected; `None` if it is not."""


@dataclass(frozen=True, slots=True)
class ExpectedLog:
    """The logs under one key.

    Attributes:
        value: Shapes and dtypes of the value, including its batch axes.
        steps: Shapes and dtypes of the steps, by name.
        lanes: The names of the leading axes that are batch axes.
        n_events: The largest number of events; `None` if a while loop decides.
        masked: Whether some of them may not happen.
        by_lane: Whether they may happen in some lanes and not in others.
        where: The user's file and line of the first of them.
    """

    value: Any
    steps: dict[str, Any]
    lanes: tuple[str, ...]
    n_events: int | None
    masked: bool
    by_lane: bool
    where: str

    @property
    def n_batch(self) -> int:
        """How many leading axes are batch axes."""
        return len(self.lanes)

    @property
    def stacked(self) -> Any:
        """Shapes and dtypes of the value with the event axis in front; only outside of while loops."""
        return jax.tree.map(lambda a: explicit.abstract(a, lead=(self.n_events or 0,)), self.value)

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes of the batch axes."""
        return tuple(jax.tree.leaves(self.value)[0].shape[: self.n_batch])

    def cast(self, value: PyTree) -> Any:
        """Return a value with the dtypes and the division that all values under the key share."""
        return jax.tree.map(_cast, value, self.value)


Survey = dict[str, ExpectedLog]


def survey(jaxpr: compat.AnyJaxpr, takes: CollectedAs) -> Survey:
    """Return what a jaxpr will log under each name, in order of first appearance.

    Raises:
        LogError: Two logs under one key differ in structure or shape, or one of them is a PRNG key.
    """
    found: Survey = {}
    for eqn in compat.opened(jaxpr)[0].eqns:
        for key, expected in _of(eqn, takes).items():
            found[key] = _joined(key, found[key], expected) if key in found else expected
    return found


def _of(eqn: compat.Equation, takes: CollectedAs) -> Survey:
    if eqn.primitive is log_p:
        return _logged(eqn, takes)
    inner = [(one, survey(one.jaxpr, takes)) for one in within(eqn)]
    if kind_of(eqn) == "branch":
        return branches(found for _, found in inner)
    return {key: expected for one, found in inner for key, expected in _times(found, one.n).items()}


def _logged(eqn: compat.Equation, takes: CollectedAs) -> Survey:
    avals = [explicit.abstract(v.aval) for v in eqn.invars]
    event = LogEvent.of(eqn, avals)
    masked = event.mask is not None
    return {
        name: ExpectedLog(value, event.steps, event.lanes, 1, masked, masked, event.site.where)
        for key, value in event.data.items()
        if (name := takes(key, event.site)) is not None
    }


def _times(found: Survey, n: int | None) -> Survey:
    return {
        key: dataclasses.replace(e, n_events=None if n is None or e.n_events is None else e.n_events * n)
        for key, e in found.items()
    }


def branches(found: Iterable[Survey]) -> Survey:
    """Return what a `cond` will log: as often as the branch that logs most, masked if the branches differ."""
    every = list(found)
    result: Survey = {}
    for key in dict.fromkeys(key for one in every for key in one):
        present = [one[key] for one in every if key in one]
        counts = [one[key].n_events if key in one else 0 for one in every]
        first = present[0]
        for other in present[1:]:
            first = _joined(key, first, other)
        most = None if None in counts else max(n for n in counts if n is not None)
        masked, by_lane = any(e.masked for e in present) or len(set(counts)) > 1, any(e.by_lane for e in present)
        result[key] = dataclasses.replace(first, n_events=most, masked=masked, by_lane=by_lane)
    return result


def _joined(key: str, first: ExpectedLog, second: ExpectedLog) -> ExpectedLog:
    """Return what two logs under one key add up to."""
    shared = first.steps.keys() & second.steps.keys()
    values = [(one.value, {name: one.steps[name] for name in sorted(shared)}) for one in (first, second)]
    try:
        value, steps = jax.tree.map(_promoted, *values)
    except (TypeError, ValueError):  # ValueError: the structures differ
        value = None
    if value is None or first.n_batch != second.n_batch:
        a, b = _type_of(first, shared), _type_of(second, shared)
        raise LogError(
            f"Two logs under the key {key!r} cannot be stacked: {a} at {first.where}, but {b} at {second.where}. "
            "Give one of them another name"
            + (", or name the axis: jax.vmap(…, axis_name=…)" if first.n_batch != second.n_batch else "")
        ) from None
    n = None if first.n_events is None or second.n_events is None else first.n_events + second.n_events
    steps = {**first.steps, **second.steps, **steps}
    masked, by_lane = first.masked or second.masked, first.by_lane or second.by_lane
    return dataclasses.replace(first, value=value, steps=steps, n_events=n, masked=masked, by_lane=by_lane)


def _promoted(a: Any, b: Any) -> Any:
    """Return the type of two values together, as `jnp.concatenate` does.

    Raises:
        TypeError: They cannot be stacked.
    """
    if a.shape != b.shape or (a.dtype != b.dtype and not (is_number(a.dtype) and is_number(b.dtype))):
        raise TypeError
    dtype = a.dtype if a.dtype == b.dtype else jnp.promote_types(a.dtype, b.dtype)
    return explicit.abstract(b if explicit.division(a) is None else a, dtype=dtype)


def _cast(leaf: jax.Array, aval: Any) -> jax.Array:
    leaf = leaf if leaf.dtype == aval.dtype else leaf.astype(aval.dtype)
    return explicit.divided(leaf, explicit.division(aval))


def _type_of(expected: ExpectedLog, steps: Iterable[str]) -> str:
    """Return the structure, shapes and dtypes of a value and of some of its steps, as text."""

    def name(tree: PyTree) -> str:
        return str(jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", tree)).replace("'", "")

    batch = f" of which {expected.n_batch} axes are of vmap" if expected.n_batch else ""
    return name(expected.value) + batch + "".join(f", step {k}={name(expected.steps[k])}" for k in sorted(steps))


# Which programs an equation has within, how often each of them runs, and all equations and logs of a program.

KINDS: Final = {"scan": "loop", "while": "loop", "cond": "branch", "shard_map": "devices"}
"""As what a primitive runs the programs within it, if it does more than to call them."""
TEST: Final = "cond_jaxpr"
"""The parameter of a loop that holds its test."""


class Inner(NamedTuple):
    """A program within an equation: as what it runs, the parameter, how often (`None`: it decides), the open jaxpr."""

    kind: str
    name: str
    n: int | None
    jaxpr: Any


Path = tuple[Inner, ...]


def kind_of(eqn: compat.Equation) -> str:
    """Return as what an equation runs the programs within it: a "loop", "branch", "devices" or "call"."""
    return KINDS.get(eqn.primitive.name, "call")


def within(eqn: compat.Equation) -> list[Inner]:
    """Return the programs within an equation that run."""
    params, kind = eqn.params, kind_of(eqn)
    if eqn.primitive.name == "custom_linear_solve":
        return [Inner(kind, "jaxprs", 1, compat.opened(compat.solver(params, ())[0])[0])]
    n = params.get("length") if kind == "loop" else None if kind == "branch" else 1
    if kind == "devices":
        n = math.prod(params["mesh"].shape[axis] for axis in compat.manual_axes(params))
    each = ((name, jaxpr) for name in params for jaxpr in compat.subjaxprs({name: params[name]}))
    return [Inner(kind, name, n, compat.opened(jaxpr)[0]) for name, jaxpr in each]


def equations(eqns: Iterable[compat.Equation], path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """Yield equations and all within them, in the order of the program, each with the programs around it."""
    for eqn in eqns:
        yield eqn, path
        for inner in within(eqn):
            yield from equations(inner.jaxpr.eqns, (*path, inner))


def sites(eqns: Iterable[compat.Equation]) -> Iterator[tuple[Site, Path]]:
    """Yield the logs among equations and within them, as `equations` does."""
    return ((eqn.params["site"], path) for eqn, path in equations(eqns) if eqn.primitive is log_p)


# About how many operations a program takes, counted in its jaxpr: what a query adds is known before it has run once.
#
# XLA's own `cost_analysis` counts the body of a loop once, and nothing for the decompositions of matrices, which are
# what hurts. Both are counted here. The rates of operations differ by a factor of about ten, so compare programs with
# care.

Shape = tuple[int, ...]


def _of_matrices(factor: int) -> Callable[[Shape], float]:
    return lambda shape: factor * math.prod(shape) * min(shape[-2:])


# Operations for each entry and each row, for real matrices (Golub and Van Loan, Matrix Computations, 4th edition).
MATRICES: Final[dict[str, Callable[[Shape], float]]] = {
    **dict.fromkeys(("svd", "eig", "eigh", "schur"), _of_matrices(20)),
    **dict.fromkeys(("qr", "geqrf", "householder_product", "lu", "cholesky", "triangular_solve"), _of_matrices(1)),
    "sort": lambda shape: math.prod(shape) * math.log2(max(2, *shape)),
    "fft": lambda shape: 5 * math.prod(shape) * math.log2(max(2, *shape)),
}

# Of these, the operand that tells how much is written: loops update large arrays in place.
WRITTEN_IN_PLACE: Final = {"dynamic_update_slice": 1, "scatter": 2, "scatter-add": 2, "scatter_add": 2}


def work(
    jaxpr: compat.AnyJaxpr,
    *,
    n_rounds: float = math.nan,
    logs: bool = True,
    more: Mapping[int, float] = MappingProxyType({}),
) -> float:
    """Return about how many operations a program takes; NaN: not known.

    Args:
        jaxpr: The program.
        n_rounds: How often each of its `while_loop`s runs.
        logs: Whether what only its logs need counts.
        more: How many operations to add each time an open jaxpr in it runs, by the jaxpr's identity.
    """
    inner, _ = compat.opened(jaxpr)
    besides = frozenset() if logs else frozenset((compat.effect,))
    eqns = compat.needed(inner.eqns, compat.variables(inner.outvars), besides=besides)  # XLA removes the others
    each = (_of_equation(eqn, lambda one: work(one, n_rounds=n_rounds, logs=logs, more=more), n_rounds) for eqn in eqns)
    return math.fsum((more.get(id(inner), 0.0), *each))


def _of_equation(eqn: Any, of: Callable[[Any], float], n_rounds: float) -> float:
    name, inner = eqn.primitive.name, within(eqn)
    if inner:
        each, n = [of(one.jaxpr) for one in inner], inner[0].n
        if inner[0].kind == "loop":
            return math.fsum(each) * (n_rounds if n is None else n)
        known = inner[0].kind == "branch" and not any(map(math.isnan, each))
        return max(each) if known else math.fsum(each)  # devices work at the same time
    inputs, outputs = ([_shape(v.aval) for v in atoms] for atoms in (eqn.invars, eqn.outvars))
    n_out = math.fsum(map(math.prod, outputs))
    if name == "dot_general":
        (contracted, _), _ = eqn.params["dimension_numbers"]
        return 2 * n_out * float(math.prod(inputs[0][axis] for axis in contracted))
    if name == "conv_general_dilated":
        n_features = inputs[1][eqn.params["dimension_numbers"].rhs_spec[0]]
        return 2 * n_out * float(math.prod(inputs[1]) / max(1, n_features))
    if name in MATRICES and inputs:
        return MATRICES[name](inputs[0] if len(inputs[0]) > 1 else (1, *inputs[0]))
    if name in WRITTEN_IN_PLACE:
        return float(math.prod(inputs[WRITTEN_IN_PLACE[name]]))
    n_read = max(map(math.prod, inputs), default=0) if name.startswith(("reduce", "arg")) else 0
    return max(n_out, n_read, 1.0)


def _shape(aval: Any) -> Shape:
    return tuple(size if isinstance(size, int) else 1 for size in getattr(aval, "shape", ()))
