"""The whole blocks of a Weights & Biases log, many at once: what most of a large file is read with.

Every block begins with the header of a chunk, so all blocks of a window are walked in step with each other.
Anything odd is left to `wandb_log.LogScan`, which reads chunk by chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from zlib import crc32

import numpy as np

from .scalar_events import Indexes
from .wandb_log import BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, LENGTH_AT, TYPE_AT, LogRecords


@dataclass(slots=True)
class Batch:
    """Whole records of a log.

    Attributes:
        data: Bytes that hold them.
        offsets: Where each begins in the file.
        starts: Where each begins in the data.
        lengths: How long each is, in bytes.
    """

    data: bytes
    offsets: Indexes
    starts: Indexes
    lengths: Indexes

    @classmethod
    def of(cls, records: LogRecords) -> Batch:
        """Return records that were found one by one."""
        columns = (np.array(column, np.int64) for column in (records.offsets, records.starts, records.lengths))
        return cls(records.data, *columns)

    def payload(self, i: int) -> memoryview:
        """Return the bytes of a record."""
        start = int(self.starts[i])
        return memoryview(self.data)[start : start + int(self.lengths[i])]


def read_blocks(window: bytes, base: int) -> tuple[Batch, int] | None:
    """Return the records in the whole blocks of a window, and where in the file to go on.

    Args:
        window: Bytes of the file.
        base: Where they begin in the file: with a chunk that does not continue a record.

    Returns:
        `None` if they hold no record, or anything but right chunks.
    """
    places = _places(window, base)
    if places is None or not len(places):
        return None
    lengths = np.ndarray(len(window) - 1, "<u2", window, strides=(1,))[places + LENGTH_AT].astype(np.int64)
    crcs = np.ndarray(len(window) - 3, "<u4", window, strides=(1,))[places]
    ends = places + HEADER_BYTES + lengths
    found = [crc32(window[a:b]) for a, b in zip((places + TYPE_AT).tolist(), ends.tolist(), strict=True)]
    if (crcs != np.array(found, np.uint32)).any():
        return None
    kinds = np.frombuffer(window, np.uint8)[places + TYPE_AT]
    if (kinds < FULL).any() or (kinds > LAST).any():
        return None
    firsts, lasts = np.flatnonzero(kinds <= FIRST), np.flatnonzero((kinds == FULL) | (kinds == LAST))
    n = len(lasts)
    if not n or len(firsts) - n not in (0, 1) or (kinds[firsts[:n]] == FULL).tolist() != (firsts[:n] == lasts).tolist():
        return None
    if firsts[0] != 0 or (firsts[1:] != lasts[: len(firsts) - 1] + 1).any():
        return None  # a record without its beginning, or its end
    starts, sizes, parts, n_bytes = places[firsts[:n]] + HEADER_BYTES, lengths[firsts[:n]], [window], len(window)
    for i in np.flatnonzero(firsts[:n] != lasts).tolist():
        chunks = range(firsts[i], lasts[i] + 1)
        several = [window[places[j] + HEADER_BYTES : ends[j]] for j in chunks]
        starts[i], sizes[i] = n_bytes, sum(map(len, several))
        parts += several
        n_bytes += int(sizes[i])
    end = places[firsts[n]] if len(firsts) > n else len(window) - (base + len(window)) % BLOCK_BYTES
    return Batch(b"".join(parts), base + places[firsts[:n]], starts, sizes), base + int(end)


def _places(window: bytes, base: int) -> Indexes | None:
    """Return where the chunks of whole blocks begin, in order; `None` if a chunk leads out of its block."""
    lengths = np.ndarray(len(window) - 1, "<u2", window, strides=(1,))
    ends = np.arange(BLOCK_BYTES - base % BLOCK_BYTES, len(window) + 1, BLOCK_BYTES)
    places = np.concatenate([np.zeros(1, np.int64), ends[:-1]])[: len(ends)]
    lasts = ends - HEADER_BYTES
    found = [places[:0]]
    while len(places):
        going = places <= lasts
        if not going.all():
            if (places > lasts + HEADER_BYTES).any():
                return None
            places, lasts = places[going], lasts[going]
        found.append(places)
        places = places + lengths[places + LENGTH_AT] + HEADER_BYTES
    return np.sort(np.concatenate(found))
