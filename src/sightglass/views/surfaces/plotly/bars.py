"""Bars by name: the latest values, or frames of which older ones fade."""

from __future__ import annotations

from typing import Final

import numpy as np

from sightglass.views.latest_values import Bar, bars_of, is_numbered
from sightglass.views.palette import ALARM
from sightglass.views.scales import number
from sightglass.views.scene import LatestRecord, LineSeries, Scene

from .figure_data import FigureData
from .lines import shown_limits
from .style import Json, PlotlyStyle, axis, faded, mixed, plain

MAX_BARS: Final = 1000  # about one per pixel
MAX_LABELLED: Final = 40  # beyond, values written above bars overlap
MAX_UPRIGHT: Final = 16  # beyond, names below upright bars overlap; so do names longer than `LONG` characters
LONG: Final = 12


def draw_bars(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw one bar for each name, with its value; older frames are outlines that fade."""
    if scene.categories:
        return _frames(scene, style)
    groups = [(item, bars_of(item, alone=len(scene.items) == 1)) for item in scene.items]
    names = [bar.name for _, bars in groups for bar in bars]
    upright = is_numbered(scene) or (len(names) <= MAX_UPRIGHT and max(map(len, names), default=0) <= LONG)
    traces: list[Json] = []
    for item, bars in groups:
        values = np.array([bar.value for bar in bars[:MAX_BARS]], np.float64)
        labels = [plain(bar.name) for bar in bars[:MAX_BARS]]
        trace: Json = {"type": "bar", "name": plain(item.label), "marker": {"color": item.color, "cornerradius": 3}}
        trace |= {"showlegend": len(scene.items) > 1, "orientation": "v" if upright else "h"}
        trace |= {"x": labels, "y": values} if upright else {"x": values, "y": labels}
        if len(names) <= MAX_LABELLED:
            # A value that is not finite has no bar, but its text is shown.
            texts = [number(value) for value in values]
            colors = [style.text_color if np.isfinite(value) else ALARM for value in values]
            font = {"size": 11, "color": colors}
            trace |= {"text": texts, "textposition": "outside", "textfont": font, "cliponaxis": False}
        value = "%{y}" if upright else "%{x}"
        trace["hovertemplate"] = f"%{{{'x' if upright else 'y'}}}: <b>{value}</b><extra></extra>"
        traces.append(trace)
    return FigureData(traces=traces, layout=_bar_layout(scene, style, upright=upright), notices=_bar_notices(groups))


def _bar_layout(scene: Scene, style: PlotlyStyle, *, upright: bool) -> Json:
    names = axis(style, type="category", showgrid=False, tickfont={"color": style.text_color, "size": 11})
    values = axis(style, type="log" if scene.options.log_y else "linear")
    if not scene.options.log_y:
        values |= {"zeroline": True, "zerolinecolor": mixed(style.muted, style.background, 0.6), "rangemode": "tozero"}
    if scene.options.y_limits:
        values["range"] = shown_limits(scene.options.y_limits, log=scene.options.log_y)
    if upright:
        return {"xaxis": names, "yaxis": values, "bargap": 0.25}
    return {"xaxis": values, "yaxis": {**names, "autorange": "reversed"}, "bargap": 0.25}


def _bar_notices(groups: list[tuple[LatestRecord, list[Bar]]]) -> tuple[str, ...]:
    found = []
    for item, bars in groups:
        if len(bars) > MAX_BARS:
            found.append(f"{item.label}: {len(bars) - MAX_BARS:,} more names are not drawn")
    return tuple(found)


def _frames(scene: Scene, style: PlotlyStyle) -> FigureData:
    names = [plain(place, n_max=32) for place in scene.categories]
    traces: list[Json] = []
    group = 0
    for series in scene.series:
        traces.append(_frame(series, names, group))
        group += series.alpha >= 1
    layout = _bar_layout(scene, style, upright=True)
    return FigureData(traces=traces, layout=layout | {"barmode": "group", "bargroupgap": 0.05})


def _frame(series: LineSeries, names: list[str], group: int) -> Json:
    newest = series.alpha >= 1
    outline = {"color": faded(series.color, min(1.0, series.alpha * 1.5)), "width": 1.2}
    fill = faded(series.color, 0.55) if newest else "rgba(0, 0, 0, 0)"
    found: Json = {"type": "bar", "x": names, "y": series.y, "offsetgroup": f"{group}"}
    found["marker"] = {"color": fill, "line": {**outline, "color": series.color} if newest else outline}
    if not newest:
        return found | {"showlegend": False, "hoverinfo": "skip"}
    name = f"{plain(series.label)}  <b>{plain(series.value)}</b>"
    return found | {"showlegend": True, "name": name, "hovertemplate": "%{x}: <b>%{y}</b><extra></extra>"}
