"""Records in words: a line of a log, a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np

from sightglass.core import plotly_json
from sightglass.core.audio import Audio
from sightglass.core.guarded import message
from sightglass.core.record import Record
from sightglass.core.table import Table
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text, type_name

from .choose import flatten
from .scales import number
from .sounds import wave_of

MAX_TEXT: Final = 400  # a few lines of a terminal
MAX_COLUMNS: Final = 24  # as many as a wide screen shows
RESTARTED: Final = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A value in a table.

    Attributes:
        text: The value in words.
        numeric: Whether it is a number.
    """

    text: str
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record in words.

    Attributes:
        step: Its step.
        wall_time: When it was made.
        value: Its whole value.
        cells: The values of a mapping by name, at most `MAX_COLUMNS` of them; empty for other values.
        n_more: How many more there are.
        mark: Whether it stands for something that happened to the run, instead of a record.
    """

    step: float
    wall_time: float
    value: TableCell
    cells: tuple[tuple[str, TableCell], ...] = ()
    n_more: int = 0
    mark: bool = False


def restart_row(record: Record) -> Row:
    """Return the row before the first record of a run that began again."""
    return Row(step=record.step, wall_time=record.wall_time, value=TableCell(text=RESTARTED), mark=True)


def row_of(record: Record) -> Row:
    """Return a record in words; of a value that cannot be read, the reason."""
    step, wall_time = record.step, record.wall_time
    try:
        value = _cell(record.value)
        named = flatten(record.value) if isinstance(record.value, Mapping) else iter(())
        cells = tuple((one_line(name), _cell(item)) for name, item in islice(named, MAX_COLUMNS))
        return Row(step=step, wall_time=wall_time, value=value, cells=cells, n_more=sum(1 for _ in named))
    except Exception as error:  # noqa: BLE001  the program's own class
        failed = TableCell(text=f"{type_name(record.value)}: {message(error)}")
        return Row(step=step, wall_time=wall_time, value=failed)


def one_line(value: object) -> str:
    """Return a text as one line without control characters, so that it cannot move a terminal's cursor."""
    text = value.value if isinstance(value, Text) else str(value)
    line = " ".join(text[: 4 * MAX_TEXT].split())
    return "".join(char if char.isprintable() else "�" for char in line)[:MAX_TEXT]


def summary(value: object) -> str:
    """Describe a value in one line."""
    match value:
        case str() | Text():
            return one_line(value)
        case bool() | None:
            return str(value)
        case int() | float() | np.integer() | np.floating():
            return number(value)
        case Audio():
            return str(wave_of(value))
        case Figure(data=data, media_type=media_type):
            about = plotly_json.summary_of(data) if media_type == plotly_json.MEDIA_TYPE else None
            return one_line(about or f"a figure, {media_type}, {len(data) / 1000:,.1f} kB")
        case Table():
            return one_line(f"{len(value):,} rows of {', '.join(value.value)}")
        case np.datetime64() | np.timedelta64():
            return str(value)
        case Tensor() | Image() | Images():
            return f"{type(value).__name__} {type_name(value.value)}"
        case tuple() | list() if len(value) <= 8:
            return f"({', '.join(summary(item) for item in value)})"
        case Mapping() if len(value) <= 8:
            return ", ".join(f"{one_line(key)}={summary(item)}" for key, item in value.items()) or "empty"
        case Histogram():
            return repr(value)
    name = type_name(value)
    return name if "[" in name or " of " in name else one_line(repr(value))


def _cell(value: object) -> TableCell:
    numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return TableCell(text=summary(value), numeric=numeric)
