"""Whole columns of numbers reduced at once, one series or many that share their steps, and merged without the values.

A row holds what the reducers `NAMES` need of a series: the fields of `PARTS`. The state of each of them is a few of
these fields (`STATES`), the one that the reducer reaches number by number.

Rule 1: sums of floats are added in another order than one by one: means and variances agree to about 1e-12.
Rule 2: sums of integers wrap around beyond 64 bits: who calls has to know that they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import FLOAT64, INT64, Columns

from .reducer import State

Values = npt.NDArray[Any]
"""Float64 or int64 of shape (records, series)."""

Rows = npt.NDArray[np.void]
"""Shape (series,): a row of the fields of `PARTS` for each series; `_at` are ordinals."""


class ColumnPart(NamedTuple):
    """Some fields of a row, which are computed and merged together.

    Attributes:
        of_block: Returns the fields of some records, at least one, from values, steps and ordinals.
        merge: Returns the fields of two rows, of earlier and later records, together.
    """

    of_block: Callable[[Values, npt.NDArray[Any], npt.NDArray[np.int64]], tuple[Any, ...]]
    merge: Callable[[Rows, Rows], tuple[Any, ...]]


def _mean_and_squares(values: Values, steps: object, ordinals: object) -> tuple[Any, ...]:
    mean = values.mean(0, dtype=FLOAT64)
    return mean, np.square(values - mean).sum(0)


def merge_moments(a: State, b: State) -> State:
    """Return (n, mean, squares) of two parts, neither of them empty, together.

    See Chan, Golub and LeVeque (1979), "Updating formulae".
    """
    n, delta = a[0] + b[0], b[1] - a[1]
    return n, a[1] + delta * (b[0] / n), a[2] + b[2] + delta * delta * (a[0] * b[0] / n)


def _merge_mean_and_squares(a: Rows, b: Rows) -> tuple[Any, ...]:
    _, mean, squares = merge_moments(*((rows["n"], rows["mean"], rows["squares"]) for rows in (a, b)))
    return mean, squares


def _added(name: str) -> Callable[[Rows, Rows], tuple[Any, ...]]:
    return lambda a, b: (a[name] + b[name],)


def _chosen(names: tuple[str, ...], is_second: Callable[[Rows, Rows], Any]) -> Callable[[Rows, Rows], tuple[Any, ...]]:
    def merge(a: Rows, b: Rows) -> tuple[Any, ...]:
        second = is_second(a, b)
        return tuple(np.where(second, b[name], a[name]) for name in names)

    return merge


def _arg(name: str) -> ColumnPart:
    sign = 1 if name == "argmin" else -1
    find = np.argmin if name == "argmin" else np.argmax  # a NaN counts as an extreme

    def rank(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return numbers of which the least is the extreme."""
        if values.dtype == INT64:
            return values if sign == 1 else ~values  # -values has one number too few
        return np.where(np.isnan(values), -np.inf, sign * values)

    def of_block(values: Values, steps: npt.NDArray[Any], ordinals: npt.NDArray[np.int64]) -> tuple[Any, ...]:
        places = find(values, 0)
        return values[places, np.arange(len(places))], ordinals[places], steps[places], steps.dtype == INT64

    def is_second(a: Rows, b: Rows) -> Any:
        mine, other = rank(a[name]), rank(b[name])
        return (other < mine) | ((other == mine) & (b[f"{name}_at"] < a[f"{name}_at"]))

    return ColumnPart(of_block, _chosen(FIELDS[name], is_second))


FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "n": ("n",), "sum": ("sum",), "float_sum": ("float_sum",), "moments": ("mean", "squares"),
    "min": ("min",), "max": ("max",), "first": ("first", "first_at"), "last": ("last", "last_at"),
    "argmin": ("argmin", "argmin_at", "argmin_step", "argmin_whole"),
    "argmax": ("argmax", "argmax_at", "argmax_step", "argmax_whole"),
}  # fmt: skip
"""The fields of each part. `squares` are those of the differences from the mean; `_whole` is whether a step is one."""

PARTS: Final[Mapping[str, ColumnPart]] = {
    "n": ColumnPart(lambda values, steps, ordinals: (len(values),), _added("n")),
    "sum": ColumnPart(lambda values, steps, ordinals: (values.sum(0),), _added("sum")),
    "float_sum": ColumnPart(lambda values, steps, ordinals: (values.sum(0, dtype=FLOAT64),), _added("float_sum")),
    "moments": ColumnPart(_mean_and_squares, _merge_mean_and_squares),
    "min": ColumnPart(lambda values, steps, ordinals: (values.min(0),), lambda a, b: (np.minimum(a["min"], b["min"]),)),
    "max": ColumnPart(lambda values, steps, ordinals: (values.max(0),), lambda a, b: (np.maximum(a["max"], b["max"]),)),
    "first": ColumnPart(
        lambda values, steps, ordinals: (values[0], ordinals[0]),
        _chosen(FIELDS["first"], lambda a, b: b["first_at"] < a["first_at"]),
    ),
    "last": ColumnPart(
        lambda values, steps, ordinals: (values[-1], ordinals[-1]),
        _chosen(FIELDS["last"], lambda a, b: b["last_at"] > a["last_at"]),
    ),
    "argmin": _arg("argmin"),
    "argmax": _arg("argmax"),
}

STATES: Final[Mapping[str, tuple[str, ...]]] = {
    "count": ("n",), "sum": ("sum",), "mean": ("n", "float_sum"), "var": ("n", "mean", "squares"),
    "std": ("n", "mean", "squares"), "min": ("min",), "max": ("max",), "first": ("first_at", "first"),
    "last": ("last_at", "last"), "argmin": ("argmin", "argmin_at", "argmin_step", "argmin_whole"),
    "argmax": ("argmax", "argmax_at", "argmax_step", "argmax_whole"),
}  # fmt: skip
"""The fields in the state of a reducer, in their order."""

NAMES: Final = tuple(STATES)

_SHAPES: Final = {
    "n": "<i8", "float_sum": "<f8", "mean": "<f8", "squares": "<f8", "first_at": "<i8", "last_at": "<i8",
    "argmin_at": "<i8", "argmax_at": "<i8", "argmin_step": "<f8", "argmax_step": "<f8", "argmin_whole": "?",
    "argmax_whole": "?",
}  # fmt: skip


def row_type(dtype: np.dtype[Any]) -> list[tuple[str, Any]]:
    """Return the fields of a row and their types, for values of float64 or int64."""
    return [(field, _SHAPES.get(field, dtype)) for fields in FIELDS.values() for field in fields]


def fill(rows: Rows, values: Values, steps: npt.NDArray[Any], ordinals: npt.NDArray[np.int64]) -> None:
    """Set all fields of rows to those of some records, at least one."""
    for name, part in PARTS.items():
        for field, found in zip(FIELDS[name], part.of_block(values, steps, ordinals), strict=True):
            rows[field] = found


def merge(a: Rows, b: Rows) -> Rows:
    """Return the rows of two parts of some series, the second of later records; other fields are those of the first."""
    rows = a.copy()
    for name, part in PARTS.items():
        for field, found in zip(FIELDS[name], part.merge(a, b), strict=True):
            rows[field] = found
    return rows


def state_of(name: str, row: Mapping[str, Any] | np.void) -> State:
    """Return a reducer's state over the series of a row, whose fields may be arrays of one number."""
    state = tuple(np.asarray(row[field]).item() for field in STATES[name])
    if name in ("argmin", "argmax"):
        value, at, step, is_whole = state
        return value, at, int(step) if is_whole else step
    return state if len(state) > 1 else state[0]


def finish(name: str, rows: Rows) -> npt.NDArray[np.float64]:
    """Return what a reducer comes to over the series of some rows, as floats; of `argmin` and `argmax` the step."""
    with np.errstate(all="ignore"):
        match name:
            case "count":
                found = rows["n"]
            case "sum":
                found = rows["float_sum"]
            case "mean":
                found = rows["float_sum"] / rows["n"]
            case "var":
                found = rows["squares"] / rows["n"]
            case "std":
                found = np.sqrt(rows["squares"] / rows["n"])
            case "argmin" | "argmax":
                found = rows[f"{name}_step"]
            case _:
                found = rows[name]
    return np.asarray(found, np.float64)


def of_block(name: str) -> Callable[[Columns, int], State]:
    """Return `Reducer.of_block` of one of `NAMES`."""
    parts = [part for part, fields in FIELDS.items() if set(fields) & set(STATES[name])]

    def state(columns: Columns, first_ordinal: int) -> State:
        ordinals = columns.ordinals if columns.ordinals is not None else np.arange(columns.index, columns.end)
        values, row = columns.values[:, None], dict[str, Any]()
        for part in parts:
            row.update(zip(FIELDS[part], PARTS[part].of_block(values, columns.steps, ordinals), strict=True))
        row = {field: first_ordinal + found if field.endswith("_at") else found for field, found in row.items()}
        return state_of(name, row)

    return state
