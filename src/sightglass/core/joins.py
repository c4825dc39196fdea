"""Joins: which records of several streams belong together.

Theory of operation
    Records are joined by a key: their step, their index, or their wall time. The first stream leads: each of its
    records gets one partner in every other stream, or counts as unpaired.

    Rule 1: without a tolerance, partners have equal keys. The n-th record with a key is paired with the n-th.
    Rule 2: with a tolerance, the partner is the record with the nearest key; the lower key if two are equally near. Of
    several with that key it is the last one below, or the first one at the record's own key. A record may be the
    partner of several.
    Rule 3: a key that goes back begins a new pass, as in a program that counts its steps from 0 in each epoch. Passes
    are counted from the first record of each stream in each run. Partners are in the same pass of the same run: where
    a run was restarted, a stream that is sparse may not have gone back, and yet its records belong to the new run.
    Rule 4: a record waits until no later record can change its partner. So pairs do not depend on how records arrive.
    Rule 5: a record whose key is not a finite number has no partner.

    Within a pass keys do not go back, so a record whose key the leading stream has passed is never needed again. Only
    the records of streams that are ahead wait.

`SourceJoin` does this for live sources; `RunOrder` tells which of their records are of one process.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from .columns import CLOSED, COMPLETE, Columns
from .source import Source, client_of, made_by, restarts_of_runs, runs_of
from .values import n_bytes

Positions = npt.NDArray[np.int64]

PASSES: Final = 2.0**32  # of one run: the numbers of passes and the halves between the numbers of runs are both exact


class RecordJoin:
    """Finds the partners of records as they arrive, by their keys alone.

    Attributes:
        n_unpaired: How many records of the first stream have no partner.
    """

    def __init__(self, n_streams: int, *, tolerance: float | None = None) -> None:
        """Begin without records.

        Args:
            n_streams: How many streams are joined.
            tolerance: How far the keys of partners may differ; `None` if they must be equal.
        """
        self.n_unpaired = 0
        self._tolerance = tolerance
        self._lead, *self._others = self._sides = [_Side() for _ in range(n_streams)]

    def add(self, stream: int, keys: npt.ArrayLike, runs: npt.ArrayLike = 0.0) -> None:
        """Add the keys of a stream's next records, of shape (n,), and the numbers of their runs, which ascend."""
        keys = np.asarray(keys, np.float64)
        n_left_out = self._sides[stream].add(keys, np.broadcast_to(np.asarray(runs, np.float64), keys.shape))
        if stream == 0:
            self.n_unpaired += n_left_out

    def end(self, stream: int) -> None:
        """Say that a stream has no more records."""
        self._sides[stream].ended = True

    def take(self) -> Positions:
        """Return the pairs that are certain by now, each once.

        Returns:
            Shape (n_pairs, n_streams): the positions of the records in their streams, counted from 0 as they were
            added.
        """
        lead = self._lead
        self._trim()
        found = [other.partners(lead.places, self._tolerance) for other in self._others]
        n = len(lead.places) if self.over else min((n for _, n in found), default=len(lead.places))
        partners = [at[:n] for at, _ in found]
        paired = np.logical_and.reduce([np.ones(n, bool), *(at >= 0 for at in partners)])
        pairs = np.stack(
            [lead.positions[:n][paired]]
            + [other.positions[at[paired]] for other, at in zip(self._others, partners, strict=True)],
            axis=1,
        )
        self.n_unpaired += n - len(pairs)
        if self._tolerance is None:
            for other in self._others:
                other.drop(other.n_used(lead.places[:n]))
        lead.drop(n)
        self._trim()
        return pairs

    @property
    def over(self) -> bool:
        """Whether no later record can make a pair."""
        return any(side.ended and not len(side.places) for side in self._sides)

    @property
    def n_waiting(self) -> int:
        """How many records of the first stream wait until their partner is certain."""
        return len(self._lead.places)

    def awaits(self, stream: int) -> bool:
        """Return whether nothing is certain before this stream has more records, or has ended."""
        lead, side = self._lead, self._sides[stream]
        if side is lead:
            return not len(lead.places)
        return bool(len(lead.places)) and not side.ended and int(np.searchsorted(lead.places, side.reached)) == 0

    def needed_from(self, stream: int) -> int:
        """Return the position from which on records of a stream may still be in a pair."""
        side = self._sides[stream]
        return int(side.positions[0]) if len(side.positions) else side.n_added

    def _trim(self) -> None:
        """Drop what is below the next record of the first stream, except the nearest record within the tolerance."""
        lead = self._lead
        place = lead.places[0] if len(lead.places) else lead.reached
        for other in self._others:
            n = int(np.searchsorted(other.places, place))
            if n and self._tolerance is not None:
                below = other.places[n - 1]
                n -= bool(below.real == place.real and place.imag - below.imag <= self._tolerance)
            other.drop(n)


class _Side:
    """The records of one stream that may still be in a pair.

    A place is a run, a pass and a key, as a complex number: NumPy orders them by the real part, which is the number of
    the run times `PASSES` plus that of the pass, then by the imaginary part.

    Attributes:
        places: Shape (n,), complex128, ascending.
        positions: Shape (n,): where the records are in the stream.
        reached: The place of the newest record.
        n_added: How many records were added.
        ended: Whether no more can come.
    """

    def __init__(self) -> None:
        self.places: Any = np.zeros(0, np.complex128)
        self.positions: Positions = np.zeros(0, np.int64)
        self.reached = np.complex128(complex(-math.inf, -math.inf))
        self.n_added = 0
        self.ended = False
        self._run, self._pass = math.nan, 0

    def add(self, keys: npt.NDArray[np.float64], runs: npt.NDArray[np.float64]) -> int:
        """Add records, and return how many were left out because their key is not finite."""
        positions = np.arange(self.n_added, self.n_added + len(keys))
        self.n_added += len(keys)
        known = np.isfinite(keys)
        keys, positions, runs = keys[known], positions[known], runs[known]
        if len(keys):
            begins = runs != np.concatenate(([self._run], runs[:-1]))
            goes_back = (keys < np.concatenate(([self.reached.imag], keys[:-1]))) & ~begins
            passes, rows = np.cumsum(goes_back), np.arange(len(keys))
            first = np.maximum.accumulate(np.where(begins, rows, -1))  # row of each run, -1 if it was added before
            passes += np.where(first < 0, self._pass, -passes[first])
            self._run, self._pass = float(runs[-1]), int(passes[-1])
            places = np.empty(len(keys), np.complex128)
            places.real, places.imag = runs * PASSES + passes, keys
            self.reached = places[-1]
            self.places = np.concatenate((self.places, places))
            self.positions = np.concatenate((self.positions, positions))
        return len(known) - len(keys)

    def drop(self, n: int) -> None:
        """Drop the first `n` records."""
        if n:
            self.places, self.positions = self.places[n:], self.positions[n:]

    def partners(self, places: Any, tolerance: float | None) -> tuple[Positions, int]:
        """Return which record of this side belongs to each place, -1 for none; and for how many this is certain."""
        at, certain = self._equal(places) if tolerance is None else self._nearest(places, tolerance)
        return at, len(places) if self.ended else certain

    def _equal(self, places: Any) -> tuple[Positions, int]:
        at = self._turns(places)
        found = at < len(self.places)
        found[found] = self.places[at[found]] == places[found]
        n_found = int(np.flatnonzero(found)[-1]) + 1 if found.any() else 0
        return np.where(found, at, -1), max(n_found, int(np.searchsorted(places, self.reached)))

    def _nearest(self, places: Any, tolerance: float) -> tuple[Positions, int]:
        above = _search(self.places, places)
        distances = []
        for at in (above - 1, above):
            distance = np.full(len(places), np.inf)
            there = (at >= 0) & (at < len(self.places))
            there[there] = self.places[at[there]].real == places[there].real
            distance[there] = np.abs(self.places[at[there]].imag - places[there].imag)
            distances.append(distance)
        nearest = np.where(distances[0] <= distances[1], above - 1, above)
        within = np.minimum(*distances) <= tolerance
        return np.where(within, nearest, -1), int(np.count_nonzero(above < len(self.places)))

    def n_used(self, places: Any) -> int:
        """Return how many records are used up by these places, each of which takes an equal one."""
        if not len(places):
            return 0
        last = places[-1]
        first, after = np.searchsorted(self.places, last), np.searchsorted(self.places, last, side="right")
        return int(min(first + len(places) - np.searchsorted(places, last), after))

    def _turns(self, places: Any) -> Positions:
        """Return where the n-th record of each place would be, for the n-th of these places."""
        first, own = _search(self.places, places), _search(places, places)
        turns: Positions = first + np.arange(len(places)) - own
        return turns


def _search(places: Any, wanted: Any) -> Positions:
    """Return `np.searchsorted(places, wanted)`; floats are compared where all are in one pass, which is faster."""
    if len(places) and len(wanted) and places[0].real == places[-1].real == wanted[0].real == wanted[-1].real:
        places, wanted = places.imag, wanted.imag
    at: Positions = np.searchsorted(places, wanted)
    return at


# Join sources: the records of several streams that belong together, in bounded memory, as they arrive.

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


# The order of the runs of several sources: which of their records are of the same process of a program.
#
# A run that is restarted under its name has another id. A source says which run made its first records, and where
# others begin. Sources of one client, and those that share an id, are kin: they follow one program through its
# restarts, and each may have missed some. Others follow different programs, whose restarts have nothing to do with each
# other.


class RunOrder:
    """Numbers runs, so that equal numbers mean the same run, and those of a source ascend.

    A number once given stays. A run that is learned of late gets one between others, so the numbers are floats.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._family_of: list[dict[str, float]] = []
        self._own: list[dict[str, float]] = [{} for _ in sources]
        for i, source in enumerate(sources):
            ids = runs_of(source)
            client = client_of(source)
            kin = (
                family
                for other, family in zip(sources, self._family_of, strict=False)
                if not family.keys().isdisjoint(ids) or (client is not None and client is client_of(other))
            )
            self._family_of.append(next(kin, {}))
            self.of(i, ids)

    @property
    def n_programs(self) -> int:
        """How many programs the sources follow."""
        return len({id(family) for family in self._family_of})

    def of(self, source: int, ids: Sequence[str]) -> list[float]:
        """Return the numbers of the runs of a source, given their ids so far, in order."""
        family, own, last = self._family_of[source], self._own[source], -math.inf
        for i, id in enumerate(ids):
            if id not in own:
                number = family.get(id, -math.inf)
                if number <= last:  # not known
                    later = [known for other in ids[i + 1 :] if (known := family.get(other, last)) > last]
                    number = _unused(family, last, later[0] if later else None)
                own[id] = family[id] = number
            last = own[id]
        return [own[id] for id in ids]


def _unused(family: dict[str, float], last: float, later: float | None) -> float:
    """Return a number that no run of a family has, above `last` and below `later`."""
    if later is not None:
        return (max((one for one in family.values() if last <= one < later), default=later - 2) + later) / 2
    if last == -math.inf:
        return max(family.values(), default=-1.0) + 1
    return (last + min((one for one in family.values() if one > last), default=last + 2)) / 2
