"""Series of numbers, thinned to what a chart can show, however long they are.

Theory of operation
    The first time that somebody looks, a series is read once from its beginning to its end, `CHUNK_ROWS` rows in memory
    at a time, and no record is made of a row. What stays is an overview: of each run of `RUN_ROWS` rows those that
    `see.thin.keep` keeps (the extremes, a NaN for each gap, infinities and what they would hide), and of each chunk
    where its steps and wall times lie. A series of no more than `CHUNK_ROWS` rows stays as a whole.

    A chart that shows so many rows that each pixel has several runs is made from the overview; thinned twice, every
    extreme is still there. Where somebody zoomed in further, the chunks in view are read again. When a series grows,
    its overview grows: only what is new is read, with the last chunk if that was not full.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sightglass.core.values import is_real
from sightglass.server.http_errors import Problem
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Series
from sightglass.views.thinning import thin_indices

X = Literal["step", "wall", "relative"]
Floats = npt.NDArray[np.float64]

CHUNK_ROWS: Final = 2**18
MAX_BYTES: Final = 64 * 2**20
"""How much memory all overviews may take."""

RUN_ROWS: Final = 512
MAX_POINTS: Final = 100_000
MAX_READ_CHUNKS: Final = 8
"""How many chunks are read again, at most, for one answer; of more the overview is fine enough."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalarLine:
    """Points of a series.

    Attributes:
        n: How many there are in the range that was asked for.
        thinned: Whether some are left out.
        x: Shape (n_points,); where they stand on the axis that was asked for.
        y: Shape (n_points,); NaN where a value is no number.
        wall: Shape (n_points,), in seconds since the Unix epoch.
        step: Shape (n_points,).
    """

    n: int
    thinned: bool
    x: Floats
    y: Floats
    wall: Floats
    step: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """What is known of the rows `start` to `stop`: those that were kept, and the ranges in which all of them lie."""

    start: int
    stop: int
    kept: Floats  # Shape (3, n_kept): step, wall time, value.
    low: tuple[float, float]
    high: tuple[float, float]


class Overview:
    """What is remembered of one series; used by one thread at a time, under the lock of its recording.

    Attributes:
        generation: Of the recording, when it was read.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._chunks: list[_Chunk] = []

    @property
    def n_bytes(self) -> int:
        """How much memory it takes."""
        return sum(chunk.kept.nbytes + 200 for chunk in self._chunks)

    @property
    def first_wall(self) -> float:
        """The earliest wall time; 0 of nothing."""
        found = min((chunk.low[1] for chunk in self._chunks), default=0.0)
        return found if np.isfinite(found) else 0.0

    def extend(self, series: Series) -> None:
        """Read what is new.

        Raises:
            Problem: The values are no numbers.
        """
        n = len(series)
        while self._chunks and self._chunks[-1].stop - self._chunks[-1].start < CHUNK_ROWS < n:
            if self._chunks[-1].stop == n:
                return
            self._chunks.pop()
        start = self._chunks[-1].stop if self._chunks else 0
        if start and n <= CHUNK_ROWS and start < n:
            fresh = _chunk(start, n, _columns(series, start, n), whole=True)
            self._chunks[-1] = _joined(self._chunks[-1], fresh)
            return
        for low in range(start, n, CHUNK_ROWS):
            high = min(n, low + CHUNK_ROWS)
            self._chunks.append(_chunk(low, high, _columns(series, low, high), whole=n <= CHUNK_ROWS))

    def line(self, series: Series, *, x: X, low: float, high: float, points: int, origin: float) -> ScalarLine:
        """Return the points of a range, thinned.

        Args:
            series: The series, which may be read again.
            x: What the range is of, and what stands on the axis.
            low: Where it begins.
            high: Where it ends, that included.
            points: Into how many runs the points are divided, of which each keeps its extremes.
            origin: The wall time that `relative` counts from.
        """
        axis = 0 if x == "step" else 1
        shift = origin if x == "relative" else 0.0
        bounds = (low + shift, high + shift)
        chunks = [chunk for chunk in self._chunks if chunk.low[axis] <= bounds[1] and chunk.high[axis] >= bounds[0]]
        n, parts = 0, []
        coarse = [chunk for chunk in chunks if chunk.kept.shape[1] < chunk.stop - chunk.start]
        # Inside the range the overview does as long as each run of the answer has several of its own.
        seen = sum(_share(chunk, axis, bounds) for chunk in coarse)
        again = bool(coarse) and (seen < 2 * points * RUN_ROWS and len(coarse) <= MAX_READ_CHUNKS)
        for chunk in chunks:
            whole = chunk.low[axis] >= bounds[0] and chunk.high[axis] <= bounds[1]
            rows = chunk.kept
            if chunk in coarse and again:
                rows = _columns(series, chunk.start, chunk.stop)
            counted = chunk.stop - chunk.start
            if not whole:
                inside = (rows[axis] >= bounds[0]) & (rows[axis] <= bounds[1])
                scale = (chunk.stop - chunk.start) / max(1, rows.shape[1])
                rows = rows[:, inside]
                counted = round(rows.shape[1] * scale)
            n += counted
            parts.append(rows)
        joined = np.concatenate(parts, axis=1) if parts else np.empty((3, 0))
        shown = joined[:, thin_indices(joined[2], points)] if joined.shape[1] > 2 * points else joined
        xs = shown[axis] - shift
        return ScalarLine(n=n, thinned=shown.shape[1] < n, x=xs, y=shown[2], wall=shown[1], step=shown[0])


class Overviews:
    """The overviews that are remembered; those that nobody asked for longest are forgotten first."""

    def __init__(self) -> None:
        self._overviews: OrderedDict[tuple[str, Key], tuple[Overview, int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, run: str, series: Series, generation: int) -> Overview:
        """Return the overview of a series, up to date; called under the lock of its recording.

        Args:
            run: The key of the run.
            series: The series.
            generation: Of the recording: another number when rows are other rows.

        Raises:
            Problem: The values are no numbers.
        """
        place = (run, series.key)
        with self._lock:
            overview, n_bytes = self._overviews.pop(place, (None, 0))
            self._n_bytes -= n_bytes
        if overview is None or overview.generation != generation:
            overview = Overview(generation)
        overview.extend(series)
        with self._lock:
            self._overviews[place] = (overview, overview.n_bytes)
            self._n_bytes += overview.n_bytes
            while self._n_bytes > MAX_BYTES and len(self._overviews) > 1:
                self._n_bytes -= self._overviews.popitem(last=False)[1][1]
        return overview


def _share(chunk: _Chunk, axis: int, bounds: tuple[float, float]) -> float:
    """Estimate how many rows of a chunk lie in a range."""
    width = chunk.high[axis] - chunk.low[axis]
    if width <= 0 or not np.isfinite(width):
        return chunk.stop - chunk.start
    inside = min(chunk.high[axis], bounds[1]) - max(chunk.low[axis], bounds[0])
    return (chunk.stop - chunk.start) * min(1.0, max(0.0, inside / width))


def _chunk(start: int, stop: int, rows: Floats, *, whole: bool) -> _Chunk:
    places = rows[:2]
    empty = not rows.shape[1]
    low = (np.inf, np.inf) if empty else tuple(np.nanmin(places, axis=1).tolist())
    high = (-np.inf, -np.inf) if empty else tuple(np.nanmax(places, axis=1).tolist())
    kept = rows if whole or empty else rows[:, thin_indices(rows[2], -(-rows.shape[1] // RUN_ROWS))]
    return _Chunk(start, stop, np.ascontiguousarray(kept), low, high)


def _joined(one: _Chunk, other: _Chunk) -> _Chunk:
    low = (min(one.low[0], other.low[0]), min(one.low[1], other.low[1]))
    high = (max(one.high[0], other.high[0]), max(one.high[1], other.high[1]))
    return _Chunk(one.start, other.stop, np.concatenate([one.kept, other.kept], axis=1), low, high)


def _columns(series: Series, start: int, stop: int) -> Floats:
    """Read rows: their steps, wall times and values as float64; damaged ones are left out."""
    columns = series.columns(start, stop)
    rows = np.empty((3, len(columns)))
    rows[0], rows[1] = columns.steps, columns.wall_times
    rows[2] = numbers(series.tag, columns.values)
    return rows


def numbers(tag: str, values: Any) -> Any:
    """Return values as a column of numbers; NaN where there is none.

    Raises:
        Problem: None of them is a number.
    """
    if isinstance(values, np.ndarray) and values.ndim == 1 and is_real(values.dtype):
        return values
    found = np.full(len(values), np.nan)
    n_numbers = 0
    for i, value in enumerate(values):
        array = np.asarray(value)
        if array.ndim == 0 and is_real(array.dtype):
            found[i] = array
            n_numbers += 1
        elif value is None:
            n_numbers += 1
    if len(found) and not n_numbers:
        raise Problem(422, "QueryError", f"Expected numbers under {tag!r}, got {type(values[0]).__name__}")
    return found
