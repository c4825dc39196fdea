"""The delivery of alerts, on a thread of its own.

Rule 1: `put` never waits and never raises.
Rule 2: an alert is sent again until its receiver takes it, after growing rests. A receiver that is down holds up no
other one, and what it gets in the end is in order; but an alert that it refuses again and again lets the others pass.
Rule 3: what is given up is counted, and warned of.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sightglass.core.counts import Failures, Statistics
from sightglass.core.errors import warn
from sightglass.core.process.clock import Clock
from sightglass.core.process.threads import UNTIL_WOKEN, Worker

from .alert import Alert

if TYPE_CHECKING:
    from .receivers import Receiver

MAX_WAITING: Final = 1_000  # for each receiver; a person reads a few
RETRY_S: Final = 1.0  # after the first failure; it doubles with each
MAX_RETRY_S: Final = 60.0
PATIENCE: Final = 15  # tries, in ten minutes: it may be the alert that is refused, and not the receiver that is down
EXIT_S: Final = 5.0  # by how much the end of a program may be held up, however many runs it has
APART_S: Final = 5.0  # runs that end this far apart are not those of a program that exits


@dataclass(slots=True)
class Lane:
    """What waits for one receiver, and when it is tried again."""

    receiver: Receiver
    waiting: deque[Alert] = field(default_factory=deque)
    n_failed: int = 0
    due_s: float = 0.0


class _Exits:
    """How long deliveries of this process that end one after the other may hold it up, all of them together."""

    def __init__(self) -> None:
        self._until_s = -math.inf

    def left_s(self, now_s: float, timeout_s: float) -> float:
        """Return how long one that ends now may take."""
        if now_s > self._until_s + APART_S:
            self._until_s = now_s + timeout_s
        return max(0.0, min(timeout_s, self._until_s - now_s))


_exits = _Exits()


class AlertDelivery:
    """Delivers alerts to all receivers.

    Attributes:
        failures: What went wrong, without addresses.
    """

    def __init__(
        self,
        receivers: Sequence[Receiver],
        *,
        clock: Clock,
        worker: type[Worker] = Worker,
        delivered: Callable[[Alert], None] = lambda alert: None,
    ) -> None:
        """Start the thread: where a program ends, none can be started any more.

        Args:
            receivers: Where alerts go.
            clock: The time.
            worker: Runs the rounds.
            delivered: Called on the thread with an alert that all receivers have taken.
        """
        self.failures = Failures("Alerts")
        self._lanes = [Lane(receiver) for receiver in receivers]
        self._clock = clock
        self._delivered = delivered
        self._n_put = self._n_sent = self._n_dropped = 0
        self._closing = self._told = False
        self._worker = worker("alerts", self.round)
        self._worker.wake()

    def put(self, alert: Alert) -> None:
        """Send an alert as soon as possible; from any thread."""
        self._n_put += 1
        if not self._lanes:
            self._delivered(alert)
        with self._worker.lock:
            for lane in self._lanes:
                if self._closing or len(lane.waiting) >= MAX_WAITING:
                    self._n_dropped += 1
                else:
                    lane.waiting.append(alert)
        self._worker.wake()

    def statistics(self) -> Statistics:
        """Return the counts: alerts that were put, and messages that were delivered, wait, or are given up."""
        return Statistics(
            n_events=self._n_put, n_records=self._n_sent, n_waiting=sum(len(lane.waiting) for lane in self._lanes),
            n_dropped=self._n_dropped, last_error=self.failures.last,
        )  # fmt: skip

    def close(self, timeout_s: float = EXIT_S) -> None:
        """Send what waits, once more, and end; what is not taken within `timeout_s` is given up, with a warning."""
        with self._worker.lock:
            self._closing = True
        self._worker.close(_exits.left_s(self._clock.monotonic(), timeout_s))
        n_lost = self._n_dropped + sum(len(lane.waiting) for lane in self._lanes)
        if n_lost and not self._told:
            self._told = True
            why = f": {self.failures.last}" if self.failures.last else ""
            warn(f"Alerts that were not delivered: {n_lost}{why}")

    def round(self, now_s: float) -> float | None:
        """Send what is due; return how long to rest."""
        closing = self._closing
        for lane in self._lanes:
            while lane.waiting and (closing or lane.due_s <= now_s) and self._send(lane):
                pass
            if closing:
                self._n_dropped += len(lane.waiting)
                lane.waiting.clear()
        if closing:
            return None
        dues = [lane.due_s - self._clock.monotonic() for lane in self._lanes if lane.waiting]
        return max(0.0, min(dues, default=UNTIL_WOKEN))

    def _send(self, lane: Lane) -> bool:
        """Send the first alert of a receiver, and return whether it took it."""
        alert = lane.waiting[0]
        try:
            lane.receiver.send(alert, now=self._clock.wall())
        except Exception as error:  # noqa: BLE001  apprise's parts raise what they like
            rest_s = min(MAX_RETRY_S, RETRY_S * 2.0 ** min(lane.n_failed, 10))
            lane.n_failed, lane.due_s = lane.n_failed + 1, self._clock.monotonic() + rest_s
            self.failures.add(error, "an alert waits, and is sent again")
            if lane.n_failed % PATIENCE == 0:
                lane.waiting.rotate(-1)
            return False
        lane.waiting.popleft()
        lane.n_failed = 0
        self._n_sent += 1
        if not any(alert in other.waiting for other in self._lanes):
            self._delivered(alert)
        return True
