"""Records on their way to a file: turned from rows into columns, without a Python loop over plain numbers.

Rule 1: the records of one series stay in order, and each has its number, whatever was logged with it.
Rule 2: a value that cannot be recorded costs only itself: a hole in the numbers of its series, which is counted.
Rule 3: records make a block if they fit together: consecutive numbers, one type of numbers or a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core import codec
from sightglass.core.columns import FLOAT64, INT64, Columns, Row, of_rows, step_column, value_column
from sightglass.core.errors import UnsendableError
from sightglass.core.program_values.guarded import FAILURES, LostValue, message
from sightglass.core.values import PLAIN, Histogram, to_host
from sightglass.storage.format.block import Key

from .held_rows import MANY, HeldRows, SeriesState, SeriesStates, by_type, matrix, part_of
from .segment import Rows

STEPS: Final = frozenset((int, float, bool))

Log = tuple[int, Any, float, dict[str, Any], Mapping[str, float] | None, int]
"""(index, step, wall_time, observables, steps, bytes of large values): one call of `run.log`."""


ON_HOST: Final = PLAIN | {np.float64, np.float32, np.int64, np.int32, np.bool_, np.ndarray, LostValue}
_PYTHON: Final[dict[type, type]] = {np.float64: float, np.int64: int, np.bool_: bool}


class ColumnBuilder:
    """Makes columns of the records of all series, and holds them until they make a block."""

    def __init__(self, *, lose: Callable[[Key, int, str], None]) -> None:
        """Begin empty.

        Args:
            lose: Called for values that cannot be recorded: of which series, how many, and why.
        """
        self._lose = lose
        self._held = HeldRows()
        self._states = SeriesStates(retire=self._held.retire)

    @property
    def n_rows(self) -> int:
        """How many records are held."""
        return self._held.n_rows

    @property
    def n_bytes(self) -> int:
        """About how many bytes they take."""
        return self._held.n_bytes

    def log(self, items: Sequence[Log]) -> None:
        """Add calls of `run.log`, at least one."""
        observables = [item[3] for item in items]
        if max(map(len, observables)) < MANY:
            self._log_single(_shared(items), observables)
            return
        for names, calls in groupby(items, key=_names_of_many):
            if names is None:
                narrow = list(calls)
                self._log_single(_shared(narrow), [item[3] for item in narrow])
            else:
                self._log_wide(names, list(calls))

    def _log_single(self, shared: Columns, observables: Sequence[dict[str, Any]]) -> None:
        """Add calls to the columns of each series."""
        for tag, values, places in _by_tag(observables):
            series = self._states.single(tag)
            columns = shared if places is None else _at(shared, places)
            try:
                self._add(series, replace(columns, index=series.index, values=values))
            except Exception as error:  # noqa: BLE001  whatever a value does, it costs only its own series
                self._lost(series, len(values), message(error))
            series.index += len(values)

    def _log_wide(self, names: tuple[str, ...], items: Sequence[Log]) -> None:
        """Add calls with the same names to groups of series; those that belong to none, to their own columns."""
        rows = [_readable(list(item[3].values())) for item in items]
        plan = self._states.plan(names)
        parts = [(group, part_of(rows, where)) for group, where in plan.groups]
        found = [(group, part, matrix(part)) for group, part in parts]
        mixed = [(group, part) for group, part, values in found if values is None]
        if mixed and len(items) > 1:
            for item in items:
                self._log_wide(names, [item])
            return
        if mixed:
            for group, part in mixed:
                self._states.split(group, by_type(group.tags, part[0]))
            self._log_wide(names, items)  # now the values of each group are of one type
            return
        shared = _shared(items)
        for group, _, values in found:
            self._held.add(group, replace(shared, index=group.index, values=values))
            group.index += len(items)
        if plan.singles:
            some = [{names[place]: row[place] for place in plan.singles} for row in rows]
            self._log_single(shared, some)

    def rows(self, key: Key, rows: Sequence[Row], *, since: int = 0, n_missed: int = 0) -> None:
        """Add records of another series, whose numbers only grow."""
        series = self._states.of(key)
        series.since, series.n_missed = since, n_missed
        for _, run in groupby(enumerate(rows), key=lambda place: place[1][0] - place[0]):
            piece = [row for _, row in run]
            try:
                self._add(series, of_rows(piece))
            except Exception as error:  # noqa: BLE001  as above
                self._lost(series, len(piece), message(error))

    def skip_calls(self, names: tuple[str, ...], n: int) -> None:
        """Leave a hole where calls of `run.log` were dropped."""
        singles: Iterable[str] = names
        if len(names) >= MANY:
            plan = self._states.plan(names)
            singles = [names[place] for place in plan.singles]
            for group, _ in plan.groups:
                group.n_lost += n
                group.index += n
        for tag in singles:
            series = self._states.single(tag)
            series.n_lost += n
            series.index += n

    def skip(self, key: Key, n: int) -> None:
        """Leave a hole where records were dropped; those that are not logged have their own numbers."""
        series = self._states.of(key)
        series.n_lost += n
        series.index += n

    def take(self, *, all: bool) -> Iterator[Rows]:
        """Take away the records of full blocks, or all records."""
        return self._held.take(all=all, lose=self._lost)

    def drop(self) -> int:
        """Drop all records that are held, and return how many there were; their numbers stay a hole."""
        return self._held.drop()

    def _lost(self, series: SeriesState, n: int, why: str) -> None:
        series.n_lost += n
        self._lose(series.key, n * series.n_series, why)

    def _add(self, series: SeriesState, columns: Columns) -> None:
        """Add a piece to a series, its values as a column, without those that cannot be recorded."""
        for piece in self._without_lost(series, replace(columns, values=_column(columns.values))):
            self._held.add(series, piece)

    def _without_lost(self, series: SeriesState, columns: Columns) -> Iterator[Columns]:
        """Yield the parts of a piece between the values that are lost."""
        values = columns.values
        if isinstance(values, np.ndarray) or LostValue not in set(map(type, values)):
            yield columns
            return
        start = 0
        for lost, run in groupby(map(_why, values)):
            stop = start + sum(1 for _ in run)
            if lost is None:
                yield replace(columns.slice(start, stop), values=value_column(values[start:stop]))
            else:
                self._lost(series, stop - start, lost)
            start = stop


def _shared(items: Sequence[Log]) -> Columns:
    """Return the columns that all values of some calls share."""
    indexes, steps, wall_times, _, tracks, _ = zip(*items, strict=True)
    return Columns(
        index=0,
        steps=step_column(_steps(steps, indexes)),
        wall_times=np.asarray(wall_times, FLOAT64),
        values=None,
        ordinals=np.asarray(indexes, INT64),
        tracks=[track or {} for track in tracks] if any(tracks) else None,
    )


def _names_of_many(item: Log) -> tuple[str, ...] | None:
    """Return the names of a call with many values, or `None`."""
    return tuple(item[3]) if len(item[3]) >= MANY else None


def _why(value: object) -> str | None:
    return value.why if type(value) is LostValue else None


def _by_tag(observables: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Sequence[Any], list[int] | None]]:
    """Yield the values of each tag, and in which of the mappings they are; `None` for all."""
    names = [*map(tuple, observables)]
    if names.count(names[0]) == len(names):
        for tag, values in zip(names[0], zip(*map(dict.values, observables), strict=True), strict=True):
            yield tag, values, None
        return
    found: dict[str, tuple[list[Any], list[int]]] = {}
    for place, several in enumerate(observables):
        for tag, value in several.items():
            some, places = found.setdefault(tag, ([], []))
            some.append(value)
            places.append(place)
    for tag, (some, places) in found.items():
        yield tag, some, places


def _at(columns: Columns, places: list[int]) -> Columns:
    tracks = None if columns.tracks is None else [columns.tracks[place] for place in places]
    return replace(
        columns,
        steps=columns.steps[places],
        wall_times=columns.wall_times[places],
        ordinals=columns.ordinals[places],
        tracks=tracks if tracks and any(tracks) else None,
    )


def _steps(steps: Sequence[Any], indexes: Sequence[int]) -> Sequence[Any]:
    """Return steps as numbers; instead of one that is not a number, the number of its event."""
    if STEPS.issuperset(map(type, steps)):
        return steps
    read = (_read(step) for step in steps)
    return [
        step if isinstance(step, int | float | np.integer | np.floating) else index
        for step, index in zip(read, indexes, strict=True)
    ]


def _column(values: npt.NDArray[Any] | Sequence[Any]) -> npt.NDArray[Any] | list[Any]:
    """Make an array of numbers of one type, or a list of values and of `LostValue`s."""
    if isinstance(values, np.ndarray):
        return values
    kinds = set(map(type, values))
    if not kinds <= ON_HOST:
        values = _readable(values)
        kinds = set(map(type, values))
    if len(kinds) > len({_PYTHON.get(kind, kind) for kind in kinds}) == 1:
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
    column = value_column(values)
    return column if isinstance(column, np.ndarray) else [_checked(value) for value in column]


def _readable(values: Sequence[Any]) -> Sequence[Any]:
    """Return values with those that are on a device copied to the host."""
    if ON_HOST.issuperset(map(type, values)):
        return values
    return [value if type(value) in ON_HOST else _read(value) for value in values]


def _read(value: Any) -> Any:
    """Copy a value to the host, and compute histograms; waits for the device."""
    try:
        value = to_host(value)
        if isinstance(value, Histogram):
            value.counts  # noqa: B018  counted now, its samples are free
    except FAILURES as error:
        return _readable_parts(value, error)
    return value


def _readable_parts(value: Any, error: BaseException) -> Any:
    """Return a snapshot with texts for the observables that cannot be read, or why another value is lost."""
    if type(value) is not dict:
        return LostValue(message(error))
    found = {name: _read(item) for name, item in value.items()}
    return {name: str(item) if type(item) is LostValue else item for name, item in found.items()}


def _checked(value: Any) -> Any:
    """Return a value, or why it cannot be recorded."""
    kind = type(value)
    if kind in (float, bool, LostValue, type(None)) or (kind is np.ndarray and value.dtype.kind in "biufc"):
        return value
    try:
        codec.encode(value)
    except UnsendableError as error:
        return LostValue(str(error))
    return value
