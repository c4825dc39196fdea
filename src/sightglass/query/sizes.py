"""How many items an operation reads or makes, as far as the shapes of its operands tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.values import Value, array_kind

SIZED: Final = frozenset((list, tuple, dict, str, bytes))


def n_read(value: Value) -> int:
    """Return a number that grows with the work of reading a value."""
    if array_kind(value):
        return math.prod(value.shape)
    if type(value) in (list, tuple) and value and array_kind(value[0]):
        return sum(map(n_read, value))
    return len(value) if type(value) in SIZED else 1


def without(shape: tuple[int, ...], axis: object) -> tuple[int, ...]:
    """Return a shape without an axis or several; without any for `None`, or for axes that it does not have."""
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    if not all(isinstance(one, int) and -len(shape) <= one < len(shape) for one in axes):
        return ()
    gone = {one % len(shape) for one in axes}
    return tuple(n for i, n in enumerate(shape) if i not in gone)


def picks(index: Value) -> bool:
    """Return whether an index selects items one by one, so that they are copied."""
    parts = index if isinstance(index, tuple) else (index,)
    return not all(part is None or part is ... or isinstance(part, int | slice) for part in parts)


def n_broadcast(values: Sequence[Any]) -> int:
    """Return how many items arrays of several shapes have together; 0 if there is one shape."""
    shapes = {tuple(value.shape) for value in values if getattr(value, "ndim", 0)}
    if len(shapes) < 2:
        return 0
    try:
        return math.prod(np.broadcast_shapes(*shapes))
    except ValueError:
        return 0  # the expression itself says which shapes do not fit


def n_sliced(shape: tuple[int, ...], index: Any) -> int:
    """Return how many items of an array slices select, if they do not select all; 0 for other indices."""
    if picks(index):
        return 0
    try:
        n = int(np.broadcast_to(np.zeros((), np.bool_), shape)[index].size)
    except (IndexError, ValueError):
        return 0  # the array itself says what is wrong
    return n if n < math.prod(shape) else 0
