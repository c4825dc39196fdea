"""What waits for the writer's thread, and how that makes columns of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sightglass.core.columns import Row
from sightglass.core.guarded import message
from sightglass.storage.format.block import Key

from .column_builder import ColumnBuilder, Log
from .loss_report import LossReport

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
