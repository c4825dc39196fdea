"""The blocking half of a shared stream: opens it, pulls its records into a backlog, opens it again if it is lost.

Theory of operation
    The methods run in threads, one at a time. The first value decides whether the records are numbers;
    any other value among numbers becomes a gap, and is counted. A series of a recorded run that does not grow any more
    is read as columns, without a record being made of each row.

    If the connection is lost but the run lives, the stream is opened again. The run then repeats its last records with
    the numbers they had, or, if it has forgotten the stream, starts again with later ones: `_is_new` tells them apart.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.client.recorded.run import RecordedRun
from sightglass.client.stream import Stream
from sightglass.core.errors import DamagedError, QueryError, RunLostError
from sightglass.core.record import Record
from sightglass.protocol import discovery
from sightglass.query.parser import as_query
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.scalar_lines import CHUNK_ROWS, numbers
from sightglass.server.runs.series_index import is_scalar
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage.read.series import Series
from sightglass.views.backlog import MAX_ITEM_BYTES, MAX_ITEMS, MAX_POINTS, Backlog, PackedValue, packed_value
from sightglass.views.choose import Form, choose, form_of
from sightglass.views.thinning import thin_indices

RETRY_S: Final = 300.0  # a laptop that was asleep comes back within minutes; later, a reload is no surprise
MAX_STORED: Final = 20_000
MAX_STORED_BYTES: Final = 64 * 2**20
"""How much of a live stream may wait to be pulled: a few seconds of a fast one. The backlog keeps what clients need."""

MAX_REPLAYED: Final = 5_000_000
MAX_REPLAYED_BYTES: Final = 256 * 2**20
"""How much is kept of a query that is computed from a recorded run: a long training, not a machine's whole memory."""

MAX_CANONICAL: Final = 512  # as many as the streams of one socket
COUNTED: Final[dict[str, Any]] = {"n_events": 0, "n_skipped": 0, "n_dropped": 0, "n_errors": 0, "last_error": "",
                                  "stride": 1, "spent_s": 0.0}  # fmt: skip
"""What a run counts of a stream, until its first description."""

Numbers = npt.NDArray[Any]


class StreamReader:
    """Reads one query of one run.

    Attributes:
        run: The run.
        query: The query as the client wrote it.
        live: Whether a live run answers it.
        stream: The stream, once it is open.
        backlog: The records for clients.
        view: How to draw the latest value, as the socket's `view` message, or `None` before the first record.
        ended: Whether no more records can come.
        error: Why it ended, if it failed.
        lost_s: When the connection was lost, on the monotonic clock; `None` while it is open.
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
        self.lost_s: float | None = None
        self._confirm = confirm
        self._form: Form | None = None
        self._cursor = 0
        self._last = (-1, -np.inf)
        self._resumed = False
        self._files: OpenFiles | None = None
        self._held = ExitStack()

    def open(self) -> None:
        """Query the run. Errors as in `RemoteRun.stream` and `RecordedRun.stream`."""
        try:
            if self.live:
                self._held.enter_context(self.run.hold())
                self.stream = self._subscribed()
            else:
                self._files = self._held.enter_context(self.run.borrow())
                self.stream = self._replayed(self._files.run)
        except BaseException:
            self._held.close()
            raise

    def _subscribed(self) -> Stream:
        stream = self.run.remote().stream(self.query, confirm=self._confirm)
        stream.bound(max_records=MAX_STORED, max_bytes=MAX_STORED_BYTES)
        return stream

    def pull(self) -> None:
        """Add new records to the backlog, and note whether the stream has ended or was lost."""
        if self.ended or self.stream is None or self.lost_s is not None:
            return
        over = self.stream.ended  # before reading: records that come after it are for the next turn
        self._cursor, records = self.stream.since(self._cursor)
        if records:
            self._add(records)
            self.stream.forget(self._cursor)
        elif over:
            error = self.stream.error
            if self.live and isinstance(error, RunLostError) and self._run_lives():
                self.lost_s, self.error = time.monotonic(), error
            else:
                self.end(error)
        elif self._files is not None and self._files.retired:
            self.end(RunLostError(f"The directory of run {self.run.summary().name!r} was moved or replaced"))

    def end(self, error: Exception | None) -> None:
        """Note that no more records will come."""
        self.error, self.ended, self.lost_s = error, True, None

    def reconnect(self) -> None:
        """Open the stream again after the connection was lost, as long as the run lives."""
        lost_s = self.lost_s
        if lost_s is None:
            return
        try:
            self.stream, self._cursor, self._resumed = self._subscribed(), 0, True
            self.error = self.lost_s = None
        except Exception:  # noqa: BLE001  the client learns why the stream was lost, not why this attempt failed
            if not self._run_lives() or time.monotonic() - lost_s >= RETRY_S:
                self.end(self.error)

    def statistics(self) -> dict[str, Any]:
        """Return what is counted of the stream, here and, as of its last description, in the run."""
        streams = self.run.description.streams if self.live and self.run.description is not None else ()
        query = self.stream.query if self.stream is not None else ""
        described = next((stream for stream in streams if canonical(stream.query) == query), None)
        counted = {name: getattr(described, name, initial) for name, initial in COUNTED.items()}
        n_lost = self.stream.n_lost if self.stream is not None else 0
        return {"n_lost": n_lost, **counted, "n_records": self.backlog.n, "n_unfit": self.backlog.n_unfit,
                "ended": self.ended, "lost": self.lost_s is not None}  # fmt: skip

    def _run_lives(self) -> bool:
        return self.run.entry is not None and discovery.alive(self.run.entry.id)

    def _replayed(self, run: RecordedRun) -> Stream:
        """Query a recorded run, and read what it has; numbers without making records of them."""
        stream = run.stream(self.query)
        stream.bound(max_records=MAX_REPLAYED, max_bytes=MAX_REPLAYED_BYTES)
        series = run.series_of(self.query) if run.ended else None
        if series is not None:
            self._add_series(series)
            return stream
        arrays = stream.to_arrays()
        values = arrays.values
        if len(values) and values.ndim == 1 and values.dtype.kind in "biuf":
            self._cursor = len(values)
            self._add_columns(0, arrays.steps, arrays.wall_times, values, MAX_POINTS)
        return stream

    def _add_series(self, series: Series) -> None:
        """Add a series that does not grow any more, however long it is, without the stream."""
        n = len(series)
        if is_scalar(series.type):
            for start in range(0, n, CHUNK_ROWS):
                columns = series.columns(start, min(n, start + CHUNK_ROWS))
                y = numbers(series.tag, columns.values)
                self._add_columns(start, columns.steps, columns.wall_times, y, MAX_POINTS * len(y) // max(n, 1))
        else:
            self.backlog.numeric = n == 0
            items: list[PackedValue] = []
            n_bytes = 0
            for i in range(n - 1, max(-1, n - 1 - MAX_ITEMS), -1):
                with contextlib.suppress(DamagedError):  # the run's `problem` reports it
                    record = series[i]
                    if not items:
                        self._choose_view(record.value)
                    items.append(packed_value(i, record))
                    n_bytes += items[-1].n_bytes
                if n_bytes > MAX_ITEM_BYTES:
                    break
            self.backlog.add_items(n, items[::-1])
        self.ended = True

    def _add_columns(self, start: int, steps: Numbers, wall_times: Numbers, values: Numbers, room: int) -> None:
        """Add numbers, thinned if there is less room."""
        n = len(values)
        if n:
            self._choose_view(values[-1].item())
        self.backlog.numeric = True
        kept = np.arange(n) if n <= room else thin_indices(values, max(1, room // 4))
        index = start + kept
        self.backlog.add_numbers(n, index, index, steps[kept], wall_times[kept], values[kept])

    def _add(self, records: Sequence[Record]) -> None:
        if self._resumed:
            records = [record for record in records if self._is_new(record)]
            if not records:
                return
            self._resumed = False
        self._last = (records[-1].index, records[-1].wall_time)
        self._choose_view(records[-1].value)
        self.backlog.add(records)

    def _is_new(self, record: Record) -> bool:
        """Tell whether a record, after the stream was opened again, did not come before."""
        index, wall_time = self._last
        return record.wall_time > wall_time or (record.index > index and record.wall_time == wall_time)

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
