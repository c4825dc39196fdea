"""Time as a value: the one place that reads clocks, and durations as text."""

from __future__ import annotations

import re
import time
from typing import Protocol

UNITS_S = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
           "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}  # fmt: skip
SHORTEST_S = 0.001


class Clock(Protocol):
    """Where the time comes from; tests pass one they move by hand."""

    def wall(self) -> float:
        """Return the seconds since the Unix epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""


class SystemClock:
    """The machine's own clocks."""

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.perf_counter)


def duration(text: str) -> float:
    """Read a duration such as '5 min', '30 s' or '500 ms' as seconds.

    >>> duration("5 min"), duration("1.5h"), duration("500 ms")
    (300.0, 5400.0, 0.5)

    Raises:
        ValueError: The text is no duration, or one under a millisecond.
    """
    match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,12})?)\s*([a-z]+)\s*", text)
    if match:
        unit = match[2] if match[2] in UNITS_S else match[2].removesuffix("s")
        if unit in UNITS_S and (seconds := float(match[1]) * UNITS_S[unit]) >= SHORTEST_S:
            return seconds
    raise ValueError(f"Expected a duration such as '5 min', '30 s', '500 ms' or '2 h', got {text!r:.100}")
