"""What a query may cost: the limits, and the checks that refuse what exceeds them before it is computed.

The checks read types, shapes and dtypes only: nothing is copied, moved to another device or waited for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.program_values.array_data import check_data
from sightglass.core.program_values.guarded import MAX_DEPTH as MAX_LEVELS
from sightglass.core.program_values.guarded import length, parts, text
from sightglass.core.values import Value, array_bytes, array_kind, itemsize, n_bytes, type_name

MAX_DEPTH: Final = 64  # well below Python's recursion limit: reading, writing and compiling a tree recurse
MAX_NODES: Final = 1_000  # an expression written by hand has fewer than 100; compiling one of 1,000 takes milliseconds
MAX_STAGES: Final = 32  # more than any query that people write; each costs a call for each event
MAX_TEXT: Final = 64 * 1024  # of a query, or a text in it: about what 1,000 nodes need with long names
MAX_INT_BITS: Final = 64  # what arrays, files and messages can hold; Python's own integers grow without a bound
MAX_RESULT_BYTES: Final = 64 * 2**20  # a snapshot of it takes about 10 ms
MAX_BINS: Final = 1_000_000  # 8 MB of counts
MAX_ITEMS: Final = 10_000  # more than the largest models have parameters; about 10 ms of Python
MAX_LEAVES: Final = 250_000  # at up to 256 bytes of Python objects each, as much as `MAX_RESULT_BYTES`
MAX_PARTS: Final = 20_000  # walked one by one, in about 20 ms of Python: two for each parameter of the largest models

PLAIN: Final = frozenset((float, int, bool))
FLAT: Final = PLAIN | {str, type(None), np.float64, np.float32, np.int64, np.int32, np.bool_}
BUILT_IN: Final = frozenset((list, tuple, dict))


def check_length(value: object) -> None:
    """Refuse to iterate over more than `MAX_ITEMS` items."""
    n = length(value)
    if n is None:
        raise EvaluationError(f"Expected {type_name(value)} to have a length")
    if n > MAX_ITEMS:
        raise RefusedQueryError(f"Expected at most {MAX_ITEMS} items to iterate over, got {n}")


def check_bytes(n_bytes: int, *, allowed: int = 0) -> None:
    """Refuse a result over `MAX_RESULT_BYTES`, unless it is at most `allowed` bytes, the size of an operand."""
    if n_bytes > max(MAX_RESULT_BYTES, allowed):
        raise RefusedQueryError(
            f"Expected a result of at most {MAX_RESULT_BYTES >> 20} MiB, got {n_bytes / 2**20:.0f} MiB"
        )


class Total:
    """The bytes and items of several results together; both are bounded.

    Containers of plain numbers and texts are counted at once, other parts one by one.
    """

    __slots__ = ("_max_parts", "n_bytes", "n_leaves", "n_parts")

    def __init__(self, max_parts: int = MAX_PARTS) -> None:
        self.n_bytes = self.n_leaves = self.n_parts = 0
        self._max_parts = max_parts

    def add(self, value: object) -> None:
        """Add everything a value contains; a part that it contains twice counts twice.

        Raises:
            RefusedQueryError: The results have more than `MAX_LEAVES` items or `max_parts` parts, contain themselves,
                or nest too deeply.
        """
        self._add(value, ())

    def _add(self, value: Value, inside: tuple[int, ...]) -> None:
        cls = type(value)
        if cls in PLAIN:
            self.n_bytes += 8
            return
        self.n_parts += 1
        n_inside, items = 0, value.values() if cls is dict else value
        if cls in BUILT_IN and not FLAT.issuperset(types := {*map(type, items)}):
            n_inside = len(value) - sum(map(FLAT.__contains__, map(type, items)))
        if self.n_parts + n_inside > self._max_parts:  # before any of them is looked at
            raise RefusedQueryError(f"Expected results of at most {self._max_parts} parts in all, got more")
        if cls in BUILT_IN and not n_inside:
            self._count(len(value))
            self.n_bytes += n_bytes(value) if str in types else 8 * len(value)
        elif (kind := array_kind(value)) is not None:
            check_data(value, kind)
            self.n_parts += kind != "numpy"  # other libraries take twice as long to copy a small array
            self.n_bytes += array_bytes(value)
        elif (found := parts(value)) is not None:
            if id(value) in inside:
                raise RefusedQueryError("Expected a value that can be copied, got one that contains itself")
            if len(inside) >= MAX_LEVELS:
                raise RefusedQueryError(f"Expected at most {MAX_LEVELS} levels of nesting, got more")
            self._count(found.size or 0)
            inside = (*inside, id(value))
            for _, item in found.pairs:
                self._count(found.size is None)
                self._add(item, inside)
        else:
            self.n_bytes += n_bytes(value)

    def _count(self, n_leaves: int) -> None:
        self.n_leaves += n_leaves
        if self.n_leaves > MAX_LEAVES:
            raise RefusedQueryError(f"Expected results of at most {MAX_LEAVES} items in all, got more")

    def check(self) -> None:
        """Refuse results of more than `MAX_RESULT_BYTES` in all."""
        check_bytes(self.n_bytes)


def check_broadcast(*values: Value) -> None:
    """Refuse an operation whose broadcast result would be too large; reads shapes only."""
    arrays = [value for value in values if type(value) not in PLAIN and hasattr(value, "shape")]
    if len(arrays) < 2:
        return
    shapes = [tuple(value.shape) for value in arrays]
    if all(shape == shapes[0] for shape in shapes):
        return
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise RefusedQueryError(
            f"Expected shapes that broadcast together, got {' and '.join(map(str, shapes))}"
        ) from None
    width = max(itemsize(value.dtype) for value in arrays)
    check_bytes(n_items(shape) * width, allowed=max(map(array_bytes, arrays)))


def n_items(shape: Iterable[Any]) -> int:
    """Return the number of items of a shape. An empty axis counts as one: a sum over it leaves the other axes."""
    return math.prod(max(1, int(n)) for n in shape)


def check_int(value: object) -> Value:
    """Refuse a Python integer of more than 64 bits."""
    if type(value) is int and value.bit_length() > MAX_INT_BITS:
        raise RefusedQueryError(f"Expected integers of at most 64 bits, got {value.bit_length()} bits")
    return value


def check_power(base: object, exponent: object) -> None:
    """Refuse an integer power of more than 64 bits before it is computed."""
    if type(base) is int and type(exponent) is int and exponent * (base.bit_length() - 1) > MAX_INT_BITS:
        shown = f"{base} ** {exponent}" if max(base.bit_length(), exponent.bit_length()) <= MAX_INT_BITS else "larger"
        raise RefusedQueryError(f"Expected integer powers of at most 64 bits, got {shown}")


def check_count(value: object, *, name: str) -> int:
    """Return a number of bins or items, or refuse a value that is not an integer from 1 to `MAX_BINS`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= MAX_BINS:
        raise RefusedQueryError(f"Expected {name} to be an integer from 1 to {MAX_BINS}, got {text(value, 100)}")
    return int(value)
