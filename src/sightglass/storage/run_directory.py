"""Run directories: their names, and which run owns which."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .file_system import LOCAL, FileSystem, exists
from .run_file import RunFile, create, write

MAX_NAME_BYTES: Final = 150
"""Of a run's name in that of its directory: file systems allow 255 bytes, with date and counter."""


def choose(parent: Path, name: str, files: FileSystem = LOCAL) -> Path:
    """Return the directory of a new run, `{name}-{date}-{time}`, with a counter if that exists; create nothing."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    safe = safe.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore") or "run"
    return _free(parent / f"{safe}-{time.strftime('%Y-%m-%d-%H%M%S')}", files)


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
        self._file: Path | None = None
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
                self._file = create(self.path, self._about(), self._files)
            return self.path

    def end(self, about: Callable[[], RunFile]) -> None:
        """Write how the run ended, if anything was written.

        Raises:
            OSError: It cannot be written.
        """
        if self._file is not None:
            write(self._file, about(), self._files)
