"""Totals: what a run's series of numbers come to, kept beside its record files, so that a table of runs reads little.

Totals are the states of some reducers over each series of numbers. Whoever reads a run for a table first makes them.

Rule 1: totals count as long as the record files have the sizes and times of change that they name.
Rule 2: those of a run that has grown since are continued: only new records are read.
Rule 3: if the run's folder cannot be written to, they are kept in the user's cache folder.
Rule 4: there are none if more than `MAX_RUN_BYTES` would have to be read for them, and none of a damaged run.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from sightglass.query.bulk import can_reduce, reduce_numbers
from sightglass.query.reducers import reducer
from sightglass.query.reduction import State
from sightglass.storage import run_file
from sightglass.storage.file_system import LOCAL, open_regular, written_aside
from sightglass.storage.format.block import Key

from .recording import Recording, rank_of
from .series import Series

Files = dict[str, tuple[int, int]]
"""The sizes and times of change, in nanoseconds, of record files, by name."""

NAMES: Final = ("count", "sum", "mean", "var", "std", "min", "max", "first", "last", "argmin", "argmax")
"""The reducers whose states are kept."""

VERSION: Final = 2
CHECKSUM_BYTES: Final = 4  # CRC-32 of what follows, which is msgpack
MAX_SERIES: Final = 10_000  # of numbers: 3 MB
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_RUN_BYTES: Final = 64 * 2**20  # of new records that are read to make totals: a quarter of a second
PIECE_ROWS: Final = 2**16  # reduced in some milliseconds
NAME: Final = ".sightglass-totals"
MAX_CACHED: Final = 20_000  # files in the cache folder, of some kilobytes each
PRUNED: Final = 0.5  # of them are removed when there are more, the oldest first


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a run.

    Attributes:
        version: Of this format.
        files: The record files that they are of.
        keys: Every series of the run.
        states: By the number of a series of numbers among `keys`, the states of the reducers `NAMES`.
        n_rows: By the same numbers, how many records these are of.
    """

    version: int
    files: Files
    keys: tuple[Key, ...]
    states: dict[int, dict[str, Any]]
    n_rows: dict[int, int]

    def state(self, key: Key, name: str) -> State:
        """Return a reducer's state over a series, or `None` if there is none."""
        found = self.states.get(self.keys.index(key), {}).get(name)
        return tuple(found) if isinstance(found, list) else found


def load(directory: Path, files: Files, *, rank: int | None) -> RunTotals | None:
    """Return the totals of a run, or `None` without any for these files."""
    totals = _kept(directory, rank=rank)
    return totals if totals is not None and totals.files == files else None


def make(recording: Recording, files: Files, *, rank: int | None) -> RunTotals | None:
    """Make the totals of a run, from older ones if there are any, and keep them; `None` if there are to be none.

    Args:
        recording: The run.
        files: Its files, from before it was opened: it may have grown since.
        rank: Whose records they are; `None` for the lowest.

    Raises:
        DamagedError: A file turns out to be damaged in a way that ends reading.
        SightglassError: A sum is beyond 64 bits.
    """
    before = _kept(recording.path, rank=rank)
    if before is not None and not _continues(before, recording, files):
        before = None
    known = before.files if before is not None else {}
    if sum(n_bytes - known.get(name, (0, 0))[0] for name, (n_bytes, _) in files.items()) > MAX_RUN_BYTES:
        return None
    totals = _made(recording, files, before)
    if totals is not None:
        _save(recording.path, totals, rank=rank)
    return totals


def _made(recording: Recording, files: Files, before: RunTotals | None) -> RunTotals | None:
    """Return the totals of a run, continued from those of its first records if there are any."""
    if not files or recording.path.is_file():
        return None
    keys = tuple(recording.keys())
    kept = (i for i, key in enumerate(keys) if key.kind in ("logged", "stream"))
    numbers = [i for i in kept if "[" not in recording.series(keys[i]).type]  # arrays would be read for nothing
    if len(numbers) > MAX_SERIES:
        return None
    states, n_rows = {}, {}
    known = {key: i for i, key in enumerate(before.keys)} if before is not None else {}
    for i in numbers:
        series, old = recording.series(keys[i]), known.get(keys[i], -1)
        n_before = before.n_rows.get(old, 0) if before is not None else 0
        n = len(series)
        total: dict[str, State] = before.states.get(old, {}) if before is not None else {}
        n_rows[i] = n
        if n_before and not total:
            continue  # not a series of numbers
        total = {name: tuple(state) if isinstance(state, list) else state for name, state in total.items()}
        for low, high in pairwise([*range(n_before, n, PIECE_ROWS), n]):
            if not _add(total, series, low, high):
                total = {}
                break
        if total:
            states[i] = total
    if recording.damages:
        return None
    return RunTotals(version=VERSION, files=files, keys=keys, states=states, n_rows=n_rows)


def _add(total: dict[str, State], series: Series, low: int, high: int) -> bool:
    """Add some records of a series to the states over it; return whether they are numbers."""
    for columns in series.parts(low, high):
        if not len(columns):
            continue
        for name in NAMES:
            if not can_reduce(name, columns.values):
                return False
            state = reduce_numbers(name, {}, columns)
            merge = reducer(name, {}).merge
            assert merge is not None
            total[name] = merge(total[name], state) if name in total else state
    return True


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
    if any(not name.endswith(run_file.SUFFIX) for name in names) or len({p.started for p in recording.parts}) > 1:
        return False
    if set(before.files) != set(names[: len(before.files)]):
        return False
    keys = recording.keys()
    lengths = {key: len(recording.series(key)) for key in keys}
    return all(lengths.get(before.keys[i], -1) >= n for i, n in before.n_rows.items())


def _save(directory: Path, totals: RunTotals, *, rank: int | None) -> None:
    """Keep the totals of a run beside its files, else in the cache folder; if neither is possible, do nothing."""
    data = msgspec.msgpack.encode(totals)
    buffers = [zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little"), data]
    like = directory / next(iter(totals.files))  # as private as the records
    path = _path(directory, rank)
    try:
        with written_aside(LOCAL, path, buffers, sync=False, like=like) as new:
            os.replace(new, path)
        return
    except OSError:
        cached = _cached(directory, rank)
    with contextlib.suppress(OSError):
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with written_aside(LOCAL, cached, buffers, sync=False, like=like) as new:
            os.replace(new, cached)
        _prune(cached.parent)


def _kept(directory: Path, *, rank: int | None) -> RunTotals | None:
    """Return the totals that are kept, whichever files they are of."""
    for path in (_path(directory, rank), _cached(directory, rank)):
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            with open(path, "rb", opener=_open_own) as file:
                checksum, data = file.read(CHECKSUM_BYTES), file.read(MAX_FILE_BYTES)
            if int.from_bytes(checksum, "little") == zlib.crc32(data):
                totals = msgspec.msgpack.decode(data, type=RunTotals)
                if totals.version == VERSION:
                    return totals
    return None


def _open_own(path: str, flags: int) -> int:
    """Open a regular file that is not a link: one could lead to what only this user can read."""
    return open_regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _path(directory: Path, rank: int | None) -> Path:
    return directory / (NAME if rank is None else f"{NAME}-rank{rank}")


def _cached(directory: Path, rank: int | None) -> Path:
    """Return where totals are if their run's folder cannot be written to."""
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(_path(directory, rank))), digest_size=12).hexdigest()
    return cache_folder() / digest


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the folder for totals of runs whose own folder cannot be written to."""
    if platform == "win32":
        place = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif platform == "darwin":
        place = Path.home() / "Library/Caches"
    else:
        place = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return place / "sightglass" / "totals"


def _prune(folder: Path) -> None:
    """Remove the oldest files of the cache folder if it has too many."""
    with os.scandir(folder) as entries:
        ages = [(entry.stat().st_mtime, entry.path) for entry in entries]
    if len(ages) > MAX_CACHED:
        for _, path in sorted(ages)[: int(len(ages) * PRUNED)]:
            with contextlib.suppress(OSError):
                os.remove(path)


def files_of(directory: Path, *, rank: int | None = None) -> Files:
    """Return the sizes and times of change of a rank's record files in a directory; of a file, nothing.

    Args:
        directory: The run directory.
        rank: The rank; `None` for the lowest.
    """
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        found = {entry.name: entry for entry in entries if run_file.is_record_file(entry.name)}
        ranks = {name: rank_of(Path(name)) for name in found}
        chosen = min((named or 0 for named in ranks.values()), default=0) if rank is None else rank
        mine = [entry.stat() for name, entry in found.items() if ranks[name] in (None, chosen)]
        names = [name for name in found if ranks[name] in (None, chosen)]
        return {name: (status.st_size, status.st_mtime_ns) for name, status in zip(names, mine, strict=True)}
    return {}
