"""What passes through a render queue: requests, jobs, the interface of renderers, and the counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol

import msgspec

from sightglass.core.codec import Buffer
from sightglass.core.errors import FigureError
from sightglass.core.record import Record

from . import pipe
from .closures import Draws
from .messages import DrawFigure, DrawFinished, Output, Pictures, failure_of, figure_error, plain
from .sinks import FigureSink
from .snapshot import PendingTransfer, Snapshot
from .spill import Spilled

OnFull = Literal["spill", "drop_oldest", "drop_new", "replace"]
"""What to do with a job when too many wait: see `job_backlog`."""

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
        self.frame = pipe.frame(self.message, in_band)


Finished = Callable[[RenderJob, DrawFinished, Pictures], None]
"""Called once for each job, with what became of it and its figures."""


class Renderer(Protocol):
    """Draws jobs, one after the other."""

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
