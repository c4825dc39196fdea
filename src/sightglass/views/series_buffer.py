"""The records of one stream that a view draws, in bounded memory.

Theory of operation
    A buffer pulls new records and stores what views draw: the points of lines, the latest drawable value, the last
    lines of text. The first value of a drawable kind decides the kind of the stream; a later value of another kind is
    counted and reported in a notice, and drawing continues. `None` is a gap in a line.

    The x of a point is the step, the time, the record's number or another step track. A line has at most `MAX_POINTS`
    points; then the older ones are thinned evenly, with extremes and gaps retained (`core.buffer`), and a notice says
    so. If x is another stream, records are joined with its records before anything is thinned (`core.source_join`).
    An endless stream is drawn from constant memory, in amortised constant time per record. Of values that fill a
    frame each (vectors, matrices, images …) the newest are stored, and some of the whole stream before them, for views
    that show how they change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.buffer import Buffer
from sightglass.core.columns import COMPLETE, Columns, Record, of_records
from sightglass.core.joins import SourceJoin
from sightglass.core.program_values.guarded import message
from sightglass.core.source import Source, note_of, restarts_of
from sightglass.core.values import Histogram, Tensor, to_host, type_name

from .choose import Form, Kind, flatten, form_of, is_number
from .frames import grid_of, is_grid
from .scales import number
from .summaries import Row, one_line, restart_row, row_of
from .thinning import MAX_POINTS, Floats, Points

MAX_LINES = 64  # beyond, neither colours nor a legend distinguish them
MAX_ROWS = 200  # a few screens of a log
MAX_NOTES = 50  # beyond, annotations cover each other
MAX_MARKS = 500  # about one for each column of a chart
MAX_VALUES = 256  # more frames than any view shows at once
MAX_VALUE_BYTES = 32 * 2**20
BAND = (0.1, 0.5, 0.9)

# One point of a record: the line's name and its numbers.
Point = tuple[str, tuple[float, ...]]
Read = Callable[[Record, float], list[Point]]


class SeriesBuffer:
    """The records of one stream, for a view.

    Attributes:
        source: The stream.
        form: The form of its values; `None` before the first.
        lines: The points of each line: by name for mappings, under "" for numbers and points.
        texts: The annotations of points: x, y, text.
        latest: The last record that can be drawn.
        marks: The x of records that were computed from a part of their window.
        n_unfit: How many had a value of another kind; `unfit` describes the last.
        n_missed: How many are missing, judging by the indices of the others.
        n_thinned: How many the source had thinned before this view read them.
        failure: Why the source can no longer be read, or "".
        note: The source's remark, for example what it waits for, or "".
        restarts: The numbers of the first records of runs that began again.
    """

    def __init__(self, source: Source, *, x: str | Source = "step", max_points: int = MAX_POINTS) -> None:
        self.source = source
        self.form: Form | None = None
        self.lines: dict[str, Points] = {}
        self.texts: deque[tuple[float, float, str]] = deque(maxlen=MAX_NOTES)
        self.latest: Record | None = None
        self.last: Record | None = None
        self._newest: deque[Columns] = deque()
        self._n_newest = 0
        self.marks: deque[float] = deque(maxlen=MAX_MARKS)
        self.n_unfit = self.n_missed = self.n_thinned = self.n_lines_left_out = 0
        self.unfit = self.failure = self.note = ""
        self.restarts: tuple[int, ...] = ()
        self.ended = False
        self._cursor = self._n_other = self._bits = 0
        self._first_s: float | None = None
        self._x = x
        self._join = None if isinstance(x, str) else SourceJoin((source, x))
        self._max_points = max_points
        self._values = Buffer(max_rows=MAX_VALUES, max_bytes=MAX_VALUE_BYTES)

    @property
    def kind(self) -> Kind | None:
        """The kind of its values; `None` before the first value."""
        return self.form.kind if self.form else None

    @property
    def values(self) -> list[Record]:
        """Drawable records whose values are more than a number: the newest, and some of the whole stream before."""
        return self._values.since(0)[1].records(tag=self.source.tag, run=self.source.run)

    @property
    def rows(self) -> list[Row]:
        """The last records as text, and where the run began again among them."""
        source, found = self.source, list[Row]()
        left = deque(self.restarts)
        for record in [one for part in self._newest for one in part.records(tag=source.tag, run=source.run)]:
            while left and left[0] <= record.index:
                found += [restart_row(record)] if found else []
                left.popleft()
            found.append(row_of(record))
        return found[-MAX_ROWS:]

    def pull(self) -> bool:
        """Read new records, and return whether there are any, or the stream ended."""
        if self.failure:
            return False
        try:
            # Read before the records: records that arrive in between are then found at the next pull.
            ended = self.source.ended
            self._cursor, columns = self.source.since(self._cursor)
            remarks = note_of(self.source), restarts_of(self.source)
            pairs = self._join.read() if self._join is not None else None
        except (Exception, SystemExit) as error:  # noqa: BLE001  a stage of the stream may raise anything
            self.failure, self.ended = message(error), True
            return True
        ended = ended and (self._join is None or self._join.over)
        changed = len(columns) > 0 or ended != self.ended or remarks != (self.note, self.restarts)
        self.ended, (self.note, self.restarts) = ended, remarks
        try:
            if len(columns):
                self._take(columns)
            if pairs is not None and len(pairs[0]):
                changed = True
                self._place(pairs[0], _numbers(pairs[1].values), self._paired_points)
        except Exception as error:  # noqa: BLE001  values may be of any type; later ones are drawn
            self._leave_out(len(columns), message(error))
        return changed

    def _take(self, columns: Columns) -> None:
        expected = self.last.index + 1 if self.last is not None else columns.index
        n_missing = max(0, columns.end - expected - len(columns))
        self.n_thinned += n_missing if columns.bits else 0
        self.n_missed += 0 if columns.bits else n_missing
        self._bits = max(self._bits, columns.bits)
        n = len(columns)
        self.last = columns.record(n - 1, tag=self.source.tag, run=self.source.run)
        # A copy: a slice would hold all of the source's columns in memory.
        self._newest.append(columns.rows(np.arange(max(0, n - MAX_ROWS), n)))
        self._n_newest += len(self._newest[-1])
        while self._n_newest - len(self._newest[0]) >= MAX_ROWS:
            self._n_newest -= len(self._newest.popleft())
        if self._join is None:
            self._place(columns, self._xs(columns), self._points)
        else:
            self._read(columns, np.full(n, np.nan), self._path_points)

    def _place(self, columns: Columns, xs: Floats, read: Read) -> None:
        """Draw records at these x."""
        if columns.flags is not None:
            self.marks.extend(xs[(columns.flags & COMPLETE == 0) & ~np.isnan(xs)])
        self._read(columns, xs, read)

    def _read(self, columns: Columns, xs: Floats, read: Read) -> None:
        """Read the points of records."""
        indexes = columns.numbers
        if self.kind in (None, "number") and isinstance(columns.values, np.ndarray) and columns.values.dtype == float:
            # The common case: a hundred times faster than one record at a time.
            self.form = self.form or Form(kind="number")
            self.latest = self.last
            if read != self._path_points:
                self._extend("", indexes, [xs, columns.values], columns.areas)
            return
        pending: dict[str, list[tuple[int, tuple[float, ...]]]] = {}
        for record, x in zip(columns.records(tag=self.source.tag, run=self.source.run), xs, strict=True):
            try:
                for name, point in read(record, float(x)):
                    pending.setdefault(name, []).append((record.index, point))
            except Exception as error:  # noqa: BLE001  a value that cannot be read costs its own record
                self._leave_out(1, f"{type_name(record.value)} at step {number(record.step)}: {message(error)}")
        for name, found in pending.items():
            numbers, points = zip(*found, strict=True)
            self._extend(name, np.array(numbers), np.array(points, np.float64).T)

    def _leave_out(self, n: int, last: str) -> None:
        self.n_unfit += n
        self.unfit = last

    def _extend(
        self, name: str, indexes: npt.NDArray[np.int64], columns: npt.ArrayLike, areas: npt.ArrayLike | None = None
    ) -> None:
        if name not in self.lines:
            if len(self.lines) >= MAX_LINES:
                self.n_lines_left_out += 1
                return
            self.lines[name] = Points(len(np.asarray(columns)), max_points=self._max_points)
        self.lines[name].bits = max(self.lines[name].bits, self._bits)
        self.lines[name].extend(indexes, columns, areas)

    def _points(self, record: Record, x: float) -> list[Point]:
        if record.value is None and self.kind in ("number", None):
            return [("", (x, np.nan))] if self.kind else []
        value = to_host(record.value)
        form = form_of(value)
        if not self._fits(form):
            self._leave_out(1, f"{type_name(record.value)} at step {number(record.step)}")
            return []
        if is_grid(value):
            value = grid_of(value)
        self._n_other += form.kind == "other"
        self.latest = replace(record, value=value)
        if form.kind not in SMALL:
            self._values.add(of_records([self.latest], tag=self.source.tag, run=self.source.run))
        reader = READERS.get(form.kind)
        if form.kind == "note":
            self.texts.append((float(value[0]), float(value[1]), one_line(value[2])))
        return reader(x, value) if reader else []

    def _path_points(self, record: Record, x: float) -> list[Point]:
        """Return the points of a record whose place on another stream is not known yet: those that have their own x."""
        found = self._points(record, x)
        return [] if self.kind in OVER_X else found

    def _paired_points(self, record: Record, x: float) -> list[Point]:
        """Return the points of a record that was read before, at its x on another stream."""
        if record.value is None:
            return [("", (x, np.nan))] if self.kind == "number" else []
        value = to_host(record.value)
        kind = form_of(value).kind
        return READERS[kind](x, value) if kind == self.kind and kind in OVER_X else []

    def _xs(self, columns: Columns) -> Floats:
        """Return the x of each record; NaN if it lacks that step track."""
        match self._x:
            case "step":
                return np.asarray(columns.steps, np.float64)
            case "index":
                return np.asarray(columns.numbers, np.float64)
            case "wall":
                return np.asarray(columns.wall_times, np.float64)
            case "relative":
                if self._first_s is None:
                    self._first_s = float(columns.wall_times[0])
                return np.asarray(columns.wall_times, np.float64) - self._first_s
        tracks = columns.tracks or [{}] * len(columns)
        return np.array([track.get(str(self._x), math.nan) for track in tracks], np.float64)

    def _fits(self, form: Form) -> bool:
        """Return whether a value of this form belongs to the stream, and update the stream's form."""
        known = self.kind
        if known is None or (known == "other" and form.kind != "other"):
            # Values before the first drawable one must not prevent drawing.
            self.n_unfit += 0 if form.kind == "text" else self._n_other
            self.form = form
        elif known == form.kind or {known, form.kind} in ({"pair", "note"}, {"image", "images"}, {"text", "other"}):
            wider = "note" if form.kind == "note" else "images" if form.kind == "images" else known
            length = max(self.form.length, form.length) if self.form else form.length
            self.form = Form(kind=wider, length=length)
        else:
            return False
        return True


def _read_numbers(at: float, value: Mapping[Any, Any]) -> list[Point]:
    return [(name, (at, float(item))) for name, item in flatten(value)]


def _read_band(at: float, value: Histogram | Tensor | npt.ArrayLike) -> list[Point]:
    return [("", (at, *quantiles(value)))]


# Kinds that are stored as points or rows of text, and not among the values.
SMALL: Final[frozenset[Kind]] = frozenset({"number", "pair", "triple", "note", "text", "other"})

# Kinds that are drawn over x; the others have their own.
OVER_X: Final[frozenset[Kind]] = frozenset({"number", "numbers", "vector", "histogram"})

# How a record becomes points; other kinds are drawn from their latest records alone.
READERS: dict[Kind, Callable[[float, Any], list[Point]]] = {
    "number": lambda at, value: [("", (at, float(value[0] if isinstance(value, tuple) else value)))],
    "pair": lambda at, value: [("", (float(value[0]), float(value[1])))],
    "note": lambda at, value: [("", (float(value[0]), float(value[1])))],
    "triple": lambda at, value: [("", (float(value[0]), float(value[1]), float(value[2])))],
    "numbers": _read_numbers,
    "vector": _read_band,
    "histogram": _read_band,
}


def _numbers(values: Any) -> Floats:
    """Return values as x: NaN for those that are not numbers."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.array([float(value) if is_number(value) else np.nan for value in values], np.float64)


def quantiles(value: Histogram | Tensor | npt.ArrayLike) -> tuple[float, float, float]:
    """Return the 10 %, 50 % and 90 % quantiles of the finite values; NaN if there are none."""
    if isinstance(value, Histogram):
        below = np.concatenate([[0], np.cumsum(value.counts)]) / max(value.total, 1)
        low, middle, high = np.interp(BAND, below, value.edges) if value.total else (np.nan,) * 3
        return float(low), float(middle), float(high)
    data = as_floats(value)
    data = data[np.isfinite(data)]
    low, middle, high = np.quantile(data, BAND) if len(data) else (np.nan,) * 3
    return float(low), float(middle), float(high)


def as_floats(value: Tensor | npt.ArrayLike) -> Floats:
    """Return an array's or a tensor's numbers as float64, on the host."""
    return np.asarray(to_host(value.value if isinstance(value, Tensor) else value)).astype(np.float64)
