"""Tensors and comparisons of two: tables of slices with their statistics, searches."""

from __future__ import annotations

import contextlib
import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.errors import QueryError, RefusedQueryError
from sightglass.core.values import is_extended
from sightglass.server.http_errors import bad_request, too_large
from sightglass.server.runs.run_columns import Remembered
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors import browse, slices, statistics
from sightglass.storage.tensors.compare import Comparison
from sightglass.storage.tensors.statistics import Place

from .compared import ComparedQuery, TagQuery, shown_series
from .schema import ApiRequest, Raw, Route, series_of

# Tables of tensors: slices with at most two free dimensions, as JSON windows or as files.

TEXTS: Final = "U"  # the kind of dtype that holds strings
MAX_CELLS: Final = 10_000  # a screen of small cells, 200 kB of JSON
MAX_CSV_CELLS: Final = 1_000_000  # what spreadsheets open
MAX_NPY_BYTES: Final = 256 * 2**20  # built in memory, for a few clients at once
MAX_SLICE: Final = 1_000  # 32 dimensions with three numbers of ten digits each
MAX_THIN: Final = 1_024  # about the pixels of a heat map
MAX_LOADED: Final = 64 * 2**20  # half a gigabyte of float64, and a second or two

SliceText = Annotated[str, msgspec.Meta(max_length=MAX_SLICE)]
Window = Annotated[str, msgspec.Meta(pattern=r"^\d{1,18}:\d{1,18}$")]
Load = Callable[[slices.Resolved], Any]


class SliceQuery(ComparedQuery, frozen=True, kw_only=True):
    """A slice of a tensor, its format, and, for JSON, the window and the statistics to return.

    `fit` adapts a slice that was written for another shape. `rows` and `columns`, such as `100:200`, choose a window of
    the slice, which may then have any size; they are clipped. `thin` limits the rows and columns of a file: each value
    is the one of its block that is farthest from zero, or NaN if the block has one.
    """

    slice: SliceText = ""
    fit: bool = False
    format: Literal["json", "npy", "csv"] = "json"
    rows: Window | None = None
    columns: Window | None = None
    thin: Annotated[int, msgspec.Meta(ge=1, le=MAX_THIN)] | None = None
    statistics: bool = True


class StatisticsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Extremes, mean, standard deviation and norm of the finite values, and the counts of all kinds."""

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


class TableStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of the slice, and of the whole tensor."""

    slice: StatisticsInfo
    whole: StatisticsInfo | None


class TableReply(msgspec.Struct, frozen=True, kw_only=True):
    """A slice of a tensor, or a window of it: `rows` and `columns` are the indices of its cells in the tensor.

    `n_rows` and `n_columns` count those of the whole slice; they are null if the slice lacks that dimension.
    """

    shape: list[int]
    dtype: str
    slice: str
    step: float
    n_rows: int | None
    n_columns: int | None
    rows: list[int]
    columns: list[int]
    values: Any
    statistics: TableStatistics | None


def table_reply(
    load: Load, shape: tuple[int, ...], step: float, query: SliceQuery, *, whole: Callable[[], StatisticsInfo] | None
) -> TableReply | Raw:
    """Return a slice of a tensor as a table or a file.

    Args:
        load: Reads a part of the tensor.
        shape: The shape of the tensor.
        step: The step of the tensor.
        query: The slice and the format.
        whole: Returns the statistics of the whole tensor; `None` to leave them out.

    Raises:
        QueryError: The slice cannot be parsed, does not fit the shape, or leaves more than two dimensions free.
        Problem: The slice selects too many values.
    """
    text = _fitted(query.slice, shape) if query.fit else query.slice
    if query.format != "json":
        return _file(load, shape, step, text, query)
    index = slices.cells(text, shape, max_cells=2**62)
    counts = [len(range(n)[entry]) for entry, n in zip(index, shape, strict=True) if isinstance(entry, slice)]
    window = _within(index, shape, (query.rows, query.columns))
    if (n := _size(window, shape)) > MAX_CELLS:
        raise too_large(
            f"Expected at most {MAX_CELLS:,} values in a table, got {n:,} of shape {shape}: narrow the slice"
        )
    values = np.asarray(load(window))
    told = None
    if query.statistics and values.dtype.kind != TEXTS:
        found = statistics.statistics(values) if window == index else _statistics(load, index, shape)
        told = TableStatistics(slice=statistics_info(found), whole=None if whole is None else whole())
    n_rows, n_columns = (*counts, None, None)[:2]
    rows, columns = slices.numbers_of(window, shape)
    return TableReply(
        shape=list(shape), dtype="str" if values.dtype.kind == TEXTS else values.dtype.name,
        slice=text or slices.write_index(window), step=step, n_rows=n_rows, n_columns=n_columns,
        rows=rows, columns=columns, values=values.tolist() if values.dtype.kind == TEXTS else values,  # type: ignore[arg-type]
        statistics=told,
    )  # fmt: skip


def _statistics(load: Load, index: slices.Resolved, shape: tuple[int, ...]) -> statistics.TensorStatistics:
    if (n := _size(index, shape)) > MAX_LOADED:
        raise too_large(f"Expected at most {MAX_LOADED:,} values for statistics, got {n:,}: narrow the slice")
    return statistics.statistics(load(index))


def _fitted(text: str, shape: tuple[int, ...]) -> str:
    """Return a slice if it makes a table of the shape, or else the nearest slice that does."""
    with contextlib.suppress(QueryError, RefusedQueryError):
        slices.cells(text, shape, max_cells=2**62)
        return text or slices.write_index((slice(None),) * len(shape))
    with contextlib.suppress(QueryError):
        free = [i for i, entry in enumerate(slices.restrict(text, shape)) if isinstance(entry, slice)]
        entries = [
            0 if i in free[:-2] and n else slice(None) if entry == slice(0, n, 1) else entry
            for i, (entry, n) in enumerate(zip(slices.restrict(text, shape), shape, strict=True))
        ]
        return slices.write_index(tuple(entries))
    return text


def _within(index: slices.Resolved, shape: tuple[int, ...], windows: Sequence[str | None]) -> slices.Resolved:
    """Narrow the free dimensions of an index to windows, which count within the slice."""
    narrowed, rest = [], list(windows)
    for entry, n in zip(index, shape, strict=True):
        window = rest.pop(0) if isinstance(entry, slice) and rest else None
        if window is None:
            narrowed.append(entry)
            continue
        low, high = map(int, window.split(":"))
        places = range(n)[entry][low:high]  # type: ignore[index]
        stop = places.stop if places.stop >= 0 else None
        narrowed.append(slice(places.start, stop, places.step) if places else slice(0, 0, 1))
    return tuple(narrowed)


def statistics_info(found: statistics.TensorStatistics) -> StatisticsInfo:
    """Return statistics as a reply."""
    return StatisticsInfo(**{name: getattr(found, name) for name in StatisticsInfo.__struct_fields__})


def _size(index: slices.Resolved, shape: tuple[int, ...]) -> int:
    return math.prod(len(range(n)[entry]) for entry, n in zip(index, shape, strict=True) if isinstance(entry, slice))


def _file(load: Load, shape: tuple[int, ...], step: float, text: str, query: SliceQuery) -> Raw:
    name = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', query.tag)[:80]}-{step:.15g}.{query.format}"
    csv_wanted = query.format == "csv"
    index = slices.cells(text, shape, max_cells=2**62) if csv_wanted or query.thin else slices.resolve(text, shape)
    limit = MAX_LOADED if query.thin else MAX_CSV_CELLS if csv_wanted else MAX_NPY_BYTES // 16
    if (n := _size(index, shape)) > limit:
        raise too_large(f"Expected at most {limit:,} values in a file, got {n:,}: narrow the slice")
    values = load(index)
    if query.thin and values.dtype.kind == TEXTS:
        raise bad_request(f"Expected a tensor of numbers under {query.tag!r} to draw, got strings")
    if query.thin:
        values = _thinned(np.atleast_2d(values), query.thin)
    if csv_wanted:
        lines = io.StringIO()
        csv.writer(lines).writerows(np.atleast_2d(values).tolist())
        return Raw(data=lines.getvalue().encode(), media_type="text/csv", name=name)
    file = io.BytesIO()
    np.save(file, values.astype(np.float32) if is_extended(values.dtype) else values, allow_pickle=False)
    return Raw(data=file.getvalue(), media_type="application/octet-stream", name=name)


def _thinned(values: npt.NDArray[Any], n: int) -> npt.NDArray[Any]:
    """Return float32 values of shape (n, n) at most: of each block NaN, or the value farthest from zero."""
    values = np.abs(values) if values.dtype.kind == "c" else values
    values = values.astype(np.float64 if values.dtype.itemsize > 4 else np.float32)
    for axis in (0, 1):
        length = values.shape[axis]
        if length <= n:
            continue
        starts = np.arange(n) * length // n
        low, high = np.minimum.reduceat(values, starts, axis), np.maximum.reduceat(values, starts, axis)
        values = np.where(-low > high, low, high)
        values[np.isnan(low)] = np.nan
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


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
