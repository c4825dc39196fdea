"""What there is to draw: a picture of a view's state that never changes, handed from whoever pulls to whoever paints.

`scene_of` takes it from the traces; the painters (`charts`, `blocks`, `pages`) turn it into rows of text for the room
there is. The points in it are thinned to far more than a terminal is wide, so it is small, and taking it costs a
millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sightglass.core.record import Record

from .choose import KIND_WORDS, Choice, ViewName
from .palette import line_color
from .scale import number
from .thin import thin, thin_path
from .trace import Points, Trace, words

# Twice the dots of the widest terminal that anybody has.
MAX_PIXELS = 2000

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One line.

    Attributes:
        label: What the legend calls it; "" for a line that is not in the legend.
        color: Its colour.
        x: Shape (n,).
        y: Shape (n,); NaN is a gap.
        value: The last value, in words.
        state: What is to be said about the last value, such as "open".
    """

    label: str
    color: str
    x: Floats
    y: Floats
    value: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """The latest record of one stream, and its last ones in words.

    Attributes:
        label: The stream's name.
        color: Its colour.
        record: The last record that could be drawn, or `None`.
        rows: Step and text of the last records.
        trails: The points of its lines, by name.
    """

    label: str
    color: str
    record: Record | None
    rows: tuple[tuple[float, str], ...] = ()
    trails: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that one drawing shows.

    Attributes:
        view: Which view it is drawn as; `None` while nothing came.
        title: What stands above it.
        where: What stands at the right above it: run and step.
        series: The lines, for views made of lines.
        items: The streams, for views of their latest values.
        texts: Annotations: x, y, text, colour.
        marks: The steps of values made from a part of their window.
        notices: What the reader has to know, one sentence each.
        log_y: Whether the y axis is logarithmic.
    """

    view: ViewName | None
    title: str
    where: str = ""
    series: tuple[Series, ...] = ()
    items: tuple[Item, ...] = ()
    texts: tuple[tuple[float, float, str, str], ...] = ()
    marks: tuple[float, ...] = ()
    notices: tuple[str, ...] = ()
    log_y: bool = False


def scene_of(
    traces: Sequence[Trace],
    *,
    choice: Choice | None,
    title: str | None = None,
    log_y: bool = False,
    notices: Sequence[str] = (),
) -> Scene:
    """Take the picture of some traces."""
    labels = label_streams(traces)
    view = choice.view if choice else None
    series: list[Series] = []
    if view in ("line", "xy", "annotated", "line3d"):
        for trace, label in zip(traces, labels, strict=True):
            series += _series(trace, label, first_color=len([s for s in series if s.label]))
    items = [
        Item(
            label=label,
            color=line_color(i),
            record=trace.latest,
            rows=tuple(trace.rows) if view in ("log", "table") else (),
            trails=_trails(trace) if view in ("bars", "histogram") else {},
        )
        for i, (trace, label) in enumerate(zip(traces, labels, strict=True))
    ]
    texts = [(x, y, text, line_color(i)) for i, trace in enumerate(traces) for x, y, text in trace.texts]
    return Scene(
        view=view,
        title=words(title) if title is not None else ", ".join(labels),
        where=_where(traces),
        series=tuple(series),
        items=tuple(items),
        texts=tuple(texts) if view in ("xy", "annotated") else (),
        marks=tuple(step for trace in traces for step in trace.marks) if view == "line" else (),
        notices=(*notices, *(notice for t, label in zip(traces, labels, strict=True) for notice in _notices(t, label))),
        log_y=log_y,
    )


def label_streams(traces: Sequence[Trace]) -> list[str]:
    """Name streams so that they can be told apart: by tag, with the run where two tags are the same."""
    tags = [words(trace.source.tag) for trace in traces]
    runs = [words(trace.last.run) if trace.last else "" for trace in traces]
    return [f"{run} · {tag}" if tags.count(tag) > 1 and run else tag for run, tag in zip(runs, tags, strict=True)]


def _series(trace: Trace, label: str, *, first_color: int) -> list[Series]:
    series: list[Series] = []
    for i, (name, points) in enumerate(trace.lines.items()):
        color = line_color(first_color + i)
        if trace.kind in ("vector", "histogram"):
            series += _band(points, f"{label} (median, 10–90 %)", color, _state(trace.last))
            continue
        over_steps = trace.kind in ("number", "numbers")
        x, y = (thin if over_steps else thin_path)(points.columns[0], points.columns[1], MAX_PIXELS)
        value = number(y[-1]) if over_steps else f"({', '.join(number(part) for part in points.columns[:, -1])})"
        full = words(name) if name and trace.kind == "numbers" else label
        series.append(Series(label=full, color=color, x=x.copy(), y=y.copy(), value=value, state=_state(trace.last)))
    return series


def _band(points: Points, label: str, color: str, state: str) -> list[Series]:
    """Return a distribution over the steps: its edges, and over them its middle."""
    steps, *columns = points.columns
    series = []
    for column, name in zip((columns[0], columns[2], columns[1]), ("", "", label), strict=True):
        x, y = thin(steps, column, MAX_PIXELS)
        style = color if name else f"dim {color}"
        series.append(Series(label=name, color=style, x=x.copy(), y=y.copy(), value=number(y[-1]), state=state))
    return series


def _trails(trace: Trace) -> dict[str, tuple[Floats, Floats]]:
    return {name: _trail(points) for name, points in trace.lines.items() if len(points.columns) == 2}


def _trail(points: Points) -> tuple[Floats, Floats]:
    x, y = thin(points.columns[0], points.columns[1], MAX_PIXELS)
    # Copies: the trace goes on writing where a view of its columns would look.
    return x.copy(), y.copy()


def _state(record: Record | None) -> str:
    if record is None:
        return ""
    return "open" if not record.closed else "partial" if not record.complete else ""


def _where(traces: Sequence[Trace]) -> str:
    records = [trace.last for trace in traces if trace.last]
    if not records:
        return ""
    runs = list(dict.fromkeys(words(record.run) for record in records if record.run))
    step = max(record.step for record in records)
    over = " · ended" if all(trace.ended for trace in traces) else ""
    return f"{', '.join(runs[:3])}{' · ' if runs else ''}step {number(step)}{over}"


def _notices(trace: Trace, label: str) -> list[str]:
    found = []
    if trace.failure:
        found.append(f"{label}: {words(trace.failure)}")
    if trace.n_unfit:
        was = "1 value is" if trace.n_unfit == 1 else f"{trace.n_unfit:,} values are"
        last = f" (last: {words(trace.unfit)})" if trace.unfit else ""
        expected = KIND_WORDS[trace.kind or "other"]
        found.append(f"{label}: {was} not drawn: expected {expected}{last}")
    if trace.n_missed:
        found.append(f"{label}: {trace.n_missed:,} record{'s' if trace.n_missed > 1 else ''} missed")
    if any(points.thinned for points in trace.lines.values()):
        seen, kept = (sum(n) for n in zip(*((p.n_seen, p.columns.shape[1]) for p in trace.lines.values()), strict=True))
        found.append(f"{label}: {kept:,} of {seen:,} points kept, all extremes among them")
    if trace.n_lines_left_out:
        found.append(f"{label}: more names than the {len(trace.lines)} drawn")
    return found
