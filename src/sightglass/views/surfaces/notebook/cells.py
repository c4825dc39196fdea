"""Whether this process is a notebook's kernel, and whether one of its cells is running."""

from __future__ import annotations

import sys
from typing import Any


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
