"""Loggers that write into sinks, one for each lane.

Theory of operation:

1. What a callback hands over goes into an outbox. The outbox's thread makes records of it, and gives them to the sink
   of their lane, which it opens when the lane is first seen.
2. A record's index is the number of its tag's event in its lane; its step is the primary one, else that number. What a
   ring buffer dropped leaves a hole.
3. What `spool` collected is written in the order of the steps, where these do not go back.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sightglass.core.clock import SystemClock
from sightglass.core.record import Record
from sightglass.jax.logs.logdict import logdict
from sightglass.storage.delivery_queue import DeliveryQueue, DeliveryStatistics

from .logger import TIMEOUT_S, Logger, last_of_all
from .records import Numbers
from .routed import lanes, n_bytes, parted


class RecordSink(Protocol):
    """Where the records of one lane go; all calls come from one thread."""

    def write(self, records: Sequence[Record], /) -> None:
        """Write records, in order; those of one event, or of one step, follow upon each other."""

    def flush(self, timeout_s: float, /) -> None:
        """See that all is where it should be."""

    def close(self, timeout_s: float, /) -> None:
        """Write what is left, and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """Logs on their way; see `Logger._receive`."""

    logs: logdict | None
    lane: Any
    wall_time: float


@dataclass(frozen=True, slots=True)
class _Lane:
    sink: RecordSink
    numbers: Numbers


class SinkLogger(Logger):
    """A logger that writes into sinks, one for each lane. One of your own says how to open them.

    Example:
        >>> import jax.numpy as jnp
        >>> from sightglass.jax import log
        >>> class Printing:
        ...     def write(self, records):
        ...         print(*(f"{record.tag} = {record.value}" for record in records))
        ...     def flush(self, timeout_s): pass
        ...     def close(self, timeout_s): pass
        >>> class PrintLogger(SinkLogger):
        ...     def open(self, name):
        ...         return Printing()
        >>> with PrintLogger() as logger:
        ...     _ = logger.tap(lambda x: log({"x": x}), logger.init())(jnp.float32(2))
        x = 2.0
    """

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[str, _Lane] = {}
        self._refused: dict[str, Exception] = {}
        self._outbox: DeliveryQueue[_Given] = DeliveryQueue(
            type(self).__name__, self._deliver, settle=self._settle, end=self._end
        )

    @abstractmethod
    def open(self, name: str) -> RecordSink:
        """Return where the records of a lane go; called once for each, on the logger's thread.

        Args:
            name: What tells the lane from others: its seed, the hexadecimal digits of its key, or empty if it has none.
        """

    @property
    def closed(self) -> bool:
        """Whether nothing is written any more."""
        return self._outbox.closed

    def statistics(self) -> DeliveryStatistics:
        """Return what became of the logs so far: of callbacks, that is, and of calls of `log` and `init`."""
        return self._outbox.statistics()

    def _receive(self, logs: logdict | None, lane: Any = None) -> None:
        given = _Given(logs=logs, lane=lane, wall_time=SystemClock.wall())
        self._outbox.put(given, 0 if logs is None else n_bytes(logs))

    def _flush(self, timeout_s: float) -> None:
        self._outbox.flush(timeout_s)

    def _close(self, timeout_s: float) -> None:
        self._outbox.close(timeout_s)

    # On the outbox's thread

    def _deliver(self, given: _Given) -> None:
        if given.logs is None:
            self._lane(given.lane)
            return
        parts = parted(given.logs) if given.lane is None else lanes(given.lane, given.logs)
        for words, logs in parts:
            lane = self._lane(words)
            records = lane.numbers.records(logs, wall_time=given.wall_time)
            if records:
                lane.sink.write(records)

    def _lane(self, words: Any) -> _Lane:
        name = name_of(words)
        if name in self._refused:
            raise self._refused[name]
        lane = self._lanes.get(name)
        if lane is None:
            try:
                lane = self._lanes[name] = _Lane(self.open(name), Numbers())
            except Exception as error:
                self._refused[name] = error  # to try again with each log could take all the time there is
                raise
            last_of_all()
        return lane

    def _settle(self) -> None:
        self._each(lambda sink: sink.flush(TIMEOUT_S))

    def _end(self) -> None:
        self._each(lambda sink: sink.close(TIMEOUT_S))

    def _each(self, act: Callable[[RecordSink], None]) -> None:
        """Do something with every sink, whatever becomes of the others; raise what the first has raised."""
        failures = []
        for lane in self._lanes.values():
            try:
                act(lane.sink)
            except Exception as error:  # noqa: BLE001  one sink's failure is not the next one's
                failures.append(error)
        if failures:
            raise failures[0]


def name_of(words: Any) -> str:
    """Return the name of a lane: its seed, the hexadecimal digits of its key, or empty.

    >>> name_of([0]), name_of([1, 7]), name_of([1, 0, 7]), name_of([1, 9, 7])
    ('', '7', '7', '0000000900000007')
    """
    named, *digits = map(int, words)
    if not named:
        return ""
    *high, low = digits
    return "".join(f"{word:08x}" for word in digits) if any(high) else str(low)
