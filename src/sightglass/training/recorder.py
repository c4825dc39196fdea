"""The recorder of a run: it assigns records to series, and passes them to the `RecordWriter` and to mirrors.

Through mirrors it goes to other trackers, too, such as TensorBoard or Weights & Biases. A mirror gets what reaches the
run directory as a series: logged values, and the records of recorded queries. It copies what the program could
overwrite, and a thread of its own (`DeliveryQueue`) passes it on, so neither a disk nor a network holds up the
training. What a sink refuses is counted, warned of once, and raised by `flush` and `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal

from sightglass.core.columns import APPROXIMATE, CLOSED, COMPLETE, USUAL_FLAGS, Columns, Record, Row
from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError
from sightglass.core.process.clock import Clock
from sightglass.core.process.threads import Supervised, Worker
from sightglass.core.program_values.copier import sendable, snapshot
from sightglass.core.program_values.guarded import FAILURES, message, rebuild
from sightglass.core.values import PLAIN, n_bytes, to_host
from sightglass.query.parser import as_query
from sightglass.storage.delivery_queue import DeliveryQueue, RecordSink
from sightglass.storage.file_names import EVENT_FILES, SUMMARY_FILES
from sightglass.storage.file_system import LOCAL, FileSystem
from sightglass.storage.format.block import Key
from sightglass.storage.write.writer import RecordWriter

from .evaluation.subscription import Subscription

MirrorTarget = Literal["tensorboard", "mindspore", "wandb"] | RecordSink

LOST: Final = object()
TIMEOUT_S: Final = 60.0  # to close: W&B hands rows to a process of its own, which may be busy uploading


class Mirror:
    """Passes the records of a run on to a sink, which it opens for the first record."""

    def __init__(
        self,
        target: MirrorTarget,
        *,
        run: str,
        config: Mapping[str, Any],
        folder: Callable[[], Path],
        opened: Callable[[], None],
    ) -> None:
        """Begin without a sink.

        Args:
            target: Where to.
            run: The run's name.
            config: Its configuration.
            folder: Makes the run directory.
            opened: Called when the sink is open.
        """
        self._target = target
        self._run = run
        self._config = config
        self._folder = folder
        self._opened = opened
        self._sink: RecordSink | None = None
        self._failure: Exception | None = None
        self._name = target if isinstance(target, str) else type(target).__name__
        self._queue: DeliveryQueue[Callable[[], list[Record]]] = DeliveryQueue(
            f"mirror {self._name}",
            self._deliver,
            settle=lambda: self._end_of("flush"),
            end=lambda: self._end_of("close"),
        )

    def log(
        self, index: int, step: Any, wall_time: float, values: dict[str, Any], steps: Mapping[str, float] | None
    ) -> None:
        """Take logged values; see `RecordWriter.log`."""
        values = {tag: kept for tag, value in values.items() if (kept := self._own(value, tag)) is not LOST}
        at = self._own(step, "step")
        self._queue.put(
            lambda: [
                self._record(tag, (index, at, wall_time, value, (1, USUAL_FLAGS, steps), index))
                for tag, value in values.items()
            ],
            n_bytes(values),
        )

    def _own(self, value: Any, tag: str) -> Any:
        try:
            return value if type(value) in PLAIN else snapshot(value, tag)
        except FAILURES as error:
            self._queue.drop(message(error), n=1)
            return LOST

    def rows(self, tag: str, rows: Sequence[Row]) -> None:
        """Take rows of a recorded query; their values do not change any more."""
        self._queue.put(lambda: [self._record(tag, row) for row in rows], sum(n_bytes(row[3]) for row in rows))

    def flush(self, timeout_s: float) -> None:
        """Wait until the sink has written everything.

        Raises:
            StorageError: It has not in time, or some records were lost.
        """
        self._queue.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Pass on what is left, and close the sink; errors as in `flush`."""
        self._queue.close(max(timeout_s, TIMEOUT_S))

    # On the queue's thread

    def _record(self, tag: str, row: Row) -> Record:
        index, step, wall_time, value, extra, _ = row
        n_events, flags, steps = extra or (1, USUAL_FLAGS, None)
        return Record(
            tag=tag, index=index, step=to_host(step), wall_time=wall_time, value=value, run=self._run,
            closed=bool(flags & CLOSED), complete=bool(flags & COMPLETE), approximate=bool(flags & APPROXIMATE),
            n_events=n_events, steps={name: to_host(at) for name, at in (steps or {}).items()},
        )  # fmt: skip

    def _deliver(self, records: Callable[[], list[Record]]) -> None:
        self._open().write(records())

    def _open(self) -> RecordSink:
        """Return the sink; one that could not be opened is not tried again, because that may take long."""
        if self._failure is not None:
            raise StorageError(message(self._failure))
        if self._sink is None:
            try:
                self._sink = self._begin()
            except Exception as error:
                self._failure = error
                raise
            self._opened()
        return self._sink

    def _begin(self) -> RecordSink:
        match self._target:
            case "tensorboard":
                from sightglass.storage.event_log import TensorBoard

                return TensorBoard(self._folder() / EVENT_FILES)
            case "mindspore":
                from sightglass.storage.event_log import MindSpore

                return MindSpore(self._folder() / SUMMARY_FILES)
            case "wandb":
                from sightglass.storage.wandb import WandB, load

                active = load().run
                if active is None:
                    return WandB.begin(name=self._run, config=dict(self._config))
                shared = WandB.shared(active)
                shared.used_by(self._queue)
                return _Lent(shared)
        return self._target

    def _end_of(self, what: Literal["flush", "close"]) -> None:
        if self._sink is not None:
            getattr(self._sink, what)(TIMEOUT_S)


class _Lent:
    """A sink that others write to as well, and end."""

    def __init__(self, sink: RecordSink) -> None:
        self.write = sink.write
        self.flush = self.close = sink.flush


def checked(mirror: MirrorTarget | Sequence[MirrorTarget]) -> tuple[MirrorTarget, ...]:
    """Return the argument `mirror` of `init` as a tuple.

    Raises:
        TypeError: It contains something that is not a sink.
        ValueError: It contains an unknown name.
        MissingExtraError: It contains "wandb", and `wandb` is not installed.
    """
    targets = tuple(mirror) if isinstance(mirror, list | tuple) else (mirror,)
    for target in targets:
        if isinstance(target, str):
            if target not in ("tensorboard", "mindspore", "wandb"):
                raise ValueError(f"Expected mirror='tensorboard', 'mindspore', 'wandb' or a sink, got {target!r:.100}")
        elif not isinstance(target, RecordSink):
            raise TypeError(f"Expected a sink with write, flush and close as mirror, got {target!r:.100}")
    if "wandb" in targets:
        from sightglass.storage import wandb

        wandb.load()  # now, because Python cannot import it while the interpreter ends
    return targets


class Recorder:
    """Records a run. Nothing is written, and no directory is made, before the first record."""

    def __init__(
        self,
        open_directory: Callable[[], Path],
        *,
        rank: int,
        clock: Clock,
        worker: type[Worker] = Worker,
        files: FileSystem = LOCAL,
        mirrors: Sequence[Mirror] = (),
        watch: Callable[[Key, Columns], None] | None = None,
    ) -> None:
        """Start empty.

        Args:
            open_directory: Makes the run directory for the first record.
            rank: The number of the process in its program.
            clock: The time.
            worker: Runs the writer's rounds.
            files: Where the directory is.
            mirrors: Get the logged values and the records of recorded queries, too.
            watch: Called with the records that are written, on the writer's thread.
        """
        self._writer = RecordWriter(
            open_directory, rank=rank, clock=clock, worker=worker, files=files, totals=True, watch=watch
        )
        self._n_rows: dict[Key, int] = {}
        self._mirrors = mirrors
        self.log = self._log if mirrors else self._writer.log
        self.log_number = self._log_number if mirrors else self._writer.log_number

    @property
    def active(self) -> bool:
        """Whether anything was recorded yet."""
        return self._writer.active

    @property
    def supervised(self) -> Supervised:
        """The writer's loop, and what failed in it."""
        return self._writer.supervised

    @property
    def disk_problem(self) -> str:
        """Why nothing can be written now, if the disk is full; else empty."""
        return self._writer.disk_problem

    def record(self, subscription: Subscription, rows: Sequence[Row], since: int) -> None:
        """Record rows of a subscription; `since` is the number of the event since which it is recorded."""
        key = Key(kind="stream", tag=subscription.query.tag, query=subscription.query.key)
        n_missed = subscription.n_errors + subscription.n_skipped + subscription.rows.n_dropped
        self._writer.rows(key, rows, since=since, n_missed=n_missed)
        for mirror in self._mirrors:
            mirror.rows(key.tag, rows)

    def snapshot(self, event: str, index: int, step: object, wall_time: float, observables: Mapping[str, Any]) -> None:
        """Record the snapshot of an event."""
        values = {name: _recorded(value, name) for name, value in observables.items()}
        self._put(Key(kind="snapshot", tag=event), step, wall_time, values, index)

    def group(self, event: str, ordinal: int, wall_time: float) -> None:
        """Record that the groups of an event ended before its event number `ordinal`."""
        self._put(Key(kind="groups", tag=event), ordinal, wall_time, True, ordinal)

    def sampled(self, event: str, step: int, wall_time: float, values: Mapping[str, float | str]) -> None:
        """Record values as those of an event that was observed, with a recorded query for each of its observables.

        Not as logged values: those are found beside others of the same call, and nobody called.
        """
        for name, value in values.items():
            query = as_query(f"{event}.{name}")
            key = Key(kind="stream", tag=query.tag, query=query.key)
            self._put(key, step, wall_time, value, self._n_rows.get(key, 0))

    def command(self, entry: Mapping[str, Any]) -> None:
        """Record an entry of the history."""
        self._put(Key(kind="commands", tag="commands"), entry["step"], entry["wall_time"], dict(entry), entry["index"])

    def aside(self, work: Callable[[], None]) -> None:
        """Work on the run directory on the writer's thread, if anything is recorded. Errors as for records."""
        if self._writer.active:
            self._writer.aside(work)

    def start(self) -> bool:
        """Start the writer's thread before the first record; return whether it runs. If not, the caller warns of it."""
        return self._writer.start()

    def flush(self, timeout_s: float) -> None:
        """Wait until all records are written.

        Raises:
            StorageError: A record could not be written.
        """
        self._each(lambda part: part.flush(timeout_s))

    def close(self, timeout_s: float) -> None:
        """Write the remaining records. Errors as in `flush`."""
        self._each(lambda part: part.close(timeout_s))

    def abandon(self) -> None:
        """Become a no-op in a forked child."""
        self._mirrors = ()
        self._writer.abandon()

    def statistics(self) -> Statistics:
        """Return how much was written and lost."""
        return self._writer.statistics()

    def _log(
        self, index: int, step: Any, wall_time: float, values: dict[str, Any], steps: Mapping[str, float] | None
    ) -> None:
        self._writer.log(index, step, wall_time, values, steps)
        for mirror in self._mirrors:
            mirror.log(index, step, wall_time, values, steps)

    def _log_number(self, index: int, step: float, wall_time: float, values: dict[str, Any]) -> None:
        self._log(index, step, wall_time, values, None)

    def _each(self, call: Callable[[RecordWriter | Mirror], None]) -> None:
        """Call a function with the writer and all mirrors, even if it fails for some; raise the first error."""
        failures = []
        parts: list[RecordWriter | Mirror] = [self._writer, *self._mirrors]
        for part in parts:
            try:
                call(part)
            except StorageError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _put(self, key: Key, step: object, wall_time: float, value: object, ordinal: int) -> None:
        n = self._n_rows.get(key, 0)
        self._n_rows[key] = n + 1
        self._writer.rows(key, [(n, step, wall_time, value, None, ordinal)])


def _recorded(value: object, name: str) -> Any:
    """Return an observable of a snapshot as it is recorded: namespaces as mappings, what cannot be recorded as text."""
    return sendable(_without_namespaces(value), name, copy=False).value


def _without_namespaces(value: object) -> Any:
    return rebuild(vars(value) if issubclass(type(value), SimpleNamespace) else value, _without_namespaces)
