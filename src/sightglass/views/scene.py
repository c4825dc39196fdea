"""What there is to draw: a picture of a view's state that never changes, handed from whoever pulls to whoever paints.

`scene_of` takes it from the traces; the painters (`charts`, `blocks`, `pages`) turn it into rows of text for the room
there is. The points in it are thinned to far more than a terminal is wide, so it is small, and taking it costs a
millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.core.record import Record
from sightglass.core.source import Source
from sightglass.core.values import Histogram

from .choose import KIND_NAMES, Choice, ViewName, flatten
from .options import Options, Span
from .palette import line_color
from .scales import number
from .series_buffer import Points, SeriesBuffer, as_floats, one_line
from .smoothing import smooth
from .thinning import thin, thin_path

# Twice the dots of the widest terminal that anybody has, and half as many as a line has on a large screen.
MAX_PIXELS = 2000
LINE_VIEWS: frozenset[ViewName] = frozenset({"line", "xy", "scatter", "annotated", "line3d"})

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSeries:
    """One line.

    Attributes:
        label: What the legend calls it; "" for a line that is not in the legend.
        color: Its colour.
        x: Shape (n,).
        y: Shape (n,); NaN is a gap.
        z: Shape (n,), of a line in space.
        raw: Shape (n,): y as it was before it was smoothed.
        low: Shape (n,): where the band around it begins; NaN is a gap.
        high: Shape (n,): where that ends.
        value: The last value, in words.
        state: What is to be said about the last value, such as "open".
        dash: How it is dashed, a number from 0 (not at all): what tells tags apart where colours tell runs apart.
        second: Whether it is read on the axis at the right.
        alpha: How strongly it is drawn, from 0 to 1: older frames fade.
    """

    label: str
    color: str
    x: Floats
    y: Floats
    z: Floats | None = None
    raw: Floats | None = None
    low: Floats | None = None
    high: Floats | None = None
    value: str = ""
    state: str = ""
    dash: int = 0
    second: bool = False
    alpha: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRecord:
    """The latest record of one stream, and its last ones in words.

    Attributes:
        label: The stream's name.
        color: Its colour.
        record: The last record that could be drawn, or `None`.
        values: The last records of values that are pictures by themselves, the newest last.
        rows: Step and text of the last records.
        trails: The points of its lines, by name.
    """

    label: str
    color: str
    record: Record | None
    values: tuple[Record, ...] = ()
    rows: tuple[tuple[float, str], ...] = ()
    points: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that one drawing shows.

    Attributes:
        view: Which view it is drawn as; `None` while nothing came.
        title: What stands above it.
        where: What stands at the right above it: run and step.
        options: How it is drawn.
        x_name: What x counts.
        places: The names along x, where it counts places in a frame.
        series: The lines, for views made of lines.
        items: The streams, for views of their latest values.
        texts: Annotations: x, y, text, colour.
        marks: Where on x values stand that were made from a part of their window.
        notices: What the reader has to know, one sentence each.
    """

    view: ViewName | None
    title: str
    subtitle: str = ""
    options: Options = Options()  # noqa: RUF009  frozen
    x_name: str = "step"
    categories: tuple[str, ...] = ()
    series: tuple[LineSeries, ...] = ()
    items: tuple[LatestRecord, ...] = ()
    texts: tuple[tuple[float, float, str, str], ...] = ()
    marks: tuple[float, ...] = ()
    notices: tuple[str, ...] = ()


def scene_of(
    buffers: Sequence[SeriesBuffer],
    *,
    choice: Choice | None,
    title: str | None = None,
    options: Options | None = None,
    second: Sequence[Source] = (),
    x_buffer: SeriesBuffer | None = None,
    notices: Sequence[str] = (),
    visible_x: Span | None = None,
    n_pixels: int = MAX_PIXELS,
) -> Scene:
    """Return the scene of some streams.

    Args:
        buffers: The streams.
        choice: The view; `None` while no stream has a value.
        title: The title; by default the streams' names.
        options: How to draw.
        second: The sources to draw against the y axis on the right.
        x_buffer: Another stream to use as x, matched by step.
        notices: Further notices for the reader.
        visible_x: The limits of x in view.
        n_pixels: The width of the drawing.
    """
    options = options or Options()
    labels = label_streams(buffers)
    view = choice.view if choice else None
    frames = options.frames and view in ("line", "bars")
    take = _LineReader(options=options, x_buffer=x_buffer, visible_x=visible_x, n_pixels=n_pixels)
    series: list[LineSeries] = []
    for buffer, label, style in zip(buffers, labels, styles_of(buffers), strict=True):
        if view not in LINE_VIEWS or (frames and buffer.values):
            continue
        found = take.series(buffer, label, style=style, single=len(buffers) == 1)
        series += [replace(one, second=any(buffer.source is source for source in second)) for one in found]
    texts = [(x, y, text, line_color(i)) for i, buffer in enumerate(buffers) for x, y, text in buffer.texts]
    items = [
        LatestRecord(
            label=label,
            color=line_color(i),
            record=buffer.latest,
            values=tuple(buffer.values),
            rows=tuple(buffer.rows) if view in ("log", "table") else (),
            points=_points_by_name(buffer) if view in ("bars", "histogram") else {},
        )
        for i, (buffer, label) in enumerate(zip(buffers, labels, strict=True))
    ]
    x_name = _x_name(view, options, x_buffer)
    categories: tuple[str, ...] = ()
    if frames and any(item.values for item in items):
        x_name, categories = "", categories_of(items)
        series += [line for item in items for line in frame_lines(item, categories, options.history)]
    return Scene(
        view=view,
        title=one_line(title) if title is not None else ", ".join(labels),
        subtitle=_subtitle(buffers),
        options=options,
        x_name=x_name,
        categories=categories,
        series=tuple(series),
        items=tuple(items),
        texts=tuple(texts) if view in ("xy", "scatter", "annotated") else (),
        marks=tuple(at for buffer in buffers for at in buffer.marks) if view == "line" and not categories else (),
        notices=(
            *notices,
            *(notice for t, label in zip(buffers, labels, strict=True) for notice in notices_of(t, label, view)),
        ),
    )


def label_streams(buffers: Sequence[SeriesBuffer]) -> list[str]:
    """Name streams so that they can be told apart: by tag, with the run where two tags are the same."""
    tags = [one_line(buffer.source.tag) for buffer in buffers]
    runs = [_run(buffer) for buffer in buffers]
    return [f"{run} · {tag}" if tags.count(tag) > 1 and run else tag for run, tag in zip(runs, tags, strict=True)]


def frames_of(item: LatestRecord, history: int) -> list[tuple[float, Record]]:
    """Return the last frames of a stream, the oldest first, and how strongly each is drawn.

    The newest counts in full; older ones fade from half to an eighth, as in every other surface.
    """
    shown = item.values[-1 - history :]
    n = len(shown)
    return [(1.0 if age == 0 else 0.12 + 0.38 * (1 - age / n), shown[-1 - age]) for age in range(n - 1, -1, -1)]


def frame_values(record: Record) -> dict[str, float]:
    """Return the numbers of a frame by their names, or by their places in a vector."""
    value = record.value
    if isinstance(value, Histogram):
        middles = (value.edges[1:] + value.edges[:-1]) / 2
        return {number(at): float(count) for at, count in zip(middles, value.counts, strict=True)}
    if isinstance(value, dict):
        return {one_line(name): float(item) for name, item in flatten(value)}
    return {str(i): float(item) for i, item in enumerate(as_floats(value).ravel()[:MAX_PIXELS])}


def categories_of(items: Sequence[LatestRecord]) -> tuple[str, ...]:
    """Return the names along x of frames: those of the newest frame of each stream, in their order."""
    found: dict[str, None] = {}
    for item in items:
        if item.values:
            found |= dict.fromkeys(frame_values(item.values[-1]))
    return tuple(found)[:MAX_PIXELS]


def frame_lines(item: LatestRecord, categories: Sequence[str], history: int) -> list[LineSeries]:
    """Return the last frames of a stream as lines over the places, the oldest first."""
    lines = []
    for alpha, record in frames_of(item, history):
        values = frame_values(record)
        y = np.array([values.get(place, np.nan) for place in categories])
        newest = alpha == 1.0
        label, value = (item.label, f"step {number(record.step)}") if newest else ("", "")
        x = np.arange(len(categories), dtype=np.float64)
        lines.append(LineSeries(label=label, color=item.color, x=x, y=y, value=value, alpha=alpha))
    return lines


def styles_of(buffers: Sequence[SeriesBuffer]) -> list[tuple[int, int]]:
    """Return for each stream its colour's number and its dashes': a colour for each run where tags come again."""
    tags, runs = [buffer.source.tag for buffer in buffers], [_run(buffer) for buffer in buffers]
    if len(set(runs)) > 1 and len(set(tags)) < len(tags):
        at_run, at_tag = [list(dict.fromkeys(names)) for names in (runs, tags)]
        return [(at_run.index(run), at_tag.index(tag)) for run, tag in zip(runs, tags, strict=True)]
    firsts = np.cumsum([0, *(max(1, len(buffer.lines)) for buffer in buffers)])
    return [(int(first), 0) for first in firsts[:-1]]


def _run(buffer: SeriesBuffer) -> str:
    return one_line(buffer.last.run) if buffer.last else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineReader:
    """How lines are taken from traces."""

    options: Options
    x_buffer: SeriesBuffer | None
    visible_x: Span | None
    n_pixels: int

    def series(self, buffer: SeriesBuffer, label: str, *, style: tuple[int, int], single: bool) -> list[LineSeries]:
        """Return the lines of one stream."""
        found: list[LineSeries] = []
        for i, (name, points) in enumerate(buffer.lines.items()):
            color, state = line_color(style[0] + i), _state(buffer.last)
            columns = self._columns_on_x(points)
            if buffer.kind in ("vector", "histogram"):
                full = f"{label} (median, 10–90 %)"
                found.append(self._band(columns, label=full, color=color, dash=style[1], state=state))
                continue
            full = label
            if name and buffer.kind == "numbers":
                full = one_line(name) if single else f"{label} · {one_line(name)}"
            over_steps = buffer.kind in ("number", "numbers")
            made = self._over_steps(columns) if over_steps else self._path(columns)
            # The last of all, whatever is in view, and as it came.
            last = points.columns[:, -1]
            value = number(last[1]) if over_steps else f"({', '.join(map(number, last))})"
            found.append(LineSeries(label=full, color=color, dash=style[1], value=value, state=state, **made))
        return found

    def _columns_on_x(self, points: Points) -> Floats:
        """Return the columns of a line, over what x is, and no more of them than asked for."""
        columns = points.columns[:, -self.options.last :] if self.options.last else points.columns
        if self.x_buffer is None:
            return columns
        if "" not in self.x_buffer.lines:
            return columns[:, :0]
        steps, xs = self.x_buffer.lines[""].columns
        at = np.searchsorted(steps, columns[0])
        known = at < len(steps)
        known[known] = steps[at[known]] == columns[0][known]
        return np.concatenate([xs[at[known]][None], columns[1:, known]])

    def _over_steps(self, columns: Floats) -> dict[str, Any]:
        x, y = _cut(columns, self.visible_x)
        if np.isnan(x).any():  # records without this step
            x, y = x[~np.isnan(x)], y[~np.isnan(x)]
        x, y = thin(x, y, self.n_pixels)
        if self.options.smooth:
            return {"x": x.copy(), "y": smooth(y, self.options.smooth), "raw": y.copy()}
        # Copies: the trace goes on writing where a view of its columns would look.
        return {"x": x.copy(), "y": y.copy()}

    def _path(self, columns: Floats) -> dict[str, Any]:
        if len(columns) == 3:
            kept = np.linspace(0, columns.shape[1] - 1, min(columns.shape[1], 2 * self.n_pixels)).astype(np.intp)
            x, y, z = columns[:, kept]
            return {"x": x, "y": y, "z": z}
        x, y = thin_path(columns[0], columns[1], self.n_pixels)
        return {"x": x.copy(), "y": y.copy()}

    def _band(self, columns: Floats, *, label: str, color: str, dash: int, state: str) -> LineSeries:
        """Return a distribution over the steps: its middle, and where most of it lies."""
        x, low, middle, high = _cut(columns, self.visible_x)
        kept = np.linspace(0, len(x) - 1, min(len(x), 2 * self.n_pixels)).astype(np.intp)
        y = middle[kept]
        value = number(columns[2][-1]) if columns.shape[1] else ""
        return LineSeries(
            label=label, color=color, dash=dash, state=state, value=value,
            x=x[kept], y=smooth(y, self.options.smooth), low=low[kept], high=high[kept],
        )  # fmt: skip


def _cut(columns: Floats, visible_x: Span | None) -> Floats:
    """Return the columns within what is in view, and one point at each side; all where x goes back."""
    x = columns[0]
    if visible_x is None or len(x) < 2 or (np.diff(x) < 0).any():
        return columns
    first, end = np.searchsorted(x, visible_x[0], side="left"), np.searchsorted(x, visible_x[1], side="right")
    return columns[:, max(0, int(first) - 1) : int(end) + 1]


def _x_name(view: ViewName | None, options: Options, x_buffer: SeriesBuffer | None) -> str:
    if view in ("xy", "scatter", "annotated", "line3d"):
        return "x"
    if x_buffer is not None:
        return one_line(x_buffer.source.tag)
    return {"relative": "seconds", "wall": "time", "index": "record"}.get(str(options.x), one_line(options.x))


def _points_by_name(buffer: SeriesBuffer) -> dict[str, tuple[Floats, Floats]]:
    return {name: _thinned(points) for name, points in buffer.lines.items() if len(points.columns) == 2}


def _thinned(points: Points) -> tuple[Floats, Floats]:
    x, y = thin(points.columns[0], points.columns[1], MAX_PIXELS)
    # Copies: the trace goes on writing where a view of its columns would look.
    return x.copy(), y.copy()


def _state(record: Record | None) -> str:
    if record is None:
        return ""
    return "open" if not record.closed else "partial" if not record.complete else ""


def _subtitle(buffers: Sequence[SeriesBuffer]) -> str:
    records = [buffer.last for buffer in buffers if buffer.last]
    if not records:
        return ""
    runs = list(dict.fromkeys(one_line(record.run) for record in records if record.run))
    step = max(record.step for record in records)
    x_buffer = " · ended" if all(buffer.ended for buffer in buffers) else ""
    return f"{', '.join(runs[:3])}{' · ' if runs else ''}step {number(step)}{x_buffer}"


def notices_of(buffer: SeriesBuffer, label: str, view: str | None = None) -> list[str]:
    """Say what of a stream is not drawn as it came."""
    found = []
    if buffer.failure:
        found.append(f"{label}: {one_line(buffer.failure)}")
    if buffer.n_unfit:
        was = "1 value is" if buffer.n_unfit == 1 else f"{buffer.n_unfit:,} values are"
        last = f" (last: {one_line(buffer.unfit)})" if buffer.unfit else ""
        expected = KIND_NAMES[buffer.kind or "other"]
        found.append(f"{label}: {was} not drawn: expected {expected}{last}")
    if buffer.n_missed:
        found.append(f"{label}: {buffer.n_missed:,} record{'s' if buffer.n_missed > 1 else ''} missed")
    if any(points.thinned for points in buffer.lines.values()):
        n_kept = sum(points.columns.shape[1] for points in buffer.lines.values())
        n_seen = sum(points.n_seen for points in buffer.lines.values())
        found.append(f"{label}: {n_kept:,} of {n_seen:,} points kept, all extremes among them")
    if buffer.n_lines_left_out and view == "line":
        found.append(f"{label}: more names than the {len(buffer.lines)} drawn")
    return found
