"""Histograms: the latest ones, or their change over steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib import colors
from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection

from sightglass.views.distributions import MAX_COLUMNS, MAX_RIDGES, StepHistograms, over_steps
from sightglass.views.latest_values import density_of, latest_histogram
from sightglass.views.scales import axis_of, number
from sightglass.views.scene import Scene

from .layout import MAX_PANELS, Layout, remove_artists
from .style import color_map_of, plain
from .ticks import bounded, ends_of, set_ticks

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
