"""Windows: what closes a reducer, and when.

Windows are aligned to the run, not to the moment of asking. What an event is counted by is its ordinal: the number of
the event in the run for the first reducer of a query, the number of the closed group for a reducer behind another.

Rule 1: `every=n` closes on ordinal n - 1 modulo n, whether or not that event passed the conditions before.
Rule 2: with `every` and `when` the closing event belongs to the group; an event after a time or a `per` boundary, or
after the run's own `end_group`, opens the next one.
Rule 3: the first group is complete only if it began with the run, or at a boundary of `every`; a group that missed an
event is not complete. What is open when the run ends is closed with `closed=False`.
Rule 4: a group without a value gives no record, but for `count`, which says 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .query import Every, Period, Window
from .reduce import Reducer


@dataclass(slots=True)
class Item:
    """A value on its way through a pipeline; the fields are those of a record."""

    ordinal: int
    step: float
    wall_time: float
    value: Any
    n_events: int = 1
    complete: bool = True
    closed: bool = True
    steps: Mapping[str, float] | None = None


class Fold:
    """A reducer with its window, and the group that is open."""

    __slots__ = (
        "_begun",
        "_complete",
        "_item",
        "_n_events",
        "_n_groups",
        "_period",
        "_state",
        "_values",
        "reducer",
        "window",
    )

    def __init__(self, reducer: Reducer, window: Window) -> None:
        self.reducer = reducer
        self.window = window
        self._begun = False
        self._period: int | None = None
        self._n_groups = 0
        self._item: Item | None = None
        self._complete = False
        self._open()

    def _open(self) -> None:
        self._state = self.reducer.start()
        self._values = 0
        self._n_events = 0

    def passes(self, wall_time: float) -> list[Item]:
        """Close the group if a time boundary lies between its last event and this time."""
        if not isinstance(self.window, Period):
            return []
        period = math.floor(wall_time / self.window.seconds)
        crossed = self._period is not None and period != self._period
        self._period = period
        return self.close() if crossed else []

    def offer(self, ordinal: int, item: Item | None) -> list[Item]:
        """Take an event in, `None` if a condition held it back; returns the closed group, if it closes one."""
        every = self.window.n if isinstance(self.window, Every) else 0
        if not self._begun:
            self._begun = True
            self._complete = ordinal % every == 0 if every else ordinal == 0
            self._n_groups = ordinal // every if every else 0
        if item is not None:
            self._state = self.reducer.step(self._state, item.value, ordinal)
            self._values += 1
            self._n_events += item.n_events
            self._complete &= item.complete
            self._item = item
        if every and ordinal % every == every - 1:
            return self.close(ordinal=ordinal // every)
        return []

    def miss(self) -> None:
        """Note that an event of the open group was skipped."""
        self._complete = False

    def close(self, *, closed: bool = True, ordinal: int | None = None) -> list[Item]:
        """Close the group and return it; nothing if it is empty."""
        number = self._n_groups if ordinal is None else ordinal
        self._n_groups = number + 1
        last, complete = self._item, self._complete and closed
        n_events, n_values, state = self._n_events, self._values, self._state
        self._open()
        self._complete = self._begun
        if last is None or (not n_values and self.reducer.name != "count"):
            return []
        value = self.reducer.finish(state)
        return [Item(number, last.step, last.wall_time, value, n_events, complete, closed, last.steps)]
