"""The home of anywidget: what stands for a view on both sides, here and in the page.

Theory of operation
    Every widget has its own script in the page, which arrives with it. The module of views is far larger, so it
    arrives once for all: it stands in a widget of its own, the library, which is never shown; others are told its id.
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

Heard = Callable[[Mapping[str, Any]], None]


class Front:
    """A widget: what is sent to pages, and what they say.

    Args:
        script: The name of the script that draws it there, beside this file.
        purpose: What needs it, for the message where the extra is missing.
        heard: Called with everything that pages say, in the thread in which it arrives.
        views: Whether it needs the module of views.
        **options: What the script is to know from the beginning.

    Raises:
        MissingExtraError: anywidget is not installed.
    """

    def __init__(self, script: str, *, purpose: str, heard: Heard, views: bool = False, **options: Any) -> None:
        kind, library = _kinds(purpose)
        shared = library().model_id if views else ""
        # The page finds its own model by this, and asks it whether the kernel still lives.
        key = uuid.uuid4().hex
        self.widget = kind(model_id=key, _esm=read(script), key=key, library=shared, options=options)
        _hear_at_once(self.widget.comm)
        self.widget.on_msg(lambda _, content, __: heard(content) if isinstance(content, Mapping) else None)

    def send(self, content: Mapping[str, Any], buffers: list[bytes]) -> None:
        """Send words and bytes to all pages in which the widget is; from any thread."""
        self.widget.send(dict(content), buffers)

    def bundle(self, text: str) -> dict[str, Any]:
        """Return what a notebook shows of it; `text` is for those who cannot show widgets."""
        shown = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {"text/plain": text, MIME: shown}


def _hear_at_once(comm: Any) -> None:
    """Let what pages say be taken where they send it.

    JupyterLab sends it to a sub-shell, so that it is heard while a cell is running. Newer kernels would rather take it
    where the kernel's last words came from, and that is the cell, after which everything would wait.
    """
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda _, asked: asked


def display(bundle: Mapping[str, Any]) -> None:
    """Show something in the cell that is running."""
    from IPython.core import display_functions

    show: Any = display_functions.display
    show(bundle, raw=True)


@cache
def read(script: str) -> str:
    """Return the text of a script that stands beside this file."""
    return (HERE / script).read_text("utf-8")


@cache
def _kinds(purpose: str) -> tuple[Any, Callable[[], Any]]:
    try:
        import anywidget
        import traitlets
    except ImportError:
        raise MissingExtraError("anywidget", extra="notebook", purpose=purpose) from None

    class Sightglass(anywidget.AnyWidget):  # type: ignore[misc]
        """What is shown."""

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
