"""Find what a program will log from its jaxpr, before it is traced again: how often, with which shapes, and where.

Loops and branches need this: a scan's carry must exist before the scan, and the branches of a `cond` must return equal
trees.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.logs.reduction import is_number
from sightglass.jax.pytree import PyTree

from . import compat
from .log_event import LogEvent
from .primitive import Site, log_p
from .structure import kind_of, within

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
