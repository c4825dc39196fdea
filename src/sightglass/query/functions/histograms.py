"""Histograms and counts of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sightglass.core.binning import BLOCK
from sightglass.core.errors import RefusedQueryError
from sightglass.core.values import DeviceHistogram, Histogram, Value, array_kind, on_device, to_host, type_name
from sightglass.query.arrays import is_array, namespace, operand
from sightglass.query.costs import OperationCost
from sightglass.query.limits import check_count

from .dtypes import as_floating, as_single
from .ordering import on_host
from .shapes import ravel
from .table import function

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
    placed = xp.where((x >= 0) & (x < size), x, size)
    return xp.bincount(placed, minlength=size + 1)[:size]
