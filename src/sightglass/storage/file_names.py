"""Which files are those of a run, what their names say, and what tells that they changed."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from .file_system import is_directory, names_in
from .foreign import trackio_database
from .foreign.mlflow_told import META, beside
from .foreign.wandb_log import WANDB_SUFFIX

NAME: Final = "run.json"
SUFFIX: Final = ".sgr"
OWN_NAME: Final = re.compile(r"run(-.*)?\.json")
FOREIGN_NAME: Final = re.compile(r"summary\.\d+|tfevents|\.wandb$|^meta\.yaml$")  # the last: MLflow's
FOREIGN_START: Final = re.compile(r"(?:summary|tfevents)\.(\d{9,11})\b")  # in seconds since the Unix epoch
EVENT_FILES: Final = "tensorboard"  # the folders in a run directory for copies of its records, which are no runs
SUMMARY_FILES: Final = "mindspore"
WRITER: Final = re.compile(r"tfevents\.\d+\..+\.\d+\.\d+(.*)")  # behind host, process and number: `filename_suffix`
NOT_RECORDS: Final = ("_lineage", "_explain", ".pb")
WANDB_DIRECTORY: Final = re.compile(r"(?:offline-)?run-(\d{8}_\d{6})-(.+)")  # when its process began, and the run's id
SETTLED_NS: Final = 2_000_000_000  # file systems tell two changes apart by milliseconds, some by two seconds
SEGMENT: Final = re.compile(r"(\d{1,18})-rank(\d{1,9})-(\d{1,9})\.sgr")


class Stamp(NamedTuple):
    """What changes when a file does: when that was, in nanoseconds since the Unix epoch, its size, and its number."""

    changed_ns: int
    n_bytes: int
    inode: int


def name_of(path: Path) -> tuple[float, int, int] | None:
    """Return when the process of a file began, its rank and the file's number, from the name of the file.

    >>> name_of(Path("1700000000500-rank3-0001.sgr"))
    (1700000000.5, 3, 1)
    """
    match = SEGMENT.fullmatch(path.name)
    return (int(match[1]) / 1000, int(match[2]), int(match[3])) if match else None


def rank_of(path: Path) -> int | None:
    """Return the rank of the process that wrote a file, from its name; `None` if the name does not say."""
    named = name_of(path)
    if named is not None:
        return named[1]
    from .foreign import mindspore  # which a run that writes its own files does without

    found = mindspore.parse_name(path.name)
    return found[1] if found is not None else None


def writer_of(name: str) -> str:
    """Return what tells the writers of event files in one folder apart, or empty.

    >>> writer_of("events.out.tfevents.1700000000.gpu-1.lab.321.0.worker")
    '.worker'
    """
    found = WRITER.search(name)
    return "" if found is None else found[1]


def is_record_file(name: str) -> bool:
    """Return whether a file is a record file, by its name."""
    return kind_of(name) in ("segment", "foreign")


def kind_of(name: str) -> str:
    """Return "segment", "run" (it says what a run is) or "foreign" (of another program); empty for other files."""
    if name.endswith(SUFFIX):
        return "segment"
    if OWN_NAME.fullmatch(name):
        return "run"
    return "foreign" if FOREIGN_NAME.search(name) and not name.endswith(NOT_RECORDS) else ""


def files_of(run: Path, wanted: Callable[[str], bool] = is_record_file) -> list[Path]:
    """Return the files of a run that have such names, wherever they lie: W&B continues a run in another directory.

    Args:
        run: Its directory.
        wanted: Returns whether a file is wanted, by its name.

    Raises:
        OSError: A directory cannot be listed.
    """
    if is_in_database(run):
        return [run]  # which is a file of its own, whatever it is called
    found = []
    for folder in directories_of(run):
        found += [folder / name for name in names_in(folder) if wanted(name) and (folder == run or is_part(name))]
    return found


def stamp_of(file: str | os.PathLike[str]) -> Stamp:
    """Return what changes when a file of a run does.

    A run of MLflow's file store is one file, its `meta.yaml`; one in a database of Trackio is its rows.

    Raises:
        OSError: There is no such file.
    """
    if (rows := trackio_database.find(file)) is not None:
        return Stamp(round(rows.changed * 1e9), rows.n_bytes, 0)
    status = os.stat(file)
    changed_ns, n_bytes = status.st_mtime_ns, status.st_size
    for other in beside(Path(file)) if os.path.basename(file) == META else ():
        with contextlib.suppress(OSError):
            found = os.stat(other)
            changed_ns = max(changed_ns, found.st_mtime_ns)
            n_bytes += 0 if stat.S_ISDIR(found.st_mode) else found.st_size
    return Stamp(changed_ns, n_bytes, status.st_ino)


def is_in_database(run: Path) -> bool:
    """Return whether a run is in a database, and has no directory."""
    return trackio_database.find(run) is not None


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file, a directory, or a run in a database."""
    return os.path.exists(path) or trackio_database.find(path) is not None


def directories_of(run: Path) -> list[Path]:
    """Return the directories of a run, the earliest first: W&B makes one for each process of a run that is resumed.

    >>> directories_of(Path("runs/a"))
    [PosixPath('runs/a')]
    """
    place = Path(os.path.realpath(run))  # `latest-run` is a link
    if (id := _wandb_id(place.name)) is None:
        return [run]
    names = [place.name]
    with contextlib.suppress(OSError):
        changed_ns, now_ns = os.stat(place.parent).st_mtime_ns, time.time_ns()
        settled = now_ns - changed_ns > SETTLED_NS
        names = _wandb_runs(str(place.parent), changed_ns if settled else now_ns).get(id, names)
    folder = run.parent if run.name == place.name else place.parent
    return [run if name == place.name else folder / name for name in names]


def continued(names: Iterable[str]) -> dict[str, list[str] | None]:
    """Return, for directories side by side, the names of those that continue its run; `None` if it continues another's.

    >>> continued(["offline-run-20240102_000000-a", "run-20240101_000000-a", "b"])
    {'offline-run-20240102_000000-a': None, 'run-20240101_000000-a': ['offline-run-20240102_000000-a'], 'b': []}
    """
    found: dict[str, list[str] | None] = {name: [] for name in names}
    runs: dict[str, list[str]] = {}
    for name in found:
        if (id := _wandb_id(name)) is not None:
            runs.setdefault(id, []).append(name)
    for several in runs.values():
        first, *later = sorted(several, key=_began)
        found |= {first: later, **dict.fromkeys(later)}
    return found


def is_part(name: str) -> bool:
    """Return whether a file may be a part of a run whose other parts lie in other directories."""
    return name.endswith(WANDB_SUFFIX)


@lru_cache(maxsize=64)
def _wandb_runs(folder: str, _as_of_ns: int) -> dict[str, list[str]]:
    """Return the directories of each run of W&B in a folder, by its id; a folder of thousands is listed once."""
    found: dict[str, list[str]] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if (id := _wandb_id(entry.name)) is not None and is_directory(entry) and not entry.is_symlink():
                found.setdefault(id, []).append(entry.name)
    return {id: sorted(names, key=_began) for id, names in found.items()}


def _wandb_id(directory: str) -> str | None:
    found = WANDB_DIRECTORY.fullmatch(directory)
    return None if found is None else found[2]


def _began(directory: str) -> tuple[str, str]:
    found = WANDB_DIRECTORY.fullmatch(directory)
    return "" if found is None else found[1], directory
