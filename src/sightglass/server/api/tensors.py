"""Tensors and comparisons of two: tables of slices with their statistics, searches."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from sightglass.server.http_errors import bad_request, too_large
from sightglass.server.runs.remembered import Remembered
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors import browse, statistics
from sightglass.storage.tensors.compare import Comparison
from sightglass.storage.tensors.statistics import Place

from .compared import ComparedQuery, TagQuery, shown_series
from .request import ApiRequest, Raw, series_of
from .schema import Route
from .tables import Load, SliceQuery, StatisticsInfo, TableReply, statistics_info, table_reply

MAX_STEPS: Final = 100_000  # two megabytes of JSON
N_CACHED: Final = 256  # a few hundred bytes each; a user steps through the tensors of one layer


class TensorQuery(SliceQuery, frozen=True, kw_only=True):
    """A part of a tensor at a step, by default the last; `whole` adds the statistics of the whole tensor."""

    step: float | None = None
    whole: bool = True


class FindQuery(ComparedQuery, frozen=True, kw_only=True):
    """The kind of value to find, at one step or at all steps."""

    what: Place
    step: float | None = None


class DamagedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose record is probably damaged, and where."""

    step: float
    problem: str


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps and wall times of a series, without the damaged ones."""

    steps: list[float]
    wall_times: list[float]
    damaged: list[DamagedStep] = []


class FoundInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The place where the value was found."""

    found: bool
    step: float | None = None
    index: list[int] = []
    value: Any = None


_wholes = Remembered[StatisticsInfo](N_CACHED)


async def get_tensor(call: ApiRequest, query: TensorQuery) -> TableReply | Raw:
    """Read a part of a tensor or a comparison, with at most two free dimensions, and statistics; or a file of it."""
    return await call.read(_tensor, call.runs, call.key, query)


def _tensor(runs: Runs, key: str, query: TensorQuery) -> TableReply | Raw:
    with shown_series(runs, key, query) as (place, series, shown):
        step = _step(series, query.step)

        def whole() -> StatisticsInfo:
            return _wholes.get((place, step), lambda: statistics_info(shown.statistics(step)))

        return table_reply(
            _loader(shown, step), shown.shape_at(step), step, query, whole=whole if query.whole else None
        )


def _loader(shown: Series | Comparison, step: float) -> Load:
    return lambda index: browse.array_of(shown.tag, shown.at(step, index), texts=True)


def _step(series: Series, step: float | None) -> float:
    if step is None:
        return series.last_step if len(series) else 0.0
    return _step_given(step)


async def list_steps(call: ApiRequest, query: TagQuery) -> Steps:
    """List the steps of a series."""
    return await call.read(_steps, call.runs, call.key, query)


def _steps(runs: Runs, key: str, query: TagQuery) -> Steps:
    with series_of(runs.find(key), query.tag) as (_, series):
        if len(series) > MAX_STEPS:
            raise too_large(f"Expected at most {MAX_STEPS:,} steps to list, got {len(series):,} of {query.tag!r}")
        steps, wall_times = series.steps, series.wall_times  # reading them finds the damage
        lost = [
            DamagedStep(step=damage.step, problem=f"{damage.path.name}, offset {damage.offset}: {damage.what}")
            for damage in series.damages
            if damage.step is not None
        ]
        return Steps(steps=steps, wall_times=wall_times, damaged=lost)


def _step_given(step: float) -> float:
    if not math.isfinite(step):
        raise bad_request(f"Expected a step, got {step}")
    return step


async def find_place(call: ApiRequest, query: FindQuery) -> FoundInfo:
    """Find the first NaN, infinity or zero, or an extreme: in a tensor or a comparison, or at all steps of it."""
    return await call.read(_find, call.runs, call.key, query)


def _find(runs: Runs, key: str, query: FindQuery) -> FoundInfo:
    with shown_series(runs, key, query) as (_, _, shown):
        if query.step is None:
            found = shown.find(query.what)
            if found is None:
                return FoundInfo(found=False)
            return FoundInfo(found=True, step=found.step, index=list(found.index), value=found.value)
        step = _step_given(query.step)
        array = browse.array_of(shown.tag, shown.at(step))
        index = statistics.find(array, query.what)
        if index is None:
            return FoundInfo(found=False, step=step)
        return FoundInfo(found=True, step=step, index=list(index), value=array[index])


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/tensor", handler=get_tensor, query=TensorQuery, response=TableReply,
        files=("application/octet-stream", "text/csv"), cached=True,
    ),
    Route(method="GET", path="/runs/{key}/steps", handler=list_steps, query=TagQuery, response=Steps, cached=True),
    Route(method="GET", path="/runs/{key}/find", handler=find_place, query=FindQuery, response=FoundInfo, cached=True),
)  # fmt: skip
