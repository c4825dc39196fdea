"""Totals: what each series of numbers of a run comes to, added up block by block.

A run adds what it writes, a reader what it reads; both keep the result in one format. A row of totals has what the
reducers of `query/reduce/columns` need, so that their states, and columns of a table, are read from it.

Rule 1: series of integers and of floats have a table each; a series that has both is of floats in the end.
Rule 2: every series of real numbers has totals, whatever their types: booleans count as 0 and 1, what is beyond 64 bits
is rounded. A series has none if a record is anything else.
Rule 3: reducers take their states only from totals that are exact, of int64 and float64: no sum beyond 64 bits, no step
beyond 53, no other type, which would change the type of the result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.columns import FLOAT64, INT64, Columns
from sightglass.core.values import is_real
from sightglass.query.reduce import columns as of_columns

from .block import Key, columns_of
from .series_names import in_order

Files = Mapping[str, tuple[int, int]]
"""The sizes and times of change, in nanoseconds, of record files, by name."""

VERSION: Final = 6
MAX_EXACT: Final = 2**53  # larger integers are not all floats
MAX_SUM: Final = 2.0**63
INT64_RANGE: Final = range(-(2**63), 2**63)
FIRST_ROWS: Final = 16
MAX_SLOTS: Final = 1_000  # groups of series whose places are remembered

_WHOLE: Final = (int, np.bool_, np.integer)
_VALUES: Final = ("sum", "min", "max", "first", "last", "argmin", "argmax")

Table = of_columns.Rows
"""Rows of totals, one for each series; `exact` is whether rule 3 holds."""


ROWS: Final = {dtype: np.dtype([*of_columns.row_type(dtype), ("exact", "?")]) for dtype in (FLOAT64, INT64)}


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    files: dict[str, tuple[int, int]]
    keys: tuple[Key, ...]
    n_rows: dict[int, int]
    floats: tuple[list[int], bytes]
    integers: tuple[list[int], bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTotals:
    """The totals of a run.

    Attributes:
        files: The record files that they are of.
        keys: Every series of the run, sorted.
        n_rows: Of how many records they are, for each series that they cover, also those without totals.
        tables: The series with totals and their rows, of floats and of integers.
    """

    files: Files
    keys: tuple[Key, ...]
    n_rows: dict[Key, int]
    tables: dict[np.dtype[Any], tuple[list[Key], Table]]

    def state(self, key: Key, name: str) -> Any:
        """Return a reducer's state over a series, or `None` if there is none, or none that is exact."""
        for keys, table in self.tables.values():
            if key in keys:
                row = table[keys.index(key)]
                return of_columns.state_of(name, row) if row["exact"] or name == "count" else None
        return None


def encode(totals: RunTotals) -> bytes:
    """Return totals as bytes."""
    place = {key: i for i, key in enumerate(totals.keys)}
    floats, integers = (
        ([place[key] for key in keys], table.tobytes()) for keys, table in map(totals.tables.__getitem__, ROWS)
    )
    stored = _Stored(
        version=VERSION, files=dict(totals.files), keys=totals.keys,
        n_rows={place[key]: n for key, n in totals.n_rows.items()}, floats=floats, integers=integers,
    )  # fmt: skip
    return msgspec.msgpack.encode(stored)


def decode(data: bytes) -> RunTotals | None:
    """Read what `encode` returned; `None` if it is something else, or has another version."""
    try:
        stored = msgspec.msgpack.decode(data, type=_Stored)
        if stored.version != VERSION:
            return None
        tables = {
            dtype: ([stored.keys[i] for i in places], np.frombuffer(rows, ROWS[dtype]))
            for dtype, (places, rows) in zip(ROWS, (stored.floats, stored.integers), strict=True)
        }
        n_rows = {stored.keys[i]: n for i, n in stored.n_rows.items()}
    except (msgspec.MsgspecError, ValueError, IndexError):
        return None
    return RunTotals(files=stored.files, keys=stored.keys, n_rows=n_rows, tables=tables)


class TotalsBuilder:
    """Adds up records.

    Attributes:
        n_rows: How many records of each series there were.
        without: Series without totals: a record is not a real number.
    """

    def __init__(self, before: RunTotals | None = None) -> None:
        """Begin without records, or after those of older totals."""
        self.n_rows: dict[Key, int] = dict(before.n_rows) if before is not None else {}
        self.without: set[Key] = set()
        self._tables = {dtype: _Growing(dtype) for dtype in ROWS}
        self._slots: dict[tuple[tuple[Key, ...], np.dtype[Any]], npt.NDArray[np.intp]] = {}
        self._of_block: dict[Key, tuple[Key, ...]] = {}
        if before is not None:
            for dtype, (keys, table) in before.tables.items():
                self._tables[dtype].extend(keys, table)
            self.without = {key for key in before.n_rows if not any(key in one.slots for one in self._tables.values())}

    def add(self, key: Key, columns: Columns) -> None:
        """Add records of a series, or of those of a wide block, at least one."""
        keys, numbers = self._keys_of(key), numbers_of(columns.values)
        if numbers is not None and numbers.ndim == 1 + (key.kind == "wide"):
            exact = numbers is columns.values
            self._add(keys, numbers.reshape(len(columns), -1), columns, exact=exact)
            return
        self._count(keys, len(columns))
        self.without.update(keys)

    def add_all(self, blocks: Iterable[tuple[Key, Columns]]) -> None:
        """Add blocks; series that were logged together are added together, for the price of one."""
        alike: dict[Any, list[tuple[Key, Table, Columns]]] = {}
        for key, columns in blocks:
            numbers = None if columns.ordinals is None else numbers_of(columns.values)
            if columns.ordinals is None or numbers is None or numbers.ndim > 1:
                self.add(key, columns)
                continue
            exact = numbers is columns.values
            shared = columns.index, numbers.dtype, exact, columns.steps.tobytes(), columns.ordinals.tobytes()
            alike.setdefault(shared, []).append((key, numbers, columns))
        for (_, _, exact, *_), several in alike.items():
            values = np.stack([numbers for _, numbers, _ in several], 1)
            self._add(tuple(key for key, *_ in several), values, several[0][2], exact=exact)

    def _add(self, keys: tuple[Key, ...], values: npt.NDArray[Any], shared: Columns, *, exact: bool) -> None:
        """Add values of shape (records, series), which share their steps and ordinals."""
        self._count(keys, len(values))
        table = self._tables[values.dtype]
        slots = self._slots.get((keys, values.dtype))
        if slots is None:
            if len(self._slots) >= MAX_SLOTS:
                self._slots.clear()
            slots = self._slots[keys, values.dtype] = np.array([table.slot(key) for key in keys], np.intp)
        ordinals = shared.ordinals if shared.ordinals is not None else np.arange(shared.index, shared.end)
        with np.errstate(all="ignore"):  # infinities of both signs add up to NaN, as they do one by one
            block = np.empty(values.shape[1], ROWS[values.dtype])
            of_columns.fill(block, values, shared.steps, ordinals)
            block["exact"] = exact and _are_exact(shared.steps)
            table.add(slots, block)

    def _count(self, keys: tuple[Key, ...], n: int) -> None:
        for key in keys:
            self.n_rows[key] = self.n_rows.get(key, 0) + n

    def totals(self, files: Files, *, others: Iterable[Key] = ()) -> RunTotals:
        """Return what there is so far.

        Args:
            files: The record files that the records are from.
            others: The keys of further series of the run.
        """
        floats, integers = (self._tables[dtype].taken(self.without) for dtype in ROWS)
        with np.errstate(all="ignore"):
            both = _joined(floats, integers)
        keys = sorted({*self.n_rows, *others}, key=in_order)
        return RunTotals(
            files=files,
            keys=tuple(keys),
            n_rows=dict(self.n_rows),
            tables={
                dtype: (list(rows), np.array([*rows.values()], ROWS[dtype]))
                for dtype, rows in zip(ROWS, both, strict=True)
            },
        )

    def _keys_of(self, key: Key) -> tuple[Key, ...]:
        found = self._of_block.get(key)
        if found is None:
            tags = columns_of(key) if key.kind == "wide" else ()
            found = self._of_block[key] = tuple(Key(kind="logged", tag=tag) for tag in tags) or (key,)
        return found


class _Growing:
    """A table that grows: the slots of series, and their rows."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.slots: dict[Key, int] = {}
        self._rows = np.zeros(FIRST_ROWS, ROWS[dtype])

    def slot(self, key: Key) -> int:
        """Return the place of a series; its `n` is 0 before its first record."""
        if len(self.slots) == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        return self.slots.setdefault(key, len(self.slots))

    def extend(self, keys: list[Key], table: Table) -> None:
        """Take over the rows of older totals."""
        for key, row in zip(keys, table, strict=True):
            self._rows[self.slot(key)] = row

    def add(self, slots: npt.NDArray[np.intp], block: Table) -> None:
        """Add the totals of a block."""
        known = self._rows[slots]
        both = np.where(known["n"] > 0, merged(known, block), block)
        both["exact"] &= ~_are_beyond(both)
        self._rows[slots] = both

    def taken(self, without: set[Key]) -> dict[Key, np.void]:
        """Return the rows of series that have totals."""
        return {key: self._rows[slot] for key, slot in self.slots.items() if key not in without}


def merged(a: Table, b: Table) -> Table:
    """Return the totals of two parts of some series."""
    table = of_columns.merge(a, b)
    table["exact"] &= b["exact"]
    return table


def _are_beyond(table: Table) -> npt.NDArray[np.bool_]:
    """Return which sums of integers may not fit into 64 bits."""
    if table["sum"].dtype == FLOAT64:
        return np.zeros(len(table), np.bool_)
    largest = np.maximum(-table["min"].astype(FLOAT64), table["max"].astype(FLOAT64))
    return np.asarray(largest * table["n"] >= MAX_SUM)


def _joined(floats: dict[Key, np.void], integers: dict[Key, np.void]) -> tuple[dict[Key, np.void], dict[Key, np.void]]:
    """Return the rows of both tables, those of series that are in both as floats."""
    for key in [*floats]:
        row = integers.pop(key, None)
        if row is not None:
            one, other = (np.array([part]).astype(ROWS[FLOAT64]) for part in (floats[key], row))
            other["exact"] &= all(abs(int(row[name])) <= MAX_EXACT for name in _VALUES)
            floats[key] = merged(one, other)[0]
    return floats, integers


def numbers_of(values: npt.NDArray[Any] | Sequence[Any]) -> npt.NDArray[Any] | None:
    """Return real numbers of any types as int64 or float64: as they are if they are of one of these.

    Booleans count as 0 and 1. Integers that are not all within 64 bits, and those among floats, are rounded to floats.

    Returns:
        An array of the same shape; `None` if a value is not a real number.
    """
    if not isinstance(values, np.ndarray):
        floats = [real_of(value) for value in values]
        if None in floats:
            return None
        if all(isinstance(value, _WHOLE) and int(value) in INT64_RANGE for value in values):
            return np.array([int(value) for value in values], INT64)
        return np.array(floats, FLOAT64)
    if values.dtype in ROWS:
        return values
    if values.dtype.kind in "biu":
        fits = values.dtype.itemsize < INT64.itemsize or not (values > INT64_RANGE[-1]).any()
        return values.astype(INT64 if fits else FLOAT64)
    return values.astype(FLOAT64) if is_real(values.dtype) else None


def real_of(value: Any) -> float | None:
    """Return a real number of any type as a float, infinite beyond what floats hold; `None` for other values."""
    if not (isinstance(value, int | float) or (isinstance(value, np.generic) and is_real(value.dtype))):
        return None
    try:
        return float(value)
    except OverflowError:  # an integer of more than 1,024 bits
        return math.inf if int(value) > 0 else -math.inf


def _are_exact(steps: npt.NDArray[Any]) -> bool:
    return steps.dtype == FLOAT64 or bool((steps.min() >= -MAX_EXACT) & (steps.max() <= MAX_EXACT))
