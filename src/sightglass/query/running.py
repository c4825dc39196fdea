"""Reducers that give a value for every value: running ones, and those over the last values, a sliding window.

They depend on the order of events, so their results within a run cannot be merged with those of another one.

Rule 1: A value that a condition dropped, or that was missed, gives no record; its number stays free.
Rule 2: A running reducer is complete if it began with the run and missed nothing; a difference if its two values follow
each other; a sliding window if it is full and missed nothing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import Any, Final

from sightglass.core.values import Value

from .limits import PLAIN, Total, check_bytes
from .reduction import Reducer, State, held_bytes, stored
from .sketches import SortedNumbers
from .stages import MAX_ROLLING, Each, Last, Recent
from .windows import NOWHERE, PipelineItem, Place

BLOCK: Final = 256
"""The items of a sliding window that are merged beforehand: an event then merges a few hundred states at most."""
ENTRY_BYTES: Final = 300  # of an item of a sliding window: a tuple of four, and states of plain numbers


class Running:
    """A reducer whose state is never reset; each value gives a record."""

    __slots__ = ("_begun", "_complete", "_n_values", "_state", "reducer", "window")

    def __init__(self, reducer: Reducer, window: Each) -> None:
        self.reducer = reducer
        self.window = window
        self._state = reducer.start()
        self._begun = self._complete = False
        self._n_values = 0

    @property
    def held_bytes(self) -> int:
        """The bytes of the state."""
        return held_bytes(self._state)

    def offer(
        self, ordinal: int, value: object, place: Place, n_events: int = 1, complete: bool = True
    ) -> PipelineItem:
        """Add a value, and return what there is now."""
        self._meet(ordinal, complete)
        self._state = self.reducer.update(self._state, value, ordinal)
        self._n_values += 1
        complete, passed = self._complete, self._n_values >= self.reducer.n_needed
        if self.reducer.n_needed > 1:
            self._complete = True  # what it keeps is this value alone
        found = self.reducer.finish(self._state) if passed else None
        return PipelineItem(ordinal, place[0], place[1], found, n_events, complete, True, place[2], passed)

    def skip(self, ordinal: int, place: Place | None, *, complete: bool = True) -> PipelineItem:
        """Count an event without a value."""
        self._meet(ordinal, complete)
        return PipelineItem(ordinal, *(place or NOWHERE)[:2], None, complete=complete, passed=False)

    def _meet(self, ordinal: int, complete: bool) -> None:
        if not self._begun:
            self._begun, self._complete = True, ordinal == 0
        self._complete = self._complete and complete


class Sliding:
    """A reducer over the last values; each value gives a record."""

    __slots__ = (
        "_entries",
        "_gap",
        "_is_dated",
        "_met",
        "_n",
        "_n_events",
        "_numbers",
        "_seconds",
        "_sorted",
        "_states",
        "_values",
        "reducer",
        "window",
    )

    def __init__(self, reducer: Reducer, window: Last | Recent) -> None:
        self.reducer = reducer
        self.window = window
        self._entries: deque[tuple[int, float, int]] = deque()
        self._n = window.n if isinstance(window, Last) else MAX_ROLLING
        self._seconds = window.seconds if isinstance(window, Recent) else math.inf
        self._numbers = reducer.of_numbers  # `None` once there was another value
        merge = (self._numbers or reducer).merge
        self._states = _Merged(merge) if reducer.slides and merge else None
        self._sorted = SortedNumbers() if self._numbers is not None and self._numbers.of_sorted else None
        self._values: deque[Any] = deque()
        self._n_events = 0
        self._gap: tuple[int, float] = -1, math.nan
        self._met = self._is_dated = False  # whether there was an event, and the gap has a time

    @property
    def held_bytes(self) -> int:
        """About how many bytes it holds."""
        one = self._states.total if self._states else self._values[-1] if self._values else None
        return len(self._entries) * (ENTRY_BYTES + held_bytes(one))

    def offer(self, ordinal: int, value: Value, place: Place, n_events: int = 1, complete: bool = True) -> PipelineItem:
        """Add a value, remove those that have left the window, and return what there is now."""
        step, at, steps = place
        if not (complete and self._is_dated):
            self._meet(ordinal, at, complete)
        reducer = self._numbers or self.reducer
        if reducer.reads_place:
            value = value, place
        if type(value) not in PLAIN:
            reducer = self._take_any()
            total = Total()
            total.add(value)
            check_bytes(total.n_bytes * (self._n if isinstance(self.window, Last) else len(self._entries) + 1))
        # A value that cannot be reduced raises here, before anything has changed.
        states, entries = self._states, self._entries
        if states is not None:
            states.push(reducer.update(reducer.start(), value, ordinal))
        elif self._sorted is not None:
            self._sorted.add(float(value))
            self._values.append(value)
        else:
            reducer.update(reducer.start(), value, ordinal)
            self._values.append(stored(value))
        entries.append((ordinal, at, n_events))
        self._n_events += n_events
        begin = at - self._seconds
        while len(entries) > self._n or entries[0][1] <= begin:
            self._n_events -= entries.popleft()[2]
            if states is not None:
                states.pop()
            else:
                gone = self._values.popleft()
                if self._sorted is not None:
                    self._sorted.remove(float(gone))
        if states is not None:
            found = reducer.finish(states.total)
        elif self._sorted is not None and reducer.of_sorted is not None:
            found = reducer.of_sorted(self._sorted)
        else:
            found = reducer.finish(self._state())
        if isinstance(self.window, Last):
            full = len(entries) == self._n and entries[0][0] > self._gap[0]
        else:
            full = self._gap[1] <= begin and len(entries) < self._n
        return PipelineItem(ordinal, step, at, found, self._n_events, full, True, steps)

    def skip(self, ordinal: int, place: Place | None, *, complete: bool = True) -> PipelineItem:
        """Count an event without a value."""
        self._meet(ordinal, place[1] if place else math.nan, complete)
        return PipelineItem(ordinal, *(place or NOWHERE)[:2], None, complete=complete, passed=False)

    def _meet(self, ordinal: int, wall_time: float, complete: bool) -> None:
        """Remember the last event that was missed, or the one before the first."""
        if not complete:
            self._gap = ordinal, wall_time
        elif not self._is_dated:  # what was missed has no time: it was before this
            self._gap = self._gap[0] if self._met else ordinal - 1, wall_time
        self._met, self._is_dated = True, not math.isnan(self._gap[1])

    def _take_any(self) -> Reducer:
        """Go on with the reducer of any values, whose states those of numbers are."""
        if self._numbers is not None:
            self._numbers = self._sorted = None
            if self._states is not None and self.reducer.merge is not None:
                self._states.merge = self.reducer.merge
        return self.reducer

    def _state(self) -> State:
        state = self.reducer.start()
        for (ordinal, *_), value in zip(self._entries, self._values, strict=True):
            state = self.reducer.update(state, value, ordinal)
        return state


class _Merged:
    """A queue of states that knows all of them merged, in a few merges for each that comes or goes.

    The newest states form a block with its total; full blocks have their totals in two stacks, so that the total of
    the first ones is at hand, whichever leaves; of the oldest block, all rests are known. Nothing is subtracted: a
    state that leaves, such as an infinity, leaves nothing behind. A total of nothing is `None`, which no state is.
    """

    __slots__ = ("_blocks", "_came", "_new", "_new_total", "_rests", "_rests_of_totals", "_whole", "merge")

    def __init__(self, merge: Callable[[State, State], State]) -> None:
        self.merge = merge
        self._rests: list[State] = []
        self._rests_of_totals: list[State] = []
        self._blocks: deque[tuple[list[State], State]] = deque()
        self._came: State = None
        self._whole: State = None  # of the blocks between the oldest and the newest
        self._new: list[State] = []
        self._new_total: State = None

    @property
    def total(self) -> State:
        """All states, merged; there is at least one."""
        total = self._whole
        if self._rests:
            total = self._rests[-1] if total is None else self.merge(self._rests[-1], total)
        if self._new:
            total = self._new_total if total is None else self.merge(total, self._new_total)
        return total

    def push(self, state: State) -> None:
        """Add the newest state; if it cannot be merged, nothing changes."""
        if self._new:
            self._new_total = self.merge(self._new_total, state)
        else:
            if (total := self.total) is not None:
                self.merge(total, state)
            self._new_total = state
        self._new.append(state)
        if len(self._new) == BLOCK:
            self._blocks.append((self._new, self._new_total))
            self._came = self._new_total if self._came is None else self.merge(self._came, self._new_total)
            self._new = []
            self._sum_up()

    def pop(self) -> None:
        """Remove the oldest state."""
        if not self._rests:
            self._rests = self._suffixes(self._oldest())
        self._rests.pop()

    def _oldest(self) -> list[State]:
        """Remove the oldest block, and return its states."""
        if not self._blocks:
            oldest, self._new = self._new, []
            return oldest
        if not self._rests_of_totals:
            self._rests_of_totals, self._came = self._suffixes([total for _, total in self._blocks]), None
        self._rests_of_totals.pop()
        self._sum_up()
        return self._blocks.popleft()[0]

    def _sum_up(self) -> None:
        """Merge the totals of both stacks."""
        if not self._rests_of_totals:
            self._whole = self._came
        elif self._came is None:
            self._whole = self._rests_of_totals[-1]
        else:
            self._whole = self.merge(self._rests_of_totals[-1], self._came)

    def _suffixes(self, states: list[State]) -> list[State]:
        """Return each state merged with all that came behind it, the first one last."""
        return list(accumulate(reversed(states), lambda rest, state: self.merge(state, rest)))
