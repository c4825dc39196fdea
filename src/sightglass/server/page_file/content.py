"""The answers that a file of the page carries in place of a server, taken from the endpoints that a server has.

The file is bounded: it has the first `MAX_RUNS` of the runs that it is asked for, and of each series as many points as
fit, thinned as for the page, so that no extreme is lost. What is left out is counted, and the file says it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from sightglass import __version__
from sightglass.core import plotly_json
from sightglass.core.errors import MissingExtraError, SightglassError
from sightglass.server.access import Visitor
from sightglass.server.api import columns, scalars
from sightglass.server.api import runs as api_runs
from sightglass.server.api.request import ApiRequest
from sightglass.server.api.schema import Nothing, Request
from sightglass.server.http_errors import Problem, bad_request, too_large, without_folders
from sightglass.server.runs.projects import names_of
from sightglass.server.runs.run_columns import STATISTICS
from sightglass.server.runs.run_table import Runs
from sightglass.views import encoding, plotly_frame

from . import media

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
    media: list[media.File] = field(default_factory=list)
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
        self._media: list[media.MediaSeries] = []
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
        tags = [tag for tag in tags if tag.type == "scalar" or (with_media and tag.type in media.KINDS)]
        self._scalars += [(key, tag.name) for tag in tags if tag.type == "scalar"]
        self._media += [media.MediaSeries(run=key, tag=tag.name, kind=tag.type) for tag in tags if tag.type != "scalar"]
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
        found = await media.media_of(self._call, self._media)
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
