"""Who may be evaluated on an event: all its queries together take at most the limit.

As long as the prices of an event's queries are far below the limit, all of them are evaluated. Otherwise they take
turns: the cheapest first, and what does not fit any more is skipped and counted. What was skipped often comes next
after what is cheap.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from .options import EVENT_S
from .steps import Tracks

PART_OF_EVENT: Final = 0.1  # a training that takes a second for a step does not notice a tenth of it
N_INTERVALS: Final = 32  # the median of these is not moved by an evaluation or a checkpoint in between
TURN_S: Final = 0.00001  # of a query: to give it a turn or to skip it, and to look after its rows and its cost
FIRST_S: Final = 0.002  # to find out that a query which was never evaluated is too expensive
CHEAP_S: Final = 0.0002  # a hundred of these fit into an event: whatever others ask, they are not skipped
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
    if price_s < CHEAP_S:
        return 0, price_s
    return 1 if turn.first else 2 if turn.n_waited >= PATIENCE else 3, price_s
