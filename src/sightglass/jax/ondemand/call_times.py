"""What queries take of a step's device, and on which calls they are answered so that they stay within the budget.

Theory of operation:

1. A call returns before the device has computed it. So a few of the training's own calls, with the queries and without,
   are measured: the device is idle when such a call begins, and it is waited for. No call is made only to be measured.
2. What a call takes longer with the queries is their price. From the first call on it is known, and the queries are
   answered on every n-th call only: n is the smallest power of two for which they stay within the budget.
3. A price that could be paid less than once in `MAX_WAIT_S` is refused: before the first call where an estimate says so
   beyond doubt (`program/work.py`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import jax

# The first calls of a program also allocate memory; the smallest of several times is that of the program itself.
N_KEPT: Final = 8
N_FIRST: Final = 2
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


def estimate(growth: float, n_more: float, plain_s: float) -> float:
    """Return what a call takes longer at least, before it has run once; NaN if not known.

    Args:
        growth: How many times the operations of the step it takes.
        n_more: How many operations it takes more.
        plain_s: What the step takes.
    """
    return min(plain_s * (growth - 1), n_more / SLOWEST_HZ) / DOUBT


def stride(price_s: float, plain_s: float, share: float) -> int:
    """Return on every how many calls queries may be answered.

    Args:
        price_s: What a call takes longer with them.
        plain_s: What it takes without them.
        share: The part of the time that they may take.
    """
    return 1 << math.ceil(math.log2(max(1.0, price_s * (1 - share) / (max(plain_s, 1e-9) * share))))
