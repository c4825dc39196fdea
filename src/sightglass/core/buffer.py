"""The buffer between any two parts: the records of one stream as columns, in bounded memory, however many arrive.

Theory of operation
    Records are addressed by their index number: `since(cursor)` returns those from a number on, and the number that
    follows the last. New records are held exactly. When the buffer is full, the older ones are thinned: of each bucket
    of `2**k` consecutive numbers, which begins at a multiple of `2**k`, a few records stay. `k` is the same for all
    thinned records, and grows when they take too much room, so that the resolution is even over the whole stream.

    A bucket of numbers keeps its first and last record, its smallest and largest finite value, and its first NaN, +Inf
    and -Inf. Of other values it keeps the first record. All of them are records that were added; none is computed. The
    choice within a bucket is the same whether the bucket is thinned at once or in parts, so that what is held depends
    on the records alone, and not on the portions in which they arrive.

    Extremes alone would bias an average. So each thinned record of a number also has an area: that under the line of
    all records since the held record before it, the thinned ones included, over the index numbers. Areas of records
    that are thinned later add up, wherever that happens. `line_means` makes means of them, for smoothing.

    What a late reader gets: thinned records, then the newest ones exactly, at least a quarter of `max_rows` or
    `max_bytes`. A reader that keeps up gets every record.

The choice within buckets, and how much memory a value takes, stand at the end.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .columns import CLOSED, COMPLETE, FLOAT64, INT64, Columns
from .process.unpatched import threading
from .values import EIGHT_BYTES, Value, array_kind, n_bytes

ROW_BYTES: Final = 32  # of a record whose value is a number: index, step, wall time and value
OBJECT_ROW_BYTES: Final = 64  # of another record, beside its value: the same, and what refers to it
# A quarter is for thinned records, and a quarter stays exact, for readers that were away for a moment. The other half
# is room for new records, so that thinning costs little for each of them. Of values that are large, half of the bytes
# stay exact: thinning costs nothing beside them.
SHARE: Final = 4
# A value that takes more than this part of all bytes is held while it is new, and not thinned with others: it would
# cost the resolution of the whole stream.
LARGE_SHARE: Final = 8
GROWTH: Final = 1.25  # of the columns; each copy costs less than a nanosecond a number

DEFAULTS: Final = {
    "n_events": 1,
    "flags": COMPLETE | CLOSED,
    "tracks": {},
    "origins": None,
    "ranks": None,
    "areas": np.nan,
}
NUMBERS: Final = (float, int, np.floating, np.integer, np.bool_, type(None))


class Buffer:
    """The records of one stream, in bounded memory. Any thread may use it.

    Attributes:
        n: How many records were added.
        n_forgotten: How many of them are held no more.
        end: The number that follows the last record's; 0 before the first.
        bits: The thinned records are in buckets of `2**bits` numbers.
        exact_from: All records from this number on are held.
    """

    def __init__(self, *, max_rows: int, max_bytes: int) -> None:
        """Begin empty.

        Args:
            max_rows: How many records it holds.
            max_bytes: How many bytes they may take. One record that is larger is held alone.
        """
        self.n = self.n_forgotten = self.end = self.bits = self.exact_from = 0
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._columns: dict[str, Array] = {}
        self._size = self._n_bytes = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._size

    @property
    def n_bytes(self) -> int:
        """How many bytes the records take."""
        return self._n_bytes

    @property
    def bucket(self) -> int:
        """How many numbers a thinned bucket spans; 1 as long as all records are held."""
        return 1 << self.bits

    def add(self, columns: Columns) -> None:
        """Append records whose numbers follow the last one's."""
        with self._lock:
            new = _arrays(columns)
            while len(new["indexes"]):
                n = self._room(new)
                self._append({name: column[:n] for name, column in new.items()})
                new = {name: column[n:] for name, column in new.items()}
                if self._size >= self._max_rows or self._n_bytes >= self._max_bytes:
                    self._thin()
            if columns.bits:  # thinned already, by the buffer that they come from
                self.bits = max(self.bits, columns.bits)
                self.exact_from = self.end

    def since(self, cursor: int, *, bits: int = 0) -> tuple[int, Columns]:
        """Return the records from a number on, and the cursor for the next call; begin with 0.

        Args:
            cursor: The number.
            bits: Thin them to buckets of `2**bits` numbers, without dropping any here.
        """
        with self._lock:
            start = int(np.searchsorted(self._columns["indexes"][: self._size], cursor)) if self._size else 0
            part = {name: column[start : self._size] for name, column in self._columns.items()}
            end = max(self.end, cursor)
            held_bits = self.bits if cursor < self.exact_from else 0
        if not held_bits:
            part.pop("areas", None)
        if bits and part:
            y = numbers(part["values"])
            kept = retained(part["indexes"], () if y is None else (y,), bits)
            areas = None if y is None else merged_areas(part["indexes"], y, part.get("areas"), kept)
            part = {name: column[kept] for name, column in part.items()}
            if areas is not None:
                part["areas"] = areas
        return end, _columns(part, end, max(bits, held_bits))

    def latest(self) -> Columns:
        """Return the newest record; nothing before the first."""
        with self._lock:
            start = max(0, self._size - 1)
            return _columns({name: column[start : self._size] for name, column in self._columns.items()}, self.end, 0)

    def bound(self, *, max_rows: int, max_bytes: int) -> None:
        """Hold at most this much from now on."""
        with self._lock:
            self._max_rows, self._max_bytes = max_rows, max_bytes
            if self._size > max_rows or self._n_bytes > max_bytes:
                self._thin()

    def forget(self, cursor: int) -> None:
        """Drop the records before a number."""
        with self._lock:
            start = int(np.searchsorted(self._columns["indexes"][: self._size], cursor)) if self._size else 0
            if start:
                self._keep(np.arange(start, self._size))

    def _room(self, new: dict[str, Array]) -> int:
        """Return how many of some records fit; the one that is too many is among them."""
        room, left = max(1, self._max_rows - self._size), self._max_bytes - self._n_bytes
        if "n_bytes" not in new:
            return max(1, min(room, left // ROW_BYTES))
        return min(room, int(np.searchsorted(np.cumsum(new["n_bytes"][:room]), left)) + 1)

    def _append(self, new: dict[str, Array]) -> None:
        n = len(new["indexes"])
        start, end = self._size, self._size + n
        for name in new.keys() - self._columns.keys():
            self._columns[name] = _defaults(name, new[name].dtype, start)
        for name in self._columns.keys() - new.keys():
            new[name] = _defaults(name, self._columns[name].dtype, n)
        for name, column in self._columns.items():
            if column.dtype != new[name].dtype:
                column, new[name] = _alike(name, column[:start]), _alike(name, new[name])
            if end > len(column):
                grown = np.empty(min(max(int(GROWTH * end), 16), max(self._max_rows, end)), column.dtype)
                grown[:start] = column[:start]
                column = grown
            column[start:end] = new[name]
            self._columns[name] = column
        self._size = end
        self._n_bytes += int(new["n_bytes"].sum()) if "n_bytes" in new else ROW_BYTES * n
        self.n += n
        self.end = int(new["indexes"][-1]) + 1

    def _thin(self) -> None:
        """Thin the older records, to make room for new ones."""
        tail = self._tail()
        indexes, values = self._columns["indexes"][:tail], self._columns["values"][:tail]
        y = numbers(values)
        sizes = self._columns.get("n_bytes")
        kept = np.arange(tail) if sizes is None else np.flatnonzero(sizes[:tail] <= self._max_bytes // LARGE_SHARE)

        def fits(rows: Ints) -> bool:
            taken = ROW_BYTES * len(rows) if sizes is None else int(sizes[rows].sum())
            return len(rows) <= self._max_rows // SHARE and taken <= self._max_bytes // SHARE

        kept, bits = thinned(kept, indexes, () if y is None else (y,), bits=self.bits, fits=fits)
        if y is not None:
            areas = self._columns.get("areas")
            merged = _defaults("areas", FLOAT64, len(self._columns["steps"]))  # new: readers may have the old ones
            merged[kept] = merged_areas(indexes, y, None if areas is None else areas[:tail], kept)
            self._columns["areas"] = merged
        self.bits = bits
        self._keep(np.concatenate((kept, np.arange(tail, self._size))))
        self.exact_from = int(self._columns["indexes"][len(kept)])

    def _tail(self) -> int:
        """Return the first row of those that stay exact: at least one."""
        n_rows = max(1, self._max_rows // SHARE)
        if "n_bytes" not in self._columns:
            n_rows = max(1, min(n_rows, self._max_bytes // SHARE // ROW_BYTES))
        else:
            newest = self._columns["n_bytes"][: self._size][::-1][:n_rows]
            n_rows = max(1, int(np.searchsorted(np.cumsum(newest), self._max_bytes // 2, side="right")))
        return max(0, self._size - n_rows)

    def _keep(self, rows: Ints) -> None:
        """Hold these rows only, in new arrays: readers may have the old ones."""
        self.n_forgotten += self._size - len(rows)
        n = self._size = len(rows)
        for name, column in self._columns.items():
            self._columns[name] = kept = np.empty_like(column)  # as long as before: it will be full again
            kept[:n] = column[rows]
        sizes = self._columns.get("n_bytes")
        self._n_bytes = ROW_BYTES * n if sizes is None else int(sizes[:n].sum())


def numbers(values: Array) -> Array | None:
    """Return values as real numbers, NaN for `None`; `None` if they are not numbers."""
    if values.dtype.kind == "b":
        return values.view(np.uint8)
    if values.dtype.kind in "iuf" and values.ndim == 1:
        return values
    if values.dtype != object or not all(issubclass(kind, NUMBERS) for kind in set(map(type, values))):
        return None
    return np.fromiter(map(_real, values), FLOAT64, len(values))


def _real(value: float | None) -> float:
    try:
        return np.nan if value is None else float(value)
    except OverflowError:
        return np.inf if value is not None and value > 0 else -np.inf


def _arrays(columns: Columns) -> dict[str, Array]:
    """Return columns as arrays; those with defaults are left out."""
    n = len(columns)
    found: dict[str, Array] = {"indexes": np.asarray(columns.numbers, INT64)}
    values = columns.values
    if not isinstance(values, np.ndarray) or values.ndim > 1 or values.dtype.kind not in "biuf":
        # Rows of a matrix are copied: each would hold the whole matrix in memory.
        items = [value.copy() for value in values] if isinstance(values, np.ndarray) and values.ndim > 1 else values
        found["n_bytes"] = np.fromiter(map(_row_bytes, items), INT64, n)
        values = np.fromiter(items, object, n)
    found |= {"steps": columns.steps, "wall_times": columns.wall_times, "values": values}
    for name in DEFAULTS:
        column = getattr(columns, name)
        if column is not None:
            found[name] = column if isinstance(column, np.ndarray) else np.fromiter(column, object, n)
    return found


def _row_bytes(value: object) -> int:
    return ROW_BYTES if isinstance(value, NUMBERS) else OBJECT_ROW_BYTES + footprint(value)


def _defaults(name: str, dtype: np.dtype[Any], n: int) -> Array:
    """Return `n` times the default of a column."""
    column = np.empty(n, dtype)
    column.fill(DEFAULTS.get(name, ROW_BYTES))
    return column


def _alike(name: str, column: Array) -> Array:
    """Return a column in a type that holds values of any other type: steps are numbers, values anything."""
    if name in ("steps", "wall_times"):
        return column.astype(FLOAT64)
    return np.fromiter(column, object, len(column))  # not `astype`, which turns NumPy's scalars into Python's


def _columns(part: dict[str, Array], end: int, bits: int) -> Columns:
    """Return arrays as columns."""
    if not part:
        return Columns(index=end, steps=np.empty(0, INT64), wall_times=np.empty(0), values=np.empty(0))
    indexes = part["indexes"]
    n = len(indexes)
    consecutive = not n or indexes[-1] - indexes[0] == n - 1
    if consecutive:
        part.pop("areas", None)
    listed = {name: _listed(part[name]) for name in ("values", *DEFAULTS) if name in part}
    return Columns(
        index=int(indexes[0]) if n else end, indexes=None if consecutive else indexes, steps=part["steps"],
        wall_times=part["wall_times"], bits=0 if consecutive else bits, **listed,
    )  # fmt: skip


def _listed(column: Array) -> Array | Sequence[Any]:
    return column.tolist() if column.dtype == object else column


# Which records stay when a stream is thinned, by buckets of index numbers; `buffer` has the rule.
#
# Extremes alone would bias an average. So each thinned record of a number also has an area: that under the line of all
# records since the held record before it, over the index numbers. Areas of records that are thinned later add up.

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]

MAX_BITS: Final = 62  # a bucket of 2**62 numbers holds every stream


def thinned(
    rows: Ints, indexes: Ints, ys: Sequence[Array], *, bits: int, fits: Callable[[Ints], bool]
) -> tuple[Ints, int]:
    """Thin some rows until they fit, and return them with the `bits` of their buckets.

    Args:
        rows: The rows that may stay.
        indexes: Shape (n,): the number of each record, increasing.
        ys: As for `retained`, each of shape (n,).
        bits: The `bits` to begin with.
        fits: Returns whether the rows that stay are few enough.
    """
    while not fits(rows := rows[retained(indexes[rows], [y[rows] for y in ys], bits)]):
        if bits == MAX_BITS:
            return rows[:0], bits
        bits += 1
    return rows, bits


def retained(indexes: Ints, ys: Sequence[Array], bits: int) -> Ints:
    """Return which rows stay when buckets of `2**bits` numbers are thinned, in order.

    `views.thinning` is another rule, for what is drawn once: its runs are as long as a pixel is wide. Those of a later
    drawing would not be made of these, so that what is held would depend on when it was thinned.

    Args:
        indexes: Shape (n,): the number of each record, increasing.
        ys: The columns of numbers whose extremes stay, each of shape (n,); without one, the first row of each bucket
            stays.
        bits: The base-2 logarithm of the length of a bucket.
    """
    if not bits or not len(indexes):
        return np.arange(len(indexes))
    ids = indexes >> bits
    starts = _starts(ids)
    if not ys:
        return starts
    keep = np.zeros(len(ids), bool)
    keep[starts] = keep[starts - 1] = True  # starts - 1 are the ends; that of the last bucket is row -1
    sizes = np.diff(np.append(starts, len(ids)))
    for y in ys:
        finite = np.isfinite(y)
        low = high = y
        if not finite.all():
            low, high = np.where(finite, y, np.inf), np.where(finite, y, -np.inf)
            for odd in (np.isnan(y), y == np.inf, y == -np.inf):
                keep[_first(np.flatnonzero(odd), ids)] = True
        for extreme, side in ((np.minimum, low), (np.maximum, high)):
            found = np.repeat(extreme.reduceat(side, starts), sizes) == side
            keep[_first(np.flatnonzero(found & finite), ids)] = True
    return np.flatnonzero(keep)


def merged_areas(indexes: Ints, y: Array, areas: Array | None, kept: Ints) -> Array:
    """Return the areas of the rows that stay when others are thinned, shape (n_kept,).

    Args:
        indexes: Shape (n,): the number of each record, increasing.
        y: Shape (n,): its value.
        areas: Shape (n,): its area; NaN, or `None` for all, where nothing between it and the row before was thinned.
        kept: The rows that stay, increasing; the first is 0.
    """
    if not len(kept):
        return np.empty(0)
    if areas is None and indexes[-1] - indexes[0] == len(y) - 1 and np.isfinite(y).all():
        return _sums_between(y, kept)
    known = np.flatnonzero(np.isfinite(y))
    straight, at = np.zeros(len(y)), y[known].astype(FLOAT64) / 2
    with np.errstate(over="ignore", invalid="ignore"):  # values near the largest float have no area
        straight[known[1:]] = (at[1:] + at[:-1]) * np.diff(indexes[known])
        if areas is not None:
            # Across a gap behind which records were thinned before, the last finite one may be among those.
            unknown = (np.diff(known) > 1) & ~np.isnan(areas[known[:-1]])
            straight[known[1:][unknown]] = 0
            straight = np.where(np.isnan(areas), straight, areas)
        merged: Array = np.add.reduceat(straight, np.concatenate(([0], kept[:-1] + 1)))
    return merged


def _sums_between(y: Array, kept: Ints) -> Array:
    """Return the areas where all numbers are finite and none is missing: the common case, at a tenth of the cost."""
    with np.errstate(over="ignore", invalid="ignore"):
        halves = y[kept] / 2
        sums: Array = np.add.reduceat(y, kept, dtype=FLOAT64)
        return np.concatenate(([0.0], sums[:-1] + halves[1:] - halves[:-1]))


def line_means(indexes: Ints, y: Array, areas: Array) -> Array:
    """Return the mean of the line between each value and the one before; NaN where it is straight, and at gaps.

    Args:
        indexes: Shape (n,): the number of each record, increasing.
        y: Shape (n,): its value.
        areas: Shape (n,): its area, as for `merged_areas`.
    """
    means = np.full(len(y), np.nan)
    known = np.isfinite(y)
    rows = np.flatnonzero(known[1:] & known[:-1]) + 1
    means[rows] = areas[rows] / (indexes[rows] - indexes[rows - 1])
    return means


def _starts(ids: Ints) -> Ints:
    return np.flatnonzero(np.concatenate(([True], ids[1:] != ids[:-1])))


def _first(rows: Ints, ids: Ints) -> Ints:
    """Return the first of some rows in each bucket."""
    return rows[_starts(ids[rows])] if len(rows) else rows


# How much memory a value takes in this process, where `values.n_bytes` tells how much its data takes in a message.

NUMBER_BYTES: Final = 32  # of a Python number, as the allocator rounds it
ARRAY_BYTES: Final = 144  # of an array beside its data: NumPy's header has 112, and malloc rounds
WRAPPED_BYTES: Final = 3 * ARRAY_BYTES  # of a histogram or images: one or two arrays, and what holds them


def footprint(value: Value) -> int:
    """Estimate how much memory a value takes: a small mapping four times as much as its numbers.

    The keys of mappings are not counted: the records of a stream share them.
    """
    cls: type = type(value)
    if cls in EIGHT_BYTES:
        return NUMBER_BYTES
    if cls is str or cls is bytes:
        return sys.getsizeof(value)
    if cls not in (list, tuple, dict):
        return n_bytes(value) + (ARRAY_BYTES if array_kind(value) else WRAPPED_BYTES)
    items = value.values() if cls is dict else value
    if EIGHT_BYTES.issuperset(map(type, items)):
        return sys.getsizeof(value) + NUMBER_BYTES * len(items)
    return sys.getsizeof(value) + sum(map(footprint, items))
