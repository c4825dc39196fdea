"""Deferred evaluation: loops that wait for devices, so that the training thread never does.

Work is put into lanes, each with a loop of its own that starts with the first work. Within a lane, work settles in
the order in which it came, which is the order of the events.

A step of an event may be on a device, too: `host_step` reads it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError
from sightglass.core.process.threads import UNTIL_WOKEN, Worker
from sightglass.core.program_values.guarded import exact
from sightglass.core.values import to_host, type_name
from sightglass.training.evaluation.lock import TurnLock

# A lane rests this long before it waits for work, so that a burst of events mostly meets a thread that needs no
# wake-up: waking a waiting one costs the training thread a system call per event. A delay of milliseconds is no loss.
DRAIN_REST_S: Final = 0.003
JOIN_S: Final = 1.0  # at the end of a run: a lane that still waits for a device is left to its daemon thread

Wait = Callable[[], None]
Settle = Callable[[BaseException | None], None]
Defer = Callable[[Wait | None, Settle], None]
"""Takes (wait, settle): calls `wait` without the lock, then `settle` under it, with the error of `wait`; in order."""
_Work = tuple[Wait | None, Settle]


class DeferredWork:
    """The work of a run that waits for devices, or that happens while a compiled step still runs."""

    def __init__(self, lock: TurnLock, *, wake: Callable[[], None], worker: type[Worker] = Worker) -> None:
        """Start without threads; `wake` is called after each piece of work, when there may be new records."""
        self._worker = worker
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

    def defer_aside(self, wait: Wait | None, settle: Settle) -> None:
        """Call `wait` on a thread of its own, then `settle` under the lock: work that takes long."""
        self._lane("aside").put((wait, settle))

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
            lane = self._lanes[name] = _Lane(name, self._lock, self._wake, self._worker)
        return lane


class _Lane:
    """A queue of work and the loop that settles it in order."""

    def __init__(self, name: str, lock: TurnLock, wake: Callable[[], None], worker: type[Worker]) -> None:
        self._work: deque[_Work] = deque()
        self._lock = lock
        self._wake = wake
        self._asleep = True
        self._closing = False
        self._worker = worker(name, self.round)

    def put(self, work: _Work) -> None:
        self._work.append(work)
        if self._asleep:
            self._asleep = False
            self._worker.wake()
            if self._worker.starved:
                self._asleep = True  # the next work tries again

    def flush(self, timeout_s: float) -> None:
        self._worker.flush(timeout_s)

    def close(self) -> None:
        self._closing = True
        self._worker.close(JOIN_S)

    def round(self, now_s: float) -> float | None:
        if self._work:
            for _ in range(len(self._work)):
                self._settle(*self._work.popleft())
            return 0.0 if self._work else DRAIN_REST_S
        if self._closing:
            return None
        self._asleep = True  # before the last look at the queue: what is put later wakes the loop
        return 0.0 if self._work else UNTIL_WOKEN

    def _settle(self, wait: Wait | None, settle: Settle) -> None:
        failure: BaseException | None = None
        try:
            if wait is not None:
                wait()
        except (Exception, SystemExit) as error:  # noqa: BLE001  e.g. a donated buffer; it costs only its own event
            failure = error
        with self._lock.turn():
            settle(failure)
        self._wake()


# Steps of events: numbers, which may be on a device until somebody needs them.

NUMBERS: Final = (int, float, np.integer, np.floating)

Tracks = Mapping[str, Any] | None
"""Further steps of an event, by name; numbers that may be on a device."""


def host_step(step: object) -> float:
    """Return a step as a number on the host; wait for the device if need be.

    Raises:
        EvaluationError: `step` is not a number.
    """
    number = to_host(step)
    if not isinstance(number, NUMBERS):
        raise EvaluationError(f"Expected a number as step, got {type_name(number)}")
    return exact(number)  # type: ignore[no-any-return]


def host_steps(steps: Tracks) -> Mapping[str, float] | None:
    """Return further steps as numbers on the host, as `host_step`."""
    return steps and {name: host_step(value) for name, value in steps.items()}
