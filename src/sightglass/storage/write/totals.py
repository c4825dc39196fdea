"""The totals of a run, added up by the run as its records reach the files.

Rule 1: they are written when the run ends, and now and then before: what a killed run wrote since, a reader adds.
Rule 2: they are of all records in the directory, or are not written. If another process wrote there, too, or a file was
given up, a reader decides which records count.
Rule 3: whatever fails here costs the records nothing.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Final

from sightglass.core.columns import Columns
from sightglass.storage import cache_file, totals_file
from sightglass.storage.format.block import Key
from sightglass.storage.format.totals import TotalsBuilder

from .segment import Rows

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
