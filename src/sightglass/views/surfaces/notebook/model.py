"""The widgets (anywidget) that represent a view on both sides, here and in the page.

Theory of operation
    Every widget brings its own script to the page. The module of views is far larger, so it is sent once: it is held
    by a separate widget, the library, which is never shown; the other widgets know its id.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import MissingExtraError

HERE: Final = Path(__file__).parent
VIEWS: Final = HERE.parents[1] / "static" / "views.js"
MIME: Final = "application/vnd.jupyter.widget-view+json"

Receive = Callable[[Mapping[str, Any]], None]


class WidgetModel:
    """A widget: sends messages to pages, and receives theirs.

    Args:
        script: The file name of the script that draws it in the page, next to this file.
        purpose: The feature that needs it, for the error if the extra is missing.
        received: Called with every message of a page, in the thread in which it arrives.
        views: Whether the script needs the module of views.
        **options: Initial data for the script.

    Raises:
        MissingExtraError: anywidget is not installed.
    """

    def __init__(self, script: str, *, purpose: str, received: Receive, views: bool = False, **options: object) -> None:
        widget_class, library = _widget_classes(purpose)
        shared = library().model_id if views else ""
        # The page finds its own model by this key, and asks it whether the kernel is alive.
        key = uuid.uuid4().hex
        self.widget = widget_class(model_id=key, _esm=read(script), key=key, library=shared, options=options)
        _receive_at_once(self.widget.comm)
        self.widget.on_msg(lambda _, content, __: received(content) if isinstance(content, Mapping) else None)

    def send(self, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        """Send a message to all pages that have the widget. May be called from any thread."""
        self.widget.send(dict(content), buffers)

    def bundle(self, text: str) -> dict[str, Any]:
        """Return the MIME bundle of the widget, with `text` for front ends that cannot show widgets."""
        shown = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {"text/plain": text, MIME: shown}


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
def read(script: str) -> str:
    """Return the text of a script next to this file."""
    return (HERE / script).read_text("utf-8")


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
        """The module of views, as text."""

        _esm = "export default {}"
        source = traitlets.Unicode().tag(sync=True)

    @cache
    def library() -> Any:
        return SightglassLibrary(source=VIEWS.read_text("utf-8"))

    return Sightglass, library
