"""Threads. They are started in this module only, so that each has a name, and its failure is warned about and kept.

Locks may be made anywhere.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

BREATH_S: Final = 0.00005  # long enough for the interpreter to hand its lock over, short beside a batch of work


def pool(name: str, n_threads: int) -> ThreadPoolExecutor:
    """Return a pool of named threads, which start with the first work submitted."""
    return ThreadPoolExecutor(n_threads, thread_name_prefix=f"sightglass-{name}")


class Background:
    """One thread that runs a function, and remembers what became of it.

    A failure never reaches the thread that started it: it is warned of once, kept in `error`, and raised by `close`.
    """

    def __init__(self, name: str, work: Callable[[], None], *, daemon: bool = True) -> None:
        """Start the thread.

        Args:
            name: The thread's name, after "sightglass-".
            work: What it runs.
            daemon: Whether the interpreter exits without waiting for it.

        Raises:
            RuntimeError: The interpreter is exiting, and starts no more threads.
        """
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"sightglass-{name}", daemon=daemon)
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
            warnings.warn(f"{self._thread.name} stopped: {error!r}", RuntimeWarning, stacklevel=2)


class Worker:
    """A background thread that sleeps until it is woken, or until the time is up that its last round asked for.

    The thread starts when it is first woken. Should it fail, the failure is warned of once and kept in `error`.

    Attributes:
        lock: For what the thread shares with others.
    """

    def __init__(self, name: str, work: Callable[[], float | None]) -> None:
        """Begin asleep; each round is a call of `work`, which returns for how many seconds it may sleep, or `None`."""
        self.lock = threading.RLock()  # a signal's handler may come in between
        self._name = name
        self._work = work
        self._thread: Background | None = None
        self._woken = threading.Event()
        self._waiting: deque[threading.Event] = deque()
        self._over = False

    @property
    def error(self) -> BaseException | None:
        """What the thread failed with, or `None`."""
        return None if self._thread is None else self._thread.error

    def wake(self) -> None:
        """Let the thread work a round from now on, at once; from any thread."""
        self._woken.set()
        if self._thread is None:
            with self.lock:
                if self._thread is None:
                    try:
                        self._thread = Background(self._name, self._run)
                    except RuntimeError:  # the interpreter is ending; `round` and `close` do without a thread
                        return

    def round(self, timeout_s: float) -> bool:
        """Wait until the thread has worked a whole round from now on, and say whether it has."""
        done = threading.Event()
        self._waiting.append(done)
        self.wake()
        if self._thread is None:
            self._work()
            return True
        while self._thread.alive and not done.is_set() and timeout_s > 0:
            done.wait(min(1.0, timeout_s))
            timeout_s -= 1.0
        return done.is_set()

    def close(self, timeout_s: float) -> bool:
        """Let the thread work one last round, and say whether it has ended in time."""
        self._over = True
        self.wake()
        if self._thread is None:
            self._work()
            return True
        return self._thread.join(timeout_s)

    @staticmethod
    def breathe() -> None:
        """Let other threads have Python for a moment, in the middle of long work."""
        time.sleep(BREATH_S)

    def _run(self) -> None:
        pause: float | None = None
        over = False
        while not over:
            self._woken.wait(pause)
            self._woken.clear()
            over, n_waiting = self._over, len(self._waiting)
            pause = self._work()
            for _ in range(n_waiting):
                self._waiting.popleft().set()
