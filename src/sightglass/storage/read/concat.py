"""Many blocks of one series as one piece: memory is allocated once, and each block is copied into its place."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, Final

import numpy as np

from sightglass.core.columns import CLOSED, COMPLETE, Columns
from sightglass.storage.format.block import Array, Values

USUAL: Final = {"n_events": (np.int64, 1), "flags": (np.uint8, COMPLETE | CLOSED)}
PLAIN: Final = (np.float64, np.int64, np.bool_)


class Join:
    """Joins columns; their index numbers may have gaps.

    Attributes:
        n: How many records it has.
    """

    def __init__(self, room: int, max_bytes: int, *, index: int = 0) -> None:
        """Allocate memory.

        Args:
            room: How many records will be added at most.
            max_bytes: How many bytes their values can have at most; more is never allocated.
            index: The index of the result if no record is added.
        """
        self.n = 0
        self._index = index
        self._room = room
        self._max_bytes = max_bytes
        self._cuts: list[tuple[int, int]] = []
        self._next = -1
        self._steps: Any = None
        self._values: Any = None
        self._tracks: list[Any] | None = None
        self._wall_times = np.empty(room, np.float64)
        self._ordinals: Any = None
        self._ordinals_are = "steps"  # as long as they are the same array; else "numbers", or "unknown"
        self._others: dict[str, Any] = dict.fromkeys(USUAL)

    def add(self, columns: Columns) -> None:
        """Append records, at least one; they are copied, unless their values are a list."""
        start, stop = self.n, self.n + len(columns)
        if columns.index != self._next:
            self._cuts.append((start, columns.index))
        self._next = columns.index + len(columns)
        self._add_ordinals(columns, start, stop)
        self._add_steps(columns.steps, start, stop)
        self._wall_times[start:stop] = columns.wall_times
        for name, (dtype, usual) in USUAL.items():
            column = getattr(columns, name)
            if column is not None and self._others[name] is None:
                self._others[name] = np.full(self._room, usual, dtype)
            if column is not None:
                self._others[name][start:stop] = column
        if columns.tracks is not None and self._tracks is None:
            self._tracks = [{} for _ in range(start)]
        if self._tracks is not None:
            self._tracks += columns.tracks or [{} for _ in range(stop - start)]
        self._add_values(columns.values, start, stop)
        self.n = stop

    def _add_ordinals(self, columns: Columns, start: int, stop: int) -> None:
        """Append ordinals; not copied as long as they are the steps: allocating memory takes most of the time."""
        if columns.ordinals is None or self._ordinals_are == "unknown":
            self._ordinals_are, self._ordinals = "unknown", None
            return
        if self._ordinals_are == "steps":
            if columns.ordinals is columns.steps:
                return
            self._ordinals_are, self._ordinals = "numbers", np.empty(self._room, np.int64)
            if start:
                self._ordinals[:start] = self._steps[:start]
        self._ordinals[start:stop] = columns.ordinals

    def columns(self) -> Columns:
        """Return all records, numbered from the first one's index regardless of gaps; columns may share memory."""
        return self._part(0, self.n, self._cuts[0][1] if self._cuts else self._index)

    def pieces(self) -> list[Columns]:
        """Return the records in pieces without gaps."""
        cuts = [*self._cuts, (self.n, 0)]
        return [self._part(start, stop, index) for (start, index), (stop, _) in pairwise(cuts)]

    def _part(self, start: int, stop: int, index: int) -> Columns:
        parts: dict[str, Any] = {
            "steps": self._steps, "wall_times": self._wall_times, "values": self._values,
            "ordinals": self._steps if self._ordinals_are == "steps" else self._ordinals,
            "tracks": self._tracks, **self._others,
        }  # fmt: skip
        if not self.n:
            parts["steps"], parts["values"] = np.empty(0, np.int64), []
        cut: dict[str, Any] = {k: None if v is None else v[start:stop] for k, v in parts.items()}
        return Columns(index=index, **cut)

    def _add_steps(self, steps: Array, start: int, stop: int) -> None:
        if self._steps is None:
            self._steps = np.empty(self._room, steps.dtype)
        elif self._steps.dtype != steps.dtype:
            self._steps = self._steps.astype(np.float64)
        self._steps[start:stop] = steps

    def _add_values(self, values: Values, start: int, stop: int) -> None:
        array = values if isinstance(values, np.ndarray) else None
        if self._values is None:
            self._values = [] if array is None else self._make_room(array)
        room = self._values
        if (
            array is not None
            and not isinstance(room, list)
            and (array.dtype, array.shape[1:]) == (room.dtype, room.shape[1:])
        ):
            room[start:stop] = array
            return
        if not isinstance(room, list):
            self._values = as_list(room[:start])
        self._values += values if array is None else as_list(array.copy())

    def _make_room(self, values: Array) -> Values:
        shape = (self._room, *values.shape[1:])
        fits = math.prod(shape) * values.dtype.itemsize <= self._max_bytes
        return np.empty(shape, values.dtype) if fits else []


def as_list(values: Array) -> list[Any]:
    """Return a column of values as a list, with Python's own numbers for NumPy's default types."""
    return values.tolist() if values.ndim == 1 and values.dtype in PLAIN else list(values)
