"""The render queue: takes requests for figures, has them drawn, and passes the figures on.

Theory of operation:

1. A request is checked when it is made, and a job is encoded when it is made, before the queue has it: what cannot be
   drawn raises or is counted, and leaves nothing behind that somebody would wait for.
2. What waits, and what is dropped when too much waits, is up to the `JobBacklog`. With "spill", what memory has no room
   for is written to a file, and read when there is room, in the order of the requests. No request waits for room.
3. Every wait has a deadline. Without a timeout of the caller's, it is `_stall_s` after the last figure was finished,
   longer than a renderer can take for one: what still waits then is reported, and the renderer has it to the end.
4. A function that cannot be sent to a child is drawn in a thread, with one warning.
5. Every failure is kept, and reported by the next request, `flush` and `close`; see `FailureLog`. A request is taken
   before errors are raised, so they never cost a figure.
6. If the program ends without `close`, by an exception or an interrupt, the interpreter's exit waits for the figures.
   In a forked copy of the process the queue takes nothing.
"""

from __future__ import annotations

import atexit
import math
import os
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from sightglass.core.codec import Buffer, encode
from sightglass.core.counts import Statistics
from sightglass.core.errors import FigureError, FigureErrors, UnsendableError, warn, warn_user
from sightglass.core.process.clock import Clock, SystemClock
from sightglass.core.process.threads import UNTIL_WOKEN, Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.values import n_bytes

from .child_process import STARTING_S, ChildRenderer
from .closures import Draws, PackedFunction, name_of, pack
from .figure_files import EndingSink, FigureSink
from .local_renderer import LocalRenderer
from .messages import IN_BAND, DrawFigure, DrawFinished, Failure, Pictures, failure_of, figure_error, plain
from .render_job import (
    FailureLog,
    OnError,
    Renderer,
    RendererKind,
    RenderJob,
    RenderRequest,
    Spilled,
    SpillFiles,
    write_to_sinks,
)
from .snapshot import Arena, PendingTransfer, Snapshot, start_transfer

CHECK_S: Final = 0.25  # a hang is seen within limit_s and this; each check costs a waiting thread microseconds
NOTICE_S: Final = 5.0  # a longer wait says what it waits for
SINKS_S: Final = 30.0  # for sinks and a renderer that are done with their figures, when no other timeout is given
LEAST_S: Final = 0.1  # for a sink to say that it is done, when the caller's timeout is over


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
        on_error: OnError,
        n_jobs: int,
        n_bytes: int,
        limit_s: float,
        clock: Clock | None = None,
    ) -> None:
        self.failures = FailureLog(on_error)
        self.closed = False
        self._kind = kind
        self._n_bytes = n_bytes
        self._limit_s = limit_s
        self._stall_s = 2 * (limit_s + STARTING_S)  # a job that kills a renderer is drawn twice
        self._clock = clock or SystemClock()
        self._finished_s = -math.inf
        self._spill_files = SpillFiles()
        self._told: set[str] = set()
        self._changed = threading.Condition(threading.RLock())
        self._backlog = JobBacklog(n_jobs=n_jobs, n_bytes=n_bytes)
        self._arena: Arena | None = None
        self._renderers: list[Renderer] = []
        self._transfers = Worker("figures-read", self._transfer)
        self._transferring: deque[tuple[RenderJob, int]] = deque()
        self._sinks: dict[int, FigureSink] = {}
        self._counts = dict.fromkeys(("events", "records", "dropped", "files", "here"), 0)
        self._next_id = 0
        self._finished = False

    def submit(self, function: Draws, arguments: tuple[Any, ...], request: RenderRequest) -> None:
        """Copy the arguments of a function, and have it drawn.

        Raises:
            FigureErrors: Earlier figures failed and `on_error` is "raise"; this request was taken.
        """
        try:
            self._take(function, arguments, request)
        except Exception as error:  # noqa: BLE001  whatever the arguments are, it costs this figure only
            self.failures.add(figure_error(failure_of(request.name, error), request.step))
        self.failures.report()

    def use(self, sinks: Iterable[FigureSink]) -> None:
        """Flush these sinks, too, from now on; those that may end before wait for this queue then."""
        for sink in sinks:
            self._sinks[id(sink)] = sink
            if isinstance(sink, EndingSink):
                sink.used_by(self)

    def wait(self, timeout_s: float | None) -> bool:
        """Wait until every figure is drawn and passed on, and return whether it is; raises nothing.

        Args:
            timeout_s: How long to wait; by default as long as figures are finished.
        """
        began_s = self._clock.monotonic()
        with self._changed:
            told = False
            while self._backlog.open:
                stalled_s = max(began_s, self._finished_s) + self._stall_s
                if self._clock.monotonic() >= (stalled_s if timeout_s is None else began_s + timeout_s):
                    return False
                self._changed.wait(CHECK_S)
                self._check()
                n_open = len(self._backlog.open)
                if n_open and not told and self._clock.monotonic() >= began_s + NOTICE_S:
                    told = True
                    warn(f"Waiting for {n_open:,} figures that are not drawn yet")
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
        if not self._backlog.open:
            self._end()

    def abandon(self) -> None:
        """Do nothing any more, in a forked child."""
        self.closed = True
        self._backlog.clear()
        self._transferring.clear()
        self.failures.clear()
        self._changed = threading.Condition(threading.RLock())
        for renderer in self._renderers:
            renderer.abandon()

    def statistics(self) -> Statistics:
        """Return the counts so far."""
        counts = self._counts
        return Statistics(
            n_events=counts["events"],
            n_records=counts["records"],
            n_waiting=len(self._backlog.open),
            n_dropped=counts["dropped"] + self._backlog.n_dropped,
            n_errors=self.failures.n_errors,
            last_error=self.failures.last_error,
            n_files=counts["files"],
            n_here=counts["here"],
            n_started=sum(renderer.n_started for renderer in self._renderers),
        )

    def _take(self, function: Draws, arguments: tuple[Any, ...], request: RenderRequest) -> None:
        """Make a job, and have it drawn, if there is room for it."""
        with self._changed:
            for renderer in self._start():
                renderer.end_overdue()
            self._counts["events"] += 1
            size = n_bytes(arguments)
            if request.on_full == "drop_new" and self._room(request, size) is None:
                return
        packed = pack(function) if self._kind == "process" else PackedFunction(name_of(function))
        size += len(packed.pickled)
        value = start_transfer(arguments)
        pending = value if isinstance(value, PendingTransfer) else None
        encoded = encode(value) if pending is None else None
        with self._changed:
            if request.on_full == "spill":
                self._check_size(size)
                self._keep(self._job(function, packed, request, pending, size), encoded)
                return
            place = self._room(request, size)
            if place is None:
                return
            assert self._arena is not None
            snapshot = pending if encoded is None else Snapshot(encoded, self._arena)
            try:
                job = self._job(function, packed, request, snapshot, size)
            except BaseException:  # an interrupt, too, gives the memory back
                if isinstance(snapshot, Snapshot):
                    snapshot.release()
                raise
            self._add(job, place)

    # Under the lock

    def _start(self) -> list[Renderer]:
        """Return the renderers; the first one is made with the first request, the second when it is needed."""
        if not self._renderers:
            self._arena = Arena(self._n_bytes)
            if self._kind == "process":
                self._renderers = [ChildRenderer(self._finish_job, arena=self._arena, limit_s=self._limit_s)]
            else:
                self._renderers = [self._local(at_once=self._kind == "inline")]
            _open.add(self)
            atexit.unregister(_close_all)
            atexit.register(_close_all)  # registered last, runs first: before runs, and W&B's, end
        return self._renderers

    def _local(self, *, at_once: bool = False) -> LocalRenderer:
        return LocalRenderer(self._finish_job, limit_s=self._limit_s, at_once=at_once)

    def _give(self, job: RenderJob) -> None:
        """Give a job to the renderer, or to a thread of this process if it cannot be drawn there."""
        first, *others = self._start()
        if not job.lack and first.put(job):
            return
        why = job.lack or f"no process can be started for figures: {first.lack}"
        self._warn("here", f"Drawing in a thread of this process, because {why}")
        if not others:
            others = [self._local()]
            self._renderers += others
        others[0].put(job)

    def _warn(self, what: str, text: str) -> None:
        """Warn once of each thing."""
        if what not in self._told:
            self._told.add(what)
            warn(text)

    def _room(self, request: RenderRequest, size: int) -> int | None:
        """Make room for a request, and return its place, or `None` after counting it."""
        self._check_size(size)
        place = self._backlog.place(request, size)
        if place is None:
            self._counts["dropped"] += 1
        return place

    def _check_size(self, size: int) -> None:
        if size > self._n_bytes:
            raise UnsendableError(f"Expected at most {self._n_bytes:,} bytes to draw from, got {size:,}: see max_bytes")

    def _keep(self, job: RenderJob, encoded: tuple[bytes, list[Buffer]] | None) -> None:
        """Take a job that is dropped only if the disk is full; `encoded`: its arguments, if they are on the host."""
        self.use(job.request.sinks)
        if encoded is None:
            self._backlog.outside[job.message.id] = job
            self._transferring.append((job, 0))
            self._transfers.wake()
        else:
            self._hold_or_spill(job, encoded)
            self._send_next()

    def _hold_or_spill(self, job: RenderJob, encoded: tuple[bytes, list[Buffer]]) -> None:
        """Hold a job in memory, or in a file if there is no room or others are before it."""
        first = next(iter(self._backlog.outside.values()), job)
        if first is job and self._backlog.fits(job.n_bytes):
            self._hold(job, encoded)
        else:
            self._spill(job, encoded)

    def _hold(self, job: RenderJob, encoded: tuple[bytes, list[Buffer]]) -> None:
        assert self._arena is not None
        job.complete(Snapshot(encoded, self._arena))
        self._backlog.outside.pop(job.message.id, None)
        self._backlog.add(job)
        self._backlog.hold(job, len(self._backlog.held))

    def _spill(self, job: RenderJob, encoded: tuple[bytes, list[Buffer]]) -> None:
        blob, buffers = encoded
        message = msgspec.structs.replace(job.message, blob=blob, spans=[(IN_BAND, len(one)) for one in buffers])
        try:
            spilled = self._spill_files.write(message, buffers, job.request.output.folder)
        except OSError as error:
            self._backlog.remove(job)
            self._counts["dropped"] += 1
            self._warn("dropped", f"Figures are dropped: there is no room in memory, and none on the disk: {error}")
            return
        job.message = msgspec.structs.replace(job.message, pickled=b"")
        job.complete(spilled)
        self._backlog.outside[job.message.id] = job

    def _read_spilled(self) -> None:
        """Read the jobs in files for which there is room now, in order."""
        while (job := next(iter(self._backlog.outside.values()), None)) is not None:
            if not isinstance(job.snapshot, Spilled) or not self._backlog.fits(job.n_bytes):
                return
            try:
                job.message, buffers = job.snapshot.read()
                self._hold(job, (job.message.blob, list(buffers)))
            except Exception as error:  # noqa: BLE001  a disk's failure costs this job only
                self._fail(job, error)
        self._spill_files.forget()

    def _job(
        self,
        function: Draws,
        packed: PackedFunction,
        request: RenderRequest,
        snapshot: Snapshot | PendingTransfer | None,
        size: int,
    ) -> RenderJob:
        message = DrawFigure(
            id=self._next_id, name=request.name, step=request.step, function=packed.name, pickled=packed.pickled,
            source=packed.source, blob=b"", spans=[], output=request.output,
        )  # fmt: skip
        self._next_id += 1
        return RenderJob(
            message=message, request=request, snapshot=snapshot, function=function, n_bytes=size, lack=packed.lack
        )

    def _add(self, job: RenderJob, place: int) -> None:
        """Take a job, and send it to the renderer once its arguments are on the host."""
        self.use(job.request.sinks)
        self._backlog.add(job)
        if isinstance(job.snapshot, PendingTransfer) or self._transferring:
            self._transferring.append((job, place))
            self._transfers.wake()
        else:
            self._backlog.hold(job, place)
            self._send_next()

    def _send_next(self) -> None:
        while True:
            self._read_spilled()
            job = self._backlog.next_to_send()
            if job is None:
                return
            try:
                self._give(job)
            except (Exception, SystemExit) as error:  # noqa: BLE001  it costs this job only
                self._fail(job, error)

    def _fail(self, job: RenderJob, error: BaseException) -> None:
        """Count a job that failed as a whole, and forget it."""
        self.failures.add(figure_error(failure_of(job.message.name, error), job.message.step))
        self._release(job)

    def _release(self, job: RenderJob) -> None:
        """Forget a job that is finished, and free its memory."""
        self._backlog.remove(job)
        self._finished_s = self._clock.monotonic()
        self._changed.notify_all()

    def _check(self) -> None:
        if self._transfers.starved:
            self._transfers.flush(0.0)
        for renderer in self._start():
            renderer.check()

    # On other threads

    def _finish_job(self, job: RenderJob, result: DrawFinished, pictures: Pictures) -> None:
        """Pass the figures of a job on, and forget it."""
        errors: list[FigureError] = []
        try:
            errors = write_to_sinks(job, result, pictures)
        finally:  # also after Ctrl-C in the training's own thread
            last = self._forget(job, result, pictures, errors)
        if errors and self.failures.on_error == "warn":
            self.failures.report()
        if last:
            self._end()

    def _forget(self, job: RenderJob, result: DrawFinished, pictures: Pictures, errors: list[FigureError]) -> bool:
        """Count what became of a job, and forget it; return whether it was the last."""
        with self._changed:
            self._counts["records"] += len(pictures) - sum(result.cards)
            self._counts["files"] += len(result.files)
            self._counts["here"] += result.pid == os.getpid()
            for error in errors:
                self.failures.add(error)
            self._release(job)
            self._send_next()
            return not self._backlog.open and self.closed

    def _transfer(self, now_s: float) -> float:
        """Read arguments from devices, in order."""
        while self._transferring:
            job, place = self._transferring[0]
            failed: BaseException | None = None
            encoded: Any = None
            try:
                encoded = encode(job.snapshot.read()) if isinstance(job.snapshot, PendingTransfer) else None
            except BaseException as error:  # noqa: BLE001  a device's failure costs this job only
                failed = error
            with self._changed:
                self._transferring.popleft()
                if failed is not None:
                    self._fail(job, failed)
                elif job.request.on_full == "spill":
                    self._hold_or_spill(job, encoded)
                else:
                    if encoded is not None:
                        assert self._arena is not None
                        job.complete(Snapshot(encoded, self._arena))
                    self._backlog.hold(job, place)
                self._send_next()
        return UNTIL_WOKEN

    def _end(self) -> None:
        """Let the renderer end, without waiting for it."""
        for renderer in self._renderers:
            renderer.close(0.0)
        _open.discard(self)

    def _finish(self, timeout_s: float | None, *, close: bool) -> None:
        """Wait for the figures, then for the sinks; with a timeout, for all of them together."""
        until_s = math.inf if timeout_s is None else self._clock.monotonic() + timeout_s

        def left_s() -> float:
            return max(LEAST_S, min(SINKS_S if timeout_s is None else timeout_s, until_s - self._clock.monotonic()))

        on_time = self.wait(timeout_s)
        if not on_time:
            self._report_late()
        for renderer in self._renderers if close else ():
            if not renderer.close(left_s() if on_time else 0.0) and on_time:
                self.failures.add(FigureError("The renderer has drawn everything, and has not ended"))
        for sink in list(self._sinks.values()):
            try:
                sink.flush(left_s())
            except (Exception, SystemExit) as error:  # noqa: BLE001  the others flush all the same
                self.failures.add(FigureError(f"{type(sink).__name__}: {plain(error)}", kind=type(error).__name__))
        if close:
            self._sinks.clear()
            if self._arena is not None and not self._backlog.open:
                self._arena.close()

    def _report_late(self) -> None:
        """Report each job that is still open; it may still be drawn, so it is not counted as failed."""
        with self._changed:
            for job in self._backlog.open:
                why = Failure(figure=job.message.name, kind="", message="Not drawn in time, and still waiting")
                self.failures.add(figure_error(why, job.message.step), counted=False)


_open: set[RenderQueue] = set()


def _close_all() -> None:
    for queue in list(_open):
        try:
            queue.close(None)
        except FigureErrors as errors:
            for error in errors.exceptions:
                warn_user(str(error))


def _abandon_all() -> None:
    for queue in list(_open):
        queue.abandon()
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


# The jobs that are not drawn yet: which are sent to the renderer, which are held back, and which are dropped.
#
# It knows no thread and no clock; the caller holds a lock.
#
# 1. At most `n_jobs` jobs wait behind the one being drawn, with at most `n_bytes` of arguments. Beyond that, the
#    `on_full` of a request decides: with "spill", it waits outside of memory, with "drop_new" it has to go,
#    "drop_oldest" drops the job that was held back longest, "replace" those of the same name, whose place it takes, so
#    that every name gets its turn. With "replace", one more job for each name may wait.
# 2. A job that was sent cannot be dropped, but is drawn even if this process is killed. So jobs are sent while there is
#    room, except with "drop_oldest", where at most `WINDOW` are; "replace" leaves half of the bytes to newer figures.

WINDOW: Final = 2  # one being drawn and one ready, so the renderer never idles
MAX_NAMES: Final = 256  # with "replace", a bound for programs that give each figure a name of its own


class JobBacklog:
    """The open jobs of a render queue.

    Attributes:
        jobs: Those in memory, by id.
        outside: Those with "spill" whose arguments are on a device or in a file, by id, in order.
        held: Those that the renderer does not have yet, in order.
        n_dropped: How many were dropped to make room.
    """

    def __init__(self, *, n_jobs: int, n_bytes: int) -> None:
        """Start empty, with room for this many waiting jobs and bytes."""
        self.jobs: OrderedDict[int, RenderJob] = OrderedDict()
        self.outside: OrderedDict[int, RenderJob] = OrderedDict()
        self.held: list[RenderJob] = []
        self.n_dropped = 0
        self._n_jobs = n_jobs
        self._n_bytes = n_bytes

    @property
    def open(self) -> list[RenderJob]:
        """All jobs that are not finished."""
        return [*self.jobs.values(), *self.outside.values()]

    def place(self, request: RenderRequest, n_bytes: int) -> int | None:
        """Make room for a request as its `on_full` says; return its place in `held`, or `None` without room."""
        place = len(self.held)
        if self.fits(n_bytes):
            return place
        n_more = 0
        if request.on_full == "replace":
            n_more = MAX_NAMES
            same = [i for i, job in enumerate(self.held) if job.droppable and job.message.name == request.name]
            for i in reversed(same):
                self._drop(i)
            place = same[0] if same else place
        while request.droppable and not self.fits(n_bytes, n_more):
            oldest = next((i for i, job in enumerate(self.held) if job.droppable), None)
            if oldest is None:
                break
            place -= oldest < place
            self._drop(oldest)
        return place if self.fits(n_bytes, n_more) else None

    def add(self, job: RenderJob) -> None:
        """Take a job; it is held once its arguments are on the host, see `hold`."""
        self.jobs[job.message.id] = job

    def hold(self, job: RenderJob, place: int) -> None:
        """Hold a job back, until `next_to_send` returns it."""
        self.held.insert(place, job)

    def next_to_send(self) -> RenderJob | None:
        """Return the next job that the renderer should have, if there is one; it is sent from then on."""
        if not self.held:
            return None
        job, sent = self.held[0], [job for job in self.jobs.values() if job.sent]
        if len(sent) >= (WINDOW if job.request.on_full == "drop_oldest" else self._n_jobs + 1):
            return None
        if job.request.on_full == "replace" and sent and self._bytes_of(sent) + job.n_bytes > self._n_bytes // 2:
            return None
        job.sent = True
        return self.held.pop(0)

    def remove(self, job: RenderJob) -> None:
        """Forget a job, and free its memory."""
        self.jobs.pop(job.message.id, None)
        self.outside.pop(job.message.id, None)
        if isinstance(job.snapshot, Snapshot):
            job.snapshot.release()

    def clear(self) -> None:
        """Forget all jobs, in a forked child, where their memory is not this process's to free."""
        self.jobs.clear()
        self.outside.clear()
        self.held.clear()

    def fits(self, n_bytes: int, n_more: int = 0) -> bool:
        """Return whether there is room in memory for one more job of this size; `n_more`: beyond the usual number."""
        within = self._bytes_of(list(self.jobs.values())) + n_bytes <= self._n_bytes
        return within and len(self.jobs) <= self._n_jobs + n_more

    @staticmethod
    def _bytes_of(jobs: list[RenderJob]) -> int:
        return sum(job.n_bytes for job in jobs)

    def _drop(self, place: int) -> None:
        self.remove(self.held.pop(place))
        self.n_dropped += 1
