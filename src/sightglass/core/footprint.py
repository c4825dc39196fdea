"""How much memory a value takes in this process, where `values.n_bytes` tells how much its data takes in a message."""

from __future__ import annotations

import sys
from typing import Final

from .values import EIGHT_BYTES, Value, array_kind, n_bytes

NUMBER_BYTES: Final = 32  # of a Python number, as the allocator rounds it
ARRAY_BYTES: Final = 144  # of an array beside its data: NumPy's header has 112, and malloc rounds
WRAPPED_BYTES: Final = 3 * ARRAY_BYTES  # of a histogram or images: one or two arrays, and what holds them


def footprint(value: Value) -> int:
    """Estimate how much memory a value takes: a small mapping four times as much as its numbers.

    The keys of mappings are not counted: the records of a stream share them.
    """
    cls: type = type(value)
    if cls in EIGHT_BYTES:
        return NUMBER_BYTES
    if cls is str or cls is bytes:
        return sys.getsizeof(value)
    if cls not in (list, tuple, dict):
        return n_bytes(value) + (ARRAY_BYTES if array_kind(value) else WRAPPED_BYTES)
    items = value.values() if cls is dict else value
    if EIGHT_BYTES.issuperset(map(type, items)):
        return sys.getsizeof(value) + NUMBER_BYTES * len(items)
    return sys.getsizeof(value) + sum(map(footprint, items))
