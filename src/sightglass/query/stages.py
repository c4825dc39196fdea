"""The stages of a chain: `map`, `where`, reducers and their windows, as plain data.

Queries and a client's streams share them: `Chain` has the methods that add a stage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core.clock import duration
from sightglass.core.errors import QueryError

from . import expressions as e

Function = Callable[..., Any] | e.Lambda

WINDOWS: Final = ("every", "per", "when")


@dataclass(frozen=True, slots=True)
class Every:
    """Closes on each n-th event of the run."""

    n: int


@dataclass(frozen=True, slots=True)
class Period:
    """Closes at the multiples of a time span; `text` is how it was written."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Per:
    """Closes at another event."""

    event: str


@dataclass(frozen=True, slots=True)
class When:
    """Closes where a condition on the event holds."""

    condition: Any


@dataclass(frozen=True, slots=True)
class Group:
    """Closes where the run, or the client, says so."""


Window = Every | Period | Per | When | Group


def window(*, every: int | str | None = None, per: str | None = None, when: Any = None) -> Window:
    """Make a window of the one keyword that is given, or the run's own groups of none.

    Raises:
        QueryError: More than one is given, or one is wrong.
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


def _count(every: Any) -> int:
    if isinstance(every, bool) or not isinstance(every, int | np.integer) or not 1 <= every < 2**63:
        raise QueryError(f"Expected every to be a number of events or a time such as '5 min', got {every!r}")
    return int(every)


@dataclass(frozen=True, slots=True)
class Map:
    """Computes a new value from each."""

    fn: Any


@dataclass(frozen=True, slots=True)
class Where:
    """Lets pass what a condition holds for."""

    fn: Any


@dataclass(frozen=True, slots=True)
class Reduce:
    """Makes one value of the many in a window; `args` are (name, value) pairs, functions among them."""

    name: str
    args: tuple[tuple[str, Any], ...]
    window: Window


Stage = Map | Where | Reduce


def event_name(name: object) -> str:
    """Return an event's name.

    Raises:
        QueryError: It is no text, or empty.
    """
    if isinstance(name, str) and name:
        return name
    raise QueryError(f"Expected the name of an event as text, got {name!r}")


class Chain:
    """The verbs that queries and streams share; each gives a new chain with one more stage.

    A reducer's window is named by one of `every` (a number of events, or a time such as "5 min"), `per` (another event)
    and `when` (a condition on the event); with none, the run's own groups close it.
    """

    __slots__ = ()

    def _with(self, stage: Stage) -> Any:
        raise TypeError(f"Expected a query or a stream, got {type(self).__name__}")

    def _function(self, fn: Any, n_params: int = 1) -> Any:
        raise TypeError(f"Expected a query or a stream, got {type(self).__name__}")

    def map(self, fn: Function) -> Any:
        """Compute a new value from each."""
        return self._with(Map(self._function(fn)))

    def where(self, fn: Function) -> Any:
        """Let pass only what a condition holds for."""
        return self._with(Where(self._function(fn)))

    def count(self, **window: Any) -> Any:
        """Count values."""
        return self._reduce("count", (), window)

    def sum(self, **window: Any) -> Any:
        """Add values up, in 64 bits."""
        return self._reduce("sum", (), window)

    def mean(self, **window: Any) -> Any:
        """Average values."""
        return self._reduce("mean", (), window)

    def var(self, **window: Any) -> Any:
        """Return the variance of the population of values."""
        return self._reduce("var", (), window)

    def std(self, **window: Any) -> Any:
        """Return the standard deviation of the population of values."""
        return self._reduce("std", (), window)

    def min(self, **window: Any) -> Any:
        """Return the smallest value; NaN if any is."""
        return self._reduce("min", (), window)

    def max(self, **window: Any) -> Any:
        """Return the largest value; NaN if any is."""
        return self._reduce("max", (), window)

    def first(self, **window: Any) -> Any:
        """Return the first value."""
        return self._reduce("first", (), window)

    def last(self, **window: Any) -> Any:
        """Return the last value."""
        return self._reduce("last", (), window)

    def quantile(self, q: float | list[float] | tuple[float, ...], **window: Any) -> Any:
        """Return the q-quantile, 0 <= q <= 1, or several: exact for 1,024 values, within 0.5 % of the value beyond."""
        return self._reduce("quantile", (("q", tuple(q) if isinstance(q, list) else q),), window)

    def histogram(self, bins: int = 64, **window: Any) -> Any:
        """Count values in at most `bins` equal bins, which widen as values come; counts are exact."""
        return self._reduce("histogram", (("bins", bins),), window)

    def top(self, k: int, by: Function | None = None, **window: Any) -> Any:
        """Keep the k values that are largest, or for which `by` is, the largest first."""
        args = (("k", k),) if by is None else (("k", k), ("by", self._function(by)))
        return self._reduce("top", args, window)

    def sample(self, k: int, **window: Any) -> Any:
        """Keep k random values, in their order; the seed comes from the query."""
        return self._reduce("sample", (("k", k),), window)

    def collect(self, limit: int = 1000, **window: Any) -> Any:
        """Keep the first `limit` values as a list."""
        return self._reduce("collect", (("limit", limit),), window)

    def reduce(self, fn: Function, init: Any, **window: Any) -> Any:
        """Fold values with a function of (accumulator, value); structure, shape and type stay those of `init`."""
        return self._reduce("reduce", (("fn", self._function(fn, 2)), ("init", init)), window)

    def _reduce(self, name: str, args: tuple[tuple[str, Any], ...], named: dict[str, Any]) -> Any:
        wrong = next((key for key in named if key not in WINDOWS), None)
        if wrong is not None:
            raise TypeError(f"Unexpected argument {wrong!r} for {name}; windows are named by {', '.join(WINDOWS)}")
        if named.get("when") is not None:
            named = {**named, "when": self._function(named["when"])}
        return self._with(Reduce(name, args, window(**named)))


REDUCERS: Final = ("count", "sum", "mean", "var", "std", "min", "max", "first", "last", "quantile", "histogram", "top",
                   "sample", "collect", "reduce")  # fmt: skip
STAGES: Final = ("map", "where", *REDUCERS)
