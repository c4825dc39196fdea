"""The parent's side of the renderer in a child process.

Theory of operation:

1. The first job starts the child, with `subprocess`, never `multiprocessing`, which would run the user's script a
   second time. It has a process group of its own, so a Ctrl-C reaches the training alone.
2. A job is in the pipe when `put` returns, as far as the pipe has room, so it is drawn even if this process is killed
   right after. A thread sends the rest. `put` never waits.
3. A thread receives results. The end of its pipe shows at once that the child has died. A new child then gets every
   open job again, the interrupted one first; a job that killed two children is given up. A child that dies twice
   before it has started any job is not started again.
4. A child that draws one figure for longer than `limit_s` is killed by the next request, or by a thread that waits.
   That figure is given up, and the others are drawn. Further figures of its function have `HUNG_S` only, until one is
   drawn: a function that hangs does so more than once. The time that the child waits for a processor does not count: it
   lets the training have them. But as long as a thread waits for figures, the child gets its share of the processors:
   it is scheduled like other programs, or, where the system forbids that, replaced by one that is.
5. Where the system lacks what a child needs, `put` refuses jobs, and they are drawn in this process.
6. In a forked copy of this process, the ends of the pipes are closed: the child must see when this process ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import site
import sys
from collections import OrderedDict, deque
from pathlib import Path
from typing import IO, Any, Final

from sightglass.core.codec import Buffer
from sightglass.core.counts import Failures
from sightglass.core.errors import WireError
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.threads import UNTIL_WOKEN, Background, Worker, shortage
from sightglass.core.process.unpatched import select, subprocess, threading, time

from . import messages
from .messages import (
    PRIORITY,
    DrawFinished,
    DrawStarted,
    Failure,
    Pictures,
    StartRenderer,
    StopRenderer,
    plain,
)
from .render_job import Finished, RenderJob
from .snapshot import Arena

MAX_DEATHS: Final = 2  # one death may be an accident, such as a lack of memory
STARTING_S: Final = 60.0  # importing Matplotlib from a busy network file system takes tens of seconds
HUNG_S: Final = 10.0  # many times what a figure usually takes
STARVED_S: Final = 1.0  # for which a child may lack a processor while a thread waits for it: what a new one costs
WRITABLE_S: Final = 0.5  # how soon the sender sees that the child has been replaced
N_THREADS: Final = 4  # the child, the thread it reads with, and the two of this process that send and receive
N_DESCRIPTORS: Final = 16  # the pipes of a child, also while it is started


class ChildRenderer:
    """Draws in a child process.

    Attributes:
        lack: Why no child can be started, or empty.
        n_started: How many children were started.
    """

    def __init__(self, finished: Finished, *, arena: Arena, limit_s: float) -> None:
        """Start no child yet.

        Args:
            finished: Called on a thread, once for each job, with its results.
            arena: Holds large arrays.
            limit_s: How long one job may take.
        """
        self._finished = finished
        self._arena = arena
        self._limit_s = limit_s
        self._lock = threading.RLock()
        self._jobs: OrderedDict[int, RenderJob] = OrderedDict()
        self._deaths: dict[int, int] = {}
        self._hung: set[tuple[str, str]] = set()
        self._lost: list[tuple[RenderJob, str]] = []
        self._drawing_id: int | None = None
        self._since_s = 0.0
        self._n_fruitless = 0
        self._given_up = ""
        self._too_long = False
        self._lent = False
        self._queued_s: float | None = None
        self._polite = True
        self._is_replaced = False
        self._ending = False
        self._child: subprocess.Popen[bytes] | None = None
        self._receiver: Background | None = None
        self._unsent: deque[memoryview] = deque()
        self._sender = Worker("figures-send", self._send)
        self.failures = Failures("sightglass-figures")
        self.lack = ""
        self.n_started = 0

    @property
    def pid(self) -> int | None:
        """The child's process id, or `None`."""
        return self._child.pid if self._child is not None else None

    def put(self, job: RenderJob) -> bool:
        """Draw a job after those that were put before; never waits. Return `False` if no child can be started."""
        with self._lock:
            if self.lack:
                return False
            self._take_processor_back()
            if self._given_up:
                self._lost.append((job, self._given_up))
            else:
                self._jobs[job.message.id] = job
                if self._child is not None:
                    self._write(job.frame)
                elif not self._start():
                    del self._jobs[job.message.id]
                    return False
        self._report_lost()
        return True

    def check(self) -> None:
        """Do what the threads cannot do if they have failed or could not be started."""
        with self._lock:
            if self._receiver is not None and not self._receiver.alive and self._jobs:
                self._give_up(f"results cannot be received: {self._receiver.error!r}")
            if self._sender.starved:
                self._push()
            self._lend_processor()
        self._report_lost()
        self.end_overdue()

    def end_overdue(self) -> None:
        """Kill a child that takes too long for one figure."""
        with self._lock:
            if not self._jobs or self._child is None or self._child.poll() is not None:
                return
            if self._now_s() - self._since_s > self._allowed_s():
                self._too_long = True
                self._child.kill()

    def close(self, timeout_s: float) -> bool:
        """Let the child draw what it has and end; return whether it has ended in time."""
        with self._lock:
            self._ending = True
            if self._child is None:
                return True
            self._write(messages.frame(StopRenderer()))
            if not self._unsent:
                self._close_pipe()
            receiver = self._receiver
        return receiver is None or receiver.join(min(timeout_s, threading.TIMEOUT_MAX))

    def abandon(self) -> None:
        """Close this copy's ends of the pipes, in a forked child."""
        child, self._child = self._child, None
        self._given_up = "this is a forked copy of the process"
        nothing = os.open(os.devnull, os.O_RDWR)
        for file in (child.stdin, child.stdout) if child is not None else ():
            if file is not None and not file.closed:
                os.dup2(nothing, file.fileno(), inheritable=False)
        os.close(nothing)
        if child is not None:
            child.returncode = 0  # only the parent can wait for it

    # Under the lock

    def _start(self) -> bool:
        """Start a child, and send it every open job; return whether it could be started."""
        self._drawing_id = None
        self._since_s = time.monotonic()
        self._unsent.clear()
        self.lack = shortage(n_threads=N_THREADS, n_descriptors=N_DESCRIPTORS)
        try:
            self._child = None if self.lack else spawn(self._arena, polite=self._polite)
            if self._receiver is None and self._child is not None:
                self._receiver = Background("figures-receive", self._receive)
        except Exception as error:  # noqa: BLE001  another process took what was free, or there is no interpreter
            self.lack = f"{type(error).__name__}: {plain(error)}"
        if self.lack:
            child, self._child = self._child, None
            if child is not None:
                child.kill()
                reap(child)
            return False
        assert self._child is not None
        self.n_started += 1
        if os.name == "posix":
            assert self._child.stdin is not None
            with contextlib.suppress(ValueError):  # it died at once, and the receiver has closed its pipes
                os.set_blocking(self._child.stdin.fileno(), False)
        start = StartRenderer(
            path=search_path(), arena=self._arena.descriptor, arena_bytes=self._arena.n_bytes, limit_s=self._limit_s
        )
        self._write(messages.frame(start))
        for job in self._jobs.values():
            self._write(job.frame)
        if self._ending:
            self._write(messages.frame(StopRenderer()))
            if not self._unsent:
                self._close_pipe()
        return True

    def _lend_processor(self) -> None:
        """Let the child have its share of the processors, as a thread waits for it."""
        if self._child is None or not self._jobs or not self._polite:
            return
        try:
            if os.sched_getscheduler(self._child.pid) == os.SCHED_IDLE:
                os.sched_setscheduler(self._child.pid, os.SCHED_OTHER, os.sched_param(0))
                self._lent = True
        except PermissionError:  # Linux lets only root, or who may lower niceness, leave the idle class
            queued_s = SystemClock.queued(self._child.pid)
            if self._queued_s is None:
                self._queued_s = queued_s
            if queued_s - self._queued_s > STARVED_S:
                self._polite, self._is_replaced = False, True
                self._child.kill()
        except (AttributeError, OSError):  # the idle class is Linux's; or the child has ended
            pass

    def _take_processor_back(self) -> None:
        self._queued_s = None
        if self._lent and self._child is not None:
            self._lent = False
            with contextlib.suppress(OSError):
                os.sched_setscheduler(self._child.pid, os.SCHED_IDLE, os.sched_param(0))

    def _now_s(self) -> float:
        """Return the time on a clock that stands still while the child waits for a processor."""
        return time.monotonic() - (SystemClock.queued(self._child.pid) if self._child is not None else 0.0)

    def _write(self, parts: list[Buffer]) -> None:
        """Write as much as the pipe takes at once, and leave the rest to the sending thread."""
        self._unsent += [memoryview(part).cast("B") for part in parts]
        self._push()
        if self._unsent:
            self._sender.wake()

    def _push(self) -> None:
        """Write as much as the pipe takes at once."""
        while self._unsent and os.name == "posix":
            n = self._written(self._unsent[0])
            if n < len(self._unsent[0]):
                self._unsent[0] = self._unsent[0][n:]
                return
            self._unsent.popleft()

    def _written(self, data: memoryview) -> int:
        """Write what the pipe takes, and return how many bytes that was; a dead child takes everything."""
        assert self._child is not None
        assert self._child.stdin is not None
        n_written = 0
        try:
            while n_written < len(data):
                n_written += os.write(self._child.stdin.fileno(), data[n_written:])
        except BlockingIOError:
            pass
        except (OSError, ValueError):
            return len(data)
        return n_written

    def _close_pipe(self) -> None:
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError):
                self._child.stdin.close()

    def _allowed_s(self) -> float:
        """Return how long the child may take for what it does now."""
        if self._drawing_id is None:
            return self._limit_s + STARTING_S
        job = self._jobs.get(self._drawing_id)
        hung = job is not None and not job.message.lost and _kind(job) in self._hung
        return min(self._limit_s, HUNG_S) if hung else self._limit_s

    def _give_up(self, why: str) -> None:
        self._given_up = why
        self._lost += [(job, why) for job in self._jobs.values()]
        self._jobs.clear()

    # Without the lock, and on threads

    def _report_lost(self) -> None:
        """Report the jobs that were given up."""
        while self._lost:
            job, why = self._lost.pop(0)
            failure = Failure(figure=job.message.name, kind="", message=f"Not drawn: {why}")
            self._pass_on(job, DrawFinished(id=job.message.id, failures=[failure]), {})

    def _pass_on(self, job: RenderJob, result: DrawFinished, pictures: Pictures) -> None:
        try:
            self._finished(job, result, pictures)
        except (Exception, SystemExit) as error:  # noqa: BLE001  it costs this job only
            self.failures.add(error, f"the results of figure {job.message.name!r} are lost")

    def _send(self, now_s: float) -> float:
        """Write what the pipe had no room for."""
        while True:
            with self._lock:
                child = self._child
                if not self._unsent or child is None or child.stdin is None or child.stdin.closed:
                    self._unsent.clear()
                    return UNTIL_WOKEN
                if os.name == "posix":
                    self._push()
                    if not self._unsent:
                        if self._ending:
                            self._close_pipe()
                        continue
                    descriptor = child.stdin.fileno()
                else:
                    part = self._unsent.popleft()
                    descriptor = -1
            if descriptor >= 0:
                with contextlib.suppress(OSError, ValueError):
                    select.select([], [descriptor], [], WRITABLE_S)
                continue
            with contextlib.suppress(OSError, ValueError):
                child.stdin.write(part)
                child.stdin.flush()

    def _receive(self) -> None:
        """Receive the results of one child after another, until there is no child."""
        while True:
            child = self._child
            if child is None or child.stdout is None:
                return
            try:
                self._listen(child.stdout)
            except (OSError, ValueError, WireError):  # the child died in the middle of a message
                child.kill()
            except BaseException as error:  # noqa: BLE001  whatever it is, a new child may do better
                self.failures.add(error, "a renderer is replaced")
                child.kill()
            status = reap(child)
            with self._lock:
                self._child = None
                ended_well = self._ending and not self._jobs
                if not ended_well:
                    self._replace(status)
                over = self._child is None
                if over:
                    self._receiver = None
            self._report_lost()
            if over:
                return

    def _listen(self, file: IO[bytes]) -> None:
        while (got := messages.read(file)) is not None:
            message, following = got
            if isinstance(message, DrawStarted):
                with self._lock:
                    self._drawing_id, self._since_s = message.id, self._now_s()
            elif isinstance(message, DrawFinished):
                with self._lock:
                    job = self._jobs.pop(message.id, None)
                    self._drawing_id, self._since_s, self._n_fruitless = None, self._now_s(), 0
                    self._deaths.pop(message.id, None)
                pictures = message.pictures(map(bytes, messages.parts(following, message.sizes)))
                if job is not None:
                    if not job.message.lost:
                        self._hung.discard(_kind(job))
                    self._pass_on(job, message, pictures)

    def _replace(self, status: int) -> None:
        """Start a new child after a death, without the job that it died of; or give up."""
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        allowed_s = self._allowed_s()
        victim, self._drawing_id = self._drawing_id, None
        if self._is_replaced:
            self._is_replaced = False  # by a child that gets processors: no figure killed it
        elif self._too_long and victim is not None and victim in self._jobs:
            self._hung.add(_kind(self._jobs[victim]))
            self._drop(victim, f"took longer than {allowed_s:g} s, so the renderer was ended")
        elif victim is not None and victim in self._jobs:
            self._deaths[victim] = self._deaths.get(victim, 0) + 1
            if self._deaths[victim] >= MAX_DEATHS:
                self._drop(victim, f"the renderer died of it twice ({how})")
        elif self._jobs:
            self._n_fruitless += 1
            if self._n_fruitless >= MAX_DEATHS:
                self._give_up(f"the renderer died twice before it drew anything ({how})")
        self._too_long = False
        if self._jobs and not self._start():
            self._give_up(f"no renderer can be started: {self.lack}")

    def _drop(self, id: int, why: str) -> None:
        """Let the next child draw a card in the place of a figure; drop it if that fails, too."""
        job = self._jobs[id]
        if job.message.lost:
            self._lost.append((self._jobs.pop(id), why))
        else:
            job.lose(f"Not drawn: {why}")
        self._deaths.pop(id, None)
        self._n_fruitless = 0


def _kind(job: RenderJob) -> tuple[str, str]:
    """Return what tells figures apart that hang from others: several closures may share the name of a function."""
    return job.message.function, job.message.name


# Start the process of a renderer, and wait for its end.

ENDING_S: Final = 10.0  # for a child that is done: what the user's modules do at an exit is quick

ENVIRONMENT: Final = {
    "SIGHTGLASS_MODE": "disabled",
    "WANDB_MODE": "disabled",
    "MPLBACKEND": "Agg",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The child's environment: importing a user's module there starts no second run, and takes no accelerator."""


def search_path() -> list[bytes]:
    """Return `sys.path` for a child, without what is not the name of a folder."""
    found = []
    for place in sys.path:
        with contextlib.suppress(TypeError, ValueError):
            found.append(os.fsencode(place))
    return found


def reap(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child that has closed its pipe, and return its status; one that goes on is killed."""
    try:
        child.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it, such as for a disk
            child.wait(ENDING_S)
    for file in (child.stdout, child.stdin):
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
    return -signal.SIGTERM if child.returncode is None else child.returncode


def spawn(arena: Arena, *, polite: bool = True) -> subprocess.Popen[bytes]:
    """Start a child that can map the arena; a polite one draws only while a processor has nothing else to do."""
    environment = {**os.environ, **ENVIRONMENT}
    if not polite:
        environment[PRIORITY] = "low"
    home = str(Path(__file__).parents[2])
    if home not in site.getsitepackages():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), home]))
    options: dict[str, Any] = {"creationflags": getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)}
    if os.name == "posix":
        options = {"process_group": 0, "pass_fds": (arena.descriptor,) if arena.descriptor >= 0 else ()}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "sightglass.figures.renderer"], env=environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, **options,
    )  # fmt: skip
