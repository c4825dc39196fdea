"""Pictures as PNG files, and the size and kind of a picture file from its first bytes.

Sources: https://www.w3.org/TR/png-3/, ITU T.81 (JPEG) appendix B, https://www.w3.org/Graphics/GIF/spec-gif89a.txt.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer

SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
COLOUR_TYPES: Final = {1: 0, 3: 2, 4: 6}
CHANNELS: Final = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}
MAX_COLUMNS: Final = 8
MAX_JPEG_SEGMENTS: Final = 1_000
START_OF_FRAME: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Picture:
    """The header of a picture file; sizes in pixels."""

    media_type: str
    height: int
    width: int
    n_channels: int


def pixels(image: npt.ArrayLike) -> Pixels:
    """Return pictures as uint8.

    Args:
        image: Bools, integers from 0 to 255 or floats from 0 to 1, of any shape; values beyond are clipped, and NaN
            is black.

    Raises:
        ValueError: It holds something else.
    """
    array = np.asarray(image)
    match array.dtype.kind:
        case "b":
            array = array * np.uint8(255)
        case "i" | "u":
            array = array if array.dtype == np.uint8 else array.clip(0, 255)
        case "f":
            array = np.rint(np.nan_to_num(array.astype(np.float64), nan=0.0).clip(0, 1) * 255)
        case _:
            raise ValueError(f"Expected numbers as the pixels of a picture, got dtype {array.dtype}")
    return array.astype(np.uint8, copy=False)


def canvas(image: npt.ArrayLike) -> Pixels:
    """Return one picture in shape (height, width, channels).

    Args:
        image: Shape (height, width) or (height, width, channels) with 1, 3 or 4 channels, as `pixels` takes it.

    Raises:
        ValueError: It has another shape.
    """
    array = pixels(image)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or array.shape[2] not in COLOUR_TYPES or not array.size:
        raise ValueError(f"Expected a picture of shape (height, width[, 1, 3 or 4 channels]), got {np.shape(image)}")
    return array


def rgb(image: npt.ArrayLike) -> Pixels:
    """Return one picture in red, green and blue; transparent pixels are blended with white."""
    array = canvas(image)
    if array.shape[2] == 4:
        opacity = array[:, :, 3:] / 255.0
        return np.rint(array[:, :, :3] * opacity + 255 * (1 - opacity)).astype(np.uint8)
    return np.broadcast_to(array, (*array.shape[:2], 3))


def grid(images: npt.ArrayLike) -> Pixels:
    """Lay pictures of one size out on a canvas of at most eight columns, row by row; the rest stays black.

    Args:
        images: Shape (count, height, width) or (count, height, width, channels), as `pixels` takes them.

    Returns:
        Shape (height, width) or (height, width, channels) of the canvas.

    Raises:
        ValueError: There is no picture, or the pictures have another shape.
    """
    array = pixels(images)
    if array.ndim not in (3, 4) or not array.size:
        raise ValueError(f"Expected pictures of shape (count, height, width[, channels]), got {array.shape}")
    n, height, width, *channels = array.shape
    columns = min(n, MAX_COLUMNS)
    rows = -(-n // columns)
    tiles = np.zeros((rows * columns, height, width, *channels), np.uint8)
    tiles[:n] = array
    laid = tiles.reshape(rows, columns, height, width, *channels).swapaxes(1, 2)
    return laid.reshape(rows * height, columns * width, *channels)


def encode_png(image: npt.ArrayLike) -> bytes:
    """Encode one picture, as `canvas` takes it, as a PNG file.

    Raises:
        ValueError: It has another shape.
    """
    array = canvas(image)
    height, width, n_channels = array.shape
    lines = np.zeros((height, 1 + width * n_channels), np.uint8)  # each begins with its filter: 0, none
    lines[:, 1:] = array.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, COLOUR_TYPES[n_channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )


def picture(data: Buffer) -> Picture | None:
    """Read the header of a picture file from its first bytes; `None` unless it is a PNG, JPEG or GIF."""
    first = bytes(data[:26])
    if first.startswith(SIGNATURE) and first[12:16] == b"IHDR" and len(first) == 26:
        width, height, _, colour_type = struct.unpack(">IIBB", first[16:])
        return Picture("image/png", height, width, CHANNELS.get(colour_type, 3))
    if first[:6] in (b"GIF87a", b"GIF89a") and len(first) >= 10:
        width, height = struct.unpack("<HH", first[6:10])
        return Picture("image/gif", height, width, 3)
    if first.startswith(b"\xff\xd8\xff"):
        return _jpeg(data)
    return None


def _jpeg(data: Buffer) -> Picture | None:
    """Find the segment that tells the size of a JPEG picture."""
    place = 2
    for _ in range(MAX_JPEG_SEGMENTS):
        head: Any = bytes(data[place : place + 10])
        if len(head) < 10 or head[0] != 0xFF:
            return None
        if head[1] == 0xFF:  # a fill byte
            place += 1
        elif head[1] in START_OF_FRAME:
            height, width, n_channels = struct.unpack(">HHB", head[5:])
            return Picture("image/jpeg", height, width, n_channels)
        else:
            place += 2 + int.from_bytes(head[2:4])
    return None
