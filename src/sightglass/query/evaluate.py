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
        compiler.n_steps = compiler.n_bytes = 0
        with np.errstate(all="ignore"):
            return body(values)

    return run


class _Compiler:
    """One tree being compiled, and the work of an event when it runs."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], event: str | None, root: str | None) -> None:
        self.functions = functions
        self.event = event
        self.root = root
        self.calls = False
        self.n_steps = 0
        self.n_bytes = 0

    def charge(self, value: Any) -> Any:
        """Count what it costs to go through a value, and return it.

        Raises:
            RefusedQueryError: The event has cost too much.
        """
        if array_kind(value):
            self.n_bytes += array_bytes(value)
            if self.n_bytes > MAX_WORK_BYTES:
                raise RefusedQueryError(f"Expected work on at most {MAX_WORK_BYTES >> 30} GiB for an event, got more")
        elif isinstance(value, list | tuple):
            total = Total()
            total.add(value)
            self.step(total.n_leaves)
        elif isinstance(value, Mapping):
            self.step(len(value))
        return value

    def step(self, n_steps: int) -> None:
        self.n_steps += n_steps
        if self.n_steps > MAX_WORK_STEPS:
            raise RefusedQueryError(f"Expected work of at most {MAX_WORK_STEPS} steps for an event, got more")

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
                return self.item(self.closure(target, scope), self.closure(index, scope))
            case e.Slice():
                return self.slice(tree, scope)
            case e.Unary(op, part):
                return self.unary(op, self.closure(part, scope))
            case e.Binary(op, left, right):
                return self.binary(op, self.closure(left, scope), self.closure(right, scope))
            case e.Call():
                return self.call(tree, scope)
            case e.Tuple(items):
                several = self.several(items, scope)
                return lambda env: tuple(several(env))
            case e.List(items):
                return self.several(items, scope)
            case e.Dict(entries):
                keys = [key for key, _ in entries]
                several = self.several(tuple(part for _, part in entries), scope)
                return lambda env: dict(zip(keys, several(env), strict=True))
        raise QuerySyntaxError(f"Expected an expression, got {type(tree).__name__}: {tree}")

    def several(self, items: tuple[e.Expr, ...], scope: tuple[str, ...]) -> Callable[[Env], list[Any]]:
        """Evaluate several values side by side; what is computed, and not only read, must not be large in all."""
        parts = [(self.closure(part, scope), not isinstance(part, e.Attr | e.Item | e.Var)) for part in items]

        def run(env: Env) -> list[Any]:
            total = Total()
            values = []
            for part, computed in parts:
                value = part(env)
                if computed and type(value) not in PLAIN:
                    total.add(value)
                    total.check()
                values.append(value)
            return values

        return run

    def item(self, of: Closure, place: Closure) -> Closure:
        def run(env: Env) -> Any:
            value, index = of(env), place(env)
            if array_kind(value) and not isinstance(index, int | slice):
                return self.charge(item(value, index))
            return item(value, index)

        return run

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
            if type(value) in PLAIN:
                return check_int(apply(value))
            return self.charge(apply(operand(self.charge(value))))

        return run

    def binary(self, op: str, left: Closure, right: Closure) -> Closure:
        self.calls = True
        apply = getattr(operator, e.BINARY[op])

        def run(env: Env) -> Any:
            a, b = left(env), right(env)
            if type(a) in PLAIN and type(b) in PLAIN:
                return _scalars(op, apply, a, b)
            if isinstance(a, str | bytes | type(None)) or isinstance(b, str | bytes | type(None)):
                return _texts(op, apply, a, b)
            a, b = operand(self.charge(a)), operand(self.charge(b))
            check_broadcast(a, b)
            return self.charge(apply(a, b))

        return run

    def call(self, tree: e.Call, scope: tuple[str, ...]) -> Closure:
        self.calls = True
        function = self.function(tree)
        charge = self.charge
        args = [self.inner(arg, scope) if isinstance(arg, e.Lambda) else self.closure(arg, scope) for arg in tree.args]
        kwargs = [(key, self.closure(value, scope)) for key, value in tree.kwargs]
        if not kwargs and len(args) == 1:
            only = args[0]
            return lambda env: charge(function(charge(only(env))))
        return lambda env: charge(
            function(*[charge(arg(env)) for arg in args], **{key: value(env) for key, value in kwargs})
        )

    def function(self, tree: e.Call) -> Callable[..., Any]:
        takes_lambda = any(isinstance(arg, e.Lambda) for arg in tree.args)
        if tree.name in FUNCTIONS:
            check_call(tree)
            return FUNCTIONS[tree.name].call
        if tree.name not in self.functions:
            known = {*FUNCTIONS, *self.functions}
            raise UnknownFunctionError("function", tree.name, known)
        if takes_lambda:
            raise QuerySyntaxError(f"Expected values as arguments of {tree.name}, got a lambda")
        check_arguments(self.functions[tree.name], tree, tree.name)
        return self.functions[tree.name]

    def inner(self, tree: e.Lambda, scope: tuple[str, ...]) -> Closure:
        """Compile a lambda inside the query; it sees the arguments around it."""
        body = self.closure(tree.body, (*scope, *tree.params))
        with_name = len(tree.params) == 2
        n_nodes = e.n_nodes(tree)

        def bind(env: Env) -> Callable[[Any, Any], Any]:
            def run(name: Any, value: Any) -> Any:
                self.step(n_nodes)
                return body((*env, name, value) if with_name else (*env, value))

            return run

        return bind


class UnknownFunctionError(UnknownNameError, QuerySyntaxError):
    """A query calls a function that neither sightglass nor the run knows."""

    def __init__(self, what: str, name: object, known: Any) -> None:
        UnknownNameError.__init__(self, what, name, known)


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
    if isinstance(value, Histogram) and name in HISTOGRAM_ATTRIBUTES:
        return getattr(value, name)
    if name.startswith("_"):
        raise RefusedQueryError(f"Expected a public name, got {name!r}: a leading underscore is refused")
    return readable(_stored(readable(value, f"what .{name} is read of"), name), name)


def _array_attribute(array: Any, name: str) -> Any:
    if name == "dtype":
        return str(array.dtype).removeprefix("torch.")
    if name == "shape":
        return tuple(int(n) for n in array.shape)
    if name == "size":
        return math.prod(int(n) for n in array.shape)
    if name == "T" and array_kind(array) == "torch":  # which warns of any number of axes but two
        return array.permute(*reversed(range(array.ndim)))
    return getattr(array, name)


def _stored(value: Any, name: str) -> Any:
    """Return what an object stores under a name, without running code of its class."""
    kinds = type(value).__mro__
    if isinstance(value, tuple) and name in getattr(kinds[0], "_fields", ()):
        return value[kinds[0]._fields.index(name)]  # type: ignore[attr-defined]
    getters = (vars(kind).get("__dict__") for kind in kinds)
    getter = next((get for get in getters if isinstance(get, types.GetSetDescriptorType)), None)
    stored = getter.__get__(value) if getter is not None else {}
    if name in stored:
        return stored[name]
    # Members of the interpreter's own classes, such as the frame of a traceback, are no slots.
    slots = {
        key: member
        for kind in reversed(kinds)
        if "__slots__" in vars(kind)
        for key, member in vars(kind).items()
        if isinstance(member, types.MemberDescriptorType)
    }
    if name in slots:
        try:
            return slots[name].__get__(value)
        except AttributeError:
            del slots[name]
    known = [key for key in (*getattr(kinds[0], "_fields", ()), *stored, *slots) if not key.startswith("_")]
    raise UnknownNameError("attribute", name, known, where=f"of {type_name(value)}")


def item(value: Any, index: Any) -> Any:
    """Read an item of a mapping, a sequence, a text or an array."""
    if isinstance(value, Mapping):
        if isinstance(index, Hashable) and not isinstance(index, tuple | slice) and index in value:
            return readable(value[index], str(index))
        raise UnknownNameError("key", index, value)
    if is_array(value):
        return _array_item(value, index)
    if isinstance(value, list | tuple | str):
        if isinstance(index, slice):
            return value[index]
        if isinstance(index, int | np.integer):
            if -len(value) <= index < len(value):
                return readable(value[index], str(index))
            raise EvaluationError(f"Expected an index below {len(value)}, got {index}")
    raise EvaluationError(f"Expected something with items, got {type_name(value)} for [{index!r:.100}]")


def _array_item(array: Any, index: Any) -> Any:
    parts = [_index(part) for part in (index if isinstance(index, tuple) else (index,))]
    picks = [part for part in parts if is_array(part)]
    if picks:
        if any("bool" in str(part.dtype) for part in picks) and on_device(array):
            raise RefusedQueryError("A condition cannot pick items on a device, their number is unknown: write where")
        check_bytes(_n_picked(array, parts, picks) * itemsize(array.dtype), allowed=array_bytes(array))
    result = array[tuple(parts)] if isinstance(index, tuple) else array[parts[0]]
    return result if is_array(result) or isinstance(result, np.generic) else readable(result, "an item")


def _index(part: Any) -> Any:
    """Return a part of an index, lists and tuples of integers made arrays."""
    if part is None or part is Ellipsis or isinstance(part, int | np.integer | slice):
        return part
    if isinstance(part, list | tuple):
        part = operand(part) if len(part) else np.zeros(0, np.int64)
    if is_array(part) and any(kind in str(part.dtype) for kind in ("int", "bool")):
        return part
    raise EvaluationError(f"Expected integers, slices or conditions in an index, got {type_name(part)}")


def _n_picked(array: Any, parts: list[Any], picks: list[Any]) -> int:
    """Bound the items of `array[index]` where arrays pick them, perhaps the same ones many times."""
    masks = [part for part in picks if "bool" in str(part.dtype)]
    places = [tuple(part.shape) for part in picks if "bool" not in str(part.dtype)]
    try:
        n_places = n_items(np.broadcast_shapes(*places))
    except ValueError:
        shown = " and ".join(map(str, places))
        raise RefusedQueryError(f"Expected places of shapes that fit together, got {shown}") from None
    n_masked = max((n_items(part.shape) for part in masks), default=1)
    n_used = [0 if part is None else len(part.shape) if part in_(masks) else 1 for part in parts if part is not Ellipsis]
    return n_places * n_masked


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
