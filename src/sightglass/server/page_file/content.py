"""The answers that a file of the page carries in place of a server, taken from the endpoints that a server has.

The file is bounded: it has the first `MAX_RUNS` of the runs that it is asked for, and of each series as many points as
fit, thinned as for the page, so that no extreme is lost. What is left out is counted, and the file says it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from sightglass import __version__
from sightglass.core import plotly_json
from sightglass.core.errors import MissingExtraError, SightglassError
from sightglass.server.access import Visitor
from sightglass.server.api import columns, media, scalars, sheets, tensors
from sightglass.server.api import runs as api_runs
from sightglass.server.api.compared import TagQuery
from sightglass.server.api.schema import ApiRequest, Nothing, Request
from sightglass.server.http_errors import Problem, bad_request, too_large, without_folders
from sightglass.server.runs.projects import names_of
from sightglass.server.runs.run_columns import STATISTICS
from sightglass.server.runs.run_table import Runs
from sightglass.views import encoding, plotly_frame

MAX_RUNS: Final = 100
MAX_SERIES_POINTS: Final = 1_000  # pixels of one series: what a large chart has
MIN_SERIES_POINTS: Final = 20  # a curve is still one
ALL_POINTS: Final = 100_000  # pixels of all series together: some megabytes
MAX_COLUMNS: Final = 200_000  # cells of the table that come from series
COLUMNS_S: Final = 30.0  # what a folder of thousands of runs takes when it is read for the first time
AXES: Final = ("step", "relative", "wall")
PAGES: Final = ("charts", "runs", "media")
NAMING: Final = ("columns", "sort", "across", "up", "tint", "axes")  # parameters of an address that name columns


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """What stands in a file of the page.

    Attributes:
        about: What the file says about itself: where it comes from, when it was made, and what is left out.
        answers: The JSON replies, each with its path and parameters.
        series: Replies about series of numbers: run, tag, axis, and the reply, whose columns are places in `blobs`.
        table: The columns of the table of runs.
        media: The pictures and sounds: run, tag, step, number, media type and bytes.
        blobs: Columns of float64, each once.
        frame: The document that draws Plotly's figures, if there is one to draw; else empty.
        framed: The hashes of its scripts.
    """

    about: dict[str, Any]
    answers: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list)
    series: list[tuple[str, str, str, dict[str, Any]]] = field(default_factory=list)
    table: dict[str, Any] = field(default_factory=dict)
    media: list[File] = field(default_factory=list)
    blobs: list[bytes] = field(default_factory=list)
    frame: str = ""
    framed: list[str] = field(default_factory=list)

    def encoded(self) -> bytes:
        """Return all of it as msgpack."""
        names = ("about", "answers", "series", "table", "media", "blobs", "frame")
        return msgspec.msgpack.encode({name: getattr(self, name) for name in names})


def page_of(address: str) -> tuple[str, dict[str, list[str]]]:
    """Return the page of an address, and its parameters.

    >>> page_of("#/charts?smooth=0.5")
    ('charts', {'smooth': ['0.5']})
    """
    page, _, query = address.removeprefix("#/").partition("?")
    return page or "charts", parse_qs(query, keep_blank_values=True)


def computed_by(given: Mapping[str, Sequence[str]], tags: Collection[str]) -> list[tuple[str, str]]:
    """Return what the charts of an address compute: an expression or a tag, and what it is over.

    Args:
        given: The parameters of the address: `x` of the page, charts of one's own as `own=name|tag|…`, and what single
            charts have of their own as `cards=id|x:epoch|…`.
        tags: The tags of all series of numbers, which are there over each of the axes anyway.

    >>> computed_by({"own": ["gap|a - b|a"], "cards": ["own gap|x:epoch"]}, ["a", "b"])
    [('a - b', 'epoch'), ('a', 'epoch')]
    """
    x, *_ = given.get("x", [AXES[0]])
    own = [_listed(text) for text in given.get("own", ())]
    charts = {tag: [tag] for tag in tags} | {f"own {name}": drawn for name, *drawn in own}
    over = {
        name: setting.removeprefix("x:")
        for name, *settings in map(_listed, given.get("cards", ()))
        for setting in settings
        if setting.startswith("x:")
    }
    found = [(tag, over.get(name, x)) for name, drawn in charts.items() for tag in drawn]
    return list(dict.fromkeys((tag, over_x) for tag, over_x in found if tag not in tags or over_x not in AXES))


def _listed(text: str) -> list[str]:
    """Read a list of texts as an address has it: `one|two`, with a backslash before a bar within a text."""
    return [re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in re.findall(r"(?:[^|\\]|\\.)+", text, re.DOTALL)]


async def content_of(runs: Runs, address: str, keys: Sequence[str], *, made: float | None = None) -> PageContent:
    """Return what a file needs to show an address.

    Args:
        runs: The runs.
        address: A fragment such as `#/charts?smooth=0.5`.
        keys: The keys of the runs in the file, those that are drawn first.
        made: When the file is made, by default now.

    Raises:
        Problem: The address is of another page, or there are no such runs.
    """
    page, _ = page_of(address)
    if page not in PAGES:
        raise bad_request(f"Expected a view of the page Charts, Media or Runs, got one of {page.capitalize()}")
    summaries = {run.key: run for run in await asyncio.to_thread(runs.summaries)}
    there = [key for key in dict.fromkeys(keys) if key in summaries]
    if not there:
        raise bad_request("No run is shown, so there is nothing to save")
    kept = there[:MAX_RUNS]
    content = PageContent(
        about={
            "version": __version__, "address": address, "made": time.time() if made is None else made,
            "folders": names_of(runs.directories), "n_runs": len(kept), "n_runs_left_out": len(there) - len(kept),
            "pages": [one for one in PAGES if one in ("charts", "runs", page)],
        }
    )  # fmt: skip
    shown = [_plain(summaries[key], runs.directories) for key in kept]
    content.answers.append(("runs", {}, {"runs": shown, "problem": ""}))
    filling = _Filling(runs, content)
    for run in shown:
        await filling.run(run, with_media=page == "media")
    await filling.series()
    await filling.table(kept)
    await filling.media()
    return with_frame(content)


def with_frame(content: PageContent) -> PageContent:
    """Return a file's content with what draws its figures of Plotly, if it has some, and Plotly is installed."""
    if not any(media_type == plotly_json.MEDIA_TYPE for *_, media_type, _ in content.media):
        return content
    try:
        frame, framed = plotly_frame.alone()
    except (MissingExtraError, OSError):
        return content
    return replace(content, frame=frame, framed=framed)


class _Filling:
    """Puts the answers about runs into a file."""

    def __init__(self, runs: Runs, content: PageContent) -> None:
        self._runs = runs
        self._content = content
        self._runs_in: list[str] = []
        self._scalars: list[tuple[str, str]] = []
        self._media: list[MediaSeries] = []
        self._places: dict[bytes, int] = {}

    def _call(self, key: str = "") -> ApiRequest:
        return ApiRequest(runs=self._runs, visitor=Visitor(role="viewer"), key=key)

    async def run(self, run: dict[str, Any], *, with_media: bool) -> None:
        """Put in a run's details and tags; what else its program told of itself stays out."""
        key, call = run["key"], self._call(run["key"])
        self._runs_in.append(key)
        about = await api_runs.describe_run(call, Nothing())
        detail = {"description": None, "streams": [], "history": about.history, "not_shown": about.not_shown}
        self._content.answers.append((f"runs/{key}", {}, _json(run | detail)))
        tags = []
        try:
            tags = (await api_runs.list_tags(call, Nothing())).tags
        except (SightglassError, OSError, Problem):
            pass  # the run's `problem` says why
        tags = [tag for tag in tags if tag.type == "scalar" or (with_media and tag.type in KINDS)]
        self._scalars += [(key, tag.name) for tag in tags if tag.type == "scalar"]
        self._media += [MediaSeries(run=key, tag=tag.name, kind=tag.type) for tag in tags if tag.type != "scalar"]
        self._content.answers.append((f"runs/{key}/tags", {}, _json({"tags": tags})))

    async def series(self) -> None:
        """Put in all series of numbers over each of the axes, and those that charts of the address compute."""
        _, given = page_of(self._content.about["address"])
        tags = {tag for _, tag in self._scalars}
        computed = [(run, tag, x) for tag, x in computed_by(given, tags) for run in self._runs_in]
        share = ALL_POINTS // max(1, len(self._scalars) + len(computed))
        points = max(MIN_SERIES_POINTS, min(MAX_SERIES_POINTS, share))
        n_thinned = 0
        wanted = [(run, tag, x) for run, tag in self._scalars for x in AXES] + computed
        for start in range(0, len(wanted), scalars.MAX_REQUESTS):
            asked = wanted[start : start + scalars.MAX_REQUESTS]
            requests = [scalars.ScalarsRequest(run=run, tag=tag, x=x, points=points) for run, tag, x in asked]
            reply = await scalars.post_scalars(self._call(), Nothing(), scalars.ScalarsRequests(requests=requests))
            for (run, tag, x), entry in zip(asked, msgspec.msgpack.decode(reply.data), strict=True):
                n_thinned += bool(entry.get("thinned")) and x == "step"
                self._content.series.append((run, tag, x, self._without_repeats(entry)))
        self._content.about.update(n_series=len(self._scalars), n_thinned=n_thinned, points=points)

    def _without_repeats(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return a reply whose columns stand elsewhere: over all axes, most of them are the same."""
        made = {name: value for name, value in entry.items() if name not in ("run", "tag")}
        for name in scalars.COLUMNS:
            if name in entry:
                made[name] = self._places.setdefault(entry[name], len(self._places))
                if made[name] == len(self._content.blobs):
                    self._content.blobs.append(entry[name])
        return made

    async def table(self, kept: Sequence[str]) -> None:
        """Put in what series come to: what the address names first, then of each tag all statistics that fit."""
        _, given = page_of(self._content.about["address"])
        until_s = time.monotonic() + COLUMNS_S
        first = await columns.read_columns(self._call(), Request(), columns.ColumnsRequest(columns=[]))
        while first.n_pending and time.monotonic() < until_s:
            first = await columns.read_columns(self._call(), Request(), columns.ColumnsRequest(columns=[]))
        known = {tag for _, tag in self._scalars}
        texts = [text for name in NAMING for text in given.get(name, ())]
        named = [one.lstrip("-") for text in texts for one in text.split("|")]
        wanted = [one for one in named if one.partition("@")[0].rpartition(".")[0] in known or "@" in one]
        wanted += [f"{tag}.{statistic}" for statistic in STATISTICS for tag in first.tags if tag in known]
        wanted = list(dict.fromkeys(wanted))[: MAX_COLUMNS // len(kept)]
        values: list[list[Any]] = []
        for start in range(0, len(wanted), columns.MAX_COLUMNS):
            some = wanted[start : start + columns.MAX_COLUMNS]
            reply = await columns.read_columns(self._call(), Request(), columns.ColumnsRequest(columns=some))
            by_key = {key: i for i, key in enumerate(reply.keys)}
            values += [[column[by_key[key]] for key in kept] for column in reply.values]
        self._content.table.update(
            names=wanted, keys=list(kept), values=_json(values), tags=[tag for tag in first.tags if tag in known],
            statistics=list(STATISTICS), without=[key for key in first.without if key in kept],
        )  # fmt: skip

    async def media(self) -> None:
        """Put in the media, as many as fit."""
        found = await media_of(self._call, self._media)
        self._content.answers.extend(found.answers)
        self._content.media.extend(found.files)
        self._content.about.update(media_left_out=found.left_out, n_tables_cut=found.n_cut)


def _plain(run: Any, folders: Sequence[Path]) -> dict[str, Any]:
    """Return an entry of the list of runs without paths of this machine; nobody can ask the run any more."""
    made: dict[str, Any] = _json(run)
    path = Path(run.directory)
    root = next((root for root in folders if run.directory and path.is_relative_to(root)), None)
    made["directory"] = path.name if root is None else os.path.join(root.name, path.relative_to(root)).rstrip("/.")
    return made | {"live": False, "title": without_folders(run.title) if "/" in run.title[:1] else run.title}


def _json(value: object) -> Any:
    return json.loads(encoding.encode_json(value))


def check_size(data: bytes, max_bytes: int) -> None:
    """Check that a file is not too large.

    Raises:
        Problem: It is.
    """
    if len(data) > max_bytes:
        raise too_large(f"Expected a file of at most {max_bytes:,} bytes, got {len(data):,}: show fewer runs or tags")


# The media in a file of the page: pictures, figures, sounds, tables and texts, of all series evenly.

MAX_BYTES: Final = 12 * 2**20
MAX_STEPS: Final = 20  # of a series
MAX_TEXTS: Final = 1_000  # of a series: what the page asks for
MAX_ROWS: Final = sheets.MAX_ROWS
"""Of a table. The file finds and sorts among these, as it has no server to do it among all."""

KINDS: Final = ("image", "figure", "audio", "table", "text")
FAILURES: Final = (SightglassError, OSError, ValueError, Problem)
"""What a record raises that cannot be read: it is left out, and its run's `problem` says why."""

Answer = tuple[str, dict[str, Any], Any]
File = tuple[str, str, float, int, str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaSeries:
    """A series of media: its run's key, its tag, and its kind, as the page has it."""

    run: str
    tag: str
    kind: str


@dataclass(slots=True, kw_only=True)
class MediaContent:
    """The media in a file.

    Attributes:
        answers: The replies, each with its path and parameters.
        files: Pictures and sounds: run, tag, step, number, media type and bytes.
        left_out: How many records of each kind are not in it.
        n_cut: How many of the tables in it have more rows than it holds.
    """

    answers: list[Answer] = field(default_factory=list)
    files: list[File] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    n_cut: int = 0


async def media_of(call: Callable[[str], ApiRequest], series: Sequence[MediaSeries]) -> MediaContent:
    """Return the media of some series: of each the last record, then the first, then those between."""
    filling = _MediaFilling(call)
    stepped = [one for one in series if one.kind != "text"]
    steps = {one: await filling.steps(one) for one in stepped}
    kept: dict[MediaSeries, set[int]] = {one: set() for one in stepped}
    for one in series:
        if one.kind == "text":
            await filling.texts(one)
    for turn in range(MAX_STEPS):
        for one, listed in steps.items():
            place = next(itertools.islice(spread(len(listed.steps)), turn, None), None)
            if place is not None and await filling.record(one, float(listed.steps[place])):
                kept[one].add(place)
    for one, listed in steps.items():
        filling.listed(one, listed, sorted(kept[one]))
    return filling.content


class _MediaFilling:
    """Takes records as long as there is room."""

    def __init__(self, call: Callable[[str], ApiRequest]) -> None:
        self.content = MediaContent()
        self._call = call
        self._left = MAX_BYTES

    async def steps(self, one: MediaSeries) -> tensors.Steps:
        """Return the steps of a series; none if they cannot be read."""
        try:
            return await tensors.list_steps(self._call(one.run), TagQuery(tag=one.tag))
        except FAILURES:
            return tensors.Steps(steps=[], wall_times=[], damaged=[])

    async def record(self, one: MediaSeries, step: float) -> bool:
        """Take a record if it can be read and fits, and return whether it did."""
        take = {"audio": self._sounds, "table": self._table}.get(one.kind, self._pictures)
        try:
            name, reply, files = await take(one, step)
        except FAILURES:
            return False
        answer = (f"runs/{one.run}/{name}", {"tag": one.tag, "step": step}, reply)
        return self._fits(answer, [(one.run, one.tag, step, i, *file) for i, file in enumerate(files)])

    async def texts(self, one: MediaSeries) -> None:
        """Take as many of the last texts of a series as fit."""
        call, n = self._call(one.run), MAX_TEXTS
        while n:
            try:
                listed = await media.list_texts(call, media.TextsQuery(tag=one.tag, limit=n))
            except FAILURES:
                return
            if self._fits((f"runs/{one.run}/texts", {"tag": one.tag, "limit": MAX_TEXTS}, _json(listed))):
                return
            n //= 10
        self._leave_out("text", 1)

    def listed(self, one: MediaSeries, steps: tensors.Steps, places: Sequence[int]) -> None:
        """Say which steps of a series are in the file."""
        made = {name: [getattr(steps, name)[i] for i in places] for name in ("steps", "wall_times")}
        self.content.answers.append((f"runs/{one.run}/steps", {"tag": one.tag}, _json(made | {"damaged": []})))
        self._leave_out(one.kind, len(steps.steps) - len(places))

    async def _pictures(self, one: MediaSeries, step: float) -> tuple[str, Any, list[tuple[str, bytes]]]:
        listed = await media.list_pictures(self._call(one.run), media.AtStep(tag=one.tag, step=step))
        return "pictures", _json(listed), await self._files(one, step, len(listed.pictures))

    async def _sounds(self, one: MediaSeries, step: float) -> tuple[str, Any, list[tuple[str, bytes]]]:
        listed = await media.list_sounds(self._call(one.run), media.AtStep(tag=one.tag, step=step))
        return "sounds", _json(listed), await self._files(one, step, len(listed.sounds))

    async def _table(self, one: MediaSeries, step: float) -> tuple[str, Any, list[tuple[str, bytes]]]:
        rows = await sheets.list_rows(self._call(one.run), sheets.RowsQuery(tag=one.tag, step=step, limit=MAX_ROWS))
        return "rows", _json(rows), []

    async def _files(self, one: MediaSeries, step: float, n: int) -> list[tuple[str, bytes]]:
        found = []
        for index in range(n):
            query = media.MediaQuery(tag=one.tag, step=step, index=index, to_play=True)
            raw = await media.get_media(self._call(one.run), query)
            found.append((raw.media_type, raw.data))
        return found

    def _fits(self, answer: Answer, files: Sequence[File] = ()) -> bool:
        n_bytes = sum(len(data) for *_, data in files) + len(encoding.encode_json(answer[2]))
        if n_bytes > self._left:
            return False
        self._left -= n_bytes
        self.content.answers.append(answer)
        self.content.files += files
        rows = answer[2].get("rows")
        self.content.n_cut += rows is not None and answer[2]["n_rows"] > len(rows)
        return True

    def _leave_out(self, kind: str, n: int) -> None:
        if n:
            self.content.left_out[kind] = self.content.left_out.get(kind, 0) + n


def spread(n: int) -> Iterator[int]:
    """Yield the numbers below `n`, so that those so far are spread evenly: the last, the first, the middle one.

    >>> list(spread(5))
    [4, 0, 2, 3, 1]
    """
    seen: set[int] = set()
    parts = 1
    while len(seen) < n:
        for i in range(parts, -1, -1):
            place = (n - 1) * i // parts
            if place not in seen:
                seen.add(place)
                yield place
        parts *= 2
