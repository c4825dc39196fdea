"""What is in a file of MindSpore's or TensorBoard's: its values, sorted into series, batch by batch.

Scalars are kept, in 24 bytes each; of all other values, where they lie and a checksum of their own. The kind of values
that comes first under a tag has the plain tag as its series' name, another kind the tag and the kind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import ModuleType
from typing import Any

import numpy as np

from sightglass.core.columns import value_column
from sightglass.core.errors import WireError
from sightglass.core.values import type_name
from sightglass.storage.format import framing
from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import ROW, BlockEntries
from sightglass.storage.format.framing import Frame
from sightglass.storage.format.protobuf import BYTES, spans
from sightglass.storage.format.summary import Logged

from .events import FrameBatch
from .grouping import Grouping
from .scalars import ScalarEvents, read_scalars


@dataclass(frozen=True, slots=True)
class ScalarRows:
    """Some rows of a series of scalars, in memory; the numbers of their log events count from `first`."""

    steps: Any
    wall_times: Any
    values: Any
    first: int
    ordinals: Any


@dataclass(frozen=True, slots=True)
class Places:
    """The values of a series in one event: where in its payload each begins, its length, its checksum."""

    step: int
    wall_time: float
    ordinal: int
    values: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """A value that is not one of many scalars: a number, or what lies somewhere in the event."""

    logged: Logged
    value: Any
    place: tuple[int, int, int] | None


@dataclass(slots=True)
class Catalogued:
    """A series, and its blocks by their offsets."""

    number: int
    entries: BlockEntries
    types: list[str]
    blocks: dict[int, ScalarRows | Places] = field(default_factory=dict)
    n: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Values:
    """The values of a batch, in its order; those that are not one of many scalars are in `items`, at `which`."""

    events: Any
    series: Any
    steps: Any
    wall_times: Any
    floats: Any
    which: Any
    items: Sequence[_Item]


class Catalogue:
    """The series of a file.

    Attributes:
        dialect: The module that reads its events.
        series: The series, by their keys.
        plugins: What TensorBoard's dialect remembers of tags.
        passed_over: How many values were passed over because nothing can show them, by what they are.
    """

    def __init__(self, dialect: ModuleType, *, by_step: bool, damage: Callable[..., None]) -> None:
        """Begin with nothing.

        Args:
            dialect: The module that reads its events.
            by_step: Whether events of one step are one log event.
            damage: Is told of events that are none; see `framing.Scan.damage`.
        """
        self.dialect = dialect
        self.series: dict[Key, Catalogued] = {}
        self.plugins: dict[str, str] = {}
        self.passed_over: dict[str, int] = {}
        self._all: list[Catalogued] = []
        self._by_kind: dict[tuple[str, str], Catalogued] = {}
        self._grouping = Grouping(by_step=by_step)
        self._damage = damage

    @property
    def n(self) -> int:
        """How many values there are."""
        return sum(series.n for series in self._all)

    def told(self, payload: memoryview) -> tuple[str, float | None]:
        """Tell of which series and step a damaged event seems to be; ("", `None`) if it is of several, or of none."""
        try:
            items: list[Logged] = self.dialect.decode_event(payload, dict(self.plugins))
        except WireError:
            return "", None
        known = {
            self._by_kind[place].entries.key.tag: item.step
            for item in items
            if (place := (item.tag, item.kind)) in self._by_kind
        }
        return next(iter(known.items())) if len(known) == len(items) == 1 else ("", None)

    def take(self, batch: FrameBatch) -> None:
        """Put the values of a batch into their series."""
        values = self._find(batch)
        if not len(values.events):
            return
        ordinals = self._grouping.number(values.events, values.series, values.steps)
        order = np.argsort(values.series, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(values.series[order])) + 1):
            series = self._all[values.series[rows[0]]]
            which = values.which[rows[0]]
            if which < 0 or values.items[which].place is None:
                _add_scalars(series, batch, values, rows, ordinals[rows])
            else:
                _add_places(series, batch, values, rows, ordinals[rows])

    def _find(self, batch: FrameBatch) -> _Values:
        """Find the values of a batch: scalars many at a time, and all others one by one."""
        many = read_scalars(batch.data, batch.starts, batch.lengths, self.dialect.find_scalar)
        plain = np.flatnonzero(many.ids >= 0)
        alone = [(i, item) for i in np.flatnonzero(many.ids < 0).tolist() for item in self._decode(batch, i)]
        items = [item for _, item in alone]
        self._name(many, alone)
        ids = np.array([self._by_kind[tag, "scalar"].number for tag in many.tags] or [0], np.int64)
        numbers = (self._by_kind[item.logged.tag, item.logged.kind].number for item in items)
        order = np.argsort(np.concatenate([plain, np.array([i for i, _ in alone], np.int64)]), kind="stable")

        def column(many: Any, others: Iterable[Any]) -> Any:
            return np.concatenate([many, np.array(list(others), many.dtype)])[order]

        return _Values(
            events=column(plain, (i for i, _ in alone)),
            series=column(ids[many.ids[plain]], numbers),
            steps=column(many.steps[plain], (item.logged.step for item in items)),
            wall_times=column(many.wall_times[plain], (item.logged.wall_time for item in items)),
            floats=column(many.values[plain], (_number(item) for item in items)),
            which=column(np.full(len(plain), -1), range(len(items))),
            items=items,
        )

    def _decode(self, batch: FrameBatch, i: int) -> Iterator[_Item]:
        """Decode an event that is not just one scalar."""
        frame, payload = batch.frame(i), batch.payload(i)
        try:
            told: list[Logged] = self.dialect.decode_event(payload, self.plugins)
            spans_ = list(_values(payload))
        except WireError as error:
            self._damage(frame, f"it is no event: {error}")
            return
        for item, (begin, n) in zip(told, spans_ + [(0, 0)] * (len(told) - len(spans_)), strict=True):
            if item.kind == "unknown":
                self.passed_over[item.type] = self.passed_over.get(item.type, 0) + 1
                continue
            value, place = None, None
            try:
                if item.kind == "scalar":
                    value = item.value
                else:
                    place = begin, n, framing.checksum(payload[begin : begin + n])
            except WireError as error:
                self._damage(frame, str(error), tag=item.tag, step=item.step)
                continue
            yield _Item(item, value, place)

    def _name(self, many: ScalarEvents, alone: Sequence[tuple[int, _Item]]) -> None:
        """Name the series that are new in a batch, in the order in which they come."""
        firsts = [(i, item.logged.tag, str(item.logged.kind), item.logged.stored_as) for i, item in alone]
        ids, places = np.unique(many.ids, return_index=True)
        firsts += [
            (i, many.tags[n], "scalar", "float32") for n, i in zip(ids.tolist(), places.tolist(), strict=True) if n >= 0
        ]
        for _, tag, kind, stored_as in sorted(firsts, key=lambda first: first[0]):
            series = self._of(tag, kind)
            if stored_as:
                series.entries.stored_as = stored_as

    def _of(self, tag: str, kind: str) -> Catalogued:
        """Return the series of a kind of values of a tag, under a name that no other has."""
        series = self._by_kind.get((tag, kind))
        if series is None:
            name = Key(kind="logged", tag=tag)
            while name in self.series:
                name = Key(kind="logged", tag=f"{name.tag} ({kind})")
            types: list[str] = []
            series = Catalogued(len(self._all), BlockEntries(name, types), types)
            self._all.append(series)
            self.series[name] = self._by_kind[tag, kind] = series
        return series


def _number(item: _Item) -> float:
    return item.value if type(item.value) is float else 0.0


def _values(payload: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where in an event its values begin, and how long they are."""
    for number, kind, begin, n in spans(payload):
        if (number, kind) == (5, BYTES):
            for inner, inner_kind, place, length in spans(payload, begin, begin + n):
                if (inner, inner_kind) == (1, BYTES):
                    yield place, length


def _add_scalars(series: Catalogued, batch: FrameBatch, values: _Values, rows: Any, ordinals: Any) -> None:
    """Add scalars to a series, as one block."""
    events, steps, wall_times = values.events[rows], values.steps[rows], values.wall_times[rows]
    column: Any = values.floats[rows]
    alone = [(i, values.items[which].value) for i, which in enumerate(values.which[rows].tolist()) if which >= 0]
    odd = {i: value for i, value in alone if type(value) is not float}
    if odd:
        column = value_column([odd.get(i, number) for i, number in enumerate(column.tolist())])
    else:
        with np.errstate(over="ignore", invalid="ignore"):
            narrow = column.astype(np.float32)
        column = narrow if np.array_equal(narrow, column, equal_nan=True) else column
    first = int(ordinals[0])
    block = ScalarRows(steps, wall_times, column, first, (ordinals - first).astype(np.uint32))
    frame = Frame(batch.frame(events[0]).offset, int(batch.lengths[events].sum()))
    _add(series, frame, block, type_name(odd.get(0, 0.0)), (steps, wall_times, first))


def _add_places(series: Catalogued, batch: FrameBatch, values: _Values, rows: Any, ordinals: Any) -> None:
    """Add what lies in events to a series, as a block for each event."""
    for event, members in groupby(
        zip(values.events[rows].tolist(), rows.tolist(), ordinals.tolist(), strict=True), _event
    ):
        items, numbers = zip(*((values.items[values.which[row]], ordinal) for _, row, ordinal in members), strict=True)
        places = tuple(item.place for item in items)
        frame, item, first = batch.frame(event), items[0].logged, numbers[0]
        block = Places(item.step, item.wall_time, first, places)
        columns = np.full(len(items), item.step), np.full(len(items), item.wall_time), first
        _add(series, frame, block, item.type, columns)


def _event(member: tuple[int, int, int]) -> int:
    return member[0]


def _add(
    series: Catalogued, frame: Frame, block: ScalarRows | Places, type_: str, columns: tuple[Any, Any, int]
) -> None:
    """Add a block to a series: its steps, its wall times, the number of its first log event."""
    steps, wall_times, first = columns
    if type_ not in series.types:
        series.types.append(type_)
    counts = (len(steps), series.n, first, 0, 0)
    places = (steps[0], steps[-1], steps.min(), steps.max(), wall_times[0], wall_times[-1])
    row = (frame.offset, frame.length, series.types.index(type_), *counts, *places)
    series.entries.extend(np.array([row], ROW))
    series.blocks[frame.offset] = block
    series.n += len(steps)
