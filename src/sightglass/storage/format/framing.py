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
from functools import cache
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


# The frames of a file that may be damaged, and that may grow.
#
# Rule 1: a file that ends inside a frame is not damaged: it may still grow. `Scan` waits there until it has.
# Rule 2: a wrong header is damage. The scan searches for the next valid frame after it and reports the bytes between; a
# frame counts as found only if its payload is right, too.
# Rule 3: the cost of the search is bounded by the length of the file, whatever the lost bytes look like. What looks
# like the header of a frame that is not whole yet is examined again when the file has grown.

WINDOW_BYTES: Final = 2**20  # read at once by a scan: thousands of small frames, and less than a CPU's cache
LARGE_BYTES: Final = 2**14  # after a frame of this size only the next beginning is read: more would be skipped
MAX_FRAME_BYTES: Final = 2**40  # so a search can rule out most places by the zeros above
SEARCH_BYTES: Final = 64 * 2**20  # a search verifies so many bytes of what only looks like frames,
SEARCH_FACTOR: Final = 4  # and so many times the length of the file: the cost of hostile files stays linear

LOST: Final = "the header of a frame is damaged"


class FrameRun:
    """Frames that follow each other in a file, and what of their bytes was read.

    Attributes:
        starts: Where payloads begin in `data`.
        lengths: How long the payloads are; of one longer than `HEAD_BYTES`, `data` may have no more than these.
        offsets: Where the frames begin in the file.
        n_bytes: How many bytes `data` has.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.lengths: list[int] = []
        self.offsets: list[int] = []
        self.n_bytes = 0
        self._windows: list[bytes] = []

    @property
    def data(self) -> bytes:
        """What was read."""
        self._windows = self._windows if len(self._windows) == 1 else [b"".join(self._windows)]
        return self._windows[0]

    def add(self, window: bytes, offset: int, starts: list[int], lengths: list[int]) -> None:
        """Append frames that begin with some bytes of the file."""
        self.starts += [self.n_bytes + start for start in starts]
        self.lengths += lengths
        self.offsets += [offset + start - HEADER_BYTES for start in starts]
        self._windows.append(window)
        self.n_bytes += len(window)


class Scan:
    """Finds the frames of a file, and those that come as it grows.

    Attributes:
        position: Where the next frame begins.
        torn: How many bytes after it are not a whole frame yet.
        damages: What was skipped.
        tail: The bytes after `position`, if they begin with a wrong header and no frame follows yet.
    """

    def __init__(self, file: RandomAccessFile) -> None:
        self.position = self.torn = 0
        self.damages: list[Damage] = []
        self.tail: Damage | None = None
        self._file = file
        self._searched = 0
        self._verified = 0

    def runs(self) -> Iterator[FrameRun]:
        """Yield the frames up to the end of the file as it is now, many at once."""
        end, ahead, is_lost, run = self._file.size(), WINDOW_BYTES, False, FrameRun()
        while self.position + HEADER_BYTES <= end:
            ahead = min(ahead, end - self.position)  # a read allocates all that it is asked for
            window = bytes(self._file.read(self.position, ahead))
            starts, lengths, needed = header_run(window, end - self.position, whole=False)
            if starts:
                run.add(window, self.position, starts, lengths)
                self.position += starts[-1] + lengths[-1] + FOOTER_BYTES
                ahead = WINDOW_BYTES if lengths[-1] < LARGE_BYTES else HEADER_BYTES + HEAD_BYTES
                if run.n_bytes >= WINDOW_BYTES:
                    yield run
                    run = FrameRun()
            elif needed is None:
                if run.starts:
                    yield run
                    run = FrameRun()
                is_lost = not self._search(end)
                if is_lost:
                    break
            elif needed <= len(window) or len(window) < ahead:
                break  # a frame that is still being written, or a file that was cut off meanwhile
            else:
                ahead = max(needed, WINDOW_BYTES)
        if run.starts:
            yield run
        self.torn = max(0, end - self.position)
        self.tail = self._lost(self.torn) if is_lost else None

    def damage(self, frame: Frame, what: str, *, tag: str = "", step: float | None = None, values: str = "") -> None:
        """Note that a frame is damaged."""
        length = frame.end - frame.offset
        self.damages.append(
            Damage(
                path=self._file.path,
                offset=frame.offset,
                length=length,
                what=what,
                tag=tag,
                step=step,
                values=values,
            )
        )

    def _search(self, end: int) -> bool:
        """Search for the next valid frame after a wrong header."""
        place, waiting = max(self.position + 1, self._searched), end
        while place + HEADER_BYTES <= end:
            window = np.frombuffer(self._file.read(place, min(CHUNK_BYTES, end - place)), np.uint8)
            if len(window) < HEADER_BYTES:
                break
            for start, length in _headers(window):
                found = Frame(place + start, length)
                if found.end > end:
                    waiting = min(waiting, found.offset)
                elif self._affords(length, end) and intact(self._file, found):
                    self._skip_to(found)
                    return True
            place += len(window) - HEADER_BYTES + 1
        self._searched = min(place, waiting)
        return False

    def _affords(self, length: int, end: int) -> bool:
        if self._verified + length > SEARCH_BYTES + SEARCH_FACTOR * end:
            return False
        self._verified += length
        return True

    def _skip_to(self, found: Frame) -> None:
        self.damages.append(self._lost(found.offset - self.position))
        self.position = found.offset

    def _lost(self, length: int) -> Damage:
        return Damage(path=self._file.path, offset=self.position, length=length, what=LOST)


def _headers(window: npt.NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Yield where in a window a right header begins, and its length."""
    if not window.any():
        return
    places = np.arange(len(window) - HEADER_BYTES + 1)
    for i in range(MAX_FRAME_BYTES.bit_length() // 8, 8):
        places = places[window[places + i] == 0]
    zero, tables = _tables()
    crc = np.full(len(places), zero, np.uint64)
    for i in range(8):
        crc ^= tables[i][window[places + i]]
    stored = np.zeros(len(places), np.uint64)
    for i in range(4):
        stored |= window[places + 8 + i].astype(np.uint64) << np.uint64(8 * i)
    rotated = (crc >> np.uint64(15)) | (crc << np.uint64(17)) & np.uint64(0xFFFFFFFF)
    for place in places[stored == (rotated + np.uint64(0xA282EAD8)) & np.uint64(0xFFFFFFFF)].tolist():
        yield place, int(window[place : place + 8].view("<u8")[0])


@cache
def _tables() -> tuple[int, Any]:
    """Return the CRC32C of eight zeros, and how each byte at each place changes it: a CRC is linear in its bits."""
    zero = crc32c(bytes(8))
    changes = [[crc32c(bytes(i) + bytes([byte]) + bytes(7 - i)) ^ zero for byte in range(256)] for i in range(8)]
    return zero, np.array(changes, np.uint64)
