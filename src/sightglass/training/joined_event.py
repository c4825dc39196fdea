"""An event that a query joins: what the query reads of it is copied when it happens, within the limit of that event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sightglass.core.errors import AbsentError, EvaluationError, UnknownNameError
from sightglass.core.guarded import FAILURES
from sightglass.query.evaluation import Evaluation
from sightglass.query.joined import joined_part, reads_fields_of
from sightglass.query.meter import Meter, NoRoom
from sightglass.query.query import with_fields

from .steps import Tracks
from .subscription import LOG, Subscription

Snapshot = tuple[int, Any, float, Mapping[str, Any]]
"""A copy of an event: index, step, wall time, observables."""


class JoinedEvent:
    """Copies what a subscription reads of one event that it joins. It has a turn at that event, as queries have.

    Attributes:
        subscription: The subscription.
        n_seen: How many events it was copied from.
        n_waited: How many events in a row it was skipped because others had taken the time.
        price_s: The seconds that the last copy took.
    """

    __slots__ = ("_evaluation", "_event", "_latest", "_reads_fields", "n_seen", "n_waited", "price_s", "subscription")

    def __init__(self, subscription: Subscription, event: str) -> None:
        of = subscription.tail.evaluation.meter
        meter = Meter(limit_s=of.limit_s, max_bytes=of.max_bytes, model=of.model, cpu_s=of.now, memory=of.memory)
        self.subscription = subscription
        self.n_seen = self.n_waited = 0
        self.price_s = 0.0
        self._event = event
        self._evaluation = Evaluation(joined_part(subscription.query, event), meter=meter)
        self._latest = subscription.latest[event]
        self._reads_fields = reads_fields_of(subscription.query, event)

    def begin(self, n_events: int, snapshot: Snapshot | None) -> None:
        """Begin after some events; a snapshot of the last of them is the latest one."""
        if n_events and self._latest.observables is None:
            self._latest.lose()
            if snapshot is not None and snapshot[0] == n_events - 1:
                self.post(*snapshot)

    @property
    def suspended(self) -> bool:
        """Whether the query is not evaluated any more."""
        return self.subscription.errors.suspended

    @property
    def first(self) -> bool:
        """Whether it is copied whatever others take."""
        return self.subscription.first

    @property
    def confirmed(self) -> bool:
        """Whether a controller accepts that it takes more of an event than queries may."""
        return self.subscription.confirmed

    def allow(self, left_s: float, *, limit_s: float | None) -> None:
        """Set what is left of the event."""
        if not self.confirmed:
            self._evaluation.meter.limit_s = left_s

    def skip(self, index: int, wall_time: float) -> None:
        """Count an event for which there is no time: what follows it has no partner."""
        self._latest.lose()

    def post(
        self, index: int, step: object, wall_time: float, observables: Mapping[str, Any], steps: Tracks = None
    ) -> None:
        """Copy what the query reads of an event. Never raises."""
        subscription, latest = self.subscription, self._latest
        if subscription.errors.suspended:
            return
        if subscription.stride > 1 and index % subscription.stride:
            latest.lose()  # the budget thins the query, and its copies with it
            return
        clock = subscription.clock
        cpu_s, now_s = clock.cpu(), clock.monotonic()
        try:
            if self._reads_fields:
                observables = with_fields(observables, index=index, wall_time=wall_time)
            latest.hold(*self._evaluation.to_hold(observables, before=latest.n_bytes))
            self.n_seen += 1
        except NoRoom:
            latest.lose()
        except FAILURES as error:
            error.__traceback__ = None  # its frames hold what was computed so far
            unlogged = self._event == LOG and isinstance(error, UnknownNameError) and error.what == "observable"
            if not unlogged:  # calls of `log` differ in their names: the latest that has those of the query counts
                latest.lose()
                if not isinstance(error, AbsentError):
                    subscription.errors.add(error, step, event=self._event)
        taken_s = clock.cpu() - cpu_s
        self.price_s = taken_s
        subscription.cost.tail(taken_s, clock.monotonic() - now_s)


def not_compiled(event: str) -> EvaluationError:
    """Return the error of a query that joins an event of a compiled step."""
    return EvaluationError(
        f"Expected events of observe or log to join, got {event!r}, which happens in a compiled step: "
        "pass its results to observe, and join that event",
        event=event,
    )
