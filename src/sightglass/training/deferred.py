"""Deferred evaluation: threads that wait for devices, so that the training thread never does.

Work is put into lanes, each with a thread of its own that starts with the first work. Within a lane, work settles in
the order in which it came, which is the order of the events.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Final

from sightglass.core.threads import Background

from .lock import TurnLock

# An idle lane sleeps this long before it waits for work, so that a burst of events mostly meets a sleeping thread:
# waking a waiting one costs the training thread a system call per event. Nobody notices a delay of milliseconds here.
DRAIN_REST_S: Final = 0.003
JOIN_S: Final = 1.0  # at the end of a run: a lane that still waits for a device is left to its daemon thread

Wait = Callable[[], None]
Settle = Callable[[BaseException | None], None]
_Work = tuple[Wait | None, Settle]


class DeferredWork:
    """The work of a run that waits for devices, or that happens while a compiled step still runs."""

    def __init__(self, lock: TurnLock, *, wake: Callable[[], None]) -> None:
        """Start without threads; `wake` is called after each piece of work, when there may be new records."""
        self._lock = lock
        self._wake = wake
        self._lanes: dict[str, _Lane] = {}

    def defer(self, wait: Wait | None, settle: Settle) -> None:
        """Call `wait` on the drain thread without the lock, then `settle` under the lock with the error of `wait`."""
        self._lane("drain").put((wait, settle))

    def defer_loop(self, settle: Settle) -> None:
        """Call `settle` under the lock, on a thread that never waits for a device.

        Events in the loops of a compiled step arrive here while the step still runs.
        """
        self._lane("loops").put((None, settle))

    def flush(self, timeout_s: float) -> None:
        """Wait until all work that was deferred so far is settled."""
        for lane in list(self._lanes.values()):
            lane.flush(timeout_s)

    def close(self) -> None:
        """End the threads after the work that was deferred so far."""
        for lane in self._lanes.values():
            lane.close()

    def abandon(self) -> None:
        """Forget the threads in a forked child, where they do not exist."""
        self._lanes = {}

    def _lane(self, name: str) -> _Lane:
        lane = self._lanes.get(name)
        if lane is None:
            lane = self._lanes[name] = _Lane(name, self._lock, self._wake)
        return lane


class _Lane:
    """A queue of work and the thread that settles it in order."""

    def __init__(self, name: str, lock: TurnLock, wake: Callable[[], None]) -> None:
        self._queue: queue.SimpleQueue[_Work | threading.Event | None] = queue.SimpleQueue()
        self._lock = lock
        self._wake = wake
        self._thread = Background(name, self._run)

    def put(self, work: _Work) -> None:
        self._queue.put(work)

    def flush(self, timeout_s: float) -> None:
        reached = threading.Event()
        self._queue.put(reached)
        reached.wait(timeout_s)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(JOIN_S)

    def _next(self) -> _Work | threading.Event | None:
        if self._queue.empty():
            time.sleep(DRAIN_REST_S)
        return self._queue.get()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            wait, settle = item
            failure: BaseException | None = None
            try:
                if wait is not None:
                    wait()
            except (Exception, SystemExit) as error:  # noqa: BLE001  e.g. a donated buffer; it costs only its own event
                failure = error
            with self._lock.turn():
                settle(failure)
            self._wake()
