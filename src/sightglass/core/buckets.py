"""Which records stay when a stream is thinned, by buckets of index numbers; `buffer` has the rule.

Extremes alone would bias an average. So each thinned record of a number also has an area: that under the line of all
records since the held record before it, over the index numbers. Areas of records that are thinned later add up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .columns import FLOAT64

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
