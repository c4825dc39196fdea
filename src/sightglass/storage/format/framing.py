"""Frames: the TFRecord framing of records in a file, which MindSpore's and TensorBoard's files share.

A frame is the length of its payload (uint64, little-endian), the masked CRC32C of those eight bytes, the payload, and
the masked CRC32C of the payload. Source of the mask: TensorFlow's `lib/hash/crc32c.h`.

Nothing is allocated for a length before the file is known to be that long.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c
import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import DamagedError
from sightglass.storage.file_system import LOCAL, FileSystem

HEADER_BYTES: Final = 12
FOOTER_BYTES: Final = 4
CHUNK_BYTES: Final = 2**20
HEAD_BYTES: Final = 4_096  # of a payload that a scan reads at least: heads with tags and queries of usual length

crc32c: Final = google_crc32c.value  # of bytes, not masked
_HEADER: Final = struct.Struct("<QI")
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a frame lies: the offset of its header, and the length of its payload, in bytes."""

    offset: int
    length: int

    @property
    def payload(self) -> int:
        """Where its payload begins."""
        return self.offset + HEADER_BYTES

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.offset + HEADER_BYTES + self.length + FOOTER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes of a file that are not what was written.

    Attributes:
        path: The file.
        offset: Where they begin.
        length: How many there are, as far as is known.
        what: What is wrong with them.
        tag: The series that they belonged to, or empty if that is unknown.
        step: The step of the first record in them, or `None`.
        values: What the values of the series are, as in its key.
    """

    path: Path
    offset: int
    length: int
    what: str
    tag: str = ""
    step: float | None = None
    values: str = ""

    def concerns(self, tag: str, values: str) -> bool:
        """Return whether they may have belonged to a series."""
        return self.tag in (tag, "") and self.values in (values, "")

    def __str__(self) -> str:
        of = f" of {self.tag!r}" if self.tag else ""
        at = f", step {self.step:.15g}" if self.step is not None else ""
        return f"{self.path}, offset {self.offset}, {self.length} bytes{of}{at}: {self.what}"


def masked(crc: int) -> int:
    """Mask a CRC32C: a CRC of bytes that contain unmasked CRCs would be weak."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def unmasked(crcs: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Undo `masked` for an array."""
    rotated = crcs.astype(np.uint32) - np.uint32(0xA282EAD8)
    return rotated << np.uint32(15) | rotated >> np.uint32(17)


def checksum(*parts: Buffer) -> int:
    """Return the masked CRC32C of bytes in several parts."""
    crc = 0
    for part in parts:
        crc = google_crc32c.extend(crc, _bytes(part))
    return masked(crc)


def extend(crc: int, part: Buffer) -> int:
    """Return the unmasked CRC32C of some bytes, 0 of none, extended by the bytes that follow them."""
    return int(google_crc32c.extend(crc, _bytes(part)))


def frame(parts: Sequence[Buffer]) -> list[Buffer]:
    """Frame a payload in several parts, without copying them."""
    length = _U64.pack(sum(len(part) for part in parts))
    return [length + _U32.pack(checksum(length)), *parts, _U32.pack(checksum(*parts))]


def _bytes(part: Buffer) -> Any:
    """Return what google_crc32c accepts: bytes, or a NumPy array over the same memory."""
    return part if isinstance(part, bytes) else np.frombuffer(part, np.uint8) if len(part) else b""


class RandomAccessFile:
    """A file that is read at any offset, and closed when it is no longer referenced.

    It is not mapped into memory: a mapped file that is truncated kills the process.

    Attributes:
        path: The file.
        files: The file system that it was opened in.
        stale: Whether the system no longer knows it: in a network, another machine has removed or replaced it.
    """

    def __init__(self, path: Path, files: FileSystem = LOCAL) -> None:
        """Open a file.

        Raises:
            OSError: It cannot be opened.
        """
        self.path = path
        self.files = files
        self.stale = False
        self._file = files.open(path)

    def size(self) -> int:
        """Return how long the file is now, in bytes."""
        with self._watched():
            return self._file.status().n_bytes

    def is_at(self, path: Path) -> bool:
        """Return whether a path still leads to this file.

        Raises:
            OSError: The path does not exist.
        """
        with self._watched():
            own = self._file.status().identity
        return self.files.status(path).identity == own

    @property
    def replaced(self) -> bool:
        """Whether it is stale, or another file has its path now: it was compacted, or copied and renamed."""
        with contextlib.suppress(OSError):
            return self.stale or not self.is_at(self.path)
        return self.stale

    def read(self, offset: int, n: int) -> memoryview:
        """Return up to n bytes; fewer where the file ends."""
        if n <= CHUNK_BYTES:
            with self._watched():
                return memoryview(self._file.read(offset, n))
        buffer = bytearray(max(0, min(n, self.size() - offset)))
        return memoryview(buffer)[: self.readinto(offset, memoryview(buffer))].toreadonly()

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Fill a buffer as far as the file goes, and return how far that is."""
        done = 0
        while done < len(buffer):
            with self._watched():
                n = self._file.readinto(offset + done, buffer[done:])
            if not n:
                break
            done += n
        return done

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def revalidate(self) -> None:
        """Open the path for a moment: on NFS, that shows what another machine had written when it closed the file."""
        with contextlib.suppress(OSError):
            self.files.open(self.path).close()

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.stale |= error.errno == errno.ESTALE
            raise


def payload(file: RandomAccessFile, frame: Frame) -> memoryview:
    """Read the payload of a frame.

    Raises:
        DamagedError: It is not what was written.
    """
    data = file.read(frame.payload, frame.length + FOOTER_BYTES)
    body = data[: frame.length]
    if len(data) < frame.length + FOOTER_BYTES or checksum(body) != _U32.unpack(data[frame.length :])[0]:
        raise DamagedError(f"{file.path}, offset {frame.offset}: the payload of {frame.length} bytes is damaged")
    return body


def intact(file: RandomAccessFile, frame: Frame) -> bool:
    """Return whether the payload of a frame is what was written, reading it piece by piece."""
    crc, place, end = 0, frame.payload, frame.payload + frame.length
    buffer = memoryview(bytearray(min(CHUNK_BYTES, frame.length)))
    while place < end:
        n = file.readinto(place, buffer[: min(len(buffer), end - place)])
        if not n:
            return False
        crc = google_crc32c.extend(crc, _bytes(buffer[:n]))
        place += n
    footer = file.read(end, FOOTER_BYTES)
    return len(footer) == FOOTER_BYTES and _U32.unpack(footer)[0] == masked(crc)


def header(window: Buffer) -> int | None:
    """Return the length in the frame header that some bytes begin with; `None` if it is wrong or not whole."""
    if len(window) < HEADER_BYTES:
        return None
    length, crc = _HEADER.unpack_from(window)
    return int(length) if crc == checksum(window[:8]) else None


def header_run(window: bytes, room: int, *, whole: bool) -> tuple[list[int], list[int], int | None]:
    """Follow the headers of frames from the beginning of some bytes on.

    Args:
        window: The bytes.
        room: How many bytes the file has from there on.
        whole: Whether frames have to lie in the window whole; else the first `HEAD_BYTES` of a payload are enough.

    Returns:
        Where payloads begin, how long they are, and how many bytes the next frame needs in a window: 0 if the file is
        too short for it, `None` if its header is wrong.
    """
    starts: list[int] = []
    lengths: list[int] = []
    known: dict[int, int] = {}  # most frames are as long as one before
    place, n = 0, len(window)
    while place + HEADER_BYTES <= n:
        length, crc = _HEADER.unpack_from(window, place)
        if known.get(length) != crc:
            if crc != masked(crc32c(window[place : place + 8])):
                return starts, lengths, None
            known[length] = crc
        end = place + HEADER_BYTES + length + FOOTER_BYTES
        if end > room:
            return starts, lengths, 0
        needed = end if whole or length < HEAD_BYTES else place + HEADER_BYTES + HEAD_BYTES
        if needed > n:
            return starts, lengths, needed - place
        starts.append(place + HEADER_BYTES)
        lengths.append(length)
        place = end
    return starts, lengths, HEADER_BYTES if place + HEADER_BYTES <= room else 0


def intact_run(window: bytes) -> tuple[list[int], list[int], int]:
    """Find the intact frames at the beginning of some bytes, up to the first that is not, or not whole.

    Returns:
        Where their payloads begin, how long these are, and where the next frame begins.
    """
    starts, lengths, _ = header_run(window, len(window), whole=True)
    for i, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        end = start + length
        if masked(crc32c(window[start:end])) != _U32.unpack_from(window, end)[0]:
            return starts[:i], lengths[:i], start - HEADER_BYTES
    return starts, lengths, starts[-1] + lengths[-1] + FOOTER_BYTES if starts else 0
