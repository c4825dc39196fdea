"""The one evaluator: compiles an expression tree to a function of values.

Trees are compiled to nested closures once, when a query is opened. `access` decides what a query may read, `limits`
checks the size of a result before it is computed, and `meter` what an event may cost. What works item by item is
compiled as one chain, which `blocks` evaluates piece by piece on large arrays.

Scalars follow IEEE 754, as arrays do: a division by zero gives infinity or NaN instead of an error.

An evaluation that fails says which part of the query failed, of which values, and what to write instead.
"""

from __future__ import annotations

import math
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError, QuerySyntaxError, SightglassError, UnknownNameError, cut
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.core.program_values.own_pieces import is_traced
from sightglass.core.values import Value, array_kind, type_name

from . import expressions as e
from .access import attribute, item, of_plain, of_texts, of_unary
from .arrays import is_texts, operand, readable, texts
from .blocks import MIN_ITEMS, Blocks
from .costs import SIZED, n_broadcast, n_read, n_sliced, picks
from .functions import FUNCTIONS, Operation, check_arguments, check_call
from .functions.elementwise import OPERATORS
from .interpreter import Interpreter, is_elementwise, is_fused
from .limits import PLAIN, Total, check_broadcast
from .meter import FREE_NS, MORE, ROUGH, CompilationNeeded, Meter, NoRoom, PriceNeeded
from .price import LISTED_NS

READABLE: Final = frozenset((float, int, bool, str, bytes, type(None), dict, list, tuple))
ROUGH_NS: Final = 1_500.0  # an operation on a small array
N_WHOLE: Final = 2  # arrays as large as its result that are alive in a chain which is not evaluated in blocks
LIST: Final = 50  # an item of a list takes as long as so many of an array
LENT: Final = Operation(call=lambda *values: None)  # what is known of a function of the run

Env = tuple[Any, ...]
Closure = Callable[[Env], Any]
Leaf = Callable[[Sequence[Any]], Any]


def evaluator(
    tree: e.Lambda,
    *,
    functions: Mapping[str, Callable[..., Any]] | None = None,
    event: str | None = None,
    meter: Meter | None = None,
    begins: bool = True,
) -> Callable[..., Any]:
    """Compile a lambda to a function of the same number of arguments.

    Args:
        tree: The lambda.
        functions: The functions that the run registered, by name.
        event: The event whose observables the lambda's argument holds; errors name it. `None` if the argument is
            another value.
        meter: The limit of an event.
        begins: Whether this is the first evaluation of an event.

    Raises:
        QueryError: The tree calls an unknown function, or one with arguments that it does not take.
    """
    meter = meter or Meter()
    compiler = _Compiler(functions or {}, event, tree.params[0] if event is not None else None, meter)
    match tree.body:
        case e.Attr(target=e.Var(name=root), name=name) if root == compiler.root:
            return compiler.observable(name)
        case e.Item(target=e.Var(name=root), index=e.Const(value=str(name))) if root == compiler.root:
            return compiler.observable(name)
    body = compiler.part(tree.body, tree.params)
    allowed_ns = 0.0 if compiler.lends else FREE_NS

    def run(*values: object) -> Value:
        nonlocal allowed_ns
        if begins:
            meter.begin()
        spent_ns = meter.spent_ns
        meter.priced_ns = spent_ns + allowed_ns
        meter.allowed_ns = min(meter.priced_ns, spent_ns + FREE_NS)
        if allowed_ns > FREE_NS:
            meter.check("what came before")
        try:
            return body(values)
        except CompilationNeeded:
            meter.ask(tree, values, compiler.measured, aside=True)
            raise
        except PriceNeeded:
            pass  # what was computed so far goes with the exception
        meter.ask(tree, values, compiler.measured)
        meter.spent_ns, meter.allowed_ns, meter.priced_ns = spent_ns, spent_ns, math.inf
        value = body(values)
        allowed_ns = max(FREE_NS, MORE * (meter.spent_ns - spent_ns))
        return value

    def run_quietly(*values: object) -> Value:
        with np.errstate(all="ignore"):
            return run(*values)

    return run_quietly if compiler.calls else run


class _Compiler(Interpreter[Closure, tuple[str, ...]]):
    """Compiles one tree: a part becomes a function of its environment, the arguments of the lambdas around it.

    Attributes:
        calls: Whether it calls functions: `np.errstate` is then entered once for an event, else at each operator.
        lends: Whether it calls functions of the run, which are not called before the price is known.
        measured: By `id` of parts of the tree, the nanoseconds that an item took when they were evaluated in blocks.
        event_itself: The function that the event becomes; its attributes are the observables.
    """

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], event: str | None, root: str | None, meter: Meter
    ) -> None:
        self.functions = functions
        self.event = event
        self.root = root
        self.meter = meter
        self.calls = self.lends = False
        self.measured: dict[int, float] = {}
        self.event_itself: Closure = operator.itemgetter(0)

    def constant(self, value: object) -> Closure:
        return lambda env: value

    def variable(self, name: str, scope: tuple[str, ...]) -> Closure:
        place = scope.index(name)
        return self.event_itself if place == 0 and name == self.root else operator.itemgetter(place)

    def attribute(self, of: Closure, name: str) -> Closure:
        if of is not self.event_itself:
            return lambda env: attribute(of(env), name)
        observable = self.observable(name)
        return lambda env: observable(env[0])

    def observable(self, name: str) -> Callable[[Mapping[str, Any]], Any]:
        event = self.event

        def observable(observables: Mapping[str, Any]) -> Value:
            try:
                value = observables[name]
            except KeyError:
                raise UnknownNameError("observable", name, observables, where=f"at event {event!r}") from None
            return value if type(value) in READABLE else readable(value, name)

        return observable

    def item(self, of: Closure, at: Closure, tree: e.Item) -> Closure:
        if of is self.event_itself and isinstance(tree.index, e.Const) and isinstance(tree.index.value, str):
            return self.attribute(of, tree.index.value)
        meter, place = self.meter, id(tree)

        def run(env: Env) -> Value:
            value, index = of(env), at(env)
            kind = array_kind(value)
            if kind is None and type(index) is slice and type(value) in SIZED:
                meter.spend(ROUGH_NS + len(value))
            if kind and not isinstance(index, int | slice):
                n = max(n_read(value), n_read(index))
                meter.spend(ROUGH_NS + 8.0 * n)
                if picks(index):
                    meter.makes(n, value)
            if kind == "jax":
                meter.spend(ROUGH_NS + ROUGH * n_sliced(value.shape, index))
                meter.operates(place, (value, index), by_value=True)
            return item(value, index, meter.checks)

        return run

    def slice_of(self, ends: Sequence[Closure | None]) -> Closure:
        return lambda env: slice(*(None if end is None else end(env) for end in ends))

    def several(
        self, parts: Sequence[Closure], trees: Sequence[e.Expr], make: Callable[[Sequence[Any]], Any]
    ) -> Closure:
        """Return a container of several values; computed ones, unlike those that are only read, are bounded in all."""
        computed = [not isinstance(tree, e.Attr | e.Item | e.Var) for tree in trees]
        pairs, meter = list(zip(parts, computed, strict=True)), self.meter

        def run(env: Env) -> Any:
            total = Total()
            values = []
            for part, is_computed in pairs:
                value = part(env)
                if is_computed and type(value) not in PLAIN:
                    if type(value) in SIZED:
                        meter.spend(LISTED_NS * len(value))
                    total.add(value)
                    total.check()
                values.append(value)
            return make(values)

        return run

    def chain(self, tree: e.Expr, scope: tuple[str, ...]) -> Closure:
        leaves: dict[str, e.Expr] = {}
        name = tree.name if isinstance(tree, e.Call) and is_fused(tree) else ""
        inside = self.inside(tree.args[0] if name else tree, leaves)  # type: ignore[attr-defined]
        whole = self.called(tree) if name else None  # type: ignore[arg-type]
        self.calls = self.calls or bool(name)
        reads = [self.part(leaf, scope) for leaf in leaves.values()]
        meter, measured, place = self.meter, self.measured, id(tree)
        rough = ROUGH * e.n_nodes(tree)
        text = f"{tree!s:.60}"

        def run(env: Env) -> Value:
            values = [read(env) for read in reads]
            try:
                if not PLAIN.issuperset(map(type, values)):
                    values = [_stacked(value) if type(value) in (list, tuple) else value for value in values]
                    n = max(map(n_read, values))
                    if len(values) > 1:
                        n = max(n, n_broadcast(values))
                    meter.spend(rough * (ROUGH_NS / ROUGH + n))
                    if any(array_kind(value) == "jax" for value in values):
                        meter.operates(place, values)
                    if n >= MIN_ITEMS and (blocks := Blocks.of(list(map(_alone, values)))) is not None:
                        started_s = meter.clock()
                        try:
                            return blocks.reduce(name, inside, meter, text) if name else blocks.map(inside, meter, text)
                        finally:
                            taken = (meter.now() - started_s) * 1e9 / max(1, blocks.n_done)
                            measured[place] = max(taken, 0.9 * measured.get(place, taken) + 0.1 * taken)
                    if n >= MIN_ITEMS and (arrays := [value for value in values if array_kind(value)]):
                        meter.makes(N_WHOLE * n, max(arrays, key=n_read))
                value = inside(values)
                return value if whole is None else whole(value)
            except FAILURES as error:
                raise placed(error, text, values) from None

        return run

    def inside(self, tree: e.Expr, leaves: dict[str, e.Expr]) -> Leaf:
        """Compile a part of a chain to a function of the values of its leaves, which are collected."""
        match tree:
            case e.Const(value):
                return lambda values: value
            case e.Unary(op, part):
                return self.unary(op, self.inside(part, leaves))
            case e.Binary(op, left, right):
                return self.binary(op, self.inside(left, leaves), self.inside(right, leaves))
            case e.Call() if is_elementwise(tree):
                self.calls = True
                function = self.called(tree)
                args = [self.inside(arg, leaves) for arg in tree.args]
                kwargs = [(key, self.inside(arg, leaves)) for key, arg in tree.kwargs]
                if len(args) == 1 and not kwargs:
                    only = args[0]
                    return lambda values: function(only(values))
                return lambda values: function(
                    *[arg(values) for arg in args], **{key: arg(values) for key, arg in kwargs}
                )
        leaves.setdefault(str(tree), tree)
        return operator.itemgetter(list(leaves).index(str(tree)))

    def unary(self, op: str, part: Leaf) -> Leaf:
        apply = OPERATORS[op, 1].call

        def run(values: Sequence[Any]) -> Value:
            value = part(values)
            if op == "~" and isinstance(value, bool | np.bool_):
                return not value
            if type(value) in PLAIN:
                return of_unary(op, value)
            return self.quietly(apply, operand(value))

        return run

    def binary(self, op: str, left: Leaf, right: Leaf) -> Leaf:
        apply = OPERATORS[op, 2].call

        def run(values: Sequence[Any]) -> Value:
            a, b = left(values), right(values)
            if type(a) in PLAIN and type(b) in PLAIN:
                return of_plain(op, a, b)
            if isinstance(a, str | bytes | type(None)) or isinstance(b, str | bytes | type(None)):
                return of_texts(op, a, b)
            if is_texts(a) or is_texts(b):
                return of_texts(op, a, b)
            a, b = operand(a), operand(b)
            check_broadcast(a, b)
            return self.quietly(apply, a, b)

        return run

    def quietly(self, apply: Callable[..., Any], *values: object) -> Value:
        if self.calls:
            return apply(*values)
        with np.errstate(all="ignore"):
            return apply(*values)

    def call(self, tree: e.Call, args: Sequence[Closure], kwargs: Mapping[str, Closure]) -> Closure:
        self.calls = True
        function, meter, name = self.called(tree), self.meter, tree.name
        known = FUNCTIONS.get(name, LENT)
        cost = known.cost
        rough = ROUGH * (1.0 if known.containers else max(cost.ns, 1.0))
        text = f"{tree!s:.60}"
        keywords: list[tuple[str, Closure]] = list(kwargs.items())
        if any(isinstance(arg, e.Lambda) for arg in tree.args):  # `map` and `filter`
            keywords.append(("leave_out", lambda env: meter.leave_out))

        def run(env: Env) -> Value:
            values = [arg(env) for arg in args]
            named = {key: value(env) for key, value in keywords} if keywords else {}
            first: Any = values[0] if values else None
            try:
                if type(first) in PLAIN:
                    return function(*values, **named)
                n = n_read(first)
                if type(first) in (list, tuple):
                    if n >= MIN_ITEMS and array_kind(first[0]):
                        meter.makes((1 + cost.n_made) * n, first[0])
                    n *= LIST
                more_ns = 0.0 if cost.more_ns is None else cost.more_ns(n, *values[1:], **named)
                table_ns = None
                if cost.shaped is not None and array_kind(first):
                    more_ns = table_ns = cost.shaped(values, **named)[1]
                meter.spend(ROUGH_NS + rough * n + more_ns)
                if array_kind(first) == "jax":
                    meter.operates(id(tree), (*values, *named.values()), by_value=True)
                if n < MIN_ITEMS or not array_kind(first):
                    return function(*values, **named)
                return meter.apply(name, cost, lambda: function(*values, **named), first, table_ns=table_ns)
            except FAILURES as error:
                raise placed(error, text, values) from None

        return run

    def called(self, tree: e.Call) -> Callable[..., Any]:
        """Return the function of a call, after checks of its arguments."""
        takes_lambda = any(isinstance(arg, e.Lambda) for arg in tree.args)
        if tree.name in FUNCTIONS:
            check_call(tree)
            return FUNCTIONS[tree.name].call
        self.lends = True
        if tree.name not in self.functions:
            known = {*FUNCTIONS, *self.functions}
            raise UnknownFunctionError("function", tree.name, known)
        if takes_lambda:
            raise QuerySyntaxError(f"Expected values as arguments of {tree.name}, got a lambda")
        check_arguments(self.functions[tree.name], tree, tree.name)
        return self.functions[tree.name]

    def function(self, tree: e.Lambda, scope: tuple[str, ...]) -> Closure:
        body = self.part(tree.body, (*scope, *tree.params))
        with_name = len(tree.params) == 2
        meter, rough_ns = self.meter, e.n_nodes(tree) * ROUGH_NS

        def bind(env: Env) -> Callable[[Any, Any], Any]:
            def run(name: object, value: object) -> Value:
                meter.spend(rough_ns)
                return body((*env, name, value) if with_name else (*env, value))

            return run

        return bind


def _stacked(values: Value) -> Value:
    """Return a list of numbers, of arrays or of texts as an array."""
    found = texts(values)
    return operand(values) if found is None else found


def _alone(value: Value) -> Value:
    """Return an array without dimensions as a scalar of its dtype, and anything else as it is."""
    return value[()] if type(value) is np.ndarray and not value.ndim else value


# What an evaluation that fails says: which part of the query, of which values, and what to write instead.


class UnknownFunctionError(UnknownNameError, QuerySyntaxError):
    """A query calls a function that neither sightglass nor the run defines."""


def placed(error: BaseException, text: str, values: Sequence[object]) -> BaseException:
    """Return an error of a library, or of a function of the run, with the part of the query and its operands."""
    if isinstance(error, SightglassError | PriceNeeded | CompilationNeeded | NoRoom) or any(map(is_traced, values)):
        return error  # JAX tells by its own errors that a query cannot be traced
    shown = ", ".join(type_name(value) for value in values if not isinstance(value, types.FunctionType))
    why = message(error).partition("\n")[0]
    return EvaluationError(f"Cannot compute {cut(text)} of {shown}: {why}{_way_out(error, values)}")


def _way_out(error: BaseException, values: Sequence[object]) -> str:
    """Return what to write in place of what failed; empty if nothing is known."""
    if type(error).__name__ == "AxisError" and type(values[0]) in PLAIN:
        return ". A number has no axis; over events, write every=100"
    if isinstance(error, NotImplementedError) and " not implemented for '" in str(error):  # PyTorch, of a dtype
        return ". PyTorch has no such function of this dtype: convert it first, x.astype('float32')"
    return ""
