"""The stages of a chain: `map`, `where`, reducers and their windows, as plain data.

Queries and a client's streams share them: `Chain` has the methods that add a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Self, TypedDict, Unpack

import numpy as np

from sightglass.core.clock import duration
from sightglass.core.errors import QueryError
from sightglass.core.values import Value

from . import expressions as e

Function = Callable[..., Any] | e.Lambda

WINDOWS: Final = ("every", "per", "when")


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


Window = Every | Period | Per | When | Group


class WindowNames(TypedDict, total=False):
    """The keywords that name a reducer's window."""

    every: int | str | None
    per: str | None
    when: Function | None


def window(*, every: int | str | None = None, per: str | None = None, when: Function | None = None) -> Window:
    """Return the window that the one keyword names; without a keyword, the run's own groups.

    Raises:
        QueryError: More than one keyword is used, or a value is not valid.
    """
    given = [name for name, value in zip(WINDOWS, (every, per, when), strict=True) if value is not None]
    if len(given) > 1:
        raise QueryError(f"Expected one window, got {' and '.join(given)}")
    if isinstance(every, str):
        try:
            return Period(duration(every), every)
        except ValueError as error:
            raise QueryError(str(error)) from None
    if every is not None:
        return Every(_count(every))
    if per is not None:
        return Per(event_name(per))
    return Group() if when is None else When(when)


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
    """Makes one value of all values in a window; `args` are (name, value) pairs, which may hold functions."""

    name: str
    args: tuple[tuple[str, Any], ...]
    window: Window


Stage = Map | Where | Reduce


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

    def quantile(self, q: float | list[float] | tuple[float, ...], **window: Unpack[WindowNames]) -> Self:
        """Return one or several q-quantiles, 0 <= q <= 1: exact up to 1,024 values, then within 0.5 % of the value."""
        return self._reduce("quantile", (("q", tuple(q) if isinstance(q, list) else q),), window)

    def histogram(self, bins: int = 64, **window: Unpack[WindowNames]) -> Self:
        """Return a histogram of at most `bins` equal bins, which widen as values arrive; counts are exact."""
        return self._reduce("histogram", (("bins", bins),), window)

    def top(self, k: int, by: Function | None = None, **window: Unpack[WindowNames]) -> Self:
        """Return the k largest values, or those with the largest `by(value)`, the largest first."""
        args = (("k", k),) if by is None else (("k", k), ("by", self._function(by)))
        return self._reduce("top", args, window)

    def sample(self, k: int, **window: Unpack[WindowNames]) -> Self:
        """Return k random values in the order of their events; the query determines the seed."""
        return self._reduce("sample", (("k", k),), window)

    def collect(self, limit: int = 1000, **window: Unpack[WindowNames]) -> Self:
        """Return a list of the first `limit` values."""
        return self._reduce("collect", (("limit", limit),), window)

    def reduce(self, fn: Function, init: Value, **window: Unpack[WindowNames]) -> Self:
        """Fold values with a function of (accumulator, value), which keeps the structure, shape and type of `init`."""
        return self._reduce("reduce", (("fn", self._function(fn, 2)), ("init", init)), window)

    def _reduce(self, name: str, args: tuple[tuple[str, Any], ...], named: WindowNames) -> Self:
        wrong = next((key for key in named if key not in WINDOWS), None)
        if wrong is not None:
            raise TypeError(f"Unexpected argument {wrong!r} for {name}. A window is one of {', '.join(WINDOWS)}")
        condition = named.get("when")
        if condition is not None:
            named = {**named, "when": self._function(condition)}
        return self._with(Reduce(name, args, window(**named)))


REDUCERS: Final = ("count", "sum", "mean", "var", "std", "min", "max", "first", "last", "quantile", "histogram", "top",
                   "sample", "collect", "reduce")  # fmt: skip
STAGES: Final = ("map", "where", *REDUCERS)
