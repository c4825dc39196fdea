"""The widgets (anywidget) that represent a view or a card on both sides, here and in the pages that show it.

Theory of operation
    The script of a widget, `widget.js`, is small. It loads the module of views and cards, which is large and therefore
    sent once: a separate widget that is never shown, the library, holds it; the other widgets know its id.
"""

from __future__ import annotations

import sys
import time
import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from sightglass.core.errors import MissingExtraError
from sightglass.core.process.unpatched import threading

from .open_pages import Content, Message, OpenPages

SCRIPT: Final = Path(__file__).parent / "widget.js"
VIEWS: Final = Path(__file__).parents[2] / "static" / "views.js"
MIME: Final = "application/vnd.jupyter.widget-view+json"

Requested = Callable[[str, Mapping[str, Any]], None]


class WidgetModel:
    """A widget, and the pages that show it.

    Args:
        kind: What it shows.
        content: What its pages are sent.
        purpose: The feature that needs it, for the error if the extra is missing.
        wake: Called when a page has sent something, so that `turn` is due.
        requested: Called with the page's name and every request of a page, in the thread in which it arrives.
        **options: Initial data for the page.

    Attributes:
        pages: The pages that show it.

    Raises:
        MissingExtraError: anywidget is not installed.
    """

    def __init__(
        self,
        kind: Literal["view", "card"],
        content: Content,
        *,
        purpose: str,
        wake: Callable[[], None],
        requested: Requested = lambda page, message: None,
        **options: object,
    ) -> None:
        widget_class, library = _widget_classes(purpose)
        # The page finds its own model by this key, and asks it whether the kernel is alive.
        key = uuid.uuid4().hex
        self.pages = OpenPages()
        self._content, self._wake, self._requested = content, wake, requested
        self._lock = threading.Lock()
        self._widget = widget_class(
            model_id=key, _esm=SCRIPT.read_text("utf-8"), key=key, library=library().model_id,
            options={"kind": kind, **options},
        )  # fmt: skip
        _receive_at_once(self._widget.comm)
        self._widget.on_msg(lambda _, message, __: self.receive(message))

    def show(self) -> Any:
        """Return the widget, which is about to be shown, and get ready to serve pages."""
        cells.watch()
        with self._lock:
            self.pages.expect(time.monotonic())
        self._wake()
        return self._widget

    def bundle(self, text: str) -> dict[str, Any]:
        """Return the MIME bundle of the widget, with `text` for front ends that cannot show widgets."""
        shown = {"version_major": 2, "version_minor": 0, "model_id": self.show().model_id}
        return {"text/plain": text, MIME: shown}

    def receive(self, message: object) -> None:
        """Handle a page's message; a malformed one is ignored."""
        if not isinstance(message, Mapping):
            return
        with self._lock:
            replies = self.pages.receive(message, now_s=time.monotonic(), busy=cells.busy)
        self._send_all(replies)
        if message.get("type") == "request" and isinstance(message.get("page"), str):
            self._requested(message["page"], message)
        self._wake()

    def turn(self, now_s: float) -> bool:
        """Send pages what is new, and return whether some of it has to wait."""
        with self._lock:
            messages = self.pages.turn(self._content, now_s=now_s, busy=cells.busy)
            behind = self.pages.behind(self._content)
        self._send_all(messages)
        return behind

    def send(self, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        """Send a message to all pages that have the widget. May be called from any thread."""
        self._widget.send(dict(content), buffers)

    def _send_all(self, messages: list[Message]) -> None:
        for content, buffers in messages:
            self.send(content, buffers)


def _receive_at_once(comm: Any) -> None:
    """Handle pages' messages in the subshell to which they were sent.

    JupyterLab sends them to a subshell, so that they arrive while a cell is running. Newer kernels redirect them to
    the shell that sent the last message, which is the main shell: they would wait there until the cell ends.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _, requested: requested


def display(bundle: Mapping[str, Any]) -> None:
    """Show a MIME bundle in the running cell."""
    from IPython.core import display_functions

    show: Any = display_functions.display
    show(bundle, raw=True)


@cache
def _widget_classes(purpose: str) -> tuple[Any, Callable[[], Any]]:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise MissingExtraError("anywidget", extra="notebook", purpose=purpose) from None

    class Sightglass(anywidget.AnyWidget):  # type: ignore[misc]
        """A widget that is shown."""

        key = traitlets.Unicode().tag(sync=True)
        library = traitlets.Unicode().tag(sync=True)
        options = traitlets.Dict().tag(sync=True)

    class SightglassLibrary(anywidget.AnyWidget):  # type: ignore[misc]
        """The module of views and cards, as text."""

        _esm = "export default {}"
        source = traitlets.Unicode().tag(sync=True)

    @cache
    def library() -> Any:
        return SightglassLibrary(source=VIEWS.read_text("utf-8"))

    return Sightglass, library


# Whether this process is a notebook's kernel, and whether one of its cells is running.


def shell() -> Any | None:
    """Return IPython's shell, without importing IPython: where it runs, it is already imported."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython else None


def in_notebook() -> bool:
    """Return whether this process is a notebook's kernel; IPython in a terminal is not."""
    return getattr(shell(), "kernel", None) is not None


class NotebookCells:
    """The state of the notebook's cells.

    Attributes:
        busy: Whether a cell is running.
        n: How many cells were started.
    """

    def __init__(self) -> None:
        self.busy = False
        self.n = 0
        self._watching: Any = None

    def watch(self) -> None:
        """Follow the shell's events from now on. Watching twice is allowed."""
        here = shell()
        events = getattr(here, "events", None)
        if events is None or here is self._watching:
            return
        self._watching = here
        self.busy = True  # the first call comes from a cell
        events.register("pre_run_cell", self._begin)
        events.register("post_run_cell", self._end)

    def _begin(self, *_: object) -> None:
        self.busy = True
        self.n += 1

    def _end(self, *_: object) -> None:
        self.busy = False


cells = NotebookCells()
