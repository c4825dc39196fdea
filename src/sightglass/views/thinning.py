"""Thinning of lines to what the pixels can show, without losing extremes.

Theory of operation
    A line chart of n points in p pixels shows, in every pixel column, the vertical span of the points that fall
    there. Thinning therefore retains the smallest and the largest of each of p equal runs of points, in their order: a
    spike of one point in a million stays.

    * The first and the last point always stay, so the range of x stays too.
    * NaN is a gap. Wherever a NaN lies between two retained points, one NaN stays between them: a line never crosses a
      gap, however narrow.
    * ±Inf is an extreme, and never hides the finite extremes: both stay.
    * Up to `2 * n_pixels` points are returned unchanged.

    It is O(n), without a Python loop over points: two passes if all points are finite.

    `core.buckets.retained` is another rule, for what is held and thinned again and again. Its buckets are fixed by the
    numbers of records, and need a first and a last record so that thinning in parts is thinning at once. For pixels
    that would be twice the points, and a bucket holds only its first NaN, where a drawing needs one in each gap.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.buffer import SHARE, line_means, merged_areas, thinned

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.intp]


def thin(x: npt.ArrayLike, y: npt.ArrayLike, n_pixels: int) -> tuple[Array, Array]:
    """Thin a line to what a number of pixels can show.

    Args:
        x: Shape (n,); not used to choose points.
        y: Shape (n,); real.
        n_pixels: The width of the line in pixels; at least 1.

    Returns:
        The x and y of the retained points: two for each pixel, and a few more around gaps and infinities.

    Raises:
        ValueError: The shapes differ, or `n_pixels` is below 1.
    """
    xs, ys = np.asarray(x), np.asarray(y)
    if xs.shape != ys.shape or xs.ndim != 1:
        raise ValueError(f"Expected x and y of the same shape (n,), got {xs.shape} and {ys.shape}")
    if len(ys) <= 2 * n_pixels and n_pixels > 0:
        return xs, ys
    kept = thin_indices(ys, n_pixels)
    return xs[kept], ys[kept]


def thin_path(x: npt.ArrayLike, y: npt.ArrayLike, n_pixels: int) -> tuple[Array, Array]:
    """Thin a line whose x is not sorted: retains the extremes of x as well as those of y."""
    xs, ys = np.asarray(x), np.asarray(y)
    if len(ys) <= 2 * n_pixels:
        return xs, ys
    kept = np.union1d(thin_indices(xs, n_pixels), thin_indices(ys, n_pixels))
    return xs[kept], ys[kept]


def thin_indices(y: npt.ArrayLike, n_pixels: int) -> Indices:
    """Return the indices of the points that thinning retains, increasing.

    Args:
        y: Shape (n,); real.
        n_pixels: The number of runs; at least 1.

    Raises:
        ValueError: `n_pixels` is below 1.
    """
    if n_pixels < 1:
        raise ValueError(f"Expected n_pixels of at least 1, got {n_pixels}")
    values = np.asarray(y)
    n = len(values)
    if n <= 2 * n_pixels:
        return np.arange(n)
    run = -(-n // n_pixels)
    n_runs = n // run
    body = values[: n_runs * run].reshape(n_runs, run)
    parts = [np.array([0, n - 1]), _extremes(body, 0)]
    if n_runs * run < n:
        parts.append(_extremes(values[n_runs * run :][None], n_runs * run))
    kept = _increasing(parts, n)
    return _with_gaps(values, kept) if values.dtype.kind not in "biu" else kept


def _increasing(parts: Sequence[Indices], n: int) -> Indices:
    """Return indices below n once each, increasing: a mask takes a tenth of the time of sorting, or of a hash table."""
    mask = np.zeros(n, np.bool_)
    for part in parts:
        mask[part] = True
    return np.flatnonzero(mask)


def _extremes(rows: Array, offset: int) -> Indices:
    starts = np.arange(len(rows)) * rows.shape[1] + offset
    low, high = rows.argmin(axis=1), rows.argmax(axis=1)
    found = [starts + low, starts + high]
    if rows.dtype.kind not in "biu":
        # argmin and argmax return a NaN, and an infinity hides the finite extremes: search such runs again.
        at = np.arange(len(rows))
        odd = np.flatnonzero(~(np.isfinite(rows[at, low]) & np.isfinite(rows[at, high])))
        if len(odd):
            found += [starts[odd] + index for index in _odd_extremes(rows[odd])]
    return np.concatenate(found)


def _odd_extremes(rows: Array) -> list[Indices]:
    nan = np.isnan(rows)
    solid = ~(nan | np.isinf(rows))
    found = []
    for shown in (solid,) if np.array_equal(solid, ~nan) else (solid, ~nan):
        found += [np.where(shown, rows, np.inf).argmin(axis=1), np.where(shown, rows, -np.inf).argmax(axis=1)]
    return found


def _with_gaps(values: Array, kept: Indices) -> Indices:
    # Saves two passes if there is no NaN, the usual case: argmin found the NaN of every run that has one.
    if not np.isnan(values[kept]).any():
        return kept
    gaps = np.flatnonzero(np.isnan(values))
    nearest = np.searchsorted(gaps, kept[:-1])
    nearest[nearest == len(gaps)] = len(gaps) - 1
    first = gaps[nearest]
    between = (first > kept[:-1]) & (first < kept[1:])
    return _increasing([kept, first[between]], len(values))


# The points of one line, in bounded memory.

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
