"""Functions of mappings, sequences and strings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.guarded import rebuild
from sightglass.core.values import Value, array_kind, on_device, type_name
from sightglass.query.arrays import is_array, namespace, truth
from sightglass.query.limits import Total, check_count, check_length

from .table import function

# Mappings and sequences


@function("len(x)")
def _len(x: Value) -> Value:
    """Return the number of items."""
    if isinstance(x, Mapping | list | tuple | str) or is_array(x):
        return len(x)
    raise RefusedQueryError(f"Expected a mapping, a sequence, a string or an array, got {type_name(x)}")


def _mapping(x: Value) -> Mapping[Any, Any]:
    if not isinstance(x, Mapping):
        raise RefusedQueryError(f"Expected a mapping, got {type_name(x)}")
    check_length(x)
    return x if type(x) is dict else rebuild(x, lambda item: item)


@function("keys(x)")
def _keys(x: Value) -> Value:
    """Return the keys of a mapping as a list."""
    return list(_mapping(x))


@function("values(x)")
def _values(x: Value) -> Value:
    """Return the values of a mapping as a list."""
    return list(_mapping(x).values())


@function("items(x)")
def _items(x: Value) -> Value:
    """Return the (key, value) pairs of a mapping as a list."""
    return list(_mapping(x).items())


def _sequence(x: Value) -> Value:
    if isinstance(x, Mapping):
        return list(_mapping(x).values())
    if isinstance(x, list | tuple) or (is_array(x) and len(x.shape)):
        return x
    raise RefusedQueryError(f"Expected a mapping, a sequence or an array, got {type_name(x)}")


@function("first(x)")
def _first(x: Value) -> Value:
    """Return the first item of a mapping, a sequence or an array."""
    return _sequence(x)[0]


@function("last(x)")
def _last(x: Value) -> Value:
    """Return the last item of a mapping, a sequence or an array."""
    return _sequence(x)[-1]


@function("sample(x, k)")
def _sample(x: Value, k: Value) -> Value:
    """Return k random items in their original order. The choice depends on the number of items only."""
    x, k = _sequence(x), check_count(k, name="k")
    if len(x) <= k:
        return x
    places = np.sort(np.random.default_rng(len(x)).choice(len(x), k, replace=False))
    if not is_array(x):
        return [x[i] for i in places]
    if array_kind(x) == "numpy":
        return x[places]
    xp = namespace(x)
    return xp.take(x, xp.asarray(places), axis=0)


@function("contains(x, part)")
def _contains(x: Value, part: Value) -> Value:
    """Return whether a string, a sequence or the keys of a mapping contain a value."""
    if isinstance(x, str):
        return isinstance(part, str) and part in x
    if isinstance(x, Mapping | list | tuple) and isinstance(part, bool | int | float | str | None):
        if not isinstance(x, Mapping):
            check_length(x)
        return part in x
    raise RefusedQueryError(f"Expected a string, a sequence or a mapping, got {type_name(x)}")


@function("startswith(text, start)")
def _startswith(text: Value, start: Value) -> Value:
    """Return whether a string starts with another string."""
    return _text(text).startswith(_text(start))


@function("endswith(text, end)")
def _endswith(text: Value, end: Value) -> Value:
    """Return whether a string ends with another string."""
    return _text(text).endswith(_text(end))


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    raise RefusedQueryError(f"Expected a string, got {type_name(value)}")


def each(x: Value) -> list[tuple[Any, Any]]:
    """Return the (key, value) or (index, value) pairs that `map` and `filter` iterate over."""
    if isinstance(x, Mapping):
        return list(_mapping(x).items())
    if isinstance(x, list | tuple):
        check_length(x)
        return list(enumerate(x))
    raise RefusedQueryError(f"Expected a mapping or a sequence to iterate over, got {type_name(x)}")


@function("map(x, lambda name, value: …)", lambdas=True)
def _map(x: Value, body: Callable[[Any, Any], Any]) -> Value:
    """Return a mapping or a list of the results of a lambda, called for each item of a mapping or a sequence.

    A lambda of two arguments gets the key, or the index, and the value; a lambda of one argument gets the value.
    """
    pairs = each(x)
    results, total = [], Total()
    for name, value in pairs:
        result = body(name, value)
        if result is not value:
            total.add(result)
            total.check()
        results.append(result)
    return dict(zip((name for name, _ in pairs), results, strict=True)) if isinstance(x, Mapping) else results


@function("filter(x, lambda name, value: …)", lambdas=True)
def _filter(x: Value, body: Callable[[Any, Any], Any]) -> Value:
    """Return the items of a mapping or a sequence for which a condition holds.

    The lambda is called as in `map`; its result must be on the host.
    """
    kept = [(name, value) for name, value in each(x) if _decided(body(name, value))]
    return dict(kept) if isinstance(x, Mapping) else [value for _, value in kept]


def _decided(condition: Value) -> bool:
    if on_device(condition):
        raise RefusedQueryError(
            "Expected a condition on the host in filter, got one on a device, which filter would have to wait for"
        )
    return truth(condition)
