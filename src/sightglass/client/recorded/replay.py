"""Run the remaining stages of a query on recorded series (see `plan`).

Records are ordered by wall time, like the events. The result equals the live stream's where that lost nothing, with one
exception: a group in which a condition held back every event has no record here, not even a count of 0.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, UnknownNameError
from sightglass.query.arrays import truth
from sightglass.query.evaluation import conditions, remaining
from sightglass.query.pipeline import Pipeline
from sightglass.query.stages import Reduce
from sightglass.query.windows import PipelineItem

from .plan import LOG, ReplayPlan

# As in a live run, which suspends a query after as many failures in a row.
MAX_ERRORS: Final = 3


class _Boundary(NamedTuple):
    """The end of a group.

    Attributes:
        wall_time: In seconds since the Unix epoch.
        ordinal: The number of the event that ends the group.
        event: Its name, or "" for the run's own ends of groups.
        turn: How often the clock was set back before.
    """

    wall_time: float
    ordinal: int
    event: str
    turn: int


class Replay:
    """The remaining stages of a query, which take the records of the recorded series piece by piece.

    Attributes:
        n_errors: How many events failed.
        last_error: The last failure, or empty.
    """

    def __init__(self, plan: ReplayPlan, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """Compile the remaining stages.

        Raises:
            QueryError: They call a function of the run that this process does not have.
        """
        self.plan = plan
        self.n_errors = 0
        self.last_error = ""
        self._n_in_row = 0
        self._begun = False
        self._pipeline: Pipeline = remaining(plan.query, plan.n_done, functions, held=plan.held)
        self._conditions = conditions(plan.query, functions, n_done=plan.n_done)
        self._reduced = any(isinstance(stage, Reduce) for stage in plan.query.stages[: plan.n_done])
        self._last: PipelineItem | None = None
        self._pending: dict[str, deque[_Boundary]] = {}
        self._last_boundary: dict[str, tuple[float, int]] = {}
        self._turn, self._highest = 0, -math.inf

    def add_boundaries(self, event: str, ordinals: npt.NDArray[np.int64], wall_times: npt.NDArray[np.float64]) -> None:
        """Add ends of groups. Call it before `post` with the records of the same time.

        Args:
            event: The key of the series in the plan's boundaries.
            ordinals: Shape (n,): the numbers of the events that end groups; for the run's own ends of groups, the
                number of the next event.
            wall_times: Shape (n,).
        """
        boundaries = self._pending.setdefault(event, deque())
        for ordinal, wall_time in zip(ordinals.tolist(), wall_times.tolist(), strict=True):
            wall_time_before, turn = self._last_boundary.get(event, (wall_time, 0))
            self._last_boundary[event] = wall_time, turn + (wall_time < wall_time_before)
            boundaries.append(_Boundary(wall_time, ordinal, event, self._last_boundary[event][1]))

    def post(self, columns: Mapping[str, Columns], since: int = 0) -> Iterator[PipelineItem]:
        """Run the stages on new records, and yield the results.

        Args:
            columns: The new records of each series, by the names of the plan's keys.
            since: The number of the first recorded event.

        Raises:
            EvaluationError: Three events in a row failed.
        """
        for item, event in self._items(columns):
            if self._last is not None and item.wall_time < self._last.wall_time:
                self._turn, self._highest = self._turn + 1, self._last.wall_time
            while due := [ends for ends in self._pending.values() if ends and self._first_is_before(ends, item)]:
                yield from self._close(min(due, key=lambda ends: ends[0]).popleft().event)
            if self._last is None and self.plan.held and item.ordinal > since:
                self._pipeline.hold(ordinal=since, wall_time=item.wall_time)
            self._last = item
            yield from self._offer(item, event)

    def catch_up(self) -> Iterator[PipelineItem]:
        """Close the groups that end after the last record."""
        boundaries = itertools.chain.from_iterable(self._pending.values())
        for boundary in sorted(boundaries, key=lambda boundary: (boundary.turn, boundary)):
            yield from self._close(boundary.event)
        self._pending.clear()

    def end_group(self) -> list[PipelineItem]:
        """Close the open group of the reducers without a named window."""
        return self._pipeline.end_group()

    def finish(self, n_events: int = 0) -> list[PipelineItem]:
        """Close all open windows at the end of the run.

        Args:
            n_events: The number of events, 0 if unknown: conditions may have held back the last ones.
        """
        held: list[PipelineItem] = []
        if self.plan.held and not self._reduced and self._last is not None and n_events - 1 > self._last.ordinal:
            held = self._pipeline.hold(ordinal=n_events - 1, wall_time=self._last.wall_time)
        return [*held, *self._pipeline.finish()]

    @property
    def has_reducer(self) -> bool:
        """Whether one of the remaining stages is a reducer."""
        return bool(self._pipeline.folds)

    def _first_is_before(self, boundaries: Sequence[_Boundary], item: PipelineItem) -> bool:
        """Return whether the first of some boundaries lies before a record.

        Event numbers decide where both have them. Else time decides, and how often the clock was set back until then,
        as far as the boundaries and the records show that.
        """
        boundary = boundaries[0]
        if boundary.event == "" and not self._reduced:
            return boundary.ordinal <= item.ordinal
        if boundary.turn > self._turn:
            return False
        if boundary.turn < self._turn and (
            boundary.wall_time <= self._highest or (len(boundaries) > 1 and boundaries[1].turn > boundary.turn)
        ):
            return True
        return boundary.wall_time < item.wall_time

    def _close(self, event: str) -> list[PipelineItem]:
        return self._pipeline.boundary(event) if event else self._pipeline.end_group()

    def _offer(self, item: PipelineItem, event: object) -> list[PipelineItem]:
        ordinal, wall_time = item.ordinal, item.wall_time
        try:
            closes = [truth(condition(event)) for condition in self._conditions]
            items = self._pipeline.post(item, ordinal=ordinal, wall_time=wall_time, closes=closes)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, QueryError) as error:
            absent = isinstance(error, UnknownNameError) and error.what == "observable"
            if absent and self.plan.query.event == LOG:
                return self._pipeline.hold(ordinal=ordinal, wall_time=wall_time)
            if absent and not self._begun:
                return []  # one series begins later than another
            self.n_errors += 1
            self._n_in_row += (
                not absent
            )  # a series has a gap, or the event lacked the observable: not a fault of the query
            self.last_error = f"{error} (step {item.step})"
            if self._n_in_row >= MAX_ERRORS:
                raise EvaluationError(self.last_error, event=self.plan.query.event, step=item.step) from error
            return self._pipeline.miss(ordinal=ordinal, wall_time=wall_time)
        self._n_in_row = 0
        self._begun = True
        return items

    def _items(self, columns: Mapping[str, Columns]) -> Iterator[tuple[PipelineItem, object]]:
        if not columns:
            return
        if self.plan.how == "prefix":
            for item in _items_of(columns[""]):
                yield item, None
        elif "" in self.plan.keys:
            for item in _items_of(columns[""]):
                yield item, item.value
        else:
            yield from _events_of(columns)


def _items_of(columns: Columns) -> Iterator[PipelineItem]:
    """Yield records as items of the pipeline."""
    ordinals = (
        columns.ordinals.tolist()
        if columns.ordinals is not None
        else range(columns.index, columns.index + len(columns))
    )
    values = columns.values.tolist() if _is_plain(columns.values) else columns.values
    for i, (ordinal, step, wall_time) in enumerate(
        zip(ordinals, columns.steps.tolist(), columns.wall_times.tolist(), strict=True)
    ):
        item = PipelineItem(ordinal, step, wall_time, values[i])
        if columns.n_events is not None:
            item.n_events = int(columns.n_events[i])
        if columns.flags is not None:
            item.complete, item.closed = bool(columns.flags[i] & 1), bool(columns.flags[i] & 2)
        if columns.tracks is not None:
            item.steps = columns.tracks[i] or None
        yield item


def _is_plain(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (np.float64, np.int64, np.bool_)


def _events_of(columns: Mapping[str, Columns]) -> Iterator[tuple[PipelineItem, object]]:
    """Rebuild events from the series of their observables."""
    series = [zip(itertools.repeat(name), _items_of(part)) for name, part in columns.items()]
    event: dict[str, Any] = {}
    last: PipelineItem | None = None
    for name, item in heapq.merge(*series, key=lambda entry: entry[1].ordinal):
        if last is not None and item.ordinal != last.ordinal:
            yield _event(last, event)
            event = {}
        event[name] = item.value
        last = item
    if last is not None:
        yield _event(last, event)


def _event(item: PipelineItem, event: dict[str, Any]) -> tuple[PipelineItem, object]:
    observables = {**event, "step": item.step}
    return PipelineItem(item.ordinal, item.step, item.wall_time, observables, steps=item.steps), observables


def horizon(columns: Columns, wall_time: float) -> Columns:
    """Return the records up to the last one of a time; later ones may lack records of other series between them."""
    if wall_time == math.inf:
        return columns
    known = np.flatnonzero(columns.wall_times <= wall_time)  # not in order where the clock was set back
    return columns.slice(0, int(known[-1]) + 1 if len(known) else 0)
