"""The live runs of this user on this machine: a folder that only they can enter, with a few small files for each run.

`ID.lock` is locked by the run's process for as long as it lives: a POSIX record lock, which the system frees when the
process dies, and which a forked child does not inherit. `ID.json` has the address of the run, `ID.sock` is the socket.
An entry whose lock is free belongs to a dead run; the first process that finds it deletes it. A run that is closed
leaves its entry as `ID.closed`, for clients that missed its goodbye.

The folder is the first of these that is usable: `SIGHTGLASS_RUNTIME_DIR`, `XDG_RUNTIME_DIR/sightglass`, and
`sightglass-UID` in the system's folder for temporary files. It is made with mode 0700. A folder that other users can
enter is neither used nor changed: it may be theirs, too, such as the system's own folder for temporary files.
"""

from __future__ import annotations

import contextlib
import errno
import getpass
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from sightglass.core.errors import TransportError, warn, warn_user
from sightglass.core.process.files import read_private, write_private

MAX_ENTRY_BYTES = 1_000_000
MAX_SOCKET_PATH = 107
SCARCE = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # what this process lacks says nothing about a file
SUFFIXES = (".sock", ".json", ".lock")
CLOSED = ".closed"
UNUSABLE = "Expected a folder for live runs in SIGHTGLASS_RUNTIME_DIR"
CLOSED_S = 60.0  # a client looks a second after the end of its run, unless it was stopped, or the machine slept
MAX_CLOSED = 1_000  # of runs that ended within that time; a small file each

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_held: dict[str, tuple[int, int]] = {}
_warned: set[str] = set()  # the problems of folders that this process has told


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """The entry of a run in the registry.

    Attributes:
        name: The run's name.
        id: Its id, 12 hexadecimal digits.
        pid: The id of its process.
        host: The name of its machine.
        started: When it began, in seconds since the Unix epoch.
        endpoint: The address that it listens on.
        directory: Its run directory.
        server_key: The run's public key, where the endpoint is TCP; the client's pair follows.
        client_public: See `server_key`.
        client_secret: See `server_key`.
        beside: The ids of the runs of its name that lived when it began; it replaces none of them.
        group: The name of its rank group, see `core.ranks.RankPlace`, as are the next four.
        rank: Its rank.
        n_ranks: How many ranks there are; 1 outside of a group.
        job: What tells its program from others.
        declared: Whether the program says so.
    """

    name: str
    id: str
    pid: int
    host: str
    started: float
    endpoint: str
    directory: str = ""
    server_key: str = ""
    client_public: str = ""
    client_secret: str = ""
    beside: tuple[str, ...] = ()
    group: str = ""
    rank: int = 0
    n_ranks: int = 1
    job: str = ""
    declared: bool = False


def folder() -> Path:
    """Return the folder of this user's live runs, and make it if necessary.

    Raises:
        TransportError: None of the possible folders is usable.
    """
    problems: list[str] = []
    for candidate in _candidates():
        problem = _prepare(candidate)
        if problem is None:
            _warned.update(problems)
            if problems and os.environ.get("SIGHTGLASS_RUNTIME_DIR"):
                warn(f"{UNUSABLE}: {problems[0]}; using {candidate} instead")
            return candidate
        problems.append(problem)
    _warned.update(problems)
    raise TransportError("No folder for live runs: " + "; ".join(problems))


def _candidates() -> Iterator[Path]:
    chosen = os.environ.get("SIGHTGLASS_RUNTIME_DIR")
    if chosen:
        yield Path(chosen)
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime:
        yield Path(runtime) / "sightglass"
    user = str(os.getuid()) if hasattr(os, "getuid") else getpass.getuser()
    with contextlib.suppress(OSError):  # no folder for temporary files can be written to
        yield Path(tempfile.gettempdir()) / f"sightglass-{user}"
    if os.name == "posix":
        yield Path("/tmp") / f"sightglass-{user}"  # short enough for a socket; `_prepare` checks its owner


def _places() -> list[Path]:
    """Return the folders that runs may be in: the one in `SIGHTGLASS_RUNTIME_DIR` if it is usable, else all."""
    candidates = list(_candidates())
    if not os.environ.get("SIGHTGLASS_RUNTIME_DIR"):
        # A program that starts others with few variables, as coding agents do, leaves XDG_RUNTIME_DIR out.
        session = [Path("/run/user", str(os.getuid()), "sightglass")] if hasattr(os, "getuid") else []
        return list(dict.fromkeys([*candidates, *filter(Path.is_dir, session)]))
    problem = _prepare(candidates[0])
    if problem is None:
        return candidates[:1]
    if problem not in _warned:  # clients look every second
        _warned.add(problem)
        warn_user(f"{UNUSABLE}: {problem}; looking elsewhere instead")
    return candidates


def _prepare(path: Path) -> str | None:
    """Make a folder ready for use; return the problem with it, or `None`."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            return f"{path} is not a folder"
        if hasattr(os, "getuid") and status.st_uid != os.getuid():
            return f"{path} belongs to another user"
        if os.name == "posix" and status.st_mode & 0o077:
            return (
                f"other users can enter {path} (make it private with chmod 700, or name a folder that does not exist)"
            )
        if len(os.fsencode(path)) + len("/0123456789ab.sock") > MAX_SOCKET_PATH:
            return f"{path} is too long for a Unix socket"
        with tempfile.TemporaryFile(dir=path) as probe:
            probe.write(b"0")
            probe.flush()
            if not lock(probe.fileno()):
                return f"{path} is on a file system without locks"
    except OSError as error:
        if error.errno in SCARCE:
            raise
        return str(error)
    return None


def register(entry: LiveRun, path: Path) -> None:
    """Add a run of this process to the registry; the lock must be held, see `hold`.

    Raises:
        OSError: The entry cannot be written.
    """
    write_private(path / f"{entry.id}.json", msgspec.json.encode(entry))


def hold(id: str, path: Path) -> None:
    """Take the lock of a new run, for as long as this process lives.

    Raises:
        OSError: The lock cannot be taken.
    """
    descriptor = os.open(path / f"{id}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    if not lock(descriptor):
        os.close(descriptor)
        raise TransportError(f"Cannot lock the entry of run {id} in {path}")
    _held[id] = (os.getpid(), descriptor)


def unregister(id: str, path: Path) -> None:
    """Remove a run of this process; if it was registered, note that it was closed."""
    with contextlib.suppress(OSError):  # the note needs neither room on the disk nor a descriptor
        entry = path / f"{id}.json"
        os.utime(entry)
        entry.replace(path / f"{id}{CLOSED}")
        _forget_closed(path)
    for suffix in SUFFIXES[:-1]:
        with contextlib.suppress(OSError):
            (path / f"{id}{suffix}").unlink()
    pid, descriptor = _held.pop(id, (0, -1))
    if pid == os.getpid():
        with contextlib.suppress(OSError):
            (path / f"{id}.lock").unlink()
        os.close(descriptor)


def entries() -> list[LiveRun]:
    """Return the live runs, the newest first, and delete entries of dead runs.

    Raises:
        TransportError: This process lacks descriptors or memory to look.
    """
    found: dict[str, LiveRun] = {}
    try:
        for path in _places():
            _forget_closed(path)
            for file in _files(path, "*.json"):
                entry = _read(file)
                if entry is None or entry.id in found:
                    continue
                if alive(entry.id, path):
                    found[entry.id] = entry
                else:
                    _clean(entry.id, path)
    except OSError as error:
        raise TransportError(f"Cannot read the live runs: {error}") from error
    return sorted(found.values(), key=lambda entry: -entry.started)


def alive(id: str, path: Path | None = None) -> bool:
    """Return whether the process of a run on this machine lives, by its lock."""
    if _held.get(id, (0, 0))[0] == os.getpid():
        return True  # opening and closing the lock file of this process would release its lock
    for place in [path] if path is not None else _candidates():
        try:
            descriptor = os.open(place / f"{id}.lock", os.O_RDWR)
        except OSError as error:
            if error.errno in SCARCE:  # it is unknown whether the run lives, so its entry stays
                return True
            continue
        try:
            if not lock(
                descriptor, shared=True
            ):  # two processes that check at once must not mistake each other for the run
                return True
        finally:
            os.close(descriptor)
    return False


def was_closed(id: str) -> bool:
    """Return whether a run of this machine, which is not alive, was closed within the last minute."""
    return any((place / f"{id}{CLOSED}").exists() for place in _candidates())


def _forget_closed(path: Path) -> None:
    """Delete the notes of runs that were closed long ago, and the oldest if there are too many."""
    notes: list[tuple[float, Path]] = []
    for note in _files(path, f"*{CLOSED}"):
        with contextlib.suppress(OSError):  # another process deletes them, too
            notes.append((note.stat().st_mtime, note))
    old_s = time.time() - CLOSED_S
    for n, (noted_s, note) in enumerate(sorted(notes, reverse=True)):
        if n >= MAX_CLOSED or noted_s < old_s:
            with contextlib.suppress(OSError):
                note.unlink()


def _files(path: Path, pattern: str) -> list[Path]:
    """Return the files of some kind in a folder, if it is this user's and nobody else can write to it."""
    try:
        status = path.lstat()
    except OSError:
        return []
    own = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
    return sorted(path.glob(pattern)) if own and stat.S_ISDIR(status.st_mode) else []


def _read(file: Path) -> LiveRun | None:
    try:
        return msgspec.json.decode(read_private(file, max_bytes=MAX_ENTRY_BYTES), type=LiveRun)
    except (OSError, msgspec.MsgspecError) as error:
        if isinstance(error, OSError) and error.errno in SCARCE:
            raise
        return None


def _clean(id: str, path: Path) -> None:
    for suffix in SUFFIXES:
        with contextlib.suppress(OSError):
            (path / f"{id}{suffix}").unlink()


def lock(descriptor: int, *, shared: bool = False) -> bool:
    """Take a lock without waiting; return whether it was free."""
    try:
        if sys.platform == "win32":
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
