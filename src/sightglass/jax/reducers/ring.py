"""Ring buffers: keep the last events of a loop, or each k-th, in a fixed number of rows.

The n-th kept event is in row n modulo the length. In the result, the newest entry is at the end and unused ones come
first, so `slice[-10:]` takes the last ten events.
"""

# ruff: noqa: D102 (`Accumulator` documents the methods)
from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike

from sightglass.jax import explicit
from sightglass.jax.logs.reduction import select
from sightglass.jax.pytree import Flag, PyTree

from .accumulator import Accumulator, Finished, State, array, avals_of, leading, no_events, select_state, up


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
