"""What is known of the blocks of a file without reading their columns: one row of an index for each.

A long run has millions of small blocks, so an index is one NumPy array of `ROW`s for each series; a `BlockEntry` is
made of a row when somebody looks at it. Heads are decoded by `Heads`, which remembers what all blocks of a series
have in common and reads the rest at fixed places; heads in another layout than `block.encode` writes go the slow way.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np

from sightglass.core.errors import DamagedError, WireError

from .block import BLOCK, BLOCK_CRC, BLOCK_HEAD, MAX_ROWS, BlockHead, Key, decode_head
from .framing import checksum
from .protobuf import BYTES, FIXED32, FIXED64, VARINT, key, read_varint, spans

ROW: Final = np.dtype(
    [(name, "<i8") for name in ("offset", "length", "type", "n", "index", "ordinal", "since", "n_missed")]
    + [
        (name, "<f8")
        for name in ("first_step", "last_step", "min_step", "max_step", "first_wall", "last_wall")
    ]
)  # fmt: skip
COUNTS: Final = ("n", "index", "ordinal", "since", "n_missed")
PLACES: Final = tuple(ROW.names or ())[8:]
FIRST_STEP: Final = 8

MIN_ROW_BYTES: Final = 8
MAX_COUNT: Final = 2**62

_Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEntry:
    """A block of a series, as it is known without its columns.

    Attributes:
        offset: Where its frame begins in the file.
        length: How long its payload is, in bytes.
        n: How many records it has.
        index: The number of the first one in its stream.
        ordinal: The number of the event that it comes from.
        type: The type of the first value, such as "float" or "float32[3, 4]".
        since: The number of the event from which on the stream was kept.
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
        stored_as: The dtype that its numbers were stored as whatever they were, or empty.
    """

    stored_as: str = ""

    def __init__(self, key: Key, types: Sequence[str], rows: Any = None) -> None:
        self.key = key
        self.types = types
        self._rows = np.empty(0, ROW) if rows is None else rows
        self._n = len(self._rows)

    @classmethod
    def of(cls, key: Key, entries: Sequence[BlockEntry]) -> BlockEntries:
        """Return entries as rows."""
        if isinstance(entries, BlockEntries):
            return entries
        types: dict[str, int] = {}
        rows = [
            (e.offset, e.length, types.setdefault(e.type, len(types)), *(getattr(e, name) for name in COUNTS + PLACES))
            for e in entries
        ]
        return cls(key, list(types), np.array(rows, ROW))

    @property
    def rows(self) -> Any:
        """Shape (n,), dtype `ROW`."""
        return self._rows[: self._n]

    def extend(self, rows: Any) -> None:
        """Append rows."""
        n = self._n + len(rows)
        if n > len(self._rows):
            grown = np.empty(max(n, 2 * len(self._rows)), ROW)
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
        row = self.rows[i].item()
        told = dict(zip(COUNTS + PLACES, row[3:], strict=True))
        return BlockEntry(key=self.key, offset=row[0], length=row[1], type=self.types[row[2]], **told)

    def head(self, row: _Row) -> BlockHead:
        """Return the head of a block, but for the number of the segment."""
        told = dict(zip(COUNTS + PLACES, row[3:], strict=True))
        return BlockHead(segment=0, key=self.key, type=self.types[row[2]], **told)


_U32: Final = struct.Struct("<I")
_PLACES: Final = struct.Struct("<" + "Bd" * 6)
_PLACE_KEYS: Final = tuple(key(number, FIXED64)[0] for number in range(8, 14))
_COUNT_KEYS: Final = tuple(key(number, VARINT) for number in (5, 6, 7, 15, 16))
_EVENT: Final = key(1, FIXED64)[0]
_BLOCK: Final = key(BLOCK, BYTES)
_HEAD: Final = key(BLOCK_HEAD, BYTES)[0]
_HEAD_CRC: Final = key(BLOCK_CRC, FIXED32)[0]
_SEGMENT: Final = key(1, FIXED64)[0]
_KIND: Final = key(2, VARINT)[0]
_TEXTS: Final = tuple(key(number, BYTES)[0] for number in (3, 4, 14))


class Heads:
    """Reads heads as rows of an index.

    Attributes:
        types: The types of values seen so far.
    """

    def __init__(self, types: Iterable[str] = ()) -> None:
        self.types = list(types)
        self._type_numbers = {text: number for number, text in enumerate(self.types)}
        self._series: dict[bytes, tuple[int, Key, int]] = {}

    def read(self, payload: memoryview, length: int, offset: int) -> tuple[int, Key, _Row]:
        """Read the head at the beginning of an event.

        Args:
            payload: The event, or its beginning.
            length: How long the event is.
            offset: Where its frame begins.

        Returns:
            The number of the segment it was written for, its series, its row.

        Raises:
            DamagedError: There is none, or it is not what was written.
        """
        found = self._fast(payload, length, offset) or self._slow(payload, length, offset)
        _, key, row = found
        if row[3] * MIN_ROW_BYTES > length or max(row[4:8]) >= MAX_COUNT:
            raise DamagedError(f"The head of a block of {key.tag!r} claims more than its {length} bytes can hold")
        return found

    def _slow(self, payload: memoryview, length: int, offset: int) -> tuple[int, Key, _Row]:
        try:
            if not any((number, kind) == (BLOCK, BYTES) for number, kind, *_ in spans(payload, 0, length)):
                raise DamagedError(f"Expected a block at {offset}")
        except WireError as error:
            raise DamagedError(f"Expected a block at {offset}: {error}") from None
        head = decode_head(payload, length)
        counts, places = (tuple(getattr(head, name) for name in names) for names in (COUNTS, PLACES))
        return head.segment, head.key, (offset, length, self._type(head.type), *counts, *places)

    def _fast(self, payload: memoryview, length: int, offset: int) -> tuple[int, Key, _Row] | None:
        """Read a head that lies as `block.encode` writes it; `None` if it is anything else, or wrong."""
        try:
            if payload[0] != _EVENT or payload[9:11] != _BLOCK:
                return None
            size, place = read_varint(payload, 11)
            if place + size > length or payload[place] != _HEAD:
                return None
            size, place = read_varint(payload, place + 1)
            end = place + size
            told = bytes(payload[place:end])
            if payload[end] != _HEAD_CRC or _U32.unpack_from(payload, end + 1)[0] != checksum(told):
                return None
            place = _behind_texts(told)
            series = self._series.get(told[:place])
            if series is None:
                segment, key, row = self._slow(payload, length, offset)
                series = self._series[told[:place]] = (segment, key, row[2])
            counts = []
            for field in _COUNT_KEYS:
                if not told.startswith(field, place):
                    return None
                place += len(field)
                count = shift = 0
                while (byte := told[place]) > 0x7F:
                    count |= (byte & 0x7F) << shift
                    shift += 7
                    place += 1
                counts.append(count | byte << shift)
                place += 1
            places = _PLACES.unpack_from(told, place)
        except (IndexError, ValueError, struct.error):
            return None
        if places[::2] != _PLACE_KEYS or place + _PLACES.size != size or not 1 <= counts[0] <= MAX_ROWS:
            return None
        segment, key, type_ = series
        return segment, key, (offset, length, type_, *counts, *places[1::2])

    def _type(self, text: str) -> int:
        number = self._type_numbers.setdefault(text, len(self.types))
        if number == len(self.types):
            self.types.append(text)
        return number


def _behind_texts(told: bytes) -> int:
    """Return where the part of a head ends that all blocks of a series, with values of one type, have in common."""
    if told[0] != _SEGMENT or told[9] != _KIND:
        raise ValueError("Expected the number of a segment")
    place = 11
    for number in _TEXTS:
        if told[place] == number:
            size, place = read_varint(told, place + 1)  # type: ignore[arg-type]
            place += size
    return place
