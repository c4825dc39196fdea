"""The values of an event file as columns, series by series, in the order of the file.

Scalars are held in memory, 24 bytes each. Any other value stays in the file as a `StoredValue`, so one tensor can be
read without the rest of its event. Each kind of value under a tag is a series of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns, value_column
from sightglass.core.errors import WireError
from sightglass.core.values import type_name
from sightglass.storage.format import framing
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Frame
from sightglass.storage.format.index import ROW, BlockEntries, SessionStart
from sightglass.storage.format.protobuf import BYTES, spans

from . import tensorboard
from .event_format import EventFormat, Kind, LoggedValue
from .event_scan import FrameBatch, Indexes, read_scalars
from .tensorboard_charts import ChartLayout

VALUE: Final = np.dtype(
    [(name, "<i8") for name in ("event", "series", "step", "item", "ordinal")]
    + [("wall_time", "<f8"), ("number", "<f8")]
)
"""One value of a batch: `item` is its place among those that were decoded one by one, or -1."""

Values = npt.NDArray[np.void]
Item = tuple[int, LoggedValue, Any]
"""The event's number in its batch, the value, and its number or `StoredValue`."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value that stays in the file: its offset in the event, its length in bytes, the checksum of its bytes."""

    begin: int
    length: int
    crc: int


@dataclass(slots=True)
class EventSeries:
    """One series: the index of its blocks, and the columns of each block by the offset of its frame.

    Their `ordinals` are uint32, counted from the `ordinal` of the block's entry.
    """

    number: int
    entries: BlockEntries
    types: list[str]
    blocks: dict[int, Columns] = field(default_factory=dict)
    n: int = 0

    def append(self, frame: Frame, type_: str, columns: Columns) -> None:
        """Append a block; `type_` is the type of its first value."""
        if type_ not in self.types:
            self.types.append(type_)
        steps, wall_times, first = columns.steps, columns.wall_times, columns.ordinals[0]
        counts = (len(steps), self.n, first, 0, 0)
        places = (steps[0], steps[-1], steps.min(), steps.max(), wall_times[0], wall_times[-1])
        row = (frame.offset, frame.length, self.types.index(type_), *counts, *places)
        self.entries.extend(np.array([row], ROW))
        self.blocks[frame.offset] = replace(columns, ordinals=(columns.ordinals - first).astype(np.uint32))
        self.n += len(steps)


class EventFileColumns:
    """Sorts the values of an event file into series, batch by batch.

    Attributes:
        format: Decodes the events.
        series: The series, by their keys.
        plugins: TensorBoard's plugin of each tag.
        passed_over: How many values cannot be shown, by what they are.
        charts: The charts of several tags that the file asks for; the latest under each tag.
        told: What the file says of its run, see `tensorboard.read_hparams`.
        session_starts: Where the program starts again, see `index.SessionStart`. No block lies on both sides of one.
    """

    def __init__(self, format: EventFormat, *, damage: Callable[..., None]) -> None:
        """Start without series; `damage` is called for malformed events, see `frame_scan.Scan.damage`."""
        self.format = format
        self.series: dict[Key, EventSeries] = {}
        self.plugins: dict[str, str] = {}
        self.passed_over: dict[str, int] = {}
        self.charts: dict[str, list[ChartLayout]] = {}
        self.told: dict[str, Any] = {}
        self.session_starts: list[SessionStart] = []
        self._log_events = LogEvents(joins_steps=format.JOINS_STEPS)
        self._damage = damage

    @property
    def n(self) -> int:
        """How many values there are."""
        return sum(series.n for series in self.series.values())

    def identify(self, payload: memoryview) -> tuple[Key | None, float | None]:
        """Return the series and the step that a damaged event seems to have: no series if it has several."""
        try:
            items = self.format.decode_event(payload, dict(self.plugins))
        except WireError:
            return None, None
        known = [key for item in items if (key := _key(item.tag, item.kind)) in self.series]
        if not known:
            return None, None
        return known[0] if len(known) == len(items) == 1 else None, items[0].step

    def read(self, batch: FrameBatch, *, lost: bool = False) -> None:
        """Append the values of a batch to their series; `lost` says that an earlier record of the file is damaged."""
        n_starts = len(self.session_starts)
        values, items = self._values(batch, lost=lost)
        if not len(values):
            return
        values["ordinal"] = self._log_events.number(values["event"], values["series"], values["step"])
        offsets = batch.offset + batch.starts[values["event"]]
        for part in np.split(values, np.searchsorted(offsets, [one.offset for one in self.session_starts[n_starts:]])):
            if len(part):
                self._append(batch, part, items)

    def _append(self, batch: FrameBatch, values: Values, items: list[Item]) -> None:
        series_of = list(self.series.values())
        for rows in _split(np.argsort(values["series"], kind="stable"), values["series"]):
            series, event, item = series_of[values["series"][rows[0]]], values["event"], values["item"]
            if item[rows[0]] < 0 or not isinstance(items[item[rows[0]]][2], StoredValue):
                frame = Frame(batch.frame(event[rows[0]]).offset, int(batch.lengths[event[rows]].sum()))
                series.append(frame, *_scalars(values, rows, items))
                continue
            for members in _split(rows, event):
                stored = [items[i] for i in item[members].tolist()]
                columns = _columns(values, members, [value for _, _, value in stored])
                series.append(batch.frame(stored[0][0]), stored[0][1].type, columns)

    def _values(self, batch: FrameBatch, *, lost: bool) -> tuple[Values, list[Item]]:
        """Return the values of a batch in its order: plain scalars are decoded all at once, others one by one."""
        many = read_scalars(batch.data, batch.starts, batch.lengths, self.format.find_scalar)
        plain = np.flatnonzero(many.ids >= 0)
        items = [item for i in np.flatnonzero(many.ids < 0).tolist() for item in self._decode(batch, i, lost=lost)]
        kinds: dict[tuple[str, Kind], int] = {(tag, "scalar"): i for i, tag in enumerate(many.tags)}
        dtypes = dict.fromkeys(kinds, ("", "float32"))
        values = np.zeros(len(plain) + len(items), VALUE)
        scalars, others = values[: len(plain)], values[len(plain) :]
        scalars["event"], scalars["series"], scalars["item"] = plain, many.ids[plain], -1
        scalars["step"], scalars["wall_time"] = many.steps[plain], many.wall_times[plain]
        scalars["number"] = many.values[plain]
        for n, (i, logged, value) in enumerate(items):
            kind = logged.tag, logged.kind
            number = value if type(value) is float else 0.0
            others[n] = (i, kinds.setdefault(kind, len(kinds)), logged.step, n, 0, logged.wall_time, number)
            if logged.stored_as or kind not in dtypes:
                dtypes[kind] = (logged.dtype if logged.stored_as else "", logged.stored_as)
        if items:
            values = values[np.argsort(values["event"], kind="stable")]
        self._number(values, list(kinds), dtypes)
        return values, items

    def _decode(self, batch: FrameBatch, i: int, *, lost: bool) -> Iterator[Item]:
        """Decode an event that is not just one scalar."""
        frame, payload = batch.frame(i), batch.payload(i)
        try:
            logged = self.format.decode_event(payload, self.plugins, lost=lost)
            places = list(_value_places(payload))
        except WireError as error:
            self._damage(frame, f"it is not an event: {error}")
            return
        for n, value in enumerate(logged):
            try:
                if value.kind == "unknown":
                    if value.type:
                        self.passed_over[value.type] = self.passed_over.get(value.type, 0) + 1
                elif value.kind == "lost":
                    value.read()
                elif value.kind == "layout":
                    self.charts[value.tag] = value.value
                elif value.kind == "start":
                    self.session_starts.append(SessionStart(frame.offset, value.step, value.wall_time))
                elif value.kind == "told":
                    tensorboard.add(self.told, value.value)
                elif value.kind == "scalar":
                    yield i, value, value.value
                else:
                    begin, length = places[n]
                    yield i, value, StoredValue(begin, length, framing.checksum(payload[begin : begin + length]))
            except WireError as error:
                values = "" if value.kind == "lost" else value.kind
                self._damage(frame, str(error), tag=value.tag, step=value.step, values=values)

    def _number(self, values: Values, kinds: list[tuple[str, Kind]], dtypes: dict[Any, tuple[str, str]]) -> None:
        """Replace the places in `kinds` under `series` by the numbers of series, new ones as they come.

        `dtypes` are those that values of a kind were logged with and are stored as, where they differ.
        """
        places, n = values["series"].copy(), len(values)
        firsts = np.full(len(kinds), n)
        firsts[places[::-1]] = np.arange(n)[::-1]  # of repeated places, the last assignment stays: the first value's
        numbers = np.zeros(len(kinds), np.int64)
        for i in np.argsort(firsts)[: np.count_nonzero(firsts < n)].tolist():
            series = self._series_of(*kinds[i])
            if dtypes[kinds[i]][1]:
                series.entries.logged_as, series.entries.stored_as = dtypes[kinds[i]]
            numbers[i] = series.number
        values["series"] = numbers[places]

    def _series_of(self, tag: str, kind: Kind) -> EventSeries:
        """Return the series of one kind of values of a tag."""
        key = _key(tag, kind)
        series = self.series.get(key)
        if series is None:
            types: list[str] = []
            series = self.series[key] = EventSeries(len(self.series), BlockEntries(key, types), types)
        return series


class LogEvents:
    """Numbers log events, batch after batch: the values that were logged together share a number.

    MindSpore writes one Event for each log call. TensorBoard writes one for each value, so consecutive Events of one
    step with different tags count as one log event: what a loop logs in one turn.
    """

    def __init__(self, *, joins_steps: bool) -> None:
        """Start at 0; `joins_steps` joins consecutive Events of one step."""
        self._joins_steps = joins_steps
        self._last = -1
        self._step: int | None = None
        self._seen: set[int] = set()

    def number(self, events: Indexes, series: Indexes, steps: Indexes) -> Indexes:
        """Return the number of each value's log event.

        Args:
            events: The number of each value's Event in the batch, ascending.
            series: Its series.
            steps: Its step.
        """
        if not len(events):
            return events
        begins = np.concatenate([[True], events[1:] != events[:-1]])
        if self._joins_steps:
            begins = self._begins(np.flatnonzero(begins), series, steps)
        numbers: Indexes = self._last + np.cumsum(begins)
        self._last = int(numbers[-1])
        return numbers

    def _begins(self, firsts: Indexes, series: Indexes, steps: Indexes) -> npt.NDArray[np.bool_]:
        """Return which values begin a log event, given the first value of each Event."""
        begins = np.concatenate([[steps[0] != self._step], steps[1:] != steps[:-1]])
        runs = np.cumsum(begins)
        order = np.lexsort((series, runs))
        again = (np.diff(runs[order]) == 0) & (np.diff(series[order]) == 0)
        repeating = np.zeros(runs[-1] + 1, bool)
        repeating[runs[order[1:][again]]] = True
        repeating[[0, -1]] = True  # the first continues the last batch, and the next batch may continue the last
        seen: set[int] = self._seen
        ends = np.append(firsts[1:], len(series))
        chosen = np.flatnonzero(repeating[runs[firsts]])
        for first, end in zip(firsts[chosen].tolist(), ends[chosen].tolist(), strict=True):
            members = set(series[first:end].tolist())
            if begins[first] or not seen.isdisjoint(members):
                begins[first] = True
                seen = set()
            seen |= members
        self._step, self._seen = int(steps[-1]), seen
        return begins


def _key(tag: str, kind: Kind) -> Key:
    """Return what identifies one kind of values of a tag; other kinds than those of values are in no file's series."""
    return Key(kind="logged", tag=tag, values=kind)  # type: ignore[arg-type]


def _value_places(payload: memoryview) -> Iterator[tuple[int, int]]:
    """Yield the offset and the length of each Summary.Value in an event."""
    for number, kind, begin, n in spans(payload):
        if (number, kind) == (5, BYTES):
            for inner, inner_kind, place, length in spans(payload, begin, begin + n):
                if (inner, inner_kind) == (1, BYTES):
                    yield place, length


def _split(rows: Indexes, column: Indexes) -> list[Indexes]:
    """Split the numbers of rows where a column changes."""
    return np.split(rows, np.flatnonzero(np.diff(column[rows])) + 1)


def _columns(values: Values, rows: Indexes, column: npt.NDArray[Any] | list[Any]) -> Columns:
    """Return rows as columns; the index is counted by the block's entry."""
    return Columns(
        index=0,
        steps=values["step"][rows],
        wall_times=values["wall_time"][rows],
        values=column,
        ordinals=values["ordinal"][rows],
    )


def _scalars(values: Values, rows: Indexes, items: list[Item]) -> tuple[str, Columns]:
    """Return the type of the first scalar, and all as columns: as float32 where that loses nothing."""
    numbers, item = values["number"][rows], values["item"][rows]
    decoded = {i: items[item[i]][2] for i in np.flatnonzero(item >= 0).tolist()}
    if any(type(value) is not float for value in decoded.values()):
        column = value_column([decoded.get(i, number) for i, number in enumerate(numbers.tolist())])
        return type_name(decoded.get(0, 0.0)), _columns(values, rows, column)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = numbers.astype(np.float32)
    return "float", _columns(values, rows, narrow if np.array_equal(narrow, numbers, equal_nan=True) else numbers)
