"""Export records to TensorBoard event files and MindSpore summary files.

Numbers come in order of time, those of one wall time and step together, as they were logged: in one event for
MindSpore, in one event each for TensorBoard. After them comes everything else, tag by tag, because of its size. Each
record decides, not its tag: a tag may have both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import IO, Any, Final, Literal

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.columns import Columns, plain
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.foreign.event_changes import changes, cut
from sightglass.storage.foreign.event_encoding import leaves
from sightglass.storage.foreign.event_format import EventFormat
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version
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
        with (folder / name).open("wb") as file:
            writer = _Writer(file, tensorboard if to == "tensorboard" else mindspore, run, losses)
            writer.write(
                encode_version(TENSORBOARD_VERSION if to == "tensorboard" else MINDSPORE_VERSION, info.started)
            )
            writer.write_all(found)
        files.put(folder / name, writer.n)


class _Writer:
    """Writes the events of one file.

    Attributes:
        n: How many records it has.
    """

    def __init__(self, file: IO[bytes], format: EventFormat, run: str, losses: Losses) -> None:
        self.n = 0
        self._file = file
        self._format = format
        self._run = run
        self._losses = losses

    def write(self, parts: Sequence[Buffer]) -> None:
        for part in frame(parts):
            self._file.write(part)

    def write_all(self, found: Sequence[tuple[str, Series]]) -> None:
        light = [(name, series) for name, series in found if not series.types.isdisjoint(LIGHT)]
        heavy = {series.key for _, series in found if not series.types <= LIGHT}
        together: dict[str, Any] = {}
        at: tuple[float, float] | None = None
        numbers = (self._numbers(name, series, heavy) for name, series in light)
        for row in merge(*numbers, key=attrgetter("wall_time")):
            if together and ((row.wall_time, row.step) != at or row.tag in together):
                self._log(together, at)
                together = {}
            at = row.wall_time, row.step
            together[row.tag] = row.value
        if together:
            self._log(together, at)
        read = {series.key for _, series in light}  # their numbers are written, and what is damaged is counted
        for name, series in found:
            if series.key in heavy:
                again = series.key in read
                for row in self._rows(name, series.blocks() if again else self._blocks(name, series)):
                    if not (again and isinstance(row.value, int | float)):
                        self._log({row.tag: row.value}, (row.wall_time, row.step))

    def _numbers(self, name: str, series: Series, heavy: set[Key]) -> Iterator[_Row]:
        """Yield the numbers of a series, which may wait for those of others; note one that has other values, too."""
        for row in self._rows(name, self._blocks(name, series)):
            if isinstance(row.value, int | float):
                yield row
            else:
                heavy.add(series.key)

    def _blocks(self, name: str, series: Series) -> Iterator[Columns]:
        return blocks(name, series, self._run, self._losses)

    def _rows(self, name: str, read: Iterable[Columns]) -> Iterator[_Row]:
        for columns in read:
            values = columns.values
            flat = isinstance(values, np.ndarray) and values.ndim == 1
            items = values.tolist() if flat and values.dtype.kind in "biuf" else values
            for step, wall_time, value in zip(columns.steps.tolist(), columns.wall_times.tolist(), items, strict=True):
                yield _Row(wall_time, step, name, plain(value))

    def _log(self, values: Mapping[str, Any], at: tuple[float, float] | None) -> None:
        """Write the values of one wall time and step."""
        wall_time, step = at or (0.0, 0)
        values = dict(leaves(values))
        each = [values] if self._format is mindspore else [{tag: value} for tag, value in values.items()]
        for some in each:
            parts, left_out = self._format.encode_event(some, step=cut(step), wall_time=wall_time)
            if parts:
                self.write(parts)
            self.n += len(some) - len(left_out)
            for tag, why in left_out.items():
                self._losses.add(self._run, tag, why)
            for tag in some.keys() - left_out.keys():
                for why in changes(some[tag], self._format, step=step):
                    self._losses.add(self._run, tag, why, left_out=False)
