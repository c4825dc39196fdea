"""Reduce a whole array of numbers at once: the state is the one that the reducer reaches number by number.

Sums of floats are added in another order, so means and variances agree to about 1e-12 of their size. Reducers without a
function here take their values one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns

from .limits import check_int
from .reduction import State
from .sketches import Bins, Quantiles

INT64_MAX: Final = 2**63 - 1


def can_reduce(name: str, values: object) -> bool:
    """Return whether `reduce_numbers` takes these values: one number for each record."""
    return name in _STATES and isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (float, int)


def reduce_numbers(name: str, args: Mapping[str, Any], columns: Columns, first_ordinal: int = 0) -> State:
    """Return the state of a reducer after all records of some columns, in order.

    Args:
        name: The reducer's name.
        args: Its arguments.
        columns: At least one record, with values that `can_reduce`.
        first_ordinal: Added to the ordinals of the records.
    """
    with np.errstate(all="ignore"):  # infinities of both signs add up to NaN, as they do one by one
        return _STATES[name](columns, first_ordinal, **args)


def _sum(columns: Columns, first: int) -> State:
    values = columns.values
    if values.dtype != np.int64:
        return float(values.sum())
    fits = max(-int(values.min()), int(values.max())) * len(values) <= INT64_MAX
    return int(values.sum()) if fits else check_int(sum(values.tolist()))


def _mean(columns: Columns, first: int) -> State:
    return len(columns), float(columns.values.sum(dtype=np.float64))


def _moments(columns: Columns, first: int) -> State:
    values = columns.values.astype(np.float64)
    mean = float(values.mean())
    return len(columns), mean, float(np.square(values - mean).sum())


def _place(columns: Columns, i: int, first: int) -> int:
    return first + (columns.index + i if columns.ordinals is None else int(columns.ordinals[i]))


def _at(columns: Columns, i: int, first: int) -> State:
    return _place(columns, i, first), columns.values[i].item()


def _arg(choose: Callable[[npt.NDArray[Any]], np.intp]) -> Callable[[Columns, int], State]:
    def state(columns: Columns, first: int) -> State:
        values = columns.values
        nan = np.isnan(values)
        i = int(nan.argmax() if nan.any() else choose(values))
        return values[i].item(), _place(columns, i, first), columns.steps[i].item()

    return state


def _rate(columns: Columns, first: int) -> State:
    return len(columns), float(columns.wall_times.min()), float(columns.wall_times.max())


_STATES: Final[Mapping[str, Callable[..., State]]] = {
    "count": lambda columns, first: len(columns),
    "sum": _sum,
    "mean": _mean,
    "var": _moments,
    "std": _moments,
    "min": lambda columns, first: columns.values.min().item(),
    "max": lambda columns, first: columns.values.max().item(),
    "first": lambda columns, first: _at(columns, 0, first),
    "last": lambda columns, first: _at(columns, len(columns) - 1, first),
    "quantile": lambda columns, first, q: Quantiles().add(columns.values),
    "histogram": lambda columns, first, bins=64: Bins(bins).add(columns.values),
    "argmin": _arg(np.argmin),
    "argmax": _arg(np.argmax),
    "rate": _rate,
}
