"""Records into TensorBoard's event files, one at a time, as they come."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from typing import Final

from sightglass.core.record import Record

from .event_log import EventLog
from .foreign.event_encoding import Encoded
from .foreign.tensorboard import encode_event, file_name
from .format.summary import TENSORBOARD_VERSION

LAST_STEP: Final = 2**63 - 1  # steps are int64 in an event


class TensorBoard:
    """Writes records to an event file of TensorBoard in a folder, which the first record creates; from any thread.

    Args:
        folder: A log directory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._log = EventLog(folder, version=TENSORBOARD_VERSION, name=_name)

    def write(self, records: Sequence[Record]) -> None:
        """Write records.

        Raises:
            OSError: The file cannot be written.
            UnsendableError: TensorBoard event files do not support a value.
        """
        self._log.write(map(_encode, records))

    def flush(self, timeout_s: float) -> None:
        """Do nothing: records are in the file as soon as they are written."""

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the file; nothing waits."""
        self._log.close()


def _encode(record: Record) -> Encoded:
    step = int(record.step) if math.isfinite(record.step) else 0
    step = max(-LAST_STEP, min(step, LAST_STEP))
    return encode_event({record.tag: record.value}, step=step, wall_time=record.wall_time)


def _name(started: float, n: int) -> str:
    name = file_name(started=started, hostname=platform.node() or "sightglass", pid=os.getpid())
    return f"{name.removesuffix('0')}{n}"
