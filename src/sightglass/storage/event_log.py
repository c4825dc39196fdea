"""An event file of another program that grows, event by event.

`TensorBoard` and `MindSpore` write records into such files as they come.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

from sightglass.core.columns import Record
from sightglass.core.errors import UnsendableError, warn_user
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.unpatched import threading

from .foreign import mindspore
from .foreign.event_changes import changes, cut
from .foreign.event_encoding import Encoded, leaves
from .foreign.tensorboard import encode_event, file_name
from .format.framing import frame
from .format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version


class EventLog:
    """Writes events to a file in a folder, which the first events create; from any thread.

    Args:
        folder: The folder.
        version: What the file's first event says that it is.
        name: Returns the n-th name for a file that begins at a time, in seconds since the Unix epoch: the first one
            that is not taken.
    """

    def __init__(self, folder: str | os.PathLike[str], *, version: str, name: Callable[[float, int], str]) -> None:
        self._folder = Path(folder)
        self._version = version
        self._name = name
        self._file: IO[bytes] | None = None
        self._lock = threading.RLock()

    def write(self, events: Iterable[Encoded]) -> None:
        """Write events; each is encoded when its turn has come.

        Raises:
            OSError: The file cannot be written.
            UnsendableError: An event lacks a value, because the format does not support it.
        """
        problems: dict[str, str] = {}
        with self._lock:
            file = self._file or self._open()
            for message, left_out in events:
                problems |= left_out
                if message:
                    file.writelines(frame(message))
            file.flush()
        if problems:
            raise UnsendableError("; ".join(f"{tag!r}: {why}" for tag, why in problems.items()))

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def _open(self) -> IO[bytes]:
        self._folder.mkdir(parents=True, exist_ok=True)
        started = SystemClock.wall()
        for n in count():
            try:
                file = (self._folder / self._name(started, n)).open("xb")
                break
            except FileExistsError:
                continue
        self._file = file
        file.writelines(frame(encode_version(self._version, started)))
        return file


# Records into MindSpore's summary files, as they come: the same as `export(to="mindspore")` writes afterwards.


class MindSpore:
    """Writes records to a summary file of MindSpore in a folder, which the first record creates; from any thread.

    The format has float32 only, and one integer as step. The first value that is changed so is a warning; all are
    counted, and `close` says how many.

    Args:
        folder: A summary directory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._log = EventLog(folder, version=MINDSPORE_VERSION, name=_mindspore_name)
        self._lock = threading.Lock()
        self._changed = Counter[str]()

    def write(self, records: Sequence[Record]) -> None:
        """Write records; those of one step and time in one event.

        Raises:
            OSError: The file cannot be written.
            UnsendableError: MindSpore's summary files do not support a value.
        """
        self._log.write(self._encoded(records))

    def flush(self, timeout_s: float) -> None:
        """Do nothing: records are in the file as soon as they are written."""

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the file, and warn of what it changed; nothing waits."""
        self._log.close()
        with self._lock:
            told, self._changed = self._changed, Counter()
        if told.total() > len(told):  # the first of each kind was a warning
            _warn("; ".join(f"{why}: {n:,} values" for why, n in told.items()))

    def _encoded(self, records: Sequence[Record]) -> Iterator[Encoded]:
        for step, wall_time, values in _together(records):
            event = mindspore.encode_event(values, step=cut(step), wall_time=wall_time)
            yield event
            for tag in values.keys() - event[1].keys():
                self._note(tag, step, values[tag])

    def _note(self, tag: str, step: float, value: object) -> None:
        for why in changes(value, mindspore, step=step):
            with self._lock:
                self._changed[why] += 1
                first = self._changed[why] == 1
            if first:
                _warn(f"{tag!r} at step {step:.15g}: {why}; further ones are counted")


def _mindspore_name(started: float, n: int) -> str:
    return mindspore.file_name(started=started + n, rank=0, hostname=platform.node() or "sightglass")


def _together(records: Sequence[Record]) -> Iterator[tuple[float, float, dict[str, Any]]]:
    """Yield the step, the time and the values of consecutive records that have these in common."""
    at, values = (0.0, 0.0), dict[str, Any]()
    for record in records:
        own = dict(leaves({record.tag: record.value}))
        if values and (at != (record.step, record.wall_time) or own.keys() & values.keys()):
            yield *at, values
            values = {}
        at = record.step, record.wall_time
        values |= own
    if values:
        yield *at, values


def _warn(what: str) -> None:
    with contextlib.suppress(Warning):  # with warnings as errors, no record may be lost
        warn_user(f"MindSpore's summary file is not exact: {what}")


# Records into TensorBoard's event files, one at a time, as they come.

LAST_STEP: Final = 2**63 - 1  # steps are int64 in an event


class TensorBoard:
    """Writes records to an event file of TensorBoard in a folder, which the first record creates; from any thread.

    Args:
        folder: A log directory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._log = EventLog(folder, version=TENSORBOARD_VERSION, name=_tensorboard_name)

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


def _tensorboard_name(started: float, n: int) -> str:
    name = file_name(started=started, hostname=platform.node() or "sightglass", pid=os.getpid())
    return f"{name.removesuffix('0')}{n}"
