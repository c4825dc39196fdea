"""Indices out of bounds are errors on JAX arrays, too, of which JAX takes the nearest item.

What an index names is known on the host, and checked at once, or on a device. Then nothing waits for it: the smallest
and the largest place become a `Check`, which is read with the result of the event.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import EvaluationError
from sightglass.core.values import Value, array_kind, to_host

from .arrays import is_array

Check: TypeAlias = tuple[Value, Value, int, int, str]
"""The smallest and the largest place in an index, on a device; the axis, its length, and the expression. A tuple, so
that it travels with other values."""

ARRAY: Final = object()  # stands for an array in the form of an index
MAX_FORMS: Final = 256  # more than the queries of a run have


def item_of_jax(array: Value, parts: list[Any], expression: Callable[[], str], checks: list[Check] | None) -> Value:
    """Return an item of a JAX array.

    Args:
        array: The array.
        parts: The parts of the index.
        expression: Returns what errors show.
        checks: Where checks of places on a device go; `None` to wait for the device.

    Raises:
        EvaluationError: A place is out of bounds.
    """
    axis, on_device = 0, []
    n_rest = len(array.shape) - sum(map(n_axes, parts))
    for part in parts:
        if axis < len(array.shape) and not (part is None or part is ... or isinstance(part, slice)):
            if array_kind(part) != "jax":
                _check_on_host(np.asarray(part), axis, int(array.shape[axis]), expression)
            elif part.size:
                on_device.append((part, axis))
        axis += n_rest if part is ... else n_axes(part)
    if not on_device:
        return array[tuple(parts)]
    form = tuple(
        ARRAY if is_array(part) else (part.start, part.stop, part.step) if isinstance(part, slice) else part
        for part in parts
    )
    item, *ends = _picker(form)(array, [part for part in parts if is_array(part)], [part for part, _ in on_device])
    for (low, high), (_, axis) in zip(ends, on_device, strict=True):
        check = low, high, axis, int(array.shape[axis]), expression()
        if checks is None:
            confirm(check)
        else:
            checks.append(check)
    return item


@functools.lru_cache(maxsize=MAX_FORMS)
def _picker(form: tuple[Any, ...]) -> Callable[..., Any]:
    """Return a compiled function for an item and the ends of its index: outside of `jit`, it would be ten operations.

    Each of these takes 20 us, and JAX waits if more than 32 of them are under way on processors.
    """

    def pick(array: Value, named: list[Any], checked: list[Any]) -> Any:
        arrays = iter(named)
        parts = (next(arrays) if part is ARRAY else slice(*part) if type(part) is tuple else part for part in form)
        return array[tuple(parts)], *((places.min(), places.max()) for places in checked)

    return sys.modules["jax"].jit(pick)  # type: ignore[no-any-return]


def _check_on_host(named: npt.NDArray[Any], axis: int, n: int, expression: Callable[[], str]) -> None:
    if named.dtype == bool:
        return
    outside = named[(named < -n) | (named >= n)]
    if outside.size:
        confirm((outside.flat[0], outside.flat[0], axis, n, expression()))


def confirm(check: Check) -> None:
    """Read a check; waits for the device.

    Raises:
        EvaluationError: A place is out of bounds.
    """
    *ends, axis, n, expression = check
    for end in map(int, map(to_host, ends)):
        if not -n <= end < n:
            raise EvaluationError(f"{expression}: index {end} is out of bounds for axis {axis} with size {n}")


def n_axes(part: Value) -> int:
    """Return how many axes of an array one part of an index takes."""
    if part is None or part is ...:
        return 0
    return len(part.shape) if is_array(part) and "bool" in str(part.dtype) else 1
