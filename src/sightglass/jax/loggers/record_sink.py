"""Loggers that write into sinks, one for each lane.

Theory of operation:

1. Callbacks put their logs into a queue. The queue's thread makes records and passes them to the sink of their lane,
   which it opens for the first log of the lane.
2. A record's index is the number of its tag's event in its lane; its step is the primary one, else that number. Events
   that a ring buffer dropped leave a gap.
3. The logs of `spool` are written in the order of the steps, as long as steps do not decrease.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sightglass.core.clock import SystemClock
from sightglass.core.counts import Statistics
from sightglass.jax.logs.logdict import logdict
from sightglass.storage.delivery_queue import DeliveryQueue
from sightglass.storage.record_sink import RecordSink

from .lane_names import name_of
from .logger import TIMEOUT_S, Logger, close_first_at_exit
from .records import RecordNumbers
from .routed import Words, by_lane, lanes, n_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _QueuedLogs:
    """Logs in the queue; see `Logger._receive`."""

    logs: logdict | None
    lane: Words | None
    wall_time: float


@dataclass(frozen=True, slots=True)
class _LaneSink:
    sink: RecordSink
    numbers: RecordNumbers


class SinkLogger(Logger):
    """A logger that writes into sinks, one for each lane. Derive from it and define `open`.

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
        self._lanes: dict[str, _LaneSink] = {}
        self._failures: dict[str, Exception] = {}
        self._queue: DeliveryQueue[_QueuedLogs] = DeliveryQueue(
            type(self).__name__, self._deliver, settle=self._settle, end=self._end
        )

    @abstractmethod
    def open(self, name: str) -> RecordSink:
        """Return the sink of a lane; called once for each lane, on the logger's thread.

        Args:
            name: The name of the lane: its seed, the hexadecimal digits of its key, or empty if it has neither.
        """

    @property
    def closed(self) -> bool:
        """Whether the logger is closed."""
        return self._queue.closed

    def statistics(self) -> Statistics:
        """Return how many batches of logs there were, wait, and were dropped; each callback or call is one batch."""
        return self._queue.statistics()

    def _receive(self, logs: logdict | None, lane: Words | None = None) -> None:
        queued = _QueuedLogs(logs=logs, lane=lane, wall_time=SystemClock.wall())
        self._queue.put(queued, 0 if logs is None else n_bytes(logs))

    def _flush(self, timeout_s: float) -> None:
        self._queue.flush(timeout_s)

    def _close(self, timeout_s: float) -> None:
        self._queue.close(timeout_s)

    # On the queue's thread

    def _deliver(self, queued: _QueuedLogs) -> None:
        if queued.logs is None:
            assert queued.lane is not None
            self._lane(queued.lane)
            return
        parts = by_lane(queued.logs) if queued.lane is None else lanes(queued.lane, queued.logs)
        for words, logs in parts:
            lane = self._lane(words)
            records = lane.numbers.records(logs, wall_time=queued.wall_time)
            if records:
                lane.sink.write(records)

    def _lane(self, words: Iterable[int]) -> _LaneSink:
        name = name_of(words)
        if name in self._failures:
            raise self._failures[name]
        lane = self._lanes.get(name)
        if lane is None:
            try:
                lane = self._lanes[name] = _LaneSink(self.open(name), RecordNumbers())
            except Exception as error:
                self._failures[name] = error  # trying again at each log could take too long
                raise
            close_first_at_exit()
        return lane

    def _settle(self) -> None:
        self._each(lambda sink: sink.flush(TIMEOUT_S))

    def _end(self) -> None:
        self._each(lambda sink: sink.close(TIMEOUT_S))

    def _each(self, call: Callable[[RecordSink], None]) -> None:
        """Call a function with every sink, even if it fails for some; raise the first error."""
        failures = []
        for lane in self._lanes.values():
            try:
                call(lane.sink)
            except Exception as error:  # noqa: BLE001  the other sinks must be called too
                failures.append(error)
        if failures:
            raise failures[0]
