"""Export records to TensorBoard event files and MindSpore summary files.

Numbers come in order of time, those of one wall time and step together, as they were logged: in one event for
MindSpore, in one event each for TensorBoard. After them comes everything else, tag by tag, because of its size. Each
record decides, not its tag: a tag may have both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import Any, Final, Literal

import numpy as np

from sightglass.core.columns import Columns, plain
from sightglass.storage.event_log import EventLog, encoded
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.foreign.event_changes import changes
from sightglass.storage.foreign.event_encoding import Encoded
from sightglass.storage.foreign.event_format import EventFormat
from sightglass.storage.format.block import Key
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .atomic_file import AtomicFiles
from .losses import Losses, blocks

LIGHT: Final = frozenset(("float", "int", "bool", "float64", "float32", "int64", "int32"))


@dataclass(frozen=True, slots=True)
class _Row:
    wall_time: float
    step: float
    tag: str
    value: Any


def write_events(
    files: AtomicFiles,
    runs: Mapping[str, Recording],
    chosen: Mapping[str, Sequence[tuple[str, Series]]],
    losses: Losses,
    *,
    to: Literal["tensorboard", "mindspore"],
) -> None:
    """Write a file for each run; those of several runs in directories of their own.

    Args:
        files: The destination.
        runs: The runs.
        chosen: The series of each run, with the tags that they get.
        losses: Counts the values that are left out or changed.
        to: The format.
    """
    for run, found in chosen.items():
        if not found:
            continue
        folder = files.folder / run if len(chosen) > 1 else files.folder
        folder.mkdir(parents=True, exist_ok=True)
        info, rank = runs[run].info, runs[run].rank
        host = "".join(c if c.isalnum() or c in "-." else "-" for c in info.host) or "sightglass"
        if to == "tensorboard":
            name = tensorboard.file_name(started=info.started, hostname=host, pid=info.pid + rank)
        else:
            name = mindspore.file_name(started=info.started, rank=rank, hostname=host)
        format: EventFormat = tensorboard if to == "tensorboard" else mindspore
        version = TENSORBOARD_VERSION if to == "tensorboard" else MINDSPORE_VERSION
        log = EventLog(folder, version=version, name=lambda *_, name=name: name, started=info.started)
        n_written: Counter[str] = Counter()
        try:
            log.write(_events(found, run, losses, format, n_written))
        finally:
            log.close()
        files.put(folder / name, n_written.total())


def _events(
    found: Sequence[tuple[str, Series]], run: str, losses: Losses, format: EventFormat, n_written: Counter[str]
) -> Iterator[Encoded]:
    """Yield the events of some series; count what is written by tag, and what is lost or changed."""

    def written(tag: str, step: float, value: Any) -> None:
        n_written[tag] += 1
        for why in changes(value, format, step=step):
            losses.add(run, tag, why, left_out=False)

    for parts, left_out in encoded(_rows(found, run, losses), format, written=written):
        for tag, why in left_out.items():
            losses.add(run, tag, why)
        yield parts, {}


def _rows(found: Sequence[tuple[str, Series]], run: str, losses: Losses) -> Iterator[_Row]:
    """Yield the numbers of all series by time, and then everything else, series by series."""
    light = [(name, series) for name, series in found if not series.types.isdisjoint(LIGHT)]
    heavy = {series.key for _, series in found if not series.types <= LIGHT}
    yield from merge(
        *(_numbers(name, series, run, losses, heavy) for name, series in light), key=attrgetter("wall_time")
    )
    read = {series.key for _, series in light}  # their numbers are written, and what is damaged is counted
    for name, series in found:
        if series.key in heavy:
            again = series.key in read
            for row in _rows_of(name, series.blocks() if again else blocks(name, series, run, losses)):
                if not (again and isinstance(row.value, int | float)):
                    yield row


def _numbers(name: str, series: Series, run: str, losses: Losses, heavy: set[Key]) -> Iterator[_Row]:
    """Yield the numbers of a series, which may wait for those of others; note one that has other values, too."""
    for row in _rows_of(name, blocks(name, series, run, losses)):
        if isinstance(row.value, int | float):
            yield row
        else:
            heavy.add(series.key)


def _rows_of(name: str, read: Iterable[Columns]) -> Iterator[_Row]:
    for columns in read:
        values = columns.values
        flat = isinstance(values, np.ndarray) and values.ndim == 1
        items = values.tolist() if flat and values.dtype.kind in "biuf" else values
        for step, wall_time, value in zip(columns.steps.tolist(), columns.wall_times.tolist(), items, strict=True):
            yield _Row(wall_time, step, name, plain(value))
