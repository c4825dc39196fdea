"""Export to NumPy's `.npz`, which `numpy.load` reads with `allow_pickle=False`.

Each tag has `{tag}/index`, `{tag}/steps` and `{tag}/wall_times`, and
    * numbers: `{tag}/values`, in the type they were recorded in; float64 if it varies and that loses nothing.
    * arrays: `{tag}/values` with a row for each record if all have one shape and type, else `{tag}/values/0`,
      `{tag}/values/1` and so on. NumPy lacks bfloat16, which becomes float32.
    * histograms: `{tag}/counts` and `{tag}/edges` in the same way; `{tag}/outside` counts NaN, +Inf and -Inf in each.
    * texts: `{tag}/values/0` and so on, as strings without a dimension.
    * pictures and sounds: `{tag}/values/0` and so on, the bytes of the file; of several in a record `{tag}/values/0/0`.
A tag with several kinds of values has the others under the tag and the kind, such as "loss (texts)".

Columns wait in temporary files until their tag is complete, because an array's shape comes before its numbers.
"""

from __future__ import annotations

import io
import math
import tempfile
import zipfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from .cells import Kind, TagCells, exact

IN_MEMORY_BYTES: Final = 16 * 2**20  # a column of two million numbers; larger ones wait on disk
COPY_BYTES: Final = 2**20

Form = tuple[np.dtype[Any], tuple[int, ...]]


class NpzFile:
    """Writes one file, tag after tag.

    Attributes:
        n: How many records it has.
    """

    def __init__(self, path: Path) -> None:
        self.n = 0
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True)
        self._waiting: dict[tuple[str, Kind], _Waiting] = {}
        self._taken: set[str] = set()

    def __enter__(self) -> NpzFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for waiting in self._waiting.values():
            waiting.close()
        self._zip.close()

    def add(self, cells: TagCells) -> None:
        """Add records."""
        key = cells.tag, cells.kind
        if key not in self._waiting:
            self._waiting[key] = _Waiting(cells.kind)
        self._waiting[key].add(cells)
        self.n += len(cells)

    def finish(self) -> None:
        """Write the tags that were added since the last call; they are complete."""
        for (tag, kind), waiting in self._waiting.items():
            name = tag
            while name in self._taken:
                name = f"{name} ({kind})"
            self._taken.add(name)
            for member, file in waiting.columns.items():
                for suffix, form, content in file.arrays():
                    self._write(f"{name}/{member}{suffix}", form, content)
            waiting.close()
        self._waiting = {}

    def _write(self, name: str, form: Form, content: Iterator[bytes]) -> None:
        dtype, shape = form
        header = io.BytesIO()
        fields = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, fields)
        with self._zip.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            member.write(header.getvalue())
            for part in content:
                member.write(part)


class _Waiting:
    """The columns of one tag."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        ragged = kind in ("texts", "pictures", "sounds")
        values = ("counts", "edges", "outside") if kind == "histograms" else ("values",)
        self.columns = {
            **{name: _Column() for name in ("index", "steps", "wall_times")},
            **{name: _Column(ragged=ragged) for name in values},
        }

    def add(self, cells: TagCells) -> None:
        for name, column in (("index", cells.index), ("steps", cells.steps), ("wall_times", cells.wall_times)):
            self.columns[name].add_rows(column)
        match cells.kind:
            case "numbers":
                self.columns["values"].add_rows(cells.values)
            case "arrays":
                for value in cells.values:
                    self.columns["values"].add_rows(value[None])
            case "histograms":
                for value in cells.values:
                    self.columns["counts"].add_rows(value.counts[None])
                    self.columns["edges"].add_rows(value.edges[None])
                    self.columns["outside"].add_rows(np.array([[value.n_nan, value.n_posinf, value.n_neginf]]))
            case "texts":
                for value in cells.values:
                    self.columns["values"].add_rows(np.array([value]))
            case "pictures" | "sounds":
                for value in cells.values:
                    self.columns["values"].add_several([np.frombuffer(file, np.uint8) for file in value.files])

    def close(self) -> None:
        for column in self.columns.values():
            column.file.close()


class _Column:
    """The bytes of the rows of an array, and their forms."""

    def __init__(self, *, ragged: bool = False) -> None:
        self.file: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES)  # noqa: SIM115  closed by the owner
        self._ragged = ragged
        self._runs: list[tuple[Form, int, bool]] = []
        self._names: list[str] = []
        self._n = 0

    def add_rows(self, rows: npt.NDArray[Any]) -> None:
        """Add one or more rows of one form."""
        form = rows.dtype, rows.shape[1:]
        self.file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data if rows.nbytes else b"")
        exactly = exact(rows)
        if self._runs and self._runs[-1][::2] == (form, exactly):
            self._runs[-1] = (form, self._runs[-1][1] + len(rows), exactly)
        else:
            self._runs.append((form, len(rows), exactly))
        self._names += [f"/{self._n + i}" for i in range(len(rows))] if self._ragged else []
        self._n += len(rows)

    def add_several(self, arrays: list[npt.NDArray[np.uint8]]) -> None:
        """Add the arrays of one record."""
        for i, array in enumerate(arrays):
            self.add_rows(array[None])
            self._names[-1] = f"/{self._n - 1}" if len(arrays) == 1 else f"/{self._n - 1 - i}/{i}"
            self._n -= i > 0

    def arrays(self) -> Iterator[tuple[str, Form, Iterator[bytes]]]:
        """Yield the suffix of each array's name, its form with the number of rows, and its bytes."""
        self.file.seek(0)
        forms = {form for form, _, _ in self._runs}
        shapes = {shape for _, shape in forms}
        dtypes = {dtype for dtype, _ in forms}
        n = sum(n for _, n, _ in self._runs)
        if self._ragged or len(shapes) > 1:
            yield from self._alone()
        elif len(dtypes) == 1:
            ((dtype, shape),) = forms
            yield "", (dtype, (n, *shape)), self._as(dtype)
        elif all(exactly for _, _, exactly in self._runs):
            yield "", (np.dtype("<f8"), (n, *shapes.pop())), self._as(np.dtype("<f8"))
        else:
            yield from self._alone()

    def _alone(self) -> Iterator[tuple[str, Form, Iterator[bytes]]]:
        i = 0
        for (dtype, shape), n, _ in self._runs:
            for _ in range(n):
                name = self._names[i] if self._names else f"/{i}"
                yield name, (dtype, shape), self._read(math.prod(shape) * dtype.itemsize)
                i += 1

    def _as(self, dtype: np.dtype[Any]) -> Iterator[bytes]:
        for form, runs in groupby(self._runs, key=lambda run: run[0]):
            n_bytes = sum(n for _, n, _ in runs) * math.prod(form[1]) * form[0].itemsize
            for part in self._read(n_bytes):
                yield part if form[0] == dtype else np.frombuffer(part, form[0]).astype(dtype).tobytes()

    def _read(self, n_bytes: int) -> Iterator[bytes]:
        while n_bytes:
            part = self.file.read(min(n_bytes, COPY_BYTES))
            n_bytes -= len(part)
            yield part
