"""What queries may compute with: numbers and arrays of any library, and what it would cost, known before it is paid.

Every function here looks at types, shapes and dtypes only: nothing is copied, moved or waited for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.values import array_bytes, array_kind, itemsize, type_name

MAX_RESULT_BYTES: Final = 64 * 2**20
MAX_BINS: Final = 1_000_000
MAX_ITEMS: Final = 10_000
MAX_CALLS: Final = 100_000
MAX_TEXT: Final = 64 * 1024

NUMBERS = (bool, int, float, np.number, np.bool_)

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


def operand(value: Any) -> Any:
    """Return a value that can be computed with: a number, or an array; sequences of numbers become arrays.

    Raises:
        RefusedQueryError: It is something else.
    """
    if isinstance(value, NUMBERS):
        return value
    if array_kind(value):
        if getattr(value.dtype, "kind", "f") in "OSUVmM" and "float" not in str(value.dtype):
            raise RefusedQueryError(f"Expected an array of numbers, got dtype {value.dtype}")
        return value
    if isinstance(value, list | tuple):
        check_length(value)
        items = [operand(item) for item in value]
        if any(is_array(item) for item in items):
            check_bytes(math.prod(getattr(items[0], "shape", ())) * len(items) * 8)
            first = next(item for item in items if is_array(item))
            xp = namespace(first)
            return xp.stack([xp.asarray(item) for item in items])
        return np.asarray(items)
    raise RefusedQueryError(f"Expected a number or an array, got {type_name(value)}{_hint(value)}")


def _hint(value: Any) -> str:
    if isinstance(value, Mapping):
        return ". Use .map(lambda name, value: …) to compute with each of its values"
    return ""


def check_length(value: Any) -> None:
    """Refuse to go through more than `MAX_ITEMS` items."""
    if len(value) > MAX_ITEMS:
        raise RefusedQueryError(f"Expected at most {MAX_ITEMS} items to go through, got {len(value)}")


def check_bytes(n_bytes: int, *, allowed: int = 0) -> None:
    """Refuse a result over `MAX_RESULT_BYTES`, unless it is no larger than what it is made from."""
    if n_bytes > max(MAX_RESULT_BYTES, allowed):
        raise RefusedQueryError(
            f"Expected a result of at most {MAX_RESULT_BYTES >> 20} MiB, got one of {n_bytes / 2**20:.0f} MiB"
        )


def check_broadcast(*values: Any) -> None:
    """Refuse an operation whose broadcast result would be enormous; looks at shapes only."""
    shapes = [tuple(value.shape) for value in values if hasattr(value, "shape")]
    if len(shapes) < 2 or all(shape == shapes[0] for shape in shapes):
        return
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise RefusedQueryError(f"Expected shapes that fit together, got {' and '.join(map(str, shapes))}") from error
    arrays = [value for value in values if hasattr(value, "shape")]
    width = max(itemsize(value.dtype) for value in arrays)
    check_bytes(math.prod(int(n) for n in shape) * width, allowed=max(map(array_bytes, arrays)))


def check_int(value: Any) -> Any:
    """Refuse a Python integer that outgrew 64 bits."""
    if type(value) is int and value.bit_length() > 64:
        raise RefusedQueryError(f"Expected integers of at most 64 bits, got one of {value.bit_length()} bits")
    return value


def check_power(base: Any, exponent: Any) -> None:
    """Refuse an integer power beyond 64 bits before it is computed."""
    if type(base) is int and type(exponent) is int and exponent > 0 and base.bit_length() * exponent > 128:
        raise RefusedQueryError(f"Expected integer powers of at most 64 bits, got {base} ** {exponent}")


def check_count(value: Any, *, name: str) -> int:
    """Return a number of bins or items, refusing what is no integer from 1 to `MAX_BINS`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MAX_BINS:
        raise RefusedQueryError(f"Expected {name} to be an integer from 1 to {MAX_BINS}, got {value!r}")
    return int(value)
