"""Samples counted in equal bins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK = 2**18  # 2 MB as float64, so that temporary arrays stay in the cache
LARGEST = float(np.finfo(np.float64).max)


def binned(samples: npt.NDArray[Any], n_bins: int) -> tuple[Any, Any, int, int, int]:
    """Count samples as `np.histogram` does, but in blocks, so that a large array is never copied whole.

    Args:
        samples: Real numbers, of shape (n,).
        n_bins: The number of bins.

    Returns:
        The counts, the edges, and how many samples are NaN, +Inf and -Inf.
    """
    low, high, outside = math.inf, -math.inf, np.zeros(3, np.int64)
    for values in _blocks(samples):
        finite = values[np.isfinite(values)]
        if len(finite) < len(values):
            outside += (np.isnan(values).sum(), np.isposinf(values).sum(), np.isneginf(values).sum())
        if len(finite):
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    # Beyond this the width of the range overflows; scaling by a power of two changes no digit.
    scale = 0.25 if max(abs(low), abs(high)) > 2.0**1020 and low <= high else 1.0
    edges = _edges(low * scale, high * scale, n_bins)
    counts = np.zeros(n_bins, np.int64)
    for values in _blocks(samples):
        counts += np.histogram(values[np.isfinite(values)] * scale, n_bins, (edges[0], edges[-1]))[0]
    return counts, edges / scale, *map(int, outside)  # type: ignore[return-value]


def _blocks(samples: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.float64]]:
    return (samples[i : i + BLOCK].astype(np.float64) for i in range(0, len(samples), BLOCK))


def _edges(low: float, high: float, n_bins: int) -> npt.NDArray[np.float64]:
    """Return the edges of equal bins; from 0 to 1 without values, in a range of 1 around a single value."""
    if low > high:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    narrowest = 4 * n_bins * float(np.spacing(max(abs(low), abs(high))))
    if high - low < narrowest:  # so narrow that neighbouring edges would be the same float
        low, high = low - narrowest, high + narrowest
        beyond = max(high - LARGEST / 4, 0.0) + min(low + LARGEST / 4, 0.0)
        low, high = low - beyond, high - beyond
    return np.linspace(low, high, n_bins + 1)
