"""What was sown in one pass: mappings nested by the modules' names, then by key.

Rule 1: a leaf is the tuple of what was sown under a key, in order; one value makes a tuple of one.
Rule 2: names stand in natural order, `Block_2` before `Block_10`, whatever the pass went through. JAX sorts the keys of
plain dicts as text wherever one leaves a compiled function, so these are `OrderedDict`s, which it leaves alone.
Rule 3: names are text, in NNX too, where the modules in a list have numbers.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any

from .compat import nnx

Captured = OrderedDict[str, Any]
"""A collection: by the name of a module another one, by key a tuple."""


def ordered(collection: Mapping[Any, Any]) -> Captured:
    """Return a collection as Flax hands it out, Linen's or NNX's, by these rules."""
    named = {str(name): value for name, value in collection.items()}
    return OrderedDict((name, _leaf(named[name])) for name in sorted(named, key=_natural))


def sown(collection: Mapping[str, Any], key: str) -> dict[str, tuple[Any, ...]]:
    """Return everything that was sown under a key, wherever that was.

    Args:
        collection: What was captured, such as `meta["plots"]`.
        key: The key.

    Returns:
        What each module has sown, in order, by the module's path: its names with slashes between them, empty for the
        model itself. The paths stand in natural order.

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
            # What was sown with a `reduce_fn` of its own is one value, and other frameworks hand in lists.
            yield "/".join(path), tuple(value) if isinstance(value, tuple | list) else (value,)


def _leaf(value: Any) -> Any:
    if isinstance(value, nnx.Variable):
        return value.get_value()
    return ordered(value) if isinstance(value, Mapping) else value


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return what to sort names by, so that their numbers count as numbers.

    >>> sorted(["Block_10", "Block_2", "Attention"], key=_natural)
    ['Attention', 'Block_2', 'Block_10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)], name
