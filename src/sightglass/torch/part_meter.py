"""What the parts of queries may take of an event: each at most the limit, and all of them together, by turns.

A part is computed tensor by tensor, while the program works in between. So its clock runs only while it is computed.
"""

from __future__ import annotations

import math
import time
from typing import Final

from sightglass.query.meter import MAX_BYTES, NEARLY, Meter
from sightglass.training.turns import PATIENCE

NEVER: Final = math.inf
FORGET: Final = 0.98  # for each event that a part waits: one that became cheap is found within some tens of events


class PartMeter(Meter):
    """The limit of one part between two events.

    Attributes:
        spent_s: The seconds of the program's threads that it took since the last event.
        wall_s: The seconds that passed meanwhile.
        copy_s: The price of what is done before it is computed.
        cost_s: What it usually takes: the smaller of the last two figures, since the first one may load a library.
        n_waited: How many events in a row it was not computed because others took the time.
    """

    __slots__ = ("_last_s", "_resumed_s", "copy_s", "cost_s", "n_waited", "spent_s", "wall_s")

    def __init__(self) -> None:
        super().__init__(max_bytes=MAX_BYTES, cpu_s=self._elapsed_s)
        self.spent_s = self.wall_s = self.cost_s = self.copy_s = self._last_s = 0.0
        self.n_waited = 0
        self._resumed_s = NEVER

    def _elapsed_s(self) -> float:
        if self._resumed_s == NEVER:
            return self.spent_s
        return self.spent_s + max(0.0, time.thread_time() - self._resumed_s)

    def resume(self, cpu_s: float) -> None:
        """Count the work of this thread, which has run for `cpu_s`."""
        self._resumed_s = cpu_s

    def pause(self, cpu_s: float, passed_s: float) -> None:
        """Stop to count; `passed_s` have passed since `resume`."""
        self.spent_s += cpu_s - self._resumed_s
        self.wall_s += passed_s
        self._resumed_s = NEVER

    def look(self, what: str) -> None:
        """Check the limit as `check` does, right after `resume`: the clock, which takes a microsecond, was read there.

        Raises:
            PriceError: The part has taken more than its limit.
        """
        if self.spent_s > NEARLY * self.limit_s:
            self.check(what)

    def restart(self) -> None:
        """Count for the next event."""
        if self.spent_s:
            self.cost_s, self._last_s = min(self.spent_s, self._last_s), self.spent_s
        self.spent_s = self.wall_s = 0.0
        self.begin()
        self.clock()


def fitting(meters: list[PartMeter], limit_s: float) -> list[bool]:
    """Return which parts are computed for the next event: the cheapest, and first those that have waited for long."""
    if sum(meter.cost_s for meter in meters) <= limit_s:
        return [True] * len(meters)
    fits = [False] * len(meters)
    for i in sorted(range(len(meters)), key=lambda i: (meters[i].n_waited < PATIENCE, meters[i].cost_s)):
        fits[i] = meters[i].limit_s == math.inf or meters[i].cost_s <= limit_s
        limit_s -= meters[i].cost_s if fits[i] else 0.0
        if fits[i]:
            meters[i].n_waited = 0
        else:
            meters[i].n_waited += 1
            meters[i].cost_s *= FORGET
    return fits
