"""The failures of a plotter's figures: kept as they happen on any thread, and reported by the next call."""

from __future__ import annotations

import contextlib
import warnings
from typing import Final, Literal

from sightglass.core.errors import FigureError, FigureErrors
from sightglass.core.unpatched import threading

OnError = Literal["raise", "warn", "ignore"]

MAX_ERRORS: Final = 1_000  # with their tracebacks about 8 MB; more are counted only


class FailureLog:
    """Keeps failures until they are reported; from any thread.

    Attributes:
        on_error: How they are reported.
        n_errors: How many there were.
        last_error: The last one's message, or empty.
    """

    def __init__(self, on_error: OnError) -> None:
        self.on_error = on_error
        self.n_errors = 0
        self.last_error = ""
        self._lock = threading.RLock()
        self._errors: list[FigureError] = []

    def add(self, error: FigureError, *, counted: bool = True) -> None:
        """Keep a failure; do not count it if the figure may still come."""
        with self._lock:
            self.n_errors += counted
            self.last_error = str(error.args[0])
            if len(self._errors) < MAX_ERRORS:
                self._errors.append(error)

    def report(self) -> None:
        """Raise the failures that were kept, or warn about them, or forget them, as `on_error` says.

        Raises:
            FigureErrors: `on_error` is "raise", and there are some.
        """
        with self._lock:
            errors, self._errors = self._errors, []
        if not errors or self.on_error == "ignore":
            return
        if self.on_error == "raise":
            what = dict.fromkeys(repr(error.figure) if error.figure else str(error.args[0]) for error in errors)
            raise FigureErrors(f"{len(errors)} could not be drawn or delivered: {', '.join(what):.300}", errors)
        for error in errors:
            with contextlib.suppress(Warning):  # with warnings as errors, the other figures must not be lost
                warnings.warn(str(error.args[0]), RuntimeWarning, stacklevel=4)

    def clear(self) -> None:
        """Forget everything, in a forked child, where another thread may have held the lock for good."""
        self._lock = threading.RLock()
        self._errors = []
