"""The index of a record file, stored beside it as `NAME.sgr.index` to save the next reader a scan.

It is only a cache. A reader that has scanned many frames writes it, if it can. A reader that finds one checks that it
is whole, that the file begins with the same bytes, and that the file still has the frame that was its last; otherwise
it ignores the index. (A compacted file has a random number in its first frame.) Frames after the indexed ones are
scanned, and what the index says about a frame is checked when the frame is read.

The file is an eight-byte signature, the masked CRC32C of the rest, the length of a msgpack header, that header, and the
rows of all series, series by series, in the order of the file.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, overload

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.file_system import written_aside

from . import block
from .block import COUNTS, EXTENTS, HEAD, HEAD_BYTES, KINDS, MAX_ROWS, MIN_ROW_BYTES, Key, columns_of
from .framing import FOOTER_BYTES, HEADER_BYTES, Damage, RandomAccessFile, checksum, crc32c, unmasked

MAGIC: Final = b"SGINDEX2"
MIN_FRAMES: Final = 512  # fewer are scanned in a millisecond or two
MIN_GROWTH: Final = 1.25  # written again by a reader that follows a file, so all writes together cost little
MAX_INDEX_BYTES: Final = 2**34
BEGINNING_BYTES: Final = 64  # the version record, with the random number of a compacted file

_FRONT: Final = struct.Struct("<II")


class SessionStart(NamedTuple):
    """Where a file says that its program starts again: what was written before has no step from this one on.

    Attributes:
        offset: Where it says so; no block of the file lies on both sides.
        step: The step.
        wall_time: When it started again, in seconds since the Unix epoch.
    """

    offset: int
    step: float
    wall_time: float


class SeriesEntry(msgspec.Struct, frozen=True, array_like=True):
    """A series of an index, and how many blocks it has."""

    kind: str
    tag: str
    query: str
    n: int


class DamageEntry(msgspec.Struct, frozen=True, array_like=True):
    """Damage, without its file."""

    offset: int
    length: int
    what: str
    tag: str
    step: float | None


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The header of an index.

    Attributes:
        segment: The number that the file's blocks carry.
        beginning: The file's first bytes.
        position: How far the file was read.
        last: Where the frame of its last block begins.
        last_header: That frame's header.
        columns: The names of the rows' columns.
        types: The types of values, by the numbers in the rows.
    """

    segment: int
    beginning: bytes
    position: int
    last: int
    last_header: bytes
    columns: tuple[str, ...]
    types: list[str]
    series: list[SeriesEntry]
    damages: list[DamageEntry]


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """An index that was read and is consistent, as far as that shows without reading the file."""

    header: Header
    entries: dict[Key, BlockEntries]
    damages: list[Damage]


def path_of(path: Path) -> Path:
    """Return where the index of a file is."""
    return path.with_name(f"{path.name}.index")


def read(file: RandomAccessFile) -> Index | None:
    """Read the index of a file; `None` if it does not exist or cannot be used."""
    try:
        found = RandomAccessFile(path_of(file.path), file.files)
        n_bytes = found.size()
        return _decode(found.read(0, n_bytes), file) if n_bytes <= MAX_INDEX_BYTES else None
    except (OSError, msgspec.MsgspecError, WireError, struct.error, ValueError, OverflowError, MemoryError):
        return None


def _decode(data: memoryview, file: RandomAccessFile) -> Index | None:
    if bytes(data[: len(MAGIC)]) != MAGIC:
        return None
    crc, n = _FRONT.unpack_from(data, len(MAGIC))
    start = len(MAGIC) + _FRONT.size
    if crc != checksum(data[len(MAGIC) + 4 :]):
        return None
    header = msgspec.msgpack.decode(data[start : start + n], type=Header)
    rows = np.frombuffer(data[start + n :], ROW)
    fits = header.columns == ROW.names and sum(series.n for series in header.series) == len(rows)
    if not (fits and _is_about(header, file) and _is_sound(rows, header)):
        return None
    entries: dict[Key, BlockEntries] = {}
    place = 0
    for series in header.series:
        if series.kind not in KINDS or series.n < 1:
            return None
        key = Key(kind=series.kind, tag=series.tag, query=series.query)
        if key.kind == "wide":
            columns_of(key)
        entries[key] = BlockEntries(key, (), rows[place : place + series.n])
        place += series.n
    damages = [
        Damage(path=file.path, offset=lost.offset, length=lost.length, what=lost.what, tag=lost.tag, step=lost.step)
        for lost in header.damages
    ]
    return Index(header=header, entries=entries, damages=damages)


def _is_about(header: Header, file: RandomAccessFile) -> bool:
    """Return whether the file begins like the indexed one, and has the frame that was its last."""
    return (
        0 < header.last < header.position <= file.size()
        and file.read(0, BEGINNING_BYTES)[: header.position] == header.beginning
        and len(header.last_header) == HEADER_BYTES
        and file.read(header.last, HEADER_BYTES) == header.last_header
    )


def _is_sound(rows: IndexRows, header: Header) -> bool:
    """Return whether rows can be those of blocks."""
    n, offset, length = rows["n"], rows["offset"], rows["length"]
    return bool(
        (offset > 0).all()
        and (length > 0).all()
        and (length <= header.position).all()
        and (offset + length + HEADER_BYTES + FOOTER_BYTES <= header.position).all()
        and (n > 0).all()
        and (n <= length // MIN_ROW_BYTES).all()
        and (rows["type"] >= 0).all()
        and (rows["type"] < len(header.types)).all()
        and all((rows[name] >= 0).all() and (rows[name] < MAX_COUNT).all() for name in COUNTS)
    )


def write(
    file: RandomAccessFile,
    entries: Mapping[Key, BlockEntries],
    *,
    segment: int,
    position: int,
    last: int,
    types: list[str],
    damages: list[Damage],
) -> None:
    """Write an index beside a file, if possible."""
    header = Header(
        segment=segment, position=position, last=last,
        beginning=bytes(file.read(0, min(position, BEGINNING_BYTES))), last_header=bytes(file.read(last, HEADER_BYTES)),
        columns=ROW.names or (), types=types,
        series=[SeriesEntry(key.kind, key.tag, key.query, len(found)) for key, found in entries.items()],
        damages=[DamageEntry(d.offset, d.length, d.what, d.tag, d.step) for d in damages],
    )  # fmt: skip
    encoded = msgspec.msgpack.encode(header)
    rows = [found.rows.view(np.uint8).data for found in entries.values()]
    length = struct.pack("<I", len(encoded))
    whole: list[Buffer] = [MAGIC, struct.pack("<I", checksum(length, encoded, *rows)), length, encoded, *rows]
    target = path_of(file.path)
    aside = written_aside(file.files, target, whole, sync=False, like=file.path)  # it has the file's tags and queries
    with contextlib.suppress(OSError), aside as path:
        if file.is_at(file.path):
            file.files.replace(path, target)


# What the heads of a file's blocks say: one row of an index for each block.
#
# A long run has millions of small blocks, so an index is one NumPy array of `ROW`s for each series; a `BlockEntry` is
# made of a row on demand. `Heads` reads the heads of many blocks at once.

ROW: Final = np.dtype(
    [(name, "<i8") for name in ("offset", "length", "type", *COUNTS)] + [(name, "<f8") for name in EXTENTS]
)
"""Where a block's frame begins, how long its payload is, the number of its type, and what its head says."""
NUMBERS_BYTES: Final = block.NUMBERS.stop - block.NUMBERS.start  # how a row ends, and what a head has at `NUMBERS`

_TEXTS: Final = struct.Struct("<3I")  # `HEAD["texts"]`
MAX_COUNT: Final = 2**62  # counts below can be added in 64 bits

IndexRows = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEntry:
    """A block of a series, known by its head.

    Attributes:
        offset: Where its frame begins in the file.
        length: How long its payload is, in bytes.
        n: How many records it has.
        index: The number of the first one in its stream.
        ordinal: The number of the event that it comes from.
        type: The type of the first value, such as "float" or "float32[3, 4]".
        since: The number of the event from which on the stream was recorded.
        n_missed: How many events failed, were skipped or were dropped before the end of this block.
    """

    key: Key
    offset: int
    length: int
    n: int
    index: int
    ordinal: int
    first_step: float
    last_step: float
    min_step: float
    max_step: float
    first_wall: float
    last_wall: float
    type: str
    since: int = 0
    n_missed: int = 0


class BlockEntries(Sequence[BlockEntry]):
    """The blocks of one series in one file, in the order of the file; it may grow.

    Attributes:
        key: The series.
        types: The texts that the rows' `type` counts.
        logged_as: The dtype that arrays had when they were logged, where the file stores them as another, or empty.
        stored_as: The dtype that the file stores numbers as, whatever they were, or empty.
    """

    logged_as: str = ""
    stored_as: str = ""

    def __init__(self, key: Key, types: Sequence[str], rows: IndexRows | None = None) -> None:
        self.key = key
        self.types = types
        self._rows: IndexRows = np.empty(0, ROW) if rows is None else rows
        self._n = len(self._rows)

    @classmethod
    def of(cls, key: Key, entries: Sequence[BlockEntry]) -> BlockEntries:
        """Return entries as rows."""
        if isinstance(entries, BlockEntries):
            return entries
        types: dict[str, int] = {}
        rows = [
            (e.offset, e.length, types.setdefault(e.type, len(types)), *(getattr(e, name) for name in COUNTS + EXTENTS))
            for e in entries
        ]
        return cls(key, list(types), np.array(rows, ROW))

    @property
    def rows(self) -> IndexRows:
        """Shape (n,), dtype `ROW`."""
        return self._rows[: self._n]

    def extend(self, rows: IndexRows) -> None:
        """Append rows."""
        n = self._n + len(rows)
        if n > len(self._rows):
            grown = np.empty(max(n, len(self._rows) * 5 // 4), ROW)  # of many series, twice as much room is a lot
            grown[: self._n] = self.rows
            self._rows = grown
        self._rows[self._n : n] = rows
        self._n = n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, i: int) -> BlockEntry: ...

    @overload
    def __getitem__(self, i: slice) -> BlockEntries: ...

    def __getitem__(self, i: int | slice) -> BlockEntry | BlockEntries:
        if isinstance(i, slice):
            return BlockEntries(self.key, self.types, self.rows[i])
        offset, length, type_, *numbers = self.rows[i].item()
        fields: dict[str, Any] = dict(zip(COUNTS + EXTENTS, numbers, strict=True))
        return BlockEntry(key=self.key, offset=offset, length=length, type=self.types[type_], **fields)


@dataclass(frozen=True, slots=True)
class Named:
    """What the blocks of one series, with one type of values, in one file have in common.

    Attributes:
        segment: The number of the file.
        key: The series.
        series: The number of the series in `Heads.series`.
        type: The number of the type in `Heads.types`.
    """

    segment: int
    key: Key
    series: int
    type: int


class Heads:
    """Reads the heads of blocks.

    Attributes:
        types: The types of values seen so far.
        named: What blocks have in common, by the numbers that `read` gives.
        series: The series seen so far, and their numbers.
    """

    def __init__(self, types: Iterable[str] = ()) -> None:
        self.types = list(types)
        self.named: list[Named] = []
        self.series: dict[Key, int] = {}
        self._types = {text: number for number, text in enumerate(self.types)}
        self._numbers: dict[bytes, int] = {}

    def read(
        self, window: bytes, starts: Sequence[int], lengths: Sequence[int], offsets: Sequence[int]
    ) -> tuple[npt.NDArray[np.int64], IndexRows]:
        """Read the heads of blocks.

        Args:
            window: Bytes of a file.
            starts: Where payloads begin in them.
            lengths: How long the payloads are; of a long one, the bytes may have the beginning only.
            offsets: Where their frames begin in the file.

        Returns:
            For each payload the number of what `named` has for its block, -1 if it does not begin with a right head;
            and its row of the index.
        """
        numbers = np.full(len(starts), -1)
        rows = np.zeros(len(starts), ROW)
        rows["offset"], rows["length"] = offsets, lengths
        (fits,) = np.nonzero(np.asarray(starts, np.int64) <= len(window) - HEAD_BYTES)
        if not len(fits):
            return numbers, rows
        begins = np.asarray(starts, np.int64)[fits]
        heads = heads_at(window, begins)
        sizes = HEAD_BYTES + heads["texts"].sum(axis=1, dtype=np.int64)
        crcs = unmasked(heads["checksum"])
        found = self._find(window, begins.tolist(), (begins + sizes).tolist(), crcs.tolist())
        found[~_is_sound_entry(heads, rows["length"][fits], sizes)] = -1
        numbers[fits] = found
        rows["type"][fits] = np.array([named.type for named in self.named] or [0])[found]
        as_bytes = rows.view(np.uint8).reshape(len(rows), ROW.itemsize)
        as_bytes[fits, ROW.itemsize - NUMBERS_BYTES :] = heads.view(np.uint8).reshape(len(heads), -1)[:, block.NUMBERS]
        return numbers, rows

    def read_one(self, payload: Buffer, length: int, offset: int) -> tuple[Named, IndexRows]:
        """Read the head at the beginning of a payload.

        Args:
            payload: The payload, or its beginning.
            length: How long the payload is.
            offset: Where its frame begins.

        Returns:
            What blocks like this one have in common, and its row.

        Raises:
            DamagedError: There is no block, or its head is not what was written.
        """
        (number,), (row,) = self.read(bytes(payload), [0], [length], [offset])
        if number < 0:
            raise DamagedError(f"Expected a block at {offset}")
        return self.named[number], row

    def name(self, payload: Buffer) -> Named | None:
        """Return what an intact block has in common with others; `None` if its names cannot be read."""
        if len(payload) < HEAD_BYTES:
            return None
        names = bytes(payload[block.NAMES : HEAD_BYTES + sum(_TEXTS.unpack_from(payload, block.NAMES + 1))])
        number = self._numbers.get(names)
        number = self._learn(names) if number is None else number
        return self.named[number] if number >= 0 else None

    def _find(self, window: bytes, starts: list[int], ends: list[int], crcs: list[int]) -> npt.NDArray[np.int64]:
        """Return the numbers of blocks whose heads have the right checksum, -1 of others: what a scan does most."""
        known, numbers = self._numbers, []
        names = block.NAMES - block.CHECKED
        for start, end, crc in zip(starts, ends, crcs, strict=True):
            checked = window[start + block.CHECKED : end]
            number: int | None = -1
            if crc32c(checked) == crc:
                number = known.get(checked[names:])
                if number is None:
                    number = self._learn(checked[names:])
            numbers.append(number)
        return np.array(numbers, np.int64)

    def _learn(self, names: bytes) -> int:
        """Give a number to what blocks have in common, from the bytes from `NAMES` on."""
        head = np.frombuffer(bytes(block.NAMES) + names, HEAD, 1)[0]
        place, texts = HEAD_BYTES - block.NAMES, []
        try:
            for size in head["texts"].tolist():
                texts.append(names[place : place + size].decode("utf-8", "surrogatepass"))
                place += size
            key = Key(kind=KINDS[head["kind"]], tag=texts[0], query=texts[1])
            if key.kind == "wide":
                columns_of(key)
        except (UnicodeDecodeError, IndexError, WireError):
            return -1
        type_ = self._types.setdefault(texts[2], len(self.types))
        if type_ == len(self.types):
            self.types.append(texts[2])
        series = self.series.setdefault(key, len(self.series))
        self.named.append(Named(int(head["segment"]), key, series, type_))
        return self._numbers.setdefault(names, len(self.named) - 1)


def head_length(beginning: Buffer) -> int:
    """Return how long the head of a block is, with its texts, from its first `HEAD_BYTES`, if it is a block."""
    if len(beginning) < HEAD_BYTES:
        return HEAD_BYTES
    return HEAD_BYTES + int(sum(_TEXTS.unpack_from(beginning, block.NAMES + 1)))


def heads_at(window: bytes, starts: npt.NDArray[np.int64]) -> IndexRows:
    """Copy the heads, of dtype `HEAD`, that begin at some places of a window."""
    return np.ndarray(len(window) - HEAD_BYTES + 1, HEAD, window, strides=(1,))[starts]


def _is_sound_entry(
    heads: IndexRows, lengths: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Return which heads are those of blocks, and claim no more than their payloads can hold."""
    good: npt.NDArray[np.bool_] = (heads["wall_key"] == block.WALL_KEY) & (heads["block_key"] == block.BLOCK_KEY)
    good &= (heads["format"] == block.FORMAT) & (sizes <= lengths)
    good &= (heads["n"] > 0) & (heads["n"] <= MAX_ROWS) & (heads["n"] <= lengths // MIN_ROW_BYTES)
    for name in COUNTS:
        good &= (heads[name] >= 0) & (heads[name] < MAX_COUNT)
    return good
