"""The limit within: what the evaluation of an event may take, checked between operations and between blocks.

Small operations are counted by a rough price of their own. When the count passes `FREE_NS`, the expression is priced on
the values of this event, and refused before it is evaluated if it does not fit. While it is evaluated, the processor
time of the thread is compared with the limit after each large operation and each block of a large array. Time during
which the thread does not run does not count.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from sightglass.core.errors import PriceError
from sightglass.core.values import Value, array_kind

from . import expressions as e
from .costs import LARGE_NS, MODEL, CostModel, OperationCost
from .price import Price, price_of

CONFIRM: Final = "a controller may accept the price with confirm=True"
CHECK_NS: Final = 2_000_000.0  # of rough price: at most a millisecond
ENOUGH_S: Final = 2.0  # nobody needs to know by how much more a query is too expensive
ENOUGH: Final = 20  # times the limit of bytes
FREE_NS: Final = 200_000.0  # a hundredth of the smallest limit: cheap queries never ask for a price
MORE: Final = 1.5  # an evaluation this much more expensive than the one that was priced is priced again
LIMIT_S: Final = 10.0  # outside of runs, such as in a notebook: an event that takes longer is a slip
MAX_BYTES: Final = 64 * 2**20  # of values that an evaluation holds, besides one copy of the largest observable
MIN_SAMPLE: Final = 1_000  # of fewer values, most statistics say little
ROUGH: Final = 4.0  # dtypes and machines cost more than the table says


class PriceNeeded(Exception):
    """More was spent than is free, and the price is not known."""


class Meter:
    """What the evaluation of one event may take, and has taken.

    Attributes:
        limit_s: The seconds of its thread that an event may take.
        max_bytes: The bytes that it may hold, besides one copy of the largest observable; `None` for any.
        spent_ns: The rough price of the operations so far.
        allowed_ns: The rough price from which on the price has to be known, or the clock is read.
        known: Whether the price of this event is known.
        price: The price of the last event that was priced.
    """

    __slots__ = ("_began_s", "_cpu_s", "allowed_ns", "known", "limit_s", "max_bytes", "model", "price", "spent_ns")

    def __init__(
        self, *, limit_s: float = LIMIT_S, max_bytes: int | None = None, model: CostModel = MODEL,
        cpu_s: Callable[[], float] = time.thread_time,
    ) -> None:  # fmt: skip
        self.limit_s = limit_s
        self.max_bytes = max_bytes
        self.model = model
        self.spent_ns = 0.0
        self.allowed_ns = math.inf
        self.known = True
        self.price: Price | None = None
        self._cpu_s = cpu_s
        self._began_s = -1.0

    def begin(self) -> None:
        """Start to evaluate an event."""
        self._began_s = -1.0
        self.spent_ns = 0.0

    def spend(self, ns: float) -> None:
        """Count the rough price of an operation.

        Raises:
            PriceNeeded: The price of this event has to be known first.
            PriceError: The event has taken more than its limit.
        """
        self.spent_ns += ns
        if self.spent_ns > self.allowed_ns:
            if not self.known:
                raise PriceNeeded
            self.check("many operations")
            self.allowed_ns = self.spent_ns + CHECK_NS

    def clock(self) -> float:
        """Return the thread's processor time in seconds; the first call of an event starts its limit."""
        now_s = self._cpu_s()
        if self._began_s < 0:
            self._began_s = now_s
        return now_s

    def check(self, what: str) -> float:
        """Return the thread's processor time in seconds, after an operation or a block.

        Raises:
            PriceError: The event has taken more than its limit.
        """
        now_s = self.clock()
        if now_s - self._began_s > self.limit_s:
            raise PriceError(
                f"Expected at most {_time(self.limit_s)} of the run's time for an event, stopped after "
                f"{_time(now_s - self._began_s)} in {what}: ask for a .sample(n) of large arrays, or less often",
                seconds=now_s - self._began_s,
            )
        return now_s

    @property
    def taken_s(self) -> float:
        """The seconds since the first look at the clock in this event; call it on the thread that evaluates."""
        return 0.0 if self._began_s < 0 else self._cpu_s() - self._began_s

    def now(self) -> float:
        """Return the thread's processor time in seconds."""
        return self._cpu_s()

    def left_s(self) -> float:
        """Return how many seconds this event may still take."""
        return self.limit_s - self.taken_s

    def ask(self, tree: e.Lambda, values: Sequence[object], measured: Mapping[int, float]) -> None:
        """Price an expression on the values of this event.

        Raises:
            PriceError: It costs more than the event may take.
        """
        self.clock()
        self.model.wanted = self.model.wanted or not self.model.calibrated
        enough = (max(ENOUGH_S, 2 * self.limit_s), math.inf if self.max_bytes is None else ENOUGH * self.max_bytes)
        self.price = price = price_of(tree, values, self.model, measured=measured, enough=enough)
        left_s = self.left_s()
        limit = math.inf if self.max_bytes is None else self.max_bytes + price.largest_bytes
        if price.seconds <= left_s and price.n_bytes <= limit:
            return
        more = "more than " if price.more else ""
        of = f", most of it for {price.largest}" if price.largest else ""
        if price.n_bytes > limit:
            said = f"Expected to hold at most {_size(limit)} at a time, got {more}{_size(price.n_bytes)}{of}"
        else:
            took = f"{more}{_time(price.seconds)}{of}"
            said = f"Expected at most {_time(self.limit_s)} of the run's time for an event, got {took}"
        too_much = max(price.seconds / max(left_s, 1e-3), price.n_bytes / limit, 1e-3)
        advice = self._advice(tree, values, max(MIN_SAMPLE, int(price.n_items / too_much / 2)))
        raise PriceError(
            f"{said}. {advice}", seconds=price.seconds, n_bytes=price.n_bytes if price.n_bytes > limit else 0
        )

    def _advice(self, tree: e.Lambda, values: Sequence[object], n: int) -> str:
        """Return what to ask instead: of samples, if that fits."""
        n = 10 ** (len(str(n)) - 1)
        if self.taken_s > self.limit_s / 4:
            return f"Ask for less in one query; {CONFIRM}"
        price = price_of(tree, values, self.model, samples=n, enough=(self.limit_s, math.inf))
        if price.known and price.seconds <= self.limit_s / 2:
            return f"Ask for samples of large arrays, x.ravel().sample({n}): {_time(price.seconds)}; {CONFIRM}"
        return f"Ask for less in one query; {CONFIRM}"

    def copies(self, n_bytes: int) -> None:
        """Check that there is time to copy a result, or to reduce it.

        Raises:
            PriceError: There is not.
        """
        copy_s = n_bytes * self.model.new_ns / 1e9
        if copy_s > FREE_NS / 1e9 and copy_s > self.left_s():
            if self.price is None:
                self.price = Price(seconds=copy_s, n_bytes=n_bytes, python_s=0.0, largest_bytes=n_bytes)
            raise PriceError(
                f"Expected at most {_time(self.limit_s)} of the run's time for an event, got {_time(copy_s)} for "
                f"{_size(n_bytes)}. Ask for a part of it, such as x[:100], or for a statistic",
                seconds=copy_s,
            )

    def apply(self, name: str, cost: OperationCost, run: Callable[[], Value], x: Value) -> Value:
        """Run an operation on an array, and learn what it takes if it is large.

        Raises:
            PriceError: Its price does not fit into the rest of the event, or it took more than that.
        """
        n, dtype = math.prod(x.shape), str(x.dtype)
        if self.model.ns(name, cost, x.dtype, dtype, n) < LARGE_NS or array_kind(x) != "numpy":
            return run()
        started_s = self.clock()
        result = run()
        self.model.learn(name, cost, dtype, n, taken_ns=(self._cpu_s() - started_s) * 1e9)
        self.check(f"{name} of {n:,} items of {dtype}")
        return result


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"
