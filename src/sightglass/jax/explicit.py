"""Arrays on a mesh whose axes are explicit: how an array is divided between devices is then a part of its type.

JAX never guesses there: what a loop carries, what branches return and what is concatenated must be divided alike. So
whatever is made besides the user's own arrays is divided as these are. On other meshes and on one device, nothing here
changes a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike

from .pytree import PyTree


def on_mesh(array: Any) -> bool:
    """Return whether an array is on an explicit mesh, divided or not."""
    return _sharding(array) is not None


def division(array: Any) -> NamedSharding | None:
    """Return how an array, a tracer or a shape is divided on an explicit mesh; `None` if it is not."""
    sharding = _sharding(array)
    return None if sharding is None or all(part is None for part in sharding.spec) else sharding


def abstract(array: Any, *, lead: tuple[int, ...] = (), drop: int = 0, dtype: DTypeLike | None = None) -> Any:
    """Return the shape, dtype and, on an explicit mesh, sharding of an array.

    Args:
        array: An array, a tracer, or a shape.
        lead: The sizes of axes to put in front.
        drop: How many of the first axes to leave out.
        dtype: Another dtype.
    """
    sharding = _sharding(array)
    if sharding is not None:
        sharding = _like(sharding, *(None,) * len(lead), *_axes(sharding, array)[drop:])
    shape = (*lead, *array.shape[drop:])
    return jax.ShapeDtypeStruct(shape, array.dtype if dtype is None else dtype, sharding=sharding)


def filled(aval: Any, value: ArrayLike = 0, *, dtype: DTypeLike | None = None) -> jax.Array:
    """Return an array of one number, with the shape and the division of another."""
    return divided(jax.lax.full(aval.shape, value, aval.dtype if dtype is None else dtype), division(aval))


def repeated(array: Any, like: Any, n_axes: int) -> jax.Array:
    """Repeat an array along the first axes of another, divided as these are."""
    made = jnp.broadcast_to(array, (*np.shape(like)[:n_axes], *np.shape(array)))
    sharding, own = division(like), division(array)
    if sharding is None:
        return made
    return divided(made, _like(sharding, *_axes(sharding, like)[:n_axes], *(() if own is None else own.spec)))


def alike(arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """Divide all arrays as the first of them that is divided."""
    sharding = next((sharding for array in arrays if (sharding := division(array)) is not None), None)
    return [divided(array, sharding) for array in arrays]


def gathered(tree: PyTree, n_axes: int) -> Any:
    """Divide arrays no longer along their first axes."""

    def one(array: jax.Array) -> jax.Array:
        sharding = division(array)
        if sharding is None:
            return array
        return divided(array, _like(sharding, *(None,) * n_axes, *_axes(sharding, array)[n_axes:]))

    return jax.tree.map(one, tree)


def divided(array: jax.Array, sharding: NamedSharding | None) -> jax.Array:
    """Divide an array this way; `None` leaves it as it is."""
    if sharding is None or division(array) == sharding:
        return array
    return jax.sharding.reshard(array, sharding)


def _sharding(array: Any) -> NamedSharding | None:
    """Return the sharding in an array's type on an explicit mesh; `None` elsewhere."""
    sharding = getattr(jax.typeof(array) if isinstance(array, jax.Array) else array, "sharding", None)
    is_explicit = isinstance(sharding, NamedSharding) and jax.sharding.AxisType.Explicit in sharding.mesh.axis_types
    return sharding if is_explicit else None


def _axes(sharding: NamedSharding, array: Any) -> tuple[Any, ...]:
    """Return the mesh axes along which each axis of an array is divided."""
    spec = tuple(sharding.spec)
    return spec + (None,) * (len(array.shape) - len(spec))


def _like(sharding: NamedSharding, *spec: Any) -> NamedSharding:
    return NamedSharding(sharding.mesh, PartitionSpec(*spec))
