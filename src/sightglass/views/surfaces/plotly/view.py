"""The plotly surface: one figure that is updated while its streams go on.

Theory of operation
    The stream set pulls, `paint` turns its scene into figure data, `refresh` updates the figure. In a notebook the
    figure is a widget, and a thread updates it at most `MAX_PER_SECOND` times a second, and only if something changed.
    Elsewhere the figure is updated when it is read, and costs nothing until then.

    If a widget is zoomed along x, lines are thinned within the limits in view only, so zooming in loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import MissingExtraError, ViewError
from sightglass.core.process.threads import UNTIL_WOKEN, Worker
from sightglass.core.source import Source
from sightglass.views.live_view import View
from sightglass.views.options import Span, options_of
from sightglass.views.scene import Scene
from sightglass.views.stream_set import StreamSet
from sightglass.views.surfaces.notebook.model import cells, in_notebook

from .figure_data import FigureData, explicit, refresh
from .paint import draw

MAX_PER_SECOND: Final = 4  # a browser needs up to 100 ms for an update of a large figure
MIN_HEIGHT: Final = 120
PICTURES: Final = (".png", ".jpg", ".jpeg", ".webp", ".svg", ".pdf")
CONFIG: Final = {"displaylogo": False, "responsive": True}


class PlotlyView(View):
    """One figure of one or more streams.

    Args:
        sources: The streams.
        view: The view to use, one of `choose.VIEWS`; by default the one that suits the values.
        title: The title; by default the streams' tags.
        second: The sources to draw against a second y axis.
        height: The height in CSS pixels; by default what suits the view.
        **options: See `options.Options`.

    Raises:
        ViewError: The view is unknown, or the values that exist already cannot share one.
        MissingExtraError: Plotly is not installed.
    """

    _poll_s = 1 / MAX_PER_SECOND / 4

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Source | Iterable[Source] = (),
        height: int | None = None,
        **options: object,
    ) -> None:
        drawn = options_of(options, surface="plotly", own=("height",))
        if height is not None and (not isinstance(height, int) or height < MIN_HEIGHT):
            raise ViewError(f"Expected a height of at least {MIN_HEIGHT} pixels, got {height!r}")
        self._streams = StreamSet(sources, view=view, title=title, second=second, options=drawn)
        self._height = height
        self._worker = Worker("plotly", self.round)
        self._closed = False
        self._cell = -1
        self._visible_x: Span | None = None
        self._drawn: Scene | None = None
        self._drawing = FigureData()
        self._is_widget, self._figure = _empty_figure()
        self._refresh()

    def _ipython_display_(self) -> None:
        # `plot` has shown the figure already if it ran in this cell: do not show it twice.
        if not in_notebook():
            print(repr(self))  # noqa: T201  what IPython in a terminal expects
        elif self._cell != cells.n:
            self.show()

    @property
    def figure(self) -> Any:
        """The figure, up to date: a `FigureWidget` in a notebook that has anywidget, else a `Figure`."""
        self._refresh()
        return self._figure

    @property
    def scene(self) -> Scene:
        """The scene drawn last."""
        return self._streams.scene

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices below the drawing, one sentence each."""
        return self._drawing.notices

    def start(self) -> PlotlyView:
        """Show the figure in the running cell and keep it up to date; outside a notebook, show nothing."""
        if in_notebook():
            cells.watch()
            self.show()
        self._wake()
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the streams have ended, and return whether they have."""
        ended = super().wait(timeout_s)
        if ended:
            self._refresh()
        return ended

    def show(self) -> None:
        """Show the figure: in the running cell, or outside a notebook with Plotly's default renderer."""
        if not in_notebook():
            self.figure.show(config=CONFIG)
            return
        show: Any = import_module("IPython.display").display  # already loaded in a notebook
        show(self.figure)
        self._cell = cells.n

    def save(self, path: str | Path) -> None:
        """Write the current figure: as one HTML file that needs no network, or as an image.

        Args:
            path: The file: ".html", or with kaleido installed ".png", ".svg", ".pdf", ".webp", ".jpg".

        Raises:
            ViewError: The suffix is unknown, or kaleido is missing.
        """
        path = Path(path)
        self._refresh()
        match path.suffix.lower():
            case ".html" | ".htm":
                with self._worker.lock:
                    self._figure.write_html(path, include_plotlyjs=True, config=CONFIG)
            case suffix if suffix in PICTURES:
                if find_spec("kaleido") is None:
                    raise ViewError(f"Writing {path.name!r} needs kaleido: pip install kaleido, or write .html instead")
                with self._worker.lock:
                    self._figure.write_image(path)
            case suffix:
                known = ", ".join((".html", *PICTURES))
                raise ViewError(f"Expected a path ending in one of {known}, got {suffix!r} in {str(path)!r}")

    def close(self) -> None:
        """Stop drawing. The last drawing stays. Closing twice is allowed."""
        if not self._closed:
            self._refresh()
            self._closed = True
            self._wake()

    def _is_pulled(self) -> bool:
        return self._is_widget and not self._closed

    def _streams_changed(self) -> None:
        self._wake()

    def _wake(self) -> None:
        if self._is_widget:
            self._worker.wake()

    def round(self, now_s: float) -> float:
        """Update the figure."""
        self._refresh()
        return UNTIL_WOKEN if self.ended or self._closed else 1 / MAX_PER_SECOND

    def _refresh(self) -> None:
        if self._closed:
            return
        with self._worker.lock:
            visible_x = self._limits()
            self._streams.pull()
            scene = self._streams.scene
            if scene is self._drawn and visible_x == self._visible_x:
                return
            self._drawn, self._visible_x = scene, visible_x
            new = draw(scene if visible_x is None else self._zoomed(scene, visible_x), height=self._height)
            self._drawing = refresh(self._figure, self._drawing, new)

    def _zoomed(self, scene: Scene, visible_x: Span) -> Scene:
        """Return the scene with all points in view; the values in the legend are still the last ones."""
        close = self._streams.take(visible_x=visible_x)
        if len(close.series) != len(scene.series):
            return close
        pairs = zip(close.series, scene.series, strict=True)
        return replace(close, series=tuple(replace(one, value=whole.value) for one, whole in pairs))

    def _limits(self) -> Span | None:
        """Return the limits of x, if the viewer zoomed."""
        scene, ours = self._streams.scene, self._drawing.layout.get("xaxis", {})
        if not self._is_widget or scene.view != "line" or scene.categories or ours.get("type") == "date":
            return None
        limits = explicit(self._figure.layout.xaxis)
        if limits is None or list(limits) == ours.get("range"):
            return None
        low, high = (10.0**end for end in limits) if ours.get("type") == "log" else limits
        return float(low), float(high)


def _empty_figure() -> tuple[bool, Any]:
    """Return whether the figure is a widget, and the figure."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise MissingExtraError("plotly", extra="plot", purpose="surface='plotly'") from None
    widget = in_notebook() and find_spec("anywidget") is not None
    # "none" instead of the process's default template, which users may change.
    figure = (go.FigureWidget if widget else go.Figure)(layout={"template": "none"})
    return widget, figure
