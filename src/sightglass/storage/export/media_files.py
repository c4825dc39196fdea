"""Export to files: a folder for each tag, and in it a file for each picture, sound and table, named by its step."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core import plotly_json
from sightglass.core.errors import MissingExtraError
from sightglass.core.table import Table, column_type
from sightglass.core.values import Audio, Figure, Image, Value, to_host
from sightglass.storage.format import png, wav

from .cells import MediaFiles, TagCells, widened
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
            for name in {name: None for table in cells.values for name in left_out(table)}:
                refuse(self._run, f"{cells.tag}/{name}", "CSV does not support pictures and sounds", len(cells))
            self._write(cells, [MediaFiles([as_csv(table)], ["text/csv"], ()) for table in cells.values])
        elif cells.kind in ("pictures", "sounds"):
            self._write(cells, cells.values)
        else:
            why = f"there are files of pictures, sounds and tables only, not of {cells.kind}"
            refuse(self._run, cells.tag, why, len(cells))

    def add_parquet(self, cells: TagCells) -> None:
        """Write tables as Parquet."""
        self._write(cells, [MediaFiles([as_parquet(table)], [PARQUET], ()) for table in cells.values])

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


# Logged tables as files: CSV and Parquet.

MEDIA: tuple[str, ...] = ("image", "figure", "audio")


def as_csv(table: Table) -> bytes:
    """Return a table as CSV, without its columns of pictures and sounds; what is missing is empty."""
    kept = {name: column for name, column in table.value.items() if column_type(column) not in MEDIA}
    columns = [_texts(column) for column in kept.values()]
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(kept)
    writer.writerows(zip(*columns, strict=True))
    return file.getvalue().encode()


def left_out(table: Table) -> list[str]:
    """Return the names of the columns that `as_csv` leaves out."""
    return [name for name, column in table.value.items() if column_type(column) in MEDIA]


def as_parquet(table: Table) -> bytes:
    """Return a table as a Parquet file; pictures and sounds are the bytes of their files.

    Captions of the pictures of a column `x` are a column `x.caption`.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
        import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError("pyarrow", extra="export", purpose="Exporting to Parquet") from None
    arrays = {name: pa.array(_stored(column)) for name, column in table.value.items()}
    for name, column in table.value.items():
        captions = [getattr(item, "caption", "") or None for item in column] if isinstance(column, list) else []
        if any(captions) and f"{name}.caption" not in arrays:
            arrays[f"{name}.caption"] = pa.array(captions)
    file = io.BytesIO()
    pq.write_table(pa.table(arrays), file, compression="zstd")
    return file.getvalue()


def _texts(column: Value) -> list[Any]:
    if isinstance(column, list):
        return ["" if item is None else item for item in column]
    array = np.asarray(to_host(column))
    if array.dtype.kind in "mM":
        return ["" if missing else text for text, missing in zip(array.astype(str), np.isnat(array), strict=True)]
    listed: list[Any] = widened(array).tolist()
    return listed


def _stored(column: Value) -> Any:
    if not isinstance(column, list):
        array = np.asarray(to_host(column))
        return array if array.dtype.kind in "mM" else widened(array)
    if column_type(column) == "mixed":
        return [None if item is None else str(item) for item in column]
    return [_file(item) for item in column]


def _file(item: Value) -> Any:
    match item:
        case Image():
            return png.encode_png(item.value)
        case Figure():
            return bytes(item.data)
        case Audio():
            return wav.encode_wav(item)
    return item


# Columns of Python values as a Parquet file.


def parquet_of(columns: Mapping[str, Sequence[Any]], *, times: Collection[str] = ()) -> bytes:
    """Return a Parquet file with these columns.

    A column of one type keeps it; values of several types, or of none that Parquet has, are written as JSON.

    Args:
        columns: The values of each column, by its name; `None` for a missing one.
        times: The columns that are seconds since the Unix epoch.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """
    try:
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
        import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise MissingExtraError("pyarrow", extra="export", purpose="Exporting to Parquet") from None
    arrays = {}
    for name, cells in columns.items():
        if name in times:
            micros = [None if cell is None else round(cell * 1e6) for cell in cells]
            arrays[name] = pa.array(micros, pa.timestamp("us", "UTC"))
        else:
            arrays[name] = _array(pa, cells)
    file = io.BytesIO()
    pq.write_table(pa.table(arrays), file, compression="zstd")
    return file.getvalue()


def _array(pa: Any, cells: Sequence[Any]) -> Any:
    if all(map(_is_plain, cells)):
        try:
            return pa.array(cells)
        except (pa.ArrowException, OverflowError):  # several types, or an integer beyond 64 bits
            pass
    return pa.array(
        [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells], pa.string()
    )


def _is_plain(cell: Any) -> bool:
    if isinstance(cell, list | tuple):
        return all(isinstance(part, str) for part in cell)
    return cell is None or isinstance(cell, bool | int | float | str)
