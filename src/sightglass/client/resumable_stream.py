"""A stream that a client has open: its query, and its place in the numbers of the run, through reconnections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal, Protocol

from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns, Record, Restart, of_records
from sightglass.core.counts import Statistics
from sightglass.core.description import StreamInfo
from sightglass.core.errors import RunLostError, cut
from sightglass.core.process.unpatched import threading
from sightglass.core.source import Source
from sightglass.protocol import messages
from sightglass.query.reduce.states import Numbering

from .streams.arrivals import arrivals

End = Literal["clean", "early", "lost", "invalid"]
"""How a connection ended: with the run or by this client; with the run before all its records arrived; lost, and may be
made again; at an invalid message."""


class ResumableStream:
    """A query that the run answers into a buffer.

    The numbers of a buffer never go back. Those of the run do when it restarts, or when it has forgotten the stream: a
    number of the run and `base` make a number of the buffer.

    Records that come behind a hole wait, if the hole may be filled from what the run recorded: see `recorded.past`.

    Attributes:
        query: The text of the query.
        confirm: Whether its price is accepted.
        states: How its events are numbered, if its records are states of windows.
        buffer: Where its records go.
        waiting: The records behind a hole; `None` if there is none.
        number: The run's number for the stream; 0 before the run has answered.
        run_id: The id of the run that answers it; empty before.
        base: What is added to the run's numbers.
        closed: Whether the client has closed it.
        readers: The names of those for whom this client reads it, if it serves several.
        opened_by: The number of the request that opened it, on the present connection.
        waits_for: What the run says that it waits for, while it has no records.
        thinned: Of which events it has records, as the run says; empty if of all.
        on_hole: Called on the connection's thread when records wait behind a hole on a new connection. Whoever sets it
            lets them go on. Without it none wait.
    """

    def __init__(
        self,
        query: str,
        buffer: RecordBuffer,
        *,
        confirm: bool = False,
        states: Numbering | None = None,
        from_start: bool = False,
    ) -> None:
        """Begin without a record.

        Args:
            query: The text of the query.
            buffer: Where its records go.
            confirm: Whether its price is accepted.
            states: How its events are numbered, if its records are states of windows.
            from_start: Whether there is a hole before the first record.
        """
        self.query = query
        self.confirm = confirm
        self.states = states
        self.buffer = buffer
        self.waiting = self._new_buffer() if from_start else None
        self.number = self.base = 0
        self.run_id = ""
        self.closed = False
        self.readers: tuple[str, ...] = ()
        self.opened_by = 0
        self.waits_for = self.thinned = ""
        self.on_hole: Callable[[], None] | None = None
        self._resumed = self._opened_anew = False
        self._lock = threading.Lock()

    @property
    def newest(self) -> RecordBuffer:
        """The buffer that gets the next record."""
        return self.buffer if self.waiting is None else self.waiting

    def request(self, number: int, run_id: str) -> messages.Open:
        """Return the message that opens the stream, or goes on with it, in the run of this id."""
        if run_id != self.run_id:
            return messages.Open(request=number, query=self.query, confirm=self.confirm, states=self.states)
        since = max(0, (self.newest.next_index or 0) - self.base)
        return messages.Open(
            request=number, query=self.query, confirm=self.confirm, stream=self.number, since=since, states=self.states
        )  # fmt: skip

    def opened(self, answer: messages.Opened, run_id: str) -> None:
        """Take in the run's answer; records before the first one that follows are missing."""
        begins = 0 if answer.index is None else answer.index
        with self._lock:
            expected = self.newest.next_index or 0
            self._resumed = run_id == self.run_id
            if self.run_id and not self._resumed:
                self.base = expected - begins
                self.newest.restarts = (*self.newest.restarts, Restart(index=expected, run_id=run_id))
            elif self.run_id and answer.stream != self.number:
                self.base = expected + 1 - begins  # nobody knows how many records are missing: they count as one
                self._opened_anew = True
            if self._resumed and (begins + self.base > expected or self.waiting is not None):
                self._wait()
            self.buffer.run_id = self.buffer.run_id or run_id
            self.buffer.tag = answer.tag
            self.number, self.run_id = answer.stream, run_id
            self.opened_by, self.waits_for, self.thinned = answer.request, answer.note, ""
            if answer.index is not None and not self._opened_anew:
                self.newest.expect(begins + self.base)

    def add(self, columns: Columns) -> None:
        """Append records."""
        with self._lock:
            if self._opened_anew and len(columns):
                # The run has forgotten the stream, and answers from the snapshot of an event that came already.
                self._opened_anew = False
                last = self.buffer.last
                if last is not None and (columns.wall_times[0], columns.steps[0]) == (last[1], self.buffer.last_step):
                    self.base -= 2  # so it has its number, and nothing is missing
            columns = columns.moved(self.base)
            # The run had to thin what was missed, or did not evaluate the query for a while.
            hole = columns.bits or columns.index > (self.newest.next_index or 0)
            if hole and self._resumed and self.waiting is None:
                self._wait()
            self.newest.add(columns)

    def finish(self, counts: StreamInfo | None, error: Exception | None) -> None:
        """End the stream as the run says; the records up to its last one that did not arrive are missing."""
        with self._lock:
            if counts is not None:
                self.buffer.counts = counts
                self.newest.expect(counts.n_records + self.base)
            self.newest.end(error)

    def end(self, reason: str, end: End) -> None:
        """End the stream with its connection; if that was lost, the error says which records are missing."""
        if end != "clean" and self.run_id:
            first = self.newest.next_index or 0
            reason = f"{reason}; of {cut(self.buffer.tag)!r}, records from number {first:,} on are missing"
        self.fail(None if end == "clean" else RunLostError(reason))

    def fail(self, error: Exception | None) -> None:
        """End the stream."""
        with self._lock:
            self.newest.end(error)

    def go_on(self, first: int | None = None, *, moved: int = 0) -> None:
        """Pass on the records that wait.

        Args:
            first: The number of the first of them to pass on: those before are in the buffer already. If it is `None`,
                the hole stays: what is missing counts as lost, or as thinned by the run.
            moved: What is added to their numbers.
        """
        with self._lock:
            if self.waiting is None:
                return
            waiting, self.waiting = self.waiting, None
            self._resumed = False  # later gaps are in the files, too
            self.base += moved
            self.buffer.take(waiting, first, moved=moved)

    def _wait(self) -> None:
        """Let records wait from now on."""
        if self.on_hole is None:
            return
        if self.waiting is None:
            self.waiting = self._new_buffer()
            self.waiting.expect(self.buffer.next_index or 0)
        self.on_hole()

    def _new_buffer(self) -> RecordBuffer:
        return RecordBuffer(tag=self.buffer.tag, run=self.buffer.run)


# The records of a stream in a client, in bounded memory, and what became of the stream.

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
        last_step: Its step.
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
        self.counts = StreamInfo()
        self.first_step: float | None = None
        self.last: tuple[int, float] | None = None
        self.last_step = math.nan
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
            begins = columns.index
            columns = columns.after(expected)
            if columns.index < expected:
                return
            thinned = columns.bits > 0 and begins <= expected  # also between what came before and the next that is held
            self.n_thinned += columns.index - expected if thinned else 0
            self.n_lost += 0 if thinned else columns.index - expected
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
        self.last_step = columns.steps[-1].item()
        self._buffer.add(columns)


# What a stream is made of: the producer that fills its buffer, and what producers see of other streams.


class RecordProducer(Protocol):
    """Produces the records of one stream."""

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records to the buffer, without waiting. Only one thread calls this at a time."""

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group.

        Raises:
            QueryError: The stream has no reducer that groups close.
        """

    def close(self) -> None:
        """Stop producing records."""

    def statistics(self) -> Statistics:
        """Return what the producer counts; the stream adds what its buffer counts."""


class AnyStream(Source, Protocol):
    """What a derived stream, or a file, needs of the stream it reads."""

    @property
    def query(self) -> str:
        """The canonical text of the query; empty for a derived stream."""

    @property
    def reduces(self) -> bool:
        """Whether a record may be of several events."""

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where the records of a restarted run begin."""

    @property
    def error(self) -> Exception | None:
        """Why the stream failed, or `None`."""

    def end_group(self) -> None:
        """Close the open group."""

    def statistics(self) -> Statistics:
        """Return the counts of the stream."""


# Where a stream begins, as its remark says it.

UNRECORDED: Final = "; earlier events were not recorded"


def with_beginning(
    note: Callable[[], str], why: str, buffer: RecordBuffer, *, at_once: bool = False
) -> Callable[[], str]:
    """Return a function that returns a remark, or else where the stream begins.

    Args:
        note: Returns another remark, which comes first.
        why: Why it does not begin with the run, as it follows the place; empty if it does.
        buffer: The records.
        at_once: Say it before the first record, too.
    """

    def text() -> str:
        where = "the next event" if buffer.first_step is None else f"step {buffer.first_step:,.12g}"
        known = why and (at_once or buffer.first_step is not None)
        return note() or (f"from {where}{why}" if known else "")

    return text
