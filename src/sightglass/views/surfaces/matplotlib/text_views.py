"""Views made of text: the log, the table, and the message while there is nothing to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib import rcParams as settings
from matplotlib.artist import Artist

from sightglass.views.choose import ROW_VIEWS
from sightglass.views.latest_values import latest_histogram
from sightglass.views.options import AXIS
from sightglass.views.scales import Axis, axis_of, number
from sightglass.views.scene import LINE_VIEWS, Scene
from sightglass.views.sheets import rows_of, table_of

from .layout import Layout, corner, remove_artists
from .style import MONO, families, plain, shorten, width_in

ROW_IN: Final = 0.19
POINTS: Final = 8.5
MAX_CELL: Final = 24  # characters: a third of a narrow figure


class RecordTable:
    """Draws the last records as text, the newest at the bottom."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._view = scene.view
        self.axes = layout.axes()
        self.axes.set_axis_off()
        self._artists: list[Artist] = []

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == self._view

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        room = self._layout.room_in(self.axes)
        n_max = max(int(room[1] / ROW_IN), 1)
        if scene.view in ("table", "sheet"):
            self._write_table(scene, n_max - 1, room)
        else:
            self._write_log(scene, n_max, room[0])
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        if self.axes is self._layout.given:
            self.axes.set_axis_on()
        self._layout.drop(self.axes)

    def _write_log(self, scene: Scene, n_max: int, width: float) -> None:
        found, char = rows_of(scene, n_max), _char_in()
        step_in = max([4, *(len(number(row.step)) for _, row in found)]) * char
        several = len(scene.items) > 1
        tag_in = max((min(len(item.label), 24) for item, _ in found), default=0) * char + 2 * char if several else 0.0
        at_text = step_in + 2 * char + tag_in
        n_chars = max(int((width - at_text) / char), 4)
        for i, (item, row) in enumerate(found):
            self._put(step_in, i, number(row.step), ha="right", color=AXIS)
            if several:
                self._put(step_in + 2 * char, i, shorten(plain(item.label), 24), color=item.color)
            self._put(at_text, i, plain(_cut(row.value.text, n_chars)), color=settings["text.color"])

    def _write_table(self, scene: Scene, n_max: int, room: tuple[float, float]) -> None:
        table, char = table_of(scene, n_max), _char_in()
        at, (width, height), n_quiet = 0.0, room, 2 if scene.view == "table" else 0
        at_stream = table.names.index("stream") if len(scene.items) > 1 else -1
        for k, (name, numeric) in enumerate(zip(table.names, table.numeric, strict=True)):
            last = k == len(table.names) - 1
            n_left = max(int((width - at) / char), 4)
            texts = [_cut(row[k], n_left if last else MAX_CELL) for row in table.rows]
            title = _cut(name, n_left if last else MAX_CELL)
            n_chars = max(map(len, (title, *texts)))
            if at + n_chars * char > width and k > 2:
                self._put(width, 0, "…", ha="right", color=AXIS)
                break
            x, side = (at + n_chars * char, "right") if numeric else (at, "left")
            self._put(x, 0, plain(title), ha=side, color=AXIS)
            for i, (text, color) in enumerate(zip(texts, table.colors, strict=True), 1):
                shade = AXIS if k < n_quiet else color if k == at_stream else settings["text.color"]
                self._put(x, i, plain(text), ha=side, color=shade)
            at += (n_chars + 2) * char
        rule = 1 - ROW_IN / height
        self._artists += self.axes.plot([0, 1], [rule, rule], transform=self.axes.transAxes, color=AXIS, lw=0.6)

    def _put(self, x: float, row: int, text: str, **style: Any) -> None:
        """Write a text at a distance in inches from the left, in a row counted from the top."""
        self._artists.append(
            self.axes.text(
                x, -ROW_IN * row - 0.14, text, transform=corner(self.axes), size=POINTS, in_layout=False,
                family=[*MONO, *families()], **style,
            )
        )  # fmt: skip


class EmptyPlot:
    """Draws a message while there is nothing else to draw."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self.axes = layout.axes()
        self.axes.set_axis_off()
        self._text = self.axes.text(
            0.5, 0.55, "", transform=self.axes.transAxes, color=AXIS, ha="center", va="center", size=11
        )

    def fits(self, scene: Scene) -> bool:
        """Return whether there is nothing to draw."""
        return not has_content(scene)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        came = any(len(series.x) for series in scene.series) or any(item.record for item in scene.items)
        above = " above zero" if came and scene.options.log_y else ""
        text = f"no finite value{above} yet …" if came else "no values" if ended else "waiting for values …"
        changed: bool = self._text.get_text() != text
        self._text.set_text(text)
        return changed

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists([self._text])
        if self.axes is self._layout.given:
            self.axes.set_axis_on()
        self._layout.drop(self.axes)


def _char_in() -> float:
    return width_in("0" * 20, POINTS, mono=True) / 20


def _cut(text: str, n_chars: int) -> str:
    return text if len(text) <= n_chars else f"{text[: n_chars - 1]}…"


def has_content(scene: Scene) -> bool:
    """Return whether a scene has anything to draw."""
    if scene.view is None:
        return False
    if scene.view in LINE_VIEWS:
        options = scene.options
        columns = [part for one in scene.series for part in (one.y, one.raw, one.low) if part is not None]
        xs: Axis | None = axis_of((one.x for one in scene.series), log=options.log_x)
        return xs is not None and axis_of(columns, log=options.log_y) is not None
    if scene.view in ROW_VIEWS:
        return any(item.rows for item in scene.items)
    if scene.view == "histogram":
        return any(one is not None and one.total > 0 for one in map(latest_histogram, scene.items))
    return any(item.record is not None for item in scene.items)
