"""Reducing over the event axis, all events at once.

Every reduction takes `(x, ok)`, where `x` has the events along its first axis and `ok` tells which of them happened,
and gives an array with one event. NumPy arrays stay NumPy arrays, JAX arrays and tracers become JAX's. `ok` has the
event axis and may have further ones, the *lanes* of a `vmap`, which are the next axes of `x` as well; `None` means that
all happened.

Types: floats narrower than 32 bits are averaged and summed in float32, integers and bools are averaged in JAX's float
type and summed in its widest integer type (32 bits unless `jax_enable_x64` is set), where a sum that leaves it wraps
around as `jnp.sum` does. `min`, `max`, `first` and `last` keep the type. NaN is never hidden. `var` and `std` divide by
the number of events, as NumPy's do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sightglass.core.errors import UnknownNameError

Array = npt.NDArray[Any] | jax.Array
"""An array of either library; its dtype may be one of JAX's own."""
Reduction = Callable[[Any, Any], Any]


def library(x: Any) -> Any:
    """Return `numpy` for its own arrays, else `jax.numpy`."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def is_number(dtype: Any) -> bool:
    """Tell whether values of this dtype can be added and compared: all but PRNG keys and the like."""
    return not jnp.issubdtype(dtype, jax.dtypes.extended)


def float_type(dtype: Any, *, widest: Any = None) -> Any:
    """Return the type in which values of a dtype are averaged: at least float32.

    Args:
        dtype: The values' own.
        widest: What integers become; JAX's float type unless given.
    """
    if not jnp.issubdtype(dtype, jnp.inexact):
        return widest or jax.dtypes.canonicalize_dtype(np.float64)
    return jnp.dtype(dtype) if jnp.dtype(dtype).itemsize >= 4 else jnp.dtype(jnp.float32)


def sum_type(dtype: Any, *, x64: bool | None = None) -> Any:
    """Return the type in which values of a dtype are summed: the widest of their kind.

    Args:
        dtype: The values' own.
        x64: Whether there are 64 bits; JAX's setting unless given.
    """
    if jnp.issubdtype(dtype, jnp.inexact):
        return float_type(dtype)
    widest = np.dtype(np.uint64 if jnp.issubdtype(dtype, jnp.unsignedinteger) else np.int64)
    return widest if x64 else jax.dtypes.canonicalize_dtype(widest)


def fit(ok: Any, x: Any) -> Any:
    """Shape a mask so that it broadcasts against `x`; lanes that `x` does not have are joined by "any"."""
    extra = ok.ndim - x.ndim
    if extra > 0:
        return ok.any(axis=tuple(range(x.ndim, ok.ndim)))
    return ok.reshape(ok.shape + (1,) * -extra)


def select(ok: Any, new: Any, old: Any) -> Any:
    """Choose between two arrays of one shape by a mask of their leading axes."""
    return library(new).where(fit(ok, new), new, old)


def pick(x: Any, ok: Any, *, last: bool) -> Any:
    """Return the first or the last event that happened; the very first or last entry where none did."""
    if ok is None:
        return x[-1:] if last else x[:1]
    ok, xp = fit(ok, x), library(x)
    n = x.shape[0]
    index = (n - 1 - ok[::-1].argmax(axis=0, keepdims=True)) if last else ok.argmax(axis=0, keepdims=True)
    return x[index.reshape(1)] if index.size == 1 else xp.take_along_axis(x, index, axis=0)


def _sum(x: Any, ok: Any) -> Any:
    xp = library(x)
    dtype = sum_type(x.dtype, x64=xp is np)
    return xp.sum(x, axis=0, dtype=dtype, keepdims=True, where=True if ok is None else fit(ok, x))


def _mean(x: Any, ok: Any) -> Any:
    xp = library(x)
    dtype = float_type(x.dtype, widest=np.float64 if xp is np else None)
    if ok is None:
        return xp.mean(x, axis=0, dtype=dtype, keepdims=True)
    ok = fit(ok, x)
    total = xp.sum(x, axis=0, dtype=dtype, keepdims=True, where=ok)
    return (total / xp.maximum(ok.sum(axis=0, keepdims=True), 1).astype(dtype)).astype(dtype)


def _var(x: Any, ok: Any) -> Any:
    """Average the squares around the mean, both taken from the first event, so that equal events give zero."""
    xp = library(x)
    x = x.astype(float_type(x.dtype, widest=np.float64 if xp is np else None))
    x = x - pick(x, ok, last=False)
    off = x - _mean(x, ok)
    return _mean(xp.real(off * xp.conj(off)), ok)


def _extreme(choose: str) -> Reduction:
    def reduce(x: Any, ok: Any) -> Any:
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
NAMES = (*REDUCTIONS, "count")
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
    """Return the name of a reduction given by name or as a well-known function, such as "mean" for `jnp.mean`.

    Returns:
        `None` for any other function.

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


def check_numbers(x: Any, name: str) -> None:
    """Refuse to compute with what is no number, such as PRNG keys.

    Raises:
        TypeError: It is none.
    """
    if name not in SELECTING and not is_number(x.dtype):
        raise TypeError(f"Expected numbers to reduce by {name!r}, got {x.dtype}: take 'first' or 'last' of these")


def apply(fn: Callable[..., Any], x: Any, ok: Any) -> Any:
    """Call a function on all events of `x` and put the event axis back.

    A function with an argument `axis` gets `axis=0`, any other gets the events along the first axis. Where some events
    did not happen, it gets them as `where=`; without such an argument it gets only those that did, on the host.

    Raises:
        TypeError: It must do without those that did not happen, and which these are is not known while tracing.
    """
    arguments = _arguments(fn)
    options: dict[str, Any] = {"axis": 0} if "axis" in arguments else {}
    extreme = "initial" in arguments and getattr(fn, "__name__", "").endswith(("min", "max"))
    if ok is not None and "where" in arguments and not extreme:
        options["where"] = fit(ok, x)
    elif ok is not None:
        if isinstance(ok, jax.core.Tracer) or ok.ndim > 1:
            raise TypeError(
                f"Function {getattr(fn, '__name__', fn)!r} cannot be told which events happened: give one with an "
                "argument `where`, such as jnp.mean, or reduce on the host, after `to_numpy()`"
            )
        x = x[np.asarray(ok)]
    return library(x).expand_dims(fn(x, **options), 0)


def _arguments(fn: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return frozenset()
