"""The order of recorded events of several names: by time, and by how often the clock was set back until then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
