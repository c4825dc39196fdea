"""Operators on plain numbers, texts and arrays of texts.

Numbers follow IEEE 754, as arrays do: a division by zero gives infinity or NaN instead of an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.values import Value, type_name

from .arrays import is_texts
from .expressions import BINARY, UNARY
from .limits import MAX_TEXT, check_broadcast, check_int, check_power

APPLY: Final[dict[str, Callable[[Any, Any], Any]]] = {op: getattr(operator, name) for op, name in BINARY.items()}
APPLY_UNARY: Final[dict[str, Callable[[Any], Any]]] = {op: getattr(operator, name) for op, name in UNARY.items()}
COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))


def of_unary(op: str, value: Value) -> Value:
    """Return the result of an operator on one plain number."""
    if op == "~" and type(value) is bool:
        return not value
    return check_int(APPLY_UNARY[op](value))


def of_plain(op: str, a: Value, b: Value) -> Value:
    """Return the result of an operator on plain numbers."""
    apply = APPLY[op]
    if op == "**":
        check_power(a, b)
    try:
        result = apply(a, b)
    except (ZeroDivisionError, OverflowError):
        with np.errstate(all="ignore"):
            return apply(np.float64(a), np.float64(b)).item()
    return math.nan if type(result) is complex else check_int(result)


def of_texts(op: str, a: object, b: object) -> Value:
    """Return the result of an operator where an operand is a text, `None`, or an array of texts.

    Raises:
        RefusedQueryError: The operands cannot be compared or joined.
    """
    if op in ("==", "!=") and (is_texts(a) or is_texts(b)):
        return APPLY[op](*_items(a, b))
    if op in ("==", "!="):
        same = (type(a) is type(b) or (isinstance(a, str) and isinstance(b, str))) and a == b
        return same if op == "==" else not same
    if isinstance(a, str) and isinstance(b, str) and (op in COMPARISONS or (op == "+" and len(a) + len(b) <= MAX_TEXT)):
        return APPLY[op](a, b)
    raise RefusedQueryError(f"Expected numbers or arrays around {op!r}, got {type_name(a)} and {type_name(b)}")


def _items(a: Value, b: Value) -> tuple[Value, Value]:
    """Return operands that NumPy compares item by item, texts with texts in its own way."""
    check_broadcast(a, b)
    if all(isinstance(value, str) or (is_texts(value) and value.dtype.kind == "U") for value in (a, b)):
        return a, b
    return tuple(np.asarray(value, dtype=object) for value in (a, b))  # type: ignore[return-value]
