"""What happens in a compiled loop, on the host: the numbers of its events, and their way to the answers.

A callback's thread only hands over what it brought; all else happens on a drain thread, in the order of the events.
Where the number of events a call is known, calls that nobody looked into count as well; where the program decides it,
only those are counted that were seen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from sightglass.training.events import Emitter, Settled
from sightglass.training.subscription import Subscription
from sightglass.training.subscriptions import EventSource

from .variant import CallbackDelivery

MAX_WAITING: Final = 1_024
CALLS: Final = 2**31


@dataclass(slots=True)
class _Call:
    """A call under way: the number of its first event, once that is known, and how many parts still bring events."""

    first: int | None
    n_parts: int


@dataclass(slots=True, kw_only=True)
class Loop:
    """An event that happens in a loop.

    Attributes:
        emitter: Where it comes in.
        channel: The event.
        calls: The step's own channel, which counts calls.
        n_per_call: How often it happens in a call; `None` if the program decides.
    """

    emitter: Emitter
    channel: EventSource
    calls: EventSource
    n_per_call: int | None
    _n_before: int = 0
    _under_way: dict[int, _Call] = field(default_factory=dict)
    _waiting: deque[tuple[float, CallbackDelivery]] = field(default_factory=deque)

    def n_events(self) -> int:
        """Return how often it happened, as far as that is known."""
        return max(self._n_before, self.calls.n_counted * (self.n_per_call or 0))

    def begin(self, call: int, n_per_call: int | None, n_parts: int) -> None:
        """See a call begin that is looked into, at so many rates."""
        first = None
        if n_per_call is not None:
            first = max(self._n_before, call * (self.n_per_call or 0))
            self._n_before = first + n_per_call
        self._under_way[call % CALLS] = _Call(first, n_parts)

    def receive(self, delivery: CallbackDelivery) -> None:
        """Take what a callback brought; called by threads of XLA's."""
        if len(self._waiting) >= MAX_WAITING and not delivery.ended:
            delivery.part.n_lost += delivery.n
            return
        self._waiting.append((self.emitter.wall_time(), delivery))
        self.emitter.defer_loop(self._settle)

    def _settle(self, error: BaseException | None) -> None:
        wall_time, delivery = self._waiting.popleft()
        call = self._under_way[delivery.call]
        if call.first is None:
            call.first = self._n_before
        first = call.first + delivery.n_before
        answers = [a for a in self.channel.answers if not a.suspended and a.query.key in delivery.part.keys]
        lost, delivery.part.n_lost = delivery.part.n_lost, 0
        for answer in answers:
            answer.n_dropped += lost
            answer.within = self.calls.name
            if delivery.n_before == 0:
                answer.begin_group()
        heads = {answer: _heads(answer, delivery, first, wall_time) for answer in answers}
        self.emitter.settle(self.channel, heads, n_events=delivery.n if delivery.part.leads else 0)
        if delivery.ended:
            call.n_parts -= 1
        if delivery.ended and not call.n_parts:  # the last rate of the event: all of the call's events are here
            del self._under_way[delivery.call]
            self._n_before = max(self._n_before, first + delivery.n)
            for answer in self.channel.answers:
                if answer.within and answer in self.calls.delimits:
                    answer.settle_boundary(self.calls.name)
            self.emitter.settle_group(self.channel, first + delivery.n)


def _heads(answer: Subscription, delivery: CallbackDelivery, first: int, wall_time: float) -> Iterator[Settled]:
    """Yield the events of a delivery, for one answer."""
    part = delivery.part
    for i in range(delivery.n):
        arrays = [array[i] for array in delivery.arrays]
        step, steps = part.steps(arrays)
        index = first + i
        yield index, index if step is None else step, wall_time, part.head(answer.query.key, arrays), steps
