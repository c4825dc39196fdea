"""Views made of text: the log, the table, the description of a figure."""

from __future__ import annotations

import struct

from rich.text import Text

from sightglass.core.values import Figure
from sightglass.views.palette import AXIS
from sightglass.views.scales import number
from sightglass.views.scene import LatestRecord, Scene

from .canvas import Capabilities
from .charts import nothing_finite


def paint_log(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the last texts of all streams in order of step, the newest at the bottom."""
    found = [(step, item, text) for item in scene.items for step, text in item.rows]
    return _rows(sorted(found, key=lambda row: row[0]), scene, width, height, caps)


def paint_table(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint the last records of all streams as text, under a header."""
    found = [(step, item, text) for item in scene.items for step, text in item.rows]
    rows = _rows(sorted(found, key=lambda row: row[0]), scene, width, height - 1, caps)
    tag = "tag  " if len(scene.items) > 1 else ""
    return [Text(f"{'step':>8}  {tag}value", AXIS, no_wrap=True, end=""), *rows] if found else rows


def paint_picture(scene: Scene, width: int, height: int, caps: Capabilities) -> list[Text]:
    """Paint a description of the latest figures; a terminal cannot show their pixels."""
    rows = []
    for item in scene.items:
        if item.record is not None and isinstance(item.record.value, Figure):
            figure = item.record.value
            text = Text(no_wrap=True, end="").append(f"{caps.pick('▣', '#')} ", item.color).append(item.label, "bold")
            about = (figure.media_type, png_size(figure.data), f"{len(figure.data) / 1000:,.1f} kB")
            text.append(f"  {', '.join(part for part in about if part)}, at step {number(item.record.step)}", AXIS)
            rows.append(text)
    if not rows:
        return nothing_finite(scene, height)
    return [*rows, Text("A terminal cannot show figures; open it in a notebook or the browser.", AXIS, end="")]


def png_size(data: bytes) -> str:
    """Read "width x height" from a PNG's header (RFC 2083, 11.2.2); "" for other files."""
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or len(data) < 24:
        return ""
    return "{} x {}".format(*struct.unpack(">II", data[16:24]))


def _rows(
    found: list[tuple[float, LatestRecord, str]], scene: Scene, width: int, height: int, caps: Capabilities
) -> list[Text]:
    if not found:
        return nothing_finite(scene, height)
    rows = []
    for step, item, text in found[-max(height, 1) :]:
        row = Text(no_wrap=True, end="").append(f"{number(step):>8}  ", AXIS)
        if len(scene.items) > 1:
            row.append(f"{item.label}  ", item.color)
        row.append(text if caps.unicode else text.encode("ascii", "replace").decode())
        row.truncate(width, overflow="ellipsis" if caps.unicode else "crop")
        rows.append(row)
    return rows
