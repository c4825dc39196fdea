"""Items of the pipeline, and whole events, from recorded series."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sightglass.core.columns import Columns
from sightglass.query.windows import PipelineItem


def items_of(columns: Columns) -> Iterator[PipelineItem]:
    """Yield records as items of the pipeline."""
    ordinals = (
        columns.ordinals.tolist()
        if columns.ordinals is not None
        else range(columns.index, columns.index + len(columns))
    )
    values = columns.values.tolist() if _is_plain(columns.values) else columns.values
    for i, (ordinal, step, wall_time) in enumerate(
        zip(ordinals, columns.steps.tolist(), columns.wall_times.tolist(), strict=True)
    ):
        item = PipelineItem(ordinal, step, wall_time, values[i])
        if columns.n_events is not None:
            item.n_events = int(columns.n_events[i])
        if columns.flags is not None:
            item.complete, item.closed = bool(columns.flags[i] & 1), bool(columns.flags[i] & 2)
        if columns.tracks is not None:
            item.steps = columns.tracks[i] or None
        yield item


def _is_plain(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (np.float64, np.int64, np.bool_)


def events_of(columns: Mapping[str, Columns]) -> Iterator[PipelineItem]:
    """Rebuild events from the series of their observables."""
    series = [zip(itertools.repeat(name), items_of(part)) for name, part in columns.items()]
    event: dict[str, Any] = {}
    last: PipelineItem | None = None
    for name, item in heapq.merge(*series, key=lambda entry: entry[1].ordinal):
        if last is not None and item.ordinal != last.ordinal:
            yield _event(last, event)
            event = {}
        event[name] = item.value
        last = item
    if last is not None:
        yield _event(last, event)


def _event(item: PipelineItem, event: dict[str, Any]) -> PipelineItem:
    observables = {**event, "step": item.step}
    return PipelineItem(item.ordinal, item.step, item.wall_time, observables, steps=item.steps)
