"""The numbers and arrays that queries compute with, of any library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.values import Value, array_bytes, array_kind, is_extended, type_name

from .limits import PLAIN, Total, check_bytes, check_length

NUMBERS = (bool, int, float, np.number, np.bool_)
LAST_NUMERIC: Final = np.dtype(np.clongdouble).num
"""NumPy numbers its own dtypes: bools, integers, floats and complex come first, half precision among the later ones."""


_namespaces: dict[type, Any] = {}


def namespace(value: object) -> Value:
    """Return the array library of a value as an array API namespace; NumPy for plain numbers."""
    kind = type(value)
    if kind not in _namespaces:
        if array_kind(value) in (None, "numpy"):
            _namespaces[kind] = np
        else:
            from array_api_compat import array_namespace

            _namespaces[kind] = array_namespace(value)
    return _namespaces[kind]


def is_array(value: object) -> bool:
    """Return whether a value is an array of any library."""
    return array_kind(value) is not None


def is_numpy(value: object) -> bool:
    """Return whether a value is a NumPy array of one of NumPy's own numeric dtypes, which have fast paths."""
    return type(value) is np.ndarray and value.dtype.num <= LAST_NUMERIC


def operand(value: Value) -> Value:
    """Return a number or an array; a sequence of numbers becomes an array.

    Raises:
        RefusedQueryError: The value is anything else.
    """
    if type(value) in PLAIN or is_numpy(value) or isinstance(value, NUMBERS):
        return value
    if array_kind(value):
        kind = getattr(value.dtype, "kind", "f")
        if kind in "OSUmMV" and not is_extended(value.dtype):
            raise RefusedQueryError(f"Expected an array of numbers, got dtype {value.dtype}")
        return value
    if isinstance(value, list | tuple):
        return _stack(value)
    raise RefusedQueryError(f"Expected a number or an array, got {type_name(value)}{_hint(value)}")


def _stack(values: list[Any] | tuple[Any, ...]) -> Value:
    """Stack numbers or arrays of one shape."""
    check_length(values)
    if any(isinstance(item, list | tuple) for item in values):
        Total().add(values)  # refuses too many items before arrays are made of them
    items = [operand(item) for item in values]
    first = next((item for item in items if is_array(item)), None)
    shapes = {tuple(getattr(item, "shape", ())) for item in items}
    if len(shapes) > 1:
        raise RefusedQueryError(f"Expected items of one shape, got {' and '.join(map(str, sorted(shapes)[:2]))}")
    if first is None:
        stacked = np.asarray(items)
        return operand(stacked) if items else stacked
    check_bytes(sum(array_bytes(item) for item in items if is_array(item)))
    xp = namespace(first)
    return xp.stack([item if is_array(item) and namespace(item) is xp else xp.asarray(item) for item in items])


def _hint(value: object) -> str:
    if isinstance(value, Mapping):
        return ". Use .map(lambda name, value: …) to compute with each value"
    return ""


def truth(value: Value) -> bool:
    """Return whether a condition holds.

    Raises:
        EvaluationError: The condition is an array of more than one item.
    """
    if is_array(value) and math.prod(value.shape) != 1:
        raise EvaluationError(f"Expected a single boolean, got {type_name(value)}: write .any() or .all()")
    return bool(value)
