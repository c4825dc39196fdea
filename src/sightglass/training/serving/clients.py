"""The clients of a run: their leases, and the messages that wait to be sent to them.

`Publications` are the streams that go to many clients at once, `PublishedStreams` those that clients offer.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from sightglass.core import codec
from sightglass.core.description import as_mapping
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.process.clock import Clock
from sightglass.core.program_values.copier import sendable
from sightglass.core.program_values.guarded import clean
from sightglass.protocol import messages
from sightglass.protocol.transport import Frames, Publisher
from sightglass.training.evaluation.subscription import Holder
from sightglass.training.evaluation.telemetry import Telemetry

LEASE_S: Final = 12.0  # four pings: a client that is busy for seconds does not lose its streams
MAX_PACE_S: Final = 1.0  # beyond, rows would pile up in the run
MAX_CLIENTS: Final = 1_000  # each has a queue of its own in the training process

Outgoing = list[tuple[bytes, Frames]]
"""Messages to send, each with the client it is for, or with the name of a stream that is published."""


@dataclass(slots=True)
class Publication:
    """An event that a client publishes.

    Attributes:
        event: Its name.
        request: The number of the client's last request for it.
        next_index: The number of the next record; `None` before the first.
    """

    event: str
    request: int = 0
    next_index: int | None = None


@dataclass(slots=True)
class Client:
    """A client that said hello.

    Attributes:
        name: What it calls itself.
        user: Whose it is, for a fair share of the budget: see `Delivery.user`; on the local socket, its name.
        may_command: Whether it has a controller's key.
        lease_until_s: When its lease ends, in monotonic time.
        streams: The numbers of its streams.
        readers: For whom it reads a stream, by the stream's number, if it serves several.
        published: The events that it publishes, by their numbers.
        pace_s: How long records for it may be held back.
        advised: Whether it was told how to keep what comes.
    """

    name: str
    user: str
    may_command: bool
    lease_until_s: float
    streams: set[int] = field(default_factory=set)
    readers: dict[int, tuple[str, ...]] = field(default_factory=dict)
    published: dict[int, Publication] = field(default_factory=dict)
    pace_s: float = 0.0
    advised: bool = False


def allowed_pace_s(pace_s: float) -> float:
    """Return for how long records are held back if a client allows this; 0.0 if it sent no positive number."""
    return min(pace_s, MAX_PACE_S) if pace_s > 0 else 0.0


class Clients:
    """The clients of a run. Each holds a lease, which every message renews."""

    def __init__(self, clock: Clock) -> None:
        self.lease_s = LEASE_S
        self._clock = clock
        self._clients: dict[bytes, Client] = {}

    def __contains__(self, peer: object) -> bool:
        return peer in self._clients

    def __getitem__(self, peer: bytes) -> Client:
        return self._clients[peer]

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def peers(self) -> list[bytes]:
        """The ids of all clients."""
        return list(self._clients)

    @property
    def pace_s(self) -> float:
        """How long records may be held back; 0.0 if a client wants everything at once.

        The pace of a client that has no streams says nothing: a page that only lists the runs sets nobody's.
        """
        paces_s = [client.pace_s for client in self._clients.values() if client.streams or not client.pace_s]
        return min(paces_s, default=0.0)

    def add(self, peer: bytes, name: str, *, may_command: bool, user: str = "", pace_s: float = 0.0) -> None:
        """Add a client, or replace it."""
        self._clients[peer] = Client(
            name=name[:200], user=user or name[:200], may_command=may_command, lease_until_s=self._lease_until_s(),
            pace_s=allowed_pace_s(pace_s),
        )  # fmt: skip

    def holders(self, peers: Iterable[bytes], stream: int) -> tuple[Holder, ...]:
        """Return those of these clients that are still there, or for whom they read a stream, each with its user."""
        return tuple(
            (client.user, peer if name is None else b"%b/%b" % (peer, name.encode()))
            for peer in peers
            if (client := self._clients.get(peer)) is not None
            for name in client.readers.get(stream) or (None,)
        )

    def forget_readers(self, peer: bytes, stream: int) -> None:
        """Forget for whom a client reads a stream, which it has closed."""
        if peer in self._clients:
            self._clients[peer].readers.pop(stream, None)

    def renew(self, peer: bytes) -> Client:
        """Renew the lease of a client, and return the client."""
        client = self._clients[peer]
        client.lease_until_s = self._lease_until_s()
        return client

    def pop(self, peer: bytes) -> Client | None:
        """Forget a client, and return it if it was there."""
        return self._clients.pop(peer, None)

    def expired(self) -> list[bytes]:
        """Return the clients whose leases have ended."""
        now_s = self._clock.monotonic()
        return [peer for peer, client in self._clients.items() if client.lease_until_s < now_s]

    def names(self, peers: Iterable[bytes]) -> list[str]:
        """Return the names of those of these clients that are still there, sorted."""
        return sorted(self._clients[peer].name for peer in peers if peer in self._clients)

    def _lease_until_s(self) -> float:
        return self._clock.monotonic() + self.lease_s


class Outbox:
    """The messages that wait to be sent.

    Attributes:
        publications: The streams that are published.
    """

    def __init__(self) -> None:
        self.publications = Publications()
        self._outgoing: Outgoing = []

    def put(self, peer: bytes, frames: Frames) -> None:
        """Send an encoded message."""
        self._outgoing.append((peer, frames))

    def put_for(self, stream: int, peers: Collection[bytes], frames: Frames) -> int:
        """Send new records of a stream to all of its clients; return how many copies that takes."""
        recipients = self.publications.recipients(stream, peers)
        for recipient in recipients:
            self.put(recipient, frames)
        return len(recipients)

    def send(self, peer: bytes, message: messages.Message) -> None:
        """Send a message without buffers."""
        self.put(peer, messages.encode(message))

    def reply(self, peer: bytes, request: int, value: object) -> None:
        """Answer a request with a value, or with structs of `core.description`."""
        value = as_mapping(value)
        try:
            blob, buffers = codec.encode(value)
        except UnsendableError:  # such as a name that UTF-8 cannot encode
            blob, buffers = codec.encode(sendable(value).value)
        self.put(peer, messages.encode(messages.Reply(request=request, value=blob), buffers))

    def refuse(self, peer: bytes, request: int, error: str | Exception, reason: str = "") -> None:
        """Refuse a request with the name of an error and a reason, or with an error that was raised."""
        if isinstance(error, Exception):
            error, reason = type(error).__name__, str(error)
        reason = clean(reason, len(reason))
        self.send(peer, messages.Refused(request=request, error=error, reason=reason))

    def take(self) -> Outgoing:
        """Return the messages since the last call."""
        outgoing, self._outgoing = self._outgoing, []
        return outgoing


# Which clients read a published stream, which a run sends once for all of them, instead of a copy each.
#
# On a hub, copies for a hundred clients would cost the run a hundred times the work and the bandwidth. A client enters
# once nothing waits for it any more: what it takes then follows what it was sent. So one that reads slowly keeps its
# copies, whose number the transport limits.

MIN_READERS: Final = 2  # below, a copy costs less than to publish


class Publications:
    """The published streams of a run.

    Attributes:
        publisher: What publishes; without it, each client is sent copies.
        names: The streams that are published, by the names that stand for them among those of peers.
    """

    def __init__(self) -> None:
        """Begin without a publisher."""
        self.publisher: Publisher | None = None
        self.names: dict[bytes, int] = {}
        self._readers: dict[int, set[bytes]] = {}
        self._wanted: set[tuple[bytes, int]] = set()

    def recipients(self, stream: int, peers: Collection[bytes]) -> Collection[bytes]:
        """Return the recipients of records for these peers: some get copies, and one name stands for the others."""
        publisher = self.publisher
        if publisher is None or (len(peers) < MIN_READERS and stream not in self._readers):
            return peers
        readers = self._readers.get(stream, set())
        everybody = set(peers)
        for peer in readers - everybody:
            self.dismiss(peer, stream)
        others = everybody - readers
        reachable = [peer for peer in others if publisher.reaches(peer)]
        if len(readers) + len(reachable) >= MIN_READERS:
            self._wanted.update((peer, stream) for peer in reachable)
        return others | {_name(stream)} if readers else others

    def admit(self, is_free: Callable[[bytes], bool]) -> None:
        """Let peers enter that listen and for which nothing waits."""
        for peer, stream in list(self._wanted):
            if self.publisher is not None and is_free(peer) and self.publisher.enter(peer, stream):
                self._wanted.discard((peer, stream))
                self._readers.setdefault(stream, set()).add(peer)
                self.names[_name(stream)] = stream

    def dismiss(self, peer: bytes, stream: int) -> None:
        """Send a peer copies of a stream again."""
        self._wanted.discard((peer, stream))
        readers = self._readers.get(stream, set())
        if self.publisher is None or peer not in readers:
            return
        self.publisher.dismiss(peer, stream)
        readers.discard(peer)
        if not readers:
            del self._readers[stream]
            del self.names[_name(stream)]

    def forget(self, peer: bytes) -> None:
        """Forget a peer that has left."""
        self._wanted = {wanted for wanted in self._wanted if wanted[0] != peer}
        for stream in [stream for stream, readers in self._readers.items() if peer in readers]:
            self.dismiss(peer, stream)


def _name(stream: int) -> bytes:
    return b"stream-%d" % stream


# Streams that clients publish: their records become events of the run.
#
# The records of a publication have numbers. A connection may be lost with records on their way: the client offers the
# stream again on the next one, under the number that it had, and the records that are missing by then are counted.

MAX_PUBLICATIONS: Final = 1_000  # as many as there may be clients; each takes a hundred bytes


class PublishedStreams:
    """Takes in the records of published streams."""

    def __init__(self, telemetry: Telemetry, *, outbox: Outbox, run: str) -> None:
        self._telemetry = telemetry
        self._outbox = outbox
        self._run = run
        self._numbers = itertools.count(1)
        self._publications: dict[int, Publication] = {}

    def begin(self, peer: bytes, client: Client, message: messages.Publish) -> None:
        """Let a client publish an event, or go on with it, unless the run produces it itself."""
        request, event = message.request, message.event
        if not client.may_command:
            reason = f"Expected a controller's key to publish {event!r}; a viewer's key is read-only"
            self._outbox.refuse(peer, request, "RefusedError", reason)
            return
        try:
            with self._telemetry.lock.turn():
                self._telemetry.subscriptions.source(event, "publish")
                self._telemetry.subscriptions.refresh()
        except ValueError as error:
            self._outbox.refuse(peer, request, "RefusedError", str(error))
            return
        number, known = message.stream, self._publications.get(message.stream)
        if known is None or known.event != event:
            number, known = next(self._numbers), Publication(event)
            self._publications[number] = known
            if len(self._publications) > MAX_PUBLICATIONS:
                del self._publications[next(iter(self._publications))]
        known.request = request
        client.published[number] = known
        self._outbox.reply(peer, request, number)

    def take(self, peer: bytes, client: Client, block: messages.Block, buffers: Frames) -> None:
        """Take in a block of records, except those that arrived before; count those that are missing before it.

        Raises:
            WireError: The client publishes no such stream, or the block is malformed.
        """
        if block.stream not in client.published:
            raise WireError(f"Expected records of a published stream, got number {block.stream}")
        columns = messages.decode_block(block, buffers)
        published = client.published[block.stream]
        expected = block.index if published.next_index is None else published.next_index
        event, n_repeated = published.event, min(block.n, max(0, expected - block.index))
        published.next_index = max(expected, block.index + block.n)
        try:
            self._telemetry.events.miss(event, max(0, block.index - expected))
            for i in range(n_repeated, block.n):
                record = columns.record(i, tag=event, run=self._run)
                observables = {
                    "value": columns.values[i],
                    "wall_time": record.wall_time,
                    "step": record.step,
                    "n_events": record.n_events,
                    "complete": record.complete and record.closed,
                    "source": client.name,
                }
                self._telemetry.events.take(event, observables, origin="publish", steps=record.steps or None)
        except ValueError as error:  # the run has begun to produce this event itself
            self._outbox.refuse(peer, published.request, "RefusedError", str(error))
