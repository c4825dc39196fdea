"""The numbers and arrays that queries compute with, of any library."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.values import array_bytes, array_kind, is_extended, type_name

from .limits import PLAIN, check_bytes, check_length

NUMBERS = (bool, int, float, np.number, np.bool_)
LAST_NUMERIC: Final = np.dtype(np.clongdouble).num
"""NumPy numbers its own dtypes: bools, integers, floats and complex come first, half precision among the later ones."""


_namespaces: dict[type, Any] = {}


def namespace(value: Any) -> Any:
    """Return the array library of a value, by the array API standard; NumPy for plain numbers."""
    kind = type(value)
    if kind not in _namespaces:
        if array_kind(value) in (None, "numpy"):
            _namespaces[kind] = np
        else:
            from array_api_compat import array_namespace

            _namespaces[kind] = array_namespace(value)
    return _namespaces[kind]


def is_array(value: Any) -> bool:
    """Tell whether a value is an array of any library."""
    return array_kind(value) is not None


def is_numpy(value: Any) -> bool:
    """Tell whether a value is an array of NumPy's own numbers, for which there are short cuts."""
    return type(value) is np.ndarray and value.dtype.num <= LAST_NUMERIC


def operand(value: Any) -> Any:
    """Return a value that can be computed with: a number, or an array; sequences of numbers become arrays.

    Raises:
        RefusedQueryError: It is something else.
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


def _stack(values: list[Any] | tuple[Any, ...]) -> Any:
    """Make an array of numbers and arrays side by side."""
    check_length(values)
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


def _hint(value: Any) -> str:
    if isinstance(value, Mapping):
        return ". Use .map(lambda name, value: …) to compute with each of its values"
    return ""


def truth(value: Any) -> bool:
    """Return whether a condition holds.

    Raises:
        EvaluationError: It is no single value.
    """
    if is_array(value) and math.prod(value.shape) != 1:
        raise EvaluationError(f"Expected one truth value, got {type_name(value)}: write .any() or .all()")
    return bool(value)
