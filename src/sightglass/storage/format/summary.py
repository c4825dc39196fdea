"""The messages in record files: MindSpore's `Event` and `Summary`, TensorBoard's, and ours.

Three programs write files of the same framing whose payloads are all called `Event`, with field numbers that mean
different things. The version record, the first of a file, names the program (`dialect`); it is never guessed. This
module reads what the three have in common.

The `.proto` files beside this module document the messages; no code needs them, or the protobuf runtime.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError

from .protobuf import BYTES, FIXED32, FIXED64, VARINT, key, signed, varint, walk

VERSION = re.compile(r"(\w{1,40})\.Event:(\d{1,9})")
SIGHTGLASS_VERSION, MINDSPORE_VERSION, TENSORBOARD_VERSION = "Sightglass.Event:2", "MindSpore.Event:1", "brain.Event:2"

Dialect = Literal["sightglass", "mindspore", "tensorboard", "wandb"]

DIALECTS: dict[str, tuple[Dialect, int]] = {
    "Sightglass": ("sightglass", 2),
    "MindSpore": ("mindspore", 1),
    "brain": ("tensorboard", 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHead:
    """The fields of an Event that all dialects have in common.

    Attributes:
        wall_time: Seconds since the Unix epoch, or `None` when it is missing.
        values: The bytes of each Summary.Value.
        others: The numbers of fields beyond these.
    """

    wall_time: float | None
    step: int
    version: str | None
    values: list[memoryview]
    others: list[int]


def dialect(version: str) -> Dialect:
    """Return whose messages a file holds, from the text of its version record.

    Raises:
        WireError: The program is unknown, or the version is newer than this package reads.

    >>> dialect("brain.Event:2")
    'tensorboard'
    """
    match = VERSION.fullmatch(version)
    if match is None or match[1] not in DIALECTS:
        known = ", ".join(repr(f"{name}.Event:{newest}") for name, (_, newest) in DIALECTS.items())
        raise WireError(f"Expected a file of version {known}, got {version!r:.100}")
    name, newest = DIALECTS[match[1]]
    if not 1 <= int(match[2]) <= newest:
        raise WireError(
            f"Expected a file of version {match[1]}.Event:{newest} at most, got {version!r}: update sightglass"
        )
    return name


def read_event(payload: memoryview) -> EventHead:
    """Read the fields of an Event that are the same in every dialect.

    Raises:
        WireError: These are not the bytes of an Event.
    """
    wall_time, step, version = None, 0, None
    values: list[memoryview] = []
    others: list[int] = []
    fields: Iterator[tuple[int, int, Any]] = walk(payload)
    for number, kind, value in fields:
        match number, kind:
            case 1, 1:
                wall_time = double(value)
            case 2, 0:
                step = signed(value)
            case 3, 2:
                version = text(value)
            case 5, 2:
                values += messages(value, 1)
            case _:
                others.append(number)
    return EventHead(wall_time=wall_time, step=step, version=version, values=values, others=others)


def encode_version(version: str, wall_time: float) -> list[Buffer]:
    """Return the payload of the first record of a file."""
    return [double_field(1, wall_time), *bytes_field(3, version.encode())]


def messages(buffer: memoryview, number: int) -> list[memoryview]:
    """Return the contents of a repeated field of messages or bytes."""
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    return [value for place, kind, value in fields if place == number and kind == BYTES]


def double(eight: memoryview) -> float:
    """Return the float64 in these eight bytes."""
    return float(struct.unpack("<d", eight)[0])


def single(four: memoryview) -> float:
    """Return the float32 in these four bytes."""
    return float(struct.unpack("<f", four)[0])


def text(content: Buffer) -> str:
    """Return the text in these bytes.

    Raises:
        WireError: The bytes are not UTF-8.
    """
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"Expected text as UTF-8, got {error.reason} at byte {error.start}") from None


def varint_field(number: int, n: int) -> bytes:
    """Write an integer, a bool or a member of an enumeration as a field."""
    return key(number, VARINT) + varint(n)


def double_field(number: int, value: float) -> bytes:
    """Write a float64 as a field."""
    return key(number, FIXED64) + struct.pack("<d", value)


def float_field(number: int, value: float) -> bytes:
    """Write a float32 as a field; a number that is too large becomes infinite."""
    try:
        return key(number, FIXED32) + struct.pack("<f", value)
    except OverflowError:
        return float_field(number, math.copysign(math.inf, value))


def bytes_field(number: int, *parts: Buffer) -> list[Buffer]:
    """Write bytes, a text or a message as a field, without copying them: write the buffers in order."""
    return [key(number, BYTES) + varint(sum(map(len, parts))), *parts]
