"""Histograms over the steps."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from sightglass.core.record import Record
from sightglass.server.http_errors import bad_request, too_large
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors import browse

from .request import ApiRequest, series_of
from .schema import Route
from .tables import TagQuery

MAX_STEPS: Final = 100_000
MAX_HISTOGRAMS: Final = 1_000
MAX_BINS: Final = 1_024
PERCENTILES: Final = (5.0, 25.0, 50.0, 75.0, 95.0)


class HistogramsQuery(TagQuery, frozen=True, kw_only=True):
    """Of which steps, how many of them at most (evenly spaced), in how many bins, on which scale."""

    low: float | None = msgspec.field(default=None, name="from")
    high: float | None = msgspec.field(default=None, name="to")
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_HISTOGRAMS)] = 200
    bins: Annotated[int, msgspec.Meta(ge=1, le=MAX_BINS)] = 64
    scale: Literal["linear", "symlog"] = "linear"


class HistogramsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms: for each step its edges, its counts, what is not finite, and percentiles 5, 25, 50, 75, 95."""

    steps: list[float]
    wall_times: list[float]
    edges: list[list[float]]
    counts: list[list[int]]
    n_nan: list[int]
    n_posinf: list[int]
    n_neginf: list[int]
    percentiles: list[list[float]]


class _Range:
    """Some records of a series, for functions that look into series."""

    def __init__(self, series: Series, rows: Any) -> None:
        self._series = series
        self._rows = rows
        self.tag = series.tag

    steps = wall_times = property(lambda self: self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int, /) -> Record:
        return self._series[int(self._rows[i])]

    def at(self, step: float, index: Any = None) -> Any:
        """Return the value at a step."""
        return self._series.at(step, index)

    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return the shape at a step."""
        return self._series.shape_at(step)


async def get_histograms(call: ApiRequest, query: HistogramsQuery) -> HistogramsReply:
    """Count the values of tensors, numbers or histograms at their steps, in common bins; all counts add up."""
    return await call.read(_histograms, call.runs, call.key, query)


def _histograms(runs: Runs, key: str, query: HistogramsQuery) -> HistogramsReply:
    with series_of(runs.find(key), query.tag) as (_, series):
        rows = _rows(series, query.low, query.high)
        kept = _Range(series, rows)
        try:
            found = browse.histograms(
                kept, bins=query.bins, scale=query.scale, percentiles=PERCENTILES, max_steps=query.limit
            )
        except TypeError as error:
            raise bad_request(str(error)) from None
    counted = found.series
    return HistogramsReply(
        steps=found.steps, wall_times=found.wall_times, counts=counted.counts, percentiles=counted.percentiles,  # type: ignore[arg-type]
        edges=[counted.edges.tolist()] * len(found.steps),
        n_nan=counted.n_nan, n_posinf=counted.n_posinf, n_neginf=counted.n_neginf,  # type: ignore[arg-type]
    )  # fmt: skip


def _rows(series: Series, low: float | None, high: float | None) -> Any:
    """Return the numbers of the records between two steps; of all, without reading a step, where no bound is given."""
    if low is None and high is None:
        return range(len(series))
    if len(series) > MAX_STEPS:
        raise too_large(f"At most {MAX_STEPS:,} steps can be chosen from, but {series.tag!r} has {len(series):,}")
    steps = series.steps
    inside = (steps >= (-np.inf if low is None else low)) & (steps <= (np.inf if high is None else high))
    return np.flatnonzero(inside)


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/histograms", handler=get_histograms, query=HistogramsQuery,
        response=HistogramsReply, cached=True,
    ),
)  # fmt: skip
