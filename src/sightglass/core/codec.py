"""Values as bytes: msgpack for structure, raw buffers for arrays. No code ever travels.

`encode` gives one msgpack blob and a list of buffers beside it; arrays over `INLINE_BYTES` are not copied. `decode`
gives the value back with its types: bool, int (64 bits), float, complex, str, bytes, None, lists, tuples, mappings with
text keys, NumPy arrays and scalars, and the kinds of `core.values`. Arrays come back read-only, as views of what was
received.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from .errors import UnsendableError, WireError
from .values import Figure, Histogram, Image, Images, Tensor, Text, array_kind, is_container, rebuild, to_host

INLINE_BYTES = 4096
MAX_DEPTH = 64
MAX_DIMS = 32

ARRAY, SCALAR, TUPLE, COMPLEX, BIGINT, KIND = range(1, 7)
KINDS: dict[str, type] = {kind.__name__: kind for kind in (Tensor, Text, Image, Images, Figure)}

Buffer = bytes | bytearray | memoryview

_msgpack = msgspec.msgpack.Encoder()


def encode(value: Any) -> tuple[bytes, list[Buffer]]:
    """Encode a value; returns its msgpack blob and the buffers that go beside it.

    Raises:
        UnsendableError: The value, or one inside it, has a type that cannot travel.
    """
    buffers: list[Buffer] = []
    return _msgpack.encode(_pack(value, buffers, "$", 0)), buffers


def decode(blob: Buffer, buffers: Sequence[Buffer] = ()) -> Any:
    """Decode what `encode` gave.

    Raises:
        WireError: These are not the bytes of a value.
    """

    def extension(code: int, data: memoryview) -> Any:
        return _unpack(code, data, buffers, extension)

    try:
        return msgspec.msgpack.decode(blob, ext_hook=extension)
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError) as error:
        raise WireError(f"Expected an encoded value, got {len(blob)} bytes that are none: {error}") from error


def _pack(value: Any, buffers: list[Buffer], path: str, depth: int) -> Any:
    kind = type(value)
    if kind in (float, str, bool, bytes, type(None)):
        return value
    if depth > MAX_DEPTH:
        raise UnsendableError(f"Expected at most {MAX_DEPTH} levels of nesting, got more at {path}")
    if kind is int:
        return value if -(2**63) <= value < 2**63 else _ext(BIGINT, [str(value)])
    if isinstance(value, np.generic) and value.dtype.kind != "O":
        return _ext(SCALAR, [_dtype_name(value.dtype, path), value.tobytes()])
    if isinstance(value, np.ndarray):
        return _pack_array(value, buffers, path)
    if array_kind(value):
        return _pack(to_host(value), buffers, path, depth)
    if kind is complex:
        return _ext(COMPLEX, [value.real, value.imag])
    if isinstance(value, Mapping):
        return {_key(k, path): _pack(v, buffers, f"{path}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, Histogram):
        fields = [value.counts, value.edges, value.n_nan, value.n_posinf, value.n_neginf]
        return _ext(KIND, ["Histogram", [_pack(item, buffers, path, depth + 1) for item in fields]])
    if kind.__name__ in KINDS and kind is KINDS[kind.__name__]:
        fields = [getattr(value, name) for name in kind.__slots__]
        return _ext(KIND, [kind.__name__, [_pack(item, buffers, path, depth + 1) for item in fields]])
    if isinstance(value, list | tuple):
        items = [_pack(item, buffers, f"{path}[{i}]", depth + 1) for i, item in enumerate(value)]
        return items if isinstance(value, list) else _ext(TUPLE, items)
    if is_container(value):
        return _pack(rebuild(value, lambda item: item), buffers, path, depth)
    raise UnsendableError(f"Expected a number, text, array or a container of these, got {kind.__name__} at {path}")


def _pack_array(array: np.ndarray[Any, Any], buffers: list[Buffer], path: str) -> msgspec.msgpack.Ext:
    dtype = _dtype_name(array.dtype, path)
    contiguous = np.ascontiguousarray(array)
    raw = contiguous.view(np.uint8).reshape(-1).data if contiguous.nbytes else b""
    if contiguous.nbytes <= INLINE_BYTES:
        return _ext(ARRAY, [dtype, list(array.shape), bytes(raw)])
    buffers.append(raw)
    return _ext(ARRAY, [dtype, list(array.shape), len(buffers) - 1])


def _ext(code: int, content: list[Any]) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _msgpack.encode(content))


def _key(key: Any, path: str) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, bool | int | float):
        return str(key)
    raise UnsendableError(f"Expected text as the keys of a mapping, got {type(key).__name__} at {path}")


def _dtype_name(dtype: np.dtype[Any], path: str) -> str:
    if dtype.kind in "biufcSU":
        return dtype.str
    if dtype.kind == "V" and dtype.names is None and type(dtype).__module__ != "numpy":
        return dtype.name  # bfloat16 and the float8s of ml_dtypes
    if dtype.kind in "mM":
        return dtype.str
    raise UnsendableError(f"Expected an array of numbers or text, got dtype {dtype} at {path}")


def _dtype(name: str) -> np.dtype[Any]:
    try:
        dtype = np.dtype(name)
    except TypeError:
        import ml_dtypes  # type: ignore[import-not-found,unused-ignore]  # comes with JAX, which made the array

        dtype = np.dtype(getattr(ml_dtypes, name))
    if dtype.hasobject:
        raise WireError(f"Expected a dtype of numbers or text, got {name!r}")
    return dtype


def _unpack(code: int, data: memoryview, buffers: Sequence[Buffer], extension: Any) -> Any:
    content = msgspec.msgpack.decode(data, ext_hook=extension)
    match code:
        case 1:
            name, shape, place = content
            return _unpack_array(_dtype(name), shape, place, buffers)
        case 2:
            name, raw = content
            return np.frombuffer(raw, _dtype(name), count=1)[0]
        case 3:
            return tuple(content)
        case 4:
            return complex(*content)
        case 5:
            return int(content[0]) if len(content[0]) <= 64 else math.inf
        case 6:
            name, fields = content
            if name == "Histogram":
                counts, edges, n_nan, n_posinf, n_neginf = fields
                return Histogram.from_counts(counts, edges, n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf)
            return KINDS[name](*fields)
    raise WireError(f"Expected an extension from {ARRAY} to {KIND}, got {code}")


def _unpack_array(
    dtype: np.dtype[Any], shape: list[int], place: int | bytes, buffers: Sequence[Buffer]
) -> np.ndarray[Any, Any]:
    if len(shape) > MAX_DIMS or any(not isinstance(n, int) or n < 0 for n in shape):
        raise WireError(f"Expected a shape of at most {MAX_DIMS} sizes, got {shape!r}")
    raw: Buffer = place if isinstance(place, bytes) else buffers[place]
    expected = math.prod(shape) * dtype.itemsize
    if len(raw) != expected:
        raise WireError(f"Expected {expected} bytes for shape {shape}, got {len(raw)}")
    return np.frombuffer(raw, dtype).reshape(shape) if expected else np.zeros(shape, dtype)
