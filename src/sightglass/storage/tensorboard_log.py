"""Records into TensorBoard's event files, one at a time, as they come."""

from __future__ import annotations

import itertools
import math
import os
import platform
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from sightglass.core.clock import SystemClock
from sightglass.core.errors import UnsendableError
from sightglass.core.record import Record

from .foreign.tensorboard import encode_event, file_name
from .format.framing import frame
from .format.summary import TENSORBOARD_VERSION, encode_version

LAST_STEP: Final = 2**63 - 1  # steps are int64 in an event


class TensorBoard:
    """Writes records to an event file of TensorBoard in a folder, which the first record creates; from any thread.

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
            UnsendableError: TensorBoard event files do not support a value.
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
        """Do nothing: records are in the file as soon as they are written."""

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the file; nothing waits."""
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
