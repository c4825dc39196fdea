"""Reduce over the event axis, all events at once.

Every reduction takes `(x, ok)`: `x` has the events along its first axis, `ok` is a mask of those that happened. It
returns an array with one event. NumPy arrays stay NumPy arrays, JAX arrays and tracers stay JAX's. `ok` has the event
axis, and possibly the *lanes* of a `vmap`, which are the next axes of `x` as well; `None` means that all happened.

Types: floats narrower than 32 bits are averaged and summed in float32. Integers and bools are averaged in JAX's float
type and summed in its widest integer type (32 bits unless `jax_enable_x64` is set); a sum that overflows wraps around
as in `jnp.sum`. `min`, `max`, `first` and `last` keep the type. NaN is never hidden. `var` and `std` divide by the
number of events, as in NumPy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from sightglass.core.errors import UnknownNameError
from sightglass.jax.pytree import Array
from sightglass.query.reduce.table import ENTRIES

Reduction = Callable[[Array, Array | None], Array]


def library(x: object) -> Any:
    """Return the array library of an array: `numpy` or `jax.numpy`."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def is_number(dtype: DTypeLike) -> bool:
    """Return whether values of this dtype can be added and compared; those of PRNG keys cannot."""
    return not jnp.issubdtype(dtype, jax.dtypes.extended)


def float_type(dtype: DTypeLike, *, widest: DTypeLike | None = None) -> Any:
    """Return the dtype for averaging: at least float32.

    Args:
        dtype: The values' own.
        widest: The dtype for averaging integers; `None` for JAX's float type.
    """
    if not jnp.issubdtype(dtype, jnp.inexact):
        return widest or jax.dtypes.canonicalize_dtype(np.float64)
    return jnp.dtype(dtype) if jnp.dtype(dtype).itemsize >= 4 else jnp.dtype(jnp.float32)


def sum_type(dtype: DTypeLike, *, x64: bool | None = None) -> Any:
    """Return the dtype for summing: the widest of the same kind.

    Args:
        dtype: The values' own.
        x64: Whether to use 64 bits; `None` for JAX's setting.
    """
    if jnp.issubdtype(dtype, jnp.inexact):
        return float_type(dtype)
    widest = np.dtype(np.uint64 if jnp.issubdtype(dtype, jnp.unsignedinteger) else np.int64)
    return widest if x64 else jax.dtypes.canonicalize_dtype(widest)


def fit(ok: Array, x: Array) -> Array:
    """Reshape a mask to broadcast against `x`; lanes that `x` does not have are combined by `any`."""
    extra = ok.ndim - x.ndim
    if extra > 0:
        return ok.any(axis=tuple(range(x.ndim, ok.ndim)))
    return ok.reshape(ok.shape + (1,) * -extra)


def select(ok: Array, new: Array, old: Array) -> Array:
    """Select from two arrays of one shape by a mask of their leading axes."""
    return library(new).where(fit(ok, new), new, old)


def or_nan(x: Array, happened: Array) -> Array:
    """Return NaN in place of reductions of no event; integers, which have none, stay.

    Under `jax.debug_nans`, which raises for any NaN that leaves a program, floats stay, too.
    """
    if not jnp.issubdtype(x.dtype, jnp.inexact) or jax.config.jax_debug_nans:
        return x
    return library(x).where(fit(happened, x), x, jnp.nan).astype(x.dtype)


def pick(x: Array, ok: Array | None, *, last: bool) -> Array:
    """Return the first or last event that happened; the first or last entry if none did."""
    if ok is None:
        return x[-1:] if last else x[:1]
    ok, xp = fit(ok, x), library(x)
    n = x.shape[0]
    index = (n - 1 - ok[::-1].argmax(axis=0, keepdims=True)) if last else ok.argmax(axis=0, keepdims=True)
    return x[index.reshape(1)] if index.size == 1 else xp.take_along_axis(x, index, axis=0)


def _sum(x: Array, ok: Array | None) -> Any:
    xp = library(x)
    dtype = sum_type(x.dtype, x64=xp is np)
    return xp.sum(x, axis=0, dtype=dtype, keepdims=True, where=True if ok is None else fit(ok, x))


def _mean(x: Array, ok: Array | None) -> Any:
    xp = library(x)
    dtype = float_type(x.dtype, widest=np.float64 if xp is np else None)
    if ok is None:
        return xp.mean(x, axis=0, dtype=dtype, keepdims=True)
    ok = fit(ok, x)
    total = xp.sum(x, axis=0, dtype=dtype, keepdims=True, where=ok)
    return (total / xp.maximum(ok.sum(axis=0, keepdims=True), 1).astype(dtype)).astype(dtype)


def _var(x: Array, ok: Array | None) -> Any:
    """Average the squares around the mean, relative to the first event, so that equal events give exactly zero."""
    xp = library(x)
    x = x.astype(float_type(x.dtype, widest=np.float64 if xp is np else None))
    x = x - pick(x, ok, last=False)
    off = x - _mean(x, ok)
    return _mean(xp.real(off * xp.conj(off)), ok)


def _extreme(choose: str) -> Reduction:
    def reduce(x: Array, ok: Array | None) -> Any:
        if ok is not None:
            x = select(ok, x, pick(x, ok, last=False))
        return getattr(library(x), choose)(x, axis=0, keepdims=True)

    return reduce


REDUCTIONS: dict[str, Reduction] = {
    "mean": _mean,
    "sum": _sum,
    "min": _extreme("min"),
    "max": _extreme("max"),
    "var": _var,
    "std": lambda x, ok: library(x).sqrt(_var(x, ok)),
    "first": lambda x, ok: pick(x, ok, last=False),
    "last": lambda x, ok: pick(x, ok, last=True),
}
SELECTING = frozenset(("first", "last"))
NAMES = tuple(name for name in ENTRIES if name in REDUCTIONS or name == "count")
"""The reducers of queries that devices have, too, with the same meaning."""
FUNCTIONS: dict[Any, str] = {
    function: name
    for name, functions in {
        "mean": (jnp.mean, np.mean),
        "sum": (jnp.sum, np.sum, sum),
        "min": (jnp.min, jnp.amin, np.min, np.amin, min),
        "max": (jnp.max, jnp.amax, np.max, np.amax, max),
        "var": (jnp.var, np.var),
        "std": (jnp.std, np.std),
        "count": (len,),
    }.items()
    for function in functions
}


def name_of(mode: str | Callable[..., Any]) -> str | None:
    """Return the name of a reduction, given by name or as a function of `jax.numpy` or NumPy such as `jnp.mean`.

    Returns:
        The name; `None` for any other function.

    Raises:
        UnknownNameError: There is no reduction of this name.
    """
    if not isinstance(mode, str):
        try:
            return FUNCTIONS.get(mode)
        except TypeError:
            return None
    if mode not in NAMES:
        raise UnknownNameError("reduction", mode, NAMES)
    return mode


def check_numbers(x: Array, name: str) -> None:
    """Check that values can be computed with; PRNG keys cannot.

    Raises:
        TypeError: The values are not numbers.
    """
    if name not in SELECTING and not is_number(x.dtype):
        raise TypeError(f"Expected numbers to reduce by {name!r}, got {x.dtype}: take 'first' or 'last' of these")


def apply(fn: Callable[..., Any], x: Array, ok: Array | None) -> Any:
    """Call a function on all events of `x` and restore the event axis.

    A function with an argument `axis` is called with `axis=0`, any other with the events along the first axis. If some
    events did not happen, the mask is passed as `where=`; a function without this argument is called with only the
    events that happened, on the host.

    Raises:
        TypeError: The function has no argument `where`, and the mask is traced or differs between lanes.
    """
    arguments = _arguments(fn)
    options: dict[str, Any] = {"axis": 0} if "axis" in arguments else {}
    extreme = "initial" in arguments and getattr(fn, "__name__", "").endswith(("min", "max"))
    if ok is not None and "where" in arguments and not extreme:
        options["where"] = fit(ok, x)
    elif ok is not None:
        if isinstance(ok, jax.core.Tracer) or ok.ndim > 1:
            raise TypeError(
                f"Function {getattr(fn, '__name__', fn)!r} cannot skip the events that did not happen: use one with an "
                "argument `where`, such as jnp.mean, or reduce on the host, after `to_numpy()`"
            )
        x = x[np.asarray(ok)]
    return library(x).expand_dims(fn(x, **options), 0)


def _arguments(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return frozenset()
