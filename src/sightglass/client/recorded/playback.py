"""Streams of a recorded run: reading what the plan of a query names, and computing the rest."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sightglass.client.record_buffer import RecordBuffer
from sightglass.core.columns import Columns, Row, of_rows
from sightglass.core.errors import EvaluationError, QueryError, RunLostError
from sightglass.query.windows import PipelineItem
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .plan import ReplayPlan
from .replay import Replay, horizon

PIECE_ROWS: Final = 65_536
SETTLED_S: Final = 2.0
"""What is older than this is in the files, whichever series it belongs to."""


class Playback:
    """Where the records of a recorded run's stream come from: the series of its plan, read on as they grow."""

    def __init__(
        self, chosen: ReplayPlan, recording: Recording, *, over: Callable[[], bool], closed: Callable[[], bool]
    ) -> None:
        """Begin before the first record.

        Args:
            chosen: What answers the query.
            recording: What was kept.
            over: Tells whether no more can come.
            closed: Tells whether the files were closed.
        """
        self._plan = chosen
        self._recording = recording
        self._over = over
        self._closed = closed
        self._replay = None if chosen.how == "records" else Replay(chosen)
        self._readings = {name: _Reading() for name in chosen.keys}
        self._marks = {event: _Marks(keys) for event, keys in chosen.marks.items()}
        self._n_made = itertools.count()
        self._changed = True
        self._generation: int | None = None

    def advance(self, buffer: RecordBuffer) -> None:
        """Put what is new into the store."""
        if buffer.ended:
            return
        recording = self._recording
        name = recording.info.name
        if self._closed():
            buffer.end(RunLostError(f"Recorded run {name!r} was closed before all of {buffer.tag!r} was read"))
            return
        over = self._over()  # before reading: what comes after is for the next turn
        with recording.lock:
            if self._changed or over or recording.changed():
                self._changed = False
                recording.refresh()
                if self._generation not in (None, recording.generation):
                    where = str(recording.path)
                    buffer.end(RunLostError(f"Run {name!r} was started again in {where!r}: open it anew"))
                    return
                self._generation = recording.generation
                if self._replay is None:
                    self._pass_on(buffer)
                else:
                    self._compute(buffer, self._replay, over)
        if over:
            buffer.end()

    def _pass_on(self, buffer: RecordBuffer) -> None:
        ((name, key),) = self._plan.keys.items()
        for columns in self._new(name, key, math.inf):
            buffer.add(columns)

    def _compute(self, buffer: RecordBuffer, replay: Replay, over: bool) -> None:
        recording = self._recording
        joins = len(self._plan.keys) > 1 or bool(self._marks)
        self._changed = joins  # what is held back now is due when time has passed
        until = time.time() - SETTLED_S if joins and not over else math.inf
        for event, marks in self._marks.items():
            replay.mark(event, *marks.read(recording, until))
        try:
            for columns in self._pieces(until):
                self._add(buffer, replay.post(columns, self._since()))
            self._add(buffer, replay.catch_up())
            if over:
                self._add(buffer, replay.finish(recording.info.events.get(self._plan.query.event, 0)))
        except EvaluationError as error:
            buffer.end(error)

    def _since(self) -> int:
        """Return the number of the event from which on the records were kept."""
        key = next(iter(self._plan.keys.values()))
        return self._recording.series(key).since if key.kind == "stream" else 0

    def _pieces(self, until: float) -> Iterator[dict[str, Columns]]:
        """Yield the new records of all series up to a time, events whole."""
        fresh = {name: list(self._new(name, key, until)) for name, key in self._plan.keys.items()}
        if len(fresh) == 1:
            ((name, parts),) = fresh.items()
            yield from ({name: part} for part in parts)
            return
        while any(fresh.values()):
            # Up to where each series is known: what lies behind the shortest piece waits for the next turn.
            last = min(int(parts[0].ordinals[-1]) for parts in fresh.values() if parts)
            piece = {}
            for name, parts in fresh.items():
                if parts:
                    n = int(np.searchsorted(parts[0].ordinals, last, side="right"))
                    if n:
                        piece[name] = parts[0].slice(0, n)
                    fresh[name] = [parts[0].slice(n), *parts[1:]] if n < len(parts[0]) else parts[1:]
            yield piece

    def _new(self, name: str, key: Key, until: float) -> Iterator[Columns]:
        return self._readings[name].read(self._recording.series(key), until)

    def _add(self, buffer: RecordBuffer, items: Iterable[PipelineItem]) -> None:
        rows: list[Row] = []
        try:
            for item in items:
                extra = (item.n_events, item.complete, item.closed, item.steps)
                rows.append((next(self._n_made), item.step, item.wall_time, item.value, extra, item.ordinal))
        finally:
            if rows:
                buffer.add(of_rows(rows))

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the groups that no window was named for."""
        if self._replay is None or not self._replay.has_reducer:
            raise QueryError(f"Expected a reducer without a named window to close, got {self._plan.query}")
        self._add(buffer, self._replay.end_group())

    def close(self) -> None:
        """Do nothing: the files are the run's."""

    def statistics(self) -> Mapping[str, Any]:
        """Return what is known of the records, and what failed here."""
        series = [self._recording.series(key) for key in self._plan.keys.values()]
        counts = {"n_events": sum(map(len, series)), "n_dropped": sum(one.n_missed for one in series)}
        if self._replay is None:
            return counts
        return {**counts, "n_errors": self._replay.n_errors, "last_error": self._replay.last_error}


class _Reading:
    """How far a series was read.

    Numbers of rows count those that are damaged, which are left out of what is read: what was handed out of the rows
    behind `_start` is counted by itself.
    """

    def __init__(self) -> None:
        self._start = self._n_taken = 0

    def read(self, series: Series, until: float) -> Iterator[Columns]:
        """Yield the rows that are new, up to a time."""
        while self._start < len(series):
            stop = min(len(series), self._start + PIECE_ROWS)
            n_before = self._n_taken
            for columns in series.parts(self._start, stop):
                fresh = columns.slice(min(n_before, len(columns)))
                n_before -= len(columns) - len(fresh)
                known = horizon(fresh, until)
                self._n_taken += len(known)
                if len(known):
                    yield known
                if len(known) < len(fresh):
                    return
            self._start, self._n_taken = stop, 0


class _Marks:
    """Where groups end: the numbers and times of events, or of the run's own ends of groups."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._readings = {key: _Reading() for key in keys}

    def read(self, recording: Recording, until: float) -> tuple[Any, Any]:
        """Return the numbers and times of new ones, up to a time; what several series tell of is one event."""
        none: tuple[Any, Any] = np.zeros(0, np.int64), np.zeros(0)
        fresh = [none]
        for key, reading in self._readings.items():
            fresh += [(known.ordinals, known.wall_times) for known in reading.read(recording.series(key), until)]
        ordinals, wall_times = map(np.concatenate, zip(*fresh, strict=True))
        if len(self._readings) > 1:
            ordinals, first = np.unique(ordinals, return_index=True)
            wall_times = wall_times[first]
        return ordinals, wall_times
