"""Outboxes: what waits here is delivered on a thread of its own.

Rule 1: who puts something in never waits, and never hears of a failure: a full disk must not stop a training.
Rule 2: what is put in is delivered in order. At most `MAX_WAITING` things of `MAX_WAITING_BYTES` wait; what comes
beyond that is lost, counted, and told.
Rule 3: what cannot be delivered is lost, and what comes after it is delivered all the same. The first failure is warned
of, all are counted, and the next `flush` or `close` raises.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from sightglass.core.errors import StorageError
from sightglass.core.threads import Worker

T = TypeVar("T")

MAX_WAITING: Final = 200_000
MAX_WAITING_BYTES: Final = 256 * 2**20
BREATH_ITEMS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryStatistics:
    """What became of the things that were put in.

    Attributes:
        n_delivered: How many were delivered.
        n_lost: How many could not be, or found no room.
        n_waiting: How many are on their way.
        last_error: What went wrong last, or empty.
    """

    n_delivered: int
    n_lost: int
    n_waiting: int
    last_error: str


class DeliveryQueue(Generic[T]):
    """Delivers things on a thread of its own, which starts with the first of them.

    Args:
        name: Whose it is, for warnings and errors.
        deliver: Called with each thing, on the thread; what it raises is told.
        settle: Called by a flush, behind what came before it.
        end: Called once, behind everything; by whoever closes it if there never was a thread.
    """

    def __init__(
        self,
        name: str,
        deliver: Callable[[T], None],
        *,
        settle: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._deliver = deliver
        self._settle = settle
        self._end = end
        self._worker = Worker(name, self._work)
        self._items: deque[tuple[T, int]] = deque()
        self._n_bytes_put = self._n_bytes_taken = self._n_delivered = self._n_lost = self._n_lost_told = 0
        self._asleep = True
        self._last_error = self._failure = ""
        self._warned = self._settling = self._used = self._closed = self._ended = False

    @property
    def closed(self) -> bool:
        """Whether nothing can be put in any more."""
        return self._closed

    def put(self, item: T, n_bytes: int = 0) -> None:
        """Let something be delivered.

        Args:
            item: It must not be changed any more.
            n_bytes: How many bytes it takes, about.
        """
        with self._worker.lock:
            n_waiting = len(self._items)
            size = self._n_bytes_put - self._n_bytes_taken + n_bytes
            full = n_waiting >= MAX_WAITING or (n_waiting > 0 and size > MAX_WAITING_BYTES)
            if not (full or self._closed):
                self._items.append((item, n_bytes))
                self._n_bytes_put += n_bytes
                self._used = True
        if full or self._closed:
            self._lose("it is closed" if self._closed else "too much waits to be written", n=1)
        elif self._asleep:
            self._asleep = False
            self._worker.wake()

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was put in is delivered.

        Raises:
            StorageError: It is not, or something was lost since this was last raised.
        """
        if self._used and not self._closed:
            self._settling = True
            self._check(self._worker.round(timeout_s), timeout_s)

    def close(self, timeout_s: float) -> None:
        """Deliver what is left, and end; closing twice does nothing. Errors as in `flush`."""
        if self._closed:
            return
        with self._worker.lock:
            self._closed = True
        finished = True
        if self._used:
            self._settling = True
            finished = self._worker.close(timeout_s)
        else:
            self._try(self._end)
        self._check(finished, timeout_s)

    def statistics(self) -> DeliveryStatistics:
        """Return what was counted so far."""
        return DeliveryStatistics(
            n_delivered=self._n_delivered,
            n_lost=self._n_lost,
            n_waiting=len(self._items),
            last_error=self._last_error,
        )

    def _work(self) -> float | None:
        closing, settling = self._closed, self._settling
        self._settling = False
        for i in range(len(self._items)):
            if i % BREATH_ITEMS == BREATH_ITEMS - 1:
                self._worker.breathe()
            item, n_bytes = self._items.popleft()  # without the lock, for which a callback would have to wait
            try:
                self._deliver(item)
                self._n_delivered += 1
            except Exception as error:  # noqa: BLE001  whatever a sink raises must not end the thread
                self._lose(_told(error), n=1)
            self._n_bytes_taken += n_bytes
        if settling:
            self._try(self._settle)
        if closing and not self._ended:
            self._ended = True
            self._try(self._end)
        self._asleep = True  # said before it is looked whether something has come, so that nothing is slept over
        return 0.0 if self._items and not closing else None

    def _try(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001  as above
            self._lose(_told(error), n=0)

    def _lose(self, why: str, *, n: int) -> None:
        with self._worker.lock:
            self._n_lost += n
            self._last_error = self._failure = why
            first, self._warned = not self._warned, True
        if first:
            with contextlib.suppress(Warning):  # whoever makes errors of warnings is not to lose more by it
                warnings.warn(
                    f"{self._name}: not all can be written: {why}; further errors are counted, and raised by flush() "
                    "and close()",
                    RuntimeWarning,
                    stacklevel=4,
                )

    def _check(self, finished: bool, timeout_s: float) -> None:
        why, self._failure = self._failure, ""
        n_lost, self._n_lost_told = self._n_lost - self._n_lost_told, self._n_lost
        if self._worker.error is not None:
            why = f"the thread has failed: {self._worker.error!r}"
        elif not finished:
            why = f"not within {timeout_s:g} s, {len(self._items)} wait"
        if why:
            raise StorageError(f"{self._name}: not all could be written, {n_lost} lost: {why}")


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"
