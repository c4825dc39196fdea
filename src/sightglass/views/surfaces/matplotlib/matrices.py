"""Matrices as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colors
from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from sightglass.views.latest_values import bounds_of, resample
from sightglass.views.palette import ALARM, AXIS, MISSING, hex_of
from sightglass.views.scales import number
from sightglass.views.scene import Floats, Scene
from sightglass.views.series_buffer import as_floats

from .layout import MAX_PANELS, Layout
from .style import color_map_of, plain
from .ticks import bounded, set_ticks

MAX_CELLS: Final = 1024  # a side: about the pixels of a panel
# Below this, dividing by the span overflows.
MIN_SPAN: Final = 1e-290
BAR_ASPECT: Final = 30  # of a colour bar: about the width of a line of text


class HeatmapPlot:
    """Draws matrices, each with its colour bar; of entries that share a pixel, the largest is shown."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._panels: list[Axes] = []
        self._images: list[Any] = []
        self._arranged: list[tuple[str, int]] = []

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "heatmap"

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        shown = [item for item in scene.items if item.record is not None][:MAX_PANELS]
        if len(shown) != len(self._panels):
            self._remove_images()
            self._layout.resize(self._panels, len(shown))
            self._images = [self._new_image(axes) for axes in self._panels]
        for axes, image, item in zip(self._panels, self._images, shown, strict=True):
            assert item.record is not None
            _show(axes, image, as_floats(item.record.value))
            axes.set_title(plain(item.label) if len(shown) > 1 else "", size=settings["axes.labelsize"])
        # Other cells need no other layout, which takes seconds for many panels; other ticks may.
        arranged = [(axes.get_xlabel(), len(number(image.norm.vmax)))
                    for axes, image in zip(self._panels, self._images, strict=True)]  # fmt: skip
        if arranged != self._arranged:
            self._arranged = arranged
            self._layout.unsettle()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        self._remove_images()
        for axes in self._panels:
            axes.set_title("")
            axes.set_aspect("auto")
            self._layout.drop(axes)

    def _new_image(self, axes: Axes) -> Any:
        image = axes.imshow(np.zeros((1, 1)), interpolation="nearest")
        axes.grid(visible=False)
        axes.format_coord = lambda x, y: f"row {round(y)}, column {round(x)}"  # type: ignore[method-assign,unused-ignore]
        bar = self._layout.figure.colorbar(image, ax=axes, aspect=BAR_ASPECT)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=settings["legend.fontsize"])
        bar.ax.grid(visible=False)
        return image

    def _remove_images(self) -> None:
        for image in self._images:
            image.colorbar.remove()
            image.remove()
        self._images = []


def _show(axes: Axes, image: Any, matrix: Floats) -> None:
    bounds, (tall, wide) = bounds_of(matrix), matrix.shape
    low, high = bounded([bounds.low, bounds.high]).tolist()
    small = resample(matrix, min(tall, MAX_CELLS), min(wide, MAX_CELLS), mean=False)
    image.set_data(np.clip(small, low, high))
    image.set_extent((-0.5, wide - 0.5, tall - 0.5, -0.5))
    image.set_norm(colors.Normalize(low, high if high - low > MIN_SPAN else low + max(abs(low), 1.0)))
    image.set_cmap(color_map_of(diverging=bounds.diverging, bad=hex_of(MISSING)))
    axes.set_aspect("equal" if 0.2 < wide / tall < 5 else "auto")
    for axis in (axes.xaxis, axes.yaxis, image.colorbar.ax.yaxis):
        set_ticks(axis)
    odd = f", {bounds.n_bad:,} not finite" if bounds.n_bad else ""
    axes.set_xlabel(f"{tall:,} x {wide:,}{odd}", color=ALARM if odd else AXIS)
