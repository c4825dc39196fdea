"""Histograms over steps, in bins that all steps share, without losing a value.

Theory of operation
    * Tensors are counted exactly, in the common bins; see `counting`. Values outside of them, which exist only if the
      caller chose the edges or clipped the range, are counted in the first and in the last bin.
    * A stored histogram only says how many values lie below each of its edges. Between them this number is
      interpolated linearly, at the common edges it is rounded, and the bins are the differences: so the total stays,
      no bin is negative, and bins with unchanged edges have unchanged counts.
    * Linear bins are of equal width. Symmetric-logarithmic bins are of equal width in `sign(x) * log1p(|x| / t)`:
      linear up to about the threshold t, logarithmic beyond. t is the lower decile of the magnitudes that are not
      zero, but no less than the largest of them divided by 10^12.
    * The threshold and a clipped range are found from 1,025 quantiles of each step, so every step has the same weight;
      the quantiles are those of at most 65,536 of a step's values, drawn with a fixed seed. They only decide the bins;
      the counts are of all values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import UnknownNameError
from sightglass.core.values import Histogram, is_real, type_name

from . import counting, rebinning

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
Scale = Literal["linear", "symlog"]
Step = Histogram | Array

MIN_BINS, USUAL_BINS = 4, 64
MAX_BINS = 10**6  # more than any screen shows, and still 8 MB a step
N_QUANTILES = 1025  # 0.1 % apart, finer than the quantiles that people clip to
MAX_RATIO = 1e12  # of the largest magnitude to the threshold
MAX_KEPT_BYTES = 2**24  # of arrays, between finding the bins and counting; reading others twice costs less than memory


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HistogramSeries:
    """Histograms of several steps, in common bins.

    Attributes:
        counts: Shape (n_steps, n_bins), int64; each row adds up to the number of finite values of the step. A bin
            includes its left edge, the last one both.
        edges: Shape (n_bins + 1,), float64, increasing.
        threshold: Where symmetric-logarithmic bins turn from linear to logarithmic; `None` for other bins.
        n_nan: Shape (n_steps,), int64: how many values are NaN.
        n_posinf: Shape (n_steps,), int64: how many are +Inf.
        n_neginf: Shape (n_steps,), int64: how many are -Inf.
        percentiles: Shape (n_steps, n_percentiles), float64; NaN for a step without a finite value.
    """

    counts: Counts
    edges: Floats
    threshold: float | None
    n_nan: Counts
    n_posinf: Counts
    n_neginf: Counts
    percentiles: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What determines the common bins: how many finite values a step has, their range and quantiles, its own edges."""

    n: int
    low: float
    high: float
    n_nan: int
    n_posinf: int
    n_neginf: int
    quantiles: Floats
    edges: Floats | None = None


def series(
    steps: Sequence[Histogram | npt.ArrayLike],
    *,
    bins: int | npt.ArrayLike | None = None,
    scale: Scale = "linear",
    clip_quantiles: tuple[float, float] | None = None,
    percentiles: Sequence[float] = (),
) -> HistogramSeries:
    """Count the values of several steps in common bins.

    Args:
        steps: The tensor of real numbers, or the stored histogram, of each step. The sequence may load them: what has
            more than `MAX_KEPT_BYTES` together is read from it twice, and released in between.
        bins: The number of bins, from 1 to 10^6, or their edges: increasing and finite. By default the square root of
            the largest step's number of finite values, from 4 to 64. If all steps are histograms with the same edges,
            and this number of bins if one is given, linear bins get these edges.
        scale: "linear" or "symlog"; see above. Ignored if `bins` are edges.
        clip_quantiles: The two quantiles of all steps' values that the bins span, each from 0 to 1; outliers are
            counted in the bins at the ends. Ignored if `bins` are edges.
        percentiles: Percentiles to return as well, from 0 to 100.

    Raises:
        ValueError: The bins, the quantiles or the percentiles are out of range.
        UnknownNameError: `scale` is unknown.
        TypeError: A step does not hold real numbers.

    >>> series([np.zeros(4), np.array([0.0, 1.0, np.nan])], bins=2).counts
    array([[4, 0],
           [1, 1]])
    """
    if scale not in get_args(Scale):
        raise UnknownNameError("scale", scale, get_args(Scale))
    clip, wanted = _checked_clip(clip_quantiles), _checked_percentiles(percentiles)
    edges = None if bins is None else _checked_bins(bins)
    threshold = None
    kept = _Kept(steps)
    by_quantiles = scale == "symlog" or clip is not None
    facts = [_facts(kept[i], by_quantiles) for i in range(len(steps))]
    if edges is None or isinstance(edges, int):
        low, high = _range(facts, clip)
        threshold = _threshold(facts) if scale == "symlog" else None
        own = _own_edges(facts, edges) if threshold is None and clip is None else None
        edges = _edges(low, high, edges or _n_bins(facts), threshold) if own is None else own
    counts = np.zeros((len(steps), len(edges) - 1), np.int64)
    found = np.full((len(steps), len(wanted)), np.nan)
    for i in reversed(range(len(steps))):  # a series still has the record that was read last
        counts[i], found[i] = _counted(kept[i], edges, wanted)
    return HistogramSeries(
        counts=counts,
        edges=edges,
        threshold=threshold,
        n_nan=np.array([fact.n_nan for fact in facts], np.int64),
        n_posinf=np.array([fact.n_posinf for fact in facts], np.int64),
        n_neginf=np.array([fact.n_neginf for fact in facts], np.int64),
        percentiles=found,
    )


class _Kept:
    """The steps, of which those that were read first are kept."""

    def __init__(self, steps: Sequence[Histogram | npt.ArrayLike]) -> None:
        self._steps = steps
        self._kept: dict[int, Step] = {}
        self._n_bytes = 0

    def __getitem__(self, i: int) -> Step:
        if i in self._kept:
            return self._kept[i]
        step = _checked(self._steps[i])
        self._n_bytes += step.nbytes if isinstance(step, np.ndarray) else step.counts.nbytes
        if self._n_bytes <= MAX_KEPT_BYTES:
            self._kept[i] = step
        return step


def count(step: Histogram | npt.ArrayLike, edges: npt.ArrayLike) -> Counts:
    """Count a step's finite values in bins; those outside are counted in the first and in the last bin.

    Args:
        step: A tensor of real numbers, counted exactly, or a histogram, whose total is preserved.
        edges: Shape (n_bins + 1,), increasing and finite.

    Returns:
        Shape (n_bins,).

    Raises:
        ValueError: `edges` are not finite and increasing, or too many.
        TypeError: The step does not hold real numbers.
    """
    checked = _checked_bins(np.asarray(edges))
    assert not isinstance(checked, int)
    return _counted(_checked(step), checked, np.zeros(0))[0]


def percentiles(step: Histogram | npt.ArrayLike, qs: Sequence[float]) -> Floats:
    """Return percentiles of a step's finite values.

    Args:
        step: A tensor of real numbers, or a histogram, whose bins are taken to be filled evenly.
        qs: The percentiles, from 0 to 100.

    Returns:
        Shape (len(qs),); between two values linearly interpolated. NaN if no value is finite.

    Raises:
        ValueError: One of them is out of range.
        TypeError: The step does not hold real numbers.
    """
    return _counted(_checked(step), np.array([0.0, 1.0]), _checked_percentiles(qs))[1]


def _checked(step: Histogram | npt.ArrayLike) -> Step:
    if isinstance(step, Histogram):
        return step
    array = np.asarray(step)
    if not is_real(array.dtype):
        raise TypeError(f"Expected histograms or arrays of real numbers, got {type_name(array)}")
    return array


def _checked_bins(bins: int | npt.ArrayLike) -> int | Floats:
    if isinstance(bins, int | np.integer):
        if not 1 <= bins <= MAX_BINS:
            raise ValueError(f"Expected 1 to {MAX_BINS:,} bins, got {bins}")
        return int(bins)
    edges = np.array(bins, np.float64)
    if edges.ndim != 1 or not 2 <= len(edges) <= MAX_BINS + 1:
        raise ValueError(f"Expected the edges of 1 to {MAX_BINS:,} bins in one dimension, got shape {edges.shape}")
    if not _are_edges(edges):
        raise ValueError(f"Expected finite edges in increasing order, got {edges.tolist()!r:.80}")
    return edges


def _are_edges(edges: Floats) -> bool:
    return bool(np.isfinite(edges).all() and (edges[1:] > edges[:-1]).all())


def _checked_clip(quantiles: tuple[float, float] | None) -> tuple[float, float] | None:
    if quantiles is not None and not 0 <= quantiles[0] < quantiles[1] <= 1:
        raise ValueError(f"Expected two increasing quantiles from 0 to 1 to clip to, got {quantiles!r}")
    return quantiles


def _checked_percentiles(qs: Sequence[float]) -> Floats:
    wanted = np.array(qs, np.float64)
    if wanted.ndim != 1 or not ((wanted >= 0) & (wanted <= 100)).all():
        raise ValueError(f"Expected percentiles from 0 to 100, got {qs!r}")
    return wanted


def _facts(step: Step, by_quantiles: bool) -> _Facts:
    ranks = np.linspace(0, 1, N_QUANTILES)
    if isinstance(step, Histogram):
        quantiles = rebinning.percentiles(step, 100 * ranks)
        return _Facts(
            n=step.total, low=quantiles[0], high=quantiles[-1],
            n_nan=step.n_nan, n_posinf=step.n_posinf, n_neginf=step.n_neginf, quantiles=quantiles, edges=step.edges,
        )  # fmt: skip
    found = counting.outline(step)
    low, high, quantiles = found.low, found.high, np.zeros(0)
    if low > high:
        low, high = math.nan, math.nan
    elif by_quantiles:
        # The range is exact, even if its ends were not drawn.
        drawn = np.concatenate([[low, high], counting.sample(step)])
        quantiles = np.sort(drawn)[np.rint(ranks * (len(drawn) - 1)).astype(np.int64)]
    return _Facts(
        n=found.n, low=low, high=high,
        n_nan=found.n_nan, n_posinf=found.n_posinf, n_neginf=found.n_neginf, quantiles=quantiles,
    )  # fmt: skip


def _range(facts: Sequence[_Facts], clip: tuple[float, float] | None) -> tuple[float, float]:
    """Return the range of the bins; NaN if no value is finite."""
    solid = [fact for fact in facts if not math.isnan(fact.low)]
    if not solid:
        return math.nan, math.nan
    if clip is None:
        return min(fact.low for fact in solid), max(fact.high for fact in solid)
    every = np.sort(np.concatenate([fact.quantiles for fact in solid]))
    return float(every[math.floor(clip[0] * (len(every) - 1))]), float(every[math.ceil(clip[1] * (len(every) - 1))])


def _threshold(facts: Sequence[_Facts]) -> float:
    magnitudes = np.abs(np.concatenate([np.zeros(0), *(fact.quantiles for fact in facts)]))
    magnitudes = np.sort(magnitudes[magnitudes > 0])
    if not len(magnitudes):
        return 1.0
    return max(float(magnitudes[len(magnitudes) // 10]), float(magnitudes[-1]) / MAX_RATIO)


def _n_bins(facts: Sequence[_Facts]) -> int:
    largest = max((fact.n for fact in facts), default=0)
    return min(max(math.isqrt(largest), MIN_BINS), USUAL_BINS)


def _own_edges(facts: Sequence[_Facts], n_bins: int | None) -> Floats | None:
    """Return the edges that all steps share, or `None`."""
    first = facts[0].edges if facts else None
    if first is None or (n_bins is not None and len(first) != n_bins + 1) or not _are_edges(first):
        return None
    return first if all(fact.edges is not None and np.array_equal(fact.edges, first) for fact in facts) else None


def _edges(low: float, high: float, n_bins: int, threshold: float | None) -> Floats:
    if threshold is not None and low < high:
        with np.errstate(over="ignore"):
            ends = [math.copysign(math.log1p(abs(end) / threshold), end) for end in (low, high)]
            places = np.linspace(ends[0], ends[1], n_bins + 1)
            edges: Floats = np.sign(places) * threshold * np.expm1(np.abs(places))
        edges[[0, -1]] = low, high
        if _are_edges(edges):
            return edges
    # Also for a range of one value, or of so few floats that their logarithms do not differ.
    edges = Histogram([] if math.isnan(low) else [low, high], bins=n_bins).edges
    edges[0], edges[-1] = np.fmin(edges[0], low), np.fmax(edges[-1], high)
    return edges


def _counted(step: Step, edges: Floats, qs: Floats) -> tuple[Counts, Floats]:
    """Return the counts between edges, and percentiles; see `series`."""
    if isinstance(step, Histogram):
        return rebinning.rebinned(step, edges), rebinning.percentiles(step, qs)
    return counting.count(step, edges, qs)
