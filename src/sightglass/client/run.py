"""A live run, as a client uses it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from sightglass.core import codec
from sightglass.core.columns import of_records
from sightglass.core.counts import Statistics, statistics_of
from sightglass.core.current_run import check_wait
from sightglass.core.errors import QueryError
from sightglass.core.record import Record
from sightglass.protocol import messages
from sightglass.query.parser import as_query
from sightglass.query.query import Query

from .callback import StreamCallback
from .describe import Description, HistoryEntry, description_of, known_fields
from .event_attributes import EventAttributes
from .record_buffer import RecordBuffer
from .resumable_stream import ResumableStream
from .session import Session
from .stream import Stream

# A command waits for the run's next event: longer than most steps take, and than a checkpoint that is being written.
COMMAND_S: Final = 30.0
# The run's own thread can apply a command only after the call returns, so that waiting longer there is of no use.
OWN_THREAD_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """The run's reply to a command.

    Attributes:
        applied: Whether the run has applied the command. If not, it still waits for an event, which `note` names.
        event: The event at which it was applied.
        index: The event's number.
        step: The event's step.
        wall_time: When it was applied, in seconds since the Unix epoch.
        old: The control's value before.
        result: The control's value after, or what the action returned.
        note: The run's remark about a command that waits.
    """

    applied: bool
    event: str = ""
    index: int = -1
    step: float = -1
    wall_time: float = 0.0
    old: Any = None
    result: Any = None
    note: str = ""


class RemoteRun(EventAttributes):
    """A live run, on this machine or another. Made by `sightglass.connect`.

    After `describe()`, the run's events are attributes: `run.batch.loss` is a query.
    """

    def __init__(self, session: Session, *, thread: int | None = None) -> None:
        """Wrap a session; `thread` is the run's own thread if it lives in this process."""
        self._session = session
        self._thread = thread
        self._publications: list[StreamCallback] = []

    @property
    def name(self) -> str:
        """The run's name."""
        return self._session.run

    @property
    def id(self) -> str:
        """The run's id; another one after it was restarted under its name."""
        return self._session.id

    @property
    def may_command(self) -> bool:
        """Whether the run accepts commands from this client."""
        return self._session.may_command

    @property
    def ended(self) -> bool:
        """Whether the run has ended, or this client has left it, or cannot find it again."""
        return bool(self._session.ended)

    @property
    def lost(self) -> str:
        """Why there is no connection at the moment, while this client tries to connect again; else empty."""
        return self._session.why_lost()

    @property
    def n_reconnects(self) -> int:
        """How often this client has connected again."""
        return self._session.n_reconnects

    def describe(self) -> Description:
        """Return the run's events, observables, controls, actions and streams.

        Raises:
            RunLostError: The run does not answer, or has ended.
        """
        description = description_of(self._query("describe"))
        self._set_event_attributes(description.events)
        return description

    @property
    def history(self) -> list[HistoryEntry]:
        """The commands of all clients that the run has applied so far, the oldest first."""
        return self.last_commands(0)

    def last_commands(self, n: int) -> list[HistoryEntry]:
        """Return the last `n` commands of the history, the oldest first; all with 0."""
        return [HistoryEntry(**known_fields(HistoryEntry, entry)) for entry in self._query("history", last=n)]

    def stream(self, query: Query | str, *, confirm: bool = False, since: Literal["start"] | None = None) -> Stream:
        """Send a query to the run, and return the stream of its records, which begins with the next event.

        Args:
            query: A query such as `on("batch").map(lambda b: b.loss)`, its text, or a shorthand such as "batch.loss".
            confirm: Whether to accept the query's cost to the run, which an earlier `UnconfirmedError` named.
            since: Begin with what the run recorded, if "start", where this process can read the run's directory, and
                where what the query reads is recorded. `Stream.note` says where the stream begins otherwise.

        Raises:
            QueryError: The query is not valid, or the run cannot evaluate it.
            UnconfirmedError: The query has a cost that must be confirmed; the message names it.
            RunLostError: The run does not answer, or has ended.
        """
        parsed = as_query(query)
        if since not in (None, "start"):
            raise QueryError(f"Expected since='start' or None, got {since!r}")
        text = query if isinstance(query, str) else str(parsed)
        stream = ResumableStream(text, RecordBuffer(tag=text, run=self.name), confirm=confirm)
        opened = self._session.open(stream)
        producer = _SubscriptionProducer(self._session, stream)
        note = _note_of(self._session, stream.buffer, opened.note)
        if since is None:
            return Stream(producer, stream.buffer, note=note, query=parsed.key, check_wait=self._check_wait)
        from .recorded.past import with_past  # most clients never read files

        return with_past(
            producer, stream.buffer, parsed, note=note, description=self.describe(), check_wait=self._check_wait
        )

    def set(self, name: str, value: object, *, at: str | None = None, timeout_s: float = COMMAND_S) -> Acknowledgement:
        """Set a control at the run's next event, or at the next event of a name.

        Args:
            name: The name of the control.
            value: Its new value.
            at: The name of the event to wait for.
            timeout_s: How long to wait until the run has applied the command. After that the command still waits for
                its event, and the acknowledgement says so.

        Raises:
            CommandError: The value is out of bounds or of the wrong type, or the run has no control of this name.
            RefusedError: The run does not accept commands from this client.
            DeadlockError: An action or a function of the run calls this, on the thread that would have to apply it.
        """
        return self._command("set", name, value, at=at, timeout_s=timeout_s)

    def call(self, name: str, *args: object, at: str | None = None, timeout_s: float = COMMAND_S) -> Acknowledgement:
        """Call an action on the run's training thread; `result` is its return value. Errors as in `set`."""
        return self._command("call", name, list(args), at=at, timeout_s=timeout_s)

    def pause(self, *, at: str | None = None, hold: bool = False, timeout_s: float = COMMAND_S) -> Acknowledgement:
        """Pause the run at its next event until `resume` or `stop`.

        Unless `hold` is true, the run also resumes when this client leaves.
        """
        return self._command("pause", at=at, hold=hold, timeout_s=timeout_s)

    def resume(self, *, timeout_s: float = COMMAND_S) -> Acknowledgement:
        """Resume a paused run."""
        return self._command("resume", timeout_s=timeout_s)

    def stop(self, *, at: str | None = None, timeout_s: float = COMMAND_S) -> Acknowledgement:
        """Ask the run to stop: `run.stopping` becomes true in the training."""
        return self._command("stop", at=at, timeout_s=timeout_s)

    def record(self, query: Query | str, *, confirm: bool = False) -> str:
        """Record a query into the run's directory from now on, even when no client reads it.

        Args:
            query: The query, or its text.
            confirm: Whether to accept the query's cost to the run, which an earlier `UnconfirmedError` named.

        Returns:
            The tag of the recorded series.

        Raises:
            QueryError: The query is not valid, or costs more than the run's budget.
            RefusedError: The run does not accept commands from this client, or does not record.
            UnconfirmedError: The query has a cost that must be confirmed; the message names it.
        """
        return str(self._set_recording(query, True, confirm)["tag"])

    def unrecord(self, query: Query | str) -> None:
        """Stop recording a query; its records stay.

        Raises:
            UnknownNameError: The run does not record the query.
        """
        self._set_recording(query, False)

    def _set_recording(self, query: Query | str, on: bool, confirm: bool = False) -> Any:
        text = query if isinstance(query, str) else str(as_query(query))
        return self._session.request(
            lambda number: messages.RecordQuery(request=number, query=text, record=on, confirm=confirm)
        )

    def publish(self, event: str, stream: Stream) -> StreamCallback:
        """Publish a stream as an event of this run, for all its clients.

        The event's observables are `value`, `step`, `wall_time`, `n_events`, `complete` and `source`. Query them like
        any other: `on(event).map(lambda e: e.value)`. Of a long stream, publishing begins with the newest records, all
        of which this client holds: some records of the older ones would look like all of them.

        Raises:
            RefusedError: The run has an event of this name already.
        """
        offer = self._session.publish(event)

        def send(record: Record) -> None:
            offer.put(of_records([record], tag=record.tag, run=record.run))

        callback = StreamCallback(stream, send, exact=True)
        self._publications.append(callback)
        return callback

    def close(self) -> None:
        """Disconnect from the run, which continues."""
        self._session.close()

    def __enter__(self) -> RemoteRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteRun {self.name!r} ({self.id}){', ended' if self.ended else ''}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_run

        return bundle_of_run(self)

    def _check_wait(self) -> None:
        """Refuse to wait for a record on a thread that the run waits for."""
        check_wait(self.id, f"Waiting for a record of run {self.name!r}", for_event=True)

    def _query(self, subject: str, *, last: int = 0) -> Any:
        connection = self._session.current()
        return connection.wait_reply(connection.start_query(subject, last=last))

    def _command(
        self,
        kind: str,
        name: str = "",
        value: object = None,
        *,
        at: str | None = None,
        hold: bool = False,
        timeout_s: float,
    ) -> Acknowledgement:
        self._session.check_wait(for_event=True)
        blob = b"" if value is None else _encode(value)
        connection = self._session.current()
        pending = connection.start_request(
            lambda number: messages.RunCommand(request=number, kind=kind, name=name, value=blob, at=at, hold=hold)
        )
        if self._thread == threading.get_ident():
            timeout_s = min(timeout_s, OWN_THREAD_S)
        if pending.wait(timeout_s):
            result = pending.result()
            keys = ("event", "index", "step", "wall_time", "old", "result")
            return Acknowledgement(applied=True, **{key: result[key] for key in keys})
        if not pending.note:
            raise connection.no_reply()
        return Acknowledgement(applied=False, note=pending.note)


def _encode(value: object) -> bytes:
    blob, buffers = codec.encode(value)
    if buffers:
        raise QueryError(f"Expected a value of at most {codec.INLINE_BYTES} bytes for a command, got a larger array")
    return blob


def _note_of(session: Session, buffer: RecordBuffer, waiting: str) -> Callable[[], str]:
    """Return a function that says why no record comes: the connection is lost, or what the run waits for."""

    def text() -> str:
        lost = session.why_lost()
        return f"{lost}; connecting again" if lost else "" if buffer.n else waiting

    return text


class _SubscriptionProducer:
    """Stands for a query in the run: the connection's thread adds its records to the buffer."""

    def __init__(self, session: Session, stream: ResumableStream) -> None:
        self._session = session
        self._stream = stream

    def advance(self, buffer: RecordBuffer) -> None:
        pass

    def end_group(self, buffer: RecordBuffer) -> None:
        connection = self._session.current()
        number = connection.stream_number(self._stream)
        if number is not None:
            connection.request(lambda request: messages.EndGroup(request=request, stream=number))

    def close(self) -> None:
        self._session.close_stream(self._stream)

    def statistics(self) -> Statistics:
        session, buffer = self._session, self._stream.buffer
        if not (session.ended or session.why_lost() or buffer.ended):
            connection = session.connection
            entries: Sequence[Mapping[str, Any]] = connection.wait_reply(connection.start_query("statistics"))
            number = connection.stream_number(self._stream)
            buffer.counts = next((entry for entry in entries if entry["stream"] == number), buffer.counts)
        counts = statistics_of(buffer.counts)
        return replace(counts, n_failures=counts.n_failures + session.n_failures)
