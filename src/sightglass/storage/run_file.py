"""What a run says of itself: `run.json` in its directory; and the runs in a folder.

Rule 1: every process writes its own file only. The first process writes `run.json`; a process that continues in its
directory, or another rank that shares it, writes `run-{started_ms}-rank{rank}.json`.
Rule 2: a file is replaced as a whole, so a reader never sees half of one.
Rule 3: a field that cannot be read, or has another type than expected, has its default. A run without such a file is
listed, too, if its directory has record files of any program.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from sightglass.core.guarded import FAILURES, LostValue, message

from . import annotation_file
from .annotation_file import Annotations
from .file_system import LOCAL, FileSystem, leads_out, names_in, open_regular, written_aside
from .foreign.wandb_log import WANDB_SUFFIX
from .foreign.wandb_run import read_told

State = Literal["running", "ended", "failed", "terminated"]
Standing = Literal["running", "ended", "failed", "terminated", "died", "recorded"]

VERSION: Final = 1
NAME: Final = "run.json"
SYSTEM: Final = "system"  # the event as which a run records what its machine has to do; its step is a time
CONSOLE: Final = "console"  # as which it records what its program prints, likewise
SUFFIX: Final = ".sgr"
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_DEPTH: Final = 4
MAX_NESTING: Final = 32
MAX_CACHED: Final = 100_000
# Other programs do not say when they end: after this long without a change, their files are not written any more.
# TensorBoard's writers keep what they have for two minutes.
WRITING_S: Final = 150.0
ELSEWHERE_S: Final = 600.0  # longer than runs usually pause between two records, or file systems delay a write

OWN_NAME: Final = re.compile(r"run(-.*)?\.json")
FOREIGN_NAME: Final = re.compile(r"summary\.\d+|tfevents|\.wandb$")
FOREIGN_START: Final = re.compile(r"(?:summary|tfevents)\.(\d{9,11})\b")  # in seconds since the Unix epoch
EVENT_FILES: Final = "tensorboard"  # the folders in a run directory for copies of its records, which are no runs
SUMMARY_FILES: Final = "mindspore"
NOT_RECORDS: Final = ("_lineage", "_explain", ".pb")


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run by one of its processes.

    Attributes:
        version: Of this format.
        name: The run's name.
        id: Its id, 12 hexadecimal digits.
        config: Its configuration.
        started: When it began, in seconds since the Unix epoch.
        host: The machine.
        pid: Its process.
        rank: The number of the process in its program.
        ended: When it ended, or `None` while it runs.
        state: How it ended.
        events: How many events of each name there were, written at the end.
        described: Its controls, actions and functions, written at the end.
        facts: About its program: command, versions, commit, folder.
    """

    version: int = VERSION
    name: str = ""
    id: str = ""
    config: dict[str, Any] = {}
    started: float = 0.0
    host: str = ""
    pid: int = 0
    rank: int = 0
    ended: float | None = None
    state: State = "running"
    events: dict[str, int] = {}
    described: dict[str, Any] = {}
    facts: dict[str, Any] = {}


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
        problem: Why nothing else is known of it, or empty.
        file: What its processes say of it, together.
        annotations: What people wrote down about it.
        plain: Whether all that is in its directory are readable files, with our own run files among them, and no record
            file is empty: then a second look finds nothing.
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


def create(directory: Path, run: RunFile, files: FileSystem = LOCAL) -> Path:
    """Create the file of a process that begins to write into a run directory, and return its path.

    Raises:
        OSError: It cannot be created.
    """
    mine = f"run-{round(run.started * 1000)}-rank{run.rank}"
    with written_aside(files, directory / f"{mine}.json", [_encode(run)], sync=True) as aside:
        for name in (NAME, f"{mine}.json", f"{mine}-{os.getpid()}.json"):
            with contextlib.suppress(FileExistsError):
                files.link(aside, directory / name)
                return directory / name
    raise FileExistsError(f"There is already a {mine}-{os.getpid()}.json in {directory}")


def write(path: Path, run: RunFile, files: FileSystem = LOCAL) -> None:
    """Replace a process's file.

    Raises:
        OSError: It cannot be written.
    """
    with written_aside(files, path, [_encode(run)], sync=True) as aside:
        files.replace(aside, path)


def _encode(run: RunFile) -> bytes:
    plain = msgspec.structs.replace(run, config=_plain(run.config), described=_plain(run.described))
    return msgspec.json.format(msgspec.json.encode(plain), indent=2)


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value as JSON types; other types become text."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if depth == MAX_NESTING:
        return "…"
    if isinstance(value, Mapping):
        return {_plain(str(key)): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, depth + 1) for item in value]
    try:
        return _plain(_leaf(value), depth)
    except FAILURES as error:  # an array may be an object of the program
        return str(LostValue(message(error)))


def _leaf(value: Any) -> bool | float | str:
    if hasattr(value, "item") and not getattr(value, "shape", None):  # a number of an array library
        with contextlib.suppress(TypeError, ValueError, RuntimeError):
            item = value.item()
            return item if type(item) in (bool, int, float) else str(item)
    return str(value)


def read(path: str | os.PathLike[str]) -> RunFile | None:
    """Read a file; a field that is missing or has another type has its default.

    Returns:
        `None` if nothing can be read.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            n_bytes = os.fstat(file.fileno()).st_size
            data = file.read(min(n_bytes, MAX_FILE_BYTES) + 1)  # `read` allocates all that it is asked for
        if len(data) > MAX_FILE_BYTES:
            return None
        with contextlib.suppress(msgspec.ValidationError):
            return msgspec.json.decode(data, type=RunFile)  # a third of the time that the fields take one by one
        found = msgspec.json.decode(data)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    known: dict[str, Any] = {}
    for field in _fields():
        with contextlib.suppress(msgspec.MsgspecError, KeyError):
            known[field.name] = msgspec.convert(found[field.name], field.type)
    return RunFile(**known)


@functools.cache
def _fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(RunFile)


def read_all(directory: Path, *, cached: bool = False) -> list[RunFile]:
    """Read the files of all processes that wrote into a run directory, the earliest first.

    Args:
        directory: The run directory.
        cached: Whether a file that was read before may be taken as it was, if its size and time are the same.
    """
    try:
        names = [name for name in names_in(directory) if _tells(name)]
    except OSError:
        return []
    read_one = read_cached if cached else _read_any
    files = [run for name in names if (run := read_one(os.path.join(directory, name))) is not None]
    return sorted(files, key=lambda run: run.started)


def _tells(name: str) -> bool:
    """Return whether a file says what its run is, by its name."""
    return bool(OWN_NAME.fullmatch(name)) or name.endswith(WANDB_SUFFIX)


def _read_any(path: str) -> RunFile | None:
    if not path.endswith(WANDB_SUFFIX):
        return read(path)
    with contextlib.suppress(OSError):
        told = read_told(Path(path))
        return RunFile(**told) if told else None
    return None


def together(files: Iterable[RunFile], *, rank: int | None = None) -> RunFile:
    """Combine the files of the processes of a run.

    Args:
        files: The earliest first.
        rank: The rank; by default the lowest.

    Returns:
        The file of the latest process of the rank, with the start of the first and the events of all.
    """
    every = list(files)
    if len(every) < 2:
        return every[0] if every else RunFile()
    ranks = {run.rank for run in every}
    chosen = rank if rank in ranks else min(ranks)
    mine = [run for run in every if run.rank == chosen]
    events: dict[str, int] = {}
    for run in mine:
        for name, n in run.events.items():
            events[name] = events.get(name, 0) + n
    return msgspec.structs.replace(mine[-1], started=mine[0].started, name=mine[-1].name or mine[0].name, events=events)


_cached: dict[str, tuple[int, int, RunFile | None]] = {}


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
        return any(map(_kind, names_in(path)))
    except OSError:
        return False


def is_record_file(name: str) -> bool:
    """Return whether a file is a record file, by its name."""
    return _kind(name) in ("segment", "foreign")


def _kind(name: str) -> str:
    if name.endswith(SUFFIX):
        return "segment"
    if OWN_NAME.fullmatch(name):
        return "run"
    return "foreign" if FOREIGN_NAME.search(name) and not name.endswith(NOT_RECORDS) else ""


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
    if not any(_kind(file.name) for file in listed.files):
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
        if file.name == annotation_file.NAME:
            annotated = annotation_file.read(folder)
        if file.name.startswith(".") or file.name == annotation_file.NAME:
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
    says = [name for name in names if _tells(name)]
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
        if _tells(file.name):
            run = read_cached(file.path)
            own += [run] if run is not None else []
    return sorted(own, key=lambda run: run.started)


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


def read_cached(path: str) -> RunFile | None:
    """Read a file as `read`, or a file of Weights & Biases, unless it was read before and has not changed."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    stamp = status.st_mtime_ns, status.st_size
    known = _cached.get(path)
    if known is None or known[:2] != stamp:
        if len(_cached) >= MAX_CACHED:
            _cached.clear()
        known = _cached[path] = (*stamp, _read_any(path))
    return known[2]
