"""Streams: what a run, or another stream, gives back.

A stream is pulled: whoever wants records, by iteration, `latest`, `to_arrays` or a view, brings it up to date and
reads what is new from its store. Every consumer has a place of its own and gets every record. Steps that are added to
a stream run here, in whoever's thread pulls, with any Python function; the run never sees them.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

from sightglass.core.errors import MissingExtraError, QueryError
from sightglass.core.record import Record
from sightglass.core.threads import Background
from sightglass.query.pipeline import Pipeline
from sightglass.query.stages import Chain, Per, Reduce, Step, When
from sightglass.query.windows import PipelineItem

from .record_buffer import Arrays, RecordBuffer, arrivals, to_arrays

if TYPE_CHECKING:
    from .save import Saving

WAIT_S: Final = 0.5
MAX_GAP: Final = 100_000


class RecordFeed(Protocol):
    """Where the records of a stream come from."""

    def advance(self, store: RecordBuffer) -> None:
        """Put what is new into the store; called by one thread at a time."""

    def end_group(self, store: RecordBuffer) -> None:
        """Close the open group."""

    def close(self) -> None:
        """Take nothing in any more."""

    def statistics(self) -> Mapping[str, Any]:
        """Return what the source counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What is known of a stream.

    Attributes:
        n_records: How many records came.
        n_lost: How many were lost on the way, by the gaps in their index numbers.
        n_forgotten: How many are not kept here any more.
        ended: Whether more can come.
        n_events: How many events the run evaluated for it.
        n_skipped: How many events the run's budget skipped.
        n_dropped: How many records the run dropped because they were not taken away in time.
        n_errors: How many events failed.
        last_error: The last failure, or empty.
        stride: The stream is evaluated on each event whose number is a multiple of this.
        spent_s: What it has cost the run so far, in seconds.
    """

    n_records: int
    n_lost: int
    n_forgotten: int
    ended: bool
    n_events: int = 0
    n_skipped: int = 0
    n_dropped: int = 0
    n_errors: int = 0
    last_error: str = ""
    stride: int = 1
    spent_s: float = 0.0


class Stream(Chain):
    """Ordered records, finite or endless.

    Iterate over it, with `for` or `async for`; read `latest`, `to_arrays()`, `to_polars()`; give it to
    `sightglass.plot`; add steps to it (`map`, `where`, `mean(every=10)` …), which run here. When the run ends, so
    does the iteration; when the stream failed, or the run was lost, the iteration raises what happened after the last
    record.

    Attributes:
        note: What the run said when it was asked, such as what it waits for.
        query: The canonical text of the query that it answers; empty where steps were added here.
    """

    def __init__(self, feed: RecordFeed, store: RecordBuffer, *, note: str = "", query: str = "") -> None:
        self.note = note
        self.query = query
        self._feed = feed
        self._store = store
        self._lock = threading.RLock()

    @property
    def tag(self) -> str:
        """The name of the series."""
        return self._store.tag

    @property
    def run(self) -> str:
        """The name of the run it comes from."""
        return self._store.run

    @property
    def ended(self) -> bool:
        """Whether no more records will come."""
        self._advance()
        return self._store.ended

    @property
    def error(self) -> Exception | None:
        """Why it ended, if it did not end well; iteration raises it."""
        return self._store.error

    @property
    def n_lost(self) -> int:
        """How many records were lost on the way so far, by the gaps in their index numbers."""
        return self._store.n_lost

    @property
    def latest(self) -> Record | None:
        """The newest record, or `None` if there is none yet."""
        self._advance()
        return self._store.latest()

    def since(self, cursor: int, /) -> tuple[int, Sequence[Record]]:
        """Return the records after a cursor, at once, and the cursor behind them; begin with 0."""
        self._advance()
        return self._store.since(cursor)

    def bound(self, *, max_records: int, max_bytes: int) -> None:
        """Keep no more than this here from now on; the oldest records are forgotten first."""
        self._store.bound(max_records=max_records, max_bytes=max_bytes)

    def forget(self, cursor: int, /) -> None:
        """Keep nothing here of what came before a cursor, which `since` gave: whoever reads it is done with it."""
        self._store.forget(cursor)

    def __iter__(self) -> Iterator[Record]:
        cursor = 0
        while True:
            seen, over = arrivals.n, self.ended  # before reading: what comes after is for the next turn
            cursor, records = self._store.since(cursor)
            yield from records
            if not records:
                if over and self._finished():
                    return
                arrivals.wait(seen, WAIT_S)

    async def __aiter__(self) -> AsyncIterator[Record]:
        cursor = 0
        while True:
            seen, over = arrivals.n, self.ended
            cursor, records = self._store.since(cursor)
            for record in records:
                yield record
            if not records:
                if over and self._finished():
                    return
                await asyncio.to_thread(arrivals.wait, seen, WAIT_S)

    def wait(self, n: int = 1, *, timeout_s: float | None = None) -> list[Record]:
        """Wait until there are this many records, or no more can come, and return all that are kept.

        Raises:
            TimeoutError: They did not come in time.
        """
        import time

        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            seen = arrivals.n
            self._advance()
            if self._store.n >= n or self._finished():
                return self._store.since(0)[1]
            if deadline_s is not None and time.monotonic() > deadline_s:
                raise TimeoutError(f"Expected {n} records of {self.tag!r} within {timeout_s} s, got {self._store.n}")
            arrivals.wait(seen, WAIT_S if deadline_s is None else min(WAIT_S, max(0.0, deadline_s - time.monotonic())))

    def to_arrays(self) -> Arrays:
        """Return the records that are kept as arrays: `steps`, `wall_times`, `values`, `tracks`."""
        self._advance()
        return to_arrays(self._store)

    def to_polars(self) -> Any:
        """Return the records that are kept as a Polars data frame: step, wall_time, value and the tracks.

        Raises:
            MissingExtraError: Polars is not installed.
        """
        try:
            import polars  # type: ignore[import-not-found,unused-ignore]
        except ImportError:
            raise MissingExtraError("polars", extra="export", purpose="Stream.to_polars") from None
        arrays = self.to_arrays()
        values = arrays.values.tolist() if arrays.values.ndim > 1 or arrays.values.dtype == object else arrays.values
        return polars.DataFrame(
            {"step": arrays.steps, "wall_time": arrays.wall_times, "value": values, **arrays.tracks}
        )

    def statistics(self) -> Statistics:
        """Return what was counted, here and in the run."""
        self._advance()
        store = self._store
        counted = {key: value for key, value in self._feed.statistics().items() if key in Statistics.__slots__}
        here = {"n_records": store.n, "n_lost": store.n_lost, "n_forgotten": store.n_forgotten, "ended": store.ended}
        return Statistics(**{**counted, **here})

    def end_group(self) -> None:
        """Close the open group now: the client's flag B. Only for reducers without a named window.

        Raises:
            QueryError: There is no such reducer.
        """
        with self._lock:
            self._advance()
            self._feed.end_group(self._store)

    def subscribe(self, function: Callable[[Record], Any]) -> StreamCallback:
        """Call a function with each record, from the first that is kept, on a thread of its own.

        What the function raises is warned of once, counted, and raised by `StreamCallback.close`.
        """
        return StreamCallback(self, function)

    def save(self, path: str | os.PathLike[str]) -> Saving:
        """Save the records into a file, from the first that is kept here until the stream ends.

        It goes on in the background; `Saving.close`, or the end of this process, saves what has come so far.
        `sightglass.open(path)` opens the file.

        Raises:
            FileExistsError: There is such a file already.
            OSError: It cannot be made.
        """
        from .save import Saving

        return Saving(self, path)

    def zip(self, *others: Stream) -> Stream:
        """Return a stream of tuples of the n-th records' values, named by the tag and run they come from."""
        return _joined(_Zip((self, *others)), (self, *others), "zip")

    def union(self, *others: Stream) -> Stream:
        """Return a stream of all records of several streams as they come; each keeps its run's name and its tag."""
        return _joined(_Union((self, *others)), (self, *others), "union")

    def close(self) -> None:
        """End the stream; the run stops answering it if nobody else asks. What came stays readable."""
        self._advance()
        self._feed.close()
        self._store.end()

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "ended" if self._store.ended else "live"
        return f"<Stream {self.tag!r} of run {self.run!r}, {self._store.n} records, {state}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_stream

        return bundle_of_stream(self)

    def _with(self, step: Step) -> Stream:
        if isinstance(step, Reduce) and isinstance(step.window, Per):
            raise QueryError(
                "Expected a window of records on a stream; per= needs the run's events: put it into the query"
            )
        shown = step.name if isinstance(step, Reduce) else type(step).__name__.lower()
        store = RecordBuffer(tag=f"{self.tag}.{shown}", run=self.run)
        return Stream(_Steps(self, step), store)

    def _function(self, fn: Any, n_params: int = 1) -> Any:
        if not callable(fn):
            raise QueryError(f"Expected a function, got {type(fn).__name__} {fn!r}")
        return fn

    def _advance(self) -> None:
        with self._lock:
            self._feed.advance(self._store)

    def _finished(self) -> bool:
        if not self._store.ended:
            return False
        if self._store.error is not None:
            raise self._store.error
        return True


class _Steps:
    """A step that runs here."""

    def __init__(self, parent: Stream, step: Step) -> None:
        self._parent = parent
        self._pipeline = Pipeline([step], seed=0)
        self._conditions = [step.window.condition] if isinstance(step, Reduce) and isinstance(step.window, When) else []
        self._cursor = 0
        self._next_ordinal: int | None = None
        self._n_made = itertools.count()

    def advance(self, store: RecordBuffer) -> None:
        if store.ended:
            return
        over = self._parent.ended
        end, records = self._parent.since(self._cursor)
        for behind, record in enumerate(records, end - len(records) + 1):
            self._cursor = behind  # before its function is called: what raises is not tried again, what follows is
            store.extend(self._made(store, self._post(record), record))
        if over:
            store.extend(self._made(store, self._pipeline.finish(), None))
            store.end(self._parent._store.error)

    def _post(self, record: Record) -> list[PipelineItem]:
        items: list[PipelineItem] = []
        if self._next_ordinal is not None:
            for ordinal in range(max(self._next_ordinal, record.index - MAX_GAP), record.index):
                items += self._pipeline.miss(ordinal=ordinal, wall_time=record.wall_time)
        self._next_ordinal = record.index + 1
        item = PipelineItem(record.index, record.step, record.wall_time, record.value, record.n_events, record.complete,
                    record.closed, record.steps)  # fmt: skip
        closes = [bool(condition(record)) for condition in self._conditions]
        return items + self._pipeline.post(item, ordinal=record.index, wall_time=record.wall_time, closes=closes)

    def _made(self, store: RecordBuffer, items: list[PipelineItem], record: Record | None) -> list[Record]:
        tag = store.tag if record is None or record.tag == self._parent.tag else record.tag
        run = store.run if record is None else record.run
        return [
            Record(tag=tag, index=next(self._n_made), step=item.step, wall_time=item.wall_time, value=item.value,
            run=run,
                   closed=item.closed, complete=item.complete, n_events=item.n_events, steps=item.steps or {})
            for item in items
        ]  # fmt: skip

    def end_group(self, store: RecordBuffer) -> None:
        if not self._pipeline.folds:
            self._parent.end_group()
            return
        store.extend(self._made(store, self._pipeline.end_group(), None))
        arrivals.tell()

    def close(self) -> None:
        pass

    def statistics(self) -> Mapping[str, Any]:
        return self._parent._feed.statistics()


class _Several:
    """What streams made of several others share."""

    def __init__(self, parents: Sequence[Stream]) -> None:
        self._parents = parents
        self._cursors = [0] * len(parents)
        self._n_made = itertools.count()

    def end_group(self, store: RecordBuffer) -> None:
        raise QueryError("Expected a stream with a reducer to close; this one joins several")

    def close(self) -> None:
        pass

    def statistics(self) -> Mapping[str, Any]:
        return {}

    def _over(self) -> bool:
        return all(parent.ended for parent in self._parents)

    def _error(self) -> Exception | None:
        return next((parent._store.error for parent in self._parents if parent._store.error), None)


class _Union(_Several):
    """All records of several streams, in the order of their time as far as they have come, numbered anew."""

    def advance(self, store: RecordBuffer) -> None:
        over = self._over()
        fresh: list[Record] = []
        for i, parent in enumerate(self._parents):
            self._cursors[i], records = parent.since(self._cursors[i])
            fresh.extend(records)
        fresh.sort(key=lambda record: record.wall_time)
        store.extend([replace(record, index=next(self._n_made)) for record in fresh])
        if over:
            store.end(self._error())


class _Zip(_Several):
    """The n-th records of several streams side by side."""

    def __init__(self, parents: Sequence[Stream]) -> None:
        super().__init__(parents)
        self._waiting: list[list[Record]] = [[] for _ in parents]

    def advance(self, store: RecordBuffer) -> None:
        over = any(parent.ended for parent in self._parents)
        for i, parent in enumerate(self._parents):
            self._cursors[i], records = parent.since(self._cursors[i])
            self._waiting[i].extend(records)
        n = min(map(len, self._waiting))
        rows = list(zip(*(waiting[:n] for waiting in self._waiting), strict=True))
        for waiting in self._waiting:
            del waiting[:n]
        store.extend(
            [
                Record(
                    tag=store.tag,
                    index=next(self._n_made),
                    step=row[0].step,
                    wall_time=max(record.wall_time for record in row),
                    value=tuple(record.value for record in row),
                    run=store.run,
                    complete=all(record.complete for record in row),
                    n_events=sum(record.n_events for record in row),
                )
                for row in rows
            ]
        )
        exhausted = any(
            parent.ended and not waiting for parent, waiting in zip(self._parents, self._waiting, strict=True)
        )
        if over and exhausted:
            store.end(self._error())


def _joined(feed: RecordFeed, parents: Sequence[Stream], what: str) -> Stream:
    if not all(isinstance(parent, Stream) for parent in parents):
        raise TypeError(f"Expected streams to {what}, got {', '.join(type(parent).__name__ for parent in parents)}")
    tags, runs = dict.fromkeys(p.tag for p in parents), dict.fromkeys(p.run for p in parents)
    return Stream(feed, RecordBuffer(tag=", ".join(tags), run=", ".join(runs)))


class StreamCallback:
    """A function that is called with each record of a stream.

    Attributes:
        n_calls: How often it was called.
        n_errors: How often it raised.
    """

    def __init__(self, stream: Stream, function: Callable[[Record], Any]) -> None:
        self.n_calls = self.n_errors = 0
        self._error: Exception | None = None
        self._stream = stream
        self._function = function
        self._closed = False
        self._thread = Background("subscription", self._run)

    def close(self) -> None:
        """Stop calling, and raise the first error of the function, or of the stream's own steps.

        Raises:
            Exception: What was raised first.
        """
        self._closed = True
        arrivals.tell()
        self._thread.close(timeout_s=None)
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the stream has ended and all its records were handed over."""
        return self._thread.join(timeout_s)

    def _run(self) -> None:
        cursor = 0
        while not self._closed:
            seen, over = arrivals.n, self._stream.ended
            cursor, records = self._stream.since(cursor)
            for record in records:
                self._call(record)
            if not records:
                if over:
                    return
                arrivals.wait(seen, WAIT_S)

    def _call(self, record: Record) -> None:
        if self._closed:
            return
        self.n_calls += 1
        try:
            self._function(record)
        except Exception as error:  # noqa: BLE001  a consumer's error is its own, and is raised by close
            self.n_errors += 1
            if self._error is None:
                self._error = error
                warnings.warn(f"A subscriber of {self._stream.tag!r} raised {error!r}", RuntimeWarning, stacklevel=2)
