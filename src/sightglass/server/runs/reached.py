"""The step that a run had reached at a time.

Records of the machine and of what a program prints have seconds as their step. On the axis of steps they stand at the
step that the run had reached then: that of the last record before them of its longest series.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sightglass.storage.format.block import Key
from sightglass.storage.run_file import is_of_machine
from sightglass.views.passes import LinePart, parts_of

from .open_files import OpenFiles, SeriesInfo, is_scalar, series_infos
from .run_columns import Remembered
from .scalar_lines import HISTORY, Floats, ScalarLine

INF: Final = float("inf")


def reference_of(infos: Mapping[Key, SeriesInfo]) -> Key | None:
    """Return the longest series of numbers that has the run's own steps; `None` if there is none."""
    own = [key for key, info in infos.items() if is_scalar(info.type) and not is_of_machine(key)]
    return max(own, key=lambda key: infos[key].n, default=None)


def known_reference(files: OpenFiles) -> Key | None:
    """Return the same, looked for again after a while or with a new series. The caller holds the recording's lock."""
    about = files.path, files.generation, len(files.recording.keys()), time.monotonic() // LOOK_S
    return _references.get(about, lambda: reference_of(series_infos(files.recording)))


LOOK_S: Final = 10.0
_references = Remembered[Key | None](200)


@dataclass(frozen=True, slots=True, eq=False)
class Reached:
    """The steps of a run by time.

    Attributes:
        walls: Shape (n,), ascending, in seconds since the Unix epoch.
        steps: Shape (n,).
    """

    walls: Floats
    steps: Floats

    @classmethod
    def of(cls, walls: Floats, steps: Floats) -> Reached:
        """Put records in the order of their time; those without a step are left out."""
        known = np.flatnonzero(np.isfinite(walls) & np.isfinite(steps))
        order = known[np.argsort(walls[known], kind="stable")]
        return cls(walls[order], steps[order])

    def at(self, walls: Floats) -> Floats:
        """Return the steps at some times; before the first record, the first step."""
        if not len(self.steps):
            return np.full(len(walls), np.nan)
        found: Floats = self.steps[np.maximum(0, np.searchsorted(self.walls, walls, side="right") - 1)]
        return found

    def span(self, low: float, high: float) -> tuple[float, float]:
        """Return the times between which the run was at some steps, both included; an empty range if it never was."""
        inside = np.flatnonzero((self.steps >= low) & (self.steps <= high))
        if not len(inside):
            return INF, -INF
        first, after = inside[0], inside[-1] + 1
        begin = -INF if first == 0 else float(self.walls[first])
        return begin, INF if after == len(self.walls) else float(np.nextafter(self.walls[after], -INF))

    def placed(self, line: ScalarLine, low: float, high: float) -> ScalarLine:
        """Return a line over time as one over the steps from `low` to `high`."""
        x = self.at(line.wall)
        inside = (x >= low) & (x <= high)
        x, mean = x[inside], line.mean[inside] if len(line.mean) else line.mean
        begins = [0, *(np.flatnonzero(np.diff(x) < 0) + 1).tolist()]
        passes = [slice(begin, end) for begin, end in zip(begins, [*begins[1:], len(x)], strict=True)]
        parts = parts_of(x, passes, history=HISTORY)
        if parts is None:  # the run began again and again
            parts = [LinePart(rows=rows) for rows in passes]
        restarts = self.at(np.array(line.restarts)).tolist()
        return replace(
            line, x=x, y=line.y[inside], wall=line.wall[inside], step=x, row=line.row[inside], mean=mean, parts=parts,
            restarts=restarts, since=0,
        )  # fmt: skip
