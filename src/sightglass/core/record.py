"""The record: one item of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One item of a stream.

    Attributes:
        tag: The name of the series.
        index: Consecutive number in the stream, from 0; a hole in it is a gap.
        step: The primary step: the one given to `observe`, else the event's own counter.
        wall_time: When the (last) event happened, in seconds since the Unix epoch.
        value: The value: a number, a text, an array, a mapping, a `Histogram` …
        run: The name of the run.
        closed: Whether the window closed by itself; `False` for what was open when the run ended.
        complete: Whether every event of the window was seen: `False` for the first window of a late query
            and where the budget skipped events.
        n_events: How many events the value was made from.
        steps: Further named step tracks.
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
