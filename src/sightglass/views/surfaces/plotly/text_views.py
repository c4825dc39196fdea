"""Views made of text: the log and the table."""

from __future__ import annotations

from typing import Final

from sightglass.views.scales import number
from sightglass.views.scene import Scene
from sightglass.views.tables import TextTable, rows_of, table_of

from .figure_data import FigureData
from .style import MONO, PlotlyStyle, mixed, plain

ROW: Final = 24
MAX_TEXT: Final = 400
MAX_ROWS: Final = 200
MAX_WIDTH: Final = 60  # characters of a column; longer texts wrap


def draw_records(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw the last records of all streams as text, the newest at the top."""
    table = table_of(scene, MAX_ROWS) if scene.view in ("table", "sheet") else _log_of(scene)
    if not table.rows:
        return FigureData()
    newest_first = 1 if scene.view == "sheet" else -1
    rows = table.rows[::newest_first]
    columns = [[plain(row[k], n_max=MAX_TEXT) for row in rows] for k in range(len(table.names))]
    inks: list[str | list[str]] = [
        style.muted if name in ("step", "time") else style.text_color for name in table.names
    ]
    if len(scene.items) > 1:
        inks[table.names.index("stream")] = list(table.colors[::newest_first])
    quiet = {"fill": {"color": style.background}, "line": {"color": style.grid, "width": 1}, "height": ROW}
    align = ["right" if numeric else "left" for numeric in table.numeric]
    trace = {
        "type": "table",
        "columnwidth": [_width(name, column) for name, column in zip(table.names, columns, strict=True)],
        "header": {
            **quiet, "values": [plain(name) for name in table.names], "align": align,
            "font": {"color": style.muted, "size": 11},
            "fill": {"color": mixed(style.grid, style.background, 0.5)},
        },
        "cells": {**quiet, "values": columns, "align": align, "font": {"family": MONO, "color": inks, "size": 12}},
    }  # fmt: skip
    more = (f"{table.n_more:,} more names have no column",) if table.n_more else ()
    return FigureData(traces=[trace], notices=more)


def _log_of(scene: Scene) -> TextTable:
    found = rows_of(scene, MAX_ROWS)
    several = ["stream"] if len(scene.items) > 1 else []
    return TextTable(
        names=("step", *several, "text"),
        numeric=(True, *(False for _ in several), False),
        rows=tuple((number(row.step), *(item.label for _ in several), row.value.text) for item, row in found),
        colors=tuple(item.color for item, _ in found),
    )


def _width(name: str, column: list[str]) -> int:
    return min(max(map(len, (name, *column))), MAX_WIDTH) + 2
