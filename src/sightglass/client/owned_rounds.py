"""Rounds on a thread, for an owner that may be dropped without being closed.

The thread holds its owner weakly. Once the owner is garbage collected, it leaves the owner's runs, and ends.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Final, Protocol

from .run import RemoteRun
from .session import Session

REST_S: Final = 1.0  # how late an owner that was dropped may be noticed, and a run of it that is held on its own


class Owner(Protocol):
    """What has rounds on a thread of its own."""

    def round(self, now_s: float) -> float | None:
        """Run a round; see `core.threads`."""


class OwnedRounds:
    """The rounds of an owner, and what follows when it is gone.

    A client of a single run that somebody still holds keeps its connection, and the thread, until it is dropped, too.
    """

    def __init__(self, owner: Owner, *, leave: Callable[[], None]) -> None:
        """Prepare the rounds; `leave` is called when the owner is gone, and must not hold it."""
        self._owner = weakref.ref(owner)
        self._leave = leave
        self._runs: list[tuple[weakref.ref[RemoteRun], Session]] = []

    def add(self, run: RemoteRun) -> None:
        """Leave a run, too, when the owner is gone."""
        self._runs.append((weakref.ref(run), run._session))

    def round(self, now_s: float) -> float | None:
        """Run a round of the owner, or leave the runs that nobody holds."""
        owner = self._owner()
        if owner is not None:
            return owner.round(now_s)
        self._leave()
        for run, session in self._runs:
            if run() is None:
                session.close(0.0)
        self._runs = [(run, session) for run, session in self._runs if run() is not None]
        return REST_S if self._runs else None
