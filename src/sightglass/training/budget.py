"""The budget of a run: how much of its time queries may take, and who is thinned when they take more.

The account is a bucket that fills with `budget` seconds per second up to `CREDIT_S` and is drained by what evaluation
costs, so that a short burst is free and the long run is bounded. When it is empty, the most expensive streams are
thinned first: a stream of stride n is evaluated on each n-th event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

CREDIT_S: Final = 1.0
REVIEW_S: Final = 0.25
MAX_STRIDE: Final = 2**20


class Account:
    """The bucket of a run."""

    __slots__ = ("_credit_s", "_reviewed_s", "budget")

    def __init__(self, budget: float, *, now_s: float) -> None:
        self.budget = budget
        self._credit_s = CREDIT_S
        self._reviewed_s = now_s

    def due(self, now_s: float) -> bool:
        """Tell whether it is time for a review."""
        return now_s - self._reviewed_s >= REVIEW_S

    def elapsed(self, now_s: float) -> float:
        """Return the seconds since the last review."""
        return max(now_s - self._reviewed_s, 1e-9)

    def review(self, now_s: float, spent_s: Sequence[float], strides: Sequence[int]) -> list[int]:
        """Settle the account and return the streams' new strides.

        Args:
            now_s: The time.
            spent_s: What each stream took since the last review.
            strides: Each stream's stride until now.
        """
        elapsed_s = self.elapsed(now_s)
        self._reviewed_s = now_s
        self._credit_s = min(CREDIT_S, self._credit_s + self.budget * elapsed_s - sum(spent_s))
        shares = [spent / elapsed_s * stride for spent, stride in zip(spent_s, strides, strict=True)]
        if self._credit_s < 0:
            self._credit_s = max(self._credit_s, -CREDIT_S)
            return [max(old, new) for old, new in zip(strides, thinned(shares, self.budget), strict=True)]
        if self._credit_s > CREDIT_S / 2 and any(stride > 1 for stride in strides):
            wanted = thinned(shares, self.budget)
            return [
                max(new, stride // 2) if new < stride else stride for new, stride in zip(wanted, strides, strict=True)
            ]
        return list(strides)


def thinned(shares: Sequence[float], budget: float) -> list[int]:
    """Return strides under which streams stay within a budget: the most expensive are thinned first.

    Args:
        shares: What part of the run's time each stream would take if it were evaluated on every event.
        budget: What part they may take together.

    >>> thinned([0.2, 0.01], 0.05)
    [8, 1]
    """
    strides = [1] * len(shares)
    while sum(share / stride for share, stride in zip(shares, strides, strict=True)) > budget:
        worst = max(range(len(shares)), key=lambda i: shares[i] / strides[i])
        if strides[worst] >= MAX_STRIDE:
            break
        strides[worst] *= 2
    return strides
