"""Blocks: many records of one series as the columns of one `Event` (see summary.proto and docs/files.md).

The payload of a frame is an `Event` of two fields: the wall time of the last record, and bytes that other readers skip.
Those bytes begin with a head of fixed size, `HEAD`, and the texts that name the series. The columns follow, aligned to
eight bytes; values come last. A scan therefore reads only the beginnings of frames, many heads at once, one
`numpy.frombuffer` reads a column, and a slice of a large array reads only its bytes.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np
import numpy.typing as npt

from sightglass.core import codec
from sightglass.core.codec import Buffer
from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, SightglassError, UnsendableError, WireError
from sightglass.core.values import type_name

from .framing import checksum
from .protobuf import BYTES, FIXED64, key
from .summary import DATA_TYPES, DTYPES, check_sizes, from_raw, itemsize, raw

Kind = Literal["logged", "stream", "groups", "commands", "snapshot", "wide"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

ValueKind = Literal["", "scalar", "tensor", "histogram", "image", "audio", "table", "text"]

BLOCK: Final = 1001
FORMAT: Final = 2
MAX_ROWS: Final = 2**20
MIN_ROW_BYTES: Final = 8  # a wall time, which no record lacks

COUNTS: Final = ("n", "index", "ordinal", "since", "n_missed")
EXTENTS: Final = ("first_step", "last_step", "min_step", "max_step", "first_wall", "last_wall")
COLUMNS: Final = ("steps", "wall_times", "ordinals", "n_events", "flags", "tracks", "values")

HEAD: Final = np.dtype(
    [("wall_key", "u1"), ("wall_time", "<f8"), ("block_key", "<u2"), ("size", "u1", 5)]  # protobuf, up to the block
    + [("checksum", "<u4"), ("format", "<u2"), ("n_dims", "u1"), ("reserved", "u1")]
    + [(name, "<i8") for name in COUNTS]
    + [(name, "<f8") for name in EXTENTS]
    + [("offsets", "<u4", len(COLUMNS)), ("codes", "u1", len(COLUMNS))]
    + [("kind", "u1"), ("texts", "<u4", 3), ("segment", "<u8")]
)
"""How a payload begins: the fields of its `Event` up to the block, and the head of the block.

`checksum` is the masked CRC32C of what follows it, up to the end of the texts: tag, query and type of the first value,
as long as `texts` says. `offsets` says where columns begin in the payload, `codes` how they are written.
"""
HEAD_BYTES: Final = HEAD.itemsize
_PLACES: Final = {name: field[1] for name, field in (HEAD.fields or {}).items()}
CHECKED: Final = _PLACES["format"]  # where the bytes begin that the checksum covers
NUMBERS: Final = slice(_PLACES["n"], _PLACES["offsets"])  # counts and extents, which an index repeats
NAMES: Final = _PLACES["kind"]  # where the bytes begin that blocks of one series have in common
_HEAD: Final = struct.Struct("<BdH5s IHBx 5q 6d 7I7B B3IQ")  # HEAD again: ten times as fast for a single one

WALL_KEY: Final = key(1, FIXED64)[0]
BLOCK_KEY: Final = int.from_bytes(key(BLOCK, BYTES), "little")
MAX_BLOCK_BYTES: Final = 2**35  # what a varint of five bytes can say

# How a column is written: not at all, as numbers of a `DataType`, as the first and the distance of evenly spaced
# integers of one, or as a list in msgpack with buffers beside it.
ABSENT: Final = 0
EVEN: Final = 0x80
PACKED: Final = 0xFF

NUMERIC: Final = {
    number: np.dtype(name).newbyteorder("<") for number, name in DTYPES.items() if name not in ("bool", "bfloat16")
}
_KINDS_OF: Final = {"steps": "if", "wall_times": "f", "ordinals": "i", "n_events": "i", "flags": "u", "tracks": ""}
_PAIR: Final = struct.Struct("<qq")
_RAMP: Final = np.arange(2**14)  # blocks have fewer rows, except those that other programs write
_PADDING: Final = [bytes(n) for n in range(8)]

Array = npt.NDArray[Any]
Values = Array | list[Any]
"""A column: numbers of one type and shape, or other values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What identifies a series.

    Attributes:
        kind: "logged" under a tag, the records of a query ("stream"), the ends of groups of an event, the commands
            ("commands"), the snapshots of an event. "wide" blocks hold records of many logged series.
        tag: Its name; of "groups" and "snapshot" the event; of "wide" blocks the names of all series, as JSON.
        query: The canonical text of a stream's query, else empty.
        values: What the values are, where the file tells tags of several kinds apart, as those of other programs do.
    """

    kind: Kind
    tag: str
    query: str = ""
    values: ValueKind = ""

    @property
    def name(self) -> str:
        """The name that means this series whatever else its tag has; see `series_names`."""
        return self.tag if self.values in ("", "scalar") else f"{self.tag}:{self.values}"


@dataclass(frozen=True, slots=True)
class RawValues:
    """Where the arrays of a block lie in its payload, row after row."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


# Encoding


def encode(key: Key, columns: Columns, *, segment: int, since: int = 0, n_missed: int = 0) -> list[Buffer]:
    """Encode at least one record as the payload of a frame, in parts; large arrays are not copied.

    Args:
        key: The series.
        columns: The records.
        segment: The number of the file.
        since: The number of the event from which on the series was recorded.
        n_missed: How many events failed, were skipped or were dropped before the last of these records.

    Raises:
        UnsendableError: A value has a type that cannot be written.
    """
    n, steps, walls, ordinals = len(columns), columns.steps, columns.wall_times, columns.ordinals
    first = columns.index if ordinals is None else int(ordinals[0])
    type_ = _type(columns.values[:, 0] if key.kind == "wide" else columns.values)  # of each series
    texts = [text.encode("utf-8", "surrogatepass") for text in (key.tag, key.query, type_)]
    place = HEAD_BYTES + sum(map(len, texts))
    parts: list[Buffer] = [b"", *texts]
    codes, offsets, n_dims = [], [], 0
    for name in COLUMNS:
        column = getattr(columns, name)
        if name == "values":
            code, shape, buffers = _encode_values(column)
            n_dims = len(shape)
            buffers = [struct.pack(f"<{n_dims}q", *shape), *buffers]
        elif name == "ordinals" and column is not None and _distance(column) == 1:
            code, buffers = ABSENT, []
        else:
            code, buffers = _encode_column(column)
        codes.append(code)
        if code != ABSENT:
            parts.append(_PADDING[-place % 8])
            place += -place % 8
            parts += buffers
        offsets.append(place if code != ABSENT else 0)
        place += sum(map(len, buffers))
    if place >= MAX_BLOCK_BYTES or offsets[-1] >= 2**32:
        raise UnsendableError(f"Expected a block of less than {MAX_BLOCK_BYTES >> 30} GiB, got {place:,} bytes")
    with np.errstate(invalid="ignore"):
        extents = steps[0], steps[-1], np.fmin.reduce(steps), np.fmax.reduce(steps), walls[0], walls[-1]
    head = _HEAD.pack(
        WALL_KEY, walls[-1], BLOCK_KEY, _size(place - CHECKED + 4), 0, FORMAT, n_dims,
        n, columns.index, first, since, n_missed, *extents,
        *offsets, *codes, KINDS.index(key.kind), *map(len, texts), segment,
    )  # fmt: skip
    crc = checksum(head[CHECKED:], *texts).to_bytes(4, "little")
    parts[0] = head[: CHECKED - 4] + crc + head[CHECKED:]
    return parts


def _type(values: Values) -> str:
    """Name the type of the first value."""
    if isinstance(values, np.ndarray):
        if values.ndim > 1:
            return str(type_name(values[0]))
        return {"float64": "float", "int64": "int"}.get(str(values.dtype.name), str(values.dtype.name))
    return type_name(values[0])[: codec.INLINE_BYTES]


def _size(n_bytes: int) -> bytes:
    """Write a length as a varint of always five bytes, so that what follows is aligned."""
    return bytes([n_bytes >> 7 * i & 0x7F | (0x80 if i < 4 else 0) for i in range(5)])


def _encode_column(column: Values | None) -> tuple[int, list[Buffer]]:
    if column is None:
        return ABSENT, []
    if isinstance(column, list):
        return PACKED, _pack(column)
    distance = _distance(column) if column.nbytes > _PAIR.size else None
    if distance is not None:
        return EVEN | DATA_TYPES[column.dtype.name], [_PAIR.pack(int(column[0]), distance)]
    return DATA_TYPES[column.dtype.name], [raw(column)]


def _encode_values(values: Values) -> tuple[int, tuple[int, ...], list[Buffer]]:
    arrays = [values] if isinstance(values, np.ndarray) else values
    first = arrays[0]
    if type(first) is np.ndarray and first.dtype.name in DATA_TYPES and (arrays is not values or first.ndim):
        if arrays is not values:
            return DATA_TYPES[first.dtype.name], first.shape[1:], [raw(first)]
        if all(type(v) is np.ndarray and v.dtype == first.dtype and v.shape == first.shape for v in values):
            return DATA_TYPES[first.dtype.name], first.shape, [raw(array) for array in values]
    return PACKED, (), _pack(list(values))


def _pack(values: list[Any]) -> list[Buffer]:
    blob, buffers = codec.encode(values)
    sizes = [len(blob), *map(len, buffers)]
    return [struct.pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes), blob, *buffers]


def _distance(column: Array) -> int | None:
    """Return by how much evenly spaced integers grow; `None` if they are not evenly spaced."""
    if column.dtype.kind not in "iu" or column.dtype == np.uint64:
        return None
    if len(column) == 1:
        return 1
    wide = column.astype(np.int64, copy=False)
    distance = int(wide[1]) - int(wide[0])
    even = wide[1:] - wide[:-1] == distance  # where this overflows, the last number is not where it should be
    return distance if even.all() and int(wide[-1]) - int(wide[0]) == distance * (len(wide) - 1) else None


# Decoding


def is_block(payload: Buffer) -> bool:
    """Return whether an event is a block, from its beginning."""
    return len(payload) >= CHECKED and payload[0] == WALL_KEY and payload[9:11] == key(BLOCK, BYTES)


def n_rows(payload: Buffer) -> int:
    """Return how many records a block says to have in each series."""
    return int(_HEAD.unpack_from(payload)[7])


def decode(payload: memoryview) -> Columns:
    """Decode the columns of a block; arrays are read-only views of its bytes.

    Raises:
        DamagedError: They do not fit together.
    """
    payload = payload.toreadonly()
    try:
        head = _HEAD.unpack_from(payload)
        n_dims, n, index, ordinal, offsets, codes = head[6], head[7], head[8], head[9], head[18:25], head[25:32]
        if not 1 <= n <= min(MAX_ROWS, len(payload) // MIN_ROW_BYTES):
            raise WireError(f"Expected the number of records in {len(payload)} bytes, got {n}")
        found: dict[str, Any] = {}
        for name, code, offset in zip(COLUMNS[:-1], codes, offsets, strict=False):
            column = found[name] = None if code == ABSENT else _column(payload, code, offset, n)
            if isinstance(column, np.ndarray) and column.dtype.kind not in _KINDS_OF[name]:
                raise WireError(f"Expected other numbers than {column.dtype} in the column of {name}")
            if isinstance(column, list) and not (name == "tracks" and all(type(track) is dict for track in column)):
                raise WireError(f"Expected the column of {name}, got a list")
        if found["steps"] is None or found["wall_times"] is None:
            raise WireError("Expected columns of steps and of wall times")
        if found["ordinals"] is None:
            steps = codes[0] & EVEN and _PAIR.unpack_from(payload, offsets[0]) == (ordinal, 1)
            found["ordinals"] = found["steps"] if steps else _even(ordinal, 1, n)  # one call of `log` for each step
        shape, offset = _shape(payload[offsets[-1] :], n_dims), offsets[-1] + 8 * n_dims
        return Columns(index=index, values=_column(payload, codes[-1], offset, n, shape), **found)
    except (WireError, KeyError, ValueError, TypeError, ArithmeticError, struct.error) as error:
        raise DamagedError(f"The columns of a block are damaged: {error}") from None


def _column(payload: memoryview, code: int, offset: int, n: int, shape: tuple[int, ...] = ()) -> Any:
    if code == PACKED:
        values = _unpack(payload, offset)
        if not isinstance(values, list) or len(values) != n:
            raise WireError(f"Expected a list of {n} values")
        return values
    if code & EVEN:
        first, distance = _PAIR.unpack_from(payload, offset)
        with np.errstate(over="raise"):
            return _even(first, distance, n).astype(NUMERIC[code & ~EVEN], copy=False)
    count = n * math.prod(shape)
    dtype = NUMERIC.get(code)
    if dtype is not None and count:
        array: Array = np.frombuffer(payload, dtype, count, offset)
    else:
        array = from_raw(payload[offset : offset + count * itemsize(DTYPES[code])], DTYPES[code])
        if len(array) != count:
            raise WireError(f"Expected {count} numbers, got {len(array)}")
    return array.reshape(n, *shape) if shape else array


def _even(first: int, distance: int, n: int) -> Array:
    if not -(2**63) <= first + distance * (n - 1) < 2**63:
        raise WireError("Expected numbers of 64 bits")
    ramp = _RAMP[:n] if n <= len(_RAMP) else np.arange(n)
    return (ramp if distance == 1 else ramp * distance) + first


def _unpack(payload: memoryview, offset: int) -> Any:
    (n_parts,) = struct.unpack_from("<Q", payload, offset)
    if not 1 <= n_parts <= (len(payload) - offset) // 8:
        raise WireError(f"Expected the number of buffers in {len(payload) - offset} bytes, got {n_parts}")
    sizes = struct.unpack_from(f"<{n_parts}Q", payload, offset + 8)
    ends = (np.cumsum(sizes, dtype=object) + offset + 8 * (n_parts + 1)).tolist()
    if ends[-1] > len(payload):
        raise WireError(f"Expected buffers up to {ends[-1]}, got {len(payload)} bytes")
    blob, *buffers = (payload[end - size : end] for end, size in zip(ends, sizes, strict=True))
    return codec.decode(blob, buffers)


def _shape(beginning: memoryview, n_dims: int) -> tuple[int, ...]:
    shape = struct.unpack_from(f"<{n_dims}q", beginning)
    check_sizes(shape)
    return shape


def raw_values(read: Callable[[int, int], memoryview], length: int) -> RawValues | None:
    """Return where the arrays of a block lie, reading its head and their shape only.

    Args:
        read: Reads bytes of the payload: where they begin, how many.
        length: How long the payload is.

    Returns:
        `None` if they have to be decoded as a whole.

    Raises:
        DamagedError: They claim more bytes than there are.
    """
    try:
        head = _HEAD.unpack_from(read(0, HEAD_BYTES))
        n_dims, n, offset, code = head[6], head[7], head[24], head[31]
        if code == PACKED or code & EVEN:
            return None
        dtype = from_raw(b"", DTYPES[code]).dtype
        if DTYPES[code] == "bfloat16" and dtype.itemsize != 2:
            return None  # NumPy does not know it here
        raw = RawValues(offset + 8 * n_dims, dtype, _shape(read(offset, 8 * n_dims), n_dims))
    except (WireError, KeyError, struct.error) as error:
        raise DamagedError(f"The values of a block are damaged: {error}") from None
    if raw.offset + n * math.prod(raw.shape) * dtype.itemsize > length:
        raise DamagedError("the shape of arrays claims more than there is")
    return raw


def decode_alike(tails: Sequence[bytes], head: np.void) -> dict[str, Any] | None:
    """Decode blocks whose heads say the same of their columns, many at once.

    Args:
        tails: What follows the texts of each, from the first column on.
        head: The head of the first, of dtype `HEAD`.

    Returns:
        The columns by name: arrays of shape (blocks, rows), or lists of lists. `None` if they have to be decoded, or
        copied, one by one. The columns that are returned would be encoded to the same bytes.
    """
    n, start = int(head["n"]), int(head["offsets"][0])
    data = np.frombuffer(b"".join(tails), np.uint8).reshape(len(tails), -1)
    columns: dict[str, Any] = {}
    for name, code, offset in zip(COLUMNS, head["codes"].tolist(), (head["offsets"] - start).tolist(), strict=True):
        if code == ABSENT:
            continue
        if code == PACKED:
            lists = [_same_again(memoryview(tail), offset, n) for tail in tails]
            if any(values is None for values in lists):
                return None
            columns[name] = lists
        elif code & EVEN:
            pairs = np.ascontiguousarray(data[:, offset : offset + 16]).view("<i8")
            columns[name] = (pairs[:, :1] + pairs[:, 1:] * _RAMP[:n]).astype(NUMERIC[code & ~EVEN])
        elif code in NUMERIC:
            dtype = NUMERIC[code]
            columns[name] = np.ascontiguousarray(data[:, offset : offset + n * dtype.itemsize]).view(dtype)
        elif code == DATA_TYPES["bool"] and data[:, offset : offset + n].max() <= 1:
            columns[name] = data[:, offset : offset + n].view(np.bool_)
        else:
            return None
    return columns


def _same_again(tail: memoryview, offset: int, n: int) -> list[Any] | None:
    """Decode a list, if it would be encoded to the same bytes."""
    try:
        values = _unpack(tail, offset)
        packed = b"".join(_pack(values))
    except (SightglassError, struct.error):
        return None
    same = isinstance(values, list) and len(values) == n and tail[offset : offset + len(packed)] == packed
    return values if same else None


# Wide blocks: records of many logged series in one block, which share all columns but their values.
#
# A training that logs a number for each of 100,000 parameters would write as many blocks at each step. A wide block has
# the names of up to `MAX_SERIES` series in place of one, and a matrix of values: a row for each record, a column for
# each series. What its head says (numbers, steps, times) holds for each of them.
#
# Rule 1: series share a block only if their records have the same numbers, steps and times, and one type of number.
# Rule 2: a wide block stands on its own: it has the names, so damage to another one costs it nothing.

MAX_SERIES: Final = 1_024  # what one series is read with: 8 kB a record; 200,000 series are 196 blocks
TALL_ROWS: Final = 64  # so many rows are written series by series: the head of a block is then a fifth of it
MAX_TAG_CHARS: Final = 160  # names of so many series then fit into a mebibyte, however they are escaped


def key_of(tags: Sequence[str]) -> Key:
    """Return what identifies the wide blocks of some series."""
    return Key(kind="wide", tag=json.dumps(tags, ensure_ascii=False, separators=(",", ":")))


def columns_of(key: Key) -> dict[str, int]:
    """Return which column of a wide block each series has.

    Raises:
        WireError: The block does not name its series.
    """
    try:
        tags = json.loads(key.tag)
    except (ValueError, RecursionError):
        tags = None
    if not isinstance(tags, list) or not tags or set(map(type, tags)) != {str}:
        raise WireError("Expected the names of the series of a wide block")
    columns = dict(zip(tags, range(len(tags)), strict=True))
    if len(columns) != len(tags):
        raise WireError("Expected different names of the series of a wide block")
    return columns


def outline(key: Key) -> str:
    """Describe a series, or those of a wide block, for a message.

    >>> outline(key_of(["a", "b", "c"]))
    "3 series from 'a' to 'c'"
    """
    if key.kind != "wide":
        return repr(key.tag)
    tags = [*columns_of(key)]
    return f"{len(tags):,} series from {tags[0]!r} to {tags[-1]!r}"
