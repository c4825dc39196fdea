"""How responses are encoded: JSON for people and programs, msgpack for many numbers.

JSON lacks NaN and infinities: they become the strings "NaN", "Infinity" and "-Infinity". In msgpack, columns of numbers
are byte strings of little-endian float64.
"""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.audio import Audio
from sightglass.core.table import Table, column_type
from sightglass.core.values import (
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

from .sheets import drawn_cell, python_cells
from .sounds import wave_of

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
