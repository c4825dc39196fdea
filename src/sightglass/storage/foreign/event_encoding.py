"""Encode values as events of other programs: what their formats share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Tensor, Text, is_real, to_host
from sightglass.storage.format import png
from sightglass.storage.format.summary import bytes_field, double_field, varint_field

Encodable = float | npt.NDArray[Any] | Histogram | Image | Figure | Text | Audio | Table
Encode = Callable[[Encodable], list[Buffer]]
Encoded = tuple[list[Buffer], dict[str, str]]


def encode_values(values: Mapping[str, Any], encode: Encode, *, step: float, wall_time: float) -> Encoded:
    """Encode an Event that holds values under their tags; its fields 1, 2 and 5, and the tag's, are in every format.

    Args:
        values: The values by their tags; nested mappings become tags with slashes.
        encode: Encodes one value, without its tag; raises UnsendableError.
        step: Cut to an integer; 0 if it is not finite.
        wall_time: In seconds since the Unix epoch.

    Returns:
        The payload, in parts (none if no value can be encoded), and the reason for each tag that was left out.
    """
    parts: list[Buffer] = []
    left_out: dict[str, str] = {}
    for tag, value in leaves(values):
        try:
            parts += bytes_field(1, *bytes_field(1, tag.encode()), *encode(encodable(value)))
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
    """Yield the values of nested mappings, by names with slashes."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def encodable(value: object) -> Encodable:
    """Convert a value to a type that other programs have.

    Numbers become floats; arrays and lists of numbers become NumPy arrays of at least one dimension; several images
    become one, with uint8 pixels; a str becomes `Text`.

    Raises:
        UnsendableError: Other programs have no such type.
        ValueError: The shape or dtype is not that of an image.
    """
    value = to_host(value)
    if isinstance(value, Tensor | list | tuple):
        value = np.asarray(value.value if isinstance(value, Tensor) else value)
    match value:
        case str():
            return Text(value)
        case Histogram() | Figure() | Text() | Audio() | Table():
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
            return value if value.ndim else encodable(value[()])
    raise UnsendableError(
        f"Expected a number, array, histogram, image, sound, figure or text, got {type(value).__name__}"
    )
