"""Statistics of an array: of an axis, or with `axis=None` of all items."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.program_values.guarded import text
from sightglass.core.values import (
    BLOCK,
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
from sightglass.query.costs import ARITHMETIC_NS, OperationCost, without
from sightglass.query.limits import check_bytes, check_count, check_length

from .elementwise import on_host
from .shapes import axes_of, ravel
from .table import FULL, as_floating, as_single, astype, function

PERCENT: Final = 100
QUANTILE_NS: Final = 13.0  # an item
EACH_NS: Final = 2_000.0  # one more quantile of the same items
ROW_NS: Final = 100.0  # one quantile of one row
FLOAT_BYTES: Final = 8
Axis = int | tuple[int, ...] | None


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
            x = as_floating(x)
        if xp is np and is_extended(x.dtype):  # NumPy would sum them in their own few digits
            x = x.astype(np.float32)
        elif of_two_passes:
            x = as_single(x)
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
    xp, x = namespace(x), as_single(as_floating(x))
    if axis is None and is_numpy(x) and x.dtype.kind == "f":
        return np.sqrt(np.add.reduce(x * x, axis=None))
    if axis is None and array_kind(x) == "torch":
        return xp.linalg.vector_norm(x)  # one pass over the array; the line below makes three
    squares = xp.real(x * xp.conj(x)) if "complex" in str(x.dtype) else x * x
    return xp.sqrt(xp.sum(squares, axis=axis))


def _quantiles_cost(args: Sequence[Any], *, q: Value = None, axis: Axis = None) -> tuple[tuple[int, ...], float]:
    """Return the shape of one quantile, or of a stack of several along an axis, and what they take."""
    q, axis = args[1] if len(args) > 1 else q, args[2] if len(args) > 2 else axis
    n_q = math.prod(q.shape) if hasattr(q, "shape") else len(q) if isinstance(q, list | tuple) else 0
    return _rows(args[0].shape, axis, n_q)


def _median_cost(args: Sequence[Any], *, axis: Axis = None) -> tuple[tuple[int, ...], float]:
    return _rows(args[0].shape, args[1] if len(args) > 1 else axis, 0)


def _rows(shape: tuple[int, ...], axis: Axis, n_q: int) -> tuple[tuple[int, ...], float]:
    rows = without(shape, axis)
    n_results = max(1, n_q) * math.prod(rows)
    ns = QUANTILE_NS * math.prod(shape) + EACH_NS * n_q + (ROW_NS * n_results if rows else 0.0)
    return (n_q, *rows) if n_q and rows else rows, ns


@function(
    "quantile(x, q, axis=None)", cost=OperationCost(kind="sorting", result="scalar", copies=2.0, shaped=_quantiles_cost)
)
def _quantile(x: Value, q: Value, axis: Axis = None) -> Value:
    """Return the q-quantile, 0 <= q <= 1, of all values or along an axis, interpolated; for a list of q, a tuple."""
    wanted = q if isinstance(q, list | tuple) else (q,)
    check_length(wanted)
    for one in wanted:
        if isinstance(one, bool) or not isinstance(one, int | float) or not 0 <= one <= 1:
            raise RefusedQueryError(f"Expected q between 0 and 1, got {text(one, 100)}")
    x = ravel(x) if axis is None else _in_rows(_array(x), axis)
    if not x.shape[-1]:
        raise EvaluationError(f"Expected at least one value for a quantile, got {type_name(x)}")
    check_bytes(len(wanted) * math.prod(x.shape[:-1]) * FLOAT_BYTES)
    if "complex" in str(x.dtype):
        raise RefusedQueryError(f"Expected real numbers for a quantile, got {type_name(x)}: use .real or abs(…)")
    found = _quantiles(as_single(as_floating(x)), wanted)
    return found if isinstance(q, list | tuple) else found[0]


def _in_rows(x: Value, axis: Value) -> Value:
    """Return an array whose last axis has the items of an axis, or of several."""
    axes = axes_of(x, axis)
    others = tuple(i for i in range(len(x.shape)) if i not in axes)
    xp = namespace(x)
    return xp.reshape(xp.permute_dims(x, (*others, *axes)), (*(x.shape[i] for i in others), -1))


def _quantiles(x: Value, wanted: Value) -> tuple[Any, ...]:
    xp, last = namespace(x), x.shape[-1] - 1
    places = [q * last for q in wanted]
    if xp is np:  # NaN is last in order; `np.quantile` finds NaN between two equal infinities
        ordered = np.partition(x, [*{*map(math.floor, places), *map(math.ceil, places), last}])
        has_nan = np.isnan(ordered[..., -1])
    else:
        ordered, has_nan = xp.sort(x), xp.any(xp.isnan(x), axis=-1)
    found = []
    for place in places:
        low, high = ordered[..., math.floor(place)], ordered[..., math.ceil(place)]
        between = low + (high - low) * (place - math.floor(place))
        # Between an infinity and a number, the infinity counts, as for the reducers.
        between = xp.where(xp.isinf(low), low, xp.where(xp.isinf(high), high, between))
        quantile = xp.where(has_nan, between * math.nan, between)
        found.append(quantile[()] if xp is np else quantile)  # numbers stay numbers
    return tuple(found)


@function(
    "median(x, axis=None)",
    cost=OperationCost(kind="sorting", result="scalar", copies=2.0, places=True, shaped=_median_cost),
)
def _median(x: Value, axis: Axis = None) -> Value:
    """Return the median of all values, or along an axis."""
    return _quantile(x, 0.5, axis)


@function(
    "percentile(x, q, axis=None)",
    cost=OperationCost(kind="sorting", result="scalar", copies=2.0, shaped=_quantiles_cost),
)
def _percentile(x: Value, q: Value, axis: Axis = None) -> Value:
    """Return the q-th percentile, 0 <= q <= 100, of all values or along an axis; for a list of q, a tuple."""
    several = isinstance(q, list | tuple)
    if not several:
        return _quantile(x, _part(q), axis)
    check_length(q)
    return _quantile(x, [_part(one) for one in q], axis)


def _part(q: Value) -> float:
    if isinstance(q, bool) or not isinstance(q, int | float) or not 0 <= q <= PERCENT:
        raise RefusedQueryError(f"Expected q between 0 and 100, got {text(q, 100)}")
    return q / PERCENT


@function("logsumexp(x, axis=None)", cost=OperationCost(ns=3.0, kind="functions", result="reduce", copies=2.0))
def _logsumexp(x: Value, axis: Axis = None) -> Value:
    """Return the logarithm of the sum of exponentials, without overflow."""
    x = as_single(as_floating(_array(x)))
    xp = namespace(x)
    if not math.prod(x.shape):
        return xp.log(xp.sum(xp.exp(x), axis=axis))
    largest = xp.max(x, axis=axis, keepdims=True)
    largest = xp.where(xp.isfinite(largest), largest, xp.zeros_like(largest))
    return xp.log(xp.sum(xp.exp(x - largest), axis=axis)) + xp.sum(largest, axis=axis)


@function("softmax(x, axis=-1)", cost=OperationCost(ns=3.0, kind="functions", result="same", copies=2.0))
def _softmax(x: Value, axis: int = -1) -> Value:
    """Return the exponentials along an axis, divided by their sum."""
    x = as_floating(_array(x))
    xp = namespace(x)
    powers = xp.exp(x - xp.max(x, axis=axis, keepdims=True))
    return powers / xp.sum(powers, axis=axis, keepdims=True)


def _array(x: Value) -> Value:
    x = operand(x)
    return x if is_array(x) else np.asarray(x)


# Histograms and counts of values.

SMALL_PLACES: Final = 2**8
"""The largest number of bins whose numbers, with one for the right edge, fit one byte."""
PIECE: Final = 2**15
"""The items of a tensor that are placed at a time: their 128 KB are in the cache, where new memory is not."""
MIN_LANED: Final = 2**12
"""The smallest number of items that neighbours count in turns: of fewer, to add the counts up takes as long."""
LARGEST: Final = float(np.finfo(np.float32).max)
ROUNDINGS: Final = 1e-6
"""The smallest width of a bin relative to the largest value: well above float32's rounding of 1e-7, so that PyTorch
counts a value in the right bin."""


def _bins_ns(n: int, bins: Value = 64) -> float:
    return check_count(bins, name="bins") * (
        100.0 + 4.0 * n / BLOCK
    )  # each block of values is added to the counts of all bins


def _bins_bytes(shape: tuple[int, ...], bins: Value = 64) -> int:
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
        return histogram_of_tensor(x.detach(), bins)
    return _device_histogram(as_single(as_floating(ravel(x))), bins)


def histogram_of_tensor(x: Value, bins: int) -> Histogram:
    """Place with NumPy and count with PyTorch on the host; a value within rounding of an edge may be on either side."""
    xp = namespace(x)
    if x.is_floating_point():
        x = x.to(xp.float32) if x.dtype in (xp.float16, xp.bfloat16) else x
        low, high = (float(end) for end in xp.aminmax(x))
        width = high - low
        if bins / LARGEST < width < LARGEST and width > ROUNDINGS * bins * max(abs(low), abs(high)):
            values, kind = x.numpy().reshape(-1), np.uint8 if bins < SMALL_PLACES else np.int32
            lanes = _lanes(bins) if len(values) >= MIN_LANED else None
            n_lanes = 1 if lanes is None else SMALL_PLACES // (bins + 1)
            counts: Any = 0
            for i in range(0, len(values), PIECE):
                piece = values[i : i + PIECE] - low
                piece *= bins / width
                places = piece.astype(kind)
                if lanes is not None:
                    places += lanes[: len(places)]
                counts += xp.bincount(xp.from_numpy(places), minlength=n_lanes * (bins + 1))
            counts = counts.numpy().reshape(n_lanes, bins + 1).sum(axis=0)
            counts[bins - 1] += counts[bins]  # the last bin includes its right edge
            edges = np.arange(bins + 1) * (width / bins) + low  # as `np.linspace`, in a tenth of its time
            edges[bins] = high
            return Histogram.from_counts(counts[:bins], edges)
    histogram = Histogram(to_host(x), bins=bins)
    _ = histogram.counts
    return histogram


def histograms_of_tensors(tensors: Sequence[Value], bins: int) -> list[Histogram]:
    """Return `histogram_of_tensor` of each tensor on the host: small ones are placed and counted together."""
    small = [i for i, x in enumerate(tensors) if 0 < x.numel() < MIN_LANED and x.dtype == tensors[0].dtype]
    made: dict[int, Histogram] = {}
    if len(small) > 1 and tensors[small[0]].is_floating_point() and tensors[small[0]].itemsize >= 4:
        xp = namespace(tensors[0])
        values = xp.concat([tensors[i].reshape(-1) for i in small]).numpy()
        sizes = [tensors[i].numel() for i in small]
        of = np.repeat(np.arange(len(small)), sizes)
        starts = np.cumsum([0, *sizes[:-1]])
        lows, highs = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
        with np.errstate(all="ignore"):
            widths = highs.astype(np.float64) - lows
            enough = ROUNDINGS * bins * np.maximum(abs(lows), abs(highs)).astype(np.float64)
            fits = (bins / LARGEST < widths) & (widths < LARGEST) & (widths > enough)
            values -= lows[of]
            values *= (bins / widths).astype(values.dtype)[of]
            places = np.where(fits[of], values, 0).astype(np.int64) + of * (bins + 1)
            edges = np.arange(bins + 1) * (widths / bins)[:, None] + lows[:, None]
        edges[:, bins] = highs
        counts = np.bincount(places, minlength=len(small) * (bins + 1)).reshape(-1, bins + 1)
        counts[:, bins - 1] += counts[:, bins]
        for i, fit, several, ends in zip(small, fits, counts, edges, strict=True):
            if fit:
                made[i] = Histogram.from_counts(several[:bins], ends)
    return [made[i] if i in made else histogram_of_tensor(x, bins) for i, x in enumerate(tensors)]


@lru_cache(maxsize=4)
def _lanes(bins: int) -> Any:
    """Return what to add to the places of neighbouring items so that they count in turns; `None` if it does not fit.

    A processor waits for one count to be stored before it adds to the same one. Half of what a rectifier returns is 0.
    """
    n_lanes = SMALL_PLACES // (bins + 1)
    return np.resize(np.arange(n_lanes, dtype=np.uint8) * np.uint8(bins + 1), PIECE) if n_lanes > 1 else None


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


def _counts_cost(args: Sequence[Any], **kwargs: object) -> tuple[tuple[int, ...], float]:
    n, size = math.prod(getattr(args[0], "shape", ())), kwargs.get("size", args[1] if len(args) > 1 else None)
    shape = (check_count(size, name="size"),) if isinstance(size, int) else (0,)
    return shape, 6.0 * n + shape[0]


@function("bincount(x, size=None)", cost=OperationCost(shaped=_counts_cost, copies=2.0))
def _bincount(x: Value, size: Value = None) -> Value:
    """Count how often each of the integers 0 to size - 1 occurs; others are not counted.

    Without a size, up to the largest one.
    """
    if size is None:
        x = ravel(on_host(x, "bincount without a size", "Write bincount(x, size)"))
        size = int(x.max()) + 1 if x.shape[0] else 1
    size, x = check_count(size, name="size"), ravel(x)
    xp = namespace(x)
    if not xp.isdtype(x.dtype, "integral") if hasattr(xp, "isdtype") else x.dtype.kind not in "iu":
        raise RefusedQueryError(f"Expected integers, got {type_name(x)}")
    if array_kind(x) == "jax":
        return xp.bincount(xp.where((x >= 0) & (x < size), x, size), length=size + 1)[:size]
    x = astype(x, xp.int64)  # the size may not fit into its dtype
    placed = xp.where((x >= 0) & (x < size), x, size)
    return xp.bincount(placed, minlength=size + 1)[:size]
