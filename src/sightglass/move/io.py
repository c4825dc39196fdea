"""The `io` thread of a run: sockets on one side, the agent's inbox on the other, and nothing else.

Each client has a bounded queue here. When it is full the oldest records in it are dropped, and counted; answers to requests
never are. The client sees the loss by the gap in the records' index numbers.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from ..core.clock import Clock
from ..core.sink import Background
from .agent import Agent, Outgoing
from .transport import Frames, Listener

IDLE_S: Final = 0.25
RETRY_S: Final = 0.005
TICK_S: Final = 1.0
LATE_S: Final = 1.0
MAX_OUTBOX_BYTES: Final = 64 * 2**20
MAX_OUTBOX_MESSAGES: Final = 20_000
BLOCK_TAG: Final = b"\xa5block"

Queued = tuple[Frames, int, bool]


@dataclass(slots=True)
class Outbox:
    """What one client has not been sent yet; records are dropped from the front when it is too much."""

    queue: deque[Queued] = field(default_factory=deque)
    n_bytes: int = 0
    n_dropped: int = 0

    def put(self, frames: Frames) -> None:
        """Append a message."""
        size = sum(len(frame) for frame in frames)
        self.queue.append((frames, size, is_block(frames)))
        self.n_bytes += size
        if self.n_bytes > MAX_OUTBOX_BYTES or len(self.queue) > MAX_OUTBOX_MESSAGES:
            self._shrink()

    def _shrink(self) -> None:
        kept: deque[Queued] = deque()
        excess_bytes, excess = self.n_bytes - MAX_OUTBOX_BYTES // 2, len(self.queue) - MAX_OUTBOX_MESSAGES // 2
        for entry in self.queue:
            if entry[2] and (excess_bytes > 0 or excess > 0):
                excess_bytes -= entry[1]
                excess -= 1
                self.n_bytes -= entry[1]
                self.n_dropped += 1
            else:
                kept.append(entry)
        self.queue = kept


def is_block(frames: Frames) -> bool:
    """Tell whether a message carries records, by its header: an array that begins with the type's tag, here a short text."""
    return BLOCK_TAG in bytes(frames[0][: len(BLOCK_TAG) + 5])


class Io:
    """The thread that serves a run's clients."""

    def __init__(self, listener: Listener, agent: Agent, *, clock: Clock) -> None:
        self._listener = listener
        self._agent = agent
        self._clock = clock
        self._outboxes: dict[bytes, Outbox] = {}
        self._ticked_s = self._turned_s = clock.monotonic()
        self._closing = ""
        self._thread = Background("io", self._run)

    def wake(self) -> None:
        """Let the thread look for records at once; from any thread."""
        self._listener.wake()

    def close(self, reason: str, *, timeout_s: float = 3.0) -> None:
        """Send what is there, say goodbye, and close the listener; waits for at most `timeout_s`."""
        self._closing = reason
        self._listener.wake()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._closing:
            waiting = any(outbox.queue for outbox in self._outboxes.values())
            for delivery in self._listener.receive(RETRY_S if waiting else IDLE_S):
                self._queue(self._agent.receive(delivery))
            self._queue(self._agent.flush())
            self._tick()
            self._send()
        self._finish()

    def _tick(self) -> None:
        """Let leases end, unless this thread was held up itself: then it first reads what clients sent meanwhile."""
        now_s = self._clock.monotonic()
        if now_s - self._turned_s > LATE_S:
            self._ticked_s = now_s
        self._turned_s = now_s
        if now_s - self._ticked_s >= TICK_S:
            self._ticked_s = now_s
            self._queue(self._agent.tick())

    def _finish(self) -> None:
        """Give the last records and the goodbye a moment to get through."""
        self._queue(self._agent.flush())
        self._queue(self._agent.end(self._closing))
        deadline_s = self._clock.monotonic() + 1.0
        self._send()
        while any(outbox.queue for outbox in self._outboxes.values()) and self._clock.monotonic() < deadline_s:
            self._listener.receive(RETRY_S)
            self._send()
        self._listener.close()

    def _queue(self, outgoing: Outgoing) -> None:
        for peer, frames in outgoing:
            self._outboxes.setdefault(peer, Outbox()).put(frames)

    def _send(self) -> None:
        for peer, outbox in list(self._outboxes.items()):
            while outbox.queue:
                frames, size, _ = outbox.queue[0]
                sent = self._listener.send(peer, frames)
                if sent == "full":
                    break
                if sent == "gone":
                    self._agent.leave(peer)
                    outbox.queue.clear()
                    break
                outbox.queue.popleft()
                outbox.n_bytes -= size
            if not outbox.queue and peer not in self._agent.clients:
                del self._outboxes[peer]
