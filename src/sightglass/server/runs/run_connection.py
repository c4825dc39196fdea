"""The connection of the page to a live run: made on demand, and closed after it was not used for `IDLE_S`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from sightglass.client.run import RemoteRun
from sightglass.core.unpatched import threading

PACE_S: Final = 0.01  # less than a frame of a screen; more messages would be drawn together
IDLE_S: Final = 15.0  # longer than the page takes between two requests


class RunConnection:
    """The connection to a live run.

    Attributes:
        holders: The number of streams that use it.
        pace_s: How long the live run may hold records back, to send them together.
    """

    def __init__(self, connect: Callable[[float], RemoteRun], *, is_live: Callable[[], bool]) -> None:
        """Connect only when it is needed.

        Args:
            connect: Connects with a pace in seconds.
            is_live: Returns whether the run lives.
        """
        self.holders = 0
        self.pace_s = PACE_S
        self._connect, self._is_live = connect, is_live
        self._lock = threading.Lock()
        self._holding = threading.Lock()
        self._remote: RemoteRun | None = None
        self._used_s = 0.0

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the connection, once it is made, while the context lasts."""
        with self._holding:
            self.holders += 1
        try:
            yield
        finally:
            with self._holding:
                self.holders -= 1
                over = not self._is_live() and not self.holders
            if over:
                self.close(now=True)

    def remote(self) -> RemoteRun:
        """Return the connected run; connect first if necessary.

        Raises:
            RunLostError: The run has ended, or does not answer.
            RefusedError: The run refused the connection.
        """
        with self._lock:
            self._used_s = time.monotonic()
            if self._remote is not None and not self._remote.ended:
                return self._remote
            if self._remote is not None:
                self._remote.close()
                self._remote = None
            self._remote = self._connect(self.pace_s)
            self.set_pace(self.pace_s)  # it may have changed meanwhile
            return self._remote

    def set_pace(self, pace_s: float) -> None:
        """Let the live run hold records back for this long, without waiting for it."""
        self.pace_s, remote = pace_s, self._remote
        if remote is not None and remote.pace_s != pace_s:
            remote.pace_s = pace_s

    def close(self, *, now: bool = False) -> None:
        """Close the connection if it was not used for `IDLE_S`; with `now`, in any case."""
        if not self._lock.acquire(blocking=now):
            return  # another thread is connecting
        try:
            idle = self.holders == 0 and time.monotonic() - self._used_s > IDLE_S
            if self._remote is not None and (now or idle or self._remote.ended):
                self._remote.close()
                self._remote = None
        finally:
            self._lock.release()
