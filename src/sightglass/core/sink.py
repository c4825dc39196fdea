"""The ends of a stream: what views read from, and the thread that work in the background runs on."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from .record import Record


@runtime_checkable
class Source(Protocol):
    """What a view reads: the records of one series, live or recorded."""

    @property
    def tag(self) -> str:
        """The name of the series."""

    @property
    def ended(self) -> bool:
        """Whether no further record can come."""

    def since(self, cursor: int, /) -> tuple[int, Sequence[Record]]:
        """Return the records that came after a cursor, at once, and the cursor to ask with next; begin with 0."""


class Background:
    """One daemon thread that runs a function, and remembers what became of it.

    A failure never reaches the thread that started it: it is warned of once, kept in `error`, and raised by `close`.
    """

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"sightglass-{name}", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end, and say whether it has."""
        if self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def close(self, timeout_s: float | None = 2.0) -> None:
        """Wait for the thread, and raise what it failed with."""
        self.join(timeout_s)
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001  a background failure must not stop training
            self.error = error
            warnings.warn(f"{self._thread.name} stopped: {error!r}", RuntimeWarning, stacklevel=2)
