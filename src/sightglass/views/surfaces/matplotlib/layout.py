"""The layout of a view, in its own figure or in the user's axes: margins, panels, title, legend, notices.

Theory of operation
    Invisible axes, the frame, cover the plotting area. Title, legend and notices are anchored to its corners at
    distances in inches, so they are placed well in small and large windows alike. In a figure of its own, the frame
    leaves margins as wide as the text around it needs; in the user's axes, it covers them.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox, ScaledTranslation, Transform

from sightglass.views.latest_values import is_numbered, log_axis_notices
from sightglass.views.palette import ALARM, AXIS
from sightglass.views.scene import LineSeries, Scene

from .style import fitted, plain, width_in

# Distances in inches that fit the theme's font sizes (8 to 10 points, 72 to an inch).
PAD_IN: Final = 0.16
TITLE_IN: Final = 0.25
LEGEND_IN: Final = 0.2
NOTICE_IN: Final = 0.17
SWATCH_IN: Final = 0.2
GAP_IN: Final = 0.2
MIN_ROOM_IN: Final = 0.5
MAX_LEGEND_ROWS: Final = 3  # more would leave too little room for the plot in a small window
MAX_NOTICES: Final = 4
MAX_PANELS: Final = 12  # beyond, panels are too small to read
DASHES: Final[tuple[Any, ...]] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Margins:
    """Margins of the plotting area, in inches."""

    left: float = 0.72
    right: float = 0.3
    below: float = 0.5
    above: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """One entry of the legend."""

    label: str
    color: str
    value: str = ""
    state: str = ""
    dash: int = 0

    @property
    def text(self) -> str:
        """The value and its state, shown after the label."""
        return f"{self.value} ({self.state})" if self.state else self.value


class Layout:
    """The layout of a view.

    Args:
        figure: The figure or subfigure.
        axes: The axes to draw in; by default the whole figure.
        live: Whether repaints are frequent, so that limits leave room for new values.
    """

    def __init__(self, figure: Figure | SubFigure, axes: Axes | None = None, *, live: bool = False) -> None:
        self.live = live
        self.figure: Any = figure  # a figure or a subfigure; the common base class lacks `dpi`
        self.given: Any = axes
        box = axes.get_position().bounds if axes is not None else (0.1, 0.1, 0.8, 0.8)
        self.frame = figure.add_axes(box, zorder=-1)
        self.frame.set_axis_off()
        self.frame.set_navigate(False)
        self.frame.patch.set_visible(False)
        self.margins = Margins()
        self.head_in = self.foot_in = 0.0

    @property
    def pad_in(self) -> float:
        """The distance of text from the edge."""
        return 0.0 if self.given is not None else PAD_IN

    @property
    def figure_in(self) -> tuple[float, float]:
        """Width and height of the figure, in inches."""
        return self.figure.bbox.width / self.figure.dpi, self.figure.bbox.height / self.figure.dpi

    @property
    def room_in(self) -> tuple[float, float]:
        """Width and height of the frame, in inches."""
        box, (width, height) = self.frame.get_position(), self.figure_in
        return box.width * width, box.height * height

    @property
    def width_in(self) -> float:
        """The width available to the text above and below."""
        if self.given is not None:
            return self.room_in[0]
        return max(self.figure_in[0] - 2 * PAD_IN, MIN_ROOM_IN)

    def arrange(self, margins: Margins, *, head_in: float, foot_in: float) -> bool:
        """Set the margins, and return whether the frame moved."""
        self.margins, self.head_in, self.foot_in = margins, head_in, foot_in
        before = self.frame.get_position()
        if self.given is not None:
            box = self.given.get_position()
        else:
            width, height = self.figure_in
            left, below = margins.left / width, (margins.below + foot_in) / height
            right, above = margins.right / width, head_in / height
            # In a very small window, cut off the text, not the plotting area.
            left, right = (left, right) if left + right < 0.8 else (0.1, 0.1)
            below, above = (below, above) if below + above < 0.8 else (0.1, 0.1)
            box = Bbox.from_extents(left, below, 1 - right, 1 - above)
        self.frame.set_position(box)
        return any(abs(a - b) > 1e-6 for a, b in zip(before.bounds, box.bounds, strict=True))

    def corner(self, x: float, y: float) -> Transform:
        """Return a transform in inches from a corner of the frame."""
        anchor: Any = self.frame.transAxes
        transform: Transform = self.figure.dpi_scale_trans + ScaledTranslation(x, y, anchor)
        return transform

    def axes(self, **options: Any) -> Any:
        """Return axes that cover the frame: the user's, or new ones."""
        if self.given is not None and "projection" not in options:
            self.given.set_axis_on()
            return self.given
        if self.given is not None:
            self.given.set_axis_off()
        axes = self.figure.add_axes(self.frame.get_position(), **options)
        axes.patch.set_visible(False)
        return axes

    def drop(self, axes: Axes) -> None:
        """Remove axes, unless they are the user's."""
        if axes is not self.given and axes.figure is not None:
            axes.remove()

    def resize(self, panels: list[Axes], n: int) -> None:
        """Make a list of axes `n` long. A single one is the user's, if there are such axes."""
        if len(panels) == n:
            return
        for axes in panels:
            self.drop(axes)
        if n != 1 and self.given is not None:
            self.given.set_axis_off()
        panels[:] = [self.axes()] if n == 1 else [self.figure.add_axes((0.1, 0.1, 0.8, 0.8)) for _ in range(n)]

    def panels(self, n: int, *, gap_in: tuple[float, float], shape: float = 1.6) -> list[Bbox]:
        """Divide the frame into equal panels.

        Args:
            n: The number of panels.
            gap_in: The horizontal and the vertical gap between them.
            shape: The preferred width of a panel divided by its height.
        """
        width, height = self.room_in
        columns = min(range(1, n + 1), key=lambda k: abs(math.log((width / k) / (height / -(-n // k)) / shape)))
        rows = -(-n // columns)
        box = self.frame.get_position()
        gap_x, gap_y = gap_in[0] * box.width / max(width, 0.1), gap_in[1] * box.height / max(height, 0.1)
        one = max((box.width - gap_x * (columns - 1)) / columns, 0.01)
        tall = max((box.height - gap_y * (rows - 1)) / rows, 0.01)
        return [
            Bbox.from_bounds(
                box.x0 + (i % columns) * (one + gap_x), box.y1 - (i // columns) * (tall + gap_y) - tall, one, tall
            )
            for i in range(n)
        ]


class FigureText:
    """Title, legend and notices around a layout's frame."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._title = self._text(layout.corner(0, 1), weight="bold", size=settings["axes.titlesize"])
        self._value = self._text(layout.corner(0, 1), weight="bold", size=settings["axes.titlesize"])
        self._subtitle = self._text(layout.corner(1, 1), color=AXIS, ha="right", size=settings["legend.fontsize"])
        self._more = self._text(layout.corner(0, 1), color=AXIS, size=settings["legend.fontsize"])
        self._entries: list[tuple[Line2D, Text, Text]] = []
        self._notices: list[Text] = []
        self._slots: dict[str, float] = {}
        self._static: tuple[Any, ...] = ()

    @property
    def animated_artists(self) -> list[Artist]:
        """The artists that change with the values."""
        return [self._value, self._subtitle, self._more, *(part for entry in self._entries for part in entry)]

    def paint(self, scene: Scene, margins: Margins) -> bool:
        """Show a scene's text, and return whether anything but values changed."""
        layout = self.layout
        entries = entries_of(scene)
        merged = len(entries) == 1 and entries[0].label == scene.title and bool(scene.series)
        rows, left_out = ([], 0) if merged else self._rows(entries)
        sentences = [line for notice in (*scene.notices, *log_axis_notices(scene)) for line in self._wrapped(notice)]
        text = sentences[:MAX_NOTICES] + ([f"  and {len(sentences) - 3} more"] if len(sentences) > MAX_NOTICES else [])
        head_in = PAD_IN / 2 + TITLE_IN + LEGEND_IN * len(rows) + 0.14 + margins.above
        foot_in = NOTICE_IN * len(text) + (0.06 if text else 0)
        moved = layout.arrange(margins, head_in=head_in, foot_in=foot_in)
        self._write_head(scene, entries[0] if merged else None)
        self._write_legend(rows, left_out)
        static = (scene.title, tuple(text), len(rows), len(entries))
        if static != self._static:
            self._write_notices(text)
            moved, self._static = True, static
        return moved

    def _write_head(self, scene: Scene, alone: LegendEntry | None) -> None:
        layout, points = self.layout, settings["axes.titlesize"]
        y = layout.head_in - PAD_IN / 2 - TITLE_IN + 0.07
        x = layout.pad_in - (layout.margins.left if layout.given is None else 0)
        text = alone.text if alone else ""
        needed = min(width_in(plain(scene.title), points, bold=True), 1.5) + width_in(text, points, bold=True)
        subtitle, room = plain(scene.subtitle), layout.width_in - needed - GAP_IN
        while subtitle and width_in(subtitle, settings["legend.fontsize"]) > room:
            subtitle = subtitle.partition(" · ")[2]
        room = layout.width_in - width_in(subtitle, settings["legend.fontsize"]) - GAP_IN
        title = fitted(
            plain(scene.title), max(room - width_in(text, points, bold=True), 0.5), points, bold=True, middle=False
        )
        self._title.set(text=title, position=(x, y))
        self._subtitle.set(text=subtitle, position=((layout.margins.right - PAD_IN) * (layout.given is None), y))
        after = x + width_in(title, points, bold=True) + 0.1
        self._value.set(text=text, position=(after, y), color=_color_of(alone) if alone else AXIS)

    def _rows(self, entries: list[LegendEntry]) -> tuple[list[list[tuple[LegendEntry, str, float, float]]], int]:
        """Lay out the legend: rows of entries, each with its label, its x and the x of its value."""
        points, room = settings["legend.fontsize"], self.layout.width_in
        rows: list[list[tuple[LegendEntry, str, float, float]]] = []
        at = math.inf
        for n, entry in enumerate(entries):
            label = fitted(plain(entry.label), max(room * 0.6, 1.0), points)
            named_in = SWATCH_IN + 0.07 + width_in(label, points)
            # Slots only grow: otherwise the entries after a value would jitter with its digits.
            needed = math.ceil(width_in(entry.text, points, bold=True) / 0.08) * 0.08 if entry.text else 0.0
            slot = max(self._slots.get(entry.label, 0.0), needed)
            self._slots[entry.label] = slot
            wide = named_in + (0.07 + slot if slot else 0.0)
            last = len(rows) == MAX_LEGEND_ROWS
            if at + wide > room - (0.7 if last else 0.0):
                if last:
                    return rows, len(entries) - n
                rows.append([])
                at = 0.0
            rows[-1].append((entry, label, at, at + named_in + 0.07))
            at += wide + GAP_IN
        return rows, 0

    def _write_legend(self, rows: list[list[tuple[LegendEntry, str, float, float]]], left_out: int) -> None:
        layout = self.layout
        left = layout.pad_in - (layout.margins.left if layout.given is None else 0)
        flat = [(r, *one) for r, row in enumerate(rows) for one in row]
        while len(self._entries) > len(flat):
            for part in self._entries.pop():
                part.remove()
        while len(self._entries) < len(flat):
            self._entries.append(self._entry())
        for (r, entry, label, at, at_value), (swatch, name, value) in zip(flat, self._entries, strict=True):
            y = layout.head_in - PAD_IN / 2 - TITLE_IN - LEGEND_IN * (r + 1) + 0.09
            swatch.set_data([left + at, left + at + SWATCH_IN], [y + 0.04, y + 0.04])
            swatch.set(color=entry.color, linestyle=DASHES[entry.dash % len(DASHES)])
            name.set(text=label, position=(left + at + SWATCH_IN + 0.07, y))
            value.set(text=entry.text, position=(left + at_value, y), color=_color_of(entry))
        y = layout.head_in - PAD_IN / 2 - TITLE_IN - LEGEND_IN * len(rows) + 0.09
        self._more.set(text=f"+{left_out} more" if left_out else "", ha="right")
        self._more.set_position((left + layout.width_in, y))

    def _entry(self) -> tuple[Line2D, Text, Text]:
        corner, size = self.layout.corner(0, 1), settings["legend.fontsize"]
        swatch = Line2D([], [], linewidth=2.2, transform=corner, clip_on=False, solid_capstyle="butt")
        self.layout.frame.add_artist(swatch)
        swatch.set_clip_on(False)
        return swatch, self._text(corner, size=size), self._text(corner, size=size, weight="bold")

    def _write_notices(self, lines: list[str]) -> None:
        for text in self._notices:
            text.remove()
        layout = self.layout
        left = layout.pad_in - (layout.margins.left if layout.given is None else 0)
        self._notices = []
        for i, line in enumerate(lines):
            y = -layout.margins.below - NOTICE_IN * (i + 1) + 0.05
            mark = line.startswith("▸")
            self._notices.append(
                self._text(layout.corner(0, 0), x=left + 0.13, y=y, text=plain(line[2:]), color=AXIS, size=7.5)
            )
            if mark:
                self._notices.append(self._text(layout.corner(0, 0), x=left, y=y, text="▸", color=ALARM, size=7.5))

    def _wrapped(self, notice: str) -> list[str]:
        n = max(int(self.layout.width_in / 0.062), 20)
        lines = textwrap.wrap(notice, n, max_lines=2, placeholder=" …")
        return [("▸ " if i == 0 else "  ") + line for i, line in enumerate(lines)]

    def _text(self, transform: Transform, *, x: float = 0, y: float = 0, text: str = "", **style: Any) -> Text:
        return self.layout.frame.text(x, y, text, transform=transform, clip_on=False, **style)


def entries_of(scene: Scene) -> list[LegendEntry]:
    """Return the entries of a scene's legend."""
    if scene.series:
        return [_entry_of(series) for series in scene.series if series.label]
    if len(scene.items) > 1 and (
        (scene.view == "histogram" and scene.options.over not in ("ridge", "heat"))
        or (scene.view == "bars" and is_numbered(scene))
    ):
        return [LegendEntry(label=item.label, color=item.color) for item in scene.items]
    return []


def remove_artists(artists: Iterable[Artist]) -> None:
    """Remove artists from their axes."""
    for artist in artists:
        if artist.axes is not None:
            artist.remove()


def _entry_of(series: LineSeries) -> LegendEntry:
    label = f"{series.label} (right)" if series.second else series.label
    return LegendEntry(label=label, color=series.color, value=series.value, state=series.state, dash=series.dash)


def _color_of(entry: LegendEntry) -> str:
    return ALARM if "NaN" in entry.value or "Inf" in entry.value else entry.color
