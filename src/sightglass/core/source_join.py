"""Join sources: the records of several streams that belong together, in bounded memory, as they arrive."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from .columns import CLOSED, COMPLETE, Columns
from .joins import Positions, RecordJoin
from .run_order import RunOrder
from .source import Source, made_by, restarts_of_runs
from .values import n_bytes

JoinKey = Literal["step", "index", "wall_time"]
"""What of the records is compared."""

# Records of a source that wait for partners: 350,000 numbers. While there are more, the source is not read further, and
# its own buffer bounds what is held.
MAX_WAITING_BYTES: Final = 2**24
# Of a waiting record, beside its value: step, wall time, and its place and position in the join.
WAITING_ROW_BYTES: Final = 40
DEFAULTS: Final = {"n_events": 1, "flags": COMPLETE | CLOSED}


class SourceJoin:
    """Reads several sources, and finds the records that belong together by the rules of `core.joins`.

    Wall times begin no pass: where a clock was set back, the times that it shows again belong to no record. Index
    numbers are counted from the restart. Streams that all follow different programs are compared as if none was
    restarted, and so are the wall times of streams that do not all follow the same.
    """

    def __init__(self, sources: Sequence[Source], *, by: JoinKey = "step", tolerance: float | None = None) -> None:
        """Begin with the first records.

        Args:
            sources: The sources; the first leads.
            by: What is compared.
            tolerance: How far steps, index numbers, or seconds may differ; `None` if they must be equal.
        """
        self._join = RecordJoin(len(sources), tolerance=tolerance)
        self._waiting = [_Waiting(source, by) for source in sources]
        self._order = RunOrder(sources)
        self._in_runs = self._order.n_programs < (2 if by == "wall_time" else len(sources))

    @property
    def n_unpaired(self) -> int:
        """How many records of the first source have no partner; lost ones are among them."""
        return self._join.n_unpaired + self._waiting[0].n_missed

    @property
    def n_waiting(self) -> int:
        """How many records of the first source may still get a partner."""
        return self._join.n_waiting

    @property
    def over(self) -> bool:
        """Whether no more records can belong together."""
        return self._join.over

    def read(self) -> list[Columns]:
        """Read the sources without waiting.

        Returns:
            For each source the records that were found, of equal length: those in one place belong together. They have
            no further step tracks.
        """
        for i, waiting in enumerate(self._waiting):
            if waiting.n_bytes < MAX_WAITING_BYTES or self._join.awaits(i):
                over = waiting.source.ended  # before reading: later records are for the next turn
                keys, made_by, ids = waiting.read(self._in_runs)
                runs = np.array(self._order.of(i, ids))[made_by] if self._in_runs else 0.0
                self._join.add(i, keys, runs)
                if over:
                    self._join.end(i)
        positions = self._join.take()
        found = [waiting.pick(at) for waiting, at in zip(self._waiting, positions.T, strict=True)]
        for i, waiting in enumerate(self._waiting):
            waiting.forget(self._join.needed_from(i))
        return found


class _Waiting:
    """The records of one source that may still belong to others.

    Attributes:
        source: The source.
        n_missed: How many of its records were lost, or dropped from memory before they could be read.
    """

    def __init__(self, source: Source, by: JoinKey) -> None:
        self.source = source
        self.n_missed = 0
        self._by = by
        self._cursor = self._n_read = self._needed_from = 0
        self._reached_s = -math.inf
        self._next_index: int | None = None
        self._parts: deque[tuple[int, Columns, float]] = deque()  # the first position, the records, bytes of each

    @property
    def n_bytes(self) -> float:
        """How much memory they take."""
        return sum((start + len(part) - max(start, self._needed_from)) * size for start, part, size in self._parts)

    def read(self, in_runs: bool) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64], list[str]]:
        """Read the new records, and return their keys, which run made each, and the ids of all runs so far.

        Args:
            in_runs: Whether index numbers are counted from the beginning of each run.
        """
        self._cursor, columns = self.source.since(self._cursor)
        restarts = restarts_of_runs(self.source)  # after the records: those that it has now cannot be of later runs
        ids = made_by(self.source)
        if not len(columns):
            return np.zeros(0), np.zeros(0, np.int64), ids
        starts = np.array([0, *(restart.index for restart in restarts)])
        runs = np.searchsorted(starts[1:], columns.numbers, side="right")
        expected = columns.index if self._next_index is None else self._next_index
        self._next_index = columns.end
        self.n_missed += columns.end - expected - len(columns)
        self._parts.append((self._n_read, columns, WAITING_ROW_BYTES + n_bytes(columns.values) / len(columns)))
        self._n_read += len(columns)
        match self._by:
            case "wall_time":
                keys = self._once(columns.wall_times)
            case "index":
                keys = columns.numbers - (starts[runs] if in_runs else 0)
            case "step":
                keys = np.asarray(columns.steps)
        return keys, runs, ids

    def _once(self, times_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return wall times, NaN from where a clock was set back until it shows later times than ever before."""
        reached_s = np.maximum.accumulate(np.concatenate(([self._reached_s], times_s)))
        self._reached_s = reached_s[-1]
        once: npt.NDArray[np.float64] = np.where(times_s < reached_s[:-1], np.nan, times_s)
        return once

    def pick(self, positions: Positions) -> Columns:
        """Return the records at these positions, ascending."""
        starts = [start for start, _, _ in self._parts]
        part_of = np.searchsorted(starts, positions, side="right") - 1
        found: dict[str, list[Any]] = {
            "steps": [], "wall_times": [], "n_events": [], "flags": [], "numbers": [],
        }  # fmt: skip
        values: list[Any] = []  # of each part
        for number in np.unique(part_of).tolist():
            start, part, _ = self._parts[number]
            rows = positions[part_of == number] - start
            taken = part.values
            values.append(taken[rows] if isinstance(taken, np.ndarray) else [taken[row] for row in rows.tolist()])
            for name, columns in found.items():
                column = getattr(part, name)
                columns.append(np.full(len(rows), DEFAULTS[name]) if column is None else column[rows])
        joined: dict[str, Any] = {
            name: np.concatenate(columns) if columns else np.zeros(0) for name, columns in found.items()
        }
        indexes = joined.pop("numbers")
        arrays = {column.dtype if isinstance(column, np.ndarray) else None for column in values}
        one_type = len(arrays) == 1 and None not in arrays
        return Columns(
            index=int(indexes[0]) if len(indexes) else 0, indexes=indexes, **joined,
            values=np.concatenate(values) if one_type else [value for column in values for value in column],
        )  # fmt: skip

    def forget(self, position: int) -> None:
        """Drop the records before a position."""
        self._needed_from = position
        while self._parts and self._parts[0][0] + len(self._parts[0][1]) <= position:
            self._parts.popleft()
