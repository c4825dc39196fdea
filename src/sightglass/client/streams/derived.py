"""Producers of derived streams: a further stage on one stream, and streams made of several others.

They run in the client, in the thread that reads the derived stream, with any Python function; the run never sees them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.client.resumable_stream import AnyStream, RecordBuffer
from sightglass.core.columns import APPROXIMATE, CLOSED, Columns, Record, Restart, plain
from sightglass.core.counts import Statistics
from sightglass.core.errors import QueryError
from sightglass.core.joins import JoinKey, SourceJoin
from sightglass.query.pipeline import Pipeline
from sightglass.query.stages import Reduce, Stage, When
from sightglass.query.windows import PipelineItem

from .arrivals import arrivals

# A gap of lost records is reported to the pipeline number by number; one that is longer counts as this long, so that
# a gap of a billion does not stall the reader.
MAX_GAP: Final = 100_000


class StageProducer:
    """Runs one stage on the records of another stream.

    Where records of that stream are missing, so are numbers of this one, except of a reducer: it counts its windows,
    and is told of each missing record. Where its run was restarted, the next record is marked; a window that is open
    then holds events of both runs. A reducer begins after the records that were thinned: what is left of a bucket
    are its extremes, and no sum or mean of those is that of the bucket.
    """

    def __init__(self, parent: AnyStream, stage: Stage) -> None:
        self._parent = parent
        self._pipeline = Pipeline([stage], seed=0)
        window = stage.window if isinstance(stage, Reduce) else None
        self.reduces = parent.reduces or isinstance(stage, Reduce)
        self._conditions = [window.condition] if isinstance(window, When) else []
        self._cursor = 0
        self._next_ordinal: int | None = None
        self._index = self._n_restarts = 0

    def advance(self, buffer: RecordBuffer) -> None:
        """Run the stage on the new records of the parent."""
        if buffer.ended:
            return
        over = self._parent.ended
        end, columns = self._parent.since(self._cursor)
        if self._pipeline.folds:
            columns = columns.exact()
        restarts = self._parent.restarts
        made: list[Record] = []
        try:
            for record in columns.records(tag=self._parent.tag, run=self._parent.run):
                self._cursor = record.index + 1  # before its function is called: one that raises is not tried again
                items = self._post(record)
                while self._n_restarts < len(restarts) and restarts[self._n_restarts].index <= record.index:
                    mark_restart(buffer, self._index, restarts[self._n_restarts].run_id)
                    self._n_restarts += 1
                made += self._records(buffer, items, record)
        finally:
            buffer.extend(made, bits=0 if self._pipeline.folds else columns.bits)
        self._cursor = end
        if over:
            buffer.extend(self._records(buffer, self._pipeline.finish(), None))
            buffer.end(self._parent.error)

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group here, or in the parent where this stage is not a reducer."""
        if not self._pipeline.folds:
            self._parent.end_group()
            return
        buffer.extend(self._records(buffer, self._pipeline.end_group(), None))
        arrivals.notify()

    def close(self) -> None:
        """Do nothing: the parent stays open for others."""

    def statistics(self) -> Statistics:
        """Return the counts of the parent, whose events the run evaluates."""
        return self._parent.statistics()

    def _post(self, record: Record) -> list[PipelineItem]:
        items: list[PipelineItem] = []
        expected = record.index if self._next_ordinal is None else self._next_ordinal
        if self._pipeline.folds:
            for ordinal in range(max(expected, record.index - MAX_GAP), record.index):
                items += self._pipeline.miss(ordinal=ordinal, wall_time=record.wall_time)
        else:
            self._index += max(0, record.index - expected)
        self._next_ordinal = record.index + 1
        item = PipelineItem(
            record.index, record.step, record.wall_time, record.value, record.n_events, record.complete,
            record.closed, record.steps, approximate=record.approximate,
        )  # fmt: skip
        closes = [bool(condition(record)) for condition in self._conditions]
        if self._pipeline.by is not None:
            self._pipeline.key = self._pipeline.by(record)
        return items + self._pipeline.post(item, ordinal=record.index, wall_time=record.wall_time, closes=closes)

    def _records(self, buffer: RecordBuffer, items: list[PipelineItem], record: Record | None) -> list[Record]:
        tag = buffer.tag if record is None or record.tag == self._parent.tag else record.tag
        run = buffer.run if record is None else record.run
        made_of = None if self._pipeline.folds else record
        first, self._index = self._index, self._index + len(items)
        return [
            Record(tag=tag, index=index, step=item.step, wall_time=item.wall_time, value=item.value,
                   run=run, closed=item.closed, complete=item.complete, approximate=item.approximate,
                   n_events=item.n_events, steps=item.steps or {},
                   rank=None if made_of is None else made_of.rank, missing=() if made_of is None else made_of.missing)
            for index, item in enumerate(items, first)
        ]  # fmt: skip


class _JoinProducer:
    """The part that unions and zips share."""

    def __init__(self, parents: Sequence[AnyStream]) -> None:
        self._parents = list(parents)
        self._cursors = [0] * len(parents)
        self._n_restarts = [0] * len(parents)
        self._n = 0

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse: this stream has no reducer."""
        raise QueryError("Expected a stream with a reducer to close; this one joins several streams")

    def close(self) -> None:
        """Do nothing: the parents stay open for others."""

    def statistics(self) -> Statistics:
        """Return nothing: the parents have counts of their own."""
        return Statistics()

    def _mark(self, buffer: RecordBuffer, parent: int, indexes: npt.NDArray[np.int64], places: Sequence[int]) -> None:
        """Mark the restarts of a parent.

        Args:
            buffer: The buffer of this stream.
            parent: The place of the parent among all.
            indexes: Shape (n,): the numbers of its records that are in this stream now, increasing.
            places: Shape (n,): their numbers in this stream.
        """
        for restart in self._parents[parent].restarts[self._n_restarts[parent] :]:
            at = int(np.searchsorted(indexes, restart.index))
            if at == len(indexes):
                break
            mark_restart(buffer, places[at], restart.run_id)
            self._n_restarts[parent] += 1

    def _error(self) -> Exception | None:
        return next((parent.error for parent in self._parents if parent.error), None)


def mark_restart(buffer: RecordBuffer, index: int, run_id: str) -> None:
    """Mark where the records of a restarted run begin; of several restarts before one record the last stays."""
    others = tuple(restart for restart in buffer.restarts if restart.index != index)
    buffer.restarts = tuple(sorted((*others, Restart(index=index, run_id=run_id)), key=lambda restart: restart.index))


class UnionProducer(_JoinProducer):
    """Produces the records of several streams as they arrive, by wall time among those that arrived together."""

    def __init__(self, parents: Sequence[AnyStream]) -> None:
        super().__init__(parents)
        self._ranks: list[int | None] = [None] * len(parents)

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records of all parents, with new index numbers."""
        over = all(parent.ended for parent in self._parents)
        self.take(buffer, range(len(self._parents)))
        if over:
            buffer.end(self._error())

    def add(self, parent: AnyStream, *, rank: int | None = None) -> None:
        """Take the records of another stream, too, from now on, as those of a rank if there is one."""
        self._cursors.append(0)
        self._n_restarts.append(0)
        self._ranks.append(rank)
        self._parents.append(parent)

    def take(self, buffer: RecordBuffer, places: Iterable[int]) -> None:
        """Add the new records of the parents at these places."""
        fresh: list[tuple[float, int, Record]] = []
        for i in places:
            parent = self._parents[i]
            self._cursors[i], columns = parent.since(self._cursors[i])
            # Where a clock was set back, the records of its stream stay in their order.
            times = np.maximum.accumulate(columns.wall_times).tolist()
            records = columns.records(tag=parent.tag, run=parent.run)
            if (rank := self._ranks[i]) is not None:
                records = [dataclasses.replace(record, rank=rank) for record in records]
            fresh.extend((time_s, i, record) for time_s, record in zip(times, records, strict=True))
        fresh.sort(key=lambda one: one[0])
        for i in {i for _, i, _ in fresh}:
            mine = [(place, record.index) for place, (_, parent, record) in enumerate(fresh, self._n) if parent == i]
            self._mark(buffer, i, np.array([index for _, index in mine], np.int64), [place for place, _ in mine])
        buffer.extend([dataclasses.replace(one[2], index=self._n + i) for i, one in enumerate(fresh)])
        self._n += len(fresh)


class ZipProducer(_JoinProducer):
    """Produces tuples of the values of records that belong together, by the rules of `core.joins`."""

    def __init__(self, parents: Sequence[AnyStream], *, by: JoinKey, tolerance: float | None) -> None:
        super().__init__(parents)
        self._join = SourceJoin(parents, by=by, tolerance=tolerance)

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the pairs that are certain by now."""
        partners = self._join.read()
        n = len(partners[0])
        if n:
            columns = Columns(
                index=self._n,
                steps=partners[0].steps,
                wall_times=np.maximum.reduce([columns.wall_times for columns in partners]),
                values=list(zip(*(map(plain, columns.values) for columns in partners), strict=True)),
                n_events=np.add.reduce([columns.n_events for columns in partners]),
                flags=np.bitwise_and.reduce([columns.flags for columns in partners])
                | CLOSED
                | np.bitwise_or.reduce([columns.flags & APPROXIMATE for columns in partners]),
            )
            for i, found in enumerate(partners):
                self._mark(buffer, i, found.numbers, range(self._n, self._n + n))
            buffer.add(columns)
            self._n += n
        if self._join.over:
            buffer.end(self._error())

    def statistics(self) -> Statistics:
        """Return how many records of the first stream have no partner, and how many wait for theirs."""
        return Statistics(n_unpaired=self._join.n_unpaired, n_waiting=self._join.n_waiting)
