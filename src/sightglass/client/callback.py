"""Call a function with each record of a stream."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable

from sightglass.core.guarded import message
from sightglass.core.record import Record
from sightglass.core.source import Source
from sightglass.core.threads import Worker
from sightglass.core.unpatched import threading

from .arrivals import WAIT_S, arrivals


class StreamCallback:
    """A function that a background thread calls with each record of a stream.

    Attributes:
        n_calls: How often the function was called.
        n_errors: How often it raised.
    """

    def __init__(
        self,
        stream: Source,
        function: Callable[[Record], object],
        *,
        exact: bool = False,
        worker: type[Worker] = Worker,
    ) -> None:
        """Start to call.

        Args:
            stream: The stream.
            function: Called with each record.
            exact: Whether to begin after what the stream holds at a lower resolution.
            worker: Runs the rounds.
        """
        self.n_calls = self.n_errors = 0
        self._error: BaseException | None = None
        self._stream = stream
        self._function = function
        self._exact = exact
        self._cursor = self._seen = 0
        self._closed = False
        self._worker = worker("stream-callback", self.round, wait=self._wait, wake=arrivals.notify)
        self._worker.wake()

    def close(self) -> None:
        """Stop calling, and raise the first error of the function or of the stream's own stages.

        Raises:
            Exception: The first error.
        """
        self._closed = True
        self._worker.close(threading.TIMEOUT_MAX)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the function was called with the last record of the stream; return whether it was."""
        return self._worker.join(threading.TIMEOUT_MAX if timeout_s is None else timeout_s)

    def round(self, now_s: float) -> float | None:
        """Call the function with the new records."""
        self._seen = arrivals.n
        try:
            over = self._closed or self._stream.ended  # before reading: later records are for the next round
            self._cursor, columns = self._stream.since(self._cursor)
        except BaseException as error:  # noqa: BLE001  a stage of the stream may raise anything
            self._fail(error, f"The callback of stream {self._stream.tag!r} stopped")
            return None
        columns = columns.exact() if self._exact else columns
        for i in range(len(columns)):
            if self._closed:
                return None
            self._call(columns.record(i, tag=self._stream.tag, run=self._stream.run))
        if len(columns):
            return 0.0
        return None if over else WAIT_S

    def _wait(self, rest_s: float) -> None:
        arrivals.wait(self._seen, rest_s)

    def _call(self, record: Record) -> None:
        self.n_calls += 1
        try:
            self._function(record)
        except BaseException as error:  # noqa: BLE001  it costs this record; close() raises it
            self.n_errors += 1
            self._fail(error, f"The function subscribed to {self._stream.tag!r} raised an error")

    def _fail(self, error: BaseException, what: str) -> None:
        """Keep the first error, and warn about it."""
        if self._error is None:
            self._error = error
            with contextlib.suppress(Warning):  # where warnings are errors, the next records must still come
                warnings.warn(f"{what}: {message(error)}", RuntimeWarning, stacklevel=2)
