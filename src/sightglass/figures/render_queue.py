"""The render queue: takes requests for figures, has them drawn, and passes the figures on.

Theory of operation:

1. At most `n_jobs` jobs wait behind the one being drawn, with at most `n_bytes` of arguments. Beyond that, `on_full`
   decides: "block" waits for room for at most `limit_s`, and checks meanwhile that the renderer makes progress;
   "drop_oldest" drops the job that has waited longest, "drop_new" the new one. Dropped jobs are counted.
2. A job is sent to the renderer at once, so that it is drawn even if this process is killed. With "drop_oldest" only
   `WINDOW` jobs are sent, because a job that was sent cannot be dropped.
3. A function that cannot be sent to a child is drawn in a thread, with one warning.
4. Every failure is kept, and reported by the next request, `flush` and `close`; see `FailureLog`. A request is taken
   before errors are raised, so they never cost a figure.
5. If the program ends without `close`, by an exception or an interrupt, the interpreter's exit waits for the figures.
   In a forked copy of the process the queue takes nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import warnings
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from sightglass.core.errors import FigureError, FigureErrors, MissingExtraError, UnsendableError
from sightglass.core.threads import UNTIL_WOKEN, Worker
from sightglass.core.values import n_bytes

from .child_process import ChildRenderer
from .closures import Draws, PackedFunction, name_of, pack
from .failure_log import FailureLog, OnError
from .in_process import InlineRenderer, ThreadRenderer
from .messages import DrawFigure, DrawFinished, Failure, failure_of, figure_error, plain
from .render_job import FigureStatistics, Renderer, RenderJob, RenderRequest, write_to_sinks
from .sinks import EndingSink, FigureSink
from .snapshot import Arena, PendingTransfer, Snapshot, start_transfer

RendererKind = Literal["process", "thread", "inline"]
OnFull = Literal["block", "drop_oldest", "drop_new"]

WINDOW: Final = 2  # one being drawn and one ready, so the renderer never idles
CHECK_S: Final = 0.25  # a hang is seen within limit_s and this; each check costs a waiting thread microseconds
SINKS_S: Final = 30.0  # for sinks and a renderer that are done with their figures, when no other timeout is given


class RenderQueue:
    """Takes requests for figures; from any thread.

    Attributes:
        failures: The failures that were not reported yet.
        closed: Whether it takes no more requests.
    """

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
        self.failures = FailureLog(on_error)
        self.closed = False
        self._kind = kind
        self._on_full = on_full
        self._n_jobs = n_jobs
        self._n_bytes = n_bytes
        self._limit_s = limit_s
        self._changed = threading.Condition(threading.RLock())
        self._jobs: OrderedDict[int, RenderJob] = OrderedDict()
        self._unsent: deque[RenderJob] = deque()
        self._n_bytes_used = 0
        self._arena: Arena | None = None
        self._renderer: Renderer | None = None
        self._thread_renderer: ThreadRenderer | None = None
        self._transfers = Worker("figures-read", self._transfer)
        self._transferring: deque[RenderJob] = deque()
        self._sinks: dict[int, FigureSink] = {}
        self._counts = dict.fromkeys(("submitted", "drawn", "dropped", "files", "here"), 0)
        self._warned_of_thread = False
        self._next_id = 0
        self._finished = False

    def submit(self, function: Draws, arguments: tuple[Any, ...], request: RenderRequest) -> None:
        """Copy the arguments of a function, and have it drawn.

        Raises:
            FigureErrors: Earlier figures failed and `on_error` is "raise"; this request was taken.
        """
        with self._changed:
            self._start()
            self._counts["submitted"] += 1
            try:
                size = n_bytes(arguments)
                if self._has_room(size, request):
                    self._add(function, arguments, request, size)
            except (UnsendableError, MemoryError) as error:
                self.failures.add(figure_error(failure_of(request.name, error), request.step))
        self.failures.report()

    def use(self, sinks: Iterable[FigureSink]) -> None:
        """Flush these sinks, too, from now on; those that may end before wait for this queue then."""
        for sink in sinks:
            self._sinks[id(sink)] = sink
            if isinstance(sink, EndingSink):
                sink.used_by(self)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until every figure is drawn and passed on, and return whether it is; raises nothing."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while self._jobs:
                if deadline_s is not None and time.monotonic() >= deadline_s:
                    return False
                self._changed.wait(CHECK_S)
                self._check()
        return True

    def flush(self, timeout_s: float | None) -> None:
        """Wait until every figure has reached its sinks.

        Raises:
            FigureErrors: Some failed or are late, and `on_error` is "raise".
        """
        self._finish(timeout_s, close=False)
        self.failures.report()

    def close(self, timeout_s: float | None) -> None:
        """Draw what is left, and end; closing twice does nothing. Errors as in `flush`."""
        if not self._finished:
            with self._changed:
                self.closed = True
            self._finish(timeout_s, close=True)
            self._finished = True
            _open.discard(self)
        self.failures.report()

    def close_later(self) -> None:
        """Take no more requests, without waiting: what is left is drawn before the interpreter exits."""
        self.closed = True
        if not self._jobs:
            self._end()

    def abandon(self) -> None:
        """Do nothing any more, in a forked child."""
        self.closed = True
        self._jobs.clear()
        self._unsent.clear()
        self._transferring.clear()
        self.failures.clear()
        self._changed = threading.Condition(threading.RLock())
        for renderer in (self._renderer, self._thread_renderer):
            if renderer is not None:
                renderer.abandon()

    def statistics(self) -> FigureStatistics:
        """Return the counts so far."""
        return FigureStatistics(
            **{f"n_{name}": n for name, n in self._counts.items()},
            n_failed=self.failures.n_failed,
            n_waiting=len(self._jobs),
            n_started=self._renderer.n_started if isinstance(self._renderer, ChildRenderer) else 0,
            last_error=self.failures.last_error,
        )

    # Under the lock

    def _start(self) -> None:
        """Make the renderer, with the first request."""
        if self._renderer is not None:
            return
        self._arena = Arena(self._n_bytes)
        if self._kind == "process":
            self._renderer = ChildRenderer(self._finish_job, arena=self._arena, limit_s=self._limit_s)
        else:
            renderer = ThreadRenderer if self._kind == "thread" else InlineRenderer
            self._renderer = renderer(self._finish_job)
        _open.add(self)
        atexit.unregister(_close_all)
        atexit.register(_close_all)  # registered last, runs first: before runs, and W&B's, end

    def _has_room(self, size: int, request: RenderRequest) -> bool:
        """Make room for a request as `on_full` says, and return whether there is."""
        if size > self._n_bytes:
            raise UnsendableError(f"Expected at most {self._n_bytes:,} bytes to draw from, got {size:,}: see max_bytes")
        deadline_s = time.monotonic() + self._limit_s
        while len(self._jobs) > self._n_jobs or self._n_bytes_used + size > self._n_bytes:
            if self._on_full == "drop_oldest" and self._unsent:
                self._release(self._unsent.popleft())
                self._counts["dropped"] += 1
            elif self._on_full != "block":
                self._counts["dropped"] += 1
                return False
            elif time.monotonic() >= deadline_s or self._in_own_thread():
                self._counts["dropped"] += 1
                failure = Failure(
                    figure=request.name, kind="", message=f"Not drawn: no room within {self._limit_s:g} s"
                )
                self.failures.add(figure_error(failure, request.step))
                return False
            else:
                self._changed.wait(CHECK_S)
                self._check()
        return True

    def _in_own_thread(self) -> bool:
        return self._thread_renderer is not None and self._thread_renderer.is_current

    def _add(self, function: Draws, arguments: tuple[Any, ...], request: RenderRequest, size: int) -> None:
        """Copy the arguments, and send the job to the renderer."""
        assert self._arena is not None
        value = start_transfer(arguments)
        pending = isinstance(value, PendingTransfer)
        packed = self._pack(function)
        message = DrawFigure(
            id=self._next_id, name=request.name, step=request.step, function=packed.name, pickled=packed.pickled,
            source=packed.source, blob=b"", spans=[], output=request.output,
        )  # fmt: skip
        self._next_id += 1
        job = RenderJob(
            message=message, snapshot=value if pending else Snapshot(value, self._arena), function=function,
            sinks=request.sinks, n_bytes=size, sendable=packed.sendable,
        )  # fmt: skip
        self._jobs[message.id] = job
        self._n_bytes_used += size
        self.use(request.sinks)
        if pending or self._transferring:
            self._transferring.append(job)
            self._transfers.wake()
        else:
            self._send(job)

    def _pack(self, function: Draws) -> PackedFunction:
        """Pack a function for a child; one that cannot be packed is drawn in this process."""
        if self._kind == "process":
            try:
                return pack(function)
            except (UnsendableError, MissingExtraError) as error:
                self._warn_of_thread(error)
        return PackedFunction(name_of(function), b"", "", sendable=False)

    def _send(self, job: RenderJob) -> None:
        """Send a job whose arguments are on the host, once the renderer takes more."""
        job.message = msgspec.structs.replace(job.message, blob=job.copied.blob, spans=job.copied.spans)
        self._unsent.append(job)
        self._send_next()

    def _send_next(self) -> None:
        while self._unsent and (self._on_full != "drop_oldest" or self._n_sent() < WINDOW):
            job = self._unsent.popleft()
            try:
                self._hand_over(job)
            except (Exception, SystemExit) as error:  # noqa: BLE001  it costs this job only
                self._fail(job, error)

    def _hand_over(self, job: RenderJob) -> None:
        """Give a job to the renderer, or to a thread of this process if it cannot be drawn there."""
        assert self._renderer is not None
        if (self._kind == "process" and not job.sendable) or not self._renderer.put(job):
            if self._thread_renderer is None:
                self._thread_renderer = ThreadRenderer(self._finish_job)
            self._thread_renderer.put(job)
        if isinstance(self._renderer, ChildRenderer) and self._renderer.lack:
            self._warn_of_thread(f"no process can be started for figures: {self._renderer.lack}")

    def _fail(self, job: RenderJob, error: BaseException) -> None:
        """Count a job that failed as a whole, and forget it."""
        self.failures.add(figure_error(failure_of(job.message.name, error), job.message.step))
        self._release(job)

    def _n_sent(self) -> int:
        return len(self._jobs) - len(self._unsent) - len(self._transferring)

    def _release(self, job: RenderJob) -> None:
        """Forget a job, and free its memory."""
        if self._jobs.pop(job.message.id, None) is not None:
            self._n_bytes_used -= job.n_bytes
        if isinstance(job.snapshot, Snapshot):
            job.snapshot.release()
        self._changed.notify_all()

    def _check(self) -> None:
        if self._transfers.starved:
            self._transfers.flush(0.0)
        for renderer in (self._renderer, self._thread_renderer):
            if renderer is not None:
                renderer.check()

    def _warn_of_thread(self, why: object) -> None:
        """Warn once that figures are drawn in this process."""
        if not self._warned_of_thread:
            self._warned_of_thread = True
            with contextlib.suppress(Warning):
                warnings.warn(f"Drawing in a thread of this process, because {why}", RuntimeWarning, stacklevel=6)

    # On other threads

    def _finish_job(self, job: RenderJob, result: DrawFinished, pngs: dict[str, bytes]) -> None:
        """Pass the figures of a job on, and forget it."""
        errors: list[FigureError] = []
        try:
            errors = write_to_sinks(job, result, pngs)
        finally:  # also after Ctrl-C in the training's own thread
            last = self._forget(job, result, pngs, errors)
        if errors and self.failures.on_error == "warn":
            self.failures.report()
        if last:
            self._end()

    def _forget(self, job: RenderJob, result: DrawFinished, pngs: dict[str, bytes], errors: list[FigureError]) -> bool:
        """Count what became of a job, and forget it; return whether it was the last."""
        with self._changed:
            self._counts["drawn"] += len(pngs) - sum(result.cards)
            self._counts["files"] += len(result.files)
            self._counts["here"] += result.pid == os.getpid()
            for error in errors:
                self.failures.add(error)
            self._release(job)
            self._send_next()
            return not self._jobs and self.closed

    def _transfer(self, now_s: float) -> float:
        """Read arguments from devices, in order."""
        while self._transferring:
            job = self._transferring[0]
            failed: BaseException | None = None
            try:
                if isinstance(job.snapshot, PendingTransfer):
                    assert self._arena is not None
                    job.snapshot = Snapshot(job.snapshot.read(), self._arena)
            except BaseException as error:  # noqa: BLE001  a device's failure costs this job only
                failed = error
            with self._changed:
                self._transferring.popleft()
                if failed is None:
                    self._send(job)
                else:
                    self._fail(job, failed)
        return UNTIL_WOKEN

    def _end(self) -> None:
        """Let the renderer end, without waiting for it."""
        if self._renderer is not None:
            self._renderer.close(0.0)
        _open.discard(self)

    def _finish(self, timeout_s: float | None, *, close: bool) -> None:
        """Wait for the figures, then for the sinks."""
        if not self.wait(timeout_s):
            self._fail_late(f"not within {timeout_s:g} s")
        sinks_s = SINKS_S if timeout_s is None else timeout_s
        if close and self._renderer is not None and not self._renderer.close(sinks_s):
            self._fail_late("the renderer has not ended in time; it continues, and writes files by itself")
        for sink in list(self._sinks.values()):
            try:
                sink.flush(sinks_s)
            except (Exception, SystemExit) as error:  # noqa: BLE001  the others flush all the same
                self.failures.add(FigureError(f"{type(sink).__name__}: {plain(error)}", kind=type(error).__name__))
        if close:
            self._sinks.clear()
            if self._arena is not None and not self._jobs:
                self._arena.close()

    def _fail_late(self, why: str) -> None:
        with self._changed:
            names = ", ".join(dict.fromkeys(repr(job.message.name) for job in self._jobs.values()))
            if self._jobs:
                message = f"{len(self._jobs)} calls are not drawn, {why}: {names:.300}"
                self.failures.add(FigureError(message, figure=names))


_open: set[RenderQueue] = set()


def _close_all() -> None:
    for queue in list(_open):
        try:
            queue.close(None)
        except FigureErrors as errors:
            for error in errors.exceptions:
                warnings.warn(str(error), RuntimeWarning, stacklevel=1)


def _abandon_all() -> None:
    for queue in list(_open):
        queue.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
