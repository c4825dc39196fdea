"""The streams of one view in a notebook: what came of them, how it is to be drawn, and what the reader has to know.

Theory of operation
    Each stream has a `SeriesBuffer`, which knows as on every other surface what its values are and what became of
    them, and a `Backlog`, from which each page takes what it has not seen. Both see the same records.

    x may count another step track, or be another stream; then the records' steps are replaced by it on the way into
    the backlog. A record whose step the other stream has not reached waits; one whose step it left out is left out.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sightglass.core.errors import ViewError, unknown
from sightglass.core.record import Record
from sightglass.core.source import Source
from sightglass.views.backlog import MAX_POINTS, Backlog
from sightglass.views.choose import VIEWS
from sightglass.views.options import X_KINDS, Options
from sightglass.views.palette import line_color
from sightglass.views.scene import label_streams, notices_of, styles_of
from sightglass.views.series_buffer import SeriesBuffer, words
from sightglass.views.stream_set import choice_of, shared

DASHES: Final = ((), (8, 4), (3, 3), (12, 3, 3, 3))
"""How lines of one colour are told apart, in CSS pixels, as everywhere in the page."""

MAX_WAITING: Final = 20_000
"""How many records of a stream wait for the one that is its x."""


class NotebookStream:
    """One stream in a view.

    Attributes:
        id: What pages call it; never used for another.
        source: Where the records come from.
        second: Whether it is read on the axis at the right.
        trace: What its values are.
        backlog: What came, for pages.
    """

    def __init__(self, id: str, source: Source, *, second: bool, x: SeriesBuffer | str) -> None:
        self.id = id
        self.source = source
        self.second = second
        self.backlog = Backlog()
        self.trace = SeriesBuffer(self, max_points=MAX_POINTS)
        self._x = x
        self._waiting: deque[Record] = deque(maxlen=MAX_WAITING)

    @property
    def tag(self) -> str:
        """The stream's tag."""
        return self.source.tag

    @property
    def ended(self) -> bool:
        """Whether the stream has ended."""
        return self.source.ended

    def since(self, cursor: int, /) -> tuple[int, Sequence[Record]]:
        """Return what came after a cursor, and put it into the backlog: the trace is the only one that asks."""
        behind, records = self.source.since(cursor)
        if records:
            self._put(self._placed(records))
        return behind, records

    def pull(self) -> bool:
        """Take what is new, and say whether anything is."""
        changed = self.trace.pull()
        if self._waiting:
            self._put(self._placed(()))
        return changed

    def _put(self, records: Sequence[Record]) -> None:
        if records:
            self.backlog.add(records)

    def _placed(self, records: Sequence[Record]) -> Sequence[Record]:
        """Return those records that can be drawn by now, with what x is for their step."""
        if isinstance(self._x, str):
            if self._x in X_KINDS:
                return records
            return [replace(one, step=one.steps[self._x]) for one in records if self._x in one.steps]
        self._waiting.extend(records)
        if "" not in self._x.lines:
            return ()
        steps, xs = self._x.lines[""].columns[:2]
        placed = []
        reached = steps[-1] if len(steps) else -float("inf")
        while self._waiting and (self._waiting[0].step <= reached or self._x.ended):
            one = self._waiting.popleft()
            at = int(np.searchsorted(steps, one.step))
            if at < len(steps) and steps[at] == one.step:
                placed.append(replace(one, step=float(xs[at])))
        return placed


class NotebookStreams:
    """The streams of one view.

    Args:
        sources: The streams.
        view: The view to use, whatever the values are; see `choose.VIEWS`.
        title: What stands above it; the streams' tags by default.
        second: Which of the sources are read on a second y axis.
        options: How it is drawn.

    Attributes:
        lines: The streams by their ids.
        settings: How it is drawn by now, as pages are told; a new one whenever it changed.

    Raises:
        ViewError: The view is unknown, or the values that are there already cannot share one.
    """

    def __init__(
        self,
        sources: Iterable[Source],
        *,
        view: str | None = None,
        title: str | None = None,
        second: Iterable[Source] = (),
        options: Options | None = None,
    ) -> None:
        if view is not None and view not in VIEWS:
            raise ViewError(unknown("view", view, VIEWS))
        self.options = options or Options()
        self.lines: dict[str, NotebookStream] = {}
        self._wanted, self._title = view, title
        self._ids = itertools.count(1)
        self._x = SeriesBuffer(self.options.x) if isinstance(self.options.x, Source) else None
        self._lock = threading.RLock()
        right = list(second)
        for source in sources:
            self.add(source, second=any(source is one for one in right))
        for source in right:
            self.add(source, second=True)
        self.settings = self._settings()

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams that are drawn."""
        return tuple(line.source for line in list(self.lines.values()))

    @property
    def labels(self) -> list[str]:
        """What the streams are called, in their order."""
        return label_streams([line.trace for line in list(self.lines.values())])

    @property
    def ended(self) -> bool:
        """Whether all streams have ended and all of their records were taken."""
        return all(line.trace.ended for line in list(self.lines.values()))

    def add(self, source: Source, *, second: bool = False) -> None:
        """Draw another stream too; one that is drawn already is no error.

        Raises:
            ViewError: Its values cannot share the view with those of the others.
        """
        with self._lock:
            if any(line.source is source for line in self.lines.values()):
                return
            x = self._x if self._x is not None else str(self.options.x)
            line = NotebookStream(f"s{next(self._ids)}", source, second=second, x=x)
            if self._x is not None:
                self._x.pull()
            line.pull()
            choice_of([one.trace for one in (*self.lines.values(), line)], self._wanted)
            self.lines = {**self.lines, line.id: line}

    def remove(self, source: Source) -> None:
        """Draw a stream no more; one that is not drawn is no error."""
        with self._lock:
            self.lines = {id: line for id, line in self.lines.items() if line.source is not source}

    def pull(self) -> bool:
        """Take what is new, and say whether there is anything to tell."""
        with self._lock:
            changed = self._x is not None and self._x.pull()
            for line in self.lines.values():
                changed = line.pull() or changed
            settings = self._settings()
            if settings != self.settings:
                self.settings, changed = settings, True
            return changed

    def _settings(self) -> dict[str, Any]:
        traces, choice, notices = shared([line.trace for line in self.lines.values()], self._wanted)
        drawn = [line for line in self.lines.values() if any(line.trace is trace for trace in traces)]
        labels = label_streams(traces)
        for trace, label in zip(traces, labels, strict=True):
            notices += notices_of(trace, label, choice.view if choice else None)
        streams = [
            {"id": line.id, "label": label, "second": line.second, "color": line_color(color), "dash": DASHES[dash % 4]}
            for line, label, (color, dash) in zip(drawn, labels, styles_of(traces), strict=True)
        ]
        return {
            "view": choice.view if choice else None,
            "title": words(self._title) if self._title is not None else ", ".join(labels),
            "streams": streams,
            "options": told(self.options),
            "notices": notices,
            "ended": bool(drawn) and all(trace.ended for trace in traces),
        }


def told(options: Options) -> dict[str, Any]:
    """Return the options as pages know them; what is not said is left out."""
    x = options.x if options.x in X_KINDS else "step"
    name = "" if options.x in X_KINDS else words(options.x if isinstance(options.x, str) else options.x.tag)
    found = {
        "x": x, "xname": name, "smooth": options.smooth, "xlog": options.log_x, "ylog": options.log_y,
        "xlimits": options.x_limits and list(options.x_limits), "ylimits": options.y_limits and list(options.y_limits),
        "clip": options.clip, "frames": options.frames, "history": options.history, "over": options.over,
        "last": options.last, "dark": options.dark,
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}
