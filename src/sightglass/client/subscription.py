"""The stream of a query in a run: what produces it, and its remark."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sightglass.core.counts import Statistics, statistics_of
from sightglass.protocol import messages

from .record_buffer import RecordBuffer
from .resumable_stream import ResumableStream
from .session import Session


class SubscriptionProducer:
    """Stands for a query in the run: the connection's thread adds its records to the buffer."""

    def __init__(self, session: Session, stream: ResumableStream) -> None:
        self._session = session
        self._stream = stream

    def advance(self, buffer: RecordBuffer) -> None:
        """Do nothing: the records are there."""

    def end_group(self, buffer: RecordBuffer) -> None:
        """Ask the run to close the open group."""
        connection = self._session.current()
        number = connection.stream_number(self._stream)
        if number is not None:
            connection.request(lambda request: messages.EndGroup(request=request, stream=number))

    def close(self) -> None:
        """Close the stream in the run, unless other streams of this client have its query."""
        self._session.close_stream(self._stream)

    def statistics(self) -> Statistics:
        """Return the run's counts for the query: its last ones if there is no connection."""
        session, buffer = self._session, self._stream.buffer
        if not (session.ended or session.why_lost() or buffer.ended):
            connection = session.connection
            entries: Sequence[Mapping[str, Any]] = connection.wait_reply(connection.start_query("statistics"))
            number = connection.stream_number(self._stream)
            buffer.counts = next((entry for entry in entries if entry["stream"] == number), buffer.counts)
        counts = statistics_of(buffer.counts)
        return replace(counts, n_failures=counts.n_failures + session.n_failures)


def note_of_stream(session: Session, stream: ResumableStream) -> Callable[[], str]:
    """Return a function that says why no record comes: the connection is lost, or what the run waits for."""

    def text() -> str:
        lost = session.why_lost()
        return f"{lost}; connecting again" if lost else "" if stream.buffer.n else stream.waits_for

    return text
