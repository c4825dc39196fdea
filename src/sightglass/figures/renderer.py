"""The renderer: `python -m sightglass.figures.renderer`, a child process that draws its parent's jobs.

Theory of operation:

1. Jobs arrive on the standard input, results leave on the standard output. Both are moved aside at once, so that a
   user's function can neither read jobs nor write between results; what it prints goes to the standard error output.
2. A thread reads ahead from the start, so every job is here even if the parent is killed while Matplotlib is still
   being imported.
3. The end of the input means: draw what is left, and end. If it comes without a `StopRenderer`, the parent has died:
   figures that it may not have stored are written as PNG files beside the others.
4. It stays out of the way: it draws only while a processor has nothing else to do, with one thread for numerical
   libraries, no accelerator, no second run (see the environment in `child_process`). Interrupts are for the parent
   alone.
5. After the parent has gone, a figure that hangs is given up, so that no process stays behind.
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import queue
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Final

from sightglass.core.process.threads import Background

from . import messages
from .messages import (
    IN_BAND,
    PRIORITY,
    DrawFigure,
    DrawFinished,
    DrawStarted,
    Pictures,
    StartRenderer,
    StopRenderer,
    failure_of,
)

if TYPE_CHECKING:
    from sightglass.core.codec import Buffer

    from .drawing import Drawer

NICE: Final = 10  # while Matplotlib is imported, a second of work: half way to the lowest, so that it ends soon
LOWEST: Final = 19  # the system takes this for any sum above it
RECENT_S: Final = 3.0  # a run writes its records to disk every second; with a margin
MAX_RECENT_BYTES: Final = 64 * 2**20  # a hundred figures of usual size
COLLECT_EVERY: Final = 8  # figures hold reference cycles; collecting after each would cost as much as a small figure

Item = tuple[DrawFigure, bytearray]


class JobReceiver:
    """The jobs that are not drawn yet; a thread reads ahead, if one can be started.

    Attributes:
        start: The first message, once it has arrived.
        stopped: Whether the parent has sent `StopRenderer`.
        ended_s: When the input ended, on the monotonic clock.
        drawn: Set when there is nothing left to draw.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.start: StartRenderer | None = None
        self.stopped = False
        self.ended_s = 0.0
        self.drawn = threading.Event()
        self._started = threading.Event()
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._file = file
        self._progress = 0
        self._thread: Background | None = None
        with contextlib.suppress(RuntimeError):  # the system starts no more threads
            self._thread = Background("jobs", self._read)

    def first(self) -> StartRenderer | None:
        """Wait for the first message; `None` if the parent has gone before it."""
        while self._thread is None and not self._started.is_set():
            self._take_in()
        self._started.wait()
        return self.start

    def next(self) -> Item | None:
        """Wait for the next job; `None` at the end."""
        self._progress += 1
        while self._thread is None and self._items.empty():
            self._take_in()
        return self._items.get()

    def _take_in(self) -> bool:
        """Read a message, and return whether there was one."""
        got = None
        try:
            got = messages.read(self._file)
        finally:
            if got is None:
                self.ended_s = time.monotonic()
                self._items.put(None)
                self._started.set()
        if got is None:
            return False
        message, following = got
        if isinstance(message, DrawFigure):
            self._items.put((message, following))
        elif isinstance(message, StartRenderer):
            self.start = message
            self._started.set()
        elif isinstance(message, StopRenderer):
            self.stopped = True
        return True

    def _read(self) -> None:
        while self._take_in():
            pass
        limit_s = min(self.start.limit_s, threading.TIMEOUT_MAX) if self.start else 0.0
        before = -1
        while before != self._progress and not self.drawn.is_set():
            before = self._progress
            self.drawn.wait(limit_s)
        if not self.drawn.is_set():
            os._exit(1)


class ResultSender:
    """Sends results to the parent, and holds those that may be lost with it.

    Attributes:
        gone: Whether the parent has closed its end.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.gone = False
        self._file = file
        self._recent: deque[tuple[float, DrawFigure, Pictures]] = deque()

    def send(self, message: DrawStarted | DrawFinished, buffers: Sequence[Buffer] = ()) -> bool:
        """Send a message, and return whether the parent took it."""
        try:
            for part in messages.frame(message, buffers):
                self._file.write(part)
            self._file.flush()
        except OSError:
            self.gone = True
        return not self.gone

    def remember(self, message: DrawFigure, pictures: Pictures) -> None:
        """Hold figures for a moment that the parent took, but may not have stored yet."""
        now_s = time.monotonic()
        self._recent.append((now_s, message, pictures))
        while self._recent and (
            self._recent[0][0] < now_s - RECENT_S
            or sum(len(one.data) for _, _, some in self._recent for one in some.values()) > MAX_RECENT_BYTES
        ):
            self._recent.popleft()

    def rescue(self, drawer: Drawer, died_s: float) -> None:
        """Write the figures that the parent took shortly before it died."""
        for at_s, message, pictures in self._recent:
            if at_s >= died_s - RECENT_S:
                drawer.write_pictures(message, pictures)
        self._recent.clear()


def main() -> None:
    """Draw until there is nothing left to draw."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    jobs, results = _private_ends()
    receiver, sender = JobReceiver(jobs), ResultSender(results)
    _lower_priority(NICE)
    start = receiver.first()
    if start is None:
        return
    sys.path[:] = map(os.fsdecode, start.path)
    arena = mmap.mmap(start.arena, start.arena_bytes, access=mmap.ACCESS_READ) if start.arena >= 0 else None
    from .drawing import Drawer

    drawer = Drawer()
    drawer.prepare()
    _yield_to_others()
    n_drawn = 0
    while (item := receiver.next()) is not None:
        _draw(*item, arena, drawer, sender)
        n_drawn += 1
        if n_drawn % COLLECT_EVERY == 0:
            gc.collect()
    if not receiver.stopped:
        sender.rescue(drawer, receiver.ended_s)
    receiver.drawn.set()


def _lower_priority(nice: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # there is none on Windows, or it is forbidden
        os.nice(nice)


def _yield_to_others() -> None:
    """Let this thread run only while a processor has nothing else to do, or as near to that as the system allows.

    A training whose threads keep every processor busy waits for the slowest of them. A thread of nice 10 took every
    tenth tick of 4 ms from one of them; one of nice 19, every thirtieth; an idle one, every hundredth. Where no
    processor ever rests, figures then take minutes, unless somebody waits for them (see `ChildRenderer`):
    `SIGHTGLASS_RENDERER_PRIORITY=low` leaves the thread at nice 10.
    """
    if os.environ.get(PRIORITY) == "low":
        return
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):  # it is Linux's, or it is forbidden
        _lower_priority(LOWEST)


def _draw(
    message: DrawFigure, following: bytearray, arena: mmap.mmap | None, drawer: Drawer, sender: ResultSender
) -> None:
    """Draw one job, and send what became of it."""
    from sightglass.core.codec import decode

    from .closures import load

    sender.send(DrawStarted(id=message.id))
    try:
        drawing = drawer.draw(
            message,
            lambda: load(message.function, message.pickled),
            lambda: decode(message.blob, _buffers(message, following, arena)),
        )
    except BaseException as error:  # noqa: BLE001  a lack of memory costs this job only
        sender.send(DrawFinished(id=message.id, failures=[failure_of(message.name, error)], pid=os.getpid()))
        return
    result, data = drawing.result(message)
    if sender.send(result, data):
        sender.remember(message, drawing.pictures)
        return
    sender.rescue(drawer, time.monotonic())
    drawer.write_pictures(message, drawing.pictures)
    for failure in result.failures:
        sys.stderr.write(f"Figure {failure.figure!r}: {failure.kind}: {failure.message}\n")


def _buffers(message: DrawFigure, following: bytearray, arena: mmap.mmap | None) -> list[Buffer]:
    in_band = iter(messages.parts(following, [size for at, size in message.spans if at == IN_BAND]))
    return [
        next(in_band) if at == IN_BAND or arena is None else memoryview(arena)[at : at + size]
        for at, size in message.spans
    ]


def _private_ends() -> tuple[IO[bytes], IO[bytes]]:
    """Move the pipes aside; the standard input becomes empty, the standard output the standard error output."""
    jobs = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return jobs, _All(results)  # type: ignore[return-value]


class _All:
    """A file whose `write` writes all of its argument."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: Buffer) -> None:
        """Write all of it."""
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self._file.write(view) :]

    def flush(self) -> None:
        """Do nothing: the file has no buffer."""


if __name__ == "__main__":
    main()
