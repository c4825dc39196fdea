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
import errno
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sightglass.core.columns import Columns, Row
from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError, warn
from sightglass.core.process.clock import Clock
from sightglass.core.process.threads import UNTIL_WOKEN, Supervised, Worker
from sightglass.core.program_values.guarded import message
from sightglass.core.values import n_bytes
from sightglass.storage.file_system import LOCAL, FileSystem
from sightglass.storage.format.block import Key, outline

from .column_builder import STEPS, ColumnBuilder, Log
from .copy_pool import FIXED, CopyPool
from .rotation import Segments

FLUSH_S: Final = 0.5  # a kill loses at most a second
RETRY_S: Final = 1.0
DISK_IS_FULL: Final = (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))  # Windows lacks quotas
MAX_WAITING: Final = 4_000_000
MIN_ROOM: Final = 16  # calls that may wait, however many values they have
MAX_WAITING_BYTES: Final = 512 * 2**20
WAKE_ITEMS: Final = 1_024  # waking the thread costs as much as dozens of calls
WAKE_BYTES: Final = 4 * 2**20
CHUNK_ROWS: Final = 4_096  # taken from the queue under its lock: well below a millisecond
CHUNK_ITEMS: Final = 64
CHUNK_VALUES: Final = 2**16  # made to matrices in about a millisecond
CHUNK_BLOCKS: Final = 16  # encoded before the thread lets others run
SLICE_S: Final = 0.001
REST: Final = 20.0  # times as long as compaction has worked: it takes a twentieth of the time
MAX_REST_S: Final = 1.0
COMPACT_S: Final = 2.0  # a program may take this much longer to end
CLOSING_SHARE: Final = 0.25  # of the time that `close` has: the rest is for writing


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
        totals: bool = False,
        watch: Callable[[Key, Columns], None] | None = None,
    ) -> None:
        """Begin with nothing to write.

        Args:
            open_directory: Creates the directory for the files, on the writer's thread. An `OSError` counts as a full
                disk: the function is called again later. It is also called if the directory vanishes.
            rank: The number of the process in its program.
            clock: Where the time comes from.
            worker: Runs the rounds.
            files: Where the files are.
            totals: Whether to write the totals of the series, too, if the files are local.
            watch: Called with the records that are written, on the writer's thread.
        """
        self.active = False
        self._watch = watch
        self._clock = clock
        self._make_worker = worker
        self._worker = worker("writer", self.round, reset=self.reset)
        self._copies = CopyPool()
        self._columns = ColumnBuilder(lose=self._lose)
        self._losses = LossReport()
        tell = self._losses.warn
        self._segments = Segments(open_directory, rank=rank, clock=clock, tell=tell, files=files, totals=totals)
        # How many items may wait before `log` has to do more than append: 0 while the thread is asleep and has to be
        # woken, `WAKE_ITEMS` while it sleeps for a time, as many as there is room for while it works.
        self._limit = 0
        self._items: deque[Log | GivenRows | Dropped] = deque()
        self._aside: deque[Callable[[], None]] = deque()
        self._room = MAX_WAITING // 10
        self._rows_per_item = 10.0
        self._given_bytes = self._taken_bytes = self._quiet_bytes = 0
        self._closed = self._ended = self._urgent = False
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
            step = self._copies.own(step, self._refuse)
        size = 0
        if not FIXED.issuperset(map(type, values.values())):
            values, size = self._copies.own_all(values, self._refuse)
        self._give((index, step, wall_time, values, steps, size), size)

    def log_number(self, index: int, step: float, wall_time: float, values: dict[str, float]) -> None:
        """Record one call of `run.log` with Python's numbers, which are neither checked nor copied; else as `log`."""
        item = (index, step, wall_time, values, None, 0)
        if len(self._items) < self._limit:
            self._items.append(item)
        else:
            self._give(item, 0)

    def rows(self, key: Key, rows: Sequence[Row], *, since: int = 0, n_missed: int = 0) -> None:
        """Record rows of a series that is not logged.

        Args:
            key: The series.
            rows: At least one, with growing numbers. Do not change them or their values afterwards.
            since: The number of the event from which on the series is recorded.
            n_missed: How many events failed, were skipped or were dropped before the last of these records.
        """
        size = 0 if FIXED.issuperset(type(row[3]) for row in rows) else sum(n_bytes(row[3]) for row in rows)
        self._give(GivenRows(key, rows, since, n_missed, size), size)

    def aside(self, work: Callable[[], None]) -> None:
        """Work on other files of the directory on the writer's thread, in its next round. An `OSError` is ignored."""
        self._aside.append(work)
        self._worker.wake()

    def flush(self, timeout_s: float) -> None:
        """Wait until all records are in the file.

        Raises:
            StorageError: Not all are, or records were dropped since this was last raised.
        """
        if self.active and not self._closed:
            self._urgent = True
            unfinished = "" if self._worker.flush(timeout_s) else f"not within {timeout_s:g} s"
            if unfinished and self.supervised.failed:
                unfinished = self.supervised.failures.last
            self._losses.check(self._n_waiting(), unfinished=unfinished)

    def close(self, timeout_s: float) -> None:
        """Write the remaining records, however long that takes, and close the file. A second call does nothing.

        Args:
            timeout_s: After how long without progress the rest is given up.

        Raises:
            StorageError: Not all records could be written (the rest is lost), or records were dropped since this was
                last raised.
        """
        if self._ended:
            return
        with self._worker.lock:
            self._closed = True
            self._limit = 0
            self._closing_s = min(COMPACT_S, CLOSING_SHARE * timeout_s)
        if not self.active:
            return
        finished = wait_for_end(self._worker.close, self._n_waiting, timeout_s)  # one that is interrupted can continue
        self._ended = True
        unfinished = "" if finished else f"nothing more was written for {timeout_s:g} s"
        if self._n_waiting() if finished else self.supervised.failed:  # its last round failed
            unfinished = self.supervised.failures.last
        self._losses.check(self._n_waiting(), unfinished=unfinished, over=True)

    def start(self) -> bool:
        """Start the thread before the first record; return whether it runs. If not, the caller warns of it."""
        self._worker.warns_if_starved = False
        self._worker.wake()
        return not self._worker.starved

    def abandon(self) -> None:
        """Become a no-op in a forked child, whose files are its parent's."""
        self._closed = self._ended = True
        self._limit = 0
        self._items = deque()
        self._worker = self._make_worker("writer", self.round, reset=self.reset)
        self._columns = ColumnBuilder(lose=self._lose)

    @property
    def supervised(self) -> Supervised:
        """The loop, and what failed in it."""
        return self._worker.supervised

    @property
    def disk_problem(self) -> str:
        """Why nothing can be written now, if the disk is full; else empty."""
        return self._losses.failure if self._losses.is_full else ""

    def statistics(self) -> Statistics:
        """Return the counts so far."""
        return Statistics(
            n_records=self._segments.n_rows,
            n_bytes=self._segments.n_bytes,
            n_dropped=self._losses.n_dropped,
            n_waiting=self._n_waiting(),
            last_error=self._losses.last_error,
        )

    # The caller's thread

    def _refuse(self, n_bytes: int) -> str:
        """Return why there is no room for some bytes, or an empty text."""
        full = self._n_waiting_bytes() + n_bytes > MAX_WAITING_BYTES
        return f"more than {MAX_WAITING_BYTES >> 20} MiB are waiting to be written" if full else ""

    def _give(self, item: Log | GivenRows, size: int) -> None:
        with self._worker.lock:
            if self._closed:
                return
            self.active = True
            # The large values of a log were refused one by one, before they were copied: its small ones are kept.
            refused = isinstance(item, GivenRows) and size and self._refuse(size)
            if refused or len(self._items) >= self._room:
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

    def _drop(self, item: Log | GivenRows) -> None:
        last = self._items[-1] if self._items else None
        gap = last if isinstance(last, Dropped) else Dropped(Counter())
        if isinstance(item, tuple):
            gap.n_dropped[tuple(item[3])] += 1
        else:
            gap.n_dropped[item.key] += len(item.rows)
        if gap is not last:
            self._items.append(gap)
        self._losses.drop(n_records(item), "Records are dropped: too many are waiting to be written")

    def _n_waiting_bytes(self) -> int:
        on_the_way = self._given_bytes - self._taken_bytes
        return on_the_way + self._columns.n_bytes + self._segments.n_waiting_bytes

    def _n_waiting(self) -> int:
        return sum(map(n_records, self._items.copy())) + self._columns.n_rows + self._segments.n_waiting

    # The writer's thread

    def round(self, now_s: float) -> float | None:
        """Collect records, and write full blocks, or all when it is time; return how long to rest."""
        closing = self._closed
        urgent = self._urgent or closing
        self._urgent = False
        self._trying = urgent or now_s >= self._retry_s
        n_left = len(self._items)
        if self._is_full():  # since a round that could not write: what waits behind it must not wait for the next
            self._pass_on(all=True)
        while n_left and not self._is_full():
            n_left -= self._collect(n_left)
            self._pass_on(all=self._is_full())
        now_s = self._clock.monotonic()
        if self._due_s is None:
            self._due_s = now_s + FLUSH_S
        if urgent or now_s >= self._due_s:
            self._due_s = None
            self._pass_on(all=True)
        while self._aside:
            with contextlib.suppress(OSError):  # a full disk; records, which matter more, are tried again
                self._aside.popleft()()
        if closing:
            self._end()
            return None
        return self._compact(self._rest())

    def reset(self) -> None:
        """Start over with another file: what is held in memory is lost, and counted."""
        self._losses.n_dropped += self._columns.drop() + self._segments.restart()
        self._losses.last_error = self.supervised.failures.last
        self._due_s = None
        self._limit = 0

    def _collect(self, n_left: int) -> int:
        """Collect the next items, and return how many there were."""
        each = self._rows_per_item
        n = max(1, min(n_left, max(CHUNK_ITEMS, int(CHUNK_ROWS / each)), int(CHUNK_VALUES / each)))
        with self._worker.lock:
            items = [self._items.popleft() for _ in range(n)]
        self._taken_bytes += collect(items, self._columns, self._losses)
        self._rows_per_item = max(1.0, sum(map(n_records, items)) / n)
        self._room = max(MIN_ROOM, int(MAX_WAITING / self._rows_per_item))
        self._worker.breathe()
        return n

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
                        self._lose(rows.key, rows.n_records, message(error))
                    else:
                        if self._watch is not None:
                            self._watch(rows.key, rows.columns)
                    if i % CHUNK_BLOCKS == CHUNK_BLOCKS - 1:
                        self._worker.breathe()
            if self._trying and (all or segments.n_waiting_bytes >= WAKE_BYTES):
                segments.flush()
                self._losses.failure = ""
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self._trying = False
        self._retry_s = self._clock.monotonic() + RETRY_S
        where = error.filename or self._segments.path
        is_full = error.errno in DISK_IS_FULL
        self._losses.fail(f"{where}: {error.strerror}" if error.strerror else str(error), is_full=is_full)

    def _lose(self, key: Key, n: int, why: str) -> None:
        """Count values that cannot be recorded, and warn; `flush` and `close` do not raise for them."""
        self._losses.forgive(n, f"Values of {outline(key)} cannot be recorded: {why}", once=f"value {key}")

    def _is_full(self) -> bool:
        return self._columns.n_bytes + self._segments.n_waiting_bytes > MAX_WAITING_BYTES // 2

    def _rest(self) -> float:
        """Return for how long to rest, and let `log` end the rest."""
        now_s = self._clock.monotonic()
        if self._losses.failure:
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
        if not self._segments.compacting or self._losses.failure:
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
            self._losses.n_dropped += self._n_waiting()
            self._items.clear()
            self._columns = ColumnBuilder(lose=self._lose)
        try:
            self._segments.close(compact_s=0.0 if self._losses.failure else self._closing_s)
        except OSError as error:  # some file systems in the network say only now that they have no room
            self._fail(error)


# What waits for the writer's thread, and how that makes columns of it.

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GivenRows:
    """Records of a series that is not logged, on their way."""

    key: Key
    rows: Sequence[Row]
    since: int
    n_missed: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Dropped:
    """Where records were dropped: how many of which series, and how many calls of `log` with which names."""

    n_dropped: Counter[Key | Names]


def n_records(item: Log | GivenRows | Dropped) -> int:
    """Return how many records an item holds."""
    if isinstance(item, tuple):
        return len(item[3])
    return len(item.rows) if isinstance(item, GivenRows) else 0


def collect(items: Sequence[Log | GivenRows | Dropped], columns: ColumnBuilder, losses: LossReport) -> int:
    """Make columns of items, in their order, and return how many bytes of large values they had."""
    logs: list[Log] = []
    n_bytes = 0
    for item in items:
        if isinstance(item, tuple):
            logs.append(item)
            n_bytes += item[5]
            continue
        _take_logs(logs, columns, losses)
        if isinstance(item, GivenRows):
            n_bytes += item.n_bytes
            _take_rows(item, columns, losses)
        else:
            _skip(item.n_dropped, columns)
    _take_logs(logs, columns, losses)
    return n_bytes


def _take_logs(logs: list[Log], columns: ColumnBuilder, losses: LossReport) -> None:
    if not logs:
        return
    try:
        columns.log(logs)
    except Exception as error:  # noqa: BLE001  these calls are lost, and the next ones are recorded
        _skip(Counter(tuple(log[3]) for log in logs), columns)
        _lose(sum(map(n_records, logs)), error, losses)
    logs.clear()


def _take_rows(item: GivenRows, columns: ColumnBuilder, losses: LossReport) -> None:
    try:
        columns.rows(item.key, item.rows, since=item.since, n_missed=item.n_missed)
    except Exception as error:  # noqa: BLE001  as above
        columns.skip(item.key, len(item.rows))
        _lose(len(item.rows), error, losses)


def _skip(lost: Mapping[Key | Names, int], columns: ColumnBuilder) -> None:
    """Leave holes in the numbers of series."""
    for what, n in lost.items():
        if isinstance(what, Key):
            columns.skip(what, n)
        else:
            columns.skip_calls(what, n)


def _lose(n: int, error: Exception, losses: LossReport) -> None:
    losses.drop(n, f"{n} records are lost: {message(error)}")


# Waiting for the end of a writer: as long as it makes progress, which a terminal shows.

MOMENT_S: Final = 1.0  # a shorter wait is not worth a line
LOOK_S: Final = 0.25


def wait_for_end(close: Callable[[float], bool], n_waiting: Callable[[], int], timeout_s: float) -> bool:
    """Wait until a writer has ended, or has written nothing for `timeout_s`; return whether it has ended.

    Args:
        close: Waits for the end, for so many seconds at most, and returns whether it is there.
        n_waiting: Returns how many records wait to be written.
        timeout_s: For how long nothing may happen.
    """
    idle_s = min(MOMENT_S, timeout_s)
    finished, n_left = close(idle_s), n_waiting()
    try:
        while not finished and idle_s < timeout_s:
            _show(f"sightglass: {n_left:,} records are still to be written")
            finished = close(min(LOOK_S, timeout_s))
            n_before, n_left = n_left, n_waiting()
            idle_s = idle_s + LOOK_S if n_left == n_before else 0.0
    finally:
        _show("")
    return finished


def _show(line: str) -> None:
    """Replace the last line of a terminal."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it was closed
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()


# What a writer could not write: counted, warned of once for each reason, and raised by the next `flush` or `close`.


class LossReport:
    """The losses of one writer; any thread may add to it.

    Attributes:
        n_dropped: How many records are lost.
        last_error: The last reason.
        failure: Why nothing can be written now, or empty.
        is_full: Whether that is because the disk is full, or what this user may have of it.
    """

    def __init__(self) -> None:
        """Begin without losses."""
        self.n_dropped = 0
        self.last_error = self.failure = ""
        self.is_full = False
        self._n_reported = 0
        self._warned: set[str] = set()

    def warn(self, message: str, *, once: str = "") -> None:
        """Warn, unless this was warned about before; `once` is what counts as the same."""
        self.last_error = message
        if (once or message) not in self._warned:
            self._warned.add(once or message)
            warn(message)

    def drop(self, n: int, why: str) -> None:
        """Count lost records, and warn."""
        self.n_dropped += n
        self.warn(why)

    def forgive(self, n: int, why: str, *, once: str) -> None:
        """Count lost records and warn, but raise nothing: a value of the wrong type must not make a training fail."""
        self.n_dropped += n
        self._n_reported += n
        self.warn(why, once=once)

    def fail(self, why: str, *, is_full: bool) -> None:
        """Note that nothing can be written now; once more if it could in between."""
        if not self.failure:
            self._warned.discard(why)
        self.failure, self.is_full = why, is_full
        self.warn(f"Records cannot be written now and wait in memory: {why}", once=why)

    def check(self, n_waiting: int, *, unfinished: str = "", over: bool = False) -> None:
        """Raise what went wrong since the last call.

        Args:
            n_waiting: How many records wait in memory.
            unfinished: Why they were waited for in vain, or empty.
            over: Whether nothing is written from now on: what waits is lost.

        Raises:
            StorageError: Records wait, or are lost.
        """
        why = unfinished or self.failure
        if over and why:
            self.n_dropped, n_waiting = self.n_dropped + n_waiting, 0
        n_lost, self._n_reported = self.n_dropped - self._n_reported, self.n_dropped
        if why:
            raise StorageError(f"Records could not be written: {why}; {n_waiting} wait in memory, {n_lost} are lost")
        if n_lost:
            raise StorageError(f"{n_lost} records are lost; the last reason: {self.last_error}")
