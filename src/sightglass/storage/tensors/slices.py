"""Slices as text, in NumPy's notation, and the tables they cut from tensors.

Theory of operation
    An index such as `[0, :, 2:5]` has an entry for each dimension: an integer, a slice or, once, `...`. Blanks may
    stand anywhere, the brackets may be missing, and so may trailing entries, which are `:`. Negative numbers count
    from the end; slices are clipped to the dimension, integers outside are errors: all this is as in NumPy.

    `parse_index` reads a text and `write_index` writes one. `resolve` makes an index concrete for a shape. `cells` does
    so for a table, which shows at most two dimensions and `MAX_CELLS` values, before anything is loaded.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import EllipsisType
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import DamagedError, QueryError, QuerySyntaxError, RefusedQueryError, caret
from sightglass.storage.format.framing import RandomAccessFile

from .statistics import TensorStatistics, statistics

Entry = int | slice | EllipsisType
Index = tuple[Entry, ...]
Resolved = tuple[int | slice, ...]

MAX_CELLS = 100_000  # a browser draws them, and 1 MB of text sends them
INT64 = range(-(2**63), 2**63)

INTEGER = re.compile(r"([+-]?)\s*([0-9]+)")
FLOAT = re.compile(r"[+-]?\s*(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?|[+-]?\s*(nan|inf)", re.ASCII)
BRACKET = re.compile(r"[][]")
NEW_AXIS = re.compile(r"None|(\w+\.)?newaxis")
EXPECTED = "Expected an integer, a slice such as 2:5 or '...'"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TensorTable:
    """The part of a tensor that a table shows.

    Attributes:
        shape: The whole tensor's shape.
        index: One entry for each of its dimensions, as `resolve` returns them.
        values: Shape (), (n_rows,) or (n_rows, n_columns), in the tensor's dtype; a copy.
        rows: Shape (n_rows,), int64: the index of each row in the tensor; empty if `values` has no dimension.
        columns: Shape (n_columns,), int64; empty if `values` has less than two dimensions.
        statistics: The statistics of `values`.
    """

    shape: tuple[int, ...]
    index: Resolved
    values: npt.NDArray[Any]
    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    statistics: TensorStatistics


def parse_index(text: str) -> Index:
    """Read an index.

    Raises:
        QuerySyntaxError: The text is not an index; a caret shows where.

    >>> parse_index("[0, :, 2:5]")
    (0, slice(None, None, None), slice(2, 5, None))
    """
    return tuple(entry for entry, _ in _parsed(text))


def write_index(index: Index) -> str:
    """Write an index as text; `parse_index` reads it back.

    >>> write_index((0, ..., slice(None, 5, 2)))
    '[0, ..., :5:2]'
    """
    return f"[{', '.join(map(_written, index))}]"


def _written(entry: Entry) -> str:
    if not isinstance(entry, slice):
        return "..." if entry is ... else str(entry)
    start, stop, step = ("" if part is None else str(part) for part in (entry.start, entry.stop, entry.step))
    return f"{start}:{stop}:{step}" if step else f"{start}:{stop}"


def resolve(index: str | Entry | Index, shape: Sequence[int]) -> Resolved:
    """Make an index concrete for a shape.

    Args:
        index: A text, the result of `parse_index`, or one entry of it.
        shape: The tensor's shape.

    Returns:
        One entry for each dimension: an integer that is not negative, or a slice whose start, stop and step are
        integers within the dimension; only the stop of one that runs backwards to the beginning is `None`.

    Raises:
        QuerySyntaxError: The index cannot be read.
        QueryError: An integer is out of range, or there are more entries than dimensions.

    >>> resolve("[-1, 2:99]", (3, 4, 5))
    (2, slice(2, 4, 1), slice(0, 5, 1))
    """
    shape = tuple(shape)
    spread = _spread(index, shape)
    for i, (entry, column) in enumerate(spread):
        if isinstance(entry, int) and not -shape[i] <= entry < shape[i]:
            advice = f"use {-shape[i]} to {shape[i] - 1}" if shape[i] else "it is empty"
            _refuse(f"Index {entry} is out of range for dimension {i} of shape {shape}: {advice}", index, column)
    return tuple(_concrete(entry, n) for (entry, _), n in zip(spread, shape, strict=True))


def restrict(index: str | Entry | Index, shape: Sequence[int]) -> Resolved:
    """Fit an index to another shape, such as that of another step; never out of range.

    An index that fits is resolved as by `resolve`. Otherwise surplus entries at the end are dropped, integers out of
    range are moved to the nearest end, and an integer in a dimension of length 0 becomes an empty slice.

    Raises:
        QuerySyntaxError: The index cannot be read.
    """
    entries: list[Entry] = [entry for entry, _ in _read(index)]
    if len(entries) - (... in entries) > len(shape):
        entries = [entry for entry in entries if entry != ...]
        del entries[len(shape) :]
    fitted: list[int | slice] = []
    for (entry, _), n in zip(_spread(tuple(entries), tuple(shape)), shape, strict=True):
        if isinstance(entry, int):
            entry = min(max(entry, -n), n - 1) if n else slice(0)
        fitted.append(_concrete(entry, n))
    return tuple(fitted)


def cells(index: str | Entry | Index, shape: Sequence[int], *, max_cells: int = MAX_CELLS) -> Resolved:
    """Resolve an index for a table.

    Raises:
        QuerySyntaxError: The index cannot be read.
        QueryError: The index does not fit the shape.
        RefusedQueryError: The index leaves more than two dimensions free, or selects more than `max_cells` values.
    """
    shape = tuple(shape)
    resolved = resolve(index, shape)
    free = [i for i, entry in enumerate(resolved) if isinstance(entry, slice)]
    if len(free) > 2:
        fixed = sorted(sorted(free, key=lambda i: shape[i] == 0)[:-2])  # any integer is out of range of an empty one
        entries = [entry for entry, _ in _spread(index, shape)]
        for i in fixed:
            entries[i] = 0
        which = f"dimension{'s' if len(fixed) > 1 else ''} {', '.join(map(str, fixed))}"
        raise RefusedQueryError(
            f"A table shows at most 2 dimensions, but {len(free)} of shape {shape} are left free: "
            f"give {which} an integer, as in {write_index(tuple(entries))}"
        )
    n = 1
    for i in free:
        n *= len(_places(resolved[i], shape[i]))
    if n > max_cells:
        raise RefusedQueryError(
            f"A table shows at most {max_cells:,} values, but {n:,} of shape {shape} are selected: "
            f"narrow dimension {' or '.join(map(str, free))}"
        )
    return resolved


def table(array: npt.ArrayLike, index: str | Entry | Index = "", *, max_cells: int = MAX_CELLS) -> TensorTable:
    """Cut a table from a tensor.

    Args:
        array: The whole tensor; numbers of any kind.
        index: The part, with at most two slices.
        max_cells: The largest number of values.

    Raises:
        QuerySyntaxError: The index cannot be read.
        QueryError: The index does not fit the shape.
        RefusedQueryError: The index leaves more than two dimensions free, or selects more than `max_cells` values.
        TypeError: The tensor does not hold numbers.
    """
    array = np.asarray(array)
    resolved = cells(index, array.shape, max_cells=max_cells)
    return make_table(array[(*resolved, ...)], resolved, array.shape)


def make_table(part: npt.NDArray[Any], index: Resolved, shape: Sequence[int]) -> TensorTable:
    """Make a table from a part of a tensor.

    Args:
        part: The values that the index selects.
        index: As `cells` returns it.
        shape: The whole tensor's shape.
    """
    values = np.array(part)  # a view would keep the whole tensor in memory
    rows, columns = numbers_of(index, shape)
    return TensorTable(
        shape=tuple(shape), index=index, values=values, rows=rows, columns=columns, statistics=statistics(values)
    )


def numbers_of(index: Resolved, shape: Sequence[int]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the numbers of the rows and the columns that an index chooses; empty for a dimension that it lacks."""
    free = ((entry, n) for entry, n in zip(index, shape, strict=True) if isinstance(entry, slice))
    places = [np.array(_places(entry, n), np.int64) for entry, n in free]
    rows, columns = (*places, *(np.zeros(0, np.int64),) * 2)[:2]
    return rows, columns


def _places(entry: Entry, n: int) -> range:
    return range(n)[entry] if isinstance(entry, slice) else range(0)


def _concrete(entry: Entry, n: int) -> int | slice:
    if not isinstance(entry, slice):
        return operator.index(entry) % n  # type: ignore[arg-type]
    places = _places(entry, n)
    if not places:
        return slice(0, 0, places.step)
    return slice(places.start, places.stop if places.stop >= 0 else None, places.step)


def _spread(index: str | Entry | Index, shape: tuple[int, ...]) -> list[tuple[Entry, int | None]]:
    """Return one entry for each dimension, with its column in the text."""
    entries = _read(index)
    n_given = sum(entry is not ... for entry, _ in entries)
    if n_given > len(shape):
        column = [column for entry, column in entries if entry is not ...][len(shape)]
        _refuse(f"Too many indices: {n_given} for shape {shape}, which has {len(shape)} dimensions", index, column)
    every: list[tuple[Entry, int | None]] = [(slice(None), None)] * (len(shape) - n_given)
    at = next((i for i, (entry, _) in enumerate(entries) if entry is ...), len(entries))
    return entries[:at] + every + entries[at + 1 :]


def _refuse(message: str, index: object, column: int | None) -> NoReturn:
    shown = isinstance(index, str) and column is not None
    raise QueryError(f"{message}\n{caret(str(index), column or 0)}" if shown else message)


def _read(index: str | Entry | Index) -> list[tuple[Entry, int | None]]:
    if isinstance(index, str):
        return list(_parsed(index))
    entries = [_checked(entry) for entry in (index if isinstance(index, tuple) else (index,))]
    if entries.count(...) > 1:
        raise QuerySyntaxError("An index may have only one '...'")
    return [(entry, None) for entry in entries]


def _checked(entry: object) -> Entry:
    if entry is ...:
        return entry
    if isinstance(entry, slice):
        parts = [None if part is None else _integer(part) for part in (entry.start, entry.stop, entry.step)]
        if parts[2] == 0:
            raise QuerySyntaxError(f"The step of a slice cannot be 0, got {entry!r}")
        return slice(*parts)
    return _integer(entry)


def _integer(value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise QuerySyntaxError(f"{EXPECTED}, got {value!r:.40}")
    if number not in INT64:
        raise QuerySyntaxError(f"Expected an integer of at most 64 bits, got one of {number.bit_length()} bits")
    return number


def _parsed(text: str) -> Iterator[tuple[Entry, int]]:
    """Yield the entries of a text with their columns."""
    spans = _split(text, *_inside(text), ",")
    if not text[slice(*spans[-1])].strip():
        spans.pop()
    seen = False
    for start, stop in spans:
        piece, column = text[start:stop].strip(), _solid(text, start, stop)
        if not piece:
            raise QuerySyntaxError("Expected an integer or a slice before the comma", text=text, column=column)
        if piece == "..." and seen:
            raise QuerySyntaxError("An index may have only one '...': write ':'", text=text, column=column)
        seen = seen or piece == "..."
        yield _entry(text, start, stop), column


def _inside(text: str) -> tuple[int, int]:
    """Return where the entries begin and end, without the brackets."""
    end = len(text.rstrip())
    start = _solid(text, 0, end)
    opened = text.startswith("[", start)
    other = BRACKET.search(text, start + opened, end)
    if other is None:
        if opened:
            raise QuerySyntaxError("This bracket is never closed", text=text, column=start)
        return start, end
    place = other.start()
    if other[0] == "[":
        message = "A list of indices is not supported: write a slice such as 2:5"
    elif not opened:
        message = "This bracket was never opened"
    elif place < end - 1:
        message = "Expected nothing after the bracket: write all indices in one pair, as in [0, 1]"
        place = _solid(text, place + 1, end)
    else:
        return start + 1, place
    raise QuerySyntaxError(message, text=text, column=place)


def _solid(text: str, start: int, stop: int) -> int:
    """Return the place of the first character that is not blank, or the stop."""
    return stop - len(text[start:stop].lstrip())


def _split(text: str, start: int, stop: int, mark: str) -> list[tuple[int, int]]:
    """Return where the parts between the marks begin and end."""
    marks = [i for i in range(start, stop) if text[i] == mark]
    return [(before + 1, after) for before, after in pairwise([start - 1, *marks, stop])]


def _entry(text: str, start: int, stop: int) -> Entry:
    if text[start:stop].strip() == "...":
        return ...
    spans = _split(text, start, stop, ":")
    if len(spans) == 1:
        return _number(text, start, stop)
    if len(spans) > 3:
        raise QuerySyntaxError("A slice has two colons at most, as in 0:10:2", text=text, column=spans[3][0] - 1)
    parts = [_number(text, *span) if text[slice(*span)].strip() else None for span in spans]
    if parts[2:] == [0]:
        raise QuerySyntaxError("The step of a slice cannot be 0", text=text, column=_solid(text, *spans[2]))
    return slice(*parts)


def _number(text: str, start: int, stop: int) -> int:
    piece, column = text[start:stop].strip(), _solid(text, start, stop)
    match = INTEGER.fullmatch(piece)
    if match:
        digits = match[2].lstrip("0") or "0"
        if len(digits) <= 19 and (number := int(match[1] + digits)) in INT64:
            return number
        message = "Expected an integer of at most 64 bits"
    elif FLOAT.fullmatch(piece):
        message = f"Expected an integer, got {piece:.40}"
    elif piece in ("True", "False"):
        message = f"Expected an integer, got {piece}: write {int(piece == 'True')}"
    elif NEW_AXIS.fullmatch(piece):
        message = f"{piece:.40} would add a dimension, which an index cannot do here: leave it out"
    elif re.fullmatch(r"[-+0-9:.]+\s+[-+0-9:.\s]+", piece):
        message = "A comma is missing here"
        column += len(piece.split()[0])
    else:
        message = f"{EXPECTED}, got {piece!r:.40}"
    raise QuerySyntaxError(message, text=text, column=column)


# Read parts of arrays from a file without reading the rest.
#
# This takes the memory of the part and of one piece of `PIECE_BYTES`. Contiguous bytes are read at once into their
# place; scattered ones are picked from pieces; those that lie far apart are read one by one.

Array = npt.NDArray[Any]

PIECE_BYTES: Final = 2**20
FAR_BYTES: Final = 2**15  # copying that many bytes takes about as long as another read call


def read(file: RandomAccessFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], index: Resolved) -> Array:
    """Read a part of an array that lies in a file in C order.

    Args:
        file: The file.
        offset: The offset of the array, in bytes.
        dtype: Its dtype.
        shape: Its shape.
        index: The part, as `slices.resolve` returns it.

    Raises:
        DamagedError: The file ends before the array does.
    """
    places = [range(n)[i] if isinstance(i, slice) else range(i, i + 1) for i, n in zip(index, shape, strict=True)]
    part = np.empty(tuple(map(len, places)), dtype)
    if part.size:
        _Reader(file, dtype, shape, places).read(offset, 0, part)
    return part.reshape([len(place) for place, i in zip(places, index, strict=True) if isinstance(i, slice)])


class _Reader:
    def __init__(
        self, file: RandomAccessFile, dtype: np.dtype[Any], shape: tuple[int, ...], places: list[range]
    ) -> None:
        self._file = file
        self._dtype = dtype
        self._shape = shape
        self._places = places
        self._strides = [math.prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape))]
        self._whole = [place == range(n) for place, n in zip(places, shape, strict=True)]

    def read(self, offset: int, level: int, part: Array) -> None:
        """Read the selected part of the dimensions from `level` on, of the subarray at an offset."""
        if all(self._whole[level + 1 :]) and (level == len(self._shape) or self._places[level].step == 1):
            start = self._places[level].start * self._strides[level] if level < len(self._shape) else 0
            self._fill(offset + start, part)
            return
        place, stride = self._places[level], self._strides[level]
        apart = abs(place.step) * stride
        if stride > FAR_BYTES or (level + 1 == len(self._shape) and apart > FAR_BYTES):
            for i, at in enumerate(place):
                self.read(offset + at * stride, level + 1, part[i, ...])
            return
        n = max(1, PIECE_BYTES // apart)
        for i in range(0, len(place), n):
            self._pick(offset, level, place[i : i + n], part[i : i + n])

    def _pick(self, offset: int, level: int, place: range, part: Array) -> None:
        """Read a piece that holds some indices of a dimension, and pick them from it."""
        low, high = min(place[0], place[-1]), max(place[0], place[-1])
        piece = np.empty((high - low + 1, *self._shape[level + 1 :]), self._dtype)
        self._fill(offset + low * self._strides[level], piece)
        near = range(place.start - low, place.stop - low, place.step)
        part[...] = piece[tuple(_slice(r) for r in (near, *self._places[level + 1 :]))]

    def _fill(self, offset: int, part: Array) -> None:
        view = part.reshape(-1).view(np.uint8).data
        if self._file.readinto(offset, view) < len(view):
            raise DamagedError(f"{self._file.path}: the file ends before {offset + len(view)}")


def _slice(place: range) -> slice:
    return slice(place.start, place.stop if place.stop >= 0 else None, place.step)
