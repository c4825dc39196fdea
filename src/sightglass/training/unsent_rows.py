"""The rows of a subscription that wait for the `io` thread.

The training thread and the drain thread append, and the `io` thread takes them away, without a lock: appending to a
deque and popping from its other end are atomic. Each row carries its number, so a row that was dropped leaves a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from sightglass.core.columns import Row
from sightglass.core.values import n_bytes
from sightglass.query.windows import PipelineItem

MAX_UNSENT_ROWS: Final = 200_000  # some seconds of the fastest stream while the io thread is held up
MAX_UNSENT_BYTES: Final = 32 * 2**20  # the same for arrays; it is host memory of the training process

QUICK: Final = frozenset((float, int, bool, np.float64, np.float32))
"""The types of values that are rows as they are: their bytes are not worth counting."""


class UnsentRows(deque[Row]):
    """The rows that wait.

    Attributes:
        n_made: How many rows there were: the number of the next one.
        n_dropped: How many of them were dropped because too many waited.
        n_bytes: The bytes of those that wait.
        full: Whether too many wait.
    """

    __slots__ = ("full", "n_bytes", "n_dropped", "n_made")

    def __init__(self, rows: Iterable[Row] = (), *, n_made: int = 0, n_dropped: int = 0) -> None:
        super().__init__(rows)
        self.n_made = n_made
        self.n_dropped = n_dropped
        self.full = False
        self.n_bytes = 0

    def fork(self) -> UnsentRows:
        """Return the same rows, for a stream that continues from here."""
        return UnsentRows(self, n_made=self.n_made, n_dropped=self.n_dropped)

    @property
    def next_index(self) -> int:
        """The number of the first row that `take` will return; the caller holds the lock."""
        return self[0][0] if self else self.n_made

    def emit(self, items: Iterable[PipelineItem]) -> None:
        """Append what a query made, or count it as dropped."""
        for item in items:
            if self.full:
                self.n_dropped += 1
            else:
                usual = item.n_events == 1 and item.complete and item.closed and not item.steps
                extra = None if usual else (item.n_events, item.complete, item.closed, item.steps)
                self.append((self.n_made, item.step, item.wall_time, item.value, extra, item.ordinal))
                if type(item.value) not in QUICK:
                    self.n_bytes += n_bytes(item.value)
                    self.full = self.n_bytes > MAX_UNSENT_BYTES
            self.n_made += 1

    def look_for_room(self) -> None:
        """Drop rows from now on if too many wait; called every few milliseconds."""
        self.full = len(self) > MAX_UNSENT_ROWS or self.n_bytes > MAX_UNSENT_BYTES

    def take(self) -> list[Row]:
        """Return the rows since the last call. Only the `io` thread may call this."""
        rows = [self.popleft() for _ in range(len(self))]
        self.n_bytes = 0
        self.full = False
        return rows


def consecutive(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Split rows at gaps in their index numbers."""
    start, n = 0, len(rows)
    while start < n:
        end = n
        if rows[-1][0] - rows[start][0] != n - 1 - start:  # there is a gap: look for the first
            end = next(i for i in range(start + 1, n) if rows[i][0] != rows[i - 1][0] + 1)
        yield rows[start:end]
        start = end
