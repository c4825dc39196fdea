"""Python lambdas as expression trees, by calling them with a symbolic argument.

The argument is a proxy: whatever is done to it is written down. No source is inspected and no code is shipped. What
Python would decide at once, and so bake into the query unseen, raises and says what to write instead: `if`, `and`,
`or`, `not`, `in`, `len()`, `for`, `float()`. `is` and `isinstance` cannot be seen by the proxy: don't use them in
queries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np

from sightglass.core.errors import QuerySyntaxError, RefusedQueryError, unknown

from . import expr as e
from .functions import FUNCTIONS

INSTEAD = {
    "__bool__": "A query cannot decide with `if`, `and`, `or`, `not` or a chained comparison: "
    "write where(condition, x, y), `&`, `|`, `~`, or a .where(lambda …) step",
    "__contains__": "A query cannot use `in`: write .contains(x)",
    "__len__": "A query cannot use len(): write .len(), or sightglass.fn.len(x)",
    "__iter__": "A query cannot loop or unpack: write .map(lambda name, value: …), or x[0], x[1]",
    "__float__": "A query cannot make a float of what it does not know yet: leave it as it is; "
    "for math.sqrt(x) and the like write sightglass.fn.sqrt(x)",
    "__int__": "A query cannot make an int of what it does not know yet: write .round() or sightglass.fn.floor(x)",
    "__index__": "A query cannot use what it does not know yet as an index of a Python object",
    "__str__": "A query cannot make a text of what it does not know yet",
    "__format__": "A query cannot format what it does not know yet: return the value itself",
    "__array__": "A query cannot make an array of what it does not know yet: use the value's own functions",
}

UFUNCS = {
    "absolute": "abs", "fabs": "abs", "negative": "-", "positive": "+", "invert": "~", "add": "+", "subtract": "-",
    "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%", "power": "**", "float_power": "**",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "logical_and": "&", "logical_or": "|",
    "logical_not": "~", "less": "<", "less_equal": "<=", "equal": "==", "not_equal": "!=", "greater": ">",
    "greater_equal": ">=",
}  # fmt: skip
ARRAY_FUNCTIONS = {"amin": "min", "amax": "max", "around": "round", "linalg.norm": "norm"}


class _Symbol:
    """A value that is not known yet: remembers what is done to it. Made by `trace`, never by hand."""

    __slots__ = ("_tree",)
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000

    def __init__(self, tree: e.Expr) -> None:
        object.__setattr__(self, "_tree", tree)

    def __getattr__(self, name: str) -> _Symbol:
        if name.startswith("_"):
            raise AttributeError(
                f"Expected a public name in a query, got {name!r}: names with a leading underscore are refused"
            )
        return _Symbol(e.Attr(_tree(self), name))

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise RefusedQueryError(
            f"A query reads and never writes: {name!r} cannot be set. To change the run, use run.set"
        )

    __delattr__ = __setitem__ = __delitem__ = __setattr__  # type: ignore[assignment]

    def __getitem__(self, index: Any) -> _Symbol:
        return _Symbol(e.Item(_tree(self), as_tree(index)))

    def __call__(self, *args: Any, **kwargs: Any) -> _Symbol:
        tree = _tree(self)
        if not isinstance(tree, e.Attr):
            raise RefusedQueryError(f"A query can call named functions only, not {tree}")
        if tree.name not in FUNCTIONS:
            raise QuerySyntaxError(unknown("function", tree.name, FUNCTIONS, where="called on a value"))
        return call(tree.name, (_Symbol(tree.target), *args), kwargs)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> _Symbol:
        name = UFUNCS.get(ufunc.__name__, ufunc.__name__)
        if method != "__call__" or kwargs:
            raise RefusedQueryError(
                f"A query can use numpy.{ufunc.__name__} as a plain function only, without {method} or options"
            )
        if name in e.UNARY and len(inputs) == 1:
            return _Symbol(e.Unary(name, as_tree(inputs[0])))
        if name in e.BINARY:
            return _Symbol(e.Binary(name, as_tree(inputs[0]), as_tree(inputs[1])))
        return call(name, inputs, {}, what=f"numpy.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> _Symbol:
        name = ARRAY_FUNCTIONS.get(function.__name__, function.__name__)
        return call(name, args, kwargs, what=f"numpy.{function.__name__}")

    def __abs__(self) -> _Symbol:
        return call("abs", (self,), {})

    def __round__(self, decimals: int = 0) -> _Symbol:
        return call("round", (self, decimals) if decimals else (self,), {})


def _tree(symbol: _Symbol) -> e.Expr:
    tree: e.Expr = object.__getattribute__(symbol, "_tree")
    return tree


def _binary(op: str, reflected: bool) -> Callable[[_Symbol, Any], _Symbol]:
    def method(self: _Symbol, other: Any) -> _Symbol:
        sides = (as_tree(other), _tree(self)) if reflected else (_tree(self), as_tree(other))
        return _Symbol(e.Binary(op, *sides))

    return method


def _unary(op: str) -> Callable[[_Symbol], _Symbol]:
    return lambda self: _Symbol(e.Unary(op, _tree(self)))


def _raiser(message: str) -> Callable[..., NoReturn]:
    def method(self: _Symbol, *args: Any, **kwargs: Any) -> NoReturn:
        raise QuerySyntaxError(f"{message}. In: {_tree(self)}")

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
_Symbol.__repr__ = _Symbol.__str__  # type: ignore[method-assign]


def is_symbol(value: object) -> bool:
    """Tell whether a value is a symbolic one."""
    return type(value) is _Symbol


def as_tree(value: Any) -> e.Expr:
    """Make a tree of a value in a lambda: symbols and constants, and containers and slices of these.

    Raises:
        RefusedQueryError: The value cannot be part of a query.
    """
    if isinstance(value, _Symbol):
        return _tree(value)
    if isinstance(value, np.ndarray) or (hasattr(value, "__array__") and not isinstance(value, np.generic)):
        raise RefusedQueryError(
            f"A query cannot carry an array ({type(value).__name__}). Offer it as an observable, "
            "or register a function that knows it: run.function(name, fn)"
        )
    if isinstance(value, slice):
        return e.Slice(*(None if part is None else as_tree(part) for part in (value.start, value.stop, value.step)))
    if value is Ellipsis:
        return e.Ellipsis_()
    if isinstance(value, tuple):
        return e.Tuple(tuple(map(as_tree, value)))
    if isinstance(value, list):
        return e.List(tuple(map(as_tree, value)))
    if isinstance(value, Mapping):
        bad = next((key for key in value if not isinstance(key, str)), None)
        if bad is not None:
            raise RefusedQueryError(f"Expected text as the keys of a mapping in a query, got {bad!r}")
        return e.Dict(tuple((key, as_tree(item)) for key, item in value.items()))
    return e.constant(value)


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any], *, what: str = "") -> _Symbol:
    """Write down the call of a named function; its lambdas are traced in turn."""
    if name not in FUNCTIONS and what:
        raise QuerySyntaxError(unknown("function", name, FUNCTIONS, where=f"for {what}"))
    if name in FUNCTIONS and FUNCTIONS[name].lambdas:
        args = tuple(trace(arg, n_params=None) if callable(arg) and not is_symbol(arg) else arg for arg in args)
    trees = tuple(arg if isinstance(arg, e.Lambda) else as_tree(arg) for arg in args)
    return _Symbol(e.Call(name, trees, tuple((key, as_tree(value)) for key, value in kwargs.items())))


_open_names: list[str] = []


def trace(function: Callable[..., Any], *, n_params: int | None = 1) -> e.Lambda:
    """Call a function with symbols and return what it does with them.

    Args:
        function: A lambda, or any function of values: an operator, a NumPy ufunc.
        n_params: How many arguments it must take; `None` for one or two.

    Raises:
        QuerySyntaxError: The function does something that cannot be written down.
        RefusedQueryError: It uses a value that queries may not carry.
    """
    if not callable(function):
        raise QuerySyntaxError(f"Expected a function such as lambda b: b.loss, got {function!r}")
    params = _params(function, n_params)
    depth = len(_open_names)
    names = []
    for param in params:
        while param in _open_names or param in FUNCTIONS:
            param += "_"
        names.append(param)
        _open_names.append(param)
    try:
        result = function(*(_Symbol(e.Var(name)) for name in names))
        tree = e.Lambda(tuple(names), as_tree(result))
    except TypeError as error:
        if "positional argument" in str(error):
            raise QuerySyntaxError(f"Expected a function of {len(names)} arguments: {error}") from error
        raise
    finally:
        del _open_names[depth:]
    e.check_size(tree)
    return tree


def _params(function: Callable[..., Any], n_params: int | None) -> list[str]:
    code = getattr(function, "__code__", None)
    if code is None:
        return ["x"] if n_params in (1, None) else [f"x{i}" for i in range(n_params)]
    names = [name.lstrip("_") or "x" for name in code.co_varnames[: code.co_argcount]]
    n_optional = len(getattr(function, "__defaults__", None) or ())
    wanted = (1, 2) if n_params is None else (n_params,)
    for count in reversed(wanted):
        if len(names) - n_optional <= count <= len(names):
            return names[:count]
    expected = " or ".join(map(str, wanted))
    raise QuerySyntaxError(
        f"Expected a function of {expected} argument{'s' * (wanted != (1,))}, got one of {len(names)}"
    )


class Functions:
    """The functions that queries may call, by name: `sg.fn.sqrt(b.loss)`, and those that the run registered.

    In text they are called by the name alone: `sqrt(batch.loss)`, `confusion(batch.y, batch.pred)`.
    """

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"Expected the name of a function, got {name!r}")

        def function(*args: Any, **kwargs: Any) -> Any:
            return call(name, args, kwargs)

        function.__name__ = name
        function.__doc__ = FUNCTIONS[name].doc if name in FUNCTIONS else "A function that the run registered."
        return function

    def __dir__(self) -> list[str]:
        return sorted(FUNCTIONS)


fn = Functions()
NAMED_CONSTANTS = {"nan": math.nan, "inf": math.inf}
