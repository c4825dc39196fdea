"""The record writer: takes records from a training, and writes them on a thread of its own.

Rule 1: a caller never waits for a disk, and never gets an error from one. A call of `log` with plain numbers is one
`append`; arrays that the program could overwrite are copied (`copy_pool`), and nothing else is done.
Rule 2: a record is in the file at most a second later. The thread sleeps while nothing waits.
Rule 3: while nothing can be written, records wait in memory, up to `MAX_WAITING_BYTES` and about `MAX_WAITING` records
before they are columns. Beyond that the newest are dropped, whole calls or large values. Later records have a hole
before them: the file stays in order, and a reader sees where something is missing.
Rule 4: each kind of failure is warned about once, counted, and raised by the next `flush` or `close`, except values of
types that cannot be recorded: logging one by mistake must not make a training fail at its end.
Rule 5: full files are compacted (`compact`) while nothing else is waiting, `SLICE_S` at a time and a twentieth of the
time: neither a flush nor a training that is busy in Python waits for it. At the end, the rest is compacted if that
takes no longer than `COMPACT_S`.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.clock import Clock
from sightglass.core.columns import Row
from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError
from sightglass.core.guarded import FAILURES, LostValue, is_container, message
from sightglass.core.threads import UNTIL_WOKEN, Supervised, Worker
from sightglass.core.values import n_bytes
from sightglass.storage.file_system import LOCAL, FileSystem
from sightglass.storage.format.block import Key

from .column_builder import STEPS, ColumnBuilder, Log
from .copy_pool import STAGED_BYTES, CopyPool
from .rotation import Segments

FLUSH_S: Final = 0.5  # a kill loses at most a second
RETRY_S: Final = 1.0
MAX_WAITING: Final = 4_000_000
MAX_WAITING_BYTES: Final = 512 * 2**20
WAKE_ITEMS: Final = 1_024  # waking the thread costs as much as dozens of calls
WAKE_BYTES: Final = 4 * 2**20
CHUNK_ROWS: Final = 4_096  # taken from the queue under its lock: well below a millisecond
CHUNK_ITEMS: Final = 64
CHUNK_BLOCKS: Final = 16  # encoded before the thread lets others run
SLICE_S: Final = 0.001
REST: Final = 20.0  # times as long as compaction has worked: it takes a twentieth of the time
MAX_REST_S: Final = 1.0
COMPACT_S: Final = 2.0  # a program may take this much longer to end
CLOSING_SHARE: Final = 0.25  # of the time that `close` has: the rest is for writing

FIXED: Final = frozenset((float, int, bool, type(None), np.float64, np.float32, np.int64, np.int32, np.bool_))
"""Types of values that cannot change, and whose bytes need not be counted."""


@dataclass(frozen=True, slots=True)
class _Given:
    """Records of a series that is not logged, on their way."""

    key: Key
    rows: Sequence[Row]
    since: int
    n_missed: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class _Gap:
    """Where records were dropped: how many of which series."""

    n_dropped: Counter[Key]


class RecordWriter:
    """Writes the records of one process. Nothing is opened, and no thread started, before the first record.

    Attributes:
        active: Whether there was a record so far.
    """

    def __init__(
        self,
        open_directory: Callable[[], Path],
        *,
        rank: int = 0,
        clock: Clock,
        worker: type[Worker] = Worker,
        files: FileSystem = LOCAL,
    ) -> None:
        """Begin with nothing to write.

        Args:
            open_directory: Creates the directory for the files, on the writer's thread. An `OSError` counts as a full
                disk: the function is called again later. It is also called if the directory vanishes.
            rank: The number of the process in its program.
            clock: Where the time comes from.
            worker: Runs the rounds.
            files: Where the files are.
        """
        self.active = False
        self._clock = clock
        self._make_worker = worker
        self._worker = worker("writer", self.round, reset=self.reset)
        self._copies = CopyPool()
        self._columns = ColumnBuilder(lose=self._lose)
        self._segments = Segments(open_directory, rank=rank, clock=clock, tell=self._warn, files=files)
        # How many items may wait before `log` has to do more than append: 0 while the thread is asleep and has to be
        # woken, `WAKE_ITEMS` while it sleeps for a time, as many as there is room for while it works.
        self._limit = 0
        self._items: deque[Log | _Given | _Gap] = deque()
        self._room = MAX_WAITING // 10
        self._rows_per_item = 10.0
        self._given_bytes = self._taken_bytes = self._quiet_bytes = 0
        self._n_dropped = self._n_dropped_reported = 0
        self._warned: set[str] = set()
        self._failure = self._last_error = ""
        self._closed = self._urgent = False
        self._trying = True
        self._retry_s = 0.0
        self._due_s: float | None = None
        self._compact_s = 0.0
        self._closing_s = COMPACT_S

    def log(
        self, index: int, step: Any, wall_time: float, values: dict[str, Any], steps: Mapping[str, float] | None
    ) -> None:
        """Record one call of `run.log`.

        Args:
            index: The number of the call.
            step: The primary step.
            wall_time: When it was, in seconds since the Unix epoch.
            values: By their tags; do not change the mapping afterwards.
            steps: Further step tracks, or `None`.
        """
        items = self._items
        if len(items) < self._limit and FIXED.issuperset(map(type, values.values())) and type(step) in STEPS:
            items.append((index, step, wall_time, values, steps, 0))
            return
        if type(step) not in STEPS:
            step = self._own(step, 0)
        size = 0
        if not FIXED.issuperset(map(type, values.values())):
            values, size = self._owned(values)
        self._give((index, step, wall_time, values, steps, size), size)

    def rows(self, key: Key, rows: Sequence[Row], *, since: int = 0, n_missed: int = 0) -> None:
        """Record rows of a series that is not logged.

        Args:
            key: The series.
            rows: At least one, with growing numbers. Do not change them or their values afterwards.
            since: The number of the event from which on the series is recorded.
            n_missed: How many events failed, were skipped or were dropped before the last of these records.
        """
        size = 0 if FIXED.issuperset(type(row[3]) for row in rows) else sum(n_bytes(row[3]) for row in rows)
        self._give(_Given(key, rows, since, n_missed, size), size)

    def flush(self, timeout_s: float) -> None:
        """Wait until all records are in the file.

        Raises:
            StorageError: Not all are, or records were dropped since this was last raised.
        """
        if self.active and not self._closed:
            self._urgent = True
            self._check(self._worker.flush(timeout_s), timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write the remaining records, and close the file. Calling it again does nothing.

        Raises:
            StorageError: Not all records could be written (the rest is lost), or records were dropped since this was
                last raised.
        """
        if self._closed:
            return
        with self._worker.lock:
            self._closed = True
            self._limit = 0
            self._closing_s = min(COMPACT_S, CLOSING_SHARE * timeout_s)
        if self.active:
            finished = self._worker.close(timeout_s)
            if finished and self._n_waiting():  # its last round failed
                self._failure = self.supervised.failures.last
            self._check(finished, timeout_s)

    def start(self) -> bool:
        """Start the thread before the first record; return whether it runs. If not, the caller warns of it."""
        self._worker.warns_if_starved = False
        self._worker.wake()
        return not self._worker.starved

    def abandon(self) -> None:
        """Become a no-op in a forked child, whose files are its parent's."""
        self._closed = True
        self._limit = 0
        self._items = deque()
        self._worker = self._make_worker("writer", self.round, reset=self.reset)
        self._columns = ColumnBuilder(lose=self._lose)

    @property
    def supervised(self) -> Supervised:
        """The loop, and what failed in it."""
        return self._worker.supervised

    def statistics(self) -> Statistics:
        """Return the counts so far."""
        return Statistics(
            n_records=self._segments.n_rows,
            n_bytes=self._segments.n_bytes,
            n_dropped=self._n_dropped,
            n_waiting=self._n_waiting(),
            last_error=self._last_error,
        )

    # The caller's thread

    def _owned(self, values: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
        """Return values that the program can no longer change, and how many bytes they take."""
        owned: dict[str, Any] = {}
        size = 0
        for tag, value in values.items():
            if type(value) in FIXED:
                owned[tag] = value
                continue
            own = owned[tag] = self._own(value, size)
            size += 0 if type(own) is LostValue else n_bytes(own)
        return owned, size

    def _own(self, value: Any, n_more_bytes: int) -> Any:
        if type(value) is LostValue:
            return value
        try:
            size = 0 if is_container(value) else n_bytes(value)  # the length of a container may be a lie
            if size >= STAGED_BYTES and self._n_waiting_bytes() + n_more_bytes + size > MAX_WAITING_BYTES:
                return LostValue(f"more than {MAX_WAITING_BYTES >> 20} MiB are waiting to be written")
            return self._copies.take(value)
        except FAILURES as error:
            return LostValue(message(error))

    def _give(self, item: Log | _Given, size: int) -> None:
        with self._worker.lock:
            if self._closed:
                return
            self.active = True
            if len(self._items) >= self._room or (size and self._n_waiting_bytes() + size > MAX_WAITING_BYTES):
                self._drop(item)
                return
            self._items.append(item)
            self._given_bytes += size
            self._quiet_bytes += size
            if len(self._items) <= self._limit and self._quiet_bytes < WAKE_BYTES:
                return
            self._quiet_bytes = 0
            self._limit = self._room
        self._worker.wake()
        if self._worker.starved:
            self._limit = 0  # try again with the next record

    def _drop(self, item: Log | _Given) -> None:
        keys = [Key(kind="logged", tag=tag) for tag in item[3]] if isinstance(item, tuple) else [item.key] * _n(item)
        last = self._items[-1] if self._items else None
        gap = last if isinstance(last, _Gap) else _Gap(Counter())
        gap.n_dropped.update(keys)
        if gap is not last:
            self._items.append(gap)
        self._n_dropped += len(keys)
        self._warn("Records are dropped: too many are waiting to be written")

    def _n_waiting_bytes(self) -> int:
        on_the_way = self._given_bytes - self._taken_bytes
        return on_the_way + self._columns.n_bytes + self._segments.n_waiting_bytes

    def _n_waiting(self) -> int:
        return sum(map(_n, self._items.copy())) + self._columns.n_rows + self._segments.n_waiting

    def _check(self, finished: bool, timeout_s: float) -> None:
        """Raise what went wrong since the last call."""
        why = self._failure
        if not finished:
            why = self.supervised.failures.last if self.supervised.failed else f"not within {timeout_s:g} s"
        n_dropped, self._n_dropped_reported = self._n_dropped - self._n_dropped_reported, self._n_dropped
        if why:
            counted = f"{self._n_waiting()} wait in memory, {n_dropped} are lost"
            raise StorageError(f"Records could not be written: {why}; {counted}")
        if n_dropped:
            raise StorageError(f"{n_dropped} records are lost; the last reason: {self._last_error}")

    def _warn(self, message: str, *, once: str = "") -> None:
        """Warn, unless this was warned about before."""
        self._last_error = message
        if (once or message) not in self._warned:
            self._warned.add(once or message)
            with contextlib.suppress(Warning):  # where warnings are errors, no record is lost by one
                warnings.warn(message, RuntimeWarning, stacklevel=3)

    # The writer's thread

    def round(self, now_s: float) -> float | None:
        """Collect records, and write full blocks, or all when it is time; return how long to rest."""
        closing = self._closed
        urgent = self._urgent or closing
        self._urgent = False
        self._trying = urgent or now_s >= self._retry_s
        n_left = len(self._items)
        while n_left and not self._is_full():
            n_left -= self._collect(n_left)
            self._pass_on(all=False)
        now_s = self._clock.monotonic()
        if self._due_s is None:
            self._due_s = now_s + FLUSH_S
        if urgent or now_s >= self._due_s:
            self._due_s = None
            self._pass_on(all=True)
        if closing:
            self._end()
            return None
        return self._compact(self._rest())

    def reset(self) -> None:
        """Start over with another file: what is held in memory is lost, and counted."""
        self._n_dropped += self._columns.drop() + self._segments.restart()
        self._last_error = self.supervised.failures.last
        self._due_s = None
        self._limit = 0

    def _collect(self, n_left: int) -> int:
        """Collect the next items, and return how many there were."""
        n = min(n_left, max(CHUNK_ITEMS, int(CHUNK_ROWS / self._rows_per_item)))
        with self._worker.lock:
            items = [self._items.popleft() for _ in range(n)]
        logs: list[Log] = []
        for item in items:
            if isinstance(item, tuple):
                logs.append(item)
                continue
            self._take_logs(logs)
            if isinstance(item, _Given):
                self._take_rows(item)
            else:
                for key, n_dropped in item.n_dropped.items():
                    self._columns.skip(key, n_dropped)
        self._take_logs(logs)
        self._rows_per_item = max(1.0, sum(map(_n, items)) / n)
        self._room = max(1_000, int(MAX_WAITING / self._rows_per_item))
        self._worker.breathe()
        return n

    def _take_logs(self, logs: list[Log]) -> None:
        if logs:
            self._taken_bytes += sum(item[5] for item in logs)
            try:
                self._columns.log(logs)
            except Exception as error:  # noqa: BLE001  these calls are lost, and the next ones are recorded
                self._skip(Counter(Key(kind="logged", tag=tag) for log in logs for tag in log[3]), error)
            logs.clear()

    def _take_rows(self, item: _Given) -> None:
        self._taken_bytes += item.n_bytes
        try:
            self._columns.rows(item.key, item.rows, since=item.since, n_missed=item.n_missed)
        except Exception as error:  # noqa: BLE001  as above
            self._skip(Counter({item.key: len(item.rows)}), error)

    def _skip(self, lost: Counter[Key], error: Exception) -> None:
        for key, n in lost.items():
            self._columns.skip(key, n)
        self._n_dropped += lost.total()
        self._warn(f"{lost.total()} records are lost: {message(error)}")

    def _pass_on(self, *, all: bool) -> None:
        """Write full blocks, or all records, unless it is too early to try again."""
        segments = self._segments
        try:
            if self._trying and self._columns.n_rows:
                segments.open()
            if segments.ready:
                for i, rows in enumerate(self._columns.take(all=all and self._trying)):
                    try:
                        segments.append(rows)
                    except OSError:
                        raise
                    except Exception as error:  # noqa: BLE001  e.g. a type that cannot be recorded; it costs only its block
                        self._lose(rows.key, len(rows.columns), message(error))
                    if i % CHUNK_BLOCKS == CHUNK_BLOCKS - 1:
                        self._worker.breathe()
            if self._trying and (all or segments.n_waiting_bytes >= WAKE_BYTES):
                segments.flush()
                self._failure = ""
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._trying = False
        self._retry_s = self._clock.monotonic() + RETRY_S
        where = error.filename or self._segments.path
        why = f"{where}: {error.strerror}" if error.strerror else str(error)
        if not self._failure:
            self._warned.discard(why)
        self._failure = why
        self._warn(f"Records cannot be written now and wait in memory: {why}", once=why)

    def _lose(self, key: Key, n: int, why: str) -> None:
        """Count values that cannot be recorded, and warn; `flush` and `close` do not raise for them."""
        self._n_dropped += n
        self._n_dropped_reported += n
        self._warn(f"Values of {key.tag!r} cannot be recorded: {why}", once=f"value {key}")

    def _is_full(self) -> bool:
        return self._columns.n_bytes + self._segments.n_waiting_bytes > MAX_WAITING_BYTES // 2

    def _rest(self) -> float:
        """Return for how long to rest, and let `log` end the rest."""
        now_s = self._clock.monotonic()
        if self._failure:
            self._limit = self._room if self._is_full() else WAKE_ITEMS
            return max(0.0, self._retry_s - now_s)
        if self._columns.n_rows or self._segments.n_waiting or self._items:
            self._limit = WAKE_ITEMS
            if self._due_s is None:
                self._due_s = now_s + FLUSH_S
            return 0.0 if len(self._items) > WAKE_ITEMS else max(0.0, self._due_s - now_s)
        self._limit = 0
        self._due_s = None
        return 0.0 if self._items else UNTIL_WOKEN

    def _compact(self, rest_s: float) -> float:
        """Compact closed files a little, if there is time, and return for how long to rest."""
        if not self._segments.compacting or self._failure:
            return rest_s
        started_s = self._clock.monotonic()
        if started_s >= self._compact_s and rest_s:
            self._segments.compact(SLICE_S)
            now_s = self._clock.monotonic()
            rest_s = max(0.0, rest_s - (now_s - started_s))
            self._compact_s = now_s + min(MAX_REST_S, REST * (now_s - started_s))
            started_s = now_s
        return min(rest_s, max(0.0, self._compact_s - started_s))

    def _end(self) -> None:
        """Close the file; records that are not in it are lost."""
        with self._worker.lock:
            self._n_dropped += self._n_waiting()
            self._items.clear()
            self._columns = ColumnBuilder(lose=self._lose)
        try:
            self._segments.close(compact_s=0.0 if self._failure else self._closing_s)
        except OSError as error:  # some file systems in the network say only now that they have no room
            self._fail(error)


def _n(item: Log | _Given | _Gap) -> int:
    """Return how many records an item holds."""
    if isinstance(item, tuple):
        return len(item[3])
    return len(item.rows) if isinstance(item, _Given) else 0
