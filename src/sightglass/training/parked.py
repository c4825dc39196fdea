"""Streams whose clients were lost: what the run keeps of them until a client comes back. They cost no evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sightglass.query.query import Query
from sightglass.query.stages import ByValue, Every, Reduce

from .stream_backlog import StreamBacklog
from .subscription import Subscription

MAX_PARKED: Final = 1_000  # as many as a few dozen pages of charts; each takes about a kilobyte beside its records
MAX_PARKED_BYTES: Final = 4 * 2**20  # of records, of all streams together: seconds of what was on its way, and charts


@dataclass(slots=True, kw_only=True)
class ParkedStream:
    """A stream that nobody reads, and that is not evaluated.

    Attributes:
        number: The stream's number.
        next_index: The number of its next record.
        n_events: The number of the first event that was not evaluated.
        n_skipped: How many events before were not evaluated.
        backlog: Its records; `None` if they were dropped.
    """

    number: int
    next_index: int
    n_events: int
    n_skipped: int
    backlog: StreamBacklog | None


class ParkedStreams:
    """The parked streams of a run, by the keys of their queries. The oldest lose their records first."""

    def __init__(self) -> None:
        self._by_key: dict[str, ParkedStream] = {}

    @property
    def n_bytes(self) -> int:
        """The bytes of all records that are kept."""
        return sum(parked.backlog.records.n_bytes for parked in self._by_key.values() if parked.backlog)

    def park(self, subscription: Subscription, backlog: StreamBacklog, *, n_events: int) -> None:
        """Keep what a client that comes back needs; the subscription is not evaluated any more."""
        self._by_key[subscription.query.key] = ParkedStream(
            number=subscription.id, next_index=subscription.rows.n_made,
            n_events=n_events - subscription.tail.n_deferred, n_skipped=subscription.n_skipped, backlog=backlog,
        )  # fmt: skip
        if len(self._by_key) > MAX_PARKED:
            del self._by_key[next(iter(self._by_key))]
        excess_bytes = self.n_bytes - MAX_PARKED_BYTES
        for parked in self._by_key.values():
            if parked.backlog and excess_bytes > 0:
                excess_bytes -= parked.backlog.records.n_bytes
                parked.backlog = None

    def take(self, query: Query) -> ParkedStream | None:
        """Return what is kept of a query's stream, and forget it."""
        return self._by_key.pop(query.key, None)


def n_missing(query: Query, first: int, after: int) -> int:
    """Return how many records are missing because events were not evaluated.

    An event that a condition might have held back counts as a record. Windows of `every=n` are missing if they close
    among these events. Of other windows the number is not known: they count as one, since the open group is lost.

    Args:
        query: The query.
        first: The number of the first event that was not evaluated.
        after: The number of the first one that is evaluated again.
    """
    reducers = [stage for stage in query.stages if isinstance(stage, Reduce)]
    if all(isinstance(stage.window, ByValue) for stage in reducers):
        return after - first
    window = reducers[0].window
    return after // window.n - first // window.n if len(reducers) == 1 and isinstance(window, Every) else 1
