"""Which calls of a live step answer its queries, and how many events of its loops, so that they stay in the budget.

What calls take is measured in `call_times.py`, and so is the arithmetic.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sightglass.core.errors import PriceError
from sightglass.training.subscription import Subscription
from sightglass.training.telemetry import Telemetry

from .call_times import MAX_WAIT_S, CallTimes, estimate, every, guess, price_of, stride
from .variant import Variant


class StepBudget:
    """The budget of one step."""

    def __init__(self, telemetry: Telemetry, event: str) -> None:
        self._telemetry = telemetry
        self._event = event
        self._plain: defaultdict[int, CallTimes] = defaultdict(CallTimes)

    @property
    def share(self) -> float | None:
        """The part of the time that queries may take; `None` for any, and where all ranks run what a plan says."""
        return None if self._telemetry.commands.agrees else self._telemetry.budget.share

    def choose(
        self, variant: Variant, answers: Sequence[Subscription], *, signature: int, n_calls: int, thins: bool
    ) -> tuple[Variant | None, int]:
        """Decide what a call runs.

        Args:
            variant: The variant that has queries.
            answers: Their subscriptions.
            signature: The number of the call's signature.
            n_calls: How many calls there were before.
            thins: Whether events within a call may be left out.

        Returns:
            The variant, or `None` for the step itself; and of how many events in its loops it answers one.
        """
        share, plain_s = self.share, self._plain[signature].seconds
        if share is None or any(answer.first for answer in answers):
            return variant, 1
        if plain_s is None:
            return None, 1
        prices_s = {n: times.seconds - plain_s for n, times in variant.times.items() if times.seconds is not None}
        largest = variant.max_every if thins else 1
        allowed_s = plain_s * share / (1 - share)
        n = every(prices_s or {1: guess(variant.growth_of_rounds, plain_s)}, allowed_s, largest)
        price_s = price_of(prices_s, n) if prices_s else estimate(variant.growth, variant.n_more, plain_s) / n
        if price_s > share * MAX_WAIT_S:
            fresh = [answer for answer in answers if not answer.n_seen]
            self._refuse(answers if prices_s else fresh or answers, price_s, plain_s, share)
            return None, 1
        is_due = n not in prices_s or n_calls % stride(price_s, plain_s, share) == 0  # its first call is measured
        return variant if is_due else None, n

    def plain(self, call: Callable[[], Any], given: object, *, signature: int) -> Any:
        """Call the step itself; while there is a budget, now and then measure it."""
        if self.share is None:
            return call()
        return self._plain[signature].measured(call, given, clock_s=self._telemetry.clock.monotonic)

    def queried(
        self,
        variant: Variant,
        n: int,
        call: Callable[[], Any],
        given: object,
        *,
        signature: int,
        answers: Sequence[Subscription],
    ) -> Any:
        """Call a variant that answers one of n events in its loops, and charge its queries for the device's time."""
        if self.share is None:
            return call()
        result = variant.times[n].measured(call, given, clock_s=self._telemetry.clock.monotonic)
        plain_s, both_s = self._plain[signature].seconds, variant.times[n].seconds
        answered = [answer for answer in answers if answer.query.key in variant.keys]
        if plain_s is not None and both_s is not None and both_s > plain_s:
            each_s = (both_s - plain_s) / max(1, len(answered))
            with self._telemetry.lock.mutex:
                for answer in answered:
                    if answer.recorded:  # it is given up where the account of the run cannot pay for it
                        answer.cost.ahead(each_s, each_s)
                    else:
                        answer.cost.device_s += each_s
        return result

    def _refuse(self, answers: Sequence[Subscription], price_s: float, plain_s: float, share: float) -> None:
        problem = (
            f"Expected queries that the budget of {share:.1%} pays for, got {price_s:.1f} s for each call of "
            f"{self._event!r}, which takes {plain_s:.3g} s without them: ask for less, or log less"
        )
        for answer in answers:  # of new ones alone, if there are any: whom an older variant answers goes on
            answer.errors.refuse(PriceError(problem, seconds=price_s))
        self._telemetry.wake()
