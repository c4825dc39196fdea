"""The one thread that pulls the streams of all views in notebooks, and sends pages the new records."""

from __future__ import annotations

import time
from typing import Final, Protocol

from sightglass.core.failures import Failures
from sightglass.core.threads import UNTIL_WOKEN, Worker
from sightglass.core.unpatched import threading

from .open_pages import PACE_S

IDLE_S: Final = 1.0
"""How often to pull a view that no page shows, so that a page that opens has little to wait for."""


class Pullable(Protocol):
    """A view that the thread serves."""

    def turn(self, now_s: float) -> float | None:
        """Pull and send; return after how many seconds to call again, or `None` for only when woken."""


class Puller:
    """Serves any number of views, in turn, with one thread that sleeps while there is nothing to do.

    Attributes:
        failures: The turns that failed; the view gets its next turn a second later.
    """

    def __init__(self) -> None:
        self.failures = Failures("Views in notebooks")
        self._views: tuple[Pullable, ...] = ()
        self._due: dict[int, float] = {}
        self._lock = threading.Lock()
        self._worker = Worker("notebook", self.round)

    def add(self, view: Pullable) -> None:
        """Serve a view from now on, starting at once."""
        with self._lock:
            if not any(one is view for one in self._views):
                self._views = (*self._views, view)
        self.wake(view)

    def wake(self, view: Pullable) -> None:
        """Serve a view at once. May be called from any thread."""
        self._due[id(view)] = 0.0
        self._worker.wake()

    def round(self, now_s: float) -> float:
        """Serve the views that are due."""
        now_s = time.monotonic()  # the clock that views use
        for view in self._views:
            if self._due.get(id(view), float("inf")) > now_s:
                continue
            self._due[id(view)] = float("inf")  # before its turn, so that a `wake` during the turn counts
            try:
                pause_s = view.turn(now_s)
            except (Exception, SystemExit) as error:  # noqa: BLE001  it must not stop the other views
                self.failures.add(error, "one is not updated, and tried again")
                pause_s = IDLE_S
            if pause_s is not None:
                self._due[id(view)] = min(self._due[id(view)], now_s + pause_s)
        with self._lock:
            next_s = min((self._due.get(id(view), float("inf")) for view in self._views), default=float("inf"))
        return UNTIL_WOKEN if next_s == float("inf") else min(max(next_s - time.monotonic(), PACE_S / 10), IDLE_S)


puller = Puller()
