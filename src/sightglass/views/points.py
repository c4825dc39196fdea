"""The points of one line, in bounded memory."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.buckets import line_means, merged_areas, thinned
from sightglass.core.buffer import SHARE

MAX_POINTS: Final = 1 << 20  # 32 MiB per line

Floats = npt.NDArray[np.float64]


class Points:
    """Columns of numbers that grow up to a limit; then the older ones are thinned evenly.

    Attributes:
        n_seen: How many points were appended.
        bits: The thinned points are in buckets of `2**bits` records.
    """

    def __init__(self, n_columns: int, *, max_points: int = MAX_POINTS) -> None:
        self.n_seen = self.bits = 0
        self._max = max_points
        self._indexes = np.empty(min(1024, max_points), np.int64)
        self._data = np.empty((n_columns, len(self._indexes)))
        self._areas = np.empty(len(self._indexes))
        self._size = 0

    @property
    def thinned(self) -> bool:
        """Whether some were dropped to stay within the limit."""
        return self.bits > 0

    @property
    def columns(self) -> Floats:
        """The stored points, of shape (n_columns, n)."""
        return self._data[:, : self._size]

    @property
    def indexes(self) -> npt.NDArray[np.int64]:
        """The numbers of their records, of shape (n,)."""
        return self._indexes[: self._size]

    @property
    def means(self) -> Floats:
        """The mean of the line between each point and the one before, as `smoothing` takes it, of shape (n,)."""
        means: Floats = line_means(self.indexes, self.columns[self._middle], self._areas[: self._size])
        return means

    @property
    def _middle(self) -> int:
        """The column that is smoothed: y, or the middle of a band."""
        return len(self._data) // 2

    def extend(
        self, indexes: npt.NDArray[np.int64], columns: npt.ArrayLike, areas: npt.ArrayLike | None = None
    ) -> None:
        """Append points.

        Args:
            indexes: Shape (n,): the numbers of their records, increasing.
            columns: Shape (n_columns, n).
            areas: Shape (n,): what `core.columns` calls areas; by default none of the points is thinned.
        """
        new = np.asarray(columns, np.float64)
        self.n_seen += len(indexes)
        start = 0
        while start < len(indexes):
            n = min(len(indexes) - start, self._max - self._size)
            self._grow(self._size + n)
            self._indexes[self._size : self._size + n] = indexes[start : start + n]
            self._data[:, self._size : self._size + n] = new[:, start : start + n]
            self._areas[self._size : self._size + n] = np.nan if areas is None else np.asarray(areas)[start : start + n]
            self._size += n
            start += n
            if self._size == self._max:
                self._thin()

    def _grow(self, size: int) -> None:
        if size > len(self._indexes):
            room = min(max(2 * len(self._indexes), size), self._max)
            indexes, data, areas = np.empty(room, np.int64), np.empty((len(self._data), room)), np.empty(room)
            indexes[: self._size], data[:, : self._size] = self.indexes, self.columns
            areas[: self._size] = self._areas[: self._size]
            self._indexes, self._data, self._areas = indexes, data, areas

    def _thin(self) -> None:
        """Thin the older points to a quarter of the room, and leave a quarter exact."""
        older = self._max - self._max // SHARE
        rows, self.bits = thinned(
            np.arange(older), self._indexes, list(self._data[1:]), bits=self.bits,
            fits=lambda rows: len(rows) <= self._max // SHARE,
        )  # fmt: skip
        areas = merged_areas(self._indexes[:older], self._data[self._middle, :older], self._areas[:older], rows)
        rows = np.concatenate((rows, np.arange(older, self._max)))
        self._areas[: len(rows)] = np.concatenate((areas, self._areas[older : self._max]))
        self._size = len(rows)
        self._indexes[: self._size] = self._indexes[rows]
        self._data[:, : self._size] = self._data[:, rows]
