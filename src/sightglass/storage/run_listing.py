"""The runs in a folder: directories with a `run.json`, or with record files of any program."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from sightglass.core.program_values.guarded import message

from . import object_file
from .file_names import EVENT_FILES, FOREIGN_START, OWN_NAME, SUMMARY_FILES, is_record_file, kind_of
from .file_system import leads_out, names_in
from .object_file import Annotations
from .run_file import RunFile, read_cached, tells, together

Standing = Literal["running", "ended", "failed", "terminated", "died", "recorded"]

MAX_DEPTH: Final = 4
# Other programs do not say when they end: after this long without a change, their files are not written any more.
# TensorBoard's writers keep what they have for two minutes.
WRITING_S: Final = 150.0
ELSEWHERE_S: Final = 600.0  # longer than runs usually pause between two records, or file systems delay a write


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a folder.

    Attributes:
        path: Its directory.
        name: Its name, or its directory's, with the folders between it and the one that was searched.
        id: Its id, or empty.
        state: From its file; "died" if it did not end and is not alive, "recorded" without a file.
        started: When it began, in seconds since the Unix epoch, from its file or the names of its files; else 0.
        ended: When it ended, or `None`.
        changed: When its files last changed.
        n_bytes: How large its files are.
        problem: Why its files cannot be read, or empty.
        file: The files of its processes, combined.
        annotations: What people wrote down about it.
        plain: Whether its directory holds only readable files, our own run files among them, and no empty record file.
            Then its files need no closer look.
    """

    path: Path
    name: str
    id: str = ""
    state: Standing = "recorded"
    started: float = 0.0
    ended: float | None = None
    changed: float = 0.0
    n_bytes: int = 0
    problem: str = ""
    file: RunFile = RunFile()
    annotations: Annotations = Annotations()
    plain: bool = False

    @property
    def version(self) -> str:
        """A text that changes when its files do."""
        return f"{self.changed!r} {self.n_bytes}"


def runs_in(folder: Path, *, alive: Callable[[str], bool]) -> list[RunEntry]:
    """List the runs in a folder, and the folder itself if it is one, the newest first.

    A run is a directory that has a `run.json` or record files, ours or other programs', by their names.

    A run whose files do not name it has the name of its path in the folder, such as "sweep/lr=0.1".

    Args:
        folder: Searched up to `MAX_DEPTH` directories deep; links to directories are not followed.
        alive: Returns whether the run of an id is alive.
    """
    found = [_named(entry, folder) for listed in walk(folder) if (entry := _entry(listed, alive)) is not None]
    return sorted(found, key=lambda entry: (-(entry.started or entry.changed), str(entry.path)))


def _named(entry: RunEntry, folder: Path) -> RunEntry:
    if entry.file.name or entry.path == folder:
        return entry
    return msgspec.structs.replace(entry, name=entry.path.relative_to(folder).as_posix())


def run_at(path: Path, *, alive: Callable[[str], bool]) -> RunEntry | None:
    """Return the run in a directory, or `None` if it has none; `alive` as in `runs_in`."""
    return next((entry for listed in walk(path, 0) if (entry := _entry(listed, alive)) is not None), None)


def is_run(path: Path) -> bool:
    """Return whether a directory is a run."""
    try:
        return any(map(kind_of, names_in(path)))
    except OSError:
        return False


class Listed(NamedTuple):
    """A directory: its path, its files without links that lead out of it, and whether it has nothing else."""

    path: str
    files: list[os.DirEntry[str]]
    alone: bool


def walk(folder: str | os.PathLike[str], depth: int = MAX_DEPTH) -> Iterator[Listed]:
    """Yield each directory, but not the copies of a run's records."""
    try:
        with os.scandir(folder) as scan:
            entries = list(scan)
    except OSError:
        return
    files = []
    copies = (EVENT_FILES, SUMMARY_FILES) if any(OWN_NAME.fullmatch(entry.name) for entry in entries) else ()
    for entry in entries:
        with contextlib.suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                files += [] if leads_out(entry) else [entry]
            elif depth and not entry.name.startswith(".") and entry.name not in copies:
                yield from walk(entry.path, depth - 1)
    yield Listed(os.fspath(folder), files, alone=len(files) == len(entries))


def _entry(listed: Listed, alive: Callable[[str], bool]) -> RunEntry | None:
    if not any(kind_of(file.name) for file in listed.files):
        return None
    try:
        return _read_entry(listed, alive)
    except Exception as error:  # noqa: BLE001  an odd run must not hide the others
        path = Path(listed.path)
        return RunEntry(path=path, name=path.name, problem=f"Cannot be read: {message(error)}")


def _read_entry(listed: Listed, alive: Callable[[str], bool]) -> RunEntry:
    folder, files, plain = listed
    n_bytes, changed, annotated = 0, 0.0, Annotations()
    for file in files:
        plain = plain and _is_plain(file)
        if file.name == object_file.ANNOTATIONS_NAME:
            annotated = object_file.read_annotations(folder)
        if file.name.startswith(".") or file.name == object_file.ANNOTATIONS_NAME:
            continue  # such as totals, which are made from the others
        with contextlib.suppress(OSError):
            status = file.stat()
            n_bytes += status.st_size
            changed = max(changed, status.st_mtime)
    own = _own_files(files)
    state = _state(own, changed, alive)
    if state == "died":  # unless it has ended since its file was read
        own = _own_files(files)
        state = _state(own, changed, alive)
    run, path, started = together(own), Path(folder), 0.0
    if not run.started:
        started = min((float(match[1]) for file in files if (match := FOREIGN_START.search(file.name))), default=0.0)
    return RunEntry(
        path=path, name=run.name or path.resolve().name, id=run.id, state=state, started=run.started or started,
        ended=run.ended, changed=changed, n_bytes=n_bytes, file=run, annotations=annotated,
        plain=plain and _is_own(own, [file.name for file in files]),
    )  # fmt: skip


def _is_own(own: list[RunFile], names: list[str]) -> bool:
    """Return whether all files that say what a run is are ours and were read."""
    says = [name for name in names if tells(name)]
    return 0 < len(own) == len(says) and all(map(OWN_NAME.fullmatch, says))


def _is_plain(file: os.DirEntry[str]) -> bool:
    """Return whether a file is a regular one that can be read, not a link, nor a record file without a record."""
    if file.is_symlink() or not file.is_file() or not os.access(file.path, os.R_OK):
        return False
    return not is_record_file(file.name) or file.stat().st_size > 0


def _own_files(files: list[os.DirEntry[str]]) -> list[RunFile]:
    """Read the files of the run's processes, the earliest first."""
    own = []
    for file in files:
        if tells(file.name):
            run = read_cached(file.path)
            own += [run] if run is not None else []
    return sorted(own, key=lambda run: run.order)


def lives(run: RunFile, changed: float, *, alive: Callable[[str], bool]) -> bool:
    """Return whether a process still runs; on another machine, whether it wrote anything lately.

    Args:
        run: Its file.
        changed: When its files last changed, in seconds since the Unix epoch.
        alive: Returns whether the run of an id is alive on this machine.
    """
    if run.ended is not None or not run.id:
        return False
    if run.host in ("", platform.node()):
        return alive(run.id)
    return time.time() - changed < ELSEWHERE_S


def _state(own: list[RunFile], changed: float, alive: Callable[[str], bool]) -> Standing:
    run = together(own)
    if any(lives(process, changed, alive=alive) for process in own):
        return "running"
    if run.ended is not None:
        return "ended" if run.state == "running" else run.state
    return "died" if run.id else "recorded"
