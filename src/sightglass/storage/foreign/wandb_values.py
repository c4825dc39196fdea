"""Values in Weights & Biases' rows as ours: numbers, texts, arrays, histograms, and media in the run's `files`."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from sightglass.core import plotly_json
from sightglass.core.errors import SightglassError, WireError
from sightglass.core.table import Table
from sightglass.core.values import Figure, Histogram
from sightglass.storage.file_system import open_regular
from sightglass.storage.format.wav import decode_wav

from .event_format import Kind, figure

MAX_FILE_BYTES: Final = 64 * 2**20  # W&B's own limit for a picture is far below
MAX_EXACT: Final = 2**53
MAX_NAMED: Final = 40  # characters of a type that W&B names

Load = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class RowValue:
    """A value of a row.

    Attributes:
        kind: What it is; "unknown" cannot be shown.
        type: The type as `core.values.type_name` writes it; for "unknown", what it is, such as "table-file".
        value: The value of a scalar or text; others are read on demand.
        load: Reads the value of others; raises WireError, or OSError for a file.
    """

    kind: Kind
    type: str
    value: Any = None
    load: Load | None = None


def convert(value: Any, files: Path) -> RowValue:
    """Convert a value of JSON; `files` is the run's directory of files."""
    match value:
        case bool():
            return RowValue("scalar", "bool", value)
        case int() | float():
            return _number(value)
        case str():
            return RowValue("text", "str", value)
        case list():
            return _array(value)
        case dict():
            return _own(value, files)
    return RowValue("unknown", "null")


def _number(value: float) -> RowValue:
    """W&B writes 1.0 as 1, so all numbers are floats, except integers that would become others."""
    if isinstance(value, int) and abs(value) > MAX_EXACT:
        try:
            same = int(float(value)) == value
        except OverflowError:
            same = False
        if not same:
            return RowValue("scalar", "int", value)
    return RowValue("scalar", "float", float(value))


def _array(value: list[Any]) -> RowValue:
    try:
        array = np.array(value)
        if array.dtype.kind in "iu" and not (np.abs(array.astype(np.float64)) >= MAX_EXACT).any():
            array = array.astype(np.float64)
    except (ValueError, TypeError, OverflowError):
        return RowValue("unknown", "list")
    if array.dtype.kind not in "fiub":
        return RowValue("unknown", "list")
    shape = ", ".join(map(str, array.shape))
    return RowValue("tensor", f"{array.dtype.name}[{shape}]", load=lambda: array)


def _own(value: dict[str, Any], files: Path) -> RowValue:
    match value:
        case {"_type": "histogram"}:
            return RowValue("histogram", "Histogram", load=lambda: _histogram(value))
        case {"_type": "image-file", "path": str(path)}:
            return RowValue("image", "Figure", load=lambda: _image(files, path, value.get("sha256")))
        case {"_type": "images/separated", "filenames": list(paths)} if paths:
            type_ = "Figure" if len(paths) == 1 else f"tuple of {len(paths)}"
            return RowValue("image", type_, load=lambda: _images(files, paths))
        case {"_type": "plotly-file", "path": str(path)}:
            load = lambda: Figure(_file(files, path, value.get("sha256")), plotly_json.MEDIA_TYPE)  # noqa: E731
            return RowValue("image", "Figure", load=load)
        case {"_type": "audio-file", "path": str(path)} if path.lower().endswith(".wav"):
            return RowValue("audio", "Audio", load=lambda: decode_wav(_file(files, path, value.get("sha256"))))
        case {"_type": "table-file", "path": str(path)}:
            return RowValue("table", "Table", load=lambda: _table(files, path, value.get("sha256")))
    return RowValue("unknown", str(value.get("_type") or "mapping")[:MAX_NAMED])


def _histogram(value: dict[str, Any]) -> Histogram:
    """Make a histogram of its counts and edges; `packedBins` are evenly spaced.

    Raises:
        WireError: They do not fit together.
    """
    try:
        match value:
            case {"values": [], "bins": []}:
                return Histogram(())
            case {"values": list(counts), "bins": list(edges)}:
                pass
            case {"values": list(counts), "packedBins": {"min": low, "size": size, "count": count}}:
                if count != len(counts):
                    raise WireError(f"Expected a histogram with {count!r:.20} counts, got {len(counts)}")
                edges = [low + size * i for i in range(len(counts) + 1)]
            case _:
                raise WireError("Expected the counts and the edges of a histogram")
        exact = np.array(counts, np.float64)
        limits = np.array(edges, np.float64)
        right = np.isfinite(limits).all() and (np.diff(limits) >= 0).all() and (exact >= 0).all()
        if not right or (exact != np.rint(exact)).any() or exact.sum() > 2.0**62:
            raise WireError("Expected edges that increase, and whole counts")
        return Histogram.from_counts(exact, limits)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"Expected counts and edges that are numbers: {error}") from None


def _table(files: Path, path: str, sha256: Any) -> Table:
    """Read a table.

    Raises:
        WireError: The file is not a table, or not what was logged.
        OSError: It cannot be read.
    """
    data = _file(files, path, sha256)
    try:
        match json.loads(data):
            case {"columns": list(names), "data": list(rows)}:
                return as_table([*map(str, names)], rows)
    except (ValueError, RecursionError) as error:
        raise WireError(f"Expected a table in {path!r:.100}: {error}") from None
    raise WireError(f"Expected a table in {path!r:.100}")


def as_table(names: list[str], rows: list[list[Any]]) -> Table:
    """Make a table. Of media in its cells, other programs keep the names of their types only; lists become JSON texts.

    Raises:
        WireError: The rows are not rows of these columns, or columns have the same name.
    """
    try:
        cells = [[json.dumps(cell) if isinstance(cell, dict | list) else cell for cell in row] for row in rows]
        columns = list(map(list, zip(*cells, strict=True))) if cells else [[] for _ in names]
        if len({*names}) == len(names):
            return Table(dict(zip(names, columns, strict=True)))
    except (ValueError, TypeError, RecursionError, SightglassError) as error:
        raise WireError(f"Expected a table: {error}") from None
    raise WireError("Expected a table with columns of different names")


def _images(files: Path, paths: list[Any]) -> Figure | tuple[Figure, ...]:
    figures = tuple(_image(files, path, None) for path in paths)
    return figures[0] if len(figures) == 1 else figures


def _image(files: Path, path: Any, sha256: Any) -> Figure:
    return figure(memoryview(_file(files, path, sha256)))


def _file(files: Path, path: Any, sha256: Any) -> bytes:
    """Read a file of the run.

    Raises:
        WireError: The path leads out of the run's files, or the file is not what was logged.
        OSError: It cannot be read.
    """
    place = PurePosixPath(path) if isinstance(path, str) else PurePosixPath("/")
    if place.is_absolute() or ".." in place.parts or "\\" in str(place) or "\0" in str(place) or ":" in str(place):
        raise WireError(f"Expected a file among the run's files, got {path!r:.100}")
    home = os.path.realpath(files)
    target = os.path.realpath(files / place)
    if os.path.commonpath([home, target]) != home:
        raise WireError(f"Expected a file among the run's files, got {path!r:.100}, a link that leads out")
    with open(target, "rb", opener=open_regular) as file:
        data = file.read(min(MAX_FILE_BYTES, os.fstat(file.fileno()).st_size) + 1)
    if len(data) > MAX_FILE_BYTES:
        raise WireError(f"Expected a file of at most {MAX_FILE_BYTES >> 20} MiB: {path!r:.100}")
    if isinstance(sha256, str) and hashlib.sha256(data).hexdigest() != sha256:
        raise WireError(f"The file {path!r:.100} is not the one that was logged")
    return data
