"""Bars: one for each name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import rcParams as settings
from matplotlib.artist import Artist

from sightglass.views.latest_values import Bar, bars_of, is_numbered
from sightglass.views.palette import ALARM, AXIS, NEGATIVE
from sightglass.views.scales import axis_of, number
from sightglass.views.scene import LatestRecord, Scene, frames_of

from .layout import Layout, Margins, remove_artists
from .style import fitted, plain, width_in
from .ticks import bounded, ends_of, set_categories, set_ticks

BAR_IN: Final = 0.17  # the height of a row of text


class BarPlot:
    """Draws one bar for each name: horizontal bars if named, vertical bars if numbered."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self.axes = layout.axes()
        self._vertical = is_numbered(scene)
        self._artists: list[Artist] = []
        self.axes.spines["left"].set_visible(self._vertical)
        self.axes.tick_params(left=self._vertical, labelleft=self._vertical)
        self.axes.grid(visible=False)
        self.axes.grid(visible=True, axis="y" if self._vertical else "x")

    def margins(self, scene: Scene) -> Margins:
        """Return the margins of the axes: as wide as the names and the values."""
        if self._vertical:
            return Margins()
        bars, _ = self._shown(scene)
        points = self._points(len(bars))
        widest = max((width_in(plain(bar.name), points) for bar in bars), default=0.5)
        values = max((width_in(number(bar.value), points, bold=True) for bar in bars), default=0.5)
        return Margins(left=min(widest, self._layout.width_in / 3) + 0.3, right=values + 0.35, below=0.35)

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "bars" and self._vertical == is_numbered(scene)

    def arrange(self) -> None:
        """Adapt to the layout."""
        if self.axes is not self._layout.given:
            self.axes.set_position(self._layout.frame.get_position())

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        if self._vertical:
            self._paint_vertical(scene)
        else:
            self._paint_horizontal(scene)
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
        left, right = self._layout.margins.left - 0.1, 0.08
        for row, bar in enumerate(bars):
            odd = not np.isfinite(bar.value)
            name = fitted(plain(bar.name), left - 0.1, points)
            self._artists.append(self._beside(row, -0.08, name, left=True, size=points))
            text = self._beside(row, right, number(bar.value), left=False, size=points, weight="bold")
            text.set_color(ALARM if odd else settings["text.color"])
            self._artists.append(text)
            for alpha, value in _past(bar):
                self._artists += axes.plot(
                    [value, value],
                    [row - 0.34, row + 0.34],
                    color=settings["text.color"],
                    alpha=alpha,
                    linewidth=1.2,
                    zorder=2.2,
                )
        if n_left:
            more = self._beside(len(bars), -0.08, f"… {n_left:,} more", left=True, size=points)
            more.set_color(AXIS)
            self._artists.append(more)

    def _beside(self, row: int, x: float, text: str, *, left: bool, **style: Any) -> Any:
        """Write next to a bar, at a distance in inches from the edge of the axes."""
        return self.axes.annotate(
            text, (0 if left else 1, row), xycoords=self.axes.get_yaxis_transform(), xytext=(x * 72, 0),
            textcoords="offset points", ha="right" if left else "left", va="center", annotation_clip=False, **style,
        )  # fmt: skip

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
        set_categories(axes.xaxis, [str(i) for i in range(n)], room_in=self._layout.room_in[0])
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
        room = max(int(self._layout.room_in[1] / BAR_IN), 4)
        return (bars, 0) if len(bars) <= room else (bars[: room - 1], len(bars) - room + 1)

    def _points(self, n: int) -> float:
        room = self._layout.room_in[1] / max(n, 1)
        return float(min(settings["ytick.labelsize"], max(room * 72 * 0.62, 6.5)))


def _past(bar: Bar) -> list[tuple[float, float]]:
    """Return the earlier values of a bar with their opacity, as (alpha, value)."""
    return [(alpha, float(bounded(value))) for alpha, value in bar.ages[:-1] if np.isfinite(value)]


def _older(item: LatestRecord, scene: Scene) -> list[tuple[float, Any]]:
    if not scene.options.frames:
        return []
    return [(alpha, record.value) for alpha, record in frames_of(item, scene.options.history)]
