"""A stream that a client has open: its query, and its place in the numbers of the run, through reconnections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from sightglass.core.columns import Columns
from sightglass.core.errors import RunLostError
from sightglass.core.record import Restart
from sightglass.core.unpatched import threading
from sightglass.protocol import messages
from sightglass.query.states import Numbering

from .record_buffer import RecordBuffer

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
        opened_by: The number of the request that opened it, on the present connection.
        waits_for: What the run says that it waits for, while it has no records.
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
        self.opened_by = 0
        self.waits_for = ""
        self.on_hole: Callable[[], None] | None = None
        self._resumed = False
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
            if self._resumed and (begins + self.base > expected or self.waiting is not None):
                self._wait()
            self.buffer.run_id = self.buffer.run_id or run_id
            self.buffer.tag = answer.tag
            self.number, self.run_id = answer.stream, run_id
            self.opened_by, self.waits_for = answer.request, answer.note
            if answer.index is not None:
                self.newest.expect(begins + self.base)

    def add(self, columns: Columns) -> None:
        """Append records."""
        with self._lock:
            columns = columns.moved(self.base)
            # The run had to thin what was missed, or did not evaluate the query for a while.
            hole = columns.bits or columns.index > (self.newest.next_index or 0)
            if hole and self._resumed and self.waiting is None:
                self._wait()
            self.newest.add(columns)

    def finish(self, counts: Mapping[str, Any], error: Exception | None) -> None:
        """End the stream as the run says; the records up to its last one that did not arrive are missing."""
        with self._lock:
            self.buffer.counts = counts or self.buffer.counts
            self.newest.expect(counts.get("n_records", 0) + self.base)
            self.newest.end(error)

    def end(self, reason: str, end: End) -> None:
        """End the stream with its connection; if that was lost, the error says which records are missing."""
        if end != "clean" and self.run_id:
            first = self.newest.next_index or 0
            reason = f"{reason}; of {self.buffer.tag!r}, records from number {first:,} on are missing"
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
