"""The names of lanes: their seeds, the digits of their keys, or the names that `init` was given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_names: Final[dict[str, int]] = {}


def number_of(name: str) -> int:
    """Return the number of a given name, the same for all loggers of the process."""
    return _names.setdefault(name, len(_names))


def name_of(words: Iterable[int]) -> str:
    """Return the name of a lane: its seed, the hexadecimal digits of its key, the name it was given, or empty.

    >>> name_of([0]), name_of([1, 7]), name_of([1, 0, 7]), name_of([1, 9, 7]), name_of([2, number_of("large")])
    ('', '7', '7', '0000000900000007', 'large')
    """
    kind, *digits = map(int, words)
    if not kind:
        return ""
    *high, low = digits
    if kind == 2:
        return list(_names)[low]
    return "".join(f"{word:08x}" for word in digits) if any(high) else str(low)
