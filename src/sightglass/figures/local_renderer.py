"""The renderer in the training's own process: in a thread, or at once on the calling thread.

It is for functions that cannot be sent to a child, for systems that start none, and for tests. Matplotlib's settings
belong to the process, not to a thread: while a figure is drawn here, its theme applies everywhere; afterwards
everything is as before.

The thread ends when there is nothing to draw, and the next job starts another one. A thread cannot be ended: one that
takes longer than `limit_s` for a figure is left alone, and another one draws the others. Where no thread can be
started, jobs wait, and the thread that waits for them draws them.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Final

from sightglass.core.codec import decode
from sightglass.core.counts import Failures
from sightglass.core.process.threads import Background, shortage
from sightglass.core.process.unpatched import threading

from .drawing import Drawer
from .messages import DrawFinished, Failure, Pictures, failure_of
from .render_job import Finished, RenderJob

N_BYTES: Final = 128 * 2**20  # Matplotlib and a large figure; Python ends the process if it lacks memory for its errors


class LocalRenderer:
    """Draws in this process.

    Attributes:
        failures: The jobs whose results could not be passed on.
    """

    lack: Final = ""
    n_started: Final = 0

    def __init__(self, finished: Finished, *, limit_s: float, at_once: bool = False) -> None:
        """Start no thread yet.

        Args:
            finished: Called once for each job, with its results, by who draws it.
            limit_s: How long one job may take.
            at_once: Whether `put` draws, instead of a thread.
        """
        self.failures = Failures("sightglass-figures")
        self._finished = finished
        self._limit_s = limit_s
        self._at_once = at_once
        self._drawer = Drawer(alone=at_once)
        self._lock = threading.RLock()
        self._jobs: deque[RenderJob] = deque()
        self._thread: Background | None = None
        self._round = 0
        self._drawing: RenderJob | None = None
        self._since_s = 0.0

    def put(self, job: RenderJob) -> bool:
        """Draw a job at once, or after those that were put before, and never wait then."""
        if self._at_once:
            result, pictures, error = self._drawn(job)
            self._drawing = None
            self._finished(job, result, pictures)
            if error is not None:  # Ctrl-C in the training's own thread
                raise error
            return True
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._start()
        return True

    def end_overdue(self) -> None:
        """Leave a thread alone that takes too long for one figure, and draw the others in another one."""
        with self._lock:
            job = self._drawing
            if job is None or self._at_once or time.monotonic() - self._since_s <= self._limit_s:
                return
            self._drawing = self._thread = None
            self._round += 1
            _Turn.lose(_Turn.lock)
            if self._jobs:
                self._start()
        why = f"Not drawn: took longer than {self._limit_s:g} s, and its thread is left alone"
        failure = Failure(figure=job.message.name, kind="", message=why)
        self._pass_on(job, DrawFinished(id=job.message.id, failures=[failure]), {})

    def check(self) -> None:
        """Draw what waits for a thread that cannot be started."""
        self.end_overdue()
        if self._thread is None:
            self._run(self._round)

    def close(self, timeout_s: float) -> bool:
        """Wait until everything is drawn, and return whether it is."""
        thread = self._thread
        return thread is None or thread.is_current or thread.join(min(timeout_s, threading.TIMEOUT_MAX))

    def abandon(self) -> None:
        """Forget everything, in a forked child."""
        self._jobs = deque()
        self._thread = None

    def _start(self) -> None:
        with contextlib.suppress(RuntimeError):  # no thread is left, or the interpreter is exiting: see `check`
            self._thread = Background("figures", partial(self._run, self._round))

    def _run(self, round: int) -> None:
        """Draw until there is nothing left, or until this thread was left alone."""
        while True:
            with self._lock:
                if round != self._round:
                    return
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            result, pictures, _ = self._drawn(job)
            with self._lock:
                if round != self._round:
                    return
                self._drawing = None
            self._pass_on(job, result, pictures)

    def _drawn(self, job: RenderJob) -> tuple[DrawFinished, Pictures, BaseException | None]:
        """Draw a job; return its results, and what interrupted it."""
        try:
            with _Turn.take(self._limit_s):
                self._since_s, self._drawing = time.monotonic(), job
                return *draw(job, self._drawer), None
        except BaseException as error:  # noqa: BLE001  it costs this job only
            return _failed(job, error), {}, error

    def _pass_on(self, job: RenderJob, result: DrawFinished, pictures: Pictures) -> None:
        try:
            self._finished(job, result, pictures)
        except BaseException as error:  # noqa: BLE001  it costs this job only
            self.failures.add(error, f"the results of figure {job.message.name!r} are lost")


class _Turn:
    """Whose turn it is to draw in this process: Matplotlib is not safe for several threads."""

    lock = threading.RLock()

    @classmethod
    @contextlib.contextmanager
    def take(cls, limit_s: float) -> Iterator[None]:
        """Wait for the turn; a function that has it for longer than `limit_s` hangs, and loses it."""
        while not (lock := cls.lock).acquire(timeout=min(limit_s, threading.TIMEOUT_MAX)):
            cls.lose(lock)
        try:
            yield
        finally:
            lock.release()

    @classmethod
    def lose(cls, lock: threading.RLock) -> None:
        """Give the turn to others, if it still depends on this lock."""
        if cls.lock is lock:
            cls.lock = threading.RLock()


def draw(job: RenderJob, drawer: Drawer) -> tuple[DrawFinished, Pictures]:
    """Draw a job in this process; never raises an exception of the function."""
    message = job.message
    if lack := shortage(n_bytes=N_BYTES):
        failure = Failure(figure=message.name, kind="", message=f"Not drawn: {lack}")
        return DrawFinished(id=message.id, failures=[failure]), {}
    try:
        drawing = drawer.draw(message, lambda: job.function, lambda: decode(message.blob, job.copied.buffers()))
    except (Exception, SystemExit) as error:  # noqa: BLE001  it costs this job only
        return _failed(job, error), {}
    return drawing.result(message)[0], drawing.pictures


def _failed(job: RenderJob, error: BaseException) -> DrawFinished:
    """Return the result of a job that failed as a whole."""
    return DrawFinished(id=job.message.id, failures=[failure_of(job.message.name, error)])
