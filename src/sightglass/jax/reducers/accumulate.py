"""Reduce inside a compiled loop, in constant memory.

An accumulator is a set of pure functions on a state that a loop carries: `start(avals) -> state`,
`step(state, value, ok) -> state`, `finish(state) -> Finished`, and, if `mergeable`, `merge(state, state) -> state`.
Values are pytrees; each leaf is reduced separately. Accumulators compare and hash by their parameters, so they can be
static arguments. Results have the event axis first, like everything in a `logdict`: one event for `mean`, k for
`last_k(k)`.

The rules:

* Sums and means are pairs of a number and its rounding error, so they stay accurate beyond 2**24 events in float32;
  `var` and `std` use Welford's update on such pairs. Floats narrower than 32 bits, such as bfloat16, are accumulated
  and returned in float32; integers and bools are averaged in JAX's float type.
* Integers are summed exactly, and returned in JAX's widest type, 32 bits unless `jax_enable_x64` is set. Sums and
  counts that it does not hold become its largest or smallest number.
* NaN is never hidden: it makes a mean, a minimum or a variance NaN, and a histogram counts it separately.
* `ok=False` leaves the state unchanged. A tag without events finishes with `valid` False; floats are NaN then, and its
  sum is zero.
* Ring buffers (`last_k`, `every`) have the newest entries at the end and unused ones first, so `slice[-10:]` takes the
  last ten.
* A histogram loses no value: without edges its bins widen as values come, and their counts stay exact; those outside of
  given edges are counted separately. Values are binned as float32 (float64 stays).
"""

# ruff: noqa: D102 (`Accumulator` documents the methods)

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from sightglass.core.errors import UnknownNameError
from sightglass.jax import explicit
from sightglass.jax.logs.reduction import NAMES, apply, name_of, select, sum_type
from sightglass.jax.pytree import Array, Flag, PyTree

from .accumulator import (
    Accumulator,
    Binning,
    Finished,
    KindAccumulator,
    State,
    array,
    avals_of,
    leading,
    no_events,
    select_state,
    up,
)

# A histogram of 10^6 bins is 8 MB in each record; finer ones are a mistake.
MAX_BINS = 10**6
# So many halves of words of 32 bits add up without wrapping around.
MAX_WIDENING = 2**16
# Enough points for a chart; the ring buffer of a scalar takes 4 kB.
DEFAULT_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class Count(Accumulator):
    """Counts events: one number for any value."""

    def start(self, avals: PyTree, *, n_events: int | None = None) -> State:
        return no_events()

    def step(self, state: State, value: PyTree, ok: Flag = True) -> State:
        return select_state(ok, up(state, 1), state)

    def finish(self, state: State, *, n_events: int | None = None) -> Finished:
        dtype = sum_type(np.dtype(np.int64))
        return Finished(jnp.minimum(state, min(np.iinfo(dtype).max, 2**32 - 1)).astype(dtype)[None])

    def merge(self, a: State, b: State) -> State:
        return up(a, b)


@dataclass(frozen=True, slots=True)
class Whole(Accumulator):
    """Applies a function to all events at once: memory grows with their number."""

    fn: Callable[..., Any]

    @property
    def stacks(self) -> bool:
        return True

    @property
    def mergeable(self) -> bool:
        return False

    def start(self, avals: PyTree, *, n_events: int | None = None) -> RingBuffer:
        if n_events is None:
            name = getattr(self.fn, "__name__", self.fn)
            raise TypeError(
                f"Function {name!r} needs all events at once, but their number is not known in advance: "
                f"reduce by one of {', '.join(NAMES)}, or keep the last with last_k(n)"
            )
        return Ring(max(1, n_events)).start(avals)

    def step(self, state: RingBuffer, value: PyTree, ok: Flag = True) -> RingBuffer:
        return Ring(leading(state.rows, 1)[0]).step(state, value, ok)

    def finish(self, state: RingBuffer, *, n_events: int | None = None) -> Finished:
        kept = Ring(leading(state.rows, 1)[0]).finish(state, n_events=n_events)
        return self.over(kept.value, kept.valid)

    def over(self, value: PyTree, ok: Array | None = None) -> Finished:
        result = jax.tree.map(lambda x: apply(self.fn, x, ok), value)
        return Finished(result, None if ok is None else ok.any(axis=0, keepdims=True))


@dataclass(frozen=True, slots=True)
class AccumulatorPlan:
    """The accumulator of each tag: the one for the tag itself, else for the first pattern that matches it."""

    rules: tuple[tuple[str, Accumulator], ...]

    def of(self, tag: str) -> Accumulator | None:
        """Return the accumulator of a tag; `None` to keep every event."""
        exact = (made for pattern, made in self.rules if pattern == tag)
        return next(exact, None) or next((made for pattern, made in self.rules if fnmatchcase(tag, pattern)), None)

    def check(self, tags: Iterable[str]) -> None:
        """Check that each pattern matches a tag.

        Raises:
            UnknownNameError: No tag matches a pattern.
        """
        tags = tuple(tags)
        for pattern, _ in self.rules:
            if not any(tag == pattern or fnmatchcase(tag, pattern) for tag in tags):
                raise UnknownNameError("tag", pattern, tags, where="in `reduce`")


def every(k: int, *, limit: int = DEFAULT_LIMIT) -> Accumulator:
    """Keep each k-th event, beginning with the first; of these, the last `limit`.

    Raises:
        ValueError: `k` or `limit` is not positive.
    """
    return Ring(_positive(limit, "limit"), _positive(k, "k"))


def last_k(k: int) -> Accumulator:
    """Keep the last k events.

    Raises:
        ValueError: `k` is not positive.
    """
    return Ring(_positive(k, "k"))


def histogram(bins: int | Iterable[float] = 64) -> Accumulator:
    """Count the numbers of all events in bins.

    Args:
        bins: The largest number of bins, at least two: their width is a power of two, and they widen as values come, as
            those of the reducer `histogram` of queries do. Or the edges, increasing, rounded to float32.

    Returns:
        A reduction whose results are an `sg.Histogram` on the host, in events and records. The sum of histograms is
        that of all their values.

    Raises:
        ValueError: The edges do not increase, or there are too many bins.
    """
    if isinstance(bins, int):
        if _positive(bins, "bins") > MAX_WIDENING:
            raise ValueError(f"Expected at most {MAX_WIDENING:,} bins, got {bins:,}: give the edges")
        return Binning(max(2, bins))
    edges = tuple(float(np.float32(edge)) for edge in bins)
    if (
        not 2 <= len(edges) <= MAX_BINS + 1
        or not all(a < b for a, b in pairwise(edges))
        or not all(map(math.isfinite, edges))
    ):
        raise ValueError(f"Expected at least two finite edges that increase, as float32, got {bins!r:.200}")
    return Binning(len(edges) - 1, edges)


def function(fn: Callable[..., Any]) -> Accumulator:
    """Reduce by any function over the event axis.

    Functions of `jax.numpy` and NumPy such as `jnp.mean` become the accumulator of that name. Any other needs all
    events at once: they are stacked, and memory grows with their number (`stacks` is true).
    """
    name = name_of(fn)
    return accumulator(name) if name else Whole(fn)


def accumulator(spec: object) -> Accumulator:
    """Return the accumulator for a name, a function or an accumulator.

    Args:
        spec: "mean", "sum", "min", "max", "first", "last", "count", "var", "std"; an accumulator; or a function.

    Raises:
        UnknownNameError: There is no reduction of this name.
        TypeError: `spec` has another type.
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


def plan(spec: object) -> AccumulatorPlan:
    """Return the accumulator of each tag.

    Args:
        spec: An argument of `accumulator`, for every tag; or a mapping from tags and patterns such as "val/*" to such
            arguments; `None` for no tag.

    Raises:
        UnknownNameError: There is no reduction of this name.
        TypeError: `spec`, or a value of it, has another type.
    """
    if spec is None:
        return AccumulatorPlan(())
    rules = spec if isinstance(spec, Mapping) else {"*": spec}
    return AccumulatorPlan(tuple((pattern, accumulator(each)) for pattern, each in rules.items()))


def _positive(n: int, name: str) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"Expected a positive integer as {name}, got {n!r}")
    return n


# Ring buffers: keep the last events of a loop, or each k-th, in a fixed number of rows.
#
# The n-th kept event is in row n modulo the length. In the result, the newest entry is at the end and unused ones come
# first, so `slice[-10:]` takes the last ten events.


class RingBuffer(NamedTuple):
    """The state of `Ring`: the number of events, and the rows of each leaf."""

    n: jax.Array
    rows: PyTree


@dataclass(frozen=True, slots=True)
class Ring(Accumulator):
    """Keeps the last `limit` of each `every`-th event, beginning with the first; see `every` and `last_k`."""

    limit: int
    every: int = 1

    @property
    def steps(self) -> Accumulator:
        return self

    @property
    def mergeable(self) -> bool:
        return self.every == 1  # every k-th event depends on the number of earlier ones

    def start(self, avals: PyTree, *, n_events: int | None = None) -> RingBuffer:
        size = self.limit if n_events is None else max(1, min(self.limit, -(-n_events // self.every)))
        empty = lambda aval: explicit.filled(explicit.abstract(aval, lead=(size,)))  # noqa: E731
        return RingBuffer(no_events(), jax.tree.map(empty, avals_of(avals, "last")))

    def step(self, state: RingBuffer, value: PyTree, ok: Flag = True) -> RingBuffer:
        wanted = ok if self.every == 1 else ok & (state.n % self.every == 0)

        def put(rows: jax.Array, x: ArrayLike) -> jax.Array:
            slot = (state.n // self.every) % rows.shape[0]
            x = array(x)
            new = x if wanted is True else jnp.where(wanted, x, lax.dynamic_index_in_dim(rows, slot, 0, keepdims=False))
            return lax.dynamic_update_index_in_dim(rows, new, slot, 0)

        return RingBuffer(select_state(ok, up(state.n, 1), state.n), jax.tree.map(put, state.rows, value))

    def finish(self, state: RingBuffer, *, n_events: int | None = None) -> Finished:
        size = leading(state.rows, 1)[0]
        if n_events is not None:
            n = -(-n_events // self.every)
            value = jax.tree.map(lambda rows: jnp.roll(rows, -(n % size), 0)[max(size - n, 0) :], state.rows)
            return Finished(value, None, jnp.asarray(n - size, jnp.int32) if n > size else None)
        n = self._n_kept(state)
        valid = jnp.arange(size) >= size - jnp.minimum(n, size).astype(int)
        n_dropped = jnp.minimum(n - jnp.minimum(n, size), np.iinfo(np.int32).max).astype(jnp.int32)
        return Finished(self._in_order(state), valid, n_dropped)

    def merge(self, a: RingBuffer, b: RingBuffer) -> State:
        if not self.mergeable:
            return Accumulator.merge(self, a, b)
        size, n = leading(b.rows, 1)[0], up(a.n, b.n)
        n_b = jnp.minimum(b.n, size).astype(int)
        place = jnp.arange(size)

        def put(old: PyTree, new: PyTree) -> PyTree:
            rows = select(place >= size - n_b, new, jnp.roll(old, -n_b, 0))
            return jnp.roll(rows, (n % size).astype(int), 0)

        return RingBuffer(n, jax.tree.map(put, self._in_order(a), self._in_order(b)))

    def _n_kept(self, state: RingBuffer) -> PyTree:
        return state.n // self.every + (state.n % self.every != 0).astype(jnp.uint32)

    def _in_order(self, state: RingBuffer) -> PyTree:
        """Return the rows with the newest at the end."""
        size = leading(state.rows, 1)[0]
        n = (self._n_kept(state) % size).astype(int)
        return jax.tree.map(lambda rows: jnp.roll(rows, -n, 0), state.rows)
