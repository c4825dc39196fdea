"""A bar on a terminal for work that takes long; it disappears when the work is done."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from sightglass.core.process.clock import Clock, SystemClock
from sightglass.core.process.unpatched import threading

# Work that is done by then needs no bar.
SHOWN_AFTER_S: Final = 1.0
# Ten pictures a second look smooth; a thousand would slow the work down.
REDRAW_S: Final = 0.1


class TaskProgress:
    """Shows how many of some tasks are done, from a second after the beginning; `advance` may come from any thread."""

    def __init__(self, what: str, n: int, *, console: Console | None = None, clock: Clock | None = None) -> None:
        """Begin.

        Args:
            what: What is done, such as "Reading runs".
            n: How many tasks there are.
            console: Where to draw; by default on the standard error output.
            clock: The time.
        """
        self._clock = clock or SystemClock()
        self._bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
            console=console or Console(stderr=True), transient=True, auto_refresh=False,
        )  # fmt: skip
        self._task = self._bar.add_task(what, total=n)
        self._drawn_s = self._clock.monotonic() + SHOWN_AFTER_S - REDRAW_S
        self._lock = threading.Lock()
        self._shown = False

    def advance(self) -> None:
        """Count a task as done."""
        with self._lock:
            self._bar.advance(self._task)
            now_s = self._clock.monotonic()
            if now_s - self._drawn_s >= REDRAW_S:
                self._drawn_s = now_s
                if not self._shown:
                    self._shown = True
                    self._bar.start()
                self._bar.refresh()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            if self._shown:
                self._bar.stop()
            self._drawn_s = float("inf")
