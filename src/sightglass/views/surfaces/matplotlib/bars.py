"""Bars: one for each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import rcParams as settings
from matplotlib.artist import Artist

from sightglass.views.latest_values import Bar, bars_of, is_numbered
from sightglass.views.palette import ALARM, NEGATIVE
from sightglass.views.scales import axis_of, number
from sightglass.views.scene import LatestRecord, Scene, frames_of

from .layout import Layout, remove_artists
from .style import fitted, plain
from .ticks import bounded, ends_of, set_categories, set_ticks

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
