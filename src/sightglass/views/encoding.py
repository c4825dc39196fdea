"""How responses are encoded: JSON for people and programs, msgpack for many numbers.

JSON lacks NaN and infinities: they become the strings "NaN", "Infinity" and "-Infinity". In msgpack, columns of numbers
are byte strings of little-endian float64.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns, Record
from sightglass.core.process.unpatched import threading
from sightglass.core.table import Table, column_type
from sightglass.core.values import (
    Audio,
    DeviceHistogram,
    Figure,
    Histogram,
    Image,
    Images,
    Tensor,
    Text,
    Value,
    array_bytes,
    array_kind,
    is_extended,
    to_host,
    type_name,
)
from sightglass.storage.format import png, wav

from .choose import is_number
from .frames import with_grid
from .sheets import drawn_cell, python_cells
from .summaries import wave_of

MAX_VALUE_BYTES: Final = 4 * 2**20
"""The largest array that is sent to the page as one value of a stream: about what a browser draws at once."""

MAX_TABLE_ROWS: Final = 100  # of a table in a stream; the page Media pages through all
MAX_DEPTH: Final = 64
LITTLE: Final = "<"
SAFE_INTEGER: Final = 2**53  # JavaScript rounds larger integers

_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()


def encode_json(value: object) -> bytes:
    """Encode a value as JSON."""
    return _json.encode(jsonable(value))


def encode_msgpack(value: object) -> bytes:
    """Encode a value as msgpack."""
    return _msgpack.encode(value)


def jsonable(value: object, depth: int = 0) -> Any:
    """Convert a value to JSON types: arrays become lists, non-finite numbers strings, bytes base64, the rest its `str`.

    Integers beyond 2**53 become strings, because JavaScript would round them.

    >>> jsonable({"a": (1, float("nan"))})
    {'a': [1, 'NaN']}
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else nonfinite_text(value)
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if isinstance(value, int):
        return int(value) if abs(value) <= SAFE_INTEGER else str(int(value))
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, np.generic):
        return _array(np.asarray(value), depth)
    if array_kind(value):
        return _array(np.asarray(to_host(value)), depth)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(item, depth + 1) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Histogram | DeviceHistogram):
        return jsonable(histogram(value), depth)
    if isinstance(value, msgspec.Struct):
        return {name: jsonable(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: jsonable(getattr(value, field.name), depth + 1) for field in fields}
    return str(value)


def nonfinite_text(value: float) -> str:
    """Return the string for NaN or an infinity, which JSON lacks."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _array(array: npt.NDArray[Any], depth: int) -> Any:
    array = portable(array)
    safe = array.dtype.kind == "b" or (array.dtype.kind == "f" and bool(np.isfinite(array).all()))
    if array.dtype.kind in "iu":
        safe = array.size == 0 or (array.max() <= SAFE_INTEGER and array.min() >= -SAFE_INTEGER)
    listed = array.tolist()
    return listed if safe else _each(listed)


def _each(value: object) -> Any:
    if isinstance(value, list):
        return [_each(item) for item in value]
    return jsonable(value) if isinstance(value, bool | int | float | str) else str(value)


def portable(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array in a dtype that other programs know: bfloat16 and similar dtypes become float32."""
    return array.astype(np.float32) if is_extended(array.dtype) else array


def floats(column: npt.ArrayLike) -> bytes:
    """Encode a column of numbers as float64."""
    return np.ascontiguousarray(column, "<f8").tobytes()


def integers(column: npt.ArrayLike) -> bytes:
    """Encode a column of numbers as int64."""
    return np.ascontiguousarray(column, "<i8").tobytes()


def histogram(value: Histogram | DeviceHistogram) -> dict[str, Any]:
    """Return the fields of a histogram."""
    parts = value.read() if isinstance(value, DeviceHistogram) else value
    return {"counts": parts.counts, "edges": parts.edges, "n_nan": parts.n_nan, "n_posinf": parts.n_posinf,
            "n_neginf": parts.n_neginf}  # fmt: skip


def pack(value: object, depth: int = 0) -> Any:
    """Convert a stream's value to msgpack types that the page can draw.

    Arrays are `{dtype, shape, data}`, histograms `{counts, edges, n_nan, n_posinf, n_neginf}`, an image
    `{png, caption}`, several `{images: [{png, caption}]}`, figures `{media_type, data}`, a sound
    `{wav, about, seconds, peak, peaks}`, a table `{columns, n_rows, rows}` with its first
    rows. An array larger than `MAX_VALUE_BYTES` is `{too_large: "float32[4096, 4096]"}`, and such a sound has no `wav`.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, Text):
        return pack(value.value)
    if isinstance(value, str):
        return str(value).encode("utf-8", "replace").decode()
    if depth > MAX_DEPTH:
        return "…"
    if isinstance(value, np.generic) and value.dtype.kind in "biuf":
        return value.item() if not is_extended(value.dtype) else float(value)
    if isinstance(value, Tensor):
        return _pack_array(value.value)
    if isinstance(value, Image):
        return {"png": png.encode_png(value.value), "caption": value.caption}
    if isinstance(value, Images):
        captions = [*value.captions, *[""] * len(value.value)]
        return {"images": [{"png": png.encode_png(one), "caption": captions[i]} for i, one in enumerate(value.value)]}
    if isinstance(value, Figure):
        return {"media_type": value.media_type, "data": bytes(value.data)}
    if isinstance(value, Audio):
        return _pack_sound(value)
    if isinstance(value, Table):
        return _pack_table(value)
    if isinstance(value, Histogram | DeviceHistogram):
        parts = histogram(value)
        return {**parts, "counts": _pack_array(parts["counts"]), "edges": _pack_array(parts["edges"])}
    if array_kind(value):
        return _pack_array(value)
    if isinstance(value, Mapping):
        return {str(key): pack(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [pack(item, depth + 1) for item in value]
    return str(value)


def _pack_sound(value: Audio) -> dict[str, Any]:
    wave = wave_of(value)
    played = {"wav": wav.encode_wav(value, to_play=True)} if array_bytes(value.value) <= MAX_VALUE_BYTES else {}
    peaks = wave.peaks.round(4).tolist()
    return {**played, "about": str(wave), "seconds": wave.seconds, "peak": wave.peak, "peaks": peaks}


def _pack_table(value: Table) -> dict[str, Any]:
    columns = [python_cells(column, slice(0, MAX_TABLE_ROWS)) for column in value.value.values()]
    drawn = [[drawn_cell(cell) for cell in row] for row in zip(*columns, strict=True)]
    rows = [[cell if isinstance(cell, dict) else pack(cell) for cell in row] for row in drawn]
    about = [{"name": name, "type": column_type(column)} for name, column in value.value.items()]
    return {"columns": about, "n_rows": len(value), "rows": rows}


def _pack_array(value: Value) -> dict[str, Any]:
    if array_bytes(value) > MAX_VALUE_BYTES:
        return {"too_large": type_name(value)}
    array = portable(np.asarray(to_host(value)))
    if array.dtype == np.float16:
        array = array.astype(np.float32)  # not every browser has Float16Array
    if array.dtype.kind == "c":
        array = np.abs(array)
    if array.dtype.kind not in "biuf":
        return {"too_large": type_name(value)} if array.size > 1000 else {"values": _each(array.tolist())}
    array = np.ascontiguousarray(array, array.dtype.newbyteorder(LITTLE))
    return {"dtype": array.dtype.name, "shape": list(array.shape), "data": array.tobytes()}


# The records of a stream as messages for browsers; each browser reads from its own cursor.
#
# Numbers are held as floats, in at most `MAX_POINTS` rows; of other values at most `MAX_ITEMS`, or `MAX_ITEM_BYTES`.
# What is more is thinned evenly (`core.buffer`). A browser that is behind by more records than it has room for gets
# them thinned to the resolution that the whole stream has in its room. Browsers with the same cursor and room share a
# message. One thread adds, others take.

MAX_POINTS: Final = 2**17  # 4 MiB per stream
MAX_BYTES: Final = 64 * 2**20
MAX_ITEMS: Final = 256  # more frames than a reader steps back through
MAX_ITEM_BYTES: Final = 32 * 2**20
MAX_MESSAGE_BYTES: Final = 8 * 2**20  # a second of a slow network; older values are left out

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogMessage:
    """One message to a browser.

    Attributes:
        message: The message.
        cursor: The cursor after it.
        n: How many records it holds.
    """

    message: dict[str, Any]
    cursor: int
    n: int


class Backlog:
    """The held records of a stream.

    Attributes:
        numeric: Whether they are numbers; `None` before the first.
        n_unfit: How many of them were expected to be numbers, and were not.
        restarts: The numbers of the first records of runs that began again.
    """

    def __init__(self) -> None:
        self.numeric: bool | None = None
        self.n_unfit = 0
        self.restarts: tuple[int, ...] = ()
        self._buffer = Buffer(max_rows=MAX_POINTS, max_bytes=MAX_BYTES)
        self._first = 0
        self._taken: dict[tuple[int, int], BacklogMessage] = {}
        self._packed: dict[int, tuple[Any, int]] = {}
        self._lock = threading.Lock()

    @property
    def n(self) -> int:
        """How many records arrived."""
        return self._buffer.n

    @property
    def end(self) -> int:
        """The number that follows the last record's."""
        return self._buffer.end

    @property
    def bucket(self) -> int:
        """How many records an older one stands for; 1 as long as all are held."""
        return self._buffer.bucket

    def add(self, columns: Columns) -> None:
        """Add records. The first value that is not `None` decides whether they are numbers; another value is a gap."""
        if not len(columns):
            return
        with self._lock:
            if not self._buffer.n:
                self._first = columns.index
            if self.numeric is None:
                value = next((value for value in columns.values if value is not None), None)
                self.numeric = value is None or is_number(value)
                if not self.numeric:
                    self._buffer.bound(max_rows=MAX_ITEMS, max_bytes=MAX_ITEM_BYTES)
            self._buffer.add(replace(columns, values=self._floats(columns.values)) if self.numeric else columns)
            self._taken.clear()

    def take(self, cursor: int, points: int) -> BacklogMessage | None:
        """Return the records from a number on, thinned if a browser has room for `points` buckets; `None` if none."""
        if cursor >= self._buffer.end:
            return None
        with self._lock:
            taken = self._taken.get((cursor, points))
            if taken is None:
                taken = self._numbers(cursor, points) if self.numeric else self._values(cursor)
                self._taken[cursor, points] = taken
            return taken

    def _floats(self, values: Sequence[Value] | npt.NDArray[Any]) -> Floats:
        if isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype.kind in "biuf":
            return values.astype(np.float64)
        return np.array([self._float(value) for value in values], np.float64)

    def _float(self, value: Value) -> float:
        if value is None:
            return float("nan")
        if isinstance(value, bool | int | float) or is_number(value):
            try:
                return float(value)
            except OverflowError:
                return float("inf") if value > 0 else -float("inf")
        self.n_unfit += 1
        return float("nan")

    def _numbers(self, cursor: int, points: int) -> BacklogMessage:
        end, columns = self._buffer.since(cursor)
        if len(columns) > 2 * points:
            bits = max(self._buffer.bits, ((end - self._first - 1) // points).bit_length())
            end, columns = self._buffer.since(cursor, bits=bits)
        areas = {} if columns.areas is None else {"area": floats(columns.areas)}
        message = {**self._places(columns, cursor, end), "y": floats(columns.values), **areas}
        return BacklogMessage(message=message, cursor=end, n=len(columns))

    def _values(self, cursor: int) -> BacklogMessage:
        end, columns = self._buffer.since(cursor)
        held = self._packed
        records = columns.records(tag="", run="")
        size, first = 0, len(records)
        self._packed = {}
        for i in reversed(range(len(records))):
            packed = held.get(records[i].index) or packed_value(records[i])
            size += packed[1]
            if first < len(records) and size > MAX_MESSAGE_BYTES:
                break
            self._packed[records[i].index] = packed
            first = i
        columns = columns.slice(first)
        values = [self._packed[record.index][0] for record in records[first:]]
        message = {**self._places(columns, cursor, end), "values": values}
        return BacklogMessage(message=message, cursor=end, n=len(columns))

    def _places(self, columns: Columns, cursor: int, end: int) -> dict[str, Any]:
        restarts = [at for at in self.restarts if cursor <= at < end]
        return {
            "first": cursor, "n": end - cursor, "bits": columns.bits, "index": integers(columns.numbers),
            "step": floats(columns.steps), "wall": floats(columns.wall_times),
            **({"restarts": restarts} if restarts else {}),
        }  # fmt: skip


def packed_value(record: Record) -> tuple[Any, int]:
    """Pack a value, and return it with its bytes; the reason if it cannot be packed, or is too large."""
    try:
        value = pack(with_grid(record).value)
    except Exception as error:  # noqa: BLE001  one bad value must not end the stream
        value = {"problem": f"{type(error).__name__}: {error}"[:500]}
    n_bytes = len(encode_msgpack(value))
    if n_bytes > MAX_MESSAGE_BYTES:
        value, n_bytes = {"too_large": f"{n_bytes:,} bytes"}, 100
    return value, n_bytes
