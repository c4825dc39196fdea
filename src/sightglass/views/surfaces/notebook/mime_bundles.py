"""The MIME bundles that streams and runs display as the last line of a cell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sightglass.core.errors import SightglassError
from sightglass.core.source import Source

from .card import CardRun, RunCard
from .cells import in_notebook
from .widget import NotebookView

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
