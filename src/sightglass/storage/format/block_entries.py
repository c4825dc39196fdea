"""What the heads of a file's blocks say: one row of an index for each block.

A long run has millions of small blocks, so an index is one NumPy array of `ROW`s for each series; a `BlockEntry` is
made of a row on demand. `Heads` reads the heads of many blocks at once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import DamagedError, WireError

from . import block
from .block import COUNTS, EXTENTS, HEAD, HEAD_BYTES, KINDS, MAX_ROWS, MIN_ROW_BYTES, Key
from .framing import crc32c, unmasked
from .wide import columns_of

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
        found[~_is_sound(heads, rows["length"][fits], sizes)] = -1
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


def _is_sound(heads: IndexRows, lengths: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which heads are those of blocks, and claim no more than their payloads can hold."""
    good: npt.NDArray[np.bool_] = (heads["wall_key"] == block.WALL_KEY) & (heads["block_key"] == block.BLOCK_KEY)
    good &= (heads["format"] == block.FORMAT) & (sizes <= lengths)
    good &= (heads["n"] > 0) & (heads["n"] <= MAX_ROWS) & (heads["n"] <= lengths // MIN_ROW_BYTES)
    for name in COUNTS:
        good &= (heads[name] >= 0) & (heads[name] < MAX_COUNT)
    return good
