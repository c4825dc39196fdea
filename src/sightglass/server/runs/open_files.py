"""The open files of a run, shared by all requests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sightglass.client.recorded.run import RecordedRun
from sightglass.storage.read.recording import Recording


class OpenFiles:
    """The files of one run directory.

    When another directory takes the place of this one, the files are retired: requests in progress finish with them,
    later requests open the new ones.

    Attributes:
        path: The path at which they were opened.
        recording: The recorded data.
        run: The same, for queries.
        n_borrowed: How many requests and streams use them.
        retired: Whether to close them after the last use.
        used_s: When they were last borrowed, on the monotonic clock.
    """

    def __init__(self, path: Path) -> None:
        """Open the files. Errors as in `Recording`."""
        self.path = path
        self._place = place_of(path)
        self.recording = Recording(path)
        self.run = RecordedRun(self.recording, follow=True)
        self._n_damages = len(self.recording.damages)
        self.n_borrowed = 0
        self.retired = False
        self.used_s = time.monotonic()

    def are_at(self, path: Path) -> bool:
        """Return whether these are still the files at a path; also if the path is gone and nothing replaced it."""
        place = place_of(path)
        if place is None:
            return True
        vanished = len(self.recording.vanished)
        return path == self.path and place == self._place and not 0 < vanished == len(self.recording.parts)

    def found_damage(self) -> bool:
        """Return whether reading found more damage since the last call."""
        n = len(self.recording.damages)
        n, self._n_damages = self._n_damages, n
        return n != self._n_damages

    @property
    def generation(self) -> int:
        """A number that changes when the rows do: after a restart of the run, or in another directory."""
        return hash((self._place, *sorted({part.started for part in self.recording.parts})))

    def close(self) -> None:
        """Close the files."""
        self.run.close()


def place_of(path: Path) -> tuple[int, int] | None:
    """Return the identity of a directory, or `None` if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def unreadable(path: Path) -> list[str]:
    """Return the directory or the files in it that cannot be read, each with the reason."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return [f"{path.name}: {error.strerror}"]
    return [f"{name}: {why}" for name in names if (why := _unreadable(path / name))]


def _unreadable(path: Path) -> str:
    if not os.access(path, os.R_OK):
        return "Permission denied"
    return "" if path.is_file() or path.is_dir() else "Expected a regular file"
