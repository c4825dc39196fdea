"""The table of reducers: what each is called, how it is made, and what may be known of it without values.

Windows, sliding windows, ranks, fleets, folders, the totals of runs and the columns of tables make a reducer here, and
use its functions alone. What compiled programs reduce on devices has an arithmetic of its own, and takes names and
meaning from here.

To add a reducer: write it in `numbers` or `selecting`, give it an entry here and a typed method in `stages.Chain`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from sightglass.core.columns import FLOAT64, INT64, Columns

from . import numbers, selecting
from .reducer import Reducer, State

Takes = Literal["anything", "numbers", "real numbers", "numbers and texts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducerEntry:
    """A reducer of the table.

    Attributes:
        make: Returns the reducer of some arguments; raises a `QueryError` if one is not valid.
        takes: What its values may be. Where numbers are meant, mappings and sequences of them are reduced by name.
        example: Its arguments, as a suggestion writes them.
        for_each: Whether it gives a value for each value, and has no window.
        counts: Whether it does not look at the values.
        over_items: Whether an array counts as so many values.
        seeded: Whether it draws values at random: `make` takes the `seed`.
    """

    make: Callable[..., Reducer]
    takes: Takes
    example: str = ""
    for_each: bool = False
    counts: bool = False
    over_items: bool = False
    seeded: bool = False


ENTRIES: Final[Mapping[str, ReducerEntry]] = {
    "count": ReducerEntry(make=numbers.count, takes="anything", counts=True),
    "sum": ReducerEntry(make=numbers.total, takes="numbers"),
    "mean": ReducerEntry(make=numbers.mean, takes="numbers"),
    "var": ReducerEntry(make=numbers.var, takes="numbers"),
    "std": ReducerEntry(make=lambda: numbers.var("std"), takes="numbers"),
    "min": ReducerEntry(make=lambda: numbers.extreme("min"), takes="real numbers"),
    "max": ReducerEntry(make=lambda: numbers.extreme("max"), takes="real numbers"),
    "first": ReducerEntry(make=selecting.first, takes="anything"),
    "last": ReducerEntry(make=selecting.last, takes="anything"),
    "median": ReducerEntry(make=numbers.median, takes="real numbers", over_items=True),
    "quantile": ReducerEntry(make=numbers.quantile, takes="real numbers", example="0.9", over_items=True),
    "percentile": ReducerEntry(make=numbers.percentile, takes="real numbers", example="90", over_items=True),
    "histogram": ReducerEntry(make=numbers.histogram, takes="real numbers", over_items=True),
    "top": ReducerEntry(make=selecting.top, takes="anything", example="3"),
    "sample": ReducerEntry(make=selecting.sample, takes="anything", example="10", seeded=True),
    "collect": ReducerEntry(make=selecting.collect, takes="anything"),
    "reduce": ReducerEntry(make=numbers.fold, takes="anything", example="lambda total, x: total + x, 0"),
    "argmax": ReducerEntry(make=lambda: selecting.arg("argmax"), takes="real numbers"),
    "argmin": ReducerEntry(make=lambda: selecting.arg("argmin"), takes="real numbers"),
    "distinct": ReducerEntry(make=selecting.distinct, takes="numbers and texts"),
    "rate": ReducerEntry(make=numbers.rate, takes="anything", counts=True),
    "scan": ReducerEntry(make=numbers.scan, takes="anything", example="lambda total, x: total + x, 0", for_each=True),
    "ema": ReducerEntry(make=numbers.ema, takes="numbers", example="0.1", for_each=True),
    "diff": ReducerEntry(make=numbers.diff, takes="numbers", for_each=True),
}

REDUCERS: Final = tuple(name for name, entry in ENTRIES.items() if not entry.for_each)
COUNTING: Final = tuple(name for name, entry in ENTRIES.items() if entry.counts)
"""The reducers that do not look at the values."""
SEQUENTIAL: Final = (*(name for name, entry in ENTRIES.items() if entry.for_each), "rolling")
"""The stages that give a value for every value, and depend on those before."""


def reducer(name: str, args: Mapping[str, Any], *, seed: int = 0) -> Reducer:
    """Return the reducer of a name.

    Args:
        name: A key of `ENTRIES`.
        args: The reducer's arguments; `key` and `fn` are Python functions.
        seed: The seed of what is drawn at random.

    Raises:
        QueryError: An argument is not valid.
    """
    entry = ENTRIES[name]
    return entry.make(**args, seed=seed) if entry.seeded else entry.make(**args)


def can_reduce(reducer: Reducer, values: object) -> bool:
    """Return whether `reduce_columns` takes these values: one number for each record."""
    is_numbers = getattr(values, "dtype", None) in (FLOAT64, INT64) and getattr(values, "ndim", 0) == 1
    return reducer.of_block is not None and is_numbers


def reduce_columns(reducer: Reducer, columns: Columns, first_ordinal: int = 0) -> State:
    """Return a reducer's state after all records of some columns, in order.

    Args:
        reducer: The reducer.
        columns: At least one record, with values that it `can_reduce`.
        first_ordinal: Added to the ordinals of the records.
    """
    assert reducer.of_block is not None
    with np.errstate(all="ignore"):  # infinities of both signs add up to NaN, as they do one by one
        return reducer.of_block(columns, first_ordinal)
