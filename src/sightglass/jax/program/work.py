"""About how many operations a program takes, counted in its jaxpr: what a query adds is known before it has run once.

XLA's own `cost_analysis` counts the body of a loop once, and nothing for the decompositions of matrices, which are what
hurts. Both are counted here. The rates of operations differ by a factor of about ten, so compare programs with care.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from . import compat
from .structure import within

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
