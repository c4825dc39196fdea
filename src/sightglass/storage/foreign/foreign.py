"""What other programs' record files have in common: what can be said in them, and histograms as buckets."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text, is_real, to_host
from sightglass.storage.format import png
from sightglass.storage.format.summary import bytes_field, double_field, varint_field

LARGEST: Final = float(np.finfo(np.float64).max)
MAX_COUNT: Final = 2.0**62
SLACK: Final = 1e-6

Encode = Callable[[Any], list[Buffer]]


def encode_values(
    values: Mapping[str, Any], encode: Encode, *, step: float, wall_time: float
) -> tuple[list[Buffer], dict[str, str]]:
    """Encode an Event that holds values under their tags; fields 1, 2 and 5, and the tag, are every dialect's.

    Args:
        values: Mappings in it become tags with slashes.
        encode: Encodes one value, as `sayable` gives it, but for its tag; raises UnsendableError.
        step: Cut to an integer; 0 if it is not finite.
        wall_time: Seconds since the Unix epoch.

    Returns:
        The payload, in parts (none if nothing can be said), and why what is not in it was left out, by tag.
    """
    parts: list[Buffer] = []
    left_out: dict[str, str] = {}
    for tag, value in leaves(values):
        try:
            parts += bytes_field(1, *bytes_field(1, tag.encode()), *encode(sayable(value)))
        except (UnsendableError, ValueError, OverflowError) as error:
            left_out[tag] = str(error)
    if parts:
        parts = [
            double_field(1, wall_time),
            varint_field(2, int(step) if math.isfinite(step) else 0),
            *bytes_field(5, *parts),
        ]
    return parts, left_out


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Go through the values of nested mappings by names with slashes."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def sayable(value: Any) -> float | npt.NDArray[Any] | Histogram | Image | Figure | Text:
    """Return a value as one of the kinds that other programs know.

    Numbers become floats, arrays and lists of numbers NumPy arrays of at least one dimension, several images one with
    uint8 pixels, texts `Text`.

    Raises:
        UnsendableError: It is none of these.
        ValueError: It is no such image.
    """
    value = to_host(value)
    if isinstance(value, Tensor | list | tuple):
        value = np.asarray(value.value if isinstance(value, Tensor) else value)
    match value:
        case str():
            return Text(value)
        case Histogram() | Figure() | Text():
            return value
        case Image():
            return Image(png.canvas(value.value))
        case Images():
            return Image(png.canvas(png.grid(value.value)))
        case bool() | int() | float():
            return float(value)
        case np.generic() if is_real(value.dtype):
            return float(value)
        case np.ndarray() if is_real(value.dtype) or value.dtype.kind == "c":
            return value if value.ndim else sayable(value[()])
    raise UnsendableError(f"Expected a number, array, histogram, image, figure or text, got {type(value).__name__}")


def figure(data: memoryview) -> Figure:
    """Return the picture file in these bytes."""
    told = png.picture(data)
    return Figure(bytes(data), told.media_type if told else "application/octet-stream")


def from_buckets(
    lefts: npt.ArrayLike,
    rights: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    n_nan: int = 0,
    n_posinf: int = 0,
    n_neginf: int = 0,
) -> Histogram:
    """Make a histogram of buckets; no count is lost.

    Buckets without a width give their counts to the next one, holes between buckets become empty bins.

    Raises:
        WireError: Buckets overlap, or are not finite, or counts are none.
    """
    with np.errstate(invalid="ignore"):
        left, right, count = (np.asarray(column, np.float64) for column in (lefts, rights, counts))
    if not (np.isfinite(left).all() and np.isfinite(right).all() and (left <= right).all()):
        raise WireError("Expected finite buckets whose left edge is not beyond the right one")
    if not (np.isfinite(count).all() and (count >= 0).all()) or count.sum() > MAX_COUNT:
        raise WireError("Expected counts from 0 to 2**62 in the buckets of a histogram")
    if min(n_nan, n_posinf, n_neginf) < 0:
        raise WireError("Expected counts from 0 on of what is not finite in a histogram")
    outside = {"n_nan": n_nan, "n_posinf": n_posinf, "n_neginf": n_neginf}
    if not len(left):
        return Histogram.from_counts([0], [0.0, 1.0], **outside)
    order = np.lexsort((right, left))
    left, right, count = left[order], right[order], np.rint(count[order])
    with np.errstate(over="ignore"):
        gap, slack = left[1:] - right[:-1], SLACK * (np.abs(left[1:]) + (right - left)[1:])
    if (gap < -slack).any():
        raise WireError("Expected buckets that do not overlap")
    holes = np.flatnonzero(gap > slack) + 1
    edges = np.insert(np.append(left, right[-1]), holes, right[holes - 1])
    count = np.insert(count, holes, 0)
    return Histogram.from_counts(*_merged(count.astype(np.int64), edges), **outside)


def _merged(counts: npt.NDArray[np.int64], edges: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """Give the counts of bins without a width to the next bin that has one, or to the last one."""
    wide = edges[1:] > edges[:-1]
    if not wide.any():
        padding = max(0.5, 2 * float(np.spacing(abs(edges[0]))))
        return [counts.sum()], np.array([edges[0] - padding, edges[0] + padding]).clip(-LARGEST, LARGEST)
    into = np.minimum(np.cumsum(wide) - wide, wide.sum() - 1)
    merged = np.zeros(wide.sum(), np.int64)
    np.add.at(merged, into, counts)
    return merged, np.append(edges[:-1][wide], edges[-1])
