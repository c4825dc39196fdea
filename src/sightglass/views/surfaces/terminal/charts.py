"""Charts with two axes: lines over steps, paths in x and y, outlines of histograms.

The canvas is drawn in dots; the frame around it is thin and grey, so that the data stands out. Values that have no
position are marked: NaN as a cross on the x axis, ±Inf as an arrow at the edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len
from rich.text import Text

from sightglass.core.values import Histogram
from sightglass.views.latest_values import density_of
from sightglass.views.options import ALARM, AXIS
from sightglass.views.scales import Axis, axis_of, number
from sightglass.views.scene import LineSeries, Scene
from sightglass.views.summaries import RESTARTED
from sightglass.views.thinning import thin

from .canvas import Canvas, Capabilities, styled

MIN_WIDTH, MIN_HEIGHT = 16, 3
GRID = f"dim {AXIS}"

Floats = npt.NDArray[np.float64]
Mark = tuple[int, str, str]


def paint_lines(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint one line per series over steps."""
    x_axis, y_axis = _axes(scene)
    if y_axis is None or x_axis is None:
        return [*nothing_finite(scene, height)]
    gutter, canvas = _canvas(y_axis, width, height)
    _grid(canvas, y_axis, caps)
    marks: list[Mark] = []
    for step in scene.marks:
        if x_axis.low <= step <= x_axis.high:
            marks.append((_column(x_axis, step, canvas), caps.pick("◦", "o"), AXIS))
    columns = [_column(x_axis, at, canvas) for at in scene.restarts if x_axis.low <= at <= x_axis.high]
    for column, row in product(columns, range(canvas.height)):
        canvas.under(column, row, caps.pick("┊", ":"), AXIS)
    # The background first: edges of bands, raw lines, older frames.
    for series in scene.series:
        for y in (series.low, series.high, series.raw):
            if y is not None:
                dim = replace(series, y=y, color=f"dim {series.color}")
                marks += _draw(canvas, dim, x_axis, y_axis, caps)
    for series in scene.series:
        faint = replace(series, color=f"dim {series.color}") if series.alpha < 1 else series
        marks += _draw(canvas, faint, x_axis, y_axis, caps)
    for column in reversed(columns):
        _beside(canvas, column, f" {RESTARTED} ")
    return frame(
        canvas, x_axis, y_axis, gutter=gutter, caps=caps, x_name=scene.axes[0], marks=marks, categories=scene.categories
    )


def paint_path(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint each series as a path in x and y, with its last point marked, and annotations if they fit."""
    x_axis, y_axis = _axes(scene)
    if y_axis is None or x_axis is None:
        return [*nothing_finite(scene, height)]
    gutter, canvas = _canvas(y_axis, width, height - 1)
    _grid(canvas, y_axis, caps)
    for series in scene.series:
        px, py = x_axis.to_pixels(series.x, canvas.n_x), y_axis.to_pixels(series.y, canvas.n_y)
        if scene.view == "scatter":
            canvas.dots(px, py, series.color)
        else:
            canvas.path(px, py, series.color)
        solid = np.flatnonzero(np.isfinite(px) & np.isfinite(py))
        if len(solid) and scene.view != "scatter":
            canvas.put(*_cell(canvas, px[solid[-1]], py[solid[-1]]), caps.pick("●", "@"), f"bold {series.color}")
    for x, y, text, color in reversed(scene.texts):
        px, py = x_axis.to_pixels(x, canvas.n_x), y_axis.to_pixels(y, canvas.n_y)
        if np.isfinite(px) and np.isfinite(py):
            _annotate(canvas, _cell(canvas, float(px), float(py)), text, color=color, caps=caps)
    rows = frame(canvas, x_axis, y_axis, gutter=gutter, caps=caps, x_name=scene.axes[0])
    return [Text(f"{scene.axes[1]:>{gutter + 1}}", AXIS, no_wrap=True, end=""), *rows]


def paint_outlines(
    outlines: Sequence[tuple[Histogram, str]], width: int, height: int, caps: Capabilities
) -> list[Text]:
    """Paint several histograms on common axes, each as the outline of its density.

    Args:
        outlines: The histograms with their colours.
        width: The available width in cells.
        height: The available height in cells.
        caps: What the terminal can do.
    """
    densities = [
        (np.repeat(histogram.edges, 2), np.concatenate([[0], np.repeat(density_of(histogram), 2), [0]]), color)
        for histogram, color in outlines
    ]
    x_axis = axis_of(x for x, _, _ in densities)
    y_axis = axis_of((y for _, y, _ in densities), zero=True)
    assert x_axis is not None
    assert y_axis is not None
    gutter, canvas = _canvas(y_axis, width, height)
    for x, y, color in densities:
        canvas.path(x_axis.to_pixels(x, canvas.n_x), y_axis.to_pixels(y, canvas.n_y), color)
    return frame(canvas, x_axis, y_axis, gutter=gutter, caps=caps, x_name="value")


def _axes(scene: Scene) -> tuple[Axis | None, Axis | None]:
    """Return the axes of a line chart, with limits from the options or the lines."""
    options, columns = scene.options, []
    for series in scene.series:
        columns += [part for part in (series.y, series.raw, series.low, series.high) if part is not None]
    y_axis = axis_of(columns, log=options.log_y, clip=options.clip, limits=options.y_limits)
    x_axis = axis_of((s.x for s in scene.series), log=options.log_x, limits=options.x_limits)
    return x_axis, y_axis


def legend(series: Iterable[LineSeries], width: int, caps: Capabilities, *, max_rows: int = 2) -> list[Text]:
    """Return the legend: colour, name and latest value of each line, and the number of lines that do not fit."""
    named = [one for one in series if one.label]
    rows = [Text(no_wrap=True, end="")]
    for i, one in enumerate(named):
        entry = Text(no_wrap=True, end="")
        entry.append(caps.pick("━━ ", "-- "), one.color)
        entry.append(one.label).append(" ")
        entry.append(one.value, f"bold {ALARM if 'NaN' in one.value or 'Inf' in one.value else one.color}")
        if one.state:
            entry.append(f" ({one.state})", AXIS)
        entry.truncate(max(width - 12, 8), overflow="ellipsis" if caps.unicode else "crop")
        if rows[-1].cell_len and rows[-1].cell_len + 3 + entry.cell_len > width - (10 if len(rows) == max_rows else 0):
            if len(rows) == max_rows:
                rows[-1].append(f"   +{len(named) - i} more", AXIS)
                break
            rows.append(Text(no_wrap=True, end=""))
        rows[-1].append("   " if rows[-1].cell_len else "").append_text(entry)
    return rows


def frame(
    canvas: Canvas,
    x_axis: Axis,
    y_axis: Axis,
    *,
    gutter: int,
    caps: Capabilities,
    x_name: str,
    marks: Sequence[Mark] = (),
    body: list[Text] | None = None,
    ends: bool = False,
    categories: Sequence[str] = (),
) -> list[Text]:
    """Draw axes around a canvas.

    Args:
        canvas: The canvas.
        x_axis: The horizontal axis.
        y_axis: The vertical axis.
        gutter: The width of the vertical axis's labels.
        caps: The terminal's capabilities.
        x_name: The label of the horizontal axis.
        marks: Marks on the horizontal axis: column, character, style.
        body: The rows inside; by default the canvas's.
        ends: Whether to label both ends of the horizontal axis too.
        categories: The labels at 0, 1, 2 … of a horizontal axis that counts names.
    """
    labels = {_row(y_axis, value, canvas): label for value, label in y_axis.ticks(_n_y_ticks(canvas))}
    rows = []
    for r, inside in enumerate(body if body is not None else canvas.lines(caps)):
        tick = caps.pick("┤", "+") if r in labels else caps.pick("│", "|")
        row = Text(no_wrap=True, end="").append(f"{labels.get(r, ''):>{gutter}}{tick}", AXIS)
        rows.append(row.append_text(inside))
    rows += _x_axis(
        canvas, x_axis, gutter=gutter, caps=caps, name=x_name, marks=marks, ends=ends, categories=categories
    )
    return rows


def nothing_finite(scene: Scene, height: int) -> list[Text]:
    """Return a message that there is nothing to draw yet."""
    message = "waiting for values …"
    if any(len(series.x) for series in scene.series):
        message = f"no finite value{' above zero' if scene.options.log_y else ''} yet …"
    above = max(0, (height - 1) // 2)
    return [*(Text(end="") for _ in range(above)), Text(f"  {message}", AXIS, end="")]


def _canvas(y_axis: Axis, width: int, height: int) -> tuple[int, Canvas]:
    rows = max(height - 2, MIN_HEIGHT)
    probe = Canvas(1, rows)
    gutter = max((cell_len(label) for _, label in y_axis.ticks(_n_y_ticks(probe))), default=1) + 1
    return gutter, Canvas(max(width - gutter - 1, MIN_WIDTH), rows)


def _n_y_ticks(canvas: Canvas) -> int:
    return max(2, min(7, canvas.height // 2))


def _draw(canvas: Canvas, series: LineSeries, x_axis: Axis, y_axis: Axis, caps: Capabilities) -> list[Mark]:
    # Thinned again for this canvas: in a column, only the extremes are visible.
    xs, ys = thin(series.x, series.y, canvas.n_x)
    px, py = x_axis.to_pixels(xs, canvas.n_x), y_axis.to_pixels(ys, canvas.n_y)
    canvas.path(px, np.where(np.isfinite(ys), py, np.nan), series.color)
    for value, row, char in ((np.inf, 0, caps.pick("▲", "^")), (-np.inf, canvas.height - 1, caps.pick("▼", "v"))):
        for column in np.unique(px[(ys == value) & np.isfinite(px)] // 2):
            canvas.put(int(column), row, char, ALARM)
    missing = np.isnan(ys) & np.isfinite(px)
    return [(int(column), caps.pick("×", "x"), f"bold {ALARM}") for column in np.unique(px[missing] // 2)]


def _grid(canvas: Canvas, y_axis: Axis, caps: Capabilities) -> None:
    for value, _ in y_axis.ticks(_n_y_ticks(canvas)) if caps.unicode else ():
        row = _row(y_axis, value, canvas)
        for column in range(3, canvas.width, 4):
            canvas.under(column, row, "·", GRID)


def _beside(canvas: Canvas, column: int, text: str) -> None:
    """Write a text beside a column, as high as there is room."""
    n = len(text)
    for row, start in product(range(canvas.height), (column + 1, column - n)):
        if canvas.is_free(start, row, n):
            canvas.put(start, row, text, AXIS)
            return


def _annotate(canvas: Canvas, cell: tuple[int, int], text: str, *, color: str, caps: Capabilities) -> None:
    column, row = cell
    short = text if len(text) <= 24 else f"{text[:23]}{caps.pick('…', '.')}"
    right, left = column + 2, column - len(short) - 1
    places = [(c, row + away) for away in (0, -1, 1, -2, 2) for c in (right, left, right + 2)]
    for c, r in places:
        if canvas.is_free(c, r, len(short)):
            canvas.put(c, r, short, "italic")
            break
    canvas.put(column, row, caps.pick("○", "o"), f"bold {color}")


def _x_axis(
    canvas: Canvas,
    axis: Axis,
    *,
    gutter: int,
    caps: Capabilities,
    name: str,
    marks: Sequence[Mark],
    ends: bool,
    categories: Sequence[str],
) -> list[Text]:
    line = [(caps.pick("─", "-"), AXIS)] * canvas.width
    ticks = axis.ticks(max(2, canvas.width // 12))
    if categories:
        ticks = [
            (i, _short(categories[i]))
            for i in range(0, len(categories), max(1, -(-8 * len(categories) // canvas.width)))
        ]
    if ends:
        ticks = [(axis.low, number(axis.low, digits=3)), (axis.high, number(axis.high, digits=3)), *ticks]
    labels = [" "] * canvas.width
    name = name if len(name) <= canvas.width // 2 else f"{name[: canvas.width // 2 - 1]}…"
    room = canvas.width - len(name) - bool(name)
    if not ends:
        labels[room + 1 :] = name
    for value, label in ticks:
        column = _column(axis, value, canvas)
        line[column] = (caps.pick("┬", "+"), AXIS)
        start = min(max(column - len(label) // 2, 0), (canvas.width if ends else room) - len(label))
        # A label needs a free cell on both sides: otherwise two labels read as one.
        if start >= 0 and not "".join(labels[max(start - 1, 0) : start + len(label) + 1]).strip():
            labels[start : start + len(label)] = label
    for column, char, style in marks:
        line[column] = (char, style)
    first = styled([(" " * gutter + caps.pick("└", "+"), AXIS), *line])
    return [first, Text(" " * (gutter + 1) + "".join(labels).rstrip(), AXIS, no_wrap=True, end="")]


def _short(name: str) -> str:
    """Shorten a name from the left: names of layers differ at their ends."""
    return name if len(name) <= 12 else f"…{name[-11:]}"


def _row(axis: Axis, value: float, canvas: Canvas) -> int:
    dots = round(float(axis.to_pixels(value, canvas.n_y)))
    return canvas.height - 1 - min(max(dots // 4, 0), canvas.height - 1)


def _column(axis: Axis, value: float, canvas: Canvas) -> int:
    return min(max(round(float(axis.to_pixels(value, canvas.n_x))) // 2, 0), canvas.width - 1)


def _cell(canvas: Canvas, px: float, py: float) -> tuple[int, int]:
    return round(px) // 2, canvas.height - 1 - round(py) // 4
