"""Values as TensorBoard's event files hold them; see `tensorboard` for what is read."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.audio import Audio
from sightglass.core.codec import Buffer
from sightglass.core.errors import UnsendableError
from sightglass.core.table import Table
from sightglass.core.values import Figure, Histogram, Image, Text
from sightglass.storage.format import png, tensor_proto, wav
from sightglass.storage.format.summary import bytes_field, double_field, float_field, varint_field

from .event_encoding import Encodable
from .tensorboard_charts import PR_CURVES, rows_of

SIMPLE_VALUE, IMAGE, HISTO, AUDIO, TENSOR, METADATA = 2, 4, 5, 6, 8, 9
TEXT_METADATA: Final = (*bytes_field(1, *bytes_field(1, b"text")), varint_field(4, 2))

# Types.proto: the numbers of dtypes, and in which field of TensorProto their numbers are when not in its content.
STRING: Final = 7
DTYPES: Final = {
    1: ("float32", 5), 2: ("float64", 6), 3: ("int32", 7), 4: ("uint8", 7), 5: ("int16", 7), 6: ("int8", 7),
    8: ("complex64", 9), 9: ("int64", 10), 10: ("bool", 11), 14: ("bfloat16", 13), 17: ("uint16", 7),
    18: ("complex128", 12), 19: ("float16", 13), 22: ("uint32", 16), 23: ("uint64", 17),
}  # fmt: skip
DATA_TYPES: Final = {name: number for number, (name, _) in DTYPES.items()}
SHAPE, CONTENT, STRINGS = 2, 4, 8

Array = npt.NDArray[Any]


def encode_value(value: Encodable) -> list[Buffer]:
    """Return the fields of a Summary.Value that hold a value.

    Raises:
        UnsendableError: TensorBoard event files do not support it.
    """
    match value:
        case float():
            return [float_field(SIMPLE_VALUE, value)]
        case Histogram():
            return bytes_field(HISTO, *_encode_histogram(value))
        case np.ndarray():
            return _encode_array(value)
        case Table():
            rows = rows_of(value)
            plugin = (*bytes_field(1, PR_CURVES.encode()), *bytes_field(2, varint_field(2, len(value))))
            return [*_encode_array(rows), *bytes_field(METADATA, *bytes_field(1, *plugin), varint_field(4, 2))]
        case Image():
            return _encode_image(png.encode_png(value.value))
        case Figure():
            return _encode_image(value.data)
        case Audio():
            return _encode_audio(value)
        case Text():
            tensor = (*encode_tensor(STRING, ()), *bytes_field(STRINGS, value.value.encode()))
            return [*bytes_field(TENSOR, *tensor), *bytes_field(METADATA, *TEXT_METADATA)]
    raise UnsendableError(f"TensorBoard event files do not support {type(value).__name__}")


def _encode_array(value: Array) -> list[Buffer]:
    if value.dtype.name not in DATA_TYPES:
        raise UnsendableError(f"TensorBoard event files do not support arrays of {value.dtype}")
    tensor = encode_tensor(DATA_TYPES[value.dtype.name], value.shape)
    return bytes_field(TENSOR, *tensor, *bytes_field(CONTENT, tensor_proto.raw(value)))


def encode_tensor(data_type: int, shape: tuple[int, ...]) -> list[Buffer]:
    """Return the fields of a TensorProto that say which numbers follow."""
    sizes = [part for n in shape for part in bytes_field(2, varint_field(1, n))]
    return [varint_field(1, data_type), *bytes_field(SHAPE, *sizes)]


def _encode_image(data: bytes) -> list[Buffer]:
    picture = png.picture(data)
    if picture is None:
        raise UnsendableError("TensorBoard event files support PNG, JPEG and GIF images only")
    sizes = (varint_field(1, picture.height), varint_field(2, picture.width), varint_field(3, picture.n_channels))
    return bytes_field(IMAGE, *sizes, *bytes_field(4, data))


def _encode_audio(value: Audio) -> list[Buffer]:
    n, n_channels = wav.samples_of(value).shape
    sizes = (float_field(1, value.rate), varint_field(2, n_channels), varint_field(3, n))
    return bytes_field(AUDIO, *sizes, *bytes_field(4, wav.encode_wav(value)), *bytes_field(5, wav.MEDIA_TYPE.encode()))


def _encode_histogram(value: Histogram) -> list[Buffer]:
    counts, edges = value.counts.astype(np.float64), value.edges
    middles = edges[:-1] / 2 + edges[1:] / 2
    with np.errstate(over="ignore"):
        sums = (float(edges[0]), float(edges[-1]), counts.sum(), float(middles @ counts), float(middles**2 @ counts))
    fields = (double_field(number, item) for number, item in enumerate(sums, 1))
    return [*fields, *bytes_field(6, tensor_proto.raw(edges[1:])), *bytes_field(7, tensor_proto.raw(counts))]
