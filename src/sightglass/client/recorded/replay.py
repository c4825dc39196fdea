"""What remains of a query, computed from the records that were kept (see `plan`).

Records are ordered by wall time, as the events were. The result is that of the live stream, wherever that missed
nothing; groups in which a condition held everything back leave no record here, not even a count of 0.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, UnknownNameError
from sightglass.query.arrays import truth
from sightglass.query.pipeline import Pipeline, conditions, remaining
from sightglass.query.stages import Reduce
from sightglass.query.windows import PipelineItem

from .plan import LOG, ReplayPlan

MAX_ERRORS: Final = 3


class _Mark(NamedTuple):
    """Where groups end.

    Attributes:
        wall_time: When.
        ordinal: The number of the event.
        event: Its name, or "" for the run's own ends of groups.
        turn: How often the clock was set back before.
    """

    wall_time: float
    ordinal: int
    event: str
    turn: int


class Replay:
    """What remains of a query, being computed from records of the kept series.

    Attributes:
        n_errors: How many events failed.
        last_error: The last failure, or empty.
    """

    def __init__(self, plan: ReplayPlan, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """Compile what remains.

        Raises:
            QueryError: It calls a function of the run's that is not known here.
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
        self._pending: dict[str, deque[_Mark]] = {}
        self._marked: dict[str, tuple[float, int]] = {}
        self._turn, self._highest = 0, -math.inf

    def mark(self, event: str, ordinals: Any, wall_times: Any) -> None:
        """Take in where groups end; before the records that came in the same time.

        Args:
            event: Which mark of the plan.
            ordinals: Shape (n,): the numbers of the events that delimit; of the run's own ends of groups, that of the
                event behind.
            wall_times: Shape (n,).
        """
        marks = self._pending.setdefault(event, deque())
        for ordinal, wall_time in zip(ordinals.tolist(), wall_times.tolist(), strict=True):
            wall_time_before, turn = self._marked.get(event, (wall_time, 0))
            self._marked[event] = wall_time, turn + (wall_time < wall_time_before)
            marks.append(_Mark(wall_time, ordinal, event, self._marked[event][1]))

    def post(self, columns: Mapping[str, Columns], since: int = 0) -> Iterator[PipelineItem]:
        """Take records in, and yield what comes out.

        Args:
            columns: Of each series the records that came, by the names of the plan's keys.
            since: The number of the event from which on they were kept.

        Raises:
            EvaluationError: Three events in a row failed.
        """
        for item, seen in self._items(columns):
            if self._last is not None and item.wall_time < self._last.wall_time:
                self._turn, self._highest = self._turn + 1, self._last.wall_time
            while due := [marks for marks in self._pending.values() if marks and self._lies_before(marks, item)]:
                yield from self._close(min(due, key=lambda marks: marks[0]).popleft().event)
            if self._last is None and self.plan.held and item.ordinal > since:
                self._pipeline.hold(ordinal=since, wall_time=item.wall_time)
            self._last = item
            yield from self._offer(item, seen)

    def catch_up(self) -> Iterator[PipelineItem]:
        """Close the groups that end behind all the records that came."""
        for mark in sorted(itertools.chain.from_iterable(self._pending.values()), key=lambda mark: (mark.turn, mark)):
            yield from self._close(mark.event)
        self._pending.clear()

    def end_group(self) -> list[PipelineItem]:
        """Close the groups that no window was named for."""
        return self._pipeline.end_group()

    def finish(self, n_events: int = 0) -> list[PipelineItem]:
        """Close what is open at the end of the run.

        Args:
            n_events: How many events there were, as far as that is known: the last ones may have been held back.
        """
        held: list[PipelineItem] = []
        if self.plan.held and not self._reduced and self._last is not None and n_events - 1 > self._last.ordinal:
            held = self._pipeline.hold(ordinal=n_events - 1, wall_time=self._last.wall_time)
        return [*held, *self._pipeline.finish()]

    @property
    def has_reducer(self) -> bool:
        """Whether any step here makes one record of many."""
        return bool(self._pipeline.folds)

    def _lies_before(self, marks: Sequence[_Mark], item: PipelineItem) -> bool:
        """Tell whether the first of some marks lies before a record.

        The numbers of its events tell, where there are such; else the time, and how often the clock was set back until
        then, as far as the marks and the records show that.
        """
        mark = marks[0]
        if mark.event == "" and not self._reduced:
            return mark.ordinal <= item.ordinal
        if mark.turn > self._turn:
            return False
        if mark.turn < self._turn and (
            mark.wall_time <= self._highest or (len(marks) > 1 and marks[1].turn > mark.turn)
        ):
            return True
        return mark.wall_time < item.wall_time

    def _close(self, event: str) -> list[PipelineItem]:
        return self._pipeline.boundary(event) if event else self._pipeline.end_group()

    def _offer(self, item: PipelineItem, seen: Any) -> list[PipelineItem]:
        ordinal, wall_time = item.ordinal, item.wall_time
        try:
            closes = [truth(condition(seen)) for condition in self._conditions]
            items = self._pipeline.post(item, ordinal=ordinal, wall_time=wall_time, closes=closes)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, QueryError) as error:
            absent = isinstance(error, UnknownNameError) and error.what == "observable"
            if absent and self.plan.query.event == LOG:
                return self._pipeline.hold(ordinal=ordinal, wall_time=wall_time)
            if absent and not self._begun:
                return []  # one series begins later than another
            self.n_errors += 1
            self._n_in_row += not absent  # it was not kept for a while, or not offered
            self.last_error = f"{error} (step {item.step})"
            if self._n_in_row >= MAX_ERRORS:
                raise EvaluationError(self.last_error, event=self.plan.query.event, step=item.step) from error
            return self._pipeline.miss(ordinal=ordinal, wall_time=wall_time)
        self._n_in_row = 0
        self._begun = True
        return items

    def _items(self, columns: Mapping[str, Columns]) -> Iterator[tuple[PipelineItem, Any]]:
        if not columns:
            return
        if self.plan.how == "prefix":
            for item in _each(columns[""]):
                yield item, None
        elif "" in self.plan.keys:
            for item in _each(columns[""]):
                yield item, item.value
        else:
            yield from _events_of(columns)


def _each(columns: Columns) -> Iterator[PipelineItem]:
    """Yield records as items."""
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


def _is_plain(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (np.float64, np.int64, np.bool_)


def _events_of(columns: Mapping[str, Columns]) -> Iterator[tuple[PipelineItem, Any]]:
    """Put events together from the series of their observables."""
    series = [zip(itertools.repeat(name), _each(part)) for name, part in columns.items()]
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


def _event(item: PipelineItem, event: dict[str, Any]) -> tuple[PipelineItem, Any]:
    observables = {**event, "step": item.step}
    return PipelineItem(item.ordinal, item.step, item.wall_time, observables, steps=item.steps), observables


def horizon(columns: Columns, wall_time: float) -> Columns:
    """Return the records up to a time; those behind it may still lack what happened between them."""
    if math.isinf(wall_time):
        return columns
    return columns.slice(0, int(np.searchsorted(columns.wall_times, wall_time, side="right")))
