"""What moves bytes between agent and client: two small protocols, and the pair that needs no network.

A `Listener` is the agent's end and serves many peers, a `Channel` is a client's end. Messages are lists of frames, in
order, whole or not at all. Sending never blocks: it says what became of the message. Every implementation passes one
contract suite (`tests/contracts/test_transport.py`).
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from sightglass.core.errors import TransportError

Frames = Sequence[bytes | bytearray | memoryview]
Sent = Literal["sent", "full", "gone"]
"""What became of a message: taken, refused because the peer's queue is full, or the peer is not there any more."""

MAX_QUEUED: Final = 64


@dataclass(frozen=True, slots=True)
class Delivery:
    """A message that came in.

    Attributes:
        peer: Who sent it; good for `send`.
        frames: The message.
        may_command: Whether the peer has a controller's key.
    """

    peer: bytes
    frames: Frames
    may_command: bool


class Listener(Protocol):
    """The agent's end."""

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return what came in, waiting for at most this long, or until `wake`."""

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer, at once or not at all."""

    def wake(self) -> None:
        """End a `receive` that waits; from any thread."""

    def close(self) -> None:
        """Stop listening; what was sent may still be delivered for a moment."""


class Channel(Protocol):
    """A client's end."""

    def receive(self, timeout_s: float) -> list[Frames]:
        """Return what came in, waiting for at most this long, or until `wake`."""

    def send(self, frames: Frames) -> Sent:
        """Send to the agent, at once or not at all; from the thread that receives."""

    def wake(self) -> None:
        """End a `receive` that waits; from any thread."""

    def close(self) -> None:
        """Leave."""


class MemoryListener:
    """The agent's end for clients in the same process."""

    def __init__(self, notify: Callable[[], None] | None = None) -> None:
        """Make the end; `notify` is called when something comes in, for a listener that waits elsewhere."""
        self._inbox: deque[Delivery] = deque()
        self._event = threading.Event()
        self._notify = notify
        self._channels: dict[bytes, MemoryChannel] = {}
        self._numbers = itertools.count()
        self._closed = False

    def connect(self) -> MemoryChannel:
        """Return a new client's end.

        Raises:
            TransportError: The listener is closed.
        """
        if self._closed:
            raise TransportError("Expected a listener that is open; the run has ended")
        peer = b"memory-%d" % next(self._numbers)
        channel = self._channels[peer] = MemoryChannel(self, peer)
        return channel

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return what came in."""
        if not self._inbox and timeout_s > 0:
            self._event.wait(timeout_s)
        if self._event.is_set():  # to clear takes two locks, and is nearly always for nothing
            self._event.clear()
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        channel = self._channels.get(peer)
        return "gone" if channel is None else channel._deliver(frames)

    def wake(self) -> None:
        """End a `receive` that waits."""
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
    """A client's end in the process of the agent."""

    def __init__(self, listener: MemoryListener, peer: bytes) -> None:
        self._listener = listener
        self._peer = peer
        self._inbox: deque[Frames] = deque()
        self._event = threading.Event()

    def receive(self, timeout_s: float) -> list[Frames]:
        """Return what came in."""
        if not self._inbox and timeout_s > 0:
            self._event.wait(timeout_s)
        self._event.clear()
        return [self._inbox.popleft() for _ in range(len(self._inbox))]

    def send(self, frames: Frames) -> Sent:
        """Send to the agent."""
        return self._listener._take(self._peer, frames)

    def wake(self) -> None:
        """End a `receive` that waits."""
        self._event.set()

    def close(self) -> None:
        """Leave."""
        self._listener._leave(self._peer)
        self.wake()

    def _deliver(self, frames: Frames) -> Sent:
        if len(self._inbox) >= MAX_QUEUED:
            return "full"
        self._inbox.append(frames)
        self._event.set()
        return "sent"


class Both:
    """A listener of its own beside the one in memory: one `receive` for the two."""

    def __init__(self, outer: Listener) -> None:
        self._outer = outer
        self.memory = MemoryListener(notify=outer.wake)

    def receive(self, timeout_s: float) -> list[Delivery]:
        """Return what came in."""
        inner = self.memory.receive(0)
        return [*inner, *self._outer.receive(0 if inner else timeout_s), *self.memory.receive(0)]

    def send(self, peer: bytes, frames: Frames) -> Sent:
        """Send to one peer."""
        return self.memory.send(peer, frames) if peer.startswith(b"memory-") else self._outer.send(peer, frames)

    def wake(self) -> None:
        """End a `receive` that waits."""
        self._outer.wake()

    def close(self) -> None:
        """Stop listening."""
        self.memory.close()
        self._outer.close()
