"""Arrays over several processes: PyTorch's DTensors, and those of JAX over devices of several processes.

To compute with such an array itself, all processes would have to take part: a query that one of them evaluates would
wait for the others without end. So a query reads the piece that is on its process (`own_piece`). Where other processes
hold the same items, or other terms of their sum, the piece is marked, and `counts` says so.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Final, Literal

from sightglass.core.errors import UnreadableError

Array = Any
"""An array of any library."""

Mark = Literal["", "copy", "term"]
"""Whether another process counts for the items of a piece, or the piece is one term of a sum."""

MAX_LAYOUTS: Final = 4096  # of JAX's arrays: a model has as many as it has shapes


def own_piece(array: Array, kind: str) -> Array:
    """Return the piece of an array that is on this process, without a graph; of any other array, the array itself.

    Nothing is copied, sent or waited for.

    Args:
        array: The array, which is not deleted.
        kind: Its library, as `values.array_kind` names it.

    Raises:
        UnreadableError: The pieces on this process's devices make no array together.
    """
    cls: type = type(array)
    if kind == "torch" and is_distributed(cls):
        return _own_tensor(array)
    if kind == "jax" and not is_traced(array) and not getattr(array, "is_fully_addressable", True):
        return _own_jax_array(array)
    return array


def mark_of(array: Array) -> Mark:
    """Return the mark of a piece; empty for any other array."""
    mark: Mark = getattr(array, "sightglass_piece", "")
    return mark


def marked(piece: Array, mark: Mark) -> Array:
    """Mark a piece, and return it."""
    if mark:
        piece.sightglass_piece = mark
    return piece


def counts(array: Array) -> bool:
    """Return whether this process counts for the items of an array, when all processes count each item once.

    Raises:
        UnreadableError: The array is one term of a sum over processes, not a piece of the values.
    """
    mark = mark_of(array)
    if mark == "term":
        raise UnreadableError(
            "Expected an array whose sum over processes is made, got one term of it: before you offer it, redistribute "
            "a partial DTensor with Replicate() or Shard(dim), and reshard an unreduced JAX array"
        )
    return not mark


# PyTorch


@lru_cache(maxsize=1024)
def is_distributed(cls: type) -> bool:
    """Return whether a class is PyTorch's DTensor, wherever a version has it."""
    return any(base.__name__ == "DTensor" and base.__module__.startswith("torch.distributed") for base in cls.__mro__)


def _own_tensor(tensor: Array) -> Array:
    piece = tensor._local_tensor.detach()  # another object, which may carry a mark
    where = tensor.device_mesh.get_coordinate()
    placements = tensor.placements
    copied = where is None or any(i and one.is_replicate() for i, one in zip(where, placements, strict=True))
    if any(one.is_partial() for one in placements):
        return marked(piece, "term")
    return marked(piece, "copy" if copied else "")


# JAX


def is_traced(value: object) -> bool:
    """Return whether a value is an array of JAX that is not known yet."""
    cls: type = type(value)
    return _is_traced(cls)


@lru_cache(maxsize=1024)
def _is_traced(cls: type) -> bool:
    return any(base.__name__ == "Tracer" for base in cls.__mro__)


def _own_jax_array(array: Array) -> Array:
    layout, mark = _layout(array.sharding, tuple(array.shape))
    if layout is None:  # there is one piece here, perhaps on several devices
        return marked(array.addressable_data(0), mark)
    sharding, shape = layout
    parts = [array.addressable_data(i) for i in range(len(array.sharding.addressable_devices))]
    return marked(sys.modules["jax"].make_array_from_single_device_arrays(shape, sharding, parts), mark)


@lru_cache(maxsize=MAX_LAYOUTS)
def _layout(sharding: Any, shape: tuple[int, ...]) -> tuple[tuple[Any, tuple[int, ...]] | None, Mark]:
    """Return how the pieces on this process's devices make an array, `None` if they are all the same, and its mark."""
    first: dict[str, Any] = {}  # the device that counts for each piece: JAX's replica 0
    own = {}
    for device, index in sharding.devices_indices_map(shape).items():
        first.setdefault(str(index), device)
        if device in sharding.addressable_devices:
            own[str(index)] = device
    spec = getattr(sharding, "spec", None)
    term = bool(getattr(spec, "unreduced", ()))
    copied = all(first[index] not in sharding.addressable_devices for index in own)
    mark: Mark = "term" if term else "copy" if copied else ""
    return (None if len(own) == 1 else _together(sharding, spec, shape)), mark


def on_one_device(array: Array) -> list[Array]:
    """Return the parts of a JAX array, which is not traced, on one of its devices, each item in one of them.

    They are copied there one by one: a program on all devices would wait for those that a step of the training uses.
    """
    devices = array.sharding.device_set
    if len(devices) == 1:
        return [array]
    parts = [shard.data for shard in array.addressable_shards if shard.replica_id == 0]
    (place,) = parts[0].devices()
    return [sys.modules["jax"].device_put(part, place) for part in parts]


def _together(sharding: Any, spec: Any, shape: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Return the sharding and the shape of the array that the pieces on this process's devices make.

    Raises:
        UnreadableError: They make none.
    """
    named = sys.modules["jax"].sharding.NamedSharding
    try:
        mesh = sharding.mesh.local_mesh
    except (AttributeError, ValueError, AssertionError):
        raise UnreadableError(
            "Expected a JAX array over several processes whose devices of one process are a block of its mesh, got "
            f"the sharding {sharding}: offer its shards, x.addressable_shards"
        ) from None
    mesh = sys.modules["jax"].sharding.Mesh(mesh.devices, mesh.axis_names)  # whose axes are as JAX likes: "auto"
    sizes = list(sharding.shard_shape(shape))
    for axis, names in enumerate(spec):
        for name in () if names is None else names if isinstance(names, tuple) else (names,):
            sizes[axis] *= mesh.shape[name]
    return named(mesh, sys.modules["jax"].sharding.PartitionSpec(*spec)), tuple(sizes)
