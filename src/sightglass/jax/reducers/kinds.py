"""The arithmetic of reductions that see one event after the other: start, step, finish and merge for one array.

Sums and means of floats are pairs of a number and its rounding error: as precise as twice the digits, and accurate
beyond 2**24 events. Variances use Welford's update on such pairs. XLA does not reorder this arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from sightglass.jax import explicit
from sightglass.jax.logs.reduction import float_type, sum_type

Parts = tuple[jax.Array, ...]


class ReducerKind(NamedTuple):
    """How one leaf is reduced; `n` is the number of events so far, the new one included."""

    start: Callable[[Any], Parts]
    step: Callable[[Parts, Any, Any], Parts]
    finish: Callable[[Parts, Any], Any]
    merge: Callable[[Parts, Any, Parts, Any], Parts]


def _two_sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a sum and its rounding error (Knuth); the error of a sum that is not finite is zero."""
    total = a + b
    part = total - a
    return total, jnp.where(jnp.isfinite(total), (a - (total - part)) + (b - part), 0)


def _add(pair: Parts, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Add a number to a pair of a number and its rounding error."""
    total, error = _two_sum(pair[0], x)
    return _two_sum(total, pair[1] + error)


def _add_pairs(a: Parts, b: Parts) -> tuple[jax.Array, jax.Array]:
    return _add(_add(a, b[0]), b[1])


def _zeros(dtype_of: Callable[[Any], Any], n: int) -> Callable[[Any], Parts]:
    return lambda aval: tuple(explicit.filled(aval, dtype=dtype_of(aval.dtype)) for _ in range(n))


def _is_exact(x: jax.Array) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def _sum_step(cell: Parts, x: jax.Array, n: jax.Array) -> Parts:
    x = x.astype(cell[0].dtype)
    return _add_words(cell, (x, _sign(x))) if _is_exact(x) else _add(cell, x)


def _sum_merge(a: Parts, n_a: jax.Array, b: Parts, n_b: jax.Array) -> Parts:
    return _add_words(a, b) if _is_exact(a[0]) else _add_pairs(a, b)


def _sum_of(cell: Parts, n: jax.Array) -> jax.Array:
    """Return a sum; of integers the nearest number that the type has."""
    low, high = cell
    if not _is_exact(low):
        return low
    limits = jnp.iinfo(low.dtype)
    smallest, largest = jnp.array(limits.min, low.dtype), jnp.array(limits.max, low.dtype)
    return jnp.where(high == _sign(low), low, jnp.where(high < 0, smallest, largest))


def _add_words(a: Parts, b: Parts) -> Parts:
    """Add integers of twice the bits, as pairs of the low and the high word."""
    unsigned = jnp.uint64 if a[0].dtype.itemsize == 8 else jnp.uint32
    low = a[0] + b[0]
    carry = low.astype(unsigned) < a[0].astype(unsigned)
    return low, a[1] + b[1] + carry.astype(low.dtype)


def _sign(x: jax.Array) -> jax.Array:
    """Return the high word of an integer: 0, or -1 for a negative one."""
    return -(x < 0).astype(x.dtype)


def _welford(cell: Parts, x: jax.Array, n: jax.Array) -> Parts:
    """Welford's update, with the mean and the sum of squares as pairs."""
    mean, squares = cell[:2], cell[2:]
    x = x.astype(mean[0].dtype)
    off = (x - mean[0]) - mean[1]
    mean = _add(mean, off / n.astype(off.real.dtype))
    return *mean, *_add(squares, jnp.real(off * jnp.conj((x - mean[0]) - mean[1])))


def _chan(a: Parts, n_a: jax.Array, b: Parts, n_b: jax.Array) -> Parts:
    """Merge two of Welford's states; see Chan, Golub and LeVeque (1979), "Updating formulae"."""
    real = a[2].dtype
    n_a, n_b = n_a.astype(real), n_b.astype(real)
    share = n_b / jnp.maximum(n_a + n_b, 1)
    off = (b[0] - a[0]) + (b[1] - a[1])
    between = jnp.where(n_a * n_b > 0, jnp.real(off * jnp.conj(off)) * n_a * share, 0)
    mean = _add(a[:2], jnp.where(n_b > 0, off * share, 0))
    return *mean, *_add(_add_pairs(a[2:], b[2:]), between)


def _welford_start(aval: jax.ShapeDtypeStruct) -> Parts:
    dtype = float_type(aval.dtype)
    real = jnp.finfo(dtype).dtype
    return *_zeros(lambda _: dtype, 2)(aval), *_zeros(lambda _: real, 2)(aval)


def _variance(cell: Parts, n: jax.Array) -> jax.Array:
    return jnp.maximum(cell[2], 0) / jnp.maximum(n, 1).astype(cell[2].dtype)


def _choosing(choose: Callable[[Any, Any], Any]) -> ReducerKind:
    return ReducerKind(
        start=_zeros(lambda dtype: dtype, 1),
        step=lambda cell, x, n: (jnp.where(n == 1, x, choose(cell[0], x)),),
        finish=lambda cell, n: cell[0],
        merge=lambda a, n_a, b, n_b: (
            jnp.where(n_a == 0, b[0], jnp.where(n_b == 0, a[0], choose(a[0], b[0]))),
        ),
    )  # fmt: skip


KINDS: dict[str, ReducerKind] = {
    "mean": ReducerKind(
        start=_zeros(float_type, 2),
        step=_sum_step,
        finish=lambda cell, n: cell[0] / jnp.maximum(n, 1).astype(jnp.finfo(cell[0].dtype).dtype),
        merge=_sum_merge,
    ),
    "sum": ReducerKind(_zeros(sum_type, 2), _sum_step, _sum_of, _sum_merge),
    "min": _choosing(jnp.minimum),
    "max": _choosing(jnp.maximum),
    "first": _choosing(lambda old, new: old),
    "last": _choosing(lambda old, new: new),
    "var": ReducerKind(_welford_start, _welford, _variance, _chan),
    "std": ReducerKind(_welford_start, _welford, lambda cell, n: jnp.sqrt(_variance(cell, n)), _chan),
}
