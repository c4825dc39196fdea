"""The media in a file of the page: pictures, figures, sounds, tables and texts, of all series evenly."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sightglass.core.errors import SightglassError
from sightglass.server.api import media, sheets, tensors
from sightglass.server.api.compared import TagQuery
from sightglass.server.api.request import ApiRequest
from sightglass.server.http_errors import Problem
from sightglass.views import encoding

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
    filling = _Filling(call)
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


class _Filling:
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


def _json(value: object) -> Any:
    return json.loads(encoding.encode_json(value))
