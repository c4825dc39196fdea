"""Views and cards in a notebook, as widgets.

`NotebookView` is the surface for streams, `RunCard` the card of a run. `bundle_of_stream` and `bundle_of_run` return
the MIME bundles that a stream and a run display as the last line of a cell.
"""

from __future__ import annotations

from .card import RunCard as RunCard
from .model import in_notebook as in_notebook
from .widget import NotebookView as NotebookView
from .widget import bundle_of_run as bundle_of_run
from .widget import bundle_of_stream as bundle_of_stream

__all__ = ["NotebookView", "RunCard", "bundle_of_run", "bundle_of_stream", "in_notebook"]
