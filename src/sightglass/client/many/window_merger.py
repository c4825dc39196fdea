"""Merge the windows of several runs that answer one query: pure, on the times that it is given.

Each run is a member, and sends the states of its windows in the order of their keys (`query.states`). A window comes
out when nobody who is waited for can still add to it:

Rule 1: Windows come out in the order of their keys, each once.
Rule 2: A member that has sent a later window has nothing more for the ones before.
Rule 3: A window waits `hold_s` for members that are late, from its first state on. Members that left are not awaited.
Rule 4: Members that are not in a window are named in `missing`, and it is not complete, unless their runs had ended.
Rule 5: What comes for a window that is out already is dropped, and counted in `n_late`.
Rule 6: A member that was restarted numbers its windows from the beginning. They wait until the others are restarted,
    too; after `hold_s` they are dropped, and counted in `n_late`. Otherwise those of the others would be late.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar

import numpy as np

from sightglass.core.errors import SightglassError
from sightglass.query.reduce.reducer import Reducer, State, held_bytes

Member = TypeVar("Member", int, str)

# A rank that compiles, or writes a checkpoint, is late by seconds; a picture that stands still for longer looks broken.
HOLD_S: Final = 10.0
MAX_HELD_BYTES: Final = 256 * 2**20  # of the states that wait: 64 members may be late with 4 MB each


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberWindow:
    """A window of one member: its state, and what its record says.

    Attributes:
        state: The state; merging may change it.
        n_values: How many values are in it.
    """

    state: State
    n_values: int = 1
    step: float = 0.0
    wall_time: float = 0.0
    n_events: int = 1
    complete: bool = True
    closed: bool = True
    steps: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedWindow(Generic[Member]):
    """A window of all members: the fields of a record, and who is missing.

    Attributes:
        missing: The members whose values it lacks.
        approximate: Whether its value is of a sketch.
    """

    value: Any
    step: float
    wall_time: float
    n_events: int
    complete: bool
    closed: bool
    steps: Mapping[str, float]
    missing: tuple[Member, ...] = ()
    approximate: bool = False


@dataclass(slots=True)
class _Member:
    """What is known of a member.

    Attributes:
        reached: The last window that it sent.
        generation: How many restarts it has taken part in.
        awaited: Whether windows wait for it.
        ended: Whether its run ended, so that nothing is missing after its last window.
    """

    reached: tuple[float, float] = (0, -math.inf)
    generation: int = 0
    awaited: bool = True
    ended: bool = False


@dataclass(slots=True)
class _Waiting(Generic[Member]):
    since_s: float
    n_bytes: int = 0
    parts: dict[Member, MemberWindow] = field(default_factory=dict)


class WindowMerger(Generic[Member]):
    """The windows of several members, one by one as they are certain.

    Attributes:
        n_late: How many states came too late for their window.
        n_errors: How many windows could not be merged.
        last_error: Why the last of them could not; empty if all could.
    """

    def __init__(
        self, reducer: Reducer, members: Iterable[Member], *, hold_s: float = HOLD_S, each: bool = False
    ) -> None:
        """Begin before the first window.

        Args:
            reducer: The reducer, whose states merge.
            members: Those to wait for.
            hold_s: How long a window waits for those who are late.
            each: Whether values are mappings of the members to their own results.
        """
        self._reducer = reducer
        self._members: dict[Member, _Member] = {member: _Member() for member in members}
        self._hold_s = hold_s
        self._each = each
        self._counts = reducer.name == "count"  # a window without a value has a result: 0
        self._waiting: dict[tuple[int, int], _Waiting[Member]] = {}
        self._order: list[tuple[int, int]] = []  # a heap of their keys
        self._out: tuple[float, float] = (0, -math.inf)
        self._n_bytes = 0
        self.n_late = self.n_errors = 0
        self.last_error = ""

    @property
    def n_waiting(self) -> int:
        """How many windows wait for members that are late."""
        return len(self._waiting)

    @property
    def awaited(self) -> list[Member]:
        """The members that the oldest window waits for."""
        return self._lacks(self._order[0]) if self._order and not self._is_ahead(self._order[0]) else []

    @property
    def restarted(self) -> list[Member]:
        """The members that were restarted while others go on: their windows match no others."""
        return [name for name, one in self._members.items() if one.awaited and self._is_ahead((one.generation, 0))]

    def join(self, member: Member) -> None:
        """Wait for a member from now on, a new one or one that left."""
        newest = max((one.generation for one in self._members.values()), default=0)
        known = self._members.setdefault(member, _Member(generation=newest))
        known.awaited, known.ended = True, False

    def restart(self, member: Member) -> None:
        """Number the windows of a member from the beginning: its run was restarted, and others follow it."""
        one = self._members[member]
        newest = max(other.generation for other in self._members.values())
        one.generation = newest if one.generation < newest else newest + 1

    def leave(self, member: Member, now_s: float, *, ended: bool = False) -> list[MergedWindow[Member]]:
        """Wait no longer for a member; `ended` if its run came to its end. Returns the windows that come out."""
        one = self._members[member]
        one.awaited, one.ended = False, ended
        return self.take(now_s)

    def push(self, member: Member, key: int, window: MemberWindow, now_s: float) -> list[MergedWindow[Member]]:
        """Add a window of a member, and return the windows that come out."""
        one = self._members[member]
        at = one.generation, key
        one.reached = max(one.reached, at)
        if at <= self._out:
            self.n_late += 1
            return self.take(now_s)
        if at not in self._waiting:
            self._waiting[at] = _Waiting(now_s)
            heapq.heappush(self._order, at)
        waiting, n_bytes = self._waiting[at], held_bytes(window.state)
        waiting.n_bytes += n_bytes
        self._n_bytes += n_bytes
        if member in waiting.parts:  # a time span comes twice where a clock was set back
            first = waiting.parts[member]
            with np.errstate(all="ignore"):
                state = self._merged([first.state, window.state])
            window = replace(
                window, state=state, n_values=first.n_values + window.n_values,
                n_events=first.n_events + window.n_events, complete=first.complete and window.complete,
            )  # fmt: skip
        waiting.parts[member] = window
        return self.take(now_s)

    def take(self, now_s: float) -> list[MergedWindow[Member]]:
        """Return the windows that come out by now."""
        made = []
        while self._order:
            at = self._order[0]
            waits = now_s - self._waiting[at].since_s < self._hold_s and self._n_bytes <= MAX_HELD_BYTES
            if waits and self._lacks(at):
                break
            if self._is_ahead(at):
                self.n_late += len(self._take_oldest().parts)
            else:
                made += self._pop()
        return made

    def finish(self) -> list[MergedWindow[Member]]:
        """Return all windows that wait."""
        made = []
        while self._order:
            made += self._pop()
        return made

    def _lacks(self, at: tuple[int, int]) -> list[Member]:
        """Return who may still add to a window."""
        return [name for name, one in self._members.items() if one.awaited and one.reached < at]

    def _is_ahead(self, at: tuple[int, int]) -> bool:
        """Return whether a window is of members that were restarted while others, who are waited for, were not."""
        return any(one.awaited and one.generation < at[0] for one in self._members.values())

    def _take_oldest(self) -> _Waiting[Member]:
        waiting: _Waiting[Member] = self._waiting.pop(heapq.heappop(self._order))
        self._n_bytes -= waiting.n_bytes
        return waiting

    def _pop(self) -> list[MergedWindow[Member]]:
        """Return the oldest window; none if no member had a value in it, or if it cannot be merged."""
        at = self._out = self._order[0]
        waiting: _Waiting[Member] = self._take_oldest()
        missing = [
            name
            for name, one in self._members.items()
            if name not in waiting.parts and not (one.ended and one.generation == at[0] and one.reached < at)
        ]
        parts = [*waiting.parts.values()]
        having = {name: one for name, one in sorted(waiting.parts.items()) if one.n_values or self._counts}
        if not having:
            return []
        try:
            with np.errstate(all="ignore"):  # as where values are reduced: NaN and infinities are results
                value, approximate = self._value(having)
        except SightglassError as error:  # such as arrays of two shapes
            self.n_errors, self.last_error = self.n_errors + 1, str(error)
            return []
        last = max(having.values(), key=lambda one: (one.step == one.step, one.step))
        return [
            MergedWindow(
                value=value, step=last.step, wall_time=max(one.wall_time for one in having.values()), steps=last.steps,
                n_events=sum(part.n_events for part in parts), closed=all(part.closed for part in parts),
                complete=all(part.complete for part in parts) and not missing, missing=tuple(sorted(missing)),
                approximate=approximate,
            )
        ]  # fmt: skip

    def _value(self, parts: Mapping[Member, MemberWindow]) -> tuple[Any, bool]:
        """Return the result over members, in their order, on which sums of floats depend; and if it is approximate."""
        reducer = self._reducer
        states: dict[Member, State] = {name: part.state for name, part in parts.items()}
        if self._each:
            approximate = any(map(reducer.is_approximate, states.values()))
            return {name: reducer.finish(state) for name, state in states.items()}, approximate
        state = self._merged([*states.values()])
        return reducer.finish(state), reducer.is_approximate(state)

    def _merged(self, states: list[State]) -> State:
        assert self._reducer.merge is not None
        return functools.reduce(self._reducer.merge, states)
