"""The recorder of a run: it assigns records to series, and passes them to the `RecordWriter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sightglass.core.columns import Row
from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError
from sightglass.core.process.clock import Clock
from sightglass.core.process.threads import Supervised, Worker
from sightglass.core.program_values.copier import sendable
from sightglass.core.program_values.guarded import rebuild
from sightglass.query.parser import as_query
from sightglass.storage.file_system import LOCAL, FileSystem
from sightglass.storage.format.block import Key
from sightglass.storage.write.writer import RecordWriter

from .evaluation.subscription import Subscription
from .mirror import Mirror


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
    ) -> None:
        """Start empty.

        Args:
            open_directory: Makes the run directory for the first record.
            rank: The number of the process in its program.
            clock: The time.
            worker: Runs the writer's rounds.
            files: Where the directory is.
            mirrors: Get the logged values and the records of recorded queries, too.
        """
        self._writer = RecordWriter(open_directory, rank=rank, clock=clock, worker=worker, files=files, totals=True)
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
