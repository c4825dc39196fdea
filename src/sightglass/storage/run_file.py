"""The description of a run: `run.json` in its directory.

Rule 1: every process writes its own file only. The first process writes `run.json`; a process that continues in its
directory, or another rank that shares it, writes `run-{place}-rank{rank}.json`.
Rule 2: a file is replaced as a whole, so a reader never sees half of one.
Rule 3: a field that cannot be read, or has another type than expected, has its default.
Rule 4: the processes of a directory are ordered by their places, never by clocks. A process takes a place above all
that it finds there, in the names of files and in files of this kind, and notes how far the others were.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sightglass.core.description import Description, as_mapping, read_struct
from sightglass.core.program_values.guarded import FAILURES, LostValue, message

from .file_names import NAME, OWN_NAME, Stamp, files_of, is_part, name_of, stamp_of
from .file_system import LOCAL, FileSystem, open_regular, written_aside
from .foreign import trackio_database
from .foreign.mlflow_told import META, read_mlflow
from .foreign.wandb_run import read_told
from .format.block import Key

State = Literal["running", "ended", "failed", "terminated"]

VERSION: Final = 1
SYSTEM: Final = "system"  # the event as which a run records what its machine has to do; its step is a time
CONSOLE: Final = "console"  # as which it records what its program prints, likewise
CHANGES: Final = "changes.diff"  # what differs from the commit
PRINTED: Final = "console.txt"  # what a run that failed has printed last
MAX_FILE_BYTES: Final = 16 * 2**20
MAX_NESTING: Final = 32
MAX_CACHED: Final = 100_000


def is_of_machine(key: Key) -> bool:
    """Return whether a series is of what the machine does, or of what the program prints: its steps are seconds."""
    return key.kind == "stream" and key.tag.partition(".")[0] in (CONSOLE, SYSTEM)


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
        described: Its description at the end.
        facts: About its program: command, versions, commit, folder.
        place: Its place among the processes of the directory: milliseconds since the Unix epoch when it began, or more
            if another one has that place. 0 in files of earlier versions.
        seen: When each process that wrote there before it had made its last record then, in seconds since the Unix
            epoch by the clock of that process, by the beginning of the names of its files.
        repeats: Whether it may repeat steps of those processes, and hides what they wrote from its own first one on.
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
    described: Description = Description()
    facts: dict[str, Any] = {}
    place: int = 0
    seen: dict[str, float] = {}
    repeats: bool = True

    @property
    def order(self) -> float:
        """What orders the files of the processes of a directory."""
        return self.place or self.started * 1000


def highest_place(directory: Path, files: FileSystem = LOCAL) -> int:
    """Return the highest place that a process of a run directory has, 0 without any.

    Raises:
        OSError: The directory cannot be read.
    """
    places = [0]
    for name in files.names(directory):
        if (named := name_of(Path(name))) is not None:
            places.append(round(named[0] * 1000))
        elif OWN_NAME.fullmatch(name) and (run := read(directory / name)) is not None:
            places.append(run.place)
    return max(places)


def create(directory: Path, run: RunFile, files: FileSystem = LOCAL) -> Path:
    """Create the file of a process that begins to write into a run directory, and return its path.

    Raises:
        OSError: It cannot be created.
    """
    mine = f"run-{round(run.order)}-rank{run.rank}"
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
    about = {name: getattr(run, name) for name in run.__struct_fields__}
    described = {name: value for name, value in as_mapping(run.described).items() if value}
    about |= {"config": _plain(run.config), "described": _plain(described)}
    return msgspec.json.format(msgspec.json.encode(about), indent=2)


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
    return read_struct(RunFile, found) if isinstance(found, dict) else None


def read_all(directory: Path, *, cached: bool = False) -> list[RunFile]:
    """Read the files of all processes that wrote into a run directory, the earliest first.

    Args:
        directory: The run directory.
        cached: Whether a file that was read before may be taken as it was, if its size and time are the same.
    """
    try:
        paths = files_of(directory, tells)
    except OSError:
        return []
    read_one = read_cached if cached else _read_any
    files = [run for path in paths if (run := read_one(os.fspath(path))) is not None]
    return sorted(files, key=lambda run: run.order)


def tells(name: str) -> bool:
    """Return whether a file says what its run is, by its name."""
    return bool(OWN_NAME.fullmatch(name)) or is_part(name) or name == META


def _read_any(path: str) -> RunFile | None:
    if trackio_database.find(path) is not None:
        reader: Callable[[str], dict[str, Any]] = trackio_database.read_trackio
    elif is_part(path):
        reader = read_told
    elif os.path.basename(path) == META:
        reader = read_mlflow
    else:
        return read(path)
    with contextlib.suppress(OSError):
        told = reader(path)
        return RunFile(**told, repeats=False) if told else None
    return None


def together(files: Iterable[RunFile], *, rank: int | None = None) -> RunFile:
    """Combine the files of the processes of a run.

    Args:
        files: The earliest first.
        rank: The rank; by default the lowest.

    Returns:
        The file of the latest process of the rank, with the start of the first and the events of all. A process that
        repeats nothing has the configuration of those before it, too.
    """
    every = list(files)
    if len(every) < 2:
        return every[0] if every else RunFile()
    ranks = {run.rank for run in every}
    chosen = rank if rank in ranks else min(ranks)
    mine = [run for run in every if run.rank == chosen]
    events: dict[str, int] = {}
    config: dict[str, Any] = {}
    for run in mine:
        config = run.config if run.repeats else config | run.config
        for name, n in run.events.items():
            events[name] = events.get(name, 0) + n
    name, started = mine[-1].name or mine[0].name, next((run.started for run in mine if run.started), 0.0)
    return msgspec.structs.replace(mine[-1], started=started, name=name, events=events, config=config)


_cached: dict[str, tuple[Stamp, RunFile | None]] = {}


def read_cached(path: str) -> RunFile | None:
    """Read a file as `read`, or one of another program, unless it was read before and has not changed."""
    try:
        stamp = stamp_of(path)
    except OSError:
        return None
    known = _cached.get(path)
    if known is None or known[0] != stamp:
        if len(_cached) >= MAX_CACHED:
            _cached.clear()
        known = _cached[path] = (stamp, _read_any(path))
    return known[1]
