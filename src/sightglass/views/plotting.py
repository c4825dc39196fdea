"""`plot`: one verb for looking, and the table of the places where one can look.

A surface is a class that takes sources, `view=`, `title=`, `second=` and what `options.Options` names, and has the
methods of `View`. It is imported when it is first drawn on, so that a terminal needs no notebook and a notebook no
terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol

from sightglass.core.errors import ViewError, unknown
from sightglass.core.source import Source
from sightglass.core.values import type_name

# Name of the surface: module and class.
SURFACES: Mapping[str, tuple[str, str]] = {
    "terminal": ("sightglass.views.surfaces.terminal", "TerminalView"),
    "notebook": ("sightglass.views.surfaces.notebook", "NotebookView"),
    "matplotlib": ("sightglass.views.surfaces.matplotlib", "MatplotlibView"),
    "plotly": ("sightglass.views.surfaces.plotly", "PlotlyView"),
}


class View(Protocol):
    """A live drawing of some streams, wherever it is drawn."""

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams that are drawn."""

    def add(self, source: Source, *, second: bool = False) -> None:
        """Draw another stream too; with `second` on a y axis of its own, at the right."""

    def remove(self, source: Source) -> None:
        """Draw a stream no more."""

    def start(self) -> Any:
        """Begin to draw in the background."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the streams have ended, and say whether they have."""

    def show(self) -> None:
        """Draw until the streams end or the viewer has enough."""

    def close(self) -> None:
        """Stop drawing; the last drawing stays."""


def plot(
    *sources: Source,
    view: str | None = None,
    surface: str | None = None,
    title: str | None = None,
    second: Source | Iterable[Source] = (),
    **options: Any,
) -> View:
    """Draw streams, live, together in one view.

    Args:
        *sources: The streams, live or recorded.
        view: The view to use, such as "histogram"; by default what the values ask for.
        surface: Where to draw: "terminal", "notebook", "matplotlib" or "plotly"; by default where it is called.
        title: What stands above it; by default the streams' tags.
        second: Streams to draw as well, or those of `sources`, that are read on a second y axis.
        **options: How to draw, such as `smooth=0.9` and `log_y=True`: see `options.Options`; and what the surface
            takes further, such as `height=12` in the terminal.

    Returns:
        The view, which is being drawn in the background from now on.

    Raises:
        TypeError: Something is no stream, or an option is unknown.
        ViewError: The view or the surface is unknown, or the streams cannot share a view; the message says why.
    """
    second = (second,) if isinstance(second, Source) else tuple(second)
    if not sources and not second:
        raise TypeError("plot() takes the streams to draw, such as plot(run.stream('batch.loss')), got none")
    for position, source in enumerate((*sources, *second), 1):
        if not isinstance(source, Source):
            raise TypeError(_no_source(source, position))
    name = surface or surface_here()
    if name not in SURFACES:
        raise ViewError(unknown("surface", name, SURFACES))
    module, attribute = SURFACES[name]
    drawn: View = getattr(import_module(module), attribute)(sources, view=view, title=title, second=second, **options)
    drawn.start()
    return drawn


def surface_here() -> str:
    """Return the surface for where we are called from: in a Jupyter kernel the notebook, else the terminal."""
    if "IPython" not in sys.modules:  # nobody is in a notebook who has not loaded it
        return "terminal"
    from .surfaces.notebook.cells import in_notebook

    return "notebook" if in_notebook() else "terminal"


def _no_source(given: Any, position: int) -> str:
    message = f"Expected a stream as argument {position} of plot(), got {type_name(given)}."
    if isinstance(given, list | tuple) and given and all(isinstance(item, Source) for item in given):
        return f"{message} Unpack it: plot(*streams)."
    if isinstance(given, str):
        return f"{message} Ask a run for it: plot(run.stream({given!r}))."
    return f"{message} Streams come from run.stream(…); they have `tag`, `ended` and `since`."
