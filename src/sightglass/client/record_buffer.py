"""The records of a stream in a client, in bounded memory, and what became of the stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns, of_records
from sightglass.core.record import Record, Restart
from sightglass.core.unpatched import threading

from .arrivals import arrivals

# As numbers, these records take 64 MB: a day of 20 steps per second. The bytes bound records that hold arrays.
# `Stream.bound` changes both for one stream.
MAX_RECORDS: Final = 2_000_000
MAX_BYTES: Final = 1024 * 2**20


class RecordBuffer:
    """The records of one stream.

    Attributes:
        tag: The name of the series.
        run: The name of the run.
        n_lost: How many never arrived, by the gaps in their index numbers, and by where the run says that the stream
            begins and ends.
        n_thinned: How many the run left out, because it holds older records at a lower resolution.
        ended: Whether no more records can arrive.
        error: Why the stream failed, or `None`.
        counts: The run's last counts for the stream.
        first_step: The step of the first record; `None` before it.
        last: The number and the wall time of the last record; `None` before the first.
        client: What all streams of one client have in common: its session; `None` if there is none, or several.
        run_id: The id of the run that made the first records; empty if it is not known.
        run_ids: The ids of the runs whose records it may have, in order, if they are known before their records.
        restarts: Where the records of a restarted run begin.
    """

    def __init__(
        self,
        *,
        tag: str,
        run: str,
        run_id: str = "",
        client: object = None,
        max_records: int | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._buffer = Buffer(
            max_rows=MAX_RECORDS if max_records is None else max_records,
            max_bytes=MAX_BYTES if max_bytes is None else max_bytes,
        )
        self.tag = tag
        self.run = run
        self.n_lost = self.n_thinned = 0
        self.ended = False
        self.error: Exception | None = None
        self.counts: Mapping[str, Any] = {}
        self.first_step: float | None = None
        self.last: tuple[int, float] | None = None
        self.run_id = run_id
        self.client = client
        self.run_ids: tuple[str, ...] = ()
        self.restarts: tuple[Restart, ...] = ()
        self._next_index: int | None = None
        self._lock = threading.Lock()

    @property
    def n(self) -> int:
        """How many records arrived."""
        return self._buffer.n

    @property
    def n_forgotten(self) -> int:
        """How many of them are held no more."""
        return self._buffer.n_forgotten

    @property
    def next_index(self) -> int | None:
        """The number of the next record; `None` until it is known."""
        return self._next_index

    def add(self, columns: Columns) -> None:
        """Append records that arrived, except those that arrived before."""
        with self._lock:
            expected = columns.index if self._next_index is None else self._next_index
            columns = columns.after(expected)
            if columns.index < expected:
                return
            self.n_lost += columns.index - expected
            n_missing = columns.end - columns.index - len(columns)
            self.n_thinned += n_missing if columns.bits else 0
            self.n_lost += 0 if columns.bits else n_missing
            self._next_index = columns.end
            self._append(columns)

    def expect(self, index: int) -> None:
        """Count the records before an index that did not arrive as lost; none if this is the first to be known."""
        with self._lock:
            if self._next_index is not None:
                self.n_lost += max(0, index - self._next_index)
            self._next_index = max(index, self._next_index or 0)

    def extend(self, records: Sequence[Record], *, bits: int = 0) -> None:
        """Append records that were computed here, of records that were thinned by this many `bits`."""
        if records:
            self._append(replace(of_records(records, tag=self.tag, run=self.run), bits=bits))

    def take(self, other: RecordBuffer, first: int | None, *, moved: int) -> None:
        """Append the records of another buffer, whose numbers go on here, and end with it.

        Args:
            other: The other buffer; nothing is added to it any more.
            first: The number of its first record to append; `None` for all, and for what it counted before them.
            moved: What is added to its numbers.
        """
        columns = other.since(first or 0)[1].moved(moved)
        if first is None:
            self.n_lost += other.n_lost
            self.n_thinned += other.n_thinned + other.n_forgotten
            self._next_index = other.next_index
            self._append(columns)
        else:
            self.add(columns)
            self.expect((other.next_index or 0) + moved)
        restarts = (replace(restart, index=restart.index + moved) for restart in other.restarts)
        self.restarts = (*self.restarts, *restarts)
        if other.ended:
            self.end(other.error)

    def end(self, error: Exception | None = None) -> None:
        """Mark the stream as ended; `error` says why it failed."""
        if not self.ended:
            self.error = error
            self.ended = True
            arrivals.notify()

    def bound(self, *, max_records: int, max_bytes: int) -> None:
        """Hold at most this much from now on."""
        self._buffer.bound(max_rows=max_records, max_bytes=max_bytes)

    def forget(self, cursor: int) -> None:
        """Drop the records before a cursor."""
        self._buffer.forget(cursor)

    def since(self, cursor: int) -> tuple[int, Columns]:
        """Return the records from a number on, and the cursor for the next call; begin with 0."""
        return self._buffer.since(cursor)

    def records(self) -> list[Record]:
        """Return all records."""
        return self.since(0)[1].records(tag=self.tag, run=self.run)

    def latest(self) -> Record | None:
        """Return the newest record, or `None`."""
        newest = self._buffer.latest()
        return newest.record(0, tag=self.tag, run=self.run) if len(newest) else None

    def _append(self, columns: Columns) -> None:
        if not len(columns):
            return
        if self.first_step is None:
            self.first_step = columns.steps[0].item()
        self.last = columns.end - 1, columns.wall_times[-1]
        self._buffer.add(columns)
