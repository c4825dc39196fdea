"""Count what failed in the background, and warn about the first of each kind."""

from __future__ import annotations

import contextlib
import warnings
from typing import Final

from .guarded import message

MAX_KINDS: Final = 100  # of messages that are remembered, so that errors with ever new texts take no memory


class Failures:
    """The failures of one part of the program that works in the background.

    Attributes:
        where: The name of the part, for warnings.
        n: How many there were.
        last: The newest, as text; empty before the first.
    """

    __slots__ = ("_warned", "last", "n", "where")

    def __init__(self, where: str) -> None:
        self.where = where
        self.n = 0
        self.last = ""
        self._warned: set[str] = set()

    def add(self, error: BaseException, what: str, *, warn: bool = True) -> None:
        """Count an error, and warn if it is the first with this text.

        Args:
            error: The error.
            what: What it cost, such as "the stream 'batch.loss' is closed".
            warn: Whether to warn; `False` if the user knows already.
        """
        self.n += 1
        self.last = f"{what}: {message(error)}"
        if warn and self.last not in self._warned and len(self._warned) < MAX_KINDS:
            self._warned.add(self.last)
            with contextlib.suppress(Warning):  # where warnings are errors, this must not cause another failure
                warnings.warn(f"{self.where}: {self.last}", RuntimeWarning, stacklevel=3)
