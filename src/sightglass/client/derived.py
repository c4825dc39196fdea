"""Producers of derived streams: a further stage on one stream, and streams made of several others.

They run in the client, in the thread that reads the derived stream, with any Python function; the run never sees them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Final

from sightglass.core.errors import QueryError
from sightglass.core.record import Record
from sightglass.query.pipeline import Pipeline
from sightglass.query.stages import Reduce, Stage, When
from sightglass.query.windows import PipelineItem

from .arrivals import arrivals
from .producer import AnyStream, Counts
from .record_buffer import RecordBuffer

# A gap of lost records is reported to the pipeline number by number; one that is longer counts as this long, so that
# a gap of a billion does not stall the reader.
MAX_GAP: Final = 100_000


class StageProducer:
    """Runs one stage on the records of another stream."""

    def __init__(self, parent: AnyStream, stage: Stage) -> None:
        self._parent = parent
        self._pipeline = Pipeline([stage], seed=0)
        window = stage.window if isinstance(stage, Reduce) else None
        self._conditions = [window.condition] if isinstance(window, When) else []
        self._cursor = 0
        self._next_ordinal: int | None = None
        self._indexes = itertools.count()

    def advance(self, buffer: RecordBuffer) -> None:
        """Run the stage on the new records of the parent."""
        if buffer.ended:
            return
        over = self._parent.ended
        end, columns = self._parent.since(self._cursor)
        made: list[Record] = []
        try:
            for record in columns.records(tag=self._parent.tag, run=self._parent.run):
                self._cursor = record.index + 1  # before its function is called: one that raises is not tried again
                made += self._records(buffer, self._post(record), record)
        finally:
            buffer.extend(made)
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

    def statistics(self) -> Counts:
        """Return the counts of the parent, whose events the run evaluates."""
        return dataclasses.asdict(self._parent.statistics())

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

    def _records(self, buffer: RecordBuffer, items: list[PipelineItem], record: Record | None) -> list[Record]:
        tag = buffer.tag if record is None or record.tag == self._parent.tag else record.tag
        run = buffer.run if record is None else record.run
        return [
            Record(tag=tag, index=next(self._indexes), step=item.step, wall_time=item.wall_time, value=item.value,
                   run=run, closed=item.closed, complete=item.complete, n_events=item.n_events, steps=item.steps or {})
            for item in items
        ]  # fmt: skip


class _JoinProducer:
    """The part that unions and zips share."""

    def __init__(self, parents: Sequence[AnyStream]) -> None:
        self._parents = parents
        self._cursors = [0] * len(parents)
        self._indexes = itertools.count()

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse: this stream has no reducer."""
        raise QueryError("Expected a stream with a reducer to close; this one joins several streams")

    def close(self) -> None:
        """Do nothing: the parents stay open for others."""

    def statistics(self) -> Counts:
        """Return nothing: the parents have counts of their own."""
        return {}

    def _error(self) -> Exception | None:
        return next((parent.error for parent in self._parents if parent.error), None)


class UnionProducer(_JoinProducer):
    """Produces the records of several streams as they arrive, by wall time among those that arrived together."""

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records of all parents, with new index numbers."""
        over = all(parent.ended for parent in self._parents)
        fresh: list[Record] = []
        for i, parent in enumerate(self._parents):
            self._cursors[i], columns = parent.since(self._cursors[i])
            fresh.extend(columns.records(tag=parent.tag, run=parent.run))
        fresh.sort(key=lambda record: record.wall_time)
        buffer.extend([dataclasses.replace(record, index=next(self._indexes)) for record in fresh])
        if over:
            buffer.end(self._error())


class ZipProducer(_JoinProducer):
    """Produces tuples of the n-th records of several streams."""

    def __init__(self, parents: Sequence[AnyStream]) -> None:
        super().__init__(parents)
        self._waiting: list[list[Record]] = [[] for _ in parents]

    def advance(self, buffer: RecordBuffer) -> None:
        """Add a tuple for each number that all parents have a record of."""
        over = any(parent.ended for parent in self._parents)
        for i, parent in enumerate(self._parents):
            self._cursors[i], columns = parent.since(self._cursors[i])
            self._waiting[i].extend(columns.records(tag=parent.tag, run=parent.run))
        n = min(map(len, self._waiting))
        rows = list(zip(*(waiting[:n] for waiting in self._waiting), strict=True))
        for waiting in self._waiting:
            del waiting[:n]
        buffer.extend(
            [
                Record(
                    tag=buffer.tag,
                    index=next(self._indexes),
                    step=row[0].step,
                    wall_time=max(record.wall_time for record in row),
                    value=tuple(record.value for record in row),
                    run=buffer.run,
                    complete=all(record.complete for record in row),
                    n_events=sum(record.n_events for record in row),
                )
                for row in rows
            ]
        )
        if over and any(p.ended and not waiting for p, waiting in zip(self._parents, self._waiting, strict=True)):
            buffer.end(self._error())
