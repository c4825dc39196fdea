"""What passes through a render queue: requests, jobs, the interface of renderers, and the counts.

Jobs that memory has no room for are in temporary files; failures are kept until the next call reports them.
"""

from __future__ import annotations

import os
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

import msgspec

from sightglass.core.codec import Buffer
from sightglass.core.columns import Record
from sightglass.core.errors import FigureError, FigureErrors, warn
from sightglass.core.process.unpatched import threading

from . import messages
from .closures import Draws
from .figure_files import FigureSink
from .messages import DrawFigure, DrawFinished, Output, Pictures, failure_of, figure_error, plain
from .snapshot import PendingTransfer, Snapshot

OnFull = Literal["spill", "drop_oldest", "drop_new", "replace"]
"""What to do with a job when too many wait: see `render_queue.JobBacklog`."""

MAX_STEP: Final = 2**63  # steps are int64 in files and messages


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What is wanted of one call of a function: the name of its figure, the step, the files, and the sinks.

    Raises:
        TypeError: The name is not text.
        ValueError: UTF-8 cannot encode the name, or the step is beyond 64 bits.
    """

    name: str
    step: int | float
    output: Output
    sinks: tuple[FigureSink, ...]
    on_full: OnFull = "spill"

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"Expected the name of a figure as text, got {type(self.name).__name__} {self.name!r:.80}")
        if plain(self.name) != self.name:
            raise ValueError(f"Expected a name of a figure that UTF-8 can encode, got {self.name!r:.80}")
        if isinstance(self.step, int) and not -MAX_STEP <= self.step < MAX_STEP:
            raise ValueError(f"Expected a step of at most 64 bits, got one of {self.step.bit_length() + 1}")

    @property
    def droppable(self) -> bool:
        """Whether it may be dropped after it was taken."""
        return self.on_full in ("drop_oldest", "replace")


@dataclass(slots=True, kw_only=True)
class RenderJob:
    """One call of a function, with a copy of its arguments; encoded when it is made, so that nothing fails later.

    Attributes:
        message: What a child is sent; complete once the arguments are on the host.
        request: What is wanted.
        snapshot: The arguments: in memory, on their way from a device, or in a file; `None` until it is decided.
        function: The function.
        n_bytes: How much room the arguments and the function take in the queue.
        lack: Why no child can load the function, or empty.
        sent: Whether a renderer has it.
        frame: The message as bytes, and large arguments.
    """

    message: DrawFigure
    request: RenderRequest
    snapshot: Snapshot | PendingTransfer | Spilled | None
    function: Draws
    n_bytes: int
    lack: str
    sent: bool = False
    frame: list[Buffer] = field(init=False)

    def __post_init__(self) -> None:
        self.complete(self.snapshot)

    @property
    def droppable(self) -> bool:
        """Whether it may be dropped as long as it is held back."""
        return self.request.droppable

    @property
    def copied(self) -> Snapshot:
        """The arguments on the host; a renderer gets a job only when they are there."""
        assert isinstance(self.snapshot, Snapshot)
        return self.snapshot

    def complete(self, snapshot: Snapshot | PendingTransfer | Spilled | None) -> None:
        """Take the arguments, and encode the message with what of them is in memory."""
        self.snapshot = snapshot
        in_band: list[Buffer] = []
        if isinstance(snapshot, Snapshot):
            self.message = msgspec.structs.replace(self.message, blob=snapshot.blob, spans=snapshot.spans)
            in_band = snapshot.in_band
        self.frame = messages.frame(self.message, in_band)

    def lose(self, why: str) -> None:
        """Have a card drawn in the place of the figure."""
        self.message = msgspec.structs.replace(self.message, lost=why)
        self.complete(self.snapshot)


Finished = Callable[[RenderJob, DrawFinished, Pictures], None]
"""Called once for each job, with what became of it and its figures."""


RendererKind = Literal["process", "thread", "inline"]


class Renderer(Protocol):
    """Draws jobs, one after the other."""

    @property
    def lack(self) -> str:
        """Why it can draw nothing, or empty."""

    @property
    def n_started(self) -> int:
        """How many processes it has started."""

    def put(self, job: RenderJob, /) -> bool:
        """Draw a job after those that were put before; return `False` if it cannot be drawn there."""

    def end_overdue(self) -> None:
        """End what takes longer than it may; called often, and never draws."""

    def check(self) -> None:
        """Check that drawing makes progress; called while a thread waits for it, and may draw if nobody else can."""

    def close(self, timeout_s: float, /) -> bool:
        """Draw what is left, end, and return whether that was in time."""

    def abandon(self) -> None:
        """Release everything, in a forked child."""


def write_to_sinks(job: RenderJob, result: DrawFinished, pictures: Pictures) -> list[FigureError]:
    """Write the figures of a job to its sinks, and return every failure of the job."""
    step, wall_time = job.message.step, time.time()
    errors = [figure_error(failure, step) for failure in result.failures]
    for name, picture in pictures.items():
        record = Record(tag=name, index=0, step=step, wall_time=wall_time, value=picture)
        for sink in job.request.sinks:
            try:
                sink.write([record])
            except (Exception, SystemExit) as error:  # noqa: BLE001  it costs the other sinks nothing
                errors.append(figure_error(failure_of(name, error), step))
    return errors


# The failures of a plotter's figures: kept as they happen on any thread, and reported by the next call.

OnError = Literal["raise", "warn", "ignore"]

MAX_ERRORS: Final = 1_000  # with their tracebacks about 8 MB; more are counted only


class FailureLog:
    """Keeps failures until they are reported; from any thread.

    Attributes:
        on_error: How they are reported.
        n_errors: How many there were.
        last_error: The last one's message, or empty.
    """

    def __init__(self, on_error: OnError) -> None:
        self.on_error = on_error
        self.n_errors = 0
        self.last_error = ""
        self._lock = threading.RLock()
        self._errors: list[FigureError] = []

    def add(self, error: FigureError, *, counted: bool = True) -> None:
        """Keep a failure; do not count it if the figure may still come."""
        with self._lock:
            self.n_errors += counted
            self.last_error = str(error.args[0])
            if len(self._errors) < MAX_ERRORS:
                self._errors.append(error)

    def report(self) -> None:
        """Raise the failures that were kept, or warn about them, or forget them, as `on_error` says.

        Raises:
            FigureErrors: `on_error` is "raise", and there are some.
        """
        with self._lock:
            errors, self._errors = self._errors, []
        if not errors or self.on_error == "ignore":
            return
        if self.on_error == "raise":
            what = dict.fromkeys(repr(error.figure) if error.figure else str(error.args[0]) for error in errors)
            raise FigureErrors(f"{len(errors)} could not be drawn or delivered: {', '.join(what):.300}", errors)
        for error in errors:
            warn(str(error.args[0]))

    def clear(self) -> None:
        """Forget everything, in a forked child, where another thread may have held the lock for good."""
        self._lock = threading.RLock()
        self._errors = []


# Jobs that memory has no room for, in temporary files: nothing of them stays behind, however the program ends.

MAX_FILE_BYTES: Final = 64 * 2**20  # a file is freed once all jobs in it are read, so the disk holds little more


class SpillFile:
    """A temporary file, closed and so freed when nothing refers to it any more.

    Attributes:
        raw: The file, without a buffer.
        end: Where the next job begins.
    """

    def __init__(self, folder: bytes) -> None:
        """Make the file.

        Args:
            folder: Where, on whose disk it takes room; empty for the system's temporary folder.

        Raises:
            OSError: No such folder can be made, or no file in it.
        """
        if folder:
            os.makedirs(folder, exist_ok=True)
        self.raw: Any = tempfile.TemporaryFile(buffering=0, dir=os.fsdecode(folder) or None)  # noqa: SIM115
        self.end = 0
        weakref.finalize(self, self.raw.close)


@dataclass(frozen=True, slots=True)
class Spilled:
    """A job in a file: where its frame begins."""

    file: SpillFile
    start: int

    def read(self) -> tuple[DrawFigure, list[memoryview]]:
        """Return the message and the large arrays.

        Raises:
            OSError: The disk fails.
        """
        self.file.raw.seek(self.start)
        message, following = messages.read(self.file.raw) or (None, bytearray())
        if not isinstance(message, DrawFigure):
            raise OSError("the temporary file of a figure has lost its end")
        return message, messages.parts(following, [size for _, size in message.spans])


class SpillFiles:
    """Takes jobs, one file after the other; the caller holds a lock."""

    def __init__(self) -> None:
        """Make no file yet."""
        self._file: SpillFile | None = None

    def write(self, message: DrawFigure, buffers: Sequence[Buffer], folder: bytes) -> Spilled:
        """Write a job behind those before.

        Args:
            message: The job; its spans tell the sizes of the large arrays.
            buffers: The large arrays.
            folder: Where to make a new file, see `SpillFile`.

        Raises:
            OSError: There is no room, or no file can be made.
        """
        if self._file is None or self._file.end > MAX_FILE_BYTES:
            self._file = SpillFile(folder)
        file = self._file
        file.raw.seek(file.end)  # what was written of a job that the disk had no room for is written over
        for part in messages.frame(message, buffers):
            view = memoryview(part).cast("B")
            while len(view):
                view = view[file.raw.write(view) :]
        spilled, file.end = Spilled(file, file.end), file.raw.tell()
        return spilled

    def forget(self) -> None:
        """Begin a new file with the next job."""
        self._file = None
