"""Records on their way to a file: turned from rows into columns, without a Python loop over plain numbers.

Rule 1: the records of one series stay in order, and each has its number, whatever was logged with it.
Rule 2: a value that cannot be recorded costs only itself: a hole in the numbers of its series, which is counted.
Rule 3: records make a block if they fit together: consecutive numbers, one type of numbers or a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core import codec
from sightglass.core.columns import FLOAT64, INT64, Columns, Row, of_rows, step_column, value_column
from sightglass.core.errors import UnsendableError
from sightglass.core.guarded import FAILURES, LostValue, message
from sightglass.core.values import PLAIN, Histogram, n_bytes, to_host
from sightglass.storage.format.block import Key

from .merge import join_columns
from .segment import Rows

FULL_ROWS: Final = 4_096  # the head of a block then costs a twentieth of a byte for each record
FULL_BYTES: Final = 4 * 2**20
PIECE_BYTES: Final = 1_000  # about what a piece takes in memory besides its values
STEPS: Final = frozenset((int, float, bool))

Log = tuple[int, Any, float, dict[str, Any], Mapping[str, float] | None, int]
"""(index, step, wall_time, observables, steps, bytes of large values): one call of `run.log`."""


ON_HOST: Final = PLAIN | {np.float64, np.float32, np.int64, np.int32, np.bool_, np.ndarray, LostValue}
_PYTHON: Final[dict[type, type]] = {np.float64: float, np.int64: int, np.bool_: bool}


@dataclass(slots=True)
class _Series:
    """The state of a series: the number of its next record, and the pieces of its next block."""

    key: Key
    index: int = 0
    since: int = 0
    n_missed: int = 0
    n_lost: int = 0
    pieces: list[Rows] = field(default_factory=list)
    n_rows: int = 0
    n_bytes: int = 0


class ColumnBuilder:
    """Holds the records of all series until they make a block.

    Attributes:
        n_rows: How many records are held.
        n_bytes: About how many bytes they take.
    """

    def __init__(self, *, lose: Callable[[Key, int, str], None]) -> None:
        """Begin empty.

        Args:
            lose: Called for values that cannot be recorded: of which series, how many, and why.
        """
        self.n_rows = 0
        self.n_bytes = 0
        self._lose = lose
        self._series: dict[Key, _Series] = {}
        self._tags: dict[str, _Series] = {}
        self._holding: dict[Key, _Series] = {}

    def log(self, items: Sequence[Log]) -> None:
        """Add calls of `run.log`, at least one."""
        indexes, steps, wall_times, observables, tracks, _ = zip(*items, strict=True)
        shared = Columns(
            index=0,
            steps=step_column(_steps(steps, indexes)),
            wall_times=np.asarray(wall_times, FLOAT64),
            values=None,
            ordinals=np.asarray(indexes, INT64),
            tracks=[track or {} for track in tracks] if any(tracks) else None,
        )
        for tag, values, places in _by_tag(observables):
            series = self._tags.get(tag)
            if series is None:
                series = self._tags[tag] = self._of(Key(kind="logged", tag=tag))
            columns = shared if places is None else _at(shared, places)
            try:
                self._add(series, replace(columns, index=series.index, values=values))
            except Exception as error:  # noqa: BLE001  whatever a value does, it costs only its own series
                self._lost(series, len(values), message(error))
            series.index += len(values)

    def rows(self, key: Key, rows: Sequence[Row], *, since: int = 0, n_missed: int = 0) -> None:
        """Add records of another series, whose numbers only grow."""
        series = self._of(key)
        series.since, series.n_missed = since, n_missed
        for _, run in groupby(enumerate(rows), key=lambda place: place[1][0] - place[0]):
            piece = [row for _, row in run]
            try:
                self._add(series, of_rows(piece))
            except Exception as error:  # noqa: BLE001  as above
                self._lost(series, len(piece), message(error))

    def skip(self, key: Key, n: int) -> None:
        """Leave a hole where records were dropped; those that are not logged have their own numbers."""
        series = self._of(key)
        series.n_lost += n
        series.index += n

    def take(self, *, all: bool) -> Iterator[Rows]:
        """Take away the pieces of full blocks, or all pieces."""
        for series in list(self._holding.values()):
            if all or series.n_rows >= FULL_ROWS or series.n_bytes >= FULL_BYTES:
                pieces, series.pieces = series.pieces, []
                self.n_rows -= series.n_rows
                self.n_bytes -= series.n_bytes
                series.n_rows = series.n_bytes = 0
                del self._holding[series.key]
                try:
                    blocks = list(_together(pieces))
                except Exception as error:  # noqa: BLE001  as above
                    self._lost(series, sum(len(piece.columns) for piece in pieces), message(error))
                    continue
                yield from blocks

    def drop(self) -> int:
        """Drop all records that are held, and return how many there were; their numbers stay a hole."""
        n_dropped, self.n_rows, self.n_bytes = self.n_rows, 0, 0
        for series in self._holding.values():
            series.n_lost += series.n_rows
            series.pieces, series.n_rows, series.n_bytes = [], 0, 0
        self._holding.clear()
        return n_dropped

    def _lost(self, series: _Series, n: int, why: str) -> None:
        series.n_lost += n
        self._lose(series.key, n, why)

    def _of(self, key: Key) -> _Series:
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series(key)
        return series

    def _add(self, series: _Series, columns: Columns) -> None:
        """Add a piece to a series, its values as a column, without those that cannot be recorded."""
        for piece in self._without_lost(series, replace(columns, values=_column(columns.values))):
            size = piece.values.nbytes if isinstance(piece.values, np.ndarray) else sum(map(n_bytes, piece.values))
            size += PIECE_BYTES
            n_missed = series.n_missed + series.n_lost
            series.pieces.append(Rows(key=series.key, columns=piece, since=series.since, n_missed=n_missed))
            series.n_rows += len(piece)
            series.n_bytes += size
            self.n_rows += len(piece)
            self.n_bytes += size
            self._holding[series.key] = series

    def _without_lost(self, series: _Series, columns: Columns) -> Iterator[Columns]:
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
        values = [value if type(value) in ON_HOST else _read(value) for value in values]
        kinds = set(map(type, values))
    if len(kinds) > len({_PYTHON.get(kind, kind) for kind in kinds}) == 1:
        values = [value.item() if isinstance(value, np.generic) else value for value in values]
    column = value_column(values)
    return column if isinstance(column, np.ndarray) else [_checked(value) for value in column]


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


def _together(pieces: Iterable[Rows]) -> Iterator[Rows]:
    """Join pieces of one series that fit together."""
    group: list[Rows] = []
    for piece in pieces:
        if group and not _fit(group[-1].columns, piece.columns):
            yield replace(group[-1], columns=join_columns([one.columns for one in group]))
            group = []
        group.append(piece)
    if group:
        yield replace(group[-1], columns=join_columns([one.columns for one in group]))


def _fit(one: Columns, other: Columns) -> bool:
    return other.index == one.index + len(one) and _form(one) == _form(other)


def _form(columns: Columns) -> Any:
    values = columns.values
    form = str(values.dtype) if isinstance(values, np.ndarray) else ""
    return form, columns.steps.dtype, columns.n_events is None, columns.tracks is None
