"""Export to tables: Parquet and CSV.

Parquet. `scalars.parquet` has a row for each number: run, tag, index, step, wall_time, value (float64), a column for
each further step track, and n_events, complete and closed, which describe groups. Everything else has a file for each
tag, whose columns after wall_time are
    * arrays: `value` (a list, in C order), `shape`, `dtype`. float16 and bfloat16 are lists of float32, complex numbers
      of {real, imag}. An array of another type under the same tag has a second file, named after its type.
    * integers that float64 does not hold, and complex numbers: `value` in their own type.
    * histograms: `counts`, `edges`, `n_nan`, `n_posinf`, `n_neginf`.
    * pictures: `files` (their bytes), `media_types`, `captions`; pixels become PNG, floats among them 8 bits each.
    * texts: `text`.

CSV. One table of numbers and texts: run, tag, index, step, wall_time, value, text, and the step tracks. Numbers are
written so that they are read back as they were; not finite ones as nan, inf and -inf, bools as 1 and 0. Complex numbers
are left out.

In both, step is an integer if every exported step is. The first records decide the columns; when a later one needs
more, writing starts over with more columns (`MoreColumns`).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import numpy as np

from sightglass.core.columns import CLOSED, COMPLETE
from sightglass.core.errors import MissingExtraError
from sightglass.core.values import Histogram

from .cells import Array, MediaFiles, TagCells, exact

ROW_GROUP_ROWS: Final = 2**17  # what Parquet readers prefer: large enough to compress, small enough to skip
ROW_GROUP_BYTES: Final = 32 * 2**20  # bounds the memory, where rows are arrays
MAX_NAME: Final = 100  # of a file, which may have 255 bytes: four for a character, with room for a suffix
RESERVED: Final = frozenset(
    ("run", "tag", "index", "step", "wall_time", "value", "text", "shape", "dtype", "counts", "edges", "n_nan",
     "n_posinf", "n_neginf", "files", "media_types", "captions", "n_events", "complete", "closed")
)  # fmt: skip

Rows = Iterable[tuple[str, TagCells]]
"""The name of a run, and cells of it."""
Refuse = Callable[[str, str, str, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """The columns of a table.

    Attributes:
        tracks: The names of further step tracks.
        whole: Whether all steps are integers.
    """

    tracks: tuple[str, ...] = ()
    whole: bool = True

    def check(self, cells: TagCells) -> None:
        """Check that cells fit.

        Raises:
            MoreColumns: They need other columns.
        """
        wider = self
        if self.whole and cells.steps.dtype.kind == "f" and not (cells.steps == np.trunc(cells.steps)).all():
            wider = replace(wider, whole=False)
        names = {name: None for track in cells.tracks or () for name in track}
        if new := tuple(name for name in names if name not in self.tracks):
            wider = replace(wider, tracks=self.tracks + new)
        if wider is not self:
            raise MoreColumns(wider)


def column_of(track: str) -> str:
    """Return the column's name of a step track; names that have another meaning get a prefix."""
    return f"track_{track}" if track in RESERVED else track


class MoreColumns(Exception):
    """A table needs other columns."""

    def __init__(self, layout: TableLayout) -> None:
        super().__init__(layout)
        self.layout = layout


def with_all_columns(write: Callable[[TableLayout], Sequence[tuple[Path, int]]]) -> Sequence[tuple[Path, int]]:
    """Write with the narrowest layout that holds everything."""
    layout = TableLayout()
    while True:
        try:
            return write(layout)
        except MoreColumns as needed:
            layout = needed.layout


def write_csv(path: Path, rows: Rows, layout: TableLayout, refuse: Refuse) -> int:
    """Write a CSV file, and return its number of records.

    Args:
        path: The file.
        rows: The cells to write.
        layout: Its columns.
        refuse: Called for records that CSV cannot hold, with run, tag, reason and number of records.

    Raises:
        MoreColumns: The records need other columns.
    """
    n = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["run", "tag", "index", "step", "wall_time", "value", "text", *map(column_of, layout.tracks)])
        for run, cells in rows:
            if cells.kind not in ("numbers", "texts") or (cells.kind == "numbers" and cells.values.dtype.kind == "c"):
                what = "complex numbers" if cells.kind == "numbers" else cells.kind
                refuse(run, cells.tag, f"CSV does not support {what}", len(cells))
                continue
            layout.check(cells)
            empty = [""] * len(cells)
            values, texts = (_listed(cells.values), empty) if cells.kind == "numbers" else (empty, cells.values)
            tracks = [[track.get(name, "") for track in cells.tracks or [{}] * len(cells)] for name in layout.tracks]
            steps = _whole(cells.steps).tolist() if layout.whole else cells.steps.tolist()
            columns = ([run] * len(cells), [cells.tag] * len(cells), cells.index.tolist(), steps)
            writer.writerows(zip(*columns, cells.wall_times.tolist(), values, texts, *tracks, strict=True))
            n += len(cells)
    return n


def _listed(numbers: Array) -> list[Any]:
    listed: list[Any] = (numbers.astype(np.uint8) if numbers.dtype.kind == "b" else numbers).tolist()
    return listed


def _whole(steps: Array) -> Array:
    return steps.astype(np.int64, copy=False)


class ParquetFolder:
    """Writes Parquet files into a directory, in row groups; files are made as records need them."""

    def __init__(self, folder: Path, layout: TableLayout) -> None:
        """Start without files.

        Raises:
            MissingExtraError: pyarrow is not installed.
        """
        try:
            import pyarrow  # type: ignore[import-untyped,unused-ignore]
        except ImportError:
            raise MissingExtraError("pyarrow", extra="export", purpose="Exporting to Parquet") from None
        self._arrow = pyarrow
        self._folder = folder
        self._layout = layout
        self._files: dict[tuple[str, str], _Parquet] = {}
        self._taken = {"scalars"}

    def __enter__(self) -> ParquetFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()

    def add(self, run: str, cells: TagCells) -> None:
        """Add records.

        Raises:
            MoreColumns: The records need other columns.
        """
        self._layout.check(cells)
        pa = self._arrow
        scalar = cells.kind == "numbers" and exact(cells.values)
        for some, form, columns in self._columns(cells, scalar):
            n, steps = len(some), some.steps
            leading = {
                "run": pa.repeat(run, n), "tag": pa.repeat(some.tag, n), "index": pa.array(some.index),
                "step": self._flat(_whole(steps) if self._layout.whole else steps.astype(np.float64)),
                "wall_time": self._flat(some.wall_times),
            }  # fmt: skip
            tracks = {column_of(name): self._track(some, name) for name in self._layout.tracks}
            groups = {
                "n_events": self._flat(some.n_events),
                "complete": pa.array((some.flags & COMPLETE).astype(bool)),
                "closed": pa.array((some.flags & CLOSED).astype(bool)),
            }
            self._file("" if scalar else some.tag, form).add(pa.table(leading | columns | tracks | groups))

    def close(self) -> Sequence[tuple[Path, int]]:
        """Finish all files, and return each with its number of records."""
        for file in self._files.values():
            file.close()
        return [(file.path, file.n) for file in self._files.values()]

    def _file(self, tag: str, form: str) -> _Parquet:
        if (tag, form) not in self._files:
            first = tag not in {known for known, _ in self._files}
            name = "scalars" if not tag else safe_name(tag if first else f"{tag}.{form}", self._taken)
            self._files[tag, form] = _Parquet(self._folder / f"{name}.parquet")
        return self._files[tag, form]

    def _track(self, cells: TagCells, name: str) -> Any:
        tracks = cells.tracks or [{}] * len(cells)
        return self._arrow.array([track.get(name) for track in tracks], self._arrow.float64())

    def _columns(self, cells: TagCells, scalar: bool) -> Iterator[tuple[TagCells, str, dict[str, Any]]]:
        """Yield the records of each file, with the form of their values and the columns for them."""
        pa, values = self._arrow, cells.values
        match cells.kind:
            case "numbers":
                form = "" if scalar else values.dtype.name
                yield cells, form, {"value": self._flat(values.astype(np.float64) if scalar else values)}
            case "texts":
                yield cells, "text", {"text": pa.array(values, pa.large_string())}
            case "histograms":
                yield cells, "histogram", self._histograms(values)
            case "pictures" | "sounds":
                yield cells, cells.kind[:-1], self._media(values)
            case "arrays":
                for dtype in dict.fromkeys(value.dtype for value in values):
                    rows = np.array([i for i, value in enumerate(values) if value.dtype == dtype])
                    some = [values[i] for i in rows.tolist()]
                    yield _some(cells, rows, some), dtype.name, self._arrays(some)

    def _flat(self, numbers: Array) -> Any:
        """Copy numbers, since the originals are valid only until the next block is read."""
        if numbers.dtype.kind == "c":
            parts = [self._arrow.array(np.array(part)) for part in (numbers.real, numbers.imag)]
            return self._arrow.StructArray.from_arrays(parts, ["real", "imag"])
        return self._arrow.array(np.array(numbers, np.float32 if numbers.dtype == np.float16 else None))

    def _lists(self, arrays: Sequence[Array]) -> Any:
        offsets = np.cumsum([0, *(array.size for array in arrays)], dtype=np.int64)
        joined = arrays[0].reshape(-1) if len(arrays) == 1 else np.concatenate([a.reshape(-1) for a in arrays])
        return self._arrow.LargeListArray.from_arrays(self._arrow.array(offsets), self._flat(joined))

    def _arrays(self, arrays: Sequence[Array]) -> dict[str, Any]:
        shapes = self._arrow.array([array.shape for array in arrays], self._arrow.list_(self._arrow.int64()))
        dtypes = self._arrow.repeat(arrays[0].dtype.name, len(arrays))
        return {"value": self._lists(arrays), "shape": shapes, "dtype": dtypes}

    def _histograms(self, values: Sequence[Histogram]) -> dict[str, Any]:
        outside = {name: [getattr(value, name) for value in values] for name in ("n_nan", "n_posinf", "n_neginf")}
        counts, edges = [value.counts for value in values], [value.edges for value in values]
        return {"counts": self._lists(counts), "edges": self._lists(edges), **outside}

    def _media(self, values: Sequence[MediaFiles]) -> dict[str, Any]:
        pa = self._arrow
        return {
            "files": pa.array([value.files for value in values], pa.list_(pa.large_binary())),
            "media_types": pa.array([value.media_types for value in values], pa.list_(pa.string())),
            "captions": pa.array([value.captions for value in values], pa.list_(pa.string())),
        }


def safe_name(tag: str, taken: set[str]) -> str:
    """Return a file name for a tag, and add it to those `taken`, which are in lower case."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in tag)[:MAX_NAME].lstrip(".") or "_"
    name, n = safe, 1
    while name.lower() in taken:
        n += 1
        name = f"{safe}-{n}"
    taken.add(name.lower())
    return name


def _some(cells: TagCells, rows: Array, values: list[Array]) -> TagCells:
    names = ("index", "steps", "wall_times", "n_events", "flags")
    tracks = None if cells.tracks is None else [cells.tracks[row] for row in rows.tolist()]
    return replace(cells, values=values, tracks=tracks, **{name: getattr(cells, name)[rows] for name in names})


class _Parquet:
    """One file: tables wait until they make a row group."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.n = 0
        self._waiting: list[Any] = []
        self._n_waiting = self._n_bytes = 0
        self._writer: Any = None

    def add(self, table: Any) -> None:
        self._waiting.append(table)
        self.n += len(table)
        self._n_waiting += len(table)
        self._n_bytes += table.nbytes
        if self._n_waiting >= ROW_GROUP_ROWS or self._n_bytes >= ROW_GROUP_BYTES:
            self._write()

    def close(self) -> None:
        self._write()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self) -> None:
        if not self._waiting:
            return
        import pyarrow as pa  # type: ignore[import-untyped,unused-ignore]
        import pyarrow.parquet as pq  # type: ignore[import-untyped,unused-ignore]

        table = pa.concat_tables(self._waiting)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, table.schema, compression="zstd")
        self._writer.write_table(table)
        self._waiting, self._n_waiting, self._n_bytes = [], 0, 0
