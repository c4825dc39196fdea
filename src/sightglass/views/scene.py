"""The immutable state of a view, passed from the thread that pulls to the thread that paints.

`scene_of` takes it from the buffers; each surface's painters draw it. Its points are thinned to more than the width of
a terminal, so a scene is small, and taking it costs about a millisecond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.core.source import Source
from sightglass.core.values import Histogram

from .choose import ROW_VIEWS, Choice, ViewName, flatten
from .labels import axis_labels, label_streams, notices_of, shown_in_all, styles_of, subtitle_of
from .options import Options, Span, line_color
from .passes import LinePart, fading, going_on, ordered, parts_of, passes_of
from .scales import number
from .series_buffer import OVER_X, SeriesBuffer, as_floats
from .smoothing import smooth
from .summaries import Row, one_line
from .thinning import Points, thin, thin_indices, thin_path

# Twice the dots of a very wide terminal, and half the pixels of a large screen.
MAX_PIXELS = 2000
LINE_VIEWS: frozenset[ViewName] = frozenset({"line", "xy", "scatter", "annotated", "line3d"})

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSeries:
    """One line.

    Attributes:
        label: Its name in the legend; "" for a line that is not in the legend.
        color: Its colour.
        x: Shape (n,).
        y: Shape (n,); NaN is a gap.
        z: Shape (n,), for a 3-D line.
        raw: Shape (n,): y before smoothing.
        low: Shape (n,): the lower edge of the band around it; NaN is a gap.
        high: Shape (n,): the upper edge.
        value: The last value, as text.
        state: A remark about the last value, for example "open".
        dash: The index of its dash pattern, 0 for solid: distinguishes tags if colours distinguish runs.
        second: Whether it is drawn against the y axis on the right.
        alpha: Its opacity, from 0 to 1: older frames and passes fade.
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
    """The latest record of one stream, and its last records as text.

    Attributes:
        label: The stream's name.
        color: Its colour.
        record: The last record that could be drawn, or `None`.
        values: The last records, if their values fill a frame each; the newest last.
        rows: The last records as text.
        points: The points of its lines, x and y, by name.
    """

    label: str
    color: str
    record: Record | None
    values: tuple[Record, ...] = ()
    rows: tuple[Row, ...] = ()
    points: dict[str, tuple[Floats, Floats]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that one drawing shows.

    Attributes:
        view: The view; `None` before the first value.
        title: The title.
        subtitle: The run, how much is shown and the step, opposite the title.
        options: How to draw.
        axes: The labels of x, y and z; "" for an axis without one.
        categories: The labels along x, if x counts the entries of a frame.
        series: The lines, for views made of lines.
        items: The streams, for views of their latest values.
        texts: Annotations: x, y, text, colour.
        marks: The x of values that were computed from a part of their window.
        restarts: The x at which a run began again, for lines.
        notices: Notices for the reader, one sentence each.
    """

    view: ViewName | None
    title: str
    subtitle: str = ""
    options: Options = Options()  # noqa: RUF009  frozen
    axes: tuple[str, ...] = ("step", "", "")
    categories: tuple[str, ...] = ()
    series: tuple[LineSeries, ...] = ()
    items: tuple[LatestRecord, ...] = ()
    texts: tuple[tuple[float, float, str, str], ...] = ()
    marks: tuple[float, ...] = ()
    restarts: tuple[float, ...] = ()
    notices: tuple[str, ...] = ()

    def side(self, *, second: bool) -> str:
        """Return the label of the y axis on one side: of the lines on it, if there are two; "" for none."""
        if not any(series.second for series in self.series):
            return self.axes[1]
        return ", ".join(series.label for series in self.series if series.label and series.second == second)


def scene_of(
    buffers: Sequence[SeriesBuffer],
    *,
    choice: Choice | None,
    title: str | None = None,
    options: Options | None = None,
    second: Sequence[Source] = (),
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
        notices: Further notices for the reader.
        visible_x: The limits of x in view.
        n_pixels: The width of the drawing.
    """
    options = options or Options()
    labels = label_streams(buffers)
    view = choice.view if choice else None
    frames = options.frames and view in ("line", "bars")
    reader = _LineReader(options=options, visible_x=visible_x, n_pixels=n_pixels)
    if options.smooth and view == "line":
        reader = replace(reader, extent=reader.extent_of(buffers))
    series: list[LineSeries] = []
    for buffer, label, style in zip(buffers, labels, styles_of(buffers), strict=True):
        if view not in LINE_VIEWS or (frames and buffer.values):
            continue
        found = reader.series(buffer, label, style=style, single=len(buffers) == 1)
        series += [replace(one, second=any(buffer.source is source for source in second)) for one in found]
    texts = [(x, y, text, line_color(i)) for i, buffer in enumerate(buffers) for x, y, text in buffer.texts]
    items = [
        LatestRecord(
            label=label,
            color=line_color(i),
            record=buffer.latest,
            values=tuple(buffer.values),
            rows=tuple(buffer.rows) if view in ROW_VIEWS else (),
            points=_points_by_name(buffer) if view in ("bars", "histogram") else {},
        )
        for i, (buffer, label) in enumerate(zip(buffers, labels, strict=True))
    ]
    names = axis_labels(view, [one_line(buffer.source.tag) for buffer in buffers], options)
    categories: tuple[str, ...] = ()
    if frames and any(item.values for item in items):
        names, categories = ("", "", ""), categories_of(items)
        series += [line for item in items for line in frame_lines(item, categories, options.history)]
    return Scene(
        view=view,
        title=one_line(title) if title is not None else ", ".join(labels),
        subtitle=subtitle_of(buffers, shown=shown_in_all(buffers, view, options)),
        options=options,
        axes=names,
        categories=categories,
        series=tuple(series),
        items=tuple(items),
        texts=tuple(texts) if view in ("xy", "scatter", "annotated") else (),
        marks=tuple(at for buffer in buffers for at in buffer.marks) if view == "line" and not categories else (),
        restarts=reader.restarts(buffers) if view == "line" and not categories else (),
        notices=(
            *notices,
            *(one for t, label in zip(buffers, labels, strict=True) for one in notices_of(t, label, view, options)),
        ),
    )


def frames_of(item: LatestRecord, history: int) -> list[tuple[float, Record]]:
    """Return the last frames of a stream with their opacity, the oldest first.

    The newest is opaque; older ones fade from a half to an eighth, as on every other surface.
    """
    shown = item.values[-1 - history :]
    n = len(shown)
    return [(fading(age, n), shown[-1 - age]) for age in range(n - 1, -1, -1)]


def frame_values(record: Record) -> dict[str, float]:
    """Return the numbers of a frame by name, or by index for a vector."""
    value = record.value
    if isinstance(value, Histogram):
        middles = (value.edges[1:] + value.edges[:-1]) / 2
        return {number(at): float(count) for at, count in zip(middles, value.counts, strict=True)}
    if isinstance(value, dict):
        return {one_line(name): float(item) for name, item in flatten(value)}
    return {str(i): float(item) for i, item in enumerate(as_floats(value).ravel()[:MAX_PIXELS])}


def categories_of(items: Sequence[LatestRecord]) -> tuple[str, ...]:
    """Return the labels along x of frames: the names in the newest frame of each stream, in their order."""
    found: dict[str, None] = {}
    for item in items:
        if item.values:
            found |= dict.fromkeys(frame_values(item.values[-1]))
    return tuple(found)[:MAX_PIXELS]


def frame_lines(item: LatestRecord, categories: Sequence[str], history: int) -> list[LineSeries]:
    """Return the last frames of a stream as lines over the categories, the oldest first."""
    lines = []
    for alpha, record in frames_of(item, history):
        values = frame_values(record)
        y = np.array([values.get(place, np.nan) for place in categories])
        newest = alpha == 1.0
        label, value = (item.label, f"step {number(record.step)}") if newest else ("", "")
        x = np.arange(len(categories), dtype=np.float64)
        lines.append(LineSeries(label=label, color=item.color, x=x, y=y, value=value, alpha=alpha))
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class _LineReader:
    """Reads lines from buffers."""

    options: Options
    visible_x: Span | None
    n_pixels: int
    extent: float = 0.0  # the length of the visible x axis, if lines are smoothed

    def extent_of(self, buffers: Sequence[SeriesBuffer]) -> float:
        """Return the length of the x axis that all lines of these streams share."""
        if visible := self.visible_x or self.options.x_limits:
            return visible[1] - visible[0]
        columns = (self._columns(points)[0] for buffer in buffers for points in buffer.lines.values())
        known = [x[np.isfinite(x)] for x in map(self._last, columns)]
        ends = [(float(x.min()), float(x.max())) for x in known if len(x)]
        return max(high for _, high in ends) - min(low for low, _ in ends) if ends else 0.0

    def restarts(self, buffers: Sequence[SeriesBuffer]) -> tuple[float, ...]:
        """Return the x at which runs began again."""
        found = set[float]()
        for buffer in buffers:
            for points in list(buffer.lines.values())[:1] if buffer.restarts else ():
                x = self._columns(points)[0]
                rows = np.searchsorted(points.indexes, buffer.restarts)
                found |= set(x[rows[rows < len(x)]].tolist())
        return tuple(sorted(at for at in found if np.isfinite(at)))

    def _columns(self, points: Points) -> Floats:
        if self.options.x != "relative":
            return points.columns
        return np.stack([going_on(points.columns[0]), *points.columns[1:]])

    def series(self, buffer: SeriesBuffer, label: str, *, style: tuple[int, int], single: bool) -> list[LineSeries]:
        """Return the lines of one stream."""
        found: list[LineSeries] = []
        for i, (name, points) in enumerate(buffer.lines.items()):
            full = label
            if name and buffer.kind == "numbers":
                full = one_line(name) if single else f"{label} · {one_line(name)}"
            elif buffer.kind in ("vector", "histogram"):
                full = f"{label} (median, 10–90 %)"
            # The last value of all, unsmoothed, whatever is in view.
            last = points.columns[:, -1] if len(points.indexes) else np.full(len(points.columns), np.nan)
            of_y = number(last[len(last) // 2]) if len(points.indexes) else ""
            value = of_y if buffer.kind in OVER_X else f"({', '.join(map(number, last))})"
            parts = self._over_x(buffer, points) if buffer.kind in OVER_X else [(1.0, self._path(points.columns))]
            n_faint = sum(alpha < 1 for alpha, _ in parts)
            state = ", ".join(filter(None, [record_state(buffer.last), "earlier passes faint" if n_faint else ""]))
            line = LineSeries(
                label=full, color=line_color(style[0] + i), dash=style[1], value=value, state=state, **parts[-1][1]
            )
            earlier = replace(line, label="", value="", state="")
            for alpha, part in parts[:-1]:
                raw = part.get("raw") if alpha == 1 else None  # behind faint lines it would only be noise
                found.append(replace(earlier, alpha=alpha, **(part | {"raw": raw})))
            found.append(line)
        return found

    def _over_x(self, buffer: SeriesBuffer, points: Points) -> list[tuple[float, dict[str, Any]]]:
        """Return the parts of a line over x with their opacity, the newest last."""
        columns, restarts = self._columns(points), np.searchsorted(points.indexes, buffer.restarts)
        means = points.means if self.options.smooth else None
        known = ~np.isnan(columns[0])
        if not known.all():  # records without this step
            columns, restarts = columns[:, known], np.concatenate(([0], np.cumsum(known)))[restarts]
            means = None if means is None else means[known]
        counts = isinstance(self.options.x, str) and self.options.x not in ("relative", "index")
        passes = passes_of(columns[0], restarts=restarts.tolist(), counts=counts)
        parts = passes and parts_of(columns[0], passes, history=self.options.history)
        if not passes or not parts:
            columns, means = ordered(columns), None
            passes, parts = [slice(None)], [LinePart(rows=slice(0, len(columns[0])))]
        smoothed = self._smoothed(columns, means, passes)
        first = max(0, len(columns[0]) - self.options.last) if self.options.last else 0
        seen = [(part.alpha, slice(max(part.rows.start, first), part.rows.stop)) for part in parts]
        of_rows = self._line if len(columns) == 2 else self._band
        return [
            (alpha, of_rows(columns[:, rows], None if smoothed is None else smoothed[rows]))
            for alpha, rows in seen
            if rows.start < rows.stop or rows == seen[-1][1]
        ]

    def _smoothed(self, columns: Floats, means: Floats | None, passes: Sequence[slice]) -> Floats | None:
        """Return the smoothed y, each pass by itself, before anything is left out; `None` if y is not smoothed."""
        if not self.options.smooth:
            return None
        x, y = columns[0], columns[len(columns) // 2]
        smoothed = [
            smooth(
                x[rows], y[rows], self.options.smooth, extent=self.extent, means=None if means is None else means[rows]
            )
            for rows in passes
        ]
        return np.concatenate(smoothed)

    def _last(self, columns: Floats) -> Floats:
        """Return only the last `options.last` points."""
        return columns[..., -self.options.last :] if self.options.last else columns

    def _line(self, columns: Floats, smoothed: Floats | None) -> dict[str, Any]:
        if smoothed is None:
            x, y = _cut(columns, self.visible_x)
            x, y = thin(x, y, self.n_pixels)
            # Copies: the buffer overwrites its columns.
            return {"x": x.copy(), "y": y.copy()}
        line = _cut(np.stack([*columns, smoothed]), self.visible_x)
        x, raw, y = line[:, thin_indices(line[1], self.n_pixels)]
        return {"x": x, "y": y, "raw": raw}

    def _path(self, columns: Floats) -> dict[str, Any]:
        columns = self._last(columns)
        if len(columns) == 3:
            kept = np.linspace(0, columns.shape[1] - 1, min(columns.shape[1], 2 * self.n_pixels)).astype(np.intp)
            x, y, z = columns[:, kept]
            return {"x": x, "y": y, "z": z}
        x, y = thin_path(columns[0], columns[1], self.n_pixels)
        return {"x": x.copy(), "y": y.copy()}

    def _band(self, columns: Floats, smoothed: Floats | None) -> dict[str, Any]:
        """Return a distribution over steps: its median, and the band of its inner 80 %."""
        x, low, middle, high = columns
        line = _cut(np.stack([x, low, middle if smoothed is None else smoothed, high]), self.visible_x)
        n = line.shape[1]
        x, low, y, high = line[:, np.linspace(0, n - 1, min(n, 2 * self.n_pixels)).astype(np.intp)]
        return {"x": x, "y": y, "low": low, "high": high}


def _cut(columns: Floats, visible_x: Span | None) -> Floats:
    """Return the columns in view and one point on each side; all columns if x is not sorted."""
    x = columns[0]
    if visible_x is None or len(x) < 2 or (np.diff(x) < 0).any():
        return columns
    first, end = np.searchsorted(x, visible_x[0], side="left"), np.searchsorted(x, visible_x[1], side="right")
    return columns[:, max(0, int(first) - 1) : int(end) + 1]


def _points_by_name(buffer: SeriesBuffer) -> dict[str, tuple[Floats, Floats]]:
    return {name: _thinned(points) for name, points in buffer.lines.items() if len(points.columns) == 2}


def _thinned(points: Points) -> tuple[Floats, Floats]:
    x, y = thin(points.columns[0], points.columns[1], MAX_PIXELS)
    # Copies: the buffer overwrites its columns.
    return x.copy(), y.copy()


def record_state(record: Record | None) -> str:
    """Return what is to be said of a record besides its value."""
    if record is None:
        return ""
    state = "open" if not record.closed else "partial" if not record.complete else ""
    return ", ".join(filter(None, (state, "approximate" if record.approximate else "")))
