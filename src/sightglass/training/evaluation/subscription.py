"""A subscription: one query that a run evaluates on its events, for all clients that asked for it.

The training thread calls `post` for each event, under the run's lock. A subscription decides whether, and where, the
event is evaluated: not at all (thinned), in the event, in a compiled step, or aside. It owns the query's `Tail`, which
takes what was evaluated through the reducers in the order of the events, its `UnsentRows`, which the tail fills and the
`io` thread empties, its `QueryErrors` and its `Cost`. What was sent belongs to the `io` thread.

Rule 1: An error costs its event. `MAX_ERRORS` in a row suspend the subscription.
Rule 2: Every loss is counted: `n_skipped` by the budget, `rows.n_dropped` by a lack of room, `n_errors` by errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final

from sightglass.core.columns import USUAL_FLAGS
from sightglass.core.errors import AbsentError, PriceError, SightglassError, UnknownNameError
from sightglass.core.process.clock import WorkClock
from sightglass.core.program_values.guarded import FAILURES
from sightglass.query.evaluation import Evaluation, PerEventResult
from sightglass.query.meter import CompilationNeeded, NoRoom
from sightglass.query.pipeline import is_quick
from sightglass.query.query import Query, with_fields
from sightglass.query.reads import Latest, paired
from sightglass.training.evaluation.tail import QUICK, QueryErrors, Tail, UnsentRows
from sightglass.training.options import Limits

from .aside import Aside, AsideEvaluation, CompilingEvaluation
from .cost import Cost
from .deferred import Defer, Tracks

LOG: Final = "log"

Holder = tuple[str, bytes]
"""A client that reads a subscription: its user, and its id."""


class Subscription:
    """One query that a run evaluates; equal queries of all clients share it.

    Attributes:
        rows: Its records that wait for the `io` thread.
        tail: The second half of its evaluation.
        errors: Its errors, and whether it is suspended.
        recorded: Whether its records are written to the run directory; it is then never thinned.
        holders: The clients that read it, each with its user; they share its cost.
        within: The event of the compiled step in whose loops its events happen; empty if there is no such step.
        stride: It is evaluated on every n-th event.
        program_stride: Of how many events a compiled program answers one, so that it stays in the budget.
        share: The part of the run's time that it would take on every event, as of the last review of the budget.
        cost: What its evaluations cost, from samples; `total_spent_s` is what they took until the last review.
        confirmed: Whether a controller accepts that it takes more of an event than queries may.
        may_compile: Whether the program or a controller accepts that compiled programs are compiled again for it.
        limit_s: The seconds that all queries may take of an event; `None` until the time between events is known.
        n_waited: How many events in a row it was skipped because others had taken the time.
        latest: What it holds of the events that it joins, by their names.
        n_unpaired: How many events had no partner in these.
        left_out_before: The items that hooks of the program left out before the last event, each with the reason.
        clock: Measures its work.
    """

    __slots__ = (
        "_aside", "_drain", "_has_tail", "_limits", "_meter", "_only", "_place", "_reads_more", "clock", "confirmed",
        "cost", "errors", "event", "holders", "id", "latest", "left_out_before", "limit_s", "may_compile", "n_seen",
        "n_skipped", "n_unpaired", "n_waited", "program_stride", "query", "recorded", "rows", "share", "stride", "tail",
        "total_spent_s", "windows", "within",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        query: Query,
        evaluation: Evaluation,
        *,
        clock: WorkClock,
        defer: Defer,
        limits: Limits | None = None,
        aside: Aside | None = None,
        rows: UnsentRows | None = None,
    ) -> None:
        self.id = id
        self.query = query
        self.event = query.event
        self.windows = evaluation.windows
        self.rows = UnsentRows() if rows is None else rows
        self.errors = QueryErrors(query.event)
        self.cost = Cost(clock)
        self.tail = Tail(evaluation, self.rows, errors=self.errors, cost=self.cost, clock=clock, defer=defer)
        self.stride = self.program_stride = 1
        self.total_spent_s = self.share = 0.0
        self.n_seen = self.n_skipped = self.n_waited = self.n_unpaired = 0
        self.recorded = self.may_compile = False
        self.holders: tuple[Holder, ...] = ()
        self.within = ""
        self._meter = evaluation.meter
        self.confirmed = evaluation.meter.limit_s == math.inf
        self.limit_s: float | None = None
        self._limits = limits or Limits()
        self._place = aside
        self._aside: AsideEvaluation | CompilingEvaluation | None = None
        self._only = evaluation.only
        self._reads_more = query.reads_fields or bool(query.joins)
        self.latest = {joined: Latest() for joined in query.joins}
        self.left_out_before: Mapping[Any, str] = {}
        self._has_tail = evaluation.has_reducer
        self.clock = clock
        self._drain = defer
        if aside is not None:
            evaluation.meter.compiled, evaluation.meter.may_compile = set(), False

    def post(
        self,
        index: int,
        step: object,
        wall_time: float,
        observables: Mapping[str, Any],
        steps: Tracks = None,
    ) -> None:
        """Evaluate the query on an event. Never raises."""
        if self.stride > 1:
            if index % self.stride:
                self.skip(index, wall_time)
                return
            self.tail.in_gap = False
        if self._reads_more:
            if self.query.reads_fields:
                observables = with_fields(observables, index=index, wall_time=wall_time)
            pairs = paired(observables, self.latest)
            if pairs is None:
                self._leave_out(index, step, wall_time, steps)
                return
            observables = pairs
        measured = self.n_seen >= self.cost.next
        if measured:
            self.cost.begin()
        try:
            only = self._only
            if only is None:
                if self._aside is None:
                    self._meter.find_room(self.tail.device_bytes)
                    self._take(self.tail.evaluation.per_event(observables), index, step, wall_time, steps)
                elif not self._post_aside(self._aside, index, step, wall_time, observables, steps):
                    return
            else:
                value, rows = only(observables), self.rows
                is_row = type(value) in QUICK or (
                    is_quick(value) if self._has_tail else self.tail.evaluation.is_row(value)
                )
                if is_row and (type(step) is int or type(step) in QUICK) and not rows.full:
                    if self._has_tail:
                        items = self.tail.evaluation.number(value, index, (step, wall_time, steps))  # type: ignore[arg-type]
                        if items:
                            rows.emit(items)
                        if self.errors.n_in_row and self.tail.evaluation.proves(True, items):
                            self.errors.n_in_row = 0
                    else:
                        n_made = rows.n_made
                        rows.n_made = n_made + 1
                        extra = None if steps is None else (1, USUAL_FLAGS, steps)
                        rows.append((n_made, step, wall_time, value, extra, index))
                        if type(value) is dict:
                            rows.n_bytes += 8 * len(value)
                        self.errors.n_in_row = 0
                else:
                    self._take(self.tail.evaluation.finish_per_event(value), index, step, wall_time, steps)
        except NoRoom:
            self.cost.stopped(self._meter.taken_s)
            self.tail.drop(index, wall_time)
            return
        except CompilationNeeded:
            self._compile_aside()
            self.post(index, step, wall_time, observables, steps)
            return
        except PriceError as error:
            error.__traceback__ = None  # its frames hold what was computed so far
            self.cost.stopped(self._meter.taken_s)
            if self._turns_aside(observables):
                self.post(index, step, wall_time, observables, steps)
                return
            if not self._waits(error):
                self.errors.add(error, step)
                self.errors.suspended = self.errors.suspended or not self.n_seen  # it was never answered
            self.skip(index, wall_time)
            return
        except FAILURES as error:
            unlogged = self.event == LOG and isinstance(error, UnknownNameError) and error.what == "observable"
            if unlogged or isinstance(error, AbsentError):
                # A call of `log` may lack names that others have: it is skipped, as if filtered by `where`.
                self._take(PerEventResult(None, False, (), (), False), index, step, wall_time, steps)
            else:
                self.errors.add(error, step)
                self.tail.miss(index, wall_time)
        self.n_seen += 1
        if measured:
            self.cost.end(self.n_seen)

    def _leave_out(self, index: int, step: object, wall_time: float, steps: Tracks) -> None:
        """Count an event without a partner; if there is one that is not held, it is missed. Never raises."""
        self.n_unpaired += 1
        if any(one.is_lost for one in self.latest.values()):
            self.tail.miss(index, wall_time)
            return
        try:
            self._take(PerEventResult(None, False, (), (), False), index, step, wall_time, steps)
        except FAILURES as error:
            self.errors.add(error, step)
            self.tail.miss(index, wall_time)

    def post_head(self, index: int, step: object, wall_time: float, head: PerEventResult, steps: Tracks) -> None:
        """Take in an event whose head was evaluated in a compiled step; otherwise as `post`."""
        if self.stride > 1:
            if index % self.stride:
                self.skip(index, wall_time)
                return
            self.tail.in_gap = False
        measured = self.n_seen >= self.cost.next
        if measured:
            self.cost.begin()
        self._take(head, index, step, wall_time, steps)
        self.n_seen += 1
        if measured:
            self.cost.end(self.n_seen)

    def settle_heads(self, heads: Iterable[tuple[int, Any, float, PerEventResult, Any]], *, every: int = 1) -> None:
        """Take in events that are on the host already, on the drain thread: (index, step, wall time, head, steps).

        The program evaluated one of so many events, which is a part of the stride; the rest of it is left out here.
        """
        tail = self.tail
        self._hold()
        n_seen, stride = self.n_seen, self.stride // every
        self.cost.begin()
        for index, step, wall_time, head, steps in heads:
            if self.errors.suspended:
                break
            if stride > 1 and index // every % stride:
                self.n_skipped += 1
                if tail.changes(index):
                    tail.settle_miss(index, wall_time)
                continue
            tail.in_gap = False
            tail.settle(head, index, step, wall_time, steps)
            self.n_seen += 1
        if self.n_seen > n_seen:
            self.cost.end(self.n_seen, batch=True)

    def skip(self, index: int, wall_time: float) -> None:
        """Count an event that is not evaluated."""
        self.n_skipped += 1
        if self.tail.changes(index):
            self.tail.miss(index, wall_time)

    @property
    def suspended(self) -> bool:
        """Whether it is not evaluated any more; `last_error` has the reason."""
        return self.errors.suspended

    @property
    def last_error(self) -> SightglassError | None:
        """The last error of an event, or why it is suspended."""
        return self.errors.last

    @property
    def left_out(self) -> dict[Any, str]:
        """The items of mappings that the last event could not compute, each with the reason."""
        return {**self.left_out_before, **self._meter.left_out}

    @property
    def n_errors(self) -> int:
        """How many events had an error."""
        return self.errors.n

    @property
    def spent_s(self) -> float:
        """The seconds that all evaluations took."""
        return self.total_spent_s + self.cost.spent_s + self.cost.device_s

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of the run that the query may call, by name."""
        return self.tail.evaluation.functions

    @property
    def price_s(self) -> float:
        """The seconds of the training thread that an event takes: the larger of its price and what it took."""
        if self._aside is not None:
            return self._aside.copy_s
        price = self._meter.price
        return max(0.0 if price is None else price.seconds, self.cost.cost_s)

    @property
    def held_bytes(self) -> int:
        """The bytes that its reducers hold between events, and those of the events that it joins."""
        n_bytes = sum(one.n_bytes for one in self.latest.values())
        return n_bytes + (self.tail.evaluation.held_bytes if self._has_tail else 0)

    @property
    def waiting_bytes(self) -> int:
        """The bytes of its results that wait for a device or for the io thread."""
        return self.rows.n_bytes + self.tail.deferred_bytes

    @property
    def peak_bytes(self) -> int:
        """The bytes that its evaluation holds besides."""
        price = self._meter.price
        return 0 if price is None else price.n_bytes

    @property
    def first(self) -> bool:
        """Whether it is evaluated whatever others take: records are made of every event."""
        return self.recorded or self.confirmed

    def allow(self, left_s: float, *, limit_s: float | None) -> None:
        """Set what is left of the event for this query, and what all queries may take of it."""
        self.limit_s = limit_s
        if self._aside is not None:
            self._aside.left_s = left_s
        elif not self.confirmed:
            self._meter.limit_s = left_s

    def look(self, query: Query, *, is_new: bool) -> None:
        """Evaluate the head of another query with the same stages from now on, see `Evaluation.with_per_event_of`."""
        self.tail.evaluation = self.tail.evaluation.with_per_event_of(query, is_new=is_new)
        self._only = None if self.tail.deferred else self.tail.evaluation.only

    def resume(self, *, index: int, n_skipped: int) -> None:
        """Go on with the numbers of an earlier subscription; call it before the first event."""
        self.rows.n_made = index
        self.n_skipped = n_skipped

    def fork(self, id: int) -> Subscription:
        """Return a copy in the same state, for a client that closes a group by itself."""
        other = Subscription(
            id, self.query, self.tail.evaluation.fork(deepcopy),
            clock=self.clock, defer=self.tail.defer, limits=self._limits, aside=self._place, rows=self.rows.fork(),
        )  # fmt: skip
        for name in ("stride", "n_seen", "n_skipped", "n_unpaired", "may_compile", "_only"):
            setattr(other, name, getattr(self, name))
        other.latest = {event: replace(one) for event, one in self.latest.items()}
        other.errors.n = self.errors.n
        other.tail.follow(self.tail)
        return other

    def _take(self, head: PerEventResult, index: int, step: object, wall_time: float, steps: Tracks) -> None:
        self.tail.take(head, index, step, wall_time, steps)
        if self.tail.deferred:
            self._only = None

    def _hold(self) -> None:
        """Let the rest of each event come later, in their order, from now on."""
        self.tail.hold()
        self._only = None

    def miss(self, index: int, wall_time: float) -> None:
        """Count an event that never arrived: the number of its record stays free."""
        if self.tail.evaluation.has_reducer:
            self.tail.miss(index, wall_time)
        else:
            self.rows.n_made += 1

    def _waits(self, error: PriceError) -> bool:
        """Return whether a query that does not fit into this event may fit into another one."""
        if self.recorded or error.n_bytes:
            return False
        if self.limit_s is None or error.seconds <= self.limit_s:
            return True
        return self._place is not None and self._place.calibrating()

    def _turns_aside(self, observables: Mapping[str, Any]) -> bool:
        """Return whether a query that costs more than an event may is evaluated aside from now on."""
        if self._place is None or self._aside is not None or self.recorded or self.tail.deferred:
            return False
        limit_s, taken_s = self.limit_s or self._limits.max_event_s, self._meter.taken_s
        self._aside = AsideEvaluation.of(self.tail.evaluation, self._place, observables, limit_s=limit_s)
        if self._aside is None:
            return False
        self._aside.left_s = limit_s - taken_s
        self.tail.defer = self._place.defer
        self._hold()
        return True

    def _compile_aside(self) -> None:
        """Evaluate the next events where operations may be compiled, until none waits any more."""
        assert self._place is not None
        self._aside = CompilingEvaluation(self.tail.evaluation, self._place)
        self.tail.defer = self._place.defer
        self._hold()

    def _post_aside(  # noqa: PLR0917  as in `post`
        self,
        aside: AsideEvaluation | CompilingEvaluation,
        index: int,
        step: object,
        wall_time: float,
        observables: Mapping[str, Any],
        steps: Tracks,
    ) -> bool:
        """Return whether the event is evaluated; otherwise it is skipped."""
        tail = self.tail

        def settle(head: PerEventResult | None, taken_s: float, error: BaseException | None) -> None:
            self.cost.tail(taken_s, taken_s)
            if head is not None:
                tail.measured(lambda: tail.settle(head, index, step, wall_time, steps))
            elif error is None:
                self.n_skipped += 1  # what it reads is gone
                tail.settle_miss(index, wall_time)
            elif isinstance(error, NoRoom):
                self.rows.n_dropped += 1
                tail.settle_miss(index, wall_time)
            else:
                tail.fail(error, index, step, wall_time)
            if isinstance(aside, CompilingEvaluation) and not aside.n_waiting:
                self._aside, tail.defer = None, self._drain

        if aside.post(tail.evaluation, observables, settle):
            return True
        self.skip(index, wall_time)
        return False
