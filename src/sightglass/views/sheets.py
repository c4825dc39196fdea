"""The rows of a logged table: found, sorted, and as cells of texts or of what a page draws."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import QueryError, UnknownNameError
from sightglass.core.table import Table, column_type
from sightglass.core.values import Audio, Figure, Image, Value, is_extended, to_host
from sightglass.storage.format import png

from .scales import number
from .scene import LatestRecord, Scene
from .summaries import MAX_COLUMNS, Row, TableCell, one_line, summary

CONDITION: Final = re.compile(r"\s*(?:\"([^\"]+)\"|([^\s<>=!~\"]+))\s*(<=|>=|==|=|!=|<|>|~)\s*(.+?)\s*")
COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "==": operator.eq,
    "!=": operator.ne,
}  # fmt: skip

Places = npt.NDArray[np.intp]


def find_rows(table: Table, find: str = "", *, sort: str = "", descending: bool = False) -> Places:
    """Return the places of some rows, in an order.

    Args:
        table: The table.
        find: Conditions on columns, joined by `and`: `loss > 0.5 and label = cat`; `~` means "contains". Any other text
            is looked for in all columns of texts and numbers. Missing values meet no condition.
        sort: The column to sort by; what is missing comes last. By default rows are in their order.
        descending: Whether the largest value comes first.

    Raises:
        UnknownNameError: There is no such column.
        QueryError: A column of numbers is compared with a text, or one of pictures or sounds is to be sorted.
    """
    chosen = np.ones(len(table), bool)
    parts = re.split(r"\s+and\s+", find.strip()) if find.strip() else []
    conditions = [CONDITION.fullmatch(part) for part in parts]
    if all(conditions):
        for found in filter(None, conditions):
            chosen &= _meets(table, found[1] or found[2], found[3], found[4].strip("'\""))
    else:
        chosen &= _contains(table, find.strip())
    places = np.flatnonzero(chosen)
    return places if not sort else _sorted(table, sort, places, descending=descending)


def python_cells(column: Value, places: Places | slice) -> list[Any]:
    """Return cells of a column as Python's values: times as ISO texts, what is missing as `None`."""
    if isinstance(column, list):
        items = [column[i] for i in np.arange(len(column))[places].tolist()]
        return [item.item() if isinstance(item, np.generic) else item for item in items]
    array = np.asarray(to_host(column))[places]
    if array.dtype.kind in "mM":
        known = ~np.isnat(array)
        return [text if there else None for text, there in zip(_texts(array), known, strict=True)]
    listed: list[Any] = (array.astype(np.float32) if is_extended(array.dtype) else array).tolist()
    return listed


def _texts(times: npt.NDArray[Any]) -> list[str]:
    """Return times as texts no longer than they need to be: dates, where all are at midnight."""
    units = (times.astype(f"M8[{unit}]") for unit in ("D", "s", "ms", "us")) if times.dtype.kind == "M" else ()
    shortest = next((one for one in units if ((one == times) | np.isnat(times)).all()), times)
    listed: list[str] = shortest.astype(str).tolist()
    return listed


def drawn_cell(value: Value) -> Any:
    """Return a cell as a page draws it: a picture as `{png}` or `{media_type, data}`, all else as text."""
    match value:
        case Image():
            return {"png": png.encode_png(value.value), "caption": value.caption}
        case Figure(media_type=media_type) if media_type.startswith("image/"):
            return {"media_type": media_type, "data": bytes(value.data)}
        case Figure() | Audio():
            return summary(value)
    return value


def text_rows(table: Table, n_max: int) -> tuple[list[bool], list[tuple[str, ...]]]:
    """Return which columns hold numbers, and the first rows as texts; the last one says how many more there are."""
    n_shown = len(table) if len(table) <= n_max else max(n_max - 1, 1)
    cells = [[_text(item) for item in python_cells(column, slice(0, n_shown))] for column in table.value.values()]
    rows = [tuple(cell.text for cell in row) for row in zip(*cells, strict=True)]
    if n_shown < len(table):
        rows.append((f"… {len(table) - n_shown:,} more rows", *[""] * (len(cells) - 1)))
    return [all(cell.numeric or not cell.text for cell in column) for column in cells], rows


def _text(value: Value) -> TableCell:
    numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return TableCell(text="" if value is None else summary(value), numeric=numeric)


def _column(table: Table, name: str) -> Value:
    if name not in table.value:
        raise UnknownNameError("column", name, list(table.value))
    return table.value[name]


def _array(table: Table, name: str) -> npt.NDArray[Any]:
    """Return a column for comparing: an array of numbers or times, or one of texts as objects."""
    column = _column(table, name)
    if column_type(column) in ("image", "figure", "audio", "mixed"):
        raise QueryError(f"Expected a column of numbers, times or texts, got {name!r}, which is {column_type(column)}")
    return np.array(column, object) if isinstance(column, list) else np.asarray(to_host(column))


def _meets(table: Table, name: str, compare: str, wanted: str) -> npt.NDArray[np.bool_]:
    array = _array(table, name)
    if compare == "~":
        return _has(python_cells(_column(table, name), slice(None)), wanted)
    if array.dtype.kind == "O":
        test = COMPARE[compare]
        return np.array([item is not None and test(item, wanted) for item in array], bool)
    try:
        other: Any = np.array(wanted, array.dtype) if array.dtype.kind in "mM" else _number(wanted)
    except ValueError:
        raise QueryError(f"Expected {array.dtype} to compare {name!r} with, got {wanted!r:.60}") from None
    known = ~np.isnat(array) if array.dtype.kind in "mM" else array == array  # noqa: PLR0124  NaN is not itself
    met: npt.NDArray[np.bool_] = COMPARE[compare](array, other) & known
    return met


def _number(text: str) -> float:
    if text.lower() in ("true", "false"):
        return float(text.lower() == "true")
    try:
        return int(text)
    except ValueError:
        return float(text)


def _contains(table: Table, text: str) -> npt.NDArray[np.bool_]:
    found = np.zeros(len(table), bool)
    for column in table.value.values():
        if column_type(column) not in ("image", "figure", "audio"):
            found |= _has(python_cells(column, slice(None)), text)
    return found


def _has(cells: Sequence[Any], text: str) -> npt.NDArray[np.bool_]:
    wanted = text.lower()
    return np.array([cell is not None and wanted in str(cell).lower() for cell in cells], bool)


def _sorted(table: Table, name: str, places: Places, *, descending: bool) -> Places:
    array = _array(table, name)[places]
    if array.dtype.kind == "O":
        known = np.array([item is not None for item in array], bool)
        keys: Any = np.array([str(item).lower() for item in array[known]])
    else:
        known = ~np.isnat(array) if array.dtype.kind in "mM" else array == array  # noqa: PLR0124
        keys = array[known]
    order = np.argsort(keys, kind="stable")
    if descending:
        order = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")[::-1]
    return np.concatenate([places[known][order], places[~known]])


# The table of a scene, the same on every surface.
#
# It has the step, the time, the stream if there are several, a column for each name of mappings, and one for other
# values.


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTable:
    """Rows of texts.

    Attributes:
        names: The names of the columns.
        numeric: Which of them hold numbers, and are aligned at the right.
        rows: The texts of each row, in the order of the columns; the newest last.
        colors: The colour of each row's stream.
        n_more: How many names have no column.
    """

    names: tuple[str, ...]
    numeric: tuple[bool, ...]
    rows: tuple[tuple[str, ...], ...]
    colors: tuple[str, ...]
    n_more: int = 0


def rows_of(scene: Scene, n_max: int) -> list[tuple[LatestRecord, Row]]:
    """Return the last records of all streams in the order in which they were made: steps may begin again."""
    found = [(item, row) for item in scene.items for row in item.rows]
    return sorted(found, key=lambda pair: (pair[1].wall_time, pair[1].step))[-max(n_max, 1) :]


def table_of(scene: Scene, n_max: int) -> TextTable:
    """Return the table of the last `n_max` records, or the latest table of each stream."""
    if scene.view == "sheet":
        return _sheet_of(scene, n_max)
    found = rows_of(scene, n_max)
    # A value that is no mapping is in a column without a name, the last one.
    cells: list[dict[str | None, TableCell]] = [
        {} if row.mark else {**dict(row.cells)} if row.cells else {None: row.value} for _, row in found
    ]
    named = list(dict.fromkeys(name for row in cells for name in row if name is not None))[:MAX_COLUMNS]
    columns = [*named, *([None] if any(None in row for row in cells) else [])]
    numeric = [all(row[name].numeric for row in cells if name in row) for name in columns]
    for (_, row), one in zip(found, cells, strict=True):
        if row.mark:
            one[next(iter(columns), None)] = row.value
    columns = columns or [None]
    n_more = max((len(row.cells) + row.n_more for _, row in found), default=0) - len(named)
    several = len(scene.items) > 1
    return TextTable(
        names=("step", "time", *(["stream"] if several else []), *(name or "value" for name in columns)),
        numeric=(True, False, *([False] if several else []), *numeric),
        rows=tuple(
            ("" if row.mark else number(row.step), _clock(row.wall_time), *([item.label] if several else []),
             *(one[name].text if name in one else "" for name in columns))
            for (item, row), one in zip(found, cells, strict=True)
        ),
        colors=tuple(item.color for item, _ in found),
        n_more=max(n_more, 0),
    )  # fmt: skip


def _sheet_of(scene: Scene, n_max: int) -> TextTable:
    shown = [(item, item.record.value) for item in scene.items if item.record is not None]
    names: dict[str, bool] = {}
    rows: list[dict[str, str]] = []
    for item, value in shown:
        numeric, texts = text_rows(value, max(n_max // max(len(shown), 1), 1))
        labels = [one_line(name) for name in value.value]
        names |= {name: names.get(name, True) and is_number for name, is_number in zip(labels, numeric, strict=True)}
        stream = {"stream": item.label} if len(scene.items) > 1 else {}
        rows += [stream | dict(zip(labels, row, strict=True)) for row in texts]
    columns = [*(["stream"] if len(scene.items) > 1 else []), *list(names)[:MAX_COLUMNS]]
    return TextTable(
        names=tuple(columns),
        numeric=tuple(names.get(name, False) for name in columns),
        rows=tuple(tuple(row.get(name, "") for name in columns) for row in rows),
        colors=tuple(item.color for item, value in shown for _ in text_rows(value, n_max)[1])[: len(rows)],
        n_more=max(len(names) - MAX_COLUMNS, 0),
    )


def _clock(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%H:%M:%S")
    except (ValueError, OverflowError, OSError):  # outside the range of `datetime`
        return number(seconds)
