"""Export records to TensorBoard event files and MindSpore summary files.

Numbers come in order of time, those of one wall time and step together, as they were logged: in one event for
MindSpore, in one event each for TensorBoard. After them comes everything else, tag by tag, because of its size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import attrgetter
from typing import IO, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.columns import plain
from sightglass.core.values import Histogram, Tensor
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.foreign.event_encoding import leaves
from sightglass.storage.foreign.event_format import EventFormat
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .atomic_file import AtomicFiles
from .losses import Losses, blocks

LIGHT: Final = frozenset(("float", "int", "bool", "float64", "float32", "int64", "int32"))
MAX_INTEGER: Final = 2**24  # float32 has every integer up to here
INT64: Final = 2.0**63


@dataclass(frozen=True, slots=True)
class _Row:
    wall_time: float
    step: float
    tag: str
    value: Any


def write_events(
    files: AtomicFiles,
    runs: Mapping[str, Recording],
    chosen: Mapping[str, Mapping[str, Series]],
    losses: Losses,
    *,
    to: Literal["tensorboard", "mindspore"],
) -> None:
    """Write a file for each run; those of several runs in directories of their own.

    Args:
        files: The destination.
        runs: The runs.
        chosen: The series of each run, by the tags that they get.
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

    def write_all(self, found: Mapping[str, Series]) -> None:
        light = {name: series for name, series in found.items() if series.type in LIGHT}
        together: dict[str, Any] = {}
        at: tuple[float, float] | None = None
        for row in merge(*(self._rows(name, series) for name, series in light.items()), key=attrgetter("wall_time")):
            if together and ((row.wall_time, row.step) != at or row.tag in together):
                self._log(together, at)
                together = {}
            at = row.wall_time, row.step
            together[row.tag] = row.value
        if together:
            self._log(together, at)
        for name, series in found.items():
            if name not in light:
                for row in self._rows(name, series):
                    self._log({row.tag: row.value}, (row.wall_time, row.step))

    def _rows(self, name: str, series: Series) -> Iterator[_Row]:
        for columns in blocks(name, series, self._run, self._losses):
            values = columns.values
            flat = isinstance(values, np.ndarray) and values.ndim == 1
            items = values.tolist() if flat and values.dtype.kind in "biuf" else values
            for step, wall_time, value in zip(columns.steps.tolist(), columns.wall_times.tolist(), items, strict=True):
                yield _Row(wall_time, step, name, plain(value))

    def _log(self, values: Mapping[str, Any], at: tuple[float, float] | None) -> None:
        """Write the values of one wall time and step."""
        wall_time, step = at or (0.0, 0)
        values = dict(leaves(values))
        whole = math.isfinite(step) and step == int(step) and -INT64 <= step < INT64
        if not whole:
            step = 0 if math.isnan(step) else max(-INT64, min(step, INT64 - 1024))
        each = [values] if self._format is mindspore else [{tag: value} for tag, value in values.items()]
        for some in each:
            parts, left_out = self._format.encode_event(some, step=step, wall_time=wall_time)
            if parts:
                self.write(parts)
            self.n += len(some) - len(left_out)
            for tag, why in left_out.items():
                self._losses.add(self._run, tag, why)
            for tag in some.keys() - left_out.keys():
                self._note_changes(tag, some[tag], whole)

    def _note_changes(self, tag: str, value: object, whole: bool) -> None:
        """Count how the file changes a value."""
        changes = [] if whole else ["steps that are not 64-bit integers were cut to such"]
        if (
            isinstance(value, Histogram)
            and self._format is tensorboard
            and value.n_nan + value.n_posinf + value.n_neginf
        ):
            changes.append("TensorBoard's histograms do not count the samples that were not finite")
        array = value.value if isinstance(value, Tensor) else value
        if isinstance(array, bool | int | float) or (self._format is mindspore and isinstance(array, np.ndarray)):
            changes += _as_float32(np.asarray(array))
        for why in changes:
            self._losses.add(self._run, tag, why, left_out=False)


def _as_float32(array: npt.NDArray[Any]) -> list[str]:
    """Return how numbers change when they become float32."""
    if array.dtype.kind not in "iufO" or (array.dtype.kind == "f" and array.itemsize <= 4):
        return []
    array = array[array == array]  # noqa: PLR0124  NaN stays what it is
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    beyond = np.isinf(narrow) & (array != narrow)
    changes = ["numbers beyond float32 became infinite"] if beyond.any() else []
    kept = ~beyond & (np.abs(narrow) > MAX_INTEGER if array.dtype.kind in "iuO" else True)
    # As Python's numbers, because int64 and float32 are compared as float64.
    if any(before != after for before, after in zip(array[kept].tolist(), narrow[kept].tolist(), strict=True)):
        changes.append("numbers were rounded to float32")
    return changes
