"""Time as a value: the one place that reads clocks, and durations as text."""

from __future__ import annotations

import os
import re
import time
from typing import Final, Protocol

UNITS_S = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0,
           "h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}  # fmt: skip
LONGEST_S = 1e18  # in seconds, as queries are printed, it has at most the digits that are read
SHORTEST_S = 0.001  # time windows are checked at events, which are rarely closer
# How often the machine's clock is read: reading it at each event would cost as much as a small query.
CLOCK_S: Final = 0.05
MAX_LINE_BYTES: Final = 128  # of three numbers
CLOCK_NOISE_S: Final = 0.001  # two readings may differ by this much because the thread was descheduled in between


class Clock(Protocol):
    """A source of time; tests pass one that they move by hand."""

    def wall(self) -> float:
        """Return the seconds since the Unix epoch."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary start."""


class WorkClock(Clock, Protocol):
    """A clock that tells the work of a thread from its waiting for a processor."""

    def cpu(self) -> float:
        """Return for how many seconds the calling thread has run."""

    def queued(self) -> float:
        """Return for how many seconds the calling thread could have run but had no processor."""

    def ran(self, thread: int) -> float | None:
        """Return for how many seconds a thread of this process has run; `None` where the system does not say."""


class SystemClock:
    """The machine's own clocks."""

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.perf_counter)
    cpu = staticmethod(time.thread_time)

    @staticmethod
    def queued(process: int | str = "thread-self") -> float:
        """Return for how many seconds a thread waited for a processor; 0.0 where the system does not say.

        Args:
            process: The process whose first thread it is; by default, the calling thread.
        """
        times_s = _scheduled(process)
        return times_s[1] if times_s else 0.0

    @staticmethod
    def ran(thread: int) -> float | None:
        """Return for how many seconds a thread has run, by the system's number for it."""
        times_s = _scheduled(f"self/task/{thread}")
        return times_s[0] if times_s else None


def _scheduled(process: int | str) -> tuple[float, float] | None:
    """Return for how many seconds a thread has run, and waited for a processor; `None` if the system does not say."""
    try:
        file = os.open(f"/proc/{process}/schedstat", os.O_RDONLY)  # a third of what `open` takes
        try:
            ran, queued, *_ = os.read(file, MAX_LINE_BYTES).split()
            return int(ran) / 1e9, int(queued) / 1e9
        finally:
            os.close(file)
    except (OSError, ValueError):
        return None


class EventClock:
    """Wall times for events: they follow a monotonic clock, so they have the order of the events.

    The machine's clock is read every `CLOCK_S`. If it was set by more than `CLOCK_NOISE_S`, wall times follow it.

    Attributes:
        monotonic: The monotonic clock, in seconds.
        cpu: For how many seconds the calling thread has run.
        offset_s: The wall time minus the monotonic time.
        read_s: When the machine's clock was last read, in monotonic time.
    """

    __slots__ = ("_wall", "cpu", "monotonic", "offset_s", "read_s")

    def __init__(self, clock: WorkClock) -> None:
        self.monotonic = clock.monotonic
        self.cpu = clock.cpu
        self._wall = clock.wall
        self.offset_s = clock.wall() - clock.monotonic()
        self.read_s = clock.monotonic()

    def wall(self, now_s: float) -> float:
        """Return the wall time at a monotonic time, in seconds since the Unix epoch."""
        if now_s - self.read_s >= CLOCK_S:
            before_s, wall_s, self.read_s = self.monotonic(), self._wall(), self.monotonic()
            offset_s = wall_s - before_s
            settled = self.read_s - before_s < CLOCK_NOISE_S
            if settled and abs(offset_s - self.offset_s) > CLOCK_NOISE_S:
                self.offset_s = offset_s
        return now_s + self.offset_s

    def wall_now(self) -> float:
        """Return the wall time now, in step with that of the events, without reading the machine's clock."""
        return self.monotonic() + self.offset_s


def elapsed(seconds: float) -> str:
    """Return a duration as text, such as "01:30:00" or "2 d 01:30:00"."""
    days, rest = divmod(int(max(0.0, seconds)), 86_400)
    return f"{f'{days} d ' if days else ''}{time.strftime('%H:%M:%S', time.gmtime(rest))}"


def spoken(seconds: float) -> str:
    """Return a duration as people say it, in at most two units.

    >>> [spoken(seconds) for seconds in (0.25, 12, 180, 7_500, 93_600)]
    ['0.25 s', '12 s', '3 min', '2 h 5 min', '1 d 2 h']
    """
    whole = max(0.0, seconds)
    if whole < 10:
        return f"{whole:.2g} s"
    if whole < 59.5:
        return f"{whole:.0f} s"
    minutes = round(whole / 60)
    for n, unit, inner in ((1_440, "d", 60), (60, "h", 1)):
        if minutes >= n:
            rest = minutes % n // inner
            return f"{minutes // n} {unit}" + (f" {rest} {'h' if unit == 'd' else 'min'}" if rest else "")
    return f"{minutes} min"


def duration(text: str) -> float:
    """Read a duration such as '5 min', '30 s' or '500 ms' as seconds.

    >>> duration("5 min"), duration("1.5h"), duration("500 ms")
    (300.0, 5400.0, 0.5)

    Raises:
        ValueError: `text` is not a duration, is below a millisecond, or is longer than 30 billion years.
    """
    match = re.fullmatch(r"\s*([0-9]{1,18}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})\s*([a-z]+)\s*", text)
    if match:
        unit = match[2] if match[2] in UNITS_S else match[2].removesuffix("s")
        if unit in UNITS_S and SHORTEST_S <= (seconds := float(match[1]) * UNITS_S[unit]) < LONGEST_S:
            return seconds
    raise ValueError(f"Expected a duration such as '5 min', '30 s', '500 ms' or '2 h', got {text!r:.100}")
