"""Files of MindSpore's and TensorBoard's writers as parts of a recording.

Rule 1: whose file it is stands in its version record, and is told by nothing else.
Rule 2: every frame's checksum is computed when the file is scanned, before anything in it is believed. A frame that is
wrong costs itself, and is noted with the tag and step that its bytes tell, if the file has that tag elsewhere.
Rule 3: scalars are kept in memory, in 24 bytes each. Whatever else is logged stays in the file: known are its place and
a checksum of its own, which is compared when it is loaded. So one tensor is read without the rest of its event.
Rule 4: a tag that has several kinds of values makes several series: the kind that comes first in the file has the plain
tag, another one the tag and its kind, such as "kernel (tensor)". What no view can show, such as audio, is counted and
passed over.
Rule 5: what was logged together has one ordinal; see `grouping`.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns, value_column
from sightglass.core.errors import DamagedError, QueryError, WireError
from sightglass.core.values import type_name

from . import framing, mindspore, packed, pieces, slices, tensorboard
from .block import Key
from .entries import ROW, Entries, Entry
from .events import Batch, Version, batches, read_version
from .framing import FOOTER_BYTES, HEADER_BYTES, Damage, File, Frame, Scan
from .grouping import Grouping
from .protobuf import BYTES, key, spans, varint
from .scalars import read_scalars
from .summary import Logged, double_field, varint_field

DIALECTS: Final[Mapping[str, ModuleType]] = {"mindspore": mindspore, "tensorboard": tensorboard}
HEAD_BYTES: Final = 4_096
MAX_NAMED_BYTES: Final = 64 * 2**20
ARRAY: Final = re.compile(r"(\w+)\[([\d, ]*)\]")
TENSOR: Final = 8
NUMBERS: Final = {"mindspore": (3, 6, 8), "tensorboard": (4, 5, 6, 9, 12)}
"""The fields of TensorProto in which numbers lie as they are in memory."""


@dataclass(frozen=True, slots=True)
class _Scalars:
    """Some rows of a series of scalars, in memory; the numbers of their log events count from `first`."""

    steps: Any
    wall_times: Any
    values: Any
    first: int
    ordinals: Any


@dataclass(frozen=True, slots=True)
class _Places:
    """The values of a series in one event: where in its payload each begins, its length, its checksum."""

    step: int
    wall_time: float
    ordinal: int
    values: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Item:
    """A value that is not one of many scalars: a number, or what lies somewhere in the event."""

    series: int
    step: int
    wall_time: float
    type: str
    value: Any
    place: tuple[int, int, int] | None


@dataclass(slots=True)
class _Series:
    """A series, and its blocks by their offsets."""

    number: int
    entries: Entries
    types: list[str]
    blocks: dict[int, _Scalars | _Places] = field(default_factory=dict)
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


class EventFile:
    """A summary file of MindSpore's or an event file of TensorBoard's; see `reader.Part` for its attributes.

    Attributes:
        dialect: Empty as long as the file has no version record.
        passed_over: How many values were passed over, by what they are.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and read what it has.

        Raises:
            OSError: It cannot be read.
            DamagedError: It is neither, or one that a newer version wrote.
        """
        self.path = path
        self.dialect = ""
        self.stored_as = ""  # of any series; `entries` tell of which
        self.number = 0
        self.passed_over: dict[str, int] = {}
        named = mindspore.parse_name(path.name)
        self.rank = named[1] if named else 0
        self.started = float(named[0] if named else tensorboard.parse_name(path.name) or 0)
        self._file = File(path)
        self._scan = Scan(self._file)
        self._bad: dict[int, Damage] = {}
        self._series: dict[Key, _Series] = {}
        self._all: list[_Series] = []
        self._by_kind: dict[tuple[str, str], _Series] = {}
        self._plugins: dict[str, str] = {}
        self._verified: set[int] = set()
        self._grouping = Grouping(by_step=True)
        self._size = -1
        try:
            version = read_version(self._file)
            if version is not None:
                self._begin(version)
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def damages(self) -> Sequence[Damage]:
        """What was found to be damaged so far."""
        return [*self._scan.damages, *self._bad.values()]

    @property
    def torn(self) -> int:
        """How many bytes at the end are no whole frame yet."""
        return self._scan.torn

    def entries(self) -> Mapping[Key, Entries]:
        """Return the blocks of each series."""
        return {key: series.entries for key, series in self._series.items()}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # Scanning

    def refresh(self) -> bool:
        """Look for growth, and tell whether there is any; torn tails and damage are no exceptions."""
        before = self._n_values(), len(self.damages)
        try:
            size = self._file.size()
            if size == self._size:
                return False
            self._size = size
            if not self.dialect:
                version = read_version(self._file)
                if version is None:
                    self._scan.torn = size
                    return False
                self._begin(version)
            for batch in batches(self._file, self._scan, self._note_frame):
                self._take(batch)
        except (OSError, DamagedError) as error:
            at = self._scan.position
            self._bad[at] = Damage(path=self.path, offset=at, length=0, what=str(error))
        return (self._n_values(), len(self.damages)) != before

    def _n_values(self) -> int:
        return sum(series.n for series in self._series.values())

    def _begin(self, version: Version) -> None:
        """Take in the version record; when it was written tells files of one second apart."""
        self.dialect = version.dialect
        if self.dialect not in DIALECTS:
            raise DamagedError(f"Expected a file of MindSpore's or TensorBoard's, got one of ours: {self.path}")
        written = version.wall_time if math.isfinite(version.wall_time) else 0.0
        self.started = self.started + written % 1 if self.started else written
        self._dialect = DIALECTS[self.dialect]
        self._grouping = Grouping(by_step=self.dialect == "tensorboard")
        self._scan.position = version.frame.end
        if version.mended:
            self._scan.damage(version.frame, "one bit of the version record is wrong; it was mended")

    def _note_frame(self, frame: Frame, payload: memoryview) -> None:
        """Note that a frame is damaged, and what its bytes tell of what it was."""
        tag, step = "", None
        if len(payload) <= MAX_NAMED_BYTES:
            with contextlib.suppress(WireError):
                told = self._dialect.decode_event(payload, dict(self._plugins))
                named = [item for item in told if (item.tag, item.kind) in self._by_kind]
                if named and len({item.tag for item in named}) == 1:
                    tag = self._by_kind[named[0].tag, named[0].kind].entries.key.tag
                step = told[0].step if named else None
        self._scan.damage(frame, "the payload is damaged", tag=tag, step=step)

    def _take(self, batch: Batch) -> None:
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

    def _find(self, batch: Batch) -> _Values:
        """Find the values of a batch: scalars many at a time, and all others one by one."""
        scalars = read_scalars(batch.data, batch.starts, batch.lengths, self._dialect.find_scalar)
        plain = np.flatnonzero(scalars.ids >= 0)
        alone = [(i, item) for i in np.flatnonzero(scalars.ids < 0).tolist() for item in self._decode(batch, i)]
        items = [item for _, item in alone]
        numbers = np.array([self._of(tag, "scalar", "float32").number for tag in scalars.tags], np.int64)
        order = np.argsort(np.concatenate([plain, np.array([i for i, _ in alone], np.int64)]), kind="stable")

        def column(many: Any, others: Iterable[Any]) -> Any:
            return np.concatenate([many, np.array(list(others), many.dtype)])[order]

        return _Values(
            events=column(plain, (i for i, _ in alone)),
            series=column(numbers[scalars.ids[plain]] if len(plain) else plain, (item.series for item in items)),
            steps=column(scalars.steps[plain], (item.step for item in items)),
            wall_times=column(scalars.wall_times[plain], (item.wall_time for item in items)),
            floats=column(scalars.values[plain], (_number(item) for item in items)),
            which=column(np.full(len(plain), -1), range(len(items))),
            items=items,
        )

    def _decode(self, batch: Batch, i: int) -> Iterator[_Item]:
        """Decode an event that is not just one scalar."""
        frame, payload = batch.frame(i), batch.payload(i)
        try:
            told: list[Logged] = self._dialect.decode_event(payload, self._plugins)
            spans_ = list(_values(payload))
        except WireError as error:
            self._scan.damage(frame, f"it is no event: {error}")
            return
        for item, (begin, n) in zip(told, spans_ + [(0, 0)] * (len(told) - len(spans_)), strict=True):
            if item.kind == "unknown":
                self.passed_over[item.type] = self.passed_over.get(item.type, 0) + 1
                continue
            series = self._of(item.tag, item.kind, item.stored_as)
            value, place = None, None
            try:
                if item.kind == "scalar":
                    value = item.value
                else:
                    place = begin, n, framing.checksum(payload[begin : begin + n])
            except WireError as error:
                self._scan.damage(frame, str(error), tag=series.entries.key.tag, step=item.step)
                continue
            yield _Item(series.number, item.step, item.wall_time, item.type, value, place)

    def _of(self, tag: str, kind: str, stored_as: str) -> _Series:
        """Return the series of a kind of values of a tag, under a name that no other has."""
        series = self._by_kind.get((tag, kind))
        if series is None:
            name = Key(kind="logged", tag=tag)
            while name in self._series:
                name = Key(kind="logged", tag=f"{name.tag} ({kind})")
            types: list[str] = []
            series = _Series(len(self._all), Entries(name, types), types)
            self._all.append(series)
            self._series[name] = self._by_kind[tag, kind] = series
        if stored_as:
            series.entries.stored_as = self.stored_as = stored_as
        return series

    # Loading

    def load(self, entry: Entry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: It is not what was written.
        """
        block = self._block(entry)
        if isinstance(block, _Scalars):
            values = block.values
            if isinstance(values, np.ndarray) and values.dtype == np.float32:
                with np.errstate(invalid="ignore"):  # of NaN that is signalling
                    values = values.astype(np.float64)
            return Columns(
                index=entry.index, steps=block.steps, wall_times=block.wall_times, values=values,
                ordinals=block.first + block.ordinals.astype(np.int64),
            )  # fmt: skip
        n = len(block.values)
        read = [self._read(entry, block, place) for place in block.values]
        alone = n == 1 and isinstance(read[0], np.ndarray)
        return Columns(
            index=entry.index, steps=np.full(n, block.step), wall_times=np.full(n, block.wall_time),
            values=read[0][None] if alone else read, ordinals=np.full(n, block.ordinal),
        )  # fmt: skip

    def load_slice(self, entry: Entry, row: int, index: slices.Index | str) -> Any:
        """Read a part of the array that one record of a block is, in memory for little more than the part.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: There is no such part, or the record is no array.
        """
        block = self._block(entry)
        raw = self._raw(entry, block.values[row]) if isinstance(block, _Places) else None
        if raw is None:
            value = self.load(entry).values[row]
            if not isinstance(value, np.ndarray):
                raise QueryError(f"Expected an array to take {index!r:.60} of, got {type_name(value)}")
            return np.array(value[slices.resolve(index, value.shape)])
        offset, name, shape = raw
        if entry.offset not in self._verified:
            if not framing.intact(self._file, Frame(entry.offset, entry.length)):
                raise self._damaged(entry)
            self._verified.add(entry.offset)
        stored = np.dtype({"bool": "u1", "bfloat16": "<u2"}.get(name) or np.dtype(name).newbyteorder("<"))
        part = pieces.read(self._file, offset, stored, shape, slices.resolve(index, shape))
        try:
            return packed.from_raw(part.tobytes(), name).reshape(part.shape)
        except WireError as error:
            raise self._damaged(entry, str(error)) from None

    def _block(self, entry: Entry) -> _Scalars | _Places:
        return self._series[entry.key].blocks[entry.offset]

    def _read(self, entry: Entry, block: _Places, place: tuple[int, int, int]) -> Any:
        """Read a value by itself: as the only one of an event."""
        begin, n, crc = place
        inner = key(1, BYTES) + varint(n)
        beginning = b"".join(
            [
                double_field(1, block.wall_time),
                varint_field(2, block.step),
                key(5, BYTES),
                varint(len(inner) + n),
                inner,
            ]
        )
        buffer = memoryview(bytearray(len(beginning) + n))
        buffer[: len(beginning)] = beginning
        value = buffer[len(beginning) :]
        try:
            got = self._file.readinto(entry.offset + HEADER_BYTES + begin, value)
            if got < n or framing.checksum(value) != crc:
                raise self._damaged(entry)
            return self._dialect.decode_event(buffer.toreadonly(), self._plugins)[0].value
        except (WireError, OSError) as error:
            raise self._damaged(entry, str(error)) from None

    def _damaged(self, entry: Entry, what: str = "it is not what was there when the file was opened") -> DamagedError:
        """Note that a value cannot be read, once."""
        damage = Damage(
            path=self.path, offset=entry.offset, length=entry.length + HEADER_BYTES + FOOTER_BYTES, what=what,
            tag=entry.key.tag, step=entry.first_step,
        )  # fmt: skip
        return DamagedError(str(self._bad.setdefault(entry.offset, damage)))

    def _raw(self, entry: Entry, place: tuple[int, int, int]) -> tuple[int, str, tuple[int, ...]] | None:
        """Tell where the numbers of an array lie in the file, its dtype and shape; `None` if they must be decoded."""
        array = ARRAY.fullmatch(entry.type)
        if array is None:
            return None
        name, shape = array[1], tuple(int(n) for n in array[2].split(",") if n.strip())
        start = entry.offset + HEADER_BYTES + place[0]
        told = self._file.read(start, min(place[1], HEAD_BYTES))
        try:
            tensor = next(
                (begin, n) for number, kind, begin, n in spans(told, 0, place[1]) if (number, kind) == (TENSOR, BYTES)
            )
            *_, (number, kind, begin, n) = spans(told, tensor[0], sum(tensor))
        except (WireError, StopIteration, ValueError):
            return None
        whole = begin + n == sum(tensor) and n == math.prod(shape) * packed.itemsize(name)
        return (start + begin, name, shape) if kind == BYTES and number in NUMBERS[self.dialect] and whole else None


def _number(item: _Item) -> float:
    return item.value if type(item.value) is float else 0.0


def _values(payload: memoryview) -> Iterator[tuple[int, int]]:
    """Yield where in an event its values begin, and how long they are."""
    for number, kind, begin, n in spans(payload):
        if (number, kind) == (5, BYTES):
            for inner, inner_kind, place, length in spans(payload, begin, begin + n):
                if (inner, inner_kind) == (1, BYTES):
                    yield place, length


def _add_scalars(series: _Series, batch: Batch, values: _Values, rows: Any, ordinals: Any) -> None:
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
    block = _Scalars(steps, wall_times, column, first, (ordinals - first).astype(np.uint32))
    frame = Frame(batch.frame(events[0]).offset, int(batch.lengths[events].sum()))
    _add(series, frame, block, type_name(odd.get(0, 0.0)), (steps, wall_times, first))


def _add_places(series: _Series, batch: Batch, values: _Values, rows: Any, ordinals: Any) -> None:
    """Add what lies in events to a series, as a block for each event."""
    for event, members in groupby(
        zip(values.events[rows].tolist(), rows.tolist(), ordinals.tolist(), strict=True), _event
    ):
        items, numbers = zip(*((values.items[values.which[row]], ordinal) for _, row, ordinal in members), strict=True)
        places = tuple(item.place for item in items)
        frame, item, first = batch.frame(event), items[0], numbers[0]
        block = _Places(item.step, item.wall_time, first, places)
        columns = np.full(len(items), item.step), np.full(len(items), item.wall_time), first
        _add(series, frame, block, item.type, columns)


def _event(member: tuple[int, int, int]) -> int:
    return member[0]


def _add(series: _Series, frame: Frame, block: _Scalars | _Places, type_: str, columns: tuple[Any, Any, int]) -> None:
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
