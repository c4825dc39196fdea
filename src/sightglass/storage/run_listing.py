"""The runs in a folder: directories with a `run.json`, or with record files of any program."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec

from sightglass.core.program_values.guarded import message

from . import object_file
from .file_names import (
    EVENT_FILES,
    FOREIGN_START,
    OWN_NAME,
    SUMMARY_FILES,
    continued,
    directories_of,
    is_part,
    is_record_file,
    kind_of,
    stamp_of,
)
from .file_system import is_directory, leads_out
from .foreign import trackio_database
from .foreign.mlflow_told import FOLDERS, META
from .object_file import Annotations
from .run_file import RunFile, read_cached, tells, together

Standing = Literal["running", "ended", "failed", "terminated", "died", "writing", "recorded"]

MAX_ENTRIES: Final = 100_000  # files and folders that are not of runs, however many runs there are
MAX_S: Final = 2.0  # for these; on a file system in the network, this ends a walk before their number does
MAX_NAMED: Final = 3  # links that a note names
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
        state: See `standing`.
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


class RunsFound(NamedTuple):
    """The runs in a folder, the newest first, and what the search for them left out, as a sentence, or empty."""

    runs: list[RunEntry]
    note: str = ""


def runs_in(folder: Path, *, alive: Callable[[str], bool], follow_links: bool = False) -> RunsFound:
    """List the runs in a folder, and the folder itself if it is one.

    A run is a directory that has a `run.json` or record files, ours or other programs', by their names.

    A run whose files do not name it has the name of its path in the folder, such as "sweep/lr=0.1".

    Args:
        folder: Searched at any depth, see `FolderWalk`.
        alive: Returns whether the run of an id is alive.
        follow_links: Whether links to directories are followed that lead out of the folder.
    """
    walk = FolderWalk(folder, follow_links=follow_links)
    found = [_named(entry, folder) for listed in walk if (entry := _entry(listed, alive)) is not None]
    runs = sorted(found, key=lambda entry: (-(entry.started or entry.changed), str(entry.path)))
    return RunsFound(runs, walk.unfinished or ("" if runs else walk.left_out))


def _named(entry: RunEntry, folder: Path) -> RunEntry:
    if entry.file.name or entry.path == folder:
        return entry
    return msgspec.structs.replace(entry, name=entry.path.relative_to(folder).as_posix())


def run_at(path: Path, *, alive: Callable[[str], bool]) -> RunEntry | None:
    """Return the run in a directory, or `None` if it has none; `alive` as in `runs_in`."""
    listed = _listed(os.fspath(path), _others(os.fspath(path)))
    return None if listed is None else _entry(listed, alive)


def is_run(path: Path) -> bool:
    """Return whether a directory is a run."""
    listed = _listed(os.fspath(path), _others(os.fspath(path)))
    return listed is not None and _has_records(listed)


def is_folder(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is one that runs are searched in: a directory, or a database of several."""
    return os.path.isdir(path) or bool(trackio_database.runs_of(path))


def is_single(path: Path) -> bool:
    """Return whether a path is one run, or one file of it, and not a folder or a database of several."""
    return is_run(path) or (path.is_file() and not trackio_database.runs_of(path))


def _has_records(listed: Listed) -> bool:
    """Return whether the names in a directory are those of a run; MLflow's experiments have a `meta.yaml`, too."""
    return any(kind_of(file.name) and file.name != META for file in listed.files) or (
        listed.of_mlflow or listed.in_database
    )


class Listed(NamedTuple):
    """A directory: its path, its files and folders without links that lead out of it, and whether it has nothing else.

    A run in a database is a directory without files, see `trackio_database`.

    Folders that hold copies of a run's records, and hidden ones, are left out. The files are also those of the other
    directories that the run has.
    """

    path: str
    files: list[os.DirEntry[str]]
    folders: list[os.DirEntry[str]]
    links: list[os.DirEntry[str]]
    alone: bool
    in_database: bool = False

    @property
    def of_mlflow(self) -> bool:
        """Whether it is a run of MLflow's file store; its folders hold metrics and artifacts, not runs."""
        return any(file.name == META for file in self.files) and {one.name for one in self.folders} >= FOLDERS


def _others(folder: str) -> list[str]:
    """Return the other directories of a run."""
    path = Path(folder)
    return [os.fspath(other) for other in directories_of(path) if other != path]


def _listed(folder: str, others: Iterable[str] | None) -> Listed | None:
    """List a directory, and links to directories apart; return `None` if it cannot be read.

    Args:
        folder: Its path.
        others: The other directories of its run; `None` if it only has a part of another directory's run.
    """
    try:
        with os.scandir(folder) as scan:
            entries = list(scan)
    except OSError:
        return None if trackio_database.find(folder) is None else _in_database(folder)
    files: list[os.DirEntry[str]] = []
    folders: list[os.DirEntry[str]] = []
    links: list[os.DirEntry[str]] = []
    copies = (EVENT_FILES, SUMMARY_FILES) if any(OWN_NAME.fullmatch(entry.name) for entry in entries) else ()
    for entry in entries:
        if not is_directory(entry):
            files += [] if leads_out(entry) or (others is None and is_part(entry.name)) else [entry]
        elif not entry.name.startswith(".") and entry.name not in copies:
            (links if entry.is_symlink() else folders).append(entry)
    alone = len(files) == len(entries)
    for other in others or ():
        with contextlib.suppress(OSError), os.scandir(other) as scan:
            files += [
                entry for entry in scan if is_part(entry.name) and not is_directory(entry) and not leads_out(entry)
            ]
    return Listed(folder, files, folders, links, alone=alone)


def _in_database(run: str) -> Listed:
    return Listed(run, [], [], [], alone=False, in_database=True)


class FolderWalk:
    """Lists a folder and all directories below it, those near to it first.

    Links to directories below the folder are followed, too; each directory is listed once. The walk ends after
    `MAX_ENTRIES` files and folders that are not of runs, or after `MAX_S` seconds with these.

    Attributes:
        unfinished: Why the walk ended early, or empty.
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, follow_links: bool = False, max_entries: int = MAX_ENTRIES,
        max_s: float = MAX_S,
    ) -> None:  # fmt: skip
        """Take the folder; links to directories outside of it are followed if this is wanted."""
        self.unfinished = ""
        self._folder = os.fspath(folder)
        self._follows = follow_links
        self._max_entries = max_entries
        self._max_s = max_s
        self._left: list[tuple[str, str]] = []

    @property
    def left_out(self) -> str:
        """Which links to directories were not followed, as a sentence, or empty."""
        if not self._left:
            return ""
        named = ", ".join(f"{place!r} to {target!r}" for place, target in self._left[:MAX_NAMED])
        n = f"{len(self._left):,} link{'s' * (len(self._left) != 1)} to directories outside"
        return f"{n} of {self._folder!r} not followed: {named}. Name one of these, or say follow_links=True"

    def __iter__(self) -> Iterator[Listed]:
        root, n_others, others_s = os.path.realpath(self._folder), 0, 0.0
        ahead, links = deque[tuple[str, list[str] | None]]([(self._folder, _others(self._folder))]), deque[str]()
        seen: set[tuple[int, int]] = set()
        if trackio_database.find(self._folder) is not None:
            yield _in_database(self._folder)
        yield from self._in_databases([self._folder])
        while ahead or links:
            if not ahead:
                link = links.popleft()
                target = os.path.realpath(link)
                if not self._follows and os.path.commonpath([root, target]) != root:
                    self._left.append((link, target))
                    continue
                ahead.append((link, _others(link)))
            (place, others), began_s = ahead.popleft(), time.monotonic()
            listed = _listed(place, others) if self._is_new(place, seen) else None
            if listed is None:
                continue
            if not _has_records(listed):
                n_others += 1 + len(listed.files)
                others_s += time.monotonic() - began_s
            inner = {} if listed.of_mlflow else continued(entry.name for entry in listed.folders)
            for name, later in inner.items():
                paths = None if later is None else [os.path.join(place, other) for other in later]
                ahead.append((os.path.join(place, name), paths))
            links += sorted(entry.path for entry in listed.links)
            yield listed
            yield from self._in_databases(file.path for file in listed.files)
            if (ahead or links) and (n_others >= self._max_entries or others_s >= self._max_s):
                self.unfinished = (
                    f"The search in {self._folder!r} ended after {n_others:,} files and folders that are not of runs, "
                    f"in {others_s:.1f} s: there may be more runs; name a folder nearer to them"
                )
                return

    @staticmethod
    def _in_databases(files: Iterable[str]) -> Iterator[Listed]:
        for file in files:
            for part in trackio_database.runs_of(file) if file.endswith(trackio_database.SUFFIX) else ():
                yield _in_database(os.path.join(file, part))

    @staticmethod
    def _is_new(place: str, seen: set[tuple[int, int]]) -> bool:
        """Return whether a directory can be read and was not listed before."""
        try:
            status = os.stat(place)
        except OSError:
            return False
        identity = status.st_dev, status.st_ino
        n_before = len(seen)
        seen.add(identity)
        return len(seen) > n_before


def _entry(listed: Listed, alive: Callable[[str], bool]) -> RunEntry | None:
    if not _has_records(listed):
        return None
    try:
        return _read_entry(listed, alive)
    except Exception as error:  # noqa: BLE001  an odd run must not hide the others
        path = Path(listed.path)
        return RunEntry(path=path, name=path.name, problem=f"Cannot be read: {message(error)}")


def _read_entry(listed: Listed, alive: Callable[[str], bool]) -> RunEntry:
    folder, files, plain = listed.path, listed.files, listed.alone
    if listed.in_database:
        run, stamp = read_cached(folder) or RunFile(), stamp_of(folder)
        return RunEntry(
            path=Path(folder), name=run.name, started=run.started, changed=stamp.changed_ns / 1e9,
            n_bytes=stamp.n_bytes, file=run,
        )  # fmt: skip
    n_bytes, changed, annotated = 0, 0.0, Annotations()
    for file in files:
        plain = plain and _is_plain(file)
        if file.name == object_file.ANNOTATIONS_NAME:
            annotated = object_file.read_annotations(folder)
        if file.name.startswith(".") or file.name == object_file.ANNOTATIONS_NAME:
            continue  # such as totals, which are made from the others
        with contextlib.suppress(OSError):
            stamp = stamp_of(file.path)
            n_bytes, changed = n_bytes + stamp.n_bytes, max(changed, stamp.changed_ns / 1e9)
    own = _own_files(files)
    state = _state(own, changed, alive)
    if state == "died":  # unless it has ended since its file was read
        own = _own_files(files)
        state = _state(own, changed, alive)
    run, path, started = together(own), Path(folder), 0.0
    if listed.of_mlflow and run.facts.get("lifecycle") == "deleted":
        annotated = msgspec.structs.replace(annotated, deleted=annotated.deleted or run.started)
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
    living = any(lives(process, changed, alive=alive) for process in own)
    return "running" if living else standing(together(own), changed)


def standing(run: RunFile, changed: float) -> Standing:
    """Return the state of a run none of whose processes runs, from its files.

    It is how it ended, or "died" if our own program did not say. Other programs do not have to: then it is "writing"
    while its files change, and "recorded" later.

    Args:
        run: Its file, combined.
        changed: When its files last changed, in seconds since the Unix epoch.
    """
    if run.ended is not None:
        return "ended" if run.state == "running" else run.state
    if run.id:
        return "died"
    # The clock of another machine may be ahead of this one's.
    return "writing" if abs(time.time() - changed) < WRITING_S else "recorded"
