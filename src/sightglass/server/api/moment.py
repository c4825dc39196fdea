"""The endpoint for all that a run recorded at a time: numbers, texts around it, and what else there was by then."""

from __future__ import annotations

import contextlib
import math
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from sightglass.core.errors import DamagedError
from sightglass.server.http_errors import bad_request
from sightglass.server.runs.open_files import series_infos
from sightglass.server.runs.reached import reference_of
from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.views import encoding

from .media import text_of
from .runs import TagType, tag_type
from .schema import ApiRequest, Request, Route

MAX_SERIES: Final = 4_000  # of each a block is read
MAX_LINES: Final = 200  # of a text: what is printed in some seconds, as far as a person reads it
NEAR_S: Final = 5.0


class MomentQuery(Request, frozen=True, kw_only=True):
    """A time, in seconds since the Unix epoch, or a step; and how far around it texts are wanted, in seconds."""

    at: float | None = None
    step: float | None = None
    near_s: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = NEAR_S


class MomentNumber(msgspec.Struct, frozen=True, kw_only=True):
    """The last number of a series by then, as exact as it was recorded; `name` is what other requests take as `tag`."""

    tag: str
    name: str
    step: float
    wall_time: float
    value: int | float | str


class MomentText(msgspec.Struct, frozen=True, kw_only=True):
    """A text around the time."""

    tag: str
    step: float
    wall_time: float
    text: str


class MomentOther(msgspec.Struct, frozen=True, kw_only=True):
    """Where the last tensor, histogram, picture, sound or table of a series by then is."""

    tag: str
    name: str
    type: TagType
    step: float
    wall_time: float


class RunMoment(msgspec.Struct, frozen=True, kw_only=True):
    """What a run recorded by a time: of each series the last record, and the texts around it in the order of time.

    `step` is the step that the run had reached, and `before` and `after` are the times of the steps around it, or
    `null`. `n_more` counts series that are left out, and texts.
    """

    wall_time: float
    step: float | None
    before: float | None
    after: float | None
    numbers: list[MomentNumber]
    texts: list[MomentText]
    others: list[MomentOther]
    n_more: int


async def get_moment(call: ApiRequest, query: MomentQuery) -> RunMoment:
    """Return all that a run recorded at a time, or when it was at a step."""
    given = [one for one in (query.at, query.step) if one is not None]
    if len(given) != 1 or not math.isfinite(given[0]):
        raise bad_request(f"Expected a time or a step, got {given}")
    return await call.read(_moment, call.runs, call.key, query)


def _moment(runs: Runs, key: str, query: MomentQuery) -> RunMoment:
    source = runs.find(key)
    origin = source.summary().source
    numbers, texts, others = list[MomentNumber](), list[MomentText](), list[MomentOther]()
    with source.borrow() as files:
        recording = files.recording
        with recording.lock:
            if recording.changed():
                recording.refresh()
            infos = series_infos(recording)
            reference = reference_of(infos)
            series = {key: recording.series(key) for key in infos if key.kind in ("logged", "stream")}
        at = query.at if query.at is not None else _when(recording.series(reference) if reference else None, query.step)
        shown = sorted(series, key=lambda key: key.tag)[:MAX_SERIES]
        n_more = len(series) - len(shown)
        for key_of in shown:
            one, kind = series[key_of], tag_type(infos[key_of].type, origin)
            with contextlib.suppress(DamagedError):  # the run's `problem` reports it
                if kind == "text":
                    found, n_left_out = _around(one, at, query.near_s)
                    texts += found
                    n_more += n_left_out
                elif (place := one.place_at(at)) is not None:
                    row, at_step, wall = place
                    named: dict[str, Any] = {
                        "tag": key_of.tag, "name": key_of.name, "step": at_step, "wall_time": wall,
                    }  # fmt: skip
                    if kind == "scalar":
                        numbers.append(MomentNumber(**named, value=encoding.jsonable(one[row].value)))
                    elif kind != "other":
                        others.append(MomentOther(**named, type=kind))
        step, before, after = (None, None, None) if reference is None else _steps(recording.series(reference), at)
    texts.sort(key=lambda text: text.wall_time)
    return RunMoment(
        wall_time=at, step=step, before=before, after=after, numbers=numbers, texts=texts, others=others, n_more=n_more
    )


def _when(reference: Series | None, step: float | None) -> float:
    """Return the time at which a run was at a step; of several, the last.

    Raises:
        Problem: It was never there.
    """
    steps = np.array([]) if reference is None else np.asarray(reference.steps)
    there = np.flatnonzero(steps <= step)
    if reference is None or not len(there):
        raise bad_request(f"Expected a step of the run, got {step:.15g}")
    at_step = np.flatnonzero(steps == steps[there].max())
    return float(np.asarray(reference.wall_times)[at_step[-1]])


def _around(series: Series, at: float, near_s: float) -> tuple[list[MomentText], int]:
    """Return the texts around a time, and how many of them are left out: those farthest from it."""
    places = [series.place_at(time) for time in (math.nextafter(at - near_s, -math.inf), at, at + near_s)]
    first, middle, stop = (0 if place is None else place[0] + 1 for place in places)
    low, high = max(first, middle - MAX_LINES // 2), min(stop, middle + MAX_LINES // 2)
    found = []
    for row in range(low, high):
        with contextlib.suppress(DamagedError):
            record = series[row]
            found.append(MomentText(tag=series.tag, step=record.step, wall_time=record.wall_time, text=text_of(record)))
    return found, stop - first - len(found)


def _steps(series: Series, at: float) -> tuple[float | None, float | None, float | None]:
    """Return the step at a time, and the times of the records before and after it."""
    place = series.place_at(at)
    row, step = (-1, None) if place is None else place[:2]
    before, after = (series[i].wall_time if 0 <= i < len(series) else None for i in (row - 1, row + 1))
    return step, before, after


ROUTES: Final = (
    Route(method="GET", path="/runs/{key}/moment", handler=get_moment, query=MomentQuery, response=RunMoment),
)
