"""What a live stream has missed, from the run's files: what came before it was asked for, or while its client was away.

Theory of operation
    A query is answered twice: by the run, and by its files. Both give the same records, at the same wall times. Live
    records that come behind a hole wait. The files are read up to the first of them that is complete and behind which
    none is missing, which is found by its wall time; from there on the live records are passed on. So no record comes
    twice and none is left out; what the files miss, too, counts as lost. Times are compared for equality only, since
    the run's clock may have been set.

    This needs files that this process can read, and that still grow: what the query reads must be recorded now.
    Otherwise the stream goes on with the first live record. If it just begins, its note says so.
"""

from __future__ import annotations

import contextlib
import math
import socket
import time
from collections.abc import Callable, Collection
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from sightglass.client.resumable_stream import UNRECORDED, RecordBuffer, ResumableStream
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import COMPLETE, Columns
from sightglass.core.counts import Statistics
from sightglass.core.description import Description
from sightglass.core.errors import QueryError, SightglassError
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.query.stages import ByValue, Every, Reduce
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording

from .plan import LOG, plan
from .playback import SETTLED_S
from .run import POLL_S, RecordedRun

Ints = npt.NDArray[np.int64]


def past_of(stream: ResumableStream, query: Query, description: Description) -> tuple[Past | None, str]:
    """Return what the run recorded of a query, for the hole behind which the records of a stream wait.

    Args:
        stream: The stream. If the run's files do not answer the query, it goes on, and the hole stays.
        query: Its query.
        description: The run, as it described itself after the records began to wait.

    Returns:
        The recorded records, or `None`; and why the stream begins late, if it does.
    """
    from_start = stream.buffer.next_index is None
    opened = _open(query, description, wait_s=SETTLED_S if from_start else 0.0)
    if isinstance(opened, str):
        stream.go_on()
        return None, opened
    recorded, close, began = opened
    if from_start:
        stream.buffer.run_id, stream.buffer.run_ids = recorded.run_id or stream.buffer.run_id, recorded.run_ids
    return Past(recorded, stream, close=close), began


class Past:
    """The records that fill the hole in a stream: those before the first that waits behind it.

    A hole before the first record is filled from the first record in the files. Another one is filled from the record
    that follows the last one before it, or, if that one is not in the files, as far as its numbers reach.
    """

    def __init__(
        self,
        recorded: Stream,
        stream: ResumableStream,
        *,
        close: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin before the first record.

        Args:
            recorded: What the files answer to the query.
            stream: The stream, whose records wait.
            close: Closes the files.
            monotonic: The clock.
        """
        self._monotonic = monotonic
        self._recorded = recorded
        self._stream = stream
        self._close = close
        self._from_start = stream.buffer.next_index is None
        self._last = stream.buffer.last
        # What is added to the numbers of the files, once that is known.
        self._moved: int | None = 0 if self._from_start else None
        self._cursor = self._waiting_cursor = 0
        self._first, self._first_s = -1, 0.0

    def advance(self) -> bool:
        """Add new records from the files; return whether the stream goes on without them from now on."""
        buffer, waiting = self._stream.buffer, self._stream.waiting
        if waiting is None or buffer.ended:
            return True
        now_s = self._monotonic()  # before reading
        waiting_over = waiting.ended
        first = self._first_waiting(waiting)
        if len(first) and first.index != self._first:
            self._first, self._first_s = first.index, now_s
        settled = len(first) > 0 and now_s - self._first_s >= SETTLED_S  # all records before it are in the files
        over = self._recorded.ended
        end, columns = self._recorded.since(self._cursor)
        seam = np.flatnonzero(columns.wall_times == first.wall_times[0]) if len(first) else np.empty(0, np.int64)
        columns, seam = self._behind_last(columns, seam)
        if len(seam) and self._moved is None:
            self._moved = first.index - int(columns.numbers[seam[-1]])
        if self._moved is not None:
            self._cursor = end
            self._recorded.forget(end)
            self._add(columns.slice(0, int(seam[-1])) if len(seam) else columns)
            if len(seam):
                at = int(columns.numbers[seam[-1]]) + self._moved
                self._stream.go_on(first.index, moved=at - first.index)
                return True
        if over and self._recorded.error is not None and self._from_start:
            buffer.end(self._recorded.error)  # what is missing up to the first record that waits is unknown
            return True
        return (settled or (over and (waiting_over or len(first) > 0))) and self._leave(
            waiting, first, waiting_over=waiting_over
        )

    def close(self) -> None:
        """Close the files."""
        self._close()

    def statistics(self) -> Statistics:
        """Return the counts of the files; none if the stream began before, and they count its events twice."""
        return self._recorded.statistics() if self._from_start else Statistics()

    def _first_waiting(self, waiting: RecordBuffer) -> Columns:
        """Return the records that wait from the first on that is complete, and behind which none is missing."""
        self._waiting_cursor, columns = waiting.since(self._waiting_cursor)
        # Behind the last there may be another hole. Before the first record of a stream, it just counts as lost.
        end = columns.end if self._from_start else waiting.next_index or columns.end
        gaps = np.flatnonzero(np.diff(columns.numbers, append=end) != 1)
        columns = columns.slice(int(gaps[-1]) + 1 if len(gaps) else 0)
        if columns.flags is not None:
            complete = np.flatnonzero(columns.flags & COMPLETE)
            columns = columns.slice(int(complete[0]) if len(complete) else len(columns))
        if len(columns):
            self._waiting_cursor = columns.index
        return columns

    def _behind_last(self, columns: Columns, seam: Ints) -> tuple[Columns, Ints]:
        """Drop what the stream had before the hole, if its last record is among these; `seam` are rows of them."""
        if self._moved is not None or self._last is None:
            return columns, seam
        number, wall_time = self._last
        same = np.flatnonzero(columns.wall_times == wall_time)
        if not len(same):
            return columns, seam
        self._moved = number - int(columns.numbers[same[-1]])
        n_before = int(same[-1]) + 1
        return columns.slice(n_before), seam[seam >= n_before] - n_before

    def _add(self, columns: Columns) -> None:
        """Give the stream records of the files."""
        buffer, moved = self._stream.buffer, self._moved or 0
        if self._from_start:
            buffer.restarts = self._recorded.restarts
        if len(columns):
            buffer.add(columns.moved(moved))

    def _leave(self, waiting: RecordBuffer, first: Columns, *, waiting_over: bool) -> bool:
        """Let the stream go on where the files do not have the first record that waits; return whether it does."""
        buffer = self._stream.buffer
        n = buffer.next_index or 0
        if self._from_start:  # its numbers follow those of the files, whatever they are in the run
            reached = -math.inf if buffer.last is None else buffer.last[1]
            same = np.flatnonzero(first.wall_times == reached)
            fresh = same[-1:] + 1 if len(same) else np.flatnonzero(first.wall_times > reached)
            first = first.slice(int(fresh[0]) if len(fresh) else len(first))
            if not (len(first) or waiting_over):
                return False
        if self._moved is None:
            self._stream.go_on()
        elif self._from_start or (len(first) and first.index < n):  # the run counts fewer as missing than there are
            at = first.index if len(first) else waiting.next_index or 0
            self._stream.go_on(at, moved=n - at)
        else:
            self._stream.go_on(n)
        return True


def _open(query: Query, description: Description, *, wait_s: float) -> tuple[Stream, Callable[[], None], str] | str:
    """Open the run's files, if they answer the query up to now; wait this long for what is not in them yet.

    Returns:
        The stream of what was recorded, how to close the files, and why it begins late, if it does. If the files do
        not answer the query: why the stream begins only now.
    """
    asked, directory = ", when you asked", description.directory
    if not directory:
        return f"{asked}; the run does not record"
    unrecorded = f"{asked}; {query.advice}"
    recorded = {as_query(stream.query).key for stream in description.streams if stream.recorded}
    logged = set(description.events[LOG].observables) - {"step"} if LOG in description.events else set()
    if not recorded and not logged:
        return unrecorded
    deadline_s = time.monotonic() + wait_s
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
