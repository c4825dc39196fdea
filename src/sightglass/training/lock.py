"""The lock of a run: queries are evaluated under it, and subscriptions change under it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final

HANDOVER_S: Final = 0.0002  # long enough for a waiting thread to wake up and take the lock, short beside an event


class TurnLock:
    """A mutex that the training thread holds often and briefly, and that other threads get when they wait for it.

    Python's locks are not fair: a thread that releases one and takes it again at once starves all others. Other threads
    therefore take a `turn`, which is counted, and the training thread gives way after an event while any of them waits.

    Attributes:
        mutex: Held by the training thread while queries are evaluated.
        n_waiting: How many threads wait for a turn.
        handover_s: For how long the training thread gave way since the last review of the budget.
    """

    __slots__ = ("handover_s", "mutex", "n_waiting")

    def __init__(self) -> None:
        self.mutex = threading.RLock()
        self.n_waiting = 0
        self.handover_s = 0.0

    @property
    def held(self) -> bool:
        """Whether this thread holds the mutex."""
        return bool(self.mutex._is_owned())  # type: ignore[attr-defined]  # as `threading.Condition` asks

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the mutex, as a thread other than the training thread."""
        mutex = self.mutex
        if not mutex.acquire(blocking=False):
            self.n_waiting += 1
            try:
                mutex.acquire()
            finally:
                self.n_waiting -= 1
        try:
            yield
        finally:
            mutex.release()

    def give_way(self) -> None:
        """Let waiting threads take the mutex; call it without holding the mutex."""
        if self.n_waiting:
            self.handover_s += HANDOVER_S  # what it takes beyond that, the thread waits for a processor
            time.sleep(HANDOVER_S)

    def abandon(self) -> None:
        """Start over in a forked child, where the threads that held the mutex do not exist."""
        self.mutex = threading.RLock()
        self.n_waiting = 0
