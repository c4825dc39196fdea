"""The records of a stream in bounded memory, for all browsers that show it; each reads from its own cursor.

Records are numbered as they arrive. Numbers are stored as columns of at most `MAX_POINTS`; then all of them are
thinned, with extremes and gaps retained. Of other values the last `MAX_ITEMS`, or `MAX_ITEM_BYTES`, are stored. Viewers
with the same cursor and size share one message. One thread adds, others take.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.record import Record
from sightglass.core.values import Value

from . import encoding
from .choose import is_number
from .grid import with_grid
from .thinning import thin_indices

MAX_POINTS: Final = 2**17  # 5 MiB per stream
MAX_ITEMS: Final = 256  # more frames than a reader steps back through
MAX_ITEM_BYTES: Final = 32 * 2**20
MAX_MESSAGE_BYTES: Final = 8 * 2**20  # a second of a slow network; what is left goes with the next message

COLUMNS: Final = ("number", "index", "step", "wall", "y")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedValue:
    """A packed value other than a number; `number` counts the records in the order in which they arrived."""

    number: int
    index: int
    step: float
    wall: float
    value: Any
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogSlice:
    """One message to a viewer, the cursor after it, and how many records it covers and leaves out."""

    message: dict[str, Any]
    cursor: int
    n: int
    n_left_out: int


class Backlog:
    """The stored records of a stream.

    Attributes:
        n: How many records arrived.
        numeric: Whether they are numbers; `None` before the first.
        n_unfit: How many of them were expected to be numbers, and were not.
    """

    def __init__(self) -> None:
        self.n = self.n_unfit = 0
        self.numeric: bool | None = None
        self._columns = {name: np.empty(1024, np.int64 if name in COLUMNS[:2] else np.float64) for name in COLUMNS}
        self._size = 0
        self._items: deque[PackedValue] = deque()
        self._n_item_bytes = 0
        self._taken: dict[tuple[int, int], BacklogSlice] = {}
        self._lock = threading.Lock()

    @property
    def n_kept(self) -> int:
        """How many of them are stored."""
        return self._size if self.numeric else len(self._items)

    def add(self, records: Sequence[Record]) -> None:
        """Add records of any kind. The first value decides whether they are numbers; another value is then a gap."""
        if self.numeric is None:
            value = next((record.value for record in records if record.value is not None), None)
            self.numeric = value is None or is_number(value)
        if not self.numeric:
            last = records[-MAX_ITEMS:]
            first = self.n + len(records) - len(last)
            self.add_items(len(records), [packed_value(first + i, record) for i, record in enumerate(last)])
            return
        for start in range(0, len(records), MAX_POINTS // 2):
            some = records[start : start + MAX_POINTS // 2]
            index, step, wall = (
                np.asarray([getattr(record, name) for record in some]) for name in ("index", "step", "wall_time")
            )
            y = np.asarray([self._number(record.value) for record in some])
            self.add_numbers(len(some), np.arange(self.n, self.n + len(some)), index, step, wall, y)

    def add_numbers(self, n_records: int, *columns: npt.NDArray[Any]) -> None:
        """Add numbers as columns, in the order of `COLUMNS`, that represent `n_records` records."""
        with self._lock:
            n = len(columns[0])
            if self._size + n > MAX_POINTS:
                kept = thin_indices(self._columns["y"][: self._size], MAX_POINTS // 8)
                for column in self._columns.values():
                    column[: len(kept)] = column[kept]
                self._size = len(kept)
            room = len(self._columns["y"])
            if self._size + n > room:
                room = max(2 * room, self._size + n)
                self._columns = {name: np.resize(column, room) for name, column in self._columns.items()}
            for name, column in zip(COLUMNS, columns, strict=True):
                self._columns[name][self._size : self._size + n] = column
            self._size += n
            self._count(n_records)

    def add_items(self, n_records: int, items: Sequence[PackedValue]) -> None:
        """Add values other than numbers: the last ones of `n_records` records."""
        with self._lock:
            self._items.extend(items)
            self._n_item_bytes += sum(item.n_bytes for item in items)
            while len(self._items) > MAX_ITEMS or (len(self._items) > 1 and self._n_item_bytes > MAX_ITEM_BYTES):
                self._n_item_bytes -= self._items.popleft().n_bytes
            self._count(n_records)

    def _number(self, value: Value) -> float:
        if value is None:
            return float("nan")
        if isinstance(value, bool | int | float) or is_number(value):
            try:
                return float(value)
            except OverflowError:
                return float("inf") if value > 0 else -float("inf")
        self.n_unfit += 1
        return float("nan")

    def _count(self, n_records: int) -> None:
        self.n += n_records
        self._taken.clear()

    def take(self, cursor: int, points: int) -> BacklogSlice | None:
        """Return the records after a cursor, thinned to `points` runs of points; `None` if there are none."""
        if cursor >= self.n:
            return None
        with self._lock:
            taken = self._taken.get((cursor, points))
            if taken is None:
                taken = self._numbers(cursor, points) if self.numeric else self._values(cursor)
                self._taken[cursor, points] = taken
            return taken

    def _numbers(self, cursor: int, points: int) -> BacklogSlice:
        start = int(np.searchsorted(self._columns["number"][: self._size], cursor))
        part = {name: column[start : self._size] for name, column in self._columns.items()}
        if len(part["y"]) > 2 * points:
            kept = thin_indices(part["y"], points)
            part = {name: column[kept] for name, column in part.items()}
        n = self.n - cursor
        packed = {name: encoding.floats(part[name]) for name in ("step", "wall", "y")}
        message = {"first": cursor, "n": n, "index": encoding.integers(part["index"]), **packed}
        return BacklogSlice(message=message, cursor=self.n, n=n, n_left_out=n - len(part["y"]))

    def _values(self, cursor: int) -> BacklogSlice:
        chosen: list[PackedValue] = []
        size = 0
        for item in reversed(self._items):
            size += item.n_bytes
            if item.number < cursor or (chosen and size > MAX_MESSAGE_BYTES):
                break
            chosen.append(item)
        chosen.reverse()
        n = self.n - cursor
        message = {
            "first": cursor, "n": n, "step": encoding.floats([item.step for item in chosen]),
            "wall": encoding.floats([item.wall for item in chosen]),
            "index": encoding.integers([item.index for item in chosen]), "values": [item.value for item in chosen],
        }  # fmt: skip
        return BacklogSlice(message=message, cursor=self.n, n=n, n_left_out=n - len(chosen))


def packed_value(number: int, record: Record) -> PackedValue:
    """Pack a record's value. A value that cannot be packed, or is too large, is replaced by the reason."""
    try:
        value = encoding.pack(with_grid(record).value)
    except Exception as error:  # noqa: BLE001  one bad value must not end the stream
        value = {"problem": f"{type(error).__name__}: {error}"[:500]}
    n_bytes = len(encoding.encode_msgpack(value))
    if n_bytes > MAX_MESSAGE_BYTES:
        value, n_bytes = {"too_large": f"{n_bytes:,} bytes"}, 100
    return PackedValue(number=number, index=record.index, step=float(record.step), wall=record.wall_time, value=value,
                n_bytes=n_bytes)  # fmt: skip
