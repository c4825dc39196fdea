"""Views made of text: the log and the table."""

from __future__ import annotations

from typing import Final

from sightglass.views.scales import number
from sightglass.views.scene import Scene

from .figure_data import FigureData
from .style import MONO, PlotlyStyle, mixed, plain

ROW: Final = 24
MAX_TEXT: Final = 400


def draw_records(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw the last records of all streams as text, the newest at the top."""
    found = [(step, item, text) for item in scene.items for step, text in item.rows]
    if not found:
        return FigureData()
    rows = sorted(found, key=lambda row: row[0])[::-1]
    several = len(scene.items) > 1
    columns: list[list[str]] = [
        [number(step) for step, _, _ in rows],
        [plain(text, n_max=MAX_TEXT) for _, _, text in rows],
    ]
    names, widths = ["step", "text" if scene.view == "log" else "value"], [1, 8]
    inks: list[str | list[str]] = [style.muted, style.text_color]
    if several:
        columns.insert(1, [plain(item.label) for _, item, _ in rows])
        names.insert(1, "stream")
        widths, inks = [1, 2, 6], [style.muted, [item.color for _, item, _ in rows], style.text_color]
    quiet = {"fill": {"color": style.background}, "line": {"color": style.grid, "width": 1}, "height": ROW}
    align = ["right", *["left"] * (len(columns) - 1)]
    trace = {
        "type": "table",
        "columnwidth": widths,
        "header": {
            **quiet, "values": names, "align": align, "font": {"color": style.muted, "size": 11},
            "fill": {"color": mixed(style.grid, style.background, 0.5)},
        },
        "cells": {**quiet, "values": columns, "align": align, "font": {"family": MONO, "color": inks, "size": 12}},
    }  # fmt: skip
    return FigureData(traces=[trace], layout={"margin": {"b": -28}})
