"""Sounds as WAV files: integers of 8, 16 and 32 bits and floats of 32 and 64 bits as they are.

Source: Multimedia Programming Interface and Data Specifications 1.0 (1991), RIFF and WAVE; the formats 3 (floats) and
0xFFFE (extensible) as in mmreg.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError
from sightglass.core.values import MAX_CHANNELS, MAX_RATE, Audio, to_host

MEDIA_TYPE: Final = "audio/wav"
MEDIA_TYPES: Final = ("", MEDIA_TYPE, "audio/x-wav", "audio/wave", "audio/vnd.wave")
"""The names of the format; files of other programs may leave it out."""
INTEGER, FLOAT, EXTENSIBLE = 1, 3, 0xFFFE
DTYPES: Final = {
    (INTEGER, 8): "u1", (INTEGER, 16): "<i2", (INTEGER, 32): "<i4", (FLOAT, 32): "<f4", (FLOAT, 64): "<f8"
}  # fmt: skip
FORMAT: Final = struct.Struct("<HHIIHH")  # format, channels, rate, bytes in a second, bytes of a frame, bits
MAX_BYTES: Final = 2**32 - 1  # what the head of a file can say

Samples = npt.NDArray[Any]


def samples_of(audio: Audio) -> Samples:
    """Return samples in a dtype that WAV has, shape (n, channels); floats of 16 bits and fewer become float32.

    Raises:
        TypeError: See `Audio`.
        ValueError: See `Audio`.
    """
    array = np.asarray(to_host(audio.value))
    Audio(array, audio.rate)
    if array.dtype.newbyteorder("<").str.lstrip("|") not in DTYPES.values():
        array = array.astype(np.float32)
    return array.reshape(len(array), -1) if array.size else array.reshape(0, (*array.shape, 1)[1])


def encode_wav(audio: Audio, *, to_play: bool = False) -> bytes:
    """Return a sound as a WAV file; float64 becomes float32 `to_play`, because browsers refuse it.

    Raises:
        TypeError: See `Audio`.
        ValueError: See `Audio`; or the file would be larger than the format allows.
    """
    samples = samples_of(audio)
    dtype = np.dtype(np.float32) if to_play and samples.dtype == np.float64 else samples.dtype
    samples = np.ascontiguousarray(samples, dtype.newbyteorder("<"))
    n_channels, size = samples.shape[1], samples.dtype.itemsize
    format = INTEGER if samples.dtype.kind in "iu" else FLOAT
    n_bytes = samples.nbytes
    if n_bytes + 64 > MAX_BYTES:
        raise ValueError(f"Expected a sound of at most 4 GiB for a WAV file, got {n_bytes:,} bytes")
    head = FORMAT.pack(format, n_channels, audio.rate, audio.rate * n_channels * size, n_channels * size, 8 * size)
    chunks = _chunk(b"fmt ", head) + _chunk(b"data", samples.tobytes())
    return _chunk(b"RIFF", b"WAVE" + chunks)


def decode_wav(data: Buffer) -> Audio:
    """Return the sound in a WAV file; samples of 24 bits become int32 by zeros at their end.

    Raises:
        WireError: The bytes are not such a file.
    """
    view = memoryview(data)
    if bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WAVE":
        raise WireError(f"Expected a WAV file, got {bytes(view[:12])!r}")
    found = dict(_chunks(view[12:]))
    head, content = found.get(b"fmt ", b""), found.get(b"data")
    if len(head) < FORMAT.size or content is None:
        raise WireError("Expected the format and the samples of a WAV file")
    format, n_channels, rate, _, _, n_bits = FORMAT.unpack_from(head)
    if format == EXTENSIBLE and len(head) >= 26:
        format = int.from_bytes(head[24:26], "little")
    if not (1 <= n_channels <= MAX_CHANNELS and 1 <= rate <= MAX_RATE):
        raise WireError(f"Expected a sound, got {n_channels} channels of {rate} samples in a second")
    samples = _read(content, format, n_bits, n_channels)
    return Audio(samples if n_channels > 1 else samples[:, 0], rate)


def _read(content: Buffer, format: int, n_bits: int, n_channels: int) -> Samples:
    frame = n_channels * n_bits // 8
    if (format, n_bits) == (INTEGER, 24):
        raw = np.frombuffer(content, np.uint8, len(content) // frame * frame).reshape(-1, 3)
        wide = np.zeros((len(raw), 4), np.uint8)
        wide[:, 1:] = raw
        return wide.view("<i4").reshape(-1, n_channels)
    if (format, n_bits) not in DTYPES:
        raise WireError(f"Expected integers or floats in a WAV file, got format {format} of {n_bits} bits")
    dtype = np.dtype(DTYPES[format, n_bits])
    return np.frombuffer(content, dtype, len(content) // frame * n_channels).reshape(-1, n_channels)


def _chunk(name: bytes, content: bytes) -> bytes:
    return name + struct.pack("<I", len(content)) + content + b"\0" * (len(content) % 2)


def _chunks(view: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Yield the chunks; the length of the last one may be wrong, as where a program wrote without knowing it."""
    while len(view) >= 8:
        n = int.from_bytes(view[4:8], "little")
        yield bytes(view[:4]), view[8 : 8 + n]
        view = view[8 + n + n % 2 :]
