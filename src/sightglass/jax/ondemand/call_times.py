"""What queries take of a step's device, and on which calls they are answered so that they stay within the budget.

Theory of operation:

1. A call returns before the device has computed it. So a few of the training's own calls, with the queries and without,
   are measured: the device is idle when such a call begins, and it is waited for. No call is made only to be measured.
2. What a call takes longer with the queries is their price. From the first call on it is known. Of the events in long
   loops the program answers one of n only (`program/gate.py`), and all queries are answered on every m-th call only; n
   and m are powers of two for which they stay within the budget: a share of the time between calls, which has whatever
   else the program does.
3. The price of a call has two parts: one for each answered event, and the rest. Calls with different n tell them apart.
4. A price that could be paid less than once in `MAX_WAIT_S` is refused: before the first call where an estimate says so
   beyond doubt (`program/survey.py`).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import jax

# The first calls of a program also allocate memory; the smallest of several times is that of the program itself.
N_KEPT: Final = 8
N_FIRST: Final = 2
ALMOST: Final = 0.999  # a price that fits but for its rounding does not halve the answers
N_PERIODS: Final = 32  # an evaluation or a checkpoint now and then does not change their median
# Waiting for the device costs an asynchronous training a step at most: with one in half a second, nothing is felt.
SAMPLE_S: Final = 0.5
# Nobody waits longer for a record of a stream that is called live.
MAX_WAIT_S: Final = 600.0
# An estimate counts operations, and a device is ten times faster at some than at others.
DOUBT: Final = 10.0
# No device does fewer operations a second. A step of few operations takes as long as its dispatch, which says nothing.
SLOWEST_HZ: Final = 1e8


class CallTimes:
    """The times of the calls of one program, for arguments of one signature."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=N_KEPT)
        self._n = 0
        self._sampled_s = -math.inf

    @property
    def seconds(self) -> float | None:
        """What a call takes; `None` until one was measured."""
        return min(self._seconds, default=None)

    def measured(self, call: Callable[..., Any], given: object, *, clock_s: Callable[[], float]) -> Any:
        """Call the program, and measure it if that is due.

        Args:
            call: Calls the program.
            given: Its arguments, which the device may still compute.
            clock_s: The time.
        """
        if self._n >= N_FIRST and clock_s() - self._sampled_s < SAMPLE_S:
            return call()
        jax.block_until_ready(given)
        began_s = clock_s()
        result = jax.block_until_ready(call())
        self._sampled_s = clock_s()
        self._seconds.append(self._sampled_s - began_s)
        self._n += 1
        return result


class CallPeriod:
    """The usual time from a call to the next one, without what queries take of it."""

    def __init__(self) -> None:
        self._seconds: deque[float] = deque(maxlen=N_PERIODS)
        self._began_s = self._price_s = math.nan

    def begins(self, now_s: float) -> None:
        """Note that a call begins."""
        if not math.isnan(self._began_s):
            self._seconds.append(max(0.0, now_s - self._began_s - self._price_s))
        self._began_s, self._price_s = now_s, 0.0

    def takes(self, price_s: float) -> None:
        """Note that this call answers queries, and what it takes longer."""
        self._price_s = max(0.0, price_s)

    def seconds(self, plain_s: float) -> float:
        """Return it; at least what a call takes."""
        return max(plain_s, statistics.median(self._seconds)) if self._seconds else plain_s


def estimate(growth: float, n_more: float, plain_s: float) -> float:
    """Return what a call takes longer at least, before it has run once; NaN if not known.

    Args:
        growth: How many times the operations of the step it takes.
        n_more: How many operations it takes more.
        plain_s: What the step takes.
    """
    return min(plain_s * (growth - 1), n_more / SLOWEST_HZ) / DOUBT


def guess(growth_of_rounds: float, plain_s: float) -> float:
    """Return what a call may take longer before it has run once: a first call is rather too short than too long."""
    return plain_s * (growth_of_rounds - 1) * DOUBT


def every(prices_s: Mapping[int, float], allowed_s: float, largest: int) -> int:
    """Return of how many events in loops one may be answered.

    Args:
        prices_s: What a call takes longer, by the number of events of which one is answered.
        allowed_s: What it may take longer.
        largest: The largest number.
    """
    each_s, rest_s = _parts(prices_s)
    n = 1 << math.ceil(math.log2(max(1.0, each_s / max(allowed_s - rest_s, rest_s, 1e-9))))
    return min(max(n, min(prices_s) // 2), largest)  # a measure of few answers says little about many


def price_of(prices_s: Mapping[int, float], n: int) -> float:
    """Return what a call takes longer if one of n events is answered."""
    each_s, rest_s = _parts(prices_s)
    return prices_s[n] if n in prices_s else rest_s + each_s / n


def _parts(prices_s: Mapping[int, float]) -> tuple[float, float]:
    """Return what the answers of all events take, and what a call takes that answers none."""
    low, high = min(prices_s), max(prices_s)
    if low == high:
        return max(0.0, prices_s[low] * low), 0.0
    each_s = max(0.0, (prices_s[low] - prices_s[high]) / (1 / low - 1 / high))
    return each_s, max(0.0, prices_s[high] - each_s / high)


def stride(price_s: float, period_s: float, share: float) -> int:
    """Return on every how many calls queries may be answered.

    Args:
        price_s: What a call takes longer with them.
        period_s: The time from a call to the next one without them.
        share: The part of the time that they may take.
    """
    times = price_s * (1 - share) / (max(period_s, 1e-9) * share)
    return 1 << math.ceil(math.log2(max(1.0, ALMOST * times)))
