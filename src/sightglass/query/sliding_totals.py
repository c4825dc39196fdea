"""What the values of a sliding window come to, in a few operations for each value that comes or goes.

Nothing is subtracted: a value that leaves, such as an infinity, leaves nothing behind.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from itertools import accumulate
from typing import Final

from .reduction import State

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
