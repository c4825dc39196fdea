"""Logs into TensorBoard's event files."""

from __future__ import annotations

import itertools
import math
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from sightglass.core.clock import SystemClock
from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError
from sightglass.core.record import Record
from sightglass.storage.foreign.tensorboard import encode_event, file_name
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import TENSORBOARD_VERSION, encode_version

from .record_sink import RecordSink, SinkLogger

# A step is an int64 in an event.
LAST_STEP: Final = 2**63 - 1


class TensorBoardLogger(SinkLogger):
    """Writes event files into `path`; named lanes have a subdirectory each.

    Numbers become float32, and steps integers; arrays are written as tensors. TensorBoard knows only one step: other
    step tracks are omitted. The directory may contain other event files: TensorBoard shows all of them as one run.

    Args:
        path: A log directory, created at the first log.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Open the event file of a lane."""
        return _EventFile(self._path / name)


class _EventFile:
    """The event file of one lane."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] | None = None

    def write(self, records: Sequence[Record]) -> None:
        file = self._file or self._open()
        left_out: dict[str, str] = {}
        for record in records:
            step = record.step if math.isfinite(record.step) else 0
            parts, problems = encode_event(
                {record.tag: record.value}, step=max(-LAST_STEP, min(int(step), LAST_STEP)), wall_time=record.wall_time
            )
            left_out |= problems
            if parts:
                _append(file, parts)
        file.flush()
        if left_out:
            raise UnsendableError("; ".join(f"{tag!r}: {why}" for tag, why in left_out.items()))

    def flush(self, timeout_s: float) -> None:
        pass  # `write` flushes

    def close(self, timeout_s: float) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        started = SystemClock.wall()
        name = file_name(started=started, hostname=platform.node() or "sightglass", pid=os.getpid())
        for n in itertools.count():
            try:
                self._file = (self._folder / f"{name.removesuffix('0')}{n}").open("xb")
                break
            except FileExistsError:
                continue
        assert self._file is not None
        _append(self._file, encode_version(TENSORBOARD_VERSION, started))
        return self._file


def _append(file: IO[bytes], parts: Sequence[Buffer]) -> None:
    for part in frame(parts):
        file.write(part)
