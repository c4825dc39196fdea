"""Renderers in the training's own process: in a thread, and at once.

Both are for what cannot travel to a child, and for tests. Matplotlib's settings are the process's own, not a thread's:
while a figure is drawn here, the theme is everybody's, and afterwards all is as before.

The thread is no daemon, so that the interpreter waits for it at its exit. It ends when there is nothing left to draw,
and a new one is started when there is.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from sightglass.core.codec import decode

from .child_process import Finished
from .closures import load
from .drawing import Drawer
from .messages import DrawFinished, trouble

_drawing: Final = threading.RLock()
"""Held while something is drawn in this process: Matplotlib is not made for several threads."""


class InlineRenderer:
    """Draws at once, on the thread that orders."""

    def __init__(self, finished: Finished) -> None:
        """Begin; `finished` is called with each job and its results."""
        self._finished = finished
        self._drawer = Drawer(alone=True)

    def put(self, job: Any) -> None:
        """Draw a job."""
        with _drawing:
            done, pictures = draw(job, self._drawer)
        self._finished(job, done, pictures)

    def check(self) -> None:
        """Do nothing: nobody can wait for it."""

    def close(self, timeout_s: float) -> bool:
        """Do nothing: everything is drawn."""
        return True

    def abandon(self) -> None:
        """Do nothing."""


class ThreadRenderer:
    """Draws in a thread."""

    def __init__(self, finished: Finished) -> None:
        """Begin without a thread; `finished` is called on it, once for each job, with its results."""
        self._finished = finished
        self._drawer = Drawer(alone=False)
        self._lock = threading.RLock()
        self._jobs: deque[Any] = deque()
        self._thread: threading.Thread | None = None

    def put(self, job: Any) -> None:
        """Let a job be drawn, behind those that were put before; never waits."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="sightglass-figures")
            try:
                self._thread.start()
                return
            except RuntimeError:  # the interpreter is ending
                self._thread = None
        self._run()

    def check(self) -> None:
        """Do nothing: a thread cannot be ended."""

    def close(self, timeout_s: float) -> bool:
        """Wait until everything is drawn, and say whether it is."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
            return not thread.is_alive()
        return True

    def abandon(self) -> None:
        """Forget everything, in a forked child."""
        self._jobs = deque()
        self._thread = None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            with _drawing:
                done, pictures = draw(job, self._drawer)
            self._finished(job, done, pictures)


def draw(job: Any, drawer: Drawer) -> tuple[DrawFinished, dict[str, bytes]]:
    """Draw a job in this process; nothing that goes wrong passes through."""
    started_s = time.perf_counter()
    order, snapshot = job.order, job.snapshot
    function: Callable[[], Any] = lambda: job.function or load(order.function)  # noqa: E731  a choice, not a name
    try:
        drawing = drawer.draw(order, function, lambda: decode(order.blob, snapshot.buffers()))
    except Exception as error:  # noqa: BLE001  it costs this order only
        return DrawFinished(id=order.id, troubles=[trouble(order.name, error)]), {}
    done, _ = drawing.done(order, time.perf_counter() - started_s)
    return done, drawing.pictures
