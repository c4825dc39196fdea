"""What a run does from time to time on its `io` thread, beside serving its clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from sightglass.core.failures import Failures

EVERY_S: Final = 0.5  # what is read from a process or a terminal is half a second late at most


class Chore(Protocol):
    """Something to do from time to time, which takes little time."""

    def tick(self, now_s: float) -> None:
        """Do what there is to do, if it is time."""

    def close(self) -> None:
        """Do it for the last time."""


class Chores:
    """Does the chores of a run. One that fails is given up, and costs the run and the others nothing.

    Attributes:
        failures: The chores that failed.
    """

    def __init__(self, chores: Sequence[Chore], *, run: str) -> None:
        self.failures = Failures(f"Run {run!r}")
        self._chores = list(chores)
        self._due_s = 0.0

    def tick(self, now_s: float) -> None:
        """Do all of them, if it is time."""
        if self._chores and now_s >= self._due_s:
            self._due_s = now_s + EVERY_S
            for chore in tuple(self._chores):
                try:
                    chore.tick(now_s)
                except Exception as error:  # noqa: BLE001  what is told about a run must not cost it its clients
                    self._give_up(chore, error)

    def close(self) -> None:
        """Do all of them for the last time."""
        for chore in tuple(self._chores):
            try:
                chore.close()
            except Exception as error:  # noqa: BLE001  as above
                self._give_up(chore, error)
        self._chores.clear()

    def _give_up(self, chore: Chore, error: Exception) -> None:
        self._chores.remove(chore)
        self.failures.add(error, f"{type(chore).__name__} is given up")
