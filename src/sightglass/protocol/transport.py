"""Transports: how bytes move between a run and a client. Two small protocols, and a transport within one process.

A `Listener` is the run's end and serves many peers; a `Channel` is a client's end. Messages are lists of frames. They
arrive in order, complete or not at all. Sending never blocks: it returns whether the message was taken. Every
implementation passes one contract suite (`tests/contracts/test_transport.py`).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol, runtime_checkable

from sightglass.core.errors import TransportError
from sightglass.core.process.unpatched import threading

Frames = Sequence[bytes | bytearray | memoryview]
Sent = Literal["sent", "full", "gone", "lost"]
"""The result of sending: taken, refused because the peer's queue is full, the peer has left, or the channel broke.

Only channels break: messages of either end may be lost, so a client connects again.
"""

MAX_QUEUED_BYTES: Final = 4 * 2**20  # beyond, one message at a time: a transport may hold more for each client of a run
MEMORY: Final = b"memory-"  # the names of peers in this process
MAX_QUEUED: Final = 64  # messages; enough to keep a client busy, few enough that a slow one is noticed soon


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that was received.

    Attributes:
        peer: The sender, as `send` takes it.
        frames: The message.
        may_command: Whether the peer has a controller's key.
        user: Whose peer it is, as far as the transport can tell: the key of a connection file, or the user of a hub. On
            the local socket it is empty: all are this user's.
    """

    peer: bytes
    frames: Frames
    may_command: bool
    user: str = ""


class Listener(Protocol):
    """The run's end."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something was received, for at most this long, or until `wake`."""

    def receive(self) -> list[Delivery]:
        """Return the messages received, without waiting."""

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer, without waiting."""

    def wake(self) -> None:
        """End a `wait`, or the next one; from any thread."""

    def close(self) -> None:
        """Stop listening; messages that were sent may still be delivered for a moment."""


class Channel(Protocol):
    """A client's end."""

    def wait(self, timeout_s: float) -> None:
        """Wait until something was received, for at most this long, or until `wake`."""

    def receive(self) -> list[Frames]:
        """Return the messages received, without waiting."""

    def send(self, frames: Frames) -> Sent:
        """Send to the run, without waiting; only from the thread that receives."""

    def wake(self) -> None:
        """End a `wait`, or the next one; from any thread."""

    def close(self) -> None:
        """Disconnect."""


@runtime_checkable
class Publisher(Protocol):
    """What a listener may be able to do, too: send a message of a stream once to all who read it.

    A peer that is invited listens as soon as it can. Until it has entered, and after it was dismissed, it takes nothing
    of what is published. It gets what it takes and what it is sent in the order in which both were sent.
    """

    def reaches(self, peer: bytes) -> bool:
        """Return whether this peer may read what is published."""

    def enter(self, peer: bytes, stream: int) -> bool:
        """Let a peer take what is published from now on, or invite it; return whether it does."""

    def dismiss(self, peer: bytes, stream: int) -> None:
        """Let a peer take nothing more of what is published."""

    def publish(self, stream: int, frames: Frames) -> Sent:
        """Send to all who have entered, without waiting."""


class MemoryListener:
    """The run's end for clients in the same process.

    Attributes:
        refusal: Why no client can connect, or empty.
    """

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        """Start listening; `notify` is called for each message, for a listener that waits elsewhere."""
        self._inbox: deque[Delivery] = deque()
        self._event = threading.Event()
        self._notify = notify
        self._channels: dict[bytes, MemoryChannel] = {}
        self._numbers = itertools.count()
        self._closed = False
        self.refusal = ""

    def connect(self) -> MemoryChannel:
        """Return a new client's end.

        Raises:
            TransportError: The listener is closed, or nothing serves it.
        """
        if self.refusal:
            raise TransportError(self.refusal)
        if self._closed:
            raise TransportError("Expected an open listener; the run has ended")
        peer = MEMORY + b"%d" % next(self._numbers)
        channel = self._channels[peer] = MemoryChannel(self, peer)
        return channel

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        if not self._inbox:
            self._event.wait(timeout_s)

    def receive(self) -> list[Delivery]:
        """Return the messages received."""
        if self._event.is_set():  # clearing takes two locks, and is rarely necessary
            self._event.clear()
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        channel = self._channels.get(peer)
        return "gone" if channel is None else channel._deliver(frames)

    def wake(self) -> None:
        """End a wait."""
        self._event.set()

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        for channel in list(self._channels.values()):
            channel.wake()

    def _take(self, peer: bytes, frames: Frames) -> Sent:
        if self._closed or peer not in self._channels:
            return "gone"
        self._inbox.append(Delivery(peer, frames, True))
        (self._notify or self.wake)()
        return "sent"

    def _leave(self, peer: bytes) -> None:
        self._channels.pop(peer, None)


class MemoryChannel:
    """A client's end in the process of the run."""

    def __init__(self, listener: MemoryListener, peer: bytes) -> None:
        self._listener = listener
        self._peer = peer
        self._inbox: deque[Frames] = deque()
        self._n_bytes = 0  # since the inbox was last empty
        self._event = threading.Event()

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        if not self._inbox:
            self._event.wait(timeout_s)

    def receive(self) -> list[Frames]:
        """Return the messages received."""
        self._event.clear()
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def send(self, frames: Frames) -> Sent:
        """Send to the run."""
        return self._listener._take(self._peer, frames)

    def wake(self) -> None:
        """End a wait."""
        self._event.set()

    def close(self) -> None:
        """Disconnect."""
        self._listener._leave(self._peer)
        self.wake()

    def _deliver(self, frames: Frames) -> Sent:
        if not self._inbox:
            self._n_bytes = 0
        if len(self._inbox) >= MAX_QUEUED or self._n_bytes >= MAX_QUEUED_BYTES:
            return "full"
        self._n_bytes += sum(map(len, frames))
        self._inbox.append(frames)
        self._event.set()
        return "sent"


class Both:
    """Two listeners behind a single `receive`. Messages of the inner one wake the outer one, which waits for both.

    Attributes:
        publisher: The one of them that can publish, or `None`.
    """

    def __init__(self, outer: Listener, inner: Listener, prefix: bytes) -> None:
        """Join them; the names of the inner one's peers, and no others, begin with `prefix`."""
        self._outer, self._inner, self._prefix = outer, inner, prefix
        self.publisher = publisher_of(inner) or publisher_of(outer)

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        self._outer.wait(timeout_s)

    def receive(self) -> list[Delivery]:
        """Return the messages received."""
        outer = self._outer.receive()  # first: it clears what woke it
        return [*self._inner.receive(), *outer]

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        return (self._inner if peer.startswith(self._prefix) else self._outer).send(peer, frames)

    def wake(self) -> None:
        """End a wait."""
        self._outer.wake()

    def close(self) -> None:
        """Stop listening."""
        self._inner.close()
        self._outer.close()


def publisher_of(listener: Listener) -> Publisher | None:
    """Return what publishes for a listener; `None` if each of its peers is sent a copy."""
    return listener if isinstance(listener, Publisher) else getattr(listener, "publisher", None)
