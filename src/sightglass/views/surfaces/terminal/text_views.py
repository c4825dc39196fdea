"""Views made of text: the log, the table."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from sightglass.views.palette import AXIS
from sightglass.views.scales import number
from sightglass.views.scene import Scene
from sightglass.views.summaries import MAX_TEXT
from sightglass.views.tables import rows_of, table_of

from .canvas import Capabilities
from .charts import nothing_finite

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
