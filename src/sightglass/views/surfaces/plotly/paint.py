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
from .style import PAD, Json, PlotlyStyle, bare, base, plain, style_of
from .text_views import draw_records

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
