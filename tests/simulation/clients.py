"""Simulated clients: processes with the real session, which ask, command, fall silent, die and come back.

What a client was shown, and what it was told about its commands, is kept for the laws (`laws`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sightglass.client.connection import PendingReply
from sightglass.client.live_runs import Found, RunRoute
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.client.session import Session
from sightglass.core import codec
from sightglass.core.columns import Record, of_rows
from sightglass.core.errors import SightglassError
from sightglass.protocol import messages

from .network import Network, SimChannel
from .questions import PUBLISHED, QUESTIONS, Question, loss
from .world import Process

LEAVE_S = 0.2  # for a goodbye
PUBLISHER = 0  # one client publishes, so that the numbers of its records are its own


@dataclass(slots=True)
class Asked:
    """A stream that a client opened, and the records it was shown."""

    question: Question
    stream: ResumableStream
    pending: PendingReply
    session: Visit
    closed: bool = False
    cursor: int = 0
    last: Record | None = None

    @property
    def grouped(self) -> bool:
        """Whether the client closes its groups: all streams of one query in a client are one stream of the run."""
        return self.question in self.session.grouped


@dataclass(slots=True)
class Command:
    """A command that a client sent, with the argument that no other command has."""

    kind: str
    number: int
    pending: PendingReply


class SimTarget:
    """The run, as a client finds it again; see `client.target.Target`."""

    def __init__(self, network: Network, client: Process, *, may_command: bool, local: bool) -> None:
        """Prepare to connect."""
        self.channels: list[SimChannel] = []
        self._network = network
        self._client = client
        self._may_command = may_command
        self._local = local

    def route(self) -> RunRoute:
        """Return the way to the run."""
        alive = self._network.run_lives if self._local else None
        return RunRoute(run="job", id="", connect=self._connect, alive=alive, closed=self._network.run_was_closed)

    def find_again(self, route: RunRoute) -> Found:
        """Return what became of the run."""
        if not self._local or self._network.run_lives():
            return route
        return "ended" if self._network.run_was_closed() else "awaited"

    def _connect(self) -> SimChannel:
        self.channels.append(self._network.connect(self._client, may_command=self._may_command))
        return self.channels[-1]


@dataclass(slots=True)
class Visit:
    """A session from its beginning to its end.

    Attributes:
        real: The session.
        target: Has its channels.
        local: Whether the client sees the run's lock; on another machine it does not.
        frozen: Whether the client was stopped for a while.
        left: Whether the client has left, or was killed.
        published: The connection on which it offers a stream, and the request.
        publication: The run's number for it, once it is known.
        grouped: The questions whose groups the client has closed.
        losses: Why connections were lost, as far as the laws have seen it.
    """

    real: Session
    target: SimTarget
    local: bool
    frozen: bool = False
    left: bool = False
    published: tuple[object, PendingReply | None] = (None, None)
    publication: int = 0
    grouped: list[Question] = field(default_factory=list)
    losses: set[str] = field(default_factory=set)

    @property
    def n_cuts(self) -> int:
        """How often its connections were cut."""
        return sum(channel.n_cuts for channel in self.target.channels)


class Client:
    """A client.

    Attributes:
        visits: Its sessions; the last one may be open.
        asked: The streams it opened.
        commands: The commands it sent.
    """

    def __init__(
        self,
        network: Network,
        number: int,
        *,
        numbers: Iterator[int],
        pause_s: float,
        calm: bool,
        max_records: int,
        lag_s: float,
    ) -> None:
        """Prepare to join.

        Args:
            network: Leads to the run.
            number: Which client this is.
            numbers: The arguments of commands, for all clients.
            pause_s: The mean time between two acts.
            calm: Whether it stays, and is neither killed nor frozen.
            max_records: How many records it holds of a stream.
            lag_s: By how much its rounds are late at most.
        """
        self.visits: list[Visit] = []
        self.asked: list[Asked] = []
        self.commands: list[Command] = []
        self.process = Process(network.world, f"client-{number}", lag_s=lag_s)
        self._max_records = max_records
        self._network = network
        self._numbers = numbers
        self._pause_s = pause_s
        self._calm = calm
        self._publishes = number == PUBLISHER
        self._n_published = 0

    @property
    def session(self) -> Visit | None:
        """The session, if there is one."""
        return self.visits[-1] if self.visits and not self.visits[-1].left else None

    def join(self) -> None:
        """Connect, if the run is in the registry, and go on from there."""
        if not self._network.run_lives():
            return
        random = self._network.world.random
        may_command = random.random() < 0.8
        local = random.random() < 0.7
        target = SimTarget(self._network, self.process, may_command=may_command, local=local)
        real = Session(target, target.route(), client=self.process.name, worker=self.process.worker)  # type: ignore[arg-type]
        self.visits.append(Visit(real, target, local))
        self._later()

    def _later(self) -> None:
        self.process.at(self._network.world.random.expovariate(1 / self._pause_s), self._act)

    def _act(self) -> None:
        """Do one of the things that clients do, then plan the next."""
        session = self.session
        if session is None or (session.real.ended and not self._network.server.alive):
            return
        if session.real.ended:
            session.left = True
            self.process.at(0.5, self.join)
            return
        if session.real.why_lost():
            self._later()
            return
        random = self._network.world.random
        acts: dict[Callable[[Visit], None], float] = {
            self._open: 5, self._close_stream: 1, self._end_group: 1, self._command: 3, self._record: 1, self._ask: 1,
            self._publish: 2 if self._publishes else 0,
            self._pause_run: 0.5, self._freeze: 0.0 if self._calm else 0.5, self._leave: 0.0 if self._calm else 0.3,
            self._die: 0.0 if self._calm else 0.3,
        }  # fmt: skip
        (act,) = random.choices(list(acts), list(acts.values()))
        self._network.world.note(f"{self.process.name} {act.__name__.strip('_')}")
        act(session)
        if not session.left:
            self._later()

    # What it does

    def _open(self, session: Visit) -> None:
        question = self._network.world.random.choice(QUESTIONS)
        buffer = RecordBuffer(tag=question.query, run="job", max_records=self._max_records)
        stream = ResumableStream(question.query, buffer)
        self.asked.append(Asked(question, stream, session.real.start_stream(stream), session))

    def _close_stream(self, session: Visit) -> None:
        asked = self._one_of(session)
        if asked is not None:
            asked.closed = True
            session.real.close_stream(asked.stream)

    def _end_group(self, session: Visit) -> None:
        asked = self._one_of(session)
        stream = None if asked is None else session.real.connection.stream_number(asked.stream)
        if asked is not None and stream is not None and asked.question.per == "end_group":
            session.grouped.append(asked.question)
            session.real.connection.start_request(lambda number: messages.EndGroup(request=number, stream=stream))

    def _command(self, session: Visit) -> None:
        argument = next(self._numbers)
        kind = self._network.world.random.choice(("set", "call"))
        name, value = ("rate", float(argument)) if kind == "set" else ("mark", [argument])
        pending = self._send(session, kind, name, value)
        self.commands.append(Command(kind, argument, pending))

    def _pause_run(self, session: Visit) -> None:
        self._send(session, "pause")
        self.process.at(self._network.world.random.random(), lambda: self._send(session, "resume"))

    def _send(self, session: Visit, kind: str, name: str = "", value: object = None) -> PendingReply:
        blob = b"" if value is None else codec.encode(value)[0]
        return session.real.connection.start_request(
            lambda number: messages.RunCommand(request=number, kind=kind, name=name, value=blob)
        )

    def _record(self, session: Visit) -> None:
        random = self._network.world.random
        question, on = random.choice(QUESTIONS), random.random() < 0.7
        session.real.connection.start_request(
            lambda number: messages.RecordQuery(request=number, query=question.query, record=on)
        )

    def _ask(self, session: Visit) -> None:
        session.real.connection.start_query(self._network.world.random.choice(("describe", "statistics", "history")))

    def _publish(self, session: Visit) -> None:
        """Begin to publish a stream, or send some records of it."""
        connection = session.real.connection
        offered, pending = session.published
        if offered is not connection or pending is None:
            pending = connection.start_request(
                lambda number: messages.Publish(request=number, event=PUBLISHED, stream=session.publication)
            )
            session.published = (connection, pending)
        elif pending.wait(0):
            try:
                session.publication = pending.result()
            except SightglassError:
                return
            seed, first = self._network.world.seed, self._n_published
            self._n_published += self._network.world.random.randint(1, 5)
            rows = [(i, i, 0.0, loss(seed, i), None, i) for i in range(first, self._n_published)]
            connection.send(messages.encode_block(session.publication, of_rows(rows)))

    def _freeze(self, session: Visit) -> None:
        session.frozen = True
        self.process.freeze(self._network.world.random.expovariate(1.0))

    def _leave(self, session: Visit) -> None:
        session.left = True
        session.real.close(LEAVE_S)
        self.process.at(0.5, self.join)

    def _die(self, session: Visit) -> None:
        """Be killed; another process with the same user comes later."""
        session.left = True
        self.process.kill()
        for channel in session.target.channels:
            channel.disconnect()
        self.process = Process(self._network.world, self.process.name, lag_s=self.process.lag_s)
        self.process.at(1.0, self.join)

    def _one_of(self, session: Visit) -> Asked | None:
        mine = [asked for asked in self.asked if asked.session is session and not asked.closed]
        return self._network.world.random.choice(mine) if mine else None


def join_later(clients: list[Client], within_s: float) -> None:
    """Let clients join at random times."""
    for client in clients:
        client.process.at(client.process.world.random.random() * within_s, client.join)
