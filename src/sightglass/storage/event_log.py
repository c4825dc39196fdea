"""Records into the event files of other programs.

`TensorBoard` and `MindSpore` are sinks that write records as they come; `export` writes whole runs by the same rules.
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import IO, Any, Protocol

from sightglass.core.columns import Record
from sightglass.core.errors import UnsendableError, warn
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.unpatched import threading

from .foreign import mindspore, tensorboard
from .foreign.event_changes import changes, cut
from .foreign.event_encoding import Encoded, leaves
from .foreign.event_format import EventFormat
from .foreign.tensorboard import file_name
from .format.framing import frame
from .format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version


class EventLog:
    """Writes events to a file in a folder, which the first events create; from any thread.

    Args:
        folder: The folder.
        version: What the file's first event says that it is.
        name: Returns the n-th name for a file that begins at a time, in seconds since the Unix epoch: the first one
            that is not taken.
        started: The time that its first event has; by default, that of the first write.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        version: str,
        name: Callable[[float, int], str],
        started: float | None = None,
    ) -> None:
        self._folder = Path(folder)
        self._started = started
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
        started = SystemClock.wall() if self._started is None else self._started
        for n in count():
            try:
                file = (self._folder / self._name(started, n)).open("xb")
                break
            except FileExistsError:
                continue
        self._file = file
        file.writelines(frame(encode_version(self._version, started)))
        return file


class Logged(Protocol):
    """What an event is made of, such as a record."""

    @property
    def tag(self) -> str:
        """The tag."""

    @property
    def step(self) -> float:
        """The step."""

    @property
    def wall_time(self) -> float:
        """When it was made, in seconds since the Unix epoch."""

    @property
    def value(self) -> Any:
        """The value."""


def encoded(
    records: Iterable[Logged], format: EventFormat, *, written: Callable[[str, float, Any], None] | None = None
) -> Iterator[Encoded]:
    """Encode records as events: MindSpore has numbers of one step and time in one event, TensorBoard one in each.

    Args:
        records: The records.
        format: The format.
        written: Called for each value that is in an event, with its tag and step.
    """
    for step, wall_time, values in _together(records) if format is mindspore else _alone(records):
        event = format.encode_event(values, step=cut(step), wall_time=wall_time)
        yield event
        if written is not None:
            for tag in values.keys() - event[1].keys():
                written(tag, step, values[tag])


def _alone(records: Iterable[Logged]) -> Iterator[tuple[float, float, dict[str, Any]]]:
    for record in records:
        for tag, value in leaves({record.tag: record.value}):
            yield record.step, record.wall_time, {tag: value}


def _together(records: Iterable[Logged]) -> Iterator[tuple[float, float, dict[str, Any]]]:
    """Yield the step, the time and the numbers of consecutive records that have these in common.

    Other values come alone and at once: an array may be lent until the next record is read.
    """
    at, numbers = (0.0, 0.0), dict[str, Any]()
    for record in records:
        own = dict(leaves({record.tag: record.value}))
        is_light = all(isinstance(value, int | float) for value in own.values())
        if numbers and (not is_light or at != (record.step, record.wall_time) or own.keys() & numbers.keys()):
            yield *at, numbers
            numbers = {}
        at = record.step, record.wall_time
        if is_light:
            numbers |= own
        else:
            yield *at, own
    if numbers:
        yield *at, numbers


# Records into MindSpore's summary files, as they come.


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
        """Write records; numbers of one step and time in one event.

        Raises:
            OSError: The file cannot be written.
            UnsendableError: MindSpore's summary files do not support a value.
        """
        self._log.write(encoded(records, mindspore, written=self._note))

    def flush(self, timeout_s: float) -> None:
        """Do nothing: records are in the file as soon as they are written."""

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the file, and warn of what it changed; nothing waits."""
        self._log.close()
        with self._lock:
            told, self._changed = self._changed, Counter()
        if told.total() > len(told):  # the first of each kind was a warning
            _warn("; ".join(f"{why}: {n:,} values" for why, n in told.items()))

    def _note(self, tag: str, step: float, value: object) -> None:
        for why in changes(value, mindspore, step=step):
            with self._lock:
                self._changed[why] += 1
                first = self._changed[why] == 1
            if first:
                _warn(f"{tag!r} at step {step:.15g}: {why}; further ones are counted")


def _mindspore_name(started: float, n: int) -> str:
    return mindspore.file_name(started=started + n, rank=0, hostname=platform.node() or "sightglass")


def _warn(what: str) -> None:
    warn(f"MindSpore's summary file is not exact: {what}")


# Records into TensorBoard's event files, one at a time, as they come.


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
        self._log.write(encoded(records, tensorboard))

    def flush(self, timeout_s: float) -> None:
        """Do nothing: records are in the file as soon as they are written."""

    def close(self, timeout_s: float = 0.0) -> None:
        """Close the file; nothing waits."""
        self._log.close()


def _tensorboard_name(started: float, n: int) -> str:
    name = file_name(started=started, hostname=platform.node() or "sightglass", pid=os.getpid())
    return f"{name.removesuffix('0')}{n}"
