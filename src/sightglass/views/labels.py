"""What streams, axes and drawings are called, and how streams are told apart.

The notices say how much of a stream a view shows, and what is missing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

import numpy as np

from sightglass.core.columns import Record
from sightglass.core.source import Source

from .choose import KIND_NAMES, ViewName
from .distributions import MAX_COLUMNS, MAX_RIDGES
from .options import Options
from .scales import number
from .series_buffer import SeriesBuffer
from .summaries import one_line

AXES = ("x", "y", "z")
PATHS: frozenset[ViewName] = frozenset({"xy", "scatter", "annotated", "line3d"})


def label_streams(buffers: Sequence[SeriesBuffer]) -> list[str]:
    """Return distinct names of streams: the tag, with the run where two tags are equal."""
    tags = [one_line(buffer.source.tag) for buffer in buffers]
    runs = [run_of(buffer) for buffer in buffers]
    return [f"{run} · {tag}" if tags.count(tag) > 1 and run else tag for run, tag in zip(runs, tags, strict=True)]


def run_of(buffer: SeriesBuffer) -> str:
    """Return the run that a stream's last record names."""
    return one_line(buffer.last.run) if buffer.last else ""


def styles_of(buffers: Sequence[SeriesBuffer]) -> list[tuple[int, int]]:
    """Return the colour index and the dash index of each stream: a colour per run if tags repeat across runs."""
    tags, runs = [buffer.source.tag for buffer in buffers], [run_of(buffer) for buffer in buffers]
    if len(set(runs)) > 1 and len(set(tags)) < len(tags):
        at_run, at_tag = [list(dict.fromkeys(names)) for names in (runs, tags)]
        return [(at_run.index(run), at_tag.index(tag)) for run, tag in zip(runs, tags, strict=True)]
    firsts = np.cumsum([0, *(max(1, len(buffer.lines)) for buffer in buffers)])
    return [(int(first), 0) for first in firsts[:-1]]


def axis_labels(view: ViewName | None, tags: Sequence[str], options: Options) -> tuple[str, ...]:
    """Return the labels of x, y and z: the step's name and nothing, or the names in the queries' tuples."""
    if view in PATHS:
        found = {axis_names(tag) for tag in tags}
        return found.pop() if len(found) == 1 else AXES
    if isinstance(options.x, Source):
        return one_line(options.x.tag), "", ""
    x = {"relative": "seconds", "wall": "time", "index": "record"}.get(options.x, one_line(options.x))
    return x, "", ""


def axis_names(tag: str) -> tuple[str, ...]:
    """Return the names of x, y and z in the tag of a stream of tuples, without the event that all of them share.

    >>> axis_names("(batch.epoch, norm(batch.grads[0, 1]))"), axis_names("points")
    (('epoch', 'norm(grads[0, 1])', 'z'), ('x', 'y', 'z'))
    """
    parts = _parts(tag)
    if len(parts) == 1 and tag.startswith("(") and tag.endswith(")"):
        parts = _parts(tag[1:-1])
    if len(parts) not in (2, 3):
        return AXES
    events = {event for part in parts for event in re.findall(r"(?<![\w.])([^\W\d]\w*)\.", part)}
    if len(events) == 1:
        event = events.pop()
        parts = [re.sub(rf"(?<![\w.]){event}\.", "", part) for part in parts]
    return (*parts, *AXES[len(parts) :])


def subtitle_of(buffers: Sequence[SeriesBuffer], *, shown: str) -> str:
    """Return the runs, how much is shown, the step, and whether all streams have ended."""
    records = [buffer.last for buffer in buffers if buffer.last]
    if not records:
        return ""
    runs = ", ".join(list(dict.fromkeys(one_line(record.run) for record in records if record.run))[:3])
    step = f"step {number(max(record.step for record in records))}"
    ended = "ended" if all(buffer.ended for buffer in buffers) else ""
    return " · ".join(filter(None, (runs, shown, step, ended)))


def _parts(text: str) -> list[str]:
    """Split at the commas that are outside of brackets and quotes."""
    bare = re.sub(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", lambda found: "_" * len(found[0]), text)
    depths = accumulate((char in "([{") - (char in ")]}") for char in bare)
    ends = [i for i, (char, depth) in enumerate(zip(bare, depths, strict=True)) if char == "," and depth == 0]
    return [text[start:end].strip() for start, end in zip([0, *(i + 1 for i in ends)], [*ends, len(text)], strict=True)]


# What a view tells about itself: how much of a stream it shows, and what is missing or not drawn.


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """How much of a stream a view shows.

    Attributes:
        n_made: How many records were made, as far as the view knows.
        n_shown: How many of them are drawn.
        every: Of how many records one is drawn, besides extremes; 0 if that differs along the run.
        kept: Which ones: the extremes and one of each `every`, the newest, or some evenly over the run.
    """

    n_made: int
    n_shown: int
    every: int = 0
    kept: Literal["extremes", "newest", "evenly"] = "extremes"

    @property
    def whole(self) -> bool:
        """Whether all records are drawn."""
        return self.n_shown >= self.n_made

    def __str__(self) -> str:
        """Return the sentence that every surface shows; `frontend/src/views/shown.ts` writes the same.

        >>> [str(Shown(n_made=1204, n_shown=1204)), str(Shown(n_made=10_000, n_shown=40, kept="newest"))]
        ['all 1,204', 'last 40 of 10,000']
        >>> str(Shown(n_made=200_000, n_shown=4100, every=64))
        'every 64th of 200,000, extremes kept'
        """
        if self.whole:
            return f"all {self.n_made:,}"
        if self.kept == "newest":
            return f"last {self.n_shown:,} of {self.n_made:,}"
        if self.kept == "evenly":
            return f"{self.n_shown:,} of {self.n_made:,}, evenly over the run"
        part = f"every {_ordinal(self.every)}" if self.every > 1 else f"{self.n_shown:,}"
        return f"{part} of {self.n_made:,}, extremes kept"


def shown_of(buffer: SeriesBuffer, view: ViewName | None, options: Options) -> Shown | None:
    """Return how much of a stream a view shows; `None` for views of its latest value alone."""
    values = buffer.values if options.frames or options.over else []
    if view == "histogram" and options.over in ("ridge", "heat") and values:
        return _shown_distributions(values, options)
    if not buffer.lines or (options.frames and values):
        return None
    if view not in PATHS and view != "line" and not (view == "histogram" and buffer.kind == "number"):
        return None
    points = max(buffer.lines.values(), key=lambda points: points.n_seen)
    n_made, n_held = points.n_seen + buffer.n_missed + buffer.n_thinned, points.columns.shape[1]
    if options.last and options.last < n_held and view != "histogram":
        return Shown(n_made=n_made, n_shown=options.last, kept="newest")
    return Shown(n_made=n_made, n_shown=n_held, every=1 << points.bits)


def _shown_distributions(values: Sequence[Record], options: Options) -> Shown:
    first, last, n_held = values[0].index, values[-1].index, len(values)
    # The records before the first that is held, if any of them could have been held too.
    if first > 0 and last - first + 1 == n_held:
        return Shown(n_made=last + 1, n_shown=n_held, kept="newest")
    n_shown = min(n_held, MAX_RIDGES if options.over == "ridge" else MAX_COLUMNS)
    return Shown(n_made=last + 1, n_shown=n_shown, kept="evenly")


def shown_in_all(buffers: Sequence[SeriesBuffer], view: ViewName | None, options: Options) -> str:
    """Return the sentence about all streams, if nothing of any of them is left out; else ""."""
    found = [shown_of(buffer, view, options) for buffer in buffers]
    known = [shown for shown in found if shown is not None]
    if not known or not all(shown.whole for shown in known):
        return ""
    n = sum(shown.n_made for shown in known)
    return str(Shown(n_made=n, n_shown=n))


def notices_of(buffer: SeriesBuffer, label: str, view: ViewName | None, options: Options) -> list[str]:
    """Return notices of records of a stream that are missing, thinned or not drawn."""
    found = [f"{label}: {one_line(buffer.note)}"] if buffer.note else []
    if buffer.failure:
        found.append(f"{label}: {one_line(buffer.failure)}")
    if buffer.n_unfit:
        values = "1 value" if buffer.n_unfit == 1 else f"{buffer.n_unfit:,} values"
        last = f" (last: {one_line(buffer.unfit)})" if buffer.unfit else ""
        expected = KIND_NAMES[buffer.kind or "other"]
        found.append(f"{label}: {values} not drawn: expected {expected}{last}")
    if buffer.n_missed:
        found.append(f"{label}: {buffer.n_missed:,} record{'s' if buffer.n_missed > 1 else ''} missed")
    shown = shown_of(buffer, view, options)
    if shown is not None and shown.n_shown + buffer.n_missed < shown.n_made:
        found.append(f"{label}: {shown}")
    if buffer.n_lines_left_out and view == "line":
        found.append(f"{label}: only the first {len(buffer.lines)} names are drawn")
    return found


def _ordinal(n: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th") if n % 100 not in (11, 12, 13) else "th"
    return f"{n:,}{ending}"
