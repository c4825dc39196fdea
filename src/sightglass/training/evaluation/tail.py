"""The second half of a query's evaluation: what follows the maps and conditions before the first reducer.

Events pass it in their order. As long as their values are on the host, each does so at once. After the first value on a
device, the rest of every event goes through `defer` to another thread, which waits for the device and continues under
the run's lock, in the same order.

The errors of a query, and its rows that wait for the `io` thread, stand here, too.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final

import numpy as np

from sightglass.core.columns import USUAL_FLAGS, Row
from sightglass.core.errors import (
    EvaluationError,
    PriceError,
    RefusedFunctionError,
    SightglassError,
    UnknownNameError,
    UnsendableError,
)
from sightglass.core.process.clock import WorkClock
from sightglass.core.program_values.guarded import FAILURES, exact, message
from sightglass.core.values import n_bytes
from sightglass.query.evaluation import Evaluation, PerEventResult
from sightglass.query.stages import Every, Period, Window
from sightglass.query.windows import PipelineItem

from .cost import Cost
from .deferred import NUMBERS, Defer, Tracks, host_step, host_steps

MAX_DEFERRED: Final = 1_024  # each pins its values on the device, where memory is scarce

Work = Callable[[], Sequence[PipelineItem]]


class Tail:
    """The second half of a query's evaluation; what it makes goes into the rows of its subscription.

    Attributes:
        evaluation: Both halves.
        defer: Where the rest of an event goes, once a value was on a device.
        deferred: Whether it goes there.
        n_deferred: How many events are there.
        deferred_bytes: How large their results are.
        device_bytes: How large its last result on a device was; devices make results later than they are asked to.
        in_gap: Whether the last event was skipped.
    """

    __slots__ = (
        "_clock", "_cost", "_errors", "_every", "_has_reducer", "_rows", "defer", "deferred", "deferred_bytes",
        "device_bytes", "evaluation", "in_gap", "n_deferred",
    )  # fmt: skip

    def __init__(
        self,
        evaluation: Evaluation,
        rows: UnsentRows,
        *,
        errors: QueryErrors,
        cost: Cost,
        clock: WorkClock,
        defer: Defer,
    ) -> None:
        self.evaluation = evaluation
        self.defer = defer
        self.deferred = self.in_gap = False
        self.n_deferred = self.deferred_bytes = self.device_bytes = 0
        self._rows = rows
        self._errors = errors
        self._cost = cost
        self._clock = clock
        self._has_reducer = evaluation.has_reducer
        self._every = _boundaries(evaluation.windows)

    def take(self, head: PerEventResult, index: int, step: object, wall_time: float, steps: Tracks) -> None:
        """Take the first half of an event. What its rest raises on this thread is the caller's to count."""
        if isinstance(step, NUMBERS) and not (self.deferred or head.on_device):
            at: Any = exact(step)  # a subclass of the program may do anything when it is sent
            items = self.evaluation.across_events(head, ordinal=index, step=at, wall_time=wall_time, steps=steps)
            self._rows.emit(items)
            if self._errors.n_in_row:
                self._errors.look(self.evaluation, head, items)
            return
        self.hold()
        if self.n_deferred >= MAX_DEFERRED:
            self.drop(index, wall_time)
            return
        self.n_deferred += 1
        self.deferred_bytes += head.n_bytes
        self.device_bytes = head.n_bytes

        def settle(error: BaseException | None) -> None:
            self.n_deferred -= 1
            self.deferred_bytes -= head.n_bytes
            if error is None:
                self.measured(lambda: self.settle(head, index, step, wall_time, steps))
            else:
                self.fail(error, index, step, wall_time)

        self.defer(head.read, settle)

    def hold(self) -> None:
        """Let values outlive their events from now on: the rest of each event comes later."""
        self.deferred = self.evaluation.holds = True

    def settle(self, head: PerEventResult, index: int, step: object, wall_time: float, steps: Tracks) -> None:
        """Evaluate the rest of an event whose values are on the host; those before it are settled."""

        def rest() -> Sequence[PipelineItem]:
            at, tracks = host_step(step), host_steps(steps)
            return self.evaluation.across_events(head, ordinal=index, step=at, wall_time=wall_time, steps=tracks)

        items = self._attempt(rest, step)
        if items is None:
            self.settle_miss(index, wall_time)
        elif self._errors.n_in_row:
            self._errors.look(self.evaluation, head, items)

    def fail(self, error: BaseException, index: int, step: object, wall_time: float) -> None:
        """Count an event whose first half failed; those before it are settled."""
        self._errors.add(error, step)
        self.settle_miss(index, wall_time)

    def miss(self, index: int, wall_time: float) -> None:
        """Count an event without a value: windows still close in time, and say that they are incomplete."""
        if self._has_reducer:
            self._in_order(lambda: self.evaluation.miss(ordinal=index, wall_time=wall_time))

    def drop(self, index: int, wall_time: float) -> None:
        """Count an event for whose result there is no room."""
        self._rows.n_dropped += 1
        self.miss(index, wall_time)

    def settle_miss(self, index: int, wall_time: float) -> None:
        """As `miss`, where the events before it are settled."""
        if self._has_reducer:
            self._attempt(lambda: self.evaluation.miss(ordinal=index, wall_time=wall_time))

    def changes(self, index: int) -> bool:
        """Return whether an event that is skipped changes a window: as the first of several, or as the last of one."""
        if not self._has_reducer or (self.in_gap and self._every and (index + 1) % self._every):
            return False
        self.in_gap = True
        return True

    def begin_group(self) -> None:
        """Begin a group of the run; the events before it are settled."""
        self.evaluation.begin_group()

    def boundary(self, event: str, mark: int | None = None, *, settled: bool = False) -> None:
        """Close the groups that this event, number `mark`, delimits; `settled` if the events before it are."""
        self._close(lambda: self.evaluation.boundary(event, mark), settled=settled)

    def end_group(self, mark: int | None = None, *, settled: bool = False) -> None:
        """Close the groups of reducers without a named window; otherwise as `boundary`."""
        self._close(lambda: self.evaluation.end_group(mark), settled=settled)

    def finish(self) -> None:
        """Emit what is open, with `closed=False`."""
        self._close(lambda: self.evaluation.finish())  # noqa: PLW0108  see `follow`

    def follow(self, other: Tail) -> None:
        """Continue where another tail of this query is; events on their way to it belong to both."""
        self.deferred = other.deferred
        if not other.deferred:
            return
        n_made = other._rows.n_made

        def catch_up(error: BaseException | None) -> None:
            self.evaluation = other.evaluation.fork(deepcopy)
            self._rows.n_made += other._rows.n_made - n_made

        other.defer(None, catch_up)

    def measured(self, work: Callable[[], object]) -> None:
        """Do work that the query costs apart from its events."""
        clock = self._clock
        cpu_s, now_s = clock.cpu(), clock.monotonic()
        work()
        self._cost.tail(clock.cpu() - cpu_s, clock.monotonic() - now_s)

    def _close(self, close: Work, *, settled: bool = False) -> None:
        self.in_gap = False  # the next group misses events of its own
        if settled:
            self.measured(lambda: self._attempt(close))
        else:
            self._in_order(close)

    def _in_order(self, work: Work) -> None:
        if self.deferred:
            self.defer(None, lambda error: self.measured(lambda: self._attempt(work)))
        else:
            self.measured(lambda: self._attempt(work))

    def _attempt(self, work: Work, step: object = None) -> Sequence[PipelineItem] | None:
        """Emit what work makes, and return it; `None` after an error."""
        try:
            items = work()
            self._rows.emit(items)
        except FAILURES as error:
            error.__traceback__ = None  # it is in a cycle with this frame, and holds what was computed so far
            self._errors.add(error, step)
            return None
        return items


def _boundaries(windows: Sequence[Window]) -> int:
    """Return after how many events a window of the first reducer can close while events are skipped; 0 for any."""
    if not windows or any(isinstance(window, Period) for window in windows):
        return 0
    return windows[0].n if isinstance(windows[0], Every) else sys.maxsize


# The errors of one query: an error costs its event, and `MAX_ERRORS` in a row suspend the query.

MAX_ERRORS: Final = 3  # one bad event is forgiven; a query that always fails must not cost the run for long


class QueryErrors:
    """The errors of one query.

    Attributes:
        n: How many there were.
        n_in_row: How many there were since an event came as far as they did without an error.
        last: The last one; it names the event and the step.
        suspended: Whether the query is not evaluated any more; `last` has the reason.
        known: What its event offers: more than one event, which its error lists, may have.
    """

    __slots__ = ("_event", "known", "last", "n", "n_in_row", "suspended")

    def __init__(self, event: str) -> None:
        self._event = event
        self.n = self.n_in_row = 0
        self.last: SightglassError | None = None
        self.suspended = False
        self.known: Collection[str] = ()

    def add(self, error: BaseException, step: object, *, event: str = "") -> None:
        """Count an error; of an event that the query joins, with its name."""
        self.n += 1
        self.n_in_row += 1
        if isinstance(error, UnknownNameError) and error.what == "observable" and not event:
            known = dict.fromkeys((*error.known, *self.known))
            error = UnknownNameError(error.what, error.name, known, where=f"at event {self._event!r}")
        self.last = evaluation_error(error, event or self._event, step)
        # The next event has a value of the same type, and after a snapshot there may be no other event.
        self.suspended = self.n_in_row >= MAX_ERRORS or isinstance(error, UnsendableError | RefusedFunctionError)

    def look(self, evaluation: Evaluation, head: PerEventResult, items: Sequence[PipelineItem]) -> None:
        """Take note of an event without an error, and what came out of it."""
        if evaluation.proves(head.passed, items, n_stages=head.n_stages):
            self.n_in_row = 0

    def refuse(self, error: SightglassError) -> None:
        """Suspend the query: it cannot be evaluated here."""
        self.last = error
        self.suspended = True


def evaluation_error(error: BaseException, event: str, step: object) -> SightglassError:
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


# The rows of a subscription that wait for the `io` thread.
#
# The training thread and the drain thread append, and the `io` thread takes them away, without a lock: appending to a
# deque and popping from its other end are atomic. Each row carries its number, so a row that was dropped leaves a gap.

MAX_UNSENT_ROWS: Final = 200_000  # some seconds of the fastest stream while the io thread is held up
MAX_UNSENT_BYTES: Final = 32 * 2**20  # the same for arrays; it is host memory of the training process

QUICK: Final = frozenset((float, int, bool, np.float64, np.float32))
"""The types of values that are rows as they are: their bytes are not worth counting."""


class UnsentRows(deque[Row]):
    """The rows that wait.

    Attributes:
        n_made: How many rows there were: the number of the next one.
        n_dropped: How many of them were dropped because too many waited.
        n_bytes: The bytes of those that wait.
        full: Whether too many wait.
    """

    __slots__ = ("full", "n_bytes", "n_dropped", "n_made")

    def __init__(self, rows: Iterable[Row] = (), *, n_made: int = 0, n_dropped: int = 0) -> None:
        super().__init__(rows)
        self.n_made = n_made
        self.n_dropped = n_dropped
        self.full = False
        self.n_bytes = 0

    def fork(self) -> UnsentRows:
        """Return the same rows, for a stream that continues from here."""
        return UnsentRows(self, n_made=self.n_made, n_dropped=self.n_dropped)

    @property
    def next_index(self) -> int:
        """The number of the first row that `take` will return; the caller holds the lock."""
        return self[0][0] if self else self.n_made

    def emit(self, items: Iterable[PipelineItem]) -> None:
        """Append what a query made, or count it as dropped."""
        for item in items:
            if self.full:
                self.n_dropped += 1
            else:
                flags = item.flags
                usual = item.n_events == 1 and flags == USUAL_FLAGS and not item.steps
                extra = None if usual else (item.n_events, flags, item.steps)
                self.append((self.n_made, item.step, item.wall_time, item.value, extra, item.ordinal))
                if type(item.value) not in QUICK:
                    self.n_bytes += n_bytes(item.value)
                    self.full = self.n_bytes > MAX_UNSENT_BYTES
            self.n_made += 1

    def look_for_room(self) -> None:
        """Drop rows from now on if too many wait; called every few milliseconds."""
        self.full = len(self) > MAX_UNSENT_ROWS or self.n_bytes > MAX_UNSENT_BYTES

    def take(self) -> list[Row]:
        """Return the rows since the last call. Only the `io` thread may call this."""
        rows = [self.popleft() for _ in range(len(self))]
        self.n_bytes = 0
        self.full = False
        return rows


def consecutive(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows at gaps in their index numbers."""
    start, n = 0, len(rows)
    while start < n:
        end = n
        if rows[-1][0] - rows[start][0] != n - 1 - start:  # there is a gap: look for the first
            end = next(i for i in range(start + 1, n) if rows[i][0] != rows[i - 1][0] + 1)
        yield rows[start:end]
        start = end
