"""Views made of text: the log, the table, and the message while there is nothing to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from matplotlib import rcParams as settings
from matplotlib.artist import Artist

from sightglass.views.latest_values import latest_histogram
from sightglass.views.palette import AXIS
from sightglass.views.scales import Axis, axis_of, number
from sightglass.views.scene import LINE_VIEWS, Scene

from .layout import Layout, Margins, remove_artists
from .style import MONO, families, plain, shorten, width_in

ROW_IN: Final = 0.19
POINTS: Final = 8.5


class RecordTable:
    """Draws the last records as text, the newest at the bottom."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._view = scene.view
        self.axes = layout.axes()
        self.axes.set_axis_off()
        self._artists: list[Artist] = []
        self._scene = scene

    def margins(self, scene: Scene) -> Margins:
        """Return the margins of the text."""
        return Margins(left=0.16, right=0.16, below=0.16)

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == self._view

    def arrange(self) -> None:
        """Adapt to the layout."""
        if self.axes is not self._layout.given:
            self.axes.set_position(self._layout.frame.get_position())
        self._write(self._scene)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        self._scene = scene
        self.arrange()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        if self.axes is self._layout.given:
            self.axes.set_axis_on()
        self._layout.drop(self.axes)

    def _write(self, scene: Scene) -> None:
        remove_artists(self._artists)
        self._artists = []
        several, table = len(scene.items) > 1, scene.view == "table"
        width, height = self._layout.room_in
        n_max = max(int(height / ROW_IN) - table, 1)
        found = sorted(((step, item, text) for item in scene.items for step, text in item.rows), key=lambda r: r[0])
        found = found[-n_max:]
        char = width_in("0" * 20, POINTS, mono=True) / 20
        step_in = max([4, *(len(number(step)) for step, *_ in found)]) * char
        tag_in = max((min(len(item.label), 24) for _, item, _ in found), default=0) * char if several else 0.0
        at_tag, at_text = step_in + 2 * char, step_in + 2 * char + (tag_in + 2 * char if several else 0.0)
        if table:
            self._put(step_in, -0.12, "step", ha="right", color=AXIS)
            self._put(at_tag, -0.12, "tag" if several else "", color=AXIS)
            self._put(at_text, -0.12, "value", color=AXIS)
            rule = self.axes.plot(
                [0, 1], [1 - 0.19 / max(height, 0.2)] * 2, transform=self.axes.transAxes, color=AXIS, lw=0.6
            )
            self._artists += rule
        n_chars = max(int((width - at_text) / char), 4)
        for i, (step, item, text) in enumerate(found):
            y = -ROW_IN * (i + table) - 0.14
            self._put(step_in, y, number(step), ha="right", color=AXIS)
            if several:
                self._put(at_tag, y, shorten(plain(item.label), 24), color=item.color)
            cut = text if len(text) <= n_chars else f"{text[: n_chars - 1]}…"
            self._put(at_text, y, plain(cut), color=settings["text.color"])

    def _put(self, x: float, y: float, text: str, **style: Any) -> None:
        self._artists.append(
            self.axes.text(
                x, y, text, transform=self._layout.corner(0, 1), size=POINTS, family=[*MONO, *families()], **style
            )
        )


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

    def margins(self, scene: Scene) -> Margins:
        """Return the margins of the text."""
        return Margins()

    def fits(self, scene: Scene) -> bool:
        """Return whether there is nothing to draw."""
        return not has_content(scene)

    def arrange(self) -> None:
        """Adapt to the layout."""
        if self.axes is not self._layout.given:
            self.axes.set_position(self._layout.frame.get_position())

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


def has_content(scene: Scene) -> bool:
    """Return whether a scene has anything to draw."""
    if scene.view is None:
        return False
    if scene.view in LINE_VIEWS:
        options = scene.options
        columns = [part for one in scene.series for part in (one.y, one.raw, one.low) if part is not None]
        xs: Axis | None = axis_of((one.x for one in scene.series), log=options.log_x)
        return xs is not None and axis_of(columns, log=options.log_y) is not None
    if scene.view in ("log", "table"):
        return any(item.rows for item in scene.items)
    if scene.view == "histogram":
        return any(one is not None and one.total > 0 for one in map(latest_histogram, scene.items))
    return any(item.record is not None for item in scene.items)
