"""What a writer could not write: counted, warned of once for each reason, and raised by the next `flush` or `close`."""

from __future__ import annotations

import contextlib
import warnings

from sightglass.core.errors import StorageError


class LossReport:
    """The losses of one writer; any thread may add to it.

    Attributes:
        n_dropped: How many records are lost.
        last_error: The last reason.
        failure: Why nothing can be written now, or empty.
    """

    def __init__(self) -> None:
        """Begin without losses."""
        self.n_dropped = 0
        self.last_error = self.failure = ""
        self._n_reported = 0
        self._warned: set[str] = set()

    def warn(self, message: str, *, once: str = "") -> None:
        """Warn, unless this was warned about before; `once` is what counts as the same."""
        self.last_error = message
        if (once or message) not in self._warned:
            self._warned.add(once or message)
            with contextlib.suppress(Warning):  # where warnings are errors, no record is lost by one
                warnings.warn(message, RuntimeWarning, stacklevel=4)

    def drop(self, n: int, why: str) -> None:
        """Count lost records, and warn."""
        self.n_dropped += n
        self.warn(why)

    def forgive(self, n: int, why: str, *, once: str) -> None:
        """Count lost records and warn, but raise nothing: a value of the wrong type must not make a training fail."""
        self.n_dropped += n
        self._n_reported += n
        self.warn(why, once=once)

    def fail(self, why: str) -> None:
        """Note that nothing can be written now; once more if it could in between."""
        if not self.failure:
            self._warned.discard(why)
        self.failure = why
        self.warn(f"Records cannot be written now and wait in memory: {why}", once=why)

    def check(self, n_waiting: int, *, unfinished: str = "", over: bool = False) -> None:
        """Raise what went wrong since the last call.

        Args:
            n_waiting: How many records wait in memory.
            unfinished: Why they were waited for in vain, or empty.
            over: Whether nothing is written from now on: what waits is lost.

        Raises:
            StorageError: Records wait, or are lost.
        """
        why = unfinished or self.failure
        if over and why:
            self.n_dropped, n_waiting = self.n_dropped + n_waiting, 0
        n_lost, self._n_reported = self.n_dropped - self._n_reported, self.n_dropped
        if why:
            raise StorageError(f"Records could not be written: {why}; {n_waiting} wait in memory, {n_lost} are lost")
        if n_lost:
            raise StorageError(f"{n_lost} records are lost; the last reason: {self.last_error}")
