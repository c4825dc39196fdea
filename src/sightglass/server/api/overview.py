"""Endpoints for statistics of tensors over their steps: of one, and of all tensors of a run at a glance."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.server.http_errors import too_large
from sightglass.server.runs.open_files import OpenFiles, series_infos
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors.digests import COUNTS, ROW, STATISTICS, Table

from .compared import TagQuery
from .runs import tag_shape, tag_type
from .schema import ApiRequest, Request, Route, series_of

MAX_RECORDS: Final = 100_000  # ten megabytes of JSON
MAX_TENSORS: Final = 10_000
MAX_STEPS: Final = 2_000  # places of a slider
N_POINTS: Final = 32  # of a small curve
LIMIT_S: Final = 0.4  # the page draws what there is, and asks again


Curve = Literal[
    "min", "max", "mean", "std", "norm", "n", "n_zero", "n_negative", "n_positive", "n_nan", "n_posinf", "n_neginf"
]


class StepStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a tensor's or histogram's values, a number for each step; without damaged records.

    Counts that a histogram does not tell are -1. `n_pending` records are not read yet: ask again for them.
    """

    steps: list[float]
    wall_times: list[float]
    statistics: dict[str, list[float]]
    n_pending: int


class OverviewQuery(Request, frozen=True, kw_only=True):
    """The step, by default the last; which statistic is drawn over the steps."""

    step: float | None = None
    curve: Curve = "norm"


class TensorOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor or histograms: the latest record up to a step, and a statistic over the steps.

    `step` and the statistics are `null` as long as that record is not read, and if it is damaged. Counts that a
    histogram does not tell are -1. `bars` are its finite values, counted in equal bins from `min` to `max`, as parts of
    255. `curve` has at most 32 evenly spaced records, to four digits, NaN where nothing is known.
    """

    tag: str
    name: str
    type: Literal["tensor", "histogram"]
    shape: str
    n_steps: int
    step: float | None
    statistics: dict[str, float] | None
    bars: list[int]
    curve: list[float]


class OverviewReply(msgspec.Struct, frozen=True, kw_only=True):
    """All tensors of a run, sorted by tag; `steps` are those of all, thinned to 2,000.

    `n_pending` records of `n_records` that the overview needs are not read yet: ask again for them.
    """

    tensors: list[TensorOverview]
    steps: list[float]
    n_records: int
    n_pending: int


async def get_statistics(call: ApiRequest, query: TagQuery) -> StepStatistics:
    """Describe a tensor or histograms at all steps: extremes, mean, deviation, norm and counts of all kinds."""
    return await call.read(_statistics, call.runs, call.key, query)


def _statistics(runs: Runs, key: str, query: TagQuery) -> StepStatistics:
    until_s = time.monotonic() + LIMIT_S
    with series_of(runs.find(key), query.tag) as (files, series):
        if len(series) > MAX_RECORDS:
            raise too_large(f"Expected at most {MAX_RECORDS:,} records, got {len(series):,} of {query.tag!r}")
        digests = files.recording.digests
        table = digests.read(series, range(len(series)), until_s=until_s)
        digests.save()
    known = table[table["known"] > 0]
    return StepStatistics(
        steps=known["step"].tolist(), wall_times=known["wall_time"].tolist(),
        statistics={name: known[name].tolist() for name in STATISTICS},
        n_pending=_n_pending(table),
    )  # fmt: skip


async def get_overview(call: ApiRequest, query: OverviewQuery) -> OverviewReply:
    """Describe all tensors and histograms of a run at a step, with a small histogram and a small curve of each."""
    return await call.read(_overview, call.runs, call.key, query)


def _overview(runs: Runs, key: str, query: OverviewQuery) -> OverviewReply:
    until_s = time.monotonic() + LIMIT_S
    source = runs.find(key)
    if source.live and source.path is None:
        return OverviewReply(tensors=[], steps=[], n_records=0, n_pending=0)
    with source.borrow() as files:
        shown = _shown_tensors(files, query.step)
        # What is shown at the step comes first, then the curves.
        for part in ("near", "points"):
            for one in shown:
                if time.monotonic() < until_s:
                    files.recording.digests.read(one.series, getattr(one, part), until_s=until_s)
        for one in shown:
            one.table = files.recording.digests.read(one.series)
        files.recording.digests.save()
        steps = _thinned([one.series.steps for one in shown])
    needed = [one.table[sorted({*one.points, *one.near})] for one in shown]
    return OverviewReply(
        tensors=[_described(one, query) for one in shown], steps=steps.tolist(), n_records=sum(map(len, needed)),
        n_pending=sum(map(_n_pending, needed)),
    )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Shown:
    """A tensor or histograms: the rows among which is the one at the step, mostly one, and those of the curve."""

    series: Series
    kind: Literal["tensor", "histogram"]
    near: Sequence[int]
    points: Sequence[int]
    table: Table = field(default_factory=lambda: np.empty(0, ROW))


def _shown_tensors(files: OpenFiles, step: float | None) -> list[_Shown]:
    recording = files.recording
    with recording.lock:
        if recording.changed():
            recording.refresh()
        infos = series_infos(recording)
    shown = []
    for key, info in infos.items():
        kind = tag_type(info.type, "sightglass")
        if key.kind in ("logged", "stream") and kind in ("tensor", "histogram"):
            series = recording.series(key)
            # Twice as many records halve the points: those that stay are known.
            stride = 2 ** max(0, math.ceil(math.log2(max(1, len(series)) / N_POINTS)))
            points = range(0, len(series), stride)
            shown.append(_Shown(series=series, kind=kind, near=_near(series, step), points=points))
    if len(shown) > MAX_TENSORS:
        raise too_large(f"Expected at most {MAX_TENSORS:,} tensors, got {len(shown):,}")
    return shown


def _near(series: Series, step: float | None) -> Sequence[int]:
    """Return the number of the last record with the greatest step up to one; nothing where all are later.

    Damaged records have numbers, but no steps: among them, every record has to be read to know its step.
    """
    n = len(series)
    if step is None:
        return range(n)[-1:]
    steps = series.steps
    if len(steps) != n:
        return range(n)
    before = np.flatnonzero(steps <= step)
    return [int(before[steps[before] == steps[before].max()][-1])] if len(before) else ()


def _described(one: _Shown, query: OverviewQuery) -> TensorOverview:
    known = [one.table[i] for i in reversed(one.near) if one.table[i]["known"] > 0]
    upto = [row for row in known if query.step is None or row["step"] <= query.step]
    row = max(upto, key=lambda row: row["step"], default=None)
    points = one.table[one.points]
    return TensorOverview(
        tag=one.series.tag, name=one.series.key.name, type=one.kind, n_steps=len(one.series),
        shape=tag_shape(one.series.type),
        step=None if row is None else float(row["step"]),
        statistics=None if row is None else {name: row[name].item() for name in STATISTICS},
        bars=[] if row is None else row["bars"].tolist(),
        curve=_curve(points, query.curve),
    )  # fmt: skip


def _curve(points: Table, name: str) -> list[float]:
    told = (points["known"] > 0) & ((points[name] >= 0) | (name not in COUNTS))
    return [float(f"{y:.4g}") if known else math.nan for known, y in zip(told, points[name], strict=True)]


def _n_pending(table: Table) -> int:
    return int((table["known"] == 0).sum())


def _thinned(steps: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Return the steps of all, sorted, at most `MAX_STEPS` of them, with the first and the last."""
    every = np.unique(np.concatenate([np.empty(0, np.int64), *steps]))
    if len(every) <= MAX_STEPS:
        return every
    return every[np.linspace(0, len(every) - 1, MAX_STEPS).round().astype(np.int64)]


ROUTES: Final = (
    Route(method="GET", path="/runs/{key}/statistics", handler=get_statistics, query=TagQuery, response=StepStatistics),
    Route(method="GET", path="/runs/{key}/overview", handler=get_overview, query=OverviewQuery, response=OverviewReply),
)
