"""The budget of a run: which share of its time queries may take, and which streams are thinned when they take more.

The account is a bucket. It fills with `budget` seconds per second, up to `CREDIT_S`, and evaluation drains it: a short
burst is free, and in the long run the share is bounded. When it is empty, the most expensive streams are thinned first:
a stream of stride n is evaluated on every n-th event.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from .subscription import Subscription

CREDIT_S: Final = 1.0  # enough for the first evaluation of a query, which may compile or load a library
REVIEW_S: Final = 0.25  # often enough to stop an expensive query soon, long enough to average over some events
MAX_STRIDE: Final = 2**20  # beyond a million events the stream is as good as off


class Budget:
    """The budget of a run. Recorded streams have an account of their own: they are never thinned, but given up."""

    def __init__(self, share: float | None, *, now_s: float) -> None:
        """Start with full accounts; `share` is the part of the run's time that queries may take, `None` for any."""
        self._share = share
        self._accounts = None if share is None else (Account(share, now_s=now_s), Account(share, now_s=now_s))

    def due(self, now_s: float) -> bool:
        """Return whether it is time for a review."""
        return self._accounts is not None and self._accounts[0].due(now_s)

    def review(self, subscriptions: Collection[Subscription], now_s: float) -> None:
        """Thin subscriptions until they are within the budget; beyond it, stop recording those that are recorded."""
        if self._accounts is None:
            return
        for account, recorded in zip(self._accounts, (False, True), strict=True):
            several = [subscription for subscription in subscriptions if subscription.recorded == recorded]
            elapsed_s = account.elapsed(now_s)
            strides = account.review(now_s, [s.spent_s for s in several], [s.stride for s in several])
            for subscription, stride in zip(several, strides, strict=True):
                subscription.share = subscription.spent_s * subscription.stride / elapsed_s
                subscription.stride = stride
                subscription.recorded = recorded and stride == 1
        for subscription in subscriptions:
            subscription.total_spent_s += subscription.spent_s
            subscription.spent_s = 0.0

    def cost(self, subscription: Subscription) -> str:
        """Return which part of the run's time a subscription takes, and the budget, as text."""
        budget = "no budget" if self._share is None else f"the budget is {self._share:.1%}"
        return f"{subscription.share:.1%} of the run's time ({budget})"


class Account:
    """A bucket of seconds."""

    __slots__ = ("_credit_s", "_reviewed_s", "budget")

    def __init__(self, budget: float, *, now_s: float) -> None:
        self.budget = budget
        self._credit_s = CREDIT_S
        self._reviewed_s = now_s

    def due(self, now_s: float) -> bool:
        """Return whether it is time for a review."""
        return now_s - self._reviewed_s >= REVIEW_S

    def elapsed(self, now_s: float) -> float:
        """Return the seconds since the last review."""
        return max(now_s - self._reviewed_s, 1e-9)

    def review(self, now_s: float, spent_s: Sequence[float], strides: Sequence[int]) -> list[int]:
        """Charge the account and return the new strides of the streams.

        Args:
            now_s: The monotonic time.
            spent_s: For each stream, the seconds that it took since the last review.
            strides: For each stream, its stride until now.
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
    """Return strides under which streams stay within a budget. The most expensive streams are thinned first.

    Args:
        shares: For each stream, the part of the run's time that it would take if it were evaluated on every event.
        budget: The part that they may take together.

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
