"""The stages of a chain: `map`, `where`, reducers and their windows, as plain data.

Queries and a client's streams share them: `Chain` has the methods that add a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypedDict, Unpack, cast

import numpy as np

from sightglass.core.errors import QueryError, closest
from sightglass.core.process.clock import duration
from sightglass.core.values import Value

from . import expressions as e
from .reduce.table import REDUCERS, SEQUENTIAL

Function = Callable[..., Any] | e.Lambda

WINDOWS: Final = ("every", "per", "when")
RUN: Final = "run"  # `per="run"`: no event closes the window but the end
MAX_ROLLING: Final = 100_000  # values of a sliding window: 30 MB of numbers


@dataclass(frozen=True, slots=True)
class Every:
    """Closes on every n-th event of the run."""

    n: int


@dataclass(frozen=True, slots=True)
class Period:
    """Closes at multiples of a time span; `text` is the span as the user wrote it."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Per:
    """Closes when another event happens."""

    event: str


@dataclass(frozen=True, slots=True)
class When:
    """Closes on an event for which a condition holds."""

    condition: Any


@dataclass(frozen=True, slots=True)
class Group:
    """Closes when the run or the client calls `end_group`."""


@dataclass(frozen=True, slots=True)
class WholeRun:
    """Closes when the run ends."""


@dataclass(frozen=True, slots=True)
class Each:
    """Never closes: each value gives a record, of a state that goes on."""


@dataclass(frozen=True, slots=True)
class Last:
    """The last n values, or those of a last time span; each value gives a record."""

    span: Every | Period


Window = Every | Period | Per | When | Group | WholeRun | Each | Last
ByValue = Each | Last
"""The windows in which each value gives a record."""


class WindowNames(TypedDict, total=False):
    """The keywords that name a reducer's window, and `by`, what its values are grouped by."""

    every: int | str | None
    per: str | None
    when: Function | None
    by: Function | None


def window(*, every: int | str | None = None, per: str | None = None, when: Function | None = None) -> Window:
    """Return the window that the one keyword names; without a keyword, the run's own groups.

    Raises:
        QueryError: More than one keyword is used, or a value is not valid.
    """
    given = [name for name, value in zip(WINDOWS, (every, per, when), strict=True) if value is not None]
    if len(given) > 1:
        raise QueryError(f"Expected one window, got {' and '.join(given)}")
    if every is not None:
        return _period(every) if isinstance(every, str) else Every(_count(every))
    if per is not None:
        return WholeRun() if per == RUN else Per(event_name(per))
    return Group() if when is None else When(when)


def _period(text: str) -> Period:
    try:
        return Period(duration(text), text)
    except ValueError as error:
        raise QueryError(str(error)) from None


def _count(every: object) -> int:
    if isinstance(every, bool) or not isinstance(every, int | np.integer) or not 1 <= every < 2**63:
        raise QueryError(f"Expected `every` to be a number of events or a time such as '5 min', got {every!r}")
    return int(every)


@dataclass(frozen=True, slots=True)
class Map:
    """Computes a new value from each value. `fn` is a lambda's tree; in a pipeline, a Python function."""

    fn: Any


@dataclass(frozen=True, slots=True)
class Where:
    """Drops the values for which a condition, `fn`, does not hold."""

    fn: Any


@dataclass(frozen=True, slots=True)
class Reduce:
    """Makes one value of all values in a window; `args` are (name, value) pairs, which may hold functions.

    With `by`, a function of the event, it makes one for each of its results.
    """

    name: str
    args: tuple[tuple[str, Any], ...]
    window: Window
    by: Any = None


Stage = Map | Where | Reduce


def event_functions(stage: Reduce) -> list[Any]:
    """Return the functions of the event that a reducer has: the condition that closes it, and what it groups by."""
    condition = [stage.window.condition] if isinstance(stage.window, When) else []
    return condition if stage.by is None else [*condition, stage.by]


def event_name(name: object) -> str:
    """Check an event's name and return it.

    Raises:
        QueryError: `name` is not a string, or is empty.
    """
    if isinstance(name, str) and name:
        return name
    raise QueryError(f"Expected an event's name as a string, got {name!r}")


class Chain:
    """The methods that queries and streams share. Each returns a new chain with one more stage.

    Name a reducer's window with one of `every` (a number of events, or a time such as "5 min"), `per` (another event)
    and `when` (a condition on the event). Without one, a window is a group of the run.

    With `by`, a function of the event that returns a number or a text, a reducer returns a mapping: one result for each
    of the first 1,000 of these in a window, as text, and one for all others together, under "(others)".
    """

    __slots__ = ()

    def _with(self, stage: Stage) -> Self:
        raise TypeError(f"Expected a query or a stream, got {type(self).__name__}")

    def _function(self, fn: Function, n_params: int = 1) -> Function:
        raise TypeError(f"Expected a query or a stream, got {type(self).__name__}")

    def map(self, fn: Function) -> Self:
        """Compute a new value from each value."""
        return self._with(Map(self._function(fn)))

    def where(self, fn: Function) -> Self:
        """Keep only the values for which a condition holds."""
        return self._with(Where(self._function(fn)))

    def count(self, **window: Unpack[WindowNames]) -> Self:
        """Return the number of values."""
        return self._reduce("count", (), window)

    def sum(self, **window: Unpack[WindowNames]) -> Self:
        """Return the sum of the values, in 64 bits."""
        return self._reduce("sum", (), window)

    def mean(self, **window: Unpack[WindowNames]) -> Self:
        """Return the arithmetic mean of the values."""
        return self._reduce("mean", (), window)

    def var(self, **window: Unpack[WindowNames]) -> Self:
        """Return the population variance of the values."""
        return self._reduce("var", (), window)

    def std(self, **window: Unpack[WindowNames]) -> Self:
        """Return the population standard deviation of the values."""
        return self._reduce("std", (), window)

    def min(self, **window: Unpack[WindowNames]) -> Self:
        """Return the smallest value, or NaN if any value is NaN."""
        return self._reduce("min", (), window)

    def max(self, **window: Unpack[WindowNames]) -> Self:
        """Return the largest value, or NaN if any value is NaN."""
        return self._reduce("max", (), window)

    def first(self, **window: Unpack[WindowNames]) -> Self:
        """Return the first value."""
        return self._reduce("first", (), window)

    def last(self, **window: Unpack[WindowNames]) -> Self:
        """Return the last value."""
        return self._reduce("last", (), window)

    def median(self, **window: Unpack[WindowNames]) -> Self:
        """Return the median: exact up to 1,024 values, then within 0.5 % of the value, and `approximate`."""
        return self._reduce("median", (), window)

    def quantile(self, q: float | list[float] | tuple[float, ...], **window: Unpack[WindowNames]) -> Self:
        """Return one or several q-quantiles, 0 <= q <= 1: exact up to 1,024 values, then within 0.5 % of the value."""
        return self._reduce("quantile", (("q", tuple(q) if isinstance(q, list) else q),), window)

    def percentile(self, q: float | list[float] | tuple[float, ...], **window: Unpack[WindowNames]) -> Self:
        """Return one or several percentiles, 0 <= q <= 100: the 90th is the 0.9-quantile."""
        return self._reduce("percentile", (("q", tuple(q) if isinstance(q, list) else q),), window)

    def histogram(self, bins: int = 64, **window: Unpack[WindowNames]) -> Self:
        """Return a histogram of at most `bins` equal bins, which widen as values arrive; counts are exact."""
        return self._reduce("histogram", (("bins", bins),), window)

    def top(self, k: int, key: Function | None = None, **window: Unpack[WindowNames]) -> Self:
        """Return the k largest values, or those with the largest `key(value)`, the largest first."""
        args = (("k", k),) if key is None else (("k", k), ("key", self._function(key)))
        return self._reduce("top", args, window)

    def sample(self, k: int, **window: Unpack[WindowNames]) -> Self:
        """Return k random values in the order of their events; the query determines the seed."""
        return self._reduce("sample", (("k", k),), window)

    def collect(self, limit: int = 1000, **window: Unpack[WindowNames]) -> Self:
        """Return a list of the first `limit` values."""
        return self._reduce("collect", (("limit", limit),), window)

    def reduce(self, fn: Function, init: Value, **window: Unpack[WindowNames]) -> Self:
        """Fold values with a function of (accumulator, value), which keeps the structure, shape and type of `init`.

        An array as `init` has at most 900 numbers; a list of numbers stands for one: `[0, 0, 0]`.
        """
        return self._reduce("reduce", (("fn", self._function(fn, 2)), ("init", init)), window)

    def argmax(self, **window: Unpack[WindowNames]) -> Self:
        """Return the largest number with the step of its event, as a mapping; of equal ones the first."""
        return self._reduce("argmax", (), window)

    def argmin(self, **window: Unpack[WindowNames]) -> Self:
        """Return the smallest number with the step of its event, as a mapping; of equal ones the first."""
        return self._reduce("argmin", (), window)

    def distinct(self, limit: int = 1000, **window: Unpack[WindowNames]) -> Self:
        """Return the first `limit` distinct values, in the order in which they came."""
        return self._reduce("distinct", (("limit", limit),), window)

    def rate(self, **window: Unpack[WindowNames]) -> Self:
        """Return how many values came per second, from the first to the last; NaN of a single one."""
        return self._reduce("rate", (), window)

    def scan(self, fn: Function, init: Value) -> Self:
        """Fold values as `reduce` does, and return what there is after each of them."""
        return self._with(Reduce("scan", (("fn", self._function(fn, 2)), ("init", init)), Each()))

    def ema(self, alpha: float) -> Self:
        """Return the exponential moving average: `alpha` of each value, 0 < alpha <= 1, the rest of what was before."""
        return self._with(Reduce("ema", (("alpha", alpha),), Each()))

    def diff(self) -> Self:
        """Return the difference to the value before; the first value gives no record."""
        return self._with(Reduce("diff", (), Each()))

    def rolling(self, last: int | str) -> Self:
        """Slide a window over the values: `rolling(100).mean()` is the mean of the last 100, after each of them.

        Args:
            last: How many values, at most 100,000; or a time such as "5 min", of which at most as many are kept.
        """
        return cast("Self", Rolling(self, _sliding(last)))

    def _reduce(self, name: str, args: tuple[tuple[str, Any], ...], named: WindowNames) -> Self:
        wrong = next((key for key in named if key not in (*WINDOWS, "by")), None)
        if wrong is not None:
            meant = closest(wrong, (*WINDOWS, "by"))
            hint = f" Did you mean {meant!r}?" if meant else ""
            raise TypeError(
                f"got an unexpected keyword argument {wrong!r}.{hint} A window is one of {', '.join(WINDOWS)}"
            )
        condition, by = named.get("when"), named.get("by")
        closes = window(every=named.get("every"), per=named.get("per"), when=condition and self._function(condition))
        return self._with(Reduce(name, args, closes, by and self._function(by)))


class Rolling(Chain):
    """A chain with a sliding window, which the next reducer uses."""

    __slots__ = ("_chain", "_window")

    def __init__(self, chain: Chain, window: Last) -> None:
        self._chain = chain
        self._window = window

    def _with(self, stage: Stage) -> Any:
        if not isinstance(stage, Reduce) or not isinstance(stage.window, Group):
            raise QueryError("Expected a reducer without a window after rolling, such as rolling(100).mean()")
        return self._chain._with(replace(stage, window=self._window))

    def _function(self, fn: Function, n_params: int = 1) -> Function:
        return self._chain._function(fn, n_params)


def _sliding(last: object) -> Last:
    if isinstance(last, str):
        return Last(_period(last))
    if isinstance(last, bool) or not isinstance(last, int | np.integer) or not 1 <= last <= MAX_ROLLING:
        raise QueryError(
            f"Expected a number of values from 1 to {MAX_ROLLING:,}, or a time such as '5 min', got {last!r}"
        )
    return Last(Every(int(last)))


STAGES: Final = ("join", "map", "where", *REDUCERS, *SEQUENTIAL)
