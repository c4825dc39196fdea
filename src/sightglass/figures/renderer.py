"""The renderer: `python -m sightglass.figures.renderer`, a child that draws what its parent orders.

Theory of operation:

1. Orders come by the standard input, results leave by the standard output. Both are put aside at once, so that a
   user's function can neither read orders nor write between results; what it prints goes to the standard error output.
2. A thread reads ahead from the first moment on, so that whatever was ordered is here even if the parent is killed
   while Matplotlib is still being imported.
3. The end of the input means: draw what is left, and end. If it comes without a `StopRenderer`, the parent has died:
   pictures that it may not have kept are written as PNG files beside the others.
4. It is out of the way: low priority, one thread for numerical libraries, no accelerator, no second run (see the
   environment in `process`). Interrupts are for the parent alone.
5. When nobody waits any more, a figure that hangs is given up, so that no process stays behind for ever.
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
from collections.abc import Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, Final

from . import pipe
from .messages import IN_BAND, DrawFigure, DrawFinished, DrawStarted, StartRenderer, StopRenderer, trouble

if TYPE_CHECKING:
    from sightglass.core.codec import Buffer

    from .drawing import Drawer

NICE: Final = 10
RECENT_S: Final = 3.0
MAX_RECENT_BYTES: Final = 64 * 2**20
COLLECT_EVERY: Final = 8

Item = tuple[DrawFigure, bytearray]


class JobReceiver:
    """What was ordered and is not drawn yet; read ahead on a thread.

    Attributes:
        hello: The first message, once it has come.
        said_bye: Whether the parent ended well.
        ended_s: When the input ended, on the monotonic clock.
        drawn: Set when there is nothing left to be drawn.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.hello: StartRenderer | None = None
        self.said_bye = False
        self.ended_s = 0.0
        self.drawn = threading.Event()
        self._greeted = threading.Event()
        self._items: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._file = file
        self._progress = 0
        threading.Thread(target=self._read, name="sightglass-orders", daemon=True).start()

    def greeting(self) -> StartRenderer | None:
        """Wait for the first message; `None` if the parent is gone before it."""
        self._greeted.wait()
        return self.hello

    def next(self) -> Item | None:
        """Wait for the next order; `None` when there is none any more."""
        self._progress += 1
        return self._items.get()

    def _read(self) -> None:
        try:
            while (got := pipe.read(self._file)) is not None:
                message, behind = got
                if isinstance(message, DrawFigure):
                    self._items.put((message, behind))
                elif isinstance(message, StartRenderer):
                    self.hello = message
                    self._greeted.set()
                elif isinstance(message, StopRenderer):
                    self.said_bye = True
        finally:
            self.ended_s = time.monotonic()
            self._items.put(None)
            self._greeted.set()
        limit_s = self.hello.limit_s if self.hello else 0.0
        before = -1
        while before != self._progress and not self.drawn.is_set():
            before = self._progress
            self.drawn.wait(limit_s)
        if not self.drawn.is_set():
            os._exit(1)


class ResultSender:
    """What goes to the parent, and what may have been lost with it.

    Attributes:
        gone: Whether the parent does not take anything any more.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self.gone = False
        self._file = file
        self._recent: deque[tuple[float, DrawFigure, Mapping[str, bytes]]] = deque()

    def send(self, message: DrawStarted | DrawFinished, behind: Sequence[Buffer] = ()) -> bool:
        """Send a message, and say whether the parent took it."""
        try:
            for part in pipe.frame(message, behind):
                self._file.write(part)
            self._file.flush()
        except OSError:
            self.gone = True
        return not self.gone

    def remember(self, order: DrawFigure, pictures: Mapping[str, bytes]) -> None:
        """Hold pictures for a moment that the parent took, and may not have kept yet."""
        now_s = time.monotonic()
        self._recent.append((now_s, order, pictures))
        while self._recent and (
            self._recent[0][0] < now_s - RECENT_S
            or sum(sum(map(len, some.values())) for _, _, some in self._recent) > MAX_RECENT_BYTES
        ):
            self._recent.popleft()

    def rescue(self, drawer: Drawer, died_s: float) -> None:
        """Write what the parent took shortly before it died."""
        for at_s, order, pictures in self._recent:
            if at_s >= died_s - RECENT_S and order.output.folder:
                drawer.write_pictures(order.output.folder, order.step, pictures)
        self._recent.clear()


def main() -> None:
    """Draw until there is nothing left to be drawn."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    orders, results = _private_ends()
    inbox, outbox = JobReceiver(orders), ResultSender(results)
    if hasattr(os, "nice"):
        with contextlib.suppress(OSError):
            os.nice(NICE)
    hello = inbox.greeting()
    if hello is None:
        return
    sys.path[:] = hello.path
    arena = mmap.mmap(hello.arena, hello.arena_bytes, access=mmap.ACCESS_READ) if hello.arena >= 0 else None
    from .drawing import Drawer

    drawer = Drawer()
    drawer.prepare()
    n_drawn = 0
    while (item := inbox.next()) is not None:
        _work(*item, arena, drawer, outbox)
        n_drawn += 1
        if n_drawn % COLLECT_EVERY == 0:
            gc.collect()
    if not inbox.said_bye:
        outbox.rescue(drawer, inbox.ended_s)
    inbox.drawn.set()


def _work(order: DrawFigure, behind: bytearray, arena: mmap.mmap | None, drawer: Drawer, outbox: ResultSender) -> None:
    """Draw one order, and hand on what became of it."""
    from sightglass.core.codec import decode

    from .closures import load

    outbox.send(DrawStarted(id=order.id))
    started_s = time.perf_counter()
    try:
        drawing = drawer.draw(
            order,
            lambda: load(order.function, order.pickled),
            lambda: decode(order.blob, _buffers(order, behind, arena)),
        )
    except BaseException as error:  # noqa: BLE001  such as a lack of memory; it costs this order only
        outbox.send(DrawFinished(id=order.id, troubles=[trouble(order.name, error)], pid=os.getpid()))
        return
    done, pngs = drawing.done(order, time.perf_counter() - started_s)
    if outbox.send(done, pngs):
        outbox.remember(order, drawing.pictures)
        return
    outbox.rescue(drawer, time.monotonic())
    if order.output.folder:
        drawer.write_pictures(order.output.folder, order.step, drawing.pictures)
    for told in done.troubles:
        sys.stderr.write(f"Figure {told.figure!r}: {told.kind}: {told.message}\n")


def _buffers(order: DrawFigure, behind: bytearray, arena: mmap.mmap | None) -> list[Any]:
    in_band = iter(pipe.parts(behind, [size for at, size in order.spans if at == IN_BAND]))
    return [
        next(in_band) if at == IN_BAND or arena is None else memoryview(arena)[at : at + size]
        for at, size in order.spans
    ]


def _private_ends() -> tuple[IO[bytes], IO[bytes]]:
    """Put the pipes aside, and leave nothing to read, and the standard error output to write to."""
    orders = os.fdopen(os.dup(0), "rb")
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)
    return orders, _All(results)  # type: ignore[return-value]


class _All:
    """A file that writes all it is given."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Buffer) -> None:
        """Write all of it."""
        view = memoryview(data).cast("B")
        while len(view):
            view = view[self._file.write(view) :]

    def flush(self) -> None:
        """Do nothing: nothing is held back."""


if __name__ == "__main__":
    main()
