"""The agent: a state machine between clients and the run. Messages go in, messages come out; it knows no socket.

Rule 1: whatever a client sends, the run goes on. What is malformed is refused once, and its sender ignored from then
on.
Rule 2: equal queries share one answer. A client that closes a group by itself gets an answer of its own from there on.
Rule 3: every client holds a lease, which any message renews. When it ends, its streams close, and its pause is lifted.
Rule 4: acts wait in the ledger for the training thread; the agent says at once whether they can succeed, and later
what came of them.

The `io` thread drives it (`move.io`): `receive` for each message, then `flush` and `tick`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from sightglass.core import codec
from sightglass.core.clock import Clock
from sightglass.core.columns import Row
from sightglass.core.errors import (
    CommandError,
    QueryError,
    SightglassError,
    UnconfirmedError,
    UnsendableError,
    WireError,
    unknown,
)
from sightglass.protocol import messages
from sightglass.protocol.transport import Delivery, Frames
from sightglass.query.parser import parse
from sightglass.query.pipeline import Evaluation
from sightglass.query.query import Query
from sightglass.query.stages import Group, Per, Reduce
from sightglass.training.commands import Command, CommandResult, Kind
from sightglass.training.events import Emitter
from sightglass.training.subscription import LOG, Subscription

from . import describe
from .options import Limits
from .recording import RecordedSubscriptions, Recorder

LEASE_S: Final = 12.0
MAX_IGNORED: Final = 1_000
MAX_CLIENTS: Final = 1_000
MAX_STREAMS: Final = 256
SURVEY_S: Final = 10.0

Outgoing = list[tuple[bytes, Frames]]


@dataclass(slots=True)
class Client:
    """A client that said hello."""

    name: str
    controls: bool
    lease_until_s: float
    streams: set[int] = field(default_factory=set)
    published: dict[int, str] = field(default_factory=dict)


class Agent:
    """Answers the clients of one run."""

    def __init__(
        self,
        emitter: Emitter,
        *,
        run: str,
        id: str,
        clock: Clock,
        functions: Mapping[str, Callable[..., Any]],
        about: Mapping[str, Any] | None = None,
        refuse_acts: str = "",
        recorder: Recorder | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Begin without clients.

        Args:
            emitter: Where events come in.
            run: The run's name.
            id: The run's id.
            clock: The time.
            functions: What the run registered for queries, by name.
            about: What else a description shows, such as the config.
            refuse_acts: Why acts are refused in this process, or empty.
            recorder: Takes what is to be kept, if anything can be.
            limits: How much subscriptions retain for late clients.
        """
        self.run = run
        self.id = id
        self.about = dict(about or {})
        self.clients: dict[bytes, Client] = {}
        self._emitter = emitter
        self._clock = clock
        self._functions = functions
        self._refuse_acts = refuse_acts
        self._limits = limits
        self._kept = RecordedSubscriptions(emitter, recorder, run=run)
        self._ignored: set[bytes] = set()
        self._by_key: dict[str, Subscription] = {}
        self._subscribers: dict[int, set[bytes]] = {}
        self._next_id = 1
        self._acts: dict[int, tuple[bytes, int]] = {}
        self._outgoing: Outgoing = []
        self._waiting: list[tuple[bytes, int, str, float]] = []
        self.n_flushes = 0
        self._finished: deque[CommandResult] = deque()
        emitter.on_done = self._finished.append  # the training thread's only way in

    def receive(self, delivery: Delivery) -> Outgoing:
        """Take a message in; returns what is to be sent."""
        peer = delivery.peer
        if peer in self._ignored:
            return []
        try:
            message, buffers = messages.decode_from_client(delivery.frames)
            if isinstance(message, messages.Hello):
                self._hello(peer, message, may_act=delivery.may_act)
            elif peer in self.clients:
                self.clients[peer].lease_until_s = self._clock.monotonic() + LEASE_S
                self._dispatch(peer, self.clients[peer], message, buffers)
            else:
                self._refuse(peer, 0, "RefusedError", "Expected a hello first; the lease may have ended")
        except WireError as error:
            self._refuse(peer, 0, "WireError", str(error))
            if len(self._ignored) < MAX_IGNORED:
                self._ignored.add(peer)
            self.leave(peer)
        return self._take_outgoing()

    def flush(self) -> Outgoing:
        """Return what became of acts, the records since the last flush, and the ends of streams that failed."""
        while self._finished:
            self._done(self._finished.popleft())
        for answer in list(self._emitter.demand.answers.values()):
            if answer.rows:
                self._store(answer, answer.take_rows())
            if self._kept.lapsed(answer):
                self._unkeep(answer, f"it costs {self._emitter.cost(answer)}, and what is kept is never thinned")
            if answer.suspended and answer.last_error is not None:
                self._end(answer, answer.last_error)
        self._answer_waiting()
        self.n_flushes += 1
        return self._take_outgoing()

    def tick(self) -> Outgoing:
        """End the leases that ran out."""
        now_s = self._clock.monotonic()
        for peer in [peer for peer, client in self.clients.items() if client.lease_until_s < now_s]:
            self._send(peer, messages.Bye(reason="lease ended"))
            self.leave(peer)
        self._answer_waiting()
        return self._take_outgoing()

    def leave(self, peer: bytes) -> None:
        """Forget a client: its streams close, and its pause is lifted."""
        client = self.clients.pop(peer, None)
        if client is None:
            return
        for stream in client.streams:
            self._unsubscribe(peer, stream)
        self._emitter.release(_owner(peer))

    def end(self, reason: str) -> Outgoing:
        """Say goodbye to everybody: the run ends."""
        for peer, client in self.clients.items():
            for stream in client.streams:
                answer = self._emitter.demand.answers.get(stream)
                self._send(peer, messages.Ended(stream=stream, counts=self._counts(answer) if answer else b""))
            self._send(peer, messages.Bye(reason=reason))
        return self._take_outgoing()

    def subscribers(self, answer: Subscription) -> list[str]:
        """Return the names of the clients that an answer goes to."""
        peers = self._subscribers.get(answer.id, set())
        return sorted(self.clients[peer].name for peer in peers if peer in self.clients)

    # What a client can say

    def _hello(self, peer: bytes, message: messages.Hello, *, may_act: bool) -> None:
        if message.version != messages.VERSION:
            versions = f"Expected protocol version {messages.VERSION}, got {message.version}"
            reason = f"{versions}: use the same sightglass on both sides"
            self._refuse(peer, 0, "RefusedError", reason)
            return
        if len(self.clients) >= MAX_CLIENTS and peer not in self.clients:
            self._refuse(peer, 0, "RefusedError", f"Expected at most {MAX_CLIENTS} clients, got more")
            return
        self.leave(peer)
        lease_until_s = self._clock.monotonic() + LEASE_S
        self.clients[peer] = Client(name=message.client[:200], controls=may_act, lease_until_s=lease_until_s)
        may_act = may_act and not self._refuse_acts
        self._emitter.survey()
        self._send(
            peer, messages.Welcome(version=messages.VERSION, run=self.run, id=self.id, may_act=may_act, lease_s=LEASE_S)
        )

    def _dispatch(self, peer: bytes, client: Client, message: messages.FromClient, buffers: Frames) -> None:
        match message:
            case messages.Ping():
                self._send(peer, messages.Ping())
            case messages.Bye():
                self.leave(peer)
            case messages.Ask(request=request, what=what):
                self._ask(peer, request, what)
            case messages.Open(request=request, query=query):
                self._open(peer, client, request, query, confirm=message.confirm)
            case messages.Close(stream=stream):
                client.streams.discard(stream)
                self._unsubscribe(peer, stream)
            case messages.EndGroup(request=request, stream=stream):
                self._end_group(peer, client, request, stream)
            case messages.RunCommand():
                self._do(peer, client, message)
            case messages.Publish(request=request, event=event):
                self._publish(peer, client, request, event)
            case messages.RecordQuery():
                self._keep(peer, client, message)
            case messages.Block():
                self._published(peer, client, message, buffers)

    def _ask(self, peer: bytes, request: int, what: str) -> None:
        if what == "describe" and not self._emitter.survey():
            self._waiting.append((peer, request, what, self._clock.monotonic() + SURVEY_S))
        else:
            self._tell(peer, request, what)

    def _answer_waiting(self) -> None:
        """Answer the questions that waited until it was known what a step offers."""
        if not self._waiting:
            return
        surveyed, now_s = self._emitter.survey(), self._clock.monotonic()
        ready = [entry for entry in self._waiting if surveyed or entry[3] < now_s]
        self._waiting = [entry for entry in self._waiting if entry not in ready]
        for peer, request, what, _ in ready:
            if peer in self.clients:
                self._tell(peer, request, what)

    def _tell(self, peer: bytes, request: int, what: str) -> None:
        with self._emitter.turn():
            if what == "describe":
                value: Any = describe.run(self, self._emitter, self._functions, self._clock)
            elif what == "statistics":
                value = describe.streams(self, self._emitter)
            elif what == "history":
                value = [describe.done(done) for done in list(self._emitter.ledger.history)]
            else:
                self._refuse(
                    peer, request, "RefusedError", unknown("question", what, ("describe", "statistics", "history"))
                )
                return
        self._reply(peer, request, value)

    def _open(self, peer: bytes, client: Client, request: int, text: str, *, confirm: bool) -> None:
        if len(client.streams) >= MAX_STREAMS:
            self._refuse(peer, request, "RefusedError", f"Expected at most {MAX_STREAMS} streams of a client, got more")
            return
        try:
            query = parse(text, functions=self._functions)
            self._check_price(query, confirm=confirm)
            answer = self._by_key.get(query.key) or self._answer(query)
        except (QueryError, UnconfirmedError, LookupError) as error:
            self._refuse(peer, request, type(error).__name__, str(error))
            return
        client.streams.add(answer.id)
        self._subscribers[answer.id].add(peer)
        self._send(peer, messages.Opened(request=request, stream=answer.id, tag=query.tag, note=self._note(query)))
        self._send_rows(answer, list(answer.backlog), [peer])

    def _check_price(self, query: Query, *, confirm: bool) -> None:
        """Refuse what has a price for the run that the client has not confirmed; a group's event has one too."""
        channels = self._emitter.demand.channels
        windows = (stage.window for stage in query.stages if isinstance(stage, Reduce))
        for event in (query.event, *(window.event for window in windows if isinstance(window, Per))):
            if event in channels and channels[event].price and not (confirm or query.key in self._by_key):
                raise UnconfirmedError(f"{channels[event].price} Ask again with confirm=True to go on")

    def _answer(self, query: Query) -> Subscription:
        """Begin to answer a query that nobody asked before."""
        evaluation = Evaluation(query, self._functions)
        answer = Subscription(
            self._number(), query, evaluation, monotonic=self._clock.monotonic, defer=self._emitter.defer,
            limits=self._limits,
        )  # fmt: skip
        self._by_key[query.key] = answer
        self._subscribers[answer.id] = set()
        self._emitter.open(answer)
        return answer

    def _note(self, query: Query) -> str:
        channels = self._emitter.demand.channels
        if query.event == LOG and LOG in channels:
            unlogged = [name for name in query.names if name not in channels[LOG].offered]
            note = " Waiting for it to be logged."
            return (
                unknown("name", unlogged[0], channels[LOG].offered, where="in the log so far") + note
                if unlogged
                else ""
            )
        if query.event in channels:
            return ""
        return unknown("event", query.event, channels, where="so far") + " Waiting for the first."

    def _end_group(self, peer: bytes, client: Client, request: int, stream: int) -> None:
        answer = self._emitter.demand.answers.get(stream)
        if answer is None or stream not in client.streams:
            self._refuse(peer, request, "RefusedError", f"Expected an open stream of yours, got number {stream}")
            return
        if not any(isinstance(window, Group) for window in answer.windows):
            reason = f"Expected a reducer without a named window to close, got {answer.query}"
            self._refuse(peer, request, "QueryError", reason)
            return
        shared = self._subscribers[stream] != {peer} or answer in self._kept
        if self._by_key.get(answer.query.key) is answer and shared:
            answer = self._part(peer, client, answer)
        elif self._by_key.get(answer.query.key) is answer:
            del self._by_key[answer.query.key]  # its groups are this client's own now
        with self._emitter.turn():
            answer.end_group()
        self._reply(peer, request, answer.id)

    def _part(self, peer: bytes, client: Client, answer: Subscription) -> Subscription:
        """Give a client an answer of its own, which goes on from the state of the shared one."""
        with self._emitter.turn():
            own = answer.fork(self._number())
            self._emitter.open(own, replay=False)
        self._subscribers[own.id] = {peer}
        self._subscribers[answer.id].discard(peer)
        client.streams.discard(answer.id)
        client.streams.add(own.id)
        self._send(peer, messages.Moved(stream=answer.id, to=own.id))
        return own

    def _do(self, peer: bytes, client: Client, message: messages.RunCommand) -> None:
        if self._refuse_acts or not client.controls:
            reason = (
                self._refuse_acts or f"Expected a controller's key to {message.kind}; a viewer's key may look, not act"
            )
            self._refuse(peer, message.request, "RefusedError", reason)
            return
        kind = next((kind for kind in get_args(Kind) if kind == message.kind), None)
        if kind is None:
            self._refuse(peer, message.request, "RefusedError", unknown("act", message.kind, get_args(Kind)))
            return
        value = codec.decode(message.value) if message.value else None
        number = self._number()
        act = Command(id=number, client=_owner(peer), kind=kind, name=message.name, value=value, at=message.at,
                  hold=message.hold, by=client.name)  # fmt: skip
        self._acts[number] = (peer, message.request)
        try:
            self._emitter.add(act)
        except CommandError as error:
            del self._acts[number]
            self._refuse(peer, message.request, "CommandError", str(error))
            return
        self._send(peer, messages.Waiting(request=message.request, note=self._waiting_note(message.at)))

    def _waiting_note(self, at: str | None) -> str:
        return f"Waiting for the next event{f' {at!r}' if at else ''} of the thread that began run {self.run!r}"

    def _done(self, done: CommandResult) -> None:
        """Tell the client what became of its act."""
        self._kept.act(describe.done(done))
        peer, request = self._acts.pop(done.act.id, (None, 0))
        if peer not in self.clients:
            return
        assert peer is not None
        if done.error:
            self._refuse(peer, request, "CommandError", done.error)
            return
        self._reply(peer, request, describe.done(done))

    def keep(self, query: Query) -> Subscription:
        """Keep the records of a query from now on.

        Raises:
            QueryError: It calls a function that does not exist, or costs more than the run's budget.
            RefusedError: Nothing can be kept here.
        """
        answer = self._by_key.get(query.key)
        self._kept.check(query, answer)
        answer = answer or self._answer(query)
        with self._emitter.turn():
            if answer not in self._kept:
                self._send_rows(answer, answer.take_rows(), self._subscribers[answer.id])  # they came before
            self._kept.add(answer)
        return answer

    def _keep(self, peer: bytes, client: Client, message: messages.RecordQuery) -> None:
        request = message.request
        if not client.controls:
            reason = "Expected a controller's key to record; a viewer's key may look, not act"
            self._refuse(peer, request, "RefusedError", reason)
            return
        try:
            query = parse(message.query, functions=self._functions)
            if message.keep:
                self._check_price(query, confirm=message.confirm)
                self.keep(query)
            else:
                self._unkeep(self._kept.find(query, self._by_key.get(query.key)))
        except (SightglassError, LookupError) as error:
            self._refuse(peer, request, type(error).__name__, str(error))
            return
        self._reply(peer, request, {"tag": query.tag, "query": query.key, "note": self._note(query)})

    def _unkeep(self, answer: Subscription, problem: str = "") -> None:
        with self._emitter.turn():
            self._store(answer, answer.take_rows())
            self._kept.discard(answer, problem)
        if not self._subscribers[answer.id]:
            self._drop(answer)

    def _store(self, answer: Subscription, rows: Sequence[Row]) -> None:
        """Hand rows to whoever keeps them, and to the clients that asked for them."""
        self._kept.store(answer, rows)
        self._send_rows(answer, rows, self._subscribers.get(answer.id, set()))

    def _publish(self, peer: bytes, client: Client, request: int, event: str) -> None:
        if not client.controls:
            reason = f"Expected a controller's key to publish {event!r}; a viewer's key may look, not act"
            self._refuse(peer, request, "RefusedError", reason)
            return
        try:
            with self._emitter.turn():
                self._emitter.demand.channel(event, "publish")
                self._emitter.demand.refresh()
        except ValueError as error:
            self._refuse(peer, request, "RefusedError", str(error))
            return
        client.published[request] = event
        self._reply(peer, request, request)

    def _published(self, peer: bytes, client: Client, block: messages.Block, buffers: Frames) -> None:
        if block.stream not in client.published:
            raise WireError(f"Expected records of a published stream, got number {block.stream}")
        columns = messages.decode_block(block, buffers)
        event = client.published[block.stream]
        try:
            for i in range(block.n):
                record = columns.record(i, tag=event, run=self.run)
                observables = {
                    "value": columns.values[i],
                    "wall_time": record.wall_time,
                    "step": record.step,
                    "n_events": record.n_events,
                    "complete": record.complete and record.closed,
                    "source": client.name,
                }
                self._emitter.take(event, observables, origin="publish", steps=record.steps or None)
        except ValueError as error:  # the run offers this event itself by now
            self._refuse(peer, block.stream, "RefusedError", str(error))

    # What comes out

    def _send_rows(self, answer: Subscription, rows: Sequence[Row], peers: Collection[bytes]) -> None:
        """Send rows in blocks of consecutive ones, each encoded once for all."""
        if not peers:
            return
        try:
            for part in consecutive(rows):
                for frames in messages.encode_blocks(answer.id, part):
                    self._outgoing.extend((peer, frames) for peer in peers)
        except UnsendableError as error:
            self._end(answer, error)

    def _end(self, answer: Subscription, error: Exception) -> None:
        """End an answer that failed, and tell everybody who asked."""
        self._kept.discard(answer, str(error))
        counts = self._counts(answer)
        for peer in self._subscribers.pop(answer.id, set()):
            self.clients[peer].streams.discard(answer.id)
            self._send(
                peer, messages.Ended(stream=answer.id, error=type(error).__name__, reason=str(error), counts=counts)
            )
        self._drop(answer)

    def _counts(self, answer: Subscription) -> bytes:
        """Encode what was counted of an answer, for whoever asks when it is over."""
        return codec.encode(describe.stream(self, answer))[0]

    def _unsubscribe(self, peer: bytes, stream: int) -> None:
        peers = self._subscribers.get(stream, set())
        peers.discard(peer)
        answer = self._emitter.demand.answers.get(stream)
        if not peers and answer is not None and answer not in self._kept:
            self._drop(answer)

    def _drop(self, answer: Subscription) -> None:
        if self._by_key.get(answer.query.key) is answer:
            del self._by_key[answer.query.key]
        self._subscribers.pop(answer.id, None)
        self._kept.discard(answer)
        self._emitter.close_answer(answer)

    def _number(self) -> int:
        self._next_id += 1
        return self._next_id

    def _send(self, peer: bytes, message: messages.Message) -> None:
        self._outgoing.append((peer, messages.encode(message)))

    def _reply(self, peer: bytes, request: int, value: Any) -> None:
        blob, buffers = codec.encode(value)
        self._outgoing.append((peer, messages.encode(messages.Reply(request=request, value=blob), buffers)))

    def _refuse(self, peer: bytes, request: int, error: str, reason: str) -> None:
        self._send(peer, messages.Refused(request=request, error=error, reason=reason))

    def _take_outgoing(self) -> Outgoing:
        outgoing, self._outgoing = self._outgoing, []
        return outgoing


def consecutive(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows where their index numbers have a hole, and where a block would be too long."""
    start = 0
    for i in range(1, len(rows) + 1):
        if i == len(rows) or rows[i][0] != rows[i - 1][0] + 1 or i - start >= messages.MAX_BLOCK_ROWS:
            yield rows[start:i]
            start = i


def _owner(peer: bytes) -> str:
    return peer.hex()
