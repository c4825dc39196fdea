"""Logged tables as files: CSV and Parquet."""

from __future__ import annotations

import csv
import io
from typing import Any

import numpy as np

from sightglass.core.audio import Audio
from sightglass.core.errors import MissingExtraError
from sightglass.core.table import Table, column_type
from sightglass.core.values import Figure, Image, Value, to_host
from sightglass.storage.format import png, wav

from .cells import widened

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
