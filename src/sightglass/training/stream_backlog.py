"""The records of a stream for clients that open it late, or come back. The `io` thread owns them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns

from .options import Limits


class StreamBacklog:
    """The records that were sent; of a long stream, some of the older.

    Attributes:
        began: The number of the first record after the stream was parked: only its earlier clients get those before.
        late: Whether its event happened before the stream began.
        records: The records.
    """

    def __init__(self, limits: Limits | None = None, *, late: bool = False) -> None:
        self.began = 0
        self.late = late
        self._limits = limits = limits or Limits()
        self.records = Buffer(max_rows=limits.max_backlog_records, max_bytes=limits.max_backlog_bytes)
        self._kept = bool(limits.max_backlog_records and limits.max_backlog_bytes)

    def add(self, columns: Columns) -> None:
        """Keep records that follow the last ones."""
        if self._kept:
            self.records.add(columns)

    def shorten(self, max_bytes: int) -> None:
        """Hold at most this many bytes from now on."""
        limits = self._limits
        self.records.bound(max_rows=limits.max_backlog_records, max_bytes=max_bytes)
        if self.records.n_bytes > max_bytes:  # of one record, which a buffer holds in any case
            self.records = Buffer(max_rows=limits.max_backlog_records, max_bytes=limits.max_backlog_bytes)

    def since(self, index: int) -> Columns:
        """Return the records from a number on."""
        return self.records.since(index)[1]

    def parts(self, columns: Columns) -> Iterator[Columns]:
        """Split records of the backlog where one is missing, so that it counts as lost and not as thinned."""
        indexes = columns.numbers
        missing = (np.diff(indexes) != 1) & (indexes[1:] > self.records.exact_from)
        starts = [0, *(np.flatnonzero(missing) + 1).tolist(), len(columns)]
        yield from (columns.slice(start, stop) for start, stop in itertools.pairwise(starts) if start < stop)
