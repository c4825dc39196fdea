"""A tensor's range, its counts between edges and its percentiles, block by block in little memory.

Theory of operation
    * Finding the edges among sorted values is faster than finding each value's bin. Every block is sorted in the same
      memory: pages that are new to the system cost more than sorting what is written to them.
    * Percentiles are exact. A sample tells between which values they lie; from each sorted block the values there are
      kept, and the wanted ranks are found among them. Should one lie elsewhere, all values are kept.
    * The halves of a large array are worked on at the same time: NumPy sorts without the interpreter's lock.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from sightglass.core.process.threads import pool
from sightglass.core.values import is_extended

from .rebinning import between
from .statistics import BLOCK, blocks, finite_part

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
T = TypeVar("T")

N_SAMPLES = 2**16  # sorted in a few milliseconds; a quantile is off by 0.2 % of the values
N_DEVIATIONS = 6  # of a quantile of the sample, within which that of the array lies
N_SHARED = 16 * BLOCK  # values from which on the work is worth another thread


@dataclass(frozen=True, slots=True)
class Outline:
    """How many values of an array are finite, their range, and how many are not; without any, the range is empty."""

    n: int = 0
    low: float = math.inf
    high: float = -math.inf
    n_nan: int = 0
    n_posinf: int = 0
    n_neginf: int = 0

    def __or__(self, other: Outline) -> Outline:
        return Outline(
            self.n + other.n, min(self.low, other.low), max(self.high, other.high), self.n_nan + other.n_nan,
            self.n_posinf + other.n_posinf, self.n_neginf + other.n_neginf,
        )  # fmt: skip


def outline(array: Array) -> Outline:
    """Return the range of an array's finite values, and how many there are of each kind."""
    found = Outline()
    for part in _halves(array, _outline):
        found |= part
    return found


def sample(array: Array) -> Floats:
    """Return some finite values of an array, the same ones each time; of one with up to `N_SAMPLES` values, all."""
    if array.size > N_SAMPLES:
        array = np.asarray(_flat(array)[np.random.default_rng(0).integers(0, array.size, N_SAMPLES)])
    return np.concatenate([finite_part(values.astype(np.float64, copy=False))[0] for values in blocks(array)])


def count(array: Array, edges: Floats, qs: Floats) -> tuple[Counts, Floats]:
    """Count an array's finite values between edges, and find percentiles of them.

    Args:
        array: Real numbers, of any shape.
        edges: Shape (n_bins + 1,), increasing and finite.
        qs: Shape (n,), from 0 to 100.

    Returns:
        The counts, shape (n_bins,); what lies outside is counted in the first and in the last bin. The percentiles,
        shape (n,), between two values linearly interpolated; NaN if no value is finite.
    """
    limits = _rounded_up(edges, _plain_dtype(array))
    counts, found = _counted(array, limits, _near(array, qs), qs)
    if found is None:
        counts, found = _counted(array, limits, _everything(), qs)
        assert found is not None
    return counts, found


@dataclass(frozen=True, slots=True)
class _Gaps:
    """Some values, increasing, and which of the gaps below, between and above them are wanted."""

    ends: Array
    wanted: list[int]


def _everything() -> _Gaps:
    return _Gaps(np.empty(0, np.float32), [0])


def _near(array: Array, qs: Floats) -> _Gaps:
    """Return the gaps in which percentiles lie, as far as a sample tells."""
    if not len(qs):
        return _Gaps(np.empty(0, np.float32), [])
    drawn = np.sort(sample(array)) if array.size > N_SAMPLES else np.empty(0)
    n, shares = len(drawn), qs / 100
    width = N_DEVIATIONS * np.sqrt(n * shares * (1 - shares)) + 2
    first, last = np.floor(n * shares - width).astype(np.int64), np.ceil(n * shares + width).astype(np.int64)
    is_below, is_above = first < 0, last >= n  # the sample does not tell where the percentile may begin, or end
    ends = np.unique(drawn[np.concatenate([first[~is_below], last[~is_above]])])
    begins, stops = np.zeros(len(qs), np.int64), np.full(len(qs), len(ends))
    begins[~is_below] = np.searchsorted(ends, drawn[first[~is_below]]) + 1
    stops[~is_above] = np.searchsorted(ends, drawn[last[~is_above]])
    wanted = {gap for a, b in zip(begins.tolist(), stops.tolist(), strict=True) for gap in range(a, b + 1)}
    return _Gaps(ends.astype(_plain_dtype(array)), sorted(wanted))


@dataclass(frozen=True, slots=True)
class _Part:
    """What was found in a part of an array.

    Attributes:
        n_below: How many values lie below each limit; above the last one, too, and none below the first.
        n_before: How many lie before each gap and each end, in order, and how many there are.
        kept: The values in each wanted gap, in sorted pieces.
    """

    n_below: Counts
    n_before: Counts
    kept: dict[int, list[Array]]


def _counted(array: Array, limits: Array, gaps: _Gaps, qs: Floats) -> tuple[Counts, Floats | None]:
    """Return the counts between limits, and percentiles; `None` if one is in none of the gaps."""
    parts = _halves(array, lambda values: _part(values, limits, gaps))
    whole = _Part(
        n_below=np.sum([part.n_below for part in parts], axis=0),
        n_before=np.sum([part.n_before for part in parts], axis=0),
        kept={gap: [piece for part in parts for piece in part.kept[gap]] for gap in gaps.wanted},
    )
    return np.diff(whole.n_below), _ranked(whole, gaps.ends, qs)


def _part(values: Iterator[Array], limits: Array, gaps: _Gaps) -> _Part:
    found = _Part(
        np.zeros(len(limits), np.int64), np.zeros(2 * len(gaps.ends) + 2, np.int64), {gap: [] for gap in gaps.wanted}
    )
    room = np.empty(BLOCK, limits.dtype)
    for some in values:
        block = room[: len(some)]
        block[:] = some
        block.sort()
        if not (math.isfinite(block[0]) and math.isfinite(block[-1])):  # what is not finite is at the ends
            block = finite_part(block)[0]
        places = block.searchsorted(limits)
        places[[0, -1]] = 0, len(block)
        found.n_below[:] += places
        if gaps.wanted:
            before = _before(block, gaps.ends)
            found.n_before[:] += before
            for gap in gaps.wanted:
                found.kept[gap].append(block[before[2 * gap] : before[2 * gap + 1]].copy())
    return found


def _before(block: Array, ends: Array) -> Counts:
    """Return where each gap and each end begins in a sorted block, in order, and how long the block is."""
    before = np.zeros(2 * len(ends) + 2, np.int64)
    before[1:-1:2], before[2:-1:2] = block.searchsorted(ends), block.searchsorted(ends, "right")
    before[-1] = len(block)
    return before


def _ranked(whole: _Part, ends: Array, qs: Floats) -> Floats | None:
    """Return percentiles; `None` if one is in a gap whose values were not kept."""
    n = int(whole.n_before[-1])
    if not n:
        return np.full(len(qs), np.nan)
    places = qs / 100 * (n - 1)
    lower, upper = np.floor(places).astype(np.int64), np.ceil(places).astype(np.int64)
    ranks = np.unique([lower, upper])
    values, segments = np.empty(len(ranks)), np.searchsorted(whole.n_before, ranks, side="right") - 1
    for i in np.unique(segments).tolist():
        if i % 2:
            values[segments == i] = ends[i // 2]
            continue
        if i // 2 not in whole.kept:
            return None
        inside, wanted = np.concatenate(whole.kept[i // 2]), ranks[segments == i] - whole.n_before[i]
        if len(whole.kept[i // 2]) > 1:
            inside.partition(wanted)
        values[segments == i] = inside[wanted]
    low, high = (values[np.searchsorted(ranks, some)] for some in (lower, upper))
    return between(low, high, places - lower)


def _outline(values: Iterator[Array]) -> Outline:
    found = Outline()
    for some in values:
        low, high, n_nan, n_posinf, n_neginf = float(some.min()), float(some.max()), 0, 0, 0
        if not (math.isfinite(low) and math.isfinite(high)):  # NaN comes through both
            some, n_nan, n_posinf, n_neginf = finite_part(some)
            low, high = float(some.min(initial=math.inf)), float(some.max(initial=-math.inf))
        found |= Outline(len(some), low, high, n_nan, n_posinf, n_neginf)
    return found


def _halves(array: Array, work: Callable[[Iterator[Array]], T]) -> list[T]:
    """Return what comes of the blocks of an array, of the halves of a large one."""
    n = array.size
    if n < N_SHARED:
        return [work(_plain_blocks(array, range(0, n, BLOCK)))]
    middle = n // 2 - n // 2 % BLOCK
    with pool("tensors", 1) as helper:
        second = helper.submit(work, _plain_blocks(array, range(middle, n, BLOCK)))
        return [work(_plain_blocks(array, range(0, middle, BLOCK))), second.result()]


def _plain_dtype(array: Array) -> np.dtype[Any]:
    """Return float32 where that holds the values of an array, else float64."""
    return np.dtype(np.float32 if is_extended(array.dtype) or array.dtype in (np.float16, np.float32) else np.float64)


def _plain_blocks(array: Array, starts: range) -> Iterator[Array]:
    """Yield some blocks of an array, as its plain dtype."""
    flat, dtype = _flat(array), _plain_dtype(array)
    for start in starts:
        values = np.asarray(flat[start : start + BLOCK])
        yield values if values.dtype == dtype else _converted(values, dtype)


def _converted(values: Array, dtype: np.dtype[Any]) -> Array:
    with np.errstate(all="ignore"):  # a signalling NaN, a longdouble beyond float64
        return values.astype(dtype)


def _flat(array: Array) -> Any:
    return array.reshape(-1) if array.flags.c_contiguous else array.flat


def _rounded_up(edges: Floats, dtype: np.dtype[Any]) -> Array:
    """Return the smallest numbers of a type that are not less than the edges: the same values lie below them."""
    with np.errstate(over="ignore"):
        near = edges.astype(dtype)
        return np.where(near < edges, np.nextafter(near, dtype.type(np.inf)), near)
