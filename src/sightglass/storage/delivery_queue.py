"""A queue whose items are delivered on a thread of its own.

* `put` never waits and never raises a failure of the delivery: a full disk must not stop a training.
* Items are delivered in order. At most `MAX_WAITING` items of `MAX_WAITING_BYTES` wait; further ones are dropped,
  counted and reported.
* An item that cannot be delivered is dropped, and the next ones are delivered all the same. The first failure is a
  warning, all are counted, and the next `flush` or `close` raises.
* A value of a kind that the sink does not hold (`UnsendableError`) is not a failure: it is left out, counted, and named
  in one warning.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar, runtime_checkable

from sightglass.core.columns import Record
from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError, UnsendableError, warn
from sightglass.core.process.threads import UNTIL_WOKEN, Worker

T = TypeVar("T")

MAX_WAITING: Final = 200_000  # minutes of a fast training's records, while a sink hangs
MAX_WAITING_BYTES: Final = 256 * 2**20
MAX_NAMED: Final = 100  # warnings of what is left out: tags may have ever new names
BREATH_ITEMS: Final = 32  # a delivery takes about 10 us, so the training waits at most a third of a millisecond


class Waits(Protocol):
    """Delivers something, and can be waited for."""

    def wait(self, timeout_s: float | None, /) -> bool:
        """Wait until everything is delivered, and return whether it is; raises nothing."""


class DeliveryQueue(Generic[T]):
    """Delivers items on a thread of its own, which starts with the first item.

    Args:
        name: The name of the queue, for warnings and errors.
        deliver: Called with each item, on the thread; its exceptions are reported.
        settle: Called by a flush, after the items that were put before it.
        end: Called once, at the end; by `close` itself if no thread was started.
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
        self._worker = Worker(name, self.round)
        self._items: deque[tuple[T, int, int]] = deque()
        self._n_bytes_put = self._n_bytes_taken = self._n_events = self._n_dropped = self._n_dropped_reported = 0
        self._asleep = True
        self._last_error = self._failure = ""
        self._left_out: set[str] = set()
        self._warned = self._settling = self._used = self._closed = self._ended = False

    @property
    def closed(self) -> bool:
        """Whether it takes no more items."""
        return self._closed

    def put(self, item: T, n_bytes: int = 0, *, n_events: int = 1) -> None:
        """Queue an item for delivery.

        Args:
            item: The item; it must not be changed after this.
            n_bytes: About how many bytes it takes.
            n_events: As how many events it counts, also if it is dropped.
        """
        with self._worker.lock:
            self._n_events += n_events
            n_waiting = len(self._items)
            size = self._n_bytes_put - self._n_bytes_taken + n_bytes
            full = n_waiting >= MAX_WAITING or (n_waiting > 0 and size > MAX_WAITING_BYTES)
            if not (full or self._closed):
                self._items.append((item, n_bytes, n_events))
                self._n_bytes_put += n_bytes
                self._used = True
        if full or self._closed:
            self.drop("the queue is closed" if self._closed else "the queue is full", n=n_events)
        elif self._asleep:
            self._asleep = False
            self._worker.wake()

    def flush(self, timeout_s: float) -> None:
        """Wait until every item is delivered.

        Raises:
            StorageError: Some are not delivered in time, or were lost since this was last raised.
        """
        if self._used and not self._closed:
            self._settling = True
            self._check(self._worker.flush(timeout_s), timeout_s)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until every item is delivered, and return whether it is; raises nothing."""
        return not self._used or self._ended or self._worker.flush(math.inf if timeout_s is None else timeout_s)

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

    def drop(self, why: str, *, n: int) -> None:
        """Count items as dropped, and report why.

        Args:
            why: The reason, for warnings and errors.
            n: How many are dropped.
        """
        with self._worker.lock:
            self._n_dropped += n
            self._last_error = self._failure = why
            first, self._warned = not self._warned, True
        if first:
            self._warn(f"not all records can be written: {why}; further errors are counted, and raised by flush() and "
                       "close()")  # fmt: skip

    def leave_out(self, why: str) -> None:
        """Count an item of which the sink does not hold a value, and name that once."""
        with self._worker.lock:
            self._n_dropped += 1
            self._n_dropped_reported += 1  # no error names it
            self._last_error = why
            first = why not in self._left_out and len(self._left_out) < MAX_NAMED
            self._left_out |= {why} if first else set()
        if first:
            self._warn(f"left out {why}; further ones are counted")

    def _warn(self, what: str) -> None:
        warn(f"{self._name}: {what}")

    def statistics(self) -> Statistics:
        """Return how many items were put, how many of them wait, and how many are dropped."""
        return Statistics(
            n_events=self._n_events,
            n_waiting=len(self._items),
            n_dropped=self._n_dropped,
            last_error=self._last_error,
        )

    def round(self, now_s: float) -> float | None:
        """Deliver the items that wait."""
        closing, settling = self._closed, self._settling
        self._settling = False
        for i in range(len(self._items)):
            if i % BREATH_ITEMS == BREATH_ITEMS - 1:
                self._worker.breathe()
            item, n_bytes, n_events = (
                self._items.popleft()
            )  # without the lock, so that `put` never waits for a delivery
            try:
                self._deliver(item)
            except UnsendableError as error:
                self.leave_out(str(error))
            except Exception as error:  # noqa: BLE001  no exception of a sink may end the thread
                self.drop(_message(error), n=n_events)
            self._n_bytes_taken += n_bytes
        if settling:
            self._try(self._settle)
        if closing and not self._ended:
            self._ended = True
            self._try(self._end)
        self._asleep = True  # set before the check for new items, so that `put` wakes the thread for any later one
        if closing:
            return None
        return 0.0 if self._items else UNTIL_WOKEN

    def _try(self, function: Callable[[], None]) -> None:
        try:
            function()
        except Exception as error:  # noqa: BLE001  as above
            self.drop(_message(error), n=0)

    def _check(self, finished: bool, timeout_s: float) -> None:
        why, self._failure = self._failure, ""
        n_dropped, self._n_dropped_reported = self._n_dropped - self._n_dropped_reported, self._n_dropped
        if not finished:
            why = f"not within {timeout_s:g} s, {len(self._items)} waiting"
        if why:
            raise StorageError(f"{self._name}: not all records could be written, {n_dropped} lost: {why}")


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, StorageError) else f"{type(error).__name__}: {error}"


# What takes records: event files, a run of W&B, or a class of the user's own.


@runtime_checkable
class RecordSink(Protocol):
    """Receives records; all calls come from one thread."""

    def write(self, records: Sequence[Record], /) -> None:
        """Write records, in order; records of the same event or step are consecutive.

        Raises:
            UnsendableError: Some values are of a kind that the sink does not hold; the others are written. That is
                counted, and a warning the first time; any other exception is a failure.
        """

    def flush(self, timeout_s: float, /) -> None:
        """Write everything to its destination."""

    def close(self, timeout_s: float, /) -> None:
        """Write the remaining records and close."""
