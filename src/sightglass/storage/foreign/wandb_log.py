"""The log that Weights & Biases writes for an offline run: LevelDB's, after a header of seven bytes.

A log is a sequence of blocks of 32 KiB. A block has chunks: CRC-32 (of type and data), length, type, data. A record is
one chunk, or several if it does not fit into its block. Source: https://github.com/google/leveldb, doc/log_format.md;
the CRC is zlib's and not masked, as in W&B's own fork.

Rule 1: a file that ends inside a record is not damaged: it may still grow.
Rule 2: a damaged chunk costs its record. The next right chunk is searched in its block, then at the next block.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from zlib import crc32

from sightglass.core.errors import DamagedError

WANDB_SUFFIX: Final = ".wandb"
HEADER_BYTES: Final = 7  # of a chunk, and of the file
BLOCK_BYTES: Final = 2**15
MAGIC: Final = struct.pack("<4sH", b":W&B", 0xBEE1)
VERSION: Final = 0
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
LENGTH_AT, TYPE_AT = 4, 6  # in the header of a chunk, after the CRC
TRIED_BYTES: Final = 4 * 2**20  # of one block, of what only looks like chunks: a hostile file costs linear time

_CHUNK: Final = struct.Struct("<IHB")
_TYPE: Final = re.compile(rb"[\x01-\x04]")


@dataclass(slots=True)
class LogRecords:
    """Whole records.

    Attributes:
        data: Bytes that hold them.
        offsets: Where each begins in the file.
        starts: Where each begins in the data.
        lengths: How long each is, in bytes.
    """

    data: bytes = b""
    offsets: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    def payload(self, i: int) -> memoryview:
        """Return the bytes of a record."""
        return memoryview(self.data)[self.starts[i] : self.starts[i] + self.lengths[i]]


class LogScan:
    """Finds the records of a log, window by window.

    Attributes:
        position: Where the next window has to begin.
        lost: Whether the beginning of the record whose chunks follow is damaged.
    """

    def __init__(self, damage: Callable[[int, int], object], position: int = HEADER_BYTES) -> None:
        """Start at a position; `damage` is called with the offset and the length of bytes that are lost."""
        self.position = position
        self._damage = damage
        self.lost = False

    def read(self, window: bytes, *, n_records: int = 2**62) -> LogRecords:
        """Return the whole records of a window, and move on.

        Args:
            window: The bytes of the file from the position on. They end with a block, or with the file.
            n_records: Return at most so many.
        """
        base, place, n = self.position, 0, len(window)
        found, joined, n_bytes = LogRecords(), [window], n
        begin: int = -1
        parts: list[bytes] = []  # of a record of several chunks
        is_over = False
        while not is_over and len(found.offsets) < n_records:
            block_end = place + BLOCK_BYTES - (base + place) % BLOCK_BYTES
            is_over, end = block_end > n, min(block_end, n)
            while end - place >= HEADER_BYTES and len(found.offsets) < n_records:
                crc, length, kind = _CHUNK.unpack_from(window, place)
                after = place + HEADER_BYTES + length
                if after > end or crc32(window[place + TYPE_AT : after]) != crc or not FULL <= kind <= LAST:
                    after = _resume(window, place, after, end, is_last=is_over)
                    if after < 0:
                        break
                    start = begin if begin >= 0 else place
                    self._damage(base + start, after - start)
                    begin, self.lost = -1, True
                elif kind == FULL:
                    self._drop(base, begin, place)
                    begin = -1
                    found.offsets.append(base + place)
                    found.starts.append(place + HEADER_BYTES)
                    found.lengths.append(length)
                elif kind == FIRST:
                    self._drop(base, begin, place)
                    begin, parts = place, [window[place + HEADER_BYTES : after]]
                elif begin >= 0:
                    parts.append(window[place + HEADER_BYTES : after])
                    if kind == LAST:
                        found.offsets.append(base + begin)
                        found.starts.append(n_bytes)
                        found.lengths.append(sum(map(len, parts)))
                        joined += parts
                        begin, n_bytes = -1, n_bytes + found.lengths[-1]
                elif not self.lost:
                    self._damage(base + place, after - place)
                place = after
            place = place if is_over or len(found.offsets) >= n_records else block_end
        self.position = base + (begin if begin >= 0 else place)
        found.data = b"".join(joined)
        return found

    def _drop(self, base: int, begin: int, place: int) -> None:
        """Note a record that was begun and not ended; another one begins."""
        self.lost = False
        if begin >= 0:
            self._damage(base + begin, place - begin)


def check_header(begun: bytes, path: Path) -> bool:
    """Return whether a file has a whole header, from its first bytes.

    Raises:
        DamagedError: It is not a log of Weights & Biases, or of a newer version.
    """
    if begun[: len(MAGIC)] != MAGIC[: len(begun)]:
        raise DamagedError(f"Expected a file of Weights & Biases, but it does not begin as one: {path}")
    if len(begun) >= HEADER_BYTES and begun[len(MAGIC)] != VERSION:
        raise DamagedError(
            f"Expected version {VERSION} of W&B's log, got {begun[len(MAGIC)]}: update sightglass: {path}"
        )
    return len(begun) >= HEADER_BYTES


def _resume(window: bytes, place: int, after: int, end: int, *, is_last: bool) -> int:
    """Return where to go on after a wrong chunk; -1 if it is in the last block and may still be written."""
    tried = 0
    for match in _TYPE.finditer(window, place + 1 + TYPE_AT, end):
        start = match.start() - TYPE_AT
        crc, length, _ = _CHUNK.unpack_from(window, start)
        finish = start + HEADER_BYTES + length
        if finish <= end:
            tried += length
            if crc32(window[match.start() : finish]) == crc:
                return start
        if tried > TRIED_BYTES:
            break
    if not is_last:
        return end
    return after if after <= end and any(window[place : place + HEADER_BYTES]) else -1
