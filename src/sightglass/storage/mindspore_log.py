"""Records into MindSpore's summary files, as they come: the same as `export(to="mindspore")` writes afterwards."""

from __future__ import annotations

import contextlib
import os
import platform
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from sightglass.core.record import Record
from sightglass.core.unpatched import threading

from .event_log import EventLog
from .foreign import mindspore
from .foreign.event_changes import changes, cut
from .foreign.event_encoding import Encoded, leaves
from .format.summary import MINDSPORE_VERSION


class MindSpore:
    """Writes records to a summary file of MindSpore in a folder, which the first record creates; from any thread.

    The format has float32 only, and one integer as step. The first value that is changed so is a warning; all are
    counted, and `close` says how many.

    Args:
        folder: A summary directory.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._log = EventLog(folder, version=MINDSPORE_VERSION, name=_name)
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


def _name(started: float, n: int) -> str:
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
        warnings.warn(f"MindSpore's summary file is not exact: {what}", RuntimeWarning, stacklevel=3)
