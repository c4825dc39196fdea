"""Which values of other programs' files were logged together: the numbers of log events.

MindSpore writes one Event for each. TensorBoard writes one for each value, so events that follow each other with the
same step and different tags count as one: what a loop logs in one turn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .scalars import Indexes


class Grouping:
    """Numbers log events, batch after batch."""

    def __init__(self, *, by_step: bool) -> None:
        """Begin with 0; `by_step` joins events of one step."""
        self._by_step = by_step
        self._last = -1
        self._step: int | None = None
        self._seen: set[int] = set()

    def number(self, events: Indexes, series: Indexes, steps: Indexes) -> Indexes:
        """Return the number of the log event of each value.

        Args:
            events: The number of each value's Event in the batch, ascending.
            series: Which series it belongs to.
            steps: The steps.
        """
        if not len(events):
            return events
        begins = np.concatenate([[True], events[1:] != events[:-1]])
        if self._by_step:
            begins = self._begins(np.flatnonzero(begins), series, steps)
        numbers: Indexes = self._last + np.cumsum(begins)
        self._last = int(numbers[-1])
        return numbers

    def _begins(self, firsts: Indexes, series: Indexes, steps: Indexes) -> Any:
        """Tell which values begin another log event, given the first value of each Event."""
        begins = np.concatenate([[steps[0] != self._step], steps[1:] != steps[:-1]])
        runs = np.cumsum(begins)
        order = np.lexsort((series, runs))
        again = (np.diff(runs[order]) == 0) & (np.diff(series[order]) == 0)
        repeating = np.zeros(runs[-1] + 1, bool)
        repeating[runs[order[1:][again]]] = True
        repeating[0] = True  # the one that goes on from the last batch
        repeating[-1] = True  # the one that may go on in the next
        seen: set[int] = self._seen
        ends = np.append(firsts[1:], len(series))
        taken = np.flatnonzero(repeating[runs[firsts]])
        for first, end in zip(firsts[taken].tolist(), ends[taken].tolist(), strict=True):
            members = set(series[first:end].tolist())
            if begins[first]:
                seen = set()
            elif not seen.isdisjoint(members):
                begins[first] = True
                seen = set()
            seen |= members
        self._step, self._seen = int(steps[-1]), seen
        return begins
