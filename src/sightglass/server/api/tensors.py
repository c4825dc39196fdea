"""Tensors: tables of slices with their statistics, differences, searches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from sightglass.core.errors import ViewError
from sightglass.server.http_errors import bad_request, too_large
from sightglass.server.runs.remembered import Remembered
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors import browse, statistics
from sightglass.storage.tensors.statistics import Place

from .request import ApiRequest, Raw, series_of
from .schema import Route
from .tables import Load, SliceQuery, StatisticsInfo, TableReply, TagQuery, Text, statistics_info, table_reply

MAX_STEPS: Final = 100_000  # two megabytes of JSON
N_CACHED: Final = 256  # a few hundred bytes each; a user steps through the tensors of one layer


class TensorQuery(SliceQuery, frozen=True, kw_only=True):
    """A part of a tensor at a step, by default the last; `whole` adds the statistics of the whole tensor."""

    step: float | None = None
    whole: bool = True


class DifferenceQuery(SliceQuery, frozen=True, kw_only=True):
    """A part of a tensor, and the step and run of the tensor to subtract; by default the same run."""

    step: float
    other_step: float | None = None
    other_run: Text | None = None


class FindQuery(TagQuery, frozen=True, kw_only=True):
    """The kind of value to find: at one step, at all steps, or in the difference from another step or run."""

    what: Place
    step: float | None = None
    other_step: float | None = None
    other_run: Text | None = None


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
    """Read a part of a tensor, with at most two free dimensions, and its statistics; or a file of the part."""
    return await call.read(_tensor, call.runs, call.key, query)


def _tensor(runs: Runs, key: str, query: TensorQuery) -> TableReply | Raw:
    with series_of(runs.find(key), query.tag) as (files, series):
        step = _step(series, query.step)
        place = (key, files.generation, series.tag, len(series), step)
        whole = (lambda: _wholes.get(place, lambda: statistics_info(series.statistics(step)))) if query.whole else None
        return table_reply(_loader(series, step), series.shape_at(step), step, query, whole=whole)


def _loader(series: Series, step: float) -> Load:
    return lambda index: browse.array_of(series.tag, series.at(step, index))


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


async def get_difference(call: ApiRequest, query: DifferenceQuery) -> TableReply | Raw:
    """Subtract a tensor of another step or run from one. Integers do not wrap around."""
    return await call.read(_difference, call.runs, call.key, query)


def _difference(runs: Runs, key: str, query: DifferenceQuery) -> TableReply | Raw:
    with _subtracted(runs, key, query, query.step) as (load, shape, step):
        return table_reply(load, shape, step, query, whole=None)


@contextlib.contextmanager
def _subtracted(
    runs: Runs, key: str, query: DifferenceQuery | FindQuery, step: float
) -> Iterator[tuple[Load, tuple[int, ...], float]]:
    """Yield what reads a part of the difference, the shape of all of it, and the step."""
    other_step = _step_given(step if query.other_step is None else query.other_step)
    step = _step_given(step)
    source = runs.find(key)
    other_source = source if query.other_run is None else runs.find(query.other_run)
    with series_of(source, query.tag) as (_, series), series_of(other_source, query.tag) as (_, other):
        shape = series.shape_at(step)
        if (found := other.shape_at(other_step)) != shape:
            raise ViewError(f"Expected two tensors of one shape, got {shape} and {found}")
        minuend, subtrahend = _loader(series, step), _loader(other, other_step)
        yield lambda index: statistics.difference(minuend(index), subtrahend(index)), shape, step


def _step_given(step: float) -> float:
    if not math.isfinite(step):
        raise bad_request(f"Expected a step, got {step}")
    return step


async def find_place(call: ApiRequest, query: FindQuery) -> FoundInfo:
    """Find the first NaN or infinity, or an extreme, in a tensor, in all tensors of a series, or in a difference."""
    return await call.read(_find, call.runs, call.key, query)


def _find(runs: Runs, key: str, query: FindQuery) -> FoundInfo:
    if query.other_step is not None or query.other_run is not None:
        if query.step is None:
            raise bad_request("Expected the step to subtract from: a difference is searched at one step")
        with _subtracted(runs, key, query, query.step) as (load, shape, step):
            return _found(load((slice(None),) * len(shape)), query.what, step)
    with series_of(runs.find(key), query.tag) as (_, series):
        if query.step is None:
            found = series.find(query.what)
            if found is None:
                return FoundInfo(found=False)
            return FoundInfo(found=True, step=found.step, index=list(found.index), value=found.value)
        step = _step_given(query.step)
        return _found(browse.array_of(series.tag, series.at(step)), query.what, step)


def _found(array: Any, what: Place, step: float) -> FoundInfo:
    index = statistics.find(array, what)
    if index is None:
        return FoundInfo(found=False, step=step)
    return FoundInfo(found=True, step=step, index=list(index), value=array[index])


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/tensor", handler=get_tensor, query=TensorQuery, response=TableReply,
        files=("application/octet-stream", "text/csv"), cached=True,
    ),
    Route(method="GET", path="/runs/{key}/steps", handler=list_steps, query=TagQuery, response=Steps, cached=True),
    Route(
        method="GET", path="/runs/{key}/difference", handler=get_difference, query=DifferenceQuery, response=TableReply,
        files=("application/octet-stream", "text/csv"),
    ),
    Route(method="GET", path="/runs/{key}/find", handler=find_place, query=FindQuery, response=FoundInfo, cached=True),
)  # fmt: skip
