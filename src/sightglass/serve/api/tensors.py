"""Tensors and histograms: tables of slices, statistics, differences, searches, histograms over the steps."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import OrderedDict
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from sightglass.core.errors import ViewError
from sightglass.core.record import Record
from sightglass.core.sink import lock
from sightglass.core.values import is_extended
from sightglass.keep.read.store import Series
from sightglass.keep.tensors import browse, slices, tensors
from sightglass.keep.tensors.tensors import Place
from sightglass.serve.calls import Call, Raw, series_of
from sightglass.serve.problems import bad_request, too_large
from sightglass.serve.schema import Request, Route
from sightglass.serve.sources import Runs

MAX_CELLS: Final = 10_000
MAX_CSV_CELLS: Final = 1_000_000
MAX_NPY_BYTES: Final = 256 * 2**20
MAX_STEPS: Final = 100_000
MAX_HISTOGRAMS: Final = 1_000
MAX_BINS: Final = 1_024
MAX_SLICE: Final = 1_000
N_REMEMBERED: Final = 256

Text = Annotated[str, msgspec.Meta(max_length=4_096)]
SliceText = Annotated[str, msgspec.Meta(max_length=MAX_SLICE)]


class TagQuery(Request, frozen=True, kw_only=True):
    """A series."""

    tag: Text


class TensorQuery(TagQuery, frozen=True, kw_only=True):
    """A part of a tensor: at which step (by default the last), which part, in which format, with whole statistics."""

    step: float | None = None
    slice: SliceText = ""
    format: Literal["json", "npy", "csv"] = "json"
    whole: bool = True


class DifferenceQuery(TagQuery, frozen=True, kw_only=True):
    """A part of a tensor, and from which step, of which run, to subtract its like; by default the same one's."""

    step: float
    other_step: float | None = None
    other_run: Text | None = None
    slice: SliceText = ""


class FindQuery(TagQuery, frozen=True, kw_only=True):
    """What to search for, at one step or at all of them."""

    what: Place
    step: float | None = None


class HistogramsQuery(TagQuery, frozen=True, kw_only=True):
    """Of which steps, how many of them at most (evenly spaced), in how many bins, on which scale."""

    low: float | None = msgspec.field(default=None, name="from")
    high: float | None = msgspec.field(default=None, name="to")
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_HISTOGRAMS)] = 200
    bins: Annotated[int, msgspec.Meta(ge=1, le=MAX_BINS)] = 64
    scale: Literal["linear", "symlog"] = "linear"


class StatisticsTold(msgspec.Struct, frozen=True, kw_only=True):
    """What values are like: extremes, mean and deviation of the finite ones, and the counts of all kinds."""

    n: int
    min: float
    max: float
    mean: float
    std: float
    norm: float
    n_zero: int
    n_negative: int
    n_positive: int
    n_nan: int
    n_posinf: int
    n_neginf: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of the slice, and of the whole tensor."""

    slice: StatisticsTold
    whole: StatisticsTold | None


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a tensor: `rows` and `columns` tell where its cells stand in the whole."""

    shape: list[int]
    dtype: str
    slice: str
    step: float
    rows: list[int]
    columns: list[int]
    values: Any
    statistics: Statistics


class Steps(msgspec.Struct, frozen=True, kw_only=True):
    """At which steps and times a series has a value."""

    steps: list[float]
    wall_times: list[float]


class HistogramsTold(msgspec.Struct, frozen=True, kw_only=True):
    """Histograms: for each step its edges, its counts, what is not finite, and percentiles 5, 25, 50, 75, 95."""

    steps: list[float]
    wall_times: list[float]
    edges: list[list[float]]
    counts: list[list[int]]
    n_nan: list[int]
    n_posinf: list[int]
    n_neginf: list[int]
    percentiles: list[list[float]]


class FoundTold(msgspec.Struct, frozen=True, kw_only=True):
    """Where it was found, if it was."""

    found: bool
    step: float | None = None
    index: list[int] = []
    value: Any = None


PERCENTILES: Final = (5.0, 25.0, 50.0, 75.0, 95.0)

_remembered: OrderedDict[tuple[str, str, float, str], StatisticsTold] = OrderedDict()
_remembering = lock()


async def get_tensor(call: Call, query: TensorQuery) -> Table | Raw:
    """Read a part of a tensor, with at most two free dimensions, and its statistics; or a file of the part."""
    return await call.read(_tensor, call.runs, call.key, query)


def _tensor(runs: Runs, key: str, query: TensorQuery) -> Table | Raw:
    source = runs.find(key)
    with series_of(source, query.tag) as (_, series):
        step = _step(series, query.step)
        shape = series.shape_at(step)
        if query.format != "json":
            return _file(series, step, query, shape)
        index = _cells(query.slice, shape, MAX_CELLS)
        part = browse.array_of(series.tag, series.at(step, index))
        table = slices.make_table(part, index, shape)
        whole = _whole(series, step, (key, series.tag, step, source.stamp())) if query.whole else None
    return _table(table, step, query.slice, whole)


def _table(table: slices.Table, step: float, index: str, whole: StatisticsTold | None) -> Table:
    return Table(
        shape=list(table.shape), dtype=table.values.dtype.name, slice=index or slices.write_index(table.index),
        step=step, rows=table.rows, columns=table.columns, values=table.values,  # type: ignore[arg-type]
        statistics=Statistics(slice=_told(table.statistics), whole=whole),
    )  # fmt: skip


def _told(found: tensors.TensorStatistics) -> StatisticsTold:
    return StatisticsTold(**{name: getattr(found, name) for name in StatisticsTold.__struct_fields__})


def _whole(series: Series, step: float, place: tuple[str, str, float, str]) -> StatisticsTold:
    with _remembering:
        known = _remembered.get(place)
    if known is not None:
        return known
    told = _told(series.statistics(step))
    with _remembering:
        _remembered[place] = told
        while len(_remembered) > N_REMEMBERED:
            _remembered.popitem(last=False)
    return told


def _step(series: Series, step: float | None) -> float:
    if step is None:
        return float(series[-1].step) if len(series) else 0.0
    if not math.isfinite(step):
        raise bad_request(f"Expected a step, got {step}")
    return step


def _cells(index: str, shape: tuple[int, ...], limit: int) -> slices.Resolved:
    """Make the index of a table concrete.

    Raises:
        QueryError: It cannot be read, does not fit the shape, or leaves more than two dimensions free.
        Problem: It selects too many cells.
    """
    resolved = slices.cells(index, shape, max_cells=2**62)
    n = _size(resolved, shape)
    if n > limit:
        raise too_large(f"A table shows at most {limit:,} values, but {n:,} of shape {shape} are selected: narrow it")
    return resolved


def _size(index: slices.Resolved, shape: tuple[int, ...]) -> int:
    return math.prod(len(range(n)[entry]) for entry, n in zip(index, shape, strict=True) if isinstance(entry, slice))


def _file(series: Series, step: float, query: TensorQuery, shape: tuple[int, ...]) -> Raw:
    name = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', series.tag)[:80]}-{step:.15g}.{query.format}"
    if query.format == "csv":
        index = _cells(query.slice, shape, MAX_CSV_CELLS)
        values = np.atleast_2d(browse.array_of(series.tag, series.at(step, index)))
        text = io.StringIO()
        csv.writer(text).writerows(values.tolist())
        return Raw(data=text.getvalue().encode(), media_type="text/csv", name=name)
    index = slices.resolve(query.slice, shape)
    if _size(index, shape) * 16 > MAX_NPY_BYTES:
        raise too_large(f"A file holds at most {MAX_NPY_BYTES // 16:,} values, but more are selected: narrow the slice")
    values = browse.array_of(series.tag, series.at(step, index))
    file = io.BytesIO()
    np.save(file, values.astype(np.float32) if is_extended(values.dtype) else values, allow_pickle=False)
    return Raw(data=file.getvalue(), media_type="application/octet-stream", name=name)


async def list_steps(call: Call, query: TagQuery) -> Steps:
    """List the steps of a series."""
    return await call.read(_steps, call.runs, call.key, query)


def _steps(runs: Runs, key: str, query: TagQuery) -> Steps:
    with series_of(runs.find(key), query.tag) as (_, series):
        if len(series) > MAX_STEPS:
            raise too_large(f"At most {MAX_STEPS:,} steps can be listed, but {query.tag!r} has {len(series):,}")
        return Steps(steps=series.steps, wall_times=series.wall_times)


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


async def get_histograms(call: Call, query: HistogramsQuery) -> HistogramsTold:
    """Count the values of tensors, numbers or histograms at their steps, in common bins; all counts add up."""
    return await call.read(_histograms, call.runs, call.key, query)


def _histograms(runs: Runs, key: str, query: HistogramsQuery) -> HistogramsTold:
    with series_of(runs.find(key), query.tag) as (_, series):
        rows = _rows(series, query.low, query.high)
        kept = _Range(series, rows)
        try:
            found = browse.histograms(
                kept, bins=query.bins, scale=query.scale, percentiles=PERCENTILES, max_steps=query.limit
            )
        except TypeError as error:
            raise bad_request(str(error)) from None
    told = found.series
    return HistogramsTold(
        steps=found.steps, wall_times=found.wall_times, counts=told.counts, percentiles=told.percentiles,  # type: ignore[arg-type]
        edges=[told.edges.tolist()] * len(found.steps),
        n_nan=told.n_nan, n_posinf=told.n_posinf, n_neginf=told.n_neginf,  # type: ignore[arg-type]
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


async def get_difference(call: Call, query: DifferenceQuery) -> Table:
    """Subtract a tensor at another step, or of another run, from one; nothing wraps around."""
    return await call.read(_difference, call.runs, call.key, query)


def _difference(runs: Runs, key: str, query: DifferenceQuery) -> Table:
    other_step = _step_given(query.step if query.other_step is None else query.other_step)
    step = _step_given(query.step)
    source = runs.find(key)
    other_source = source if query.other_run is None else runs.find(query.other_run)
    with series_of(source, query.tag) as (_, series):
        shape = series.shape_at(step)
        index = _cells(query.slice, shape, MAX_CELLS)
        minuend = browse.array_of(series.tag, series.at(step, index))
    with series_of(other_source, query.tag) as (_, series):
        if (found := series.shape_at(other_step)) != shape:
            raise ViewError(f"Expected two tensors of one shape, got {shape} and {found}")
        subtrahend = browse.array_of(series.tag, series.at(other_step, index))
    part = tensors.difference(minuend, subtrahend)
    return _table(slices.make_table(part, index, shape), step, query.slice, None)


def _step_given(step: float) -> float:
    if not math.isfinite(step):
        raise bad_request(f"Expected a step, got {step}")
    return step


async def find_place(call: Call, query: FindQuery) -> FoundTold:
    """Find the first NaN or infinity, or an extreme, in a tensor or in all tensors of a series."""
    return await call.read(_find, call.runs, call.key, query)


def _find(runs: Runs, key: str, query: FindQuery) -> FoundTold:
    with series_of(runs.find(key), query.tag) as (_, series):
        if query.step is None:
            found = series.find(query.what)
            if found is None:
                return FoundTold(found=False)
            return FoundTold(found=True, step=found.step, index=list(found.index), value=found.value)
        step = _step_given(query.step)
        array = browse.array_of(series.tag, series.at(step))
        index = tensors.find(array, query.what)
        if index is None:
            return FoundTold(found=False, step=step)
        return FoundTold(found=True, step=step, index=list(index), value=array[index])


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/tensor", handler=get_tensor, query=TensorQuery, answer=Table,
        files=("application/octet-stream", "text/csv"), cached=True,
    ),
    Route(method="GET", path="/runs/{key}/steps", handler=list_steps, query=TagQuery, answer=Steps, cached=True),
    Route(
        method="GET", path="/runs/{key}/histograms", handler=get_histograms, query=HistogramsQuery,
        answer=HistogramsTold, cached=True,
    ),
    Route(method="GET", path="/runs/{key}/difference", handler=get_difference, query=DifferenceQuery, answer=Table),
    Route(method="GET", path="/runs/{key}/find", handler=find_place, query=FindQuery, answer=FoundTold, cached=True),
)  # fmt: skip
