"""Values sown in one forward pass: mappings nested by module name, then by key.

Rule 1: a leaf is a tuple of the values sown under a key, in order, even if there is only one.
Rule 2: names are in natural order, `Block_2` before `Block_10`, inside and outside of compiled functions. JAX sorts the
keys of a plain dict that a compiled function returns as text, so these are `OrderedDict`s, whose order it keeps.
Rule 3: names are strings, also in NNX, where modules in a list have numbers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from .compat import nnx

Captured = OrderedDict[str, Any]
"""A collection: maps the name of a module to a nested collection, and a key to a tuple."""


def ordered(collection: Mapping[str | int, Any]) -> Captured:
    """Convert a collection of Linen or NNX according to these rules."""
    named = {str(name): value for name, value in collection.items()}
    return OrderedDict((name, _leaf(named[name])) for name in sorted(named, key=_natural))


def sown(collection: Mapping[str, Any], key: str) -> dict[str, tuple[Any, ...]]:
    """Return the values sown under a key in all modules.

    Args:
        collection: A captured collection, such as `meta["plots"]`.
        key: The key.

    Returns:
        The tuple of values of each module, by the module's path: its names joined by slashes, empty for the model
        itself. Paths are in natural order.

    >>> sown({"a": {"x": (1, 2)}, "b": {"c": {"x": (3,)}}, "x": (4,)}, "x")
    {'a': (1, 2), 'b/c': (3,), '': (4,)}
    """
    return dict(_found(collection, key, ()))


def _found(collection: Mapping[str, Any], key: str, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name in sorted(collection, key=_natural):
        value = collection[name]
        if isinstance(value, Mapping):
            yield from _found(value, key, (*path, name))
        elif name == key:
            # `sow` with a custom `reduce_fn` stores one value, and other frameworks pass lists.
            yield "/".join(path), tuple(value) if isinstance(value, tuple | list) else (value,)


def _leaf(value: object) -> object:
    if isinstance(value, nnx.Variable):
        return value.get_value()
    return ordered(value) if isinstance(value, Mapping) else value


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that compares the numbers in names as numbers.

    >>> sorted(["Block_10", "Block_2", "Attention"], key=_natural)
    ['Attention', 'Block_2', 'Block_10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)], name
