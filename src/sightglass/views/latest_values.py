"""The latest values of streams in a form that any surface can draw: bars, histograms, matrices, images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.core.values import Histogram, Image, Images

from .choose import flatten
from .distributions import as_histogram
from .scene import LINE_VIEWS, Floats, LatestRecord, Scene
from .series_buffer import as_floats
from .summaries import one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        name: Its label.
        value: Its length.
        color: Its colour.
        ages: Its older values with their opacity, as (alpha, value), the oldest first.
    """

    name: str
    value: float
    color: str
    ages: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a matrix's colour scale.

    Attributes:
        low: The smallest finite entry; if signs differ, minus the largest magnitude.
        high: The largest finite entry; if signs differ, the largest magnitude.
        diverging: Whether signs differ, so that zero lies in the middle.
        n_bad: How many entries are not finite.
    """

    low: float
    high: float
    diverging: bool
    n_bad: int


def bars_of(item: LatestRecord, *, alone: bool, frames: Sequence[tuple[float, Any]] = ()) -> list[Bar]:
    """Return the bars of a stream's latest value.

    Args:
        item: The stream.
        alone: Whether it is the only stream, so that names need no prefix.
        frames: Older values with their opacity, as (alpha, value), the oldest first.
    """
    if item.record is None:
        return []
    before = "" if alone else f"{item.label}/"
    older = [(alpha, dict(_named(value, item.label))) for alpha, value in frames]
    return [
        Bar(
            name=name if not name or name == item.label else before + name,
            value=value,
            color=item.color,
            ages=tuple((alpha, values[name]) for alpha, values in older if name in values),
        )
        for name, value in _named(item.record.value, item.label)
    ]


def latest_histogram(item: LatestRecord) -> Histogram | None:
    """Return the histogram of a stream's latest value; for a stream of numbers, of all its numbers."""
    if item.record is None:
        return None
    found = as_histogram(item.record.value)
    return Histogram(item.points[""][1]) if found is None and "" in item.points else found


def density_of(histogram: Histogram) -> Floats:
    """Return the density in each bin, of shape (n_bins,); 0 for bins without a width."""
    with np.errstate(divide="ignore", invalid="ignore"):
        density = histogram.counts / np.diff(histogram.edges) / max(histogram.total, 1)
    return np.nan_to_num(density, posinf=0.0)


def bounds_of(matrix: Floats) -> Bounds:
    """Return the limits of a matrix's colour scale."""
    finite = matrix[np.isfinite(matrix)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    diverging = low < 0 < high
    if diverging:
        high = max(-low, high)
        low = -high
    return Bounds(low=low, high=high, diverging=diverging, n_bad=int(matrix.size - len(finite)))


def resample(data: Floats, height: int, width: int, *, mean: bool) -> Floats:
    """Resample an image or a matrix.

    Args:
        data: Shape (rows, columns, …).
        height: The number of rows wanted.
        width: The number of columns wanted.
        mean: Average the entries that share a pixel; by default the largest magnitude wins, and NaN over all.
    """
    for axis, n in ((0, height), (1, width)):
        length = data.shape[axis]
        if n >= length:
            data = np.take(data, np.arange(n) * length // n, axis=axis)
            continue
        starts = np.arange(n) * length // n
        if mean:
            sizes = np.diff([*starts, length]).reshape((-1, *(1,) * (data.ndim - 1 - axis)))
            data = np.add.reduceat(data, starts, axis=axis) / sizes
        else:
            low, high = np.minimum.reduceat(data, starts, axis=axis), np.maximum.reduceat(data, starts, axis=axis)
            data = np.where(abs(low) > abs(high), low, high)
    return data


def images_of(item: LatestRecord) -> list[tuple[Floats, str]]:
    """Return the images of a stream's latest value, of shape (height, width, 3) from 0 to 1, and their captions."""
    if item.record is None:
        return []
    match item.record.value:
        case Image(value=value, caption=caption):
            return [(_rgb(np.asarray(value)), one_line(caption))]
        case Images(value=value, captions=captions):
            names = [one_line(caption) for caption in captions] or [""] * len(value)
            return [(_rgb(picture), name) for picture, name in zip(np.asarray(value), names, strict=False)]
    array = np.asarray(item.record.value)
    return [(_rgb(picture), "") for picture in (array if array.ndim == 4 else array[None])]


def is_numbered(scene: Scene) -> bool:
    """Return whether bars are numbered rather than named: those of vectors."""
    values = [item.record.value for item in scene.items if item.record is not None]
    return bool(values) and all(not isinstance(value, Mapping) and as_floats(value).ndim == 1 for value in values)


def log_axis_notices(scene: Scene) -> list[str]:
    """Return a notice of the points that a logarithmic y axis leaves out."""
    if scene.view not in LINE_VIEWS or not scene.options.log_y:
        return []
    n = sum(int((series.y <= 0).sum()) for series in scene.series)
    points = "1 point" if n == 1 else f"{n:,} points"
    return [f"{points} at or below zero not shown on the logarithmic axis"] if n else []


def _named(value: Mapping[Any, Any] | npt.ArrayLike, label: str) -> list[tuple[str, float]]:
    if isinstance(value, Mapping):
        return [(one_line(name), float(item)) for name, item in flatten(value)]
    data = as_floats(value)
    if data.ndim == 0:
        return [(label, float(data))]
    return [(str(i), float(item)) for i, item in enumerate(data.ravel())]


def _rgb(picture: npt.NDArray[Any]) -> Floats:
    """Return an image as shape (height, width, 3) from 0 to 1; transparent pixels show middle grey."""
    data = picture.astype(np.float64) / (255 if picture.dtype.kind in "iu" else 1)
    data = np.clip(np.nan_to_num(data if data.ndim == 3 else data[..., None]), 0, 1)
    if data.shape[-1] == 4:
        data = data[..., :3] * data[..., 3:] + 0.5 * (1 - data[..., 3:])
    return data if data.shape[-1] == 3 else np.repeat(data[..., :1], 3, axis=-1)
