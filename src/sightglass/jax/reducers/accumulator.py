"""The interface of accumulators, and those with a state of constant size per number.

`n_events` is the number of events, if it is known while tracing and all of them happen (`ok`): buffers are then no
longer than needed, and no mask is made.
"""

# ruff: noqa: D102 (`Accumulator` documents the methods)

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from sightglass.core.values import Histogram
from sightglass.jax import explicit
from sightglass.jax.logs.reduction import check_numbers, fit, float_type, is_number, or_nan, select, sum_type
from sightglass.jax.pytree import Array, Flag, PyTree

State = PyTree


class Finished(NamedTuple):
    """The result of an accumulator.

    Attributes:
        value: The values, with the event axis first.
        valid: A mask of the events that happened, shape (n_events,); `None` if all did.
        n_dropped: How many entries a ring buffer dropped; `None` for other accumulators.
    """

    value: PyTree
    valid: Any = None
    n_dropped: Any = None


class Accumulator(ABC):
    """Reduces events one after the other, with a state that a loop carries."""

    __slots__ = ()

    @property
    def stacks(self) -> bool:
        """Whether it needs all events at once; `over` on the stacked events is cheaper then."""
        return False

    @property
    def mergeable(self) -> bool:
        """Whether two states can be merged."""
        return True

    @property
    def steps(self) -> Accumulator:
        """The accumulator of the step tracks of the same tag."""
        return LAST

    @abstractmethod
    def start(self, avals: PyTree, *, n_events: int | None = None) -> State:
        """Return the initial state, given a value or anything with its shapes and dtypes.

        Raises:
            TypeError: Values of this type cannot be reduced this way.
        """

    @abstractmethod
    def step(self, state: State, value: PyTree, ok: Flag = True) -> State:
        """Return the state after one event; unchanged if `ok`, a bool scalar, is false."""

    @abstractmethod
    def finish(self, state: State, *, n_events: int | None = None) -> Finished:
        """Return the result."""

    def merge(self, a: State, b: State) -> State:
        """Return the state after the events of `a`, then of `b`.

        Raises:
            TypeError: The accumulator is not `mergeable`.
        """
        raise TypeError(f"Expected an accumulator whose states can be merged, got {self}")

    def over(self, value: PyTree, ok: Array | None = None) -> Finished:
        """Reduce events that are stacked along the first axis, in a loop over them.

        Args:
            value: The events.
            ok: A mask of those that happened, shape (n_events,), or (n_events, *lanes).
        """
        made = per_lane(self, ok.ndim - 1) if ok is not None and ok.ndim > 1 else self
        value = jax.tree.map(jnp.asarray, value)
        n = leading(value, 1)[0]
        first = jax.tree.map(lambda x: explicit.abstract(x, drop=1), value)

        def body(state: State, row: tuple[Any, Any]) -> tuple[State, None]:
            return made.step(state, row[0], True if ok is None else row[1]), None

        state, _ = lax.scan(body, made.start(first, n_events=n), (value, ok), length=n)
        return made.finish(state, n_events=n if ok is None else None)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class Cell:
    """The state of one leaf."""

    parts: tuple[Any, ...]


class KindState(NamedTuple):
    """The state of `KindAccumulator`: the number of events, and a `Cell` for each leaf."""

    n: jax.Array
    cells: Any


@dataclass(frozen=True, slots=True)
class KindAccumulator(Accumulator):
    """Reduces each leaf by one of `KINDS`, for example a mean."""

    name: str

    @property
    def steps(self) -> Accumulator:
        return FIRST if self.name == "first" else LAST

    def start(self, avals: PyTree, *, n_events: int | None = None) -> KindState:
        avals = avals_of(avals, self.name)
        start = functools.cache(KINDS[self.name].start)  # leaves of equal shapes begin with the same arrays
        return KindState(no_events(), jax.tree.map(lambda aval: Cell(start(aval)), avals))

    def step(self, state: KindState, value: PyTree, ok: Flag = True) -> State:
        return _step(self.name, state, value, None if ok is True else ok)

    def finish(self, state: KindState, *, n_events: int | None = None) -> Finished:
        happened = bool(n_events) or self.name == "sum"
        return Finished(*_finish(self.name, happened, jax.config.jax_debug_nans, state))

    def merge(self, a: KindState, b: KindState) -> KindState:
        join = KINDS[self.name].merge
        merged = lambda x, y: Cell(join(x.parts, a.n, y.parts, b.n))  # noqa: E731
        return KindState(up(a.n, b.n), jax.tree.map(merged, a.cells, b.cells, is_leaf=is_cell))


# A program may have a thousand of these. JAX traces and lowers a jitted function once for all of equal shapes, and XLA
# inlines it.
@functools.partial(jax.jit, static_argnums=0)
def _step(name: str, state: KindState, value: PyTree, ok: Any) -> State:
    n = up(state.n, 1)
    new = jax.tree.map(lambda cell, x: Cell(_update(name, cell.parts, x, n)), state.cells, value, is_leaf=is_cell)
    return select_state(True if ok is None else ok, KindState(n, new), state)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))  # `or_nan` reads a setting that JAX's caches do not know
def _finish(name: str, happened: bool, debug_nans: bool, state: KindState) -> tuple[PyTree, Any]:
    def read(cell: Cell) -> Any:
        return _read(name, happened, debug_nans, cell.parts, state.n)

    value = jax.tree.map(read, state.cells, is_leaf=is_cell)
    return value, None if happened else (state.n > 0)[None]


@functools.partial(jax.jit, static_argnums=0)
def _update(name: str, parts: tuple[Any, ...], x: Any, n: jax.Array) -> tuple[Any, ...]:
    return KINDS[name].step(parts, array(x), n)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _read(name: str, happened: bool, debug_nans: bool, parts: tuple[Any, ...], n: jax.Array) -> Any:
    value = KINDS[name].finish(parts, n)[None]
    return value if happened else or_nan(value, (n > 0)[None])


@dataclass(frozen=True, slots=True)
class PerLane(Accumulator):
    """One accumulator for each lane of a `vmap`; see `per_lane`."""

    inner: Accumulator
    n_axes: int

    @property
    def steps(self) -> Accumulator:
        return PerLane(self.inner.steps, self.n_axes)

    @property
    def stacks(self) -> bool:
        return self.inner.stacks

    @property
    def mergeable(self) -> bool:
        return self.inner.mergeable

    def start(self, avals: PyTree, *, n_events: int | None = None) -> State:
        avals = avals_of(avals, "last")
        like, n = jax.tree.leaves(avals)[0], self.n_axes
        state = self.inner.start(jax.tree.map(lambda aval: explicit.abstract(aval, drop=n), avals), n_events=n_events)
        return jax.tree.map(lambda x: explicit.repeated(x, like, n), state)

    def step(self, state: State, value: PyTree, ok: Flag = True) -> State:
        if ok is True:
            return self._each(self.inner.step)(state, value)
        ok = array(ok)
        ok = jnp.broadcast_to(ok.reshape(ok.shape + (1,) * (self.n_axes - ok.ndim)), leading(state, self.n_axes))
        return self._each(self.inner.step)(state, value, ok)

    def finish(self, state: State, *, n_events: int | None = None) -> Finished:
        done = self._each(lambda one: self.inner.finish(one, n_events=n_events))(state)
        value, valid = jax.tree.map(lambda x: jnp.moveaxis(x, self.n_axes, 0), (done.value, done.valid))
        return Finished(value, valid, done.n_dropped)

    def merge(self, a: State, b: State) -> State:
        return self._each(self.inner.merge)(a, b)

    def _each(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        for _ in range(self.n_axes):
            fn = jax.vmap(fn)
        return fn


LAST = KindAccumulator("last")
FIRST = KindAccumulator("first")


def per_lane(inner: Accumulator, n_axes: int = 1) -> Accumulator:
    """Accumulate each lane of a `vmap` separately: the first `n_axes` axes of values and of `ok` are the lanes.

    The results differ from those of `inner` only for histograms, and where `ok` differs between lanes.
    """
    return PerLane(inner, n_axes) if n_axes else inner


def avals_of(tree: PyTree, name: str) -> PyTree:
    """Return the shapes and dtypes of values; Python numbers count as scalars. Check that they can be reduced."""

    def aval(leaf: ArrayLike | jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            leaf = jax.eval_shape(lambda: jnp.asarray(leaf))
        check_numbers(leaf, name)
        dtype = jax.dtypes.canonicalize_dtype(leaf.dtype) if is_number(leaf.dtype) else leaf.dtype
        return explicit.abstract(leaf, dtype=dtype)

    return jax.tree.map(aval, tree)


def leading(tree: PyTree, n_axes: int) -> tuple[int, ...]:
    """Return the lengths of the first axes of the leaves; 1 if there is no leaf."""
    return next((tuple(leaf.shape[:n_axes]) for leaf in jax.tree.leaves(tree)), (1,) * n_axes)


def array(x: ArrayLike) -> jax.Array:
    """Convert to a JAX array or tracer."""
    return x if isinstance(x, jax.Array) else jnp.asarray(x)


def no_events() -> jax.Array:
    """Return a count of 0 events."""
    return jnp.zeros((), jnp.uint32)


def up(n: jax.Array, by: ArrayLike) -> jax.Array:
    """Add to an unsigned count, which saturates at its largest value."""
    total = n + jnp.asarray(by, n.dtype)
    return jnp.where(total < n, ~jnp.zeros_like(n), total)


def select_state(ok: Flag, new: PyTree, old: PyTree) -> PyTree:
    """Return the new state if `ok`, else the old one."""
    return new if ok is True else jax.tree.map(lambda x, y: jnp.where(ok, x, y), new, old)


def is_cell(node: object) -> bool:
    """Return whether a node of a state is the state of one leaf."""
    return isinstance(node, Cell)


# The arithmetic of reductions that see one event after the other: start, step, finish and merge for one array.
#
# Sums and means of floats are pairs of a number and its rounding error: as precise as twice the digits, and accurate
# beyond 2**24 events. Variances use Welford's update on such pairs. XLA does not reorder this arithmetic.

Parts = tuple[jax.Array, ...]


class ReducerKind(NamedTuple):
    """How one leaf is reduced; `n` is the number of events so far, the new one included."""

    start: Callable[[Any], Parts]
    step: Callable[[Parts, Any, Any], Parts]
    finish: Callable[[Parts, Any], Any]
    merge: Callable[[Parts, Any, Parts, Any], Parts]


def _two_sum(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return a sum and its rounding error (Knuth); the error of a sum that is not finite is zero."""
    total = a + b
    part = total - a
    return total, jnp.where(jnp.isfinite(total), (a - (total - part)) + (b - part), 0)


def _add(pair: Parts, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Add a number to a pair of a number and its rounding error."""
    total, error = _two_sum(pair[0], x)
    return _two_sum(total, pair[1] + error)


def _add_pairs(a: Parts, b: Parts) -> tuple[jax.Array, jax.Array]:
    return _add(_add(a, b[0]), b[1])


def _zeros(dtype_of: Callable[[Any], Any], n: int) -> Callable[[Any], Parts]:
    return lambda aval: tuple(explicit.filled(aval, dtype=dtype_of(aval.dtype)) for _ in range(n))


def _is_exact(x: jax.Array) -> bool:
    return not jnp.issubdtype(x.dtype, jnp.inexact)


def _sum_step(cell: Parts, x: jax.Array, n: jax.Array) -> Parts:
    x = x.astype(cell[0].dtype)
    return _add_words(cell, (x, _sign(x))) if _is_exact(x) else _add(cell, x)


def _sum_merge(a: Parts, n_a: jax.Array, b: Parts, n_b: jax.Array) -> Parts:
    return _add_words(a, b) if _is_exact(a[0]) else _add_pairs(a, b)


def _sum_of(cell: Parts, n: jax.Array) -> jax.Array:
    """Return a sum; of integers the nearest number that the type has."""
    low, high = cell
    if not _is_exact(low):
        return low
    limits = jnp.iinfo(low.dtype)
    smallest, largest = jnp.array(limits.min, low.dtype), jnp.array(limits.max, low.dtype)
    return jnp.where(high == _sign(low), low, jnp.where(high < 0, smallest, largest))


def _add_words(a: Parts, b: Parts) -> Parts:
    """Add integers of twice the bits, as pairs of the low and the high word."""
    unsigned = jnp.uint64 if a[0].dtype.itemsize == 8 else jnp.uint32
    low = a[0] + b[0]
    carry = low.astype(unsigned) < a[0].astype(unsigned)
    return low, a[1] + b[1] + carry.astype(low.dtype)


def _sign(x: jax.Array) -> jax.Array:
    """Return the high word of an integer: 0, or -1 for a negative one."""
    return -(x < 0).astype(x.dtype)


def _welford(cell: Parts, x: jax.Array, n: jax.Array) -> Parts:
    """Welford's update, with the mean and the sum of squares as pairs."""
    mean, squares = cell[:2], cell[2:]
    x = x.astype(mean[0].dtype)
    off = (x - mean[0]) - mean[1]
    mean = _add(mean, off / n.astype(off.real.dtype))
    return *mean, *_add(squares, jnp.real(off * jnp.conj((x - mean[0]) - mean[1])))


def _chan(a: Parts, n_a: jax.Array, b: Parts, n_b: jax.Array) -> Parts:
    """Merge two of Welford's states; see Chan, Golub and LeVeque (1979), "Updating formulae"."""
    real = a[2].dtype
    n_a, n_b = n_a.astype(real), n_b.astype(real)
    share = n_b / jnp.maximum(n_a + n_b, 1)
    off = (b[0] - a[0]) + (b[1] - a[1])
    between = jnp.where(n_a * n_b > 0, jnp.real(off * jnp.conj(off)) * n_a * share, 0)
    mean = _add(a[:2], jnp.where(n_b > 0, off * share, 0))
    return *mean, *_add(_add_pairs(a[2:], b[2:]), between)


def _welford_start(aval: jax.ShapeDtypeStruct) -> Parts:
    dtype = float_type(aval.dtype)
    real = jnp.finfo(dtype).dtype
    return *_zeros(lambda _: dtype, 2)(aval), *_zeros(lambda _: real, 2)(aval)


def _variance(cell: Parts, n: jax.Array) -> jax.Array:
    return jnp.maximum(cell[2], 0) / jnp.maximum(n, 1).astype(cell[2].dtype)


def _choosing(choose: Callable[[Any, Any], Any]) -> ReducerKind:
    return ReducerKind(
        start=_zeros(lambda dtype: dtype, 1),
        step=lambda cell, x, n: (jnp.where(n == 1, x, choose(cell[0], x)),),
        finish=lambda cell, n: cell[0],
        merge=lambda a, n_a, b, n_b: (
            jnp.where(n_a == 0, b[0], jnp.where(n_b == 0, a[0], choose(a[0], b[0]))),
        ),
    )  # fmt: skip


KINDS: dict[str, ReducerKind] = {
    "mean": ReducerKind(
        start=_zeros(float_type, 2),
        step=_sum_step,
        finish=lambda cell, n: cell[0] / jnp.maximum(n, 1).astype(jnp.finfo(cell[0].dtype).dtype),
        merge=_sum_merge,
    ),
    "sum": ReducerKind(_zeros(sum_type, 2), _sum_step, _sum_of, _sum_merge),
    "min": _choosing(jnp.minimum),
    "max": _choosing(jnp.maximum),
    "first": _choosing(lambda old, new: old),
    "last": _choosing(lambda old, new: new),
    "var": ReducerKind(_welford_start, _welford, _variance, _chan),
    "std": ReducerKind(_welford_start, _welford, lambda cell, n: jnp.sqrt(_variance(cell, n)), _chan),
}


# Histograms: count the numbers of all events in bins.
#
# Between given edges, bins are half open, `[a, b)`, except the last, which is closed, as in NumPy. Without edges, bin
# `k` counts the numbers from `k * 2**exponent` up to the next bin, as the reducer of queries does: the exponent is the
# smallest with which the bins cover all numbers so far. Where it grows, neighbours are added up, so counts stay exact.
#
# Values are binned as float32 (float64 stays); NaN and infinities are counted separately. Counts saturate at the
# largest number of their type.

LARGEST = float(np.finfo(np.float32).max)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class BinCounts:
    """A histogram on the device; `read` converts it to the `Histogram` of records.

    Attributes:
        counts: Shape (..., n_bins), uint32 (uint64 with `jax_enable_x64`).
        outside: Shape (..., 5): the numbers of values below the edges, above them, NaN, +Inf and -Inf.
        ends: Shape (..., 2): the smallest and the largest finite value; `None` with edges.
        bins: Shape (..., 2): the number of the first bin, and the exponent, which follow from these.
        edges: The n_bins + 1 edges, if they were given.
    """

    counts: Array
    outside: Array
    ends: Array | None
    bins: Array | None
    edges: tuple[float, ...] = field(metadata={"static": True})

    def read(self) -> Histogram | list[Any]:
        """Wait for the device and return a histogram, or nested lists of them for additional axes.

        Values outside of given edges get additional bins, which end at the largest float32.
        """
        if self.counts.ndim > 1:
            return [jax.tree.map(lambda leaf: leaf[i], self).read() for i in range(len(self.counts))]  # noqa: B023
        below, above, n_nan, n_posinf, n_neginf = (int(n) for n in np.asarray(self.outside))
        counts: list[int] = np.asarray(self.counts).tolist()
        edges = list(self.edges)
        if self.bins is not None:
            n = max((i + 1 for i, count in enumerate(counts) if count), default=0)
            first, exponent = np.asarray(self.bins)
            with np.errstate(over="ignore"):
                wide = np.ldexp(np.arange(n + 1) + np.float64(first), exponent)
            counts, edges = counts[:n] or [0], np.nan_to_num(wide).tolist() if n else [0.0, 1.0]
        if below:
            counts, edges = [below, *counts], [-LARGEST, *edges]
        if above:
            counts, edges = [*counts, above], [*edges, LARGEST]
        return Histogram.from_counts(counts, edges, n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf)

    def added(self, other: BinCounts) -> BinCounts:
        """Return the histogram of the values of both."""
        ends = None if self.ends is None else _wider(self.ends, other.ends)
        bins = None if ends is None else _bins_between(ends, self.counts.shape[-1])
        counts = up(self._within(bins), other._within(bins))
        return BinCounts(counts, up(self.outside, other.outside), ends, bins, self.edges)

    def counted(self, x: jax.Array) -> BinCounts:
        """Return the histogram with some more values."""
        x = explicit.gathered(x, x.ndim).astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32).reshape(-1)
        n, ends, bins = self.counts.shape[-1], self.ends, None
        if ends is not None:
            finite, inf = jnp.isfinite(x), jnp.inf
            of_x = x.min(initial=inf, where=finite), x.max(initial=-inf, where=finite)
            ends = _wider(ends, lax.stop_gradient(of_x))
            bins = _bins_between(ends, n)
        tally = self._tally(x, bins)
        counts, outside = up(self._within(bins), tally[1 : n + 1]), jnp.concatenate([tally[:1], tally[n + 1 :]])
        return BinCounts(counts, up(self.outside, outside), ends, bins, self.edges)

    def merged(self, ok: Array | None) -> BinCounts:
        """Return the histogram of all events that happened, along the first axis, as one event."""

        def over(bins: BinCounts, ok: jax.Array) -> BinCounts:
            empty = self._empty()
            rows = jax.tree.map(lambda new, none: select(ok, new, jnp.broadcast_to(none, new.shape)), bins, empty)
            total: BinCounts = lax.scan(lambda total, row: (total.added(row), None), empty, rows)[0]
            return total

        bins = jax.tree.map(jnp.asarray, self)
        shape = bins.counts.shape[:-1]
        ok = jnp.ones(shape, bool) if ok is None else jnp.broadcast_to(fit(jnp.asarray(ok), bins.counts)[..., 0], shape)
        for _ in shape[1:]:
            over = jax.vmap(over, in_axes=1)
        whole: BinCounts = jax.tree.map(lambda leaf: leaf[None], over(bins, ok))
        return whole

    def _empty(self) -> BinCounts:
        ends = None if self.ends is None else jnp.array([jnp.inf, -jnp.inf], self.ends.dtype)
        counts, outside, bins = (
            None if one is None else jnp.zeros(one.shape[-1:], one.dtype)
            for one in (self.counts, self.outside, self.bins)
        )
        return BinCounts(counts, outside, ends, bins, self.edges)

    def _within(self, bins: Array | None) -> Array:
        """Return the counts in wider bins."""
        if bins is None or self.bins is None:
            return self.counts
        (first, exponent), n = self.bins, self.counts.shape[-1]
        place = ((first + jnp.arange(n)) >> jnp.clip(bins[1] - exponent, 0, 31)) - bins[0]
        half = self.counts.dtype.itemsize * 4
        words = jnp.stack([self.counts >> half, self.counts & ((1 << half) - 1)], 1)  # sums of these do not wrap around
        high, low = jnp.zeros_like(words).at[place].add(words, mode="drop").T
        high = high + (low >> half)
        return jnp.where(high >> half, ~jnp.zeros_like(low), (high << half) | (low & ((1 << half) - 1)))

    def _tally(self, x: jax.Array, bins: Array | None) -> jax.Array:
        """Count values below the edges, in each bin, above the edges, NaN, +Inf and -Inf."""
        n = self.counts.shape[-1]
        if bins is None:
            # On an explicit mesh, JAX cannot map its own loop over lanes that are divided between devices.
            method = "compare_all" if explicit.on_mesh(x) else "scan"
            place = jnp.searchsorted(jnp.asarray(self.edges, x.dtype), x, side="right", method=method)
            place = jnp.where(x == self.edges[-1], n, place)
        else:
            place = _place(jnp.where(jnp.isfinite(x), x, 0), bins[1]).astype(bins.dtype) - bins[0] + 1
        for at, found in enumerate((jnp.isnan(x), x == jnp.inf, x == -jnp.inf), n + 2):
            place = jnp.where(found, at, place)
        return jnp.zeros(n + 5, self.counts.dtype).at[place].add(1)


def _wider(ends: Any, other: Any) -> jax.Array:
    return jnp.stack([jnp.minimum(ends[0], other[0]), jnp.maximum(ends[1], other[1])])


def _place(x: Any, exponent: Any) -> Any:
    """Return the number of the bin of a value as a float; two factors, as one alone may be no number of the type."""
    half = -exponent >> 1
    return jnp.floor(x * _power_of_two(half, x.dtype) * _power_of_two(-exponent - half, x.dtype))


def _power_of_two(n: Any, dtype: Any) -> Any:
    info = np.finfo(dtype)
    return ((n + info.maxexp - 1) << info.nmant).view(dtype)


def _exponent(x: Any) -> Any:
    """Return the exponent of the power of two above numbers that are not negative; of 0, a small one."""
    info = np.finfo(x.dtype)
    return (x.view(np.int64 if x.dtype == np.float64 else np.int32) >> info.nmant) - (info.maxexp - 2)


def _bins_between(ends: Any, n: int) -> jax.Array:
    """Return the number of the first bin, and the smallest exponent with which n bins cover these ends.

    A bin is at least as wide as the distance between the largest floats there, so that numbers of bins are exact.
    """
    ends = jnp.where(jnp.isfinite(ends), ends, 0)  # of no value
    low, high = ends[0], ends[1]
    least = _exponent(jnp.maximum(jnp.abs(low), jnp.abs(high))) - (np.finfo(ends.dtype).nmant + 1)
    near = _exponent((high * 0.5 - low * 0.5) / (n * 0.5))
    # The exponent is this one or the next; rounding may have moved it up by one.
    exponents = [jnp.maximum(near + i, least) for i in (-1, 0, 1)]
    first = [_place(low, exponent) for exponent in exponents]
    fits = [_place(high, exponents[i]) - first[i] < n for i in (0, 1)]
    first, exponent = (jnp.where(fits[0], a, jnp.where(fits[1], b, c)) for a, b, c in (first, exponents))
    return jnp.stack([first.astype(exponent.dtype), exponent])


def _is_bins(node: object) -> bool:
    return isinstance(node, BinCounts)


_counted: Any = jax.jit(BinCounts.counted)  # as `_step` is, for the same reason


@dataclass(frozen=True, slots=True)
class Binning(Accumulator):
    """Counts numbers between edges, or in bins that widen if there are none; see `histogram`."""

    n_bins: int
    edges: tuple[float, ...] = ()

    def start(self, avals: PyTree, *, n_events: int | None = None) -> KindState:
        dtype = sum_type(np.dtype(np.uint64))

        def empty(aval: jax.ShapeDtypeStruct) -> BinCounts:
            if jnp.issubdtype(aval.dtype, jnp.complexfloating):
                raise TypeError(
                    f"Expected real numbers to count in a histogram, got {aval.dtype}: take .real or abs(…)"
                )
            is_wide = aval.dtype == jnp.float64
            ends = bins = None
            if not self.edges:
                ends = jnp.array([jnp.inf, -jnp.inf], jnp.float64 if is_wide else jnp.float32)
                bins = jnp.zeros(2, jnp.int64 if is_wide else jnp.int32)
            return BinCounts(jnp.zeros(self.n_bins, dtype), jnp.zeros(5, dtype), ends, bins, self.edges)

        return KindState(no_events(), jax.tree.map(empty, avals_of(avals, "histogram")))

    def step(self, state: KindState, value: PyTree, ok: Flag = True) -> State:
        new = jax.tree.map(_counted, state.cells, jax.tree.map(array, value), is_leaf=_is_bins)
        return select_state(ok, KindState(up(state.n, 1), new), state)

    def finish(self, state: KindState, *, n_events: int | None = None) -> Finished:
        value = jax.tree.map(lambda leaf: leaf[None], state.cells)
        return Finished(value, None if n_events else (state.n > 0)[None])

    def merge(self, a: KindState, b: KindState) -> State:
        return KindState(up(a.n, b.n), jax.tree.map(lambda x, y: x.added(y), a.cells, b.cells, is_leaf=_is_bins))
