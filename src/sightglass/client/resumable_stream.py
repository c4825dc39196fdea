"""A stream that a client has open: its query, and its place in the numbers of the run, through reconnections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sightglass.core.columns import Columns
from sightglass.core.record import Restart
from sightglass.protocol import messages
from sightglass.query.states import Numbering

from .record_buffer import RecordBuffer


class ResumableStream:
    """A query that the run answers into a buffer.

    The numbers of a buffer never go back. Those of the run do when it restarts, or when it has forgotten the stream: a
    number of the run and `base` make a number of the buffer.

    Attributes:
        query: The text of the query.
        confirm: Whether its price is accepted.
        states: How its events are numbered, if its records are states of windows.
        buffer: Where its records go.
        number: The run's number for the stream; 0 before the run has answered.
        run_id: The id of the run that answers it; empty before.
        base: What is added to the run's numbers.
        closed: Whether the client has closed it.
        opened_by: The number of the request that opened it, on the present connection.
        waits_for: What the run says that it waits for, while it has no records.
    """

    def __init__(
        self, query: str, buffer: RecordBuffer, *, confirm: bool = False, states: Numbering | None = None
    ) -> None:
        self.query = query
        self.confirm = confirm
        self.states = states
        self.buffer = buffer
        self.number = self.base = 0
        self.run_id = ""
        self.closed = False
        self.opened_by = 0
        self.waits_for = ""

    def request(self, number: int, run_id: str) -> messages.Open:
        """Return the message that opens the stream, or goes on with it, in the run of this id."""
        if run_id != self.run_id:
            return messages.Open(request=number, query=self.query, confirm=self.confirm, states=self.states)
        since = max(0, (self.buffer.next_index or 0) - self.base)
        return messages.Open(
            request=number, query=self.query, confirm=self.confirm, stream=self.number, since=since, states=self.states
        )  # fmt: skip

    def opened(self, answer: messages.Opened, run_id: str) -> None:
        """Take in the run's answer; records before the first one that follows are lost."""
        begins = 0 if answer.index is None else answer.index
        expected = self.buffer.next_index or 0
        if self.run_id and run_id != self.run_id:
            self.base = expected - begins
            self.buffer.restarts = (*self.buffer.restarts, Restart(index=expected, run_id=run_id))
        elif self.run_id and answer.stream != self.number:
            self.base = expected + 1 - begins  # nobody knows how many records are missing: they count as one
        self.buffer.run_id = self.buffer.run_id or run_id
        self.buffer.tag = answer.tag
        self.number, self.run_id = answer.stream, run_id
        self.opened_by, self.waits_for = answer.request, answer.note
        if answer.index is not None:
            self.buffer.expect(begins + self.base)

    def add(self, columns: Columns) -> None:
        """Append records."""
        self.buffer.add(columns.moved(self.base))

    def finish(self, counts: Mapping[str, Any], error: Exception | None) -> None:
        """End the stream as the run says; the records up to its last one that did not arrive are lost."""
        self.buffer.counts = counts or self.buffer.counts
        self.buffer.expect(counts.get("n_records", 0) + self.base)
        self.buffer.end(error)

    def end(self, error: Exception | None) -> None:
        """End the stream, as far as this client knows."""
        self.buffer.end(error)
