"""Windows: when a reducer's group closes.

Windows are aligned to the run, not to the moment when the query starts. Events are counted by their ordinal: for the
first reducer of a query the number of the event in the run, for a later reducer the number of the closed group.

Rule 1: `every=n` closes on ordinal n - 1 modulo n, even if a condition dropped that event.
Rule 2: with `every` and `when` the closing event belongs to the group; an event after a time or a `per` boundary, or
after the run's own `end_group`, opens the next one.
Rule 3: the first group is complete only if it began with the run or at a boundary; a group that missed an event is not
complete. A group that is open when the run ends has `closed=False`.
Rule 4: a group without a value gives no record, except for `count`, which gives 0. It still has a number, so that a
later reducer keeps its alignment.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sightglass.core.columns import flags_of
from sightglass.core.errors import EvaluationError

from .reduce.reducer import Place, Reducer, State, held_bytes
from .reduce.states import LAST, Numbering, WindowState, pack
from .stages import Every, Group, Period, When, WholeRun, Window

NOWHERE: Place = (math.nan, math.nan, None)


@dataclass(slots=True)
class PipelineItem:
    """A value in a pipeline, with the fields of a record.

    `passed` is `False` for an event that a condition dropped and for a group without a value: the item only counts.
    """

    ordinal: int
    step: float
    wall_time: float
    value: Any
    n_events: int = 1
    complete: bool = True
    closed: bool = True
    steps: Mapping[str, float] | None = None
    passed: bool = True
    approximate: bool = False

    @property
    def flags(self) -> int:
        """The flags of its record, see `Columns`."""
        return flags_of(self.complete, self.closed, self.approximate)


class Fold:
    """A reducer with its window and its open group.

    Attributes:
        place: Where its last value is from.
        approximate: Whether a value of the open group is of a sketch.
    """

    __slots__ = (
        "_begun",
        "_complete",
        "_every",
        "_n_events",
        "_n_values",
        "_number",
        "_period",
        "_reads_place",
        "_state",
        "_touched",
        "_update",
        "approximate",
        "place",
        "reducer",
        "window",
    )  # fmt: skip

    place: Place

    def __init__(self, reducer: Reducer, window: Window) -> None:
        self.reducer = reducer
        self.window = window
        self._update = reducer.update
        self._reads_place = reducer.reads_place
        self._every = window.n if isinstance(window, Every) else 0
        self._begun = self._complete = False
        self._number = 0
        self._period: float | None = None
        self.place = NOWHERE
        self._open()

    @property
    def held_bytes(self) -> int:
        """The bytes of the state of the open group."""
        return held_bytes(self._state)

    def _open(self) -> None:
        self._state = self.reducer.start()
        self._n_values = self._n_events = 0
        self._touched = self.approximate = False

    def begin(self) -> None:
        """Take note that a group of the run begins: a first group that begins here is complete."""
        if isinstance(self.window, Group) and not self._begun:
            self._begun = self._complete = True

    def _begin(self, ordinal: int) -> None:
        self._begun = True
        self._number, place = divmod(ordinal, self._every) if self._every else (0, ordinal)
        self._complete = place == 0

    def passes(self, wall_time: float, place: Place = NOWHERE) -> PipelineItem | None:
        """Close the group if a time boundary lies between its last event and this time; `place` as in `close`."""
        if not isinstance(self.window, Period):
            return None
        period = wall_time // self.window.seconds
        if self._period is not None and self._period - 1 <= period <= self._period:
            return None  # a clock that is corrected by a moment opens no new group; one that is set back does
        crossed, self._period = self._period is not None, period
        return self.close(place=place) if crossed else None

    def offer(
        self, ordinal: int, value: object, place: Place, n_events: int = 1, complete: bool = True
    ) -> PipelineItem | None:
        """Add a value; returns the group if the value closes it."""
        if not self._begun:
            self._begin(ordinal)
        self._state = self._update(self._state, (value, place) if self._reads_place else value, ordinal)
        self._n_values += 1
        self._n_events += n_events
        self.place = place
        if not complete:
            self._complete = False
        if self._every and (ordinal + 1) % self._every == 0:
            return self.close(number=ordinal // self._every)
        return None

    def skip(self, ordinal: int, place: Place | None, *, complete: bool = True) -> PipelineItem | None:
        """Count an event without a value; returns the group if the event closes it."""
        if not self._begun:
            self._begin(ordinal)
        self._touched = True
        if place is not None and not self._n_values:
            self.place = place
        if not complete:
            self._complete = False
        if self._every and (ordinal + 1) % self._every == 0:
            return self.close(number=ordinal // self._every)
        return None

    def close(
        self,
        *,
        closed: bool = True,
        number: int | None = None,
        place: Place = NOWHERE,
        mark: int | None = None,
    ) -> PipelineItem | None:
        """Close the group and return it; `None` at the end if nothing is open. Without a value, it has not `passed`.

        Args:
            closed: Whether its window closed.
            number: The number of the group; by default the next one.
            place: Where a group is that no event was in, and none before.
            mark: The number of what closes it, in the run: of the event, or of the `end_group`.
        """
        if self.place is NOWHERE:
            self.place = place
        if not (closed or self._touched or self._n_values):
            return None
        closed = closed or isinstance(self.window, WholeRun)
        if number is None:
            number = self._number
        n_events, n_values, state = self._n_events, self._n_values, self._state
        complete, (step, wall_time, steps), approximate = self._complete and closed, self.place, self.approximate
        self._number = number + 1
        self._begun = self._complete = True
        self._open()
        item = PipelineItem(number, step, wall_time, None, n_events, complete, closed, steps, True, approximate)
        self._finish(item, state, n_values, mark)
        return item

    def _finish(self, item: PipelineItem, state: State, n_values: int, mark: int | None) -> None:
        """Give the item of a group its value; without one, it has not `passed`."""
        item.passed = n_values > 0 or (self.reducer.name == "count" and self.place is not NOWHERE)
        if item.passed:
            item.value = self.reducer.finish(state)
            item.approximate = item.approximate or self.reducer.is_approximate(state)


class StateFold(Fold):
    """A reducer whose groups have their states as values, which a client merges with those of other processes.

    The key of a group is the same in all of them: with `every=n` its number, with a time span the number of the span
    since 1970, with `per` and without a window the number of the boundary, with `when` that of the event that closed
    it, and 0 for the whole run. A group without a value has a state, too: others need not wait for it.
    """

    __slots__ = ()

    def __init__(self, reducer: Reducer, window: Window, numbering: Numbering) -> None:
        """Begin before the first event; `numbering` says what numbers events have."""
        first, stride, update = *numbering, reducer.update
        super().__init__(replace(reducer, update=lambda s, x, i: update(s, x, first + stride * i)), window)

    def _finish(self, item: PipelineItem, state: State, n_values: int, mark: int | None) -> None:
        item.passed = n_values > 0 or not isinstance(self.window, Period)  # a span without values is nowhere in time
        item.value = WindowState(self._key(item, mark), n_values, pack(state))

    def _key(self, item: PipelineItem, mark: int | None) -> int:
        window = self.window
        if isinstance(window, WholeRun):
            return 0
        if isinstance(window, Every):
            return item.ordinal
        if isinstance(window, Period):
            return math.floor(item.wall_time / window.seconds) if math.isfinite(item.wall_time) else LAST
        if mark is None and item.closed:
            kind = "conditions" if isinstance(window, When) else "groups"
            raise EvaluationError(f"Expected {kind} that the run numbers, to match them with those of other ranks")
        return LAST if mark is None else mark
