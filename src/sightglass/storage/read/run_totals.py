"""Totals: what a run's series of numbers come to, kept beside its record files, so that a table of runs reads little.

Totals are the states of some reducers over each series of numbers. Whoever reads a run for a table first makes them;
they hold as long as the record files have the sizes and times of change that they name. A large run, and one in a
folder that cannot be written to, is read each time.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from sightglass.core.columns import Columns
from sightglass.query.bulk import can_reduce, reduce_numbers
from sightglass.query.reducers import reducer
from sightglass.query.reduction import State
from sightglass.storage import run_file
from sightglass.storage.file_system import LOCAL, open_regular, written_aside
from sightglass.storage.format.block import Key

from .recording import Recording

Files = dict[str, tuple[int, int]]
"""The sizes and times of change, in nanoseconds, of record files, by name."""

NAMES: Final = ("count", "sum", "mean", "var", "std", "min", "max", "first", "last", "argmin", "argmax")
"""The reducers whose states are kept."""

VERSION: Final = 1
CHECKSUM_BYTES: Final = 4  # CRC-32 of what follows, which is msgpack
MAX_SERIES: Final = 10_000  # of numbers: 3 MB
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_RUN_BYTES: Final = 64 * 2**20  # of runs that are read to make one: a quarter of a second


class RunTotals(msgspec.Struct, frozen=True, kw_only=True):
    """The totals of a run.

    Attributes:
        version: Of this format.
        files: The record files that they are of.
        keys: Every series of the run.
        states: By the number of a series of numbers among `keys`, the states of the reducers `NAMES`.
    """

    version: int
    files: Files
    keys: tuple[Key, ...]
    states: dict[int, dict[str, Any]]

    def state(self, key: Key, name: str) -> State:
        """Return a reducer's state over a series, or `None` if there is none."""
        found = self.states.get(self.keys.index(key), {}).get(name)
        return tuple(found) if isinstance(found, list) else found


def load(directory: Path, files: Files, *, rank: int | None) -> RunTotals | None:
    """Return the totals of a run, or `None` without any for these files."""
    try:
        with open(_path(directory, rank), "rb", opener=open_regular) as file:
            checksum, data = file.read(CHECKSUM_BYTES), file.read(MAX_FILE_BYTES)
        if int.from_bytes(checksum, "little") != zlib.crc32(data):
            return None
        totals = msgspec.msgpack.decode(data, type=RunTotals)
    except (OSError, msgspec.MsgspecError):
        return None
    return totals if (totals.version, totals.files) == (VERSION, files) else None


def save(recording: Recording, files: Files, *, rank: int | None) -> None:
    """Make the totals of a run, unless it is large or damaged, or its folder cannot be written to.

    Args:
        recording: The run.
        files: Its files, from before it was opened: it may have grown since.
        rank: Whose records they are; `None` for the lowest.
    """
    if not files or sum(n_bytes for n_bytes, _ in files.values()) > MAX_RUN_BYTES:
        return
    keys = tuple(recording.keys())
    kept = (i for i, key in enumerate(keys) if key.kind in ("logged", "stream"))
    numbers = [i for i in kept if "[" not in recording.series(keys[i]).type]  # arrays would be read for nothing
    if len(numbers) > MAX_SERIES:
        return
    states = {i: found for i in numbers if (found := _states(recording.series(keys[i]).parts()))}
    if recording.damages:
        return
    totals = RunTotals(version=VERSION, files=files, keys=keys, states=states)
    path, data = _path(recording.path, rank), msgspec.msgpack.encode(totals)
    checksum = zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")
    like = recording.path / next(iter(files))  # as private as the records
    with contextlib.suppress(OSError), written_aside(LOCAL, path, [checksum, data], sync=False, like=like) as new:
        os.replace(new, path)


def _states(parts: Iterable[Columns]) -> dict[str, State]:
    """Return the states over a series; none if it is not one of numbers."""
    states: dict[str, State] = {}
    for columns in parts:
        if not len(columns):
            continue
        for name in NAMES:
            if not can_reduce(name, columns.values):
                return {}
            state = reduce_numbers(name, {}, columns)
            merge = reducer(name, {}).merge
            assert merge is not None
            states[name] = merge(states[name], state) if name in states else state
    return states


def _path(directory: Path, rank: int | None) -> Path:
    return directory / (".sightglass-totals" if rank is None else f".sightglass-totals-rank{rank}")


def files_of(directory: Path) -> Files:
    """Return the sizes and times of change of the record files in a directory; of a file, nothing."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        return {
            entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns)
            for entry in entries
            if run_file.is_record_file(entry.name)
        }
    return {}
