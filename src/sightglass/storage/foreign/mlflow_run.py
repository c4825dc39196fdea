"""A run of MLflow's file store as a file of a recording: its `meta.yaml`, for all that lies beside it.

* A metric is a file of lines: milliseconds since the Unix epoch, value, step. Each is a series of numbers. Any other
  line is damage. A line without its end is being written.
* Artifacts are not shown: they are files of any program.
* Files may grow, and come, as long as the run goes on: `refresh` looks at each one's size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.storage.file_system import LOCAL
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Damage

from .event_columns import LogEvents
from .event_scan import OtherFileError
from .foreign_file import HeldFile
from .mlflow_told import METRICS, files_in, read_mlflow

POINT: Final = np.dtype([("wall_time", "<f8"), ("value", "<f8"), ("step", "<i8"), ("series", "<i8")])
MAX_NOTED: Final = 100  # damaged lines of a file

Points = npt.NDArray[np.void]
"""Shape (n,), dtype `POINT`."""


class MlflowRun(HeldFile):
    """The metrics of a run of MLflow's file store; see `record_file.RecordFile` for its attributes."""

    dialect = "mlflow"

    def __init__(self, path: Path) -> None:
        """Read what the run has.

        Raises:
            OSError: It cannot be read.
            OtherFileError: It is not the `meta.yaml` of a run.
        """
        super().__init__()
        self.path = path
        self.told: Mapping[str, Any] = read_mlflow(path)
        if not self.told:
            raise OtherFileError(f"Expected the meta.yaml of a run of MLflow, got {str(path)!r}")
        self.started = float(self.told["started"])
        self._read: dict[Path, int] = {}  # how many bytes of each file
        self._bad: dict[Path, list[Damage]] = {}
        self._events = LogEvents(joins_steps=True)
        self.refresh()

    @property
    def damages(self) -> Sequence[Damage]:
        """The lines that are not values."""
        return [damage for several in self._bad.values() for damage in several]

    def refresh(self) -> bool:
        """Read the lines that were appended, and return whether there are any."""
        told, n_bad = read_mlflow(self.path) or self.told, len(self.damages)
        changed, self.told = told != self.told, told
        parts = [self._points(name, path) for name, path in files_in(self.path.parent / METRICS)]
        points = np.concatenate([np.empty(0, POINT), *parts])
        if len(points):
            self._append(points[np.argsort(points["wall_time"], kind="stable")])
        return changed or bool(len(points)) or len(self.damages) > n_bad

    def _points(self, name: str, path: Path) -> Points:
        """Return the values that a metric's file has got."""
        begin = self._read.get(path, 0)
        try:
            if LOCAL.status(path).n_bytes <= begin:
                return np.empty(0, POINT)
            file = LOCAL.open(path)
            try:
                data = file.read(begin, LOCAL.status(path).n_bytes - begin)
            finally:
                file.close()
        except OSError as error:
            self._bad.setdefault(path, [Damage(path=path, offset=begin, length=0, what=str(error), tag=name)])
            return np.empty(0, POINT)
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = begin + len(whole)
        points = _parsed(whole)
        if points is None:
            points = np.array(list(self._one_by_one(whole, begin, name, path)), POINT)
        if len(points):
            points["series"] = self.series_of(Key(kind="logged", tag=name, values="scalar")).number
            points["wall_time"] = np.maximum.accumulate(points["wall_time"])  # the order of the file stays
        return points

    def _one_by_one(self, data: bytes, begin: int, name: str, path: Path) -> Iterator[tuple[float, float, int, int]]:
        """Yield the values of lines, and note lines without one."""
        for line in data.splitlines(keepends=True):
            fields = line.split()
            try:
                yield int(fields[0]) / 1000, float(fields[1]), int(fields[2]) if len(fields) > 2 else 0, 0
            except (ValueError, IndexError, OverflowError):
                noted = self._bad.setdefault(path, [])
                if len(noted) < MAX_NOTED:
                    what = f"it is not a value of a metric: {line[:40]!r}"
                    noted.append(Damage(path=path, offset=begin, length=len(line), what=what, tag=name))
            begin += len(line)

    def _append(self, points: Points) -> None:
        """Append the values of several series, in the order of their times."""
        ordinals = self._events.number(np.arange(len(points)), points["series"], points["step"])
        for series in self.series.values():
            rows = np.flatnonzero(points["series"] == series.number)
            if len(rows):
                mine = points[rows]
                columns = Columns(
                    index=0, steps=mine["step"].copy(), wall_times=mine["wall_time"].copy(),
                    values=mine["value"].copy(), ordinals=ordinals[rows],
                )  # fmt: skip
                self.append(series, "float", columns)


def _parsed(data: bytes) -> Points | None:
    """Return the values of lines that all have three plain fields; `None` if some have not."""
    fields, n = data.split(), data.count(b"\n")
    if len(fields) != 3 * n or b"_" in data:
        return None
    try:
        columns = np.array(fields).reshape(n, 3)
        points = np.zeros(n, POINT)
        points["wall_time"] = columns[:, 0].astype(np.int64) / 1000
        points["value"], points["step"] = columns[:, 1].astype(np.float64), columns[:, 2].astype(np.int64)
    except (ValueError, OverflowError):
        return None
    return points
