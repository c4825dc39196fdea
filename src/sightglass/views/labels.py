"""What streams, axes and drawings are called, and how streams are told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from sightglass.core.source import Source

from .choose import ViewName
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
