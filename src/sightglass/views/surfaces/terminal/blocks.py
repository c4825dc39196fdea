"""Views made of block characters: bars, histograms, heat maps, images.

A cell is about twice as high as it is wide, so half a cell is a square pixel: the text colour paints the upper half,
the background colour the lower. Without colour, a whole cell is a pixel, and shades represent values.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sightglass.core.values import Histogram
from sightglass.views.distributions import MAX_COLUMNS, MAX_RIDGES, over_steps
from sightglass.views.latest_values import bars_of, bounds_of, images_of, latest_histogram, resample
from sightglass.views.options import ALARM, AXIS, NEGATIVE, color_map, hex_of
from sightglass.views.scales import Axis, axis_of, nice_step, number
from sightglass.views.scene import Floats, LatestRecord, Scene
from sightglass.views.series_buffer import as_floats
from sightglass.views.sheets import rows_of, table_of
from sightglass.views.summaries import MAX_TEXT

from .canvas import Canvas, Capabilities, styled
from .charts import frame, nothing_finite, paint_outlines

EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = " ▁▂▃▄▅▆▇█"
SHADES = " ·░▒▓█"
ASCII_SHADES = " .:-=+*#%@"
SPARKLINE_WIDTH = 16  # enough to see a trend, and little beside an 80-column chart


def paint_bars(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint one bar for each name, with its value and, if there is room, a sparkline of its history."""
    alone = len(scene.items) == 1
    bars = [(bar, item) for item in scene.items for bar in bars_of(item, alone=alone)]
    axis = axis_of(([bar.value for bar, _ in bars],), zero=True) if bars else None
    if not bars:
        return nothing_finite(scene, height)
    shown = bars if len(bars) <= height else bars[: height - 1]
    sparklines = [
        _history_of(item, bar.name if alone else bar.name.removeprefix(f"{item.label}/")) for bar, item in shown
    ]
    label_width = min(max(cell_len(bar.name) for bar, _ in shown), max(width // 3, 6))
    value_width = max(len(number(bar.value)) for bar, _ in shown)
    sparkline_width = SPARKLINE_WIDTH if width >= 70 and any(len(sparkline) > 1 for sparkline in sparklines) else 0
    room = max(width - label_width - value_width - 3 - (sparkline_width + 2 if sparkline_width else 0), 4)
    rows = []
    for (bar, _), sparkline in zip(shown, sparklines, strict=True):
        row = Text(_fit(bar.name, label_width, caps), no_wrap=True, end="").append(" ")
        row.append_text(_bar(bar.value, axis, room, bar.color, caps))
        row.append(f" {number(bar.value):>{value_width}}", "bold" if np.isfinite(bar.value) else f"bold {ALARM}")
        if sparkline_width:
            row.append("  ").append_text(_sparkline(sparkline, sparkline_width, caps))
        rows.append(row)
    if len(shown) < len(bars):
        rows.append(Text(f"{caps.pick('…', '...')} and {len(bars) - len(shown)} more names", AXIS, end=""))
    return rows


def paint_histogram(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the latest histogram as blocks, or several as overlaid outlines."""
    if scene.options.over in ("heat", "ridge") and (map_ := _over_steps(scene, width, height, caps)):
        return map_
    found = [(histogram, item.color) for item in scene.items if (histogram := latest_histogram(item)) is not None]
    drawn = [(histogram, color) for histogram, color in found if histogram.total]
    if not drawn:
        return nothing_finite(scene, height)
    if len(drawn) > 1:
        counted = Text("density of ", AXIS, no_wrap=True, end="").append_text(_counted(found))
        return [*paint_outlines(drawn, width, height - 1, caps), counted]
    histogram, color = drawn[0]
    rows = max(height - 3, 3)
    gutter = len(f"{histogram.counts.max():,}") + 1
    counts, per_bin = _columns(histogram, max(width - gutter - 1, 8))
    canvas = Canvas(len(counts) * per_bin, rows)
    y_axis = Axis(low=0.0, high=max(float(counts.max()), 1.0))
    levels = np.where(counts > 0, np.maximum(np.rint(counts / y_axis.high * rows * 8), 1), 0).astype(int)
    body = []
    for r in range(rows):
        filled = np.clip(levels - (rows - 1 - r) * 8, 0, 8)
        chars = "".join(caps.pick(LEVELS[n], "#" if n > 3 else "_" if n else " ") * per_bin for n in filled)
        body.append(Text(chars, color, no_wrap=True, end=""))
    x_axis = Axis(low=float(histogram.edges[0]), high=float(histogram.edges[-1]))
    framed = frame(canvas, x_axis, y_axis, gutter=gutter, caps=caps, x_name="value", body=body, ends=True)
    return [*framed, _counted(found)]


def _over_steps(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the distributions of each stream over steps: steps from left to right, values upwards."""
    n_max = MAX_RIDGES if scene.options.over == "ridge" else MAX_COLUMNS
    found = [(item, over) for item in scene.items if (over := over_steps(item.values, n_max=n_max)) is not None]
    rows: list[Text] = []
    for item, over in found:
        room = max(height // len(found) - 2, 2)
        first, last = number(over.steps[0]), number(over.steps[-1])
        span = f"{number(over.edges[0])} to {number(over.edges[-1])}, upwards; steps {first} to {last}"
        rows.append(Text(f"{item.label}: {span}" if len(found) > 1 else span, AXIS, no_wrap=True, end=""))
        rows += _heatmap(over.counts.T[::-1], width, room, caps, stretched=True)
    return rows


def paint_heatmap(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the latest matrix of each stream; of entries that share a pixel, the largest magnitude is shown."""
    shown = [(item, as_floats(item.record.value)) for item in scene.items if item.record is not None]
    rows: list[Text] = []
    for item, matrix in shown:
        room = max(height // len(shown) - (2 if len(shown) > 1 else 1), 2)
        if len(shown) > 1:
            rows.append(Text(item.label, "bold", no_wrap=True, end=""))
        gutter = len(str(matrix.shape[0] - 1)) + 1
        rows += _heatmap(matrix, width - gutter, room - 1, caps, gutter=gutter)
    return rows or nothing_finite(scene, height)


def paint_images(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the latest images of all streams in a grid, as many as fit."""
    pictures = [picture for item in scene.items for picture in images_of(item)]
    if not pictures:
        return nothing_finite(scene, height)
    captions = any(caption for _, caption in pictures)
    tall, wide = max(p.shape[0] for p, _ in pictures), max(p.shape[1] for p, _ in pictures)
    cells_w, cells_h, n_across, n_down = _grid_of(
        len(pictures), tall, wide, width=width, height=height - 1, captions=captions
    )
    rows: list[Text] = []
    for start in range(0, min(len(pictures), n_across * n_down), n_across):
        line = pictures[start : start + n_across]
        tiles = [_tile(picture, cells_w, cells_h, caps) for picture, _ in line]
        rows += [Text("  ", end="", no_wrap=True).join(parts) for parts in zip(*tiles, strict=True)]
        if captions:
            names = "  ".join(_fit(caption, cells_w, caps) for _, caption in line)
            rows.append(Text(names, AXIS, no_wrap=True, end=""))
    n_left = len(pictures) - n_across * n_down
    more = f" · {n_left} more do not fit" if n_left > 0 else ""
    size = caps.pick("×", "x").join(str(n) for n in (tall, wide))
    return [*rows, Text(f"{len(pictures)} image{'s' if len(pictures) > 1 else ''} of {size}{more}", AXIS, end="")]


def _history_of(item: LatestRecord, name: str) -> Floats:
    """Return the history of a bar's value."""
    found = item.points.get(name, item.points.get("") if name == item.label else None)
    return found[1] if found is not None else np.empty(0)


def _bar(value: float, axis: Axis | None, room: int, color: str, caps: Capabilities) -> Text:
    if axis is None or not np.isfinite(value):
        return Text(f"{caps.pick('×', 'x') if np.isnan(value) else '':<{room}}", ALARM, no_wrap=True, end="")
    zero = round(float(axis.to_pixels(0.0, 2)) * room)
    n_right, n_left = room - zero, zero
    if value >= 0:
        n = value / axis.high * n_right * 8 if axis.high > 0 else 0.0
        eighths = max(round(n), 1) if value > 0 else 0
        drawn = EIGHTHS[8] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")
        drawn = drawn if caps.unicode else "#" * max(round(eighths / 8), int(value > 0))
        text = Text(" " * n_left, no_wrap=True, end="").append(drawn[:n_right], color)
        if n_left and not drawn:
            text.append(caps.pick("▏", "|"), AXIS)
        return text.append(" " * (room - text.cell_len))
    halves = max(round(value / axis.low * n_left * 2), 1)
    drawn = ("▐" if halves % 2 else "") + "█" * (halves // 2)
    drawn = drawn if caps.unicode else "=" * max(halves // 2, 1)
    text = Text(" " * (n_left - len(drawn)), no_wrap=True, end="").append(
        drawn, NEGATIVE if color != NEGATIVE else ALARM
    )
    return text.append(" " * n_right)


def _sparkline(sparkline: Floats, width: int, caps: Capabilities) -> Text:
    """Return a small line of a value's history."""
    axis = axis_of((sparkline,))
    if axis is None or len(sparkline) < 2 or not caps.unicode:
        return Text(" " * width, end="")
    canvas = Canvas(width, 1)
    canvas.path(np.linspace(0, canvas.n_x - 1, len(sparkline)), axis.to_pixels(sparkline, canvas.n_y), AXIS)
    return canvas.lines(caps)[0]


def _columns(histogram: Histogram, room: int) -> tuple[Floats, int]:
    """Return the counts to draw, and the columns per bin; unequal or too many bins are redistributed."""
    counts, edges = histogram.counts.astype(np.float64), histogram.edges
    widths = np.diff(edges)
    if len(counts) <= room and np.allclose(widths, widths.mean(), rtol=1e-6, atol=0):
        return counts, max(room // len(counts), 1)
    below = np.concatenate([[0.0], np.cumsum(counts)])
    return np.diff(np.interp(np.linspace(edges[0], edges[-1], room + 1), edges, below)), 1


def _counted(found: list[tuple[Histogram, str]]) -> Text:
    text = Text(no_wrap=True, end="")
    for histogram, color in found:
        outside = (("NaN", histogram.n_nan), ("+Inf", histogram.n_posinf), ("-Inf", histogram.n_neginf))
        text.append("   " if text.cell_len else "").append(
            f"{histogram.total:,} values", color if len(found) > 1 else AXIS
        )
        for name, n in outside:
            if n:
                text.append(f"  {n:,} {name}", f"bold {ALARM}")
    return text


def _heatmap(
    matrix: Floats, width: int, room: int, caps: Capabilities, *, gutter: int = 0, stretched: bool = False
) -> list[Text]:
    """Paint a matrix with square cells, or stretched to all the room; with a gutter, numbered by row and column."""
    bounds = bounds_of(matrix)
    low, high = bounds.low, bounds.high
    tall, wide = matrix.shape
    # Half a cell is a pixel; small matrices are enlarged by whole factors, so that all entries are equal in size.
    per_cell = 2 if caps.color and caps.unicode else 1
    scale = max(1, min(width // wide, room * per_cell // tall, 8)) if tall <= room * per_cell and wide <= width else 0
    h, w = (tall * scale, wide * scale) if scale else _shrunk(tall, wide, room * per_cell, width)
    if stretched:
        h, w = room * per_cell, width
    elif per_cell == 1:
        w = min(2 * w, width)
    data = resample(matrix, h, w, mean=False)
    span = high / 2 - low / 2 or 1.0
    with np.errstate(invalid="ignore"):
        shares = (data / 2 - low / 2) / span
    rows = _shaded(shares, caps) if per_cell == 1 else half_blocks(color_map(shares, diverging=bounds.diverging))
    if gutter:
        rows = _numbered(rows, tall, wide, w, gutter)
    note = f"{tall} x {wide}" + (f" · {bounds.n_bad} not finite" if bounds.n_bad else "")
    return [*rows, _key(low, high, bounds.diverging, caps, note)]


def _numbered(rows: list[Text], tall: int, wide: int, width: int, gutter: int) -> list[Text]:
    """Put the number of a row before some of the rows of a matrix, and those of some columns below."""
    at_row = {i * len(rows) // tall: i for i in range(0, tall, max(1, round(nice_step(tall, len(rows) / 2))))}
    found = [
        Text(f"{at_row.get(r, ''):>{gutter - 1}} ", AXIS, no_wrap=True, end="").append_text(row)
        for r, row in enumerate(rows)
    ]
    below = [" "] * (gutter + width)
    for i in range(0, wide, max(1, round(nice_step(wide, width / (len(str(wide)) + 3))))):
        at = gutter + i * width // wide
        if at + len(str(i)) <= len(below):
            below[at : at + len(str(i))] = str(i)
    return [*found, Text("".join(below).rstrip(), AXIS, no_wrap=True, end="")]


def half_blocks(colors: npt.NDArray[np.uint8]) -> list[Text]:
    """Paint pixels, two to a cell.

    Args:
        colors: Shape (rows, columns, 3).
    """
    rows = []
    for top in range(0, len(colors), 2):
        below = colors[top + 1] if top + 1 < len(colors) else None
        upper = [hex_of(color) for color in colors[top]]
        lower = [f" on {hex_of(color)}" for color in below] if below is not None else [""] * len(upper)
        rows.append(styled(("▀", color + background) for color, background in zip(upper, lower, strict=True)))
    return rows


def _shaded(shares: Floats, caps: Capabilities) -> list[Text]:
    ramp = caps.pick(SHADES, ASCII_SHADES)
    at = np.rint(np.clip(np.nan_to_num(shares), 0, 1) * (len(ramp) - 1)).astype(int)
    missing = np.isnan(shares)
    chars = [[("?" if bad else ramp[n]) for n, bad in zip(*row, strict=True)] for row in zip(at, missing, strict=True)]
    return [Text("".join(row), no_wrap=True, end="") for row in chars]


def _key(low: float, high: float, diverging: bool, caps: Capabilities, note: str) -> Text:
    text = Text(f"{number(low, digits=3)} ", AXIS, no_wrap=True, end="")
    if caps.color and caps.unicode:
        for color in color_map(np.linspace(0, 1, 20), diverging=diverging):
            text.append("█", hex_of(color))
    else:
        text.append(caps.pick(SHADES, ASCII_SHADES))
    return text.append(f" {number(high, digits=3)}   {note}", AXIS)


def _shrunk(tall: int, wide: int, max_tall: int, max_wide: int) -> tuple[int, int]:
    share = min(max_tall / tall, max_wide / wide, 1.0)
    return max(1, int(tall * share)), max(1, int(wide * share))


def _grid_of(n: int, tall: int, wide: int, *, width: int, height: int, captions: bool) -> tuple[int, int, int, int]:
    """Return the width and height in cells of the largest tiles that all fit, and the columns and rows of the grid."""
    for share in (4.0, 3.0, 2.0, 1.0, 0.75, 0.5, 0.375, 0.25, 0.125, 0.0625, 0.03):
        cells_w, cells_h = max(2, round(wide * share)), max(1, round(tall * share / 2))
        n_across = (width + 2) // (cells_w + 2)
        n_down = max(height, 1) // (cells_h + captions)
        # Below eight pixels nothing can be recognised: show fewer images instead.
        if n_across and n_down and (n_across * n_down >= n or min(wide, tall) * share <= 8):
            return cells_w, cells_h, min(n_across, n), n_down
    cells_w, cells_h = min(width, 2 * height), max(min(height - captions, width // 2), 1)
    return cells_w, cells_h, 1, 1


def _tile(picture: Floats, width: int, height: int, caps: Capabilities) -> list[Text]:
    if caps.color and caps.unicode:
        return half_blocks(np.rint(resample(picture, 2 * height, width, mean=True) * 255).astype(np.uint8))
    return _shaded(resample(picture, height, width, mean=True).mean(axis=-1), caps)


def _fit(text: str, width: int, caps: Capabilities) -> str:
    short = text if cell_len(text) <= width else f"{text[: max(width - 1, 0)]}{caps.pick('…', '.')}"
    return set_cell_size(short, width)


# Views made of text: the log, the table.

MAX_CELL = 24  # a third of a narrow terminal


def paint_log(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the last texts of all streams in order of step, the newest at the bottom."""
    rows = []
    for item, row in rows_of(scene, height):
        line = Text(no_wrap=True, end="").append(f"{number(row.step):>8}  ", AXIS)
        if len(scene.items) > 1:
            line.append(f"{item.label}  ", item.color)
        rows.append(_cut(line.append(caps.plain(row.value.text)), width, caps))
    return rows or nothing_finite(scene, height)


def paint_table(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the last records of all streams as a table, the newest at the bottom."""
    table = table_of(scene, height - 1)
    if not table.rows:
        return nothing_finite(scene, height)
    texts = [[caps.plain(text) for text in row] for row in (table.names, *table.rows)]
    widths = [min(max(map(cell_len, column)), MAX_CELL) for column in zip(*texts, strict=True)]
    at_stream = table.names.index("stream") if len(scene.items) > 1 else -1
    rows = []
    for i, row in enumerate(texts):
        line = Text(no_wrap=True, end="")
        for k, (text, wide, numeric) in enumerate(zip(row, widths, table.numeric, strict=True)):
            cell = set_cell_size(text, min(cell_len(text), wide if k < len(row) - 1 else MAX_TEXT))
            room = " " * (wide - cell_len(cell))
            style = (
                AXIS if i == 0 or (k < 2 and scene.view == "table") else table.colors[i - 1] if k == at_stream else ""
            )
            line.append("  " if k else "").append(f"{room}{cell}" if numeric else f"{cell}{room}", style)
        rows.append(_cut(line, width, caps))
    if table.n_more:
        rows[0].append(f"  and {table.n_more:,} more", AXIS)
    return rows


def _cut(row: Text, width: int, caps: Capabilities) -> Text:
    row.rstrip()
    row.truncate(width, overflow="ellipsis" if caps.unicode else "crop")
    return row
