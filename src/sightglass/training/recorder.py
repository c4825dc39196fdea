"""What a run gives its records to: it names the series they belong to, and hands them to the `RecordWriter`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sightglass.core.clock import Clock
from sightglass.core.columns import Row
from sightglass.core.values import is_container, rebuild
from sightglass.storage.format.block import Key
from sightglass.storage.write.writer import RecordWriter, WriterStatistics
from sightglass.training.subscription import Subscription


class Recorder:
    """Gives the records of a run to a keeper; nothing is written before there is one to be kept."""

    def __init__(self, open_directory: Callable[[], Path], *, rank: int, clock: Clock) -> None:
        """Begin with nothing; `open_directory` makes the run directory when the first record comes."""
        self._keeper = RecordWriter(open_directory, rank=rank, clock=clock)
        self._n_rows: dict[Key, int] = {}
        self.log = self._keeper.log

    @property
    def active(self) -> bool:
        """Whether anything was given yet."""
        return self._keeper.active

    def record(self, answer: Subscription, rows: Sequence[Row], since: int) -> None:
        """Keep the records of a query that is answered anyway."""
        key = Key(kind="stream", tag=answer.query.tag, query=answer.query.key)
        n_missed = answer.n_errors + answer.n_skipped + answer.n_dropped
        self._keeper.rows(key, rows, since=since, n_missed=n_missed)

    def snapshot(self, event: str, index: int, step: Any, wall_time: float, observables: Mapping[str, Any]) -> None:
        """Keep the snapshot of an event."""
        self._put(Key(kind="snapshot", tag=event), step, wall_time, _plain(observables), index)

    def group(self, event: str, ordinal: int, wall_time: float) -> None:
        """Keep that the groups of an event ended before its event number `ordinal`."""
        self._put(Key(kind="groups", tag=event), ordinal, wall_time, True, ordinal)

    def act(self, done: Mapping[str, Any]) -> None:
        """Keep that an act was applied, if anything is kept."""
        if self._keeper.active:
            self._put(Key(kind="acts", tag="acts"), done["step"], done["wall_time"], dict(done), done["index"])

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was given is written.

        Raises:
            StorageError: Something could not be.
        """
        self._keeper.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what is left. Errors as in `flush`."""
        self._keeper.close(timeout_s)

    def abandon(self) -> None:
        """Become a no-op in a forked child."""
        self._keeper.abandon()

    def statistics(self) -> WriterStatistics:
        """Return what was counted."""
        return self._keeper.statistics()

    def _put(self, key: Key, step: Any, wall_time: float, value: Any, ordinal: int) -> None:
        n = self._n_rows.get(key, 0)
        self._n_rows[key] = n + 1
        self._keeper.rows(key, [(n, step, wall_time, value, None, ordinal)])


def _plain(value: Any) -> Any:
    """Make mappings of the namespaces that a snapshot holds in place of objects."""
    if isinstance(value, SimpleNamespace):
        value = vars(value)
    return rebuild(value, _plain) if is_container(value) else value
