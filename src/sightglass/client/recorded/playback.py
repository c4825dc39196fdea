"""The streams of a recorded run: read the series of a query's plan, and run the remaining stages on them."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.client.resumable_stream import RecordBuffer
from sightglass.client.streams.derived import mark_restart
from sightglass.core.columns import Columns, Restart, Row, of_rows
from sightglass.core.counts import Statistics
from sightglass.core.errors import EvaluationError, QueryError, RunLostError, cut
from sightglass.query.windows import PipelineItem
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .plan import ReplayPlan
from .replay import Replay, horizon

# Large enough for NumPy to dominate, and a few MB of memory for a series of numbers.
PIECE_ROWS: Final = 65_536
# The writer flushes all series twice a second: older records are in the files, whichever series they belong to.
SETTLED_S: Final = 2.0

_Boundaries = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]


class Playback:
    """Produces the records of a recorded run's stream: it reads the series of a plan as they grow."""

    def __init__(
        self, plan: ReplayPlan, recording: Recording, *, over: Callable[[], bool], closed: Callable[[], bool]
    ) -> None:
        """Begin before the first record.

        Args:
            plan: Which series to read.
            recording: The files.
            over: Returns whether no more records can arrive.
            closed: Returns whether the files were closed.
        """
        self._plan = plan
        self._recording = recording
        self._over = over
        self._closed = closed
        self._replay = None if plan.how == "records" else Replay(plan)
        self._readers = {name: _SeriesReader(recording) for name in plan.keys}
        self._joined = {event: {name: _SeriesReader(recording) for name in keys} for event, keys in plan.joined.items()}
        self._boundaries = {event: _BoundaryReader(recording, keys) for event, keys in plan.boundaries.items()}
        self._n = 0  # results so far
        self._begun: set[str] = set()  # the runs whose records were looked for
        self._changed = True
        self._generation: int | None = None
        self._seen: deque[tuple[float, float]] = deque()
        self._until = -math.inf
        self._read: tuple[int, ...] = ()

    @classmethod
    def of_all(cls, plan: ReplayPlan, recording: Recording) -> Playback:
        """Return one that reads what was recorded by now, and follows nothing."""
        return cls(plan, recording, over=lambda: True, closed=lambda: False)

    def items(self, replay: Replay, until: float = math.inf, *, over: bool = True) -> Iterator[PipelineItem]:
        """Yield what the remaining stages give on the new records.

        Args:
            replay: The remaining stages.
            until: The wall time up to which all series are in the files.
            over: Whether no more records can arrive.
        """
        for event, boundaries in self._boundaries.items():
            replay.add_boundaries(event, *boundaries.read(until))
        for event, readers in self._joined.items():
            keys = self._plan.joined[event]
            replay.joined[event].add(self._pieces(keys, readers, until), since=self._since(keys))
        for columns in self._pieces(self._plan.keys, self._readers, until):
            yield from replay.post(columns, self._since(self._plan.keys))
        yield from replay.catch_up()
        if over:
            yield from replay.finish(self._recording.info.events.get(self._plan.query.event, 0))

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records to the buffer."""
        if buffer.ended:
            return
        try:
            self._follow(buffer)
        except RunLostError as error:
            buffer.end(error)

    def _follow(self, buffer: RecordBuffer) -> None:
        recording = self._recording
        name = recording.info.name
        if self._closed():
            raise RunLostError(f"Recorded run {name!r} was closed before all of {cut(buffer.tag)!r} was read")
        over = self._over()  # before reading: later records are for the next turn
        with recording.lock:
            # Others who share the files may have looked at what is new before.
            if self._changed or over or recording.changed() or self._state() != self._read:
                self._changed = False
                recording.refresh()
                self._read = self._state()
                if self._generation not in (None, recording.generation):
                    raise _renumbered(recording)
                self._generation = recording.generation
                if self._replay is None:
                    self._pass_on(buffer)
                else:
                    self._compute(buffer, self._replay, over)
        if over:
            buffer.end()

    def _pass_on(self, buffer: RecordBuffer) -> None:
        ((name, key),) = self._plan.keys.items()
        series = self._recording.series(key)
        buffer.restarts = tuple(Restart(index=run.index, run_id=run.id) for run in series.runs()[1:])
        for columns in self._readers[name].read(series, math.inf):
            buffer.add(columns)

    def _compute(self, buffer: RecordBuffer, replay: Replay, over: bool) -> None:
        several = len(self._plan.keys) > 1 or bool(self._boundaries or self._joined)
        self._changed = several  # records younger than SETTLED_S wait, though the files do not change
        until = self._settled() if several and not over else math.inf
        begun = [(ordinal, id) for id, ordinal in self._runs().items() if id not in self._begun]
        self._begun.update(id for _, id in begun)
        replay.starts.add(begun)
        try:
            self._add(buffer, self.items(replay, until, over=over))
        except EvaluationError as error:
            buffer.end(error)

    def _settled(self) -> float:
        """Return the wall time up to which all series are in the files.

        That is the time of the newest record `SETTLED_S` ago. The writer's clock is not compared with this machine's,
        since either may have been set, except when the files were not looked at for so long.
        """
        now_s = time.monotonic()
        newest = max((self._recording.series(key).last_wall_time for key in self._plan.all_keys), default=-math.inf)
        if not self._seen or self._seen[-1][0] <= now_s - SETTLED_S:
            self._seen.clear()
            self._until = min(newest, max(newest, time.time()) - SETTLED_S)
        self._seen.append((now_s, newest))
        while self._seen[0][0] <= now_s - SETTLED_S:
            _, self._until = self._seen.popleft()
        return self._until

    def _state(self) -> tuple[int, ...]:
        """Return what changes when there is something to read."""
        return (self._recording.generation, *(len(self._recording.series(key)) for key in self._plan.all_keys))

    def _runs(self) -> dict[str, int]:
        """Return the ids of the runs that made the records, in order, and the number of the first event of each."""
        found: dict[str, int] = {}
        for key in self._plan.keys.values():
            for run in self._recording.series(key).runs():
                found[run.id] = min(run.ordinal, found.get(run.id, run.ordinal))
        return dict(sorted(found.items(), key=lambda run: run[1]))

    def first_run(self) -> str:
        """Return the id of the run that made the first records."""
        with self._recording.lock:
            return next(iter(self._runs()), self._recording.info.id)

    def _since(self, keys: Mapping[str, Key]) -> int:
        """Return the number of the first recorded event."""
        key = next(iter(keys.values()))
        return self._recording.series(key).since if key.kind == "stream" else 0

    def _pieces(
        self, keys: Mapping[str, Key], readers: Mapping[str, _SeriesReader], until: float
    ) -> Iterator[dict[str, Columns]]:
        """Yield the new records of several series up to a time, in pieces that hold whole events."""
        new = {name: list(readers[name].read(self._recording.series(key), until)) for name, key in keys.items()}
        if len(new) == 1:
            ((name, parts),) = new.items()
            yield from ({name: part} for part in parts)
            return
        while any(new.values()):
            # Up to where each series is known: records beyond the shortest piece wait for the next turn.
            last = min(int(parts[0].ordinals[-1]) for parts in new.values() if parts)
            piece = {}
            for name, parts in new.items():
                if parts:
                    n = int(np.searchsorted(parts[0].ordinals, last, side="right"))
                    if n:
                        piece[name] = parts[0].slice(0, n)
                    new[name] = [parts[0].slice(n), *parts[1:]] if n < len(parts[0]) else parts[1:]
            yield piece

    def _add(self, buffer: RecordBuffer, items: Iterable[PipelineItem]) -> None:
        rows: list[Row] = []
        try:
            for item in items:
                self._mark(buffer, item)
                extra = (item.n_events, item.flags, item.steps)
                rows.append((self._n, item.step, item.wall_time, item.value, extra, item.ordinal))
                self._n += 1
                if len(rows) == PIECE_ROWS:
                    full, rows = rows, []
                    buffer.add(of_rows(full))
        finally:
            if rows:
                buffer.add(of_rows(rows))

    def _mark(self, buffer: RecordBuffer, item: PipelineItem) -> None:
        """Mark a result that is the first of a run."""
        run_id = self._replay.starts.begun_by(item.wall_time) if self._replay is not None else ""
        if run_id and self._n:
            mark_restart(buffer, self._n, run_id)
        elif run_id:
            buffer.run_id = run_id

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group of the reducers without a named window."""
        if self._replay is None or not self._replay.has_reducer:
            raise QueryError(f"Expected a reducer without a named window to close, got {self._plan.query}")
        self._add(buffer, self._replay.end_group())

    def close(self) -> None:
        """Do nothing: the run closes its files."""

    def statistics(self) -> Statistics:
        """Return the number of records read and lost, and the failures of stages that run here."""
        series = [self._recording.series(key) for key in self._plan.keys.values()]
        counts = Statistics(n_events=sum(map(len, series)), n_dropped=sum(one.n_missed for one in series))
        if self._replay is None:
            return counts
        replay = self._replay
        return replace(counts, n_unpaired=replay.n_unpaired, n_errors=replay.n_errors, last_error=replay.last_error)


class _SeriesReader:
    """Reads a series as it grows.

    Row numbers count damaged rows, which reading leaves out; so the rows taken after `_start` are counted separately.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._start = self._n_taken = 0
        self._runs: list[tuple[str, int]] = []

    def read(self, series: Series, until: float) -> Iterator[Columns]:
        """Yield the new rows up to a time.

        Raises:
            RunLostError: A later run hides rows that were read.
        """
        n_read, before = self._start + self._n_taken, self._runs
        self._runs = [(run.id, run.row) for run in series.runs()]
        same, later = self._runs[: len(before)] == before, self._runs[len(before) :]
        if n_read and not (same and all(row >= n_read for _, row in later)):
            raise _renumbered(self._recording)
        while self._start < len(series):
            stop = min(len(series), self._start + PIECE_ROWS)
            n_before = self._n_taken
            for columns in series.parts(self._start, stop):
                new = columns.slice(min(n_before, len(columns)))
                n_before -= len(columns) - len(new)
                known = horizon(new, until)
                self._n_taken += len(known)
                if len(known):
                    yield known
                if len(known) < len(new):
                    return
            self._start, self._n_taken = stop, 0


def _renumbered(recording: Recording) -> RunLostError:
    name, where = recording.info.name, str(recording.path)
    why = f"Run {name!r} was started again in {where!r}, or earlier records of it came late"
    return RunLostError(f"{why}: open it again")


class _BoundaryReader:
    """Reads the ends of groups: the numbers and times of events, or of the run's own ends of groups."""

    def __init__(self, recording: Recording, keys: Sequence[Key]) -> None:
        self._recording = recording
        self._readers = {key: _SeriesReader(recording) for key in keys}

    def read(self, until: float) -> _Boundaries:
        """Return the numbers and times of the new ends up to a time; an event counts once, in however many series."""
        new: list[_Boundaries] = [(np.zeros(0, np.int64), np.zeros(0))]
        for key, reader in self._readers.items():
            new += [(known.ordinals, known.wall_times) for known in reader.read(self._recording.series(key), until)]
        ordinals, wall_times = map(np.concatenate, zip(*new, strict=True))
        if len(self._readers) > 1:
            ordinals, first = np.unique(ordinals, return_index=True)
            wall_times = wall_times[first]
        return ordinals, wall_times
