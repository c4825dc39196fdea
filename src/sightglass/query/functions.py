"""The functions that queries may call, one docstring each: reference and completion are made from them.

They work on numbers and on arrays of any library, in that library and on the device, and never wait: shapes and dtypes
are known without looking at values. Statistics take `axis=None` for the whole array, or an axis.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sightglass.core.errors import QuerySyntaxError, RefusedQueryError
from sightglass.core.values import DeviceHistogram, Histogram, array_kind, type_name

from . import expr as e
from .arrays import (
    MAX_RESULT_BYTES,
    check_broadcast,
    check_count,
    check_length,
    is_array,
    namespace,
    operand,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A named function of the query language.

    Attributes:
        name: What it is called by.
        call: What it does.
        doc: What it is for, one paragraph.
        signature: How it is called.
        method: Whether it is usually written behind its first argument: `x.mean()`.
        lambdas: Whether it takes a lambda; such functions are evaluated by `evaluate`.
    """

    name: str
    call: Callable[..., Any]
    doc: str
    signature: str
    method: bool
    lambdas: bool = False


FUNCTIONS: dict[str, Function] = {}
METHODS: set[str] = set()


def check_call(tree: e.Call) -> None:
    """Refuse the call of one of `FUNCTIONS` with arguments that it does not take.

    Raises:
        QuerySyntaxError: It is.
    """
    function = FUNCTIONS[tree.name]
    check_arguments(function.call, tree, function.signature)
    for place, arg in enumerate(tree.args):
        if isinstance(arg, e.Lambda) != (function.lambdas and place == 1):
            what = "a value, got a lambda" if isinstance(arg, e.Lambda) else "a lambda, got a value"
            raise QuerySyntaxError(f"Wrong arguments for {function.signature}: argument {place + 1} must be {what}")


def check_arguments(function: Callable[..., Any], tree: e.Call, signature: str) -> None:
    """Refuse a call with arguments that a function does not take, as far as it tells.

    Raises:
        QuerySyntaxError: It is.
    """
    try:
        inspect.signature(function).bind(*tree.args, **dict(tree.kwargs))
    except TypeError as error:
        raise QuerySyntaxError(f"Wrong arguments for {signature}: {error}") from None
    except ValueError:
        return  # a builtin without a signature


def _function(signature: str, *, method: bool = True, lambdas: bool = False) -> Callable[[Callable[..., Any]], Any]:
    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        name = signature.partition("(")[0]
        doc = " ".join((call.__doc__ or "").split())
        FUNCTIONS[name] = Function(name=name, call=call, doc=doc, signature=signature, method=method, lambdas=lambdas)
        if method:
            METHODS.add(name)
        return call

    return register


# Element by element


def _elementwise(name: str, doc: str, scalar: Callable[[Any], Any] | None = None, *, standard: str = "") -> None:
    def call(x: Any) -> Any:
        if scalar is not None and type(x) in (int, float):
            return scalar(x)
        x = operand(x)
        return getattr(namespace(x), standard or name)(_floating(x) if name in NEEDS_FLOAT else x)

    call.__doc__ = doc
    _function(f"{name}(x)", method=False)(call)


NEEDS_FLOAT = {"sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "cos", "floor", "ceil"}


def _floating(x: Any) -> Any:
    """Give integers and bools the library's default float, as NumPy would; PyTorch and the standard do not."""
    if is_array(x) and not any(kind in str(x.dtype) for kind in ("float", "complex")):
        xp = namespace(x)
        return xp.astype(x, xp.float64 if xp is np else xp.float32) if hasattr(xp, "astype") else x.astype(np.float64)
    return x


_elementwise("abs", "The absolute value.", operator.abs)
_elementwise("sign", "-1, 0 or 1 by the sign.")
_elementwise("square", "The square.", lambda x: x * x)
_elementwise("sqrt", "The square root; NaN for negative numbers.")
_elementwise("exp", "e to the power of x.")
_elementwise("expm1", "exp(x) - 1, exact near 0.")
_elementwise("log", "The natural logarithm.")
_elementwise("log2", "The logarithm to base 2.")
_elementwise("log10", "The logarithm to base 10.")
_elementwise("log1p", "log(1 + x), exact near 0.")
_elementwise("tanh", "The hyperbolic tangent.")
_elementwise("sin", "The sine of radians.")
_elementwise("cos", "The cosine of radians.")
_elementwise("floor", "The largest integer not above.")
_elementwise("ceil", "The smallest integer not below.")
_elementwise("isnan", "Whether a value is NaN.", math.isnan)
_elementwise("isinf", "Whether a value is infinite.", math.isinf)
_elementwise("isfinite", "Whether a value is neither NaN nor infinite.", math.isfinite)


@_function("round(x, decimals=0)", method=False)
def _round(x: Any, decimals: int = 0) -> Any:
    """Round to a number of decimals."""
    if isinstance(x, float) and type(decimals) is int:
        return round(x, decimals)
    x, scale = operand(x), 10.0**decimals
    return namespace(x).round(x * scale) / scale if decimals else namespace(x).round(x)


@_function("clip(x, low, high)")
def _clip(x: Any, low: Any = None, high: Any = None) -> Any:
    """Limit values to a range; either end may be None."""
    x = operand(x)
    return namespace(x).clip(x, low, high)


@_function("where(condition, x, y)", method=False)
def _where(condition: Any, x: Any, y: Any) -> Any:
    """Choose x where the condition holds, else y."""
    condition, x, y = operand(condition), operand(x), operand(y)
    check_broadcast(condition, x, y)
    return _together("where", condition, x, y)


@_function("maximum(x, y)", method=False)
def _maximum(x: Any, y: Any) -> Any:
    """Take the larger of two values, element by element."""
    return _together("maximum", operand(x), operand(y))


@_function("minimum(x, y)", method=False)
def _minimum(x: Any, y: Any) -> Any:
    """Take the smaller of two values, element by element."""
    return _together("minimum", operand(x), operand(y))


def _together(name: str, *values: Any) -> Any:
    check_broadcast(*values)
    array = next((value for value in values if is_array(value)), values[0])
    xp = namespace(array)
    if xp is np:
        return getattr(np, name)(*values)
    return getattr(xp, name)(*(value if is_array(value) else xp.asarray(value) for value in values))


# Statistics of an array


def _statistic(name: str, doc: str, *, floating: bool = False) -> None:
    def call(x: Any, axis: Any = None) -> Any:
        if type(x) in (int, float, bool):
            x = np.asarray(x)
        x = operand(x)
        return getattr(namespace(x), name)(_floating(x) if floating else x, axis=axis)

    call.__doc__ = doc
    _function(f"{name}(x, axis=None)")(call)


_statistic("sum", "The sum.")
_statistic("prod", "The product.")
_statistic("mean", "The arithmetic mean.", floating=True)
_statistic("std", "The standard deviation of the population.", floating=True)
_statistic("var", "The variance of the population.", floating=True)
_statistic("min", "The smallest value.")
_statistic("max", "The largest value.")
_statistic("argmin", "Where the smallest value is.")
_statistic("argmax", "Where the largest value is.")
_statistic("any", "Whether any value holds.")
_statistic("all", "Whether all values hold.")


@_function("norm(x, axis=None)")
def _norm(x: Any, axis: Any = None) -> Any:
    """Return the Euclidean (Frobenius) norm: the root of the sum of squares. Half precision is summed in single."""
    x = operand(x)
    if not is_array(x):
        return abs(x)
    xp = namespace(x)
    x = _floating(x)
    if "float16" in str(x.dtype):
        x = xp.astype(x, xp.float32) if hasattr(xp, "astype") else x.astype(np.float32)
    squares = xp.real(x * xp.conj(x)) if "complex" in str(x.dtype) else x * x
    return xp.sqrt(xp.sum(squares, axis=axis))


@_function("quantile(x, q)")
def _quantile(x: Any, q: Any) -> Any:
    """Return the q-quantile of all values, 0 <= q <= 1, by linear interpolation; a list of q gives a tuple."""
    if isinstance(q, list | tuple):
        check_length(q)
        return tuple(_quantile(x, one) for one in q)
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= 1:
        raise RefusedQueryError(f"Expected q between 0 and 1, got {q!r}")
    x = operand(x)
    xp = namespace(x)
    if xp is np:
        return np.quantile(x, q)
    ordered = xp.sort(xp.reshape(_floating(x), (-1,)))
    place = q * (ordered.shape[0] - 1)
    low = math.floor(place)
    high = min(low + 1, ordered.shape[0] - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@_function("median(x)")
def _median(x: Any) -> Any:
    """Return the middle value."""
    return _quantile(x, 0.5)


@_function("histogram(x, bins=64)")
def _histogram(x: Any, bins: Any = 64) -> Any:
    """Count the values in equal bins between the smallest and the largest; NaN and infinities are counted apart."""
    bins = check_count(bins, name="bins")
    x = operand(x)
    if not is_array(x):
        return Histogram(np.asarray([x]), bins=bins)
    if array_kind(x) == "numpy":
        histogram = Histogram(x, bins=bins)
        _ = histogram.counts  # bin now: the array may be overwritten after the event
        return histogram
    return _device_histogram(x, bins)


def _device_histogram(x: Any, bins: int) -> Any:
    """Count on the device, by sorting: the array API has no histogram."""
    xp = namespace(x)
    x = xp.reshape(_floating(x), (-1,))
    finite = xp.isfinite(x)
    zero = xp.zeros_like(x)
    low = xp.min(xp.where(finite, x, zero + math.inf))
    high = xp.max(xp.where(finite, x, zero - math.inf))
    low, high = (xp.where(xp.isfinite(end), end, xp.zeros_like(end)) for end in (low, high))
    spread = xp.where(high > low, high - low, xp.ones_like(low))
    edges = low + spread * (xp.astype(xp.arange(bins + 1), x.dtype) / bins)
    ordered = xp.sort(xp.where(finite, x, zero + math.inf))
    return DeviceHistogram(
        below=xp.searchsorted(ordered, edges),
        edges=edges,
        n_finite=xp.sum(xp.astype(finite, xp.int64)),
        n_nan=xp.sum(xp.astype(xp.isnan(x), xp.int64)),
        n_posinf=xp.sum(xp.astype(x == math.inf, xp.int64)),
        n_neginf=xp.sum(xp.astype(x == -math.inf, xp.int64)),
    )


@_function("topk(x, k)")
def _topk(x: Any, k: Any) -> Any:
    """Return the k largest values, the largest first."""
    k = check_count(k, name="k")
    x = operand(x)
    xp = namespace(x)
    ordered = xp.sort(xp.reshape(x, (-1,)) if is_array(x) else np.asarray([x]))
    return xp.flip(ordered[max(0, ordered.shape[0] - k) :], axis=0)


# Shape and place


@_function("shape(x)")
def _shape(x: Any) -> Any:
    """Return the sizes along each axis."""
    return tuple(int(n) for n in getattr(operand(x), "shape", ()))


@_function("size(x)")
def _size(x: Any) -> Any:
    """Return how many items an array has."""
    return math.prod(_shape(x))


@_function("ravel(x)")
def _ravel(x: Any) -> Any:
    """Return all items in one dimension."""
    x = operand(x)
    return namespace(x).reshape(x, (-1,)) if is_array(x) else np.asarray([x])


@_function("reshape(x, shape)")
def _reshape(x: Any, *shape: Any) -> Any:
    """Return the same items in another shape."""
    x = operand(x)
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    return namespace(x).reshape(x, tuple(sizes))


@_function("item(x)")
def _item(x: Any) -> Any:
    """Return the one item of an array of size 1; numbers as they are."""
    if not is_array(x):
        return operand(x)
    if _size(x) != 1:
        raise RefusedQueryError(f"Expected an array of one item, got {type_name(x)}")
    return namespace(x).reshape(x, ())


@_function("diff(x)")
def _diff(x: Any) -> Any:
    """Return the differences between neighbours along the last axis."""
    x = operand(x)
    return x[..., 1:] - x[..., :-1]


@_function("cumsum(x)")
def _cumsum(x: Any) -> Any:
    """Return the running sum of all items."""
    x = _ravel(x)
    xp = namespace(x)
    return np.cumsum(x) if xp is np else xp.cumulative_sum(x)


# Mappings and sequences


@_function("len(x)", method=False)
def _len(x: Any) -> Any:
    """Return how many items there are."""
    if isinstance(x, Mapping | list | tuple | str) or is_array(x):
        return len(x)
    raise RefusedQueryError(f"Expected something with a length, got {type_name(x)}")


def _mapping(x: Any) -> Mapping[Any, Any]:
    if not isinstance(x, Mapping):
        raise RefusedQueryError(f"Expected a mapping, got {type_name(x)}")
    check_length(x)
    return x


@_function("keys(x)")
def _keys(x: Any) -> Any:
    """Return the names in a mapping."""
    return list(_mapping(x))


@_function("values(x)")
def _values(x: Any) -> Any:
    """Return the values of a mapping."""
    return list(_mapping(x).values())


@_function("items(x)")
def _items(x: Any) -> Any:
    """Return the (name, value) pairs of a mapping."""
    return list(_mapping(x).items())


def _sequence(x: Any) -> Any:
    if isinstance(x, Mapping):
        return list(_mapping(x).values())
    if isinstance(x, list | tuple) or (is_array(x) and len(x.shape)):
        return x
    raise RefusedQueryError(f"Expected a mapping, a sequence or an array, got {type_name(x)}")


@_function("first(x)")
def _first(x: Any) -> Any:
    """Return the first item of a mapping, a sequence or an array."""
    return _sequence(x)[0]


@_function("last(x)")
def _last(x: Any) -> Any:
    """Return the last item of a mapping, a sequence or an array."""
    return _sequence(x)[-1]


@_function("sample(x, k)")
def _sample(x: Any, k: Any) -> Any:
    """Return k random items, in their order: the same places for the same number of items."""
    x, k = _sequence(x), check_count(k, name="k")
    if len(x) <= k:
        return x
    places = np.sort(np.random.default_rng(len(x)).choice(len(x), k, replace=False))
    if not is_array(x):
        return [x[i] for i in places]
    if array_kind(x) == "numpy":
        return x[places]
    xp = namespace(x)
    return xp.take(x, xp.asarray(places), axis=0)


@_function("contains(x, part)")
def _contains(x: Any, part: Any) -> Any:
    """Tell whether a text, a sequence or the names of a mapping contain something."""
    if isinstance(x, str):
        return isinstance(part, str) and part in x
    if isinstance(x, Mapping | list | tuple) and isinstance(part, bool | int | float | str | None):
        if not isinstance(x, Mapping):
            check_length(x)
        return part in x
    raise RefusedQueryError(f"Expected a text, a sequence or a mapping, got {type_name(x)}")


@_function("startswith(text, start)")
def _startswith(text: Any, start: Any) -> Any:
    """Tell whether a text begins with another."""
    return _text(text).startswith(_text(start))


@_function("endswith(text, end)")
def _endswith(text: Any, end: Any) -> Any:
    """Tell whether a text ends with another."""
    return _text(text).endswith(_text(end))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    raise RefusedQueryError(f"Expected a text, got {type_name(value)}")


def each(x: Any) -> list[tuple[Any, Any]]:
    """Return the (name, value) pairs that `.map` and `.filter` go through."""
    if isinstance(x, Mapping):
        return list(_mapping(x).items())
    if isinstance(x, list | tuple):
        check_length(x)
        return list(enumerate(x))
    raise RefusedQueryError(f"Expected a mapping or a sequence to go through, got {type_name(x)}")


@_function("map(x, lambda name, value: …)", lambdas=True)
def _map(x: Any, body: Callable[[Any, Any], Any]) -> Any:
    """Compute from each (name, value) of a mapping, or (place, value) of a sequence; one argument is the value."""
    pairs = each(x)
    results, total = [], 0
    for name, value in pairs:
        result = body(name, value)
        total += getattr(result, "nbytes", 0)
        if total > MAX_RESULT_BYTES and result is not value:
            raise RefusedQueryError(f"Expected results of at most {MAX_RESULT_BYTES >> 20} MiB in all, got more")
        results.append(result)
    return dict(zip((name for name, _ in pairs), results, strict=True)) if isinstance(x, Mapping) else results


@_function("filter(x, lambda name, value: …)", lambdas=True)
def _filter(x: Any, body: Callable[[Any, Any], Any]) -> Any:
    """Keep the (name, value) of a mapping, or the values of a sequence, for which a condition on the host holds."""
    kept = [(name, value) for name, value in each(x) if bool(body(name, value))]
    return dict(kept) if isinstance(x, Mapping) else [value for _, value in kept]
