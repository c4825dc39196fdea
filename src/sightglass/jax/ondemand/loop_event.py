"""An event in a compiled loop, on the host: numbers its occurrences and passes them to subscriptions.

A callback's thread only queues its delivery; everything else happens on a drain thread, in the order of the events.
Where the number of events per call is known, calls without a query count as well; where the program decides it, only
events that were delivered count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sightglass.training.events import Settled
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import EventSource
from sightglass.training.telemetry import Telemetry

from .loop_buffer import CallbackDelivery

# Each delivery holds at most `MAX_BUFFER_BYTES`, so this bounds the host's memory at 1 GiB when nothing is drained.
MAX_WAITING: Final = 1_024
# The number of a call travels through the program as an int32.
MAX_CALLS: Final = 2**31


@dataclass(slots=True)
class _Call:
    """A call in progress: the index of its first event, once known, and how many buffers have not finished."""

    first: int | None
    n_buffers: int


@dataclass(slots=True, kw_only=True)
class LoopEvent:
    """An event that happens in a loop.

    Attributes:
        telemetry: The run's events.
        channel: The event.
        calls: The event of the step itself, which counts calls.
        n_per_call: How often it happens in a call; `None` if the program decides.
    """

    telemetry: Telemetry
    channel: EventSource
    calls: EventSource
    n_per_call: int | None
    _n_before: int = 0
    _calls: dict[int, _Call] = field(default_factory=dict)
    _waiting: deque[tuple[float, CallbackDelivery]] = field(default_factory=deque)

    def n_events(self) -> int:
        """Return how often the event happened, as far as known."""
        return max(self._n_before, self.calls.n_counted * (self.n_per_call or 0))

    def begin(self, call: int, n_per_call: int | None, n_buffers: int) -> None:
        """Begin a call whose program has this many buffers for the event."""
        first = None
        if n_per_call is not None:
            first = max(self._n_before, call * (self.n_per_call or 0))
            self._n_before = first + n_per_call
        self._calls[call % MAX_CALLS] = _Call(first, n_buffers)

    def receive(self, delivery: CallbackDelivery) -> None:
        """Queue a delivery; called by threads of XLA's."""
        if len(self._waiting) >= MAX_WAITING and not delivery.is_last:
            delivery.buffer.n_lost += delivery.n
            return
        self._waiting.append((self.telemetry.clock.wall_now(), delivery))
        self.telemetry.deferred.defer_loop(self._settle)

    def _settle(self, error: BaseException | None) -> None:
        wall_time, delivery = self._waiting.popleft()
        call = self._calls[delivery.call]
        if call.first is None:
            call.first = self._n_before
        first = call.first + delivery.n_before
        buffer = delivery.buffer
        answers = [a for a in self.channel.subscriptions if not a.suspended and a.query.key in buffer.queries.keys]
        lost, buffer.n_lost = buffer.n_lost, 0
        for answer in answers:
            answer.rows.n_dropped += lost
            answer.within = self.calls.name
            if delivery.n_before == 0:
                answer.tail.begin_group()
        results = {answer: _results(answer, delivery, first, wall_time) for answer in answers}
        self.telemetry.events.settle(self.channel, results, n_events=delivery.n if buffer.counts_events else 0)
        if delivery.is_last:
            call.n_buffers -= 1
        if delivery.is_last and not call.n_buffers:  # all events of the call have arrived
            del self._calls[delivery.call]
            self._n_before = max(self._n_before, first + delivery.n)
            for answer in self.channel.subscriptions:
                if answer.within and answer in self.calls.delimits:
                    answer.tail.boundary(self.calls.name, settled=True)
            self.telemetry.events.settle_group(self.channel, first + delivery.n)


def _results(answer: Subscription, delivery: CallbackDelivery, first: int, wall_time: float) -> Iterator[Settled]:
    """Yield the events of a delivery for one subscription."""
    queries = delivery.buffer.queries
    for i in range(delivery.n):
        outputs = [output[i] for output in delivery.outputs]
        step, steps = queries.steps(outputs)
        index = first + i
        yield index, index if step is None else step, wall_time, queries.result(answer.query.key, outputs), steps
