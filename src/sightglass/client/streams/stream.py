"""Streams: the records that answer a query, as a client reads them.

A stream is pulled. Iteration, `latest`, `to_arrays` and views bring it up to date and read its buffer. Every consumer
has a cursor of its own and gets every record. Stages added to a stream run in this process, with any Python function.

The export as arrays or data frames, and calls of a function with each record, stand at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import numpy.typing as npt

from sightglass.client.resumable_stream import RecordBuffer, RecordProducer
from sightglass.core.columns import Columns, Record, Restart
from sightglass.core.counts import Statistics, coverage_of_counts, total_of
from sightglass.core.errors import MissingExtraError, QueryError, cut, warn
from sightglass.core.joins import JoinKey
from sightglass.core.process.clock import duration
from sightglass.core.process.current_run import Bound
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message
from sightglass.core.source import Source
from sightglass.query.parser import as_query
from sightglass.query.stages import Chain, Per, Reduce, Stage

from .arrivals import WAIT_S, arrivals, follow
from .derived import StageProducer, UnionProducer, ZipProducer
from .save import Saving

if TYPE_CHECKING:
    import polars


class Stream(Bound, Chain):
    """Ordered records, finite or endless.

    Iterate over it, with `for` or `async for`; read `latest`, `to_arrays()`, `to_polars()`; pass it to
    `sightglass.plot`; add stages to it (`map`, `where`, `mean(every=10)` …), which run in this process. When the run
    ends, so does the iteration; when the stream failed or the run was lost, the iteration raises the error after the
    last record.

    Attributes:
        query: The canonical text of the query; empty for a derived stream.
    """

    def __init__(
        self,
        producer: RecordProducer,
        buffer: RecordBuffer,
        *,
        note: str | Callable[[], str] = "",
        query: str = "",
        check_wait: Callable[[], None] = lambda: None,
        members: Callable[[], Sequence[Stream]] | None = None,
    ) -> None:
        """Wrap what produces the records.

        Args:
            producer: What produces them.
            buffer: Where they are.
            note: A remark, or what returns one.
            query: The canonical text of the query.
            check_wait: Raises where waiting for the next record would never end.
            members: Returns the streams of single runs that this one is made of, if it is.
        """
        self._note = note
        self.query = query
        self._producer = producer
        self._buffer = buffer
        self._check_wait = check_wait
        self._members = members
        self._lock = threading.RLock()

    def _instead(self) -> str:
        return "Pass its query, and ask there; or pass its records, such as stream.to_arrays()"

    @property
    def note(self) -> str:
        """A remark: what the stream waits for, that it connects again, or where it begins; often empty."""
        return self._note() if callable(self._note) else self._note

    @property
    def members(self) -> tuple[Stream, ...] | None:
        """The streams of the single runs that this one is made of, which views draw apart; `None` if it is of one."""
        return None if self._members is None else tuple(self._members())

    @property
    def tag(self) -> str:
        """The name of the series."""
        return self._buffer.tag

    @property
    def run(self) -> str:
        """The name of the run."""
        return self._buffer.run

    @property
    def ended(self) -> bool:
        """Whether no more records can arrive."""
        self._advance()
        return self._buffer.ended

    @property
    def error(self) -> Exception | None:
        """Why the stream failed, or `None`; iteration raises it."""
        return self._buffer.error

    @property
    def n_lost(self) -> int:
        """How many records were lost on the way so far, by the gaps in their index numbers."""
        return self._buffer.n_lost

    @property
    def run_id(self) -> str:
        """The id of the run that made the first records; empty if it is not known, or if there are several."""
        return self._buffer.run_id

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The ids of the runs whose records it may have, in order, if they are known before their records."""
        return self._buffer.run_ids

    @property
    def client(self) -> object:
        """What all streams of one client have in common; `None` if there is nothing."""
        return self._buffer.client

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where the records of a restarted run begin."""
        return self._buffer.restarts

    @property
    def latest(self) -> Record | None:
        """The newest record, or `None` before the first."""
        self._advance()
        return self._buffer.latest()

    def since(self, cursor: int, /) -> tuple[int, Columns]:
        """Return the records from a number on, without waiting, and the cursor for the next call; begin with 0."""
        self._advance()
        return self._buffer.since(cursor)

    def records(self) -> list[Record]:
        """Return the records in memory without waiting: the newest exactly, and of a long stream some of the older."""
        self._advance()
        return self._buffer.records()

    def bound(self, *, max_records: int, max_bytes: int) -> None:
        """Hold at most this much in memory from now on: older records are thinned evenly, with extremes retained."""
        self._buffer.bound(max_records=max_records, max_bytes=max_bytes)

    def forget(self, cursor: int, /) -> None:
        """Drop the records before a cursor that `since` returned, once every consumer has read them."""
        self._buffer.forget(cursor)

    def __iter__(self) -> Iterator[Record]:
        for columns in follow(self, check_wait=self._check_wait):
            yield from columns.records(tag=self.tag, run=self.run)
        self._raise_error()

    async def __aiter__(self) -> AsyncIterator[Record]:
        cursor = 0
        while True:
            seen, over = arrivals.n, self.ended  # before reading: later records are for the next turn
            cursor, columns = self._buffer.since(cursor)
            for record in columns.records(tag=self.tag, run=self.run):
                yield record
            if not len(columns):
                if over:
                    self._raise_error()
                    return
                self._check_wait()
                await asyncio.to_thread(arrivals.wait, seen, WAIT_S)

    def wait(self, n: int = 1, *, timeout_s: float | None = None) -> list[Record]:
        """Wait until `n` records arrived, or the stream has ended, and return all records in memory.

        Raises:
            TimeoutError: They did not arrive in time.
            DeadlockError: A function or an action of the run calls this, and the run waits for it.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = arrivals.n
            self._advance()
            enough = self._buffer.n >= n
            if self._buffer.ended and not enough:
                self._raise_error()
            if self._buffer.ended or enough:
                return self._buffer.records()
            left_s = WAIT_S if deadline_s is None else deadline_s - time.monotonic()
            if left_s < 0:
                tag = cut(self.tag)
                raise TimeoutError(f"Expected {n} records of {tag!r} within {timeout_s} s, got {self._buffer.n}")
            self._check_wait()
            arrivals.wait(seen, min(WAIT_S, left_s))

    def to_arrays(self) -> Arrays:
        """Return the records in memory as arrays: `steps`, `wall_times`, `values`, `tracks`."""
        self._advance()
        return to_arrays(self._buffer.since(0)[1])

    def to_polars(self) -> polars.DataFrame:
        """Return the records in memory as a Polars data frame: step, wall_time, value and the tracks.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        return to_polars(self.to_arrays())

    def statistics(self) -> Statistics:
        """Return the counts of this process and of the run."""
        self._advance()
        buffer = self._buffer
        return replace(
            self._producer.statistics(), n_records=buffer.n, n_lost=buffer.n_lost, n_thinned=buffer.n_thinned,
            n_forgotten=buffer.n_forgotten, ended=buffer.ended,
        )  # fmt: skip

    @property
    def reduces(self) -> bool:
        """Whether a record may be of several events."""
        if not self.query:
            return isinstance(self._producer, StageProducer) and self._producer.reduces
        with contextlib.suppress(QueryError):  # an expression over tags
            return any(isinstance(stage, Reduce) for stage in as_query(self.query).stages)
        return False

    @property
    def coverage(self) -> str:
        """How much of what happened since it began it has, such as "166 of 2,000: 1,834 skipped by the budget".

        A live run is asked for that.
        """
        return self._coverage()[0]

    @property
    def n_missing(self) -> int:
        """How many records and events it lacks, for whatever reason; `coverage` names them. A live run is asked."""
        return self._coverage()[1]

    def _coverage(self) -> tuple[str, int]:
        members = self.members
        counts = self.statistics() if members is None else total_of(member.statistics() for member in members)
        return coverage_of_counts(counts, reduces=self.reduces)

    def _name_readers(self, names: Iterable[str]) -> None:
        """Tell the run for whom this client reads the stream, if a run answers it: see `SubscriptionProducer`."""
        name = getattr(self._producer, "name_readers", None)
        if name is not None:
            name(names)

    def end_group(self) -> None:
        """Close the open group now. Only for reducers without a named window.

        Raises:
            QueryError: The stream has no such reducer.
        """
        with self._lock:
            self._advance()
            self._producer.end_group(self._buffer)

    def subscribe(self, function: Callable[[Record], object]) -> StreamCallback:
        """Call a function with each record, from the oldest in memory, on a thread of its own.

        If the function raises, the first error is reported as a warning, and `StreamCallback.close` raises it.
        """
        return StreamCallback(self, function)

    def save(self, path: str | os.PathLike[str]) -> Saving:
        """Save the records into a file, from the oldest in memory until the stream ends.

        This happens in the background. `Saving.close`, or the end of this process, saves the records that have
        arrived. `sightglass.open(path)` opens the file.

        Raises:
            FileExistsError: The file exists already.
            OSError: The file cannot be created.
        """
        return Saving(self, path)

    def zip(self, *others: Stream, by: JoinKey = "step", tolerance: float | str | None = None) -> Stream:
        """Return a stream of tuples: each value of this stream with its partners in the others.

        Records belong together if they have the same step. The n-th record of a step is paired with the n-th. With a
        tolerance, the other record is the one with the nearest step, which may belong to several. A record that has no
        partner in each of the others gives no tuple, and counts in `statistics().n_unpaired`.

        If the steps of a stream go back, for example because each epoch counts from 0, a new pass begins. Records are
        paired within passes of the same number, counted from the first record of each stream.

        The tuples have the steps of this stream, and the tags and runs of all.

        Args:
            *others: The other streams, of this run or others, live or recorded.
            by: What is compared: `step`, `index`, or `wall_time`, which needs a tolerance.
            tolerance: By how much steps, index numbers or seconds of wall time may differ. A duration such as "5 s"
                is possible with `by="wall_time"`.

        Raises:
            QueryError: `by` or `tolerance` is not valid.
        """
        within = _tolerance(by, tolerance)
        return _joined(lambda streams: ZipProducer(streams, by=by, tolerance=within), (self, *others), "zip")

    def union(self, *others: Stream) -> Stream:
        """Return a stream of all records of several streams as they arrive; each keeps its run's name and its tag."""
        return _joined(UnionProducer, (self, *others), "union")

    def close(self) -> None:
        """End the stream; the run stops evaluating the query unless another client uses it. Its records stay."""
        self._advance()
        self._producer.close()
        self._buffer.end()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "ended" if self._buffer.ended else "live"
        return f"<Stream {cut(self.tag)!r} of run {self.run!r}, {self._buffer.n} records, {state}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_stream

        return bundle_of_stream(self)

    def _with(self, stage: Stage) -> Stream:
        if isinstance(stage, Reduce) and isinstance(stage.window, Per):
            raise QueryError(
                "Expected a window of records on a stream; per= needs the run's events: put it into the query"
            )
        name = stage.name if isinstance(stage, Reduce) else type(stage).__name__.lower()
        buffer = RecordBuffer(tag=f"{self.tag}.{name}", run=self.run, run_id=self.run_id, client=self.client)
        buffer.run_ids = self.run_ids
        return Stream(StageProducer(self, stage), buffer, note=lambda: self.note, check_wait=self._check_wait)

    def _function(self, fn: Any, n_params: int = 1) -> Any:
        if not callable(fn):
            raise QueryError(f"Expected a function, got {type(fn).__name__} {fn!r}")
        return fn

    def _advance(self) -> None:
        with self._lock:
            self._producer.advance(self._buffer)

    def _raise_error(self) -> None:
        if self._buffer.error is not None:
            raise self._buffer.error


def union_of_runs(streams: Sequence[Stream], *, coverage: str = "") -> Stream:
    """Return the union of streams of single runs, which views draw apart; `coverage` says which runs it lacks."""
    return _joined(UnionProducer, streams, "union", members=lambda: streams, coverage=coverage)


def _joined(
    producer: Callable[[Sequence[Stream]], RecordProducer],
    streams: Sequence[Stream],
    verb: str,
    members: Callable[[], Sequence[Stream]] | None = None,
    coverage: str = "",
) -> Stream:
    if not all(isinstance(stream, Stream) for stream in streams):
        raise TypeError(f"Expected streams to {verb}, got {', '.join(type(stream).__name__ for stream in streams)}")
    tags, runs = dict.fromkeys(s.tag for s in streams), dict.fromkeys(s.run for s in streams)
    same, *others = dict.fromkeys((stream.run_id, stream.client, stream.run_ids) for stream in streams)
    buffer = RecordBuffer(tag=", ".join(tags), run=", ".join(runs))
    if not others:
        buffer.run_id, buffer.client, buffer.run_ids = same

    def check_wait() -> None:
        for stream in streams:
            stream._check_wait()

    def note() -> str:
        notes = dict.fromkeys(f"{cut(stream.tag)}: {stream.note}" for stream in streams if stream.note)
        return "; ".join(filter(None, [coverage, *notes]))

    return Stream(producer(streams), buffer, note=note, check_wait=check_wait, members=members)


def _tolerance(by: str, tolerance: float | str | None) -> float | None:
    keys = get_args(JoinKey)
    if by not in keys:
        raise QueryError(f"Expected by= to be one of {', '.join(map(repr, keys))}, got {by!r}")
    if isinstance(tolerance, str) and by == "wall_time":
        try:
            return duration(tolerance)
        except ValueError as error:
            raise QueryError(str(error)) from None
    if tolerance is None and by == "wall_time":
        raise QueryError("Expected a tolerance such as '5 s' with by='wall_time': times are hardly ever equal")
    if tolerance is not None and not (isinstance(tolerance, int | float) and tolerance >= 0):
        raise QueryError(f"Expected a tolerance of at least 0 with by={by!r}, got {tolerance!r}")
    return None if tolerance is None else float(tolerance)


# Export the records of a stream as NumPy arrays or as a data frame.


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """The records of a stream as arrays; the first axis has one entry per record.

    Attributes:
        steps: The training steps, of shape (n_records,).
        wall_times: In seconds since the Unix epoch, float64, of shape (n_records,).
        values: Of shape (n_records, …) where the values are numbers or arrays of one shape, else an object array of
            shape (n_records,).
        tracks: The other step tracks by name, float64 of shape (n_records,), NaN where a record has none.
    """

    steps: npt.NDArray[np.generic]
    wall_times: npt.NDArray[np.float64]
    values: npt.NDArray[Any]
    tracks: Mapping[str, npt.NDArray[np.float64]]


def to_arrays(columns: Columns) -> Arrays:
    """Return columns as arrays."""
    tracks = columns.tracks or [{}] * len(columns)
    names = sorted({name for track in tracks for name in track})
    return Arrays(
        steps=np.asarray(columns.steps, None if len(columns) else np.float64),
        wall_times=columns.wall_times,
        values=_values(columns.values),
        tracks={name: np.asarray([track.get(name, np.nan) for track in tracks], float) for name in names},
    )


def to_polars(arrays: Arrays) -> polars.DataFrame:
    """Return arrays as a data frame with the columns step, wall_time, value and the tracks.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    try:
        import polars
    except ImportError:
        raise MissingExtraError("polars", extra="export", purpose="Stream.to_polars") from None
    values = arrays.values.tolist() if arrays.values.ndim > 1 or arrays.values.dtype == object else arrays.values
    return polars.DataFrame({"step": arrays.steps, "wall_time": arrays.wall_times, "value": values, **arrays.tracks})


def _values(values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    shapes = {
        getattr(value, "shape", ()) if isinstance(value, bool | int | float | np.generic | np.ndarray) else None
        for value in values
    }
    if len(shapes) == 1 and None not in shapes:
        return np.asarray(values)
    array = np.empty(len(values), object)
    for i, value in enumerate(values):  # one assignment would make a matrix of sequences of one length
        array[i] = value
    return array


# Call a function with each record of a stream.


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
            self._fail(error, f"The callback of stream {cut(self._stream.tag)!r} stopped")
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
            self._fail(error, f"The function subscribed to {cut(self._stream.tag)!r} raised an error")

    def _fail(self, error: BaseException, what: str) -> None:
        """Keep the first error, and warn about it."""
        if self._error is None:
            self._error = error
            warn(f"{what}: {message(error)}")
