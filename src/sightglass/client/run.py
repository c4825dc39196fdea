"""A run as a client sees it."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sightglass.core import codec
from sightglass.core.errors import QueryError
from sightglass.core.record import Record
from sightglass.protocol import messages
from sightglass.query.parser import as_query
from sightglass.query.query import Query

from .connection import ANSWER_S, Connection
from .describe import Description, description
from .names import NamedEvents
from .record_buffer import RecordBuffer
from .stream import Stream, StreamCallback

ACT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """What became of an act.

    Attributes:
        applied: Whether it was applied yet; if not, it still waits for its event, and `note` says for which.
        event: The event at which it was.
        index: The event's number.
        step: The event's step.
        wall_time: When.
        old: A control's value before.
        result: A control's value after, or what an action returned.
        note: What the run said while it waited.
    """

    applied: bool
    event: str = ""
    index: int = -1
    step: float = -1
    wall_time: float = 0.0
    old: Any = None
    result: Any = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One act in a run's history; `error` is empty if it succeeded, `client` where the run did it by itself."""

    kind: str
    name: str
    value: Any
    event: str
    index: int
    step: float
    wall_time: float
    old: Any
    result: Any
    error: str
    client: str = ""


class RemoteRun(NamedEvents):
    """A live run, wherever it runs. Made by `sightglass.connect`. See `names` for `run.batch.loss`."""

    def __init__(self, link: Connection, *, thread: int | None = None) -> None:
        """Wrap a connection; `thread` is the run's own thread if it lives in this process."""
        self._link = link
        self._thread = thread
        self._publications: list[StreamCallback] = []

    @property
    def name(self) -> str:
        """The run's name."""
        return self._link.run

    @property
    def id(self) -> str:
        """The run's id."""
        return self._link.id

    @property
    def may_act(self) -> bool:
        """Whether the run lets this client act, and not only look."""
        return self._link.may_act

    @property
    def ended(self) -> bool:
        """Whether the run has ended, or the connection to it."""
        return bool(self._link.ended)

    def describe(self) -> Description:
        """Return what the run tells of itself: events, observables, controls, actions, streams.

        Raises:
            RunLostError: The run does not answer, or has ended.
        """
        about = description(self._ask("describe"))
        self._name_events(about.events)
        return about

    @property
    def history(self) -> list[HistoryEntry]:
        """The acts that were applied to the run so far, by all clients, the oldest first."""
        return [HistoryEntry(**entry) for entry in self._ask("history")]

    def stream(self, query: Query | str, *, confirm: bool = False) -> Stream:
        """Ask a question; the answer begins to come at the next event.

        Args:
            query: Such as `on("batch").map(lambda b: b.loss)`, or its text, or "batch.loss".
            confirm: Whether to ask although it has a price for the run, as an earlier refusal said.

        Raises:
            QueryError: The query cannot be read, or cannot be answered by this run.
            UnconfirmedError: Asking has a price; the message names it.
            RunLostError: The run does not answer, or has ended.
        """
        asked = as_query(query)
        text = query if isinstance(query, str) else str(asked)
        store = RecordBuffer(tag=text, run=self.name)
        pending = self._link.begin(lambda number: messages.Open(request=number, query=text, confirm=confirm), store)
        opened: messages.Opened = self._link.result(pending)
        return Stream(_Asked(self._link, store), store, note=opened.note, query=asked.key)

    def set(self, name: str, value: Any, *, at: str | None = None, timeout_s: float = ACT_S) -> Acknowledgement:
        """Change a control, at the run's next event, or at the next event of a name.

        Args:
            name: The control.
            value: Its new value.
            at: The event to wait for.
            timeout_s: How long to wait until it is applied; it stays in force when the time is over.

        Raises:
            CommandError: The value is out of bounds or of the wrong type, or there is no such control.
            RefusedError: This client may look, not act.
        """
        return self._do("set", name, value, at=at, timeout_s=timeout_s)

    def call(self, name: str, *args: Any, at: str | None = None, timeout_s: float = ACT_S) -> Acknowledgement:
        """Call an action of the run, on its training thread; `result` is what it returned. Errors as in `set`."""
        return self._do("call", name, list(args), at=at, timeout_s=timeout_s)

    def pause(self, *, at: str | None = None, hold: bool = False, timeout_s: float = ACT_S) -> Acknowledgement:
        """Hold the run at its next event until `resume`, `stop`, or, unless `hold` is set, this client is gone."""
        return self._do("pause", at=at, hold=hold, timeout_s=timeout_s)

    def resume(self, *, timeout_s: float = ACT_S) -> Acknowledgement:
        """Let a paused run go on."""
        return self._do("resume", timeout_s=timeout_s)

    def stop(self, *, at: str | None = None, timeout_s: float = ACT_S) -> Acknowledgement:
        """Ask the run to stop: `run.stopping` becomes true there."""
        return self._do("stop", at=at, timeout_s=timeout_s)

    def record(self, query: Query | str, *, confirm: bool = False) -> str:
        """Keep the records of a query in the run's directory from now on, whether or not anybody looks.

        Args:
            query: The query, or its text.
            confirm: Whether to ask although it has a price for the run, as an earlier refusal said.

        Returns:
            The tag under which they are kept.

        Raises:
            QueryError: The query cannot be read, or costs more than the run's budget.
            RefusedError: This client may look, not act, or the run keeps nothing.
            UnconfirmedError: Asking has a price; the message names it.
        """
        return str(self._keep(query, True, confirm)["tag"])

    def unrecord(self, query: Query | str) -> None:
        """Stop keeping the records of a query; what was kept stays.

        Raises:
            UnknownNameError: It is not being recorded.
        """
        self._keep(query, False)

    def _keep(self, query: Query | str, keep: bool, confirm: bool = False) -> Any:
        text = query if isinstance(query, str) else str(as_query(query))
        return self._link.request(
            lambda number: messages.RecordQuery(request=number, query=text, keep=keep, confirm=confirm)
        )

    def publish(self, event: str, stream: Stream) -> StreamCallback:
        """Offer a stream to this run and all of its clients, as an event.

        Its observables are `value`, `step`, `wall_time`, `n_events`, `complete` and `source`; ask for them like for
        any other's: `on(event).map(lambda e: e.value)`.

        Raises:
            RefusedError: The event comes from elsewhere already.
        """
        number = self._link.request(lambda number: messages.Publish(request=number, event=event))

        def send(record: Record) -> None:
            extra = (record.n_events, record.complete, record.closed, dict(record.steps))
            row = (record.index, record.step, record.wall_time, record.value, extra, record.index)
            self._link.send(messages.encode_block(number, [row]))

        subscription = stream.subscribe(send)
        self._publications.append(subscription)
        return subscription

    def close(self) -> None:
        """Leave the run; it goes on."""
        self._link.close()

    def __enter__(self) -> RemoteRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteRun {self.name!r} ({self.id}){', ended' if self.ended else ''}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_run

        return bundle_of_run(self)

    def _ask(self, what: str) -> Any:
        return self._link.result(self._link.ask(what))

    def _do(
        self,
        kind: str,
        name: str = "",
        value: Any = None,
        *,
        at: str | None = None,
        hold: bool = False,
        timeout_s: float,
    ) -> Acknowledgement:
        blob = b"" if value is None else _plain(value)
        pending = self._link.begin(
            lambda number: messages.RunCommand(request=number, kind=kind, name=name, value=blob, at=at, hold=hold)
        )
        if self._thread == threading.get_ident():
            timeout_s = min(timeout_s, ANSWER_S / 20)  # the event that applies it can only come when this returns
        if pending.wait(timeout_s):
            result = pending.result()
            keys = ("event", "index", "step", "wall_time", "old", "result")
            return Acknowledgement(applied=True, **{key: result[key] for key in keys})
        if not pending.note:
            raise self._link.silent()
        return Acknowledgement(applied=False, note=pending.note)


def _plain(value: Any) -> bytes:
    blob, buffers = codec.encode(value)
    if buffers:
        raise QueryError(f"Expected a value of at most {codec.INLINE_BYTES} bytes for an act, got a larger array")
    return blob


class _Asked:
    """Where the records of a query come from: the link's thread puts them into the store by itself."""

    def __init__(self, link: Connection, store: RecordBuffer) -> None:
        self._link = link
        self._store = store

    def advance(self, store: RecordBuffer) -> None:
        pass

    def end_group(self, store: RecordBuffer) -> None:
        stream = self._number()
        if stream is not None:
            self._link.request(lambda number: messages.EndGroup(request=number, stream=stream))

    def close(self) -> None:
        self._link.forget(self._store)

    def statistics(self) -> Mapping[str, Any]:
        if not (self._link.ended or self._store.ended):
            told: Sequence[Mapping[str, Any]] = self._link.result(self._link.ask("statistics"))
            stream = self._number()
            self._store.counts = next((entry for entry in told if entry["stream"] == stream), self._store.counts)
        return self._store.counts

    def _number(self) -> int | None:
        return self._link.number(self._store)
