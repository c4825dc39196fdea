"""Functions that compute each item of their result from one item of each argument."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.program_values.guarded import text
from sightglass.core.program_values.own_pieces import is_traced
from sightglass.core.values import Value, array_kind, on_device, type_name
from sightglass.query.access import APPLY, APPLY_UNARY
from sightglass.query.arrays import few_texts, is_array, is_numpy, namespace, operand
from sightglass.query.costs import ARITHMETIC_NS, PICK_NS, OperationCost, of_table
from sightglass.query.limits import check_broadcast, check_count, check_int

from .shapes import ravel
from .table import FUNCTIONS, Operation, alike, as_floating, astype, function

DTYPES: Final = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
SEARCH_NS: Final = 8.0
"""Nanoseconds of one comparison of a binary search, which is rarely in the cache."""
MAX_DECIMALS: Final = 300  # 10.0 ** 300 is still a float
SLOW: Final = dict.fromkeys(("exp", "expm1", "log", "log2", "log10", "log1p", "tanh"), 1.5) | {"sin": 8.0, "cos": 8.0}
"""Nanoseconds an item of the functions that take more than arithmetic; some arguments take ten times as long."""
ARITHMETIC: Final = OperationCost(ns=ARITHMETIC_NS, result="each")
SLOWER: Final = {
    op: OperationCost(ns=ns, result="each") for op, ns in (("**", 12.0), ("//", 11.0), ("%", 10.0), ("/", 0.7))
}
PICKED: Final = "[…]"
NEEDS_FLOAT = {"sqrt", "exp", "log", "log2", "log10", "log1p", "expm1", "tanh", "sin", "cos", "floor", "ceil"}


def _elementwise(name: str, doc: str, scalar: Callable[[Any], Any] | None = None) -> None:
    of_numpy, floating = getattr(np, name), name in NEEDS_FLOAT

    def call(x: Value) -> Value:
        if is_numpy(x):
            return of_numpy(x)
        if scalar is not None and type(x) in (int, float, bool):
            return scalar(x)
        x = operand(x)
        return getattr(namespace(x), name)(as_floating(x) if floating else x)

    call.__doc__ = doc
    function(
        f"{name}(x)",
        cost=OperationCost(
            ns=SLOW.get(name, ARITHMETIC_NS), kind="functions" if name in SLOW else "arithmetic", result="each"
        ),
    )(call)


_elementwise("abs", "The absolute value.", operator.abs)
_elementwise("sign", "-1, 0 or 1, by the sign.")
_elementwise("square", "The square.", lambda x: check_int(x * x))
_elementwise("sqrt", "The square root; NaN for negative numbers.")
_elementwise("exp", "The exponential, e to the power of x.")
_elementwise("expm1", "exp(x) - 1, accurate near 0.")
_elementwise("log", "The natural logarithm.")
_elementwise("log2", "The logarithm to base 2.")
_elementwise("log10", "The logarithm to base 10.")
_elementwise("log1p", "log(1 + x), accurate near 0.")
_elementwise("tanh", "The hyperbolic tangent.")
_elementwise("sin", "The sine of an angle in radians.")
_elementwise("cos", "The cosine of an angle in radians.")
_elementwise("floor", "The largest integer not above x.")
_elementwise("ceil", "The smallest integer not below x.")
_elementwise("isnan", "Whether a value is NaN.", math.isnan)
_elementwise("isinf", "Whether a value is infinite.", math.isinf)
_elementwise("isfinite", "Whether a value is neither NaN nor infinite.", math.isfinite)


OPERATORS: Final[dict[tuple[str, int], Operation]] = {
    **{(op, 1): Operation(call=call, cost=ARITHMETIC) for op, call in APPLY_UNARY.items()},
    **{(op, 2): Operation(call=call, cost=SLOWER.get(op, ARITHMETIC)) for op, call in APPLY.items()},
    (PICKED, 2): Operation(call=operator.getitem, cost=OperationCost(ns=PICK_NS, result="flat")),
}
"""By their names and numbers of operands: the operators, and picking items by their places or by a condition."""


def operation(name: str, n_operands: int) -> Operation:
    """Return what is known of a function or an operator."""
    return FUNCTIONS[name] if name in FUNCTIONS else OPERATORS[name, n_operands]


def _isin_cost(args: Sequence[Any], **kwargs: object) -> tuple[tuple[int, ...], float]:
    n, n_values = (math.prod(getattr(arg, "shape", ())) for arg in args)
    return getattr(args[0], "shape", ()), SEARCH_NS * (n + n_values) * max(1, n_values.bit_length())


@function("round(x, decimals=0)", cost=OperationCost(ns=1.5, result="each"))
def _round(x: Value, decimals: int = 0) -> Value:
    """Round to a number of decimals."""
    if type(decimals) is not int or abs(decimals) > MAX_DECIMALS:
        raise RefusedQueryError(f"Expected decimals from -{MAX_DECIMALS} to {MAX_DECIMALS}, got {text(decimals, 100)}")
    if type(x) in (float, int):
        return round(x, decimals)
    x, scale = operand(x), 10.0**decimals
    return namespace(x).round(x * scale) / scale if decimals else namespace(x).round(x)


@function("clip(x, low, high)", cost=ARITHMETIC)
def _clip(x: Value, low: Value = None, high: Value = None) -> Value:
    """Limit values to a range; `None` leaves an end open."""
    x, low, high = operand(x), *(None if end is None else operand(end) for end in (low, high))
    check_broadcast(x, *(end for end in (low, high) if is_array(end)))
    return namespace(x).clip(x, low, high)


@function("where(condition, x, y)", cost=OperationCost(ns=3.5, result="each"))
def _where(condition: Value, x: Value, y: Value) -> Value:
    """Return x where the condition holds, else y, element-wise."""
    if type(condition) is bool and not is_array(x) and not is_array(y):
        return x if condition else y  # texts, too
    condition, x, y = operand(condition), operand(x), operand(y)
    check_broadcast(condition, x, y)
    return _together("where", condition, x, y)


@function("maximum(x, y)", cost=ARITHMETIC)
def _maximum(x: Value, y: Value) -> Value:
    """Return the larger of two values, element-wise."""
    return _together("maximum", operand(x), operand(y))


@function("minimum(x, y)", cost=ARITHMETIC)
def _minimum(x: Value, y: Value) -> Value:
    """Return the smaller of two values, element-wise."""
    return _together("minimum", operand(x), operand(y))


def _together(name: str, *values: Value) -> Value:
    check_broadcast(*values)
    array = next((value for value in values if is_array(value)), values[0])
    xp = namespace(array)
    if xp is np:
        return getattr(np, name)(*values)[()]
    return getattr(xp, name)(*(value if is_array(value) else xp.asarray(value) for value in values))


@function("astype(x, dtype)", cost=OperationCost(ns=1.0, result="each", copies=1.0))
def _astype(x: Value, dtype: str) -> Value:
    """Convert to a type by its name in NumPy, such as "float32"."""
    if dtype not in DTYPES:
        raise RefusedQueryError(f"Expected one of {', '.join(DTYPES)}, got {text(dtype, 100)}")
    x = operand(x)
    xp = namespace(x)
    wanted = getattr(xp, dtype, None) or getattr(xp, f"{dtype}_")  # NumPy 1 calls it `bool_`
    return astype(x, wanted) if is_array(x) else np.asarray(x).astype(dtype)[()]


@function("isin(x, values)", cost=OperationCost(kind="sorting", shaped=_isin_cost, copies=4.0))
def _isin(x: Value, values: Value) -> Value:
    """Return for each item whether it is one of some values; texts, too."""
    if (wanted := few_texts(values)) is not None:
        return _are_in(x, wanted)
    x, values, xp = alike(operand(x), operand(values))
    if xp is np:
        return np.isin(x, values)
    values = xp.sort(xp.reshape(values, (-1,)))
    if not values.shape[0]:
        return xp.zeros_like(x, dtype=xp.bool)
    places = xp.searchsorted(values, xp.reshape(x, (-1,)))
    found = xp.take(values, xp.clip(places, 0, values.shape[0] - 1), axis=0)
    return xp.reshape(found, x.shape) == x


def _are_in(x: Value, wanted: Value) -> Value:
    """Return for a text, or for each item of an array or a list of texts, whether it is one of some texts."""
    known, found = set(wanted.ravel().tolist()), few_texts(x)
    if found is None:
        return isinstance(x, str) and x in known
    return np.fromiter((item in known for item in found.ravel().tolist()), bool, found.size).reshape(found.shape)


@function("float(x)", of_spec=lambda x: x.like())
def _float(x: Value) -> Value:
    """Return a number, or the only item of an array, as a float."""
    if not is_array(x):
        return float(operand(x))
    if math.prod(x.shape) != 1:
        raise RefusedQueryError(f"Expected a number or an array of one item, got {type_name(x)}")
    return namespace(x).reshape(as_floating(x), ())


# Functions that sort, search and pick.

SORT: Final = OperationCost(ns=5.0, kind="sorting", result="same", copies=1.0, places=True, sorts=True)


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
    cost=OperationCost(ns=9.0, kind="sorting", result="same", copies=1.0, places=True, sorts=True),
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


def _topk_cost(args: Sequence[Any], k: Value = None) -> tuple[tuple[int, ...], float]:
    n, k = math.prod(getattr(args[0], "shape", ())), args[1] if len(args) > 1 else k
    return (min(n, k) if isinstance(k, int) else n,), of_table(SORT, n)


@function("topk(x, k)", cost=OperationCost(kind="sorting", shaped=_topk_cost, copies=1.0))
def _topk(x: Value, k: Value) -> Value:
    """Return the k largest values, in descending order."""
    k, x = check_count(k, name="k"), ravel(x)
    xp, rest = namespace(x), max(0, x.shape[0] - k)
    if xp is np and rest > 0:
        x, rest = np.partition(x, rest)[rest:], 0
    ordered = xp.flip(xp.sort(x)[rest:], axis=0)
    return xp.asarray(ordered, copy=True) if rest else ordered  # the sorted array is not retained


@function("searchsorted(x, values)", cost=OperationCost(kind="sorting", shaped=_search_cost, copies=1.0))
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


@function("unique(x)", cost=OperationCost(ns=5.0, kind="sorting", copies=4.0, sorts=True))
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
