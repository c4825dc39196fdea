"""A view in a notebook: Jupyter Lab, Notebook 7, VS Code and every other front end that shows widgets.

Theory of operation
    `view_streams` holds the records and how to draw them, `open_pages` decides what to send to each page, and has
    the thread that connects the two; `model` is the widget. In the page, `frontend/src/notebook` draws the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from sightglass.core.errors import SightglassError, ViewError
from sightglass.core.source import Source
from sightglass.views.live_view import View
from sightglass.views.options import options_of
from sightglass.views.plotly_frame import embedded, script

from .card import CardRun, RunCard
from .model import WidgetModel, cells, display, in_notebook
from .open_pages import IDLE_S, PACE_S, puller
from .view_streams import NotebookStreams

HEIGHT: Final = 360
MIN_HEIGHT: Final = 120
PAGE_POINTS: Final = 2**17
"""How many points of a stream a page holds before it thins them: as many as `encoding.MAX_POINTS` here."""

PURPOSE: Final = "A view in a notebook"


class NotebookView(View):
    """A live drawing of some streams in a notebook.

    Args:
        sources: The streams.
        view: The view to use, one of `choose.VIEWS`; by default the one that suits the values.
        title: The title; by default the streams' tags.
        second: The sources to draw against a second y axis.
        height: The height in CSS pixels.
        **options: See `options.Options`.

    Raises:
        ViewError: The view is unknown, or the values that exist already cannot share one.
        MissingExtraError: anywidget is not installed.
    """

    _poll_s = PACE_S

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Source | Iterable[Source] = (),
        height: int = HEIGHT,
        **options: object,
    ) -> None:
        if not isinstance(height, int) or height < MIN_HEIGHT:
            raise ViewError(f"Expected a height of at least {MIN_HEIGHT} pixels, got {height!r}")
        chosen = options_of(options, surface="notebook", own=("height",))
        self._streams: NotebookStreams = NotebookStreams(sources, view=view, title=title, second=second, options=chosen)
        self._closed = False
        self._cell = -1
        self._widget = WidgetModel(
            "view", self._streams, purpose=PURPOSE, wake=lambda: puller.wake(self), requested=self._reply,
            height=height, points=PAGE_POINTS, frame=embedded(),
        )  # fmt: skip

    @property
    def widget(self) -> Any:
        """The widget, for example to put into an ipywidgets box."""
        puller.add(self)
        return self._widget.show()

    def start(self) -> NotebookView:
        """Show the view in the running cell and keep it up to date; outside a notebook only keep it up to date."""
        if in_notebook():
            self._cell = cells.n
            display(self.bundle())
        else:
            puller.add(self)
        return self

    def show(self) -> None:
        """Show the view, and wait until the streams end or you interrupt the cell."""
        self.start()
        with suppress(KeyboardInterrupt):
            self.wait()

    def close(self) -> None:
        """Stop drawing. The last drawing stays, also in reloaded pages. Closing twice is allowed."""
        if not self._closed:
            self._streams.pull(wait=True)
        self._closed = True
        puller.wake(self)

    def bundle(self) -> dict[str, Any]:
        """Return the MIME bundle that a notebook displays, and get ready to serve pages."""
        puller.add(self)
        return self._widget.bundle(repr(self))

    def turn(self, now_s: float) -> float | None:
        """Pull, and send pages the new records; see `puller.Pullable`."""
        if not self._closed:
            self._streams.pull(wait=True)
        if self._widget.turn(now_s):
            return PACE_S
        pages = self._widget.pages
        over = self._closed or self._streams.ended
        if over and (pages or pages.heard or not cells.busy):
            return None
        return PACE_S if pages and not over else IDLE_S

    def _reply(self, page: str, message: Mapping[str, Any]) -> None:
        """Send Plotly's script to a page that has one of its figures to draw, which is all that pages request."""
        reply = {"type": "reply", "to": page, "request": message.get("request")}
        try:
            self._widget.send({**reply, "value": script()}, [])
        except (SightglassError, OSError) as error:
            self._widget.send({**reply, "error": str(error)}, [])

    def _is_pulled(self) -> bool:
        return not self._closed

    def _streams_changed(self) -> None:
        puller.wake(self)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return self.bundle()

    def _ipython_display_(self) -> None:
        # `plot` has shown the view already if it ran in this cell: do not show it twice.
        if not in_notebook():
            print(repr(self))  # noqa: T201  what IPython in a terminal expects
        elif self._cell != cells.n:
            display(self.bundle())


# The MIME bundles that streams and runs display as the last line of a cell.

# By the identity of the object, and never dropped: a page may be reloaded at any time.
_views: dict[int, NotebookView] = {}
_cards: dict[int, tuple[RunCard, Any]] = {}


def bundle_of_stream(stream: Source) -> dict[str, Any]:
    """Return a view of a stream, or its `repr` if there is no notebook or no anywidget."""
    plain = {"text/plain": repr(stream)}
    if not in_notebook():
        return plain
    try:
        if id(stream) not in _views:
            _views[id(stream)] = NotebookView(stream)
        return _views[id(stream)].bundle() | plain
    except SightglassError:  # its `repr` says enough, or the extra is missing
        return plain


def bundle_of_run(run: Any, *, connect: Callable[[], CardRun] | None = None) -> dict[str, Any]:
    """Return a run's card, or its `repr` if there is no notebook or no anywidget.

    Args:
        run: The run.
        connect: Returns a client of the run, if `run` is not one itself.
    """
    plain = {"text/plain": repr(run)}
    if not in_notebook():
        return plain
    try:
        if id(run) not in _cards:
            _cards[id(run)] = (RunCard(connect() if connect else run), run)
        return _cards[id(run)][0].bundle() | plain
    except SightglassError:  # it has ended, or the extra is missing: the `repr` says enough
        return plain
