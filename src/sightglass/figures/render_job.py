"""What passes through a render queue: requests, jobs, the interface of renderers, and the counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from sightglass.core.errors import FigureError
from sightglass.core.record import Record
from sightglass.core.values import Figure

from .closures import Draws
from .messages import DrawFigure, DrawFinished, Output, failure_of, figure_error
from .sinks import FigureSink
from .snapshot import PendingTransfer, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderRequest:
    """What is wanted of one call of a function: the name of its figure, the step, the files, and the sinks."""

    name: str
    step: int | float
    output: Output
    sinks: tuple[FigureSink, ...]


@dataclass(slots=True, kw_only=True)
class RenderJob:
    """One call of a function, with a copy of its arguments.

    Attributes:
        message: What a child is sent; complete once the arguments are on the host.
        snapshot: The arguments.
        function: The function.
        sinks: Where the figures go.
        n_bytes: How much room the arguments take in the queue.
        sendable: Whether a child can load the function.
    """

    message: DrawFigure
    snapshot: Snapshot | PendingTransfer
    function: Draws
    sinks: tuple[FigureSink, ...]
    n_bytes: int
    sendable: bool

    @property
    def copied(self) -> Snapshot:
        """The arguments on the host; a renderer gets a job only when they are there."""
        assert isinstance(self.snapshot, Snapshot)
        return self.snapshot


Finished = Callable[[RenderJob, DrawFinished, dict[str, bytes]], None]
"""Called once for each job, with what became of it and the PNGs by the figures' names."""


class Renderer(Protocol):
    """Draws jobs, one after the other."""

    def put(self, job: RenderJob, /) -> bool:
        """Draw a job after those that were put before; return `False` if it cannot be drawn there."""

    def check(self) -> None:
        """Check that drawing makes progress; called while a thread waits for it."""

    def close(self, timeout_s: float, /) -> bool:
        """Draw what is left, end, and return whether that was in time."""

    def abandon(self) -> None:
        """Release everything, in a forked child."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureStatistics:
    """Counts of what became of the figures.

    Attributes:
        n_submitted: Calls of `submit` and `plot`.
        n_drawn: Figures drawn, without error cards.
        n_failed: Failures.
        n_dropped: Calls dropped for lack of room.
        n_waiting: Calls that are not drawn yet.
        n_files: Files written.
        n_here: Calls drawn in this process instead of a child.
        n_started: Child processes started.
        last_error: The last failure, or empty.
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


def write_to_sinks(job: RenderJob, result: DrawFinished, pngs: Mapping[str, bytes]) -> list[FigureError]:
    """Write the figures of a job to its sinks, and return every failure of the job."""
    step, wall_time = job.message.step, time.time()
    errors = [figure_error(failure, step) for failure in result.failures]
    for name, png in pngs.items():
        record = Record(tag=name, index=0, step=step, wall_time=wall_time, value=Figure(png))
        for sink in job.sinks:
            try:
                sink.write([record])
            except (Exception, SystemExit) as error:  # noqa: BLE001  it costs the other sinks nothing
                errors.append(figure_error(failure_of(name, error), step))
    return errors
