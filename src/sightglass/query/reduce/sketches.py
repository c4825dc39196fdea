"""Distributions of endless streams in constant memory: quantiles and histograms that do not depend on order or chunks.

`Quantiles` is exact up to `EXACT` values; beyond it is a DDSketch (Masson, Rim and Lee 2019, "DDSketch", VLDB 12),
whose results are within `ACCURACY` of the value. `Bins` is a histogram whose bins are multiples of a power of two: bins
of one width merge into bins of twice the width without a remainder, so counts stay exact for any values.
"""

from __future__ import annotations

import bisect
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.values import Histogram, Value

EXACT: Final = 1024  # about 32 KB of Python floats; most groups have fewer values
ACCURACY: Final = 0.005  # less than a pixel of a chart
MAX_SKETCH_BINS: Final = 16_384  # 128 KB of counts cover a range of 10^71 at this accuracy
MANTISSA_BITS: Final = 50  # numbers of bins stay below 2^50, where a float64 is exact
MIN_EXPONENT: Final = -1074  # of the smallest float64
BLOCK: Final = 2**18  # 2 MB as float64, so that temporary arrays stay in the cache


class Quantiles:
    """The quantiles of a stream of numbers."""

    __slots__ = ("_exact", "_n", "_n_nan", "_n_neginf", "_n_posinf", "_sketch")

    def __init__(self) -> None:
        self._exact: list[float] = []
        self._sketch: Any = None
        self._n = self._n_nan = self._n_posinf = self._n_neginf = 0

    def add(self, value: Value) -> Quantiles:
        """Add a number, or each number of an array."""
        if isinstance(value, np.ndarray):
            flat = value.ravel()
            for i in range(0, len(flat), BLOCK):
                self._add_array(flat[i : i + BLOCK].astype(np.float64))
        else:
            self._add_one(float(value))
        return self

    @property
    def is_exact(self) -> bool:
        """Whether its quantiles are those of the numbers, not of a sketch."""
        return self._sketch is None

    @property
    def n_bytes(self) -> int:
        """About how many bytes it holds."""
        return 32 * len(self._exact) if self._sketch is None else 8 * MAX_SKETCH_BINS

    def merge(self, other: Quantiles) -> Quantiles:
        """Add all numbers of another one."""
        for name in ("_n_nan", "_n_posinf", "_n_neginf"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other._sketch is None:
            self._add_array(np.asarray(other._exact, np.float64))
            return self
        self._open_sketch()
        self._sketch.merge(other._sketch)
        self._n += other._n
        return self

    def at(self, q: float) -> float:
        """Return the q-quantile; NaN without numbers, or if any of them is NaN."""
        n = self._n + self._n_posinf + self._n_neginf
        if self._n_nan or not n:
            return math.nan
        rank = q * (n - 1)
        if rank < self._n_neginf:
            return -math.inf
        if rank > n - 1 - self._n_posinf:
            return math.inf
        inner = (rank - self._n_neginf) / (self._n - 1) if self._n > 1 else 0.0
        if self._sketch is None:
            return float(np.quantile(self._exact, inner))
        return float(self._sketch.get_quantile_value(inner))

    def to_data(self) -> tuple[Any, ...]:
        """Return its numbers and counts as plain data, see `of_data`."""
        counts = self._n, self._n_nan, self._n_posinf, self._n_neginf
        sketch = self._sketch
        if sketch is None:
            return counts, np.asarray(self._exact, np.float64), 0.0, ()
        return counts, np.zeros(0), sketch._zero_count, tuple(map(_bins_of, (sketch._store, sketch._negative_store)))

    @staticmethod
    def of_data(data: tuple[Any, ...]) -> Quantiles:
        """Return what `to_data` made plain data of; raises a `TypeError` or a `ValueError` of anything else."""
        counts, exact, n_zero, stores = data
        made = Quantiles()
        made._exact = np.asarray(exact, np.float64).tolist()
        if stores:
            made._open_sketch()
            sketch = made._sketch
            sketch._zero_count = float(n_zero)
            for store, (keys, n_values) in zip((sketch._store, sketch._negative_store), stores, strict=True):
                for key, n in zip(
                    keys.tolist()[::-1], n_values.tolist()[::-1], strict=True
                ):  # the lowest bins collapse
                    store.add(int(key), float(n))
            sketch._count = sketch._zero_count + sketch._store.count + sketch._negative_store.count
        made._n, made._n_nan, made._n_posinf, made._n_neginf = map(int, counts)
        return made

    def _add_one(self, value: float) -> None:
        if math.isfinite(value):
            self._n += 1
            if self._sketch is not None:
                self._sketch.add(value)
                return
            self._exact.append(value)
            if len(self._exact) > EXACT:
                self._open_sketch()
        elif math.isnan(value):
            self._n_nan += 1
        elif value > 0:
            self._n_posinf += 1
        else:
            self._n_neginf += 1

    def _add_array(self, values: npt.NDArray[np.float64]) -> None:
        finite = values[np.isfinite(values)]
        self._n_nan += int(np.isnan(values).sum())
        self._n_posinf += int(np.isposinf(values).sum())
        self._n_neginf += int(np.isneginf(values).sum())
        self._n += len(finite)
        if self._sketch is None and len(self._exact) + len(finite) <= EXACT:
            self._exact.extend(finite.tolist())
            return
        self._open_sketch()
        self._add_to_sketch(finite)

    def _add_to_sketch(self, values: npt.NDArray[np.float64]) -> None:
        """Add many values, once for each bin of the sketch: a sign and a power of gamma."""
        # ddsketch adds one value at a time: 71 ms for 100,000. Counting those of each bin first takes 10 ms.
        gamma = (1 + ACCURACY) / (1 - ACCURACY)
        with np.errstate(divide="ignore"):
            keys = np.ceil(np.log(np.abs(values)) / math.log(gamma))
        for sign in (-1.0, 0.0, 1.0):
            powers, counts = np.unique(keys[np.sign(values) == sign], return_counts=True)
            for power, count in zip(powers.tolist(), counts.tolist(), strict=True):
                self._sketch.add(sign * gamma ** (power - 0.5) if sign else 0.0, float(count))

    def _open_sketch(self) -> None:
        if self._sketch is None:
            from ddsketch import LogCollapsingLowestDenseDDSketch

            self._sketch = LogCollapsingLowestDenseDDSketch(ACCURACY, MAX_SKETCH_BINS)
            for value in self._exact:
                self._sketch.add(value)
            self._exact = []


def _bins_of(store: Any) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return the keys and the counts of a sketch's bins that are not empty, the lowest first."""
    counts = np.asarray(store.bins, np.float64)
    filled = np.flatnonzero(counts)
    return filled + store.offset, counts[filled]


class SortedNumbers:
    """Numbers in order, of which any may leave again."""

    __slots__ = ("_n_nan", "_numbers")

    def __init__(self) -> None:
        self._numbers: list[float] = []
        self._n_nan = 0

    def add(self, value: float) -> None:
        """Add a number."""
        if value == value:  # noqa: PLR0124  half as long as `isnan`
            bisect.insort(self._numbers, value)
        else:
            self._n_nan += 1

    def remove(self, value: float) -> None:
        """Remove a number that was added."""
        if value == value:  # noqa: PLR0124
            del self._numbers[bisect.bisect_left(self._numbers, value)]
        else:
            self._n_nan -= 1

    def at(self, q: float) -> float:
        """Return the q-quantile as `Quantiles` does, exactly."""
        numbers = self._numbers
        if self._n_nan or not numbers:
            return math.nan
        place = q * (len(numbers) - 1)
        below = int(place)
        rest, a = place - below, numbers[below]
        if not rest or math.isinf(a):
            # Between an infinity and a number, the infinity counts, see `Quantiles.at`.
            return a
        b = numbers[below + 1]
        if math.isinf(b):
            return b
        return a + (b - a) * rest if rest < 0.5 else b - (b - a) * (1 - rest)


class Bins:
    """A histogram of at most a given number of bins, which widen as values arrive.

    Bin `k` counts the values from `k * 2**exponent` up to the next bin. The exponent is the smallest that fits all
    values so far into the allowed number of bins, so the result depends on the values only.
    """

    __slots__ = ("_counts", "_exponent", "_first", "_high", "_limit", "_low", "_outside")

    def __init__(self, limit: int) -> None:
        self._limit = max(2, limit)  # no single bin covers both signs
        self._low, self._high = math.inf, -math.inf
        self._exponent = MIN_EXPONENT
        self._first = 0
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._outside = [0, 0, 0]

    def add(self, value: Value) -> Bins:
        """Count a number, or each number of an array."""
        if not isinstance(value, np.ndarray):
            self._add_one(float(value))
            return self
        flat = value.ravel()
        for i in range(0, len(flat), BLOCK):
            self._add_array(flat[i : i + BLOCK].astype(np.float64))
        return self

    @property
    def n_bytes(self) -> int:
        """How many bytes it holds."""
        return self._counts.nbytes

    def _add_one(self, value: float) -> None:
        if not math.isfinite(value):
            self._outside[0 if math.isnan(value) else 1 if value > 0 else 2] += 1
            return
        if not self._low <= value <= self._high:
            self._fit(value, value)
        self._counts[_place(value, self._exponent) - self._first] += 1

    def _add_array(self, values: npt.NDArray[np.float64]) -> None:
        finite = values[np.isfinite(values)]
        if len(finite) < len(values):
            for place, mask in enumerate((np.isnan(values), np.isposinf(values), np.isneginf(values))):
                self._outside[place] += int(mask.sum())
        if len(finite):
            self._fit(float(finite.min()), float(finite.max()))
            places = np.floor(np.ldexp(finite, -self._exponent)).astype(np.int64)
            places[(places == 0) & (finite < 0)] = -1
            self._counts += np.bincount(places - self._first, minlength=len(self._counts))

    def merge(self, other: Bins) -> Bins:
        """Add the counts of another histogram of the same limit."""
        self._outside = [a + b for a, b in zip(self._outside, other._outside, strict=True)]
        if len(other._counts):
            self._fit(other._low, other._high)
            places = (other._first + np.arange(len(other._counts))) >> (self._exponent - other._exponent)
            np.add.at(self._counts, places - self._first, other._counts)
        return self

    def to_data(self) -> tuple[Any, ...]:
        """Return its counts as plain data, see `of_data`."""
        return (
            self._limit,
            self._low,
            self._high,
            self._exponent,
            self._first,
            self._counts.copy(),
            tuple(self._outside),
        )

    @staticmethod
    def of_data(data: tuple[Any, ...]) -> Bins:
        """Return what `to_data` made plain data of; raises a `TypeError` or a `ValueError` of anything else."""
        limit, low, high, exponent, first, counts, outside = data
        made = Bins(int(limit))
        made._low, made._high, made._exponent, made._first = float(low), float(high), int(exponent), int(first)
        made._counts = np.array(counts, np.int64)  # a copy: what a message holds cannot be written to
        made._outside = [int(n) for n in outside]
        return made

    def histogram(self) -> Histogram:
        """Return the bins from the smallest to the largest value."""
        n_nan, n_posinf, n_neginf = self._outside
        if not len(self._counts):
            return Histogram.from_counts([0], [0.0, 1.0], n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf)
        with np.errstate(over="ignore"):
            edges = np.ldexp((self._first + np.arange(len(self._counts) + 1)).astype(np.float64), self._exponent)
        edges = np.nan_to_num(edges, copy=False)  # the largest floats lie in a bin that ends beyond them
        return Histogram.from_counts(self._counts, edges, n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf)

    def _fit(self, low: float, high: float) -> None:
        """Widen the bins until they cover this range too, and regroup the counts."""
        empty = not len(self._counts)
        self._low, self._high = min(self._low, low), max(self._high, high)
        exponent = fitting_exponent(self._low, self._high, self._limit)
        first = _place(self._low, exponent)
        n_bins = _place(self._high, exponent) - first + 1
        if exponent == self._exponent and first == self._first and n_bins == len(self._counts):
            return
        counts = np.zeros(n_bins, np.int64)
        if not empty:
            places = (self._first + np.arange(len(self._counts))) >> (exponent - self._exponent)
            np.add.at(counts, places - first, self._counts)
        self._exponent, self._first, self._counts = exponent, first, counts


def _place(value: float, exponent: int) -> int:
    """Return the number of the bin of a value."""
    place = math.floor(math.ldexp(value, -exponent))
    return -1 if place == 0 and value < 0 else place  # so small that it became -0.0


def fitting_exponent(low: float, high: float, limit: int) -> int:
    """Return the smallest exponent with which at most `limit` bins cover a range; their numbers fit int64."""
    largest = max(abs(low), abs(high))
    exponent = max(MIN_EXPONENT, math.frexp(largest)[1] - MANTISSA_BITS if largest else MIN_EXPONENT)
    spread = high / limit - low / limit
    if spread > 0:
        exponent = max(exponent, math.frexp(spread)[1] - 2)
    while _place(high, exponent) - _place(low, exponent) >= limit:
        exponent += 1
    return exponent
