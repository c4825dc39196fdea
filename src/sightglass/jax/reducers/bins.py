"""Histograms: count the numbers of all events in bins.

Bins are half open, `[a, b)`, except the last, which is closed, as in NumPy. Values are binned as float32 (float64
stays); values outside the edges, NaN and infinities are counted separately. Counts saturate at the largest number of
their type.
"""

# ruff: noqa: D102 (`Accumulator` documents the methods)
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from sightglass.core.values import Histogram
from sightglass.jax import explicit
from sightglass.jax.logs.reduction import sum_type
from sightglass.jax.pytree import Array, Flag, PyTree

from .accumulator import (
    Accumulator,
    Cell,
    Finished,
    KindState,
    State,
    array,
    avals_of,
    is_cell,
    no_events,
    select_state,
    up,
)

# The edges of 256 bins go down to 2**-95; those of many more would leave the range of float32.
MAX_POWERS = 256
LARGEST = float(np.finfo(np.float32).max)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, slots=True)
class BinCounts:
    """A histogram on the device; `read` converts it to the `Histogram` of records.

    Counts saturate at the largest number of their type. Adding or averaging the leaves over an axis gives the histogram
    of all.

    Attributes:
        counts: Shape (..., n_bins), uint32 (uint64 with `jax_enable_x64`).
        outside: Shape (..., 5): the numbers of values below the edges, above them, NaN, +Inf and -Inf.
        edges: The n_bins + 1 edges, increasing.
    """

    counts: Array
    outside: Array
    edges: tuple[float, ...] = field(metadata={"static": True})

    def read(self) -> Histogram | list[Any]:
        """Wait for the device and return a histogram, or nested lists of them for additional axes.

        Values outside the edges get additional bins, which end at the largest float32.
        """
        if self.counts.ndim > 1:
            pairs = zip(self.counts, self.outside, strict=True)
            return [BinCounts(counts, outside, self.edges).read() for counts, outside in pairs]
        below, above, n_nan, n_posinf, n_neginf = (int(n) for n in np.asarray(self.outside))
        counts: list[int] = np.asarray(self.counts).tolist()
        edges = list(self.edges)
        if below:
            counts, edges = [below, *counts], [-LARGEST, *edges]
        if above:
            counts, edges = [*counts, above], [*edges, LARGEST]
        return Histogram.from_counts(counts, edges, n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf)


@dataclass(frozen=True, slots=True)
class Binning(Accumulator):
    """Counts numbers between edges; see `histogram`."""

    edges: tuple[float, ...]

    def start(self, avals: PyTree, *, n_events: int | None = None) -> KindState:
        avals = avals_of(avals, "histogram")
        for aval in jax.tree.leaves(avals):
            if jnp.issubdtype(aval.dtype, jnp.complexfloating):
                raise TypeError(
                    f"Expected real numbers to count in a histogram, got {aval.dtype}: take .real or abs(…)"
                )
        dtype = sum_type(np.dtype(np.uint64))
        return KindState(no_events(), jax.tree.map(lambda _: Cell((jnp.zeros(len(self.edges) + 4, dtype),)), avals))

    def step(self, state: KindState, value: PyTree, ok: Flag = True) -> State:
        count = lambda cell, x: Cell((up(cell.parts[0], self._tally(array(x), cell.parts[0].dtype)),))  # noqa: E731
        new = jax.tree.map(count, state.cells, value, is_leaf=is_cell)
        return select_state(ok, KindState(up(state.n, 1), new), state)

    def finish(self, state: KindState, *, n_events: int | None = None) -> Finished:
        n_bins = len(self.edges) - 1

        def read(cell: Cell) -> BinCounts:
            tally = cell.parts[0][None]
            outside = jnp.concatenate([tally[:, :1], tally[:, n_bins + 1 :]], axis=1)
            return BinCounts(tally[:, 1 : n_bins + 1], outside, self.edges)

        value = jax.tree.map(read, state.cells, is_leaf=is_cell)
        return Finished(value, None if n_events else (state.n > 0)[None])

    def merge(self, a: KindState, b: KindState) -> State:
        return KindState(up(a.n, b.n), jax.tree.map(up, a.cells, b.cells))

    def _tally(self, x: jax.Array, dtype: DTypeLike) -> jax.Array:
        """Count values below the edges, in each bin, above the edges, NaN, +Inf and -Inf."""
        n_bins = len(self.edges) - 1
        x = explicit.gathered(x, x.ndim).astype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32).reshape(-1)
        # On an explicit mesh, JAX cannot map its own loop over lanes that are divided between devices.
        method = "compare_all" if explicit.on_mesh(x) else "scan"
        place = jnp.searchsorted(jnp.asarray(self.edges, x.dtype), x, side="right", method=method)
        place = jnp.where(x == self.edges[-1], n_bins, place)
        for at, found in enumerate((jnp.isnan(x), x == jnp.inf, x == -jnp.inf), n_bins + 2):
            place = jnp.where(found, at, place)
        return jnp.zeros(n_bins + 5, dtype).at[place].add(1)


def power_of_two_edges(n_bins: int) -> tuple[float, ...]:
    """Return the edges of bins between powers of two on both sides of 0; see `histogram`.

    Raises:
        ValueError: There are too many bins for the powers of two of float32.
    """
    if n_bins > MAX_POWERS:
        raise ValueError(f"Expected at most {MAX_POWERS} bins between powers of two, got {n_bins}: give the edges")
    m = (n_bins + 1) // 2
    powers = [2.0 ** (m // 4 - m + 1 + i) for i in range(m)]
    return (*(-x for x in reversed(powers)), *([0.0] if n_bins % 2 == 0 else []), *powers)
