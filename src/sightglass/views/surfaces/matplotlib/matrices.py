"""Matrices as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib import colors
from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from sightglass.views.latest_values import bounds_of, resample
from sightglass.views.palette import ALARM, AXIS, MISSING, hex_of
from sightglass.views.scene import Floats, Scene
from sightglass.views.series_buffer import as_floats

from .layout import MAX_PANELS, Layout, Margins, remove_artists
from .style import color_map_of, plain
from .ticks import bounded, set_ticks

MAX_CELLS: Final = 1024  # a side: about the pixels of a panel
# Below this, dividing by the span overflows.
MIN_SPAN: Final = 1e-290


class HeatmapPlot:
    """Draws matrices, each with its colour bar; of entries that share a pixel, the largest is shown."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._panels: list[Axes] = []
        self._keys: list[Axes] = []
        self._artists: list[Artist] = []

    def margins(self, scene: Scene) -> Margins:
        """Return the margins of the axes."""
        return Margins(left=0.6, right=0.95, above=0.2 if len(scene.items) > 1 else 0.0)

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "heatmap"

    def arrange(self) -> None:
        """Adapt to the layout."""
        boxes = self._layout.panels(max(len(self._panels), 1), gap_in=(1.4, 0.75))
        wide = 0.12 / max(self._layout.figure_in[0], 0.1)
        for axes, key, box in zip(self._panels, self._keys, boxes, strict=False):
            if axes is not self._layout.given:
                axes.set_position(box)
            axes.apply_aspect()
            box = axes.get_position()
            key.set_position((box.x1 + wide, box.y0, wide, box.height))

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        shown = [item for item in scene.items if item.record is not None][:MAX_PANELS]
        self._layout.resize(self._panels, len(shown))
        while len(self._keys) > len(shown):
            self._keys.pop().remove()
        while len(self._keys) < len(shown):
            self._keys.append(self._layout.figure.add_axes((0.9, 0.1, 0.02, 0.8)))
        for axes, key, item in zip(self._panels, self._keys, shown, strict=True):
            assert item.record is not None
            self._matrix(axes, key, as_floats(item.record.value))
            axes.set_title(plain(item.label) if len(shown) > 1 else "", loc="left", pad=3)
        self.arrange()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        for key in self._keys:
            key.remove()
        for axes in self._panels:
            axes.set_title("", loc="left")
            axes.set_aspect("auto")
            self._layout.drop(axes)

    def _matrix(self, axes: Axes, key: Axes, matrix: Floats) -> None:
        bounds, (tall, wide) = bounds_of(matrix), matrix.shape
        small = resample(matrix, min(tall, MAX_CELLS), min(wide, MAX_CELLS), mean=False)
        low, high = bounded([bounds.low, bounds.high]).tolist()
        norm = colors.Normalize(low, high if high - low > MIN_SPAN else low + max(abs(low), 1.0))
        cmap = color_map_of(diverging=bounds.diverging, bad=hex_of(MISSING))
        image = axes.imshow(
            np.clip(small, low, high), cmap=cmap, norm=norm, interpolation="nearest",
            aspect="equal" if 0.2 < wide / tall < 5 else "auto", extent=(-0.5, wide - 0.5, tall - 0.5, -0.5),
        )  # fmt: skip
        self._artists.append(image)
        axes.set_anchor("NW")
        axes.grid(visible=False)
        for axis in (axes.xaxis, axes.yaxis):
            set_ticks(axis)
        axes.format_coord = lambda x, y: f"row {round(y)}, column {round(x)}"  # type: ignore[method-assign,unused-ignore]
        text = f"{tall:,} x {wide:,}{f', {bounds.n_bad:,} not finite' if bounds.n_bad else ''}"
        axes.set_xlabel(
            text, loc="right", color=ALARM if bounds.n_bad else AXIS, fontsize=settings["legend.fontsize"], labelpad=2
        )
        key.clear()
        self._layout.figure.colorbar(ScalarMappable(norm, cmap), cax=key)
        key.grid(visible=False)
        key.spines["outline"].set_visible(False)
        key.tick_params(length=0, labelsize=settings["legend.fontsize"])
        set_ticks(key.yaxis)
