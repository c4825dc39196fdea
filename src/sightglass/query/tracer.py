"""Trace Python lambdas: call them with a symbolic argument and record an expression tree.

The argument is a proxy that records every operation. No source is inspected and no code is sent. Operations that Python
would decide at once, which would freeze their result into the query, raise an error that says what to write instead:
`if`, `and`, `or`, `not`, `in`, `len()`, `for`, `float()`. The proxy cannot see `is` and `isinstance`: do not use them
in queries.
"""

from __future__ import annotations

import inspect
import keyword
import math
import unicodedata
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, NoReturn

import numpy as np

from sightglass.core.errors import QuerySyntaxError, RefusedQueryError, unknown
from sightglass.core.values import Value

from . import expressions as e
from .functions import FUNCTIONS, axis_for_dim, check_call
from .limits import MAX_DEPTH

INSTEAD = {
    "__bool__": "A query cannot decide with `if`, `and`, `or`, `not` or a chained comparison: "
    "write where(condition, x, y), maximum(x, y), `&`, `|`, `~`, or a .where(lambda …) stage",
    "__contains__": "A query cannot use `in`: write .contains(x)",
    "__len__": "A query cannot use len(): write .len(), or sightglass.fn.len(x)",
    "__iter__": "A query cannot loop or unpack: write .map(lambda name, value: …), or x[0], x[1]; "
    "instead of sum(x), any(x), sorted(x) and the like x.sum(), x.any(), x.sort()",
    "__float__": "A query cannot convert a symbolic value to a float: leave the value as it is; "
    "instead of math.sqrt(x) and the like write sightglass.fn.sqrt(x)",
    "__int__": "A query cannot convert a symbolic value to an int: write .round() or sightglass.fn.floor(x)",
    "__index__": "A query cannot use a symbolic value as the index of a Python object",
    "__str__": "A query cannot convert a symbolic value to a string",
    "__format__": "A query cannot format a symbolic value: return the value itself",
    "__array__": "A query cannot convert a symbolic value to an array: use the value's own methods",
    "__divmod__": "A query cannot use divmod(): write (x // y, x % y)",
    "__hash__": "A query cannot look up a symbolic value in a Python set or mapping",
    "__reduce_ex__": "A query cannot copy or pickle a symbolic value",
}

UFUNCS = {
    "absolute": "abs", "fabs": "abs", "rint": "round", "negative": "-", "positive": "+", "invert": "~", "add": "+",
    "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "power": "**",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "less": "<", "less_equal": "<=", "equal": "==",
    "not_equal": "!=", "greater": ">", "greater_equal": ">=",
}  # fmt: skip
NAMED_CONSTANTS = {"nan": math.nan, "inf": math.inf}
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
LOGICAL = {"logical_and": "&", "logical_or": "|", "logical_xor": "^"}
ARRAY_FUNCTIONS = {"amin": "min", "amax": "max", "around": "round", "concatenate": "concat"}
OTHERWISE = {
    "unique": "write x.unique(), which gives the values and their counts",
    "cov": "write sightglass.fn.cov(x, y), which gives a number for two arrays",
    "corrcoef": "write sightglass.fn.corr(x, y), which gives a number for two arrays",
}
"""The functions of NumPy that give something else than the function of that name in a query."""


class PrivateNameError(QuerySyntaxError, AttributeError):
    """A name with a leading underscore in a query; also an `AttributeError`, so that `hasattr` returns `False`."""


class _Symbol:
    """A symbolic value: records the operations on it. Only `trace` makes them."""

    __slots__ = ("_tree",)
    __array_priority__ = 1000

    def __init__(self, tree: e.Expr) -> None:
        object.__setattr__(self, "_tree", tree)

    def __getattr__(self, name: str) -> _Symbol:
        if name.startswith("_"):
            raise PrivateNameError(
                f"Expected a public name in a query, got {name!r}: names with a leading underscore are refused"
            )
        return _Symbol(e.Attr(_tree(self), _identifier(name)))

    def __setattr__(self, name: str, value: object = None) -> NoReturn:
        raise RefusedQueryError(f"A query cannot set {name!r}: it only reads. To change the run, use run.set")

    __delattr__ = __setitem__ = __delitem__ = __setattr__

    def __getitem__(self, index: object) -> _Symbol:
        return _Symbol(e.Item(_tree(self), as_index(index)))

    def __call__(self, *args: object, **kwargs: object) -> _Symbol:
        tree = _tree(self)
        if not isinstance(tree, e.Attr):
            raise RefusedQueryError(f"A query can only call named functions, not {_shown(tree)}")
        if tree.name not in FUNCTIONS:
            raise QuerySyntaxError(unknown("function", tree.name, FUNCTIONS, where="called on a value"))
        return call(tree.name, (_Symbol(tree.target), *args), kwargs)

    def __array_ufunc__(self, ufunc: Value, method: str, *inputs: Value, **kwargs: Value) -> _Symbol:
        name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or kwargs:
            raise RefusedQueryError(
                f"A query can use numpy.{ufunc.__name__} as a plain function only, without {method} or options"
            )
        if ufunc.__name__ in LOGICAL:  # on numbers, `&` is bitwise
            truths = (e.Binary("!=", as_tree(value), e.Const(0)) for value in inputs)
            return _Symbol(e.Binary(LOGICAL[name], *truths))
        if name == "logical_not":
            return _Symbol(e.Binary("==", as_tree(inputs[0]), e.Const(0)))
        if name in e.UNARY and len(inputs) == 1:
            return _Symbol(e.Unary(name, as_tree(inputs[0])))
        if name in e.BINARY:
            return _Symbol(e.Binary(name, as_tree(inputs[0]), as_tree(inputs[1])))
        return call(name, inputs, {}, what=f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Value, types: Value, args: Value, kwargs: Value) -> _Symbol:
        name = ARRAY_FUNCTIONS.get(function.__name__, function.__name__)
        if name in OTHERWISE:
            raise QuerySyntaxError(f"A query cannot use numpy.{name}: {OTHERWISE[name]}")
        return call(name, args, kwargs, what=f"numpy.{function.__name__}")

    def __repr__(self) -> str:
        return f"<symbolic {_shown(_tree(self))}>"

    def __abs__(self) -> _Symbol:
        return call("abs", (self,), {})

    def __round__(self, decimals: int = 0) -> _Symbol:
        return call("round", (self, decimals) if decimals else (self,), {})

    def __matmul__(self, other: object) -> _Symbol:
        return call("matmul", (self, other), {})

    def __rmatmul__(self, other: object) -> _Symbol:
        return call("matmul", (other, self), {})


def _tree(symbol: _Symbol) -> e.Expr:
    tree: e.Expr = object.__getattribute__(symbol, "_tree")
    return tree


def _shown(tree: e.Expr) -> str:
    try:
        e.check_size(tree)
    except RefusedQueryError:
        return "a large expression"
    return str(tree)


def _identifier(name: str) -> str:
    """Check that a name can be written in the text of a query, and return it."""
    if name.isidentifier() and not keyword.iskeyword(name) and unicodedata.normalize("NFKC", name) == name:
        return name
    raise RefusedQueryError(
        f"Expected a plain name in a query, got {name!r:.100}. For the key of a mapping write [{name!r:.100}]"
    )


def _binary(op: str, reflected: bool) -> Callable[[_Symbol, Any], _Symbol]:
    def method(self: _Symbol, other: object) -> _Symbol:
        sides = (as_tree(other), _tree(self)) if reflected else (_tree(self), as_tree(other))
        return _Symbol(e.Binary(op, *sides))

    return method


def _unary(op: str) -> Callable[[_Symbol], _Symbol]:
    return lambda self: _Symbol(e.Unary(op, _tree(self)))


def _raiser(message: str) -> Callable[..., NoReturn]:
    def method(self: _Symbol, *args: object, **kwargs: object) -> NoReturn:
        raise QuerySyntaxError(f"{message}. In: {_shown(_tree(self))}")

    return method


for _op, _name in e.BINARY.items():
    _name = _name.strip("_")
    setattr(_Symbol, f"__{_name}__", _binary(_op, reflected=False))
    if _op not in ("<", "<=", "==", "!=", ">", ">="):
        setattr(_Symbol, f"__r{_name}__", _binary(_op, reflected=True))
for _op, _name in e.UNARY.items():
    setattr(_Symbol, f"__{_name}__", _unary(_op))
for _name, _message in INSTEAD.items():
    setattr(_Symbol, _name, _raiser(_message))


def is_symbol(value: object) -> bool:
    """Return whether a value is symbolic."""
    return type(value) is _Symbol


def as_tree(value: object) -> e.Expr:
    """Return the tree of a value in a lambda: a symbolic value, a constant, or a container of these.

    Raises:
        RefusedQueryError: The value cannot be part of a query.
    """
    if isinstance(value, _Symbol):
        return _tree(value)
    if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and not isinstance(value, np.generic)):
        raise RefusedQueryError(
            f"A query cannot contain an array ({type(value).__name__}). Pass it to `observe`, "
            "or register a function that uses it: run.function(name, fn)"
        )
    if isinstance(value, slice) or value is Ellipsis:
        raise RefusedQueryError(f"Expected {value!r} only inside an index, as in x[..., 1:]")
    if isinstance(value, tuple):
        return e.Tuple(tuple(map(as_tree, value)))
    if isinstance(value, list):
        return e.List(tuple(map(as_tree, value)))
    if isinstance(value, Mapping):
        bad = next((key for key in value if not isinstance(key, str)), None)
        if bad is not None:
            raise RefusedQueryError(f"Expected strings as the keys of a mapping in a query, got {bad!r}")
        return e.Dict(tuple((str.__str__(key), as_tree(item)) for key, item in value.items()))
    return e.constant(value)


def as_index(value: object) -> e.Expr:
    """Return the tree of an index, which may also be a slice or `...`, or a tuple of them."""
    if isinstance(value, tuple):
        return e.Tuple(tuple(as_index(part) if not isinstance(part, tuple) else as_tree(part) for part in value))
    if isinstance(value, slice):
        return e.Slice(*(None if part is None else as_tree(part) for part in (value.start, value.stop, value.step)))
    return e.Ellipsis_() if value is Ellipsis else as_tree(value)


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, what: str = "") -> _Symbol:
    """Record the call of a named function, and trace its lambdas."""
    if name not in FUNCTIONS and what:
        raise QuerySyntaxError(unknown("function", name, FUNCTIONS, where=f"for {what}"))
    if name in FUNCTIONS and FUNCTIONS[name].lambdas:
        args = tuple(trace(arg, n_params=None) if callable(arg) and not is_symbol(arg) else arg for arg in args)
    trees = tuple(arg if isinstance(arg, e.Lambda) else as_tree(arg) for arg in args)
    named = tuple((_identifier(key), as_tree(value)) for key, value in kwargs.items())
    if name not in FUNCTIONS:
        return _Symbol(e.Call(_identifier(name), trees, named))
    tree = e.Call(name, trees, axis_for_dim(named))
    check_call(tree)
    return _Symbol(tree)


_open_names: ContextVar[tuple[str, ...]] = ContextVar("open_names", default=())


def trace(function: Callable[..., Any], *, n_params: int | None = 1) -> e.Lambda:
    """Call a function with symbolic values and return the tree of its operations.

    Args:
        function: A lambda, or any other function of values, such as an operator or a NumPy ufunc.
        n_params: How many arguments it must take; `None` for one or two.

    Raises:
        QuerySyntaxError: The function uses an operation that queries do not have.
        RefusedQueryError: The function uses a value that cannot be part of a query, or the tree exceeds a limit.
    """
    if not callable(function) or is_symbol(function):
        raise QuerySyntaxError(f"Expected a function such as lambda b: b.loss, got {function!r:.100}")
    taken = {*_open_names.get(), *FUNCTIONS, *NAMED_CONSTANTS, "fn"}
    names: tuple[str, ...] = ()
    for param in _params(function, n_params):
        while param in taken or param in names:
            param += "_"
        names = (*names, param)
    token = _open_names.set((*_open_names.get(), *names))
    try:
        tree = e.Lambda(names, as_tree(function(*(_Symbol(e.Var(name)) for name in names))))
    except RecursionError:
        raise RefusedQueryError(f"Expected an expression at most {MAX_DEPTH} levels deep, got a deeper one") from None
    finally:
        _open_names.reset(token)
    e.check_size(tree)
    if not _open_names.get():
        e.check_bound(tree)
    return tree


def _params(function: Callable[..., Any], n_params: int | None) -> list[str]:
    """Return names for the arguments to call a function with."""
    wanted = (1, 2) if n_params is None else (n_params,)
    try:
        params = list(inspect.signature(function).parameters.values())
    except ValueError:  # a built-in function without a signature
        return ["x", "y"][: wanted[0]]
    names = [param.name.strip("_") or "x" for param in params if param.kind in POSITIONAL]
    n_needed = sum(param.default is param.empty and param.kind in POSITIONAL for param in params)
    open_ended = any(param.kind is param.VAR_POSITIONAL for param in params)
    for count in wanted:
        if n_needed <= count <= len(names):
            return names[:count]
        if open_ended and n_needed <= count:
            return [*names, "x", "y"][:count]
    expected = " or ".join(map(str, wanted))
    plural = "s" * (wanted != (1,))
    raise QuerySyntaxError(f"Expected a function of {expected} argument{plural}, got one of {len(names)}")


class Functions:
    """The functions that queries may call, by name: `sg.fn.sqrt(b.loss)`; also those that the run registered.

    In the text of a query, call them by name alone: `sqrt(batch.loss)`, `confusion(batch.y, batch.pred)`.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"Expected a function's name, got {name!r}")

        def function(*args: object, **kwargs: object) -> Any:
            return call(name, args, kwargs)

        function.__name__ = name
        function.__doc__ = FUNCTIONS[name].doc if name in FUNCTIONS else "A function that the run registered."
        return function

    def __dir__(self) -> list[str]:
        return sorted(FUNCTIONS)


fn = Functions()
