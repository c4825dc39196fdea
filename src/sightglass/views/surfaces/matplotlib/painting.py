"""A scene on a figure: the painter that its view needs, and the words around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from sightglass.views.options import Span
from sightglass.views.scene import Scene

from .bars import Bars
from .histograms import Distributions, OverTime, is_over_steps
from .images import Tiles
from .layout import Layout, Margins, Words
from .lines import Lines
from .lines_3d import Space
from .matrices import Heatmaps
from .text_views import EmptyView, Pages, has_content


class Painter(Protocol):
    """Draws scenes of one view."""

    @property
    def moving(self) -> Sequence[Any]:
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


class Painting:
    """What a view has drawn on a figure.

    Args:
        figure: The figure, or a part of one.
        axes: The axes to draw in; by default the whole figure is taken.
        live: Whether it is shown while it changes, and repaints are to be cheap.
        animated: Whether what moves is painted apart from the rest, by whoever shows the figure.
    """

    def __init__(self, figure: Any, axes: Any = None, *, live: bool = False, animated: bool = False) -> None:
        self.place = Layout(figure, axes, live=live)
        self._words = Words(self.place)
        self._painter: Painter | None = None
        self._animated = animated
        self._size = (0.0, 0.0)

    @property
    def moving(self) -> list[Any]:
        """The artists that change with the values, in the order of painting."""
        painter = self._painter
        return [*self._words.moving, *painter.moving] if painter is not None and len(painter.moving) else []

    @property
    def seen(self) -> Span | None:
        """What of x the user chose to see."""
        return self._painter.seen if isinstance(self._painter, Lines) else None

    @property
    def n_pixels(self) -> int:
        """How wide the picture is."""
        return max(int(self.place.room_in[0] * self.place.figure.dpi), 1)

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene.

        Args:
            scene: What there is.
            ended: Whether no more comes.

        Returns:
            Whether more changed than `moving`.
        """
        whole = False
        with np.errstate(all="ignore"):
            if self._painter is None or not self._painter.fits(scene):
                if self._painter is not None:
                    self._painter.remove()
                self._painter, whole = painter_of(scene)(self.place, scene), True
            painter = self._painter
            if self._words.paint(scene, painter.margins(scene)) or self._size != self.place.figure_in or whole:
                self._size, whole = self.place.figure_in, True
                painter.arrange()
            whole |= painter.paint(scene, ended=ended)
        if self._animated:
            for artist in self.moving:
                artist.set_animated(True)
        return whole


def painter_of(scene: Scene) -> Any:
    """Return the class that draws a scene."""
    if not has_content(scene):
        return EmptyView
    match scene.view:
        case "bars":
            return Bars
        case "histogram":
            return OverTime if is_over_steps(scene) else Distributions
        case "heatmap":
            return Heatmaps
        case "images" | "picture":
            return Tiles
        case "log" | "table":
            return Pages
        case "line3d":
            return Space
    return Lines
