"""The lock of a run: queries are evaluated under it, and subscriptions change under it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from sightglass.core.process.unpatched import threading, time

HANDOVER_S: Final = 0.0002  # long enough for a waiting thread to wake up and take the lock, short beside an event


class TurnLock:
    """A mutex that the training thread holds often and briefly, and that other threads get when they wait for it.

    Python's locks are not fair: a thread that releases one and takes it again at once starves all others. Other threads
    therefore take a `turn`, which is counted. If one of them still waits after a second event, the training thread
    gives way. A program that does something between its events does not: the other thread has its turn meanwhile.

    Attributes:
        mutex: Held by the training thread while queries are evaluated.
        n_waiting: How many threads wait for a turn.
        handover_s: For how long the training thread gave way since the last review of the budget.
    """

    __slots__ = ("_n_turns", "_n_turns_seen", "handover_s", "mutex", "n_waiting")

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.n_waiting = 0
        self.handover_s = 0.0
        self._n_turns, self._n_turns_seen = 0, -1

    @property
    def held(self) -> bool:
        """Whether this thread holds the mutex."""
        return bool(self.mutex._is_owned())  # type: ignore[attr-defined]  # as `threading.Condition` asks

    @contextlib.contextmanager
    def turn(self, timeout_s: float = -1) -> Iterator[bool]:
        """Hold the mutex, as a thread other than the training thread; yield whether it came within the time."""
        mutex = self.mutex
        held = mutex.acquire(blocking=False)
        if not held:
            self.n_waiting += 1
            try:
                held = mutex.acquire(timeout=timeout_s)
            finally:
                self.n_waiting -= 1
                self._n_turns += 1
        try:
            yield held
        finally:
            if held:
                mutex.release()

    def give_way(self) -> None:
        """Let a thread take the mutex that waited at the last event already; call it without holding the mutex."""
        if self.n_waiting:
            if self._n_turns_seen == self._n_turns:
                self.handover_s += HANDOVER_S  # what it takes beyond that, the thread waits for a processor
                time.sleep(HANDOVER_S)
            self._n_turns_seen = self._n_turns

    def abandon(self) -> None:
        """Start over in a forked child, where the threads that held the mutex do not exist."""
        self.mutex = threading.RLock()
        self.n_waiting = 0
