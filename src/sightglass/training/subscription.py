"""A subscription: one query that a run evaluates, for all clients that asked for it.

Rows leave a subscription in the order of their events. As long as values are on the host, `post` evaluates the whole
query. Once a value is on a device, `post` evaluates the head only, and the rest of each event goes through `defer` to
the drain thread, in the same order.

Rule 1: An error costs its event. `MAX_ERRORS` in a row suspend the subscription.
Rule 2: Every loss is counted: `n_skipped` by the budget, `n_dropped` by a full buffer, `n_errors` by errors.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, Final

import numpy as np

from sightglass.core.buffer import Buffer
from sightglass.core.clock import WorkClock
from sightglass.core.columns import Columns, Row
from sightglass.core.errors import (
    AbsentError,
    EvaluationError,
    PriceError,
    RefusedFunctionError,
    SightglassError,
    UnknownNameError,
    UnsendableError,
)
from sightglass.core.guarded import FAILURES, exact, message
from sightglass.core.values import n_bytes, to_host, type_name
from sightglass.query.meter import CompilationNeeded, NoRoom
from sightglass.query.pipeline import Evaluation, PerEventResult
from sightglass.query.query import Query
from sightglass.query.stages import Every, Period, Window
from sightglass.query.windows import PipelineItem

from .aside import Aside, AsideEvaluation
from .compiling import CompilingEvaluation
from .cost import Cost
from .deferred import Defer
from .options import Limits

LOG: Final = "log"
MAX_ERRORS: Final = 3  # one bad event is forgiven; a query that always fails must not cost the run for long
MAX_UNSENT_ROWS: Final = 200_000  # some seconds of the fastest stream while the io thread is held up
MAX_UNSENT_BYTES: Final = 32 * 2**20  # the same for arrays; it is host memory of the training process
MAX_DEFERRED: Final = 1_024  # each pins its values on the device, where memory is scarce

QUICK: Final = frozenset((float, int, bool, np.float64, np.float32))
NUMBERS: Final = (int, float, np.integer, np.floating)
Tracks = Mapping[str, Any] | None
"""Further steps of an event, by name; numbers that may be on a device."""


class Subscription:
    """One query that a run evaluates; equal queries of all clients share it.

    The training thread and the drain thread append to `rows`, and the `io` thread takes them away, without a lock:
    appending to a deque and popping from its other end are atomic. Each row carries its index, which shows a gap.

    Attributes:
        backlog: The rows that were taken, for clients that open the stream later; of a long stream, some of the older.
        recorded: Whether its records are written to the run directory; it is then never thinned.
        within: The event of the compiled step in whose loops its events happen; empty if there is no such step.
        stride: It is evaluated on every n-th event.
        share: The part of the run's time that it would take on every event, as of the last review of the budget.
        cost: What its evaluations cost, from samples; `total_spent_s` is what they took until the last review.
        suspended: Whether it is not evaluated any more; `last_error` has the reason.
        confirmed: Whether a controller accepts that it takes more of an event than queries may.
        may_compile: Whether the program or a controller accepts that compiled programs are compiled again for it.
        limit_s: The seconds that all queries may take of an event; `None` until the time between events is known.
        n_waited: How many events in a row it was skipped because others had taken the time.
        began: The number of the first record after the stream was parked: only its earlier clients get those before.
    """

    __slots__ = (
        "_aside", "_clock", "_defer", "_deferred_bytes", "_device_bytes", "_drain", "_evaluation", "_every", "_full",
        "_has_tail", "_in_gap", "_limits", "_n_deferred", "_only", "_place", "backlog", "began", "confirmed", "cost",
        "deferred", "event", "id", "last_error", "limit_s", "may_compile", "n_dropped", "n_errors", "n_in_row",
        "n_rows", "n_seen", "n_skipped", "n_waited", "query", "recorded", "rows", "share", "stride", "suspended",
        "total_spent_s", "unsent_bytes", "windows", "within",
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
    ) -> None:
        self.id = id
        self.query = query
        self.event = query.event
        self.windows = evaluation.windows
        self.rows: deque[Row] = deque()
        self.n_rows = self.began = 0
        self.unsent_bytes = 0
        self._limits = limits or Limits()
        self.backlog = Buffer(max_rows=self._limits.max_backlog_records, max_bytes=self._limits.max_backlog_bytes)
        self.deferred = False
        self.stride = 1
        self.cost = Cost(clock)
        self.total_spent_s = self.share = 0.0
        self.n_seen = self.n_skipped = self.n_dropped = self.n_errors = self.n_in_row = 0
        self.last_error: SightglassError | None = None
        self.suspended = False
        self.recorded = self.may_compile = False
        self.within = ""
        self.confirmed = evaluation.meter.limit_s == math.inf
        self.limit_s: float | None = None
        self.n_waited = 0
        self._place = aside
        self._aside: AsideEvaluation | CompilingEvaluation | None = None
        self._full = False
        self._evaluation = evaluation
        self._only = evaluation.only
        self._has_tail = evaluation.has_reducer
        self._clock = clock
        self._defer = self._drain = defer
        if aside is not None:
            evaluation.meter.compiled, evaluation.meter.may_compile = set(), False
        self._n_deferred = self._deferred_bytes = 0
        self._device_bytes = 0  # of its last result; devices make results later than they are asked to
        self._in_gap = False
        self._every = _boundaries(evaluation.windows)

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
            self._in_gap = False
        measured = self.n_seen >= self.cost.next
        if measured:
            self.cost.begin()
        try:
            only = self._only
            if only is None:
                if self._aside is None:
                    self._evaluation.meter.find_room(self._device_bytes)
                    self._take(self._evaluation.per_event(observables), index, step, wall_time, steps)
                elif not self._post_aside(self._aside, index, step, wall_time, observables, steps):
                    return
            else:
                value = only(observables)
                if type(value) in QUICK and (type(step) is int or type(step) in QUICK) and not self._full:
                    if self._has_tail:
                        items = self._evaluation.number(value, index, (step, wall_time, steps))  # type: ignore[arg-type]
                        if items:
                            self._emit(items)
                    else:
                        n_rows = self.n_rows
                        self.n_rows = n_rows + 1
                        extra = None if steps is None else (1, True, True, steps)
                        self.rows.append((n_rows, step, wall_time, value, extra, index))
                else:
                    self._take(self._evaluation.finish_per_event(value), index, step, wall_time, steps)
            if self.n_in_row and not self.deferred:
                self.n_in_row = 0
        except NoRoom:
            self.cost.stopped(self._evaluation.meter.taken_s)
            self._drop(index, wall_time)
            return
        except CompilationNeeded:
            self._compile_aside()
            self.post(index, step, wall_time, observables, steps)
            return
        except PriceError as error:
            error.__traceback__ = None  # its frames hold what was computed so far
            self.cost.stopped(self._evaluation.meter.taken_s)
            if self._turns_aside(observables):
                self.post(index, step, wall_time, observables, steps)
                return
            if not self._waits(error):
                self._failed(error, step)
                self.suspended = self.suspended or not self.n_seen  # it was never answered
            self.skip(index, wall_time)
            return
        except FAILURES as error:
            unlogged = self.event == LOG and isinstance(error, UnknownNameError) and error.what == "observable"
            if unlogged or isinstance(error, AbsentError):
                # A call of `log` may lack names that others have: it is skipped, as if filtered by `where`.
                self._take(PerEventResult(None, False, (), (), False), index, step, wall_time, steps)
            else:
                self._failed(error, step)
                self._pass_by(index, wall_time)
        self.n_seen += 1
        if measured:
            self.cost.end(self.n_seen)

    @property
    def price_s(self) -> float:
        """The seconds of the training thread that an event takes: the larger of its price and what it took."""
        if self._aside is not None:
            return self._aside.copy_s
        price = self._evaluation.meter.price
        return max(0.0 if price is None else price.seconds, self.cost.cost_s)

    @property
    def held_bytes(self) -> int:
        """The bytes that its reducers hold between events."""
        return self._evaluation.held_bytes if self._has_tail else 0

    @property
    def waiting_bytes(self) -> int:
        """The bytes of its results that wait for a device or for the io thread."""
        return self.unsent_bytes + self._deferred_bytes

    @property
    def peak_bytes(self) -> int:
        """The bytes that its evaluation holds besides."""
        price = self._evaluation.meter.price
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
            self._evaluation.meter.limit_s = left_s

    def skip(self, index: int, wall_time: float) -> None:
        """Count an event that is not evaluated."""
        self.n_skipped += 1
        if self._is_news(index):
            self._pass_by(index, wall_time)

    def _drop(self, index: int, wall_time: float) -> None:
        """Count an event for whose result there is no room."""
        self.n_dropped += 1
        self._pass_by(index, wall_time)

    def _waits(self, error: PriceError) -> bool:
        """Return whether a query that does not fit into this event may fit into another one."""
        if self.recorded or error.n_bytes:
            return False
        if self.limit_s is None or error.seconds <= self.limit_s:
            return True
        return self._place is not None and self._place.calibrating()

    def _turns_aside(self, observables: Mapping[str, Any]) -> bool:
        """Return whether a query that costs more than an event may is evaluated aside from now on."""
        if self._place is None or self._aside is not None or self.recorded or self.deferred:
            return False
        limit_s, taken_s = self.limit_s or self._limits.max_event_s, self._evaluation.meter.taken_s
        self._aside = AsideEvaluation.of(self._evaluation, self._place, observables, limit_s=limit_s)
        if self._aside is None:
            return False
        self._aside.left_s = limit_s - taken_s
        self._defer = self._place.defer
        self.deferred = True
        self._only = None
        return True

    def _compile_aside(self) -> None:
        """Evaluate the next events where operations may be compiled, until none waits any more."""
        assert self._place is not None
        self._aside = CompilingEvaluation(self._evaluation, self._place)
        self._defer = self._place.defer
        self.deferred = True
        self._only = None

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

        def settle(head: PerEventResult | None, taken_s: float, error: BaseException | None) -> None:
            self.cost.tail(taken_s, taken_s)
            if head is not None:
                self.n_in_row = 0
                self._settle(lambda: self._tail(head, index, step, wall_time, steps), step)
            else:
                if error is None:
                    self.n_skipped += 1  # what it reads is gone
                elif isinstance(error, NoRoom):
                    self.n_dropped, error = self.n_dropped + 1, None
                self._attempt(list, step, error)
                if self._has_tail:
                    self._settle(lambda: self._evaluation.miss(ordinal=index, wall_time=wall_time), step)
            if isinstance(aside, CompilingEvaluation) and not aside.n_waiting:
                self._aside, self._defer = None, self._drain

        if aside.post(self._evaluation, observables, settle):
            return True
        self.skip(index, wall_time)
        return False

    def post_head(self, index: int, step: object, wall_time: float, head: PerEventResult, steps: Tracks) -> None:
        """Take in an event whose head was evaluated in a compiled step; otherwise as `post`."""
        if self.stride > 1:
            if index % self.stride:
                self.skip(index, wall_time)
                return
            self._in_gap = False
        measured = self.n_seen >= self.cost.next
        if measured:
            self.cost.begin()
        self._take(head, index, step, wall_time, steps)
        self.n_seen += 1
        if measured:
            self.cost.end(self.n_seen)

    def settle_heads(self, heads: Iterable[tuple[int, Any, float, PerEventResult, Any]]) -> None:
        """Take in events that are on the host already, on the drain thread: (index, step, wall time, head, steps)."""
        self.deferred = self._evaluation.holds = True
        self._only = None
        n_seen = self.n_seen
        self.cost.begin()
        for index, step, wall_time, head, steps in heads:
            if self.suspended:
                break
            if self.stride > 1 and index % self.stride:
                self.n_skipped += 1
                if self._is_news(index):
                    self._attempt(partial(self._evaluation.miss, ordinal=index, wall_time=wall_time), step)
                continue
            self._in_gap = False
            n_errors = self.n_errors
            self._attempt(partial(self._tail, head, index, step, wall_time, steps), step)
            self.n_seen += 1
            if self.n_errors == n_errors:
                self.n_in_row = 0
        if self.n_seen > n_seen:
            self.cost.end(self.n_seen, batch=True)

    def begin_group(self) -> None:
        """Begin a group of the run, on the drain thread, in order with `settle_heads`."""
        self._evaluation.begin_group()

    def settle_boundary(self, event: str) -> None:
        """Close the groups that this event delimits, on the drain thread, in order with `settle_heads`."""
        self._in_gap = False
        self._settle(partial(self._evaluation.boundary, event), None)

    def settle_group(self) -> None:
        """Close the groups of reducers without a named window, on the drain thread, in order with `settle_heads`."""
        self._in_gap = False
        self._settle(self._evaluation.end_group, None)

    def look(self, query: Query, *, is_new: bool) -> None:
        """Evaluate the head of another query with the same stages from now on, see `Evaluation.with_per_event_of`."""
        self._evaluation = self._evaluation.with_per_event_of(query, is_new=is_new)
        self._only = None if self.deferred else self._evaluation.only

    def refuse(self, error: SightglassError) -> None:
        """Suspend the query: it cannot be evaluated here."""
        self.last_error = error
        self.suspended = True

    def boundary(self, event: str) -> None:
        """Close the groups that this event delimits."""
        self._close(lambda: self._evaluation.boundary(event))

    def end_group(self) -> None:
        """Close the groups of reducers without a named window."""
        self._close(lambda: self._evaluation.end_group())  # noqa: PLW0108  see `fork`

    def finish(self) -> None:
        """Emit what is open, with `closed=False`."""
        self._close(lambda: self._evaluation.finish())  # noqa: PLW0108  see `fork`

    @property
    def cost_s(self) -> float:
        """The usual seconds of one evaluation, of work, not of waiting for a processor; 0.0 until known."""
        return self.cost.cost_s

    @property
    def spent_s(self) -> float:
        """The seconds that all evaluations took."""
        return self.total_spent_s + self.cost.spent_s

    @property
    def functions(self) -> Mapping[str, Callable[..., Any]]:
        """The functions of the run that the query may call, by name."""
        return self._evaluation.functions

    @property
    def next_index(self) -> int:
        """The number of the first row that `take_rows` will return; the caller holds the lock."""
        return self.rows[0][0] if self.rows else self.n_rows

    @property
    def n_unsettled(self) -> int:
        """How many events wait for a device."""
        return self._n_deferred

    def resume(self, *, index: int, n_skipped: int, backlog: Buffer | None) -> None:
        """Go on with the numbers and the backlog of an earlier subscription; call it before the first event."""
        self.n_rows = self.began = index
        self.n_skipped = n_skipped
        self.backlog = backlog or self.backlog

    def look_for_room(self) -> None:
        """Drop rows from now on if too many wait for the io thread; called every few milliseconds."""
        self._full = len(self.rows) > MAX_UNSENT_ROWS or self.unsent_bytes > MAX_UNSENT_BYTES

    def take_rows(self) -> list[Row]:
        """Return the rows since the last call. Only the `io` thread may call this."""
        rows = [self.rows.popleft() for _ in range(len(self.rows))]
        self.unsent_bytes = 0
        self._full = False
        return rows

    def remember(self, columns: Columns) -> None:
        """Add rows to the backlog. Only the `io` thread may call this."""
        if self._limits.max_backlog_records and self._limits.max_backlog_bytes:
            self.backlog.add(columns)

    def shorten_backlog(self, max_bytes: int) -> None:
        """Hold at most this many bytes in the backlog from now on. Only the `io` thread may call this."""
        limits = self._limits
        self.backlog.bound(max_rows=limits.max_backlog_records, max_bytes=max_bytes)
        if self.backlog.n_bytes > max_bytes:  # of one record, which a buffer holds in any case
            self.backlog = Buffer(max_rows=limits.max_backlog_records, max_bytes=limits.max_backlog_bytes)

    def fork(self, id: int) -> Subscription:
        """Return a copy in the same state, for a client that closes a group by itself."""
        evaluation = self._evaluation.fork(deepcopy)
        other = Subscription(
            id, self.query, evaluation, clock=self._clock, defer=self._defer, limits=self._limits, aside=self._place
        )
        for name in ("deferred", "stride", "n_rows", "n_seen", "n_skipped", "n_dropped", "n_errors", "_only"):
            setattr(other, name, getattr(self, name))
        other.rows = self.rows.copy()
        other.may_compile = self.may_compile
        if self.deferred:  # events on their way to the tail belong to both
            n_rows = self.n_rows

            def catch_up(error: BaseException | None) -> None:
                other._evaluation = self._evaluation.fork(deepcopy)
                other.n_rows += self.n_rows - n_rows

            self._defer(None, catch_up)
        return other

    def _take(self, head: PerEventResult, index: int, step: object, wall_time: float, steps: Tracks) -> None:
        evaluation = self._evaluation
        if isinstance(step, NUMBERS) and not (self.deferred or head.on_device):
            number: Any = exact(step)  # a subclass of the program may do anything when it is sent
            self._emit(evaluation.across_events(head, ordinal=index, step=number, wall_time=wall_time, steps=steps))
            return
        self.deferred = evaluation.holds = True
        self._only = None
        if self._n_deferred >= MAX_DEFERRED:
            self._drop(index, wall_time)
            return
        self._n_deferred += 1
        self._deferred_bytes += head.n_bytes
        self._device_bytes = head.n_bytes

        def settle(error: BaseException | None) -> None:
            self._n_deferred -= 1
            self._deferred_bytes -= head.n_bytes
            n_errors = self.n_errors
            self._settle(lambda: self._tail(head, index, step, wall_time, steps), step, error)
            if self.n_errors == n_errors:
                self.n_in_row = 0
            elif self._has_tail:
                self._settle(lambda: self._evaluation.miss(ordinal=index, wall_time=wall_time), step)

        self._defer(head.read, settle)

    def _tail(
        self, head: PerEventResult, index: int, step: object, wall_time: float, steps: Tracks
    ) -> list[PipelineItem]:
        """Evaluate the rest of an event; its steps may be on a device as well."""
        at = host_step(step)
        steps = steps and {name: host_step(value) for name, value in steps.items()}
        return self._evaluation.across_events(head, ordinal=index, step=at, wall_time=wall_time, steps=steps)

    def _settle(self, tail: Callable[[], list[PipelineItem]], step: object, error: BaseException | None = None) -> None:
        clock = self._clock
        cpu_s, now_s = clock.cpu(), clock.monotonic()
        self._attempt(tail, step, error)
        self.cost.tail(clock.cpu() - cpu_s, clock.monotonic() - now_s)

    def _attempt(
        self, tail: Callable[[], list[PipelineItem]], step: object, error: BaseException | None = None
    ) -> None:
        try:
            if error is not None:
                raise error
            self._emit(tail())
        except FAILURES as failure:
            failure.__traceback__ = None  # it is in a cycle with this frame, and holds what was computed so far
            self._failed(failure, step)

    def _close(self, close: Callable[[], list[PipelineItem]]) -> None:
        self._in_gap = False  # the next group misses events of its own
        self._in_order(close)

    def _in_order(self, close: Callable[[], list[PipelineItem]]) -> None:
        if self.deferred:
            self._defer(None, lambda error: self._settle(close, None, error))
        else:
            self._settle(close, None)

    def _is_news(self, index: int) -> bool:
        """Return whether an event that is skipped changes a window: as the first of several, or as the last of one."""
        if not self._has_tail or (self._in_gap and self._every and (index + 1) % self._every):
            return False
        self._in_gap = True
        return True

    def _pass_by(self, index: int, wall_time: float) -> None:
        """Count an event without a value: windows still close in time, and say that they are incomplete."""
        if self._has_tail:
            self._in_order(lambda: self._evaluation.miss(ordinal=index, wall_time=wall_time))

    def _emit(self, items: Sequence[PipelineItem]) -> None:
        for item in items:
            if self._full:
                self.n_dropped += 1
            else:
                usual = item.n_events == 1 and item.complete and item.closed and not item.steps
                extra = None if usual else (item.n_events, item.complete, item.closed, item.steps)
                self.rows.append((self.n_rows, item.step, item.wall_time, item.value, extra, item.ordinal))
                if type(item.value) not in QUICK:
                    self.unsent_bytes += n_bytes(item.value)
                    self._full = self.unsent_bytes > MAX_UNSENT_BYTES
            self.n_rows += 1

    def _failed(self, error: BaseException, step: object) -> None:
        self.n_errors += 1
        self.n_in_row += 1
        self.last_error = _evaluation_error(error, self.event, step)
        # The next event has a value of the same type, and after a snapshot there may be no other event.
        self.suspended = self.n_in_row >= MAX_ERRORS or isinstance(error, UnsendableError | RefusedFunctionError)


def _boundaries(windows: Sequence[Window]) -> int:
    """Return after how many events a window of the first reducer can close while events are skipped; 0 for any."""
    if not windows or any(isinstance(window, Period) for window in windows):
        return 0
    return windows[0].n if isinstance(windows[0], Every) else sys.maxsize


def host_step(step: object) -> float:
    """Return a step as a number on the host; wait for the device if need be.

    Raises:
        EvaluationError: `step` is not a number.
    """
    number = to_host(step)
    if not isinstance(number, NUMBERS):
        raise EvaluationError(f"Expected a number as step, got {type_name(number)}")
    return exact(number)  # type: ignore[no-any-return]


def _evaluation_error(error: BaseException, event: str, step: object) -> SightglassError:
    """Return an error that names the event and the step at which a query failed."""
    at = f"at event {event!r}"
    said = message(error)
    number: float | None = None
    if issubclass(type(step), NUMBERS):
        with contextlib.suppress(*FAILURES):
            shown, number = f"step {step}", float(step)  # type: ignore[arg-type]
            said += f" ({shown})" if at in said else f" ({at}, {shown})"
    for kind in (UnsendableError, RefusedFunctionError):
        if isinstance(error, kind):
            return kind(said)
    if isinstance(error, PriceError):
        return PriceError(said, seconds=error.seconds, n_bytes=error.n_bytes)
    return EvaluationError(said, event=event, step=number)
