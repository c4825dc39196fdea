"""Reducing inside a compiled loop, in constant memory.

An accumulator is pure functions on a state that a loop carries: `start(avals) -> state`, `step(state, value, ok) ->
state`, `finish(state) -> Finished`, and `merge(state, state) -> state` where the mathematics allows it (`mergeable`).
Values are pytrees; each leaf is reduced apart. They compare and hash by what they do, so that they can be static
arguments. What `finish` gives has the event axis first, like everything in a `logdict`: one event for `mean`, k for
`last_k(k)`.

The rules:

* Sums and means are carried as a number and its rounding error, so that 2**24 and more events in float32 stay right;
  `var` and `std` use Welford's update on such pairs. Floats narrower than 32 bits, bfloat16 among them, are accumulated
  in float32 and come back as that; integers and bools are averaged in JAX's float type.
* Integers are summed in JAX's widest type, 32 bits unless `jax_enable_x64` is set; a sum that leaves it wraps around,
  as that of `jnp.sum` does. Counts stay at the largest number of their type instead.
* NaN is never hidden: it makes a mean, a minimum or a variance NaN, and a histogram counts it apart.
* `ok=False` leaves the state as it is. A tag of which nothing happened finishes with `valid` False (zero is its sum).
* Ring buffers (`last_k`, `every`) hold the newest entries at the end: what was never filled comes first, so that
  `slice[-10:]` takes the last ten.
* The histogram's bins are half open, `[a, b)`, the last one closed, as NumPy's; values are binned as float32 (float64
  stays), and what lies outside of the edges is counted apart.
"""

# ruff: noqa: D102 (what the methods do stands in `Accumulator`)
from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.core.errors import UnknownNameError
from sightglass.jax.logs.reduction import NAMES, apply, name_of, sum_type

from .accumulator import Accumulator, Finished, KindAccumulator, State, leading, no_events, select_state, up
from .bins import Binning, power_of_two_edges
from .ring import Buffer, Ring

MAX_BINS = 10**6
DEFAULT_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Count(Accumulator):
    """How many events there were: one number, whatever the value."""

    def start(self, avals: Any, *, n_events: int | None = None) -> State:
        return no_events()

    def step(self, state: State, value: Any, ok: Any = True) -> State:
        return select_state(ok, up(state, 1), state)

    def finish(self, state: State, *, n_events: int | None = None) -> Finished:
        dtype = sum_type(np.dtype(np.int64))
        return Finished(jnp.minimum(state, min(np.iinfo(dtype).max, 2**32 - 1)).astype(dtype)[None])

    def merge(self, a: State, b: State) -> State:
        return up(a, b)


@dataclass(frozen=True, slots=True)
class Whole(Accumulator):
    """A function over the event axis, which needs all events at once: memory grows with their number."""

    fn: Callable[..., Any]

    @property
    def stacks(self) -> bool:
        return True

    @property
    def mergeable(self) -> bool:
        return False

    def start(self, avals: Any, *, n_events: int | None = None) -> Buffer:
        if n_events is None:
            name = getattr(self.fn, "__name__", self.fn)
            raise TypeError(
                f"Function {name!r} needs all events at once, and how many there will be is not known: "
                f"reduce by one of {', '.join(NAMES)}, or keep the last with last_k(n)"
            )
        return Ring(max(1, n_events)).start(avals)

    def step(self, state: Buffer, value: Any, ok: Any = True) -> Buffer:
        return Ring(leading(state.rows, 1)[0]).step(state, value, ok)

    def finish(self, state: Buffer, *, n_events: int | None = None) -> Finished:
        kept = Ring(leading(state.rows, 1)[0]).finish(state, n_events=n_events)
        return self.over(kept.value, kept.valid)

    def over(self, value: Any, ok: Any = None) -> Finished:
        result = jax.tree.map(lambda x: apply(self.fn, x, ok), value)
        return Finished(result, None if ok is None else ok.any(axis=0, keepdims=True))


@dataclass(frozen=True, slots=True)
class AccumulatorPlan:
    """Which accumulator each tag has: that of the tag itself, else of the first pattern that matches it."""

    rules: tuple[tuple[str, Accumulator], ...]

    def of(self, tag: str) -> Accumulator | None:
        """Return the accumulator of a tag, `None` where every event is to be kept."""
        exact = (made for pattern, made in self.rules if pattern == tag)
        return next(exact, None) or next((made for pattern, made in self.rules if fnmatchcase(tag, pattern)), None)

    def check(self, tags: Iterable[str]) -> None:
        """Refuse a pattern that no tag matches.

        Raises:
            UnknownNameError: There is one.
        """
        tags = tuple(tags)
        for pattern, _ in self.rules:
            if not any(tag == pattern or fnmatchcase(tag, pattern) for tag in tags):
                raise UnknownNameError("tag", pattern, tags, where="in `reduce`")


def every(k: int, *, limit: int = DEFAULT_LIMIT) -> Accumulator:
    """Keep each k-th event, the first one included: the last `limit` of these.

    Raises:
        ValueError: A number is not positive.
    """
    return Ring(_positive(limit, "limit"), _positive(k, "k"))


def last_k(k: int) -> Accumulator:
    """Keep the last k events.

    Raises:
        ValueError: k is not positive.
    """
    return Ring(_positive(k, "k"))


def histogram(bins: int | Iterable[float] = 64) -> Accumulator:
    """Count the numbers of all events in bins.

    Args:
        bins: The edges, increasing, which are rounded to float32; or how many bins, at most 256, between 0 and
            powers of two on both sides. 64 bins have their edges at 0 and ±2**-23, ±2**-22 … ±2**8; n bins have
            m = (n + 1) // 2 powers, the largest of which is 2**(m // 4), and no edge at 0 when n is odd.

    Raises:
        ValueError: The edges do not increase, or there are too many.
    """
    if isinstance(bins, int):
        return Binning(power_of_two_edges(_positive(bins, "bins")))
    edges = tuple(float(np.float32(edge)) for edge in bins)
    if (
        not 2 <= len(edges) <= MAX_BINS + 1
        or not all(a < b for a, b in pairwise(edges))
        or not all(map(math.isfinite, edges))
    ):
        raise ValueError(f"Expected at least two finite edges that increase, as float32, got {bins!r:.200}")
    return Binning(edges)


def function(fn: Callable[..., Any]) -> Accumulator:
    """Reduce by any function over the event axis.

    A well-known one, such as `jnp.mean`, becomes the accumulator of that name. Any other needs all events at once: they
    are stacked, and the memory grows with their number (`stacks` is true).
    """
    name = name_of(fn)
    return accumulator(name) if name else Whole(fn)


def accumulator(spec: Any) -> Accumulator:
    """Read what is to be accumulated.

    Args:
        spec: "mean", "sum", "min", "max", "first", "last", "count", "var", "std"; an accumulator; or a function.

    Raises:
        UnknownNameError: There is no reduction of this name.
        TypeError: It is none of these.
    """
    if isinstance(spec, Accumulator):
        return spec
    if isinstance(spec, str):
        return Count() if name_of(spec) == "count" else KindAccumulator(spec)
    if callable(spec):
        return function(spec)
    raise TypeError(
        f"Expected a name such as 'mean', an accumulator such as every(10), or a function, got {spec!r:.200}"
    )


def plan(spec: Any) -> AccumulatorPlan:
    """Read what is to be accumulated for which tag.

    Args:
        spec: What `accumulator` reads, for every tag; or a mapping of tags and patterns such as "val/*" to such;
            `None` for no tag.

    Raises:
        UnknownNameError: There is no reduction of some name.
        TypeError: It is none of these.
    """
    if spec is None:
        return AccumulatorPlan(())
    rules = spec if isinstance(spec, Mapping) else {"*": spec}
    return AccumulatorPlan(tuple((pattern, accumulator(each)) for pattern, each in rules.items()))


def _positive(n: int, name: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"Expected a positive integer as {name}, got {n!r}")
    return n
