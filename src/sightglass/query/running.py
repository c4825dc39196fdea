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
from itertools import accumulate, islice
from typing import Any, Final

from sightglass.core.values import Value

from .limits import PLAIN, Total, check_bytes
from .meter import Meter
from .reduce.reducer import Place, Reducer, State, held_bytes, stored
from .reduce.sketches import SortedNumbers
from .stages import MAX_ROLLING, Each, Every, Last
from .windows import NOWHERE, PipelineItem

TIME_BLOCK: Final = 64
"""The values of a time span that are merged beforehand; of n values, four times the square root."""
MAX_FLOATS: Final = 4_096  # of a window; to make states of them, when another value comes, takes milliseconds
N_TIMED: Final = 64  # values that take longer than to read the clock
FORGET: Final = 0.1  # of what a value takes, at each event
LEAP: Final = 4.0  # times what is known: the largest that is believed
ENTRY_BYTES: Final = 300  # of an item of a sliding window: a tuple of four, and states of plain numbers


class Running:
    """A reducer whose state is never reset; each value gives a record.

    Attributes:
        approximate: Whether a value was of a sketch.
    """

    __slots__ = ("_begun", "_complete", "_n_values", "_state", "approximate", "reducer", "window")

    def __init__(self, reducer: Reducer, window: Each) -> None:
        self.reducer = reducer
        self.window = window
        self._state = reducer.start()
        self._begun = self._complete = self.approximate = False
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
        return PipelineItem(
            ordinal, place[0], place[1], found, n_events, complete, True, place[2], passed, self.approximate
        )

    def skip(self, ordinal: int, place: Place | None, *, complete: bool = True) -> PipelineItem:
        """Count an event without a value."""
        self._meet(ordinal, complete)
        return PipelineItem(ordinal, *(place or NOWHERE)[:2], None, complete=complete, passed=False)

    def _meet(self, ordinal: int, complete: bool) -> None:
        if not self._begun:
            self._begun, self._complete = True, ordinal == 0
        self._complete = self._complete and complete


class Sliding:
    """A reducer over the last values; each value gives a record.

    Attributes:
        approximate: Whether a value was of a sketch, or the values in the window made one.
        is_priced: Whether a value takes time that has a price: not where plain numbers are merged or kept in order.
    """

    __slots__ = (
        "_each_s", "_entries", "_finish", "_floats", "_gap", "_is_dated", "_met", "_meter", "_n", "_n_events",
        "_numbers", "_seconds", "_sorted", "_start", "_states", "_took_s", "_update", "_values", "approximate",
        "is_priced", "reducer", "window",
    )  # fmt: skip

    def __init__(self, reducer: Reducer, window: Last, meter: Meter | None = None) -> None:
        """Begin before the first event; `meter` says what an event may take, by default any time."""
        self.reducer = reducer
        self.window = window
        self._meter = meter
        self._entries: deque[tuple[Any, ...]] = deque()  # ordinal, wall time, number of events; and a float
        span = window.span
        self._n, self._seconds = (span.n, math.inf) if isinstance(span, Every) else (MAX_ROLLING, span.seconds)
        self._numbers = reducer.of_numbers  # `None` once there was another value
        one = self._numbers or reducer
        self._start, self._update, self._finish = one.start, one.update, one.finish
        self._states: MergedStates | None = None
        if reducer.slides and one.merge is not None:
            size = 4 * math.isqrt(self._n) if self._seconds == math.inf else TIME_BLOCK
            self._states = MergedStates(one.merge, block_size=size, spreads=self._numbers is None)
        short = self._states is not None and self._n <= MAX_FLOATS
        self._floats = SlidingFloats(self._n, *one.of_floats) if short and one.of_floats else None
        self._sorted = SortedNumbers() if self._numbers is not None and self._numbers.of_sorted else None
        self.is_priced = self._numbers is None or (self._states is None and self._sorted is None)
        self._values: deque[Any] = deque()
        self._each_s = reducer.number_ns / 1e9  # to reduce a value again, until it is known
        self._took_s = math.inf  # what the last value took that is no number
        self._n_events = 0
        self._gap: tuple[int, float] = -1, math.nan
        self.approximate = False
        self._met = self._is_dated = False  # whether there was an event, and the gap has a time

    @property
    def held_bytes(self) -> int:
        """About how many bytes it holds."""
        one = self._states.total() if self._states and self._floats is None else next(reversed(self._values), None)
        return len(self._entries) * (ENTRY_BYTES + held_bytes(one))

    def offer(self, ordinal: int, value: Value, place: Place, n_events: int = 1, complete: bool = True) -> PipelineItem:
        """Add a value, remove those that have left the window, and return what there is now."""
        step, at, steps = place
        if not (complete and self._is_dated):
            self._meet(ordinal, at, complete)
        if self._floats is not None:
            if type(value) is float:
                return self._offer_float(ordinal, value, place, n_events)
            self._leave_floats()
        if self.reducer.reads_place:
            value = value, place
        is_plain = type(value) in PLAIN
        if not is_plain:
            self._take_any()
            total = Total()
            total.add(value)
            check_bytes(total.n_bytes * self._n_at_most())
        # A value that cannot be reduced raises here, before anything has changed.
        states, entries = self._states, self._entries
        is_timed = states is None and not is_plain and self._meter is not None
        began_s = self._priced() if self.is_priced and not is_timed else 0.0
        if states is not None:
            states.push(self._update(self._start(), value, ordinal))
            if began_s:
                self._learn(began_s, 1)
        elif self._sorted is not None:
            self._sorted.add(float(value))
            self._values.append(value)
        else:
            if is_timed:
                self._time(value, ordinal)
            else:
                self._update(self._start(), value, ordinal)
            self._values.append(stored(value))
        entries.append((ordinal, at, n_events))
        n, seconds, n_gone = self._n, self._seconds, 0
        begin = at - seconds
        while len(entries) > n or entries[0][1] <= begin:
            n_events -= entries.popleft()[2]
            n_gone += 1
        self._n_events += n_events
        if n_gone and states is not None:
            states.pop(n_gone)
        elif n_gone:
            self._forget(n_gone)
        found = self._finish(states.total()) if states is not None else self._again()
        if seconds == math.inf:
            full = len(entries) == n and entries[0][0] > self._gap[0]
        else:
            full = self._gap[1] <= begin and len(entries) < n
        return PipelineItem(ordinal, step, at, found, self._n_events, full, True, steps, True, self.approximate)

    def _offer_float(self, ordinal: int, value: float, place: Place, n_events: int) -> PipelineItem:
        """Add a float where all are floats: a fast path of `offer`."""
        entries = self._entries
        entries.append((ordinal, place[1], n_events, value))
        n, self._n_events = len(entries), self._n_events + n_events
        if n > self._n:
            n -= 1
            self._n_events -= entries.popleft()[2]
        found = self._floats.slide(value, n)  # type: ignore[union-attr]
        full = n == self._n and entries[0][0] > self._gap[0]
        return PipelineItem(ordinal, place[0], place[1], found, self._n_events, full, True, place[2])

    def _leave_floats(self) -> None:
        """Go on with states."""
        self._floats = None
        for *_, value in self._entries:
            self._states.push(self._update(self._start(), value, 0))  # type: ignore[union-attr]

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

    def _take_any(self) -> None:
        """Go on with the reducer of any values, whose states those of numbers are."""
        if self._numbers is not None:
            self._numbers = self._sorted = None
            self.is_priced = True
            one = self.reducer
            self._start, self._update, self._finish = one.start, one.update, one.finish
            if self._states is not None and one.merge is not None:
                self._states.merge, self._states.spreads = one.merge, True

    def _n_at_most(self) -> int:
        """Return how many values the window holds when it is full; those of a time, how many it will hold now."""
        return self._n if self._seconds == math.inf else min(self._n, len(self._entries) + 1)

    def _priced(self, n_done: int = 0) -> float:
        """Check that there is time for a full window, and return the time; 0.0 if there is no limit.

        Args:
            n_done: How many values this event has reduced already.

        Raises:
            PriceError: There is not.
        """
        if self._meter is None:
            return 0.0
        n, n_first = self._n_at_most(), self.reducer.n_first
        n_steps = self._states.at_once(n) if self._states is not None else n if n_first is None else min(n, n_first)
        self._meter.repeats(n_steps + n_done, self._each_s, f"rolling(…).{self.reducer.name} of {n:,} values")
        return self._meter.now()

    def _time(self, value: Value, ordinal: int) -> None:
        """Reduce a value for itself, to know what it takes, and check that there is time for a full window.

        An array may take a hundred thousand times as long as a number. The shorter one of two times counts, as a
        garbage collection seldom comes twice in a row.

        Raises:
            PriceError: There is not.
        """
        assert self._meter is not None
        began_s = self._meter.now()
        self._update(self._start(), value, ordinal)
        took_s = self._meter.now() - began_s
        self._each_s, self._took_s = min(took_s, self._took_s), took_s
        self._priced(1)

    def _learn(self, began_s: float, n: int) -> None:
        """Learn what a value takes; what takes very long, such as a garbage collection, counts in part."""
        assert self._meter is not None
        each_s = min((self._meter.now() - began_s) / n, LEAP * self._each_s)
        self._each_s += FORGET * (each_s - self._each_s)

    def _forget(self, n: int) -> None:
        """Remove the `n` oldest values, where they are kept as they are."""
        for _ in range(n):
            gone = self._values.popleft()
            if self._sorted is not None:
                self._sorted.remove(float(gone))

    def _again(self) -> Value:
        """Return the result of the values in the window, without the states of parts of it."""
        if self._sorted is not None and self._numbers is not None and self._numbers.of_sorted is not None:
            return self._numbers.of_sorted(self._sorted)
        began_s = self._meter.now() if self._meter else 0.0
        state, n = self._start(), min(len(self._entries), self.reducer.n_first or len(self._entries))
        for (ordinal, *_), value in islice(zip(self._entries, self._values, strict=True), n):
            state = self._update(state, value, ordinal)
        if began_s and n >= N_TIMED and self._took_s == math.inf:
            self._learn(began_s, n)
        self.approximate = self.approximate or self.reducer.is_approximate(state)
        return self._finish(state)


# What the values of a sliding window come to, in a few operations for each value that comes or goes.
#
# Nothing is subtracted: a value that leaves, such as an infinity, leaves nothing behind.

N_MERGES: Final = 6  # of an event, besides those of a block or of totals


class SlidingFloats:
    """The last floats combined: the older half is combined from its end, so that one of them leaves by a pop.

    Nothing is subtracted, as in `MergedStates`. At most once in a window all are combined again, in a loop of C.
    """

    __slots__ = ("_combine", "_finish", "_n", "_new", "_new_total", "_rests")

    def __init__(self, n: int, combine: Callable[[float, float], float], finish: Callable[[float, int], float]) -> None:
        self._n = n
        self._combine = combine
        self._finish = finish
        self._rests: list[float] = []
        self._new: list[float] = []
        self._new_total = math.nan

    def slide(self, value: float, n: int) -> float:
        """Add a float, remove one if there are more than fit, and return the result of the `n` that there are now."""
        new, rests, combine = self._new, self._rests, self._combine
        if rests:
            rests.pop()
        elif len(new) == self._n:
            new.reverse()
            self._rests = rests = list(accumulate(new, combine))
            rests.pop()
            self._new = new = []
        self._new_total = total = combine(self._new_total, value) if new else value
        new.append(value)
        return self._finish(combine(rests[-1], total) if rests else total, n)


class MergedStates:
    """A queue of states that knows all of them merged, in a few merges for each that comes or goes.

    The newest states form a block with its total; full blocks have their totals in two stacks, so that the total of
    the first ones is at hand, whichever leaves; of the oldest block, all rests are known. Nothing is subtracted: a
    state that leaves, such as an infinity, leaves nothing behind. A total of nothing is `None`, which no state is.

    Attributes:
        merge: Merges two states.
        spreads: Whether the rests of the next block are made one at a time, not at once, as for numbers.
    """

    __slots__ = (
        "_blocks", "_came", "_new", "_new_total", "_next_rests", "_rests", "_rests_of_totals", "_size", "_whole",
        "merge", "spreads",
    )  # fmt: skip

    def __init__(self, merge: Callable[[State, State], State], *, block_size: int, spreads: bool) -> None:
        self.merge = merge
        self.spreads = spreads
        self._size = block_size
        self._rests: list[State] = []
        self._next_rests: list[State] = []
        self._rests_of_totals: list[State] = []
        self._blocks: deque[tuple[list[State], State]] = deque()
        self._came: State = None
        self._whole: State = None  # of the blocks between the oldest and the newest
        self._new: list[State] = []
        self._new_total: State = None

    def total(self) -> State:
        """Return all states, merged; there is at least one."""
        total, merge = self._whole, self.merge
        if self._new:
            total = self._new_total if total is None else merge(total, self._new_total)
        if self._rests:
            total = self._rests[-1] if total is None else merge(self._rests[-1], total)
        return total

    def at_once(self, n: int) -> int:
        """Return how many merges an event takes at most when there are `n` states."""
        return min(n, self._size) + n // self._size + N_MERGES

    def push(self, state: State) -> None:
        """Add the newest state; if it cannot be merged, nothing changes."""
        if self._new:
            self._new_total = self.merge(self._new_total, state)
        else:
            if (total := self.total()) is not None:
                self.merge(total, state)
            self._new_total = state
        self._new.append(state)
        if len(self._new) == self._size:
            self._blocks.append((self._new, self._new_total))
            self._came = self._new_total if self._came is None else self.merge(self._came, self._new_total)
            self._new = []
            self._sum_up()

    def pop(self, n: int) -> None:
        """Remove the `n` oldest states."""
        if n == 1 and self._rests:
            self._rests.pop()
        else:
            self._pop_blocks(n)
        if self.spreads and self._blocks:  # one more rest of the next block
            states, rests = self._blocks[0][0], self._next_rests
            if not rests:
                rests.append(states[-1])
            elif len(rests) < len(states):
                rests.append(self.merge(states[-1 - len(rests)], rests[-1]))

    def _pop_blocks(self, n: int) -> None:
        """Remove the `n` oldest states; whole blocks leave without a merge of their states."""
        gone = min(n, len(self._rests))
        del self._rests[len(self._rests) - gone :]
        n -= gone
        while n:
            states, rests = self._oldest(), self._next_rests
            self._next_rests = []
            if n < len(states):
                self._rests = self._with_rests(states, rests)[: len(states) - n]
                return
            n -= len(states)

    def _oldest(self) -> list[State]:
        """Remove the oldest block, and return its states."""
        if not self._blocks:
            oldest, self._new = self._new, []
            return oldest
        if not self._rests_of_totals:
            totals = [total for _, total in self._blocks]
            self._rests_of_totals, self._came = self._with_rests(totals, []), None
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

    def _with_rests(self, states: list[State], rests: list[State]) -> list[State]:
        """Return each state merged with all behind it, the last one first; the first of these are known."""
        merge, rests = self.merge, rests or [states[-1]]
        rest = rests[-1]
        for state in reversed(states[: len(states) - len(rests)]):
            rest = merge(state, rest)
            rests.append(rest)
        return rests
