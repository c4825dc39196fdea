"""Views made of lines: over steps, over the categories of frames, in x and y, scattered, annotated.

Theory of operation
    Artists stay, and get new data. While values arrive, limits leave some room ahead, so that most repaints change only
    the lines; `paint` returns whether more changed. After the user zooms or pans, the limits stay as the user set them
    until they are reset ("home"). Lines are then thinned within these limits only, so zooming in loses no point.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.lines import Line2D
from matplotlib.text import Annotation

from sightglass.views.options import ALARM, AXIS, Span
from sightglass.views.scales import Axis, axis_of, number
from sightglass.views.scene import MAX_PIXELS, Floats, LineSeries, Scene
from sightglass.views.summaries import RESTARTED
from sightglass.views.thinning import thin

from .layout import DASHES, Layout, remove_artists
from .style import NumberFormatter, bounded, ends_of, plain, set_categories, set_ticks, shorten

PATHS: Final = frozenset({"xy", "scatter", "annotated"})
MAX_DOTS: Final = 40  # up to so many categories, each gets a dot
MARK_IN: Final = 0.07  # the width of a mark
LINE_WIDTH: Final = 1.3
MAX_NOTES: Final = 30  # beyond, annotations cover each other
ROOM_AHEAD: Final = 0.15  # of the x axis: a full repaint then comes once per 15 % of new steps
MIN_FILLED: Final = 0.65  # of an axis: with less, the limits shrink to the data

# All above the spines, so that drawing them last (blitting) changes nothing.
Z_BAND, Z_RAW, Z_LINE, Z_MARK, Z_NOTE = 3.0, 3.1, 3.2, 3.3, 3.4


class LinePlot:
    """Draws lines."""

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._kind = _kind_of(scene)
        self._options = scene.options
        self.axes = layout.axes()
        self._second = self.axes.twinx() if any(series.second for series in scene.series) else None
        self._lines: list[_LineArtists] = []
        self._marks = [self._mark(char, color, filled=filled) for char, _, color, filled in MARKS]
        self._notes: list[Artist] = []
        self._restarts = RestartRules(self.axes)
        self._limits: dict[str, Span] = {}
        self._home: dict[str, Span] = {}
        self._is_setting_limits = False
        self._categories: tuple[str, ...] = ()
        self._right = ""
        self._set_scales(scene)
        self._callbacks = [
            (axes, axes.callbacks.connect(f"{name}lim_changed", self._changed))
            for axes, name in ((self.axes, "x"), (self.axes, "y"))
        ]

    @property
    def zoomed(self) -> bool:
        """Whether the user zoomed or panned."""
        return bool(self._home)

    @property
    def visible_x(self) -> Span | None:
        """The limits of x, if the user zoomed and lines can be thinned within them."""
        if not self.zoomed or self._kind != ("line", False, self._second is not None):
            return None
        low, high = sorted(self.axes.get_xlim())
        return low, high

    @property
    def animated_artists(self) -> list[Artist]:
        """The artists that change with the values, in drawing order."""
        parts = [part for line in self._lines for part in line.parts]
        # In the order in which Matplotlib draws them: axes by axes, by zorder.
        found = [*self._restarts.artists, *parts, *self._marks, *self._notes]
        return sorted(found, key=lambda artist: (artist.axes is self._second, artist.get_zorder()))

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return self._kind == _kind_of(scene) and self._options == scene.options

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene, and return whether it needs a full repaint."""
        whole = len(self._lines) != len(scene.series)
        # Strokes dominate the cost of a repaint: in a window, draw no more points than it can show.
        n_pixels = max(int(self.axes.bbox.width), 1) if self._layout.live else MAX_PIXELS
        while len(self._lines) > len(scene.series):
            self._lines.pop().remove()
        for i, series in enumerate(scene.series):
            axes = self._second if series.second and self._second is not None else self.axes
            if i == len(self._lines):
                self._lines.append(_LineArtists(axes))
            whole |= self._lines[i].axes is not axes
            if self._lines[i].axes is not axes:
                self._lines[i].remove()
                self._lines[i] = _LineArtists(axes)
            self._lines[i].paint(series, scene, n_pixels=n_pixels)
        if self._set_labels(scene):
            whole = True
            self._layout.unsettle()
        whole |= self._set_limits(scene, ended=ended or not self._layout.live)
        self._paint_marks(scene)
        self._restarts.paint(scene.restarts)
        if scene.view == "annotated" or self._notes:
            self._annotate(scene)
        return whole

    def remove(self) -> None:
        """Remove all artists."""
        for axes, callback in self._callbacks:
            axes.callbacks.disconnect(callback)
        for line in self._lines:
            line.remove()
        remove_artists([*self._marks, *self._notes])
        self._restarts.remove()
        if self._second is not None:
            self._second.remove()
        self._layout.drop(self.axes)

    def _set_scales(self, scene: Scene) -> None:
        options, clock = scene.options, scene.options.x == "wall" and scene.view == "line"
        axes = self.axes
        axes.set_xscale("log", nonpositive="mask") if options.log_x else axes.set_xscale("linear")
        set_ticks(axes.xaxis, log=options.log_x, clock=clock)
        for one in filter(None, (axes, self._second)):
            one.set_yscale("log", nonpositive="mask") if options.log_y else one.set_yscale("linear")
            set_ticks(one.yaxis, log=options.log_y)
            one.margins(0)
        if self._second is not None:
            self._second.spines["right"].set_visible(True)
            self._second.grid(visible=False)
            self._second.patch.set_visible(False)
            self._second.format_coord = self._at
        axes.format_coord = self._at

    def _at(self, x: float, y: float) -> str:
        if self._categories:
            i = round(x)
            return f"{self._categories[i] if 0 <= i < len(self._categories) else ''}   {number(y)}"
        return f"{self.axes.xaxis.get_major_formatter()(x)}   {number(y)}"

    def _set_labels(self, scene: Scene) -> bool:
        if scene.categories != self._categories:
            self._categories = scene.categories
            set_categories(self.axes.xaxis, scene.categories, room_in=self._layout.width_in(self.axes))
            return True
        names = [plain(shorten(name, 60)) for name in (scene.axes[0], scene.side(second=False))]
        right = plain(shorten(scene.side(second=True), 60)) if self._second is not None else ""
        if (self.axes.get_xlabel(), self.axes.get_ylabel()) == tuple(names) and right == self._right:
            return False
        # Matplotlib writes the date at the right.
        self.axes.set_xlabel(names[0], loc="left" if scene.options.x == "wall" else "right")
        self.axes.set_ylabel(names[1])
        if self._second is not None:
            self._second.set_ylabel(right)
        self._right = right
        return True

    # Limits

    def _set_limits(self, scene: Scene, *, ended: bool) -> bool:
        if self._home and self._is_home():
            self._home = {}
            _forget_zooms(self.axes)
        if self._home:
            return False
        options, changed = scene.options, False
        wanted: dict[str, Span | None] = {"x": self._x_limits(scene, ended=ended)}
        for name, second in (("y", False), ("second", True)):
            if second and self._second is None:
                continue
            need = axis_of(
                _columns(scene, second=second), log=options.log_y, clip=options.clip,
                limits=None if second else options.y_limits,
            )  # fmt: skip
            exact = options.y_limits is not None and not second
            wanted[name] = _settled_limits(
                self._limits.get(name), need, log=options.log_y, pad=0.0 if exact else 0.06, exact=exact or ended
            )
        for name, limits in wanted.items():
            if limits is None or limits == self._limits.get(name):
                continue
            self._limits[name] = limits
            self._is_setting_limits, changed = True, True
            axes = self._second if name == "second" and self._second is not None else self.axes
            (axes.set_xlim if name == "x" else axes.set_ylim)(limits)
            self._is_setting_limits = False
        return changed

    def _x_limits(self, scene: Scene, *, ended: bool) -> Span | None:
        options = scene.options
        if scene.categories:
            return -0.5, len(scene.categories) - 0.5
        need = axis_of((series.x for series in scene.series), log=options.log_x, limits=options.x_limits)
        if options.x_limits is not None:
            return options.x_limits
        if scene.view in PATHS:
            return _settled_limits(self._limits.get("x"), need, log=options.log_x, pad=0.06, exact=ended)
        grows = not ended and not options.log_x and self._limits.get("x") is not None
        ahead = ROOM_AHEAD if grows else 0.0
        return _settled_limits(self._limits.get("x"), need, log=options.log_x, pad=0.0, ahead=ahead, exact=ended)

    def _changed(self, _axes: Axes) -> None:
        self._layout.unsettle()  # other ticks, of another width
        if self._is_setting_limits or self._home:
            return
        self._home = dict(self._limits)

    def _is_home(self) -> bool:
        now = {"x": self.axes.get_xlim(), "y": self.axes.get_ylim()}
        return all(np.allclose(now[name], self._home[name], rtol=1e-9, atol=0) for name in now if name in self._home)

    # Marks and notes

    def _mark(self, char: str, color: str, *, filled: bool) -> Line2D:
        mark = Line2D(
            [], [], marker=char, linestyle="none", color=color, markersize=4.5, zorder=Z_MARK, clip_on=False,
            markerfacecolor=color if filled else "none", markeredgewidth=1.1,
            transform=self.axes.get_xaxis_transform(),
        )  # fmt: skip
        self.axes.add_artist(mark)
        mark.set(clip_on=False, in_layout=False)  # without points it would be at the figure's corner
        return mark

    def _paint_marks(self, scene: Scene) -> None:
        low, high = sorted(self.axes.get_xlim())
        found: list[list[Floats]] = [[], [], [], [np.asarray(scene.marks, np.float64)]]
        for series in scene.series:
            y = series.y if series.raw is None else series.raw
            for kind, odd in enumerate((np.isnan(y), y == np.inf, y == -np.inf)):
                found[kind].append(series.x[odd])
        for mark, parts, (_, height, _, _) in zip(self._marks, found, MARKS, strict=True):
            xs = np.unique(np.concatenate(parts)) if parts else np.empty(0)
            xs = xs[(xs >= low) & (xs <= high)]
            # At most one mark per `MARK_IN`: more would merge into a bar.
            slots = np.floor((xs - low) / (high - low) * self._layout.width_in(self.axes) / MARK_IN)
            xs = xs[np.unique(slots, return_index=True)[1]]
            mark.set_data(xs, np.full(len(xs), height))

    def _annotate(self, scene: Scene) -> None:
        remove_artists(self._notes)
        self._notes = []
        taken: list[tuple[float, float, float, float]] = []
        self._layout.room_in(self.axes)  # settles where the points are
        background = self.axes.get_window_extent()
        per_in = self._layout.figure.dpi
        for x, y, text, color in reversed(scene.texts[-MAX_NOTES:]):
            if not (np.isfinite(x) and np.isfinite(y)):
                continue
            px, py = self.axes.transData.transform((x, y))
            text = plain(shorten(text, 28))
            wide, tall = (0.068 * len(text) + 0.08) * per_in, 0.16 * per_in
            left = px + wide > background.x1
            box = (px - wide if left else px, py, px if left else px + wide, py + tall)
            if any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
                text = ""
            else:
                taken.append(box)
            self._notes.append(
                self.axes.annotate(
                    text,
                    (x, y),
                    xytext=(-5 if left else 5, 4),
                    textcoords="offset points",
                    fontsize=8,
                    ha="right" if left else "left",
                    zorder=Z_NOTE,
                    color=settings["text.color"],
                    clip_on=True,
                )
            )
            (dot,) = self.axes.plot(
                [x], [y], "o", color=settings["axes.facecolor"], markeredgecolor=color, markersize=5, zorder=Z_MARK
            )
            self._notes.append(dot)


MARKS: Final = (("x", 0.0, ALARM, True), ("^", 1.0, ALARM, True), ("v", 0.0, ALARM, True), ("o", 0.0, AXIS, False))
"""Marks at the edge for values that are NaN, +Inf, -Inf, or computed from a part of their window."""


class _LineArtists:
    """The artists of one line: with its band and the raw line under a smoothed one."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self._line = Line2D([], [], zorder=Z_LINE)
        self._raw = Line2D([], [], zorder=Z_RAW, alpha=0.28, linewidth=0.9)
        self._head = Line2D([], [], zorder=Z_MARK, marker="o", linestyle="none", markersize=6)
        self._band = PolyCollection([], zorder=Z_BAND, alpha=0.2, linewidths=0)
        for artist in (self._line, self._raw, self._head):
            axes.add_line(artist)
        axes.add_collection(self._band, autolim=False)

    @property
    def parts(self) -> list[Artist]:
        """The artists, in drawing order."""
        return [self._band, self._raw, self._line, self._head]

    def remove(self) -> None:
        """Remove the artists."""
        remove_artists(self.parts)

    def paint(self, series: LineSeries, scene: Scene, *, n_pixels: int) -> None:
        """Show a series, thinned to a number of pixels."""
        x, y = _drawable(series.x), _drawable(series.y)
        if series.raw is not None:
            self._raw.set_data(*thin(x, _drawable(series.raw), n_pixels))
        else:
            self._raw.set_data([], [])
        if scene.view == "line":
            x, y = thin(x, y, n_pixels)
        self._line.set_data(x, y)
        dots = scene.view == "scatter"
        few = dots or 0 < len(scene.categories) <= MAX_DOTS
        # A point between two gaps has no line: draw a dot.
        lonely = np.flatnonzero(_alone(np.isfinite(y)))
        self._line.set(
            color=series.color, alpha=series.alpha if not dots else 0.75,
            linestyle="none" if dots else DASHES[series.dash % len(DASHES)],
            marker="o" if few or len(lonely) else "none", markersize=3.5,
            markevery=None if few else lonely.tolist(), markeredgewidth=0, linewidth=LINE_WIDTH,
        )  # fmt: skip
        self._raw.set_color(series.color)
        last = np.flatnonzero(np.isfinite(y))[-1:] if scene.view in ("xy", "annotated") else np.empty(0, np.intp)
        self._head.set_data(x[last], y[last])
        self._head.set(color=series.color, markeredgecolor=settings["axes.facecolor"])
        self._band.set(facecolor=series.color)
        self._band.set_verts(list(_band(series)))


def _band(series: LineSeries) -> list[Floats]:
    """Return the outline of a band, one polygon per stretch without a gap."""
    if series.low is None or series.high is None:
        return []
    known = np.isfinite(series.low) & np.isfinite(series.high)
    ends = np.flatnonzero(np.diff(np.concatenate([[False], known, [False]]).astype(int)))
    outlines = []
    for first, end in zip(ends[::2], ends[1::2], strict=True):
        x, low, high = (bounded(part[first:end]) for part in (series.x, series.low, series.high))
        outlines.append(np.column_stack([np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])]))
    return outlines


def _alone(known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return which points have no neighbour, of shape (n,)."""
    padded = np.concatenate([[False], known, [False]])
    alone: npt.NDArray[np.bool_] = known & ~padded[:-2] & ~padded[2:]
    return alone


def _kind_of(scene: Scene) -> tuple[Any, ...]:
    view = scene.view if scene.view in PATHS else "line"
    return view, bool(scene.categories), any(series.second for series in scene.series)


def _columns(scene: Scene, *, second: bool) -> Sequence[Floats]:
    chosen = [series for series in scene.series if series.second == second]
    return [c for one in chosen for c in (one.y, one.raw, one.low, one.high) if c is not None]


def _drawable(data: Floats) -> Floats:
    return np.where(np.isfinite(data), bounded(data), np.nan)


def _settled_limits(
    old: Span | None, need: Axis | None, *, log: bool, pad: float, ahead: float = 0.0, exact: bool = False
) -> Span | None:
    """Return limits that show the needed range: the old limits, as long as the range fits and fills them."""
    if need is None:
        return old
    low, high = (np.log10([need.low, need.high]) if log else np.array(ends_of(need))).tolist()
    if old is not None and not exact:
        before = np.log10(old) if log else np.asarray(old)
        span = before[1] - before[0]
        if before[0] <= low and high <= before[1] and high - low >= MIN_FILLED * span * (1 - ahead):
            return old
    low, high = low - pad * (high - low), high + (pad + ahead) * (high - low)
    if log:
        low, high = max(low, -300.0), min(high, 307.0)
        return 10.0**low, 10.0**high
    return low, high


def _forget_zooms(axes: Axes) -> None:
    toolbar = getattr(axes.figure.canvas, "toolbar", None)
    if toolbar is not None:
        toolbar.update()


# Lines in three dimensions.

ANGLES: Final = (24, -56)  # elevation and azimuth at which no axis hides another


class LinePlot3D:
    """Draws lines in x, y and z, which can be rotated with the mouse."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self.axes = layout.axes(projection="3d")
        self.axes.view_init(*ANGLES)
        self.axes.set_box_aspect((1.35, 1.35, 1.0), zoom=1.12)
        self._lines: list[tuple[Any, Any]] = []
        for name, axis in zip("xyz", (self.axes.xaxis, self.axes.yaxis, self.axes.zaxis), strict=True):
            axis.set_pane_color((0, 0, 0, 0))
            axis._axinfo["grid"].update(color=settings["grid.color"], linewidth=0.5, linestyle="-")
            axis.line.set_color(settings["axes.edgecolor"])
            axis.set_major_formatter(NumberFormatter())
            axis.get_major_locator().set_params(nbins=5, steps=[1, 2, 5, 10])
            self.axes.tick_params(axis=name, labelsize=settings["legend.fontsize"] - 1, pad=1)

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "line3d"

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        while len(self._lines) > len(scene.series):
            remove_artists(self._lines.pop())
        while len(self._lines) < len(scene.series):
            self._lines.append((self.axes.plot([], [], [])[0], self.axes.plot([], [], [], "o", markersize=6)[0]))
        for series, (line, head) in zip(scene.series, self._lines, strict=True):
            parts = _parts(series)
            line.set_data_3d(*parts)
            line.set(color=series.color, linestyle=DASHES[series.dash % len(DASHES)])
            head.set_data_3d(*(part[-1:] for part in parts))
            head.set(color=series.color, markeredgecolor=settings["axes.facecolor"])
        for name, label in zip("xyz", scene.axes, strict=True):
            getattr(self.axes, f"set_{name}label")(plain(shorten(label, 40)))
        options = scene.options
        axes = [
            axis_of([_parts(series)[i] for series in scene.series], clip=options.clip, limits=limits)
            for i, limits in enumerate((options.x_limits, options.y_limits, None))
        ]
        for name, axis in zip("xyz", axes, strict=True):
            if axis is not None:
                getattr(self.axes, f"set_{name}lim")(_padded(axis))
        self._layout.unsettle()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        self._layout.drop(self.axes)


def _parts(series: LineSeries) -> tuple[Any, Any, Any]:
    z = series.z if series.z is not None else np.zeros_like(series.x)
    solid = np.isfinite(series.x) & np.isfinite(series.y) & np.isfinite(z)
    x, y, z = (bounded(np.where(solid, part, np.nan)) for part in (series.x, series.y, z))
    return x, y, z


def _padded(axis: Axis) -> tuple[float, float]:
    low, high = ends_of(axis)
    pad = 0.02 * (high - low)
    return low - pad, high + pad


# Thin dashed rules where a run began again.

Z_RULE: Final = 2.9  # below the lines
MAX_RULES: Final = 50  # more would hide the lines
APART: Final = 0.12  # of the axis: labels that are nearer would cover each other


class RestartRules:
    """Draws a rule for each restart, with a label where there is room."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._rules = LineCollection(
            [], colors=AXIS, linewidths=0.8, linestyles=[(0, (4, 3))], zorder=Z_RULE,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        axes.add_collection(self._rules, autolim=False)
        self._labels: list[Annotation] = []
        self._shown: tuple[float, ...] = ()

    @property
    def artists(self) -> list[Artist]:
        """The artists, in drawing order."""
        return [self._rules, *self._labels]

    def paint(self, restarts: Sequence[float]) -> None:
        """Show restarts at these x."""
        low, high = sorted(self._axes.get_xlim())
        xs = tuple(x for x in restarts[-MAX_RULES:] if low <= x <= high)
        labelled = (*xs, low, high)
        if labelled == self._shown:
            return
        self._shown = labelled
        self._rules.set_segments([np.array([(x, 0.0), (x, 1.0)]) for x in xs])
        remove_artists(self._labels)
        self._labels = []
        to_axes = (self._axes.transData + self._axes.transAxes.inverted()).transform
        last = np.inf
        for x in reversed(xs):  # the newest first
            at = to_axes((x, 1.0))[0]
            if last - at < APART:
                continue
            last, left = at, at > 1 - APART
            self._labels.append(
                self._axes.annotate(
                    RESTARTED, (x, 1.0), xycoords=self._axes.get_xaxis_transform(), xytext=(-3 if left else 3, -2),
                    textcoords="offset points", ha="right" if left else "left", va="top", fontsize=7.5, color=AXIS,
                    zorder=Z_RULE,
                )
            )  # fmt: skip
            self._labels[-1].set_in_layout(False)

    def remove(self) -> None:
        """Remove the artists."""
        remove_artists(self.artists)
