"""A scene on a figure: the painter that its view needs, and the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sightglass.views.options import Span
from sightglass.views.scene import Scene

from .bars import BarPlot
from .histograms import HistogramPlot, StepHistogramPlot, is_over_steps
from .images import ImageGrid
from .layout import FigureText, Layout, Margins
from .lines import LinePlot
from .lines_3d import LinePlot3D
from .matrices import HeatmapPlot
from .text_views import EmptyPlot, RecordTable, has_content


class Painter(Protocol):
    """Draws scenes of one view."""

    @property
    def animated_artists(self) -> Sequence[Any]:
        """The artists that change with the values; all others stay between two whole repaints."""

    def margins(self, scene: Scene) -> Margins:
        """Return the room beside the picture."""

    def fits(self, scene: Scene) -> bool:
        """Tell whether it can go on with this scene."""

    def arrange(self) -> None:
        """Follow the place, which moved or has another size."""

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene, and say whether more changed than what moves."""

    def remove(self) -> None:
        """Take everything away."""


class FigurePainter:
    """What a view has drawn on a figure.

    Args:
        figure: The figure, or a part of one.
        axes: The axes to draw in; by default the whole figure is taken.
        live: Whether it is shown while it changes, and repaints are to be cheap.
        animated: Whether what moves is painted apart from the rest, by whoever shows the figure.
    """

    def __init__(self, figure: Any, axes: Any = None, *, live: bool = False, blit: bool = False) -> None:
        self.layout = Layout(figure, axes, live=live)
        self._text = FigureText(self.layout)
        self._painter: Painter | None = None
        self._blit = blit
        self._size = (0.0, 0.0)

    @property
    def animated_artists(self) -> list[Any]:
        """The artists that change with the values, in the order of painting."""
        artists = [] if self._painter is None else self._painter.animated_artists
        return [*self._text.animated_artists, *artists] if len(artists) else []

    @property
    def visible_x(self) -> Span | None:
        """What of x the user chose to see."""
        return self._painter.visible_x if isinstance(self._painter, LinePlot) else None

    @property
    def n_pixels(self) -> int:
        """How wide the picture is."""
        return max(int(self.layout.room_in[0] * self.layout.figure.dpi), 1)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene.

        Args:
            scene: What there is.
            ended: Whether no more comes.

        Returns:
            Whether more changed than `animated_artists`.
        """
        whole = False
        with np.errstate(all="ignore"):
            if self._painter is None or not self._painter.fits(scene):
                if self._painter is not None:
                    self._painter.remove()
                self._painter, whole = painter_of(scene)(self.layout, scene), True
            painter = self._painter
            if self._text.paint(scene, painter.margins(scene)) or self._size != self.layout.figure_in or whole:
                self._size, whole = self.layout.figure_in, True
                painter.arrange()
            whole |= painter.paint(scene, ended=ended)
        if self._blit:
            for artist in self.animated_artists:
                artist.set_animated(True)
        return whole


def painter_of(scene: Scene) -> Any:
    """Return the class that draws a scene."""
    if not has_content(scene):
        return EmptyPlot
    match scene.view:
        case "bars":
            return BarPlot
        case "histogram":
            return StepHistogramPlot if is_over_steps(scene) else HistogramPlot
        case "heatmap":
            return HeatmapPlot
        case "images" | "picture":
            return ImageGrid
        case "log" | "table":
            return RecordTable
        case "line3d":
            return LinePlot3D
    return LinePlot
