"""Bars by name: the latest values, or frames of which older ones fade."""

from __future__ import annotations

from typing import Final

import numpy as np

from sightglass.core.values import Histogram
from sightglass.views.distributions import MAX_RIDGES, StepHistograms, over_steps
from sightglass.views.latest_values import Bar, bars_of, density_of, is_numbered, latest_histogram
from sightglass.views.options import ALARM
from sightglass.views.scales import number
from sightglass.views.scene import LatestRecord, LineSeries, Scene

from .figure_data import FigureData
from .lines import shown_limits
from .style import Floats, Json, PlotlyStyle, axis, bare, color_bar, color_scale, faded, mixed, plain, titled

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


# Histograms: the latest ones, or over steps, as ridges or as a heat map.

RIDGE_HEIGHT: Final = 6.0  # of the tallest ridge, in distances between two ridges


def draw_histogram(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw the latest histogram of each stream, or all stored ones over steps."""
    match scene.options.over:
        case "ridge":
            return _ridges(scene, style)
        case "heat":
            return _heat(scene, style)
    found = [(item, histogram) for item in scene.items if (histogram := latest_histogram(item)) is not None]
    density = len(found) > 1
    traces = [_outline(i, h, style) if density else _bars(i, h) for i, h in found if h.total]
    x_axis = axis(style, showgrid=False, showline=True, ticks="outside", ticklen=4, tickcolor=style.grid)
    counted = axis(style, rangemode="tozero", type="log" if scene.options.log_y else "linear")
    layout: Json = {"xaxis": titled(x_axis, "value"), "yaxis": titled(counted, "density" if density else "count")}
    layout |= {"bargap": 0, "hovermode": "x unified" if density else "closest"}
    _limit(scene, layout)
    return FigureData(traces=traces, layout=layout, notices=tuple(filter(None, map(_outside, found))))


def _bars(item: LatestRecord, h: Histogram) -> Json:
    edges = h.edges
    ends = np.stack([edges[:-1], edges[1:]], axis=1)
    return {
        "type": "bar", "x": edges[1:] / 2 + edges[:-1] / 2, "y": h.counts.astype(np.float64), "width": np.diff(edges),
        "marker": {"color": faded(item.color, 0.8), "line": {"color": item.color, "width": 0.5}}, "customdata": ends,
        "hovertemplate": "%{customdata[0]:.4g} to %{customdata[1]:.4g}: <b>%{y:,}</b><extra></extra>",
        "name": plain(item.label), "showlegend": False,
    }  # fmt: skip


def _outline(item: LatestRecord, h: Histogram, style: PlotlyStyle) -> Json:
    density = density_of(h)
    return {
        "type": "scatter", "mode": "lines", "line": {"color": item.color, "width": 1.5}, "fill": "tozeroy",
        "fillcolor": faded(item.color, 0.2), "x": np.repeat(h.edges, 2),
        "y": np.concatenate([[0], np.repeat(density, 2), [0]]), "meta": plain(item.label), "showlegend": True,
        "name": f"{plain(item.label)}  <b>{h.total:,}</b>", "hovertemplate": "%{y:.4g}<extra>%{meta}</extra>",
    }  # fmt: skip


def _ridges(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw one outline per step, the newest in front."""
    traces: list[Json] = []
    found = [(item, spread) for item in scene.items if (spread := over_steps(item.values, n_max=MAX_RIDGES))]
    alone = len(found) == 1
    # From the newest on; several streams share the steps.
    steps = list(found[0][1].steps[::-1]) if alone else sorted({s for _, one in found for s in one.steps}, reverse=True)
    for item, spread in found:
        middles, n = spread.edges[1:] / 2 + spread.edges[:-1] / 2, len(spread.steps)
        parts = _shares(spread)
        tallest = float(parts.max()) or 1.0
        for i, (step, shares) in enumerate(zip(spread.steps, parts, strict=True)):
            floor = n - 1 - i if alone else steps.index(step)
            strength = 0.3 + 0.7 * (i + 1) / n
            x = np.concatenate([middles[:1], middles, middles[-1:]])
            y = floor + np.concatenate([[0.0], shares / tallest * RIDGE_HEIGHT, [0.0]])
            traces.append({
                "type": "scatter", "mode": "lines", "x": x, "y": y, "fill": "toself",
                "fillcolor": mixed(item.color, style.background, 0.55 * strength), "hoveron": "points",
                "line": {"color": mixed(item.color, style.background, strength), "width": 1.2},
                "legendgroup": item.label, "name": plain(item.label), "showlegend": i == n - 1 and len(scene.items) > 1,
                "meta": f"step {number(step)}", "hovertemplate": "%{x:.4g}<extra>%{meta}</extra>",
            })  # fmt: skip
    x_axis = titled(
        axis(style, showgrid=False, showline=True, ticks="outside", ticklen=4, tickcolor=style.grid), "value"
    )
    shown = range(0, len(steps), max(1, -(-len(steps) // 12)))
    y_axis = axis(style, showgrid=False, tickvals=[*shown], ticktext=[number(steps[at]) for at in shown])
    layout = {"xaxis": titled(x_axis, "value"), "yaxis": titled(y_axis, "step"), "hovermode": "closest"}
    _limit(scene, layout, y=False)
    return FigureData(traces=traces, layout=layout)


def _heat(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw a heat map of the share of values in each bin at each step."""
    found = [(item, spread) for item in scene.items if (spread := over_steps(item.values)) is not None]
    traces: list[Json] = []
    layout: Json = {"hovermode": "closest"}
    for i, (item, spread) in enumerate(found):
        n, order = str(i + 1) if i else "", np.argsort(spread.steps, kind="stable")
        middles = spread.edges[1:] / 2 + spread.edges[:-1] / 2
        parts = _shares(spread)[order].T
        z = np.where(parts > 0, parts, np.nan)
        traces.append({
            "type": "heatmap", "x": spread.steps[order], "y": middles, "z": z, "xaxis": "x", "yaxis": f"y{n}",
            "colorscale": color_scale(style, diverging=False), "showscale": i == 0, "zmin": 0.0,
            "meta": plain(item.label),
            "colorbar": color_bar(style, tickformat=".0%"),
            "hovertemplate": "step %{x}, about %{y:.4g}: <b>%{z:.1%}</b><extra>%{meta}</extra>",
        })  # fmt: skip
        bottom = (len(found) - 1 - i) / len(found)
        domain = [bottom + (0.04 if i < len(found) - 1 else 0), bottom + 1 / len(found)]
        layout[f"yaxis{n}"] = titled(
            axis(style, showgrid=False, domain=domain), item.label if len(found) > 1 else "value"
        )
    last = f"y{len(found)}" if len(found) > 1 else "y"
    layout["xaxis"] = titled(axis(style, showgrid=False, anchor=last), "step")
    layout["yaxis"] = layout.get("yaxis", bare())
    _limit(scene, layout)
    return FigureData(traces=traces, layout=layout)


def _shares(spread: StepHistograms) -> Floats:
    """Return the share of a step's values in each bin, of shape (n, n_bins)."""
    shares: Floats = spread.counts / spread.counts.sum(axis=1, keepdims=True)
    return shares


def _limit(scene: Scene, layout: Json, *, y: bool = True) -> None:
    options = scene.options
    if options.x_limits:
        layout["xaxis"]["range"] = shown_limits(options.x_limits, log=False)
    if options.y_limits and y:
        layout["yaxis"]["range"] = shown_limits(options.y_limits, log=layout["yaxis"].get("type") == "log")


def _outside(found: tuple[LatestRecord, Histogram]) -> str:
    item, h = found
    parts = [f"{n:,} {name}" for name, n in (("NaN", h.n_nan), ("+Inf", h.n_posinf), ("-Inf", h.n_neginf)) if n]
    return f"{item.label}: {h.total:,} values, and {', '.join(parts)} not shown" if parts else ""
