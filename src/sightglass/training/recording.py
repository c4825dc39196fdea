"""The subscriptions of a run that are recorded, each with the number of the event since which it is."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from sightglass.core.columns import Row
from sightglass.core.errors import RefusedError, RefusedQueryError, UnknownNameError
from sightglass.query.query import Query

from .recorder import Recorder
from .subscription import Subscription
from .telemetry import Telemetry


class RecordedSubscriptions:
    """Passes the rows of recorded subscriptions to the recorder."""

    def __init__(self, telemetry: Telemetry, recorder: Recorder | None, *, run: str) -> None:
        self._telemetry = telemetry
        self._recorder = recorder
        self._run = run
        self._since: dict[int, int] = {}

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription.id in self._since

    def check(self, query: Query, subscription: Subscription | None) -> None:
        """Refuse a query that cannot be recorded.

        Raises:
            RefusedError: This run does not record.
            RefusedQueryError: The query costs more than the run's budget.
        """
        if self._recorder is None:
            raise RefusedError(f"Run {self._run!r} does not record")
        if subscription is not None and subscription.stride > 1:
            raise RefusedQueryError(
                f"{query} costs {self._telemetry.budget.cost(subscription)}, so it is evaluated on every "
                f"{subscription.stride}th event only; recorded queries are never thinned"
            )

    def add(self, subscription: Subscription) -> None:
        """Record rows from now on; the caller holds the lock."""
        source = self._telemetry.subscriptions.sources.get(subscription.event)
        self._since.setdefault(subscription.id, 0 if source is None else source.n_events)
        subscription.recorded = True

    def discard(self, subscription: Subscription, problem: str = "") -> None:
        """Stop recording a subscription; a problem is reported as a warning."""
        if self._since.pop(subscription.id, None) is not None and problem:
            message = f"Run {self._run!r} no longer records {subscription.query}: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        subscription.recorded = False

    def find(self, query: Query, subscription: Subscription | None) -> Subscription:
        """Return the subscription of a query that is recorded.

        Raises:
            UnknownNameError: The query is not recorded.
        """
        if subscription is None or subscription not in self:
            active = self._telemetry.subscriptions.active.values()
            raise UnknownNameError(
                "recorded query", str(query), [str(other.query) for other in active if other in self]
            )
        return subscription

    def store(self, subscription: Subscription, rows: Sequence[Row]) -> None:
        """Record rows, if the subscription is recorded."""
        if rows and subscription in self and self._recorder is not None:
            self._recorder.record(subscription, rows, self._since[subscription.id])

    def command(self, entry: Mapping[str, Any]) -> None:
        """Record an entry of the history, if anything else is recorded."""
        # The first command may come before the first row of a recorded query.
        if self._recorder is not None and (self._since or self._recorder.active):
            self._recorder.command(entry)

    def lapsed(self, subscription: Subscription) -> bool:
        """Return whether the review of the budget gave up recording a subscription."""
        return subscription in self and not (subscription.recorded or subscription.suspended)
