"""Distributions over steps: the last histograms of a stream, with common bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sightglass.core.record import Record
from sightglass.core.values import Histogram, Tensor

from .series_buffer import as_floats

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


def over_steps(records: Sequence[Record], *, n_bins: int = 64) -> StepHistograms | None:
    """Convert distributions to common bins, assuming that values are spread evenly within each bin.

    Args:
        records: With histograms or vectors as values.
        n_bins: The number of bins.

    Returns:
        The counts, or `None` if no value is finite.
    """
    found = [(record.step, as_histogram(record.value)) for record in records]
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
