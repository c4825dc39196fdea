"""A hub as a transport: runs and clients that meet on a NATS server.

A client has one subject to speak under and one to listen to; their names tell who it is. A server that knows its users
lets each publish under their own name only, and viewers not under `command`: so the subject of a message says who sent
it, and what they may do. docs/wire.md has the table of all subjects.

What several clients read is published once, under a subject of the stream. Each takes it from one place in its dialogue
to another, which pieces of the dialogue say (`Publisher`). The hub keeps the order of all that a run sends to a client.

NATS delivers a message at most once and tells a sender nothing about a slow reader. So each end numbers its pieces and
says what it has read (`pieces.Dialogue`). If pieces are lost, or the connection to the hub, the dialogue is over. A
client then connects again, and its streams go on with the next record, as after any lost connection.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final

from sightglass.core.errors import WireError
from sightglass.core.unpatched import threading

from .hub_address import HubAddress, checked_token
from .hub_link import drop_link, use_link
from .messages import MAX_CLIENT_MESSAGE_BYTES, MAX_MESSAGE_BYTES
from .pieces import (
    ENTER,
    LEAVE,
    LEFT,
    LISTEN,
    READ,
    Allowance,
    Cutter,
    Dialogue,
    WholeMessage,
    about,
    goodbye,
    is_first,
    kind_of,
    stream_of,
)  # fmt: skip
from .transport import MAX_QUEUED, MAX_QUEUED_BYTES, Delivery, Frames, Sent

ROOT: Final = "sightglass"
TO_CLIENT: Final = Allowance(MAX_QUEUED, MAX_QUEUED_BYTES, MAX_MESSAGE_BYTES)
TO_RUN: Final = Allowance(1_000, MAX_QUEUED_BYTES, MAX_CLIENT_MESSAGE_BYTES)  # many small requests, as over ZeroMQ
MAX_TAKEN: Final = 100  # messages in one turn, so that sending gets its turn too
MAX_PEERS: Final = 2_000  # more than a run serves, so that a refusal reaches who is refused
MAX_HELD_BYTES: Final = 256 * 2**20  # of all clients together: four of the largest messages of a client
SILENT_S: Final = 60.0  # five leases: a client that says nothing for so long has been forgotten by the agent
PEER: Final = b"hub-"


class HubPeer:
    """A client of a run.

    Attributes:
        subject: What it listens to.
        may_command: Whether it speaks under a subject of controllers.
        dialogue: The messages with it.
        heard_s: When it last said something.
        invited: The streams that it was asked to listen to.
        listens: Those of them that it listens to.
    """

    __slots__ = ("dialogue", "heard_s", "invited", "listens", "may_command", "subject")

    def __init__(self, subject: str, *, may_command: bool) -> None:
        self.subject = subject
        self.may_command = may_command
        self.dialogue = Dialogue(out=TO_CLIENT, into=TO_RUN)
        self.heard_s = time.monotonic()
        self.invited: set[int] = set()
        self.listens: set[int] = set()


class NatsListener:
    """The agent's end on a hub. It serves clients whenever there is a connection, and waits for none.

    Attributes:
        link: The connection to the hub.
        subjects: What it listens to.
        n_broken: How many clients it gave up, since pieces were lost, or since they sent what they may not.
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
            if (piece := peer.dialogue.read(message)) is not None:
                self.link.send(peer.subject, [piece])
            deliveries.append(Delivery(name, message, peer.may_command))
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
        pieces = found.dialogue.cut(frames, self.link.max_piece_bytes)
        if pieces is None:
            return "full"
        return "sent" if self.link.send(found.subject, pieces) else "gone"

    def reaches(self, peer: bytes) -> bool:
        """Return whether a peer is one of this hub."""
        return peer in self._peers

    def enter(self, peer: bytes, stream: int) -> bool:
        """Let a peer take what is published, once it listens. See `Publisher`."""
        found = self._peers.get(peer)
        if found is None:
            return False
        if stream in found.listens:
            first = self._published[stream].n_pieces
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
        pieces = self._published[stream].cut(frames, self.link.max_piece_bytes)
        return "sent" if self.link.send(f"{self._publishes}.{stream}", pieces) else "gone"

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
        """Take a piece in."""
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
                peer = self._peers[name] = HubPeer(f"{ROOT}.answer.{user}.{client}", may_command=kind == "command")
                self._add(name, peer, data)
            else:  # it speaks with a run that has forgotten it, such as after the hub was away
                self.link.send(f"{ROOT}.answer.{user}.{client}", [goodbye(broken=True)])
        except WireError:
            self.n_broken += 1
            self._forget(name)
            self.link.send(f"{ROOT}.answer.{user}.{client}", [goodbye(broken=True)])

    def broken(self, reason: str) -> None:
        """Forget all clients: pieces of any of them may be lost."""
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
