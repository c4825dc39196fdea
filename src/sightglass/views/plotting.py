"""`plot`, and the table of surfaces.

A surface is a `View` that takes sources, `view=`, `title=`, `second=` and the fields of `options.Options`. It is
imported on first use, so that each surface needs only its own packages.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from importlib import import_module

from sightglass.core.errors import ViewError, unknown
from sightglass.core.source import Source
from sightglass.core.values import type_name

from .live_view import View

# Name of the surface: module and class.
SURFACES: Mapping[str, tuple[str, str]] = {
    "terminal": ("sightglass.views.surfaces.terminal", "TerminalView"),
    "notebook": ("sightglass.views.surfaces.notebook", "NotebookView"),
    "matplotlib": ("sightglass.views.surfaces.matplotlib", "MatplotlibView"),
    "plotly": ("sightglass.views.surfaces.plotly", "PlotlyView"),
}


def plot(
    *sources: Source,
    view: str | None = None,
    surface: str | None = None,
    title: str | None = None,
    second: Source | Iterable[Source] = (),
    **options: object,
) -> View:
    """Draw streams live, together in one view.

    Args:
        *sources: The streams, live or recorded.
        view: The view to use, for example "histogram"; by default the one that suits the values.
        surface: Where to draw: "terminal", "notebook", "matplotlib" or "plotly"; by default the notebook if called
            from one, else the terminal.
        title: The title; by default the streams' tags.
        second: Streams to draw against a second y axis, in `sources` or in addition to them.
        **options: How to draw, for example `smooth=0.9` and `log_y=True`: see `options.Options`. Also the surface's
            own options, for example `height=12` in the terminal.

    Returns:
        The view. It draws in the background from now on.

    Raises:
        TypeError: An argument is not a stream, or an option is unknown.
        ViewError: The view or the surface is unknown, or the streams cannot share a view; the message says why.
    """
    second = (second,) if isinstance(second, Source) else tuple(second)
    if not sources and not second:
        raise TypeError("Expected at least one stream to plot, for example plot(run.stream('batch.loss')), got none")
    for position, source in enumerate((*sources, *second), 1):
        if not isinstance(source, Source):
            raise TypeError(_not_a_source(source, position))
    name = surface or surface_here()
    if name not in SURFACES:
        raise ViewError(unknown("surface", name, SURFACES))
    module, attribute = SURFACES[name]
    started: View = getattr(import_module(module), attribute)(sources, view=view, title=title, second=second, **options)
    started.start()
    return started


def surface_here() -> str:
    """Return the default surface: the notebook in a Jupyter kernel, else the terminal."""
    if "IPython" not in sys.modules:  # a notebook's kernel has always imported it
        return "terminal"
    from .surfaces.notebook.model import in_notebook

    return "notebook" if in_notebook() else "terminal"


def _not_a_source(given: object, position: int) -> str:
    message = f"Expected a stream as argument {position} of plot(), got {type_name(given)}."
    if isinstance(given, list | tuple) and given and all(isinstance(item, Source) for item in given):
        return f"{message} Unpack the list: plot(*streams)."
    if isinstance(given, str):
        return f"{message} Get the stream from a run: plot(run.stream({given!r}))."
    if hasattr(given, "memory"):  # a run of this process
        return f"{message} Ask it as a client does: plot(sightglass.connect(run).stream(…))."
    return f"{message} Get streams from run.stream(…), or implement `tag`, `ended` and `since`."
