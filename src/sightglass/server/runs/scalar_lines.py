"""Series of numbers, thinned to what a chart can show, however long they are.

Theory of operation
    The first request reads a series once from start to end, one block in memory at a time, as columns. The overview
    stays in memory: the rows themselves while there are at most `MAX_ROWS`; then, of each run of some rows,
    those that `thin_indices` keeps (the extremes, a NaN for each gap, infinities and what they would hide), and the
    range of steps and wall times of each chunk. Whenever the overview has grown to `MAX_ROWS` again, runs become twice
    as long: an overview is never larger, and thinned twice it still has every extreme.

    If each pixel of a chart covers several runs of rows, the overview answers, except for the chunks that are in view
    in part, which are read again. If the user zooms in further, all chunks in view are. When a series grows, only the
    new rows are read; the last ones wait in a tail until there are enough of them to thin.

    Points are in the order of recording, in parts: where the run continued after a restart, where steps go back, and
    on the axis of wall times where the clock was set back (`views.passes`). All rows are looked at as they are read, so
    parts begin at the same rows however much is thinned, and when chunks are read again. Seconds since the start go on
    where a clock was set back.

    Rows also have areas (`core.buffer`), so that charts smooth the line of all rows, and not that of the extremes.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sightglass.core.buffer import line_means, merged_areas
from sightglass.core.columns import Columns
from sightglass.core.process.unpatched import threading
from sightglass.core.values import is_real
from sightglass.server.http_errors import Problem
from sightglass.storage.format.block import Key
from sightglass.storage.format.totals import real_of
from sightglass.views.passes import MAX_PARTS, LinePart, Setbacks, ordered, parts_of, starts_of
from sightglass.views.thinning import thin_indices

X = Literal["step", "wall", "relative"]
Floats = npt.NDArray[np.float64]

CHUNK_ROWS: Final = 2**16  # 1.5 MiB in memory, read in some ten milliseconds
MAX_ROWS: Final = 2**14  # of an overview: 640 KiB, and 4 runs for each pixel of a chart, so that it can be zoomed a bit
RUN_ROWS: Final = 16  # of the first runs: thinned to an eighth, so that the overview has room to grow
TAIL_ROWS: Final = 2**12  # thinned at once: single rows cannot be
MAX_POINTS: Final = 100_000  # more than any screen has columns, for programs that want the data
STEP, WALL, VALUE, NUMBER, AREA = range(5)  # the rows of an overview
N_COLUMNS: Final = 5
MAX_READ_CHUNKS: Final = 32  # read again for one reply; over more chunks the overview is fine enough
NO_SETBACKS: Final[Mapping[int, Setbacks]] = {}  # of rows that were read before
HISTORY: Final = 10  # earlier passes behind a line, as in other views


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
        row: Shape (n_points,); the number of each in the series.
        mean: Shape (n_points,): the mean of the line of all points between each point and the one before, for
            smoothing; NaN where they are joined straight. Empty if no points are left out.
        parts: The parts that are drawn, the newest last; x increases in each.
        restarts: Where on the chosen axis the run continued after a restart.
        n_rows: The row after the last of the series.
        since: The row from which on these are all rows in the range.
        tracks: The names of the further step tracks that records have.
    """

    n: int
    thinned: bool
    x: Floats
    y: Floats
    wall: Floats
    step: Floats
    row: Floats
    mean: Floats
    parts: list[LinePart]
    restarts: list[float]
    n_rows: int
    since: int
    tracks: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """Of the rows `start` to `stop`: the rows of the overview, and the ranges of steps and wall times."""

    start: int
    stop: int
    kept: Floats  # Shape (5, n_kept): step, wall time, value, number, area; see `VALUE`, `NUMBER`, `AREA`.
    low: tuple[float, float]
    high: tuple[float, float]


class Overview:
    """The overview of one series. It is used under the lock of that series.

    Attributes:
        generation: The generation of the recording that was read.
        run_rows: How long the runs of rows are whose extremes it has; 1 while it has all rows.
        tracks: The names of the further step tracks of the last record of each block.
    """

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self._chunks: list[_Chunk] = []
        self._tail: _Chunk | None = None
        self.run_rows = 1
        self.tracks: dict[str, None] = {}
        self._back = {STEP: Setbacks(), WALL: Setbacks()}
        self._restarts: tuple[int, ...] = ()
        self._restarted = np.empty((N_COLUMNS, 0))  # the rows at the restarts

    @property
    def n_bytes(self) -> int:
        """The memory that it takes."""
        n_setbacks = sum(len(back.rows) for back in self._back.values())
        return sum(chunk.kept.nbytes + 200 for chunk in self._all()) + 100 * n_setbacks

    @property
    def n_rows(self) -> int:
        """How many rows it keeps."""
        return sum(chunk.kept.shape[1] for chunk in self._all())

    @property
    def first_wall(self) -> float:
        """The earliest wall time; 0 without rows."""
        found = min((chunk.low[1] for chunk in self._all()), default=0.0)
        return found if np.isfinite(found) else 0.0

    @property
    def clock(self) -> tuple[Floats, Floats]:
        """The wall times and the steps of the rows that it keeps."""
        rows = [chunk.kept for chunk in self._all()]
        kept = np.concatenate(rows, axis=1) if rows else np.empty((N_COLUMNS, 0))
        return kept[WALL], kept[STEP]

    def extend(self, series: NumberSeries) -> None:
        """Read the new rows.

        Raises:
            Problem: The values are not numbers.
        """
        n, start = len(series), max((chunk.stop for chunk in self._all()), default=0)
        if start == 0 and n > MAX_ROWS:  # at once as coarse as it will be
            self.run_rows = min(CHUNK_ROWS, max(RUN_ROWS, 1 << ((2 * n - 1) // MAX_ROWS).bit_length()))
        while start < n:
            stop = min(n, start - start % CHUNK_ROWS + CHUNK_ROWS)
            chunk = _read(series, start, stop, self.run_rows, self._back, tracks=self.tracks)
            self._tail = chunk if self._tail is None else _joined(self._tail, chunk)
            if stop - self._tail.start >= max(TAIL_ROWS, self.run_rows) or stop % CHUNK_ROWS == 0:
                self._take(_thinned(self._tail, self.run_rows))
                self._tail = None
            start = stop
        if self._restarts != series.restarts:
            self._restarts = series.restarts
            self._restarted = np.concatenate([_read(series, row, row + 1).kept for row in self._restarts], axis=1)

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

    def line(
        self, series: NumberSeries, *, x: X, low: float, high: float, points: int, origin: float, since: int = 0
    ) -> ScalarLine:
        """Return the points in a range, thinned.

        Args:
            series: The series, which may be read again.
            x: The axis of the range and of the points.
            low: The start of the range.
            high: The end of the range, inclusive.
            points: The number of runs of points, each of which keeps its extremes.
            origin: The wall time that `relative` counts from.
            since: The row from which on the points are wanted: a line that has all before grows by them. All points
                are returned where that does not do, as where a part began since.
        """
        starts = self._starts(x)
        if starts is None or len(starts) > MAX_PARTS or not max(starts) < since <= self._n_rows:
            since = 0
        shift = origin if x == "relative" else 0.0
        joined, n = self._rows(series, x, (low + shift, high + shift), points, max(0, since - 1))
        shown = _thin(joined, points) if joined.shape[1] > 2 * points else joined
        thinned = shown.shape[1] < n
        means = line_means(shown[NUMBER], shown[VALUE], shown[AREA]) if thinned else np.empty(0)
        if shown.shape[1] and shown[NUMBER, 0] < since:  # the point before, for the first mean
            shown, means, n = shown[:, 1:], means[1:], n - 1
        places = self._places(shown, x) - shift
        if not (known := np.isfinite(places)).all():  # rows without this step
            places, shown, means = places[known], shown[:, known], np.full_like(means, np.nan)[: known.sum()]
        parts = None if starts is None else self._parts(places, shown[NUMBER], starts, x, shift)
        if parts is None:  # records that came out of order
            columns = ordered(np.concatenate([places[None], shown]))
            places, shown, means, since = columns[0], columns[1:], np.full_like(means, np.nan), 0
            parts = [LinePart(rows=slice(0, len(places)))]
        restarts = self._places(self._restarted, x) - shift
        return ScalarLine(
            n=n, thinned=thinned, x=places, y=shown[VALUE], wall=shown[WALL], step=shown[STEP], row=shown[NUMBER],
            mean=means,
            parts=parts, restarts=restarts.tolist(), n_rows=self._n_rows, since=since, tracks=sorted(self.tracks),
        )  # fmt: skip

    def _rows(
        self, series: NumberSeries, x: X, bounds: tuple[float, float], points: int, since: int
    ) -> tuple[Floats, int]:
        """Return the rows in a range, as fine as runs of points need them, and how many there are if not thinned."""
        spans = [(chunk, self._span(chunk, x)) for chunk in self._all() if chunk.stop > since]
        chunks = [(chunk, span) for chunk, span in spans if span[0] <= bounds[1] and span[1] >= bounds[0]]
        n, parts = 0, [np.empty((N_COLUMNS, 0))]
        coarse = [(chunk, span) for chunk, span in chunks if chunk.kept.shape[1] < chunk.stop - chunk.start]
        # The overview is fine enough if each run of the reply covers several runs of the overview. It is not where the
        # range cuts a chunk: of a run that is in the range in part, it may have only extremes that are outside.
        seen = sum(_share(chunk, span, bounds) for chunk, span in coarse)
        again = [chunk for chunk, span in coarse if span[0] < bounds[0] or span[1] > bounds[1]]
        if seen < 2 * points * self.run_rows and len(coarse) <= MAX_READ_CHUNKS:
            again = [chunk for chunk, _ in coarse]
        again = again[:MAX_READ_CHUNKS]
        for chunk, span in chunks:
            whole = span[0] >= bounds[0] and span[1] <= bounds[1] and chunk.start >= since
            rows = chunk.kept
            if chunk in again:
                rows = _read(series, chunk.start, chunk.stop).kept
            counted = chunk.stop - chunk.start
            if not whole:
                places = self._places(rows, x)
                inside = np.flatnonzero((places >= bounds[0]) & (places <= bounds[1]) & (rows[NUMBER] >= since))
                scale = (chunk.stop - chunk.start) / max(1, rows.shape[1])
                rows = rows[:, inside]
                rows[AREA, np.diff(inside, prepend=-2) > 1] = np.nan  # the row before is not in the range
                counted = round(rows.shape[1] * scale)
            n += counted
            parts.append(rows)
        return np.concatenate(parts, axis=1), n

    @property
    def _n_rows(self) -> int:
        return max((chunk.stop for chunk in self._all()), default=0)

    def _places(self, rows: Floats, x: X) -> Floats:
        """Return where rows are on an axis; `relative` is a wall time that goes on where the clock was set back."""
        if x == "relative":
            return self._back[WALL].going_on(rows[WALL], rows[NUMBER])
        places: Floats = rows[STEP if x == "step" else WALL]
        return places

    def _span(self, chunk: _Chunk, x: X) -> tuple[float, float]:
        """Return the range of a chunk on an axis."""
        if x == "relative" and self._back[WALL].rows:
            places = self._places(chunk.kept, x)  # the first and the last row are kept
            return float(np.fmin.reduce(places, initial=np.inf)), float(np.fmax.reduce(places, initial=-np.inf))
        axis = STEP if x == "step" else WALL
        return chunk.low[axis], chunk.high[axis]

    def _starts(self, x: X) -> dict[int, float] | None:
        """Return the rows at which passes begin, and where they are on the axis; `None` without an order."""
        back = self._back[STEP if x == "step" else WALL]
        rows = [] if x == "relative" else back.rows
        starts = starts_of(self._n_rows, back=rows, restarts=self._restarted[NUMBER].astype(int).tolist())
        if starts is None or not back.in_order:
            return None
        first = [self._places(chunk.kept[:, :1], x)[0] for chunk in self._all() if chunk.kept.shape[1]]
        known = {0: first[0] if first else 0.0, **dict(zip(rows, back.values, strict=False))}
        known |= dict(zip(self._restarted[NUMBER].astype(int).tolist(), self._places(self._restarted, x), strict=True))
        return {row: float(known[row]) for row in starts}

    def _parts(
        self, places: Floats, numbers: Floats, starts: dict[int, float], x: X, shift: float
    ) -> list[LinePart] | None:
        """Return the parts of a line; `None` if there are too many."""
        first = np.searchsorted(numbers, list(starts)).tolist()
        passes = [slice(a, b) for a, b in zip(first, [*first[1:], len(places)], strict=True)]
        return parts_of(places, passes, history=HISTORY, firsts=[at - shift for at in starts.values()])


def _share(chunk: _Chunk, span: tuple[float, float], bounds: tuple[float, float]) -> float:
    """Estimate how many rows of a chunk lie in a range."""
    width = span[1] - span[0]
    if width <= 0 or not np.isfinite(width):
        return chunk.stop - chunk.start
    inside = min(span[1], bounds[1]) - max(span[0], bounds[0])
    return (chunk.stop - chunk.start) * min(1.0, max(0.0, inside / width))


def _read(
    series: NumberSeries,
    start: int,
    stop: int,
    run_rows: int = 1,
    setbacks: Mapping[int, Setbacks] = NO_SETBACKS,
    *,
    tracks: dict[str, None] | None = None,
) -> _Chunk:
    """Read rows as float64, without damaged ones, and note their step tracks and where steps and wall times go back.

    Blocks are read one after the other, and of a block that has several runs only what an overview keeps of them: the
    columns stay in the processor's cache, and no memory is allocated for all of them.

    Raises:
        Problem: None of the values is a number.
    """
    parts, lows, highs = [np.empty((N_COLUMNS, 0))], [(np.inf, np.inf)], [(-np.inf, -np.inf)]
    n_numbers, last = 0, None
    for row, columns in _blocks(series, start, stop):
        steps, walls = columns.steps, columns.wall_times
        values, n_found = count_numbers(columns.values)
        n_numbers, last = n_numbers + n_found, columns.values
        if tracks is not None and columns.tracks:
            tracks.update(dict.fromkeys(columns.tracks[-1]))
        lows.append((np.fmin.reduce(steps), np.fmin.reduce(walls)))
        highs.append((np.fmax.reduce(steps), np.fmax.reduce(walls)))
        for axis, found in setbacks.items():
            found.extend(walls if axis == WALL else steps, row)
        n = len(values)
        places = np.arange(row, row + n)
        chosen, areas = np.arange(n), np.full(n, np.nan)
        if n > run_rows > 1:
            chosen = thin_indices(values, -(-n // run_rows))
            areas = merged_areas(places, values, None, chosen)
            areas[0] = np.nan  # straight to the last row of the block before, which was kept
        parts.append(np.array([steps[chosen], walls[chosen], values[chosen], places[chosen], areas], np.float64))
    if last is not None and not n_numbers:
        raise no_numbers(series.tag, last)
    low, high = np.fmin.reduce(lows).tolist(), np.fmax.reduce(highs).tolist()
    return _Chunk(start, stop, np.concatenate(parts, axis=1), (low[0], low[1]), (high[0], high[1]))


def _blocks(series: NumberSeries, start: int, stop: int) -> Iterator[tuple[int, Columns]]:
    """Yield blocks with the number of their first row; a damaged block does not move rows across a restart."""
    for begin, end in pairwise([start, *(row for row in series.restarts if start < row < stop), stop]):
        row = begin
        for columns in series.blocks(begin, end):
            yield row, columns
            row += len(columns)


def _thinned(chunk: _Chunk, run_rows: int) -> _Chunk:
    """Return a chunk with the extremes of each run of `run_rows` rows."""
    kept = chunk.kept
    if run_rows > 1 and kept.shape[1]:
        kept = _thin(kept, -(-(chunk.stop - chunk.start) // run_rows))
    return _Chunk(chunk.start, chunk.stop, kept, chunk.low, chunk.high)


def _thin(rows: Floats, n_runs: int) -> Floats:
    """Return the rows that have the extremes of some runs; the first keeps its area, the others gain those between."""
    chosen = thin_indices(rows[VALUE], n_runs)
    kept = np.ascontiguousarray(rows[:, chosen])
    kept[AREA, 1:] = merged_areas(rows[NUMBER], rows[VALUE], rows[AREA], chosen)[1:]
    return kept


def _joined(one: _Chunk, other: _Chunk) -> _Chunk:
    low = (min(one.low[0], other.low[0]), min(one.low[1], other.low[1]))
    high = (max(one.high[0], other.high[0]), max(one.high[1], other.high[1]))
    return _Chunk(one.start, other.stop, np.concatenate([one.kept, other.kept], axis=1), low, high)


# Series of numbers: what an overview reads, and values as numbers.


class NumberSeries(Protocol):
    """What an overview reads: a recorded series, or one that is computed."""

    @property
    def key(self) -> Key:
        """What identifies it."""

    @property
    def tag(self) -> str:
        """Its name."""

    @property
    def restarts(self) -> tuple[int, ...]:
        """The rows at which the run, restarted, continues."""

    def __len__(self) -> int: ...

    def blocks(self, start: int = 0, stop: int | None = None, /) -> Iterator[Columns]:
        """Read rows block after block."""


def numbers(tag: str, values: npt.NDArray[Any] | Sequence[object]) -> npt.NDArray[Any]:
    """Return values as a column of numbers, with NaN for values that are not numbers.

    Raises:
        Problem: None of them is a number.
    """
    found, n_numbers = count_numbers(values)
    if len(found) and not n_numbers:
        raise no_numbers(tag, values)
    return found


def count_numbers(values: npt.NDArray[Any] | Sequence[object]) -> tuple[npt.NDArray[Any], int]:
    """Return values as a column of numbers, and how many of the values are numbers or `None`."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and is_real(values.dtype):
        return values, len(values)
    found = np.full(len(values), np.nan)
    n_numbers = 0
    for i, value in enumerate(values):
        number = real_of(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)
        found[i] = math.nan if number is None else number
        n_numbers += number is not None or value is None
    return found, n_numbers


def no_numbers(tag: str, values: npt.NDArray[Any] | Sequence[object]) -> Problem:
    """Return the problem of values none of which is a number."""
    return Problem(422, "QueryError", f"Expected numbers under {tag!r}, got {type(values[0]).__name__}")


# The overviews of the series that charts show, kept for their next requests.

MAX_BYTES: Final = 64 * 2**20  # of all overviews: those of the 100 longest series on a page


class Overviews:
    """A cache of overviews; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._overviews: OrderedDict[tuple[str, Key], tuple[Overview, int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, run: str, series: NumberSeries, generation: int) -> Overview:
        """Return the current overview of a series. The caller holds the lock of the series.

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
