"""A view in a notebook: Jupyter Lab, Notebook 7, VS Code and every other front end that shows widgets.

Theory of operation
    `view_streams` holds the records and how to draw them, `open_pages` decides what to send to each page, `puller` is
    the thread that connects the two, `model` is the widget. In the page, `view.js` passes the records to the views.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from sightglass.core.errors import ViewError
from sightglass.core.source import Source
from sightglass.views.live_view import View
from sightglass.views.options import options_of

from .cells import cells, in_notebook
from .model import WidgetModel, display
from .open_pages import PACE_S, Message, OpenPages
from .puller import IDLE_S, puller
from .view_streams import NotebookStreams

HEIGHT: Final = 360
MIN_HEIGHT: Final = 120
PAGE_POINTS: Final = 2**17
"""How many points of a stream a page holds before it thins them: as many as `backlog.MAX_POINTS` here."""

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
        self._pages = OpenPages()
        self._lock = threading.Lock()
        self._closed = False
        self._cell = -1
        self._widget = WidgetModel(
            "view.js", purpose=PURPOSE, received=self._receive, views=True, height=height, points=PAGE_POINTS
        )

    @property
    def widget(self) -> Any:
        """The widget, for example to put into an ipywidgets box."""
        self._activate()
        return self._widget.widget

    def start(self) -> NotebookView:
        """Show the view in the running cell and keep it up to date; outside a notebook only keep it up to date."""
        self._activate()
        if in_notebook():
            self._cell = cells.n
            display(self.bundle())
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
        self._activate()
        return self._widget.bundle(repr(self))

    def turn(self, now_s: float) -> float | None:
        """Pull, and send pages the new records; see `puller.Pullable`."""
        if not self._closed:
            self._streams.pull(wait=True)
        with self._lock:
            messages = self._pages.turn(self._streams, now_s=now_s, busy=cells.busy)
            behind, n_pages = self._pages.behind(self._streams), len(self._pages)
        self._send(messages)
        if behind:
            return PACE_S
        over = self._closed or self._streams.ended
        if over and (n_pages or self._pages.heard or not cells.busy):
            return None
        return PACE_S if n_pages and not over else IDLE_S

    def _is_pulled(self) -> bool:
        return not self._closed

    def _streams_changed(self) -> None:
        puller.wake(self)

    def _activate(self) -> None:
        cells.watch()
        with self._lock:
            self._pages.expect(time.monotonic())
        puller.add(self)

    def _receive(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            replies = self._pages.receive(message, now_s=time.monotonic(), busy=cells.busy)
        self._send(replies)
        puller.wake(self)

    def _send(self, messages: list[Message]) -> None:
        for content, buffers in messages:
            self._widget.send(content, buffers)

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return self.bundle()

    def _ipython_display_(self) -> None:
        # `plot` has shown the view already if it ran in this cell: do not show it twice.
        if not in_notebook():
            print(repr(self))  # noqa: T201  what IPython in a terminal expects
        elif self._cell != cells.n:
            display(self.bundle())
