"""The limit within: what the evaluation of an event may take, checked between operations and between blocks.

Small operations are counted by a rough price of their own. When the count passes `FREE_NS`, the expression is priced on
the values of this event, and refused before it is evaluated if it does not fit. While it is evaluated, the processor
time of the thread is compared with the limit after each large operation and each block of a large array. Time during
which the thread does not run does not count.

`HeldMemory` is what a run holds for its queries between events.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from sightglass.core.errors import PriceError
from sightglass.core.program_values.own_pieces import is_traced
from sightglass.core.values import Value, array_kind, itemsize

from . import expressions as e
from .access import Check
from .arrays import is_strided
from .costs import LARGE_NS, MODEL, STRIDED, CostModel, OperationCost, learned_as
from .limits import MAX_PARTS, Total
from .price import Price, price_of

PART: Final = "Ask for a part of it, such as x[:100], or for a statistic"
CONFIRM: Final = "a controller may accept the price with confirm=True"
NEARLY: Final = 0.8  # of a limit: a block takes longer on a busy machine, and to give back what was computed takes time
CHECK_NS: Final = 300_000.0  # of rough price: at most half a millisecond; to read the clock takes 0.5 us
ENOUGH_S: Final = 2.0  # nobody needs to know by how much more a query is too expensive
ENOUGH: Final = 20  # times the limit of bytes
FREE_NS: Final = 200_000.0  # a hundredth of the smallest limit: cheap queries never ask for a price
MORE: Final = 1.5  # an evaluation this much more expensive than the one that was priced is priced again
LIMIT_S: Final = 10.0  # outside of runs, such as in a notebook: an event that takes longer is a slip
MAX_BYTES: Final = 64 * 2**20  # of values that an evaluation holds, besides one copy of the largest observable
PART_NS: Final = 6_000.0  # to copy a part of a result, such as a pair, and to make it one of a record
LEAF_NS: Final = 60.0  # the same for a plain number in a list or a mapping
STATE_COPIES: Final = 3  # of the bins of a histogram: the state, what is made of it, and the message
N_PASSES: Final = 3  # of a reducer over an array
MAX_COMPILED: Final = 4_096  # of one query: four shapes for each node of the largest expression
MIN_HELD: Final = 2**14  # bytes: 4,000 values of reducers as large are the limit; smaller ones are not counted
MIN_SAMPLE: Final = 1_000  # of fewer values, most statistics say little
ROUGH: Final = 4.0  # dtypes and machines cost more than the table says


class PriceNeeded(Exception):
    """More was spent than is free, and the price is not known."""


class NoRoom(Exception):
    """Results that wait take the memory which an event needs. It is free again soon: only this event is lost."""


class CompilationNeeded(Exception):
    """An operation on JAX arrays has to be compiled, which is not done on the training thread."""


class Meter:
    """What the evaluation of one event may take, and has taken.

    Attributes:
        limit_s: The seconds of its thread that an event may take.
        max_bytes: The bytes that it may hold, besides one copy of the largest observable; `None` for any.
        compiled: The operations on JAX arrays that are compiled, with the shapes they are compiled for; `None` if it
            does not matter.
        may_compile: Whether others may be compiled here.
        memory: What the queries of the run hold between events.
        own_bytes: What of that is counted already for this evaluation.
        result_s: The seconds that a copy of the result may take, where an event may take longer.
        tail_s: The seconds that reducers may take of an event which is evaluated on another thread, where they hold the
            lock of the events.
        spent_ns: The rough price of the operations so far.
        allowed_ns: The rough price from which on the clock is read.
        priced_ns: The rough price from which on the price of this event has to be known.
        price: The price of the last event that was priced.
        checks: The indices on a device that this event has used so far; `None` if the evaluation waits for each.
        left_out: The items of mappings that this event could not compute, each with the reason.
    """

    __slots__ = (
        "_began_s", "_cpu_s", "_made_bytes", "_sized", "allowed_ns", "checks", "compiled", "left_out", "limit_s",
        "max_bytes", "may_compile", "memory", "model", "own_bytes", "price", "priced_ns", "result_s", "spent_ns",
        "tail_s",
    )  # fmt: skip

    def __init__(
        self, *, limit_s: float = LIMIT_S, max_bytes: int | None = None, model: CostModel = MODEL,
        cpu_s: Callable[[], float] = time.thread_time, memory: HeldMemory | None = None,
    ) -> None:  # fmt: skip
        self.limit_s = limit_s
        self.max_bytes = max_bytes
        self.model = model
        self.memory = memory or HeldMemory()
        self.own_bytes = 0
        self.result_s = self.tail_s = math.inf
        self.compiled: set[object] | None = None
        self.may_compile = True
        self.spent_ns = 0.0
        self.allowed_ns = self.priced_ns = math.inf
        self.price: Price | None = None
        self.checks: list[Check] | None = None
        self.left_out: dict[Any, str] = {}
        self._cpu_s = cpu_s
        self._began_s = -1.0
        self._made_bytes, self._sized = 0.0, True

    def __deepcopy__(self, memo: object) -> Meter:
        """Return this meter: a copy of an evaluation answers for the same events."""
        return self

    def begin(self) -> None:
        """Start to evaluate an event."""
        self._began_s = -1.0
        self.spent_ns = self._made_bytes = 0.0
        if self.checks:
            self.checks = []
        if self.left_out:
            self.left_out = {}

    def leave_out(self, items: Mapping[Any, str]) -> None:
        """Take note of items that could not be computed. Other threads may read `left_out` meanwhile."""
        self.left_out = {**self.left_out, **items}

    def go_on(self, head: Meter) -> None:
        """Go on with an event that was begun with another meter, on the same thread."""
        self._began_s, self.spent_ns = head._began_s, head.spent_ns
        self.limit_s = head.limit_s

    def spend(self, ns: float) -> None:
        """Count the rough price of an operation.

        Raises:
            PriceNeeded: The price of this event has to be known first.
            PriceError: The event has taken more than its limit.
        """
        self.spent_ns += ns
        if self.spent_ns > self.allowed_ns:
            if self.spent_ns > self.priced_ns:
                raise PriceNeeded
            self.check("many operations")
            self.allowed_ns = self.spent_ns + CHECK_NS

    def operates(self, place: int, values: Sequence[Value], *, by_value: bool = False) -> None:
        """Take note of an operation on JAX arrays.

        Args:
            place: Which operation of the query it is.
            values: Its operands.
            by_value: Whether it is compiled for the values of numbers, not only for their types.

        Raises:
            CompilationNeeded: It is new, and nothing may be compiled here.
        """
        if self.compiled is None or any(map(is_traced, values)):
            return
        key = (place, *(_compiled_for(value, by_value) for value in values))
        if key in self.compiled:
            return
        if not self.may_compile:
            raise CompilationNeeded
        if len(self.compiled) >= MAX_COMPILED:
            self.compiled.clear()
        self.compiled.add(key)

    def clock(self) -> float:
        """Return the thread's processor time in seconds; the first call of an event starts its limit.

        What was spent before counts by its rough price.
        """
        now_s = self._cpu_s()
        if self._began_s < 0:
            self._began_s = now_s - min(self.spent_ns, FREE_NS) / 1e9
        return now_s

    def check(self, what: str) -> float:
        """Return the thread's processor time in seconds, after an operation or a block.

        Raises:
            PriceError: The event has taken more than its limit.
        """
        now_s = self.clock()
        if now_s - self._began_s > NEARLY * self.limit_s:
            raise PriceError(
                f"Expected at most {_time(self.limit_s)} of the run's time for an event, stopped after "
                f"{_time(now_s - self._began_s)} in {what}: ask for a .sample(n) of large arrays, or less often",
                seconds=(now_s - self._began_s) / NEARLY,  # more than the limit, if that was the whole of it
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

    def ask(
        self, tree: e.Lambda, values: Sequence[object], measured: Mapping[int, float], *, aside: bool = False
    ) -> None:
        """Price an expression on the values of this event.

        Args:
            tree: The expression.
            values: The values.
            measured: As in `price_of`.
            aside: Whether it is evaluated on another thread, under limits of its own.

        Raises:
            PriceError: It costs more than the event may take, or there is no time left to know.
            NoRoom: It needs memory that is free later.
        """
        self.clock()
        self.model.want(())
        enough = (max(ENOUGH_S, 2 * self.limit_s), math.inf if self.max_bytes is None else ENOUGH * self.max_bytes)
        price = price_of(tree, values, self.model, measured=measured, enough=enough, is_late=self._is_late)
        self.price, self._sized = price, self._sized and price.sized
        if price.late and not aside:
            self.check("its price")
        left_s, limit = self.left_s(), self.bytes_left(price.largest_bytes)
        if price.seconds <= left_s and price.n_bytes <= limit:
            return
        if limit < price.n_bytes <= limit + self.memory.waiting_bytes:
            raise NoRoom
        if price.seconds <= self.limit_s and price.n_bytes <= limit:
            self.check("its price")
        self.model.want(price.untried)
        more = "more than " if price.more else ""
        of = f", most of it for {price.largest}" if price.largest else ""
        if price.n_bytes > limit:
            said = f"Expected to hold at most {_size(limit)} at a time, got {more}{_size(price.n_bytes)}{of}"
        else:
            took = f"{more}{_time(price.seconds + self.taken_s)}{of}"
            said = f"Expected at most {_time(self.limit_s)} of the run's time for an event, got {took}"
        too_much = max(price.seconds / max(left_s, 1e-3), price.n_bytes / limit, 1e-3)
        advice = self._advice(tree, values, max(MIN_SAMPLE, int(price.n_items / too_much / 2)))
        raise PriceError(
            f"{said}. {advice}",
            seconds=price.seconds + self.taken_s,
            n_bytes=price.n_bytes if price.n_bytes > limit else 0,
        )

    def _is_late(self) -> bool:
        return self.taken_s > NEARLY * self.limit_s

    def bytes_left(self, largest_bytes: int) -> float:
        """Return how many bytes an evaluation may hold that reads an observable as large as this."""
        if self.max_bytes is None:
            return math.inf
        self.memory.count()
        others_bytes = max(0, self.memory.n_bytes - self.own_bytes) + self.memory.waiting_bytes
        return max(0, self.max_bytes + largest_bytes - others_bytes)

    def find_room(self, n_bytes: int) -> None:
        """Check that there is memory for a result.

        Raises:
            NoRoom: Other results take it.
        """
        if n_bytes >= MIN_HELD and n_bytes > self.bytes_left(n_bytes):
            raise NoRoom

    def keeps(self, n_bytes: int) -> None:
        """Count a result until it has left.

        Raises:
            NoRoom: Other results take the memory.
        """
        self.find_room(n_bytes)
        self.memory.waiting_bytes += n_bytes

    def holds(self, n_bytes: int, *, before: int) -> None:
        """Count what is held between events from now on, in place of `before` bytes.

        Raises:
            NoRoom: What other queries hold takes the memory.
        """
        if n_bytes >= MIN_HELD and n_bytes - before > self.bytes_left(0):
            raise NoRoom
        self.memory.add(n_bytes - before)

    def _advice(self, tree: e.Lambda, values: Sequence[object], n: int) -> str:
        """Return what to ask instead: of samples, if that fits."""
        n = 10 ** (len(str(n)) - 1)
        if self.taken_s > self.limit_s / 4:
            return f"Ask for less in one query; {CONFIRM}"
        price = price_of(tree, values, self.model, samples=n, enough=(self.limit_s, math.inf))
        if price.known and price.seconds <= self.limit_s / 2:
            return f"Ask for samples of large arrays, x.ravel().sample({n}): {_time(price.seconds)}; {CONFIRM}"
        return f"Ask for less in one query; {CONFIRM}"

    @property
    def max_parts(self) -> int:
        """How many parts a result may have: to copy more would take longer than an event may."""
        return int(min(MAX_PARTS, self.limit_s * 1e9 / PART_NS))

    def count(self, value: Value) -> Total:
        """Return the bytes and items of a result.

        Raises:
            RefusedQueryError: To copy it would take longer than an event may.
        """
        total = Total(self.max_parts)
        total.add(value)
        return total

    def copies(self, n_bytes: int, *, parts_ns: float = 0.0) -> None:
        """Check that there is time to copy a result.

        Args:
            n_bytes: Its bytes.
            parts_ns: What its parts take besides.

        Raises:
            PriceError: There is not.
        """
        copy_s = (n_bytes * self.model.new_ns + parts_ns) / 1e9
        if copy_s > FREE_NS / 1e9 and copy_s > min(self.left_s(), self.result_s):
            if self.price is None:
                self.price = Price(seconds=copy_s, n_bytes=n_bytes, python_s=parts_ns / 1e9, largest_bytes=n_bytes)
            raise self._too_large(f"{_time(copy_s)} for {_size(n_bytes)}", copy_s)

    def reduces(self, total: Total, *, number_ns: float, n_copies: int, n_held: int, state_bytes: int) -> None:
        """Check that there is time and memory to reduce a result.

        Args:
            total: Its bytes and items.
            number_ns: What it takes to reduce a number of a list or a mapping.
            n_copies: How many copies of an array a reducer makes at a time.
            n_held: How many of them it holds afterwards.
            state_bytes: What it holds besides, such as bins.

        Raises:
            PriceError: There is not.
        """
        passes_ns = N_PASSES * self.model.new_ns if n_copies else 0.0
        reduce_s = (passes_ns * total.n_bytes + number_ns * total.n_leaves) / 1e9
        if reduce_s > FREE_NS / 1e9 and reduce_s > min(self.left_s(), self.tail_s):
            raise self._too_large(f"{_time(reduce_s)} to reduce {_size(total.n_bytes)}", reduce_s)
        if total.n_bytes < MIN_HELD:
            return
        n_bytes = n_copies * total.n_bytes + STATE_COPIES * state_bytes
        limit = self.bytes_left(total.n_bytes) - self.memory.peak_bytes
        if limit < n_bytes <= limit + self.memory.waiting_bytes:
            raise NoRoom
        if n_bytes > limit:
            raise PriceError(
                f"Expected to hold at most {_size(max(0, limit))} at a time, got {_size(n_bytes)} to reduce "
                f"{_size(total.n_bytes)}. Ask for a part of it, such as x[:100], or for a statistic",
                seconds=reduce_s,
                n_bytes=n_bytes,
            )
        self.memory.add(n_held * total.n_bytes)

    def repeats(self, n: int, each_s: float, what: str) -> None:
        """Check that there is time for `n` equal steps of a sliding window.

        Raises:
            PriceError: There is not.
        """
        seconds = n * each_s
        if seconds > FREE_NS / 1e9 and seconds > min(self.left_s(), self.tail_s):
            advice = f"Ask for fewer values, or close windows with every=…; {CONFIRM}"
            raise self._too_large(f"{_time(seconds)} for {what}", seconds, advice=advice)

    def makes(self, n: float, like: Value) -> None:
        """Count `n` items that an operation makes, where prices do not know the bytes of all parts.

        They count until the event ends, as if all of them were held together.

        Raises:
            PriceError: The event has made more than it may hold.
        """
        if self._sized:
            return
        self._made_bytes += n * itemsize(like.dtype)
        limit = self.bytes_left(self.price.largest_bytes if self.price else 0)
        if limit < self._made_bytes <= limit + self.memory.waiting_bytes:
            raise NoRoom
        if self._made_bytes > limit:
            raise PriceError(
                f"Expected to hold at most {_size(limit)} at a time, got {_size(self._made_bytes)} of results of "
                "functions whose size is not known before. Ask for less in one query",
                n_bytes=int(self._made_bytes),
            )

    def _too_large(self, got: str, seconds: float, *, advice: str = PART) -> PriceError:
        self.model.want(())  # the query waits until prices are exact
        limit_s = min(self.limit_s, self.result_s, self.tail_s)
        return PriceError(
            f"Expected at most {_time(limit_s)} of the run's time for an event, got {got}. {advice}",
            seconds=seconds + self.taken_s,
        )

    def apply(
        self, name: str, cost: OperationCost, run: Callable[[], Value], x: Value, *, table_ns: float | None = None
    ) -> Value:
        """Run an operation on an array, and learn what it takes if it is large; `table_ns` as in `CostModel.ns`.

        Raises:
            PriceError: Its price does not fit into the rest of the event, or it took more than that.
        """
        n, dtype = math.prod(x.shape), str(x.dtype)
        self.makes(cost.n_made * n, x)
        if self.model.ns(name, cost, x.dtype, dtype, n, table_ns=table_ns) < LARGE_NS or array_kind(x) != "numpy":
            return run()
        started_s = self.clock()
        result = run()
        taken_ns = (self._cpu_s() - started_s) * 1e9 / (STRIDED if is_strided(x, "numpy") else 1.0)
        made = result[0] if type(result) is tuple and result else result
        learned = learned_as(name, cost, getattr(made, "shape", ()))
        self.model.learn(learned, cost, dtype, n, taken_ns=taken_ns, table_ns=table_ns)
        self.check(f"{name} of {n:,} items of {dtype}")
        return result


def parts_ns(total: Total) -> float:
    """Return what it takes to copy the parts of a result, besides their bytes."""
    return (total.n_parts - 1) * PART_NS + total.n_leaves * LEAF_NS


def _compiled_for(value: Value, by_value: bool) -> object:
    if array_kind(value):
        return tuple(value.shape), str(value.dtype)
    if type(value) is tuple:
        return tuple(_compiled_for(part, by_value) for part in value)
    return str(value) if by_value and isinstance(value, int | float | slice) else type(value)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.1f} s"


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:.0f} MiB"


# The memory that a run holds for its queries: between events, and on its way to clients.

COUNTED_FOR_S: Final = 0.05  # to count takes microseconds for each query, and a run may have thousands


class MemoryHolder(Protocol):
    """A query, or what holds copies for one."""

    @property
    def held_bytes(self) -> int:
        """The bytes that it holds between events."""

    @property
    def waiting_bytes(self) -> int:
        """The bytes of its results that wait for a device or for the io thread."""

    @property
    def peak_bytes(self) -> int:
        """The bytes that its evaluation holds besides."""


class HeldMemory:
    """What reducers and copies of observables hold, and results that are on their way.

    The account is counted now and then, from what is alive. So nothing has to be given back when a query ends; what is
    added in between counts in full.

    Attributes:
        n_bytes: The bytes that are held between events.
        waiting_bytes: The bytes of results that leave soon.
        peak_bytes: The most that the evaluation of one query holds besides.
    """

    __slots__ = ("_counted_s", "_holders", "_now_s", "n_bytes", "peak_bytes", "waiting_bytes")

    def __init__(
        self, holders: Callable[[], Iterable[MemoryHolder]] = tuple, *, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.n_bytes = self.waiting_bytes = self.peak_bytes = 0
        self._holders = holders
        self._now_s = now_s
        self._counted_s = -COUNTED_FOR_S

    def count(self) -> None:
        """Bring the account up to date, unless it was counted just now."""
        now_s = self._now_s()
        if now_s - self._counted_s < COUNTED_FOR_S:
            return
        self._counted_s = now_s
        holders = list(self._holders())
        self.n_bytes = sum(holder.held_bytes for holder in holders)
        self.waiting_bytes = sum(holder.waiting_bytes for holder in holders)
        self.peak_bytes = max((holder.peak_bytes for holder in holders), default=0)

    def add(self, n_bytes: int) -> None:
        """Add what is held from now on."""
        self.n_bytes += n_bytes

    def free(self) -> None:
        """Count again at the next look: much is not held any more."""
        self._counted_s = -math.inf


class SharedBytes:
    """The bytes of messages in the queues of several clients. A message counts once, however many wait for it.

    Attributes:
        n_bytes: The bytes of all messages.
    """

    __slots__ = ("_n_queues", "n_bytes")

    def __init__(self) -> None:
        self.n_bytes = 0
        self._n_queues: dict[int, int] = {}  # by `id` of messages, which the queues keep alive

    def hold(self, message: object, n_bytes: int) -> None:
        """Count a message that one more queue holds."""
        n = self._n_queues.get(id(message), 0)
        self._n_queues[id(message)] = n + 1
        self.n_bytes += 0 if n else n_bytes

    def release(self, message: object, n_bytes: int) -> None:
        """Count a message that a queue holds no more."""
        n = self._n_queues.pop(id(message)) - 1
        if n:
            self._n_queues[id(message)] = n
        else:
            self.n_bytes -= n_bytes
