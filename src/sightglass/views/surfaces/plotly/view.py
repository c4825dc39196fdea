"""The plotly surface: one figure, kept up to date as long as its streams go on.

Theory of operation
    The board pulls, `paint` makes a drawing of its scene, `refresh` brings the figure to it. In a notebook the figure
    is a widget, and a thread does so `MAX_PER_SECOND` times a second at most, and not at all while nothing changed.
    Elsewhere nobody is looking, so it is done when somebody asks for the figure, and costs nothing until then.

    In a widget that is zoomed along the steps, lines are thinned to what is in view, so a close look loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import MissingExtraError, ViewError
from sightglass.core.source import Source
from sightglass.core.threads import Worker
from sightglass.views.live_view import LiveView
from sightglass.views.options import Span, options_of
from sightglass.views.scene import Scene
from sightglass.views.stream_set import StreamSet
from sightglass.views.surfaces.notebook.cells import cells, in_notebook

from .figure_data import FigureData, explicit, refresh
from .paint import draw

MAX_PER_SECOND: Final = 4
MIN_HEIGHT: Final = 120
PICTURES: Final = (".png", ".jpg", ".jpeg", ".webp", ".svg", ".pdf")
CONFIG: Final = {"displaylogo": False, "responsive": True}


class PlotlyView(LiveView):
    """One figure of one or more streams.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        second: Which of the sources are read on a second y axis.
        height: How high it is, in CSS pixels; by default what suits the view.
        **options: See `options.Options`.

    Raises:
        ViewError: The view is unknown, or the values that are there already cannot share one.
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
        **options: Any,
    ) -> None:
        drawn = options_of(options, surface="plotly", own=("height",))
        if height is not None and (not isinstance(height, int) or height < MIN_HEIGHT):
            raise ViewError(f"Expected a height of at least {MIN_HEIGHT} pixels, got {height!r}")
        self._streams = StreamSet(sources, view=view, title=title, second=second, options=drawn)
        self._height = height
        self._worker = Worker("plotly", self._round)
        self._closed = False
        self._cell = -1
        self._visible_x: Span | None = None
        self._drawn: Scene | None = None
        self._drawing = FigureData()
        self._is_widget, self._figure = _empty_figure()
        self._refresh()

    def _ipython_display_(self) -> None:
        # What `plot` has shown in this cell is not shown again because it is the cell's last value.
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
        """What was drawn last."""
        return self._streams.scene

    @property
    def notices(self) -> tuple[str, ...]:
        """What stands below the drawing: what the reader has to know, one sentence each."""
        return self._drawing.notices

    def start(self) -> PlotlyView:
        """Show the figure in the cell that is running and keep it up to date; outside of a notebook nothing opens."""
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
        """Show the figure: here in a notebook; elsewhere as it is now, by Plotly's own ways, mostly a browser."""
        if not in_notebook():
            self.figure.show(config=CONFIG)
            return
        show: Any = import_module("IPython.display").display  # loaded already, where there is a notebook
        show(self.figure)
        self._cell = cells.n

    def save(self, path: str | Path) -> None:
        """Write the figure as it is now: one file of HTML that needs no network, or a picture.

        Args:
            path: It ends with ".html", or, where kaleido is installed, with ".png", ".svg", ".pdf", ".webp", ".jpg".

        Raises:
            ViewError: The end of the path is none of these, or kaleido is missing.
        """
        path = Path(path)
        self._refresh()
        match path.suffix.lower():
            case ".html" | ".htm":
                with self._worker.lock:
                    self._figure.write_html(path, include_plotlyjs=True, config=CONFIG)
            case suffix if suffix in PICTURES:
                if find_spec("kaleido") is None:
                    raise ViewError(f"Writing {path.name!r} needs kaleido: pip install kaleido; .html needs nothing")
                with self._worker.lock:
                    self._figure.write_image(path)
            case suffix:
                known = ", ".join((".html", *PICTURES))
                raise ViewError(f"Expected a path that ends with one of {known}, got {suffix!r} in {str(path)!r}")

    def close(self) -> None:
        """Stop drawing; the last drawing stays. Closing twice is no error."""
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

    def _round(self) -> float | None:
        """Draw what is new; the worker's thread calls this."""
        self._refresh()
        return None if self.ended or self._closed else 1 / MAX_PER_SECOND

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
        """Return the scene with every point that is in view; what is said of the lines is still of their ends."""
        close = self._streams.take(visible_x=visible_x)
        if len(close.series) != len(scene.series):
            return close
        pairs = zip(close.series, scene.series, strict=True)
        return replace(close, series=tuple(replace(one, value=whole.value) for one, whole in pairs))

    def _limits(self) -> Span | None:
        """Return what of x is in view, where the viewer chose it."""
        scene, ours = self._streams.scene, self._drawing.layout.get("xaxis", {})
        if not self._is_widget or scene.view != "line" or scene.categories or ours.get("type") == "date":
            return None
        limits = explicit(self._figure.layout.xaxis)
        if limits is None or list(limits) == ours.get("range"):
            return None
        low, high = (10.0**end for end in limits) if ours.get("type") == "log" else limits
        return float(low), float(high)


def _empty_figure() -> tuple[bool, Any]:
    """Return a figure to draw into, and before it whether it is a widget."""
    try:
        import plotly.graph_objects as go
    except ImportError:
        raise MissingExtraError("plotly", extra="plot", purpose="surface='plotly'") from None
    widget = in_notebook() and find_spec("anywidget") is not None
    # "none" instead of the process's default template: what that looks like is not ours to change, nor to depend on.
    figure = (go.FigureWidget if widget else go.Figure)(layout={"template": "none"})
    return widget, figure
