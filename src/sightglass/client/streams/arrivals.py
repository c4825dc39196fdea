"""Wait for records: one condition that every stream of this process notifies, and the loop that follows a stream.

One condition for all streams keeps the client simple: a process that follows many streams needs no thread for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from sightglass.core.columns import Columns
from sightglass.core.process.unpatched import threading
from sightglass.core.source import Source

# Arrivals wake those who wait at once. This is for what notifies nobody: a file that another process writes to.
WAIT_S: Final = 0.5


class Arrivals:
    """A counter that threads can wait on: it grows whenever a stream got records or ended.

    Attributes:
        n: How often that happened. Read it before you read the streams, and pass it to `wait`.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._listeners: tuple[Callable[[], None], ...] = ()
        self.n = 0

    def notify(self) -> None:
        """Wake every thread that waits, and call the listeners."""
        with self._condition:
            self.n += 1
            self._condition.notify_all()
        for listener in self._listeners:
            listener()

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a listener at every arrival, on the thread that received it; return what ends that.

        The listener must return at once, and must not raise: its thread serves all streams of a connection.
        """
        with self._condition:
            self._listeners += (listener,)
        return lambda: self._unsubscribe(listener)

    def _unsubscribe(self, listener: Callable[[], None]) -> None:
        with self._condition:
            self._listeners = tuple(other for other in self._listeners if other != listener)

    def wait(self, seen: int, timeout_s: float) -> None:
        """Wait until `n` differs from the number seen, for at most this long."""
        with self._condition:
            self._condition.wait_for(lambda: self.n != seen, timeout_s)


arrivals = Arrivals()


def follow(source: Source, *, check_wait: Callable[[], None] = lambda: None) -> Iterator[Columns]:
    """Yield the records of a source as they arrive, until it has ended; call `check_wait` before each wait."""
    cursor = 0
    while True:
        seen, over = arrivals.n, source.ended  # before reading: later records are for the next turn
        cursor, columns = source.since(cursor)
        if len(columns):
            yield columns
        elif over:
            return
        else:
            check_wait()
            arrivals.wait(seen, WAIT_S)
