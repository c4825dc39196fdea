"""Functions of numbers and arrays: element-wise, statistics, shapes and indices.

They compute in the array's own library, on its device, and never wait for a result: they read shapes and dtypes, not
values. Statistics take an axis, or `axis=None` for the whole array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sightglass.core.binning import BLOCK
from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.guarded import text
from sightglass.core.values import (
    DeviceHistogram,
    Histogram,
    Value,
    array_kind,
    is_extended,
    on_device,
    to_host,
    type_name,
)
from sightglass.query.arrays import NUMBERS, is_array, is_numpy, namespace, operand
from sightglass.query.costs import ARITHMETIC_NS, OperationCost
from sightglass.query.limits import check_broadcast, check_count, check_int, check_length

from .table import function

MAX_DECIMALS: Final = 300  # 10.0 ** 300 is still a float
SMALL_PLACES: Final = 2**8
"""The largest number of bins whose numbers, with one for the right edge, fit one byte."""
PIECE: Final = 2**15
"""The items of a tensor that are placed at a time: their 128 KB are in the cache, where new memory is not."""
LARGEST: Final = float(np.finfo(np.float32).max)
ROUNDINGS: Final = 1e-6
"""The smallest width of a bin relative to the largest value: well above float32's rounding of 1e-7, so that PyTorch
counts a value in the right bin."""


Axis = int | tuple[int, ...] | None


# Element-wise


def _elementwise(name: str, doc: str, scalar: Callable[[Any], Any] | None = None) -> None:
    of_numpy, floating = getattr(np, name), name in NEEDS_FLOAT

    def call(x: Value) -> Value:
        if is_numpy(x):
            return of_numpy(x)
        if scalar is not None and type(x) in (int, float, bool):
            return scalar(x)
        x = operand(x)
        return getattr(namespace(x), name)(_floating(x) if floating else x)

    call.__doc__ = doc
    function(f"{name}(x)", cost=OperationCost(ns=SLOW.get(name, ARITHMETIC_NS), result="each"))(call)


FLOATING: Final = frozenset("fc")
FULL: Final = frozenset(np.dtype(kind).num for kind in (np.float32, np.float64, np.complex64, np.complex128))
SLOW: Final = dict.fromkeys(("exp", "expm1", "log", "log2", "log10", "log1p", "tanh"), 1.5) | {"sin": 8.0, "cos": 8.0}
"""Nanoseconds an item of the functions that take more than arithmetic; some arguments take ten times as long."""
NEEDS_FLOAT = {"sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "cos", "floor", "ceil"}


def _floating(x: Value) -> Value:
    """Convert integers and bools to the library's default float, as NumPy does, but not PyTorch and the array API."""
    if not is_array(x) or getattr(x.dtype, "kind", "") in FLOATING:
        return x
    if not any(kind in str(x.dtype) for kind in ("float", "complex")):
        xp = namespace(x)
        return _astype(x, xp.float64 if xp is np else xp.float32)
    return x


def _single(x: Value) -> Value:
    """Convert half precision to single, whose sums of squares do not overflow."""
    if getattr(x.dtype, "num", None) in FULL:
        return x
    half = "float16" in str(x.dtype) or (array_kind(x) == "numpy" and is_extended(x.dtype))
    return _astype(x, namespace(x).float32) if half else x


def _astype(x: Value, dtype: Value) -> Value:
    return x.astype(dtype) if array_kind(x) == "numpy" else namespace(x).astype(x, dtype)


_elementwise("abs", "The absolute value.", operator.abs)
_elementwise("sign", "-1, 0 or 1, by the sign.")
_elementwise("square", "The square.", lambda x: check_int(x * x))
_elementwise("sqrt", "The square root; NaN for negative numbers.")
_elementwise("exp", "The exponential, e to the power of x.")
_elementwise("expm1", "exp(x) - 1, accurate near 0.")
_elementwise("log", "The natural logarithm.")
_elementwise("log2", "The logarithm to base 2.")
_elementwise("log10", "The logarithm to base 10.")
_elementwise("log1p", "log(1 + x), accurate near 0.")
_elementwise("tanh", "The hyperbolic tangent.")
_elementwise("sin", "The sine of an angle in radians.")
_elementwise("cos", "The cosine of an angle in radians.")
_elementwise("floor", "The largest integer not above x.")
_elementwise("ceil", "The smallest integer not below x.")
_elementwise("isnan", "Whether a value is NaN.", math.isnan)
_elementwise("isinf", "Whether a value is infinite.", math.isinf)
_elementwise("isfinite", "Whether a value is neither NaN nor infinite.", math.isfinite)


@function("round(x, decimals=0)", cost=OperationCost(ns=1.5, result="each"))
def _round(x: Value, decimals: int = 0) -> Value:
    """Round to a number of decimals."""
    if type(decimals) is not int or abs(decimals) > MAX_DECIMALS:
        raise RefusedQueryError(f"Expected decimals from -{MAX_DECIMALS} to {MAX_DECIMALS}, got {text(decimals, 100)}")
    if type(x) in (float, int):
        return round(x, decimals)
    x, scale = operand(x), 10.0**decimals
    return namespace(x).round(x * scale) / scale if decimals else namespace(x).round(x)


@function("clip(x, low, high)", cost=OperationCost(ns=ARITHMETIC_NS, result="each"))
def _clip(x: Value, low: Value = None, high: Value = None) -> Value:
    """Limit values to a range; `None` leaves an end open."""
    x, low, high = operand(x), *(None if end is None else operand(end) for end in (low, high))
    check_broadcast(x, *(end for end in (low, high) if is_array(end)))
    return namespace(x).clip(x, low, high)


@function("where(condition, x, y)", cost=OperationCost(ns=3.5, result="each"))
def _where(condition: Value, x: Value, y: Value) -> Value:
    """Return x where the condition holds, else y, element-wise."""
    condition, x, y = operand(condition), operand(x), operand(y)
    check_broadcast(condition, x, y)
    return _together("where", condition, x, y)


@function("maximum(x, y)", cost=OperationCost(ns=ARITHMETIC_NS, result="each"))
def _maximum(x: Value, y: Value) -> Value:
    """Return the larger of two values, element-wise."""
    return _together("maximum", operand(x), operand(y))


@function("minimum(x, y)", cost=OperationCost(ns=ARITHMETIC_NS, result="each"))
def _minimum(x: Value, y: Value) -> Value:
    """Return the smaller of two values, element-wise."""
    return _together("minimum", operand(x), operand(y))


def _together(name: str, *values: Value) -> Value:
    check_broadcast(*values)
    array = next((value for value in values if is_array(value)), values[0])
    xp = namespace(array)
    if xp is np:
        return getattr(np, name)(*values)[()]
    return getattr(xp, name)(*(value if is_array(value) else xp.asarray(value) for value in values))


# Statistics of an array


def _statistic(name: str, doc: str, of_numpy: Callable[..., Any], *, floating: bool = False) -> None:
    of_two_passes = name in ("std", "var")

    def call(x: Value, axis: Axis = None) -> Value:
        if is_numpy(x) and x.size:
            return of_numpy(x, axis=axis)
        x = operand(x)
        if isinstance(x, NUMBERS):
            x = np.asarray(x)
        xp = namespace(x)
        if floating:
            x = _floating(x)
        if xp is np and is_extended(x.dtype):  # NumPy would sum them in their own few digits
            x = x.astype(np.float32)
        elif of_two_passes:
            x = _single(x)
        if floating and not math.prod(x.shape):
            return xp.sum(x, axis=axis) * math.nan  # as the libraries return, without their warning
        return getattr(xp, name)(x, axis=axis)

    call.__doc__ = doc
    cost = OperationCost(
        ns=1.2 if of_two_passes else ARITHMETIC_NS, result="reduce", copies=1.0 if of_two_passes else 0.0
    )
    function(f"{name}(x, axis=None)", cost=cost)(call)


def _mean_of_numpy(x: Value, axis: Axis) -> Value:
    """Return `np.mean(x)`, in a quarter of its time for a small array."""
    if axis is None and x.dtype.num in FULL:
        return x.dtype.type(np.add.reduce(x, axis=None) / x.size)
    return np.mean(x, axis=axis)


_statistic("sum", "The sum.", np.add.reduce)
_statistic("prod", "The product.", np.multiply.reduce)
_statistic("mean", "The arithmetic mean.", _mean_of_numpy, floating=True)
_statistic("std", "The population standard deviation.", np.std, floating=True)
_statistic("var", "The population variance.", np.var, floating=True)
_statistic("min", "The smallest value.", np.minimum.reduce)
_statistic("max", "The largest value.", np.maximum.reduce)
_statistic("argmin", "The index of the smallest value.", np.argmin)
_statistic("argmax", "The index of the largest value.", np.argmax)
_statistic("any", "Whether any value is true.", np.logical_or.reduce)
_statistic("all", "Whether all values are true.", np.logical_and.reduce)


@function("norm(x, axis=None)", cost=OperationCost(ns=0.8, result="reduce", copies=1.0))
def _norm(x: Value, axis: Axis = None) -> Value:
    """Return the Euclidean (Frobenius) norm, the root of the sum of squares; half precision is summed in single."""
    x = operand(x)
    if not is_array(x):
        return abs(x)
    xp, x = namespace(x), _single(_floating(x))
    if axis is None and is_numpy(x) and x.dtype.kind == "f":
        return np.sqrt(np.add.reduce(x * x, axis=None))
    if axis is None and array_kind(x) == "torch":
        return xp.linalg.vector_norm(x)  # one pass over the array; the line below makes three
    squares = xp.real(x * xp.conj(x)) if "complex" in str(x.dtype) else x * x
    return xp.sqrt(xp.sum(squares, axis=axis))


def _quantiles_ns(n: int, q: Value = 0.5) -> float:
    return 2_000.0 * len(q) if isinstance(q, list | tuple) else 0.0


@function("quantile(x, q)", cost=OperationCost(ns=13.0, result="scalar", copies=2.0, more_ns=_quantiles_ns))
def _quantile(x: Value, q: Value) -> Value:
    """Return the q-quantile of all values, 0 <= q <= 1, by linear interpolation; for a list of q, a tuple."""
    wanted = q if isinstance(q, list | tuple) else (q,)
    check_length(wanted)
    for one in wanted:
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= 1:
            raise RefusedQueryError(f"Expected q between 0 and 1, got {text(one, 100)}")
    x = _ravel(x)
    if not math.prod(x.shape):
        raise EvaluationError(f"Expected at least one value for a quantile, got {type_name(x)}")
    if namespace(x) is np:
        found = tuple(np.quantile(_single(x), wanted))
    else:
        found = _sorted_quantiles(_single(_floating(x)), wanted)
    return found if isinstance(q, list | tuple) else found[0]


def _sorted_quantiles(x: Value, wanted: Value) -> tuple[Any, ...]:
    xp = namespace(x)
    ordered = xp.sort(x)
    has_nan = xp.any(xp.isnan(x))
    found = []
    for q in wanted:
        place = q * (ordered.shape[0] - 1)
        low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
        between = low if place == int(place) else low + (high - low) * (place - math.floor(place))
        found.append(xp.where(has_nan, between * math.nan, between))
    return tuple(found)


@function("median(x)", cost=OperationCost(ns=13.0, result="scalar", copies=2.0, places=True))
def _median(x: Value) -> Value:
    """Return the median of all values."""
    return _quantile(x, 0.5)


def _bins_ns(n: int, bins: Value = 64) -> float:
    return check_count(bins, name="bins") * (
        100.0 + 4.0 * n / BLOCK
    )  # each block of values is added to the counts of all bins


def _bins_bytes(bins: Value = 64) -> int:
    return int(64 * bins)  # counts and edges, those of a block, and what `np.histogram` makes beside them


@function("histogram(x, bins=64)", cost=OperationCost(ns=28.0, more_ns=_bins_ns, more_bytes=_bins_bytes))
def _histogram(x: Value, bins: Value = 64) -> Value:
    """Count the values in equal bins from the smallest to the largest; NaN and infinities are counted separately."""
    bins = check_count(bins, name="bins")
    x = operand(x)
    if not is_array(x) or array_kind(x) == "numpy" or not math.prod(x.shape):
        histogram = Histogram(np.atleast_1d(to_host(x)), bins=bins)
        _ = histogram.counts  # bin now: the array may be overwritten after the event
        return histogram
    if array_kind(x) == "torch" and not on_device(x):
        return _torch_histogram(x.detach(), bins)
    return _device_histogram(_single(_floating(_ravel(x))), bins)


def _torch_histogram(x: Value, bins: int) -> Histogram:
    """Place with NumPy and count with PyTorch on the host; a value within rounding of an edge may be on either side."""
    xp = namespace(x)
    if x.is_floating_point():
        x = x.to(xp.float32) if x.dtype in (xp.float16, xp.bfloat16) else x
        low, high = (float(end) for end in xp.aminmax(x))
        width = high - low
        if bins / LARGEST < width < LARGEST and width > ROUNDINGS * bins * max(abs(low), abs(high)):
            values, kind = x.numpy().reshape(-1), np.uint8 if bins < SMALL_PLACES else np.int32
            counts: Any = 0
            for i in range(0, len(values), PIECE):
                piece = values[i : i + PIECE] - low
                piece *= bins / width
                counts += xp.bincount(xp.from_numpy(piece.astype(kind)), minlength=bins + 1)
            counts = counts.numpy()
            counts[bins - 1] += counts[bins]  # the last bin includes its right edge
            edges = np.arange(bins + 1) * (width / bins) + low  # as `np.linspace`, in a tenth of its time
            edges[bins] = high
            return Histogram.from_counts(counts[:bins], edges)
    histogram = Histogram(to_host(x), bins=bins)
    _ = histogram.counts
    return histogram


def _device_histogram(x: Value, bins: int) -> Value:
    """Count on the device by sorting, as the array API has no histogram."""
    xp = namespace(x)
    finite = xp.isfinite(x)
    zero = xp.zeros_like(x)
    low, high = xp.min(xp.where(finite, x, zero + math.inf)), xp.max(xp.where(finite, x, zero - math.inf))
    # As in np.histogram: from 0 to 1 without values, a range of 1 around a single value.
    low, high = xp.where(low > high, xp.zeros_like(low), low), xp.where(low > high, xp.ones_like(high), high)
    middle = low == high
    low, high = xp.where(middle, low - 0.5, low), xp.where(middle, high + 0.5, high)
    where = {"device": x.device} if array_kind(x) == "torch" else {}
    places = xp.astype(xp.arange(bins + 1, **where), x.dtype)
    edges = low + places * (high / bins - low / bins)
    return DeviceHistogram(
        below=xp.searchsorted(xp.sort(xp.where(finite, x, zero + math.inf)), edges),
        edges=edges,
        n_finite=xp.sum(finite),
        n_nan=xp.sum(xp.isnan(x)),
        n_posinf=xp.sum(x == math.inf),
        n_neginf=xp.sum(x == -math.inf),
    )


@function("topk(x, k)", cost=OperationCost(ns=5.0, result="flat", copies=1.0, sorts=True))
def _topk(x: Value, k: Value) -> Value:
    """Return the k largest values, in descending order."""
    k, x = check_count(k, name="k"), _ravel(x)
    xp, rest = namespace(x), max(0, x.shape[0] - k)
    if xp is np and rest > 0:
        x, rest = np.partition(x, rest)[rest:], 0
    ordered = xp.flip(xp.sort(x)[rest:], axis=0)
    return xp.asarray(ordered, copy=True) if rest else ordered  # the sorted array is not retained


# Shapes and indices


@function("shape(x)")
def _shape(x: Value) -> Value:
    """Return the size of each axis."""
    return tuple(int(n) for n in getattr(operand(x), "shape", ()))


@function("size(x)")
def _size(x: Value) -> Value:
    """Return the number of items of an array."""
    return math.prod(_shape(x))


@function("ravel(x)")
def _ravel(x: Value) -> Value:
    """Return all items as an array of one dimension."""
    x = operand(x)
    return namespace(x).reshape(x, (-1,)) if is_array(x) else np.asarray([x])


@function("reshape(x, shape)")
def _reshape(x: Value, *shape: Value) -> Value:
    """Return the same items in another shape."""
    x = operand(x)
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    most = math.prod(getattr(x, "shape", ()))
    if any(not isinstance(n, int) or not -1 <= n <= max(1, most) for n in sizes):
        raise RefusedQueryError(f"Expected a shape of sizes up to {most}, got {text(sizes, 100)}")
    return namespace(x).reshape(x, tuple(sizes))


@function("item(x)")
def _item(x: Value) -> Value:
    """Return the only item of an array of size 1; a number is returned as it is."""
    if not is_array(x):
        return operand(x)
    if _size(x) != 1:
        raise RefusedQueryError(f"Expected an array of one item, got {type_name(x)}")
    return namespace(x).reshape(x, ())


@function("diff(x)", cost=OperationCost(ns=ARITHMETIC_NS, result="each"))
def _diff(x: Value) -> Value:
    """Return the differences of neighbouring items along the last axis."""
    x = operand(x)
    return x[..., 1:] - x[..., :-1]


@function("cumsum(x)", cost=OperationCost(ns=2.5, result="flat", copies=0.5))
def _cumsum(x: Value) -> Value:
    """Return the cumulative sum of all items, in one dimension."""
    x = _ravel(x)
    xp = namespace(x)
    return np.cumsum(x) if xp is np else xp.cumulative_sum(x)
