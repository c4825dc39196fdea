"""Blocks: many records of one series as the columns of one `Event` (see summary.proto).

A block begins with a head, which says what can be known without reading its columns and has a checksum of its own; the
values come last. So a scan reads the beginning of each frame, and a slice of a large array reads only its bytes.
Columns are encoded and decoded without copying them, which is why this is written by hand (`protobuf`).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from sightglass.core import codec
from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, WireError
from sightglass.core.values import type_name

from .framing import Buffer, checksum
from .protobuf import BYTES, FIXED32, FIXED64, VARINT, key, read_varint, signed, spans, unzigzag, varint, zigzag
from .tensor_proto import DATA_TYPES, DTYPES, from_raw, itemsize

Kind = Literal["logged", "stream", "groups", "acts", "snapshot"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

BLOCK: Final = 1001
MAX_ROWS: Final = 2**20
MAX_DIMS: Final = 32

EVENT_WALL, BLOCK_HEAD, BLOCK_CRC = 1, 1, 2
VALUES, ORDINALS, STEPS, WALL_TIMES, N_EVENTS, FLAGS, TRACKS = range(3, 10)
DATA_TYPE, DIMS, FIRST, STRIDE, PACKED, BUFFERS, RAW = range(1, 8)

_F64: Final = struct.Struct("<d")
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """What makes a series.

    Attributes:
        kind: "logged" under a tag, the records of a query ("stream"), the ends of groups of an event, the acts, the
            snapshots of an event.
        tag: Its name; of "groups" and "snapshot" the event.
        query: The canonical text of a stream's query, else empty.
    """

    kind: Kind
    tag: str
    query: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockHead:
    """What is known of a block without its columns; steps and wall times are of its first and last record."""

    segment: int
    key: Key
    n: int
    index: int
    ordinal: int
    first_step: float
    last_step: float
    min_step: float
    max_step: float
    first_wall: float
    last_wall: float
    type: str
    since: int = 0
    n_missed: int = 0


def head_of(key: Key, columns: Columns, *, segment: int, since: int = 0, n_missed: int = 0) -> BlockHead:
    """Tell what can be known of columns, at least one record."""
    steps, wall_times = columns.steps, columns.wall_times
    with np.errstate(invalid="ignore"):
        least, most = float(np.fmin.reduce(steps)), float(np.fmax.reduce(steps))
    ordinal = columns.index if columns.ordinals is None else int(columns.ordinals[0])
    return BlockHead(
        segment=segment, key=key, n=len(columns), index=columns.index, ordinal=ordinal, since=since, n_missed=n_missed,
        first_step=float(steps[0]), last_step=float(steps[-1]), min_step=least, max_step=most,
        first_wall=float(wall_times[0]), last_wall=float(wall_times[-1]), type=_type(columns.values),
    )  # fmt: skip


def _type(values: Any) -> str:
    """Name the type of the first value."""
    if isinstance(values, np.ndarray):
        if values.ndim > 1:
            return str(type_name(values[0]))
        return {"float64": "float", "int64": "int"}.get(str(values.dtype.name), str(values.dtype.name))
    return type_name(values[0])[: codec.INLINE_BYTES]


# Encoding


def encode(head: BlockHead, columns: Columns) -> list[Buffer]:
    """Encode columns as the payload of a frame, in parts.

    Raises:
        UnsendableError: A value has a type that cannot be kept.
    """
    n = len(columns)
    ordinals = columns.ordinals
    if ordinals is not None and np.array_equal(ordinals, np.arange(head.ordinal, head.ordinal + n)):
        ordinals = None
    told = _encode_head(head)
    parts: list[Buffer] = [
        key(BLOCK_HEAD, BYTES), varint(len(told)), told, key(BLOCK_CRC, FIXED32), _U32.pack(checksum(told)),
        *_field(STEPS, _encode_column(columns.steps, even=True)),
        *_field(WALL_TIMES, _encode_column(columns.wall_times)),
    ]  # fmt: skip
    for number, column in (
        (ORDINALS, ordinals),
        (N_EVENTS, columns.n_events),
        (FLAGS, columns.flags),
        (TRACKS, columns.tracks),
    ):
        if column is not None:
            parts += _field(number, _encode_column(column, even=number != TRACKS))
    parts += _field(VALUES, _encode_column(columns.values))
    return [key(EVENT_WALL, FIXED64), _F64.pack(head.last_wall), *_field(BLOCK, parts)]


def _field(number: int, parts: Sequence[Buffer]) -> list[Buffer]:
    return [key(number, BYTES), varint(sum(map(len, parts))), *parts]


def _encode_head(head: BlockHead) -> bytes:
    out = [key(1, FIXED64), _U64.pack(head.segment), key(2, VARINT), varint(KINDS.index(head.key.kind))]
    for number, text in ((3, head.key.tag), (4, head.key.query), (14, head.type)):
        if text or number != 4:
            data = text.encode("utf-8", "surrogatepass")
            out += [key(number, BYTES), varint(len(data)), data]
    for number, count in ((5, head.n), (6, head.index), (7, head.ordinal), (15, head.since), (16, head.n_missed)):
        out += [key(number, VARINT), varint(count)]
    places = (head.first_step, head.last_step, head.min_step, head.max_step, head.first_wall, head.last_wall)
    for number, place in enumerate(places, 8):
        out += [key(number, FIXED64), _F64.pack(place)]
    return b"".join(out)


def _encode_column(column: Any, *, even: bool = False) -> list[Buffer]:
    """Encode a column; with `even`, integers that are evenly spaced as their first and their stride."""
    if isinstance(column, list):
        column = _stacked(column)
    if isinstance(column, list | tuple):
        return _encode_rows(column)
    if column.dtype.name not in DATA_TYPES:
        return _encode_list(list(column))
    if even and column.dtype.kind in "iu" and _is_even(column):
        first, stride = int(column[0]), int(column[1]) - int(column[0]) if len(column) > 1 else 0
        parts = (key(FIRST, VARINT), varint(zigzag(first)), key(STRIDE, VARINT), varint(zigzag(stride)))
        return [_of_type(column.dtype), *parts]
    return [_of_type(column.dtype), *_dims(column.shape[1:]), *_raw([column])]


def _stacked(values: list[Any]) -> Any:
    """Return arrays of one type and shape as a tuple: they can lie in the file one after the other."""
    first = values[0]
    if not (type(first) is np.ndarray and first.ndim and first.dtype.name in DATA_TYPES):
        return values
    alike = all(type(v) is np.ndarray and v.dtype == first.dtype and v.shape == first.shape for v in values)
    return tuple(values) if alike else values


def _encode_rows(values: list[Any] | tuple[Any, ...]) -> list[Buffer]:
    if isinstance(values, list):
        return _encode_list(values)
    return [_of_type(values[0].dtype), *_dims(values[0].shape), *_raw(values)]


def _encode_list(values: list[Any]) -> list[Buffer]:
    blob, buffers = codec.encode(values)
    return [*_field(PACKED, [blob]), *(part for buffer in buffers for part in _field(BUFFERS, [buffer]))]


def _of_type(dtype: np.dtype[Any]) -> bytes:
    return key(DATA_TYPE, VARINT) + varint(DATA_TYPES[dtype.name])


def _dims(shape: tuple[int, ...]) -> list[Buffer]:
    return _field(DIMS, [b"".join(map(varint, shape))]) if shape else []


def _raw(arrays: Sequence[Any]) -> list[Buffer]:
    views = []
    for array in arrays:
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        views.append(np.ascontiguousarray(little).view(np.uint8).reshape(-1).data if array.size else b"")
    return _field(RAW, views)


def _is_even(column: Any) -> bool:
    if len(column) < 2:
        return int(column[0]) < 2**62
    if column.dtype.kind == "u" and column.dtype.itemsize == 8:
        return False
    wide = column.astype(np.int64, copy=False)
    if int(wide.min()) <= -(2**62) or int(wide.max()) >= 2**62:
        return False
    return bool((np.diff(wide) == wide[1] - wide[0]).all())


# Decoding


def is_block(payload: memoryview, length: int) -> bool:
    """Tell whether an event carries a block, from its beginning and its length."""
    return any((number, kind) == (BLOCK, BYTES) for number, kind, *_ in spans(payload, 0, length))


def decode_head(payload: memoryview, length: int | None = None) -> BlockHead:
    """Decode the head of a block from the beginning of its event.

    Args:
        payload: The event, or its beginning.
        length: How long the event is; by default what is given.

    Raises:
        DamagedError: It is none, or not what was written.
    """
    try:
        parts = _parts(payload, length)
        told = payload[slice(*parts[BLOCK_HEAD])]
        if len(told) < parts[BLOCK_HEAD][1] - parts[BLOCK_HEAD][0] or checksum(told) != parts[BLOCK_CRC]:
            raise WireError("Expected another checksum of the head")
        return _decode_head(told)
    except (WireError, KeyError, IndexError, UnicodeDecodeError, struct.error) as error:
        raise DamagedError(f"The head of a block is damaged: {error}") from None


def _parts(payload: memoryview, length: int | None) -> dict[int, Any]:
    """Return where the parts of a block lie in its event, by their numbers; of the head's checksum its value."""
    length = len(payload) if length is None else length
    blocks = [place for number, kind, *place in spans(payload, 0, length) if (number, kind) == (BLOCK, BYTES)]
    if not blocks:
        raise WireError("Expected an event with a block")
    block = blocks[-1]
    parts: dict[int, Any] = {}
    for number, kind, begin, n in spans(payload, block[0], sum(block)):
        if kind == BYTES:
            parts[number] = (begin, begin + n)
        elif (number, kind) == (BLOCK_CRC, FIXED32):
            parts[number] = _U32.unpack_from(payload, begin)[0]
    return parts


def _decode_head(told: memoryview) -> BlockHead:
    fields: dict[int, Any] = {4: "", 15: 0, 16: 0}
    for number, kind, begin, n in spans(told):
        if kind == VARINT:
            fields[number] = begin
        elif kind == FIXED64:
            fields[number] = (_U64 if number == 1 else _F64).unpack_from(told, begin)[0]
        elif kind == BYTES:
            fields[number] = str(told[begin : begin + n], "utf-8", "surrogatepass")
    if not 1 <= fields[5] <= MAX_ROWS:
        raise WireError(f"Expected 1 to {MAX_ROWS} records in a block, got {fields[5]}")
    return BlockHead(
        segment=fields[1], key=Key(kind=KINDS[fields[2]], tag=fields[3], query=fields[4]), n=fields[5], index=fields[6],
        ordinal=fields[7], first_step=fields[8], last_step=fields[9], min_step=fields[10], max_step=fields[11],
        first_wall=fields[12], last_wall=fields[13], type=fields[14], since=fields[15], n_missed=fields[16],
    )  # fmt: skip


def decode(payload: memoryview, head: BlockHead) -> Columns:
    """Decode the columns of a block; arrays are views of its bytes.

    Raises:
        DamagedError: They do not fit together.
    """
    try:
        parts = _parts(payload, None)
        columns = {
            number: _decode_column(payload[slice(*parts[number])], head.n)
            for number in (VALUES, ORDINALS, STEPS, WALL_TIMES, N_EVENTS, FLAGS, TRACKS)
            if number in parts
        }
        ordinals = columns.get(ORDINALS)
        return Columns(
            index=head.index,
            steps=_numbers(columns[STEPS], "if"),
            wall_times=_numbers(columns[WALL_TIMES], "f"),
            values=columns[VALUES],
            ordinals=np.arange(head.ordinal, head.ordinal + head.n) if ordinals is None else _numbers(ordinals, "i"),
            n_events=_numbers(columns[N_EVENTS], "i") if N_EVENTS in columns else None,
            flags=_numbers(columns[FLAGS], "u") if FLAGS in columns else None,
            tracks=_mappings(columns[TRACKS]) if TRACKS in columns else None,
        )
    except (WireError, KeyError, ValueError, TypeError, OverflowError) as error:
        raise DamagedError(f"The columns of a block of {head.key.tag!r} are damaged: {error}") from None


def _decode_column(told: memoryview, n: int) -> Any:
    fields, buffers = _column_fields(told)
    if PACKED in fields:
        values = codec.decode(told[slice(*fields[PACKED])], [told[slice(*buffer)] for buffer in buffers])
        if not isinstance(values, list) or len(values) != n:
            raise WireError(f"Expected a list of {n} values")
        return values
    dtype = _type_name(fields[DATA_TYPE])
    if FIRST in fields:
        first, stride = unzigzag(fields[FIRST]), unzigzag(fields.get(STRIDE, 0))
        if not all(-(2**63) <= place < 2**63 for place in (first, first + stride * (n - 1))):
            raise WireError("Expected numbers of 64 bits")
        return (first + stride * np.arange(n)).astype(dtype)
    shape = (n, *_shape(told, fields))
    raw, n_bytes = told[slice(*fields[RAW])], math.prod(shape) * itemsize(dtype)
    if len(raw) != n_bytes:
        raise WireError(f"Expected {n_bytes} bytes for shape {shape}, got {len(raw)}")
    return from_raw(raw, dtype).reshape(shape)


def _column_fields(told: memoryview, end: int | None = None) -> tuple[dict[int, Any], list[tuple[int, int]]]:
    fields: dict[int, Any] = {}
    buffers: list[tuple[int, int]] = []
    for number, kind, begin, length in spans(told, 0, end):
        if number == BUFFERS:
            buffers.append((begin, begin + length))
        else:
            fields[number] = begin if kind == VARINT else (begin, begin + length)
    return fields, buffers


def _shape(told: memoryview, fields: dict[int, Any]) -> tuple[int, ...]:
    if DIMS not in fields:
        return ()
    place, end = fields[DIMS]
    shape = []
    while place < end:
        size, place = read_varint(told, place)
        shape.append(signed(size))
    if len(shape) > MAX_DIMS or min(shape) < 0:
        raise WireError(f"Expected a shape of at most {MAX_DIMS} sizes, got {shape!r:.100}")
    return tuple(shape)


def _type_name(number: int) -> str:
    name = DTYPES.get(number)
    if name is None:
        raise WireError(f"Expected the type of a column of numbers, got {number}")
    return name


def _numbers(column: Any, kinds: str) -> Any:
    if not (isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in kinds):
        raise WireError("Expected a column of numbers")
    return column


def _mappings(column: Any) -> Any:
    if not (isinstance(column, list) and all(isinstance(track, dict) for track in column)):
        raise WireError("Expected a mapping of step tracks for each record")
    return column


@dataclass(frozen=True, slots=True)
class RawValues:
    """Where the arrays of a block lie in its event: row after row, from an offset on."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def raw_values(payload: memoryview, length: int) -> RawValues | None:
    """Tell where the arrays of a block lie, from the beginning of its event.

    Returns:
        `None` if they have to be decoded as a whole.

    Raises:
        DamagedError: It cannot be told.
    """
    try:
        start, end = _parts(payload, length)[VALUES]
        told = payload[start:]
        fields, _ = _column_fields(told, end - start)
        if RAW not in fields:
            return None
        dtype = from_raw(b"", _type_name(fields[DATA_TYPE])).dtype
        if dtype.itemsize != itemsize(_type_name(fields[DATA_TYPE])):
            return None  # bfloat16, where NumPy does not know it
        return RawValues(start + fields[RAW][0], dtype, _shape(told, fields))
    except (WireError, KeyError, ValueError, TypeError) as error:
        raise DamagedError(f"The values of a block are damaged: {error}") from None
