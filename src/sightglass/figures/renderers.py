"""The renderers of a queue: a child process, a second one while the first takes long, a thread for what no child loads.

A figure that takes longer than `HUNG_S` while others wait may hang. The others are then taken from its child and drawn
in another one, so that they lose nothing; the first child goes on, for at most `limit_s`, and ends. There are never
more than two: what hangs in the second one is waited for.

Renderers in the training's own process, in a thread and at once, stand at the end.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Literal

from sightglass.core.codec import decode
from sightglass.core.counts import Failures
from sightglass.core.errors import warn
from sightglass.core.process.threads import Background, shortage
from sightglass.core.process.unpatched import threading

from .child_process import HUNG_S, ChildRenderer
from .drawing import Drawer
from .messages import DrawFinished, Failure, Pictures, failure_of
from .render_job import Finished, Renderer, RenderJob
from .snapshot import Arena

RendererKind = Literal["process", "thread", "inline"]


class Renderers:
    """Has each job drawn where it can be; the caller holds a lock.

    Attributes:
        main: The renderer that gets new jobs.
    """

    def __init__(self, kind: RendererKind, finished: Finished, *, arena: Arena, limit_s: float) -> None:
        """Start no process and no thread yet.

        Args:
            kind: Where figures are drawn.
            finished: Called once for each job, with its results.
            arena: Holds large arrays.
            limit_s: How long one job may take.
        """
        self._finished = finished
        self._limit_s = limit_s
        self._new_child: Callable[[], ChildRenderer] | None = None
        self._n_ended = 0
        self._slow: ChildRenderer | None = None
        self._thread: ThreadRenderer | None = None
        self._warned = False
        hung: set[tuple[str, str]] = set()
        self.main: Renderer
        if kind == "process":
            self._new_child = lambda: ChildRenderer(finished, arena=arena, limit_s=limit_s, hung=hung)
            self.main = self._new_child()
        else:
            self.main = (ThreadRenderer if kind == "thread" else InlineRenderer)(finished, limit_s=limit_s)

    @property
    def n_started(self) -> int:
        """How many children were started."""
        return self._n_ended + sum(one.n_started for one in self._open() if isinstance(one, ChildRenderer))

    @property
    def in_own_thread(self) -> bool:
        """Whether this is called by a function that is drawn in a thread, which must not wait for itself."""
        return any(isinstance(one, ThreadRenderer) and one.is_current for one in self._open())

    def put(self, job: RenderJob) -> None:
        """Give a job to the renderer, or to a thread of this process if it cannot be drawn there."""
        if job.lack or not self.main.put(job):
            if self._thread is None:
                self._thread = ThreadRenderer(self._finished, limit_s=self._limit_s)
            self._thread.put(job)
        if isinstance(self.main, ChildRenderer) and self.main.lack:
            self.warn(f"no process can be started for figures: {self.main.lack}")

    def end_overdue(self) -> None:
        """End what takes longer than it may, and let others overtake what takes long; never draws."""
        for renderer in self._open():
            renderer.end_overdue()
        self._overtake()

    def check(self) -> None:
        """Check that drawing makes progress; for a thread that waits for it."""
        for renderer in self._open():
            renderer.check()
        self._overtake()

    def close(self, left_s: Callable[[], float]) -> bool:
        """Draw what is left, end, and return whether that was in time."""
        late = [renderer for renderer in self._open() if not renderer.close(left_s())]
        return not late

    def abandon(self) -> None:
        """Release everything, in a forked child."""
        for renderer in self._open():
            renderer.abandon()

    def warn(self, why: object) -> None:
        """Warn once that figures are drawn in this process."""
        if not self._warned:
            self._warned = True
            warn(f"Drawing in a thread of this process, because {why}")

    def _open(self) -> list[Renderer]:
        return [one for one in (self.main, self._slow, self._thread) if one is not None]

    def _overtake(self) -> None:
        """Take the jobs from a child that takes long for one, and have them drawn in another."""
        if self._slow is not None and not self._slow.n_open:
            self._slow.close(0.0)
            self._n_ended += self._slow.n_started
            self._slow = None
        if self._slow is not None or self._new_child is None or not isinstance(self.main, ChildRenderer):
            return
        if jobs := self.main.take_back(HUNG_S):
            self._slow, self.main = self.main, self._new_child()
            for job in jobs:
                self.put(job)


# Renderers in the training's own process: in a thread, and at once.
#
# Both are for functions that cannot be sent to a child, for systems that start none, and for tests. Matplotlib's
# settings belong to the process, not to a thread: while a figure is drawn here, its theme applies everywhere;
# afterwards everything is as before.
#
# The thread ends when there is nothing to draw, and the next job starts another one. A thread cannot be ended: one that
# takes longer than `limit_s` for a figure is left alone, and another one draws the others. Where no thread can be
# started, jobs wait, and the thread that waits for them draws them.

N_BYTES: Final = 128 * 2**20  # Matplotlib and a large figure; Python ends the process if it lacks memory for its errors


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
        """Give the turn to others, if it is still behind this lock."""
        if cls.lock is lock:
            cls.lock = threading.RLock()


class InlineRenderer:
    """Draws at once, on the calling thread."""

    def __init__(self, finished: Finished, *, limit_s: float) -> None:
        """Draw with a `Drawer` of its own; `finished` is called with each job and its results."""
        self._finished = finished
        self._limit_s = limit_s
        self._drawer = Drawer(alone=True)

    def put(self, job: RenderJob) -> bool:
        """Draw a job."""
        try:
            with _Turn.take(self._limit_s):
                result, pictures = draw(job, self._drawer)
        except BaseException as error:  # Ctrl-C in the training's own thread
            self._finished(job, failed(job, error), {})
            raise
        self._finished(job, result, pictures)
        return True

    def end_overdue(self) -> None:
        """Do nothing: what is drawn here cannot be ended."""

    def check(self) -> None:
        """Do nothing: no thread can wait for it."""

    def close(self, timeout_s: float) -> bool:
        """Do nothing: everything is drawn."""
        return True

    def abandon(self) -> None:
        """Do nothing."""


class ThreadRenderer:
    """Draws in a thread.

    Attributes:
        failures: The jobs whose results could not be passed on.
    """

    def __init__(self, finished: Finished, *, limit_s: float) -> None:
        """Start no thread yet; `finished` is called on it, once for each job, with its results."""
        self.failures = Failures("sightglass-figures")
        self._finished = finished
        self._limit_s = limit_s
        self._drawer = Drawer(alone=False)
        self._lock = threading.RLock()
        self._jobs: deque[RenderJob] = deque()
        self._thread: Background | None = None
        self._round = 0
        self._drawing: RenderJob | None = None
        self._since_s = 0.0

    @property
    def is_current(self) -> bool:
        """Whether this is called on its thread."""
        return self._thread is not None and self._thread.is_current

    def put(self, job: RenderJob) -> bool:
        """Draw a job after those that were put before; never waits."""
        with self._lock:
            self._jobs.append(job)
            if self._thread is None:
                self._start()
        return True

    def end_overdue(self) -> None:
        """Leave a thread alone that takes too long for one figure, and draw the others in another one."""
        with self._lock:
            job = self._drawing
            if job is None or time.monotonic() - self._since_s <= self._limit_s:
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
        """Draw what there is to draw, until there is nothing, or until this thread is left alone."""
        while True:
            with self._lock:
                if round != self._round:
                    return
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            try:
                with _Turn.take(self._limit_s):
                    self._since_s, self._drawing = time.monotonic(), job
                    result, pictures = draw(job, self._drawer)
            except BaseException as error:  # noqa: BLE001  it costs this job only
                result, pictures = failed(job, error), {}
            with self._lock:
                if round != self._round:
                    return
                self._drawing = None
            self._pass_on(job, result, pictures)

    def _pass_on(self, job: RenderJob, result: DrawFinished, pictures: Pictures) -> None:
        try:
            self._finished(job, result, pictures)
        except BaseException as error:  # noqa: BLE001  it costs this job only
            self.failures.add(error, f"the results of figure {job.message.name!r} are lost")


def draw(job: RenderJob, drawer: Drawer) -> tuple[DrawFinished, Pictures]:
    """Draw a job in this process; never raises an exception of the function."""
    message = job.message
    if lack := shortage(n_bytes=N_BYTES):
        failure = Failure(figure=message.name, kind="", message=f"Not drawn: {lack}")
        return DrawFinished(id=message.id, failures=[failure]), {}
    try:
        drawing = drawer.draw(message, lambda: job.function, lambda: decode(message.blob, job.copied.buffers()))
    except (Exception, SystemExit) as error:  # noqa: BLE001  it costs this job only
        return failed(job, error), {}
    result, _ = drawing.result(message)
    return result, drawing.pictures


def failed(job: RenderJob, error: BaseException) -> DrawFinished:
    """Return the result of a job that failed as a whole."""
    return DrawFinished(id=job.message.id, failures=[failure_of(job.message.name, error)])
