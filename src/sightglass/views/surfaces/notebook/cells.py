"""Where we are: whether a notebook's kernel runs this, and whether one of its cells is running."""

from __future__ import annotations

import sys
from typing import Any


def shell() -> Any | None:
    """Return IPython's shell, without importing IPython: where it runs, it is imported already."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return get_ipython() if get_ipython else None


def in_notebook() -> bool:
    """Tell whether a notebook's kernel runs this; IPython in a terminal is none."""
    return getattr(shell(), "kernel", None) is not None


class NotebookCells:
    """What is known of the cells of the notebook.

    Attributes:
        busy: Whether one is running.
        n: How many were begun.
    """

    def __init__(self) -> None:
        self.busy = False
        self.n = 0
        self._watching: Any = None

    def watch(self) -> None:
        """Look at the shell from now on; watching twice is no error."""
        here = shell()
        events = getattr(here, "events", None)
        if events is None or here is self._watching:
            return
        self._watching = here
        self.busy = True  # whoever calls this first is a cell
        events.register("pre_run_cell", self._begin)
        events.register("post_run_cell", self._end)

    def _begin(self, *_: object) -> None:
        self.busy = True
        self.n += 1

    def _end(self, *_: object) -> None:
        self.busy = False


cells = NotebookCells()
