"""Tables as columns by name: data frames, mappings of columns, CSV and Parquet files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.errors import MissingExtraError, QueryError

Columnar = dict[str, Any]
"""Columns by name: NumPy arrays of one length."""

DELIMITERS: Final = {".csv": ",", ".tsv": "\t"}


def table_of(data: object) -> Columnar | None:
    """Return the columns of a mapping or a data frame; `None` for anything else.

    Raises:
        TypeError: A column of a mapping has no length.
        QueryError: The columns differ in length.
    """
    if isinstance(data, Mapping):
        for name, column in data.items():
            if not isinstance(column, Sequence | np.ndarray) or isinstance(column, str):
                raise TypeError(f"Expected a mapping of names to columns, got {type(column).__name__} as {name!r}")
        return _checked({str(name): np.asarray(column) for name, column in data.items()})
    # Arrow tables have `column_names`, and `columns` without names; the frames of pandas and Polars have names there.
    names: Any = getattr(data, "column_names", None) or getattr(data, "columns", None)
    if names is None and callable(getattr(data, "to_numpy", None)):
        return {"value": data.to_numpy()}  # type: ignore[attr-defined]  # a series
    if names is None or not hasattr(data, "__getitem__"):
        return None
    return _checked({str(name): np.asarray(data[name].to_numpy()) for name in names})


def read_table(path: Path) -> Columnar:
    """Return the columns of a CSV, TSV or Parquet file, by its suffix.

    Raises:
        FileNotFoundError: There is no such file.
        QueryError: It is not such a file.
        MissingExtraError: Reading Parquet needs Polars.
    """
    suffix = path.suffix.lower()
    if suffix in DELIMITERS:
        return _read_csv(path, DELIMITERS[suffix])
    if suffix == ".parquet":
        return _read_parquet(path)
    hint = ". Open recorded runs with sg.open(path)" if path.is_dir() or suffix == ".sgr" else ""
    raise QueryError(f"Expected a file named .csv, .tsv or .parquet, got {str(path)!r}{hint}")


def _read_csv(path: Path, delimiter: str) -> Columnar:
    with path.open(newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file, delimiter=delimiter)
        names = next(lines, [])
        if not names or len(set(names)) < len(names):
            raise QueryError(f"Expected different names of columns in the first line of {str(path)!r}, got {names}")
        rows = []
        for row in lines:
            if row and len(row) != len(names):
                raise QueryError(
                    f"Expected {len(names)} cells in line {lines.line_num} of {str(path)!r}, got {len(row)}"
                )
            rows += [row] if row else []
    return {name: _column([row[i] for row in rows]) for i, name in enumerate(names)}


def _column(cells: list[str]) -> Any:
    """Return cells as integers, else as floats, where an empty cell is NaN, else as text."""
    for kind in (np.int64, np.float64):
        try:
            return np.asarray([kind(cell or "nan") for cell in cells], kind)
        except (ValueError, OverflowError):
            continue
    return np.asarray(cells, object)


def _read_parquet(path: Path) -> Columnar:
    try:
        import polars
    except ImportError:
        raise MissingExtraError("polars", extra="export", purpose=f"Reading {path.name!r}") from None
    try:
        frame = polars.read_parquet(path)
    except polars.exceptions.PolarsError as error:
        raise QueryError(f"Cannot read {str(path)!r}: {error}") from None
    return {name: frame[name].to_numpy() for name in frame.columns}


def _checked(table: Columnar) -> Columnar:
    lengths = {name: len(column) for name, column in table.items()}
    if len(set(lengths.values())) > 1:
        raise QueryError(f"Expected columns of one length, got {lengths}")
    return table
