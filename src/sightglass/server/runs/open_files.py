"""The files of a run, open, for all who read them."""

from __future__ import annotations

import os
import time
from pathlib import Path

from sightglass.client.recorded.run import RecordedRun
from sightglass.storage.read.recording import Recording


class OpenFiles:
    """The files of one run directory.

    When another directory takes its place, these files are retired: who has them in use goes on with them, whoever
    comes next is given others.

    Attributes:
        path: Where they were when they were opened.
        recording: What was kept.
        run: The same as what can be asked.
        n_borrowed: How many have them in use.
        retired: Whether they are closed when nobody has them in use any more.
        used_s: When they were last borrowed, on the monotonic clock.
    """

    def __init__(self, path: Path) -> None:
        """Open what is there. Errors as in `Recording`."""
        self.path = path
        self._place = place_of(path)
        self.recording = Recording(path)
        self.run = RecordedRun(self.recording, follow=True)
        self._n_damages = len(self.recording.damages)
        self.n_borrowed = 0
        self.retired = False
        self.used_s = time.monotonic()

    def are_at(self, path: Path) -> bool:
        """Tell whether these are the files at a path; as long as there is nothing else, they stay what they were."""
        place = place_of(path)
        if place is None:
            return True
        vanished = len(self.recording.vanished)
        return path == self.path and place == self._place and not 0 < vanished == len(self.recording.parts)

    def found_damage(self) -> bool:
        """Tell whether damage was found that was not there when this was last asked: some is seen only by reading."""
        n = len(self.recording.damages)
        n, self._n_damages = self._n_damages, n
        return n != self._n_damages

    @property
    def generation(self) -> int:
        """Another number when rows are other rows: the run was started again, or the directory is another one."""
        return hash((self._place, *sorted({part.started for part in self.recording.parts})))

    def close(self) -> None:
        """Close them."""
        self.run.close()


def place_of(path: Path) -> tuple[int, int] | None:
    """Return what tells a directory from another that takes its place; `None` if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def unreadable(path: Path) -> list[str]:
    """Return what may not be read of a directory and its files, each with the reason."""
    try:
        names = sorted(os.listdir(path))
    except OSError as error:
        return [f"{path.name}: {error.strerror}"]
    return [f"{name}: Permission denied" for name in names if not os.access(path / name, os.R_OK)]
