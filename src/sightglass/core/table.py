"""A table, as a value."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from .program_values.array_data import MAX_EXACT, NOT_DATA, as_data
from .program_values.guarded import Holder, LostValue, class_name
from .values import Audio, Figure, Image, Images, PendingCopy, Value, array_kind, is_extended, type_name

CELLS: Final = (str, bool, int, float, type(None), Image, Figure, Audio, np.generic)
NUMBERS: Final = ("bool", "int", "uint", "float", "bfloat", "datetime64", "timedelta64")


@dataclass(frozen=True, slots=True, repr=False)
class Table(Holder):
    """Rows under named columns, each of one type.

    Args:
        value: The columns by their names, or a data frame of pandas or Polars, or an Arrow table. A column is an array
            of one dimension, of numbers or of NumPy's times; or a list of numbers, times, texts, `Image`, `Figure` or
            `Audio`, with `None` for what is missing; or `Images`.

    Attributes:
        value: The columns by their names: arrays, and lists of what is not a number. Of integers of which some are
            missing, these are NaN and the others floats.

    Raises:
        TypeError: A column holds something else.
        ValueError: The columns differ in length.
        UnreadableError: A frame has too many texts, or integers that floats would round.
    """

    value: Any

    def __post_init__(self) -> None:
        given = self.value
        if isinstance(given, LostValue | PendingCopy):
            return
        frame = NOT_DATA if isinstance(given, dict) else as_data(given)
        columns = given if frame is NOT_DATA else frame
        if not isinstance(columns, Mapping):
            raise TypeError(f"Expected a mapping of names to columns, or a data frame, got {class_name(given)}")
        found = {str(name): _column(str(name), _raw(columns, name)) for name in columns}
        lengths = {name: len(column) for name, column in found.items() if not isinstance(column, PendingCopy)}
        if len({*lengths.values()}) > 1:
            raise ValueError(f"Expected columns of one length, got {lengths!r:.200}")
        object.__setattr__(self, "value", found)

    def __len__(self) -> int:
        return next((len(column) for column in self.value.values()), 0)

    def __getitem__(self, name: str) -> Any:
        return self.value[name]

    def __repr__(self) -> str:
        if not isinstance(self.value, dict):
            return f"Table({self.value!r})"
        shown = ", ".join(f"{name} {column_type(column)}" for name, column in self.value.items())
        return f"Table({len(self):,} rows: {shown})"


def column_type(column: Value) -> str:
    """Return the type of a column: a dtype, or "text", "image", "figure", "audio" or "mixed"."""
    if not isinstance(column, list):
        return str(column.dtype).removeprefix("torch.")
    types = {type(item) for item in column} - {type(None)}
    names = {str: "text", bool: "bool", Image: "image", Figure: "figure", Audio: "audio"}
    return names.get(types.pop(), "mixed") if len(types) == 1 else "mixed" if types else "text"


def _raw(columns: Mapping[Any, Any], name: Any) -> Value:
    """Return a column, of a frame with NumPy's times as they are instead of as seconds."""
    read = getattr(columns, "raw", None)
    if read is None:
        return columns[name]
    array = getattr(read(name), "to_numpy", lambda: None)()
    return array if isinstance(array, np.ndarray) and array.dtype.kind in "mM" else columns[name]


def _column(name: str, column: Value) -> Value:
    if isinstance(column, PendingCopy):
        return column
    if isinstance(column, Images):
        captions = column.captions or ("",) * len(column.value)
        return [Image(pixels, caption) for pixels, caption in zip(column.value, captions, strict=True)]
    if isinstance(column, list) and all(isinstance(item, str) for item in column):
        return column
    if isinstance(column, list | tuple) and {type(item) for item in column} - {type(None)} == {datetime}:
        column = np.array([None if item is None else _in_utc(item) for item in column], "M8[us]")
    elif isinstance(column, list | tuple):
        column = _listed(column)
    elif array_kind(column) is None and as_data(column) is not NOT_DATA:
        column = as_data(column)
    elif isinstance(column, np.ndarray) and column.dtype.kind in "OUS":
        column = column.astype(str).tolist() if column.dtype.kind != "O" else as_data(column)
    if isinstance(column, list):
        wrong = next((item for item in column if not isinstance(item, CELLS)), None)
        if wrong is None:
            return column
        raise TypeError(
            f"Expected numbers, texts, images, figures or sounds in column {name!r}, got {type_name(wrong)}"
        )
    if array_kind(column) is None or len(column.shape) != 1 or not _is_numeric(column):
        raise TypeError(f"Expected an array of one dimension or a list as column {name!r}, got {type_name(column)}")
    return column


def _listed(items: Sequence[Any]) -> Any:
    """Return items as an array if that holds all of them as they are, with NaN for what is missing; else as a list."""
    types = {type(item) for item in items}
    some = types - {type(None)}
    if some <= {int, float} and len(types) > 1:
        whole = all(abs(item) <= MAX_EXACT for item in items if type(item) is int)
        return np.array([math.nan if item is None else item for item in items]) if some and whole else list(items)
    if len(types) == 1 and (types <= {int, float, bool} or issubclass(next(iter(types)), np.generic)):
        array = np.asarray(items)
        return array if array.dtype.kind != "O" else list(items)  # integers may exceed 64 bits
    return list(items)


def _in_utc(time: datetime) -> datetime:
    """Return a time as NumPy takes it: one with a time zone in UTC, one without as it is."""
    return time if time.tzinfo is None else time.astimezone(UTC).replace(tzinfo=None)


def _is_numeric(column: Value) -> bool:
    dtype = column.dtype
    known = str(dtype).removeprefix("torch.").startswith(NUMBERS)
    return known or (isinstance(dtype, np.dtype) and (is_extended(dtype) or dtype.kind in "mM"))
