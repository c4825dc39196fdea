"""Files that appear when they are complete.

They are written in a directory beside their destination and moved there at the end. Existing files are replaced only
with `overwrite`, and nothing is removed.
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
    """Return a count of records as text."""
    return f"{n:,} record{'s' if n != 1 else ''}"


class AtomicFiles:
    """Files that are written in a temporary folder, and moved to their destination together.

    Attributes:
        out: The destination: a file, or a directory.
        folder: The temporary folder.
        written: The files, with the paths that they get.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self.out = out
        self.folder = folder
        self.written: list[WrittenFile] = []
        self._moves: list[tuple[Path, Path]] = []

    def put(self, path: Path, n: int, *, alone: bool = False) -> None:
        """Add a file that was written into `folder`, with `n` records; `alone` if `out` is this one file."""
        target = self.out if alone else self.out / path.relative_to(self.folder)
        self.written.append(WrittenFile(path=target, n=n))
        self._moves.append((path, target))

    def check(self) -> None:
        """Check that no file would be replaced.

        Raises:
            StorageError: A file exists already.
        """
        for _, target in self._moves:
            if target.exists():
                raise StorageError(f"{target} exists already: choose another path, or allow overwriting")

    def publish(self) -> None:
        """Move the files to their destination."""
        for path, target in self._moves:
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)


@contextmanager
def atomic_files(out: Path, *, overwrite: bool) -> Iterator[AtomicFiles]:
    """Write into a directory beside `out`, and move everything there at the end.

    Raises:
        StorageError: `out` exists already, and `overwrite` is false.
    """
    if not overwrite and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise StorageError(f"{out} exists already: choose another path, or allow overwriting")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", suffix=".export", dir=out.parent))
    try:
        files = AtomicFiles(out, folder)
        yield files
        if not overwrite:
            files.check()
        files.publish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
