"""The evaluator: an expression tree becomes a function of values. There is no other.

Trees are compiled to nested closures once, when a query is opened. What a query may read is decided here: keys of
mappings, fields of dataclasses and named tuples, plain attributes of instances, and `ARRAY_ATTRIBUTES` of arrays.
Properties are not run; modules, classes and callables are refused. What it would cost is checked before it is paid
(`arrays`).

Scalars follow IEEE 754, as arrays do: a division by zero gives infinity or NaN, no error.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, QuerySyntaxError, RefusedQueryError, UnknownNameError
from sightglass.core.values import array_bytes, array_kind, itemsize, type_name

from . import expr as e
from .arrays import MAX_CALLS, MAX_TEXT, check_broadcast, check_bytes, check_int, check_power, is_array, operand
from .functions import FUNCTIONS

ARRAY_ATTRIBUTES: Final = ("shape", "dtype", "ndim", "size", "T", "real", "imag")
PLAIN: Final = frozenset((float, int, bool))
READABLE: Final = frozenset((float, int, bool, str, bytes, type(None), dict, list, tuple, np.ndarray))
COMPARISONS: Final = frozenset(("==", "!=", "<", "<=", ">", ">="))

Env = tuple[Any, ...]
Closure = Callable[[Env], Any]


def evaluator(
    tree: e.Lambda, *, functions: Mapping[str, Callable[..., Any]] | None = None, event: str | None = None
) -> Callable[..., Any]:
    """Compile a lambda of a query to a function of as many values.

    Args:
        tree: The lambda.
        functions: What the run registered, by name.
        event: The event whose observables the argument is; named in errors.

    Raises:
        QueryError: The tree calls a function that does not exist, or with wrong arguments.
    """
    compiler = _Compiler(functions or {}, event, tree.params[0] if event is not None else None)
    body = compiler.closure(tree.body, tree.params)
    if isinstance(tree.body, e.Attr | e.Var) and not compiler.calls:
        return lambda *values: body(values)

    def run(*values: Any) -> Any:
        compiler.n_calls = 0
        with np.errstate(all="ignore"):
            return body(values)

    return run


class _Compiler:
    """One tree being compiled, and the count of its inner calls when it runs."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], event: str | None, root: str | None) -> None:
        self.functions = functions
        self.event = event
        self.root = root
        self.calls = False
        self.n_calls = 0

    def closure(self, tree: e.Expr, scope: tuple[str, ...]) -> Closure:
        match tree:
            case e.Const(value):
                return lambda env: value
            case e.Ellipsis_():
                return lambda env: ...
            case e.Var(name):
                return operator.itemgetter(scope.index(name))
            case e.Attr(target, name):
                return self.attribute(target, name, scope)
            case e.Item(target, index):
                of, place = self.closure(target, scope), self.closure(index, scope)
                return lambda env: item(of(env), place(env))
            case e.Slice():
                return self.slice(tree, scope)
            case e.Unary(op, part):
                return self.unary(op, self.closure(part, scope))
            case e.Binary(op, left, right):
                self.calls = True
                return _binary(op, self.closure(left, scope), self.closure(right, scope))
            case e.Call():
                self.calls = True
                return self.call(tree, scope)
            case e.Tuple(items):
                parts = [self.closure(part, scope) for part in items]
                return lambda env: tuple([part(env) for part in parts])
            case e.List(items):
                parts = [self.closure(part, scope) for part in items]
                return lambda env: [part(env) for part in parts]
            case e.Dict(entries):
                named = [(key, self.closure(part, scope)) for key, part in entries]
                return lambda env: {key: part(env) for key, part in named}
        raise QuerySyntaxError(f"Expected an expression, got {type(tree).__name__}: {tree}")

    def attribute(self, target: e.Expr, name: str, scope: tuple[str, ...]) -> Closure:
        event = self.event
        if isinstance(target, e.Var) and target.name == self.root and scope.index(target.name) == 0:

            def observable(env: Env) -> Any:
                try:
                    value = env[0][name]
                except KeyError:
                    raise UnknownNameError("observable", name, env[0], where=f"at event {event!r}") from None
                return value if type(value) in READABLE else readable(value, name)

            return observable
        of = self.closure(target, scope)
        return lambda env: attribute(of(env), name)

    def slice(self, tree: e.Slice, scope: tuple[str, ...]) -> Closure:
        parts = [None if part is None else self.closure(part, scope) for part in (tree.start, tree.stop, tree.step)]
        return lambda env: slice(*(None if part is None else part(env) for part in parts))

    def unary(self, op: str, part: Closure) -> Closure:
        self.calls = True
        apply = {"-": operator.neg, "+": operator.pos, "~": operator.invert}[op]

        def run(env: Env) -> Any:
            value = part(env)
            if op == "~" and isinstance(value, bool | np.bool_):
                return not value
            return apply(value if type(value) in PLAIN else operand(value))

        return run

    def call(self, tree: e.Call, scope: tuple[str, ...]) -> Closure:
        function = self.function(tree)
        args = [self.inner(arg, scope) if isinstance(arg, e.Lambda) else self.closure(arg, scope) for arg in tree.args]
        kwargs = [(key, self.closure(value, scope)) for key, value in tree.kwargs]
        if not kwargs and len(args) == 1:
            only = args[0]
            return lambda env: function(only(env))
        return lambda env: function(*[arg(env) for arg in args], **{key: value(env) for key, value in kwargs})

    def function(self, tree: e.Call) -> Callable[..., Any]:
        takes_lambda = any(isinstance(arg, e.Lambda) for arg in tree.args)
        if tree.name in FUNCTIONS:
            function = FUNCTIONS[tree.name]
            if takes_lambda and not function.lambdas:
                raise QuerySyntaxError(f"Expected values as arguments of {function.signature}, got a lambda")
            _check_arguments(function.call, tree, function.signature)
            return function.call
        if tree.name not in self.functions:
            known = {*FUNCTIONS, *self.functions}
            raise UnknownFunctionError("function", tree.name, known)
        if takes_lambda:
            raise QuerySyntaxError(f"Expected values as arguments of {tree.name}, got a lambda")
        _check_arguments(self.functions[tree.name], tree, tree.name)
        return self.functions[tree.name]

    def inner(self, tree: e.Lambda, scope: tuple[str, ...]) -> Closure:
        """Compile a lambda inside the query; it sees the arguments around it."""
        body = self.closure(tree.body, (*scope, *tree.params))
        with_name = len(tree.params) == 2

        def bind(env: Env) -> Callable[[Any, Any], Any]:
            def run(name: Any, value: Any) -> Any:
                self.n_calls += 1
                if self.n_calls > MAX_CALLS:
                    raise RefusedQueryError(f"Expected at most {MAX_CALLS} inner calls for an event, got more")
                return body((*env, name, value) if with_name else (*env, value))

            return run

        return bind


class UnknownFunctionError(UnknownNameError, QuerySyntaxError):
    """A query calls a function that neither sightglass nor the run knows."""

    def __init__(self, what: str, name: object, known: Any) -> None:
        UnknownNameError.__init__(self, what, name, known)


def _check_arguments(function: Callable[..., Any], tree: e.Call, signature: str) -> None:
    try:
        inspect.signature(function).bind(*tree.args, **dict(tree.kwargs))
    except TypeError as error:
        raise QuerySyntaxError(f"Wrong arguments for {signature}: {error}") from None
    except ValueError:
        return  # a builtin without a signature


def readable(value: Any, name: str) -> Any:
    """Return a value that a query may hold.

    Raises:
        RefusedQueryError: It is a module, a class or something callable: a query reads what was offered.
    """
    if isinstance(value, types.ModuleType | type) or (callable(value) and not is_array(value)):
        raise RefusedQueryError(
            f"Expected {name!r} to be a value, got a {type(value).__name__}: "
            "queries do not reach modules, classes and functions"
        )
    return value


def attribute(value: Any, name: str) -> Any:
    """Read a key of a mapping, a field, a plain attribute of an instance, or one of `ARRAY_ATTRIBUTES`."""
    if isinstance(value, Mapping):
        if name in value:
            return readable(value[name], name)
        raise UnknownNameError("key", name, value)
    if array_kind(value) or isinstance(value, np.generic):
        if name not in ARRAY_ATTRIBUTES:
            raise UnknownNameError("attribute", name, ARRAY_ATTRIBUTES, where="of an array")
        return _array_attribute(value, name)
    if name.startswith("_"):
        raise RefusedQueryError(f"Expected a public name, got {name!r}: a leading underscore is refused")
    return readable(_plain_attribute(value, name), name)


def _array_attribute(array: Any, name: str) -> Any:
    if name == "dtype":
        return str(array.dtype).removeprefix("torch.")
    if name == "shape":
        return tuple(int(n) for n in array.shape)
    if name == "size" and callable(array.size):  # PyTorch
        return int(array.numel())
    return getattr(array, name)


def _plain_attribute(value: Any, name: str) -> Any:
    fields = _fields(value)
    if name in fields:
        return fields[name]
    raise UnknownNameError(
        "attribute", name, [field for field in fields if not field.startswith("_")], where=f"of {type_name(value)}"
    )


def _fields(value: Any) -> Mapping[str, Any]:
    """Return what an object stores under names, without running code of its class."""
    if isinstance(value, tuple) and hasattr(type(value), "_fields"):
        return dict(zip(type(value)._fields, value, strict=False))
    try:
        stored = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        stored = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType) and name not in stored:
                try:
                    stored[name] = member.__get__(value, type(value))
                except AttributeError:
                    continue
    if dataclasses.is_dataclass(value):
        names = {field.name for field in dataclasses.fields(value)}
        return {name: stored[name] for name in names if name in stored} or stored
    return stored


def item(value: Any, index: Any) -> Any:
    """Read an item of a mapping, a sequence or an array."""
    if isinstance(value, Mapping):
        try:
            return readable(value[index], str(index))
        except (KeyError, TypeError):
            raise UnknownNameError("key", index, value) from None
    if isinstance(value, list | tuple) and isinstance(index, int | slice):
        return readable(value[index], str(index)) if isinstance(index, int) else value[index]
    if is_array(value):
        check_bytes(_indexed_bytes(value, index), allowed=array_bytes(value))
        return value[tuple(index) if isinstance(index, list) and any(isinstance(i, slice) for i in index) else index]
    if isinstance(value, str) and isinstance(index, int | slice):
        return value[index]
    raise EvaluationError(f"Expected something with items, got {type_name(value)} for [{index!r}]")


def _indexed_bytes(array: Any, index: Any) -> int:
    """Bound the bytes of `array[index]` where an array or a list picks items, perhaps the same ones many times."""
    picked = [
        part for part in (index if isinstance(index, tuple) else (index,)) if isinstance(part, list) or is_array(part)
    ]
    n_picked = max((len(part) if isinstance(part, list) else array_bytes(part) for part in picked), default=0)
    rest = array_bytes(array) // max(1, int(array.shape[0])) if len(array.shape) else itemsize(array.dtype)
    return n_picked * rest


def _binary(op: str, left: Closure, right: Closure) -> Closure:
    apply = getattr(operator, e.BINARY[op])

    def run(env: Env) -> Any:
        a, b = left(env), right(env)
        if type(a) in PLAIN and type(b) in PLAIN:
            return _scalars(op, apply, a, b)
        if isinstance(a, str | bytes | type(None)) or isinstance(b, str | bytes | type(None)):
            return _texts(op, apply, a, b)
        a, b = operand(a), operand(b)
        check_broadcast(a, b)
        return apply(a, b)

    return run


def _scalars(op: str, apply: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if op == "**":
        check_power(a, b)
    try:
        return check_int(apply(a, b))
    except ZeroDivisionError:
        return apply(np.float64(a), np.float64(b)).item()
    except OverflowError:
        return apply(np.float64(a), np.float64(b)).item()


def _texts(op: str, apply: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    if op in ("==", "!="):
        same = type(a) is type(b) and a == b
        return same if op == "==" else not same
    if isinstance(a, str) and isinstance(b, str) and (op in COMPARISONS or (op == "+" and len(a) + len(b) <= MAX_TEXT)):
        return apply(a, b)
    raise RefusedQueryError(f"Expected numbers or arrays around {op!r}, got {type_name(a)} and {type_name(b)}")
