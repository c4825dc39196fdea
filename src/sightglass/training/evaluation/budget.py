"""The budget of a run: which share of its time queries may take, and which streams are thinned when they take more.

The account is a bucket. It fills with `budget` seconds for each second in which the training thread had a processor,
and the work of evaluations drains it: a short burst is free, and in the long run the share is bounded. When it is
empty, the most expensive streams are thinned first: a stream of stride n is evaluated on every n-th event.

Recording comes first: it has an account of its own, `RECORDING` of the budget, and what it takes is not there for the
others. What it leaves is shared by max-min fairness with floors, in strides that are powers of two:

Rule 1: Each stream has a floor, a few cheap evaluations a second. All floors take at most the budget without `LEAST`;
beyond it, the dearest floors are lowered first.
Rule 2: While a debt is repaid, streams share their floors and `LEAST` of the budget, or what the debt leaves if that is
more; together they never exceed the budget.
Rule 3: It is shared between users first, then between the clients of each, then between the streams of a client: who
asks more takes nothing from the others. Those who read a stream together pay equal parts of it, and it runs at the best
stride that one of them can pay.
Rule 4: The dearest stream above its floor is halved until all fit. So no stream is thinned whose whole cost is within
its fair share: the level to which all streams, each from its floor to its whole cost, can be filled.

A stream that became cheap is restored within seconds.

`Turns` says who may be evaluated on an event: all its queries together take at most the limit.
"""

from __future__ import annotations

import heapq
import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from sightglass.core.process.clock import WorkClock
from sightglass.core.process.unpatched import threading
from sightglass.training.evaluation.cost import SAMPLE_S
from sightglass.training.evaluation.deferred import Tracks
from sightglass.training.evaluation.lock import TurnLock
from sightglass.training.evaluation.subscription import Holder, Subscription
from sightglass.training.options import EVENT_S

CREDIT_S: Final = 1.0  # enough for the first evaluation of a query, which may compile or load a library
DEBT_FOR_S: Final = 5.0  # after an expensive evaluation, the streams that remain wait so long at most
LEAST: Final = 0.25  # of the budget, above their floors, streams keep while a debt is repaid: most did not make it
PROGRAM_SHARE: Final = 0.05  # of the time is the program's, even if threads beside it spend more than there is
REVIEW_S: Final = 0.1  # soon enough to stop an expensive query before it takes seconds of budget
FLOOR_HZ: Final = 4.0  # a chart that moves four times a second is alive
CHEAP_S: Final = 0.001  # floors of cheap streams take 0.4 % of the time at most; dearer ones are evaluated less often
NOBODY: Final = (("", b""),)
MAX_STRIDE: Final = 2**30  # no floor is lower; at a million events a second, every 18 minutes
BESIDE_SHARE: Final = 0.5  # of the budget: the requests of one client may not thin the streams of all others
RECORDING: Final = 0.5  # of the budget: the others keep at least the rest
BESIDE_MEMORY_S: Final = 1.0  # records are sent in bursts; streams are thinned for what this takes in the mean


class Budget:
    """The budget of a run. Recorded streams have an account of their own: they are never thinned, but given up.

    Attributes:
        provided_s: The seconds that it took to provide observables for queries; the training thread adds to it.
        sent_s: The seconds that it took to send records, in all; streams are charged with what they take of it
            beyond what is usual, recorded ones aside.
    """

    def __init__(self, share: float | None, *, clock: WorkClock, lock: TurnLock) -> None:
        """Start with full accounts; `share` is the part of the run's time that queries may take, `None` for any."""
        self._share = share
        self._accounts = None if share is None else (Account(share * RECORDING, least=1.0), Account(share))
        self._clock = clock
        self._lock = lock
        self.provided_s = self.sent_s = self._beside_s = 0.0
        self._sampled_s = self._reviewed_s = clock.monotonic()
        self._queued = (0, 0.0)

    @property
    def share(self) -> float | None:
        """The part of the run's time that queries may take; `None` for any."""
        return self._share

    def attend(self, subscriptions: Collection[Subscription], now_s: float) -> None:
        """Measure subscriptions every `SAMPLE_S`, and review the accounts every `REVIEW_S`."""
        if now_s - self._sampled_s >= SAMPLE_S:
            self._sampled_s = now_s
            for subscription in subscriptions:
                subscription.cost.sample(subscription.n_seen)
            if self._clock.monotonic() - self._reviewed_s >= REVIEW_S:
                self._review(subscriptions)

    def sent(self, seconds: float) -> None:
        """Count what it took to send records; only the io thread may call this."""
        self.sent_s += seconds

    def cost(self, subscription: Subscription) -> str:
        """Return which part of the run's time a subscription takes, and the budget, as text."""
        budget = "no budget" if self._share is None else f"the budget is {self._share:.1%}"
        return f"{subscription.share:.1%} of the run's time ({budget})"

    def _review(self, subscriptions: Collection[Subscription]) -> None:
        """Thin subscriptions until they are within the budget; beyond it, stop recording those that are recorded."""
        elapsed_s, active_s = self._passed()
        handover_s, self._lock.handover_s = self._lock.handover_s, 0.0
        spent_s = [subscription.cost.spent_s for subscription in subscriptions]
        provided_s, self.provided_s = self.provided_s, 0.0
        device_s = sum(subscription.cost.device_s for subscription in subscriptions)
        program_s = max(active_s - sum(spent_s) - device_s - handover_s - provided_s, active_s * PROGRAM_SHARE)
        charged_s = [subscription.cost.charge_sent() for subscription in subscriptions]
        spent_s = [spent + charged for spent, charged in zip(spent_s, charged_s, strict=True)]
        uncharged_s, self._beside_s = max(0.0, self.sent_s - self._beside_s - sum(charged_s)), self.sent_s
        beside_s = handover_s + provided_s + device_s + uncharged_s
        for subscription in subscriptions:
            subscription.total_spent_s += subscription.cost.spent_s + subscription.cost.device_s
            subscription.cost.review(subscription.n_seen + subscription.n_skipped, elapsed_s, program_s)
        for account, recorded in zip(self._accounts or (), (True, False), strict=False):
            several = [s for s in subscriptions if s.recorded == recorded]
            own_s = sum(spent for s, spent in zip(subscriptions, spent_s, strict=True) if s.recorded == recorded)
            loads = [Load(s.cost.mean_s, s.cost.per_s, s.stride, () if recorded else s.holders) for s in several]
            account.charge(active_s, own_s, beside_s=0.0 if recorded else beside_s)
            beside_s += own_s if recorded else 0.0
            for subscription, load, stride in zip(several, loads, account.strides(loads), strict=True):
                subscription.share = load.share / (1 + load.share)
                subscription.stride = stride
                subscription.recorded = recorded and stride == 1

    def _passed(self) -> tuple[float, float]:
        """Return the seconds since the last review, and for how many of them this thread did not wait to run."""
        now_s, queued_s, thread = self._clock.monotonic(), self._clock.queued(), threading.get_ident()
        elapsed_s, self._reviewed_s = max(now_s - self._reviewed_s, 1e-9), now_s
        before, self._queued = self._queued, (thread, queued_s)
        waited_s = queued_s - before[1] if before[0] == thread else 0.0  # each thread has a figure of its own
        return elapsed_s, min(max(elapsed_s - waited_s, 1e-9), elapsed_s)


@dataclass(frozen=True, slots=True)
class Load:
    """What a stream asks of the account.

    Attributes:
        cost_s: The seconds of one evaluation.
        per_s: How many events there are per second.
        stride: It is evaluated on every n-th of them.
        holders: Who reads it; nobody in particular if there are none.
    """

    cost_s: float
    per_s: float
    stride: int
    holders: Sequence[Holder] = ()

    @property
    def share(self) -> float:
        """The seconds that it would take per second of the program if it were evaluated on every event."""
        return self.cost_s * self.per_s

    @property
    def floor_per_s(self) -> float:
        """How many evaluations a second it has in any case."""
        return FLOOR_HZ * min(1.0, CHEAP_S / max(self.cost_s, 1e-9))


class Account:
    """A bucket of seconds."""

    __slots__ = ("_beside", "_credit_s", "_least", "budget")

    def __init__(self, budget: float, *, least: float = LEAST) -> None:
        """Start with credit; while a debt is repaid, streams keep their floors and the `least` part of the budget."""
        self.budget = budget
        self._least = least
        self._beside = 0.0
        self._credit_s = CREDIT_S

    def charge(self, active_s: float, spent_s: float, *, beside_s: float = 0.0) -> None:
        """Add the earnings of some seconds, and take away what was spent in them.

        Args:
            active_s: The seconds.
            spent_s: What evaluations took.
            beside_s: What else queries took; it counts up to a part of the budget.
        """
        beside_s = min(beside_s, BESIDE_SHARE * self.budget * active_s)
        self._beside += (beside_s / active_s - self._beside) * -math.expm1(-active_s / BESIDE_MEMORY_S)
        self._credit_s = min(CREDIT_S, self._credit_s + self.budget * active_s - spent_s - beside_s)
        self._credit_s = max(self._credit_s, -DEBT_FOR_S * self.budget)

    def strides(self, loads: Sequence[Load]) -> list[int]:
        """Return the new strides of the streams: larger ones only in debt, smaller ones as soon as they fit."""
        debt = max(0.0, -self._credit_s) / (DEBT_FOR_S * self.budget)
        left = self.budget - self._beside
        largest = floors(loads, (1 - LEAST) * left)
        held = sum(load.share / stride for load, stride in zip(loads, largest, strict=True))
        allowed = max((1 - debt) * left, min(held + self._least * left, left))
        wanted = shared([load.share for load in loads], allowed, largest, [load.holders for load in loads])
        return [new if debt else min(new, load.stride) for new, load in zip(wanted, loads, strict=True)]


def floors(loads: Sequence[Load], budget: float) -> list[int]:
    """Return the largest strides of streams: those of their floors, or more if the floors exceed a budget."""
    strides = [power_of_two(load.per_s / load.floor_per_s) for load in loads]
    shares = [load.share / stride for load, stride in zip(loads, strides, strict=True)]
    largest = [MAX_STRIDE // stride for stride in strides]
    lower = shared(shares, budget, largest, [load.holders for load in loads])
    return [stride * more for stride, more in zip(strides, lower, strict=True)]


def power_of_two(x: float) -> int:
    """Return the largest power of two up to a number, and at least 1."""
    return 1 << int(math.log2(max(1.0, x)))


def shared(
    shares: Sequence[float], budget: float, largest: Sequence[int], holders: Sequence[Sequence[Holder]]
) -> list[int]:
    """Return strides under which those who hold streams share a budget: users, then their clients, then the streams.

    Args:
        shares: As for `thinned`, as are the next two.
        budget: The part that all may take together.
        largest: The largest strides.
        holders: For each stream, its users and clients.

    >>> shared([0.01, 0.02, 0.02], 0.03, [64] * 3, [[("a", b"1")], [("b", b"2")], [("b", b"2")]])
    [1, 2, 2]
    """
    owners: dict[str, dict[bytes, list[int]]] = {}
    for i, several in enumerate(holders):
        for user, client in several or NOBODY:
            owners.setdefault(user, {}).setdefault(client, []).append(i)
    if len(owners) <= 1 and all(len(clients) <= 1 for clients in owners.values()):
        return thinned(shares, budget, largest)
    n_users = [len({user for user, _ in several or NOBODY}) for several in holders]
    # What a client of a user pays of a stream.
    paid: dict[tuple[str, bytes], dict[int, float]] = {}
    for user, clients in owners.items():
        n_clients = Counter(i for streams in clients.values() for i in streams)
        for client, streams in clients.items():
            paid[user, client] = {i: shares[i] / n_users[i] / n_clients[i] for i in streams}
    fair = list(largest)
    of_users = levelled(
        {user: [paid[user, client] for client in clients] for user, clients in owners.items()}, largest, budget
    )
    for user, clients in owners.items():
        of_clients = levelled({client: [paid[user, client]] for client in clients}, largest, of_users[user])
        for client in clients:
            parts = paid[user, client]
            strides = thinned([*parts.values()], of_clients[client], [largest[i] for i in parts])
            for i, stride in zip(parts, strides, strict=True):
                fair[i] = min(fair[i], stride)
    return thinned(shares, budget, fair)  # what powers of two leave is used


Key = TypeVar("Key")


def levelled(
    asked: Mapping[Key, Sequence[Mapping[int, float]]], largest: Sequence[int], budget: float
) -> dict[Key, float]:
    """Return the budget of each who shares one: each from its floors to all that it asks, filled to one level.

    Args:
        asked: For each, what its streams cost.
        largest: The largest stride of each stream, which makes its floor.
        budget: What they share.
    """
    wholes = {key: sum(sum(part.values()) for part in parts) for key, parts in asked.items()}
    if sum(wholes.values()) <= budget:
        return dict.fromkeys(asked, math.inf)
    floors_of = {
        key: sum(cost / largest[i] for part in parts for i, cost in part.items()) for key, parts in asked.items()
    }
    # What all take is a line in the level, whose slope is how many are above their floors and not yet satisfied.
    bends = sorted([*((floor, 1) for floor in floors_of.values()), *((whole, -1) for whole in wholes.values())])
    taken, level, slope = sum(floors_of.values()), 0.0, 0
    for at, change in bends:
        if taken + slope * (at - level) >= budget:
            break
        taken, level, slope = taken + slope * (at - level), at, slope + change
    level += max(0.0, budget - taken) / slope if slope else 0.0
    return {key: math.inf if whole <= level else max(floors_of[key], level) for key, whole in wholes.items()}


def thinned(shares: Sequence[float], budget: float, largest: Sequence[int]) -> list[int]:
    """Return strides under which streams stay within a budget. The most expensive streams are thinned first.

    None is halved before all dearer ones are at most twice as dear or at their largest stride; a larger budget makes
    no stride larger.

    Args:
        shares: For each stream, the part of the run's time that it would take if it were evaluated on every event.
        budget: The part that they may take together.
        largest: For each stream, the largest stride that it may have; with these, the budget may be exceeded.

    >>> thinned([0.2, 0.01], 0.05, [64, 64])
    [8, 1]
    """
    strides = [1] * len(shares)
    total = sum(shares)
    queue = [(-share, i) for i, share in enumerate(shares) if largest[i] > 1]
    heapq.heapify(queue)
    while total > budget and queue:
        share, i = queue[0]
        total += share / 2
        strides[i] *= 2
        if strides[i] < largest[i]:
            heapq.heapreplace(queue, (share / 2, i))
        else:
            heapq.heappop(queue)
    return strides


# Who may be evaluated on an event: all its queries together take at most the limit.
#
# As long as the prices of an event's queries are far below the limit, all of them are evaluated. Otherwise they take
# turns: the cheapest first, and what does not fit any more is skipped and counted. What was skipped often comes next
# after what is cheap.

PART_OF_EVENT: Final = 0.1  # a training that takes a second for a step does not notice a tenth of it
N_INTERVALS: Final = 32  # the median of these is not moved by an evaluation or a checkpoint in between
TURN_S: Final = 0.00001  # of a query: to give it a turn or to skip it, and to look after its rows and its cost
FIRST_S: Final = 0.002  # to find out that a query which was never evaluated is too expensive
NEVER_SKIPPED_S: Final = 0.0002  # a hundred of these fit into an event: whatever others ask, they are not skipped
PATIENCE: Final = 32  # events after which an expensive query goes first: the others lose at most 3 % of theirs


class Turn(Protocol):
    """What takes time of an event: a query, or the copy for one that joins the event."""

    n_waited: int

    @property
    def n_seen(self) -> int:
        """How many events it was evaluated on."""

    @property
    def price_s(self) -> float:
        """The seconds that it takes of an event."""

    @property
    def suspended(self) -> bool:
        """Whether it is not evaluated any more."""

    @property
    def first(self) -> bool:
        """Whether it is evaluated whatever others take."""

    @property
    def confirmed(self) -> bool:
        """Whether a controller accepts that it takes more of an event than queries may."""

    def allow(self, left_s: float, *, limit_s: float | None) -> None:
        """Set what is left of the event for it, and what all may take of it."""

    def post(
        self, index: int, step: object, wall_time: float, observables: Mapping[str, Any], steps: Tracks = None
    ) -> None:
        """Evaluate it on an event. Never raises."""

    def skip(self, index: int, wall_time: float) -> None:
        """Count an event that it is not evaluated on."""


class Turns:
    """The limit of one event, and the order of its queries.

    Attributes:
        crowded: Whether its queries may not fit together.
    """

    __slots__ = ("_cpu_s", "_intervals_s", "_max_event_s", "_seen_s", "_usual_s", "crowded")

    def __init__(self, max_event_s: float = EVENT_S, *, cpu_s: Callable[[], float] = time.thread_time) -> None:
        self._max_event_s = max_event_s
        self._cpu_s = cpu_s
        self._intervals_s: deque[float] = deque(maxlen=N_INTERVALS)
        self._seen_s = -1.0
        self._usual_s: float | None = None
        self.crowded = False

    @property
    def limit_s(self) -> float | None:
        """The seconds that queries may take of an event; `None` until the time between these events is known."""
        return None if self._usual_s is None else max(self._max_event_s, PART_OF_EVENT * self._usual_s)

    @property
    def allowed_s(self) -> float:
        """The seconds that queries may take of an event, as far as known."""
        return self.limit_s or self._max_event_s

    def happened(self, now_s: float, turns: Iterable[Turn]) -> None:
        """Note that the event happened; what happens within a millisecond of it need not be noted."""
        if self._seen_s >= 0:
            interval_s = now_s - self._seen_s
            self._intervals_s.append(interval_s)
            if self._usual_s is None or max(interval_s, self._usual_s) * PART_OF_EVENT > self._max_event_s:
                self._usual_s = statistics.median(self._intervals_s)
        self._seen_s = now_s
        limit_s = self.allowed_s
        crowded = sum(turn.price_s for turn in turns) > limit_s / 2
        if not crowded:
            for turn in turns:
                turn.allow(limit_s, limit_s=self.limit_s)
        self.crowded = crowded or self._usual_s is None

    def take(
        self,
        turns: Iterable[Turn],
        *,
        post: Callable[[Turn], object],
        skip: Callable[[Turn], object],
    ) -> None:
        """Call `post` for the queries that fit into the event together, and `skip` for the others."""
        order = sorted(turns, key=_turn)
        limit_s, left_s = self.limit_s, max(self.allowed_s / 2, self.allowed_s - TURN_S * (len(order) - 1))
        until_s = self._cpu_s() + left_s
        for turn in order:
            if turn.suspended:
                continue
            least_s = 0.0 if turn.n_seen else FIRST_S
            fits = left_s > least_s and not left_s < turn.price_s <= (limit_s or math.inf)
            if not (fits or turn.first):
                turn.n_waited += 1
                skip(turn)
                continue
            turn.allow(left_s, limit_s=limit_s)
            turn.n_waited = 0
            began_s = self._cpu_s()
            post(turn)
            now_s = self._cpu_s()
            if turn.confirmed:
                until_s += now_s - began_s
            left_s = max(0.0, until_s - now_s)


def _turn(turn: Turn) -> tuple[int, float]:
    """Order the queries of an event; what was never evaluated has no price, and may be expensive."""
    if not turn.n_seen:
        return 3, math.inf
    price_s = turn.price_s
    if price_s < NEVER_SKIPPED_S:
        return 0, price_s
    return 1 if turn.first else 2 if turn.n_waited >= PATIENCE else 3, price_s
