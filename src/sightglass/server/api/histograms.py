"""Endpoint for histograms over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.server.http_errors import bad_request, too_large
from sightglass.server.runs.run_columns import Remembered
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors import browse
from sightglass.storage.tensors.compare import Comparison

from .compared import ComparedQuery, shown_series
from .schema import ApiRequest, Route

MAX_STEPS: Final = 100_000  # to look up a range; their steps are read for it
MAX_HISTOGRAMS: Final = 1_000  # more rows than a screen has pixels
MAX_BINS: Final = 1_024
PERCENTILES: Final = (5.0, 25.0, 50.0, 75.0, 95.0)
MOST: Final = (1, 99)  # percentiles
N_BINS: Final = 64
N_CACHED: Final = 16  # of a megabyte each, at most


class HistogramsQuery(ComparedQuery, frozen=True, kw_only=True):
    """The range of steps, how many of them at most (evenly spaced), the number of bins, and their scale.

    By default the number of bins follows the number of values: its square root, from 4 to 64. With `outliers` "edge",
    linear bins span twice the range from the lowest 1 % to the highest 99 % quantile of the steps, and what lies
    outside is counted in the bins at the edges.
    """

    low: float | None = msgspec.field(default=None, name="from")
    high: float | None = msgspec.field(default=None, name="to")
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_HISTOGRAMS)] = 200
    bins: Annotated[int, msgspec.Meta(ge=1, le=MAX_BINS)] | None = None
    scale: Literal["linear", "symlog"] = "linear"
    outliers: Literal["inside", "edge"] = "inside"


class HistogramsReply(msgspec.Struct, frozen=True, kw_only=True):
    """For each step: edges, counts, numbers of values that are not finite, and percentiles 5, 25, 50, 75, 95."""

    steps: list[float]
    wall_times: list[float]
    edges: list[list[float]]
    counts: list[list[int]]
    n_nan: list[int]
    n_posinf: list[int]
    n_neginf: list[int]
    percentiles: list[list[float]]


_replies = Remembered[HistogramsReply](N_CACHED)


class _Range:
    """Some records of a series, with the interface of a series."""

    def __init__(self, series: Series | Comparison, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        self._series = series
        self._rows = rows
        self.tag = series.tag

    steps = wall_times = property(lambda self: self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, i: int, /) -> Record:
        return self._series[int(self._rows[i])]

    def at(self, step: float, index: browse.Index | None = None) -> Any:
        """Return the value at a step."""
        return self._series.at(step, index)

    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return the shape at a step."""
        return self._series.shape_at(step)


async def get_histograms(call: ApiRequest, query: HistogramsQuery) -> HistogramsReply:
    """Count the values of tensors, numbers or histograms at each step, in common bins. No value is left out."""
    return await call.read(_histograms, call.runs, call.key, query)


def _histograms(runs: Runs, key: str, query: HistogramsQuery) -> HistogramsReply:
    with shown_series(runs, key, query) as (place, _, shown):
        return _replies.get((place, query), lambda: _counted(shown, query))


def _counted(series: Series | Comparison, query: HistogramsQuery) -> HistogramsReply:
    chosen = _Range(series, _rows(series, query.low, query.high))
    try:
        found = browse.histograms(
            chosen, bins=_bins(chosen, query), scale=query.scale, percentiles=PERCENTILES, max_steps=query.limit
        )
    except TypeError as error:
        raise bad_request(str(error)) from None
    counted = found.series
    return HistogramsReply(
        steps=found.steps, wall_times=found.wall_times, counts=counted.counts, percentiles=counted.percentiles,  # type: ignore[arg-type]
        edges=[counted.edges.tolist()] * len(found.steps),
        n_nan=counted.n_nan, n_posinf=counted.n_posinf, n_neginf=counted.n_neginf,  # type: ignore[arg-type]
    )  # fmt: skip


def _bins(chosen: _Range, query: HistogramsQuery) -> int | npt.NDArray[np.float64] | None:
    """Return the number of bins, or their edges without the outliers; those are kept where almost all are one value."""
    if query.outliers == "inside" or query.scale == "symlog":
        return query.bins
    found = browse.histograms(chosen, bins=1, percentiles=MOST, max_steps=query.limit).series.percentiles
    if not np.isfinite(found).any():
        return query.bins
    low, high = float(np.nanmin(found[:, 0])), float(np.nanmax(found[:, 1]))
    if not 0 < high - low < math.inf:
        return query.bins
    return np.linspace(low - (high - low) / 2, high + (high - low) / 2, (query.bins or N_BINS) + 1)


def _rows(series: Series | Comparison, low: float | None, high: float | None) -> Any:
    """Return the numbers of the records between two steps. Without bounds no step is read."""
    if low is None and high is None:
        return range(len(series))
    if len(series) > MAX_STEPS:
        raise too_large(f"Expected a series of at most {MAX_STEPS:,} steps, got {len(series):,} under {series.tag!r}")
    steps = series.steps
    inside = (steps >= (-np.inf if low is None else low)) & (steps <= (np.inf if high is None else high))
    return np.flatnonzero(inside)


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/histograms", handler=get_histograms, query=HistogramsQuery,
        response=HistogramsReply, cached=True,
    ),
)  # fmt: skip
