"""Values of queries as they leave a compiled program: the arrays as outputs, the rest in a *form* on the host.

A form is the value with a hole for each array. Texts, shapes and the structure stay in it; on the host, the arrays that
left the program are put back into the holes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy.typing as npt

from sightglass.core.guarded import is_container, rebuild
from sightglass.core.values import array_kind

Value = Any
"""Any value of a query: an array, a text, or any container of these."""


@dataclass(frozen=True, slots=True)
class Hole:
    """Where an array was taken out of a value; `index` is its place among the outputs."""

    index: int


def take_arrays(value: Value, outputs: list[jax.Array]) -> Value:
    """Append the arrays of a value to the outputs, and return its form."""
    if array_kind(value) == "jax":
        raw = jax.random.key_data(value) if jnp.issubdtype(value.dtype, jax.dtypes.prng_key) else value
        # A copy: an array that the step also returns may be donated to the next call before it is read.
        outputs.append(jnp.copy(raw))
        return Hole(len(outputs) - 1)
    return _map_children(value, lambda child: take_arrays(child, outputs))


def fill(form: Value, outputs: Sequence[npt.NDArray[Any] | jax.Array]) -> Value:
    """Put the outputs into the holes of a form."""
    return outputs[form.index] if isinstance(form, Hole) else _map_children(form, lambda child: fill(child, outputs))


def _map_children(value: Value, change: Callable[[Value], Value]) -> Value:
    if is_container(value):
        return rebuild(value, change)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):  # for example a histogram on the device
        return dataclasses.replace(value, **{f.name: change(getattr(value, f.name)) for f in dataclasses.fields(value)})
    leaves, tree = jax.tree.flatten(value)  # for example a pytree class of the user's
    return value if jax.tree_util.treedef_is_leaf(tree) else tree.unflatten(map(change, leaves))
