"""Lines in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import rcParams as settings
from matplotlib.artist import Artist

from sightglass.views.scales import Axis, axis_of
from sightglass.views.scene import LineSeries, Scene

from .layout import DASHES, Layout, remove_artists
from .style import plain, shorten
from .ticks import NumberFormatter, bounded, ends_of

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
