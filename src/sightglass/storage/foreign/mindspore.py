"""The event format of MindSpore's summary files: decode its events, and encode events that its reader understands.

Measured on mindspore 2.10: one Event holds all values of a step, and a tag may be there both as a scalar and as a
tensor. Scalars are float32, and so are the numbers of every tensor; the dtype it had is stored beside them. Buckets of
a histogram may have no width, because their edges are computed in the dtype of the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.values import Figure, Histogram, Image
from sightglass.storage.format import png, summary
from sightglass.storage.format.protobuf import BYTES, FIXED32, FIXED64, VARINT, signed, walk
from sightglass.storage.format.summary import (
    bytes_field,
    double,
    double_field,
    float_field,
    read_event,
    single,
    text,
    varint_field,
)

from .event_encoding import Encodable, Encoded, encode_values
from .event_format import LoggedValue, fields_once, figure, from_buckets

SUMMARY_FILE: Final = re.compile(r"summary\.(\d+)(?:\.(\d+)\.)?")
NOT_SUMMARIES: Final = ("_lineage", "_explain", ".pb")
PASSED_OVER: Final = {4: "graph", 6: "explanation", 1001: "block"}
SCALAR, IMAGE, TENSOR, HISTOGRAM, LANDSCAPE = 3, 4, 8, 9, 10
RGB: Final = 3

JOINS_STEPS: Final = False
RAW_FIELDS: Final = (3, 6, 8)
"""The data of a TensorProto as floats, as doubles and as bytes."""


def file_name(*, started: float, rank: int, hostname: str) -> str:
    """Return a file name that MindSpore's reader recognises."""
    return f"events.out.events.summary.{int(started)}.{rank}.{hostname}_MS"


def parse_name(name: str) -> tuple[int, int] | None:
    """Return when a summary file was started, in seconds since the Unix epoch, and its rank; `None` for other files.

    >>> parse_name("events.out.events.summary.1700000000.3.host_MS")
    (1700000000, 3)
    """
    found = SUMMARY_FILE.search(name)
    if found is None or name.endswith(NOT_SUMMARIES):
        return None
    return int(found[1]), int(found[2] or 0)


def decode_event(
    payload: memoryview, plugins: dict[str, str] | None = None, *, lost: bool = False
) -> list[LoggedValue]:
    """List the values of an event; see `EventFormat.decode_event`."""
    event = read_event(payload)
    step, wall_time = event.step, event.wall_time
    if wall_time is None:
        raise WireError("Expected an Event with a wall time, got none")
    values = [decode_value(value, {}, step=step, wall_time=wall_time) for value in event.values]
    others = (PASSED_OVER.get(number, f"field {number}") for number in event.others)
    return values + [LoggedValue(tag="", step=step, wall_time=wall_time, kind="unknown", type=what) for what in others]


def decode_value(
    buffer: memoryview, plugins: dict[str, str], *, step: int = 0, wall_time: float = 0.0, lost: bool = False
) -> LoggedValue:
    """Return one value of an event; see `EventFormat.decode_value`."""
    tag: str | None = None
    place, content = 0, memoryview(b"")
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number == 1 and kind == BYTES:
            tag = text(value)
        elif kind == (FIXED32 if number == SCALAR else BYTES):
            place, content = number, value
    if tag is None:
        raise WireError("Expected a value with a tag, got none")
    logged = partial(LoggedValue, tag=tag, step=step, wall_time=wall_time)
    match place:
        case 3:
            return logged(kind="scalar", type="float", stored_as="float32", read=partial(single, content))
        case 4:
            return logged(kind="image", type="Figure", read=partial(_decode_image, content))
        case 8:
            stored = summary.read_tensor(content)
            as_type = "" if stored.declared in ("", stored.dtype) else stored.dtype
            type_ = f"{stored.dtype}[{', '.join(map(str, stored.shape))}]"
            return logged(kind="tensor", type=type_, dtype=stored.declared, stored_as=as_type, read=stored.array)
        case 9:
            return logged(kind="histogram", type="Histogram", read=partial(_decode_histogram, content))
    return logged(kind="unknown", type="loss landscape" if place == LANDSCAPE else f"field {place}")


def find_scalar(event: memoryview, begin: int, end: int) -> tuple[str, int] | None:
    """Find the float32 of a plain scalar; see `EventFormat.find_scalar`."""
    match fields_once(event, begin, end):
        case {1: (2, tag, n), 3: (5, place, _), **others} if not others:
            return text(event[tag : tag + n]), place
    return None


def _decode_image(buffer: memoryview) -> Figure:
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number == 4 and kind == BYTES:
            return figure(value)
    raise WireError("Expected an image with the bytes of a picture, got none")


def _decode_histogram(buffer: memoryview) -> Histogram:
    buckets: list[tuple[float, float, int]] = []
    counts = {2: 0, 3: 0, 4: 0}
    stored: dict[int, float] = {}
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number == 1 and kind == BYTES:
            buckets.append(_decode_bucket(value))
        elif number in counts and kind == VARINT:
            counts[number] = signed(value)
        elif number in (5, 6, 7) and kind == FIXED64:
            stored[number] = double(value)
    columns = np.array(buckets, np.float64).reshape(-1, 3)
    with np.errstate(over="ignore", invalid="ignore"):
        rights = columns[:, 0] + columns[:, 1]
    outside = {"n_nan": counts[2], "n_posinf": counts[3], "n_neginf": counts[4]}
    least_most_sum = (stored.get(6, 0.0), stored.get(5, 0.0), stored.get(7, 0.0)) if stored else None
    return from_buckets(columns[:, 0], rights, columns[:, 2], **outside, stored=least_most_sum)


def _decode_bucket(buffer: memoryview) -> tuple[float, float, int]:
    left = width = 0.0
    count = 0
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        match number, kind:
            case 1, 1:
                left = double(value)
            case 2, 1:
                width = double(value)
            case 3, 0:
                count = signed(value)
    return left, width, count


def encode_event(values: Mapping[str, Any], *, step: float, wall_time: float) -> Encoded:
    """Encode an Event that MindSpore's reader understands; see `event_encoding.encode_values`.

    Numbers become float32 and images become PNG files in RGB. The format has no text and no complex numbers.
    """
    return encode_values(values, _encode_value, step=step, wall_time=wall_time)


def _encode_value(value: Encodable) -> list[Buffer]:
    match value:
        case float():
            return [float_field(SCALAR, value)]
        case np.ndarray() if value.dtype.kind != "c" and value.dtype.name in summary.DATA_TYPES:
            return bytes_field(TENSOR, *summary.encode_tensor(value))
        case np.ndarray():
            raise UnsendableError(f"MindSpore summary files do not support arrays of {value.dtype}")
        case Histogram():
            return bytes_field(HISTOGRAM, *_encode_histogram(value))
        case Image():
            return _encode_image(png.encode_png(png.rgb(value.value)))
        case Figure():
            return _encode_image(value.data)
    raise UnsendableError(f"MindSpore summary files do not support {type(value).__name__}")


def _encode_image(data: bytes) -> list[Buffer]:
    picture = png.picture(data)
    if picture is None or picture.media_type != "image/png":
        got = picture.media_type if picture else "another format"
        raise UnsendableError(f"MindSpore summary files support PNG images only, got {got}")
    sizes = (varint_field(1, picture.height), varint_field(2, picture.width), varint_field(3, RGB))
    return bytes_field(IMAGE, *sizes, *bytes_field(4, data))


def _encode_histogram(value: Histogram) -> list[Buffer]:
    parts: list[Buffer] = []
    for left, width, count in zip(value.edges, np.diff(value.edges), value.counts, strict=False) if value.total else ():
        parts += bytes_field(1, double_field(1, left), double_field(2, width), varint_field(3, int(count)))
    n_all = value.total + value.n_nan + value.n_posinf + value.n_neginf
    parts += [varint_field(2, value.n_nan), varint_field(3, value.n_posinf), varint_field(4, value.n_neginf)]
    if value.total:
        least, most, sum_ = value.stored or _estimated(value)
        parts += [double_field(5, most), double_field(6, least), double_field(7, sum_)]
    return [*parts, varint_field(8, n_all)]


def _estimated(value: Histogram) -> tuple[float, float, float]:
    """Return the smallest and the largest sample and the sum of all, as far as the bins tell."""
    middles = value.edges[:-1] / 2 + value.edges[1:] / 2
    with np.errstate(over="ignore"):
        return float(value.edges[0]), float(value.edges[-1]), float(middles @ value.counts)
