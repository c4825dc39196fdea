"""The order of recorded events: of several names by time and by set-backs of the clock; and which run made them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Boundary(NamedTuple):
    """A moment between records: the end of a group, or an event that a query joins.

    Attributes:
        wall_time: In seconds since the Unix epoch.
        ordinal: The number of the event; for the run's own ends of groups, of the next one.
        event: Its name, or "" for the run's own ends of groups.
        turn: How often the clock was set back before.
        observables: Those of a joined event; `None` if one of them is not recorded.
    """

    wall_time: float
    ordinal: int
    event: str
    turn: int
    observables: Mapping[str, Any] | None = None


class SetBacks:
    """Counts how often the clock was set back between times.

    Attributes:
        n: How often, so far.
        highest: The time before the last of these; -inf if there is none.
    """

    __slots__ = ("_last", "highest", "n")

    def __init__(self) -> None:
        self.n, self.highest = 0, float("-inf")
        self._last = float("-inf")

    def pass_to(self, wall_time: float) -> int:
        """Go on to a time; return how often the clock was set back until then."""
        if wall_time < self._last:
            self.n, self.highest = self.n + 1, self._last
        self._last = wall_time
        return self.n


class RunStarts:
    """Says of which run, restarted under its name, what is computed from recorded events is.

    A window is of the run of its last event.
    """

    def __init__(self) -> None:
        self._ahead: deque[tuple[int, str]] = deque()
        self._passed: deque[tuple[float, str]] = deque()
        self._last_s = -math.inf

    def add(self, starts: Iterable[tuple[int, str]]) -> None:
        """Add the numbers of the first events of runs, and the ids of these, before the events are passed."""
        self._ahead.extend(starts)

    def pass_to(self, ordinal: int, wall_time: float) -> None:
        """Go on to an event."""
        while self._ahead and self._ahead[0][0] <= ordinal:
            # After a clock was set back, times do not say which window ended before the restart.
            self._passed.append((wall_time if wall_time > self._last_s else -math.inf, self._ahead.popleft()[1]))
        self._last_s = wall_time

    def begun_by(self, wall_time: float) -> str:
        """Return the id of the run that a result with this time begins; empty if it is of the same run as the last."""
        found = ""
        while self._passed and self._passed[0][0] <= wall_time:
            found = self._passed.popleft()[1]
        return found


def first_is_before(boundaries: Sequence[Boundary], wall_time: float, turns: SetBacks) -> bool:
    """Return whether the first of some boundaries lies before a record of this time, as far as both show the clock."""
    boundary = boundaries[0]
    if boundary.turn > turns.n:
        return False
    if boundary.turn < turns.n and (
        boundary.wall_time <= turns.highest or (len(boundaries) > 1 and boundaries[1].turn > boundary.turn)
    ):
        return True
    return boundary.wall_time < wall_time
