"""The one evaluator: compiles an expression tree to a function of values.

Trees are compiled to nested closures once, when a query is opened. `access` decides what a query may read, `limits`
checks the cost of an operation before it runs, and the compiled function counts the work of each event.

Scalars follow IEEE 754, as arrays do: a division by zero gives infinity or NaN instead of an error.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import QuerySyntaxError, RefusedQueryError, UnknownNameError
from sightglass.core.values import Histogram, Value, array_bytes, array_kind, n_bytes, on_device

from . import expressions as e
from .access import attribute, item, readable
from .arrays import operand
from .functions import FUNCTIONS, check_arguments, check_call
from .limits import MAX_WORK_BYTES, MAX_WORK_OPERATIONS, PLAIN, Total, check_broadcast, check_int
from .scalars import of_plain, of_texts

READABLE: Final = frozenset((float, int, bool, str, bytes, type(None), dict, list, tuple, np.ndarray))

Env = tuple[Any, ...]
Closure = Callable[[Env], Any]


def evaluator(
    tree: e.Lambda, *, functions: Mapping[str, Callable[..., Any]] | None = None, event: str | None = None
) -> Callable[..., Any]:
    """Compile a lambda to a function of the same number of arguments.

    Args:
        tree: The lambda.
        functions: The functions that the run registered, by name.
        event: The event whose observables the lambda's argument holds; errors name it. `None` if the argument is
            another value.

    Raises:
        QueryError: The tree calls an unknown function, or one with arguments that it does not take.
    """
    compiler = _Compiler(functions or {}, event, tree.params[0] if event is not None else None)
    match tree.body:
        case e.Attr(target=e.Var(name=root), name=name) if root == compiler.root:
            return compiler.observable(name)
        case e.Item(target=e.Var(name=root), index=e.Const(value=str(name))) if root == compiler.root:
            return compiler.observable(name)
    body = compiler.closure(tree.body, tree.params)

    def run(*values: object) -> Value:
        compiler.n_operations = compiler.n_bytes = 0
        return body(values)

    def run_quietly(*values: object) -> Value:
        with np.errstate(all="ignore"):
            return run(*values)

    return run_quietly if compiler.calls else run


class _Compiler:
    """Compiles one tree, and counts the work of an event when the result runs."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], event: str | None, root: str | None) -> None:
        self.functions = functions
        self.event = event
        self.root = root
        self.calls = False  # with calls, np.errstate is entered once for an event, else at each operator on arrays
        self.n_operations = 0
        self.n_bytes = 0

    def charge(self, value: object) -> Value:
        """Count the work of reading a value, and return the value.

        Raises:
            RefusedQueryError: The work of this event exceeds a limit.
        """
        if type(value) in PLAIN:
            return value
        if array_kind(value):
            # A device reads its arrays many times faster than the host does; strings are slower still.
            self.n_bytes += array_bytes(value) // (16 if on_device(value) else 1)
        elif isinstance(value, str | Histogram):
            self.n_bytes += 16 * n_bytes(value)
        elif isinstance(value, list | tuple):
            total = Total()
            total.add(value)
            self.count(total.n_leaves)
        elif isinstance(value, Mapping):
            self.count(len(value))
        if self.n_bytes > MAX_WORK_BYTES:
            raise RefusedQueryError(f"Expected to read at most {MAX_WORK_BYTES >> 30} GiB for an event, got more")
        return value

    def count(self, n_operations: int) -> None:
        self.n_operations += n_operations
        if self.n_operations > MAX_WORK_OPERATIONS:
            raise RefusedQueryError(f"Expected at most {MAX_WORK_OPERATIONS} operations for an event, got more")

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
            case e.Item(e.Var(name=root), e.Const(value=str(name))) if root == self.root and scope.index(root) == 0:
                return self.attribute(tree.target, name, scope)
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
        """Evaluate several values; computed ones, unlike those that are only read, are bounded in all."""
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
        def run(env: Env) -> Value:
            value, index = of(env), place(env)
            if array_kind(value) and not isinstance(index, int | slice):
                return self.charge(item(value, index))
            return item(value, index)

        return run

    def attribute(self, target: e.Expr, name: str, scope: tuple[str, ...]) -> Closure:
        if isinstance(target, e.Var) and target.name == self.root and scope.index(target.name) == 0:
            observable = self.observable(name)
            return lambda env: observable(env[0])
        of = self.closure(target, scope)
        return lambda env: attribute(of(env), name)

    def observable(self, name: str) -> Callable[[Mapping[str, Any]], Any]:
        event = self.event

        def observable(observables: Mapping[str, Any]) -> Value:
            try:
                value = observables[name]
            except KeyError:
                raise UnknownNameError("observable", name, observables, where=f"at event {event!r}") from None
            return value if type(value) in READABLE else readable(value, name)

        return observable

    def slice(self, tree: e.Slice, scope: tuple[str, ...]) -> Closure:
        parts = [None if part is None else self.closure(part, scope) for part in (tree.start, tree.stop, tree.step)]
        return lambda env: slice(*(None if part is None else part(env) for part in parts))

    def unary(self, op: str, part: Closure) -> Closure:
        apply: Callable[[Any], Any] = getattr(operator, e.UNARY[op])

        def run(env: Env) -> Value:
            value = part(env)
            if op == "~" and isinstance(value, bool | np.bool_):
                return not value
            if type(value) in PLAIN:
                return check_int(apply(value))
            return self.charge(self.quietly(apply, operand(self.charge(value))))

        return run

    def binary(self, op: str, left: Closure, right: Closure) -> Closure:
        apply = getattr(operator, e.BINARY[op])

        def run(env: Env) -> Value:
            a, b = left(env), right(env)
            if type(a) in PLAIN and type(b) in PLAIN:
                return of_plain(op, a, b)
            if isinstance(a, str | bytes | type(None)) or isinstance(b, str | bytes | type(None)):
                return self.charge(of_texts(op, self.charge(a), self.charge(b)))
            a, b = operand(self.charge(a)), operand(self.charge(b))
            check_broadcast(a, b)
            return self.charge(self.quietly(apply, a, b))

        return run

    def quietly(self, apply: Callable[..., Any], *values: object) -> Value:
        if self.calls:
            return apply(*values)
        with np.errstate(all="ignore"):
            return apply(*values)

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
        """Compile a lambda inside the query; it can use the arguments of the lambdas around it."""
        body = self.closure(tree.body, (*scope, *tree.params))
        with_name = len(tree.params) == 2
        n_nodes = e.n_nodes(tree)

        def bind(env: Env) -> Callable[[Any, Any], Any]:
            def run(name: object, value: object) -> Value:
                self.count(n_nodes)
                return body((*env, name, value) if with_name else (*env, value))

            return run

        return bind


class UnknownFunctionError(UnknownNameError, QuerySyntaxError):
    """A query calls a function that neither sightglass nor the run defines."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        UnknownNameError.__init__(self, what, name, known)
