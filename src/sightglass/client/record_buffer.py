"""What a client keeps of a stream: its records, as the columns they came in, in bounded memory.

Records are addressed by a cursor that counts them as they arrive. The oldest are forgotten when there are too many,
and counted. Everything that waits for records waits for one condition, `arrivals`: a client has few threads and a
simple life.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns, of_records
from sightglass.core.record import Record
from sightglass.core.values import n_bytes

MAX_RECORDS: Final = 2_000_000
MAX_BYTES: Final = 1024 * 2**20


class Arrivals:
    """Lets threads wait until something happened to any stream."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.n = 0

    def tell(self) -> None:
        """Wake everybody who waits."""
        with self._condition:
            self.n += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until more has happened than was seen, for at most this long."""
        with self._condition:
            self._condition.wait_for(lambda: self.n != seen, timeout_s)


arrivals = Arrivals()


class RecordBuffer:
    """The records of one stream.

    Attributes:
        tag: The name of the series.
        run: The name of the run.
        n: How many records came.
        n_forgotten: How many of them are not kept any more.
        n_lost: How many never came, by the gaps in their index numbers.
        ended: Whether no more will come.
        error: Why it ended, if it did not end well.
        counts: What the run counted, as it last told.
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
        """Append records that came as columns; those that came before are left out."""
        with self._lock:
            expected = columns.index if self._next_index is None else self._next_index
            columns = columns.after(expected)
            if columns.index < expected:
                return
            self.n_lost += columns.index - expected
            self._next_index = columns.index + len(columns)
            size = 24 * len(columns) + n_bytes(columns.values)
            self._append(columns, len(columns), size)

    def extend(self, records: Sequence[Record]) -> None:
        """Append records that were made here."""
        if not records:
            return
        with self._lock:
            size = sum(200 + n_bytes(record.value) for record in records)
            last = self._chunks[-1] if self._chunks else None
            if last is not None and isinstance(last[1], list) and len(last[1]) < 256:
                last[1].extend(records)
                self._chunks[-1] = (last[0], last[1], last[2] + size)
                self.n += len(records)
                self._n_bytes += size
            else:
                self._append(list(records), len(records), size)

    def end(self, error: Exception | None = None) -> None:
        """Note that no more will come."""
        if not self.ended:
            self.error = error
            self.ended = True
            arrivals.tell()

    def bound(self, *, max_records: int, max_bytes: int) -> None:
        """Keep no more than this from now on."""
        with self._lock:
            self._max_records, self._max_bytes = max_records, max_bytes
            self._trim()

    def forget(self, cursor: int) -> None:
        """Keep nothing of what came before a cursor, but for what came together with something later."""
        with self._lock:
            while self._chunks and self._chunks[0][0] + len(self._chunks[0][1]) <= cursor:
                self._drop()

    def since(self, cursor: int) -> tuple[int, list[Record]]:
        """Return the records after a cursor, and the cursor behind them."""
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
        """Return the newest record."""
        with self._lock:
            if not self._chunks:
                return None
            _, chunk, _ = self._chunks[-1]
            if isinstance(chunk, Columns):
                return chunk.record(len(chunk) - 1, tag=self.tag, run=self.run)
            return chunk[-1]

    def columns(self) -> Iterator[Columns]:
        """Yield everything that is kept as columns, in order."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """A stream as arrays, each of shape (n_records,) or longer.

    Attributes:
        steps: The primary steps.
        wall_times: In seconds since the Unix epoch, float64.
        values: Of shape (n_records, …) where the values are numbers or arrays of one shape, else an object array.
        tracks: Further step tracks by name, float64, NaN where a record has none.
    """

    steps: Any
    wall_times: Any
    values: Any
    tracks: Mapping[str, Any]


def to_arrays(store: RecordBuffer) -> Arrays:
    """Gather what a store keeps into arrays."""
    chunks = list(store.columns())
    if not chunks:
        return Arrays(steps=np.zeros(0), wall_times=np.zeros(0), values=np.zeros(0), tracks={})
    tracks = [track or {} for chunk in chunks for track in (chunk.tracks or [{}] * len(chunk))]
    names = sorted({name for track in tracks for name in track})
    return Arrays(
        steps=np.concatenate([chunk.steps for chunk in chunks]),
        wall_times=np.concatenate([chunk.wall_times for chunk in chunks]),
        values=_values([chunk.values for chunk in chunks]),
        tracks={name: np.asarray([track.get(name, np.nan) for track in tracks], float) for name in names},
    )


def _values(parts: list[Any]) -> Any:
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    items = [item for part in parts for item in part]
    shapes = {
        getattr(item, "shape", ()) if isinstance(item, bool | int | float | np.generic | np.ndarray) else None
        for item in items
    }
    if len(shapes) == 1 and None not in shapes:
        return np.asarray(items)
    array = np.empty(len(items), object)
    for i, item in enumerate(items):  # assigned at once, sequences of one length would become a matrix
        array[i] = item
    return array
