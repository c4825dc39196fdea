"""Columns of Python values as a Parquet file."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sightglass.core.errors import MissingExtraError


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
