"""Where figures go: the current run, and Weights & Biases.

A sink takes records and never waits. A figure is one record with a `core.values.Figure` and the step that it was
submitted with, however late it comes. Sinks are chosen when a figure is submitted, so it does not go to the next run if
it is drawn after the first one has ended.

A run, or a W&B run, may end before the plotter is closed. Its sink knows the queues that write to it, and has the end
wait for them; afterwards it refuses figures at once.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from sightglass.core import current_run
from sightglass.core.errors import StorageError
from sightglass.core.record import Record
from sightglass.storage.delivery_queue import Waits


class FigureSink(Protocol):
    """Takes figures; called on a thread, one call at a time."""

    def write(self, records: Sequence[Record], /) -> None:
        """Take records; must not wait. An exception is reported as a failure of the figure."""

    def flush(self, timeout_s: float, /) -> None:
        """Wait until every record has reached its destination; must return at once if that has ended."""


@runtime_checkable
class EndingSink(FigureSink, Protocol):
    """A sink that may end before the queues that write to it, and waits for them then."""

    def used_by(self, queue: Waits, /) -> None:
        """Remember a queue that may still write records."""


class RunSink:
    """Logs figures in a run: they are recorded, and clients see them at once.

    Attributes:
        folder: Makes the run's directory, and returns it.
    """

    def __init__(
        self, log: Callable[..., None], *, ended: Callable[[], bool], folder: Callable[[], Path], name: str
    ) -> None:
        self.folder = folder
        self._log = log
        self._ended = ended
        self._name = name
        self._users: weakref.WeakSet[Waits] = weakref.WeakSet()

    def write(self, records: Sequence[Record]) -> None:
        """Log records.

        Raises:
            StorageError: The run has ended.
        """
        if self._ended():
            raise StorageError(f"Run {self._name!r} has ended; flush or close the plotter first")
        for record in records:
            self._log({record.tag: record.value}, step=record.step)

    def flush(self, timeout_s: float) -> None:
        """Do nothing: the run writes its records by itself."""

    def used_by(self, queue: Waits) -> None:
        """Remember a queue that may still deliver figures."""
        self._users.add(queue)

    def drain(self) -> None:
        """Wait for the figures that are still being drawn for the run, before it ends."""
        for queue in list(self._users):
            queue.wait(None)


def run_sink() -> RunSink | None:
    """Return the sink of the newest live run, or `None`."""
    sink: RunSink | None = current_run.current()
    return sink


def wandb_sink() -> FigureSink | None:
    """Return the sink of the active W&B run, or `None`; does not import W&B."""
    wandb = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is None or getattr(run, "disabled", False):
        return None
    from sightglass.storage.wandb import WandB

    return WandB.shared(run)
