"""Offline runs of Weights & Biases as files of a recording.

See `wandb_log` for the file, and `wandb_messages` for what it says.

* What is damaged costs a record, which is noted with its offset; a file that ends inside a record is normal.
* Values of types that have no counterpart here are counted by W&B's names for them, and passed over.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Damage, RandomAccessFile
from sightglass.storage.format.index import BlockEntry

from .event_columns import EventSeries
from .foreign_file import ForeignFile
from .wandb_columns import Stored, WandbColumns
from .wandb_log import BLOCK_BYTES, HEADER_BYTES, LogScan, check_header
from .wandb_messages import decode
from .wandb_rows import Batch, read_blocks
from .wandb_values import convert

WINDOW_BYTES: Final = 2**20  # thousands of rows, and all that is made of them fits a CPU's cache


class WandbFile(ForeignFile):
    """A `.wandb` file; see `record_file.RecordFile` for its attributes."""

    dialect = "wandb"
    torn = 0

    def __init__(self, path: Path) -> None:
        """Open a file and read what it has.

        Raises:
            OSError: The file cannot be read.
            DamagedError: It is not a log of Weights & Biases, or of a newer version.
        """
        self.path = path
        self.torn = 0
        self.started = 0.0  # until the file says it
        self._file = RandomAccessFile(path)
        self._bad: dict[int, Damage] = {}
        self._size = -1
        self._begun = False
        self._scan = LogScan(self._lose)
        self._columns = WandbColumns(path.parent / "files", damaged=self._note)
        try:
            self._begin()
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def told(self) -> Mapping[str, Any]:
        """What the file says of its run, as fields of `run_file.RunFile`."""
        return self._columns.told

    @property
    def series(self) -> Mapping[Key, EventSeries]:
        """Its series."""
        return self._columns.series

    @property
    def damages(self) -> Sequence[Damage]:
        """The damage found so far."""
        return list(self._bad.values())

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many values cannot be shown, by what they are."""
        return self._columns.passed_over

    # Scanning

    def refresh(self) -> bool:
        """Read what was appended, and return whether there was anything; torn tails and damage do not raise."""
        before = self._columns.n, len(self._bad), len(self.told)
        try:
            size = self._file.size()
            if size == self._size:
                return False
            self._size = size
            if self._begun or self._begin():
                self._read(size)
            else:
                self.torn = size
        except (OSError, DamagedError) as error:
            self._note(self._scan.position, 0, str(error))
        return (self._columns.n, len(self._bad), len(self.told)) != before

    def _begin(self) -> bool:
        """Return whether the file has its header.

        Raises:
            DamagedError: It has another one.
        """
        self._begun = check_header(bytes(self._file.read(0, HEADER_BYTES)), self.path)
        return self._begun

    def _read(self, size: int) -> None:
        ahead = WINDOW_BYTES
        while (start := self._scan.position) < size:
            end = min(size, start - start % BLOCK_BYTES + ahead)
            batch = self._next(bytes(self._file.read(start, end - start)))
            if len(batch.offsets):
                ahead = WINDOW_BYTES
                self._columns.read(batch)
            elif end == size:
                break
            elif self._scan.position == start:
                ahead *= 2  # a record that is larger
        self.torn = max(0, size - self._scan.position)
        self.started = float(self.told.get("started", 0.0))

    def _next(self, window: bytes) -> Batch:
        """Return the whole records of a window."""
        found = None if self._scan.lost else read_blocks(window, self._scan.position)
        if found is None:
            return Batch.of(self._scan.read(window))
        batch, self._scan.position = found
        return batch

    def _lose(self, offset: int, length: int) -> None:
        """Note a part of the log that is damaged."""
        self._note(offset, length, "a part of the log is damaged")
        bisect.insort(self._columns.lost, offset)

    def _note(self, offset: int, length: int, what: str, *, tag: str = "", step: float | None = None) -> Damage:
        """Note damage, once for each offset."""
        damage = Damage(path=self.path, offset=offset, length=length, what=what, tag=tag, step=step)
        return self._bad.setdefault(offset, damage)

    # Loading

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: The bytes, or those of an image file, are not those that were written.
        """
        values = self._block(entry).values
        if isinstance(values, list) and isinstance(values[0], Stored):
            value = self._load(entry, values[0])
            values = value[None] if isinstance(value, np.ndarray) else [value]
        return self._with(entry, values)

    def _load(self, entry: BlockEntry, stored: Stored) -> Any:
        """Decode a value that stays in the file."""
        try:
            scan = LogScan(lambda offset, length: None, entry.offset)
            end = entry.offset + entry.length + HEADER_BYTES * (2 + entry.length // (BLOCK_BYTES - HEADER_BYTES))
            end += -end % BLOCK_BYTES
            found = scan.read(bytes(self._file.read(entry.offset, end - entry.offset)), n_records=1)
            if found.offsets != [entry.offset]:
                raise WireError("it changed after the file was opened")
            value = convert(decode(found.payload(0), set()).values[stored.path], self._columns.files)
            if value.load is None:
                raise WireError("it changed after the file was opened")
            return value.load()
        except (WireError, OSError, KeyError) as error:
            damage = self._note(entry.offset, entry.length, str(error), tag=entry.key.tag, step=entry.first_step)
            raise DamagedError(str(damage)) from None
