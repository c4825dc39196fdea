"""Records that are held until they make a block: the pieces of each series, or group of series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import NUMERIC, Columns
from sightglass.core.program_values.guarded import message
from sightglass.core.values import n_bytes
from sightglass.storage.format.block import MAX_SERIES, MAX_TAG_CHARS, TALL_ROWS, Key, key_of
from sightglass.storage.format.summary import DATA_TYPES

from .merge import join_columns
from .segment import Rows

FULL_ROWS: Final = 4_096  # the head of a block then costs a twentieth of a byte for each record
FULL_BYTES: Final = 4 * 2**20
PIECE_BYTES: Final = 1_000  # about what a piece takes in memory besides its values


class HeldRows:
    """Holds the pieces of all series.

    Attributes:
        n_rows: How many records are held.
        n_bytes: About how many bytes they take.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.n_rows = 0
        self.n_bytes = 0
        self._holding: dict[Key, SeriesState] = {}
        self._retired: list[Rows] = []  # of groups that were split: these come before later records of their series

    def add(self, series: SeriesState, columns: Columns) -> None:
        """Hold a piece of a series or a group."""
        values, n_missed = columns.values, series.n_missed + series.n_lost
        size = PIECE_BYTES + (values.nbytes if isinstance(values, np.ndarray) else sum(map(n_bytes, values)))
        series.pieces.append(Rows(key=series.key, columns=columns, since=series.since, n_missed=n_missed))
        series.n_rows += len(columns)
        series.n_bytes += size
        self.n_rows += len(columns) * series.n_series
        self.n_bytes += size
        self._holding[series.key] = series

    def retire(self, group: SeriesState) -> None:
        """Keep what a group holds apart from records that come later: it is to be split."""
        if group.pieces:
            blocks = [*_blocks(group, self._release(group))]
            self._retired += blocks
            self.n_rows += sum(rows.n_records for rows in blocks)

    def take(self, *, all: bool, lose: Callable[[SeriesState, int, str], None]) -> Iterator[Rows]:
        """Take away the pieces of full blocks, or all pieces.

        Args:
            all: Whether to take all.
            lose: Called for pieces that make no block: of which series, how many records, and why.
        """
        while self._retired:
            rows = self._retired.pop(0)
            self.n_rows -= rows.n_records
            yield rows
        for series in list(self._holding.values()):
            if all or series.n_rows >= FULL_ROWS or series.n_bytes >= FULL_BYTES:
                pieces = self._release(series)
                try:
                    blocks = list(_blocks(series, pieces))
                except Exception as error:  # noqa: BLE001  whatever its values do, it costs only its own series
                    lose(series, sum(len(piece.columns) for piece in pieces), message(error))
                    continue
                yield from blocks

    def drop(self) -> int:
        """Drop all records that are held, and return how many there were; their numbers stay a hole."""
        n_dropped, self.n_rows, self.n_bytes = self.n_rows, 0, 0
        for series in self._holding.values():
            series.n_lost += series.n_rows
            series.pieces, series.n_rows, series.n_bytes = [], 0, 0
        self._holding.clear()
        self._retired.clear()
        return n_dropped

    def _release(self, series: SeriesState) -> list[Rows]:
        """Take away what a series or a group holds."""
        pieces, series.pieces = series.pieces, []
        self.n_rows -= series.n_rows * series.n_series
        self.n_bytes -= series.n_bytes
        series.n_rows = series.n_bytes = 0
        del self._holding[series.key]
        return pieces


def _blocks(series: SeriesState, pieces: Iterable[Rows]) -> Iterator[Rows]:
    """Join pieces to blocks: those of a group to a wide block, or to one for each series if there are many rows."""
    for rows in _together(pieces):
        if not series.tags or len(rows.columns) < TALL_ROWS:
            yield rows
            continue
        for tag, values in zip(series.tags, np.ascontiguousarray(rows.columns.values.T), strict=True):
            yield replace(rows, key=Key(kind="logged", tag=tag), columns=replace(rows.columns, values=values))


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


# The states of series while they are written: the numbers of their next records, alone or in groups.
#
# Series that are logged together share their numbers, so a call that logs them is one row of a matrix.
#
# Rule 1: the series of a group were in the same calls so far, so their next records have the same number. A call with
# only some of them splits the group. What is left of a group with fewer than `MIN_SERIES` is single: each series has
# its own columns from then on, and stays so.
# Rule 2: all values of a group in one call are numbers of one type; otherwise it is split by type.
# Rule 3: splitting is the exception. A call whose names were seen before costs a look-up of its plan.

MANY: Final = 256  # values of a call: in blocks of their own they take a twentieth of a core at two calls a second
MIN_SERIES: Final = 64  # the names take most of a narrower block
MAX_PLANS: Final = 16  # a training has few kinds of calls

Where = slice | list[int]
"""Which values of a call are those of a group, in its order."""


@dataclass(slots=True, eq=False)
class SeriesState:
    """The state of a series, or of a group: the number of the next record, and the pieces of the next block.

    Attributes:
        key: What identifies its blocks.
        tags: The names of the series of a group, else empty.
        index: The number of its next record; of a group, that of each series.
        since: The number of the event from which on it is recorded.
        n_missed: How many events were missed before they came here.
        n_lost: How many records were lost here.
        pieces: The records that make the next block.
        n_rows: How many records these are; of a group, of each series.
        n_bytes: About how many bytes they take.
    """

    key: Key
    tags: tuple[str, ...] = ()
    index: int = 0
    since: int = 0
    n_missed: int = 0
    n_lost: int = 0
    pieces: list[Rows] = field(default_factory=list)
    n_rows: int = 0
    n_bytes: int = 0

    @property
    def n_series(self) -> int:
        """How many series these are."""
        return len(self.tags) or 1


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Where the values of a call go: to groups, and to single series by their places in the call."""

    groups: list[tuple[SeriesState, Where]]
    singles: list[int]


class SeriesStates:
    """The states of all series."""

    def __init__(self, *, retire: Callable[[SeriesState], None]) -> None:
        """Begin without series; `retire` is called with a group before it is split, for the records that it holds."""
        self._retire = retire
        self._others: dict[Key, SeriesState] = {}
        self._of_tag: dict[str, SeriesState] = {}  # of the series, or of its group
        self._plans: dict[tuple[str, ...], CallPlan] = {}

    def of(self, key: Key) -> SeriesState:
        """Return the state of a series that is not logged."""
        state = self._others.get(key)
        if state is None:
            state = self._others[key] = SeriesState(key)
        return state

    def single(self, tag: str) -> SeriesState:
        """Return the state of a series that is logged without others; it leaves its group, if it has one."""
        state = self._of_tag.get(tag)
        if state is None:
            self._add([tag])
        elif state.tags:
            self.split(state, [[tag]])
        else:
            return state
        return self._of_tag[tag]

    def plan(self, names: tuple[str, ...]) -> CallPlan:
        """Return where the values of a call with these names go."""
        found = self._plans.get(names)
        if found is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            found = self._make_plan(names)
            self._plans[names] = found
        return found

    def split(self, group: SeriesState, parts: Iterable[Sequence[str]]) -> None:
        """Take some series out of a group, as groups of their own."""
        self._retire(group)
        self._plans.clear()
        left = dict.fromkeys(group.tags)
        for part in parts:
            for tag in part:
                del left[tag]
            self._add(part, like=group)
        self._add(tuple(left), like=group)

    def _add(self, tags: Sequence[str], *, like: SeriesState | None = None) -> None:
        """Make groups of series that have the same number, or single states of few."""
        if len(tags) < MIN_SERIES:
            states = [SeriesState(Key(kind="logged", tag=tag)) for tag in tags]
        else:
            n = -(-len(tags) // MAX_SERIES)
            parts = [tuple(tags[len(tags) * i // n : len(tags) * (i + 1) // n]) for i in range(n)]
            states = [SeriesState(key_of(part), part) for part in parts]
        for state in states:
            if like is not None:
                state.index, state.n_lost = like.index, like.n_lost
            self._of_tag.update(dict.fromkeys(state.tags or [state.key.tag], state))

    def _make_plan(self, names: tuple[str, ...]) -> CallPlan:
        """Make groups of series that are new, and split those of which the call has only a part."""
        known = self._of_tag
        for tag in names:
            if type(tag) is not str or len(tag) > MAX_TAG_CHARS:
                self.single(tag)
        self._add([tag for tag in names if tag not in known])
        called: dict[SeriesState, list[str]] = {}
        for tag in names:
            called.setdefault(known[tag], []).append(tag)
        for state, tags in called.items():
            if len(tags) < len(state.tags):
                self.split(state, [tags])
        place_of = dict(zip(names, range(len(names)), strict=True))
        groups = dict.fromkeys(state for state in map(known.__getitem__, names) if state.tags)
        return CallPlan(
            [(group, _where([place_of[tag] for tag in group.tags])) for group in groups],
            [place for tag, place in place_of.items() if not known[tag].tags],
        )


def _where(places: list[int]) -> Where:
    start, stop = places[0], places[0] + len(places)
    return slice(start, stop) if places == list(range(start, stop)) else places


def part_of(rows: Sequence[Sequence[Any]], where: Where) -> list[Sequence[Any]]:
    """Return the values of a group in some calls."""
    return [row[where] if isinstance(where, slice) else [row[place] for place in where] for row in rows]


def matrix(rows: Sequence[Sequence[Any]]) -> npt.NDArray[Any] | None:
    """Return values as a matrix, shape (calls, series), or `None` if they are not numbers of one type."""
    dtypes = {_dtype(kind) for kind in set(map(type, chain.from_iterable(rows)))}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    try:
        return None if dtype is None else np.array(rows, dtype)
    except OverflowError:
        return None


def by_type(tags: Sequence[str], values: Sequence[Any]) -> list[list[str]]:
    """Sort the series of one call by the types of their values; each that is not a number is alone."""
    numbers: dict[np.dtype[Any], list[str]] = {}
    others: list[list[str]] = []
    for tag, value in zip(tags, values, strict=True):
        found = matrix([[value]])
        if found is None:
            others.append([tag])
        else:
            numbers.setdefault(found.dtype, []).append(tag)
    return [*numbers.values(), *others]


def _dtype(kind: type) -> np.dtype[Any] | None:
    """Return how numbers of a type are written; `None` for other types."""
    if kind not in NUMERIC and not (issubclass(kind, np.number | np.bool_) and np.dtype(kind).name in DATA_TYPES):
        return None
    return np.dtype(NUMERIC.get(kind, kind))
