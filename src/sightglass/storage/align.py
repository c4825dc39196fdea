"""Align records of several series by step: the rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sightglass.core.columns import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The values that were recorded together.

    Attributes:
        step: The primary step.
        steps: Further step tracks.
        wall_time: When they were recorded, in seconds since the Unix epoch.
        values: The values by their tags.
    """

    step: float
    steps: Mapping[str, float]
    wall_time: float
    values: dict[str, Any]


def moments(records: Iterable[Record]) -> Iterator[Moment]:
    """Join consecutive records that have the same steps and different tags."""
    moment: Moment | None = None
    for record in records:
        if moment is None or moment.step != record.step or moment.steps != record.steps or record.tag in moment.values:
            if moment is not None:
                yield moment
            moment = Moment(step=record.step, steps=record.steps, wall_time=record.wall_time, values={})
        moment.values[record.tag] = record.value
    if moment is not None:
        yield moment
