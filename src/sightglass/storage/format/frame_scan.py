"""The frames of a file that may be damaged, and that may grow.

Rule 1: a file that ends inside a frame is not damaged: it may still grow. `Scan` waits there until it has.
Rule 2: a wrong header is damage. The scan searches for the next valid frame after it and reports the bytes between; a
frame counts as found only if its payload is right, too.
Rule 3: the cost of the search is bounded by the length of the file, whatever the lost bytes look like. What looks like
the header of a frame that is not whole yet is examined again when the file has grown.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from .framing import (
    CHUNK_BYTES,
    FOOTER_BYTES,
    HEAD_BYTES,
    HEADER_BYTES,
    Damage,
    Frame,
    RandomAccessFile,
    crc32c,
    header_run,
    intact,
)

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
