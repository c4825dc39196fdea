"""Values as bytes: msgpack for structure, raw buffers for arrays. Code is never encoded.

`encode` returns one msgpack blob and a list of buffers; arrays over `INLINE_BYTES` are not copied. `decode` restores
the value with its types: bool, int, float, complex, str, bytes, None, lists, tuples, mappings of texts or ints, NumPy
arrays and scalars, and the types of `core.values`. Decoded arrays are read-only views of the received bytes.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np

from .errors import UnsendableError, WireError
from .program_values.array_data import as_data, is_masked
from .program_values.guarded import FAILURES, LostValue, fields_of, message, named_tuple, parts
from .table import Table
from .values import (
    Audio,
    Figure,
    Histogram,
    Image,
    Images,
    Tensor,
    Text,
    Value,
    array_kind,
    is_extended,
    to_host,
)

INLINE_BYTES = 4096  # copying this much takes less time than sending a buffer of its own
MAX_DEPTH = 64  # of containers; well below Python's recursion limit
MAX_DIMS = 32  # as many as NumPy 1 has
MAX_INT_BYTES = 1024  # 2,466 digits; Python refuses to print more than 4,300

NUMPY_DTYPE = re.compile(r"[<>|=]([biufcSU]\d{1,10}|[mM]8(\[\d{0,9}[a-zA-Z]{1,2}\])?)")
EXTENDED_DTYPE = re.compile(r"bfloat16|u?int\d|float\d_e\d+m\d+\w*")

ARRAY, SCALAR, TUPLE, COMPLEX, BIGINT, KIND, NAMED = range(1, 8)
KINDS: dict[str, type] = {kind.__name__: kind for kind in (Tensor, Text, Image, Images, Figure, Audio, Table)}

Buffer = bytes | bytearray | memoryview

PLAIN = frozenset((float, bool, type(None)))
INTEGERS = frozenset((int, bool))
TEXTS = frozenset((str,))

_msgpack = msgspec.msgpack.Encoder()


def encode(value: object) -> tuple[bytes, list[Buffer]]:
    """Encode a value; returns its msgpack blob and its buffers.

    Raises:
        UnsendableError: The value, or one inside it, has a type that cannot be encoded.
    """
    buffers: list[Buffer] = []
    try:
        return _msgpack.encode(_pack(value, buffers, "$", 0)), buffers
    except UnsendableError:
        raise
    except FAILURES as error:
        raise UnsendableError(f"Expected a value that can be read: {message(error)}") from error


def decode(blob: Buffer, buffers: Sequence[Buffer] = ()) -> Any:
    """Decode the result of `encode`.

    Raises:
        WireError: The bytes are not an encoded value.
    """

    def extension(code: int, data: memoryview) -> Any:
        return _unpack(code, data, buffers, extension)

    try:
        return msgspec.msgpack.decode(blob, ext_hook=extension)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as error:
        raise WireError(f"Expected an encoded value, got {len(blob)} bytes that are not one: {error}") from error


def _pack(value: Value, buffers: list[Buffer], path: str, depth: int) -> Any:
    kind = type(value)
    if kind in (float, bool, bytes, type(None)):
        return value
    if kind is str:
        return _text(value, path)
    if depth > MAX_DEPTH:
        raise UnsendableError(f"Expected at most {MAX_DEPTH} levels of nesting, got more at {path}")
    if kind is int:
        return value if -(2**63) <= value < 2**63 else _pack_bigint(value, path)
    if isinstance(value, str | bytes):  # of NumPy, or a member of an enumeration
        return _text(str.__str__(value), path) if isinstance(value, str) else bytes(value)
    if isinstance(value, np.ndarray | np.void) and value.dtype.names:
        return _pack({name: value[name] for name in value.dtype.names}, buffers, path, depth)
    if isinstance(value, np.generic) and value.dtype.kind != "O":
        return _ext(SCALAR, [_dtype_name(value.dtype, path), value.tobytes()])
    if isinstance(value, np.ndarray) and not is_masked(kind):
        return _pack_array(value, buffers, path)
    if is_masked(kind):
        return _pack(as_data(value), buffers, path, depth)
    if array_kind(value):
        return _pack(to_host(value), buffers, path, depth)
    if kind is complex:
        return _ext(COMPLEX, [value.real, value.imag])
    if isinstance(value, Histogram):
        fields = [value.counts, value.edges, value.n_nan, value.n_posinf, value.n_neginf, *(value.stored or ())]
        return _ext(KIND, ["Histogram", [_pack(item, buffers, path, depth + 1) for item in fields]])
    if kind.__name__ in KINDS and kind is KINDS[kind.__name__]:
        fields = [getattr(value, name) for name in kind.__slots__]
        return _ext(KIND, [kind.__name__, [_pack(item, buffers, path, depth + 1) for item in fields]])
    if kind is LostValue:
        raise UnsendableError(f"{value.why} at {value.path or path}")
    if kind is list and _is_plain(value):
        return value
    if kind is dict and TEXTS.issuperset(map(type, value)) and _is_plain(value) and _is_plain(value.values()):
        return value
    pairs = _pairs(value)
    if pairs is not None and issubclass(kind, list | tuple):
        items = [_pack(item, buffers, f"{path}[{i}]", depth + 1) for i, item in pairs]
        if issubclass(kind, list):
            return items
        names = fields_of(kind, len(items))
        return _ext(NAMED, [list(names), items]) if names else _ext(TUPLE, items)
    if pairs is not None:
        return {_key(k, path): _pack(v, buffers, f"{path}.{k}", depth + 1) for k, v in pairs}
    if isinstance(value, int | float):  # a member of an enumeration
        return _pack(int(value) if isinstance(value, int) else float(value), buffers, path, depth)
    raise UnsendableError(f"Expected a number, string, array or a container of these, got {kind.__name__} at {path}")


def _is_plain(items: Collection[Value]) -> bool:
    """Return whether msgpack encodes all items as `_pack` would; to look takes a tenth of the time of packing each."""
    types = set(map(type, items))
    if types <= PLAIN:
        return True
    if types == TEXTS:
        return all(map(str.isascii, items))
    return types <= INTEGERS and min(items) >= -(2**63) and max(items) < 2**63


def _pairs(value: Value) -> Iterable[tuple[Any, Any]] | None:
    """Return what is in a container; the built-in ones, which most values are, are read without `parts`."""
    kind = type(value)
    if kind is dict:
        return value.items()  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        return enumerate(value)
    found = parts(value)
    return None if found is None else found.pairs


def _pack_array(array: np.ndarray[Any, Any], buffers: list[Buffer], path: str) -> msgspec.msgpack.Ext:
    dtype = _dtype_name(array.dtype, path)
    contiguous = np.ascontiguousarray(np.asarray(array))
    raw = contiguous.view(np.uint8).reshape(-1).data if contiguous.nbytes else b""
    if contiguous.nbytes <= INLINE_BYTES:
        return _ext(ARRAY, [dtype, list(array.shape), bytes(raw)])
    buffers.append(raw)
    return _ext(ARRAY, [dtype, list(array.shape), len(buffers) - 1])


def _ext(code: int, content: list[Any]) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _msgpack.encode(content))


def _pack_bigint(value: int, path: str) -> msgspec.msgpack.Ext:
    n_bytes = value.bit_length() // 8 + 1
    if n_bytes > MAX_INT_BYTES:
        raise UnsendableError(f"Expected integers of at most {MAX_INT_BYTES} bytes, got {n_bytes} at {path}")
    return _ext(BIGINT, [value.to_bytes(n_bytes, "little", signed=True)])


def _text(text: str, path: str) -> str:
    try:
        if not text.isascii():
            text.encode()
    except UnicodeEncodeError as error:
        raise UnsendableError(f"Expected a string that UTF-8 can encode, got {error.reason} at {path}") from None
    return text


def _key(key: object, path: str) -> str | int:
    if isinstance(key, str):
        return _text(str.__str__(key), path)
    if type(key) is int and -(2**63) <= key < 2**64:
        return key
    if isinstance(key, bool | int | float):
        return str(key)
    raise UnsendableError(f"Expected strings as the keys of a mapping, got {type(key).__name__} at {path}")


def _dtype_name(dtype: np.dtype[Any], path: str) -> str:
    if is_extended(dtype):
        return dtype.name
    if dtype.kind in "biufcSUmM" and dtype.itemsize:
        return dtype.str
    raise UnsendableError(f"Expected an array of numbers or strings, got dtype {dtype} at {path}")


def _dtype(name: object) -> np.dtype[Any]:
    """Return the dtype of a name.

    Raises:
        WireError: The name is not that of a dtype of numbers or strings; structured dtypes and objects are refused.
    """
    if isinstance(name, str) and NUMPY_DTYPE.fullmatch(name):
        dtype = np.dtype(name)
        if dtype.itemsize:
            return dtype
    if isinstance(name, str) and EXTENDED_DTYPE.fullmatch(name):
        try:
            import ml_dtypes  # type: ignore[import-not-found,unused-ignore]  # comes with JAX
        except ImportError:
            raise WireError(
                f"Expected ml_dtypes to be installed for an array of {name}: pip install ml_dtypes"
            ) from None
        if hasattr(ml_dtypes, name):
            extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return extended
    raise WireError(f"Expected a dtype of numbers or strings, got {name!r:.100}")


def _unpack(code: int, data: memoryview, buffers: Sequence[Buffer], extension: Value) -> Any:
    content = msgspec.msgpack.decode(data, ext_hook=extension)
    if not isinstance(content, list):
        raise WireError(f"Expected a list in extension {code}, got {type(content).__name__}")
    match code, content:
        case 1, [name, list(shape), place]:
            return _unpack_array(name, shape, place, buffers)
        case 2, [name, bytes(raw)]:
            return _unpack_array(name, [], raw, ())[()]
        case 3, _:
            return tuple(content)
        case 4, [float(real), float(imaginary)]:
            return complex(real, imaginary)
        case 5, [bytes(raw)] if len(raw) <= MAX_INT_BYTES:
            return int.from_bytes(raw, "little", signed=True)
        case 6, [str(name), list(fields)]:
            return _unpack_kind(name, fields)
        case 7, [list(names), list(items)] if len(names) == len(items) and TEXTS.issuperset(map(type, names)):
            return named_tuple(tuple(names), items)
    raise WireError(f"Expected an extension from {ARRAY} to {NAMED}, got {code} with {len(content)} items")


def _unpack_array(name: object, shape: list[Any], place: object, buffers: Sequence[Buffer]) -> np.ndarray[Any, Any]:
    if len(shape) > MAX_DIMS or any(type(n) is not int or not 0 <= n < 2**63 for n in shape):
        raise WireError(f"Expected a shape of at most {MAX_DIMS} sizes, got {shape!r:.100}")
    if not (isinstance(place, bytes) or (type(place) is int and 0 <= place < len(buffers))):
        raise WireError(f"Expected the index of one of {len(buffers)} buffers, got {place!r:.100}")
    raw = memoryview(place if isinstance(place, bytes) else buffers[place]).cast("B").toreadonly()
    if name == "bfloat16" and find_spec("ml_dtypes") is None:
        widened = np.frombuffer(raw, "<u2").astype("<u4") << 16
        array, itemsize = widened.view(np.float32), 2
    else:
        dtype = _dtype(name)
        itemsize = dtype.itemsize
        array = np.frombuffer(raw, dtype) if len(raw) else np.zeros(0, dtype)
    if len(raw) != math.prod(shape) * itemsize:
        raise WireError(f"Expected {math.prod(shape) * itemsize} bytes for shape {shape}, got {len(raw)}")
    if array.dtype.kind == "U" and len(raw) and array.view(array.dtype.byteorder + "u4").max() > sys.maxunicode:
        raise WireError("Expected strings, got numbers that are not characters")
    array = array.reshape(shape)
    array.flags.writeable = False
    return array


def _is_stored(fields: list[Any]) -> bool:
    """Return whether these can be `Histogram.stored`; most histograms have nothing stored."""
    return not fields or (len(fields) == 3 and all(type(field) is float for field in fields))


def _unpack_kind(name: str, fields: list[Any]) -> Any:
    match name, fields:
        case "Histogram", [np.ndarray() as counts, np.ndarray() as edges, int(nan), int(pos), int(neg), *stored]:
            if counts.dtype.kind == "i" and edges.dtype.kind == "f" and _is_stored(stored):
                outside = {"n_nan": nan, "n_posinf": pos, "n_neginf": neg}
                return Histogram.from_counts(counts, edges, **outside, stored=tuple(stored) or None)
        case "Tensor", [value]:
            return Tensor(value)
        case "Text", [str(text)]:
            return Text(text)
        case "Image", [value, str(caption)]:
            return Image(value, caption)
        case "Images", [value, tuple(captions)]:
            return Images(value, captions)
        case "Figure", [bytes(picture), str(media_type)]:
            return Figure(picture, media_type)
        case "Audio", [np.ndarray() as samples, int(rate)]:
            return Audio(samples, rate)
        case "Table", [dict(columns)]:
            return Table(columns)
    raise WireError(f"Expected a Histogram, {', '.join(KINDS)}, got {name!r:.100} with {len(fields)} fields")
