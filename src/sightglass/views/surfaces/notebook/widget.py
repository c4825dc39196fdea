"""A view in a notebook: Jupyter Lab, Notebook 7, VS Code and what else shows widgets.

Theory of operation
    `desk` knows what came and how it is to be drawn, `audience` who looks and what each page is sent now, `pump` is the
    thread that brings them together, `model` the widget. The page's side is `view.js`, and the module of views.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from sightglass.core.errors import ViewError
from sightglass.core.source import Source
from sightglass.views.options import options_of

from .cells import cells, in_notebook
from .model import Front, display
from .open_pages import PACE_S, Message, OpenPages
from .puller import IDLE_S, pump
from .view_streams import NotebookStreams

HEIGHT: Final = 360
MIN_HEIGHT: Final = 120
PAGE_POINTS: Final = 2**17
"""How many points of a stream a page holds before they are thinned; here as many are kept."""

PURPOSE: Final = "A view in a notebook"


class NotebookView:
    """A live drawing of some streams in a notebook.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        second: Which of the sources are read on a second y axis.
        height: How high it is, in CSS pixels.
        **options: See `see.options.Options`.

    Raises:
        ViewError: The view is unknown, or the values that are there already cannot share one.
        MissingExtraError: anywidget is not installed.
    """

    def __init__(
        self,
        sources: Source | Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Source | Iterable[Source] = (),
        height: int = HEIGHT,
        **options: Any,
    ) -> None:
        if not isinstance(height, int) or height < MIN_HEIGHT:
            raise ViewError(f"Expected a height of at least {MIN_HEIGHT} pixels, got {height!r}")
        chosen = options_of(options, surface="notebook", own=("height",))
        self._desk = NotebookStreams(_several(sources), view=view, title=title, second=_several(second), options=chosen)
        self._audience = OpenPages()
        self._lock = threading.RLock()
        self._closed = False
        self._cell = -1
        self._front = Front("view.js", purpose=PURPOSE, heard=self._hear, views=True, height=height, points=PAGE_POINTS)

    def __enter__(self) -> NotebookView:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        labels = ", ".join(self._desk.labels) or "nothing"
        return f"<NotebookView of {labels}: {self._desk.settings['view'] or 'waiting'}>"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams that are drawn."""
        return self._desk.sources

    @property
    def ended(self) -> bool:
        """Whether all streams have ended and all of their records are drawn."""
        return self._desk.ended

    @property
    def widget(self) -> Any:
        """The widget, to be put into a box of ipywidgets."""
        self._begin()
        return self._front.widget

    def add(self, source: Source, *, second: bool = False) -> None:
        """Draw another stream too.

        Args:
            source: The stream.
            second: Read it on a second y axis, at the right.

        Raises:
            ViewError: Its values cannot share the view with those of the others.
        """
        self._desk.add(source, second=second)
        pump.wake(self)

    def remove(self, source: Source) -> None:
        """Draw a stream no more; one that is not drawn is no error."""
        self._desk.remove(source)
        pump.wake(self)

    def start(self) -> NotebookView:
        """Show the view in the cell that is running, at once; outside of a notebook it is only kept up to date."""
        self._begin()
        if in_notebook():
            self._cell = cells.n
            display(self.bundle())
        return self

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the streams have ended, and say whether they have."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.ended:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False
            if self._closed:
                self._desk.pull()
            time.sleep(PACE_S)
        return True

    def show(self) -> None:
        """Show the view, and wait until the streams end or the cell is interrupted."""
        self.start()
        with suppress(KeyboardInterrupt):
            self.wait()

    def close(self) -> None:
        """Stop drawing; the last drawing stays, in pages that are reloaded too. Closing twice is no error."""
        if not self._closed:
            self._desk.pull()
        self._closed = True
        pump.wake(self)

    def bundle(self) -> dict[str, Any]:
        """Return what a notebook shows, and be ready for pages that show it."""
        self._begin()
        return self._front.bundle(repr(self))

    def turn(self, now_s: float) -> float | None:
        """Pull and send what is new; see `pump.Pumped`."""
        if not self._closed:
            self._desk.pull()
        with self._lock:
            messages = self._audience.turn(self._desk, now_s=now_s, busy=cells.busy)
            behind, looking = self._audience.behind(self._desk), len(self._audience)
        self._send(messages)
        if behind:
            return PACE_S
        over = self._closed or self._desk.ended
        if over and (looking or self._audience.heard or not cells.busy):
            return None
        return PACE_S if looking and not over else IDLE_S

    def _begin(self) -> None:
        cells.watch()
        with self._lock:
            self._audience.expect(time.monotonic())
        pump.add(self)

    def _hear(self, message: Mapping[str, Any]) -> None:
        with self._lock:
            answers = self._audience.hear(message, now_s=time.monotonic(), busy=cells.busy)
        self._send(answers)
        pump.wake(self)

    def _send(self, messages: list[Message]) -> None:
        for words, buffers in messages:
            self._front.send(words, buffers)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return self.bundle()

    def _ipython_display_(self) -> None:
        # What `plot` has shown in this cell is not shown again because it is the cell's last value.
        if not in_notebook():
            print(repr(self))  # noqa: T201  what IPython in a terminal expects
        elif self._cell != cells.n:
            display(self.bundle())


def _several(sources: Source | Iterable[Source]) -> tuple[Source, ...]:
    return (sources,) if isinstance(sources, Source) else tuple(sources)
