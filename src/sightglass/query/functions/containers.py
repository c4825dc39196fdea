"""Functions of mappings, sequences and strings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sightglass.core.errors import (
    EvaluationError,
    PriceError,
    RefusedFunctionError,
    RefusedQueryError,
    SightglassError,
    UnknownNameError,
    UnsendableError,
)
from sightglass.core.program_values.guarded import KEYS, LostValue, built_in, exact, is_mapping, length, text
from sightglass.core.values import Value, array_kind, on_device, type_name
from sightglass.query.access import entries, has_key, item, opened
from sightglass.query.arrays import ArraySpec, is_array, namespace, readable, truth
from sightglass.query.costs import ITEM_NS, PICK_NS, OperationCost
from sightglass.query.limits import MAX_DEPTH, Total, check_count, check_length

from .table import function

SEQUENCES: Final = (list, tuple, str)
SCALARS: Final = frozenset((bool, int, float, str, type(None)))
FEW: Final = 50
"""NumPy chooses up to this part of the items as a set of places, more of them from a permutation of all."""
SET_NS: Final = 80.0
"""Nanoseconds for a place of a set."""
SHUFFLE_NS: Final = 12.0
"""Nanoseconds for an item of a permutation."""
EACH: Final = OperationCost(ns=ITEM_NS)

# Mappings and sequences


@function("len(x)", containers=True, of_spec=lambda x: x.shape[0] if x.shape else 0)
def _len(x: Value) -> Value:
    """Return the number of items."""
    if is_array(x) and len(x.shape):
        return int(x.shape[0])
    x = opened(x)
    n = length(x) if is_mapping(x) or built_in(x) in SEQUENCES else None
    if n is None:
        raise RefusedQueryError(f"Expected a mapping, a sequence, a string or an array, got {type_name(x)}")
    return n


def _entries(x: Value) -> list[tuple[Any, Any]]:
    x = opened(x)
    if not is_mapping(x):
        raise RefusedQueryError(f"Expected a mapping, got {type_name(x)}")
    return entries(x)


@function("keys(x)", containers=True, cost=EACH)
def _keys(x: Value) -> Value:
    """Return the keys of a mapping as a list."""
    return [key for key, _ in _entries(x)]


@function("values(x)", containers=True, cost=EACH)
def _values(x: Value) -> Value:
    """Return the values of a mapping as a list."""
    return [value for _, value in _entries(x)]


@function("items(x)", containers=True, cost=EACH)
def _items(x: Value) -> Value:
    """Return the (key, value) pairs of a mapping as a list."""
    return _entries(x)


@function("leaves(x)", containers=True, cost=EACH)
def _leaves(x: Value) -> Value:
    """Return the arrays in nested mappings, sequences and modules by their paths, such as "cell.weight".

    Numbers, texts and other objects are left out: what a module keeps beside its arrays is mostly its settings.
    """
    found: dict[str, Value] = {}
    _gather(x, (), found)
    return found


def _gather(x: Value, path: tuple[str, ...], found: dict[str, Value]) -> None:
    """Add the arrays below a value; `path` leads to it."""
    if is_array(x) or isinstance(x, LostValue):
        found[".".join(path)] = x
        check_length(found)
        return
    x = opened(x)
    if len(path) < MAX_DEPTH and (is_mapping(x) or built_in(x) in (list, tuple)):
        for name, value in each(x):
            _gather(value, (*path, str(name)), found)


def _sequence(x: Value) -> Value:
    if is_mapping(x):
        return _values(x)
    if built_in(x) in (list, tuple) or (is_array(x) and len(x.shape)):
        return x
    raise RefusedQueryError(f"Expected a mapping, a sequence or an array, got {type_name(x)}")


def _row(x: ArraySpec) -> ArraySpec:
    """Return the spec of an item: JAX copies it."""
    row = x.like(*x.shape[1:], owned=x.owned, strided=x.strided)
    return replace(row, owned=x.owned + row.n_bytes) if x.kind == "jax" else row


@function("first(x)", containers=True, cost=EACH, of_spec=_row)
def _first(x: Value) -> Value:
    """Return the first item of a mapping, a sequence or an array."""
    return item(_sequence(x), 0)


@function("last(x)", containers=True, cost=EACH, of_spec=_row)
def _last(x: Value) -> Value:
    """Return the last item of a mapping, a sequence or an array."""
    return item(_sequence(x), -1)


def _sample_cost(args: Sequence[Any], k: Value = None) -> tuple[tuple[int, ...], float]:
    shape, k = args[0].shape, args[1] if len(args) > 1 else k
    n = shape[0] if shape else 1
    if not isinstance(k, int) or k >= n:
        return shape, 0.0
    return (k, *shape[1:]), (SET_NS * k if k < n / FEW else SHUFFLE_NS * n) + PICK_NS * k * math.prod(shape[1:])


def _sample_bytes(shape: tuple[int, ...], k: Value = None) -> int:
    n = shape[0] if shape else 1
    if not isinstance(k, int) or k >= n:
        return 0
    return 64 * k if k < n / FEW else 8 * n


@function("sample(x, k)", containers=True, cost=OperationCost(shaped=_sample_cost, more_bytes=_sample_bytes))
def _sample(x: Value, k: Value) -> Value:
    """Return k random items in their original order. The choice depends on the number of items only."""
    x, k = _sequence(x), check_count(k, name="k")
    n = _len(x)
    if n <= k:
        return x
    places = np.sort(np.random.default_rng(n).choice(n, k, replace=False))
    if not is_array(x):
        return [item(x, int(i)) for i in places]
    if array_kind(x) == "numpy":
        return x[places]
    xp = namespace(x)
    return xp.take(x, xp.asarray(places), axis=0)


@function("contains(x, part)", containers=True, cost=OperationCost(ns=ITEM_NS, text_ns=2.0))
def _contains(x: Value, part: Value) -> Value:
    """Return whether a string, a sequence or the keys of a mapping contain a value."""
    if isinstance(x, str):
        return isinstance(part, str) and part in x
    if isinstance(part, bool | int | float | str | None):
        if is_mapping(x):
            return has_key(x, part)
        if built_in(x) in (list, tuple):
            # Other objects are not compared: their own code would decide.
            return any(type(one) in SCALARS and one == part for one in map(exact, _unpacked(x)))
    raise RefusedQueryError(f"Expected a string, a sequence or a mapping, got {type_name(x)}")


@function("startswith(text, start)", containers=True)
def _startswith(text: Value, start: Value) -> Value:
    """Return whether a string starts with another string."""
    return _text(text).startswith(_text(start))


@function("endswith(text, end)", containers=True)
def _endswith(text: Value, end: Value) -> Value:
    """Return whether a string ends with another string."""
    return _text(text).endswith(_text(end))


def _text(value: Value) -> str:
    if type(value) is str:
        return value
    raise RefusedQueryError(f"Expected a string, got {type_name(value)}")


def _unpacked(x: Value) -> list[Any]:
    """Return the items of a list or a tuple."""
    check_length(x)
    return list(list.__iter__(x) if issubclass(type(x), list) else tuple.__iter__(x))


def each(x: Value, first: int | None = None) -> Iterator[tuple[Any, Any]]:
    """Yield the (key, value) or (index, value) pairs that `map` and `filter` iterate over, or the first ones.

    To read an item takes microseconds, so items are read one by one, between two looks at the clock.
    """
    x = opened(x)
    if is_mapping(x):
        return ((_key(key), _part(value, key)) for key, value in entries(x, first))
    if built_in(x) in (list, tuple):
        return ((i, _part(value, i)) for i, value in enumerate(itertools.islice(_unpacked(x), first)))
    raise RefusedQueryError(f"Expected a mapping or a sequence to iterate over, got {type_name(x)}")


def _part(value: Value, key: object) -> Any:
    """Return an item for a lambda, which may not use it: the error of an array that cannot be read waits until then."""
    try:
        return readable(value, key)
    except SightglassError as error:
        return LostValue(str(error)) if is_array(value) else value


def _key(key: Value) -> Any:
    """Return a key that a lambda may compare: an object of the program as text."""
    key = exact(key)
    return key if type(key) in KEYS or issubclass(type(key), np.generic) else text(key)


ODD: Final = (EvaluationError, RefusedQueryError, UnknownNameError, UnsendableError)
"""What a lambda raises for an item that it cannot compute, such as a quantized tensor among dense ones."""
ENDS_ALL: Final = (PriceError, RefusedFunctionError)
"""Of these, what holds for all items: the event has no time left, or a function of the run is refused from now on."""


def costs_one_item(error: Exception) -> bool:
    """Return whether an error at one item of a mapping leaves the others as they are."""
    return isinstance(error, ODD) and not isinstance(error, ENDS_ALL)


LeaveOut = Callable[[dict[Any, str]], None]
"""Takes note of the items that are left out, each with the reason."""


def _no_note(items: dict[Any, str]) -> None:
    """Take no note."""


def _computed(x: Value, body: Callable[[Any, Any], Any], leave_out: LeaveOut) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the name of each item, the item, and what a lambda makes of it.

    Items of a mapping that it cannot compute are left out. The items of a list have no names: leaving one out would
    move the others.

    Raises:
        Exception: The error of the first item, if the lambda can compute none, or `x` is a list.
    """
    errors: dict[Any, Exception] = {}
    n_computed = 0
    for name, value in each(x):
        try:
            result = body(name, value)
        except Exception as error:
            if not (costs_one_item(error) and is_mapping(x)):
                raise
            errors[name] = error
        else:
            n_computed += 1
            yield name, value, result
    if errors:
        if not n_computed:
            raise next(iter(errors.values()))
        leave_out({name: str(error) for name, error in errors.items()})


@function("map(x, lambda name, value: …)", lambdas=True)
def _map(x: Value, body: Callable[[Any, Any], Any], leave_out: LeaveOut = _no_note) -> Value:
    """Return a mapping or a list of the results of a lambda, called for each item of a mapping or a sequence.

    A lambda of two arguments gets the key, or the index, and the value; a lambda of one argument gets the value. Items
    of a mapping that it cannot compute are left out, and named in the stream's note, unless it can compute none.
    """
    x = opened(x)
    results, total = [], Total()
    for name, value, result in _computed(x, body, leave_out):
        if result is not value:
            total.add(result)
            total.check()
        results.append((name, result))
    return dict(results) if is_mapping(x) else [result for _, result in results]


@function("filter(x, lambda name, value: …)", lambdas=True)
def _filter(x: Value, body: Callable[[Any, Any], Any], leave_out: LeaveOut = _no_note) -> Value:
    """Return the items of a mapping or a sequence for which a condition holds.

    The lambda is called as in `map`; its result must be on the host.
    """
    x = opened(x)
    decided = _computed(x, lambda name, value: _decided(body(name, value)), leave_out)
    kept = [(name, value) for name, value, holds in decided if holds]
    return dict(kept) if is_mapping(x) else [value for _, value in kept]


def _decided(condition: Value) -> bool:
    if on_device(condition):
        raise RefusedQueryError(
            "Expected a condition on the host in filter, got one on a device, which filter would have to wait for"
        )
    return truth(condition)
