"""Many small blocks decoded at once.

Blocks that were written every half second lie alike: behind their heads come the same fields, of the same lengths. Of
blocks that are equally long, the bytes behind the heads are one array with a row for each block, and a column of all of
them is a slice of it. Where a row differs from the first one in anything but numbers, it is of another layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core import codec
from sightglass.core.errors import SightglassError, WireError
from sightglass.storage.format.block import (
    DATA_TYPE,
    FIRST,
    FLAGS,
    N_EVENTS,
    ORDINALS,
    PACKED,
    RAW,
    STEPS,
    STRIDE,
    TRACKS,
    VALUES,
    WALL_TIMES,
)
from sightglass.storage.format.protobuf import BYTES, read_varint, spans
from sightglass.storage.format.tensor_proto import DTYPES

KINDS: Final = {STEPS: "if", WALL_TIMES: "f", ORDINALS: "i", N_EVENTS: "i", FLAGS: "u", VALUES: "biufc", TRACKS: ""}


@dataclass(frozen=True, slots=True)
class _Column:
    """Where a column lies in each row: its numbers, or its first and its stride, or what is packed."""

    number: int
    form: int
    dtype: str
    places: Sequence[slice]


def decode_alike(told: Sequence[bytes], n: int) -> Iterator[tuple[Any, dict[int, Any] | None]]:
    """Decode blocks of n records each, without their heads, all equally long.

    Yields:
        Which of them, and their columns by number: arrays of shape (blocks, n), or lists of lists. `None` instead of
        columns if these blocks have to be decoded one by one. What is yielded would be encoded to the same bytes.
    """
    data = np.frombuffer(b"".join(told), np.uint8).reshape(len(told), -1)
    left = np.arange(len(told))
    while len(left):
        layout = _layout(told[left[0]], n)
        if layout is None:
            yield left[:1], None
            left = left[1:]
            continue
        alike = _alike(data[left], layout)
        which, left = left[alike], left[~alike]
        good = np.ones(len(which), bool)
        columns = {column.number: _read(data[which], column, n, good) for column in layout}
        if not good.all():
            yield which[~good], None
            columns = {number: _only(column, good) for number, column in columns.items()}
        if good.any():
            yield which[good], columns


def _layout(told: bytes, n: int) -> list[_Column] | None:
    """Find the columns of a block; `None` if one is of another form than those of plain records."""
    view = memoryview(told)
    try:
        found = [_column(view, number, begin, begin + length, n) for number, kind, begin, length in spans(view)]
    except (WireError, IndexError):
        return None
    columns = [column for column in found if column is not None]
    numbers = {column.number for column in columns}
    whole = len(columns) == len(found) == len(numbers) and {STEPS, WALL_TIMES, VALUES} <= numbers
    return columns if whole else None


def _column(view: memoryview, number: int, begin: int, end: int, n: int) -> _Column | None:
    fields = list(spans(view, begin, end))
    form = [field[0] for field in fields]
    if form == [PACKED] and number in (VALUES, TRACKS):
        return _Column(number, PACKED, "", [_place(fields[0])])
    dtype = DTYPES.get(fields[0][2], "") if form[:1] == [DATA_TYPE] else ""
    if dtype in ("", "bfloat16") or np.dtype(dtype).kind not in KINDS.get(number, ""):
        return None
    if form == [DATA_TYPE, RAW] and fields[1][3] == n * np.dtype(dtype).itemsize:
        return _Column(number, RAW, dtype, [_place(fields[1])])
    if form == [DATA_TYPE, FIRST, STRIDE]:
        _, place = read_varint(view, begin + 1)
        _, middle = read_varint(view, place + 1)
        return _Column(number, FIRST, dtype, [slice(place + 1, middle), slice(middle + 1, end)])
    return None


def _place(field: tuple[int, int, int, int]) -> slice:
    _, kind, begin, length = field
    if kind != BYTES:
        raise WireError("Expected bytes")
    return slice(begin, begin + length)


def _alike(data: Any, layout: Sequence[_Column]) -> Any:
    """Tell which rows have the layout of the first: all but their numbers, and the lengths of varints, is the same."""
    mask = np.full(data.shape[1], 0xFF, np.uint8)
    for column in layout:
        for place in column.places:
            mask[place] = 0x80 if column.form == FIRST else 0
    return ~((data ^ data[0]) & mask).any(axis=1)


def _read(data: Any, column: _Column, n: int, good: Any) -> Any:
    """Read a column; rows that have to be decoded one by one are marked as not good."""
    parts = [np.ascontiguousarray(data[:, place]) for place in column.places]
    if column.form == PACKED:
        return [_unpacked(row.tobytes(), n, good, i) for i, row in enumerate(parts[0])]
    if column.form == FIRST:
        first, stride = (_unzigzag(part) for part in parts)
        return (first[:, None] + stride[:, None] * np.arange(n)).astype(column.dtype)
    if column.dtype == "bool":
        good &= (parts[0] <= 1).all(axis=1)
    return parts[0].view(np.dtype(column.dtype).newbyteorder("<"))


def _unpacked(told: bytes, n: int, good: Any, i: int) -> Any:
    try:
        values = codec.decode(told)
        good[i] &= isinstance(values, list) and len(values) == n and codec.encode(values) == (told, [])
    except SightglassError:
        good[i], values = False, []
    return values


def _unzigzag(digits: Any) -> Any:
    """Read varints, one a row, as signed numbers."""
    numbers = np.zeros(len(digits), np.uint64)
    for i in range(digits.shape[1]):
        numbers |= (digits[:, i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    return (numbers >> np.uint64(1)).astype(np.int64) ^ -(numbers & np.uint64(1)).astype(np.int64)


def _only(column: Any, good: Any) -> Any:
    return (
        column[good]
        if isinstance(column, np.ndarray)
        else [row for row, is_good in zip(column, good, strict=True) if is_good]
    )
