"""Arrays of which only the shape, the dtype and the library are known, and the shapes of what is made of them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sightglass.core.values import ArrayKind, Value, itemsize

from .costs import OperationCost
from .sizes import without


@dataclass(frozen=True, slots=True, kw_only=True)
class ArraySpec:
    """An array of which only the library, the shape and the dtype are known.

    Attributes:
        name: The name of the dtype.
        itemsize: The bytes of an item.
        owned: The bytes that computing it takes; 0 if it is a view or an observable.
        strided: Whether its items are not next to each other.
        reverse: Whether they are in the order of the first axis, as in Fortran.
    """

    shape: tuple[int, ...]
    dtype: Any
    kind: ArrayKind | None
    name: str
    itemsize: int
    device: bool = False
    owned: int = 0
    strided: bool = False
    reverse: bool = False

    @property
    def size(self) -> int:
        """The number of items."""
        return math.prod(self.shape)

    @property
    def n_bytes(self) -> int:
        """The number of bytes of its items."""
        return self.size * self.itemsize

    @property
    def width(self) -> int:
        """The bytes of an item of what functions make of it: of integers, most make float64."""
        return self.itemsize if "float" in self.name or "complex" in self.name else max(self.itemsize, 8)

    def like(self, *shape: int, owned: int = 0, strided: bool = False, reverse: bool = False) -> ArraySpec:
        """Return another shape with the same dtype, in the same place."""
        return ArraySpec(
            shape=shape, dtype=self.dtype, kind=self.kind, name=self.name, itemsize=self.itemsize, device=self.device,
            owned=owned, strided=strided, reverse=reverse,
        )  # fmt: skip

    def placeholder(self) -> Any:
        """Return an array of NumPy with this shape, and with the strides of contiguous memory.

        It has no memory, so an item must never be read. Index it with `...`, which makes views only.
        """
        order = self.shape if self.reverse else self.shape[::-1]
        strides = list(itertools.accumulate(order[:-1], operator.mul, initial=1))[: len(order)]
        strides = strides if self.reverse else strides[::-1]
        return np.lib.stride_tricks.as_strided(np.zeros((), np.bool_), self.shape, strides, writeable=False)


FLOATS: Final = ArraySpec(shape=(), dtype=np.dtype(np.float64), kind="numpy", name="float64", itemsize=8)
"""What a list of numbers becomes."""


class Unknown:
    """A value that only the evaluation finds: a text, the result of a function of the run."""


@lru_cache(maxsize=256)
def name_and_width(dtype: object) -> tuple[str, int]:
    """Return the name of a dtype of any library, and the bytes of an item."""
    return str(dtype).removeprefix("torch."), itemsize(dtype)


def result_shape(cost: OperationCost, arrays: list[ArraySpec], first: ArraySpec, axis: object) -> tuple[int, ...]:
    """Return the shape of the result of an operation."""
    match cost.result:
        case "each" if len(arrays) == 1 or all(spec.shape == first.shape for spec in arrays):
            return first.shape
        case "each":
            return tuple(np.broadcast_shapes(*(spec.shape for spec in arrays)))
        case "same":
            return first.shape
        case "reduce":
            return without(first.shape, axis)
        case "flat":
            return (first.size,)
    return ()


def is_strided(array: Value, kind: ArrayKind) -> bool:
    """Return whether the items of an array are not next to each other in memory."""
    if kind == "numpy":
        return not (array.flags.c_contiguous or array.flags.f_contiguous)
    return kind == "torch" and not array.is_contiguous()


def n_items_of(value: Any) -> int:
    """Return the number of items of an array or a sequence; 1 of anything else."""
    return value.size if isinstance(value, ArraySpec) else len(value) if isinstance(value, list | tuple) else 1


def is_mask(part: object) -> bool:
    """Return whether a part of an index is a condition."""
    return isinstance(part, ArraySpec) and "bool" in part.name


def reshaped(x: ArraySpec, sizes: list[Any]) -> tuple[int, ...]:
    """Return the shape that `reshape` makes."""
    shape = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
    if not all(isinstance(n, int) for n in shape) or sum(n == -1 for n in shape) > 1:
        return (x.size,)
    rest = math.prod(n for n in shape if n != -1)
    return tuple(x.size // max(1, rest) if n == -1 else n for n in shape)


def plain_arguments(args: list[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments after the first, without arrays."""
    return (
        [arg for arg in args[1:] if not isinstance(arg, ArraySpec | Unknown)],
        {key: arg for key, arg in kwargs.items() if not isinstance(arg, ArraySpec | Unknown)},
    )
