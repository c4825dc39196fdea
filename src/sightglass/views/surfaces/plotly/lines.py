"""Views made of lines: over steps, in x and y, in three dimensions.

Values that have no position are marked, as in the terminal: NaN as a cross at the lower edge, an infinity as a triangle
at the edge, a value computed from a part of its window as a ring. The marks have their own hidden, fixed y axis from
0 to 1.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import numpy as np

from sightglass.views.latest_values import log_axis_notices
from sightglass.views.options import ALARM, AXIS
from sightglass.views.scales import axis_of, number
from sightglass.views.scene import LineSeries, Scene
from sightglass.views.summaries import RESTARTED

from .figure_data import FigureData
from .style import DASHES, Floats, Json, PlotlyStyle, axis, bare, faded, plain, titled

MARKS: Final = "y9"
MAX_MARKS: Final = 500  # about one for every other pixel of a chart
MAX_UNIFIED: Final = 12  # with more lines, one label for all of them would not fit
MAX_NOTE: Final = 40
MAX_RULES: Final = 50  # more would hide the lines
APART: Final = 0.12  # of the points' range: labels that are nearer would cover each other


def draw_lines(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw one line per series over x."""
    traces: list[Json] = []
    for series in scene.series:
        x = _x(scene, series.x)
        common = _common(series)
        if series.low is not None and series.high is not None:
            band = _band(x, series.low, series.high)
            fill = {"mode": "lines", "line": {"width": 0}, "fill": "toself", "fillcolor": faded(series.color, 0.22)}
            traces.append({**common, **band, **fill, "hoverinfo": "skip", "showlegend": False})
        if series.raw is not None:
            line = {"color": faded(series.color, 0.28), "width": 1}
            traces.append({**common, "mode": "lines", "line": line, "x": x, "y": series.raw, "hoverinfo": "skip",
                           "showlegend": False})  # fmt: skip
        traces.append({**common, **_styled(series), "x": x, "y": series.y})
    return FigureData(
        traces=[*traces, *_marks(scene)], layout=_layout(scene, style), notices=tuple(log_axis_notices(scene))
    )


def draw_paths(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw each series as a path in x and y with its last point marked, or as points, with annotations."""
    traces: list[Json] = []
    for series in scene.series:
        common = {**_common(series), "x": series.x, "y": series.y}
        if scene.view == "scatter":
            marker = {"color": faded(series.color, 0.7), "size": 6}
            traces.append({**common, "mode": "markers", "marker": marker})
            continue
        traces.append({**common, **_styled(series)})
        ends = np.flatnonzero(np.isfinite(series.x) & np.isfinite(series.y))[-1:]
        marker = {"color": series.color, "size": 9, "line": {"color": style.background, "width": 1.5}}
        head = {"mode": "markers", "marker": marker, "hoverinfo": "skip", "showlegend": False}
        traces.append({**common, "x": series.x[ends], "y": series.y[ends], **head})
    if scene.texts:
        traces.append(_notes(scene, style))
    return FigureData(traces=traces, layout=_layout(scene, style) | {"hovermode": "closest"})


def draw_lines_3d(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw each series as a path in three dimensions."""
    traces = []
    for series in scene.series:
        z = series.z if series.z is not None else np.zeros(len(series.x))
        line = {"color": series.color, "width": 4, "dash": DASHES[series.dash % len(DASHES)]}
        traces.append({"type": "scatter3d", "mode": "lines", "x": series.x, "y": series.y, "z": z, "line": line,
                       **_named(series)})  # fmt: skip
        ends = np.flatnonzero(np.isfinite(series.x) & np.isfinite(series.y) & np.isfinite(z))[-1:]
        marker = {"color": series.color, "size": 5}
        traces.append({"type": "scatter3d", "mode": "markers", "x": series.x[ends], "y": series.y[ends], "z": z[ends],
                       "marker": marker, "showlegend": False, "hoverinfo": "skip"})  # fmt: skip
    sides = {name: _axis_3d(scene, style, name) for name in "xyz"}
    space = {f"{name}axis": side for name, side in sides.items()}
    return FigureData(
        traces=traces,
        layout={
            "scene": {
                **space,
                "bgcolor": style.background,
                "aspectmode": "cube",
                "camera": {"eye": {"x": 1.15, "y": 1.15, "z": 0.75}},
            }
        },
    )


def shown_limits(limits: tuple[float, float], *, log: bool) -> list[float]:
    """Return limits in Plotly's terms: for a logarithmic axis, the exponents of ten."""
    return [float(end) for end in (np.log10(limits) if log else limits)]


def _layout(scene: Scene, style: PlotlyStyle) -> Json:
    options = scene.options
    ruled = axis(style, showgrid=False, showline=True, ticks="outside", ticklen=4, tickcolor=style.grid)
    # The line at the pointer is as thin as the grid.
    x_axis = titled(ruled | {"spikethickness": 1, "spikecolor": style.muted, "spikedash": "dot"}, scene.axes[0])
    if scene.categories:
        names = [plain(place, n_max=32) for place in scene.categories]
        x_axis |= {"type": "category", "categoryorder": "array", "categoryarray": list(dict.fromkeys(names))}
    elif _is_time(scene):
        x_axis["type"] = "date"
    elif options.log_x:
        x_axis["type"] = "log"
    if options.x_limits and not scene.categories:
        x_axis["range"] = _x_limits(scene)
    n_named = sum(bool(series.label) for series in scene.series)
    found: Json = {"xaxis": x_axis, "hovermode": "x unified" if n_named <= MAX_UNIFIED else "closest"}
    found |= {"yaxis": titled(_y_axis(scene, style, second=False), scene.side(second=False))}
    if any(series.second for series in scene.series):
        right = {"overlaying": "y", "side": "right", "showgrid": False, "tickmode": "auto"}
        found["yaxis2"] = titled({**_y_axis(scene, style, second=True), **right}, scene.side(second=True))
    if scene.view == "line":
        found["yaxis9"] = bare(overlaying="y", range=[0, 1], fixedrange=True)
    return found | (_restarts(scene, style) if scene.restarts else {})


def _restarts(scene: Scene, style: PlotlyStyle) -> Json:
    """Return a thin dashed rule for each restart of a run, and its label, whose ground covers grid lines."""
    shown = np.array(scene.restarts[-MAX_RULES:])
    known = [series.x[np.isfinite(series.x)] for series in scene.series]
    ends = [end for x in known if len(x) for end in (x.min(), x.max())]
    labelled: list[int] = []
    for i in reversed(range(len(shown))):  # the newest first
        if not labelled or shown[labelled[-1]] - shown[i] > APART * (max(ends) - min(ends)):
            labelled.append(i)
    xs = np.asarray(_x(scene, shown), np.float64).tolist()
    places = {"xref": "x", "yref": "paper"}
    rule = {
        "type": "line", "y0": 0, "y1": 1, "layer": "below", **places,
        "line": {"color": style.muted, "width": 1, "dash": "4px,3px"},
    }  # fmt: skip
    label = {
        "text": RESTARTED, "showarrow": False, "y": 1, "xanchor": "left", "yanchor": "top", "xshift": 3, "yshift": -2,
        "borderpad": 1, "bgcolor": style.background, "font": {"color": style.muted, "size": 11}, **places,
    }  # fmt: skip
    return {
        "shapes": [{**rule, "x0": x, "x1": x} for x in xs],
        "annotations": [{**label, "x": xs[i]} for i in labelled],
    }


def _y_axis(scene: Scene, style: PlotlyStyle, *, second: bool) -> Json:
    options, log = scene.options, scene.options.log_y
    found = axis(style, type="log" if log else "linear")
    if options.y_limits and not second:
        found["range"] = shown_limits(options.y_limits, log=log)
    elif options.clip:
        columns = [part for series in scene.series if series.second == second for part in _heights(series)]
        if clipped := axis_of(columns, log=log, clip=True):
            low, high = shown_limits((clipped.low, clipped.high), log=log)
            found["range"] = [low - 0.04 * (high - low), high + 0.04 * (high - low)]
    return found


def _heights(series: LineSeries) -> list[Floats]:
    return [part for part in (series.y, series.raw, series.low, series.high) if part is not None]


def _common(series: LineSeries) -> Json:
    return {"type": "scatter", "yaxis": "y2" if series.second else "y", **_named(series)}


def _named(series: LineSeries) -> Json:
    if not series.label:
        return {"showlegend": False, "hoverinfo": "skip"}
    value = f"  <b>{plain(series.value)}</b>" if series.value else ""
    state = f" ({plain(series.state)})" if series.state else ""
    found = {"name": f"{plain(series.label)}{value}{state}", "showlegend": True, "meta": plain(series.label)}
    return {**found, "hovertemplate": "%{y}<extra>%{meta}</extra>"}


def _styled(series: LineSeries) -> Json:
    width = 2.0 if series.alpha >= 1 else 1.5
    color = series.color if series.alpha >= 1 else faded(series.color, series.alpha)
    found = {"mode": "lines", "line": {"color": color, "width": width, "dash": DASHES[series.dash % len(DASHES)]}}
    if len(series.x) == 1 or (len(series.x) < 40 and series.alpha >= 1 and series.raw is None):
        # A single point makes no line, and a few points are clearer as markers.
        found |= {"mode": "lines+markers", "marker": {"color": series.color, "size": 5}}
    return {**found, "connectgaps": False}


def _band(x: Floats, low: Floats, high: Floats) -> Json:
    """Return the outline of a band, one polygon per stretch without a gap."""
    solid = np.isfinite(low) & np.isfinite(high)
    if solid.all():
        return {"x": np.concatenate([x, x[::-1]]), "y": np.concatenate([low, high[::-1]])}
    parts_x: list[Floats] = [np.empty(0)]
    parts_y: list[Floats] = [np.empty(0)]
    bounds = np.flatnonzero(np.diff(np.concatenate([[0], solid.astype(int), [0]])))
    for start, end in bounds.reshape(-1, 2):
        part = slice(int(start), int(end))
        parts_x += [x[part], x[part][::-1], x[:1] * np.nan]
        parts_y += [low[part], high[part][::-1], low[:1] * np.nan]
    return {"x": np.concatenate(parts_x), "y": np.concatenate(parts_y)}


def _marks(scene: Scene) -> list[Json]:
    """Return a trace of marks for values without a position: none or one, of at most `MAX_MARKS` marks."""
    found: list[tuple[float, float, str, str, str]] = [
        (at, 0.0, "circle-open", AXIS, "computed from a part of its window") for at in scene.marks
    ]
    for series in scene.series:
        name = plain(series.label)
        # The raw values, if any: a smoothed line continues across a gap.
        y = series.raw if series.raw is not None else series.y
        # One mark per gap: a mark per point would draw a wide gap as a bar of crosses.
        bounds = np.flatnonzero(np.diff(np.concatenate([[0], np.isnan(y).astype(int), [0]]))).reshape(-1, 2)
        for first, end in bounds[-MAX_MARKS:].tolist():
            low, high = series.x[first], series.x[end - 1]
            more = f", {number(low)} to {number(high)}" if end - first > 1 and not _is_time(scene) else ""
            found.append(((low + high) / 2, 0.0, "x-thin-open", ALARM, f"{name}: NaN{more}"))
        for sign, height, symbol in ((np.inf, 0.985, "triangle-up"), (-np.inf, 0.015, "triangle-down")):
            for at in series.x[y == sign][-MAX_MARKS:]:
                found.append((at, height, symbol, ALARM, f"{name}: {'+' if sign > 0 else '-'}Inf"))
    if not found:
        return []
    ats, heights, symbols, colors, one_line = zip(*found[-MAX_MARKS:], strict=True)
    marker = {"symbol": list(symbols), "color": list(colors), "size": 8, "line": {"width": 1.5, "color": list(colors)}}
    return [{
        "type": "scatter", "mode": "markers", "yaxis": MARKS, "x": _x(scene, np.array(ats, np.float64)),
        "y": np.array(heights), "marker": marker, "text": list(one_line), "hovertemplate": "%{text}<extra></extra>",
        "showlegend": False, "cliponaxis": False,
    }]  # fmt: skip


def _notes(scene: Scene, style: PlotlyStyle) -> Json:
    x, y, one_line, colors = zip(*scene.texts, strict=True)
    return {
        "type": "scatter", "mode": "markers+text", "x": np.array(x), "y": np.array(y), "showlegend": False,
        "text": [plain(text, n_max=MAX_NOTE) for text in one_line], "textposition": "top center",
        "textfont": {"color": style.text_color, "size": 11}, "cliponaxis": False,
        "customdata": [plain(text, n_max=400) for text in one_line],
        "hovertemplate": "%{customdata}<br>%{x}, %{y}<extra></extra>",
        "marker": {"color": style.background, "size": 7, "line": {"color": list(colors), "width": 2}},
    }  # fmt: skip


def _axis_3d(scene: Scene, style: PlotlyStyle, name: str) -> Json:
    options, font = scene.options, {"color": style.muted, "size": 11}
    log = {"x": options.log_x, "y": options.log_y, "z": False}[name]
    limits = {"x": options.x_limits, "y": options.y_limits, "z": None}[name]
    title = {"text": plain(scene.axes["xyz".index(name)], n_max=60), "font": font}
    found = {
        "title": title, "tickfont": font, "gridcolor": style.grid, "zeroline": False,
        "backgroundcolor": style.background, "showbackground": False, "type": "log" if log else "linear",
    }  # fmt: skip
    return found | ({"range": shown_limits(limits, log=log)} if limits else {})


def _is_time(scene: Scene) -> bool:
    return scene.options.x == "wall" and scene.view == "line" and not scene.categories


def _x(scene: Scene, x: Floats) -> Any:
    if scene.categories:
        return [plain(scene.categories[int(at)], n_max=32) for at in x]
    return _milliseconds(x) if _is_time(scene) else x


def _milliseconds(x: Floats) -> Floats:
    """Return times in Plotly's milliseconds; Plotly ignores time zones, so the local offset is added."""
    finite = x[np.isfinite(x)]
    if not len(finite):
        return x * 1000
    offset = datetime.fromtimestamp(float(finite[-1])).astimezone().utcoffset()
    return (x + (offset.total_seconds() if offset else 0.0)) * 1000


def _x_limits(scene: Scene) -> list[float]:
    limits = scene.options.x_limits
    assert limits is not None
    if _is_time(scene):
        return [float(end) for end in _milliseconds(np.array(limits, np.float64))]
    return shown_limits(limits, log=scene.options.log_x)
