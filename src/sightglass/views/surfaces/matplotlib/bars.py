"""Bars: one for each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colors
from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from sightglass.views.distributions import MAX_COLUMNS, MAX_RIDGES, StepHistograms, over_steps
from sightglass.views.latest_values import Bar, bars_of, density_of, is_numbered, latest_histogram
from sightglass.views.options import ALARM, NEGATIVE
from sightglass.views.scales import axis_of, number
from sightglass.views.scene import LatestRecord, Scene, frames_of

from .layout import MAX_PANELS, Layout, remove_artists
from .style import bounded, color_map_of, ends_of, fitted, plain, set_categories, set_ticks

BAR_IN: Final = 0.17  # the height of a row of text
MAX_NAME_SHARE: Final = 1 / 3  # of the figure's width


class BarPlot:
    """Draws one bar for each name: horizontal bars if named, vertical bars if numbered."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self.axes = layout.axes()
        self._vertical = is_numbered(scene)
        self._artists: list[Artist] = []
        self.axes.spines["left"].set_visible(self._vertical)
        self.axes.tick_params(left=self._vertical)
        self.axes.grid(visible=False)
        self.axes.grid(visible=True, axis="y" if self._vertical else "x")

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "bars" and self._vertical == is_numbered(scene)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        if self._vertical:
            self._paint_vertical(scene)
        else:
            self._paint_horizontal(scene)
        self._layout.unsettle()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        self._layout.drop(self.axes)

    def _paint_horizontal(self, scene: Scene) -> None:
        axes, (bars, n_left) = self.axes, self._shown(scene)
        points = self._points(len(bars))
        values = np.array([bar.value for bar in bars])
        finite = np.where(np.isfinite(values), bounded(values), 0.0)
        everything: list[Any] = [values, *([value for _, value in bar.ages] for bar in bars)]
        axis = axis_of(everything, zero=True, clip=False, limits=scene.options.y_limits)
        low, high = ends_of(axis)
        axes.set_xlim(low - 0.01 * (high - low) * (low < 0), high + 0.01 * (high - low))
        n_rows = len(bars) + bool(n_left)
        axes.set_ylim(max(n_rows, 4) - 0.5, -0.5)
        set_ticks(axes.xaxis)
        bar_colors = [NEGATIVE if value < 0 else bar.color for value, bar in zip(finite, bars, strict=True)]
        self._artists += list(axes.barh(range(len(bars)), finite, height=0.68, color=bar_colors, zorder=2))
        self._artists.append(axes.axvline(0.0, color=settings["axes.edgecolor"], linewidth=0.8, zorder=2.4))
        room = self._layout.size_in[0] * MAX_NAME_SHARE
        names = [fitted(plain(bar.name), room, points) for bar in bars]
        axes.set_yticks(range(n_rows), [*names, *([f"… {n_left:,} more"] if n_left else [])], fontsize=points)
        for row, bar in enumerate(bars):
            odd = not np.isfinite(bar.value)
            self._artists.append(axes.annotate(
                number(bar.value), (1, row), xycoords=axes.get_yaxis_transform(), xytext=(6, 0), va="center",
                textcoords="offset points", annotation_clip=False, size=points, weight="bold",
                color=ALARM if odd else settings["text.color"],
            ))  # fmt: skip
            for alpha, value in _past(bar):
                self._artists += axes.plot(
                    [value, value],
                    [row - 0.34, row + 0.34],
                    color=settings["text.color"],
                    alpha=alpha,
                    linewidth=1.2,
                    zorder=2.2,
                )

    def _paint_vertical(self, scene: Scene) -> None:
        axes = self.axes
        groups = [bars for item in scene.items if (bars := bars_of(item, alone=True, frames=_older(item, scene)))]
        values = [np.array([bar.value for bar in bars]) for bars in groups]
        ages = [[value for bar in bars for _, value in bar.ages] for bars in groups]
        axis = axis_of([*values, *ages], zero=True, limits=scene.options.y_limits)
        low, high = ends_of(axis)
        pad = 0.04 * (high - low)
        n = max(map(len, values))
        axes.set_xlim(-0.6, n - 0.4)
        axes.set_ylim(low - pad * (low < 0), high + pad)
        set_ticks(axes.yaxis)
        set_categories(axes.xaxis, [str(i) for i in range(n)], room_in=self._layout.room_in(self.axes)[0])
        wide = 0.8 / len(groups)
        for g, (bars, heights) in enumerate(zip(groups, values, strict=True)):
            at = np.arange(len(bars)) - 0.4 + wide * (g + 0.5)
            finite = np.where(np.isfinite(heights), bounded(heights), 0.0)
            self._artists += list(axes.bar(at, finite, width=wide * 0.92, color=bars[0].color, zorder=2))
            odd = at[~np.isfinite(heights)]
            self._artists += axes.plot(odd, np.zeros(len(odd)), "x", color=ALARM, zorder=3, clip_on=False)
            for x, bar in zip(at, bars, strict=True):
                for alpha, value in _past(bar):
                    ends = [x - wide * 0.46, x + wide * 0.46]
                    self._artists += axes.plot(
                        ends, [value] * 2, color=settings["text.color"], alpha=alpha, lw=1.2, zorder=2.2
                    )
        self._artists.append(axes.axhline(0.0, color=settings["axes.edgecolor"], linewidth=0.8, zorder=2.4))

    def _shown(self, scene: Scene) -> tuple[list[Bar], int]:
        alone = len(scene.items) == 1
        bars = [bar for item in scene.items for bar in bars_of(item, alone=alone, frames=_older(item, scene))]
        room = max(int(self._layout.room_in(self.axes)[1] / BAR_IN), 4)
        return (bars, 0) if len(bars) <= room else (bars[: room - 1], len(bars) - room + 1)

    def _points(self, n: int) -> float:
        room = self._layout.room_in(self.axes)[1] / max(n, 1)
        return float(min(settings["ytick.labelsize"], max(room * 72 * 0.62, 6.5)))


def _past(bar: Bar) -> list[tuple[float, float]]:
    """Return the earlier values of a bar with their opacity, as (alpha, value)."""
    return [(alpha, float(bounded(value))) for alpha, value in bar.ages[:-1] if np.isfinite(value)]


def _older(item: LatestRecord, scene: Scene) -> list[tuple[float, Any]]:
    if not scene.options.frames:
        return []
    return [(alpha, record.value) for alpha, record in frames_of(item, scene.options.history)]


# Histograms: the latest ones, or their change over steps.

N_BINS: Final = 96  # a few pixels each in a panel of usual width
RIDGE_HEIGHT: Final = 3.0  # of the tallest ridge, in distances between two ridges


class HistogramPlot:
    """Draws the latest histogram of each stream, on common axes."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self.axes = layout.axes()
        self._artists: list[Artist] = []
        set_ticks(self.axes.xaxis)
        set_ticks(self.axes.yaxis)
        self.axes.format_coord = lambda x, y: f"{number(x)}   {number(y)}"

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "histogram" and not is_over_steps(scene)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        drawn = [(item, one) for item in scene.items if (one := latest_histogram(item)) is not None and one.total]
        several = len(drawn) > 1
        heights = [bounded(density_of(one) if several else one.counts) for _, one in drawn]
        for (item, one), height in zip(drawn, heights, strict=True):
            for fill in (True, False):
                step = self.axes.stairs(height, bounded(one.edges), fill=fill, color=item.color, zorder=2.6)
                step.set(alpha=0.3 if several and fill else 0.8 if fill else 1.0, linewidth=1.2)
                if fill and not several:
                    step.set(linewidth=0)
                self._artists.append(step)
        x = axis_of([one.edges for _, one in drawn], limits=scene.options.x_limits)
        y = axis_of(heights, zero=True, limits=scene.options.y_limits)
        low, high = ends_of(y)
        self.axes.set_xlim(ends_of(x))
        self.axes.set_ylim(low, high * (1.05 if scene.options.y_limits is None else 1))
        quantity = "density" if several else "count"
        self.axes.set(xlabel="value", ylabel=quantity)
        self._layout.unsettle()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        self.axes.set(xlabel="", ylabel="")
        self._layout.drop(self.axes)


class StepHistogramPlot:
    """Draws histograms over steps, with a panel for each stream: as ridges, or as a heat map."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._over = scene.options.over
        self._panels: list[Axes] = []
        self._artists: list[Artist] = []
        self._arranged: list[int] = []

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "histogram" and scene.options.over == self._over and is_over_steps(scene)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        n_max = MAX_RIDGES if self._over == "ridge" else MAX_COLUMNS
        shown = [(item, over) for item in scene.items[:MAX_PANELS]
                 if (over := over_steps(item.values, n_max=n_max, n_bins=N_BINS)) is not None]  # fmt: skip
        self._layout.resize(self._panels, len(shown))
        for axes, (item, over) in zip(self._panels, shown, strict=True):
            axes.set_title(
                plain(item.label) if len(shown) > 1 else "",
                loc="left",
                color=item.color,
                size=settings["axes.labelsize"],
            )
            if self._over == "ridge":
                self._ridge(axes, over, item.color)
            else:
                self._heat(axes, over)
        # The layout of many panels takes seconds: only longer numbers may need another one.
        arranged = [len(number(over.steps[-1])) for _, over in shown]
        if arranged != self._arranged:
            self._arranged = arranged
            self._layout.unsettle()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        for axes in self._panels:
            axes.set_title("")
            axes.set(xlabel="", ylabel="")
            self._layout.drop(axes)

    def _ridge(self, axes: Axes, over: StepHistograms, color: str) -> None:
        n = len(over.steps)
        top = over.counts.max() or 1.0
        middles = (over.edges[1:] + over.edges[:-1]) / 2
        # The newest is in front, at the bottom.
        outlines = []
        for i, counts in enumerate(over.counts):
            y = counts / top * RIDGE_HEIGHT + (n - 1 - i)
            base = float(n - 1 - i)
            outlines.append([(middles[0], base), *zip(middles, y, strict=True), (middles[-1], base)])
        age = np.linspace(0.25, 0.9, n)[:, None]
        background, solid = (np.array(colors.to_rgb(c)) for c in (settings["axes.facecolor"], color))
        shades = background * (1 - age) + solid * age
        ridges = PolyCollection(outlines, facecolors=shades, edgecolors=settings["axes.facecolor"], linewidths=0.6)
        ridges.set_zorder(2.6)
        axes.add_collection(ridges, autolim=False)
        self._artists.append(ridges)
        axes.set_xlim(*bounded(over.edges[[0, -1]]))
        axes.set_ylim(-0.3, n - 1 + RIDGE_HEIGHT * 1.05)
        set_ticks(axes.xaxis)
        every = max(1, -(-n // 6))
        at = list(range(n - 1, -1, -every))
        axes.set_yticks([n - 1 - i for i in at], [number(over.steps[i]) for i in at])
        axes.grid(visible=False)
        axes.set(xlabel="value", ylabel="step")

    def _heat(self, axes: Axes, over: StepHistograms) -> None:
        order = np.argsort(over.steps, kind="stable")
        steps, counts = over.steps[order], over.counts[order]
        kept = np.append(np.diff(steps) > 0, True)
        steps, counts = steps[kept], counts[kept]
        gaps = np.diff(steps) / 2 if len(steps) > 1 else np.array([0.5])
        xs = np.concatenate([[steps[0] - gaps[0]], steps[:-1] + gaps[: len(steps) - 1], [steps[-1] + gaps[-1]]])
        share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        shown = np.where(share > 0, share, np.nan)
        mesh = axes.pcolormesh(xs, bounded(over.edges), shown.T, cmap=color_map_of(diverging=False, bad=None), vmin=0.0)
        self._artists.append(mesh)
        axes.set_xlim(xs[0], xs[-1])
        axes.set_ylim(*bounded(over.edges[[0, -1]]))
        set_ticks(axes.xaxis)
        set_ticks(axes.yaxis)
        axes.grid(visible=False)
        axes.set(xlabel="step", ylabel="value")


def is_over_steps(scene: Scene) -> bool:
    """Return whether a scene shows histograms over steps."""
    return scene.options.over in ("ridge", "heat") and any(item.values for item in scene.items)
