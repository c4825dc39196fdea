"""The desk: takes orders for figures, has them drawn, and hands them on.

Theory of operation:

1. At most `n_jobs` orders wait behind the one that is being drawn, and at most `n_bytes` of arguments. Beyond that
   `on_full` says what happens: "block" waits for room, looking whether the renderer lives and goes on, and for at most
   `limit_s`; "drop_oldest" drops what waits longest, "drop_new" what comes. All that is dropped is counted.
2. Orders are handed to the renderer as soon as they come, so that they land even if this process is killed; with
   "drop_oldest" only two are, since what is handed over is not taken back.
3. What cannot travel to a child is drawn in a thread; that is said once.
4. Every failure is kept, and told as `on_error` says: raised together by the next order, `flush` and `close`; warned
   of; or ignored. An order is taken before errors are raised: they never cost a figure.
5. Whoever ends without `close`, by an exception or an interrupt, is waited for at the interpreter's exit. In a forked
   copy of the process the desk takes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import msgspec

from sightglass.core.errors import FigureError, FigureErrors, MissingExtraError, UnsendableError
from sightglass.core.record import Record
from sightglass.core.threads import Worker
from sightglass.core.values import Figure, n_bytes

from .child_process import ChildRenderer, QueuedJob
from .closures import Draws, Packed, name_of, pack
from .in_process import InlineRenderer, ThreadRenderer
from .messages import DrawFigure, DrawFinished, Failure, Output, error, trouble
from .sinks import FigureSink, RunSink
from .snapshot import Arena, PendingTransfer, Snapshot, begin

RendererKind = Literal["process", "thread", "inline"]
OnFull = Literal["block", "drop_oldest", "drop_new"]
OnError = Literal["raise", "warn", "ignore"]

WINDOW: Final = 2
LOOK_S: Final = 0.25
MAX_ERRORS: Final = 1_000
SINKS_S: Final = 30.0


class Renderer(Protocol):
    """What draws jobs, one after the other."""

    def put(self, job: Any, /) -> None:
        """Let a job be drawn behind those that were put before."""

    def check(self) -> None:
        """See that it goes on; called by those who wait."""

    def close(self, timeout_s: float, /) -> bool:
        """Draw what is there, end, and say whether that was in time."""

    def abandon(self) -> None:
        """Let go of everything in a forked child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureStatistics:
    """What became of the figures that were ordered.

    Attributes:
        n_submitted: How many calls were to be drawn.
        n_drawn: How many figures were, without error cards.
        n_failed: How many things went wrong.
        n_dropped: How many calls were dropped for lack of room.
        n_waiting: How many calls are not drawn yet.
        n_files: How many files were written.
        n_here: How many calls were drawn in this process instead of a child.
        n_started: How many children were started.
        last_error: What went wrong last, or empty.
    """

    n_submitted: int
    n_drawn: int
    n_failed: int
    n_dropped: int
    n_waiting: int
    n_files: int
    n_here: int
    n_started: int
    last_error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What is wanted of a call of a function: the name of its figure, the step, the files, and who gets it."""

    name: str
    step: int | float
    output: Output
    sinks: tuple[FigureSink, ...]


@dataclass(slots=True, kw_only=True)
class RenderJob:
    """An order with its arguments, and who gets the figures."""

    order: DrawFigure
    snapshot: Any
    function: Draws
    sinks: tuple[FigureSink, ...]
    size: int
    travels: bool


class RenderQueue:
    """Takes orders; from any thread."""

    def __init__(
        self,
        kind: RendererKind,
        *,
        on_full: OnFull,
        on_error: OnError,
        n_jobs: int,
        n_bytes: int,
        limit_s: float,
    ) -> None:
        self._kind = kind
        self._on_full = on_full
        self._on_error = on_error
        self._n_jobs = n_jobs
        self._n_bytes = n_bytes
        self._limit_s = limit_s
        self._changed = threading.Condition(threading.RLock())
        self._jobs: OrderedDict[int, RenderJob] = OrderedDict()
        self._held: deque[RenderJob] = deque()
        self._size = 0
        self._arena: Arena | None = None
        self._main: Renderer | None = None
        self._thread: ThreadRenderer | None = None
        self._reader = Worker("figures-read", self._read)
        self._reading: deque[RenderJob] = deque()
        self._sinks: dict[int, FigureSink] = {}
        self._errors: list[FigureError] = []
        self._counts = dict.fromkeys(("submitted", "drawn", "failed", "dropped", "files", "here"), 0)
        self._last_error = ""
        self._told_here = False
        self._next = 0
        self.closed = False
        self._finished = False

    def take(self, function: Draws, arguments: tuple[Any, ...], wish: RenderRequest) -> None:
        """Take an order: copy its arguments, and have it drawn.

        Raises:
            FigureErrors: Earlier figures failed, and that is to be raised; this order was taken.
        """
        with self._changed:
            self._begin()
            self._counts["submitted"] += 1
            try:
                size = n_bytes(arguments)
                if self._has_room(size, wish):
                    self._place(function, arguments, wish, size)
            except (UnsendableError, MemoryError) as problem:
                self._fail(error(trouble(wish.name, problem), wish.step))
        self.tell()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until everything is drawn and handed on, and say whether it is; nothing is raised."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._jobs:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    return False
                self._changed.wait(LOOK_S)
                self._check()
        return True

    def flush(self, timeout_s: float | None) -> None:
        """Wait until all figures are where they should be.

        Raises:
            FigureErrors: Some failed, or are not in time, and that is to be raised.
        """
        self._finish(timeout_s, close=False)
        self.tell()

    def close(self, timeout_s: float | None) -> None:
        """Draw what is left, and end; closing twice does nothing. Errors as in `flush`."""
        if not self._finished:
            with self._changed:
                self.closed = True
            self._finish(timeout_s, close=True)
            self._finished = True
            _open.discard(self)
        self.tell()

    def hang_up(self) -> None:
        """Take nothing any more, and wait for nothing: what is there is drawn, at the latest at the exit."""
        self.closed = True
        if not self._jobs:
            self._end()

    def abandon(self) -> None:
        """Become a no-op in a forked child."""
        self.closed = True
        self._jobs.clear()
        self._held.clear()
        self._reading.clear()
        self._errors.clear()
        self._changed = threading.Condition(threading.RLock())
        for renderer in (self._main, self._thread):
            if renderer is not None:
                renderer.abandon()

    def statistics(self) -> FigureStatistics:
        """Return what was counted so far."""
        n_started = self._main.n_started if isinstance(self._main, ChildRenderer) else 0
        counts = {f"n_{name}": n for name, n in self._counts.items()}
        return FigureStatistics(**counts, n_waiting=len(self._jobs), n_started=n_started, last_error=self._last_error)

    def fail(self, problem: FigureError) -> None:
        """Keep an error that came from elsewhere."""
        with self._changed:
            self._fail(problem)

    def tell(self) -> None:
        """Raise the errors that were kept, or warn of them, or forget them.

        Raises:
            FigureErrors: That is wanted, and there are some.
        """
        with self._changed:
            errors, self._errors = self._errors, []
        if not errors or self._on_error == "ignore":
            return
        if self._on_error == "raise":
            figures = ", ".join(dict.fromkeys(repr(e.figure) for e in errors))
            raise FigureErrors(f"{len(errors)} could not be drawn or handed on: {figures:.300}", errors)
        for problem in errors:
            with contextlib.suppress(Warning):  # whoever makes errors of warnings is not to lose figures by it
                warnings.warn(str(problem.args[0]), RuntimeWarning, stacklevel=4)

    # Under the lock

    def _begin(self) -> None:
        """Make what is needed, with the first order."""
        if self._main is not None:
            return
        self._arena = Arena(self._n_bytes)
        if self._kind == "process":
            self._main = ChildRenderer(self._done, arena=self._arena, limit_s=self._limit_s)
        else:
            self._main = ThreadRenderer(self._done) if self._kind == "thread" else InlineRenderer(self._done)
        _open.add(self)
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # what is registered last runs first: before runs, and W&B's, end

    def _has_room(self, size: int, wish: RenderRequest) -> bool:
        """Make room for an order as `on_full` says, and say whether there is."""
        if size > self._n_bytes:
            raise UnsendableError(f"Expected at most {self._n_bytes:,} bytes to draw from, got {size:,}: see max_bytes")
        deadline_s = time.monotonic() + self._limit_s
        while len(self._jobs) > self._n_jobs or self._size + size > self._n_bytes:
            if self._on_full == "drop_oldest" and self._held:
                self._release(self._held.popleft())
                self._counts["dropped"] += 1
            elif self._on_full != "block":
                self._counts["dropped"] += 1
                return False
            elif time.monotonic() >= deadline_s or threading.current_thread() is self._own_thread:
                self._counts["dropped"] += 1
                told = Failure(figure=wish.name, kind="", message=f"Not drawn: no room within {self._limit_s:g} s")
                self._fail(error(told, wish.step))
                return False
            else:
                self._changed.wait(LOOK_S)
                self._check()
        return True

    @property
    def _own_thread(self) -> Any:
        return self._thread._thread if self._thread is not None else None

    def _place(self, function: Draws, arguments: tuple[Any, ...], wish: RenderRequest, size: int) -> None:
        """Copy the arguments, and let the renderer have them."""
        assert self._arena is not None
        value = begin(arguments)
        pending = isinstance(value, PendingTransfer)
        snapshot = value if pending else Snapshot(value, self._arena)
        packed = self._packed(function)
        order = DrawFigure(
            id=self._next, name=wish.name, step=wish.step, function=packed.name, pickled=packed.pickled,
            source=packed.source, blob=b"", spans=[], output=wish.output,
        )  # fmt: skip
        self._next += 1
        job = RenderJob(order=order, snapshot=snapshot, function=function, sinks=wish.sinks, size=size,
                         travels=packed.travels)  # fmt: skip
        self._jobs[order.id] = job
        self._size += size
        for sink in wish.sinks:
            self._sinks[id(sink)] = sink
            if isinstance(sink, RunSink):
                sink.used_by(self)
        if pending or self._reading:
            self._reading.append(job)
            self._reader.wake()
        else:
            self._ready(job)

    def _packed(self, function: Draws) -> Packed:
        """Return a function as it travels, or what stands for one that does not."""
        if self._kind == "process":
            try:
                return pack(function)
            except (UnsendableError, MissingExtraError) as problem:
                self._tell_here(problem)
        return Packed(name_of(function), b"", "", travels=False)

    def _ready(self, job: RenderJob) -> None:
        """Hand over a job whose arguments are on the host, or hold it while the renderer has enough to do."""
        job.order = msgspec.structs.replace(job.order, blob=job.snapshot.blob, spans=job.snapshot.spans)
        self._held.append(job)
        self._pump()

    def _pump(self) -> None:
        while self._held and (self._on_full != "drop_oldest" or self._n_handed() < WINDOW):
            job = self._held.popleft()
            if self._kind == "process" and not job.travels:
                if self._thread is None:
                    self._thread = ThreadRenderer(self._done)
                self._thread.put(job)
            elif self._main is not None:
                self._main.put(job)

    def _n_handed(self) -> int:
        return len(self._jobs) - len(self._held) - len(self._reading)

    def _release(self, job: RenderJob) -> None:
        """Forget a job, and give its memory back."""
        if self._jobs.pop(job.order.id, None) is not None:
            self._size -= job.size
        if isinstance(job.snapshot, Snapshot):
            job.snapshot.release()
        self._changed.notify_all()

    def _check(self) -> None:
        if self._main is not None:
            self._main.check()

    def _fail(self, problem: FigureError) -> None:
        self._counts["failed"] += 1
        self._last_error = str(problem.args[0])
        if len(self._errors) < MAX_ERRORS:
            self._errors.append(problem)

    def _tell_here(self, problem: Exception) -> None:
        """Say once that figures are drawn in this process."""
        if not self._told_here:
            self._told_here = True
            with contextlib.suppress(Warning):
                warnings.warn(f"Drawn in a thread instead of a child: {problem}", RuntimeWarning, stacklevel=6)

    # On other threads

    def _done(self, job: QueuedJob, done: DrawFinished, pictures: dict[str, bytes]) -> None:
        """Hand on what became of a job, and forget it."""
        assert isinstance(job, RenderJob)
        problems = self._hand_on(job, done, pictures)
        with self._changed:
            self._counts["drawn"] += len(pictures) - sum(done.cards)
            self._counts["files"] += len(done.files)
            self._counts["here"] += done.pid == os.getpid()
            for problem in problems:
                self._fail(problem)
            self._release(job)
            self._pump()
            idle = not self._jobs and self.closed
        if problems and self._on_error == "warn":
            self.tell()
        if idle:
            self._end()

    def _hand_on(self, job: RenderJob, done: DrawFinished, pictures: dict[str, bytes]) -> list[FigureError]:
        """Give pictures to the sinks, and return everything that went wrong."""
        step, wall_time = job.order.step, time.time()
        problems = [error(told, step) for told in done.troubles]
        for name, png in pictures.items():
            record = Record(tag=name, index=0, step=step, wall_time=wall_time, value=Figure(png))
            for sink in job.sinks:
                try:
                    sink.write([record])
                except Exception as problem:  # noqa: BLE001  a sink's failure is its own
                    problems.append(error(trouble(name, problem), step))
        return problems

    def _read(self) -> float | None:
        """Bring what rests on devices to the host, in order."""
        while self._reading:
            job = self._reading[0]
            problem: FigureError | None = None
            try:
                if isinstance(job.snapshot, PendingTransfer):
                    assert self._arena is not None
                    job.snapshot = Snapshot(job.snapshot.read(), self._arena)
            except Exception as failure:  # noqa: BLE001  such as a device's; it costs this order
                problem = error(trouble(job.order.name, failure), job.order.step)
            with self._changed:
                self._reading.popleft()
                if problem is None:
                    self._ready(job)
                else:
                    self._fail(problem)
                    self._release(job)
        return None

    def _end(self) -> None:
        """Let the renderer end; nobody waits for it."""
        if self._main is not None:
            self._main.close(0.0)
        _open.discard(self)

    def _finish(self, timeout_s: float | None, *, close: bool) -> None:
        """Wait for the figures, then for the sinks."""
        if not self.wait(timeout_s):
            self._late(f"not within {timeout_s:g} s")
        if close and self._main is not None and not self._main.close(SINKS_S if timeout_s is None else timeout_s):
            self._late("the renderer has not ended in time; it goes on, and writes files by itself")
        for sink in list(self._sinks.values()):
            flush: Callable[[float], None] = getattr(sink, "push", sink.flush) if close else sink.flush
            try:
                flush(SINKS_S if timeout_s is None else timeout_s)
            except Exception as problem:  # noqa: BLE001  a sink's failure is its own
                self.fail(FigureError(f"{type(sink).__name__}: {problem}", kind=type(problem).__name__))
        if close:
            self._sinks.clear()
            if self._arena is not None and not self._jobs:
                self._arena.close()

    def _late(self, why: str) -> None:
        with self._changed:
            names = ", ".join(dict.fromkeys(repr(job.order.name) for job in self._jobs.values()))
            if self._jobs:
                self._fail(FigureError(f"{len(self._jobs)} orders are not drawn, {why}: {names:.300}", figure=names))


_open: set[RenderQueue] = set()


def _close_all() -> None:
    for desk in list(_open):
        try:
            desk.close(None)
        except FigureErrors as errors:
            for problem in errors.exceptions:
                warnings.warn(str(problem), RuntimeWarning, stacklevel=1)


def _abandon_all() -> None:
    for desk in list(_open):
        desk.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
