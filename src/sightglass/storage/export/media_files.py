"""Export to files: a folder for each tag, and in it a file for each picture, sound and table, named by its step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from sightglass.core import plotly_json

from . import sheet_files
from .cells import MediaFiles, TagCells
from .tables import safe_name

PARQUET: Final = "application/vnd.apache.parquet"
SUFFIXES: Final = {
    "image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg",
    "application/pdf": "pdf", "audio/wav": "wav", "text/csv": "csv", PARQUET: "parquet",
    plotly_json.MEDIA_TYPE: "json",
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
        """Write the pictures, sounds and tables of records, these as CSV; other values are refused."""
        if cells.kind == "tables":
            for name in {name: None for table in cells.values for name in sheet_files.left_out(table)}:
                refuse(self._run, f"{cells.tag}/{name}", "CSV does not support pictures and sounds", len(cells))
            self._write(cells, [MediaFiles([sheet_files.as_csv(table)], ["text/csv"], ()) for table in cells.values])
        elif cells.kind in ("pictures", "sounds"):
            self._write(cells, cells.values)
        else:
            why = f"there are files of pictures, sounds and tables only, not of {cells.kind}"
            refuse(self._run, cells.tag, why, len(cells))

    def add_parquet(self, cells: TagCells) -> None:
        """Write tables as Parquet."""
        self._write(cells, [MediaFiles([sheet_files.as_parquet(table)], [PARQUET], ()) for table in cells.values])

    def _write(self, cells: TagCells, values: Sequence[MediaFiles]) -> None:
        folder = self._of(cells.tag)
        for step, value in zip(cells.steps.tolist(), values, strict=True):
            for i, (data, media_type) in enumerate(zip(value.files, value.media_types, strict=True)):
                name = f"{step:.15g}" if len(value.files) == 1 else f"{step:.15g}-{i}"
                self._free(folder, name, SUFFIXES.get(media_type, "bin")).write_bytes(data)
        self.written[folder] = self.written.get(folder, 0) + len(cells)

    def _of(self, tag: str) -> Path:
        if tag not in self._folders:
            self._folders[tag] = self._folder / safe_name(tag, self._names)
            self._folders[tag].mkdir(parents=True, exist_ok=True)
        return self._folders[tag]

    def _free(self, folder: Path, name: str, suffix: str) -> Path:
        """Return a path that no earlier record of this step has."""
        path, n = folder / f"{name}.{suffix}", 1
        while path in self._taken:
            n += 1
            path = folder / f"{name} ({n}).{suffix}"
        self._taken.add(path)
        return path
