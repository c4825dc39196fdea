"""Scan event files: batches of intact frames, and the version record that names the program that wrote them.

A frame whose checksum is wrong is noted as damage and passed over. The version record decides how all others are
decoded, and a file has only one: if one of its bits is wrong, its checksum shows which, so it is repaired and noted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.format import framing
from sightglass.storage.format.frame_scan import Scan
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Frame, RandomAccessFile
from sightglass.storage.format.summary import Dialect, EventHead, dialect, read_event

from . import mindspore, tensorboard, wandb_log
from .scalar_events import Indexes
from .wandb_log import WANDB_SUFFIX, check_header

HOST: Final = re.compile(
    r"(?:summary\.\d+\.(?:\d+\.)?(.+)_MS|tfevents\.\d+\.(.+?)(?:\.\d+\.\d+(?:\.v2)?|\.profile-empty)?)$"
)
"""The host in the name of a file of MindSpore or TensorBoard; behind it stand a process and a number."""
MAX_VERSION_BYTES: Final = 256  # writers' version records take about 50; trying every bit of these takes milliseconds
WINDOW_BYTES: Final = 4 * 2**20  # tens of thousands of scalars at a time, in little memory
SMALL_BYTES: Final = 2**14  # after a frame larger than the window: the next one is likely as large, and read by itself


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The first record of a file.

    Attributes:
        dialect: The program whose messages follow.
        wall_time: When it was written, in seconds since the Unix epoch.
        frame: Where it lies; `None` if it is damaged, and the file's name says which program wrote it.
        repaired: Whether one of its bits was wrong.
    """

    dialect: Dialect
    wall_time: float = 0.0
    frame: Frame | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Intact frames.

    Attributes:
        offset: Where the data begin in the file.
        data: Bytes of the file.
        starts: Where the payloads begin in the data.
        lengths: The length of each payload, in bytes.
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


def host_in(name: str) -> str:
    """Return the host in the name of a file of MindSpore or TensorBoard, or an empty text.

    >>> host_in("events.out.events.summary.1700000000.3.gpu-1.lab_MS")
    'gpu-1.lab'
    """
    found = HOST.search(name)
    return "" if found is None else found[1] or found[2]


def file_dialect(path: Path) -> Dialect | None:
    """Return which program wrote a file; `None` if its first record is incomplete.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The first record is not a version record, or its version is unknown or newer than this reader.
    """
    file = RandomAccessFile(path)
    try:
        if path.suffix == WANDB_SUFFIX:
            return "wandb" if check_header(bytes(file.read(0, wandb_log.HEADER_BYTES)), path) else None
        version = read_version(file)
        return None if version is None else version.dialect
    finally:
        file.close()


def read_version(file: RandomAccessFile) -> Version | None:
    """Read the version record; `None` if it is incomplete.

    If it is damaged, and an intact record follows, the file's name says which program wrote it.

    Raises:
        DamagedError: The first record is not one, or its version is unknown or newer than this reader.
    """
    begun = bytes(file.read(0, MAX_VERSION_BYTES))
    bits = int.from_bytes(begun, "little")
    for wrong in (0, *(1 << i for i in range(8 * len(begun)))):
        found = _first_event((bits ^ wrong).to_bytes(len(begun), "little"))
        if found is not None:
            frame, event = found
            try:
                name = dialect(event.version or "")
            except WireError as error:
                raise DamagedError(f"{file.path}: {error}") from None
            return Version(dialect=name, wall_time=event.wall_time or 0.0, frame=frame, repaired=wrong != 0)
    length = framing.header(begun)
    if len(begun) >= HEADER_BYTES and (length is None or Frame(0, length).end <= file.size()):
        named = _named(file.path.name)
        if named is not None and _has_records(file):
            return Version(dialect=named)
        raise DamagedError(f"Expected a record file, but its first record is damaged or missing: {file.path}")
    return None


def _named(name: str) -> Dialect | None:
    if mindspore.parse_name(name) is not None:
        return "mindspore"
    return None if tensorboard.parse_name(name) is None else "tensorboard"


def _has_records(file: RandomAccessFile) -> bool:
    run = next(Scan(file).runs(), None)
    frames = () if run is None else zip(run.offsets, run.lengths, strict=True)
    return any(offset and framing.intact(file, Frame(offset, length)) for offset, length in frames)


def _first_event(begun: bytes) -> tuple[Frame, EventHead] | None:
    """Return the first event if its bytes are intact."""
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
        scan: Holds the position, and the damage found so far.
        note: Called with each frame whose payload is damaged, and the payload.
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
            found = next(scan.runs(), None)  # searches for the next intact frame
            if found is None:
                break
            scan.position = found.offsets[0]
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
