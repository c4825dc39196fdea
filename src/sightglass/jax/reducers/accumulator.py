"""The interface of accumulators, and those with a state of constant size per number.

`n_events` is the number of events, if it is known while tracing and all of them happen (`ok`): buffers are then no
longer than needed, and no mask is made.
"""

# ruff: noqa: D102 (`Accumulator` documents the methods)
from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike

from sightglass.jax import explicit
from sightglass.jax.logs.reduction import check_numbers, is_number, or_nan
from sightglass.jax.pytree import Array, Flag, PyTree

from .kinds import KINDS

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
