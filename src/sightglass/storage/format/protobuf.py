"""The wire format of protobuf, read and written without the protobuf runtime.

Source: https://protobuf.dev/programming-guides/encoding. Nothing is allocated for a declared length: a field
that reaches beyond its message is an error, and values are views.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from sightglass.core.errors import WireError

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

MAX_VARINT_BYTES: Final = 10
_FIXED: Final = {FIXED64: 8, FIXED32: 4}


@cache
def key(number: int, wire_type: int) -> bytes:
    """Return the key of a field, which precedes its value."""
    return varint(number << 3 | wire_type)


def varint(value: int) -> bytes:
    """Encode a number of 64 bits; negative ones take ten bytes."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed(value: int) -> int:
    """Read a varint as an `int64`."""
    return value - 2**64 if value >= 2**63 else value


def read_varint(buffer: memoryview, place: int) -> tuple[int, int]:
    """Return the varint at a place, and the place after it.

    Raises:
        WireError: The bytes are not a varint.
    """
    value = shift = 0
    for byte in buffer[place : place + MAX_VARINT_BYTES]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value & 2**64 - 1, place + shift // 7
    raise WireError(f"Expected a varint of at most {MAX_VARINT_BYTES} bytes at {place} of {len(buffer)} bytes")


def spans(buffer: memoryview, start: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """Yield the fields of a message as (number, wire type, where its value begins, its length in bytes).

    For a varint, the third is its value and the length is 0.

    Args:
        buffer: The message, or only its beginning; a field that reaches beyond it is yielded, too.
        start: Where the message begins.
        end: Where it ends, which may lie beyond the buffer; by default where the buffer does.

    Raises:
        WireError: These are not the bytes of a message.
    """
    n, place = len(buffer), start
    end = n if end is None else end
    while place < min(end, n):
        head = buffer[place]
        if head < 0x80:
            place += 1
        else:
            head, place = read_varint(buffer, place)
        number, wire_type = head >> 3, head & 7
        if wire_type == VARINT:
            value, place = read_varint(buffer, place)
            length, begin = 0, value
        elif wire_type == BYTES:
            length, begin = read_varint(buffer, place)
            place = begin + length
        elif wire_type in _FIXED:
            begin, length = place, _FIXED[wire_type]
            place += length
        else:
            raise WireError(f"Expected a field of a known wire type at {place}, got {wire_type}")
        if place > end or not number:
            raise WireError(f"Expected a field that ends before {end}, got number {number} up to {place}")
        yield number, wire_type, begin, length


def walk(buffer: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    """Yield the fields of a whole message as (number, wire type, value): a number for varints, a view for all others.

    Raises:
        WireError: These are not the bytes of a message.
    """
    for number, wire_type, begin, length in spans(buffer):
        yield number, wire_type, begin if wire_type == VARINT else buffer[begin : begin + length]
