"""Records as columns, as messages, files and clients hold them.

`Record` is one item of a stream, and `Restart` the mark where a stream goes on with another run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .values import Value

COMPLETE: Final = 1
CLOSED: Final = 2
APPROXIMATE: Final = 4
USUAL_FLAGS: Final = COMPLETE | CLOSED

FLOAT64: Final = np.dtype("<f8")
INT64: Final = np.dtype("<i8")
NUMERIC: Final = {float: np.float64, int: np.int64, bool: np.bool_}

NAMES: Final = (
    "steps",
    "wall_times",
    "values",
    "n_events",
    "flags",
    "tracks",
    "ordinals",
    "indexes",
    "origins",
    "ranks",
    "areas",
)

Extra = tuple[int, int, Mapping[str, float] | None]
"""(n_events, flags, steps), where they differ from the default `(1, USUAL_FLAGS, None)`."""

Row = tuple[int, Any, float, Any, Extra | None, int]
"""(index, step, wall_time, value, extra, ordinal): a record without tag and run; the ordinal is its event's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Records of one stream as columns, in order.

    A column that is `None` has its default in every record: consecutive numbers, one event each, complete, closed, no
    further steps.

    Attributes:
        index: The number of the first record in its stream.
        steps: Shape (n,), int64 or float64.
        wall_times: Shape (n,), float64, in seconds since the Unix epoch.
        values: Shape (n, …), or a list where the values do not form an array.
        n_events: Shape (n,), int64: the number of events of each record.
        flags: Shape (n,), uint8: bit 0 complete, bit 1 closed, bit 2 approximate.
        tracks: Further step tracks, one mapping for each record.
        ordinals: Shape (n,), int64: the number of each record's event or group, where known.
        indexes: Shape (n,), int64: the number of each record in its stream, where they are not consecutive.
        origins: The (tag, run) of each record, where they are not those of the stream.
        ranks: The (rank, missing) of each record, in a rank group.
        bits: The records that are missing between the numbers were thinned, in buckets of `2**bits` numbers; 0 if they
            were lost.
        areas: Shape (n,), float64: of each number, the area under the line of all records since the one before, thinned
            ones included, over the index numbers; NaN where none was thinned (`core.buffer`).
    """

    index: int
    steps: Any
    wall_times: Any
    values: Any
    n_events: Any = None
    flags: Any = None
    tracks: Any = None
    ordinals: Any = None
    indexes: Any = None
    origins: Any = None
    ranks: Any = None
    bits: int = 0
    areas: Any = None

    def __len__(self) -> int:
        return len(self.steps)

    def slice(self, start: int, stop: int | None = None) -> Columns:
        """Return the records from `start` to `stop`, counted from the first of these."""
        start, stop, _ = slice(start, stop).indices(len(self))
        if (start, stop) == (0, len(self)):
            return self
        parts = {
            name: None if column is None else column[start:stop] for name in NAMES for column in (getattr(self, name),)
        }
        return Columns(index=self._index_of(start), bits=self.bits, **parts)

    @property
    def end(self) -> int:
        """The number that follows the last record's; `index` if there is no record."""
        return self._index_of(len(self))

    @property
    def numbers(self) -> Any:
        """The number of each record in its stream, of shape (n,)."""
        return np.arange(self.index, self.index + len(self)) if self.indexes is None else self.indexes

    def _index_of(self, i: int) -> int:
        if self.indexes is None or not len(self):
            return self.index + i
        return int(self.indexes[i]) if i < len(self) else int(self.indexes[-1]) + 1

    def after(self, index: int) -> Columns:
        """Return the records from an index on; all of them if they begin later."""
        if self.indexes is None:
            return self.slice(min(max(0, index - self.index), len(self)))
        return self.slice(int(np.searchsorted(self.indexes, index)))

    def rows(self, rows: npt.NDArray[np.intp]) -> Columns:
        """Return some of the records, by their places among these, increasing."""
        # Areas are those between neighbours: they are not known of others.
        parts = {name: column for name in NAMES if name != "areas" and (column := getattr(self, name)) is not None}
        parts |= {"indexes": self.numbers}
        parts = {
            name: column[rows] if isinstance(column, np.ndarray) else [column[i] for i in rows]
            for name, column in parts.items()
        }
        return Columns(index=int(parts["indexes"][0]) if len(rows) else self.end, bits=self.bits, **parts)

    def exact(self) -> Columns:
        """Return the records after the last place where any were thinned."""
        gaps = np.flatnonzero(np.diff(self.numbers) > 1)
        return self.slice(int(gaps[-1]) + 1) if self.bits and len(gaps) else self

    def moved(self, by: int) -> Columns:
        """Return the same records with their index shifted by `by`."""
        indexes = None if self.indexes is None else self.indexes + by
        return replace(self, index=self.index + by, indexes=indexes) if by else self

    def record(self, i: int, *, tag: str, run: str) -> Record:
        """Return record `i`, counted from the first of these."""
        flags = USUAL_FLAGS if self.flags is None else int(self.flags[i])
        tag, run = (tag, run) if self.origins is None else self.origins[i]
        rank, missing = (self.ranks[i] if self.ranks is not None else None) or (None, ())
        return Record(
            tag=tag,
            index=self._index_of(i),
            step=self.steps[i].item(),
            wall_time=float(self.wall_times[i]),
            value=plain(self.values[i]),
            run=run,
            complete=bool(flags & COMPLETE),
            closed=bool(flags & CLOSED),
            approximate=bool(flags & APPROXIMATE),
            n_events=1 if self.n_events is None else int(self.n_events[i]),
            steps={} if self.tracks is None else self.tracks[i],
            rank=rank,
            missing=missing,
        )

    def records(self, *, tag: str, run: str) -> list[Record]:
        """Return all records."""
        return [self.record(i, tag=tag, run=run) for i in range(len(self))]


def plain(value: Value) -> Any:
    """Convert NumPy's float64, int64 and bool to Python's float, int and bool; other values stay as they are."""
    return value.item() if type(value) in (np.float64, np.int64, np.bool_) else value


def flags_of(complete: bool, closed: bool, approximate: bool) -> int:
    """Return the flags of a record as one number."""
    return complete * COMPLETE | closed * CLOSED | approximate * APPROXIMATE


def of_rows(rows: Sequence[Row]) -> Columns:
    """Return consecutive rows, at least one, as columns."""
    indexes, steps, wall_times, values, extras, ordinals = zip(*rows, strict=True)
    columns: dict[str, Any] = {}
    if extras.count(None) != len(extras):
        n_events, flags, tracks = zip(*(extra or (1, USUAL_FLAGS, None) for extra in extras), strict=True)
        columns["n_events"] = np.asarray(n_events, INT64)
        columns["flags"] = np.asarray(flags, np.uint8)
        columns["tracks"] = [dict(track or {}) for track in tracks] if any(tracks) else None
    return Columns(
        index=indexes[0],
        steps=step_column(steps),
        wall_times=np.asarray(wall_times, FLOAT64),
        values=value_column(values),
        ordinals=np.asarray(ordinals, INT64),
        **columns,
    )


def of_records(records: Sequence[Record], *, tag: str = "", run: str = "") -> Columns:
    """Return records, at least one, in the order of their numbers, as columns.

    Args:
        records: The records.
        tag: The name of the series; `origins` is set if a record has another one.
        run: The name of the run; likewise.
    """
    indexes = np.asarray([record.index for record in records], INT64)
    n_events = np.asarray([record.n_events for record in records], INT64)
    flags = np.asarray([flags_of(record.complete, record.closed, record.approximate) for record in records], np.uint8)
    origins = [(record.tag, record.run) for record in records]
    ranks = [(record.rank, record.missing) for record in records]
    return Columns(
        index=records[0].index,
        steps=step_column([record.step for record in records]),
        wall_times=np.asarray([record.wall_time for record in records], FLOAT64),
        values=value_column([record.value for record in records]),
        n_events=n_events if (n_events != 1).any() else None,
        flags=flags if (flags != USUAL_FLAGS).any() else None,
        tracks=[record.steps for record in records] if any(record.steps for record in records) else None,
        indexes=indexes if indexes[-1] - indexes[0] != len(indexes) - 1 else None,
        origins=origins if any(origin != (tag, run) for origin in origins) else None,
        ranks=ranks if any(one != (None, ()) for one in ranks) else None,
    )


def step_column(steps: Sequence[Any]) -> Any:
    """Return steps as an array: int64 if all are integers, else float64; integers beyond that are infinite."""
    column = np.asarray(steps)
    if column.dtype in (INT64, FLOAT64):
        return column
    try:
        return column.astype(FLOAT64)
    except OverflowError:
        return np.asarray([_within_floats(step) for step in steps], FLOAT64)


def _within_floats(step: float) -> float:
    try:
        return float(step)
    except OverflowError:
        return math.inf if step > 0 else -math.inf


def value_column(values: Sequence[Any]) -> Any:
    """Return values as one array if they are numbers of one type, else as a list."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        kind = kinds.pop()
        if kind in NUMERIC:
            try:
                return np.asarray(values, NUMERIC[kind])
            except OverflowError:
                return list(values)
        if issubclass(kind, np.generic) and kind is not np.void:
            return np.asarray(values)
    return list(values)


# The record, one item of a stream, and the mark where a stream goes on with another run.


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One item of a stream.

    Attributes:
        tag: The name of the series.
        index: The number of the record in its stream, from 0; a missing number is a gap.
        step: The step passed to `observe`, else the event's own counter.
        wall_time: When the event, or the last event of the window, happened, in seconds since the Unix epoch.
        value: The value: a number, a string, an array, a mapping, a `Histogram` …
        run: The name of the run.
        closed: Whether the window closed; `False` if it was open when the run ended.
        complete: Whether the value includes every event of the window: `False` for the first window of a late query,
            and where the budget skipped events.
        approximate: Whether the value is of a sketch, as quantiles of more than 1,024 values are.
        n_events: The number of events of the value.
        steps: Further named step tracks.
        rank: The rank of a program of several processes that made it; `None` outside of a rank group.
        missing: The ranks whose part of the window is not in the value.
    """

    tag: str
    index: int
    step: float
    wall_time: float
    value: Any
    run: str = ""
    closed: bool = True
    complete: bool = True
    approximate: bool = False
    n_events: int = 1
    steps: Mapping[str, float] = field(default_factory=dict)
    rank: int | None = None
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Where a stream goes on with a run that was restarted under its name.

    Attributes:
        index: The number of the first record of the new run. Its steps begin where the new run begins.
        run_id: The id of the new run.
    """

    index: int
    run_id: str
