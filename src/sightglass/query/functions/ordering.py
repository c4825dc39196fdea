"""Functions that sort, search and pick."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.own_pieces import is_traced
from sightglass.core.values import Value, array_kind, on_device, type_name
from sightglass.query.arrays import few_texts, is_array, namespace, operand
from sightglass.query.costs import OperationCost
from sightglass.query.limits import check_count

from .dtypes import alike
from .elementwise import SEARCH_NS
from .shapes import ravel
from .table import function

SORT: Final = OperationCost(ns=5.0, result="same", copies=1.0, places=True, sorts=True)


def _search_cost(args: Sequence[Any], **kwargs: object) -> tuple[tuple[int, ...], float]:
    n_sorted, n = (math.prod(getattr(arg, "shape", ())) for arg in args)
    return getattr(args[1], "shape", ()), SEARCH_NS * n * max(1, n_sorted.bit_length())


def on_host(x: Value, name: str, instead: str) -> Value:
    """Return an array for a function whose result has a size that depends on values.

    Raises:
        RefusedQueryError: They are on a device: their number is known only when the device has computed them.
    """
    x = operand(x)
    x = x if is_array(x) else np.asarray(x)
    if is_traced(x) or on_device(x):
        raise RefusedQueryError(
            f"Expected an array on the host for {name}, got {type_name(x)}: "
            f"the size of the result depends on values. {instead}"
        )
    return x


@function("sort(x, axis=-1, descending=False)", cost=SORT)
def _sort(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """Return the items along an axis in ascending order, NaN last; or in the reverse of it."""
    x = _with_axes(x, "sort")
    xp = namespace(x)
    ordered = xp.sort(x, axis=axis)
    return xp.flip(ordered, axis=axis) if descending else ordered


@function(
    "argsort(x, axis=-1, descending=False)",
    cost=OperationCost(ns=9.0, result="same", copies=1.0, places=True, sorts=True),
)
def _argsort(x: Value, axis: int = -1, descending: bool = False) -> Value:
    """Return the indices that would sort the items along an axis; equal items keep their order, or its reverse."""
    x = _with_axes(x, "argsort")
    xp = namespace(x)
    places = np.argsort(x, axis=axis, kind="stable") if xp is np else xp.argsort(x, axis=axis, stable=True)
    return xp.flip(places, axis=axis) if descending else places


def _with_axes(x: Value, name: str) -> Value:
    x = operand(x)
    if not is_array(x) or not x.shape:
        raise RefusedQueryError(f"Expected an array for {name}, got {type_name(x)}")
    return x


@function("topk(x, k)", cost=OperationCost(ns=5.0, result="flat", copies=1.0, sorts=True))
def _topk(x: Value, k: Value) -> Value:
    """Return the k largest values, in descending order."""
    k, x = check_count(k, name="k"), ravel(x)
    xp, rest = namespace(x), max(0, x.shape[0] - k)
    if xp is np and rest > 0:
        x, rest = np.partition(x, rest)[rest:], 0
    ordered = xp.flip(xp.sort(x)[rest:], axis=0)
    return xp.asarray(ordered, copy=True) if rest else ordered  # the sorted array is not retained


@function("searchsorted(x, values)", cost=OperationCost(shaped=_search_cost, copies=1.0))
def _searchsorted(x: Value, values: Value) -> Value:
    """Return where values belong in a sorted array of one dimension: before the first item that is not smaller."""
    x, values, xp = alike(ravel(x), operand(values))
    return xp.searchsorted(x, values) if values.shape else xp.searchsorted(x, xp.reshape(values, (1,)))[0]


@function("nonzero(x)", cost=OperationCost(ns=8.0, copies=2.0))
def _nonzero(x: Value) -> Value:
    """Return the indices of the items that are not zero, one array for each axis."""
    x = on_host(x, "nonzero", "Write where(condition, x, y), or (x != 0).sum()")
    xp = namespace(x)
    if array_kind(x) == "numpy":
        return np.nonzero(np.atleast_1d(x))
    return tuple(xp.nonzero(x))


@function("unique(x)", cost=OperationCost(ns=5.0, copies=4.0, sorts=True))
def _unique(x: Value) -> Value:
    """Return the distinct values in ascending order, and how often each occurs, as two arrays; texts are a list."""
    if (found := few_texts(x)) is not None:
        counts = Counter(found.ravel().tolist())
        names = sorted(counts, key=lambda name: (name is None, name))
        return names, np.asarray([counts[name] for name in names])
    x = ravel(on_host(x, "unique", "Write bincount(x, size) for small integers, or x.histogram()"))
    if array_kind(x) == "numpy":
        return tuple(np.unique(x, return_counts=True))
    return tuple(namespace(x).unique_counts(x))
