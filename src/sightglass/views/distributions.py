"""Distributions over steps: some histograms of a stream, evenly over what is held of it, with common bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.core.values import Histogram, Tensor

from .series_buffer import as_floats

MAX_RIDGES: Final = 40  # more would cover each other
MAX_COLUMNS: Final = 512  # of a heat map: about the pixels of a chart

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHistograms:
    """Counts by step and value.

    Attributes:
        steps: Shape (n,); the step of each distribution.
        edges: Shape (n_bins + 1,); common to all of them, of equal widths.
        counts: Shape (n, n_bins); how many values lie in each bin, with fractions where bins were divided.
    """

    steps: Floats
    edges: Floats
    counts: Floats


def as_histogram(value: Histogram | Tensor | npt.ArrayLike) -> Histogram | None:
    """Return a value as a histogram, or `None` if it is a single number."""
    if isinstance(value, Histogram):
        return value
    data = as_floats(value)
    return Histogram(data) if data.ndim else None


def evenly(records: Sequence[Record], n_max: int) -> list[Record]:
    """Return at most `n_max` records, evenly over their steps; the first and the last are among them."""
    if len(records) <= n_max:
        return list(records)
    steps = np.array([record.step for record in records])
    if (np.diff(steps) < 0).any() or steps[0] == steps[-1]:
        steps = np.arange(float(len(records)))
    wanted = np.linspace(steps[0], steps[-1], n_max)
    after = np.clip(np.searchsorted(steps, wanted), 1, len(steps) - 1)
    nearest = after - (wanted - steps[after - 1] < steps[after] - wanted)
    nearest[0], nearest[-1] = 0, len(records) - 1
    return [records[i] for i in np.unique(nearest)]


def over_steps(records: Sequence[Record], *, n_max: int = MAX_COLUMNS, n_bins: int = 64) -> StepHistograms | None:
    """Convert distributions to common bins, assuming that values are spread evenly within each bin.

    Args:
        records: With histograms or vectors as values.
        n_max: How many of them to show, evenly over their steps.
        n_bins: The number of bins.

    Returns:
        The counts, or `None` if no value is finite.
    """
    found = [(record.step, as_histogram(record.value)) for record in evenly(records, n_max)]
    known = [(step, one) for step, one in found if one is not None and one.total]
    if not known:
        return None
    low = min(float(one.edges[0]) for _, one in known)
    high = max(float(one.edges[-1]) for _, one in known)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, n_bins + 1)
    return StepHistograms(
        steps=np.array([step for step, _ in known]), edges=edges, counts=np.array([_spread(h, edges) for _, h in known])
    )


def _spread(histogram: Histogram, edges: Floats) -> Floats:
    below = np.concatenate([[0.0], np.cumsum(histogram.counts, dtype=np.float64)])
    counts: Floats = np.diff(np.interp(edges, histogram.edges, below))
    return counts
