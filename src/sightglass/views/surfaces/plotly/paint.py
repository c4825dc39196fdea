"""A scene as figure data: the painter of each view, and the title, legend and notices around it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Final

from sightglass.views.choose import ViewName
from sightglass.views.options import ALARM
from sightglass.views.scales import number
from sightglass.views.scene import Scene
from sightglass.views.sheets import TextTable, rows_of, table_of

from .bars import draw_bars, draw_histogram
from .figure_data import FigureData
from .images import draw_heatmap, draw_images, draw_picture
from .lines import draw_lines, draw_lines_3d, draw_paths
from .style import MONO, PAD, Json, PlotlyStyle, bare, base, mixed, plain, style_of

# Views made of text: the log and the table.

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


HEIGHT: Final = 400
MAX_NOTICES: Final = 4
HEAD: Final = (
    84  # the height of the title and what is below it, in CSS pixels, for views whose height is their content's
)
WRAP: Final = 110
MAX_TITLE: Final = 70  # characters: about the width of a notebook

PAINTERS: Final[Mapping[ViewName, Callable[[Scene, PlotlyStyle], FigureData]]] = {
    "line": draw_lines,
    "xy": draw_paths,
    "scatter": draw_paths,
    "annotated": draw_paths,
    "line3d": draw_lines_3d,
    "bars": draw_bars,
    "histogram": draw_histogram,
    "heatmap": draw_heatmap,
    "images": draw_images,
    "picture": draw_picture,
    "sounds": draw_records,
    "sheet": draw_records,
    "log": draw_records,
    "table": draw_records,
}


def draw(scene: Scene, *, height: int | None = None) -> FigureData:
    """Draw a scene.

    Args:
        scene: The scene.
        height: The height of the figure in CSS pixels; by default what suits the view.
    """
    style = style_of(dark=scene.options.dark)
    inner = PAINTERS[scene.view](scene, style) if scene.view else FigureData()
    layout = base(style) | {"annotations": [], "images": []} | inner.layout
    if not inner.traces:
        layout |= _waiting(scene, style)
    keys = [trace for trace in inner.traces if trace.get("showlegend") and trace.get("name")]
    notices = [*scene.notices, *inner.notices]
    layout["title"] = _title(scene, style, keys, notices)
    layout["showlegend"] = _has_legend(scene, keys)
    drawn = layout.pop("height", None)
    layout["height"] = height or (drawn + HEAD if drawn else HEIGHT)
    # Constant for a view, so that Plotly preserves the viewer's zoom and hidden lines while values arrive.
    layout["uirevision"] = f"{scene.view}"
    return FigureData(traces=inner.traces, layout=layout, notices=tuple(notices))


def _title(scene: Scene, style: PlotlyStyle, keys: list[Json], notices: list[str]) -> Json:
    """Return the title, and below it what is shown and the notices; Plotly makes room for all of them."""
    text = f"<b>{plain(scene.title, n_max=MAX_TITLE)}</b>"
    named = [series for series in scene.series if series.label]
    if len(named) == 1 and not _has_legend(scene, keys):
        one = named[0]
        color = ALARM if "NaN" in one.value or "Inf" in one.value else one.color
        state = f" ({plain(one.state)})" if one.state else ""
        text += f'  <span style="color: {color}">{plain(one.value)}</span>{state}'
    more = [f"and {len(notices) - MAX_NOTICES} more"] if len(notices) > MAX_NOTICES else []
    rows = [line for notice in (*notices[:MAX_NOTICES], *more) for line in textwrap.wrap(notice, WRAP, max_lines=3)]
    below = "<br>".join(plain(row, n_max=WRAP + 1) for row in (scene.subtitle, *rows) if row)
    return {
        "text": text, "font": {"size": 15, "color": style.text_color}, "automargin": True,
        "subtitle": {"text": below, "font": {"size": 12, "color": style.muted}},
        "x": 0, "xref": "container", "xanchor": "left", "yref": "container", "pad": {"l": PAD, "t": PAD, "b": PAD},
    }  # fmt: skip


def _has_legend(scene: Scene, keys: list[Json]) -> bool:
    named = [series.label for series in scene.series if series.label]
    return len(keys) > 1 or (bool(named) and bool(keys) and named != [scene.title])


def _waiting(scene: Scene, style: PlotlyStyle) -> Json:
    text = "waiting for values …" if not any(item.record for item in scene.items) else "nothing to draw yet"
    position = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    note = {"text": text, "showarrow": False, "font": {"color": style.muted, "size": 13}, **position}
    return {"xaxis": bare(), "yaxis": bare(), "annotations": [note]}
