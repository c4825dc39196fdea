"""The table of the functions that queries may call, and the check of a call's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core.errors import QuerySyntaxError, closest
from sightglass.core.values import Value, array_kind, is_extended
from sightglass.query import expressions as e
from sightglass.query.arrays import is_array, namespace
from sightglass.query.costs import PLAIN_COST, OperationCost
from sightglass.query.reduce.table import ENTRIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What evaluation, prices and the specs of results know of an operator or a function.

    Attributes:
        call: The implementation.
        cost: What it costs.
        containers: Whether it reads mappings, lists and texts as they are; others make an array of a list.
        of_spec: Where it computes nothing of the items of an array: from its spec and the other arguments, the result,
            a view or a copy as its spec. `None`: the cost tells what it takes, and the shape of the result.
    """

    call: Callable[..., Any]
    cost: OperationCost = PLAIN_COST
    containers: bool = False
    of_spec: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFunction(Operation):
    """A named function of the query language.

    Attributes:
        name: The name that queries call.
        doc: The docstring, one paragraph.
        signature: The signature for users, such as "mean(x, axis=None)".
        method: Whether the text of a query writes it as a method of its first argument: `x.mean()`.
        lambdas: Whether its second argument is a lambda.
    """

    name: str
    doc: str
    signature: str
    method: bool
    lambdas: bool = False


FUNCTIONS: dict[str, QueryFunction] = {}
WINDOW_NAMES: Final = ("every", "per", "when", "by")  # of reducers, which some functions share their names with
LAST: Final = ("last", "n", "window", "periods")  # what people call the length of a sliding window


def check_call(tree: e.Call) -> None:
    """Check the arguments of a call of one of `FUNCTIONS`.

    Raises:
        QuerySyntaxError: The function does not take them.
    """
    function = FUNCTIONS[tree.name]
    check_arguments(function.call, tree, function.signature)
    for place, arg in enumerate(tree.args):
        if isinstance(arg, e.Lambda) != (function.lambdas and place == 1):
            what = "a value, got a lambda" if isinstance(arg, e.Lambda) else "a lambda, got a value"
            raise QuerySyntaxError(f"Wrong arguments for {function.signature}: argument {place + 1} must be {what}")


def check_arguments(function: Callable[..., Any], tree: e.Call, signature: str) -> None:
    """Check the arguments of a call against a function's signature, where it has one.

    Raises:
        QuerySyntaxError: The function does not take them.
    """
    try:
        taken = inspect.signature(function)
    except ValueError:
        return  # a built-in function without a signature
    try:
        taken.bind(*tree.args, **dict(tree.kwargs))
    except TypeError as error:
        wrong = next((name for name, _ in tree.kwargs if name not in taken.parameters), "")
        meant = closest(wrong, (*taken.parameters, *WINDOW_NAMES))
        hint = f". Did you mean {meant!r}?" if meant and meant != wrong else ""
        if wrong in (*WINDOW_NAMES, *LAST):
            hint = f". {over_events(tree.name)}"
        raise QuerySyntaxError(f"Wrong arguments for {signature}: {error}{hint}") from None


def over_events(name: str) -> str:
    """Return how a reducer is written that is meant by a function's call."""
    written = AS_REDUCER.get(name, f"{name}(")
    if written.endswith("("):
        return (
            f"Over events, write a reducer with a window at the end of the query: .{written}every=100), "
            f".{written}per='epoch'), or .rolling(100).{written}) for the last 100"
        )
    return f"Over events, write a reducer with a window at the end of the query: .{written}, every=100)"


AS_REDUCER: Final = {
    "topk": "top(3", "sort": "collect(1000", "unique": "distinct(1000",
    **{name: f"{name}({entry.example}" for name, entry in ENTRIES.items()},
}  # fmt: skip
"""How reducers are written that have other arguments or names than functions of a value."""


def function(signature: str, **known: Any) -> Callable[[Callable[..., Any]], Any]:
    """Register a function under the name in its signature; its docstring is the users' reference.

    Args:
        signature: As users read it.
        known: What else `QueryFunction` says of it.
    """

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        name = signature.partition("(")[0]
        doc = " ".join((call.__doc__ or "").split())
        FUNCTIONS[name] = QueryFunction(
            name=name, call=call, doc=doc, signature=signature, method=name in e.METHODS, **known
        )
        return call

    return register


def axis_for_dim(kwargs: tuple[tuple[str, e.Expr], ...]) -> tuple[tuple[str, e.Expr], ...]:
    """Return keyword arguments with `axis` where PyTorch's name of it, `dim`, was written."""
    return tuple(("axis" if key == "dim" else key, value) for key, value in kwargs)


# Conversions between dtypes, in the array's own library.

FLOATING: Final = frozenset("fc")
FULL: Final = frozenset(np.dtype(kind).num for kind in (np.float32, np.float64, np.complex64, np.complex128))


def as_floating(x: Value) -> Value:
    """Convert integers and bools to the library's default float, as NumPy does, but not PyTorch and the array API."""
    if not is_array(x) or getattr(x.dtype, "kind", "") in FLOATING:
        return x
    if not any(kind in str(x.dtype) for kind in ("float", "complex")):
        xp = namespace(x)
        return astype(x, xp.float64 if xp is np else xp.float32)
    return x


def as_single(x: Value) -> Value:
    """Convert half precision to single, whose sums of squares do not overflow."""
    if getattr(x.dtype, "num", None) in FULL:
        return x
    half = "float16" in str(x.dtype) or (array_kind(x) == "numpy" and is_extended(x.dtype))
    return astype(x, namespace(x).float32) if half else x


def astype(x: Value, dtype: Value) -> Value:
    """Convert to another dtype of the array's library."""
    return x.astype(dtype) if array_kind(x) == "numpy" else namespace(x).astype(x, dtype)


def alike(x: Value, y: Value) -> tuple[Any, Any, Any]:
    """Return two values as arrays of one library and dtype, and that library."""
    xp = namespace(x if is_array(x) else y)
    x, y = (one if is_array(one) and namespace(one) is xp else xp.asarray(one) for one in (x, y))
    if x.dtype != y.dtype:
        wanted = xp.result_type(x, y)
        x, y = astype(x, wanted), astype(y, wanted)
    return x, y, xp
