"""A simulated world: one clock, one queue of what happens next, and one random source for every choice.

What happens is an action at a time. Actions run one after the other, so a seed gives one history. An action may wait
(`sleep`, `Flag.wait`) as a program on a thread does: its thread parks, and another one continues with the queue, so at
every moment one thread runs. This is how the training is a plain program, with a stack and locks of its own.

A `Process` runs loops and programs in the world, and can be frozen and killed. Its `Worker` has the methods of
`core.threads.Worker` and runs the same supervised rounds; only the threads are simulated.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
import threading
from collections.abc import Callable
from functools import partial

from sightglass.core.process.threads import BREATH_S, Background, Supervised

START_S = 1_000.0  # monotonic clocks start anywhere, and code that takes 0 for "never" must not go unnoticed
WALL_S = 1_700_000_000.0

Action = Callable[[], None]


class Killed(BaseException):
    """Unwinds the program of a process that was killed, or of a world that is over."""


class World:
    """A simulated world, and its clock (`core.clock.Clock`).

    Attributes:
        seed: What all choices follow from.
        now_s: The monotonic time.
        random: Makes every choice.
        trace: What happened: the time, and a text.
        violations: The laws that were broken, each with what was seen.
        unplanned: An exception of the simulation itself.
        tick_s: How long a computation takes.
        in_round: Whether what happens now is a round of a loop.
    """

    def __init__(self, seed: int) -> None:
        """Begin with nothing to happen."""
        self.seed = seed
        self.now_s = START_S
        self.random = random.Random(seed)
        self.trace: list[tuple[float, str]] = []
        self.violations: list[str] = []
        self.unplanned: BaseException | None = None
        self.tick_s = 1e-6
        self.in_round = False
        self._queue: list[tuple[float, float, int, Action]] = []
        self._numbers = itertools.count()
        self._until_s = math.inf
        self._ended = False
        self._worked_s = 0.0
        self._resumed: threading.Lock | None = None
        self._parked: dict[int, threading.Lock] = {}
        self._spare: list[threading.Lock] = []
        self._over = threading.Lock()

    def monotonic(self) -> float:
        """Return the monotonic time in seconds; what is done between two readings takes `tick_s`."""
        self.now_s += self.tick_s
        self._worked_s += self.tick_s
        return self.now_s

    def cpu(self) -> float:
        """Return the processor time of the thread in seconds: as many ticks as clocks were read."""
        self.monotonic()
        return self._worked_s

    def queued(self) -> float:
        """Return how long the thread waited for a processor."""
        return 0.0

    def ran(self, thread: int) -> float | None:
        return None

    def wall(self) -> float:
        """Return the wall time in seconds since the Unix epoch."""
        return self.now_s - START_S + WALL_S

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append((self.now_s, text))

    def require(self, law: str, holds: object, seen: str = "") -> None:
        """Note a violation of a law unless it holds."""
        if not holds:
            self.violations.append(f"{law}: {seen}" if seen else law)
            self.note(f"VIOLATION  {self.violations[-1]}")

    def at(self, delay_s: float, action: Action) -> None:
        """Let something happen after a delay; what happens at the same time has a random order."""
        entry = (self.now_s + delay_s, self.random.random(), next(self._numbers), action)
        heapq.heappush(self._queue, entry)

    def spend(self, duration_s: float) -> None:
        """Let time pass while everybody else waits, as one long computation does."""
        self.now_s += duration_s

    def sleep(self, duration_s: float, until: Flag | None = None) -> None:
        """Let others run for a time, or until a flag is set; from within an action.

        Raises:
            Killed: The world is over.
        """
        if self._ended:
            raise Killed
        baton = threading.Lock()
        baton.acquire()
        key = next(self._numbers)
        self._parked[key] = baton
        resume = partial(self._resume, key)
        if duration_s < math.inf:
            self.at(duration_s, resume)
        if until is not None:
            until.waiting.append(resume)
        in_round, self.in_round = self.in_round, False
        self._start_another()
        baton.acquire()
        self.in_round = in_round
        if self._ended:
            raise Killed

    def run(self, duration_s: float) -> None:
        """Let things happen for a time, or until `end`; what sleeps then is unwound."""
        self._until_s = self.now_s + duration_s
        self._over.acquire()
        self._start_another()
        self._over.acquire()
        if self.unplanned is not None:
            raise self.unplanned

    def end(self, delay_s: float) -> None:
        """Let the world be over after a delay."""
        self._until_s = min(self._until_s, self.now_s + delay_s)

    # One thread has the baton, and runs `_work`. The others are parked in `sleep`, or spare.

    def _start_another(self) -> None:
        if self._spare:
            self._spare.pop().release()
        else:
            Background("simulation", self._work)

    def _work(self) -> None:
        mine = threading.Lock()
        mine.acquire()
        while True:
            baton = self._next_baton()
            if baton is None:
                self._over.release()
                for spare in self._spare:
                    spare.release()
                return
            self._spare.append(mine)
            baton.release()
            mine.acquire()
            if self._ended and not self._parked:
                return

    def _next_baton(self) -> threading.Lock | None:
        """Run actions until one that slept shall continue; return its baton, or `None` at the end."""
        while not self._is_over():
            self.now_s = max(self.now_s, self._queue[0][0])
            _, _, _, action = heapq.heappop(self._queue)
            try:
                action()
            except Killed:
                pass
            except BaseException as error:  # noqa: BLE001  raised by `run`
                self.unplanned = self.unplanned or error
            if self._resumed is not None:
                resumed, self._resumed = self._resumed, None
                return resumed
        self._ended = True
        return self._parked.pop(next(iter(self._parked))) if self._parked else None

    def _is_over(self) -> bool:
        return self._ended or self.unplanned is not None or not self._queue or self._queue[0][0] >= self._until_s

    def _resume(self, key: int) -> None:
        self._resumed = self._parked.pop(key, None)  # nothing if it was resumed before


class Flag:
    """An event that programs of a process wait for, in simulated time; see `threading.Event`."""

    def __init__(self, process: Process) -> None:
        """Begin unset."""
        self.is_set = False
        self.waiting: list[Action] = []
        self._process = process

    def set(self) -> None:
        """Set it, and wake those who wait."""
        self.is_set = True
        for resume in self.waiting:
            self._process.world.at(0.0, resume)
        self.waiting.clear()

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set, for at most this long; return whether it is."""
        if not self.is_set:
            self._process.sleep(timeout_s, self)
        return self.is_set


class Condition(threading.Condition):
    """A condition that a program of a process waits for, in simulated time."""

    def __init__(self, process: Process, lock: threading.RLock) -> None:
        """Begin with nobody waiting."""
        super().__init__(lock)
        self._process = process
        self._notified = Flag(process)

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock back, wait until the condition is notified, and take the lock again."""
        state = self._release_save()
        try:
            return self._notified.wait(math.inf if timeout is None else timeout)
        finally:
            self._acquire_restore(state)

    def notify(self, n: int = 1) -> None:
        """Wake those who wait."""
        self._notified.set()
        self._notified = Flag(self._process)


class Bell:
    """The `wake` of a simulated transport: a worker that is given one is woken whenever it rings."""

    def __init__(self) -> None:
        """Begin with nobody to wake."""
        self.rings: Action = lambda: None

    def __call__(self) -> None:
        """Ring."""
        self.rings()


class Process:
    """A process: what it does happens unless it was killed, and later while it is frozen.

    Attributes:
        name: Its name.
        alive: Whether it was not killed.
        died_s: When it was killed.
        workers: Its loops.
        lag_s: By how much its rounds are late at most.
    """

    def __init__(self, world: World, name: str, *, lag_s: float = 0.001) -> None:
        """Begin with nothing to do."""
        self.world = world
        self.name = name
        self.alive = True
        self.died_s = math.inf
        self.workers: list[Worker] = []
        self.lag_s = lag_s
        self._frozen_until_s = -math.inf

    def worker(self, name: str, round: Callable[[float], float | None], **options: Action | None) -> Worker:
        """Make a worker of this process; passed to the real parts in place of `core.threads.Worker`."""
        worker = Worker(self, name, round, **options)
        self.workers.append(worker)
        return worker

    def at(self, delay_s: float, action: Action) -> None:
        """Let the process do something after a delay."""
        self.world.at(delay_s, lambda: self._do(action))

    def freeze(self, duration_s: float) -> None:
        """Do nothing for a time, as a process that was stopped."""
        self._frozen_until_s = self.world.now_s + duration_s
        self.world.note(f"{self.name} is frozen for {duration_s:.1f} s")

    def was_frozen(self, within_s: float) -> bool:
        """Return whether it was frozen within this time, before now or before it was killed."""
        return self._frozen_until_s > min(self.world.now_s, self.died_s) - within_s

    def kill(self) -> None:
        """End at once."""
        self.alive = False
        self.died_s = self.world.now_s
        self.world.note(f"{self.name} is killed")

    def sleep(self, duration_s: float, until: Flag | None = None) -> None:
        """Let a program of this process wait.

        Raises:
            Killed: The process was killed meanwhile.
        """
        self.world.sleep(duration_s, until)
        if not self.alive:
            raise Killed
        if self.world.now_s < self._frozen_until_s:
            self.sleep(self._frozen_until_s - self.world.now_s)

    def _do(self, action: Action) -> None:
        if not self.alive:
            return
        if self.world.now_s < self._frozen_until_s:
            self.at(self._frozen_until_s - self.world.now_s, action)
        else:
            action()


class Worker:
    """Runs a loop in a simulated process; see `core.threads.Worker`, whose methods it has."""

    def __init__(
        self,
        process: Process,
        name: str,
        round: Callable[[float], float | None],
        *,
        reset: Action | None = None,
        wait: Callable[[float], None] | None = None,  # the world waits
        wake: Action | None = None,
    ) -> None:
        """Begin asleep; a `wake` that is a `Bell` lets the loop run."""
        self.supervised = Supervised(name, round, reset=reset)
        self.lock = threading.RLock()
        self.name = name
        self.starved = False
        self.warns_if_starved = True
        self._process = process
        self._wake = wake
        self._due_s = math.inf
        self._started = self._running = self._woken = self._over = False
        self._flushing: list[Flag] = []
        if isinstance(wake, Bell):
            wake.rings = self._ring

    @property
    def alive(self) -> bool:
        """Whether the loop runs."""
        return self._started and not self._over and self._process.alive

    @property
    def is_current(self) -> bool:
        """Whether this is called within a round."""
        return self._running

    def wake(self) -> None:
        """Let the loop run a round at once."""
        if not self._started:
            self._started = True
            self._ring()
        (self._wake or self._ring)()

    def flush(self, timeout_s: float) -> bool:
        """Wait until a whole round has run from now on; return whether it has."""
        done = Flag(self._process)
        self._flushing.append(done)
        self.wake()
        return self.alive and done.wait(timeout_s) and not self.supervised.failed

    def join(self, timeout_s: float) -> bool:
        """Wait until the loop is over, and return whether it is."""
        until_s = self._process.world.now_s + timeout_s
        while not self._over and self._process.world.now_s < until_s:
            self._process.sleep(0.001)
        return self._over

    def close(self, timeout_s: float) -> bool:
        """Wait until the loop is over; return whether it is."""
        self.supervised.closing = True
        self.supervised.resting = False
        self.wake()
        return self.join(timeout_s)

    def breathe(self) -> None:
        """Let others run in the middle of a round."""
        self._process.sleep(BREATH_S)

    def _ring(self) -> None:
        if self._running:
            self._woken = True
        elif self._started and not self.supervised.resting:
            self._rest(0.0)

    def _rest(self, rest_s: float) -> None:
        """Run a round after a rest, unless one comes earlier."""
        world = self._process.world
        due_s = world.now_s + rest_s + world.random.random() * self._process.lag_s
        if due_s < self._due_s:
            self._due_s = due_s
            self._process.at(due_s - world.now_s, lambda: self._run(due_s))

    def _run(self, due_s: float) -> None:
        if due_s != self._due_s or self._over or self._running:
            return
        self._due_s = math.inf
        self._running, self._woken = True, False
        n_flushing = len(self._flushing)
        self._process.world.in_round = True
        rest_s = self.supervised.round(self._process.world.now_s)
        self._process.world.in_round = self._running = False
        if not self._process.alive:
            return
        self._over = rest_s is None
        again = self.supervised.failed and not self.supervised.resting
        for _ in range(len(self._flushing) if self._over else 0 if again else n_flushing):
            self._flushing.pop(0).set()
        if rest_s is not None:
            resting = self.supervised.resting and not self.supervised.closing
            self._rest(0.0 if self._woken and not resting else rest_s)
