"""The records of a stream as messages for browsers; each browser reads from its own cursor.

Numbers are held as floats, in at most `MAX_POINTS` rows; of other values at most `MAX_ITEMS`, or `MAX_ITEM_BYTES`. What
is more is thinned evenly (`core.buffer`). A browser that is behind by more records than it has room for gets them
thinned to the resolution that the whole stream has in its room. Browsers with the same cursor and room share a message.
One thread adds, others take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns
from sightglass.core.record import Record
from sightglass.core.unpatched import threading
from sightglass.core.values import Value

from . import encoding
from .choose import is_number
from .grid import with_grid

MAX_POINTS: Final = 2**17  # 4 MiB per stream
MAX_BYTES: Final = 64 * 2**20
MAX_ITEMS: Final = 256  # more frames than a reader steps back through
MAX_ITEM_BYTES: Final = 32 * 2**20
MAX_MESSAGE_BYTES: Final = 8 * 2**20  # a second of a slow network; older values are left out

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogMessage:
    """One message to a browser.

    Attributes:
        message: The message.
        cursor: The cursor after it.
        n: How many records it holds.
    """

    message: dict[str, Any]
    cursor: int
    n: int


class Backlog:
    """The held records of a stream.

    Attributes:
        numeric: Whether they are numbers; `None` before the first.
        n_unfit: How many of them were expected to be numbers, and were not.
        restarts: The numbers of the first records of runs that began again.
    """

    def __init__(self) -> None:
        self.numeric: bool | None = None
        self.n_unfit = 0
        self.restarts: tuple[int, ...] = ()
        self._buffer = Buffer(max_rows=MAX_POINTS, max_bytes=MAX_BYTES)
        self._first = 0
        self._taken: dict[tuple[int, int], BacklogMessage] = {}
        self._packed: dict[int, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    @property
    def n(self) -> int:
        """How many records arrived."""
        return self._buffer.n

    @property
    def end(self) -> int:
        """The number that follows the last record's."""
        return self._buffer.end

    @property
    def bucket(self) -> int:
        """How many records an older one stands for; 1 as long as all are held."""
        return self._buffer.bucket

    def add(self, columns: Columns) -> None:
        """Add records. The first value that is not `None` decides whether they are numbers; another value is a gap."""
        if not len(columns):
            return
        with self._lock:
            if not self._buffer.n:
                self._first = columns.index
            if self.numeric is None:
                value = next((value for value in columns.values if value is not None), None)
                self.numeric = value is None or is_number(value)
                if not self.numeric:
                    self._buffer.bound(max_rows=MAX_ITEMS, max_bytes=MAX_ITEM_BYTES)
            self._buffer.add(replace(columns, values=self._floats(columns.values)) if self.numeric else columns)
            self._taken.clear()

    def take(self, cursor: int, points: int) -> BacklogMessage | None:
        """Return the records from a number on, thinned if a browser has room for `points` buckets; `None` if none."""
        if cursor >= self._buffer.end:
            return None
        with self._lock:
            taken = self._taken.get((cursor, points))
            if taken is None:
                taken = self._numbers(cursor, points) if self.numeric else self._values(cursor)
                self._taken[cursor, points] = taken
            return taken

    def _floats(self, values: Sequence[Value] | npt.NDArray[Any]) -> Floats:
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
            return values.astype(np.float64)
        return np.array([self._float(value) for value in values], np.float64)

    def _float(self, value: Value) -> float:
        if value is None:
            return float("nan")
        if isinstance(value, bool | int | float) or is_number(value):
            try:
                return float(value)
            except OverflowError:
                return float("inf") if value > 0 else -float("inf")
        self.n_unfit += 1
        return float("nan")

    def _numbers(self, cursor: int, points: int) -> BacklogMessage:
        end, columns = self._buffer.since(cursor)
        if len(columns) > 2 * points:
            bits = max(self._buffer.bits, ((end - self._first - 1) // points).bit_length())
            end, columns = self._buffer.since(cursor, bits=bits)
        areas = {} if columns.areas is None else {"area": encoding.floats(columns.areas)}
        message = {**self._places(columns, cursor, end), "y": encoding.floats(columns.values), **areas}
        return BacklogMessage(message=message, cursor=end, n=len(columns))

    def _values(self, cursor: int) -> BacklogMessage:
        end, columns = self._buffer.since(cursor)
        held = self._packed
        records = columns.records(tag="", run="")
        size, first = 0, len(records)
        self._packed = {}
        for i in reversed(range(len(records))):
            packed = held.get(records[i].index) or packed_value(records[i])
            size += packed[1]
            if first < len(records) and size > MAX_MESSAGE_BYTES:
                break
            self._packed[records[i].index] = packed
            first = i
        columns = columns.slice(first)
        values = [self._packed[record.index][0] for record in records[first:]]
        message = {**self._places(columns, cursor, end), "values": values}
        return BacklogMessage(message=message, cursor=end, n=len(columns))

    def _places(self, columns: Columns, cursor: int, end: int) -> dict[str, Any]:
        restarts = [at for at in self.restarts if cursor <= at < end]
        return {
            "first": cursor, "n": end - cursor, "bits": columns.bits, "index": encoding.integers(columns.numbers),
            "step": encoding.floats(columns.steps), "wall": encoding.floats(columns.wall_times),
            **({"restarts": restarts} if restarts else {}),
        }  # fmt: skip


def packed_value(record: Record) -> tuple[Any, int]:
    """Pack a value, and return it with its bytes; the reason if it cannot be packed, or is too large."""
    try:
        value = encoding.pack(with_grid(record).value)
    except Exception as error:  # noqa: BLE001  one bad value must not end the stream
        value = {"problem": f"{type(error).__name__}: {error}"[:500]}
    n_bytes = len(encoding.encode_msgpack(value))
    if n_bytes > MAX_MESSAGE_BYTES:
        value, n_bytes = {"too_large": f"{n_bytes:,} bytes"}, 100
    return value, n_bytes
