"""Streams of iterables: a thread pulls items, a little ahead of those who read."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.counts import Statistics
from sightglass.core.errors import QueryError
from sightglass.core.guarded import class_name, message, text
from sightglass.core.record import Record
from sightglass.core.threads import Background
from sightglass.core.unpatched import threading

from .arrivals import arrivals
from .record_buffer import RecordBuffer

# Items that were pulled but not read: as many as a run retains for late clients. An endless iterable waits then.
AHEAD: Final = 8_192


Pick = str | int | Callable[[Any], Any]
"""A key, an attribute, a place in a tuple, or a function of an item."""


class RowReader:
    """Reads the step and the value of an item."""

    def __init__(self, step: Pick | None, value: Pick | None) -> None:
        self._step = step
        self._value = value

    def step(self, item: Any, index: int) -> float:
        """Return the step of an item; its number if none is named."""
        if self._step is None:
            return item.step if type(item) is Record else index
        step = _pick(item, self._step)
        if not isinstance(step, int | float | np.integer | np.floating):
            raise TypeError(f"Expected a number as step, got {class_name(step)} {text(step, 100)}")
        return step  # type: ignore[return-value]

    def value(self, item: Any) -> Any:
        """Return the value of an item."""
        if self._value is None:
            return item.value if type(item) is Record else item
        return _pick(item, self._value)


def _pick(item: Any, pick: Pick) -> Any:
    if callable(pick):
        return pick(item)
    if isinstance(item, Mapping) or isinstance(pick, int):
        return item[pick]
    return getattr(item, pick)


class PulledProducer:
    """Produces a record of each item of an iterable."""

    def __init__(self, items: Iterator[Any], row: RowReader) -> None:
        """Start to pull."""
        self._items = items
        self._row = row
        self._waiting: deque[tuple[float, Any, float]] = deque()
        self._room = threading.Condition()
        self._n = 0
        self._closed = self._over = False
        self._error: Exception | None = None
        self._thread = Background("own-data", self._pull)

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the items that were pulled since the last call."""
        over = self._over  # before reading: later items are for the next call
        with self._room:
            rows = list(self._waiting)
            self._waiting.clear()
            self._room.notify()
        buffer.extend([
            Record(tag=buffer.tag, index=i, step=step, wall_time=wall_time, value=value, run=buffer.run)
            for i, (step, value, wall_time) in enumerate(rows, self._n)
        ])  # fmt: skip
        self._n += len(rows)
        if over:
            buffer.end(self._error)

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse: this stream has no reducer."""
        raise QueryError("Expected a stream with a reducer to close; this one holds data")

    def close(self) -> None:
        """Stop pulling, once the iterable has given the item that it is about to."""
        with self._room:
            self._closed = True
            self._room.notify()

    def statistics(self) -> Statistics:
        """Return how many items were pulled and not read."""
        return Statistics(n_waiting=len(self._waiting))

    def _pull(self) -> None:
        index = 0
        try:
            for item in self._items:
                row = self._row.step(item, index), self._row.value(item), time.time()
                index += 1
                with self._room:
                    self._room.wait_for(lambda: self._closed or len(self._waiting) < AHEAD)
                    if self._closed:
                        break
                    self._waiting.append(row)
                arrivals.notify()
        except BaseException as error:  # noqa: BLE001  the iterable is the program's: it ends this stream only
            self._error = error if isinstance(error, Exception) else RuntimeError(f"The data end: {message(error)}")
        finally:
            del self._items  # a generator runs its `finally` here
            self._over = True
            arrivals.notify()
