"""Read logged values on the host."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from sightglass.core.values import to_host
from sightglass.jax.pytree import PyTree

from .columns import no_step
from .reduction import fit, is_number


def read(tree: PyTree) -> Any:
    """Read a tree of arrays into NumPy arrays, in new containers; PRNG keys become their data.

    Raises:
        TypeError: A leaf is traced.
    """

    def ready(leaf: object) -> Any:
        if isinstance(leaf, jax.core.Tracer):
            raise TypeError(
                f"Expected arrays to read on the host, got the tracer {leaf}: return the logs and read them then"
            )
        return jax.random.key_data(leaf) if hasattr(leaf, "dtype") and not is_number(leaf.dtype) else leaf

    return jax.tree.map(np.asarray, jax.device_get(jax.tree.map(ready, tree)))


def row(value: PyTree, i: int, ok: npt.NDArray[np.bool_] | None) -> Any:
    """Return one event; as a masked array if it happened in some lanes only."""

    def take(x: npt.NDArray[Any]) -> Any:
        if ok is None or ok[i].all():
            return x[i]
        return np.ma.masked_array(x[i], np.broadcast_to(~fit(ok, x)[i], x[i].shape))

    return jax.tree.map(take, value)


def plain(value: PyTree) -> Any:
    """Convert to the value of a record: a scalar, array, histogram, or container of these; masked lanes become NaN."""

    def of(node: object) -> Any:
        if isinstance(node, np.ma.MaskedArray):
            return np.where(np.ma.getmaskarray(node), np.nan, node.data)
        return node.read() if hasattr(node, "read") else to_host(node)

    return jax.tree.map(of, value, is_leaf=lambda node: hasattr(node, "read"))


def is_missing(step: npt.NDArray[Any]) -> bool:
    """Return whether an event was logged without this step."""
    if step.dtype.kind in "iu":
        return bool(np.all(step == no_step(step)))
    return bool(np.all(np.isnan(step) | (step == jnp.finfo(step.dtype).min)))
