"""Loops, and the threads that run them. Threads are started in this module only.

A loop is an object with `round(now_s)`. A round does what there is to do, waits for nothing, and returns for how many
seconds the loop may rest: `UNTIL_WOKEN`, or `None` when the loop is over. A loop owns no thread, and the time is given
to it, so tests and the simulation run the same loops as threads do.

`Supervised` runs the rounds of a loop: an exception never ends it. `Worker` does so on a thread. Locks may be made
anywhere.

`shortage` says what the process lacks for more threads, descriptors or memory.
"""

from __future__ import annotations

import contextlib
import gc
import math
import mmap
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from typing import Final

from sightglass.core.counts import Failures
from sightglass.core.errors import warn
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.unpatched import threading, time

UNTIL_WOKEN: Final = math.inf
GONE_S: Final = 1.0  # a thread that has ended is gone within microseconds, on a busy machine within milliseconds
BREATH_S: Final = 0.00005  # long enough for the interpreter to hand its lock over, short beside a batch of work
BACKOFF_S: Final = 0.1  # the rest after a loop was started over; it doubles with each failure
MAX_BACKOFF_S: Final = 10.0  # a cause that went away is noticed within this time
FORGIVEN_S: Final = 60.0  # failures this far apart have different causes
TURN_S: Final = 0.0002  # a compiled step that is dispatched needs less; shorter turns cost more than they give
START_AGAIN_S: Final = 1.0  # a thread that could not be started: starting costs little, but wakes come by the thousand

Round = Callable[[float], float | None]
"""A round of a loop: takes the monotonic time in seconds, returns for how long to rest; `None` ends the loop."""


class _Turns:
    """How long the interpreter keeps its lock while some threads work beside those that must not wait."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_short = 0
        self.usual_s = 0.0
        self.has_frozen = False

    def shorten(self) -> None:
        with self.lock:
            self.has_frozen = self.has_frozen or not gc.get_freeze_count()  # else the program itself has frozen some
            if self.has_frozen:
                gc.freeze()
            self.n_short += 1
            if self.n_short == 1:
                self.usual_s = sys.getswitchinterval()
                self._set(min(TURN_S, self.usual_s))

    def put_back(self) -> None:
        with self.lock:
            self.n_short -= 1
            unchanged = math.isclose(sys.getswitchinterval(), min(TURN_S, self.usual_s), abs_tol=1e-6)
            if self.n_short == 0 and unchanged:  # else the program has set another one meanwhile
                self._set(self.usual_s)
            if self.n_short == 0 and self.has_frozen:
                gc.unfreeze()
                self.has_frozen = False

    def _set(self, interval_s: float) -> None:
        sys.setswitchinterval(interval_s + 1e-7)  # it is cut off to whole microseconds


_turns = _Turns()


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Work in Python for a while beside a thread that must not wait for it.

    A thread that wants the interpreter's lock gets it after `TURN_S` instead of the 5 ms that are usual. And collecting
    garbage, which is one turn, visits only objects that were made since: tracing makes so many that it would visit all
    objects of the process several times. Both are so for all threads, until the last of those ends that work here.
    """
    _turns.shorten()
    try:
        yield
    finally:
        _turns.put_back()


def n_startable(n_threads: int) -> int:
    """Start up to `n_threads` threads that exist at the same time, end them, and return how many there were.

    A limit of the user's or the container's threads cannot be asked for. Other processes may use up what was free here,
    so call this immediately before the threads are started.
    """
    ended = threading.Event()
    threads: list[threading.Thread] = []
    try:
        while len(threads) < n_threads:
            thread = threading.Thread(target=ended.wait, name="sightglass-probe", daemon=True)
            thread.start()
            threads.append(thread)
    except (RuntimeError, MemoryError):  # the system refuses another one, or the interpreter is exiting
        pass
    finally:
        ended.set()
        for thread in threads:
            thread.join()
            _wait_until_gone(thread)
    return len(threads)


def _wait_until_gone(thread: threading.Thread) -> None:
    """Wait until the system no longer counts a thread that has ended: for Python it has ended a little earlier."""
    deadline_s = time.monotonic() + GONE_S
    while os.path.exists(f"/proc/self/task/{thread.native_id}") and time.monotonic() < deadline_s:
        time.sleep(BREATH_S)


def pool(name: str, n_threads: int) -> ThreadPoolExecutor:
    """Return a pool of named threads, which start with the first work submitted."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"sightglass-{name}")


def process_pool() -> ProcessPoolExecutor:
    """Return a pool of processes, one for each core."""
    # With this argument, processes are spawned: a fork would copy locks that other threads hold.
    return ProcessPoolExecutor(max_tasks_per_child=2**31)


class Background:
    """One thread that runs a function once, and remembers what became of it.

    A failure never reaches the thread that started it: it is warned of once, kept in `error`, and raised by `close`.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        """Start the thread.

        Args:
            name: The thread's name, after "sightglass-".
            work: What it runs.

        Raises:
            RuntimeError: The interpreter is exiting, or the system starts no more threads.
        """
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"sightglass-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether this is called on the thread itself."""
        return self._thread is threading.current_thread()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end, and say whether it has."""
        if not self.is_current:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self, timeout_s: float | None = 2.0) -> None:
        """Wait for the thread, and raise what it failed with."""
        self.join(timeout_s)
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  a background failure must not stop training
            self.error = error
            warn(f"{self._thread.name} stopped: {error!r}")


class Supervised:
    """The rounds of a loop, under supervision: whatever a round raises, the loop continues.

    After the first failure the next round follows at once. After a second within `FORGIVEN_S` the loop is started over
    with clean state, and rests; the rest doubles with each further failure.

    Attributes:
        failures: The rounds that failed.
        n_restarts: How often the loop was started over.
        failed: Whether the last round failed.
        resting: Whether it failed and the loop rests, even if it is woken.
        closing: Whether to give up at the second failure, because the loop is about to end.
    """

    __slots__ = ("_failed_s", "_n_recent", "_reset", "_round", "closing", "failed", "failures", "n_restarts", "resting")

    def __init__(self, name: str, round: Round, *, reset: Callable[[], None] | None = None) -> None:
        """Supervise a loop.

        Args:
            name: The name of the loop, for warnings.
            round: See the top of this module.
            reset: Starts the loop over: drops and counts what it holds, and informs those whom that concerns.
        """
        self.failures = Failures(f"sightglass-{name}")
        self.n_restarts = 0
        self.failed = self.resting = False
        self.closing = False
        self._round = round
        self._reset = reset
        self._n_recent = 0
        self._failed_s = -math.inf

    def round(self, now_s: float) -> float | None:
        """Run one round; return for how long to rest, or `None` if the loop is over."""
        self.failed = self.resting = False
        try:
            return self._round(now_s)
        except BaseException as error:
            # Ctrl-C reaches the main thread only, where `flush` and `close` may run rounds: it is the user's.
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                raise
            return self._failed(error, now_s)

    def _failed(self, error: BaseException, now_s: float) -> float | None:
        self.failed = True
        self._n_recent = 1 if now_s - self._failed_s > FORGIVEN_S else self._n_recent + 1
        self._failed_s = now_s
        if self._n_recent == 1:
            self.failures.add(error, "a round failed, and the next one follows")
            return 0.0
        self.failures.add(error, "two rounds failed, and it starts over")
        if self._reset is not None:
            try:
                self._reset()
            except BaseException as other:  # noqa: BLE001  as above
                self.failures.add(other, "it cannot start over")
        self.n_restarts += 1
        self.resting = True
        return None if self.closing else min(MAX_BACKOFF_S, BACKOFF_S * 2.0 ** min(self._n_recent - 2, 10))


class Worker:
    """Runs a loop on a thread, which starts when it is first woken; it rests until it is woken or its rest is over.

    Where no thread can be started, because the system has none left or the interpreter is exiting, `flush` and `close`
    run the rounds themselves.

    Attributes:
        supervised: The loop, and what failed in it.
        lock: For what the loop shares with other threads; reentrant, since a signal's handler may come in between.
        starved: Whether no thread could be started when it was last tried; a later `wake` tries again.
        warns_if_starved: Whether to warn of that; `False` if the owner does.
    """

    def __init__(
        self,
        name: str,
        round: Round,
        *,
        reset: Callable[[], None] | None = None,
        wait: Callable[[float], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        """Begin asleep.

        Args:
            name: The thread's name, after "sightglass-".
            round: A round of the loop; see the top of this module.
            reset: Starts the loop over after two failures.
            wait: Waits for this many seconds, or until `wake` is called; by default, an event of this worker's own.
            wake: Ends a `wait`; from any thread.
        """
        self.supervised = Supervised(name, round, reset=reset)
        self.lock = threading.RLock()
        self.starved = False
        self.warns_if_starved = True
        self._name = name
        self._woken = threading.Event()
        self._wait = wait or self._sleep
        self._end_wait = wake or self._woken.set
        self._thread: Background | None = None
        self._start_at_s = 0.0
        self._turning = threading.RLock()
        self._closing = threading.Event()
        self._over = False
        self._flushing: deque[threading.Event] = deque()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread is not None and self._thread.alive

    @property
    def is_current(self) -> bool:
        """Whether this is called on the thread itself."""
        return self._thread is not None and self._thread.is_current

    def wake(self) -> None:
        """Let the loop run a round at once; from any thread."""
        self._end_wait()
        if self._thread is None:
            self._start()

    def flush(self, timeout_s: float) -> bool:
        """Wait until a whole round has run from now on; return whether it has.

        After a round that failed, it waits for the next one, but not for a loop that starts over.
        """
        done = threading.Event()
        self._flushing.append(done)
        self.wake()
        if self._thread is None:
            self._turn()
        while self.alive and not done.is_set() and timeout_s > 0:
            done.wait(min(1.0, timeout_s))
            timeout_s -= 1.0
        return done.is_set() and not self.supervised.failed

    def join(self, timeout_s: float) -> bool:
        """Wait until the loop is over, and return whether it is."""
        return self._over if self._thread is None else self._thread.join(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Wait until the loop, which must know that it shall end, is over; return whether it is."""
        self.supervised.closing = True
        self._closing.set()
        self.wake()
        if self._thread is not None:
            return self._thread.join(timeout_s)
        until_s = SystemClock.monotonic() + timeout_s
        while not self._over and SystemClock.monotonic() < until_s:
            rest_s = self._turn()
            if rest_s:
                self._wait(min(rest_s, timeout_s))
        return self._over

    @staticmethod
    def breathe() -> None:
        """Let other threads have Python for a moment, in the middle of long work."""
        time.sleep(BREATH_S)

    def _start(self) -> None:
        with self.lock:
            now_s = SystemClock.monotonic()
            if self._thread is not None or self._over or now_s < self._start_at_s:
                return
            try:
                self._thread = Background(self._name, self._run)
                self.starved = False
            except RuntimeError as error:
                self._start_at_s = now_s + START_AGAIN_S
                self.starved = True
                if not sys.is_finalizing():
                    what = "its work is done when the program waits for it"
                    self.supervised.failures.add(error, what, warn=self.warns_if_starved)

    def _run(self) -> None:
        rest_s: float | None = 0.0
        while rest_s is not None:
            if self.supervised.resting:
                self._closing.wait(rest_s)
            elif rest_s > 0:
                self._rest(rest_s)
            rest_s = self._turn()

    def _rest(self, rest_s: float) -> None:
        try:
            self._wait(rest_s)
        except BaseException as error:  # noqa: BLE001  a wait that fails, fails a round at most
            self.supervised.failures.add(error, "it cannot wait")
            self._closing.wait(min(rest_s, BACKOFF_S))  # so that it does not spin

    def _turn(self) -> float | None:
        """Run a round, for those too that wait for one."""
        with self._turning:  # where threads lack, several may run rounds, and one may start meanwhile
            self._woken.clear()
            n_flushing = len(self._flushing)
            rest_s = self.supervised.round(SystemClock.monotonic())
            self._over = rest_s is None
            again = self.supervised.failed and not self.supervised.resting
            for _ in range(len(self._flushing) if self._over else 0 if again else n_flushing):
                self._flushing.popleft().set()
            return rest_s

    def _sleep(self, rest_s: float) -> None:
        self._woken.wait(None if rest_s == UNTIL_WOKEN else rest_s)


# What this process may still use of its machine: found out by using it, a moment before it is needed.
#
# Some libraries end the process when the system refuses them a thread, a file descriptor or memory. Limits cannot be
# asked for instead: they are set per process, per user and per container, and count what others use. Another process
# may still take what was free here, so probe immediately before use.


def shortage(*, n_threads: int = 0, n_descriptors: int = 0, n_bytes: int = 0) -> str:
    """Return what the process lacks of what it needs at the same time, or an empty text if it lacks nothing.

    Args:
        n_threads: How many threads must start.
        n_descriptors: How many file descriptors must be free.
        n_bytes: How much memory must be free before and after the threads have started.
    """
    lack = _memory(n_bytes) or _descriptors(n_descriptors) or _threads(n_threads)
    return lack or _memory(n_bytes)  # once more: what the system reserves for a thread stays reserved for the next one


def _memory(n_bytes: int) -> str:
    try:
        if n_bytes:
            mmap.mmap(-1, n_bytes).close()
    except (OSError, MemoryError) as error:
        return f"{n_bytes >> 20} MiB of free memory are needed: {error}"
    return ""


def _descriptors(n: int) -> str:
    with contextlib.ExitStack() as held:
        for n_open in range(n):
            try:
                held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                return f"{n} free file descriptors are needed, got {n_open}: {error.strerror}"
    return ""


def _threads(n: int) -> str:
    if (n_started := n_startable(n)) == n:
        return ""
    return f"{n} more threads are needed, got {n_started}: a limit of the user or of the container is reached"
