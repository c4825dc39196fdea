"""The record, one item of a stream, and the mark where a stream goes on with another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One item of a stream.

    Attributes:
        tag: The name of the series.
        index: The number of the record in its stream, from 0; a missing number is a gap.
        step: The step passed to `observe`, else the event's own counter.
        wall_time: When the event, or the last event of the window, happened, in seconds since the Unix epoch.
        value: The value: a number, a string, an array, a mapping, a `Histogram` …
        run: The name of the run.
        closed: Whether the window closed; `False` if it was open when the run ended.
        complete: Whether the value includes every event of the window: `False` for the first window of a late query,
            and where the budget skipped events.
        n_events: The number of events of the value.
        steps: Further named step tracks.
        rank: The rank of a program of several processes that made it; `None` outside of a rank group.
        missing: The ranks whose part of the window is not in the value.
    """

    tag: str
    index: int
    step: float
    wall_time: float
    value: Any
    run: str = ""
    closed: bool = True
    complete: bool = True
    n_events: int = 1
    steps: Mapping[str, float] = field(default_factory=dict)
    rank: int | None = None
    missing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Where a stream goes on with a run that was restarted under its name.

    Attributes:
        index: The number of the first record of the new run. Its steps begin where the new run begins.
        run_id: The id of the new run.
    """

    index: int
    run_id: str
