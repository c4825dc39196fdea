"""Export to files: a folder for each tag, and in it a file for each picture and sound, named by its step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from .cells import TagCells
from .tables import safe_name

SUFFIXES: Final = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
    "application/pdf": "pdf", "audio/wav": "wav",
}  # fmt: skip

Refuse = Callable[[str, str, str, int], None]


class MediaFolder:
    """Writes the files of one run.

    Attributes:
        written: Each folder with its number of records.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = folder
        self._run = run
        self._folders: dict[str, Path] = {}
        self._names: set[str] = set()
        self._taken: set[Path] = set()
        self.written: dict[Path, int] = {}

    def add(self, cells: TagCells, refuse: Refuse) -> None:
        """Write the pictures and sounds of records; other values are refused."""
        if cells.kind not in ("pictures", "sounds"):
            refuse(
                self._run, cells.tag, f"there are files of pictures and sounds only, not of {cells.kind}", len(cells)
            )
            return
        folder = self._of(cells.tag)
        for step, value in zip(cells.steps.tolist(), cells.values, strict=True):
            for i, (data, media_type) in enumerate(zip(value.files, value.media_types, strict=True)):
                name = f"{step:.15g}" if len(value.files) == 1 else f"{step:.15g}-{i}"
                self._free(folder, name, SUFFIXES.get(media_type, "bin")).write_bytes(data)
        self.written[folder] = self.written.get(folder, 0) + len(cells)

    def _of(self, tag: str) -> Path:
        if tag not in self._folders:
            self._folders[tag] = self._folder / safe_name(tag, self._names)
            self._folders[tag].mkdir(parents=True)
        return self._folders[tag]

    def _free(self, folder: Path, name: str, suffix: str) -> Path:
        """Return a path that no earlier record of this step has."""
        path, n = folder / f"{name}.{suffix}", 1
        while path in self._taken:
            n += 1
            path = folder / f"{name} ({n}).{suffix}"
        self._taken.add(path)
        return path
