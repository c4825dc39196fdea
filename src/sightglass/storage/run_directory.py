"""Run directories: their names, and which run owns which."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec

from sightglass.core.errors import DamagedError, warn
from sightglass.core.process.unpatched import threading

from .file_names import OWN_NAME, name_of
from .file_system import LOCAL, File, FileSystem, LocalFileSystem, exists, written_aside
from .run_file import RunFile, create, highest_place, read, write

LOCK_ATTEMPTS: Final = 100  # another process looks at a new file for some microseconds
BEHIND_S: Final = 1.0  # clocks that are set by the network differ by less
MAX_NAME_BYTES: Final = 150
"""Of a run's name in that of its directory: file systems allow 255 bytes, with date and counter."""


def choose(parent: Path, name: str, files: FileSystem = LOCAL) -> Path:
    """Return the directory of a new run, `{name}-{date}-{time}`, with a counter if that exists; create nothing."""
    return _free(parent / f"{safe_name(name)}-{time.strftime('%Y-%m-%d-%H%M%S')}", files)


def safe_name(name: str) -> str:
    """Return a name of people's as that of a file."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    return safe.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore") or "run"


def claim(path: Path, files: FileSystem = LOCAL) -> Path:
    """Create a new run's directory, or one with a counter if another run was faster, and return it.

    Raises:
        OSError: It cannot be created.
    """
    while True:
        try:
            files.make_directory(path)
            return path
        except FileExistsError:
            taken, path = path, _free(path, files)
            if path == taken:  # something above it exists, such as a link that leads nowhere
                raise


def _free(base: Path, files: FileSystem) -> Path:
    path, n = base, 1
    while exists(files, path):
        n += 1
        path = base.with_name(f"{base.name}-{n}")
    return path


class RunDirectory:
    """The directory of a run: created with its first file, and with a `run.json` that describes the run.

    Attributes:
        path: The directory; final once it exists.
    """

    def __init__(
        self,
        path: Path,
        *,
        shared: bool,
        about: Callable[[], RunFile],
        moved: Callable[[Path], None] = lambda path: None,
        files: FileSystem = LOCAL,
    ) -> None:
        """Choose a path, and create nothing yet.

        Args:
            path: The wanted path.
            shared: Whether other processes may use it, too; otherwise a counter is added if another run was faster.
            about: Returns the contents of `run.json`.
            moved: Called with the path of the directory, if another run was faster.
            files: Where the directory is.
        """
        self.path = path
        self._owned = shared
        self._about = about
        self._moved = moved
        self._files = files
        self._place, self._seen = 0, dict[str, float]()
        self._file: Path | None = None
        self._held: File | None = None
        self._warned = False
        self._lock = threading.RLock()

    def open(self) -> Path:
        """Create the directory and its file, unless they exist, and return the directory; from any thread.

        Raises:
            OSError: It cannot be created.
        """
        with self._lock:
            if self._owned:
                self._files.make_directory(self.path, exist_ok=True)
            else:
                chosen, self.path = self.path, claim(self.path, self._files)
                self._owned = True  # also if its file cannot be created now
                if self.path != chosen:
                    self._moved(self.path)
            if self._file is None or not exists(self._files, self._file):
                self._take_place()
                self._file = create(self.path, self._described(self._about()), self._files)
                self._held = _held(self._file, self._files)  # before the look: of two, one at least sees the other
                self.warn_of_others()
            return self.path

    def renew(self, beside: Mapping[str, str]) -> None:
        """Write the contents of `run.json` again, and other files beside it.

        Args:
            beside: Texts, by the names of their files.

        Raises:
            OSError: They cannot be written.
        """
        with self._lock:
            self.open()
            assert self._file is not None
            self._write_beside(beside)
            before = self._held
            write(self._file, self._described(self._about()), self._files)
            self._held = _held(self._file, self._files)  # it is another file now
            if before is not None:
                before.close()

    def _write_beside(self, texts: Mapping[str, str]) -> None:
        """Write texts that only this user can read: code, and what a program prints, may have secrets."""
        files = LocalFileSystem(private=True) if isinstance(self._files, LocalFileSystem) else self._files
        for name, text in texts.items():
            with written_aside(files, self.path / name, [text.encode()], sync=False) as aside:
                files.replace(aside, self.path / name)

    def _described(self, run: RunFile) -> RunFile:
        return msgspec.structs.replace(run, place=self._place, seen=self._seen)

    def _take_place(self) -> None:
        """Take a place above all others, note how far they are, and warn if this machine's clock is behind."""
        now_s, self._seen = self._about().started, last_records(self.path, self._files)
        self._place = max(int(now_s * 1000), highest_place(self.path, self._files) + 1)
        behind_s = max(self._seen.values(), default=now_s) - now_s
        if behind_s > BEHIND_S:
            message = (
                f"This machine's clock is {behind_s:.0f} s behind that of a process which has written to {self.path}. "
                "The records are in the right order all the same, their times are not"
            )
            warn(message)

    def warn_of_others(self) -> None:
        """Warn, once, if another process is writing records of the same rank into the directory."""
        mine = self._about()
        found = [] if self._warned else others(self.path, mine, self._files)
        if not found:
            return
        self._warned = True
        who = ", ".join(f"process {other.pid} on {other.host or 'another machine'}" for other in found)
        message = (
            f"{self.path} is also written by {who}, as rank {mine.rank}. All records are kept: a series has those of "
            "one process after the other. Give each process a directory or a rank of its own"
        )
        warn(message)

    def end(self, about: Callable[[], RunFile], beside: Mapping[str, str] = MappingProxyType({})) -> None:
        """Write how the run ended, and other files `beside` that, if anything was written.

        Raises:
            OSError: It cannot be written.
        """
        if self._file is not None:
            self._write_beside(beside)
            write(self._file, self._described(about()), self._files)
        if self._held is not None:
            self._held.close()


def others(path: Path, mine: RunFile, files: FileSystem = LOCAL) -> list[RunFile]:
    """Return the processes that are writing into a run directory as the same rank: they hold locks on their files."""
    found = []
    with contextlib.suppress(OSError):
        names = [name for name in files.names(path) if OWN_NAME.fullmatch(name)]
        for name in names:
            run = read(path / name)
            if run is not None and run.id != mine.id and run.rank == mine.rank and run.ended is None:
                with contextlib.suppress(OSError):  # a file system without locks does not say
                    lock = files.lock(path / name, shared=True)
                    if lock is None:
                        found.append(run)
                    else:
                        lock.close()
    return found


def last_records(path: Path, files: FileSystem = LOCAL) -> dict[str, float]:
    """Return when each process that has written into a run directory made its last record.

    Returns:
        Seconds since the Unix epoch, by the clock of the process, by the beginning of the names of its files.
    """
    latest: dict[tuple[float, int], Path] = {}
    with contextlib.suppress(OSError):
        for name in sorted(files.names(path), key=lambda name: name_of(Path(name)) or (0.0, 0, 0)):
            if (named := name_of(Path(name))) is not None:
                latest[named[:2]] = path / name
    found: dict[str, float] = {}
    if not latest:
        return found
    from .read.run_series import last_wall_time, process_of  # these take memory, and most directories are new
    from .read.segment_reader import SegmentReader

    for (started, rank), file in latest.items():
        process = process_of(started, rank)
        found[process] = 0.0
        with contextlib.suppress(OSError, DamagedError), contextlib.closing(SegmentReader(file, files=files)) as part:
            found[process] = last_wall_time(part)
    return found


def _held(path: Path, files: FileSystem) -> File | None:
    """Lock the file of this process, so that others see that it lives; `None` where that cannot be done."""
    with contextlib.suppress(OSError):
        for _ in range(LOCK_ATTEMPTS):
            lock = files.lock(path)
            if lock is not None:
                return lock
    return None
