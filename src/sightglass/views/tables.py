"""The table of a scene, the same on every surface.

It has the step, the time, the stream if there are several, a column for each name of mappings, and one for other
values.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from .scales import number
from .scene import LatestRecord, Scene
from .sheets import text_rows
from .summaries import MAX_COLUMNS, Row, TableCell, one_line


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
