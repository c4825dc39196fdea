"""What the evaluations of one query cost the run: samples of their work, and the rates that follow from them.

Work is what an evaluation takes from the program. It is not the time for which the machine kept the thread waiting, so
it is the larger of two figures: the processor time of the thread, and a low quantile of the last wall times, which also
has the work that libraries do on threads of their own. An evaluation that was interrupted raises neither.

Reading the clocks takes longer than a cheap evaluation. So only samples are measured: a few evaluations in a row every
`SAMPLE_S`, and all for a while after a slow one. The others are charged what such samples cost, without the slow ones.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Sequence
from typing import Final

from sightglass.core.process.clock import WorkClock

SAMPLE_S: Final = 0.04  # a sample takes 2 us: twenty queries are measured in a two hundredth of the time
N_IN_A_ROW: Final = 4  # samples, so that they do not meet only the evaluations after an interruption
GOLDEN: Final = 0.618034  # its multiples modulo 1 are spread evenly: samples do not fall in step with the program
SLOW_S: Final = 0.0001  # fifty times what a sample takes, so all slow evaluations can be measured
SLOW_FOR_S: Final = 1.0  # rare slow evaluations are all measured if they come more often than this
LONG_S: Final = 0.001  # a third of a time slice: most evaluations that take longer are interrupted on a busy machine
N_KEPT: Final = 32  # the quantile bears that a few evaluations in a row are interrupted
LOW: Final = 4  # a quarter of the wall times are below the quantile; fewer times than this have no quantile
RENEW: Final = 8  # samples after which the robust cost is computed again, which takes as long as three samples
MEMORY_S: Final = 1.0  # a query that became cheap is known as cheap after some seconds
N_REMEMBERED: Final = 4  # evaluations that are remembered for longer where they are rare
USUAL_SEND_S: Final = 0.0005  # for a block of numbers on a busy machine; how often these are sent is the io loop's pace
SEND_NS: Final = 1.0  # for each byte and client: a transport copies it on a thread of its own


class Cost:
    """What the evaluations of one query cost.

    Attributes:
        next: After how many evaluations to measure the next one.
        cost_s: The usual seconds of one evaluation, without its stages on the drain thread; 0.0 until known.
        spent_s: The seconds that all evaluations took since the last review.
        device_s: What compiled steps took for it since then; these stay within the budget by themselves.
        sent_s: The seconds that it took to send its records, in all, beyond what is usual.
        mean_s: The mean seconds of one evaluation in the last seconds, all stages included, as of the last review. The
            slowest evaluation does not count: it may have loaded a library.
        per_s: How many events there are per second in which the program itself runs, as of the last review. Neither
            the queries nor other processes change it.
    """

    __slots__ = (
        "_ahead_cpu_s", "_ahead_wall_s", "_charged_s", "_clock", "_cpu_s", "_left", "_memory", "_n", "_n_asked",
        "_n_events", "_n_reviewed", "_n_sampled", "_n_stopped", "_now_s", "_own_s", "_phase", "_queued_s", "_rate",
        "_slow_until_s", "_slowest", "_slowest_s", "_usual_s", "_wall_s", "_walls", "_works", "cost_s", "device_s",
        "mean_s", "next", "per_s", "sent_s", "spent_s",
    )  # fmt: skip

    def __init__(self, clock: WorkClock) -> None:
        """Begin without samples."""
        self._clock = clock
        self.next, self._left = 0, N_IN_A_ROW
        self._phase = 0.0
        self.cost_s = self.spent_s = self.device_s = self.sent_s = self.mean_s = self.per_s = 0.0
        self._works: deque[float] = deque(maxlen=N_KEPT)
        self._walls: deque[float] = deque(maxlen=N_KEPT)
        self._n = self._n_asked = self._n_sampled = self._n_reviewed = self._n_stopped = self._n_events = 0
        self._ahead_cpu_s = self._ahead_wall_s = self._own_s = self._usual_s = self._wall_s = 0.0
        self._cpu_s = self._now_s = self._queued_s = self._charged_s = 0.0
        self._slow_until_s = -math.inf
        self._memory = (0.0, 0.0)  # seconds, evaluations; fading
        self._slowest = (0.0, 0.0)  # the part of it that is the slowest sample
        self._slowest_s = 0.0  # since the last review
        self._rate = (0.0, 0.0)  # events, seconds; fading

    def sample(self, n: int) -> None:
        """Measure a few evaluations soon, after `n` so far."""
        n_between, self._n_asked = n - self._n_asked, n
        if self.next > n:
            self._phase = (self._phase + GOLDEN) % 1
            self.next = n + (int(self._phase * n_between) if n_between > N_IN_A_ROW else 0)
            self._left = N_IN_A_ROW

    def begin(self) -> None:
        """Begin to measure an evaluation."""
        clock = self._clock
        self._queued_s = clock.queued() if self._own_s >= LONG_S else 0.0
        self._cpu_s = clock.cpu()
        self._now_s = clock.monotonic()

    def end(self, n: int, *, batch: bool = False) -> None:
        """End the measurement of the `n`-th evaluation, or of a batch: of all since the last measurement."""
        clock = self._clock
        now_s = clock.monotonic()
        wall_s = now_s - self._now_s
        work_s = min(clock.cpu() - self._cpu_s, wall_s)  # reading the clocks is not the query's work
        if self._queued_s:
            wall_s = max(wall_s - (clock.queued() - self._queued_s), work_s)
        n_new, self._n = n - self._n, n
        self._own_s = wall_s
        if batch:
            work_s, wall_s = work_s / n_new, wall_s / n_new
        work_s += self._ahead_cpu_s / n_new
        wall_s += self._ahead_wall_s / n_new
        self._ahead_cpu_s = self._ahead_wall_s = 0.0
        self._works.append(work_s)
        self._walls.append(wall_s)
        self._n_sampled += 1
        if self._n_sampled < RENEW or not self._n_sampled % RENEW or wall_s >= LONG_S:
            self._renew()
        cost_s = max(work_s, min(self._wall_s, wall_s))
        self._usual_s += (min(cost_s, SLOW_S) - self._usual_s) / min(self._n_sampled, N_KEPT)
        self.spent_s += n_new * cost_s if batch else cost_s + (n_new - 1) * self._usual_s
        self._slowest_s = max(self._slowest_s, cost_s)
        if cost_s >= SLOW_S:
            self._slow_until_s = now_s + SLOW_FOR_S
        self._left -= 1
        self.next = n if self._left > 0 or now_s < self._slow_until_s else sys.maxsize

    def tail(self, cpu_s: float, wall_s: float) -> None:
        """Add what stages took that run apart from an evaluation: after it, or because a group has ended."""
        self.spent_s += min(cpu_s, wall_s)

    def sent(self, cpu_s: float, n_bytes: int) -> None:
        """Add what it took to encode records, and the bytes of all their copies; only the io thread calls this."""
        self.sent_s += max(0.0, cpu_s + n_bytes * SEND_NS / 1e9 - USUAL_SEND_S)

    def charge_sent(self) -> float:
        """Count what was sent since the last call as spent, and return its seconds."""
        sent_s, self._charged_s = self.sent_s - self._charged_s, self.sent_s
        self.spent_s += sent_s
        return sent_s

    def stopped(self, work_s: float) -> None:
        """Add an evaluation that was stopped."""
        self.spent_s += work_s
        self._slowest_s = max(self._slowest_s, work_s)
        self._n_stopped += 1

    def ahead(self, cpu_s: float, wall_s: float) -> None:
        """Add what was computed ahead of the next evaluation."""
        self._ahead_cpu_s += min(cpu_s, wall_s)
        self._ahead_wall_s += wall_s
        self.next = 0

    def review(self, n_events: int, elapsed_s: float, program_s: float) -> None:
        """Bring the rates up to date, and begin to count what is spent until the next review.

        Args:
            n_events: The number of events so far, evaluated or not.
            elapsed_s: The time since the last review.
            program_s: The part of it in which the program ran: neither a query, nor another process.
        """
        spent_s, self.spent_s, self.device_s = self.spent_s, 0.0, 0.0
        n_new, self._n_reviewed = self._n - self._n_reviewed + self._n_stopped, self._n
        self._n_stopped = 0
        n_events, self._n_events = n_events - self._n_events, n_events
        keep = math.exp(-elapsed_s / MEMORY_S)
        self._rate = (self._rate[0] * keep + n_events, self._rate[1] * keep + program_s)
        self.per_s = self._rate[0] / max(self._rate[1], 1e-9)
        seconds, n = self._memory
        if n > 0:
            keep = max(keep, min(1.0, (N_REMEMBERED - n_new) / n))
        self._memory = seconds, n = seconds * keep + spent_s, n * keep + n_new
        self._slowest = max((self._slowest[0] * keep, self._slowest[1] * keep), (self._slowest_s, 1.0))
        self._slowest_s = 0.0
        left = n - self._slowest[1]
        self.mean_s = max(0.0, seconds - self._slowest[0]) / left if left > 0.01 else 0.0

    def _renew(self) -> None:
        """Compute the robust figures."""
        n = len(self._walls)
        self._wall_s = sorted(self._walls)[n // LOW] if n >= LOW else 0.0
        works, walls = (list(times)[-RENEW:] for times in (self._works, self._walls))
        self.cost_s = max(median(works), min(self._wall_s, median(walls)))


def median(values: Sequence[float]) -> float:
    """Return the middle value, of two the smaller."""
    return sorted(values)[(len(values) - 1) // 2]
