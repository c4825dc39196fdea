"""The segments of one process: which file records go to, and when the next one begins.

A file is full at `SEGMENT_BYTES`, or when it has very many small blocks. Full and closed files are compacted. What the
records come to is kept beside them (`totals`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sightglass.core.columns import Columns
from sightglass.core.process.clock import Clock
from sightglass.storage import cache_file, totals_file
from sightglass.storage.file_names import SUFFIX
from sightglass.storage.file_system import LOCAL, FileSystem, exists
from sightglass.storage.format.block import Key
from sightglass.storage.format.totals import TotalsBuilder
from sightglass.storage.run_file import highest_place

from .compact import Compactor, pays, remove_old
from .segment import Rows, SegmentWriter

SEGMENT_BYTES: Final = 256 * 2**20  # small enough to copy or delete alone
MANY_SMALL: Final = 2**16  # scanned in a tenth of a second
SMALL_EACH: Final = 256
SHARE: Final = 16


class Segments:
    """Writes the segments of one process: opens the first with the first records, and the next when one is full.

    A file of small blocks is full when it has `MANY_SMALL`, which bounds the work of a reader if the process is killed
    before compaction. But it needs `SMALL_EACH` for each series, because fewer do not make large blocks, and one for
    each `SHARE` in the files before: readers hold all files of a long run open.
    """

    def __init__(
        self,
        open_directory: Callable[[], Path],
        *,
        rank: int,
        clock: Clock,
        tell: Callable[[str], None],
        files: FileSystem = LOCAL,
        totals: bool = False,
    ) -> None:
        """Begin with no file.

        Args:
            open_directory: Creates the directory; called before the first file, and again if it has vanished.
            rank: The number of the process in its program.
            clock: Where the time comes from.
            tell: Called with a message about a file that is given up.
            files: Where the files are.
            totals: Whether to write the totals of the series, too, if the files are local.
        """
        self._open_directory = open_directory
        self._tell = tell
        self._rank = rank
        self._clock = clock
        self._files = files
        self._place = 0
        self._number = 0
        self._directory: Path | None = None
        self._current: SegmentWriter | None = None
        self._left: list[Rows] = []
        self._n_left_bytes = 0
        self._n_rows = 0
        self._n_bytes = 0
        self._n_small = 0
        self._compactor = Compactor(clock, files)
        self._names: set[str] = set()
        self._totals = TotalsWriter(active=totals and files is LOCAL)

    @property
    def ready(self) -> bool:
        """Whether a file is open for records."""
        return self._current is not None and not self._current.given_up

    @property
    def path(self) -> Path | None:
        """The file that is being written, otherwise the directory, if it exists."""
        return self._current.path if self._current else self._directory

    @property
    def n_rows(self) -> int:
        """How many records are in the files."""
        current = self._current
        return self._n_rows + (current.n_rows if current else 0)

    @property
    def n_bytes(self) -> int:
        """How many bytes are in the files."""
        current = self._current
        return self._n_bytes - self._compactor.n_saved + (current.size if current else 0)

    @property
    def compacting(self) -> bool:
        """Whether `compact` has work to do."""
        return self._compactor.busy

    @property
    def n_waiting(self) -> int:
        """How many records wait to be written."""
        current = self._current
        return sum(len(rows.columns) for rows in self._left) + (current.n_waiting if current else 0)

    @property
    def n_waiting_bytes(self) -> int:
        """How many bytes wait to be written."""
        current = self._current
        return self._n_left_bytes + (current.n_waiting_bytes if current else 0)

    def open(self) -> SegmentWriter:
        """Open a file for records, unless one is open, and return it.

        Raises:
            OSError: It cannot be created.
        """
        current = self._current
        if current and (current.given_up or self._is_full(current)):
            if current.given_up:
                self._tell(f"{current.path} is no longer written: {current.given_up}. Records go to another file")
            self._n_left_bytes += current.n_waiting_bytes
            self._left += current.take()
            try:
                self._leave(current)
            except OSError as error:  # in a network, what was written before can fail now
                self._tell(f"{current.path} could not be closed, its last records may be missing: {error.strerror}")
        if self._current is None:
            opened = self._next()
            for rows in self._left:
                opened.append(rows.key, rows.columns, since=rows.since, n_missed=rows.n_missed)
            self._left, self._n_left_bytes, self._current = [], 0, opened
        return self._current

    def append(self, rows: Rows) -> None:
        """Queue records for the next `flush`; only after `open`.

        Raises:
            UnsendableError: A value has a type that cannot be recorded; then none of these records is written.
        """
        assert self._current is not None
        self._current.append(rows.key, rows.columns, since=rows.since, n_missed=rows.n_missed)

    def flush(self) -> None:
        """Write everything that waits. After an error, what is not written waits for the next call.

        Raises:
            OSError: It cannot be written, or the next file cannot be created.
        """
        current = self._current
        if current is None and not self._left:
            return
        try:
            if current is not None:
                current.flush()
                self._totals.settle()
                if self._totals.is_due(self.n_bytes):
                    self._write_totals()
                return
        except OSError:
            if current is None or not current.given_up:
                raise
        self.open().flush()

    def restart(self) -> int:
        """Give up the current file, and return how many records waited for it; later ones go to another."""
        n_lost = self.n_waiting
        self._totals.give_up()
        self._left, self._n_left_bytes = [], 0
        if self._current is not None:
            with contextlib.suppress(OSError):  # else the lost records would not be counted
                self._leave(self._current)
        return n_lost

    def compact(self, limit_s: float) -> None:
        """Compact closed files, for about `limit_s`."""
        self._compactor.work(limit_s)

    def close(self, *, compact_s: float = 0.0) -> None:
        """Close the file, and compact closed files within `compact_s`; waiting records are lost."""
        self._left, self._n_left_bytes = [], 0
        try:
            if self._current is not None:
                self._leave(self._current)
            if compact_s:
                self._compactor.work(compact_s)
        finally:
            self._compactor.stop()
        self._write_totals()

    def _write_totals(self) -> None:
        if self._directory is not None:
            self._totals.write(self._directory, self._names)

    def _is_full(self, current: SegmentWriter) -> bool:
        many = max(MANY_SMALL, SMALL_EACH * current.n_series, self._n_small // SHARE)
        return current.size >= SEGMENT_BYTES or current.n_small >= many

    def _leave(self, current: SegmentWriter) -> None:
        self._n_rows += current.n_rows
        self._n_bytes += current.size
        self._n_small += current.n_small
        self._current = None
        whole = not current.given_up
        if not whole:
            self._totals.give_up()
        if not current.size:
            self._names.discard(current.path.name)  # it is removed
        current.close()
        n_bytes = current.size - current.n_wide_bytes
        if whole and pays(n_small=current.n_small, n_series=current.n_series, n_bytes=n_bytes):
            self._compactor.add(current.path, current.size)

    def _next(self) -> SegmentWriter:
        """Create the next file, under a free name."""
        wall_time = self._clock.wall()
        if self._directory is None or not exists(self._files, self._directory):
            self._directory = self._open_directory()
            remove_old(self._directory, self._files, now=wall_time)
        if not self._place:  # above all others, whatever their clocks say
            self._place = max(int(wall_time * 1000), highest_place(self._directory, self._files) + 1)
        while True:
            name = f"{self._place}-rank{self._rank}-{self._number:04d}{SUFFIX}"
            try:
                path = self._directory / name
                opened = SegmentWriter(path, wall_time=wall_time, files=self._files, written=self._totals.add)
            except FileExistsError:
                self._place, self._number = self._place + 1, 0
                continue
            self._number += 1
            self._names.add(name)
            return opened


# The totals of a run, added up by the run as its records reach the files.
#
# Rule 1: they are written when the run ends, and now and then before: what a killed run wrote since, a reader adds.
# Rule 2: they are of all records in the directory, or are not written. If another process wrote there, too, or a file
# was given up, a reader decides which records count.
# Rule 3: whatever fails here costs the records nothing.

DUE_BYTES: Final = 16 * 2**20  # of new records: a reader adds them in less than a tenth of a second
MAX_SERIES: Final = 10_000  # are written in some hundredths of a second


class TotalsWriter:
    """Adds up the records of one process, and writes its totals."""

    def __init__(self, *, active: bool) -> None:
        """Begin without records; do nothing unless it is active."""
        self._builder = TotalsBuilder() if active else None
        self._others: set[Key] = set()
        self._blocks: list[tuple[Key, Columns]] = []
        self._due_bytes = DUE_BYTES

    def add(self, rows: Rows) -> None:
        """Take records that are in a file now."""
        if self._builder is None:
            return
        if rows.key.kind in ("logged", "wide", "stream"):
            self._blocks.append((rows.key, rows.columns))
        else:
            self._others.add(rows.key)

    def settle(self) -> None:
        """Add up the records that were taken, after all of a flush: series that were logged together cost as one."""
        blocks, self._blocks = self._blocks, []
        if self._builder is None or not blocks:
            return
        try:
            self._builder.add_all(blocks)
        except Exception:  # noqa: BLE001  a reader makes the totals
            self._builder = None
        if self._builder is not None and len(self._builder.n_rows) > MAX_SERIES:
            self._builder = None

    def give_up(self) -> None:
        """Write no totals: not all records that were added are in the files."""
        self._builder = None

    def is_due(self, n_bytes: int) -> bool:
        """Return whether a run of this size has grown by `DUE_BYTES` since this last returned true."""
        if n_bytes < self._due_bytes:
            return False
        self._due_bytes = n_bytes + DUE_BYTES
        return True

    def write(self, directory: Path, names: set[str]) -> None:
        """Write the totals.

        Args:
            directory: The run directory.
            names: The names of the files that have all records that were added, and no others.
        """
        self.settle()
        if self._builder is None or not names:
            return
        with contextlib.suppress(Exception):  # such as a full disk: a reader makes them
            files = cache_file.files_of(directory)
            if files.keys() == names:
                totals_file.write(directory, self._builder.totals(files, others=self._others), rank=None)
