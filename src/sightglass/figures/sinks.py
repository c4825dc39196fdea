"""Where figures go: the current run, Weights & Biases, TensorBoard's files.

A sink takes records and never waits. Figures come as `core.values.Figure`, one record each, with the step that they
were ordered for; late ones are as good as others. Sinks are chosen when a figure is ordered, so that it does not land
in the next run if it is drawn after the first one has ended.
"""

from __future__ import annotations

import itertools
import math
import os
import platform
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

from sightglass.core import current_run
from sightglass.core.clock import SystemClock
from sightglass.core.errors import StorageError, UnsendableError
from sightglass.core.record import Record
from sightglass.storage.foreign.tensorboard import encode_event, file_name
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import TENSORBOARD_VERSION, encode_version

LAST_STEP: Final = 2**63 - 1


class FigureSink(Protocol):
    """What takes figures. It is called on a thread, from one call at a time."""

    def write(self, records: Sequence[Record], /) -> None:
        """Take records; must not wait. What it raises is told, and costs nothing else."""

    def flush(self, timeout_s: float, /) -> None:
        """Wait until what it took is where it should be."""


class RunSink:
    """Puts figures into a run, as its `log` does: kept, and seen by clients at once.

    Attributes:
        folder: Makes the run's directory, and returns where files of figures go in it.
    """

    def __init__(
        self, log: Callable[..., None], *, ended: Callable[[], bool], folder: Callable[[], Path], name: str
    ) -> None:
        self.folder = folder
        self._log = log
        self._ended = ended
        self._name = name
        self._users: weakref.WeakSet[Any] = weakref.WeakSet()

    def write(self, records: Sequence[Record]) -> None:
        """Log records.

        Raises:
            StorageError: The run has ended.
        """
        if self._ended():
            raise StorageError(f"Run {self._name!r} ended before; flush or close the plotter first")
        for record in records:
            self._log({record.tag: record.value}, step=record.step)

    def flush(self, timeout_s: float) -> None:
        """Do nothing: the run writes by itself."""

    def used_by(self, desk: Any) -> None:
        """Remember who may still bring figures."""
        self._users.add(desk)

    def drain(self) -> None:
        """Wait for the figures that are on their way to the run, before it ends."""
        for desk in list(self._users):
            desk.wait(None)


class TensorBoard:
    """Writes figures as images, and numbers, into an event file in a folder; it is made when the first one comes.

    Args:
        folder: A log directory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._file: IO[bytes] | None = None
        self._lock = threading.RLock()

    def write(self, records: Sequence[Record]) -> None:
        """Write records.

        Raises:
            OSError: The file cannot be written.
            UnsendableError: TensorBoard has nothing for a value.
        """
        problems: dict[str, str] = {}
        with self._lock:
            file = self._file or self._open()
            for record in records:
                step = int(record.step) if math.isfinite(record.step) else 0
                message, left_out = encode_event(
                    {record.tag: record.value}, step=max(-LAST_STEP, min(step, LAST_STEP)), wall_time=record.wall_time
                )
                problems |= left_out
                if message:
                    file.writelines(frame(message))
            file.flush()
        if problems:
            raise UnsendableError("; ".join(f"{tag!r}: {why}" for tag, why in problems.items()))

    def flush(self, timeout_s: float) -> None:
        """Do nothing: what is written is in the file."""

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        started = SystemClock.wall()
        name = file_name(started=started, hostname=platform.node() or "sightglass", pid=os.getpid())
        for n in itertools.count():
            try:
                file = (self._folder / f"{name.removesuffix('0')}{n}").open("xb")
                break
            except FileExistsError:
                continue
        self._file = file
        file.writelines(frame(encode_version(TENSORBOARD_VERSION, started)))
        return file


def run_sink() -> RunSink | None:
    """Return the sink of the newest live run, if there is one."""
    sink: RunSink | None = current_run.current()
    return sink


def wandb_sink() -> Any:
    """Return the sink of the W&B run that is active, if one is; W&B is not imported for that."""
    wandb = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is None or getattr(run, "disabled", False):
        return None
    from sightglass.storage.wandb import WandB

    return WandB.shared(run)
