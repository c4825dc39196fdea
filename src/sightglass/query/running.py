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
from functools import reduce
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
        self._n = window.n if isinstance(window, Last) else 0
        self._seconds = window.seconds if isinstance(window, Recent) else 0.0
        self._numbers = reducer.of_numbers  # `None` once there was another value
        merge = (self._numbers or reducer).merge
        self._states = _Merged(merge) if reducer.slides and merge else None
        self._sorted = SortedNumbers() if self._numbers is not None and self._numbers.of_sorted else None
        self._values: deque[Any] = deque()
        self._n_events = 0
        self._gap: tuple[int, float] | None = None

    @property
    def held_bytes(self) -> int:
        """About how many bytes it holds."""
        one = self._states.total if self._states else self._values[-1] if self._values else None
        return len(self._entries) * (ENTRY_BYTES + held_bytes(one))

    def offer(self, ordinal: int, value: Value, place: Place, n_events: int = 1, complete: bool = True) -> PipelineItem:
        """Add a value, remove those that have left the window, and return what there is now."""
        self._meet(ordinal, place[1], complete)
        reducer, value = self._numbers or self.reducer, (value, place) if self.reducer.reads_place else value
        if type(value) not in PLAIN:
            reducer = self._take_any()
            total = Total()
            total.add(value)
            check_bytes(total.n_bytes * (self._n or len(self._entries) + 1))
        # A value that cannot be reduced raises here, before anything has changed.
        if self._sorted is not None:
            self._sorted.add(float(value))
            self._values.append(value)
        elif self._states is None:
            reducer.update(reducer.start(), value, ordinal)
            self._values.append(stored(value))
        else:
            self._states.push(reducer.update(reducer.start(), value, ordinal))
        self._entries.append((ordinal, place[1], n_events))
        self._n_events += n_events
        while self._is_over(place[1]):
            self._n_events -= self._entries.popleft()[2]
            if self._states is not None:
                self._states.pop()
                continue
            gone = self._values.popleft()
            if self._sorted is not None:
                self._sorted.remove(float(gone))
        if self._sorted is not None and reducer.of_sorted is not None:
            found = reducer.of_sorted(self._sorted)
        else:
            found = reducer.finish(self._total())
        return PipelineItem(ordinal, place[0], place[1], found, self._n_events, self._is_full(place[1]), True, place[2])

    def skip(self, ordinal: int, place: Place | None, *, complete: bool = True) -> PipelineItem:
        """Count an event without a value."""
        self._meet(ordinal, place[1] if place else math.nan, complete)
        return PipelineItem(ordinal, *(place or NOWHERE)[:2], None, complete=complete, passed=False)

    def _meet(self, ordinal: int, wall_time: float, complete: bool) -> None:
        """Remember the last event that was missed, or the one before the first."""
        if self._gap is None:
            self._gap = ordinal - 1, wall_time
        elif math.isnan(self._gap[1]):
            self._gap = self._gap[0], wall_time  # what was missed has no time: it was before this
        if not complete:
            self._gap = ordinal, wall_time

    def _take_any(self) -> Reducer:
        """Go on with the reducer of any values, whose states those of numbers are."""
        if self._numbers is not None:
            self._numbers = self._sorted = None
            if self._states is not None and self.reducer.merge is not None:
                self._states.merge = self.reducer.merge
        return self.reducer

    def _is_over(self, wall_time: float) -> bool:
        """Return whether the oldest value has left the window."""
        if self._n:
            return len(self._entries) > self._n
        return len(self._entries) > MAX_ROLLING or self._entries[0][1] <= wall_time - self._seconds

    def _is_full(self, wall_time: float) -> bool:
        assert self._gap is not None
        if self._n:
            return len(self._entries) == self._n and self._entries[0][0] > self._gap[0]
        return self._gap[1] <= wall_time - self._seconds and len(self._entries) < MAX_ROLLING

    def _total(self) -> State:
        if self._states is not None:
            return self._states.total
        state = self.reducer.start()
        for (ordinal, *_), value in zip(self._entries, self._values, strict=True):
            state = self.reducer.update(state, value, ordinal)
        return state


class _Merged:
    """A queue of states that knows all of them merged, in a few merges for each that comes or goes.

    The newest states form a block with its total; full blocks have their totals in two stacks, so that the total of
    the first ones is at hand, whichever leaves; of the oldest block, all rests are known. Nothing is subtracted: a
    state that leaves, such as an infinity, leaves nothing behind.
    """

    __slots__ = ("_blocks", "_came", "_new", "_new_total", "_rests", "_rests_of_totals", "merge")

    def __init__(self, merge: Callable[[State, State], State]) -> None:
        self.merge = merge
        self._rests: list[State] = []
        self._rests_of_totals: list[State] = []
        self._blocks: deque[tuple[list[State], State]] = deque()
        self._came: list[State] = []
        self._new: list[State] = []
        self._new_total: State = None

    @property
    def total(self) -> State:
        """All states, merged; there is at least one."""
        parts = [*self._rests[-1:], *self._rests_of_totals[-1:], *self._came[-1:]]
        if self._new:
            parts.append(self._new_total)
        return parts[0] if len(parts) == 1 else reduce(self.merge, parts)

    def push(self, state: State) -> None:
        """Add the newest state."""
        self._new_total = self.merge(self._new_total, state) if self._new else state
        self._new.append(state)
        if len(self._new) == BLOCK:
            self._blocks.append((self._new, self._new_total))
            self._came = [self.merge(self._came[0], self._new_total) if self._came else self._new_total]
            self._new = []

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
            self._rests_of_totals, self._came = self._suffixes([total for _, total in self._blocks]), []
        self._rests_of_totals.pop()
        return self._blocks.popleft()[0]

    def _suffixes(self, states: list[State]) -> list[State]:
        """Return each state merged with all that came behind it, the first one last."""
        return list(accumulate(reversed(states), lambda rest, state: self.merge(state, rest)))
