"""A scene on a figure: the painter of its view, and the text around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from sightglass.views.options import Span
from sightglass.views.scene import Scene

from .bars import BarPlot, HistogramPlot, StepHistogramPlot, is_over_steps
from .layout import FigureText, Layout
from .lines import LinePlot, LinePlot3D
from .matrices import HeatmapPlot, ImageGrid
from .text_views import EmptyPlot, RecordTable, has_content


class Painter(Protocol):
    """Draws the scenes of one view."""

    @property
    def animated_artists(self) -> Sequence[Artist]:
        """The artists that change with the values; all others stay the same until a full repaint."""

    def fits(self, scene: Scene) -> bool:
        """Return whether this painter can draw a scene."""

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene, and return whether it needs a full repaint."""

    def remove(self) -> None:
        """Remove all artists."""


class FigurePainter:
    """Draws scenes on a figure.

    Args:
        figure: The figure or subfigure.
        axes: The axes to draw in; by default the whole figure.
        live: Whether the figure is shown while it changes, so that repaints must be cheap.
        blit: Whether the window draws the animated artists separately (see Matplotlib's guide to blitting).
    """

    def __init__(
        self, figure: Figure | SubFigure, axes: Axes | None = None, *, live: bool = False, blit: bool = False
    ) -> None:
        self.layout = Layout(figure, axes, live=live)
        self._text = FigureText(self.layout)
        self._painter: Painter | None = None
        self._blit = blit

    @property
    def animated_artists(self) -> list[Artist]:
        """The artists that change with the values, in the order of painting."""
        artists = [] if self._painter is None else self._painter.animated_artists
        return [*self._text.animated_artists, *artists] if len(artists) else []

    @property
    def visible_x(self) -> Span | None:
        """The limits of x that the user chose by zooming."""
        return self._painter.visible_x if isinstance(self._painter, LinePlot) else None

    @property
    def n_pixels(self) -> int:
        """The width of the plotting area in pixels."""
        return max(int(self.layout.size_in[0] * self.layout.figure.dpi), 1)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene.

        Args:
            scene: The scene.
            ended: Whether all streams have ended.

        Returns:
            Whether more changed than `animated_artists`, so that a full repaint is needed.
        """
        whole = False
        with np.errstate(all="ignore"):
            if self._painter is None or not self._painter.fits(scene):
                if self._painter is not None:
                    self._painter.remove()
                self._painter, whole = painter_of(scene)(self.layout, scene), True
                self.layout.unsettle()
            whole |= self._text.paint(scene)
            whole |= self._painter.paint(scene, ended=ended)
        if self._blit:
            for artist in self.animated_artists:
                artist.set_animated(True)
        return whole


def painter_of(scene: Scene) -> Callable[[Layout, Scene], Painter]:
    """Return the painter class for a scene."""
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
        case "log" | "table" | "sounds" | "sheet":
            return RecordTable
        case "line3d":
            return LinePlot3D
    return LinePlot
