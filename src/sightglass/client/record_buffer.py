"""The records of a stream in a client: the columns they arrived as, in bounded memory.

A cursor addresses records: it counts them as they arrive. When there are too many, the oldest are dropped and counted.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sightglass.core.columns import Columns, of_records
from sightglass.core.record import Record
from sightglass.core.values import n_bytes

from .arrivals import arrivals

# As numbers, these records take 64 MB: a day of 20 steps per second. The bytes bound records that hold arrays.
# `Stream.bound` changes both for one stream.
MAX_RECORDS: Final = 2_000_000
MAX_BYTES: Final = 1024 * 2**20
# Of a record in columns, beside its value: 8 bytes each for step, wall time and what else there may be.
COLUMN_BYTES: Final = 24
# Of a `Record` object, beside its value: some 270 with CPython 3.12 when no number is shared, 200 as a rule.
RECORD_BYTES: Final = 200
# Records come one by one, or a few at a time. Chunks of this many keep the deque short; a chunk is dropped as a whole.
CHUNK_RECORDS: Final = 256
# Chunks of large values are not joined: copying them would cost more than a chunk does.
JOINED_BYTES: Final = 2**16
# A chunk is at most this part of what is held, since it is dropped as a whole.
SHARE: Final = 8
# Of a chunk, beside its records: the arrays and what holds them, with CPython 3.11.
CHUNK_BYTES: Final = 680


class RecordBuffer:
    """The records of one stream.

    Attributes:
        tag: The name of the series.
        run: The name of the run.
        n: How many records arrived.
        n_forgotten: How many of them were dropped from memory.
        n_lost: How many never arrived, by the gaps in their index numbers, and by where the run says that the stream
            begins and ends.
        ended: Whether no more records can arrive.
        error: Why the stream failed, or `None`.
        counts: The run's last counts for the stream.
    """

    def __init__(self, *, tag: str, run: str, max_records: int | None = None, max_bytes: int | None = None) -> None:
        self._max_records = MAX_RECORDS if max_records is None else max_records
        self._max_bytes = MAX_BYTES if max_bytes is None else max_bytes
        self.tag = tag
        self.run = run
        self.n = self.n_forgotten = self.n_lost = 0
        self.ended = False
        self.error: Exception | None = None
        self.counts: Mapping[str, Any] = {}
        self._chunks: deque[tuple[int, Columns | list[Record], int]] = deque()
        self._n_bytes = 0
        self._next_index: int | None = None
        self._lock = threading.Lock()

    def add(self, columns: Columns) -> None:
        """Append records that arrived as columns, except those that arrived before."""
        with self._lock:
            expected = columns.index if self._next_index is None else self._next_index
            columns = columns.after(expected)
            if columns.index < expected:
                return
            self.n_lost += columns.index - expected
            self._next_index = columns.index + len(columns)
            size = COLUMN_BYTES * len(columns) + n_bytes(columns.values)
            if columns and not self._join(columns, size):
                self._append(columns, len(columns), CHUNK_BYTES + size)

    def _join(self, columns: Columns, size: int) -> bool:
        """Join columns to the last chunk; return whether they fit."""
        start, last, before = self._chunks[-1] if self._chunks else (0, None, 0)
        if not isinstance(last, Columns) or len(last) + len(columns) > min(CHUNK_RECORDS, self._max_records // SHARE):
            return False
        if before + size > min(JOINED_BYTES, self._max_bytes // SHARE):
            return False
        joined = last.followed_by(columns)
        if joined is None:
            return False
        self._chunks[-1] = (start, joined, before + size)
        self.n += len(columns)
        self._n_bytes += size
        self._trim()
        return True

    def expect(self, index: int) -> None:
        """Count the records before an index that did not arrive as lost; none if this is the first to be known."""
        with self._lock:
            if self._next_index is not None:
                self.n_lost += max(0, index - self._next_index)
            self._next_index = max(index, self._next_index or 0)

    def extend(self, records: Sequence[Record]) -> None:
        """Append records that were computed here."""
        if not records:
            return
        with self._lock:
            size = sum(RECORD_BYTES + n_bytes(record.value) for record in records)
            last = self._chunks[-1] if self._chunks else None
            if last is not None and isinstance(last[1], list) and len(last[1]) < CHUNK_RECORDS:
                last[1].extend(records)
                self._chunks[-1] = (last[0], last[1], last[2] + size)
                self.n += len(records)
                self._n_bytes += size
            else:
                self._append(list(records), len(records), size)

    def end(self, error: Exception | None = None) -> None:
        """Mark the stream as ended; `error` says why it failed."""
        if not self.ended:
            self.error = error
            self.ended = True
            arrivals.notify()

    def bound(self, *, max_records: int, max_bytes: int) -> None:
        """Hold at most this much from now on."""
        with self._lock:
            self._max_records, self._max_bytes = max_records, max_bytes
            self._trim()

    def forget(self, cursor: int) -> None:
        """Drop the records before a cursor, except those that are in one chunk with later ones."""
        with self._lock:
            while self._chunks and self._chunks[0][0] + len(self._chunks[0][1]) <= cursor:
                self._drop()

    def since(self, cursor: int) -> tuple[int, list[Record]]:
        """Return the records after a cursor, and the cursor for the next call."""
        with self._lock:
            chunks = [(start, chunk) for start, chunk, _ in self._chunks if start + len(chunk) > cursor]
            end = self.n
            sizes = [len(chunk) for _, chunk in chunks]
        records: list[Record] = []
        for (start, chunk), size in zip(chunks, sizes, strict=True):
            first = max(0, cursor - start)
            if isinstance(chunk, Columns):
                records.extend(chunk.record(i, tag=self.tag, run=self.run) for i in range(first, size))
            else:
                records.extend(chunk[first:size])
        return end, records

    def latest(self) -> Record | None:
        """Return the newest record, or `None`."""
        with self._lock:
            if not self._chunks:
                return None
            _, chunk, _ = self._chunks[-1]
            if isinstance(chunk, Columns):
                return chunk.record(len(chunk) - 1, tag=self.tag, run=self.run)
            return chunk[-1]

    def columns(self) -> Iterator[Columns]:
        """Yield all records as columns, in order."""
        with self._lock:
            chunks = [chunk if isinstance(chunk, Columns) else list(chunk) for _, chunk, _ in self._chunks]
        for chunk in chunks:
            yield chunk if isinstance(chunk, Columns) else of_records(chunk)

    def _append(self, chunk: Columns | list[Record], n: int, size: int) -> None:
        if not n:
            return
        self._chunks.append((self.n, chunk, size))
        self.n += n
        self._n_bytes += size
        self._trim()

    def _trim(self) -> None:
        while len(self._chunks) > 1 and (
            self.n - self._chunks[0][0] > self._max_records or self._n_bytes > self._max_bytes
        ):
            self._drop()

    def _drop(self) -> None:
        _, forgotten, bytes_ = self._chunks.popleft()
        self.n_forgotten += len(forgotten)
        self._n_bytes -= bytes_
