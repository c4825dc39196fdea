"""Series of numbers, thinned to what a chart can show, however long they are.

Theory of operation
    The first request reads a series once from start to end, one block in memory at a time, as columns. The overview
    stays in memory: the rows themselves while there are at most `MAX_ROWS`; then, of each run of some rows,
    those that `thin_indices` keeps (the extremes, a NaN for each gap, infinities and what they would hide), and the
    range of steps and wall times of each chunk. Whenever the overview has grown to `MAX_ROWS` again, runs become twice
    as long: an overview is never larger, and thinned twice it still has every extreme.

    If each pixel of a chart covers several runs of rows, the overview answers. If the user zooms in further, the chunks
    in view are read again. When a series grows, only the new rows are read; the last ones wait in a tail until there
    are enough of them to thin.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
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

CHUNK_ROWS: Final = 2**16  # 1.5 MiB in memory, read in some ten milliseconds
MAX_ROWS: Final = 2**14  # of an overview: 384 KiB, and 4 runs for each pixel of a chart, so that it can be zoomed a bit
MAX_BYTES: Final = 64 * 2**20  # of all overviews: those of the 170 longest series on a page
RUN_ROWS: Final = 16  # of the first runs: thinned to an eighth, so that the overview has room to grow
TAIL_ROWS: Final = 2**12  # thinned at once: single rows cannot be
MAX_POINTS: Final = 100_000  # more than any screen has columns, for programs that want the data
MAX_READ_CHUNKS: Final = 32  # read again for one reply; over more chunks the overview is fine enough


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScalarLine:
    """Points of a series.

    Attributes:
        n: The number of points in the range.
        thinned: Whether points are left out.
        x: Shape (n_points,); the places on the chosen axis.
        y: Shape (n_points,); NaN where a value is not a number.
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
    """Of the rows `start` to `stop`: the rows of the overview, and the ranges of steps and wall times."""

    start: int
    stop: int
    kept: Floats  # Shape (3, n_kept): step, wall time, value.
    low: tuple[float, float]
    high: tuple[float, float]


class Overview:
    """The overview of one series. It is used under the lock of its recording.

    Attributes:
        generation: The generation of the recording that was read.
        run_rows: How long the runs of rows are whose extremes it has; 1 while it has all rows.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._chunks: list[_Chunk] = []
        self._tail: _Chunk | None = None
        self.run_rows = 1

    @property
    def n_bytes(self) -> int:
        """The memory that it takes."""
        return sum(chunk.kept.nbytes + 200 for chunk in self._all())

    @property
    def n_rows(self) -> int:
        """How many rows it keeps."""
        return sum(chunk.kept.shape[1] for chunk in self._all())

    @property
    def first_wall(self) -> float:
        """The earliest wall time; 0 without rows."""
        found = min((chunk.low[1] for chunk in self._all()), default=0.0)
        return found if np.isfinite(found) else 0.0

    def extend(self, series: Series) -> None:
        """Read the new rows.

        Raises:
            Problem: The values are not numbers.
        """
        n, start = len(series), max((chunk.stop for chunk in self._all()), default=0)
        if start == 0 and n > MAX_ROWS:  # at once as coarse as it will be
            self.run_rows = min(CHUNK_ROWS, max(RUN_ROWS, 1 << ((2 * n - 1) // MAX_ROWS).bit_length()))
        while start < n:
            stop = min(n, start - start % CHUNK_ROWS + CHUNK_ROWS)
            chunk = _read(series, start, stop, self.run_rows)
            self._tail = chunk if self._tail is None else _joined(self._tail, chunk)
            if stop - self._tail.start >= max(TAIL_ROWS, self.run_rows) or stop % CHUNK_ROWS == 0:
                self._take(_thinned(self._tail, self.run_rows))
                self._tail = None
            start = stop

    def _take(self, chunk: _Chunk) -> None:
        """Add rows, and thin all if there are too many."""
        if self._chunks and chunk.start % CHUNK_ROWS:
            self._chunks[-1] = _joined(self._chunks[-1], chunk)
        else:
            self._chunks.append(chunk)
        while sum(chunk.kept.shape[1] for chunk in self._chunks) > MAX_ROWS and self.run_rows < CHUNK_ROWS:
            self.run_rows = max(RUN_ROWS, 2 * self.run_rows)
            self._chunks = [_thinned(chunk, self.run_rows) for chunk in self._chunks]

    def _all(self) -> list[_Chunk]:
        return self._chunks if self._tail is None else [*self._chunks, self._tail]

    def line(self, series: Series, *, x: X, low: float, high: float, points: int, origin: float) -> ScalarLine:
        """Return the points in a range, thinned.

        Args:
            series: The series, which may be read again.
            x: The axis of the range and of the points.
            low: The start of the range.
            high: The end of the range, inclusive.
            points: The number of runs of points, each of which keeps its extremes.
            origin: The wall time that `relative` counts from.
        """
        axis = 0 if x == "step" else 1
        shift = origin if x == "relative" else 0.0
        bounds = (low + shift, high + shift)
        chunks = [chunk for chunk in self._all() if chunk.low[axis] <= bounds[1] and chunk.high[axis] >= bounds[0]]
        n, parts = 0, []
        coarse = [chunk for chunk in chunks if chunk.kept.shape[1] < chunk.stop - chunk.start]
        # The overview is fine enough if each run of the reply covers several runs of the overview.
        seen = sum(_share(chunk, axis, bounds) for chunk in coarse)
        again = bool(coarse) and (seen < 2 * points * self.run_rows and len(coarse) <= MAX_READ_CHUNKS)
        for chunk in chunks:
            whole = chunk.low[axis] >= bounds[0] and chunk.high[axis] <= bounds[1]
            rows = chunk.kept
            if chunk in coarse and again:
                rows = _read(series, chunk.start, chunk.stop).kept
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
    """A cache of overviews; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._overviews: OrderedDict[tuple[str, Key], tuple[Overview, int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, run: str, series: Series, generation: int) -> Overview:
        """Return the current overview of a series. The caller holds the lock of its recording.

        Args:
            run: The key of the run.
            series: The series.
            generation: The generation of the recording, as in `OpenFiles`.

        Raises:
            Problem: The values are not numbers.
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


def _read(series: Series, start: int, stop: int, run_rows: int = 1) -> _Chunk:
    """Read rows as float64, without damaged ones.

    Blocks are read one after the other, and of a block that has several runs only what an overview keeps of them: the
    columns stay in the processor's cache, and no memory is allocated for all of them.

    Raises:
        Problem: None of the values is a number.
    """
    parts, lows, highs = [np.empty((3, 0))], [(np.inf, np.inf)], [(-np.inf, -np.inf)]
    n_numbers, last = 0, None
    for columns in series.blocks(start, stop):
        steps, walls = columns.steps, columns.wall_times
        values, n_found = _numbers(columns.values)
        n_numbers, last = n_numbers + n_found, columns.values
        lows.append((np.fmin.reduce(steps), np.fmin.reduce(walls)))
        highs.append((np.fmax.reduce(steps), np.fmax.reduce(walls)))
        chosen = thin_indices(values, -(-len(values) // run_rows)) if len(values) > run_rows > 1 else slice(None)
        parts.append(np.array([steps[chosen], walls[chosen], values[chosen]], np.float64))
    if last is not None and not n_numbers:
        raise _no_numbers(series.tag, last)
    low, high = np.fmin.reduce(lows).tolist(), np.fmax.reduce(highs).tolist()
    return _Chunk(start, stop, np.concatenate(parts, axis=1), (low[0], low[1]), (high[0], high[1]))


def _thinned(chunk: _Chunk, run_rows: int) -> _Chunk:
    """Return a chunk with the extremes of each run of `run_rows` rows."""
    kept = chunk.kept
    if run_rows > 1 and kept.shape[1]:
        kept = np.ascontiguousarray(kept[:, thin_indices(kept[2], -(-(chunk.stop - chunk.start) // run_rows))])
    return _Chunk(chunk.start, chunk.stop, kept, chunk.low, chunk.high)


def _joined(one: _Chunk, other: _Chunk) -> _Chunk:
    low = (min(one.low[0], other.low[0]), min(one.low[1], other.low[1]))
    high = (max(one.high[0], other.high[0]), max(one.high[1], other.high[1]))
    return _Chunk(one.start, other.stop, np.concatenate([one.kept, other.kept], axis=1), low, high)


def numbers(tag: str, values: npt.NDArray[Any] | Sequence[object]) -> npt.NDArray[Any]:
    """Return values as a column of numbers, with NaN for values that are not numbers.

    Raises:
        Problem: None of them is a number.
    """
    found, n_numbers = _numbers(values)
    if len(found) and not n_numbers:
        raise _no_numbers(tag, values)
    return found


def _numbers(values: npt.NDArray[Any] | Sequence[object]) -> tuple[npt.NDArray[Any], int]:
    """Return the same, and how many of the values are numbers or `None`."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and is_real(values.dtype):
        return values, len(values)
    found = np.full(len(values), np.nan)
    n_numbers = 0
    for i, value in enumerate(values):
        array = np.asarray(value)
        if array.ndim == 0 and is_real(array.dtype):
            found[i] = array
            n_numbers += 1
        elif value is None:
            n_numbers += 1
    return found, n_numbers


def _no_numbers(tag: str, values: npt.NDArray[Any] | Sequence[object]) -> Problem:
    return Problem(422, "QueryError", f"Expected numbers under {tag!r}, got {type(values[0]).__name__}")
