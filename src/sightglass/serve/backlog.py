"""What came of a stream, kept in bounded memory for all who look at it, and taken by each from where it stands.

Records are numbered as they arrive. Numbers are kept as columns, up to `MAX_POINTS`; beyond, all of them are thinned,
extremes and gaps kept. Of other values the last `MAX_ITEMS`, or `MAX_ITEM_BYTES` of them, are kept. What viewers with
the same place and size take is made once. One thread adds, others take.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.see.thin import keep

from . import wire

MAX_POINTS: Final = 2**17
MAX_ITEMS: Final = 256
MAX_ITEM_BYTES: Final = 32 * 2**20
MAX_MESSAGE_BYTES: Final = 8 * 2**20

COLUMNS: Final = ("number", "index", "step", "wall", "y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A value that is no number, packed; `number` counts the records as they arrived."""

    number: int
    index: int
    step: float
    wall: float
    value: Any
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a viewer takes at once: a message, the cursor behind it, how many records it stands for and leaves out."""

    message: dict[str, Any]
    cursor: int
    n: int
    n_left_out: int


class Backlog:
    """What is kept of a stream.

    Attributes:
        n: How many records came.
        numeric: Whether they are numbers; `None` before the first.
    """

    def __init__(self) -> None:
        self.n = 0
        self.numeric: bool | None = None
        self._columns = {name: np.empty(1024, np.int64 if name in COLUMNS[:2] else np.float64) for name in COLUMNS}
        self._size = 0
        self._items: deque[Item] = deque()
        self._n_item_bytes = 0
        self._taken: dict[tuple[int, int], Taken] = {}
        self._lock = threading.Lock()

    @property
    def n_kept(self) -> int:
        """How many of them are kept."""
        return self._size if self.numeric else len(self._items)

    def add_numbers(self, n_records: int, *columns: Any) -> None:
        """Add numbers as columns, in the order of `COLUMNS`, which stand for so many records."""
        with self._lock:
            n = len(columns[0])
            if self._size + n > MAX_POINTS:
                kept = keep(self._columns["y"][: self._size], MAX_POINTS // 8)
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
            self._came(n_records)

    def add_items(self, n_records: int, items: Sequence[Item]) -> None:
        """Add values that are no numbers: the last of so many records."""
        with self._lock:
            self._items.extend(items)
            self._n_item_bytes += sum(item.n_bytes for item in items)
            while len(self._items) > MAX_ITEMS or (len(self._items) > 1 and self._n_item_bytes > MAX_ITEM_BYTES):
                self._n_item_bytes -= self._items.popleft().n_bytes
            self._came(n_records)

    def _came(self, n_records: int) -> None:
        self.n += n_records
        self._taken.clear()

    def take(self, cursor: int, points: int) -> Taken | None:
        """Return what came after a cursor, thinned if it is more than can be shown; `None` if there is nothing."""
        if cursor >= self.n:
            return None
        with self._lock:
            taken = self._taken.get((cursor, points))
            if taken is None:
                taken = self._numbers(cursor, points) if self.numeric else self._values(cursor)
                self._taken[cursor, points] = taken
            return taken

    def _numbers(self, cursor: int, points: int) -> Taken:
        start = int(np.searchsorted(self._columns["number"][: self._size], cursor))
        part = {name: column[start : self._size] for name, column in self._columns.items()}
        if len(part["y"]) > 2 * points:
            kept = keep(part["y"], points)
            part = {name: column[kept] for name, column in part.items()}
        n = self.n - cursor
        packed = {name: wire.floats(part[name]) for name in ("step", "wall", "y")}
        message = {"first": cursor, "n": n, "index": wire.integers(part["index"]), **packed}
        return Taken(message=message, cursor=self.n, n=n, n_left_out=n - len(part["y"]))

    def _values(self, cursor: int) -> Taken:
        chosen: list[Item] = []
        size = 0
        for item in reversed(self._items):
            size += item.n_bytes
            if item.number < cursor or (chosen and size > MAX_MESSAGE_BYTES):
                break
            chosen.append(item)
        chosen.reverse()
        n = self.n - cursor
        message = {
            "first": cursor, "n": n, "step": wire.floats([item.step for item in chosen]),
            "wall": wire.floats([item.wall for item in chosen]),
            "index": wire.integers([item.index for item in chosen]), "values": [item.value for item in chosen],
        }  # fmt: skip
        return Taken(message=message, cursor=self.n, n=n, n_left_out=n - len(chosen))
