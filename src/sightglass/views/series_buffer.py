"""The records of one stream that a view draws, in bounded memory.

Theory of operation
    A buffer pulls new records and stores what views draw: the points of lines, the latest drawable value, the last
    lines of text. The first value of a drawable kind decides the kind of the stream; a later value of another kind is
    counted and reported in a notice, and drawing continues. `None` is a gap in a line.

    The x of a point is the step, the time, the record's number or another step track. A line has at most `MAX_POINTS`
    points; then all of them are thinned to at most half, with extremes and gaps retained, and a notice says so. An
    endless stream is drawn from constant memory, in amortised constant time per record. Of values that fill a frame
    each (vectors, matrices, images …) the last ones are stored, for views that show how they change.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.guarded import message
from sightglass.core.record import Record
from sightglass.core.source import Source
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text, to_host, type_name

from .choose import Form, Kind, flatten, form_of
from .grid import grid_of, is_grid
from .scales import number
from .thinning import thin_indices

MAX_POINTS = 1 << 20  # 16 MiB per line
MAX_LINES = 64  # beyond, neither colours nor a legend distinguish them
MAX_ROWS = 200  # a few screens of a log
MAX_TEXT = 400  # a few lines of a terminal
MAX_NOTES = 50  # beyond, annotations cover each other
MAX_MARKS = 500  # about one for each column of a chart
MAX_VALUES = 256  # more frames than any view shows at once
MAX_VALUE_BYTES = 32 * 2**20
BAND = (0.1, 0.5, 0.9)

Floats = npt.NDArray[np.float64]

# One point of a record: the line's name and its numbers.
Point = tuple[str, tuple[float, ...]]


class Points:
    """Columns of numbers that grow up to a limit, and are then thinned.

    Attributes:
        n_seen: How many points were appended.
        thinned: Whether some were dropped to stay within the limit.
    """

    def __init__(self, n_columns: int, *, max_points: int = MAX_POINTS) -> None:
        self.n_seen = 0
        self.thinned = False
        self._max = max_points
        self._data = np.empty((n_columns, min(1024, max_points)))
        self._size = 0

    @property
    def columns(self) -> Floats:
        """The stored points, of shape (n_columns, n)."""
        return self._data[:, : self._size]

    def extend(self, columns: npt.ArrayLike) -> None:
        """Append points.

        Args:
            columns: Shape (n_columns, n).
        """
        new = np.asarray(columns, np.float64)
        self.n_seen += new.shape[1]
        for start in range(0, new.shape[1], self._max // 2):
            self._append(new[:, start : start + self._max // 2])

    def _append(self, new: Floats) -> None:
        if self._size + new.shape[1] > self._max:
            # A run retains up to ten points around infinities and gaps: a sixteenth as many runs make about a half.
            kept = [
                thin_indices(column, max(self._max // 16 // (len(self._data) - 1), 1))
                for column in self._data[1:, : self._size]
            ]
            chosen = np.unique(np.concatenate(kept))[-(self._max // 2) :]
            self._data[:, : len(chosen)] = self._data[:, chosen]
            self._size = len(chosen)
            self.thinned = True
        end = self._size + new.shape[1]
        if end > self._data.shape[1]:
            grown = np.empty((len(self._data), min(max(2 * self._data.shape[1], end), self._max)))
            grown[:, : self._size] = self.columns
            self._data = grown
        self._data[:, self._size : end] = new
        self._size = end


class SeriesBuffer:
    """The records of one stream, for a view.

    Attributes:
        source: The stream.
        form: The form of its values; `None` before the first.
        lines: The points of each line: by name for mappings, under "" for numbers and points.
        texts: The annotations of points: x, y, text.
        latest: The last record that can be drawn.
        values: The last drawable records whose values are more than a number, the newest last.
        rows: The last records as text: step, text.
        marks: The x of records that were computed from a part of their window.
        n_unfit: How many had a value of another kind; `unfit` describes the last.
        n_missed: How many are missing, judging by the indices of the others.
        failure: Why the source can no longer be read, or "".
    """

    def __init__(self, source: Source, *, x: str = "step", max_points: int = MAX_POINTS) -> None:
        self.source = source
        self.values: deque[Record] = deque()
        self.form: Form | None = None
        self.lines: dict[str, Points] = {}
        self.texts: deque[tuple[float, float, str]] = deque(maxlen=MAX_NOTES)
        self.latest: Record | None = None
        self.last: Record | None = None
        self.rows: deque[tuple[float, str]] = deque(maxlen=MAX_ROWS)
        self.marks: deque[float] = deque(maxlen=MAX_MARKS)
        self.n_unfit = self.n_missed = self.n_lines_left_out = 0
        self.unfit = self.failure = ""
        self.ended = False
        self._cursor = self._n_other = self._n_value_bytes = 0
        self._first_s: float | None = None
        self._at = self._reader_of(x)
        self._max_points = max_points

    @property
    def kind(self) -> Kind | None:
        """The kind of its values; `None` before the first value."""
        return self.form.kind if self.form else None

    def pull(self) -> bool:
        """Read new records, and return whether there are any, or the stream ended."""
        if self.failure:
            return False
        try:
            # Read before the records: records that arrive in between are then found at the next pull.
            ended = self.source.ended
            self._cursor, records = self.source.since(self._cursor)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a stage of the stream may raise anything
            self.failure, self.ended = message(error), True
            return True
        changed = bool(records) or ended != self.ended
        self.ended = ended
        if records:
            try:
                self._take(records)
            except Exception as error:  # noqa: BLE001  values may be of any type; later ones are drawn
                self._leave_out(len(records), message(error))
        return changed

    def _take(self, records: Sequence[Record]) -> None:
        expected = self.last.index + 1 if self.last is not None else records[0].index
        self.n_missed += max(0, records[-1].index - expected + 1 - len(records))
        self.last = records[-1]
        self.rows.extend((record.step, _row(record.value)) for record in records[-MAX_ROWS:])
        self.marks.extend(self._at(record) for record in records if not record.complete)
        if self.kind in (None, "number") and all(type(record.value) is float for record in records):
            # The common case: a hundred times faster than one record at a time.
            self.form = self.form or Form(kind="number")
            self.latest = records[-1]
            self._extend("", [[*map(self._at, records)], [record.value for record in records]])
            return
        pending: dict[str, list[tuple[float, ...]]] = {}
        for record in records:
            try:
                for name, point in self._points(record):
                    pending.setdefault(name, []).append(point)
            except Exception as error:  # noqa: BLE001  a value that cannot be read costs its own record
                self._leave_out(1, f"{type_name(record.value)} at step {number(record.step)}: {message(error)}")
        for name, points in pending.items():
            self._extend(name, np.array(points, np.float64).T)

    def _leave_out(self, n: int, last: str) -> None:
        self.n_unfit += n
        self.unfit = last

    def _extend(self, name: str, columns: npt.ArrayLike) -> None:
        if name not in self.lines:
            if len(self.lines) >= MAX_LINES:
                self.n_lines_left_out += 1
                return
            self.lines[name] = Points(len(np.asarray(columns)), max_points=self._max_points)
        self.lines[name].extend(columns)

    def _points(self, record: Record) -> list[Point]:
        if record.value is None and self.kind in ("number", None):
            return [("", (self._at(record), np.nan))] if self.kind else []
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
            self._store_value(self.latest)
        reader = READERS.get(form.kind)
        if form.kind == "note":
            self.texts.append((float(value[0]), float(value[1]), one_line(value[2])))
        return reader(self._at(record), value) if reader else []

    def _reader_of(self, x: str) -> Callable[[Record], float]:
        """Return the function that returns a record's x; NaN if it lacks that step track."""
        match x:
            case "step" | "index":
                return attrgetter(x)
            case "wall":
                return attrgetter("wall_time")
            case "relative":
                return self._since_first
        return lambda record: float(record.steps.get(x, math.nan))

    def _since_first(self, record: Record) -> float:
        if self._first_s is None:
            self._first_s = record.wall_time
        return record.wall_time - self._first_s

    def _store_value(self, record: Record) -> None:
        self.values.append(record)
        self._n_value_bytes += size_of(record.value)
        while len(self.values) > MAX_VALUES or (self._n_value_bytes > MAX_VALUE_BYTES and len(self.values) > 1):
            self._n_value_bytes -= size_of(self.values.popleft().value)

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


def one_line(value: object) -> str:
    """Return a text as one line without control characters, so that it cannot move a terminal's cursor."""
    text = value.value if isinstance(value, Text) else str(value)
    line = " ".join(text[: 4 * MAX_TEXT].split())
    return "".join(char if char.isprintable() else "�" for char in line)[:MAX_TEXT]


def _row(value: object) -> str:
    try:
        return summary(value)
    except Exception as error:  # noqa: BLE001  the program's own class
        return f"{type_name(value)}: {message(error)}"


def summary(value: object) -> str:
    """Describe a value in one line."""
    match value:
        case str() | Text():
            return one_line(value)
        case bool() | None:
            return str(value)
        case int() | float() | np.integer() | np.floating():
            return number(value)
        case Tensor() | Image() | Images():
            return f"{type(value).__name__} {type_name(value.value)}"
        case tuple() | list() if len(value) <= 8:
            return f"({', '.join(summary(item) for item in value)})"
        case Mapping() if len(value) <= 8:
            return ", ".join(f"{one_line(key)}={summary(item)}" for key, item in value.items()) or "empty"
        case Histogram():
            return repr(value)
    name = type_name(value)
    return name if "[" in name or " of " in name else one_line(repr(value))


def size_of(value: object) -> int:
    """Return the approximate size in bytes of a value on the host."""
    match value:
        case Histogram():
            return int(value.counts.nbytes + value.edges.nbytes)
        case Tensor() | Image() | Images() | Text():
            return size_of(value.value)
        case Figure():
            return len(value.data)
        case Mapping():
            return sum(64 + size_of(item) for item in value.values())
        case list() | tuple():
            return 16 + sum(map(size_of, value))
    return int(getattr(value, "nbytes", 0)) or (len(value) if isinstance(value, bytes | str) else 16)


def _read_numbers(at: float, value: Mapping[Any, Any]) -> list[Point]:
    return [(name, (at, float(item))) for name, item in flatten(value)]


def _read_band(at: float, value: Histogram | Tensor | npt.ArrayLike) -> list[Point]:
    return [("", (at, *quantiles(value)))]


# Kinds that are stored as points or rows of text, and not among the values.
SMALL: Final[frozenset[Kind]] = frozenset({"number", "pair", "triple", "note", "text", "other"})

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
