"""Call a function with each record of a stream."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from sightglass.core.record import Record
from sightglass.core.source import Source
from sightglass.core.threads import Background

from .arrivals import arrivals, follow


class StreamCallback:
    """A function that a background thread calls with each record of a stream.

    Attributes:
        n_calls: How often the function was called.
        n_errors: How often it raised.
    """

    def __init__(self, stream: Source, function: Callable[[Record], object]) -> None:
        self.n_calls = self.n_errors = 0
        self._error: Exception | None = None
        self._stream = stream
        self._function = function
        self._closed = False
        self._thread = Background("stream-callback", self._run)

    def close(self) -> None:
        """Stop calling, and raise the first error of the function or of the stream's own stages.

        Raises:
            Exception: The first error.
        """
        self._closed = True
        arrivals.notify()
        self._thread.close(timeout_s=None)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the function was called with the last record of the stream; return whether it was."""
        return self._thread.join(timeout_s)

    def _run(self) -> None:
        for records in follow(self._stream, stopped=lambda: self._closed):
            for record in records:
                if self._closed:
                    return
                self._call(record)

    def _call(self, record: Record) -> None:
        self.n_calls += 1
        try:
            self._function(record)
        except Exception as error:  # noqa: BLE001  close() raises it
            self.n_errors += 1
            if self._error is None:
                self._error = error
                warnings.warn(
                    f"The function subscribed to {self._stream.tag!r} raised {error!r}", RuntimeWarning, stacklevel=2
                )
