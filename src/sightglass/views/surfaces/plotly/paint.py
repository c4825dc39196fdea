"""A scene as figure data: the painter of each view, and the title, legend and notices around it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import Final

from sightglass.views.choose import ViewName
from sightglass.views.palette import ALARM
from sightglass.views.scene import Scene

from .bars import draw_bars
from .figure_data import FigureData
from .histograms import draw_histogram
from .images import draw_heatmap, draw_images, draw_picture
from .lines import draw_lines, draw_lines_3d, draw_paths
from .style import Json, PlotlyStyle, bare, base, plain, style_of
from .text_views import draw_records

HEIGHT: Final = 400
MAX_NOTICES: Final = 4
MAX_ON_TOP: Final = 6  # entries of a legend above the chart; more go to its right
NOTICE_ROW: Final = 16
WRAP: Final = 110

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
    more = layout.pop("margin", {})
    if not inner.traces:
        layout |= _waiting(scene, style)
    keys = [trace for trace in inner.traces if trace.get("showlegend") and trace.get("name")]
    notices = [*scene.notices, *inner.notices]
    footer = _footer(notices, style)
    on_top = _has_legend(scene, keys) and len(keys) <= MAX_ON_TOP
    top, bottom = 64 + (24 if on_top else 0) + more.get("t", 0), 44 + more.get("b", 0)
    if footer:
        layout["annotations"] = [*layout["annotations"], footer | {"yshift": -bottom}]
        bottom += NOTICE_ROW * (footer["text"].count("<br>") + 1) + 6
    layout["title"] = _title(scene, style, keys)
    layout["showlegend"] = _has_legend(scene, keys)
    layout["legend"] = {**layout["legend"], **_legend_position(on_top=on_top)}
    layout["margin"] = {"l": 24, "r": 24, "t": top, "b": bottom, "pad": 0}
    drawn = layout.pop("height", None)
    layout["height"] = height or (drawn + top + bottom if drawn else HEIGHT)
    # Constant for a view, so that Plotly preserves the viewer's zoom and hidden lines while values arrive.
    layout["uirevision"] = f"{scene.view}"
    return FigureData(traces=inner.traces, layout=layout, notices=tuple(notices))


def _title(scene: Scene, style: PlotlyStyle, keys: list[Json]) -> Json:
    text = f"<b>{plain(scene.title, n_max=100)}</b>"
    named = [series for series in scene.series if series.label]
    if len(named) == 1 and not _has_legend(scene, keys):
        one = named[0]
        color = ALARM if "NaN" in one.value or "Inf" in one.value else one.color
        state = f" ({plain(one.state)})" if one.state else ""
        text += f'  <span style="color: {color}">{plain(one.value)}</span>{state}'
    text += f'<br><span style="color: {style.muted}; font-size: 12px">{plain(scene.subtitle, n_max=120)}</span>'
    position = {"x": 0, "xref": "container", "y": 1, "yref": "container", "xanchor": "left", "yanchor": "top"}
    font = {"size": 15, "color": style.text_color}
    return {"text": text, "font": font, "pad": {"l": 20, "t": 22}, **position}


def _has_legend(scene: Scene, keys: list[Json]) -> bool:
    named = [series.label for series in scene.series if series.label]
    return len(keys) > 1 or (bool(named) and bool(keys) and named != [scene.title])


def _legend_position(*, on_top: bool) -> Json:
    if on_top:
        return {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"}
    return {"orientation": "v", "x": 1.01, "xanchor": "left", "y": 1, "yanchor": "top"}


def _footer(notices: list[str], style: PlotlyStyle) -> Json:
    if not notices:
        return {}
    more = [f"and {len(notices) - MAX_NOTICES} more"] if len(notices) > MAX_NOTICES else []
    rows = [line for notice in (*notices[:MAX_NOTICES], *more) for line in textwrap.wrap(notice, WRAP, max_lines=3)]
    text = "<br>".join(plain(row, n_max=WRAP + 1) for row in rows)
    position = {"x": 0, "xref": "paper", "y": 0, "yref": "paper", "xanchor": "left", "yanchor": "top"}
    return {"text": text, "showarrow": False, "align": "left", "font": {"color": style.muted, "size": 11}, **position}


def _waiting(scene: Scene, style: PlotlyStyle) -> Json:
    text = "waiting for values …" if not any(item.record for item in scene.items) else "nothing to draw yet"
    position = {"x": 0.5, "y": 0.5, "xref": "paper", "yref": "paper"}
    note = {"text": text, "showarrow": False, "font": {"color": style.muted, "size": 13}, **position}
    return {"xaxis": bare(), "yaxis": bare(), "annotations": [note]}
