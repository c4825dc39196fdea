"""What queries may compute with: numbers and arrays of any library, and what it would cost, known before it is paid.

Every function here looks at types, shapes and dtypes only: nothing is copied, moved or waited for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.values import array_bytes, array_kind, is_extended, itemsize, n_bytes, type_name

from .expressions import MAX_INT_BITS

MAX_RESULT_BYTES: Final = 64 * 2**20
MAX_WORK_BYTES: Final = 8 * 2**30
MAX_WORK_STEPS: Final = 1_000_000
MAX_BINS: Final = 1_000_000
MAX_ITEMS: Final = 10_000
MAX_LEAVES: Final = 250_000
MAX_TEXT: Final = 64 * 1024

NUMBERS = (bool, int, float, np.number, np.bool_)
PLAIN: Final = frozenset((float, int, bool))
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


class Total:
    """What several results hold together: bytes and items, both bounded."""

    __slots__ = ("n_bytes", "n_leaves")

    def __init__(self) -> None:
        self.n_bytes = self.n_leaves = 0

    def add(self, value: Any) -> None:
        """Count all that a value holds; a part that it holds twice counts twice.

        Raises:
            RefusedQueryError: It is more than `MAX_LEAVES`.
        """
        stack = [value]
        while stack:
            part = stack.pop()
            if type(part) in PLAIN:
                self.n_bytes += 8
            elif array_kind(part):
                self.n_bytes += array_bytes(part)
            elif isinstance(part, Mapping | list | tuple):
                self.n_leaves += len(part)
                if self.n_leaves > MAX_LEAVES:
                    raise RefusedQueryError(f"Expected results of at most {MAX_LEAVES} items in all, got more")
                stack.extend(part.values() if isinstance(part, Mapping) else part)
            else:
                self.n_bytes += n_bytes(part)

    def check(self) -> None:
        """Refuse what is over `MAX_RESULT_BYTES`."""
        check_bytes(self.n_bytes)


def check_broadcast(*values: Any) -> None:
    """Refuse an operation whose broadcast result would be enormous; looks at shapes only."""
    arrays = [value for value in values if type(value) not in PLAIN and hasattr(value, "shape")]
    if len(arrays) < 2:
        return
    shapes = [tuple(value.shape) for value in arrays]
    if all(shape == shapes[0] for shape in shapes):
        return
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise RefusedQueryError(f"Expected shapes that fit together, got {' and '.join(map(str, shapes))}") from None
    width = max(itemsize(value.dtype) for value in arrays)
    check_bytes(n_items(shape) * width, allowed=max(map(array_bytes, arrays)))


def n_items(shape: Iterable[Any]) -> int:
    """Return how many items a shape has, an empty axis counted as one: a sum over it brings the others to life."""
    return math.prod(max(1, int(n)) for n in shape)


def truth(value: Any) -> bool:
    """Return whether a condition holds.

    Raises:
        EvaluationError: It is no single value.
    """
    if is_array(value) and math.prod(value.shape) != 1:
        raise EvaluationError(f"Expected one truth value, got {type_name(value)}: write .any() or .all()")
    return bool(value)


def check_int(value: Any) -> Any:
    """Refuse a Python integer that outgrew 64 bits."""
    if type(value) is int and value.bit_length() > MAX_INT_BITS:
        raise RefusedQueryError(f"Expected integers of at most 64 bits, got one of {value.bit_length()} bits")
    return value


def check_power(base: Any, exponent: Any) -> None:
    """Refuse an integer power beyond 64 bits before it is computed."""
    if type(base) is int and type(exponent) is int and exponent * (base.bit_length() - 1) > MAX_INT_BITS:
        raise RefusedQueryError(f"Expected integer powers of at most 64 bits, got {base} ** {exponent}")


def check_count(value: Any, *, name: str) -> int:
    """Return a number of bins or items, refusing what is no integer from 1 to `MAX_BINS`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MAX_BINS:
        raise RefusedQueryError(f"Expected {name} to be an integer from 1 to {MAX_BINS}, got {value!r}")
    return int(value)
