"""Endpoints for series of numbers, thinned to what a chart shows."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from sightglass.server.http_errors import Problem, bad_request, error_reply
from sightglass.server.runs.derived import AXES, axis_of
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.reached import Reached, known_reference
from sightglass.server.runs.run_table import Runs
from sightglass.server.runs.scalar_lines import MAX_POINTS, NumberSeries, ScalarLine
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage.format import series_names
from sightglass.storage.read.series import Series
from sightglass.storage.read.statistic_series import StatisticSeries
from sightglass.storage.run_file import is_of_machine
from sightglass.views import encoding

from .schema import ApiRequest, ErrorInfo, Raw, Request, Route

MAX_REQUESTS: Final = 1_000  # ten charts of a hundred runs
POINTS: Final = 1_000  # about one for each pixel of a chart on a laptop
COLUMNS: Final = ("x", "y", "wall", "step", "mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """A line, the generation of its files, how many records are to be read yet, and the digits of large integers."""

    line: ScalarLine
    generation: int
    n_pending: int = 0
    integers: list[list[int | str]] = field(default_factory=list)


LIMIT_S: Final = 0.4  # of computing a statistic of tensors; the page draws what there is, and asks again
MSGPACK: Final = "application/msgpack"

Points = Annotated[int, msgspec.Meta(ge=1, le=MAX_POINTS)]
Cursor = Annotated[str, msgspec.Meta(max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=4_096)]


class ScalarsQuery(Request, frozen=True, kw_only=True):
    """A series of numbers: its tag, the axis, the range on it, the number of pixels, and the cursor of a reply.

    `tag` may be an expression over tags, or a query. `x` is "step", "wall" or "relative", the name of a step track, or
    a series like `tag`; pairs are of one step.
    """

    tag: Text
    x: Text = "step"
    low: float | None = msgspec.field(default=None, name="from")
    high: float | None = msgspec.field(default=None, name="to")
    points: Points = POINTS
    since: Cursor = ""


class ScalarsRequest(ScalarsQuery, frozen=True, kw_only=True):
    """A series of numbers, and its run."""

    run: Text


class ScalarsRequests(Request, frozen=True, kw_only=True):
    """Several series."""

    requests: Annotated[list[ScalarsRequest], msgspec.Meta(max_length=MAX_REQUESTS)]


class ScalarPoints(msgspec.Struct, frozen=True, kw_only=True):
    """The points of a series: the extremes of each pixel, out of `n` points in the range.

    `mean` is the mean of all points between each point and the one before, NaN where they are joined straight; it is
    empty if no points are left out. Each of `parts` is a part of the line that is drawn by itself, the newest last: its
    first point, the one after its last, its opacity, and the number of its pass. `integers` has the place among the
    points and the digits of each integer beyond 2^53, of which `y` has the nearest float64. `restarts` are the places
    on x where the run continued after a restart. `tracks` names the further step tracks of its records. A request with
    `cursor` as `since` gets only what came later, if `continued`. `n_pending` records of a statistic of tensors are not
    read yet: ask again for them.
    """

    tag: str
    n: int
    thinned: bool
    x: list[float]
    y: list[float]
    wall: list[float]
    step: list[float]
    mean: list[float]
    parts: list[list[float]]
    integers: list[list[int | str]]
    restarts: list[float]
    tracks: list[str]
    cursor: str
    continued: bool
    n_pending: int


class PackedScalars(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One of the series of `POST /scalars`: its points, or the `error` why there are none.

    The columns `x` to `mean` are bytes: float64, little endian. The other fields are those of `ScalarPoints`.
    """

    run: str
    tag: str
    error: ErrorInfo | None = None
    n: int = 0
    thinned: bool = False
    x: bytes = b""
    y: bytes = b""
    wall: bytes = b""
    step: bytes = b""
    mean: bytes = b""
    parts: list[list[float]] = []
    integers: list[list[int | str]] = []
    restarts: list[float] = []
    tracks: list[str] = []
    cursor: str = ""
    continued: bool = False
    n_pending: int = 0


async def get_scalars(call: ApiRequest, query: ScalarsQuery) -> ScalarPoints:
    """Return a series of numbers, thinned so that each pixel column keeps its extremes."""
    answer = await call.read(_line, call.runs, call.key, query)
    columns: dict[str, Any] = {name: getattr(answer.line, name) for name in COLUMNS}
    return ScalarPoints(tag=query.tag, **columns, **_about(answer))


async def post_scalars(call: ApiRequest, query: Request, body: ScalarsRequests) -> Raw:
    """Return several series at once, as msgpack.

    Each is a map `{run, tag, n, thinned, x, y, wall, step, mean, parts, integers, restarts, tracks, cursor,
    continued, n_pending}`, whose columns x to mean are float64, little endian, or `{run, tag, error: {type, message}}`.
    """
    packed = await asyncio.gather(*(call.read(_packed, call.runs, request) for request in body.requests))
    return Raw(data=encoding.encode_msgpack(packed), media_type=MSGPACK)


def _packed(runs: Runs, request: ScalarsRequest) -> dict[str, Any]:
    named = {"run": request.run, "tag": request.tag}
    try:
        answer = _line(runs, request.run, request)
    except Exception as error:  # noqa: BLE001  one failure must not affect the others
        return {**named, "error": error_reply(error)[1]}
    return {
        **named,
        **{name: encoding.floats(getattr(answer.line, name)) for name in COLUMNS},
        **_about(answer),
    }


def _about(answer: _Answer) -> dict[str, Any]:
    """Return what a reply has beside the columns."""
    line = answer.line
    parts = [[part.rows.start, part.rows.stop, part.alpha, part.number] for part in line.parts]
    cursor = f"{answer.generation}:{line.n_rows}"
    return {
        "n": line.n,
        "thinned": line.thinned,
        "parts": parts,
        "integers": answer.integers,
        "restarts": line.restarts,
        "tracks": line.tracks,
        "cursor": cursor,
        "continued": line.since > 0,
        "n_pending": answer.n_pending,
    }


def _line(runs: Runs, key: str, query: ScalarsQuery) -> _Answer:
    """Return the points of a series."""
    low = -float("inf") if query.low is None else query.low
    high = float("inf") if query.high is None else query.high
    if low != low or high != high:  # noqa: PLR0124  NaN
        raise bad_request("Expected numbers as 'from' and 'to', got NaN")
    source, until_s = runs.find(key), time.monotonic() + LIMIT_S

    def thinned(series: NumberSeries, generation: int, reached: Reached | None) -> tuple[ScalarLine, int]:
        overview = runs.overviews.get(source.key, series, generation)
        origin = files.recording.info.started or overview.first_wall
        known, _, row = query.since.partition(":")
        since = int(row) if known == str(overview.generation) and row.isdecimal() else 0
        if reached is not None:
            begin, end = reached.span(low, high)
            line = overview.line(series, x="wall", low=begin, high=end, points=query.points, origin=origin)
            return reached.placed(line, low, high), overview.generation
        line = overview.line(
            series, x=axis_of(query.x), low=low, high=high, points=query.points, origin=origin, since=since
        )  # fmt: skip
        return line, overview.generation

    with source.borrow() as files:
        with files.recording.lock:
            series = _recorded(files, query)
        if series is None:  # computed without the lock of the files, under which others are answered
            with files.derived.lock:
                derived = files.derived.get(query.tag, query.x)
                with files.recording.lock:
                    reached = _reached(runs, source, files) if query.x == "step" and derived.of_machine else None
                line, generation = thinned(derived, derived.generation, reached)
                return _Answer(line=line, generation=generation)
        n_pending = 0
        if isinstance(series, StatisticSeries):  # computed without the lock too
            n_pending = len(series)
            series = series.ready(until_s=until_s)
            n_pending -= len(series)
        with files.recording.lock:
            reached = _reached(runs, source, files) if query.x == "step" and is_of_machine(series.key) else None
            line, generation = thinned(series, files.generation, reached)
            integers = _integers(series, line)
            return _Answer(line=line, generation=generation, n_pending=n_pending, integers=integers)


def _reached(runs: Runs, source: ServedRun, files: OpenFiles) -> Reached | None:
    """Return the steps of a run by time; `None` if it has none of its own. The caller holds the recording's lock."""
    key = known_reference(files)
    if key is None:
        return None
    return Reached.of(*runs.overviews.get(source.key, files.recording.series(key), files.generation).clock)


def _integers(series: NumberSeries, line: ScalarLine) -> list[list[int | str]]:
    """Return the digits of the points that are integers beyond 2^53."""
    places = np.flatnonzero(np.abs(line.y) >= encoding.SAFE_INTEGER)
    if not isinstance(series, Series) or not len(places):
        return []
    rows = line.row[places].astype(int)
    digits: dict[int, str] = {}
    for span, columns in series.blocks_of(np.unique(rows).tolist()):
        for row in rows[(rows >= span.start) & (rows < span.stop)].tolist():
            value = None if columns is None else columns.values[row - span.start]
            if isinstance(value, int | np.integer):
                digits[row] = str(int(value))
    return [[i, digits[row]] for i, row in zip(places.tolist(), rows.tolist(), strict=True) if row in digits]


def _recorded(files: OpenFiles, query: ScalarsQuery) -> Series | None:
    """Return the recorded series of a tag, or a statistic of tensors; `None` if the series is to be computed."""
    recording = files.recording
    if recording.changed():
        recording.refresh()
    keys = recording.keys()
    known = {*series_names.named(keys), *(key.tag for key in keys if key.kind == "stream")}
    if query.x not in AXES or not (query.tag in known or recording.keys_in(query.tag)):
        return None
    series = recording.series(query.tag)
    type = series.type
    if type and not _may_be_numbers(type):
        raise Problem(400, "QueryError", f"Expected a series of numbers, got {type} under {query.tag!r}")
    return series


def _may_be_numbers(type: str) -> bool:
    """Return whether a series whose latest value has this type may hold numbers."""
    return "[" not in type and type not in ("Histogram", "Image", "Images", "Audio", "Table", "Figure", "str", "Text")


ROUTES: Final = (
    Route(
        method="GET",
        path="/runs/{key}/scalars",
        handler=get_scalars,
        query=ScalarsQuery,
        response=ScalarPoints,
        cached=True,
    ),
    Route(
        method="POST",
        path="/scalars",
        handler=post_scalars,
        body=ScalarsRequests,
        response=(MSGPACK,),
        packed=list[PackedScalars],
    ),
)
