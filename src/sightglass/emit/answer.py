"""An answer: one query being answered inside the run, whoever asked for it.

Rows leave an answer in the order of their events. As long as values are on the host they are complete when `post` returns.
Once a value rests on a device, the rest of every event's evaluation goes through `defer`, to be taken up by the drain thread,
which calls `settle` in the same order.

Rule 1: an error costs the event, and is remembered; `MAX_ERRORS` in a row suspend the answer.
Rule 2: nothing is lost uncounted: `n_skipped` by the budget, `n_dropped` by a full buffer, `n_errors` by errors.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ..core.errors import EvaluationError
from ..core.values import n_bytes, to_host
from ..query.pipeline import Evaluation, Head
from ..query.query import Query
from ..query.window import Item

MAX_ERRORS: Final = 3
MAX_UNSENT_ROWS: Final = 200_000
MAX_UNSENT_BYTES: Final = 128 * 2**20
MAX_DEFERRED: Final = 1_024
BACKLOG_ROWS: Final = 1_000
BACKLOG_BYTES: Final = 16 * 2**20

Row = tuple[float, float, Any, int, bool, bool, Mapping[str, float] | None]
"""(step, wall_time, value, n_events, complete, closed, steps): a record but for its index, tag and run."""

Defer = Callable[[Callable[[], None] | None, Callable[[BaseException | None], None]], None]
"""Takes (wait, settle): calls `wait` without the lock, then `settle` under it with what `wait` failed with, in order."""

QUICK: Final = frozenset((float, int, bool, np.float64, np.float32))
NUMBERS: Final = (int, float, np.integer, np.floating)


class Answer:
    """One query being answered; equal queries of all clients share it."""

    __slots__ = (
        "_defer", "_evaluation", "_monotonic", "_n_deferred", "_only", "backlog", "backlog_start", "deferred", "event",
        "first_index", "id", "last_error", "n_dropped", "n_errors", "n_in_row", "n_rows", "n_seen", "n_skipped", "query",
        "rows", "spent_s", "stride", "suspended", "total_spent_s", "unsent_bytes", "windows",
    )  # fmt: skip

    def __init__(
        self,
        id: int,
        query: Query,
        evaluation: Evaluation,
        *,
        monotonic: Callable[[], float],
        defer: Defer,
    ) -> None:
        self.id = id
        self.query = query
        self.event = query.event
        self.windows = evaluation.windows
        self.rows: list[Row] = []
        self.n_rows = 0
        self.first_index = 0
        self.unsent_bytes = 0
        self.backlog: deque[Row] = deque(maxlen=BACKLOG_ROWS)
        self.backlog_start = 0
        self.deferred = False
        self.stride = 1
        self.spent_s = self.total_spent_s = 0.0
        self.n_seen = self.n_skipped = self.n_dropped = self.n_errors = self.n_in_row = 0
        self.last_error: Exception | None = None
        self.suspended = False
        self._evaluation = evaluation
        self._only = None if evaluation.has_tail else evaluation.only
        self._monotonic = monotonic
        self._defer = defer
        self._n_deferred = 0

    def post(self, index: int, step: float, wall_time: float, observables: Mapping[str, Any], steps: Any = None) -> None:
        """Evaluate the query on an event; never raises because of the query."""
        if self.stride > 1 and index % self.stride:
            self._skip(index, wall_time)
            return
        started = self._monotonic()
        try:
            if self._only is not None and not self.deferred:
                value = self._only(observables)
                if type(value) in QUICK and type(step) in QUICK:
                    self.rows.append((step, wall_time, value, 1, True, True, steps))
                    self.n_rows += 1
                else:
                    self._take(self._evaluation.rest(value), index, step, wall_time, steps)
            else:
                self._take(self._evaluation.head(observables), index, step, wall_time, steps)
            self.n_in_row = 0
        except (Exception, SystemExit) as error:  # noqa: BLE001  a query must never hurt the run
            self._failed(error, step)
        self.n_seen += 1
        self.spent_s += self._monotonic() - started
        if len(self.rows) > MAX_UNSENT_ROWS:
            self._overflow()

    def boundary(self, event: str) -> None:
        """Close the groups that this event delimits."""
        self._in_order(lambda: self._evaluation.boundary(event))

    def end_group(self) -> None:
        """Close the groups that no window was named for."""
        self._in_order(self._evaluation.end_group)

    def finish(self) -> None:
        """Emit what is open, with `closed=False`."""
        self._in_order(self._evaluation.finish)

    def take_rows(self) -> tuple[int, list[Row]]:
        """Hand over the rows that were not handed over yet, with the index of the first; they move to the backlog."""
        first, rows = self.first_index, self.rows
        self.rows = []
        self.unsent_bytes = 0
        self.first_index = first + len(rows)
        if rows:
            self.backlog.extend(rows)
            size = sum(n_bytes(row[2]) for row in self.backlog) if type(rows[-1][2]) not in QUICK else 0
            while size > BACKLOG_BYTES:
                size -= n_bytes(self.backlog.popleft()[2])
            self.backlog_start = self.first_index - len(self.backlog)
        return first, rows

    def fork(self, id: int) -> Answer:
        """Return an answer of its own in the same state, for a client that closes a group by itself."""
        from copy import deepcopy

        other = Answer(id, self.query, self._evaluation.fork(deepcopy), monotonic=self._monotonic, defer=self._defer)
        for name in ("deferred", "stride", "n_rows", "first_index", "n_seen", "n_skipped", "n_dropped", "n_errors"):
            setattr(other, name, getattr(self, name))
        other.backlog, other.backlog_start = self.backlog.copy(), self.backlog_start
        other.rows = self.rows.copy()
        return other

    def _take(self, head: Head, index: int, step: Any, wall_time: float, steps: Any) -> None:
        if not (self.deferred or head.on_device or not isinstance(step, NUMBERS)):
            self._emit(self._evaluation.tail(head, ordinal=index, step=step, wall_time=wall_time, steps=steps))
            return
        self.deferred = self._evaluation.holds = True
        if self._n_deferred >= MAX_DEFERRED:
            self.n_dropped += 1
            self._skip(index, wall_time, counted=True)
            return
        self._n_deferred += 1

        def settle(error: BaseException | None) -> None:
            self._n_deferred -= 1
            at = to_host(step)
            self._settle(lambda: evaluation.tail(head, ordinal=index, step=at, wall_time=wall_time, steps=steps), at, error)

        evaluation = self._evaluation
        self._defer(head.read, settle)

    def _settle(self, tail: Callable[[], list[Item]], step: Any, error: BaseException | None = None) -> None:
        started = self._monotonic()
        try:
            if error is not None:
                raise error
            self._emit(tail())
        except (Exception, SystemExit) as failure:  # noqa: BLE001  a query must never hurt the run
            self._failed(failure, step)
        self.spent_s += self._monotonic() - started

    def _in_order(self, close: Callable[[], list[Item]]) -> None:
        if self.deferred:
            self._defer(None, lambda error: self._settle(close, None, error))
        else:
            self._settle(close, None)

    def _skip(self, index: int, wall_time: float, *, counted: bool = False) -> None:
        self.n_skipped += not counted
        self._in_order(lambda: self._evaluation.miss(ordinal=index, wall_time=wall_time))

    def _emit(self, items: list[Item]) -> None:
        for item in items:
            self.rows.append((item.step, item.wall_time, item.value, item.n_events, item.complete, item.closed, item.steps))
            self.n_rows += 1
            if type(item.value) not in QUICK:
                self.unsent_bytes += n_bytes(item.value)
        if self.unsent_bytes > MAX_UNSENT_BYTES:
            self._overflow()

    def _overflow(self) -> None:
        """Drop what was not handed over yet, and count it: the newest rows are what a person wants to see."""
        self.n_dropped += len(self.rows)
        self.first_index += len(self.rows)
        self.rows = []
        self.unsent_bytes = 0

    def _failed(self, error: BaseException, step: Any) -> None:
        self.n_errors += 1
        self.n_in_row += 1
        at = f"at event {self.event!r}" + (f", step {step}" if isinstance(step, NUMBERS) else "")
        message = str(error) or type(error).__name__
        text = message if f"at event {self.event!r}" in message else f"{message} ({at})"
        if not isinstance(error, EvaluationError | LookupError) and type(error).__module__ == "builtins":
            text = f"{type(error).__name__}: {text}"
        self.last_error = EvaluationError(text, event=self.event, step=step if isinstance(step, NUMBERS) else None)
        if self.n_in_row >= MAX_ERRORS:
            self.suspended = True
