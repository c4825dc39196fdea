"""Reading our own record files.

Rule 1: opening and following a file reads the beginnings of its frames only. A head can be trusted: it has a checksum
of its own. Values are returned only after the checksum of the whole frame was verified, and only if the frame is the
one that was indexed.
Rule 2: a torn tail is a normal state of a live file, and damage is noted and skipped; neither raises until a caller
reads the damaged bytes themselves.
Rule 3: files are read, not mapped: a mapped file that is truncated kills the process.
Rule 4: only `load` and `load_slice` may be used by several threads at once.
"""

from __future__ import annotations

import contextlib
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, QueryError, WireError
from sightglass.core.values import Tensor, type_name
from sightglass.storage.file_names import name_of
from sightglass.storage.file_system import LOCAL, FileSystem
from sightglass.storage.format import framing, index
from sightglass.storage.format.block import FORMAT, HEAD_BYTES, NUMBERS, Key, RawValues, decode, is_block, raw_values
from sightglass.storage.format.framing import (
    FOOTER_BYTES,
    HEADER_BYTES,
    LOST,
    Damage,
    Frame,
    FrameRun,
    RandomAccessFile,
    Scan,
)
from sightglass.storage.format.index import (
    NUMBERS_BYTES,
    BlockEntries,
    BlockEntry,
    Heads,
    IndexRows,
    SessionStart,
    head_length,
)
from sightglass.storage.format.protobuf import BYTES, FIXED64, walk
from sightglass.storage.tensors import slices

from .run_series import FileSeries, of_series

__all__ = ["BlockEntry", "SegmentReader"]

MAX_VERSION_BYTES: Final = 4_096
MAX_HEAD_BYTES: Final = 2**20
MAX_VERIFIED: Final = 4_096  # blocks whose arrays need not be verified again: a megabyte, and more than a user browses
POISON = 0  # tests set a byte here, with which a buffer is filled when its time is over
VERSION: Final = re.compile(r"(\w{1,40})\.Event:(\d{1,9})")

Found = tuple[npt.NDArray[np.int64], IndexRows]
"""The numbers that `Heads.read` gives, and rows."""


class SegmentReader:
    """One of our own files; see `RecordFile` for its attributes.

    Attributes:
        version: The text of its version record; empty as long as it has none.
        segment: The number that its blocks carry, or `None` before the first.
        n_bytes: How long it is, as far as it was read.
    """

    dialect: str = "sightglass"
    stored_as: str = ""
    told: Mapping[str, Any] = MappingProxyType({})
    passed_over: Mapping[str, int] = MappingProxyType({})
    session_starts: Sequence[SessionStart] = ()

    def __init__(self, path: Path, *, cache: bool = True, files: FileSystem = LOCAL) -> None:
        """Open a file and read the heads of its blocks.

        Args:
            path: The file.
            cache: Whether to use, and write, an index beside it.
            files: Where the file is.

        Raises:
            OSError: It cannot be read.
            DamagedError: It is not a Sightglass record file, or a newer version wrote it.
        """
        self.path = path
        self.version = ""
        self.segment: int | None = None
        self.started, self.rank, self.number = name_of(path) or (0.0, 0, 0)
        self._cache = cache
        self._file = RandomAccessFile(path, files)
        self._scan = Scan(self._file)
        self._heads = Heads()
        self._series = FileSeries()
        self._n_frames = self._n_indexed = self._last = 0
        self._bad: dict[int, Damage] = {}
        self._unreadable: Damage | None = None
        self._healed = False
        self._verified_values: dict[int, RawValues | None] = {}
        try:
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def damages(self) -> Sequence[Damage]:
        """The damage found so far."""
        last = [damage for damage in (self._scan.tail, self._unreadable) if damage is not None]
        return [*self._scan.damages, *last, *self._bad.values()]

    @property
    def torn(self) -> int:
        """How many bytes at the end are not a whole frame yet."""
        return self._scan.torn

    @property
    def n_bytes(self) -> int:
        """How long the file is, as far as it was read."""
        return self._scan.position + self._scan.torn

    @property
    def n_frames(self) -> int:
        """How many blocks there are."""
        return self._n_frames

    @property
    def stale(self) -> bool:
        """Whether it has to be opened again: the system no longer knows the file, or damage has gone from it."""
        return self._file.stale or self._healed

    @property
    def replaced(self) -> bool:
        """Whether it is stale, or another file has its path now, such as the compacted one."""
        return self._healed or self._file.replaced

    def entries(self) -> FileSeries:
        """Return the blocks of each series."""
        return self._series

    def blocks(self) -> dict[Key, BlockEntries]:
        """Return the blocks as they lie in the file: wide ones under the key that they have in common."""
        return self._series.blocks

    def sources(self, key: Key) -> tuple[Key, ...]:
        """Return under which keys of `blocks` a series lies."""
        return self._series.sources(key)

    def revalidate(self) -> None:
        """Learn how long the file is by now, if its writer has closed it."""
        self._file.revalidate()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # Scanning

    def refresh(self) -> bool:
        """Look for growth, and return whether there is any.

        Raises:
            DamagedError: It is not a Sightglass record file, or a newer version wrote it; nothing else raises.
        """
        before, n_damages = (self._n_frames, len(self.damages)), len(self._scan.damages)
        self._unreadable = None
        try:
            self._healed |= healed(self._file, self._scan.damages)
            if self._scan.position == 0 and self._cache:
                self._restore()
            self._take([self._read_heads(run) for run in self._scan.runs()])
        except OSError as error:
            at, what = self._scan.position, f"it cannot be read any more: {error}"
            self._unreadable = Damage(path=self.path, offset=at, length=0, what=what)
        self._name_damages(n_damages)
        self._leave_index()
        return (self._n_frames, len(self.damages)) != before

    def _restore(self) -> None:
        """Start from the index beside the file."""
        found = index.read(self._file)
        if found is None:
            return
        with contextlib.suppress(DamagedError):  # the scan reports it
            frame = Frame(0, int.from_bytes(self._file.read(0, 8), "little"))
            if frame.length <= MAX_VERSION_BYTES:
                self._check_version(framing.payload(self._file, frame))
        if not self.version or healed(self._file, found.damages):
            return
        self.segment, self._scan.position = found.header.segment, found.header.position
        self._last, self._scan.damages = found.header.last, found.damages
        self._heads = Heads(found.header.types)
        for key, entries in found.entries.items():
            self._series.add(BlockEntries(key, self._heads.types, entries.rows))
            self._n_frames += len(entries)
        self._n_indexed = self._n_frames

    def _check_version(self, payload: memoryview) -> None:
        """Read the version record.

        Raises:
            DamagedError: It is not a Sightglass version record.
        """
        try:
            told = {
                number: value for number, kind, value in walk(payload) if (number, kind) in ((1, FIXED64), (3, BYTES))
            }
        except WireError:
            told = {}
        text = str(told.get(3, b""), "utf-8", "replace")  # type: ignore[arg-type]
        match = VERSION.fullmatch(text)
        if match is None or match[1] != "Sightglass" or int(match[2]) < FORMAT:
            raise DamagedError(f"Expected a file of version 'Sightglass.Event:{FORMAT}', got {text!r:.60}: {self.path}")
        if int(match[2]) > FORMAT:
            raise DamagedError(
                f"{self.path} was written by a newer sightglass, format {match[2]}; this one reads {FORMAT}"
            )
        self.version = text
        if not self.started and 1 in told:
            self.started = float(struct.unpack("<d", told[1])[0])  # type: ignore[arg-type]

    def _read_heads(self, run: FrameRun) -> Found:
        n_skipped = run.offsets[0] == 0
        if n_skipped:
            self._first(Frame(0, run.lengths[0]))
        starts, lengths, offsets = run.starts[n_skipped:], run.lengths[n_skipped:], run.offsets[n_skipped:]
        numbers, rows = self._heads.read(run.data, starts, lengths, offsets)
        for i in np.flatnonzero(numbers < 0).tolist():
            numbers[i], rows[i] = self._second_look(Frame(offsets[i], lengths[i]))
        return numbers[numbers >= 0], rows[numbers >= 0]

    def _first(self, frame: Frame) -> None:
        try:
            payload = framing.payload(self._file, frame) if frame.length <= MAX_VERSION_BYTES else memoryview(b"")
        except DamagedError:
            self._note(0, frame.end, "the version record is damaged")
            return
        self._check_version(payload)

    def _second_look(self, frame: Frame) -> tuple[int, Any]:
        """Read a head that is longer than usual, and note damage unless the event is intact but not a block."""
        front = self._file.read(frame.payload, min(frame.length, HEAD_BYTES))
        body = bytes(self._file.read(frame.payload, min(frame.length, head_length(front), MAX_HEAD_BYTES)))
        (number,), (row,) = self._heads.read(body, [0], [frame.length], [frame.offset])
        if number < 0 and (is_block(body) or not framing.intact(self._file, frame)):
            self._note(frame.offset, frame.end - frame.offset, LOST_HEAD)
        return int(number), row

    def _take(self, found: list[Found]) -> None:
        """Add rows to the index, except those of blocks of other files that lay in lost bytes."""
        numbers, rows = (np.concatenate(several) for several in zip(*found, strict=True)) if found else (None, None)
        if numbers is None or rows is None or not len(numbers):
            return
        named = self._heads.named
        if self.segment is None:
            # What follows lost bytes could be part of them; the last block of the file is its own.
            lost = any(damage.offset < rows["offset"][0] for damage in self._scan.damages)
            self.segment = named[numbers[-1 if lost else 0]].segment
        ours = np.array([names.segment == self.segment for names in named])[numbers]
        for row in rows[~ours]:
            frame = Frame(int(row["offset"]), int(row["length"]))
            what = "a block of another file, which lay in bytes that were lost"
            self._note(frame.offset, frame.end - frame.offset, what)
        numbers, rows = numbers[ours], rows[ours]
        if not len(rows):
            return
        self._last = int(rows["offset"][-1])
        self._n_frames += len(rows)
        series = np.array([names.series for names in named])[numbers]
        order = np.argsort(series, kind="stable")
        keys = list(self._heads.series)
        for some in np.split(order, np.flatnonzero(np.diff(series[order])) + 1):
            key = keys[series[some[0]]]
            if key not in self._series.blocks:
                self._series.add(BlockEntries(key, self._heads.types))
            self._series.blocks[key].extend(rows[some])

    def _name_damages(self, start: int) -> None:
        """Name the series of lost bytes, where they are one frame whose head is right."""
        self._scan.damages[start:] = map(self._named, self._scan.damages[start:])
        if self._scan.tail is not None:
            self._scan.tail = self._named(self._scan.tail)

    def _named(self, damage: Damage) -> Damage:
        length = damage.length - HEADER_BYTES - FOOTER_BYTES
        with contextlib.suppress(DamagedError, OSError):
            body = self._file.read(damage.offset + HEADER_BYTES, min(max(0, length), framing.HEAD_BYTES))
            named, row = self._heads.read_one(body, length, damage.offset)
            if named.segment == self.segment:
                tag = "" if named.key.kind == "wide" else named.key.tag
                return replace(damage, tag=tag, step=float(row["first_step"]))
        return damage

    def _leave_index(self) -> None:
        """Write an index beside the file, when it saves the next reader much."""
        n = self._n_frames
        if self._cache and self.version and n >= index.MIN_FRAMES and n >= index.MIN_GROWTH * self._n_indexed:
            self._n_indexed = n
            index.write(
                self._file, self._series.blocks, segment=self.segment or 0, position=self._scan.position,
                last=self._last, types=self._heads.types, damages=self._scan.damages,
            )  # fmt: skip

    def _note(self, offset: int, length: int, what: str) -> None:
        """Note damage that the scan found."""
        self._scan.damages.append(Damage(path=self.path, offset=offset, length=length, what=what))

    # Loading

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: The block is not what was written.
        """
        columns = next(self.loads(BlockEntries.of(entry.key, [entry])))
        if columns is None:
            raise DamagedError(str(self._bad[entry.offset]))
        return columns

    def loads(self, entries: BlockEntries) -> Iterator[Columns | None]:
        """Read blocks of a series one after the other; `None` for those that are not what was written.

        Arrays are read-only, and valid until the next block is read; those in lists stay valid.
        """
        buffer = memoryview(b"")
        for row in entries.rows:
            offset, length = int(row["offset"]), int(row["length"])
            if POISON and buffer:
                np.frombuffer(buffer, np.uint8)[:] = POISON
            if len(buffer) < length + FOOTER_BYTES:
                buffer = np.empty(length + FOOTER_BYTES, np.uint8).data  # not filled with zeros
            try:
                columns = self._load(entries, row, offset, buffer[: length + FOOTER_BYTES])
            except (DamagedError, OSError) as error:
                self._note_block(entries.key, Frame(offset, length), float(row["first_step"]), str(error))
                yield None
                continue
            self._bad.pop(offset, None)  # a network that failed before
            yield columns
            if isinstance(columns.values, list):
                buffer = memoryview(b"")
        if POISON and buffer:
            np.frombuffer(buffer, np.uint8)[:] = POISON

    def _load(self, entries: BlockEntries, row: np.void, offset: int, buffer: memoryview) -> Columns:
        n, length = self._file.readinto(offset + HEADER_BYTES, buffer), len(buffer) - FOOTER_BYTES
        body = buffer[:length]
        if n < len(buffer) or framing.checksum(body) != int.from_bytes(buffer[length:], "little"):
            raise DamagedError("the payload is damaged")
        key = self._check(entries, row, body)
        columns = decode(body.toreadonly())
        return columns if key == entries.key else self._series.pick(columns, key, entries.key.tag)

    def _check(self, entries: BlockEntries, row: np.void, body: memoryview) -> Key:
        """Check that the block that was read is the one that was indexed, and return its own key.

        Raises:
            DamagedError: It is another one.
        """
        named = self._heads.name(body)
        same = (
            named is not None
            and named.segment == self.segment
            and (named.key == entries.key or named.key in self._series.sources(entries.key))
            and self._heads.types[named.type] == entries.types[row["type"]]
            and row.tobytes()[-NUMBERS_BYTES:] == body[NUMBERS]
        )
        if named is None or not same:
            raise DamagedError("another block than the one that was indexed")
        return named.key

    def _note_block(self, key: Key, frame: Frame, step: float, what: str) -> Damage:
        """Note that a block cannot be read, once."""
        damage = Damage(path=self.path, offset=frame.offset, length=frame.end - frame.offset, what=what)
        return self._bad.setdefault(frame.offset, of_series(damage, self._series.key_at(key, frame.offset), step))

    def load_slice(self, entry: BlockEntry, row: int, index: slices.Index | str) -> Any:
        """Read a part of an array, the value of one record, using memory for little more than the part.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: The array does not have this part, or the value is not an array.
        """
        frame = Frame(entry.offset, entry.length)
        raw = self._verified(entry, frame)
        if raw is None:
            return _part(self.load(entry).values[row], index)
        place = frame.payload + raw.offset + range(entry.n)[row] * raw.dtype.itemsize * math.prod(raw.shape)
        return slices.read(self._file, place, raw.dtype, raw.shape, slices.resolve(index, raw.shape))

    def _verified(self, entry: BlockEntry, frame: Frame) -> RawValues | None:
        """Verify a frame, once, and return where its arrays lie; `None` if they are in a list."""
        if frame.offset in self._verified_values:
            return self._verified_values[frame.offset]
        try:
            if not framing.intact(self._file, frame):
                raise DamagedError("the payload is damaged")
            entries = BlockEntries.of(entry.key, [entry])
            body = self._file.read(frame.payload, min(frame.length, MAX_HEAD_BYTES))
            is_own = self._check(entries, entries.rows[0], body) == entry.key
            raw = raw_values(lambda at, n: self._file.read(frame.payload + at, n), frame.length) if is_own else None
        except (DamagedError, OSError) as error:
            raise DamagedError(str(self._note_block(entry.key, frame, entry.first_step, str(error)))) from None
        if len(self._verified_values) >= MAX_VERIFIED:
            self._verified_values.clear()
        self._verified_values[frame.offset] = raw
        return raw


def _part(value: object, index: slices.Index | str) -> Any:
    if isinstance(value, Tensor):
        value = value.value
    if not isinstance(value, np.ndarray | np.generic):
        raise QueryError(f"Expected an array to take {index!r:.60} of, got {type_name(value)}")
    return np.array(np.asarray(value)[slices.resolve(index, value.shape)])


# Damage that goes away: in a network, the pages of a file that another machine writes can arrive in any order.
#
# Until they do, a reader finds zeros between whole frames.

LOST_HEAD: Final = "the head of a block is damaged"
MAX_LOOKS: Final = 8  # the latest damage: pages arrive within seconds
MAX_BYTES: Final = 2**20  # of a frame that is read for it whenever the file is


def healed(file: RandomAccessFile, damages: Sequence[Damage]) -> bool:
    """Return whether a frame that was damaged is right now.

    Raises:
        OSError: The file cannot be read.
    """
    return any(_is_right(file, damage) for damage in damages[-MAX_LOOKS:])


def _is_right(file: RandomAccessFile, damage: Damage) -> bool:
    if damage.what not in (LOST, LOST_HEAD):
        return False
    length = framing.header(file.read(damage.offset, HEADER_BYTES))
    if length is None or length > min(MAX_BYTES, damage.length - HEADER_BYTES - FOOTER_BYTES):
        return False
    frame = Frame(damage.offset, length)
    body = bytes(file.read(frame.payload, length))
    is_block = Heads().read(body, [0], [length], [frame.offset])[0][0] >= 0
    return framing.intact(file, frame) and (is_block or damage.what == LOST)
