"""The totals of runs that have not written them to their end: killed and growing ones, and those of other programs.

Rule 1: those of a run that has grown since are continued: only new records are read.
Rule 2: there are none if more than `MAX_RUN_BYTES` would have to be read for them, and none of a damaged run.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from sightglass.storage import file_names, totals_file
from sightglass.storage.format.totals import Files, RunTotals, TotalsBuilder

from .recording import Recording
from .series import Series

MAX_SERIES: Final = 10_000  # of numbers: 2 MB
MAX_RUN_BYTES: Final = 64 * 2**20  # of new records that are read to make totals: a quarter of a second
PIECE_ROWS: Final = 2**16  # added up in some milliseconds


def load(directory: Path, files: Files, *, rank: int | None) -> RunTotals | None:
    """Return the totals of a run, or `None` without any for these files."""
    totals = totals_file.kept(directory, rank=rank)
    return totals if totals is not None and totals.files == files else None


def make(recording: Recording, files: Files, *, rank: int | None) -> RunTotals | None:
    """Make the totals of a run, from older ones if there are any, and keep them; `None` if there are to be none.

    Args:
        recording: The run.
        files: Its files, from before it was opened: it may have grown since.
        rank: Whose records they are; `None` for the lowest.

    Raises:
        DamagedError: A file turns out to be damaged in a way that ends reading.
    """
    before = totals_file.kept(recording.path, rank=rank)
    if before is not None and not _continues(before, recording, files):
        before = None
    known = before.files if before is not None else {}
    if sum(n_bytes - known.get(name, (0, 0))[0] for name, (n_bytes, _) in files.items()) > MAX_RUN_BYTES:
        return None
    totals = _made(recording, files, before)
    if totals is not None:
        totals_file.keep(recording.path, totals, rank=rank)
    return totals


def first_nan(recording: Recording, totals: RunTotals) -> tuple[str, float, float] | None:
    """Return the tag, the step and the time of the first NaN in the numbers of a run; `None` without any.

    Only series are read whose sum says that there may be one.
    """
    found = []
    for keys, table in totals.tables.values():
        for i in np.flatnonzero(np.isnan(table["sum"])).tolist():
            series = recording.series(keys[i])
            for start, stop in pairwise([*range(0, len(series), PIECE_ROWS), len(series)]):
                columns = series.columns(start, stop)
                places = np.flatnonzero(np.isnan(np.asarray(columns.values, np.float64)))
                if len(places):
                    at = places[0]
                    found.append((float(columns.wall_times[at]), keys[i].tag, float(columns.steps[at])))
                    break
    wall_time, tag, step = min(found, default=(0.0, "", 0.0))
    return (tag, step, wall_time) if tag else None


def _made(recording: Recording, files: Files, before: RunTotals | None) -> RunTotals | None:
    """Return the totals of a run, continued from those of its first records if there are any."""
    if not files or recording.path.is_file():
        return None
    keys = recording.keys()
    kept = (recording.series(key) for key in keys if key.kind in ("logged", "stream"))
    numbers = [series for series in kept if "[" not in series.type]  # arrays would be read for nothing
    if len(numbers) > MAX_SERIES:
        return None
    builder = TotalsBuilder(before)
    for series in numbers:
        _add(builder, series, builder.n_rows.get(series.key, 0), len(series))
    return None if recording.damages else builder.totals(files, others=keys)


def _add(builder: TotalsBuilder, series: Series, low: int, high: int) -> None:
    """Add some records of a series, unless it has no totals."""
    for start, stop in pairwise([*range(low, high, PIECE_ROWS), high]):
        if series.key in builder.without:
            break
        for columns in series.parts(start, stop):
            if len(columns):
                builder.add(series.key, columns)
    builder.n_rows[series.key] = high


def _continues(before: RunTotals, recording: Recording, files: Files) -> bool:
    """Return whether older totals are of the first records: one process of this package wrote all, and files only grew.

    Args:
        before: The older totals.
        recording: The run.
        files: Its files, from before it was opened.
    """
    changed = [
        (n_bytes, files.get(name))
        for name, (n_bytes, time) in before.files.items()
        if files.get(name) != (n_bytes, time)
    ]
    if any(now is None or now[0] <= n_bytes for n_bytes, now in changed):
        return False
    names = [part.path.name for part in recording.parts]
    if any(not name.endswith(file_names.SUFFIX) for name in names) or len({p.started for p in recording.parts}) > 1:
        return False
    if set(before.files) != set(names[: len(before.files)]):
        return False
    keys = recording.keys()
    lengths = {key: len(recording.series(key)) for key in keys}
    return all(lengths.get(key, -1) >= n for key, n in before.n_rows.items())
