"""Views and cards in a notebook, as widgets.

`NotebookView` is the surface for streams, `RunCard` the card of a run. `bundle_of_stream` and `bundle_of_run` return
the MIME bundles that a stream and a run display as the last line of a cell.
"""

from __future__ import annotations

from .card import RunCard as RunCard
from .cells import in_notebook as in_notebook
from .mime_bundles import bundle_of_run as bundle_of_run
from .mime_bundles import bundle_of_stream as bundle_of_stream
from .widget import NotebookView as NotebookView

__all__ = ["NotebookView", "RunCard", "bundle_of_run", "bundle_of_stream", "in_notebook"]
