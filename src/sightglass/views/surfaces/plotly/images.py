"""Views made of pixels: heat maps, grids of images, encoded figures."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from sightglass.core.values import Figure
from sightglass.storage.format.png import encode_png
from sightglass.views.latest_values import bounds_of, images_of, resample
from sightglass.views.scales import number
from sightglass.views.scene import LatestRecord, Scene
from sightglass.views.series_buffer import as_floats

from .figure_data import FigureData
from .style import Floats, Json, PlotlyStyle, axis, bare, color_bar, color_scale, plain

MAX_CELLS: Final = 512  # a side: about the pixels of a chart; more are slow in a browser
MAX_IMAGES: Final = 256
# In CSS pixels: the smallest and the largest width of an image, and the width of a grid.
MIN_TILE, MAX_TILE, WIDTH = 72, 300, 720
CAPTION: Final = 20
GAP: Final = 8
# Plotly draws a figure without traces as a chart with axes from -1 to 6.
NO_TRACE: Final = {"type": "scatter", "x": [], "y": []}
MAX_SQUARE: Final = 6  # the largest aspect ratio at which cells stay square
SHOWN_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml")


def draw_heatmap(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw the latest matrix of each stream, with the first row at the top."""
    shown = [(item, as_floats(item.record.value)) for item in scene.items if item.record is not None]
    traces: list[Json] = []
    layout: Json = {}
    notices = []
    for i, (item, matrix) in enumerate(shown):
        n = str(i + 1) if i else ""
        tall, wide = matrix.shape
        n_bad = int((~np.isfinite(matrix)).sum())
        cells = resample(matrix, min(tall, MAX_CELLS), min(wide, MAX_CELLS), mean=False)
        about = f"{item.label}: {tall:,} x {wide:,}"
        if n_bad:
            notices.append(f"{about}, {n_bad:,} not finite")
        if cells.shape != matrix.shape:
            notices.append(
                f"{about} entries reduced to {cells.shape[0]} x {cells.shape[1]} cells, each showing its largest entry"
            )
        share = [i / len(shown) + (0.03 if i else 0), (i + 1) / len(shown) - (0.03 if i < len(shown) - 1 else 0)]
        traces.append(_heat(item, cells, matrix.shape, style, n=n, share=share, alone=len(shown) == 1))
        layout |= _cell_axes(cells.shape, style, n=n, share=share, title=item.label if len(shown) > 1 else "")
    ratio = max((m.shape[0] / m.shape[1] for _, m in shown), default=1) / max(len(shown), 1)
    layout |= {"height": round(min(max(WIDTH * ratio, 220), 480))}
    return FigureData(traces=traces, layout=layout | {"hovermode": "closest"}, notices=tuple(notices))


def draw_images(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw the latest images of all streams in one grid, with captions below."""
    found = [one for item in scene.items for one in images_of(item)]
    if not found:
        return FigureData()
    shown = found[:MAX_IMAGES]
    tall, wide = max(p.shape[0] for p, _ in shown), max(p.shape[1] for p, _ in shown)
    n_across = across(len(shown), tall, wide)
    n_down = -(-len(shown) // n_across)
    tile = min(MAX_TILE, WIDTH // n_across)
    # All heights are in pixels, whatever the width of the page: a caption never covers the next row.
    below = CAPTION if any(caption for _, caption in shown) else GAP
    row, high = round(tile * tall / wide) + below, round(tile * tall / wide)
    images: list[Json] = []
    captions: list[Json] = []
    font = {"color": style.muted, "size": 11}
    for i, (pixels, caption) in enumerate(shown):
        left, top = (i % n_across) / n_across, 1 - (i // n_across) / n_down
        images.append({
            "source": _source(pixels, times=max(1, round(tile / wide))), "xref": "paper", "yref": "paper", "x": left,
            "y": top, "sizex": 1 / n_across - GAP / WIDTH, "sizey": high / (row * n_down), "sizing": "contain",
            "xanchor": "left", "yanchor": "top", "layer": "above",
        })  # fmt: skip
        if caption:
            captions.append({
                "text": plain(caption, n_max=max(6, tile // 7)), "showarrow": False, "font": font, "borderpad": 0,
                "hovertext": plain(caption, n_max=400), "xref": "paper", "yref": "paper", "x": left,
                "y": top - high / (row * n_down), "xanchor": "left", "yanchor": "top",
            })  # fmt: skip
    layout = {
        "xaxis": bare(), "yaxis": bare(), "images": images, "annotations": captions, "height": n_down * row,
    }  # fmt: skip
    more = (f"{len(found) - MAX_IMAGES:,} more images are not drawn",) if len(found) > MAX_IMAGES else ()
    return FigureData(traces=[dict(NO_TRACE)], layout=layout, notices=more)


def _source(pixels: Floats, *, times: int) -> str:
    """Return a picture whose pixels are enlarged by a whole factor, so that browsers do not blur them."""
    block = np.rint(np.repeat(np.repeat(pixels, times, axis=0), times, axis=1) * 255).astype(np.uint8)
    return f"data:image/png;base64,{base64.b64encode(encode_png(block)).decode()}"


def draw_picture(scene: Scene, style: PlotlyStyle) -> FigureData:
    """Draw the latest figures side by side. A notice describes those that browsers cannot embed, such as PDF."""
    figures = [(item, item.record.value) for item in scene.items
               if item.record is not None and isinstance(item.record.value, Figure)]  # fmt: skip
    shown = [(item, one) for item, one in figures if one.media_type in SHOWN_TYPES]
    images = [
        {
            "source": f"data:{one.media_type};base64,{base64.b64encode(one.data).decode()}", "xref": "paper",
            "yref": "paper", "x": i / len(shown), "y": 1, "sizex": 1 / len(shown), "sizey": 1, "sizing": "contain",
            "xanchor": "left", "yanchor": "top", "layer": "above",
        }
        for i, (_, one) in enumerate(shown)
    ]  # fmt: skip
    notices = [f"{item.label}: {one.media_type}, {len(one.data) / 1000:,.1f} kB, at step {number(item.record.step)}, "
               "which browsers cannot embed" for item, one in figures
               if one.media_type not in SHOWN_TYPES and item.record is not None]  # fmt: skip
    layout: Json = {"xaxis": bare(), "yaxis": bare(), "images": images, "height": 420}
    return FigureData(traces=[dict(NO_TRACE)], layout=layout, notices=tuple(notices))


def across(n: int, tall: int, wide: int) -> int:
    """Return the number of columns for n images, so that the grid is about 1.6 times as wide as high."""
    ideal = math.sqrt(n * 1.6 * tall / wide)
    return max(1, min(n, round(ideal), WIDTH // MIN_TILE))


def _heat(
    item: LatestRecord,
    cells: Floats,
    shape: Sequence[int],
    style: PlotlyStyle,
    *,
    n: str,
    share: list[float],
    alone: bool,
) -> Json:
    bounds = bounds_of(cells)
    low, high = bounds.low, bounds.high
    x, y = (np.arange(k) * (full / k) for k, full in ((cells.shape[1], shape[1]), (cells.shape[0], shape[0])))
    below = {"orientation": "h", "x": sum(share) / 2, "y": -0.02, "len": share[1] - share[0], "yanchor": "top"}
    key = color_bar(style, **({"len": 1} if alone else below))
    return {
        "type": "heatmap", "z": cells, "x": np.floor(x), "y": np.floor(y), "zmin": low,
        "zmax": high if high > low else low + 1, "colorscale": color_scale(style, diverging=bounds.diverging),
        "colorbar": key, "xaxis": f"x{n}", "yaxis": f"y{n}", "hoverongaps": True,
        "hovertemplate": "row %{y}, column %{x}: <b>%{z:.4g}</b><extra></extra>", "name": plain(item.label),
    }  # fmt: skip


def _cell_axes(shape: Sequence[int], style: PlotlyStyle, *, n: str, share: list[float], title: str) -> Json:
    quiet = {"showgrid": False, "ticks": "", "constrain": "domain"}
    x = axis(style, domain=share, anchor=f"y{n}", **quiet)
    x |= {"side": "top", "title": {**x["title"], "text": plain(title, n_max=48)}}
    y = axis(style, anchor=f"x{n}", autorange="reversed", **quiet)
    if max(shape) <= MAX_SQUARE * min(shape):
        y["scaleanchor"] = f"x{n}"
    for side, k in ((x, shape[1]), (y, shape[0])):
        if k <= 12:
            side["dtick"] = 1
    return {f"xaxis{n}": x, f"yaxis{n}": y}
