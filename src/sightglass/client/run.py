"""A live run, as a client uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, Self

from sightglass.core import codec
from sightglass.core.columns import Record, of_records
from sightglass.core.description import Acknowledgement, Description, HistoryEntry, call_value, read_struct
from sightglass.core.errors import QueryError, say_elsewhere
from sightglass.core.process.current_run import Bound, check_wait
from sightglass.core.process.stacks import Stacks, ThreadStack
from sightglass.core.process.unpatched import threading
from sightglass.protocol import messages
from sightglass.query.parser import as_query
from sightglass.query.query import Query, in_states
from sightglass.query.reduce.states import Numbering

from .connection import REPLY_S, Connection, PendingReply
from .describe import EventAttributes
from .resumable_stream import RecordBuffer, ResumableStream, with_beginning
from .session import Session
from .streams.answer import Answer, answer_of
from .streams.stream import Stream, StreamCallback
from .subscription import SubscriptionProducer, note_of_stream

# A command waits for the run's next event: longer than most steps take, and than a checkpoint that is being written.
COMMAND_S: Final = 30.0
# The run's own thread can apply a command only after the call returns, so that waiting longer there is of no use.
OWN_THREAD_S: Final = 0.5
SILENT_S: Final = 1.5  # a person begins to wonder
ASK_S: Final = 10.0  # a step of a large model takes seconds

ELSEWHERE: Final = {
    **dict.fromkeys(("finish", "end"), "stop(), which ends the training, or close(), which ends this connection"),
    **dict.fromkeys(("log", "observe"), "publish(name, stream), which offers a stream of your own"),
    **dict.fromkeys(("control", "controls"), "set(name, value), or describe().controls"),
    **dict.fromkeys(("action", "actions"), "call(name), or describe().actions"),
    "config": "describe().config",
}
"""What the program's run has, or those of other libraries, by the names here."""


class ProgramNames:
    """Has the attributes `ELSEWHERE`. With `__getattr__` instead, IPython would not complete a run's events."""


say_elsewhere(ProgramNames, "A connected run", ELSEWHERE)


class RemoteRun(Bound, EventAttributes, ProgramNames):
    """A live run, on this machine or another. Made by `sightglass.connect`.

    After `describe()`, the run's events are attributes: `run.batch.loss` is a query.

    Attributes:
        by: Who sends commands through this client, for the run's history; empty for the client itself.
        on_wait: Called with what a command waits for, once it has waited for a while; `None` to wait in silence.
    """

    def __init__(self, session: Session, *, thread: int | None = None) -> None:
        """Wrap a session; `thread` is the run's own thread if it lives in this process."""
        self._session = session
        self._thread = thread
        self._publications: list[StreamCallback] = []
        self.by = ""
        self.on_wait: Callable[[str], object] | None = None

    def _instead(self) -> str:
        return f"Pass its id, and connect there: sg.connect({self.id!r})"

    def sent_by(self, name: str) -> Self:
        """Return this client, as somebody whose name the run's history has for the commands."""
        other = object.__new__(type(self))
        vars(other).update(vars(self), by=name)
        return other

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

    @property
    def pace_s(self) -> float:
        """How long the run may hold records back to send them together; may be set."""
        return self._session.pace_s

    @pace_s.setter
    def pace_s(self, pace_s: float) -> None:
        self._session.pace_s = pace_s

    def describe(self) -> Description:
        """Return the run's events, observables, controls, actions and streams.

        Raises:
            RunLostError: The run does not answer, or has ended.
        """
        description = read_struct(Description, self._query("describe"))
        self._set_event_attributes(description.events)
        return description

    @property
    def history(self) -> list[HistoryEntry]:
        """The commands of all clients that the run has applied so far, the oldest first."""
        return self.last_commands(0)

    def last_commands(self, n: int) -> list[HistoryEntry]:
        """Return the last `n` commands of the history, the oldest first; all with 0."""
        return [read_struct(HistoryEntry, entry) for entry in self._query("history", last=n)]

    def stacks(self, *, timeout_s: float = REPLY_S) -> Stacks:
        """Return where all threads of the run's program are, without values: what a run that is quiet waits for.

        The run answers also where its training thread is stuck; not while an extension in C holds the interpreter's
        lock.

        Args:
            timeout_s: How long to wait for the reply.

        Raises:
            RefusedError: This client has a viewer's key.
            RunLostError: The run does not answer, or has ended.
        """
        connection, pending = self._start_stacks()
        return Stacks(run=self.name, threads=stacks_of(connection.wait_reply(pending, timeout_s=timeout_s)))

    def _start_stacks(self) -> CommandReply:
        connection = self._session.current()
        return connection, connection.start_query("stacks")

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
        buffer = RecordBuffer(tag=text, run=self.name, client=self._session)
        stream = ResumableStream(text, buffer, confirm=confirm, from_start=since == "start")
        if since is None:
            return self._open(stream, parsed.key)
        self._session.open(stream)
        from .recorded.past import past_of  # most clients never read files

        past, why = past_of(stream, parsed, self.describe())
        producer = SubscriptionProducer(self._session, stream, past)
        note = with_beginning(note_of_stream(self._session, stream), why, buffer, at_once=True)
        return Stream(producer, buffer, note=note, query=parsed.key, check_wait=self._check_wait)

    def ask(self, query: Query | str, n: int = 1, *, confirm: bool = False, timeout_s: float = ASK_S) -> Answer:
        """Return the next values of a query: of the run's next events, or of its next windows.

        Args:
            query: As in `stream`.
            n: How many values.
            confirm: As in `stream`.
            timeout_s: How long to wait for them.

        Returns:
            The values, with what they stand for; fewer if not all came in time, which `coverage` says.

        Raises:
            TimeoutError: No value came in time; the message says what the run waits for.
            QueryError: As in `stream`, as are further errors.
        """
        with self.stream(query, confirm=confirm) as stream:
            return answer_of(stream, n, timeout_s)

    def _stream_states(self, query: Query, numbering: Numbering, *, confirm: bool = False) -> Stream:
        """Return a stream of the states of a query's windows, as `query.states.WindowState`, to merge with others.

        Args:
            query: A query that ends in its only reducer, whose states merge.
            numbering: What numbers the run's events have among those of all runs.
            confirm: As for `stream`, as are the errors.
        """
        in_states(query, numbering)  # it raises here what the run would refuse
        buffer = RecordBuffer(tag=query.tag, run=self.name, client=self._session)
        return self._open(ResumableStream(str(query), buffer, confirm=confirm, states=numbering))

    def _open(self, stream: ResumableStream, key: str = "") -> Stream:
        opened = self._session.open(stream)
        note = with_beginning(note_of_stream(self._session, stream), opened.late, stream.buffer)
        producer = SubscriptionProducer(self._session, stream)
        return Stream(producer, stream.buffer, note=note, query=key, check_wait=self._check_wait)

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

    def call(
        self, name: str, /, *args: object, at: str | None = None, timeout_s: float = COMMAND_S, **keywords: object
    ) -> Acknowledgement:
        """Call an action on the run's training thread; `result` is its return value. Errors as in `set`.

        Args:
            name: The name of the action.
            *args: Its arguments.
            at: As in `set`.
            timeout_s: As in `set`.
            **keywords: Arguments by name. Give those that the action calls `at` and `timeout_s` by position.
        """
        return self._command("call", name, call_value(args, keywords), at=at, timeout_s=timeout_s)

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

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ELSEWHERE or name in self.__dict__]

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

    def _command(self, kind: str, name: str = "", value: object = None, **options: Any) -> Acknowledgement:
        timeout_s = options.pop("timeout_s")
        self._session.check_wait(for_event=True)
        reply = self._start_command(kind, name, value, **options)
        if self._thread == threading.get_ident() and not reply[1].wait(min(timeout_s, OWN_THREAD_S)):
            reply[1].wait_note(timeout_s)
            timeout_s = 0.0
        elif self.on_wait is not None and timeout_s > SILENT_S and not reply[1].wait(SILENT_S) and reply[1].note:
            self.on_wait(reply[1].note)
        return acknowledged(reply, timeout_s)

    def _start_command(
        self,
        kind: str,
        name: str = "",
        value: object = None,
        *,
        at: str | None = None,
        hold: bool = False,
        connected_s: float = REPLY_S,
    ) -> CommandReply:
        """Send a command without waiting for the reply; for a connection, wait for `connected_s`."""
        blob = b"" if value is None else _encode(value)
        connection = self._session.current(connected_s)
        pending = connection.start_request(
            lambda number: messages.RunCommand(
                request=number, kind=kind, name=name, value=blob, at=at, hold=hold, by=self.by
            )
        )
        return connection, pending


def stacks_of(reply: Any) -> list[ThreadStack]:
    """Return the stacks in a run's reply."""
    return [read_struct(ThreadStack, one) for one in reply]


CommandReply = tuple[Connection, PendingReply]
"""The reply to a command that was sent, and the connection on which it will come."""


def acknowledged(reply: CommandReply, timeout_s: float) -> Acknowledgement:
    """Wait for the run's reply to a command and return it. Errors as in `RemoteRun.set`."""
    connection, pending = reply
    if pending.wait(timeout_s):
        return read_struct(Acknowledgement, {**pending.result(), "applied": True})
    if not pending.note:
        raise connection.no_reply()
    return Acknowledgement(applied=False, note=pending.note)


def _encode(value: object) -> bytes:
    blob, buffers = codec.encode(value)
    if buffers:
        raise QueryError(f"Expected a value of at most {codec.INLINE_BYTES} bytes for a command, got a larger array")
    return blob
