"""A hub as a transport: runs and clients that meet on a NATS server.

A client has one subject to speak under and one to listen to; their names tell who it is. A server that knows its users
lets each publish under their own name only, and viewers not under `command`: so the subject of a message says who sent
it, and what they may do. docs/wire.md has the table of all subjects.

What several clients read is published once, under a subject of the stream. Each takes it from one place in its dialogue
to another, which chunks of the dialogue say (`Publisher`). The hub keeps the order of all that a run sends to a client.

NATS delivers a message at most once and tells a sender nothing about a slow reader. So each end numbers its chunks and
says what it has read (`chunks.Dialogue`). If chunks are lost, or the connection to the hub, the dialogue is over. A
client then connects again, and its streams go on with the next record, as after any lost connection.
"""

from __future__ import annotations

import math
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final

from sightglass.core.errors import WireError
from sightglass.core.process.unpatched import threading
from sightglass.hub.chunks import (
    ENTER,
    LEAVE,
    LEFT,
    LISTEN,
    READ,
    Allowance,
    Assembler,
    Cutter,
    Dialogue,
    WholeMessage,
    about,
    goodbye,
    is_broken,
    is_first,
    kind_of,
    stream_of,
)
from sightglass.protocol.messages import MAX_CLIENT_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from sightglass.protocol.transport import MAX_QUEUED, MAX_QUEUED_BYTES, Delivery, Frames, Sent

from .address import HubAddress, checked_token
from .link import drop_link, use_connected_link, use_link

ROOT: Final = "sightglass"
TO_CLIENT: Final = Allowance(MAX_QUEUED, MAX_QUEUED_BYTES, MAX_MESSAGE_BYTES)
TO_RUN: Final = Allowance(1_000, MAX_QUEUED_BYTES, MAX_CLIENT_MESSAGE_BYTES)  # many small requests, as over ZeroMQ
MAX_TAKEN: Final = 100  # messages in one turn, so that sending gets its turn too
MAX_PEERS: Final = 2_000  # more than a run serves, so that a refusal reaches who is refused
MAX_HELD_BYTES: Final = 256 * 2**20  # of all clients together: four of the largest messages of a client
SILENT_S: Final = 60.0  # five leases: a client that says nothing for so long has been forgotten by the run
PEER: Final = b"hub-"


class HubPeer:
    """A client of a run.

    Attributes:
        subject: What it listens to.
        user: Its user on the hub.
        may_command: Whether it speaks under a subject of controllers.
        dialogue: The messages with it.
        heard_s: When it last said something.
        invited: The streams that it was asked to listen to.
        listens: Those of them that it listens to.
    """

    __slots__ = ("dialogue", "heard_s", "invited", "listens", "may_command", "subject", "user")

    def __init__(self, subject: str, *, user: str, may_command: bool) -> None:
        self.subject, self.user = subject, user
        self.may_command = may_command
        self.dialogue = Dialogue(out=TO_CLIENT, into=TO_RUN)
        self.heard_s = time.monotonic()
        self.invited: set[int] = set()
        self.listens: set[int] = set()


class NatsListener:
    """The run's end on a hub. It serves clients whenever there is a connection, and waits for none.

    Attributes:
        link: The connection to the hub.
        subjects: What it listens to.
        n_broken: How many clients it gave up, since chunks were lost, or since they sent what they may not.
    """

    def __init__(self, address: HubAddress, id: str, *, notify: Callable[[], None] | None = None) -> None:
        """Begin to listen.

        Args:
            address: The hub.
            id: The run's id.
            notify: Called for each message, for a listener that waits elsewhere.

        Raises:
            MissingExtraError: nats-py is not installed.
            TransportError: No thread can be started.
        """
        run = f"{checked_token(address.user)}.{checked_token(id)}"
        self.subjects: Sequence[str] = (f"{ROOT}.ask.*.{run}.*", f"{ROOT}.command.*.{run}.*")
        self.n_broken = 0
        self._peers: dict[bytes, HubPeer] = {}
        self._inbox: deque[tuple[bytes, HubPeer, WholeMessage]] = deque()
        self._published: defaultdict[int, Cutter] = defaultdict(Cutter)
        self._publishes = f"{ROOT}.stream.{run}"
        self._event = threading.Event()
        self._notify = notify or self._event.set
        self._closed = False
        self._in_bytes = self._read_bytes = 0  # each is counted by one thread
        self._swept_s = time.monotonic()
        self.link = use_link(address)
        self.link.join(self)

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        if not self._inbox:
            self._event.wait(timeout_s)

    def receive(self) -> list[Delivery]:
        """Return the messages received."""
        if self._event.is_set():
            self._event.clear()
        deliveries: list[Delivery] = []
        for _ in range(min(len(self._inbox), MAX_TAKEN)):
            name, peer, message = self._inbox.popleft()
            self._read_bytes += message.size
            if (chunk := peer.dialogue.read(message)) is not None:
                self.link.send(peer.subject, [chunk])
            deliveries.append(Delivery(name, message, peer.may_command, peer.user))
        if self._inbox:
            self._notify()
        return deliveries

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        found = self._peers.get(peer)
        if found is None or self._closed:
            return "gone"
        if not self.link.has_room:
            return "full"
        chunks = found.dialogue.cut(frames, self.link.max_chunk_bytes)
        if chunks is None:
            return "full"
        return "sent" if self.link.send(found.subject, chunks) else "gone"

    def reaches(self, peer: bytes) -> bool:
        """Return whether a peer is one of this hub."""
        return peer in self._peers

    def enter(self, peer: bytes, stream: int) -> bool:
        """Let a peer take what is published, once it listens. See `Publisher`."""
        found = self._peers.get(peer)
        if found is None:
            return False
        if stream in found.listens:
            first = self._published[stream].n_chunks
            return self.link.send(found.subject, [about(ENTER, stream, first=first)])
        if stream not in found.invited:
            found.invited.add(stream)
            self.link.send(found.subject, [about(LISTEN, stream)])
        return False

    def dismiss(self, peer: bytes, stream: int) -> None:
        """Let a peer take nothing more of what is published. See `Publisher`."""
        found = self._peers.get(peer)
        if found is not None:
            found.invited.discard(stream)
            found.listens.discard(stream)
            self.link.send(found.subject, [about(LEAVE, stream)])

    def publish(self, stream: int, frames: Frames) -> Sent:
        """Send to all who read a stream. See `Publisher`."""
        if not self.link.has_room:
            return "full"
        chunks = self._published[stream].cut(frames, self.link.max_chunk_bytes)
        return "sent" if self.link.send(f"{self._publishes}.{stream}", chunks) else "gone"

    def wake(self) -> None:
        """End a wait."""
        self._event.set()

    def close(self) -> None:
        """Stop listening. In a forked child this does nothing: the connection is the parent's."""
        if self._closed or self.link.is_foreign:
            return
        self._closed = True
        for peer in list(self._peers.values()):
            self.link.send(peer.subject, [goodbye()])
        self.link.leave(self)
        drop_link(self.link)

    # On the thread of the hub

    def received(self, subject: str, data: bytes) -> None:
        """Take a chunk in."""
        tokens = subject.split(".")
        if len(tokens) != 6 or self._closed:
            return
        _, kind, user, _, _, client = tokens
        self.link.pace.count(user)
        name = PEER + f"{kind}.{user}.{client}".encode()
        peer = self._peers.get(name)
        try:
            if kind_of(data) == LEFT:
                self._forget(name)
            elif peer is not None and kind_of(data) == LISTEN:
                peer.listens.update(peer.invited & {stream_of(data)[0]})
                self._notify()
            elif peer is not None:
                self._add(name, peer, data)
            elif is_first(data) and self._has_place():
                peer = self._peers[name] = HubPeer(
                    f"{ROOT}.answer.{user}.{client}", user=user, may_command=kind == "command"
                )
                self._add(name, peer, data)
            else:  # it speaks with a run that has forgotten it, such as after the hub was away
                self.link.send(f"{ROOT}.answer.{user}.{client}", [goodbye(broken=True)])
        except WireError:
            self.n_broken += 1
            self._forget(name)
            self.link.send(f"{ROOT}.answer.{user}.{client}", [goodbye(broken=True)])

    def broken(self, reason: str) -> None:
        """Forget all clients: chunks of any of them may be lost."""
        for name in list(self._peers):
            self._forget(name)

    def beat(self) -> None:
        """Do nothing: clients say themselves that they are there."""

    def _add(self, name: bytes, peer: HubPeer, data: bytes) -> None:
        peer.heard_s = time.monotonic()
        before_bytes = peer.dialogue.part_bytes
        message = peer.dialogue.add(data)
        self._in_bytes += (message.size if message is not None else peer.dialogue.part_bytes) - before_bytes
        if message is not None:
            self._inbox.append((name, peer, message))
            self._notify()
        if kind_of(data) != READ and self._in_bytes - self._read_bytes > MAX_HELD_BYTES:
            raise WireError("Expected fewer bytes from all clients together")

    def _forget(self, name: bytes) -> None:
        """Forget a client, and the message that is not complete."""
        peer = self._peers.pop(name, None)
        if peer is not None:
            self._in_bytes -= peer.dialogue.part_bytes

    def _has_place(self) -> bool:
        """Return whether another client may come; forget those that have been silent."""
        now_s = time.monotonic()
        if now_s - self._swept_s > SILENT_S / 2 or len(self._peers) >= MAX_PEERS:
            self._swept_s = now_s
            for name in [name for name, peer in self._peers.items() if now_s - peer.heard_s > SILENT_S]:
                self._forget(name)
        return len(self._peers) < MAX_PEERS


# A client's end on a hub; `nats` has the run's.

MAX_PUBLISHED: Final = 1_000  # streams that a client listens to; it may have fewer
MAX_UNREAD_BYTES: Final = 64 * 2**20  # published, and not read by this client: as much as a run holds for one
MAX_UNREAD: Final = 20_000  # the same in messages


class NatsChannel:
    """A client's end on a hub.

    Attributes:
        link: The connection to the hub.
        subjects: What it listens to.
        heard_s: When the run was last heard of.
    """

    def __init__(self, address: HubAddress, *, owner: str, id: str) -> None:
        """Connect to the hub. Whether the run exists shows only when it replies.

        Args:
            address: The hub.
            owner: The user whose run it is.
            id: The run's id.

        Raises:
            MissingExtraError: nats-py is not installed.
            TransportError: The hub does not answer, or no thread can be started.
            RefusedError: The hub does not know the user, or they were revoked.
        """
        client = secrets.token_hex(12)  # nobody else can guess it
        self._run = f"{ROOT}.stream.{checked_token(owner)}.{checked_token(id)}"
        user, run = checked_token(address.user), f"{checked_token(owner)}.{checked_token(id)}"
        self._subject = f"{ROOT}.{'command' if address.may_command else 'ask'}.{user}.{run}.{client}"
        self.subjects: Sequence[str] = (f"{ROOT}.answer.{user}.{client}",)
        self._dialogue = Dialogue(out=TO_RUN, into=TO_CLIENT)
        self._inbox: deque[tuple[WholeMessage, bool]] = deque()  # each with whether it was published
        self._published: dict[int, PublishedStream] = {}
        self._n_came = self._n_taken = self._came_bytes = self._taken_bytes = 0  # of published messages
        self.heard_s = -math.inf
        self._event = threading.Event()
        self._over: Sent = "sent"
        self._closed = False
        self.link = use_connected_link(address)
        self.link.join(self)

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        if not self._inbox:
            self._event.wait(timeout_s)

    def receive(self) -> list[Frames]:
        """Return the messages received."""
        self._event.clear()
        messages: list[Frames] = []
        for _ in range(min(len(self._inbox), MAX_TAKEN)):
            message, published = self._inbox.popleft()
            if published:
                self._n_taken += 1
                self._taken_bytes += message.size
            elif (chunk := self._dialogue.read(message)) is not None:
                self.link.send(self._subject, [chunk])
            messages.append(message)
        return messages

    def send(self, frames: Frames) -> Sent:
        """Send to the run."""
        if self._over != "sent":
            return self._over
        if not self.link.has_room:
            return "full"
        chunks = self._dialogue.cut(frames, self.link.max_chunk_bytes)
        if chunks is None:
            return "full"
        return "sent" if self.link.send(self._subject, chunks) else "lost"

    @property
    def over(self) -> bool:
        """Whether the run has left, or messages were lost, as they are with the connection to the hub."""
        return self._over != "sent"

    @property
    def left(self) -> bool:
        """Whether the run has left."""
        return self._over == "gone"

    def wake(self) -> None:
        """End a wait."""
        self._event.set()

    def close(self) -> None:
        """Disconnect. In a forked child this does nothing."""
        if self._closed or self.link.is_foreign:
            return
        self._closed = True
        self.link.send(self._subject, [goodbye()])
        for stream in list(self._published):
            self._leave(stream)
        self.link.leave(self)
        drop_link(self.link)

    # On the thread of the hub

    def received(self, subject: str, data: bytes) -> None:
        """Take a chunk in."""
        if self._over != "sent":
            return
        self.heard_s = time.monotonic()
        try:
            kind = kind_of(data)
            if kind == LEFT:
                self._end("lost" if is_broken(data) else "gone")
            elif kind == LISTEN:
                self._listen(stream_of(data)[0])
            elif kind == ENTER:
                self._enter(*stream_of(data))
            elif kind == LEAVE:
                self._leave(stream_of(data)[0])
            elif (message := self._dialogue.add(data)) is not None:
                self._put(message, published=False)
        except WireError:
            self._end("lost")

    def take(self, message: WholeMessage) -> None:
        """Take in what was published; if it is not read for too long, leave it out: its records count as lost."""
        n, n_bytes = self._n_came - self._n_taken, self._came_bytes - self._taken_bytes
        if n < MAX_UNREAD and n_bytes < MAX_UNREAD_BYTES:
            self._n_came += 1
            self._came_bytes += message.size
            self._put(message, published=True)

    def broken(self, reason: str) -> None:
        """Learn that the connection is lost."""
        self._end("lost")

    def beat(self) -> None:
        """Do nothing: the connection to the run renews its lease itself."""

    def _put(self, message: WholeMessage, *, published: bool) -> None:
        self._inbox.append((message, published))
        self._event.set()

    def _listen(self, stream: int) -> None:
        """Listen to a stream that is published, then say so: on one connection, the hub keeps this order."""
        if stream in self._published or len(self._published) >= MAX_PUBLISHED:
            return
        published = PublishedStream(self, f"{self._run}.{stream}")
        self.link.join(published)
        self._published[stream] = published
        self.link.send(self._subject, [about(LISTEN, stream)])
        if self._closed:  # by another thread, which may not have seen this stream
            self._leave(stream)

    def _enter(self, stream: int, first: int) -> None:
        if stream in self._published:
            self._published[stream].assembler = Assembler(MAX_MESSAGE_BYTES, first=first)

    def _leave(self, stream: int) -> None:
        published = self._published.pop(stream, None)
        if published is not None:
            published.assembler = None
            self.link.leave(published)

    def _end(self, over: Sent) -> None:
        self._over = over
        self._event.set()


class PublishedStream:
    """A stream that a channel listens to.

    Attributes:
        subjects: Where it is published.
        assembler: Puts its messages together while the channel takes them; `None` while it does not.
    """

    def __init__(self, channel: NatsChannel, subject: str) -> None:
        self.subjects: Sequence[str] = (subject,)
        self.assembler: Assembler | None = None
        self._channel = channel

    def received(self, subject: str, data: bytes) -> None:
        """Take a chunk in. If chunks are lost, the connection is: what the run still has of them comes again."""
        assembler = self.assembler
        try:
            if assembler is not None and (message := assembler.add(data)) is not None:
                self._channel.take(message)
        except WireError:
            self._channel.broken("chunks of a published stream are lost")

    def broken(self, reason: str) -> None:
        """Do nothing: the channel learns of it, too."""

    def beat(self) -> None:
        """Do nothing."""
