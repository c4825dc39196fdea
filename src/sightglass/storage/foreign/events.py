"""The events of a file, in batches of intact frames; and the record that says whose file it is.

Rule 1: a frame whose checksum is wrong is noted as damage and passed over; nothing in it is believed.
Rule 2: the version record decides how all others are read, and there is no second one. If one of its bits is wrong, its
checksum tells which, and it is mended; the damage is noted all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.format import framing
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Frame, RandomAccessFile, Scan
from sightglass.storage.format.summary import Dialect, EventHead, dialect, read_event

from .scalars import Indexes

MAX_VERSION_BYTES: Final = 256
WINDOW_BYTES: Final = 4 * 2**20
SMALL_BYTES: Final = 2**14


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The first record of a file.

    Attributes:
        dialect: Whose messages follow.
        wall_time: When it was written, in seconds since the Unix epoch.
        frame: Where it lies.
        mended: Whether a bit of it was wrong.
    """

    dialect: Dialect
    wall_time: float
    frame: Frame
    mended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Intact frames.

    Attributes:
        offset: Where in the file the data begin.
        data: Bytes of the file.
        starts: Where in them the payloads begin.
        lengths: How many bytes each of them has.
    """

    offset: int
    data: Buffer
    starts: Indexes
    lengths: Indexes

    def frame(self, i: int) -> Frame:
        """Return where a frame lies in the file."""
        return Frame(self.offset + int(self.starts[i]) - HEADER_BYTES, int(self.lengths[i]))

    def payload(self, i: int) -> memoryview:
        """Return the payload of a frame."""
        start = int(self.starts[i])
        return memoryview(self.data)[start : start + int(self.lengths[i])]


def whose(path: Path) -> Dialect | None:
    """Tell whose file it is; `None` if its first record is not there yet, or says nothing.

    Raises:
        OSError: It cannot be read.
        DamagedError: Nobody known writes such files, or a newer version of them.
    """
    file = RandomAccessFile(path)
    try:
        told = _first(file)
        return None if told is None else _version(path, *told).dialect
    finally:
        file.close()


def read_version(file: RandomAccessFile) -> Version | None:
    """Read the version record; `None` if it is not there yet.

    Raises:
        DamagedError: There is none, or nobody known writes such files, or a newer version of them.
    """
    told = _first(file)
    if told is not None:
        return _version(file.path, *told)
    begun = file.read(0, MAX_VERSION_BYTES)
    length = framing.header(begun)
    if len(begun) >= HEADER_BYTES and (length is None or Frame(0, length).end <= file.size()):
        raise DamagedError(f"Expected a record file, but its first record is damaged or none: {file.path}")
    return None


def _version(path: Path, frame: Frame, event: EventHead, mended: bool) -> Version:
    try:
        found = dialect(event.version or "")
    except WireError as error:
        raise DamagedError(f"{path}: {error}") from None
    return Version(dialect=found, wall_time=event.wall_time or 0.0, frame=frame, mended=mended)


def _first(file: RandomAccessFile) -> tuple[Frame, EventHead, bool] | None:
    """Read the first record, and tell whether one of its bits was wrong."""
    begun = bytearray(file.read(0, MAX_VERSION_BYTES))
    whole = _whole(bytes(begun))
    if whole is not None:
        return *whole, False
    for i in range(8 * len(begun)):
        begun[i // 8] ^= 1 << i % 8
        whole = _whole(bytes(begun))
        begun[i // 8] ^= 1 << i % 8
        if whole is not None:
            return *whole, True
    return None


def _whole(begun: bytes) -> tuple[Frame, EventHead] | None:
    length = framing.header(begun)
    if length is None or Frame(0, length).end > len(begun):
        return None
    body = begun[HEADER_BYTES : HEADER_BYTES + length]
    footer = begun[HEADER_BYTES + length :][:FOOTER_BYTES]
    if framing.checksum(body) != int.from_bytes(footer, "little"):
        return None
    try:
        return Frame(0, length), read_event(memoryview(body))
    except WireError:
        return None


def batches(file: RandomAccessFile, scan: Scan, note: Callable[[Frame, memoryview], None]) -> Iterator[FrameBatch]:
    """Yield the intact frames from the scan's position on, up to the end of the file as it is now.

    Args:
        file: The file.
        scan: Knows how far it was read, and what was damaged there.
        note: Is told of frames whose payload is damaged, with the payload as it is.
    """
    end, ahead = file.size(), WINDOW_BYTES
    while scan.position < end:
        start = scan.position
        window = bytes(file.read(start, min(ahead, end - start)))
        starts, lengths, place = framing.intact_run(window)
        if starts:
            scan.position += place
            ahead = WINDOW_BYTES
            yield FrameBatch(offset=start, data=window, starts=np.array(starts), lengths=np.array(lengths))
            continue
        length = framing.header(window)
        if length is None:
            found = next(scan.frames(), None)  # it looks for the next one that is right
            if found is None:
                break
            scan.position = found[0].offset
            continue
        frame = Frame(start, length)
        if frame.end > end:
            break
        ahead = SMALL_BYTES
        data = file.read(frame.payload, length + FOOTER_BYTES)
        scan.position = frame.end
        if framing.checksum(data[:length]) == int.from_bytes(data[length:], "little"):
            yield FrameBatch(offset=frame.payload, data=data, starts=np.zeros(1, np.int64), lengths=np.array([length]))
        else:
            note(frame, data[:length])
    scan.torn = max(0, end - scan.position)
