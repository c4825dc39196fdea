"""One stream that viewers share: where its records come from, and what is left of them.

Theory of operation
    A feed pulls the records of a stream, in a thread, into a `Backlog`; viewers take from that what they have not seen,
    on the loop. The first value decides whether they are numbers; what is no number among numbers is a gap, and
    counted. A series of a recorded run that does not grow any more is read without records being made of it.

    When the connection is lost but the run lives, the feed asks again. What came before is not taken twice: the run
    repeats its last records, with the numbers they had, or, if it forgot the stream, begins anew with later ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Final

import numpy as np

from sightglass.client.recorded.run import RecordedRun
from sightglass.client.stream import Stream
from sightglass.core.errors import DamagedError, RunLostError
from sightglass.core.record import Record
from sightglass.protocol import discovery
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.scalar_lines import CHUNK_ROWS, numbers
from sightglass.server.runs.series_index import is_scalar
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage.read.series import Series
from sightglass.views.backlog import MAX_ITEM_BYTES, MAX_ITEMS, MAX_POINTS, Backlog, PackedValue, item_of
from sightglass.views.choose import Form, choose, form_of
from sightglass.views.thinning import keep

RETRY_S: Final = 300.0
MAX_STORED: Final = 20_000
MAX_STORED_BYTES: Final = 64 * 2**20
"""How much of a live stream waits to be pulled; the backlog keeps what viewers need."""

MAX_REPLAYED: Final = 5_000_000
MAX_REPLAYED_BYTES: Final = 256 * 2**20
"""How much is kept of what has to be computed from a recorded run."""


class LiveFeed:
    """A stream that viewers share.

    Attributes:
        source: The run.
        query: The query as it was asked.
        live: Whether a live run answers it.
        stream: The stream, when it was opened.
        backlog: What came.
        view: What `see.choose` says of the latest value, or `None` before the first.
        ended: Whether no more can come.
        error: Why it ended, if it did not end well.
        lost_s: When the connection was lost, on the monotonic clock, while it is not made anew.
    """

    def __init__(self, source: ServedRun, query: str, *, confirm: bool) -> None:
        self.source = source
        self.query = query
        self.confirm = confirm
        self.live = source.live
        self.stream: Stream | None = None
        self.backlog = Backlog()
        self.view: dict[str, Any] | None = None
        self.ended = False
        self.error: Exception | None = None
        self.lost_s: float | None = None
        self._form: Form | None = None
        self._cursor = 0
        self._last = (-1, -np.inf)
        self._resumed = False
        self._files: OpenFiles | None = None
        self._held = ExitStack()
        self._closing = threading.Lock()
        self._closed = threading.Event()

    def open(self) -> None:
        """Ask the run. Errors as in `RemoteRun.stream` and `RecordedRun.stream`."""
        try:
            if self.live:
                self._held.enter_context(self.source.hold())
                self.stream = self._asked()
            else:
                self._files = self._held.enter_context(self.source.borrow())
                self.stream = self._replayed(self._files.run)
        except BaseException:
            self._held.close()
            raise

    def _asked(self) -> Stream:
        stream = self.source.remote().stream(self.query, confirm=self.confirm)
        stream.bound(max_records=MAX_STORED, max_bytes=MAX_STORED_BYTES)
        return stream

    def pull(self) -> bool:
        """Take what is new, and tell whether anything is."""
        if self.ended or self.stream is None or self.lost_s is not None:
            return False
        over = self.stream.ended
        self._cursor, records = self.stream.since(self._cursor)
        if records:
            self._take(records)
            self.stream.forget(self._cursor)
        if over and not records:
            error = self.stream.error
            if self.live and isinstance(error, RunLostError) and self._lives() and not self._closed.is_set():
                self.lost_s, self.error = time.monotonic(), error
                return False
            self.error, self.ended = error, True
        elif not records and self._files is not None and self._files.retired:
            name = self.source.told().name
            self.error, self.ended = RunLostError(f"The directory of run {name!r} was moved or replaced"), True
        return bool(records) or self.ended

    def reconnect(self) -> bool:
        """Ask anew after the connection was lost, as long as the run lives, and tell whether anything came of it."""
        if self.lost_s is None or self._closed.is_set():
            return False
        try:
            stream = self._asked()
        except Exception:  # noqa: BLE001  whatever it is: what ended the stream is what is told
            if self._lives() and time.monotonic() - self.lost_s < RETRY_S:
                return False
            self.ended, self.lost_s = True, None
            return True
        with self._closing:
            if not self._closed.is_set():
                self.stream, self._cursor, self._resumed = stream, 0, True
                self.error = self.lost_s = None
                return True
        stream.close()
        return False

    def _lives(self) -> bool:
        return self.source.entry is not None and discovery.alive(self.source.entry.id)

    def _replayed(self, run: RecordedRun) -> Stream:
        """Ask a recorded run, and take what it has; of numbers without making records of them."""
        stream = run.stream(self.query)
        stream.bound(max_records=MAX_REPLAYED, max_bytes=MAX_REPLAYED_BYTES)
        series = run.series_of(self.query) if run.ended else None
        if series is not None:
            self._take_series(series)
            return stream
        arrays = stream.to_arrays()
        values = arrays.values
        if len(values) and values.ndim == 1 and values.dtype.kind in "biuf":
            self._cursor = len(values)
            self._take_columns(0, arrays.steps, arrays.wall_times, values, MAX_POINTS)
        return stream

    def _take_series(self, series: Series) -> None:
        """Take a series that does not grow any more, however long it is, without the stream."""
        n = len(series)
        if is_scalar(series.type):
            for start in range(0, n, CHUNK_ROWS):
                columns = series.columns(start, min(n, start + CHUNK_ROWS))
                y = numbers(series.tag, columns.values)
                self._take_columns(start, columns.steps, columns.wall_times, y, MAX_POINTS * len(y) // max(n, 1))
        else:
            self.backlog.numeric = n == 0
            items: list[PackedValue] = []
            n_bytes = 0
            for i in range(n - 1, max(-1, n - 1 - MAX_ITEMS), -1):
                with contextlib.suppress(DamagedError):  # the list's `problem` tells of it
                    record = series[i]
                    if not items:
                        self._see(record.value)
                    items.append(item_of(i, record))
                    n_bytes += items[-1].n_bytes
                if n_bytes > MAX_ITEM_BYTES:
                    break
            self.backlog.add_items(n, items[::-1])
        self.ended = True

    def _take_columns(self, start: int, steps: Any, wall_times: Any, values: Any, room: int) -> None:
        """Take numbers, thinned if there is less room."""
        n = len(values)
        if n:
            self._see(values[-1].item())
        self.backlog.numeric = True
        kept = np.arange(n) if n <= room else keep(values, max(1, room // 4))
        index = start + kept
        self.backlog.add_numbers(n, index, index, steps[kept], wall_times[kept], values[kept])

    def _take(self, records: Sequence[Record]) -> None:
        if self._resumed:
            records = [record for record in records if self._new(record)]
            if not records:
                return
            self._resumed = False
        self._last = (records[-1].index, records[-1].wall_time)
        self._see(records[-1].value)
        self.backlog.add(records)

    def _new(self, record: Record) -> bool:
        """Tell whether a record, after the run was asked again, is none that came before."""
        index, wall_time = self._last
        return record.wall_time > wall_time or (record.index > index and record.wall_time == wall_time)

    def _see(self, value: Any) -> None:
        form = form_of(value)
        if form != self._form:
            self._form = form
            made = choose([form])
            self.view = {"view": made.view, "kinds": list(made.kinds), "possible": list(made.possible),
                         "form": {"kind": form.kind, "length": form.length}}  # fmt: skip

    def close(self) -> None:
        """Let the run rest."""
        with self._closing:
            self._closed.set()
        if self.stream is not None and self.live:
            self.stream.close()
        self._held.close()
