"""The streams of one view in a notebook: their records, how to draw them, and what of it a page does not have yet.

Theory of operation
    Each stream is a `SeriesBuffer`, as on every other surface, which also writes the records that it places on x to a
    `Backlog`, from which each page reads the records it does not have yet. Another step track, or another stream as x,
    replaces the records' steps on the way into the backlog.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.source import Source
from sightglass.views import encoding
from sightglass.views.encoding import MAX_POINTS, Backlog
from sightglass.views.labels import label_streams, notices_of, styles_of
from sightglass.views.options import X_KINDS, Options, line_color
from sightglass.views.series_buffer import Read, SeriesBuffer
from sightglass.views.stream_set import StreamSet, shared
from sightglass.views.summaries import one_line
from sightglass.views.thinning import Floats

from .open_pages import EVERYBODY, Message, Page

DASHES: Final = ((), (8, 4), (3, 3), (12, 3, 3, 3))
"""Dash patterns in CSS pixels, to distinguish lines of one colour; the same as everywhere in the page."""

BLIND_POINTS: Final = 400  # half the pixels of a chart in a notebook: each run of points keeps two
ENOUGH_BYTES: Final = 8 * 2**20
"""The size after which a message is sent; further streams follow in the next one."""


class NotebookStream(SeriesBuffer):
    """One stream of a view, with the backlog that pages read.

    Attributes:
        id: What pages call it; never reused for another stream.
        backlog: Its records, for pages.
    """

    def __init__(self, id: str, source: Source, *, x: Source | str) -> None:
        super().__init__(source, x=x, max_points=MAX_POINTS)
        self.id = id
        self.backlog = Backlog()

    def pull(self) -> bool:
        """Read new records, and return whether there are any."""
        changed = super().pull()
        self.backlog.restarts = self.restarts
        return changed

    def _place(self, columns: Columns, xs: Floats, read: Read) -> None:
        super()._place(columns, xs, read)
        if self._x not in X_KINDS:
            columns = replace(columns, steps=xs).rows(np.flatnonzero(~np.isnan(xs)))
        self.backlog.add(columns)


class NotebookStreams(StreamSet):
    """The streams of one view in a notebook: pages draw it themselves, from settings and backlogs.

    Args:
        sources: The streams.
        **options: As for `StreamSet`.

    Attributes:
        settings: How pages draw it; replaced by a new one whenever it changes.

    Raises:
        ViewError: The view is unknown, or the values that exist already cannot share one.
    """

    def __init__(self, sources: Source | Iterable[Source], **options: Any) -> None:
        self._ids = itertools.count(1)
        super().__init__(sources, **options)
        self.settings: dict[str, Any] = {}
        self.pull(wait=True)

    @property
    def streams(self) -> dict[str, NotebookStream]:
        """The streams by their ids."""
        return {stream.id: stream for stream in cast("tuple[NotebookStream, ...]", self._buffers)}

    def update(self, page: Page) -> Message | None:
        """Return the settings, if they changed, and the records that a page does not have yet."""
        settings, by_id = self.settings, self.streams
        content: dict[str, Any] = {"streams": []}
        if settings != page.settings:
            content["settings"] = page.settings = settings
        buffers: list[bytes] = []
        for id in (drawn["id"] for drawn in settings["streams"]):
            taken = by_id[id].backlog.take(page.cursors.get(id, 0), page.points) if id in by_id else None
            if taken is None:
                continue
            page.cursors[id] = taken.cursor
            content["streams"].append({"id": id, "n": taken.cursor})
            buffers.append(encoding.encode_msgpack(taken.message))
            if sum(map(len, buffers)) > ENOUGH_BYTES:
                break
        return (content, buffers) if buffers or "settings" in content else None

    def has_news(self, page: Page) -> bool:
        """Return whether a page has not all records, or other settings."""
        if page.settings != self.settings:
            return True
        by_id = self.streams
        drawn = [by_id[stream["id"]] for stream in self.settings["streams"] if stream["id"] in by_id]
        return any(stream.backlog.end > page.cursors.get(stream.id, 0) for stream in drawn)

    def unknown_page(self) -> Page:
        """Return a page that has no record yet and gets few: of values that are not numbers, the last only."""
        cursors = {id: max(0, one.backlog.end - 1) for id, one in self.streams.items() if not one.backlog.numeric}
        return Page(name=EVERYBODY, points=BLIND_POINTS, cursors=cursors)

    def _buffer_of(self, source: Source) -> SeriesBuffer:
        return NotebookStream(f"s{next(self._ids)}", source, x=self.options.x)

    def _update(self) -> None:
        drawn, choice, notices = shared(tuple(self.streams.values()), self._wanted)
        self.view = choice.view if choice else None
        labels = label_streams(drawn)
        for stream, label in zip(drawn, labels, strict=True):
            notices += notices_of(stream, label, self.view, self.options)
        self.settings = {
            "view": self.view,
            "title": ", ".join(labels) if (title := self._heading) is None else one_line(title),
            "streams": [
                {
                    "id": stream.id,
                    "label": label,
                    "second": any(stream.source is one for one in self._second),
                    "color": line_color(color),
                    "dash": DASHES[dash % 4],
                }
                for stream, label, (color, dash) in zip(drawn, labels, styles_of(drawn), strict=True)
            ],
            "options": settings_of(self.options),
            "notices": notices,
            "ended": bool(drawn) and all(stream.ended for stream in drawn),
        }


def settings_of(options: Options) -> dict[str, Any]:
    """Return the options under the names that pages use, without those that are unset."""
    x = options.x if options.x in X_KINDS else "step"
    name = "" if options.x in X_KINDS else one_line(options.x if isinstance(options.x, str) else options.x.tag)
    found = {
        "x": x, "xname": name, "smooth": options.smooth, "xlog": options.log_x, "ylog": options.log_y,
        "xlimits": options.x_limits and list(options.x_limits), "ylimits": options.y_limits and list(options.y_limits),
        "clip": options.clip, "frames": options.frames, "history": options.history, "over": options.over,
        "last": options.last, "dark": options.dark,
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}
