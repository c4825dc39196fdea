"""Whether a run is still there: by its lock on this machine, by its silence elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, Literal

# How late the death of the run's process may be noticed, and how long what it sent before may take to arrive.
POLL_S: Final = 0.5
# A run on another machine counts as lost after five pings without a word: a congested network recovers within that.
SILENCE_S: Final = 15.0
# Much longer than `POLL_S`: a client that was held up so long first reads what the run sent meanwhile.
LATE_S: Final = 4 * POLL_S

Presence = Literal["there", "ended", "died", "silent"]


class PresenceCheck:
    """Decides whether a run has gone, from the times at which it was heard."""

    def __init__(self, alive: Callable[[], bool] | None, closed: Callable[[], bool]) -> None:
        """Begin before the first word of the run.

        Args:
            alive: Returns whether the run's process lives; `None` if that cannot be known, as on another machine.
            closed: Returns whether the run was closed, once its process does not live.
        """
        self._alive = alive
        self._closed = closed
        self._asked_s = self._checked_s = self._heard_s = -math.inf
        self._dead_s = math.inf

    def __call__(self, now_s: float, *, heard: bool) -> Presence:
        """Return whether the run is there; `heard` is whether it sent anything since the last call."""
        if heard or now_s - self._asked_s > LATE_S:
            self._heard_s, self._dead_s = now_s, math.inf
        self._asked_s = now_s
        if self._alive is None:
            return "silent" if now_s - self._heard_s > SILENCE_S else "there"
        if now_s - self._dead_s >= POLL_S:  # all that it sent has been read
            return "ended" if self._closed() else "died"
        if self._dead_s == math.inf and not heard and now_s - self._checked_s >= POLL_S:
            self._checked_s = now_s
            if not self._alive():
                self._dead_s = now_s
        return "there"
