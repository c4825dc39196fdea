"""Digests of tensors: for each step its statistics and a small histogram, from which overviews and curves are drawn.

Of a stored histogram, the extremes are the outer edges of its filled bins, and the mean is known only where the file
says the sum; the deviation, the norm, and how many values are zero, negative or positive are not.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import CLOSED, COMPLETE, Columns
from sightglass.core.values import Histogram

from .browse import array_of
from .histograms import count
from .statistics import statistics

Table = npt.NDArray[np.void]
"""Rows of digests, of dtype `ROW`, one for each record of a series."""

N_BARS: Final = 24
COUNTS: Final = ("n", "n_zero", "n_negative", "n_positive", "n_nan", "n_posinf", "n_neginf")
NUMBERS: Final = ("min", "max", "mean", "std", "norm")
STATISTICS: Final = (*NUMBERS, *COUNTS)

ROW: Final = np.dtype(
    [
        ("known", "<i1"), ("flags", "u1"), ("index", "<i8"), ("ordinal", "<i8"), ("n_events", "<i8"),
        ("step", "<f8"), ("wall_time", "<f8"),
        *((name, "<i8") for name in COUNTS), *((name, "<f8") for name in NUMBERS), ("bars", "u1", N_BARS),
    ]
)  # fmt: skip
"""`known` is 0 for a record that was not read yet, and `UNREADABLE` for one that cannot be; `flags` to `n_events` are
those of its row, see `core.columns`. The fields of `NUMBERS` are float64, NaN where there is none; counts that a
histogram does not tell are -1. `bars` are the numbers of the finite values in equal bins from `min` to `max`, relative
to the largest, as integers up to 255; above 0 where there is a value."""

UNREADABLE: Final = -1


def digest(columns: Columns, i: int, *, tag: str) -> np.void:
    """Return the digest of a record, one of some columns.

    Raises:
        QueryError: Its value is neither a histogram nor an array of numbers.
    """
    record = columns.record(i, tag=tag, run="")
    row: np.void = np.zeros(1, ROW)[0]
    row["known"], row["step"], row["wall_time"], row["index"] = 1, record.step, record.wall_time, record.index
    row["flags"] = COMPLETE | CLOSED if columns.flags is None else columns.flags[i]
    row["n_events"] = 1 if columns.n_events is None else columns.n_events[i]
    row["ordinal"] = record.index if columns.ordinals is None else columns.ordinals[i]
    if isinstance(record.value, Histogram):
        _fill_from_histogram(row, record.value)
    else:
        array = array_of(record.tag, record.value)
        found = statistics(array)
        for name in STATISTICS:
            row[name] = getattr(found, name)
        with np.errstate(all="ignore"):  # a range beyond float64
            row["bars"] = _bars(array, row)
    return row


def _fill_from_histogram(row: np.void, histogram: Histogram) -> None:
    for name in ("n_nan", "n_posinf", "n_neginf"):
        row[name] = getattr(histogram, name)
    total = histogram.total
    row["n"] = total + histogram.n_nan + histogram.n_posinf + histogram.n_neginf
    for name in NUMBERS:
        row[name] = math.nan
    for name in ("n_zero", "n_negative", "n_positive"):
        row[name] = -1
    filled = np.flatnonzero(histogram.counts)
    if not len(filled):
        return
    low, high = float(histogram.edges[filled[0]]), float(histogram.edges[filled[-1] + 1])
    if histogram.stored is not None:
        low, high, of_all = histogram.stored
        row["mean"] = of_all / total
    row["min"], row["max"] = low, high
    row["bars"] = _bars(histogram, row)


def _bars(value: Histogram | npt.NDArray[Any], row: np.void) -> npt.NDArray[np.uint8]:
    """Count the finite values in equal bins from `min` to `max`, relative to the largest count."""
    low, high = float(row["min"]), float(row["max"])
    edges = np.linspace(low, high, N_BARS + 1) if 0 < high - low < math.inf else np.zeros(2)
    if not (edges[1:] > edges[:-1]).all():  # a single value, or no room for edges
        counts = np.zeros(N_BARS, np.int64)
        counts[N_BARS // 2] = not math.isnan(low)
    else:
        magnitudes = not isinstance(value, Histogram) and value.dtype.kind == "c"
        counts = count(np.abs(np.asarray(value, np.complex128)) if magnitudes else value, edges)
    return np.ceil(255 * (counts / max(1, int(counts.max())))).astype(np.uint8)
