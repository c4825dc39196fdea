"""The buffer on the device for queries on an event in a compiled loop, and the callback that empties it.

The loop carries the buffer's state. Each event appends its query results; the buffer is sent to the host when it is
full, where a window of the query closes, and at the end of the call. The callback takes a token and returns it, so that
the program's own data flow keeps callbacks in order, as in `tap`. A gated buffer takes only every n-th event of a call,
from the first on; n is an argument of the call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax import lax

from sightglass.jax import explicit
from sightglass.jax.program import compat
from sightglass.jax.program.collected import CollectedLog
from sightglass.jax.program.primitive import MARK
from sightglass.jax.tap import tap_p
from sightglass.training.evaluation.events import Settled
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.subscriptions import EventSource
from sightglass.training.evaluation.telemetry import Telemetry

from .event_queries import EventQueries

END: Final = "end"
"""Stands in place of the specs of logs in the last callback of a call."""

# A group may have any number of events, and a window a million: 4,096 scalars are 16 KiB, and at that rate what a
# callback costs no longer shows beside what the loop costs.
MAX_BUFFERED: Final = 4_096
# Where a window closes is computed in int32, with up to three times its length; a longer one closes once in hours.
MAX_WINDOW: Final = 2**29
# The loop carries the buffer, so this bounds what queries on large arrays hold of the device's memory.
MAX_BUFFER_BYTES: Final = 2**20
# So many rounds of a loop are answered at least, and calls with shorter loops are skipped as a whole: of the layers of
# a network, or of the minibatches of an update, one in eight would always be the same one.
MIN_ROUNDS: Final = 16
# A loop this long is hardly one over layers, so that a few of its rounds stand for all. Where a round is dear, sixteen
# in one call are paid for by hundreds of calls without an answer.
LONG_LOOP: Final = 256
MIN_ROUNDS_OF_LONG: Final = 4
# A loop of unknown length answers at least its first event; this is a minute of rounds of 240 us. A full buffer of such
# events is 2^30 events long, which int32 still counts.
MAX_EVERY: Final = 2**18


def largest_every(n_rounds: int | None) -> int:
    """Return of how many rounds of a loop one may be answered at most, a power of two; `None` stands for any length."""
    if n_rounds is None:
        return MAX_EVERY
    n_answered = MIN_ROUNDS if n_rounds < LONG_LOOP else MIN_ROUNDS_OF_LONG
    return 1 << max(1, n_rounds // n_answered).bit_length() - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackDelivery:
    """Events that a callback delivered.

    Attributes:
        buffer: The buffer that was sent.
        call: The number of the call, modulo 2^31.
        every: Of this many events of the call, the first is answered.
        n: How many events were answered since the delivery before.
        n_seen: How many happened since then, answered or not.
        outputs: The arrays that left the program, each with a leading axis of at least n entries, of which the first n
            are valid.
        is_last: Whether the call ends here.
    """

    buffer: LoopBuffer
    call: int
    every: int
    n: int
    n_seen: int
    outputs: Sequence[npt.NDArray[Any]]
    is_last: bool


Receive = Callable[[CallbackDelivery], None]
"""Called by a thread of XLA's: must not raise, call JAX, or wait."""


class BufferState(NamedTuple):
    """What a loop carries of a buffer: scalars of int32, and an array (size, *shape) for each output of the queries.

    Attributes:
        call: The number of the call, and of how many of its events one is answered, shape (2,).
        every: Of this many events, the first is answered.
        left: How many events happen before the next one that is answered.
        place: How many events of the current window happened.
        n_seen: How many events happened since the buffer was sent.
        n_waiting: How many of these were answered.
        token: Returned by each callback and taken by the next.
        outputs: The buffered arrays.
    """

    call: jax.Array
    every: jax.Array
    left: jax.Array
    place: jax.Array
    n_seen: jax.Array
    n_waiting: jax.Array
    token: jax.Array
    outputs: list[jax.Array]


class LoopBuffer:
    """A buffer for the queries on one event with windows of one length.

    Attributes:
        queries: The queries.
        window_events: How many events a window has; the buffer is sent where one closes.
        counts_events: Whether this is the one buffer of its event that counts events.
        max_every: The largest number of events, a power of two, of which one may be answered; 1 until it is gated.
        evaluation: The jaxpr of the queries' evaluation at an event.
        size: How many events the buffer holds.
        lost: How many answered events were dropped since a delivery was queued, because too many were waiting; and how
            many happened meanwhile.
    """

    def __init__(
        self, queries: EventQueries, receive: Receive, *, window_events: int | None, counts_events: bool
    ) -> None:
        self.queries = queries
        self.window_events = min(window_events or MAX_BUFFERED, MAX_WINDOW)
        self.counts_events = counts_events
        self.max_every = 1
        self.size = 1
        self.lost = 0, 0
        self._receive = receive
        expected = {
            key: CollectedLog(e.stacked, {}, compat.Aval((e.n_events, *e.batch), np.bool_) if e.masked else None)
            for key, e in queries.occurrence.logs.items()
            if key in queries.reads
        }
        evaluated = jax.make_jaxpr(lambda collected: queries.evaluate(self._of_lane(collected, 0)))
        self.evaluation: Any = evaluated(expected)

    def start(self, call: jax.Array) -> BufferState:
        """Return an empty buffer."""
        avals = self.evaluation.out_avals
        n_bytes = sum(a.size * a.dtype.itemsize for a in avals)
        self.size = max(1, min(self.window_events, MAX_BUFFERED, MAX_BUFFER_BYTES // max(1, n_bytes)))
        zero = jnp.int32(0)
        outputs = [explicit.filled(explicit.abstract(a, lead=(self.size,))) for a in avals]
        every = jnp.minimum(call[1], self.max_every) if self.max_every > 1 else jnp.int32(1)
        return BufferState(call, every, zero, self._place(call[0]), zero, zero, zero, outputs)

    def _place(self, call: jax.Array) -> jax.Array:
        """Return how many events of the current window happened in earlier calls."""
        in_call, place = call % self.window_events, jnp.int32(0)
        for bit in f"{self.queries.occurrence.n_per_call or 0:b}":  # their product is soon beyond int32
            place = (2 * place + int(bit) * in_call) % self.window_events
        return place

    def append(self, state: BufferState, collected: Mapping[str, CollectedLog]) -> BufferState:
        """Append the queries' results for an event, or for each lane in which it happened."""
        if not self.queries.occurrence.lanes:
            return self._append(state, collected)
        happened = next(log.valid for log in collected.values()).ravel()
        places = jnp.nonzero(happened, size=happened.size)[0]

        def next_lane(i: jax.Array, state: BufferState) -> BufferState:
            return self._append(state, self._of_lane(collected, places[i]))

        return lax.fori_loop(0, happened.sum(), next_lane, state)  # type: ignore[no-any-return]

    def _of_lane(self, collected: Mapping[str, CollectedLog], place: jax.Array | int) -> Mapping[str, CollectedLog]:
        """Return the logs of one lane, given its place among the lanes in which the event may happen."""
        names = self.queries.occurrence.lanes
        if not names:
            return collected

        def of_lane(leaf: jax.Array) -> jax.Array:
            return leaf.reshape(1, -1, *leaf.shape[1 + len(names) :])[:, place]

        shape = jax.tree.leaves(next(iter(collected.values())).value)[0].shape[1 : 1 + len(names)]
        numbers = dict(zip(names, map(jnp.atleast_1d, jnp.unravel_index(place, shape)), strict=True))
        own = {key: CollectedLog(jax.tree.map(of_lane, log.value), {}, None) for key, log in collected.items()}
        return {**own, f"{MARK}lanes": CollectedLog(numbers, {}, None)}

    def _append(self, state: BufferState, collected: Mapping[str, CollectedLog]) -> BufferState:
        """Append the queries' results; send the buffer if it is full or a window closes."""
        outputs = [
            lax.dynamic_update_index_in_dim(old, new.astype(old.dtype), state.n_waiting, 0)
            for old, new in zip(state.outputs, self.queries.evaluate(collected), strict=True)
        ]
        is_last = state.place + state.every >= self.window_events  # of the answered events of its window
        state = self.passed(state)._replace(outputs=outputs, left=state.every - 1, n_waiting=state.n_waiting + 1)
        if self.size == 1:
            return self.send(state)
        due = (state.n_waiting == self.size) | is_last

        def send(state: BufferState) -> tuple[jax.Array, ...]:
            sent = self.send(state)
            return sent.token, sent.n_seen, sent.n_waiting

        sent = lax.cond(due, send, lambda state: (state.token, state.n_seen, state.n_waiting), state)
        return state._replace(token=sent[0], n_seen=sent[1], n_waiting=sent[2])

    def passed(self, state: BufferState) -> BufferState:
        """Return the state after an event that is not answered."""
        place = state.place + 1
        place = jnp.where(place == self.window_events, 0, place)
        return state._replace(left=state.left - 1, place=place, n_seen=state.n_seen + 1)

    def send(self, state: BufferState, *, is_last: bool = False) -> BufferState:
        """Send the buffer, even if it is empty; the last one of a call says so."""
        operands = (state.token, state.call, state.n_waiting, state.n_seen, *state.outputs)
        (token,) = tap_p.bind(*operands, specs=(END,) if is_last else (), tap=self)
        zero = jnp.zeros_like(state.n_waiting)
        return state._replace(token=token, n_seen=zero, n_waiting=zero)

    def deliver(self, specs: Sequence[str], operands: Sequence[npt.NDArray[Any]]) -> None:
        """Pass on what the callback received; `tap_p` calls this."""
        (call, every), n, n_seen, *outputs = operands
        self._receive(
            CallbackDelivery(
                buffer=self,
                call=int(call),
                every=min(int(every), self.max_every),
                n=int(n),
                n_seen=int(n_seen),
                outputs=outputs,
                is_last=specs == (END,),
            )
        )


# An event in a compiled loop, on the host: numbers its occurrences and passes them to subscriptions.
#
# A callback's thread only queues its delivery; everything else happens on a drain thread, in the order of the events.
# Where the number of events per call is known, calls without a query count as well; where the program decides it, only
# events that were delivered count.

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
