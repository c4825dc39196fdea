"""Caches of what a run's records come to: files beside them whose names begin with `.sightglass-`.

Rule 1: a cache names the record files that it is of, with their sizes and times of change; its reader compares them.
Rule 2: if the run's folder cannot be written to, a cache lies in the user's cache folder.
Rule 3: a damaged one does not count.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from . import file_names
from .file_names import rank_of
from .file_system import LOCAL, open_own, written_aside

CHECKSUM_BYTES: Final = 4  # CRC-32 of what follows
MAX_CACHED: Final = 20_000  # files in the cache folder, most of some kilobytes
PRUNED: Final = 0.5  # of them are removed when there are more, the oldest first


def files_of(directory: Path, *, rank: int | None = None) -> dict[str, tuple[int, int]]:
    """Return the sizes and times of change of a rank's record files, by their paths in the run's directory.

    Of a file, nothing.

    Args:
        directory: The run directory.
        rank: The rank; `None` for the lowest.
    """
    with contextlib.suppress(OSError):
        ranks = {file: rank_of(file) for file in file_names.files_of(directory)}
        chosen = min((named or 0 for named in ranks.values()), default=0) if rank is None else rank
        mine = {file: file_names.stamp_of(file) for file, named in ranks.items() if named in (None, chosen)}
        return {_within(directory, file): (stamp.n_bytes, stamp.changed_ns) for file, stamp in mine.items()}
    return {}


def _within(directory: Path, file: Path) -> str:
    return file.name if file.parent == directory else os.path.relpath(file, directory)


def write(directory: Path, name: str, data: bytes, *, like: str) -> None:
    """Write a cache beside the files of a run.

    Args:
        directory: The run directory.
        name: The cache's name.
        data: What is in it.
        like: The record file whose permissions it has.

    Raises:
        OSError: It cannot be written.
    """
    _write(directory / name, data, directory / like)


def keep(directory: Path, name: str, data: bytes, *, like: str) -> None:
    """Write a cache as `write` does, else into the cache folder; if neither is possible, do nothing."""
    try:
        write(directory, name, data, like=like)
        return
    except OSError:
        cached = _elsewhere(directory, name)
    with contextlib.suppress(OSError):
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(cached, data, directory / like)
        _prune(cached.parent)


def kept(directory: Path, name: str, *, max_bytes: int) -> bytes | None:
    """Return what is in a cache; `None` if there is none, or it is damaged or larger than `max_bytes`."""
    for path in (directory / name, _elsewhere(directory, name)):
        with contextlib.suppress(OSError):
            with open(path, "rb", opener=open_own) as file:
                data = file.read(max_bytes + 1)
            found = memoryview(data)[CHECKSUM_BYTES:]
            if len(data) <= max_bytes and int.from_bytes(data[:CHECKSUM_BYTES], "little") == zlib.crc32(found):
                return bytes(found)
    return None


def _write(path: Path, data: bytes, like: Path) -> None:
    checksum = zlib.crc32(data).to_bytes(CHECKSUM_BYTES, "little")
    with written_aside(LOCAL, path, [checksum, data], sync=False, like=like) as new:
        os.replace(new, path)


def _elsewhere(directory: Path, name: str) -> Path:
    """Return where a cache is if its run's folder cannot be written to."""
    digest = hashlib.blake2b(os.fsencode(os.path.realpath(directory / name)), digest_size=12).hexdigest()
    return cache_folder() / digest


def cache_folder(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the folder for caches of runs whose own folder cannot be written to."""
    if platform == "win32":
        place = Path(environment.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif platform == "darwin":
        place = Path.home() / "Library/Caches"
    else:
        place = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return place / "sightglass" / "runs"


def _prune(folder: Path) -> None:
    """Remove the oldest files of the cache folder if it has too many."""
    with os.scandir(folder) as entries:
        ages = [(entry.stat().st_mtime, entry.path) for entry in entries]
    if len(ages) > MAX_CACHED:
        for _, path in sorted(ages)[: int(len(ages) * PRUNED)]:
            with contextlib.suppress(OSError):
                os.remove(path)
