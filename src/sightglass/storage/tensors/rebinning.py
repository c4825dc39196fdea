"""Counts of a stored histogram in other bins, and its percentiles: between its edges, values are spread evenly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sightglass.core.values import Histogram

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

LARGEST = float(np.finfo(np.float64).max)


def rebinned(histogram: Histogram, edges: Floats) -> Counts:
    """Return the counts between other edges, shape (n_bins,), with the same total."""
    own = np.clip(histogram.edges, -LARGEST, LARGEST)
    below = np.concatenate([[0], np.cumsum(histogram.counts)])
    # The first of its own edges that is not less: values in bins without a width lie above it.
    after = np.searchsorted(own, edges, side="left")
    inner = np.clip(after, 1, len(own) - 1)
    left, right = own[inner - 1], own[inner]
    scale = np.where(np.maximum(-left, right) > LARGEST / 4, 0.25, 1)  # no width may overflow
    left, right = left * scale, right * scale
    share = (np.clip(edges * scale, left, right) - left) / np.where(right > left, right - left, 1)
    n_left, n_right = below[inner - 1], below[inner]
    n_below = n_left + np.floor(share * (n_right - n_left) + 0.5).astype(np.int64)
    n_below[after == len(own)] = below[-1]
    n_below[[0, -1]] = 0, below[-1]
    return np.asarray(np.diff(n_below), np.int64)


def percentiles(histogram: Histogram, qs: Floats) -> Floats:
    """Return percentiles from 0 to 100, of the shape of `qs`; NaN of a histogram without values."""
    solid = np.flatnonzero(histogram.counts)
    if not len(solid):
        return np.full(len(qs), np.nan)
    edges, counts = np.clip(histogram.edges, -LARGEST, LARGEST), histogram.counts[solid]
    above = np.cumsum(counts)
    places = qs / 100 * above[-1]
    at = np.minimum(np.searchsorted(above, places), len(solid) - 1)
    share = np.clip((places - (above - counts)[at]) / counts[at], 0, 1)
    return between(edges[solid][at], edges[solid + 1][at], share)


def between(low: Floats, high: Floats, share: Floats) -> Floats:
    """Interpolate, from `low` to `high` exactly and never falling, however wide or narrow the range is."""
    with np.errstate(over="ignore", invalid="ignore"):
        width = high - low
        values = np.where(np.isfinite(width), low + width * share, low * (1 - share) + high * share)
    return np.where(share == 1, high, np.clip(values, low, high))
