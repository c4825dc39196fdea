"""The stream of a query in a run: what produces it, and its remark."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from sightglass.core.counts import Statistics, statistics_of
from sightglass.core.description import Description, StreamInfo, read_struct
from sightglass.core.errors import QueryError, RunLostError, SightglassError
from sightglass.protocol import messages
from sightglass.query.parser import as_query

from .connection import PendingReply
from .resumable_stream import RecordBuffer, ResumableStream
from .session import Session

if TYPE_CHECKING:
    from .recorded.past import Past


class SubscriptionProducer:
    """Stands for a query in the run: the connection's thread adds its records to the buffer, unless they wait."""

    def __init__(self, session: Session, stream: ResumableStream, past: Past | None = None) -> None:
        """Begin.

        Args:
            session: The session with the run.
            stream: The stream.
            past: What the run recorded before the stream began.
        """
        self._session = session
        self._stream = stream
        self._past = past
        self._past_counts = Statistics()
        self._asked: PendingReply | None = None
        if stream.states is None:  # states of windows are not recorded
            stream.on_hole = self._ask

    def advance(self, buffer: RecordBuffer) -> None:
        """Fill a hole behind which records wait; otherwise the records are there."""
        if self._stream.waiting is None or buffer.ended:
            return
        if self._past is None:
            self._look()
        if self._past is not None and self._past.advance():
            self._leave_past()

    def end_group(self, buffer: RecordBuffer) -> None:
        """Ask the run to close the open group.

        Raises:
            QueryError: The stream has not reached the live records yet.
        """
        if self._stream.waiting is not None:
            raise QueryError("Expected a stream that has read what was recorded; wait for its first live record")
        connection = self._session.current()
        number = connection.stream_number(self._stream)
        if number is not None:
            connection.request(lambda request: messages.EndGroup(request=request, stream=number))

    def name_readers(self, names: Iterable[str]) -> None:
        """Tell the run for whom this client reads the stream: each has a share of the budget, as clients have."""
        self._stream.readers = tuple(sorted(names))
        self._session.connection.name_readers(self._stream)

    def close(self) -> None:
        """Close the stream in the run, unless other streams of this client have its query."""
        self._session.close_stream(self._stream)
        self._leave_past()

    def _ask(self) -> None:
        """Ask the run where it records, on the connection's thread: the run may end before anybody reads."""
        with contextlib.suppress(SightglassError):  # there is no connection: `_look` asks again
            self._asked = self._session.connection.start_query("describe")

    def _look(self) -> None:
        """Look for what the run recorded, once it has described itself; without it, go on behind the hole."""
        stream, asked = self._stream, self._asked
        if asked is not None and not asked.wait(0):
            return
        self._asked = None
        try:
            if stream.waiting is None or stream.waiting.restarts:  # what is missing was made by the run before
                stream.go_on()
            elif asked is not None:
                from .recorded.past import past_of  # most clients never read files

                self._past, _ = past_of(stream, as_query(stream.query), read_struct(Description, asked.result()))
            elif not self._session.why_lost():
                self._session.check_wait()
                self._ask()
        except RunLostError:  # the connection was lost again
            if self._session.ended:
                stream.go_on()
        except SightglassError:
            stream.go_on()

    def _leave_past(self) -> None:
        if self._past is not None:
            self._past_counts = self._past.statistics()
            self._past.close()
            self._past = None

    def statistics(self) -> Statistics:
        """Return the run's counts for the query: the last known ones if there is no connection, or no answer."""
        session, buffer = self._session, self._stream.buffer
        if not (session.ended or session.why_lost() or buffer.ended):
            connection = session.connection
            number = connection.stream_number(self._stream)
            try:
                entries = connection.wait_reply(connection.start_query("statistics"))
            except RunLostError:  # it ends, or has no time: what it said last counts
                entries = ()
            streams = (read_struct(StreamInfo, entry) for entry in entries)
            buffer.counts = next((stream for stream in streams if stream.stream == number), buffer.counts)
        counts = statistics_of(buffer.counts)
        past = self._past_counts if self._past is None else self._past.statistics()
        return replace(
            counts, n_events=counts.n_events + past.n_events, n_dropped=counts.n_dropped + past.n_dropped,
            n_errors=counts.n_errors + past.n_errors, n_failures=counts.n_failures + session.n_failures,
        )  # fmt: skip


def note_of_stream(session: Session, stream: ResumableStream) -> Callable[[], str]:
    """Return a function that says why no record comes, or not of every event."""

    def text() -> str:
        lost = session.why_lost()
        if lost:
            return f"{lost}; connecting again"
        return stream.thinned if stream.buffer.n else stream.waits_for or stream.thinned

    return text
