"""The totals of runs that have not written them to their end: killed and growing ones, and those of other programs.

Rule 1: those of a run that has grown since are continued: only new records are read.
Rule 2: there are none if more than `MAX_RUN_BYTES` would have to be read for them, and none of a damaged run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from sightglass.storage import cache_file, file_names, totals_file
from sightglass.storage.format.block import Key
from sightglass.storage.format.totals import Files, RunTotals, TotalsBuilder

from .recording import Recording
from .series import Series

Odd: TypeAlias = Literal["nan", "infinity"]

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


def of(recording: Recording, *, rank: int | None = None) -> RunTotals | None:
    """Return the totals of a run as it is now; make them if it has none, or has grown since. Errors as of `make`."""
    files = cache_file.files_of(recording.path, rank=rank)
    totals = load(recording.path, files, rank=rank)
    if totals is not None:
        return totals
    with recording.lock:
        if recording.changed():
            recording.refresh()
        return make(recording, files, rank=rank)


def first_odd(recording: Recording, totals: RunTotals) -> dict[Odd, tuple[Key, float, float]]:
    """Return the series, the step and the time of the first NaN and of the first infinity in the numbers of a run.

    Only series are read whose sum says that there may be one.
    """
    found: dict[Odd, list[tuple[float, float, Key]]] = {}
    for keys, table in totals.tables.values():
        for i in np.flatnonzero(~np.isfinite(table["sum"])).tolist():
            for what, step, wall_time in _odd_in(recording.series(keys[i])):
                found.setdefault(what, []).append((wall_time, step, keys[i]))
    first = {what: min(places, key=itemgetter(0)) for what, places in found.items()}
    return {what: (key, step, wall_time) for what, (wall_time, step, key) in first.items()}


def _odd_in(series: Series) -> Iterator[tuple[Odd, float, float]]:
    """Yield the step and the time of the first NaN, and of the first infinity, of a series."""
    tests: dict[Odd, Callable[[Any], Any]] = {"nan": np.isnan, "infinity": np.isinf}
    for columns in series.blocks():
        values = np.asarray(columns.values, np.float64)
        for what in list(tests):
            places = np.flatnonzero(tests[what](values))
            if len(places):
                yield what, float(columns.steps[places[0]]), float(columns.wall_times[places[0]])
                del tests[what]
        if not tests:
            return


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
