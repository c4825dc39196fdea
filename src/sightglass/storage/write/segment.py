"""A segment: a file that records are written to.

Rule 1: a file holds whole frames. If a write fails, the incomplete frame is cut off again; if even that fails, the file
is given up, and its records go to the next one: nothing is ever appended after a torn tail.
Rule 2: appended records wait in memory until they are written, in order, whatever fails.
Rule 3: large arrays are not copied on their way to the file, and one system call writes many small buffers.
Rule 4: a file that another program has removed, or changed in its length, is given up, too.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.codec import Buffer
from sightglass.core.columns import Columns
from sightglass.core.process.clock import SystemClock
from sightglass.core.values import n_bytes
from sightglass.storage.file_system import JOINED_BYTES, LOCAL, FileSystem
from sightglass.storage.format import block
from sightglass.storage.format.block import TALL_ROWS
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import SIGHTGLASS_VERSION, encode_version

from .compact import SMALL_BYTES

BLOCK_ROWS: Final = 8_192  # a reader's buffer for one stays in the cache, and a damaged one costs little
BLOCK_BYTES: Final = 64 * 2**20
MAX_WRITE_BYTES: Final = 2**30  # Linux writes at most 2 GiB at once
MAX_BUFFERS: Final = 1_024  # IOV_MAX on Linux


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Records of one series, or of those of a wide block, on their way to a file.

    Attributes:
        since: The number of the event from which on the series is recorded.
        n_missed: How many events failed, were skipped or were dropped before the last of these records.
    """

    key: block.Key
    columns: Columns
    since: int = 0
    n_missed: int = 0

    @property
    def n_records(self) -> int:
        """How many records there are, in all series of a wide block."""
        return len(self.columns) * (self.columns.values.shape[1] if self.key.kind == "wide" else 1)


@dataclass(frozen=True, slots=True)
class _Frame:
    """A frame that waits to be written, with its records; `None` for the version."""

    buffers: Sequence[Buffer]
    n_bytes: int
    rows: Rows | None

    @property
    def n_rows(self) -> int:
        return 0 if self.rows is None else self.rows.n_records


class SegmentWriter:
    """Writes one file.

    Attributes:
        path: The file.
        size: How long it is, in bytes: all whole frames.
        n_rows: How many records are in it.
        n_small: How many blocks of at most `SMALL_BYTES` are in it, and wide ones of few rows.
        n_wide_bytes: How many bytes these wide ones take.
        n_waiting: How many records wait to be written.
        n_waiting_bytes: How many bytes wait.
        given_up: Why the file is no longer written, or empty.
    """

    def __init__(
        self,
        path: Path,
        *,
        wall_time: float | None = None,
        files: FileSystem = LOCAL,
        written: Callable[[Rows], None] = lambda rows: None,
    ) -> None:
        """Create the file; it is empty before the first `flush`.

        Args:
            path: The file.
            wall_time: When it is started, by default now.
            files: Where it is.
            written: Called with records when they are in the file.

        Raises:
            FileExistsError: The file exists.
            OSError: It cannot be created.
        """
        self.path = path
        self.size = 0
        self.n_rows = 0
        self.n_small = 0
        self.n_wide_bytes = 0
        self.n_waiting = 0
        self.n_waiting_bytes = 0
        self.given_up = ""
        self._number = secrets.randbits(64)
        self._keys: set[block.Key] = set()
        self._frames: deque[_Frame] = deque()
        self._n_begun = 0
        self._written = written
        self._closed = False
        self._files = files
        self._file = files.create(path)
        try:
            self._watched = self._file.status().n_links > 0  # some file systems do not count links
        except OSError:
            self.close()  # not an empty file for each attempt
            raise
        parts = encode_version(SIGHTGLASS_VERSION, SystemClock.wall() if wall_time is None else wall_time)
        self._queue([self._frame(parts, None)])

    @property
    def n_series(self) -> int:
        """How many series have records in it."""
        return len(self._keys)

    def append(self, key: block.Key, columns: Columns, *, since: int = 0, n_missed: int = 0) -> None:
        """Queue records for the next `flush`, as blocks of at most `BLOCK_ROWS` and about `BLOCK_BYTES`.

        Args:
            key: The series they belong to.
            columns: At least one record. Do not change the arrays afterwards.
            since: The number of the event from which on the series is recorded.
            n_missed: How many events failed, were skipped or were dropped before the last of these records.

        Raises:
            UnsendableError: A value has a type that cannot be recorded; then none of these records is written.
        """
        frames = []
        for part in split(columns):
            rows = Rows(key=key, columns=part, since=since, n_missed=n_missed)
            payload = block.encode(key, part, segment=self._number, since=since, n_missed=n_missed)
            frames.append(self._frame(payload, rows))
        self._queue(frames)
        self._keys.add(key)

    def flush(self) -> None:
        """Write everything that waits. After an error, what is not written waits for the next call.

        Raises:
            OSError: It cannot be written; also if the file is given up.
        """
        if not self._frames:
            return
        self._look()
        try:
            while self._frames:
                self._advance(self._file.write(self._batch()))
            self._watched &= self._file.status().n_bytes == self.size
        except OSError:
            self._cut_off()
            raise

    def take(self) -> list[Rows]:
        """Remove and return the waiting records, to write them elsewhere."""
        rows = [frame.rows for frame in self._frames if frame.rows is not None]
        self._frames.clear()
        self.n_waiting = self.n_waiting_bytes = self._n_begun = 0
        return rows

    def close(self) -> None:
        """Close the file, and remove it if it is empty; waiting records are lost."""
        if self._closed:
            return
        self._closed, self._watched, self.given_up = True, False, self.given_up or "it is closed"
        if not self.size:
            with contextlib.suppress(OSError):
                self._files.remove(self.path)
        self._file.close()

    def _frame(self, parts: Sequence[Buffer], rows: Rows | None) -> _Frame:
        buffers = frame(joined(parts))
        return _Frame(joined(buffers), sum(map(len, buffers)), rows)

    def _queue(self, frames: Sequence[_Frame]) -> None:
        self._frames.extend(frames)
        self.n_waiting += sum(frame.n_rows for frame in frames)
        self.n_waiting_bytes += sum(frame.n_bytes for frame in frames)

    def _look(self) -> None:
        """Give the file up if another program has changed it. If that is unknown, writing shows whether it is lost."""
        status = None
        if self._watched and not self.given_up:
            with contextlib.suppress(OSError):  # ESTALE for ever, if another machine has removed it
                status = self._file.status()
        if status is not None:
            if not status.n_links:
                self.given_up = "it was removed"
            elif status.n_bytes != self.size:
                self.given_up = f"it was changed by others: {status.n_bytes} bytes instead of {self.size}"
        if self.given_up:
            raise OSError(f"{self.path} is no longer written: {self.given_up}")

    def _batch(self) -> list[memoryview]:
        """Return the first waiting buffers, as many as one system call takes."""
        batch: list[memoryview] = []
        n_skipped, room = self._n_begun, MAX_WRITE_BYTES
        for waiting in self._frames:
            for buffer in waiting.buffers:
                if n_skipped >= len(buffer):
                    n_skipped -= len(buffer)
                    continue
                batch.append(memoryview(buffer)[n_skipped : n_skipped + room])
                n_skipped, room = 0, room - len(batch[-1])
                if not room or len(batch) == MAX_BUFFERS:
                    return batch
        return batch

    def _advance(self, n: int) -> None:
        """Count written bytes, which may end inside a frame."""
        self._n_begun += n
        while self._frames and self._n_begun >= self._frames[0].n_bytes:
            done = self._frames.popleft()
            self._n_begun -= done.n_bytes
            self.size += done.n_bytes
            self.n_rows += done.n_rows
            is_wide = done.rows is not None and done.rows.key.kind == "wide" and len(done.rows.columns) < TALL_ROWS
            self.n_small += is_wide or (done.n_rows > 0 and done.n_bytes <= SMALL_BYTES)
            self.n_wide_bytes += done.n_bytes if is_wide else 0
            self.n_waiting -= done.n_rows
            self.n_waiting_bytes -= done.n_bytes
            if done.rows is not None:
                self._written(done.rows)

    def _cut_off(self) -> None:
        """Cut off a frame that was written in part."""
        self._n_begun = 0
        try:
            self._file.truncate(self.size)
        except OSError as error:
            self.given_up = f"its end is torn: {error.strerror}"


def joined(buffers: Sequence[Buffer]) -> list[Buffer]:
    """Join small buffers that follow each other; large ones stay as they are.

    >>> joined([b"a", b"b", bytes(2**17), b"c"])[::2]
    [b'ab', b'c']
    """
    out: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) <= JOINED_BYTES:
            small.append(buffer)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(buffer)
    if small:
        out.append(b"".join(small))
    return out


def split(columns: Columns) -> Iterator[Columns]:
    """Split records into blocks of at most `BLOCK_ROWS`, and of `BLOCK_BYTES` unless one value is larger."""
    values = columns.values
    if isinstance(values, np.ndarray):
        n_each = max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, values[:1].nbytes)))
        cuts: Sequence[int] = range(n_each, len(columns), n_each)
    else:
        cuts = _cuts(values)
    for start, stop in zip((0, *cuts), (*cuts, len(columns)), strict=True):
        yield columns.slice(start, stop)


def _cuts(values: Sequence[Any]) -> Sequence[int]:
    """Return before which values a new block begins."""
    sizes = [n_bytes(value) for value in values]
    if len(values) <= BLOCK_ROWS and sum(sizes) <= BLOCK_BYTES:
        return ()
    cuts, start, before = [], 0, 0
    for i, end in enumerate(accumulate(sizes)):
        if i > start and (end - before > BLOCK_BYTES or i - start == BLOCK_ROWS):
            cuts.append(i)
            start, before = i, end - sizes[i]
    return cuts
