"""The messages in record files: MindSpore's `Event` and `Summary`, ours, and the bytes they are made of.

Three programs write files of the same framing whose payloads are all called `Event`, with field numbers that mean
different things. Which program it was stands in the version record, the first of a file; it is never guessed:
`dialect`.

Small messages can be read and written with the protobuf runtime: `message("Event")` is a class built at run time from
the packaged .proto files, in a descriptor pool of our own, so that no generated code fights another package's version
or names. What is large or frequent is read with `walk`, which checks every length against the buffer, copies nothing
and allocates nothing that a length in the file asks for, and is written with `varint_field`, `bytes_field` and the
like, which give buffers to be written one after the other. The format of the bytes:
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import MAX_DIMS, Buffer
from sightglass.core.errors import WireError

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import (
        DescriptorProto,
        EnumDescriptorProto,
        FieldDescriptorProto,
        FileDescriptorProto,
    )
    from google.protobuf.descriptor_pool import DescriptorPool

PACKAGE = "sightglass.summary"
PROTOS = ("anf_ir.proto", "summary.proto")
TOKEN = re.compile(r'//[^\n]*|"[^"]*"|[\w.]+|\S')

VARINT, FIXED64, DELIMITED, FIXED32 = 0, 1, 2, 5
MAX_FIELD = 2**29 - 1
MAX_VARINT_BYTES = 10

VERSION = re.compile(r"(\w{1,40})\.Event:(\d{1,9})")
SIGHTGLASS_VERSION, MINDSPORE_VERSION, TENSORBOARD_VERSION = "Sightglass.Event:1", "MindSpore.Event:1", "brain.Event:2"
DIALECTS: dict[str, tuple[Dialect, int]] = {
    "Sightglass": ("sightglass", 1),
    "MindSpore": ("mindspore", 1),
    "brain": ("tensorboard", 2),
}

DTYPES = {
    1: "bool",
    2: "int8",
    3: "int16",
    4: "int32",
    5: "int64",
    6: "uint8",
    7: "uint16",
    8: "uint32",
    9: "uint64",
    10: "float16",
    11: "float32",
    12: "float64",
    43: "complex64",
    44: "complex128",
    46: "bfloat16",
}
DATA_TYPES = {name: number for number, name in DTYPES.items()}
# The fields of TensorProto that hold numbers, and as what.
NUMBER_FIELDS = {3: "float32", 4: "int32", 5: "int64", 6: "float64", 7: "uint64"}
RAW_DATA = 8

Dialect = Literal["sightglass", "mindspore", "tensorboard"]
Kind = Literal["scalar", "tensor", "histogram", "image", "text", "unknown"]
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A value in somebody else's file, read when it is asked for.

    Attributes:
        kind: What the file says it is; "unknown" is passed over.
        type: The type of the value as `core.values.type_name` writes it; of the unknown, what it is, such as "audio".
        dtype: The dtype it was logged with, as far as the file tells; "" for what is no array.
        stored_as: The dtype that the file stores instead, or "".
        read: Reads the value; raises WireError when its bytes are none.
    """

    tag: str
    step: int
    wall_time: float
    kind: Kind
    type: str
    dtype: str = ""
    stored_as: str = ""
    read: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """Read the value.

        Raises:
            WireError: Its bytes are not those of such a value.
        """
        return self.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHead:
    """What all dialects have in common in an Event.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """An array as it lies in a message.

    Attributes:
        dtype: Of the numbers in `data`.
        declared: The name of the dtype that the message declares, or "".
        packed: Whether the numbers are varints, one after the other; else they are little-endian.
    """

    shape: tuple[int, ...]
    dtype: str
    declared: str
    data: Buffer
    packed: bool = False

    def array(self) -> Array:
        """Return the array, as a read-only view of the message wherever its bytes are those of the array.

        Raises:
            WireError: There are not as many numbers as the shape says.
        """
        numbers = _narrow(unpack_varints(self.data), self.dtype) if self.packed else from_raw(self.data, self.dtype)
        return shaped(numbers, self.shape)


def dialect(version: str) -> Dialect:
    """Tell which program's messages a file holds, from the text of its version record.

    Raises:
        WireError: Nobody known writes this, or a newer version of them.

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
    for number, kind, value in walk(payload):
        match number, kind:
            case 1, 1:
                wall_time = double(value)
            case 2, 0:
                step = signed(value)
            case 3, 2:
                version = text(value)
            case 5, 2:
                values += (item for place, form, item in walk(value) if place == 1 and form == DELIMITED)
            case _:
                others.append(number)
    return EventHead(wall_time=wall_time, step=step, version=version, values=values, others=others)


def encode_version(version: str, wall_time: float) -> list[Buffer]:
    """Return the payload of the first record of a file."""
    return [double_field(1, wall_time), *bytes_field(3, version.encode())]


def walk(buffer: memoryview) -> Iterator[tuple[int, int, Any]]:
    """Go through the fields of a message.

    Args:
        buffer: Of bytes (format "B").

    Yields:
        Number of the field, wire type and value: an int from 0 to 2**64 - 1 for a varint (see `signed`), a view of the
        content for what has a length, a view of 8 or 4 bytes for fixed64 and fixed32 (see `double`, `single`).

    Raises:
        WireError: A field does not end before the buffer does, or is of no known wire type.
    """
    for number, kind, start, end in spans(buffer):
        if kind:
            yield number, kind, buffer[start:end]
        else:
            yield number, VARINT, buffer[start] if end - start == 1 else _varint(buffer, start)[0]


def spans(buffer: memoryview, position: int = 0, end: int | None = None) -> Iterator[tuple[int, int, int, int]]:
    """Go through the fields of the message in `buffer[position:end]`, as `walk` does, without reading values.

    Yields:
        Number of the field, wire type, and where its value starts and ends in the buffer.

    Raises:
        WireError: As `walk`.
    """
    end = len(buffer) if end is None else end
    try:
        while position < end:
            key = buffer[position]
            position += 1
            if key > 127:
                key, position = _varint(buffer, position - 1)
            start, kind = position, key & 7
            if kind == DELIMITED:
                size = buffer[position]
                start += 1
                if size > 127:
                    size, start = _varint(buffer, position)
                position = start + size
            elif kind == VARINT:
                if buffer[position] > 127:
                    position = _varint(buffer, position)[1]
                else:
                    position += 1
            elif kind == FIXED64:
                position += 8
            elif kind == FIXED32:
                position += 4
            else:
                raise WireError(f"Expected wire type 0, 1, 2 or 5, got {kind} at byte {start}")
            if position > end or not 0 < key >> 3 <= MAX_FIELD:
                raise WireError(f"Expected a field within {end} bytes, got field {key >> 3} from {start} to {position}")
            yield key >> 3, kind, start, position
    except IndexError:
        raise WireError(f"Expected a whole field, got the end of the message at byte {end}") from None


def _varint(buffer: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 7 * MAX_VARINT_BYTES:
        byte = buffer[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
        shift += 7
    raise WireError(f"Expected an integer of at most {MAX_VARINT_BYTES} bytes, got a longer one at byte {position}")


def signed(n: int) -> int:
    """Return the int64 that is written as this varint."""
    return n - 2**64 if n >> 63 else n


def double(eight: memoryview) -> float:
    """Return the float64 in these eight bytes."""
    return float(struct.unpack("<d", eight)[0])


def single(four: memoryview) -> float:
    """Return the float32 in these four bytes."""
    return float(struct.unpack("<f", four)[0])


def text(content: Buffer) -> str:
    """Return the text in these bytes.

    Raises:
        WireError: They are no UTF-8.
    """
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"Expected text as UTF-8, got {error.reason} at byte {error.start}") from None


def varint(n: int) -> bytes:
    """Write an int64 or uint64 as a varint, seven bits a byte, lowest first; negative ones take ten bytes."""
    n &= 0xFFFF_FFFF_FFFF_FFFF
    if n < 128:
        return bytes((n,))
    parts = bytearray()
    while n > 127:
        parts.append(n & 127 | 128)
        n >>= 7
    parts.append(n)
    return bytes(parts)


def varint_field(number: int, n: int) -> bytes:
    """Write an integer, a bool or a member of an enumeration as a field."""
    return varint(number << 3) + varint(n)


def double_field(number: int, value: float) -> bytes:
    """Write a float64 as a field."""
    return varint(number << 3 | FIXED64) + struct.pack("<d", value)


def float_field(number: int, value: float) -> bytes:
    """Write a float32 as a field; what is too large becomes infinite."""
    try:
        return varint(number << 3 | FIXED32) + struct.pack("<f", value)
    except OverflowError:
        return float_field(number, math.copysign(math.inf, value))


def bytes_field(number: int, *parts: Buffer) -> list[Buffer]:
    """Write bytes, a text or a message as a field, without copying them: the buffers are to be written in order."""
    return [varint(number << 3 | DELIMITED) + varint(sum(map(len, parts))), *parts]


def raw(array: Array) -> memoryview:
    """Return the bytes of an array, little-endian, without copying them when they lie so."""
    if array.dtype.byteorder == ">" or (array.dtype.byteorder == "=" and not np.little_endian):
        array = array.astype(array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def from_raw(data: Buffer, dtype: str) -> Array:
    """Return the numbers in these bytes, little-endian, as a read-only view; bfloat16 needs ml_dtypes to be one.

    Raises:
        WireError: The bytes are not a whole number of them.
    """
    if dtype == "bfloat16":
        halves = from_raw(data, "uint16")
        if find_spec("ml_dtypes") is None:
            return (halves.astype(np.uint32) << 16).view(np.float32)
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]  # comes with JAX

        return halves.view(ml_dtypes.bfloat16)
    form = np.dtype(dtype).newbyteorder("<")
    if len(data) % form.itemsize:
        raise WireError(f"Expected a multiple of {form.itemsize} bytes for {dtype}, got {len(data)}")
    array = np.frombuffer(data, form) if len(data) else np.zeros(0, form)
    array.flags.writeable = False
    return array


def shaped(numbers: Array, shape: tuple[int, ...]) -> Array:
    """Return the numbers in this shape.

    Raises:
        WireError: There are not as many as the shape says, or there is no such shape.
    """
    if len(shape) > MAX_DIMS or min(shape, default=0) < 0 or math.prod(shape) != len(numbers):
        raise WireError(f"Expected as many numbers as shape {shape!r:.100} says, got {len(numbers)}")
    try:
        return numbers.reshape(shape)
    except ValueError as error:  # of an empty array whose other sizes are enormous
        raise WireError(f"Expected the shape of an array, got {shape!r:.100}: {error}") from None


def unpack_varints(data: Buffer) -> npt.NDArray[np.uint64]:
    """Read varints that lie one after the other.

    Raises:
        WireError: The last one has no end, or one has no end within ten bytes.
    """
    octets = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    last = np.flatnonzero(octets < 128)
    if not len(octets):
        return np.zeros(0, np.uint64)
    if len(last) == len(octets):
        return octets.astype(np.uint64)
    starts = np.concatenate(([0], last[:-1] + 1)) if len(last) else np.zeros(1, np.int64)
    if octets[-1] > 127 or (last - starts).max() >= MAX_VARINT_BYTES:
        raise WireError(f"Expected integers of at most {MAX_VARINT_BYTES} bytes each, got {len(data)} bytes of others")
    places = np.arange(len(octets)) - np.repeat(starts, last - starts + 1)
    bits = (octets & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts)


def _narrow(numbers: npt.NDArray[np.uint64], dtype: str) -> Array:
    return numbers.view(np.int64).astype(dtype) if dtype != "uint64" else numbers


def gather(found: dict[int, Buffer], number: int, value: Any) -> None:
    """Add a value of a repeated field of numbers, packed or alone, to those found; what comes once is not copied."""
    piece = varint(value) if isinstance(value, int) else value
    if number not in found:
        found[number] = piece
        return
    if not isinstance(found[number], bytearray):
        found[number] = bytearray(found[number])
    found[number] += piece  # type: ignore[operator]


def read_tensor(buffer: memoryview) -> StoredTensor:
    """Read a TensorProto of MindSpore's, or ours, but for its numbers.

    Its numbers are in one of several fields, whatever dtype is declared: MindSpore writes float32 for every dtype.

    Raises:
        WireError: These are not the bytes of one, or not as many as its shape needs.
    """
    sizes: dict[int, Buffer] = {}
    found: dict[int, Buffer] = {}
    data_type = 0
    for number, kind, value in walk(buffer):
        if number == 1 and kind in (VARINT, DELIMITED):
            gather(sizes, 1, value)
        elif number == 2 and kind == VARINT:
            data_type = value
        elif number in NUMBER_FIELDS and kind in (DELIMITED, _wire_type(NUMBER_FIELDS[number])):
            gather(found, number, value)
        elif number == RAW_DATA and kind == DELIMITED:
            found[RAW_DATA] = value
    filled = [number for number in found if len(found[number])]
    if len(filled) > 1:
        raise WireError(f"Expected the numbers of a tensor in one field, got them in {filled}")
    place = filled[0] if filled else next(iter(found), 3)
    declared = DTYPES.get(data_type, f"type {data_type}" if data_type else "")
    dtype = declared if place == RAW_DATA else NUMBER_FIELDS[place]
    if place == RAW_DATA and data_type not in DTYPES:
        raise WireError(f"Expected the raw numbers of a known dtype, got those of {declared or 'none'}")
    shape = tuple(unpack_varints(sizes.get(1, b"")).view(np.int64).tolist())
    packed = place in (4, 5, 7)
    stored = StoredTensor(shape=shape, dtype=dtype, declared=declared, data=found.get(place, b""), packed=packed)
    n_bytes = len(stored.data)
    if not packed:
        _check_shape(shape, n_bytes, itemsize(dtype))
    return stored
