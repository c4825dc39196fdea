"""What TensorBoard's plugins draw besides one value at a time: precision-recall curves, and charts of several tags.

Sources, of TensorBoard 2.21: `plugins/pr_curve/summary.py` for the rows of a curve's tensor, `plugins/custom_scalar/
layout.proto` for `Layout`, `Category`, `Chart`, `MultilineChartContent` and `MarginChartContent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Text, is_real
from sightglass.storage.format import png, summary, wav
from sightglass.storage.format.summary import bytes_field, double_field, float_field, messages, text, varint_field

from .event_encoding import Encodable

PR_CURVES, CUSTOM_SCALARS = "pr_curves", "custom_scalars"
COUNTS: Final = ("true_positives", "false_positives", "true_negatives", "false_negatives")
ROWS: Final = (*COUNTS, "precision", "recall")
"""The rows of a curve's tensor."""

MAX_CHARTS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLayout:
    """A chart of several tags, as the program that wrote the file wants it.

    Attributes:
        category: The group of charts in which it stands.
        title: Its title.
        tags: Its tags, in which `.*` stands for any text; of a margin chart the values and their bounds.
    """

    category: str
    title: str
    tags: tuple[str, ...]


def curve_of(rows: npt.NDArray[Any]) -> Table:
    """Return a precision-recall curve as a table: a row for each threshold, evenly spaced from 0 to 1.

    Args:
        rows: Shape (6, n_thresholds), see `ROWS`.

    Raises:
        WireError: It has another shape or dtype.
    """
    if rows.ndim != 2 or len(rows) != len(ROWS) or rows.dtype.kind not in "iuf":
        raise WireError(f"Expected the 6 rows of a precision-recall curve, got {rows.dtype} of shape {rows.shape}")
    return Table({"threshold": np.linspace(0, 1, rows.shape[1]), **dict(zip(ROWS, rows, strict=True))})


def rows_of(curve: Table) -> npt.NDArray[Any]:
    """Return the rows of a precision-recall curve, of shape (6, n_thresholds); the reverse of `curve_of`.

    Raises:
        UnsendableError: The table is not one.
    """
    columns = curve.value
    numeric = all(isinstance(column, np.ndarray) and is_real(column.dtype) for column in columns.values())
    if [*columns] != ["threshold", *ROWS] or not numeric:
        raise UnsendableError(
            f"TensorBoard event files support tables of precision-recall curves only, got {curve!r:.200}"
        )
    if not np.allclose(columns["threshold"], np.linspace(0, 1, len(curve)), rtol=0):
        raise UnsendableError(
            "TensorBoard draws precision-recall curves at thresholds that are evenly spaced from 0 to 1"
        )
    return np.stack([columns[name] for name in ROWS])


def layout_of(message: memoryview) -> list[ChartLayout]:
    """Return the charts of a `Layout`, without those that name no tag.

    Raises:
        WireError: The bytes are not a `Layout`.
    """
    found = list[ChartLayout]()
    for category in messages(message, 2):
        name = _text(category, 1)
        for chart in messages(category, 2):
            tags = tuple(dict.fromkeys(_tags(chart)))
            if tags and len(found) < MAX_CHARTS:
                found.append(ChartLayout(category=name, title=_text(chart, 1) or tags[0], tags=tags))
    return found


def _tags(chart: memoryview) -> Iterator[str]:
    for lines in messages(chart, 2):
        yield from map(text, messages(lines, 1))
    for margins in messages(chart, 3):
        for series in messages(margins, 1):
            yield from (name for number in (1, 2, 3) if (name := _text(series, number)))


def _text(message: memoryview, number: int) -> str:
    return "".join(map(text, messages(message, number)))


# Values as TensorBoard's event files hold them; see `tensorboard` for what is read.

SIMPLE_VALUE, IMAGE, HISTO, AUDIO, TENSOR, METADATA = 2, 4, 5, 6, 8, 9
TEXT_METADATA: Final = (*bytes_field(1, *bytes_field(1, b"text")), varint_field(4, 2))

# Types.proto: the numbers of dtypes, and in which field of TensorProto their numbers are when not in its content.
STRING: Final = 7
DTYPES: Final = {
    1: ("float32", 5), 2: ("float64", 6), 3: ("int32", 7), 4: ("uint8", 7), 5: ("int16", 7), 6: ("int8", 7),
    8: ("complex64", 9), 9: ("int64", 10), 10: ("bool", 11), 14: ("bfloat16", 13), 17: ("uint16", 7),
    18: ("complex128", 12), 19: ("float16", 13), 22: ("uint32", 16), 23: ("uint64", 17),
}  # fmt: skip
DATA_TYPES: Final = {name: number for number, (name, _) in DTYPES.items()}
SHAPE, CONTENT, STRINGS = 2, 4, 8

Array = npt.NDArray[Any]


def encode_value(value: Encodable) -> list[Buffer]:
    """Return the fields of a Summary.Value that hold a value.

    Raises:
        UnsendableError: TensorBoard event files do not support it.
    """
    match value:
        case float():
            return [float_field(SIMPLE_VALUE, value)]
        case Histogram():
            return bytes_field(HISTO, *_encode_histogram(value))
        case np.ndarray():
            return _encode_array(value)
        case Table():
            rows = rows_of(value)
            plugin = (*bytes_field(1, PR_CURVES.encode()), *bytes_field(2, varint_field(2, len(value))))
            return [*_encode_array(rows), *bytes_field(METADATA, *bytes_field(1, *plugin), varint_field(4, 2))]
        case Image():
            return _encode_image(png.encode_png(value.value))
        case Figure():
            return _encode_image(value.data)
        case Audio():
            return _encode_audio(value)
        case Text():
            tensor = (*encode_tensor(STRING, ()), *bytes_field(STRINGS, value.value.encode()))
            return [*bytes_field(TENSOR, *tensor), *bytes_field(METADATA, *TEXT_METADATA)]
    raise UnsendableError(f"TensorBoard event files do not support {type(value).__name__}")


def _encode_array(value: Array) -> list[Buffer]:
    if value.dtype.name not in DATA_TYPES:
        raise UnsendableError(f"TensorBoard event files do not support arrays of {value.dtype}")
    tensor = encode_tensor(DATA_TYPES[value.dtype.name], value.shape)
    return bytes_field(TENSOR, *tensor, *bytes_field(CONTENT, summary.raw(value)))


def encode_tensor(data_type: int, shape: tuple[int, ...]) -> list[Buffer]:
    """Return the fields of a TensorProto that say which numbers follow."""
    sizes = [part for n in shape for part in bytes_field(2, varint_field(1, n))]
    return [varint_field(1, data_type), *bytes_field(SHAPE, *sizes)]


def _encode_image(data: bytes) -> list[Buffer]:
    picture = png.picture(data)
    if picture is None:
        raise UnsendableError("TensorBoard event files support PNG, JPEG and GIF images only")
    sizes = (varint_field(1, picture.height), varint_field(2, picture.width), varint_field(3, picture.n_channels))
    return bytes_field(IMAGE, *sizes, *bytes_field(4, data))


def _encode_audio(value: Audio) -> list[Buffer]:
    n, n_channels = wav.samples_of(value).shape
    sizes = (float_field(1, value.rate), varint_field(2, n_channels), varint_field(3, n))
    return bytes_field(AUDIO, *sizes, *bytes_field(4, wav.encode_wav(value)), *bytes_field(5, wav.MEDIA_TYPE.encode()))


def _encode_histogram(value: Histogram) -> list[Buffer]:
    counts, edges = value.counts.astype(np.float64), value.edges
    middles = edges[:-1] / 2 + edges[1:] / 2
    with np.errstate(over="ignore"):
        sums = (float(edges[0]), float(edges[-1]), counts.sum(), float(middles @ counts), float(middles**2 @ counts))
    fields = (double_field(number, item) for number, item in enumerate(sums, 1))
    return [*fields, *bytes_field(6, summary.raw(edges[1:])), *bytes_field(7, summary.raw(counts))]
