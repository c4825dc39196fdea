"""The messages that wait to be sent to a run, in bounded memory: a run that is stopped takes none."""

from __future__ import annotations

from collections import deque
from typing import Final

from sightglass.core.unpatched import threading
from sightglass.protocol.transport import Frames

# libzmq takes as many before any wait here, and a program that works asks less in the time in which a run answers.
MAX_WAITING: Final = 1_000
# One message of the largest size that a client may send still fits; it may wait alone if it is larger.
MAX_WAITING_BYTES: Final = 64 * 2**20


class MessageQueue:
    """A bounded queue of messages. Any thread may put; one takes."""

    def __init__(self) -> None:
        """Begin empty."""
        self._messages: deque[Frames] = deque()
        self._n_bytes = 0
        self._room = threading.Condition()
        self._closed = False

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, frames: Frames) -> None:
        """Append a message of the connection itself, of which there are few: two for each stream, and a ping."""
        with self._room:
            self._append(frames)

    def offer(self, frames: Frames, *, timeout_s: float = 0.0) -> bool:
        """Append a message if there is room, or as soon as there is; return whether it was appended."""
        size = _size(frames)
        with self._room:
            there = self._room.wait_for(lambda: self._closed or self._has_room(size), timeout_s)
            if there:
                self._append(frames)
            return there

    def first(self) -> Frames:
        """Return the oldest message."""
        return self._messages[0]

    def pop(self) -> None:
        """Remove the oldest message: it was sent."""
        with self._room:
            self._n_bytes -= _size(self._messages.popleft())
            self._room.notify()

    def close(self) -> None:
        """Drop all messages: the connection has ended. What is put later is dropped, too."""
        with self._room:
            self._closed, self._n_bytes = True, 0
            self._messages.clear()
            self._room.notify_all()

    def _has_room(self, size: int) -> bool:
        fits = len(self._messages) < MAX_WAITING and self._n_bytes + size <= MAX_WAITING_BYTES
        return fits or not self._messages

    def _append(self, frames: Frames) -> None:
        if not self._closed:
            self._messages.append(frames)
            self._n_bytes += _size(frames)


def _size(frames: Frames) -> int:
    return sum(map(len, frames))
