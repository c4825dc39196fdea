"""Run directories: their names, and who has which."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .run_file import RunFile, create, write

MAX_NAME_BYTES: Final = 150
"""How much of a run's name stands in that of its directory: file systems take 255 bytes, with date and counter."""


def choose(parent: Path, name: str) -> Path:
    """Return the directory of a new run, `{name}-{date}-{time}`, with a counter when that is taken; nothing is made."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".")
    safe = safe.encode("utf-8", "replace")[:MAX_NAME_BYTES].decode("utf-8", "ignore") or "run"
    return _free(parent / f"{safe}-{time.strftime('%Y-%m-%d-%H%M%S')}")


def claim(path: Path) -> Path:
    """Make a new run's directory, or one with a counter if another run was faster, and return it.

    Raises:
        OSError: It cannot be made.
    """
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            taken, path = path, _free(path)
            if path == taken:  # it is something above it that is there already, such as a link that leads nowhere
                raise


def _free(base: Path) -> Path:
    path, n = base, 1
    while path.exists():
        n += 1
        path = base.with_name(f"{base.name}-{n}")
    return path


class RunDirectory:
    """The directory of a run: made when the first file goes there, with a `run.json` that says what the run is.

    Attributes:
        path: Where it is; final once it is made.
    """

    def __init__(
        self,
        path: Path,
        *,
        shared: bool,
        about: Callable[[], RunFile],
        moved: Callable[[Path], None] = lambda path: None,
    ) -> None:
        """Choose a place, and make nothing yet.

        Args:
            path: Where it is to be.
            shared: Whether others may have it, too; else a counter is added if another run was faster.
            about: Tells what `run.json` says.
            moved: Is told where the directory is, if another run was faster.
        """
        self.path = path
        self._shared = shared
        self._about = about
        self._moved = moved
        self._file: Path | None = None
        self._lock = threading.RLock()

    def open(self) -> Path:
        """Make what is not there, or not there any more, and return the directory; from any thread.

        Raises:
            OSError: It cannot be made.
        """
        with self._lock:
            if self._shared or self._file is not None:
                self.path.mkdir(parents=True, exist_ok=True)
            else:
                chosen, self.path = self.path, claim(self.path)
                if self.path != chosen:
                    self._moved(self.path)
            if self._file is None or not self._file.exists():
                self._file = create(self.path, self._about())
            return self.path

    def end(self, about: Callable[[], RunFile]) -> None:
        """Say how the run ended, if anything was written.

        Raises:
            OSError: It cannot be written.
        """
        if self._file is not None:
            write(self._file, about())
