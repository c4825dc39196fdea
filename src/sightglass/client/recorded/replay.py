"""Run the remaining stages of a query on recorded series (see `plan`).

Records are ordered by wall time, like the events. The result equals the live stream's where that lost nothing, with one
exception: a group in which a condition held back every event has no record here, not even a count of 0.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, UnknownNameError
from sightglass.query.arrays import truth
from sightglass.query.pipeline import Pipeline, conditions, key_function, remaining
from sightglass.query.query import with_fields
from sightglass.query.reads import paired, reads_fields_of
from sightglass.query.stages import Reduce
from sightglass.query.windows import PipelineItem

from .plan import LOG, ReplayPlan
from .timeline import Boundary, JoinedEvents, RunStarts, SetBacks, events_of, first_is_before, items_of

# As in a live run, which suspends a query after as many failures in a row.
MAX_ERRORS: Final = 3


class Replay:
    """The remaining stages of a query, which take the records of the recorded series piece by piece.

    Attributes:
        n_errors: How many events failed.
        last_error: The last failure, or empty.
        joined: The events that the query joins, by name; add new ones before `post` with the records of the same time.
        n_unpaired: How many events had no partner in these.
        starts: Where runs begin; add new ones before `post` with their records.
    """

    def __init__(self, plan: ReplayPlan, *, but_last: bool = False) -> None:
        """Compile the remaining stages.

        Args:
            plan: Which series to read, and which stages remain.
            but_last: Whether to leave out the last stage, a reducer, and to yield what it would get: the values, with
                their keys as (key, value) if it groups them.

        Raises:
            QueryError: They call a function of the run: this process does not have it.
        """
        self.plan = plan
        self.n_errors = 0
        self.last_error = ""
        self._n_in_row = 0
        self._begun = False
        stages = plan.query.stages
        run = replace(plan.query, stages=stages[:-1]) if but_last else plan.query
        self._pipeline: Pipeline = remaining(run, plan.n_done, held=plan.held)
        self._conditions = conditions(plan.query, n_done=plan.n_done)
        self._by = key_function(plan.query, n_done=plan.n_done)
        self._reduced = any(isinstance(stage, Reduce) for stage in stages[: plan.n_done])
        self._yields_keys = but_last and isinstance(stages[-1], Reduce) and stages[-1].by is not None
        self._last: PipelineItem | None = None
        self._pending: dict[str, deque[Boundary]] = {}
        self._set_backs_of: dict[str, SetBacks] = {}
        self._set_backs = SetBacks()
        self.joined = {
            event: JoinedEvents(event, keys, reads_fields=reads_fields_of(plan.query, event))
            for event, keys in plan.joined.items()
        }
        self.n_unpaired = 0
        self.starts = RunStarts()

    def add_boundaries(self, event: str, ordinals: npt.NDArray[np.int64], wall_times: npt.NDArray[np.float64]) -> None:
        """Add ends of groups. Call it before `post` with the records of the same time.

        Args:
            event: The key of the series in the plan's boundaries.
            ordinals: Shape (n,): the numbers of the events that end groups; for the run's own ends of groups, the
                number of the next event.
            wall_times: Shape (n,).
        """
        boundaries, turns = self._pending.setdefault(event, deque()), self._set_backs_of.setdefault(event, SetBacks())
        for ordinal, wall_time in zip(ordinals.tolist(), wall_times.tolist(), strict=True):
            boundaries.append(Boundary(wall_time, ordinal, event, turns.pass_to(wall_time)))

    def post(self, columns: Mapping[str, Columns], since: int = 0) -> Iterator[PipelineItem]:
        """Run the stages on new records, and yield the results.

        Args:
            columns: The new records of each series, by the names of the plan's keys.
            since: The number of the first recorded event.

        Raises:
            EvaluationError: Three events in a row failed.
        """
        for item, event in self._items(columns):
            self._set_backs.pass_to(item.wall_time)
            while due := [ends for ends in self._pending.values() if ends and self._first_is_before(ends, item)]:
                yield from self._close(min(due, key=lambda ends: ends[0]).popleft().event)
            for joined in self.joined.values():
                while joined.ahead and first_is_before(joined.ahead, item.wall_time, self._set_backs):
                    joined.advance()
            if self._last is None and self.plan.held and item.ordinal > since:
                self._pipeline.hold(ordinal=since, wall_time=item.wall_time)
            self._last = item
            self.starts.pass_to(item.ordinal, item.wall_time)
            yield from self._offer(item, event)

    def catch_up(self) -> Iterator[PipelineItem]:
        """Close the groups that end after the last record, and pass what is joined after it."""
        for joined in self.joined.values():
            while joined.ahead:
                joined.advance()
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

    def _first_is_before(self, boundaries: Sequence[Boundary], item: PipelineItem) -> bool:
        """Return whether the first of some boundaries lies before a record: by event numbers where both have them."""
        boundary = boundaries[0]
        if boundary.event == "" and not self._reduced:
            return boundary.ordinal <= item.ordinal
        return first_is_before(boundaries, item.wall_time, self._set_backs)

    def _close(self, event: str) -> list[PipelineItem]:
        return self._pipeline.boundary(event) if event else self._pipeline.end_group()

    def _offer(self, item: PipelineItem, event: object) -> list[PipelineItem]:
        ordinal, wall_time = item.ordinal, item.wall_time
        if self.joined:
            latest = {name: joined.latest for name, joined in self.joined.items()}
            event = paired(item.value, latest)
            if event is None:
                self.n_unpaired += 1
                if any(one.is_lost for one in latest.values()):
                    return self._pipeline.miss(ordinal=ordinal, wall_time=wall_time)
                item.passed = False
                return self._pipeline.post(item, ordinal=ordinal, wall_time=wall_time)
            item.value = event
        try:
            closes = [truth(condition(event)) for condition in self._conditions]
            if self._by is not None:
                self._pipeline.key = self._by(event)
            items = self._pipeline.post(item, ordinal=ordinal, wall_time=wall_time, closes=closes)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, QueryError) as error:
            absent = isinstance(error, UnknownNameError) and error.what == "observable"
            if absent and self.plan.query.event == LOG:
                return self._pipeline.hold(ordinal=ordinal, wall_time=wall_time)
            if absent and not self._begun:
                return []  # one series begins later than another
            self.n_errors += 1
            # If one is absent, a series has a gap, or the event lacked the observable: not a fault of the query.
            self._n_in_row += not absent
            self.last_error = f"{error} (step {item.step})"
            if self._n_in_row >= MAX_ERRORS:
                raise EvaluationError(self.last_error, event=self.plan.query.event, step=item.step) from error
            return self._pipeline.miss(ordinal=ordinal, wall_time=wall_time)
        if self._n_in_row and self._pipeline.proves(item.passed, items):
            self._n_in_row = 0
        self._begun = True
        if self._yields_keys:
            for out in items:
                out.value = self._pipeline.key, out.value
        return items

    def _items(self, columns: Mapping[str, Columns]) -> Iterator[tuple[PipelineItem, object]]:
        if not columns:
            return
        if self.plan.how == "prefix":
            for item in items_of(columns[""]):
                yield item, None
            return
        whole = "" in self.plan.keys
        for item in items_of(columns[""]) if whole else events_of(columns):
            if self.plan.query.reads_fields:
                item.value = with_fields(item.value, index=item.ordinal, wall_time=item.wall_time)
            yield item, item.value


def horizon(columns: Columns, wall_time: float) -> Columns:
    """Return the records up to the last one of a time; later ones may lack records of other series between them."""
    if wall_time == math.inf:
        return columns
    known = np.flatnonzero(columns.wall_times <= wall_time)  # not in order where the clock was set back
    return columns.slice(0, int(known[-1]) + 1 if len(known) else 0)
