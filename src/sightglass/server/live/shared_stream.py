"""Streams that sockets share: one task per run and query.

Theory of operation
    Sockets that ask one run the same query share a `SharedStream`. Its task opens the stream, pulls what is new into a
    backlog, and lets each socket's `StreamCursor` queue what that socket has not been sent. The task closes the stream
    when the last cursor has left.

    Records of live runs arrive on the client's thread, which wakes the tasks if one of them waits for records. So what
    comes after a pause is sent at once. The pace of what follows is set in the run, which holds records back for
    `pace_s` to send them together: longer the more cursors there are, so their number does not change what a run costs.
    A task rests as long as its turn took, so streams use at most half of the event loop's time, and for most of
    the pace, which is not the run's alone if the run has other clients.
    Recorded runs announce nothing: their tasks read on every `FOLLOW_S`.

    If the last socket lost its connection, the stream stays open for `LINGER_S`: a client that reconnects gets what it
    missed.

    A cursor sends at most `MAX_UNACKNOWLEDGED` messages that its client has not acknowledged. Later records wait in the
    backlog, and are sent as one message, thinned to the number of points that the client can show.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Final, TypeVar

from sightglass.client.recorded.run import RecordedRun
from sightglass.client.run import RemoteRun
from sightglass.client.streams.arrivals import arrivals
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Columns, of_records
from sightglass.core.errors import DamagedError, QueryError, RunLostError
from sightglass.core.process.threads import pool
from sightglass.core.source import restarts_of
from sightglass.query.parser import as_query
from sightglass.server.http_errors import shown, without_folders
from sightglass.server.runs.open_files import OpenFiles, is_scalar
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.scalar_lines import CHUNK_ROWS, numbers
from sightglass.server.runs.served_run import PACE_S, ServedRun
from sightglass.storage.read.series import Series
from sightglass.views import encoding
from sightglass.views.choose import Form, choose, form_of
from sightglass.views.encoding import MAX_ITEMS, Backlog

from .frame_queue import FrameQueue, Id

FOLLOW_S: Final = 0.5  # recorded runs flush about once a second
CURSOR_PACE_S: Final = 0.005  # a message takes 0.1 ms: 2 % of a core for any number of cursors
MAX_REST_S: Final = 0.25  # after a long turn, or of very many charts, each still moves four times a second
REST_OF_PACE: Final = 0.75  # a turn and its rest are over when the run sends again, so the two waits do not add up
STATISTICS_S: Final = 1.0
LINGER_S: Final = 30.0  # a page reconnects within seconds; a reload or a short loss of network takes longer
MAX_LINGERING: Final = 256  # each holds up to 32 MiB, so clients that come and go cannot fill the memory
MAX_UNACKNOWLEDGED: Final = 8  # twice as many as the page acknowledges at once

Key = tuple[str, str, bool]
T = TypeVar("T")


class StreamCursor:
    """One socket's place in a shared stream.

    Attributes:
        id: The name that the client gave the stream.
        stream: The stream, once the cursor has joined it.
        unacknowledged: How many messages were sent and not acknowledged.
        closed: Whether the client closed the stream or left, or the stream has ended.
        reader: The name of the socket, for a fair share of the budget.
    """

    def __init__(self, queue: FrameQueue, cursors: dict[Id, StreamCursor], id: Id, *, points: int) -> None:
        self.id = id
        self.stream: SharedStream | None = None
        self.unacknowledged = 0
        self.closed = False
        self.reader = queue.name
        self._queue = queue
        self._cursors = cursors
        self._points = points
        self._cursor = self._n_sent = 0
        self._view: dict[str, Any] | None = None
        self._statistics: dict[str, Any] = {}
        cursors[id] = self

    def opened(self, reader: StreamReader) -> None:
        """Tell the client that its stream is open."""
        stream = reader.stream
        self._queue.send({"type": "opened", "id": self.id, "tag": stream.tag if stream else "",
                          "note": stream.note if stream else "", "query": stream.query if stream else ""})  # fmt: skip

    def refuse(self, error: Exception) -> None:
        """Tell the client why its stream cannot be opened, or continue."""
        try:
            self._queue.refuse(self.id, error)
        finally:
            self.close()

    def acknowledge(self, n: int) -> None:
        """Note that the client has taken `n` messages."""
        self.unacknowledged = max(0, self.unacknowledged - n)
        self.send_new()

    def send_new(self) -> None:
        """Queue what the client has not been sent, as far as it keeps up; a failure ends the stream for this client."""
        if self.closed or self.stream is None or not self.stream.opened:
            return
        try:
            self._send_new(self.stream.reader, self._queue)
        except Exception as error:  # noqa: BLE001  it must not reach the other clients of the stream
            self.refuse(error)

    def _send_new(self, reader: StreamReader, queue: FrameQueue) -> None:
        if reader.view is not None and reader.view != self._view:
            self._view = reader.view
            queue.send({"type": "view", "id": self.id, **reader.view})
        while self.unacknowledged < MAX_UNACKNOWLEDGED and not queue.full:
            taken = reader.backlog.take(self._cursor, self._points)
            if taken is None:
                break
            self._cursor = taken.cursor
            self._n_sent += taken.n
            self.unacknowledged += 1
            queue.put(encoding.encode_msgpack({"id": self.id, **taken.message}))
        if reader.ended and self._cursor >= reader.backlog.end:
            self.send_statistics(reader.statistics())
            reason = (
                {} if reader.error is None else {"error": type(reader.error).__name__, "reason": shown(reader.error)}
            )
            queue.send({"type": "ended", "id": self.id, **reason})
            self.close()

    def send_statistics(self, statistics: dict[str, Any]) -> None:
        """Queue the statistics of the stream and of this cursor, if they changed."""
        n_waiting = max(0, self.stream.reader.backlog.end - self._cursor) if self.stream else 0
        n_left_out = max(0, statistics["n_records"] - self._n_sent - n_waiting)
        statistics = statistics | {"n_left_out": n_left_out, "n_unacknowledged": self.unacknowledged,
                                   "n_waiting": n_waiting}  # fmt: skip
        if statistics != self._statistics:
            self._statistics = statistics
            self._queue.send({"type": "statistics", "id": self.id, **statistics})

    def close(self, *, broken: bool = False) -> None:
        """Leave the stream.

        Args:
            broken: The connection was lost: the client may come back for the stream.
        """
        self.closed = True
        if self._cursors.get(self.id) is self:
            del self._cursors[self.id]
        if self.stream is not None:
            self.stream.leave(self, broken=broken)


class SharedStream:
    """One query of one run, with the sockets that read it.

    Attributes:
        key: The run's key, the query in canonical text, and whether its price was confirmed.
        reader: Reads the stream, in threads.
        cursors: The places of the sockets.
        opened: Whether the stream is open.
        news: Set when records may have arrived, and when the stream is to be closed.
        task: Serves the cursors until the stream is closed.
    """

    def __init__(self, table: SharedStreams, key: Key, reader: StreamReader) -> None:
        self.key = key
        self.reader = reader
        self.cursors: set[StreamCursor] = set()
        self.opened = False
        self.news = asyncio.Event()
        self._table = table
        self._closing = False
        self._linger: asyncio.TimerHandle | None = None
        self._statistics_s = time.monotonic()
        self.task = asyncio.create_task(self._run())

    def join(self, cursor: StreamCursor) -> None:
        """Add a cursor, and send it what there is."""
        if self._linger is not None:
            self._linger.cancel()
        cursor.stream = self
        self.cursors.add(cursor)
        self._count_cursors()
        if self.opened:
            cursor.opened(self.reader)
            cursor.send_new()

    def leave(self, cursor: StreamCursor, *, broken: bool) -> None:
        """Remove a cursor, and close the stream after the last one: at once, or after `LINGER_S` if it is broken."""
        self.cursors.discard(cursor)
        self._count_cursors()
        if self.cursors:
            return
        if broken and self.opened and not self.reader.ended and len(self._table) <= MAX_LINGERING:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.close)
        else:
            self.close()

    def _count_cursors(self) -> None:
        """Set the pace of the run, and tell it which tabs read the stream: each has a share of the budget."""
        self._table.pace(self.reader.run)
        if self.opened and self.cursors:
            self.reader.name_readers({cursor.reader for cursor in self.cursors})

    def close(self) -> None:
        """Let no more cursors join, and end the task."""
        self._table.remove(self)
        self._closing = True
        self.news.set()

    async def _run(self) -> None:
        """Open the stream, serve the cursors, and close it when the last one has left."""
        try:
            await self._in_thread(self.reader.open)
            self.opened = True
            self._count_cursors()
            self._each(lambda cursor: cursor.opened(self.reader))
            while not self._closing:
                await self._turn()
        except Exception as error:  # noqa: BLE001  whatever it is, the clients get it as their answer
            for cursor in list(self.cursors):
                cursor.refuse(error)
        finally:
            self.close()
            try:
                await self._in_thread(self.reader.close)
            finally:
                self._table.remove(self, closed=True)

    async def _turn(self) -> None:
        """Pull what is new, send it, and wait for more."""
        self.news.clear()
        began_s, seen = time.monotonic(), arrivals.n
        reader = self.reader
        try:
            if not reader.ended:
                await self._in_thread(reader.pull)
            if reader.ended:
                self._table.remove(self)
        except Exception as error:  # noqa: BLE001  it ends this stream, and no other
            reader.end(error)
        due = began_s - self._statistics_s >= STATISTICS_S
        statistics = reader.statistics() if due else None
        self._statistics_s = began_s if due else self._statistics_s
        self._each(lambda cursor: cursor.send_new())
        if statistics is not None:
            self._each(lambda cursor: cursor.send_statistics(statistics))
        await asyncio.sleep(rest_s(time.monotonic() - began_s, reader.run.connection.pace_s))
        if reader.live and self._table.listen() != seen:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FOLLOW_S):
                await self.news.wait()

    def _each(self, serve: Callable[[StreamCursor], None]) -> None:
        """Serve each socket; one for which that fails loses the stream, the others lose nothing."""
        for cursor in list(self.cursors):
            try:
                serve(cursor)
            except Exception as error:  # noqa: BLE001  see above
                cursor.refuse(error)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        runs = self._table.runs
        live_pool = self._table.puller if work == self.reader.pull else runs.live_pool
        threads = live_pool if self.reader.live else runs.file_pool
        return await asyncio.get_running_loop().run_in_executor(threads, work)


def rest_s(turn_s: float, pace_s: float) -> float:
    """Return for how long to rest after a turn that took `turn_s`, in a stream of a run with this pace."""
    return min(MAX_REST_S, max(turn_s, REST_OF_PACE * pace_s))


class SharedStreams:
    """The table of the streams that can be joined; make it on the event loop.

    Attributes:
        runs: The runs, and the thread pools that read files and query live runs.
        puller: The thread that pulls live streams: they share Python's lock, so more threads would not be faster.
    """

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.puller = pool("pull", 1)
        self._streams: dict[Key, SharedStream] = {}
        self._all: set[SharedStream] = set()  # those too that have ended, and whose records are still being sent
        self._loop = asyncio.get_running_loop()
        self._listening = False
        self._unsubscribe = arrivals.subscribe(self._arrived)

    def __iter__(self) -> Iterator[SharedStream]:
        return iter(list(self._streams.values()))

    def __len__(self) -> int:
        return len(self._streams)

    async def close(self) -> None:
        """Close all streams."""
        self._unsubscribe()
        for stream in list(self._all):
            stream.close()
        await asyncio.gather(*(stream.task for stream in self._all), return_exceptions=True)
        self.puller.shutdown(wait=False, cancel_futures=True)

    def join(self, cursor: StreamCursor, run: ServedRun, query: str, *, key: str, confirm: bool) -> None:
        """Join a cursor to the stream of a query, which is opened if no other cursor has joined it yet.

        Args:
            cursor: The cursor. Its client learns that the stream is open, or why not.
            run: The run.
            query: The query as the client wrote it.
            key: The query in canonical text.
            confirm: The client accepts the query's price. A stream that is open is shared with clients that did not.
        """
        for same in (confirm, not confirm):
            stream = self._streams.get((run.key, key, same))
            if stream is not None and not stream.reader.ended and (stream.opened or same == confirm):
                break
        else:
            stream = SharedStream(self, (run.key, key, confirm), StreamReader(run, query, confirm=confirm))
            self._streams[stream.key] = stream
            self._all.add(stream)
        stream.join(cursor)

    def remove(self, stream: SharedStream, *, closed: bool = False) -> None:
        """Let no more cursors join a stream; forget it when it is closed."""
        if self._streams.get(stream.key) is stream:
            del self._streams[stream.key]
        if closed:
            self._all.discard(stream)

    def pace(self, run: ServedRun) -> None:
        """Set the pace of a run by the number of its cursors."""
        n_cursors = sum(len(stream.cursors) for stream in self._all if stream.reader.run is run)
        run.connection.set_pace(min(MAX_REST_S, max(PACE_S, CURSOR_PACE_S * n_cursors)))

    def listen(self) -> int:
        """Wake the tasks of live streams at the next arrival; return the number of arrivals so far."""
        self._listening = True
        return arrivals.n

    def _arrived(self) -> None:
        """Wake the tasks if one listens; called on clients' threads. Where that fails, the tasks look by themselves."""
        if self._listening:
            self._listening = False
            with contextlib.suppress(RuntimeError, OSError):  # the event loop is closed, or out of descriptors
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for stream in self._streams.values():
            if stream.reader.live:
                stream.news.set()


# The blocking half of a shared stream: opens it, and pulls its records into a backlog.
#
# Theory of operation The methods run in threads, one at a time. The first value decides whether the records are
#     numbers; any other value among numbers becomes a gap, and is counted. A series of a recorded run that does not
#     grow any more is read as columns, without a record being made of each row.

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

    def name_readers(self, names: Collection[str]) -> None:
        """Tell the run, if it is a live one, for whom the stream is read."""
        if self.live and self.stream is not None:
            self.stream._name_readers(names)

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
