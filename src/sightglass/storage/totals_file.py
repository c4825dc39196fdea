"""The file of a run's totals: `.sightglass-totals` beside its record files, written by the run and by its readers.

Rule 1: totals count as long as the record files have the sizes and times of change that they name.
Rule 2: if the run's folder cannot be written to, a reader keeps them in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from . import run_file
from .file_names import rank_of
from .file_system import LOCAL, open_regular, written_aside
from .format.totals import RunTotals, decode, encode

NAME: Final = ".sightglass-totals"
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_CACHED: Final = 20_000  # files in the cache folder, of some kilobytes each
PRUNED: Final = 0.5  # of them are removed when there are more, the oldest first


def files_of(directory: Path, *, rank: int | None = None) -> dict[str, tuple[int, int]]:
    """Return the sizes and times of change of a rank's record files in a directory; of a file, nothing.

    Args:
        directory: The run directory.
        rank: The rank; `None` for the lowest.
    """
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        found = {entry.name: entry for entry in entries if run_file.is_record_file(entry.name)}
        ranks = {name: rank_of(Path(name)) for name in found}
        chosen = min((named or 0 for named in ranks.values()), default=0) if rank is None else rank
        mine = {name: entry.stat() for name, entry in found.items() if ranks[name] in (None, chosen)}
        return {name: (status.st_size, status.st_mtime_ns) for name, status in mine.items()}
    return {}


def write(directory: Path, totals: RunTotals, *, rank: int | None) -> None:
    """Keep the totals of a run beside its files.

    Raises:
        OSError: They cannot be written.
        UnicodeEncodeError: A tag has half of a surrogate pair.
    """
    _write(_path(directory, rank), directory, totals)


def keep(directory: Path, totals: RunTotals, *, rank: int | None) -> None:
    """Keep the totals of a run beside its files, else in the cache folder; if neither is possible, do nothing."""
    try:
        write(directory, totals, rank=rank)
        return
    except UnicodeEncodeError:
        return
    except OSError:
        cached = _cached(directory, rank)
    with contextlib.suppress(OSError):
        cached.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(cached, directory, totals)
        _prune(cached.parent)


def kept(directory: Path, *, rank: int | None) -> RunTotals | None:
    """Return the totals that are kept, whichever files they are of."""
    for path in (_path(directory, rank), _cached(directory, rank)):
        with contextlib.suppress(OSError):
            with open(path, "rb", opener=_open_own) as file:
                data = file.read(MAX_FILE_BYTES)
            totals = decode(data)
            if totals is not None:
                return totals
    return None


def _write(path: Path, directory: Path, totals: RunTotals) -> None:
    like = directory / next(iter(totals.files))  # as private as the records
    with written_aside(LOCAL, path, [encode(totals)], sync=False, like=like) as new:
        os.replace(new, path)


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
