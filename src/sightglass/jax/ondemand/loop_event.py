"""An event in a compiled loop, on the host: numbers its occurrences and passes them to subscriptions.

A callback's thread only queues its delivery; everything else happens on a drain thread, in the order of the events.
Where the number of events per call is known, calls without a query count as well; where the program decides it, only
events that were delivered count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sightglass.training.events import Settled
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import EventSource
from sightglass.training.telemetry import Telemetry

from .loop_buffer import CallbackDelivery, LoopBuffer

# Each delivery holds at most `MAX_BUFFER_BYTES`, so this bounds the host's memory at 1 GiB when nothing is drained.
MAX_WAITING: Final = 1_024
# The number of a call travels through the program as an int32.
MAX_CALLS: Final = 2**31


@dataclass(slots=True)
class _Call:
    """A call in progress.

    Attributes:
        first: The index of its first event, once known.
        n_buffers: How many buffers have not finished.
        n_seen: By buffer, how many events happened until its last delivery.
    """

    first: int | None
    n_buffers: int
    n_seen: dict[LoopBuffer, int] = field(default_factory=dict)


class _Waiting(NamedTuple):
    """A delivery that waits for a drain thread, and the events just before it for which there was no room.

    Attributes:
        delivery: The delivery.
        n_lost: How many answered events were dropped.
        n_before: How many happened meanwhile.
        wall_time: When it was delivered.
    """

    delivery: CallbackDelivery
    n_lost: int
    n_before: int
    wall_time: float


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
    _waiting: deque[_Waiting] = field(default_factory=deque)

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
        """Queue a delivery; called by threads of XLA's, in turn for those of one buffer."""
        buffer, (n_lost, n_before) = delivery.buffer, delivery.buffer.lost
        if len(self._waiting) >= MAX_WAITING and not delivery.is_last:
            buffer.lost = n_lost + delivery.n, n_before + delivery.n_seen
            return
        buffer.lost = 0, 0
        self._waiting.append(_Waiting(delivery, n_lost, n_before, self.telemetry.clock.wall_now()))
        self.telemetry.deferred.defer_loop(self._settle)

    def _settle(self, error: BaseException | None) -> None:
        delivery, n_lost, n_before, wall_time = self._waiting.popleft()
        call, buffer, every = self._calls[delivery.call], delivery.buffer, delivery.every
        if call.first is None:
            call.first = self._n_before
        answers = [a for a in self.channel.subscriptions if not a.suspended and a.query.key in buffer.queries.keys]
        for answer in answers:
            answer.rows.n_dropped += n_lost
            answer.n_skipped += n_before - n_lost + delivery.n_seen - delivery.n
            answer.within = self.calls.name
            if buffer not in call.n_seen:
                answer.tail.begin_group()
        start = call.first + call.n_seen.get(buffer, 0) + n_before
        end = start + delivery.n_seen
        call.n_seen[buffer] = end - call.first
        first = start + -(start - call.first) % every
        results = {answer: _results(answer, delivery, first, wall_time) for answer in answers}
        n_events = delivery.n if buffer.counts_events else 0
        self.telemetry.events.settle(self.channel, results, n_events=n_events, every=every)
        if delivery.is_last and end > call.first and (end - call.first - 1) % every:  # the last one is not answered
            for answer in answers:
                answer.tail.settle_miss(end - 1, wall_time)
        if delivery.is_last:
            call.n_buffers -= 1
        if delivery.is_last and not call.n_buffers:  # all events of the call have arrived
            del self._calls[delivery.call]
            self._n_before = max(self._n_before, end)
            for answer in self.channel.subscriptions:
                if answer.within and answer in self.calls.delimits:
                    answer.tail.boundary(self.calls.name, settled=True)
            self.telemetry.events.settle_group(self.channel, end)


def _results(answer: Subscription, delivery: CallbackDelivery, first: int, wall_time: float) -> Iterator[Settled]:
    """Yield the answered events of a delivery for one subscription, given the index of the first."""
    queries = delivery.buffer.queries
    for i in range(delivery.n):
        outputs = [output[i] for output in delivery.outputs]
        step, steps = queries.steps(outputs)
        index = first + i * delivery.every
        yield index, index if step is None else step, wall_time, queries.result(answer.query.key, outputs), steps
