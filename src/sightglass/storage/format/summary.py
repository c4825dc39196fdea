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
from importlib.util import find_spec
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import MAX_DIMS, Buffer
from sightglass.core.errors import WireError

from .protobuf import BYTES, FIXED32, FIXED64, MAX_VARINT_BYTES, VARINT, key, signed, varint, walk

VERSION = re.compile(r"(\w{1,40})\.Event:(\d{1,9})")
SIGHTGLASS_VERSION, MINDSPORE_VERSION, TENSORBOARD_VERSION = "Sightglass.Event:2", "MindSpore.Event:1", "brain.Event:2"

Dialect = Literal["sightglass", "mindspore", "tensorboard", "wandb", "mlflow", "trackio"]

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


# Arrays in messages: as bytes, as packed numbers, and as MindSpore's `TensorProto`, which we share.
#
# A shape or a length in a message is compared with the bytes that are there before anything is allocated.
# Arrays are views of the message wherever its bytes are those of the array.

DATA_TYPES: Final = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "complex64": 43, "complex128": 44, "bfloat16": 46,
}  # fmt: skip
"""The numbers of `DataType` in anf_ir.proto, by NumPy's names."""
DTYPES: Final = {number: name for name, number in DATA_TYPES.items()}
# The fields of TensorProto that hold numbers, whatever dtype it declares: as which dtype, and how one alone is written.
NUMBERS: Final = {
    3: ("float32", FIXED32),
    4: ("int32", VARINT),
    5: ("int64", VARINT),
    6: ("float64", FIXED64),
    7: ("uint64", VARINT),
}
FLOAT_DATA, RAW_DATA = 3, 8
MAX_NUMBERS: Final = 2**40  # more than a file has; NumPy refuses an empty array whose other sizes exceed 2**63 bytes

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """An array in a message.

    Attributes:
        dtype: The name of the dtype of the numbers in `data`.
        declared: The name of the dtype that the message declares, or "".
        packed: Whether the numbers are varints, one after the other; otherwise they are little-endian.
    """

    shape: tuple[int, ...]
    dtype: str
    declared: str
    data: Buffer
    packed: bool = False

    def array(self) -> Array:
        """Return the array, read-only.

        Raises:
            WireError: There are not as many numbers as the shape says.
        """
        return shaped(unpack(self.data, self.dtype) if self.packed else from_raw(self.data, self.dtype), self.shape)


def read_tensor(buffer: memoryview) -> StoredTensor:
    """Read a TensorProto of MindSpore's or ours, without decoding its numbers.

    MindSpore writes the numbers of every dtype as float32.

    Raises:
        WireError: These are not the bytes of a TensorProto, or the numbers do not fill its shape.
    """
    sizes: dict[int, Buffer] = {}
    found: dict[int, Buffer] = {}
    data_type = 0
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number == 1 and kind in (VARINT, BYTES):
            gather(sizes, number, value)
        elif number == 2 and kind == VARINT:
            data_type = value
        elif number in NUMBERS and kind in (BYTES, NUMBERS[number][1]):
            gather(found, number, value)
        elif number == RAW_DATA and kind == BYTES:
            found[number] = value
    filled = [number for number, data in found.items() if len(data)]
    if len(filled) > 1:
        raise WireError(f"Expected the numbers of a tensor in one field, got them in fields {filled}")
    place = filled[0] if filled else FLOAT_DATA
    declared = DTYPES.get(data_type, f"type {data_type}" if data_type else "")
    if place == RAW_DATA and data_type not in DTYPES:
        raise WireError(f"Expected the dtype of the bytes of a tensor, got {declared or 'none'}")
    dtype, alone = (declared, BYTES) if place == RAW_DATA else NUMBERS[place]
    shape = tuple(unpack(sizes.get(1, b""), "int64").tolist())
    stored = StoredTensor(
        shape=shape, dtype=dtype, declared=declared, data=found.get(place, b""), packed=alone == VARINT
    )
    if not stored.packed:
        check_shape(shape, len(stored.data) / itemsize(dtype))
    return stored


def encode_tensor(array: Array) -> list[Buffer]:
    """Encode an array as MindSpore does: its numbers as float32, and its own dtype beside them.

    Args:
        array: Of real numbers, with at least one dimension.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = array.astype("<f4", copy=False)
    sizes = [varint_field(1, n) for n in array.shape]
    return [*sizes, varint_field(2, DATA_TYPES[array.dtype.name]), *bytes_field(FLOAT_DATA, raw(numbers))]


def gather(found: dict[int, Buffer], number: int, value: int | memoryview) -> None:
    """Add numbers of a repeated field, packed or a single one, to those found; the first piece is not copied."""
    piece = varint(value) if isinstance(value, int) else value
    if number not in found:
        found[number] = piece
        return
    before = found[number]
    if not isinstance(before, bytearray):
        before = found[number] = bytearray(before)
    before += piece


def raw(array: Array) -> memoryview:
    """Return the bytes of an array, little-endian; they are copied only if they have another order."""
    if array.dtype.kind in "iufc":  # not those of ml_dtypes, which are never swapped
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def from_raw(data: Buffer, dtype: str) -> Array:
    """Return the numbers in these bytes, read-only; without ml_dtypes, bfloat16 becomes float32 without a loss.

    Raises:
        WireError: The bytes are not a whole number of items.
    """
    if len(data) % itemsize(dtype):
        raise WireError(f"Expected a multiple of {itemsize(dtype)} bytes for {dtype}, got {len(data)}")
    stored = {"bfloat16": "<u2", "bool": "|u1"}.get(dtype) or np.dtype(dtype).newbyteorder("<")
    array: Array = np.frombuffer(data, stored) if len(data) else np.zeros(0, stored)
    if dtype == "bool":
        if array.max(initial=0) > 1:
            raise WireError(f"Expected bools of 0 and 1, got {array.max()}")
        array = array.view(np.bool_)
    elif dtype == "bfloat16" and find_spec("ml_dtypes") is None:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    elif dtype == "bfloat16":
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]  # comes with JAX

        array = array.view(ml_dtypes.bfloat16)
    array.flags.writeable = False
    return array


def itemsize(dtype: str) -> int:
    """Return how many bytes a number of this dtype takes."""
    return 2 if dtype == "bfloat16" else np.dtype(dtype).itemsize


def unpack(data: Buffer, dtype: str) -> Array:
    """Read integers written as varints, one after the other; surplus high bits are dropped.

    Raises:
        WireError: An integer does not end within ten bytes.
    """
    octets = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    last = np.flatnonzero(octets < 128)
    if len(last) == len(octets):
        return octets.astype(dtype)
    starts = np.concatenate(([0], last + 1))[: len(last)]
    lengths = last - starts + 1
    if octets[-1] > 127 or lengths.max() > MAX_VARINT_BYTES:
        raise WireError(f"Expected integers of at most {MAX_VARINT_BYTES} bytes each, got others in {len(data)} bytes")
    places = np.arange(len(octets)) - np.repeat(starts, lengths)
    bits = (octets & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).astype(dtype)


def check_sizes(shape: tuple[int, ...]) -> None:
    """Check that NumPy has arrays of this shape; the sizes of an empty one can claim anything.

    Raises:
        WireError: It has none.
    """
    if len(shape) > MAX_DIMS or min(shape, default=0) < 0 or math.prod(n or 1 for n in shape) > MAX_NUMBERS:
        raise WireError(f"Expected the shape of an array, got {shape!r:.100}")


def check_shape(shape: tuple[int, ...], n: float) -> None:
    """Check that an array of n numbers can have this shape.

    Raises:
        WireError: The array cannot have this shape.
    """
    if len(shape) > MAX_DIMS or min(shape, default=0) < 0 or math.prod(shape) != n:
        raise WireError(f"Expected as many numbers as shape {shape!r:.100} says, got {n:g}")
    check_sizes(shape)


def shaped(numbers: Array, shape: tuple[int, ...]) -> Array:
    """Return the numbers in this shape.

    Raises:
        WireError: The numbers do not fill the shape, or NumPy does not allow it.
    """
    check_shape(shape, len(numbers))
    return numbers.reshape(shape)
