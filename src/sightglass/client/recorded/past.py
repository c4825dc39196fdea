"""The past of a live stream: what the run recorded before the query was sent.

Theory of operation
    A query is answered twice: by the run, from now on, and by its files, from the first recorded event. Both give the
    same records, at the same wall times. The files are read up to the first live record that is complete and after
    which none is lost, which is found by its wall time; from there on the live records are passed on. So no record
    comes twice and none is left out. Times are compared for equality only, since the run's clock may have been set.

    This needs files that this process can read, and that still grow: what the query reads must be recorded now.
    Otherwise the stream begins with the first live record, and its note says so.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from sightglass.client.beginning import UNRECORDED, with_beginning
from sightglass.client.describe import Description
from sightglass.client.producer import RecordProducer
from sightglass.client.record_buffer import RecordBuffer
from sightglass.client.stream import Stream
from sightglass.core.columns import COMPLETE, Columns
from sightglass.core.counts import Statistics
from sightglass.core.errors import QueryError, SightglassError
from sightglass.core.record import Restart
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.query.stages import ByValue, Every, Reduce
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording

from .plan import LOG, plan
from .playback import SETTLED_S
from .run import POLL_S, RecordedRun


def with_past(
    producer: RecordProducer,
    buffer: RecordBuffer,
    query: Query,
    *,
    note: Callable[[], str],
    description: Description,
    check_wait: Callable[[], None],
) -> Stream:
    """Return a stream that begins with what the run recorded, and continues with live records.

    Args:
        producer: Of the live records.
        buffer: The live records.
        query: The query that they answer.
        note: Returns the remark about it.
        description: The run, as it described itself after the query was sent.
        check_wait: See `Stream`.
    """
    opened = _open(query, description)
    if isinstance(opened, str):
        note = with_beginning(note, opened, buffer, at_once=True)
        return Stream(producer, buffer, note=note, query=query.key, check_wait=check_wait)
    past, close_past, began = opened
    live = Stream(producer, buffer, query=query.key)
    joined = RecordBuffer(tag=buffer.tag, run=buffer.run, run_id=past.run_id or buffer.run_id, client=buffer.client)
    joined.run_ids = past.run_ids
    joined_producer = PastThenLive(past, live, live_buffer=buffer, close_past=close_past)
    note = with_beginning(note, began, joined, at_once=True)
    return Stream(joined_producer, joined, note=note, query=query.key, check_wait=check_wait)


class PastThenLive:
    """Produces the records of a recorded stream, and then those of a live one, without a seam."""

    def __init__(
        self,
        past: Stream,
        live: Stream,
        *,
        live_buffer: RecordBuffer,
        close_past: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._past: Stream | None = past
        self._live = live
        self._live_buffer = live_buffer
        self._close_past = close_past
        self._past_counts = Statistics()
        self._past_restarts: tuple[Restart, ...] = ()
        self._past_cursor = self._live_cursor = self._n = 0
        self._shift: int | None = None
        self._reached = -math.inf
        self._first, self._first_s = -1, 0.0

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records."""
        if buffer.ended:
            return
        if self._past is not None:
            self._read_past(buffer, self._past)
        if self._past is None:
            self._read_live(buffer)

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group in the run.

        Raises:
            QueryError: The stream has not reached the live records yet.
        """
        if self._past is not None:
            raise QueryError("Expected a stream that has read what was recorded; wait for its first live record")
        self._live.end_group()

    def close(self) -> None:
        """Close the live stream and the files."""
        self._live.close()
        self._leave_past()

    def statistics(self) -> Statistics:
        """Return the counts of the run and of the files."""
        live = self._live.statistics()
        past = self._past_counts if self._past is None else self._past.statistics()
        return replace(
            live, n_events=live.n_events + past.n_events, n_dropped=live.n_dropped + past.n_dropped,
            n_errors=live.n_errors + past.n_errors,
        )  # fmt: skip

    def _read_past(self, buffer: RecordBuffer, past: Stream) -> None:
        now_s = self._monotonic()  # before reading
        live_over = self._live.ended
        first = self._first_live()
        if len(first) and first.index != self._first:
            self._first, self._first_s = first.index, now_s
        settled = len(first) > 0 and now_s - self._first_s >= SETTLED_S  # all records before it are in the files
        over = past.ended
        self._past_cursor, columns = past.since(self._past_cursor)
        past.forget(self._past_cursor)
        seam = np.flatnonzero(columns.wall_times == first.wall_times[0]) if len(first) else np.empty(0, np.int64)
        known = columns.slice(0, int(seam[-1])) if len(seam) else columns
        if len(known):
            buffer.restarts = self._past_restarts = past.restarts
            buffer.add(known)
            self._n, self._reached = known.end, float(known.wall_times[-1])
        if len(seam):
            self._reached = -math.inf  # no live record from the first on is in the files that were read
            self._leave_past()
        elif over and past.error is not None:
            buffer.end(past.error)  # what is missing up to the first live record is unknown
            self._leave_past()
        elif settled or (over and (live_over or len(first))):
            self._leave_past()

    def _first_live(self) -> Columns:
        """Return the live records from the first on that is complete, and after which none is lost."""
        self._live_cursor, columns = self._live.since(self._live_cursor)
        gaps = np.flatnonzero(np.diff(columns.numbers) != 1)
        columns = columns.slice(int(gaps[-1]) + 1 if len(gaps) else 0)
        if columns.flags is not None:
            complete = np.flatnonzero(columns.flags & COMPLETE)
            columns = columns.slice(int(complete[0]) if len(complete) else len(columns))
        if len(columns):
            self._live_cursor = columns.index
        return columns

    def _leave_past(self) -> None:
        if self._past is not None:
            self._past_counts = self._past.statistics()
            self._past = None
            self._close_past()

    def _read_live(self, buffer: RecordBuffer) -> None:
        over = self._live.ended  # before reading: later records are for the next turn
        self._live_cursor, columns = self._live.since(self._live_cursor)
        if self._shift is None and len(columns):
            same = np.flatnonzero(columns.wall_times == self._reached)
            fresh = same[-1:] + 1 if len(same) else np.flatnonzero(columns.wall_times > self._reached)
            columns = columns.slice(int(fresh[0]) if len(fresh) else len(columns))
            if len(columns):
                self._shift = self._n - columns.index
        if len(columns) and self._shift is not None:
            starts = [0, *(np.flatnonzero(np.diff(columns.numbers) != 1) + 1).tolist(), len(columns)]
            for start, stop in pairwise(starts):  # one by one, so that a gap between them counts as lost
                buffer.add(columns.slice(start, stop).moved(self._shift))
        if self._shift is not None:
            shift = self._shift
            live = (replace(one, index=one.index + shift) for one in self._live.restarts)
            buffer.restarts = (*self._past_restarts, *live)
        if over:
            if self._shift is not None and self._live_buffer.next_index is not None:
                buffer.expect(self._live_buffer.next_index + self._shift)
            buffer.end(self._live.error)


def _open(query: Query, description: Description) -> tuple[Stream, Callable[[], None], str] | str:
    """Open the run's files, if they answer the query up to now.

    Returns:
        The stream of what was recorded, how to close the files, and why it begins late, if it does. If the files do
        not answer the query: why the stream begins only now.
    """
    asked, directory = ", when you asked", description.directory
    if not directory:
        return f"{asked}; the run does not record"
    unrecorded = f"{asked}; record it from now on with client.record({query.short or str(query)!r})"
    recorded = {as_query(stream.query).key for stream in description.streams if stream.recorded}
    logged = set(description.events[LOG].observables) - {"step"} if LOG in description.events else set()
    if not recorded and not logged:
        return unrecorded
    deadline_s = time.monotonic() + SETTLED_S
    recording = _files(description, deadline_s)
    if recording is None:
        return f"{asked}; what the run recorded in {directory!r} cannot be read here"
    needed = {Key(kind="logged", tag=name) for name in logged}
    while time.monotonic() < deadline_s:
        keys = set(recording.keys())
        if needed <= keys and recorded <= {key.query for key in keys}:
            break
        time.sleep(POLL_S)  # the first values are not in the files yet
        recording.refresh()
    with contextlib.suppress(QueryError, OSError):
        if _continues(query, recording, recorded):
            run = RecordedRun(recording, follow=True)
            past = run.stream(query)
            late = any(recording.series(key).since for key in plan(query, recording.keys()).keys.values())
            return past, run.close, UNRECORDED if late else ""
    recording.close()
    return unrecorded


def _files(description: Description, deadline_s: float) -> Recording | None:
    """Open the files of a run; wait for the writer, which writes at least every half second."""
    path = Path(description.directory)
    while path.is_dir() or description.host == socket.gethostname():
        with contextlib.suppress(SightglassError, OSError):
            recording = Recording(path)
            if recording.info.id == description.id:
                return recording
            recording.close()
        if time.monotonic() > deadline_s:
            break
        time.sleep(POLL_S)
    return None


def _continues(query: Query, recording: Recording, recorded: Collection[str]) -> bool:
    """Return whether files give the same records as the run, up to now.

    Args:
        query: The query.
        recording: The files.
        recorded: The queries that the run records now, in canonical text.

    Raises:
        QueryError: The query cannot be answered from the recorded series.
    """
    windows = [stage.window for stage in query.stages if isinstance(stage, Reduce)]
    if any(isinstance(after, Every) and not isinstance(before, Every) for before, after in pairwise(windows)):
        return False  # such groups are counted from when the query was sent
    if query.key in recorded:
        return True
    if any(isinstance(window, ByValue) for window in windows):
        return False  # the run's begin with the first value after the query was sent
    keys = plan(query, recording.keys()).all_keys
    return all(key.kind != "stream" or key.query in recorded for key in keys)
