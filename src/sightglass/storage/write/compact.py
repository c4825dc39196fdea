"""Compaction: merges the small blocks of a closed file into large ones.

A run of one step a second writes a block for each tag and step: more than ten times the bytes that its records need,
and a frame for each of them that every reader has to scan.

Rule 1: a compacted file reads the same: all records, in their order, with their types, numbers, steps, times, flags and
tracks. Blocks are merged only where they have the same form: holes and changes of type stay between blocks. A block
that is not small, or would not be written again to the same bytes, is copied as it is.
Rule 2: the old file stays until the new one is complete and on the disk; then the new one replaces it at once. A reader
that has the old one open continues to read it. If anything fails, the old file stays as it is, without a warning.
Rule 3: a file with damage, or with another length than when it was closed, is left alone: compaction never hides damage
and never restores a file that was removed.
Rule 4: blocks stand in the order in which they became full, or ended. So if the file is cut off, each series has a
beginning, which may lack at most a block, 4,096 records, of what the other series have.
Rule 5: work is done in steps of about a millisecond, in memory for some 20 MiB.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import struct
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.process.clock import Clock
from sightglass.storage.file_system import LOCAL, File, FileSystem
from sightglass.storage.format import framing, index
from sightglass.storage.format.block import CHECKED, TALL_ROWS, is_block, n_rows
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Frame, RandomAccessFile, frame
from sightglass.storage.format.index import Heads
from sightglass.storage.format.protobuf import FIXED64, key, walk

from .merge import STEP_ITEMS, Merge, Steps

COMPACTED: Final = 1002
SMALL_BYTES: Final = 4_096  # of a larger block the head is less than a twentieth
MIN_SMALL: Final = 256  # fewer are scanned in less than a millisecond
MAX_BYTES_EACH: Final = 2**15  # if a file has more bytes for each small block, copying it costs more than it saves
WINDOW_BYTES: Final = 2**18  # read in one step, of about a millisecond
WRITE_BYTES: Final = 2**16
SYNC_BYTES: Final = 4 * 2**20  # as much as a disk writes in some ten milliseconds
CHUNK_BYTES: Final = 2**20
HEAD_BYTES: Final = 2**16
ROOM: Final = 2  # a disk that is nearly full keeps its space for records
MAX_WAITING: Final = 4
OLD_S: Final = 3_600.0  # longer than any compaction takes


def pays(*, n_small: int, n_series: int, n_bytes: int) -> bool:
    """Return whether compacting a file is worth it: it has many small blocks in each series, and few large ones."""
    return n_small >= max(MIN_SMALL, 4 * n_series) and n_bytes <= MAX_BYTES_EACH * n_small


def remove_old(directory: Path, files: FileSystem, *, now: float) -> None:
    """Remove the files of processes that were killed while they compacted."""
    with contextlib.suppress(OSError):
        for path in map(directory.joinpath, files.names(directory)):
            if path.match(".*.sgr.*.new") and files.status(path).changed < now - OLD_S:
                files.remove(path)


class Compactor:
    """Compacts files one after the other, a little at a time.

    Attributes:
        n_saved: By how many bytes files have become shorter.
    """

    def __init__(self, clock: Clock, files: FileSystem = LOCAL) -> None:
        self.n_saved = 0
        self._clock = clock
        self._files = files
        self._waiting: deque[tuple[Path, int]] = deque()
        self._current: _Compaction | None = None

    @property
    def busy(self) -> bool:
        """Whether there is work to do."""
        return bool(self._current or self._waiting)

    def add(self, path: Path, n_bytes: int) -> None:
        """Queue a closed file; if too many wait, the one that has waited longest stays as it is.

        Args:
            path: The file.
            n_bytes: Its length; a file whose length has changed is left alone.
        """
        self._waiting.append((path, n_bytes))
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()

    def work(self, limit_s: float) -> None:
        """Work for about this long, or until nothing is left to do; at least one step."""
        until_s = self._clock.monotonic() + limit_s
        while self.busy:
            try:
                self._step()
            except Exception:  # noqa: BLE001  whatever fails, the file stays: tidying must not cost a record
                self._give_up()
            if self._clock.monotonic() >= until_s:
                return

    def stop(self) -> None:
        """Leave all files as they are."""
        self._waiting.clear()
        self._give_up()

    def _step(self) -> None:
        if self._current is None:
            self._current = _Compaction(*self._waiting.popleft(), self._files)
        try:
            next(self._current.steps)
        except StopIteration:
            self.n_saved += self._current.n_saved
            self._current = None

    def _give_up(self) -> None:
        current, self._current = self._current, None
        if current is not None:
            current.discard()


class _LeftAloneError(Exception):
    """The file is not one to compact."""


class _Compaction:
    """Compacts one file.

    Attributes:
        steps: Do the work, a little at each `next`.
        n_saved: By how many bytes the file has become shorter.
    """

    def __init__(self, path: Path, n_bytes: int, files: FileSystem = LOCAL) -> None:
        self.n_saved = 0
        self._files = files
        self.steps = self._work()
        self._path = path
        self._fresh = path.with_name(f".{path.name}.{os.getpid()}.new")
        self._n_bytes = n_bytes
        self._segment: int | None = None
        self._heads = Heads()
        self._merge = Merge(self._heads, self._put_block)
        self._out: list[Buffer] = []
        self._n_out = self._n_unsynced = self._n_written = self._n_before = self._n_after = 0
        self._file: RandomAccessFile | None = None
        self._target: File | None = None

    def discard(self) -> None:
        """Close and remove the unfinished new file."""
        self.steps.close()
        for opened in (self._file, self._target):
            if opened is not None:
                with contextlib.suppress(OSError):  # what failed before may fail again here
                    opened.close()
        with contextlib.suppress(OSError):
            self._files.remove(self._fresh)

    def _work(self) -> Steps:
        self._file = RandomAccessFile(self._path, self._files)
        if self._file.size() != self._n_bytes or self._files.free_bytes(self._path.parent) < ROOM * self._n_bytes:
            raise _LeftAloneError
        self._target = self._files.create(self._fresh, like=self._path)
        yield from self._read(self._file)
        yield from self._merge.finish_all()
        self._write()
        yield
        self._target.sync()
        yield
        self._replace(self._file, self._target)

    def _replace(self, file: RandomAccessFile, target: File) -> None:
        """Replace the old file by the new one, if that is worth it."""
        if 2 * self._n_written > self._n_bytes and 2 * self._n_after > self._n_before:
            raise _LeftAloneError
        is_same = file.is_at(self._path) and file.size() == self._n_bytes
        file.close()
        target.close()
        if not is_same:
            raise _LeftAloneError
        self._files.replace(self._fresh, self._path)
        self.n_saved = self._n_bytes - self._n_written
        with contextlib.suppress(OSError):
            self._files.remove(index.path_of(self._path))

    # Reading

    def _read(self, file: RandomAccessFile) -> Steps:
        place = 0
        while place < self._n_bytes:
            window = bytes(file.read(place, min(WINDOW_BYTES, self._n_bytes - place)))
            starts, lengths, n = framing.intact_run(window)
            yield
            names = self._names(window, starts, lengths) if starts else []
            yield
            for i, (start, length, name) in enumerate(zip(starts, lengths, names, strict=True)):
                yield from self._take(window[start : start + length], name, is_first=place + start == HEADER_BYTES)
                if self._merge.full:
                    yield from self._merge.sort()
                elif i % STEP_ITEMS == 0:
                    yield
            if not n:
                n = yield from self._take_long(file, place, framing.header(window))
            place += n

    def _take(self, payload: bytes, name: int, *, is_first: bool) -> Iterator[None]:
        """Merge or copy a whole frame."""
        if is_first:
            self._put(frame([_marked(payload)]))
            return
        self._n_before += 1
        if name < 0 or not self._is_small(payload, name):
            if name >= 0:
                yield from self._merge.finish(self._heads.named[name].key)
            self._put_block([payload])
            return
        self._merge.take(payload, name)

    def _is_small(self, payload: bytes, name: int) -> bool:
        """Return whether merging a block saves much: of a wide block of few rows, the names are the most."""
        is_wide = self._heads.named[name].key.kind == "wide"
        return len(payload) <= SMALL_BYTES or (is_wide and n_rows(payload) < TALL_ROWS)

    def _take_long(self, file: RandomAccessFile, place: int, length: int | None) -> Generator[None, None, int]:
        """Copy a frame that is longer than a window, and return how long it is."""
        found = Frame(place, -1 if length is None else length)
        if length is None or found.end > self._n_bytes:
            raise _LeftAloneError
        (name,) = self._names(bytes(file.read(found.payload, min(length, HEAD_BYTES))), [0], [length])
        if name >= 0:
            yield from self._merge.finish(self._heads.named[name].key)
        self._n_before += 1
        self._n_after += 1
        crc, at = 0, found.payload
        self._put([file.read(place, HEADER_BYTES)])
        while at < found.payload + length:
            chunk = bytes(file.read(at, min(CHUNK_BYTES, found.payload + length - at)))
            if not chunk:
                raise _LeftAloneError
            crc = framing.extend(crc, chunk)
            at += len(chunk)
            self._put([chunk])
            yield
        footer = file.read(at, FOOTER_BYTES)
        if int.from_bytes(footer, "little") != framing.masked(crc):
            raise _LeftAloneError
        self._put([footer])
        return found.end - place

    def _names(self, window: bytes, starts: list[int], lengths: list[int]) -> list[int]:
        """Read heads, and return the numbers that `Heads.read` gives: -1 for events that are not blocks."""
        numbers, _ = self._heads.read(window, starts, lengths, starts)
        if self._segment is None and (numbers >= 0).any():
            self._segment = self._heads.named[numbers[numbers >= 0][0]].segment
        if any(named.segment != self._segment for named in self._heads.named):
            raise _LeftAloneError
        if any(is_block(window[starts[i] :][:CHECKED]) for i in np.flatnonzero(numbers < 0).tolist()):
            raise _LeftAloneError
        return list(numbers.tolist())

    # Writing

    def _put_block(self, payload: Sequence[Buffer]) -> None:
        self._n_after += 1
        self._put(frame(payload))

    def _put(self, buffers: list[Buffer]) -> None:
        self._out += buffers
        self._n_out += sum(map(len, buffers))
        if self._n_out >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._target is not None
        left = memoryview(b"".join(self._out))
        self._n_written += len(left)
        self._n_unsynced += len(left)
        self._out, self._n_out = [], 0
        while left:
            left = left[self._target.write([left]) :]
        if self._n_unsynced >= SYNC_BYTES:  # little by little: no step waits for all of it
            self._n_unsynced = 0
            self._target.sync()


def _marked(payload: bytes) -> bytes:
    """Return the version record with a random number: an index of the old file is wrong for the new one."""
    if any(number == COMPACTED for number, _, _ in walk(memoryview(payload))):
        raise _LeftAloneError
    return payload + key(COMPACTED, FIXED64) + struct.pack("<Q", secrets.randbits(64))
