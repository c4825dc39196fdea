"""The memory that a run holds for its queries: between events, and on its way to clients."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final, Protocol

COUNTED_FOR_S: Final = 0.05  # to count takes microseconds for each query, and a run may have thousands


class MemoryHolder(Protocol):
    """A query, or what holds copies for one."""

    @property
    def held_bytes(self) -> int:
        """The bytes that it holds between events."""

    @property
    def waiting_bytes(self) -> int:
        """The bytes of its results that wait for a device or for the io thread."""

    @property
    def peak_bytes(self) -> int:
        """The bytes that its evaluation holds besides."""


class HeldMemory:
    """What reducers and copies of observables hold, and results that are on their way.

    The account is counted now and then, from what is alive. So nothing has to be given back when a query ends; what is
    added in between counts in full.

    Attributes:
        n_bytes: The bytes that are held between events.
        waiting_bytes: The bytes of results that leave soon.
        peak_bytes: The most that the evaluation of one query holds besides.
    """

    __slots__ = ("_counted_s", "_holders", "_now_s", "n_bytes", "peak_bytes", "waiting_bytes")

    def __init__(
        self, holders: Callable[[], Iterable[MemoryHolder]] = tuple, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.n_bytes = self.waiting_bytes = self.peak_bytes = 0
        self._holders = holders
        self._now_s = now_s
        self._counted_s = -COUNTED_FOR_S

    def count(self) -> None:
        """Bring the account up to date, unless it was counted just now."""
        now_s = self._now_s()
        if now_s - self._counted_s < COUNTED_FOR_S:
            return
        self._counted_s = now_s
        holders = list(self._holders())
        self.n_bytes = sum(holder.held_bytes for holder in holders)
        self.waiting_bytes = sum(holder.waiting_bytes for holder in holders)
        self.peak_bytes = max((holder.peak_bytes for holder in holders), default=0)

    def add(self, n_bytes: int) -> None:
        """Add what is held from now on."""
        self.n_bytes += n_bytes


class SharedBytes:
    """The bytes of messages in the queues of several clients. A message counts once, however many wait for it.

    Attributes:
        n_bytes: The bytes of all messages.
    """

    __slots__ = ("_n_queues", "n_bytes")

    def __init__(self) -> None:
        self.n_bytes = 0
        self._n_queues: dict[int, int] = {}  # by `id` of messages, which the queues keep alive

    def hold(self, message: object, n_bytes: int) -> None:
        """Count a message that one more queue holds."""
        n = self._n_queues.get(id(message), 0)
        self._n_queues[id(message)] = n + 1
        self.n_bytes += 0 if n else n_bytes

    def release(self, message: object, n_bytes: int) -> None:
        """Count a message that a queue holds no more."""
        n = self._n_queues.pop(id(message)) - 1
        if n:
            self._n_queues[id(message)] = n
        else:
            self.n_bytes -= n_bytes
