"""The blocking half of a shared stream: opens it, and pulls its records into a backlog.

Theory of operation
    The methods run in threads, one at a time. The first value decides whether the records are numbers;
    any other value among numbers becomes a gap, and is counted. A series of a recorded run that does not grow any more
    is read as columns, without a record being made of each row.
"""

from __future__ import annotations

import contextlib
import functools
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final

from sightglass.client.recorded.run import RecordedRun
from sightglass.client.run import RemoteRun
from sightglass.client.stream import Stream
from sightglass.core.columns import Columns, of_records
from sightglass.core.errors import DamagedError, QueryError, RunLostError
from sightglass.core.source import restarts_of
from sightglass.query.parser import as_query
from sightglass.server.http_errors import without_folders
from sightglass.server.runs.number_series import numbers
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.scalar_lines import CHUNK_ROWS
from sightglass.server.runs.series_index import is_scalar
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage.read.series import Series
from sightglass.views.backlog import MAX_ITEMS, Backlog
from sightglass.views.choose import Form, choose, form_of

MAX_STORED: Final = 20_000
MAX_STORED_BYTES: Final = 64 * 2**20
"""How much of a live stream may wait to be pulled: a few seconds of a fast one. The backlog keeps what clients need."""

MAX_REPLAYED: Final = 5_000_000
MAX_REPLAYED_BYTES: Final = 256 * 2**20
"""How much is kept of a query that is computed from a recorded run: a long training, not a machine's whole memory."""

MAX_CANONICAL: Final = 512  # as many as the streams of one socket
COUNTED: Final[dict[str, Any]] = {"n_events": 0, "n_skipped": 0, "n_dropped": 0, "n_unpaired": 0, "n_errors": 0,
                                  "last_error": "", "stride": 1, "spent_s": 0.0}  # fmt: skip
"""What a run counts of a stream, until its first description."""


class StreamReader:
    """Reads one query of one run.

    Attributes:
        run: The run.
        query: The query as the client wrote it.
        live: Whether a live run answers it; else it is computed from files.
        stream: The stream, once it is open.
        backlog: The records for clients.
        view: How to draw the latest value, as the socket's `view` message, or `None` before the first record.
        ended: Whether no more records can come.
        error: Why it ended, if it failed.
    """

    def __init__(self, run: ServedRun, query: str, *, confirm: bool) -> None:
        self.run = run
        self.query = query
        self.live = run.live
        self.stream: Stream | None = None
        self.backlog = Backlog()
        self.view: dict[str, Any] | None = None
        self.ended = False
        self.error: Exception | None = None
        self._confirm = confirm
        self._form: Form | None = None
        self._cursor = 0
        self._remote: RemoteRun | None = None
        self._files: OpenFiles | None = None
        self._held = ExitStack()

    def open(self) -> None:
        """Query the run. Errors as in `RemoteRun.stream` and `RecordedRun.stream`."""
        try:
            if self.live:
                self._held.enter_context(self.run.connection.hold())
                self._remote = self.run.connection.remote()
                self.stream = self._remote.stream(self.query, confirm=self._confirm)
                self.stream.bound(max_records=MAX_STORED, max_bytes=MAX_STORED_BYTES)
            else:
                self._files = self._held.enter_context(self.run.borrow())
                self.stream = self._replayed(self._files.run)
        except BaseException:
            self._held.close()
            raise

    def pull(self) -> None:
        """Add new records to the backlog, and note whether the stream has ended."""
        if self.ended or self.stream is None:
            return
        over = self.stream.ended  # before reading: records that come after it are for the next turn
        self._cursor, columns = self.stream.since(self._cursor)
        self.backlog.restarts = restarts_of(self.stream)
        if len(columns):
            self._add(columns)
            self.stream.forget(self._cursor)
        elif over:
            self.end(self.stream.error)
        elif self._files is not None and self._files.retired:
            self.end(RunLostError(f"The directory of run {self.run.summary().name!r} was moved or replaced"))

    def end(self, error: Exception | None) -> None:
        """Note that no more records will come."""
        self.error, self.ended = error, True

    def statistics(self) -> dict[str, Any]:
        """Return what is counted of the stream, here and, as of its last description, in the run."""
        streams = self.run.description.streams if self.live and self.run.description is not None else ()
        query = self.stream.query if self.stream is not None else ""
        described = next((stream for stream in streams if canonical(stream.query) == query), None)
        counted = {name: getattr(described, name, initial) for name, initial in COUNTED.items()}
        counted["last_error"] = without_folders(counted["last_error"])
        if self.stream is not None and not self.live:
            counted["n_unpaired"] = self.stream.statistics().n_unpaired
        n_lost, note = (self.stream.n_lost, self.stream.note) if self.stream is not None else (0, "")
        return {"n_lost": n_lost, "note": note, **counted, "n_records": self.backlog.n, "n_unfit": self.backlog.n_unfit,
                "ended": self.ended, "lost": self._remote is not None and bool(self._remote.lost)}  # fmt: skip

    def _replayed(self, run: RecordedRun) -> Stream:
        """Query a recorded run. A series that does not grow any more is read here, without the stream."""
        stream = run.stream(self.query)
        stream.bound(max_records=MAX_REPLAYED, max_bytes=MAX_REPLAYED_BYTES)
        series = run.series_of(self.query) if run.ended else None
        if series is not None:
            self._add_series(series)
        return stream

    def _add_series(self, series: Series) -> None:
        n = len(series)
        self.backlog.restarts = series.restarts
        if is_scalar(series.type):
            for start in range(0, n, CHUNK_ROWS):
                columns = series.columns(start, min(n, start + CHUNK_ROWS))
                self._add(replace(columns, index=start, values=numbers(series.tag, columns.values)))
        else:
            for i in range(max(0, n - MAX_ITEMS), n):
                with contextlib.suppress(DamagedError):  # the run's `problem` reports it
                    self._add(of_records([replace(series[i], index=i)]))
        self.ended = True

    def _add(self, columns: Columns) -> None:
        self._choose_view(columns.record(len(columns) - 1, tag="", run="").value)
        self.backlog.add(columns)

    def _choose_view(self, value: object) -> None:
        form = form_of(value)
        if form != self._form:
            self._form = form
            view = choose([form])
            self.view = {"view": view.view, "kinds": list(view.kinds), "possible": list(view.possible),
                         "form": {"kind": form.kind, "length": form.length}}  # fmt: skip

    def close(self) -> None:
        """End the subscription, and release the run."""
        try:
            if self.stream is not None and self.live:
                self.stream.close()
        finally:
            self._held.close()


@functools.lru_cache(maxsize=MAX_CANONICAL)
def called_functions(text: str) -> list[str]:
    """Return the names of the run's own functions that a query calls; none if the text is not a query."""
    try:
        return as_query(text).functions
    except QueryError:
        return []


def canonical(text: str) -> str:
    """Return the canonical text of a query, or the text itself if it is not a query: it may be the tag of a series."""
    try:
        return as_query(text).key
    except QueryError:
        return text
