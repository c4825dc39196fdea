"""The layout of a view: Matplotlib's own, in a figure of the view, in a part of the user's, or in the user's axes.

Theory of operation
    The title and the legend stand above the plot, the caption (what is shown, and notices) below it. In a figure of its
    own a view uses Matplotlib's constrained layout, which makes room for them. In the user's axes the layout is the
    user's, and the text belongs to the axes.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation, Transform

from sightglass.views.latest_values import is_numbered, latest_histogram, log_axis_notices
from sightglass.views.options import ALARM, AXIS
from sightglass.views.scene import LatestRecord, LineSeries, Scene

from .style import fitted, plain, width_in

PAD_IN: Final = 0.1  # around everything
MAX_LEGEND_SHARE: Final = 0.35  # of the figure's height: the plot needs the rest
MIN_LEGEND_ROWS: Final = 2
MAX_NAME_SHARE: Final = 0.6  # of the figure's width: the entry's value needs the rest
MAX_VALUE: Final = 9  # characters, as in "-1.234e-5"
MAX_NOTICES: Final = 4
MAX_PANELS: Final = 12  # beyond, panels are too small to read
PANEL_SHAPE: Final = 1.6  # the preferred width of a panel divided by its height
DASHES: Final[tuple[Any, ...]] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))


class SettledLayout(ConstrainedLayoutEngine):  # type: ignore[misc,unused-ignore]
    """Matplotlib's constrained layout, run only after a change that may move axes: it takes longer than a repaint.

    Attributes:
        stale: Whether something has changed that may move axes.
    """

    def __init__(self, *, compress: bool) -> None:
        super().__init__(w_pad=PAD_IN, h_pad=PAD_IN / 2, compress=compress)
        self.stale = True
        self._size = (0.0, 0.0)

    def execute(self, fig: Figure) -> Any:
        """Place the axes, if that is needed."""
        size = tuple(fig.get_size_inches())
        if not self.stale and size == self._size:
            return
        self.stale, self._size = False, size
        with warnings.catch_warnings():
            # A window may be too small for its text: this is no news at each repaint.
            warnings.simplefilter("ignore", UserWarning)
            super().execute(fig)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendEntry:
    """One entry of the legend."""

    label: str
    color: str
    value: str = ""
    dash: int = 0


class Layout:
    """Where the axes of a view are.

    Args:
        figure: The figure or subfigure; gets a constrained layout if it has no layout engine.
        axes: The axes to draw in; by default the whole figure.
        live: Whether repaints are frequent, so that limits leave room for new values.
    """

    def __init__(self, figure: Figure | SubFigure, axes: Axes | None = None, *, live: bool = False) -> None:
        self.live = live
        self.figure: Any = figure  # a figure or a subfigure; the common base class lacks `dpi`
        self.given: Any = axes
        root: Any = figure.canvas.figure
        if axes is None and root.get_layout_engine() is None:
            # Compressed, axes with equal units stay close to their colour bars; in subfigures these would be cut off.
            root.set_layout_engine(SettledLayout(compress=figure is root))

    @property
    def size_in(self) -> tuple[float, float]:
        """Width and height of the figure, or of the user's axes, in inches."""
        box = self.figure.bbox if self.given is None else self.given.bbox
        return box.width / self.figure.dpi, box.height / self.figure.dpi

    def room_in(self, axes: Axes) -> tuple[float, float]:
        """Return the width and height of axes, in inches, with all text around them in place."""
        root = self.figure.canvas.figure
        engine = root.get_layout_engine()
        if isinstance(engine, SettledLayout):
            engine.execute(root)
        return max(axes.bbox.width / self.figure.dpi, 0.1), max(axes.bbox.height / self.figure.dpi, 0.1)

    def width_in(self, axes: Axes) -> float:
        """Return the width of axes, in inches, as it is now."""
        return float(axes.bbox.width / self.figure.dpi)

    def unsettle(self) -> None:
        """Let the layout engine run before the next drawing."""
        engine = self.figure.canvas.figure.get_layout_engine()
        if isinstance(engine, SettledLayout):
            engine.stale = True

    def axes(self, **options: Any) -> Any:
        """Return axes for the whole view: the user's, or new ones."""
        if self.given is None:
            axes = self.figure.add_subplot(**options)
        elif "projection" in options:
            self.given.set_axis_off()
            axes = self.figure.add_axes(self.given.get_position(), **options)
        else:
            self.given.set_axis_on()
            return self.given
        axes.patch.set_visible(False)
        return axes

    def drop(self, axes: Axes) -> None:
        """Remove axes, unless they are the user's."""
        if axes is not self.given and axes.figure is not None:
            axes.remove()

    def resize(self, panels: list[Axes], n: int) -> None:
        """Make a list of axes `n` long, in a grid. A single one is the user's, if there are such axes."""
        if len(panels) == n:
            return
        for axes in panels:
            self.drop(axes)
        self.unsettle()
        if n == 1:
            panels[:] = [self.axes()]
            return
        width, height = self.size_in
        columns = min(
            range(1, n + 1), key=lambda k: abs(math.log((width / k) / (height / -(-n // k)) / PANEL_SHAPE)), default=1
        )
        grid = self._grid(-(-n // columns), columns)
        panels[:] = [self.figure.add_subplot(grid[i // columns, i % columns]) for i in range(n)]

    def _grid(self, rows: int, columns: int) -> Any:
        if self.given is None:
            return self.figure.add_gridspec(rows, columns)
        self.given.set_axis_off()
        place = self.given.get_subplotspec()
        if place is not None:
            return place.subgridspec(rows, columns)
        box = self.given.get_position()
        return self.figure.add_gridspec(rows, columns, left=box.x0, right=box.x1, bottom=box.y0, top=box.y1)


class FigureText:
    """The title, the legend and the caption of a view."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        style = {"ha": "left", "color": AXIS, "size": settings["legend.fontsize"]}
        given = layout.given
        self._caption: Any = (
            layout.figure.supxlabel("", x=0.0, **style)
            if given is None
            else given.annotate(
                "", (0, 0), xycoords=("axes fraction", given.xaxis.label), xytext=(0, -2), textcoords="offset points",
                va="top", annotation_clip=False, **style,
            )
        )  # fmt: skip
        self._legend: Any = None
        self._n_shown = 0
        self._arranged: tuple[Any, ...] = ()

    @property
    def animated_artists(self) -> list[Artist]:
        """The artists that change with the values."""
        return [self._legend, self._caption]

    def paint(self, scene: Scene) -> bool:
        """Show a scene's text, and return whether anything but values changed."""
        entries = _entries_of(scene)
        alone = entries.pop() if len(entries) == 1 and entries[0].label == scene.title else None
        # A title that only lists the streams would repeat the legend.
        listed = bool(entries) and scene.title == ", ".join(item.label for item in scene.items)
        listed = listed and len(entries) == len(scene.items)
        size = self._layout.size_in
        caption = _caption_of(scene, size[0] - 2 * PAD_IN)
        look = [(entry.label, entry.color, entry.dash) for entry in entries]
        arranged = (size, scene.title, listed, look, len(caption))
        changed = arranged != self._arranged
        if changed:
            self._arranged = arranged
            self._layout.unsettle()
            self._new_legend(entries)
        value, points = f"  {alone.value}" if alone else "", settings["axes.titlesize"]
        room = size[0] - 2 * PAD_IN - width_in(value, points, bold=True)
        title = fitted(plain(scene.title), room, points, bold=True, middle=False)
        self._legend.set_title("" if listed else title + value)
        self._legend.get_title().set_color(_color_of(alone))
        for text, entry in zip(self._legend.get_texts()[: self._n_shown], entries, strict=False):
            text.set(text=self._text_of(entry), color=_color_of(entry))
        self._caption.set_text("\n".join(caption))
        if self._layout.given is None:
            self._caption.set_x(PAD_IN / size[0])
        return changed

    def _new_legend(self, entries: list[LegendEntry]) -> None:
        """Make the legend, with as many columns as fit side by side."""
        n, (width, height) = len(entries), self._layout.size_in
        handles = [
            Line2D([], [], color=entry.color, linestyle=DASHES[entry.dash % len(DASHES)], linewidth=2.2)
            for entry in entries
        ]
        # Values may get longer, but the number of columns stays.
        texts = [
            self._text_of(replace(entry, value=entry.value and entry.value.ljust(MAX_VALUE, "0"))) for entry in entries
        ]
        self._n_shown = n
        self._set_legend(handles, texts, 1)
        if n < 2:
            return
        box, dpi = self._legend.get_window_extent(), self._layout.figure.dpi
        gap = settings["legend.columnspacing"] * settings["legend.fontsize"] / 72 * dpi
        columns = min(max(int(((width - 2 * PAD_IN) * dpi + gap) / (box.width + gap)), 1), n)
        rows = max(int(MAX_LEGEND_SHARE * height * dpi / (box.height / n)), MIN_LEGEND_ROWS)
        if n > rows * columns:
            self._n_shown = rows * columns - 1
            handles[self._n_shown :] = [Line2D([], [], linewidth=0)]
            texts[self._n_shown :] = [f"+{n - self._n_shown} more"]
        self._set_legend(handles, texts, columns)

    def _text_of(self, entry: LegendEntry) -> str:
        room = self._layout.size_in[0] * MAX_NAME_SHARE
        return f"{fitted(plain(entry.label), room, settings['legend.fontsize'])}  {entry.value}".rstrip()

    def _set_legend(self, handles: list[Line2D], texts: list[str], columns: int) -> None:
        if self._legend is not None:
            self._legend.remove()
        for handle, text in zip(handles, texts, strict=True):
            handle.set_label(text)
        options: dict[str, Any] = {
            "handles": handles, "ncols": columns, "alignment": "left", "title": " ", "borderpad": 0,
            "title_fontproperties": {"weight": "bold", "size": settings["axes.titlesize"]},
        }  # fmt: skip
        if self._layout.given is None:
            pad = PAD_IN * 72 / settings["legend.fontsize"]
            self._legend = self._layout.figure.legend(loc="outside upper left", borderaxespad=pad, **options)
        else:
            self._legend = self._layout.given.legend(loc="lower left", bbox_to_anchor=(0, 1), **options)


def corner(axes: Axes) -> Transform:
    """Return a transform in inches from the upper left corner of axes."""
    figure: Any = axes.figure
    anchor: Any = axes.transAxes
    transform: Transform = figure.dpi_scale_trans + ScaledTranslation(0, 1, anchor)
    return transform


def remove_artists(artists: Iterable[Artist]) -> None:
    """Remove artists from their axes."""
    for artist in artists:
        if artist.axes is not None:
            artist.remove()


def _entries_of(scene: Scene) -> list[LegendEntry]:
    if scene.series:
        return [_entry_of(series) for series in scene.series if series.label]
    if scene.view == "histogram" and scene.options.over not in ("ridge", "heat"):
        return [LegendEntry(label=item.label, color=item.color, value=_count_of(item)) for item in scene.items]
    if len(scene.items) > 1 and scene.view == "bars" and is_numbered(scene):
        return [LegendEntry(label=item.label, color=item.color) for item in scene.items]
    return []


def _count_of(item: LatestRecord) -> str:
    found = latest_histogram(item)
    if found is None:
        return ""
    odd = (("NaN", found.n_nan), ("+Inf", found.n_posinf), ("-Inf", found.n_neginf))
    return ", ".join([f"{found.total:,} values", *(f"{n:,} {name}" for name, n in odd if n)])


def _entry_of(series: LineSeries) -> LegendEntry:
    label = f"{series.label} (right)" if series.second else series.label
    value = f"{series.value} ({series.state})" if series.state else series.value
    return LegendEntry(label=label, color=series.color, value=value, dash=series.dash)


def _caption_of(scene: Scene, room_in: float) -> list[str]:
    """Return the subtitle and the notices, in lines that fit."""
    notices = [f"▸ {notice}" for notice in (*scene.notices, *log_axis_notices(scene))]
    if len(notices) > MAX_NOTICES:
        notices[MAX_NOTICES - 1 :] = [f"▸ and {len(notices) - MAX_NOTICES + 1} more"]
    lines = []
    for text in map(plain, filter(None, (scene.subtitle, *notices))):
        width = width_in(text, settings["legend.fontsize"])
        # A line of wide letters may be wider than the average.
        n_max = len(text) if width <= room_in else max(int(0.9 * len(text) * room_in / width), 10)
        lines += textwrap.wrap(text, n_max, max_lines=3, placeholder=" …", subsequent_indent="   ")
    return lines


def _color_of(entry: LegendEntry | None) -> str:
    odd = entry is not None and ("NaN" in entry.value or "Inf" in entry.value)
    return ALARM if odd else str(settings["text.color"])
