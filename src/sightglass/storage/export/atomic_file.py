"""Files that appear when they are complete.

They are written in a directory beside their places and moved there at the end. What is there already is replaced only
if that is asked for, and nothing is removed.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sightglass.core.errors import StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenFile:
    """A file that was written, and how many records are in it."""

    path: Path
    n: int

    def __str__(self) -> str:
        return f"wrote {self.path}: {count(self.n)}"


def count(n: int) -> str:
    """Say how many records."""
    return f"{n:,} record{'s' if n != 1 else ''}"


class AtomicFile:
    """Where files are written before they appear at their places.

    Attributes:
        out: Where they will be: a file, or a directory.
        folder: Where they are.
        written: The files, by their places.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self.out = out
        self.folder = folder
        self.written: list[WrittenFile] = []
        self._moves: list[tuple[Path, Path]] = []

    def put(self, path: Path, n: int, *, alone: bool = False) -> None:
        """Take in a file that was written into `folder`; `alone` if it is all of `out`."""
        place = self.out if alone else self.out / path.relative_to(self.folder)
        self.written.append(WrittenFile(path=place, n=n))
        self._moves.append((path, place))

    def check(self) -> None:
        """Check that nothing would be replaced.

        Raises:
            StorageError: Something would.
        """
        for _, place in self._moves:
            if place.exists():
                raise StorageError(f"{place} exists already: choose another place, or allow to overwrite it")

    def publish(self) -> None:
        """Let the files appear."""
        for path, place in self._moves:
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)


@contextmanager
def outlet(out: Path, *, overwrite: bool) -> Iterator[AtomicFile]:
    """Write into a directory beside the place, and move everything when it is complete."""
    if not overwrite and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise StorageError(f"{out} exists already: choose another place, or allow to overwrite it")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".export", dir=out.parent))
    try:
        made = AtomicFile(out, folder)
        yield made
        if not overwrite:
            made.check()
        made.publish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
