"""Parse the text of a query: Python's syntax, restricted to a whitelist.

There are two forms::

    on("batch").map(lambda b: abs(b.grads["dense"]).mean()).mean(every=100)
    abs(batch.grads["dense"]).mean()

In the short form the only free name is the event. Reducers that name their window may follow:
`batch.loss.mean(every=100)`. Nothing is executed: each node of the syntax tree is allowed, or refused with a caret
under its place.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, Final, NoReturn, TypeGuard

from sightglass.core.errors import MAX_NAMES_SHOWN, QueryError, QuerySyntaxError, RefusedQueryError, caret, unknown

from . import expressions as e
from .functions import FUNCTIONS, check_call
from .limits import MAX_DEPTH, MAX_TEXT
from .query import Query, on
from .stages import REDUCERS, STAGES, WINDOWS
from .tracer import NAMED_CONSTANTS

# A text is asked for several times on its way: checked, made canonical, sent. A page has a few dozen of them, of a few
# KB each once parsed.
MAX_PARSED: Final = 128

BINARY = {node: op for op, node in e.BINARY_AST.items()}
COMPARE = {node: op for op, node in e.COMPARE_AST.items()}
UNARY = {node: op for op, node in e.UNARY_AST.items()}

INSTEAD: dict[type[ast.AST], str] = {
    ast.BoolOp: "Write `&` and `|` instead of `and` and `or`, with parentheses around comparisons",
    ast.IfExp: "Write where(condition, x, y) instead of `x if condition else y`",
    ast.NamedExpr: "A query cannot assign",
    ast.ListComp: "Write x.map(lambda name, value: …) instead of a comprehension",
    ast.DictComp: "Write x.map(lambda name, value: …) instead of a comprehension",
    ast.SetComp: "Write x.map(lambda name, value: …) instead of a comprehension",
    ast.GeneratorExp: "Write x.map(lambda name, value: …) instead of a loop",
    ast.JoinedStr: "A query cannot format strings: return the values themselves",
    ast.Await: "A query cannot await",
    ast.Starred: "A query cannot unpack",
    ast.Set: "Write a list instead of a set",
}


def parse(text: str, *, functions: Collection[str] | None = None) -> Query:
    """Parse a query.

    Args:
        text: The query, in either form.
        functions: The names of the functions that the run registered; other unknown functions are refused. With
            `None`, every unknown function is taken for a registered one.

    Raises:
        QuerySyntaxError: The text is not a query; the message has a caret under the place.
        RefusedQueryError: The query exceeds a limit, or uses a value that cannot be part of a query.
    """
    return _Reader(text, functions).query()


def as_query(query: Query | str) -> Query:
    """Return a query; parse it if it is text.

    Raises:
        QueryError: `query` is not a query or a string, or the text is not valid.
    """
    if isinstance(query, Query):
        return query
    if isinstance(query, str):
        return _parse_once(str(query))
    raise QuerySyntaxError(f"Expected a query such as on('batch').map(lambda b: b.loss) or 'batch.loss', got {query!r}")


@lru_cache(maxsize=MAX_PARSED)
def _parse_once(text: str) -> Query:
    return parse(text)


class _Reader:
    """Parses one text."""

    def __init__(self, text: str, functions: Collection[str] | None) -> None:
        if not isinstance(text, str):
            raise QuerySyntaxError(f"Expected a query as text, got {type(text).__name__}")
        if len(text) > MAX_TEXT:
            raise RefusedQueryError(f"Expected a query of at most {MAX_TEXT} characters, got {len(text)}")
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        self.functions = functions
        self.depth = 0

    def syntax(self) -> ast.expr:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            lines = self.text.split("\n")
            row = min(max(error.lineno or 1, 1), len(lines)) - 1
            column = error.offset - 1 if error.offset else len(lines[row])  # Python says 0 for the end
            place = sum(len(line) + 1 for line in lines[:row]) + column
            message = f"Expected a query, found invalid syntax: {error.msg}"
            raise QuerySyntaxError(message, text=self.text, column=min(place, len(self.text))) from None
        except (RecursionError, MemoryError, ValueError, OverflowError) as error:
            what = str(error) or type(error).__name__
            raise RefusedQueryError(f"Expected a query that can be parsed, got: {what}") from None

    def place(self, node: ast.AST) -> int:
        """Return the position in the text where a node begins; Python counts columns in bytes."""
        lines = self.text.split("\n")
        row = getattr(node, "lineno", 1) - 1
        column = len(lines[row].encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        return sum(len(line) + 1 for line in lines[:row]) + column

    def fail(self, message: str, node: ast.AST) -> NoReturn:
        raise QuerySyntaxError(message, text=self.text, column=self.place(node))

    def refuse(self, error: QueryError, node: ast.AST) -> NoReturn:
        """Raise an error again, with a caret under the node."""
        if isinstance(error, RefusedQueryError):
            raise RefusedQueryError(f"{error}\n{caret(self.text, self.place(node))}") from None
        self.fail(str(error), node)

    # The chain of stages

    def query(self) -> Query:
        node = self.syntax()
        chain: list[tuple[ast.Attribute, ast.Call]] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            chain.append((inner.func, inner))
            inner = inner.func.value
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "on":
            return self.stages(self.on(inner), reversed(chain))
        return self.short(node)

    def on(self, node: ast.Call) -> Query:
        match node:
            case ast.Call(args=[ast.Constant(value=str(event))], keywords=[]) if event:
                return on(event)
        return self.fail('Expected one event name: on("batch")', node)

    def short(self, node: ast.expr) -> Query:
        reducers: list[tuple[ast.Attribute, ast.Call]] = []
        while (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in REDUCERS
            and any(keyword.arg in WINDOWS for keyword in node.keywords)
        ):
            reducers.append((node.func, node))
            node = node.func.value
        free = self.free(node)
        if len(free) != 1:
            names = ", ".join(map(repr, list(free)[:MAX_NAMES_SHOWN])) or "none"
            self.fail(
                f"Expected one event in a query such as batch.loss, or on('batch')…; got {names}",
                list(free.values())[1] if free else node,
            )
        (event,) = free
        if event.startswith("_"):
            self.fail(f"Expected a public name, got {event!r}: a leading underscore is refused", free[event])
        query = on(event)
        if not (isinstance(node, ast.Name) and node.id == event):
            body = self.expression(node, frozenset({event}))
            try:
                query = query.map(e.Lambda((event,), body))
            except QueryError as error:
                self.refuse(error, node)
        return self.stages(query, reversed(reducers))

    def free(self, node: ast.expr) -> dict[str, ast.Name]:
        """Return the names of values that no lambda binds; in a valid query, the event alone."""
        parts = list(ast.walk(node))
        bound = {arg.arg for part in parts if isinstance(part, ast.Lambda) for arg in part.args.args}
        called = [part.func for part in parts if isinstance(part, ast.Call)]
        functions = {id(part) for part in called} | {id(part.value) for part in called if _is_namespace(part)}
        names = [part for part in parts if isinstance(part, ast.Name) and id(part) not in functions]
        names.sort(key=lambda part: (part.lineno, part.col_offset))
        return {part.id: part for part in names if part.id not in bound and part.id not in NAMED_CONSTANTS}

    def stages(self, query: Query, chain: Iterable[tuple[ast.Attribute, ast.Call]]) -> Query:
        for method, node in chain:
            name = method.attr
            if name not in STAGES:
                self.fail(unknown("stage", name, STAGES, where="of a query"), self.end(method))
            self.check_keywords(node)
            args = [self.argument(arg) for arg in node.args]
            kwargs = {str(keyword.arg): self.argument(keyword.value) for keyword in node.keywords}
            try:
                query = getattr(query, name)(*args, **kwargs)
            except TypeError as error:
                self.fail(f"Wrong arguments for {name}: {error}", node)
            except QueryError as error:
                self.refuse(error, node)
        return query

    def check_keywords(self, node: ast.Call) -> None:
        names: set[str] = set()
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail("A query cannot unpack", keyword.value)
            if keyword.arg in names:
                self.fail(f"Expected {keyword.arg!r} once", keyword)
            names.add(keyword.arg)

    def argument(self, node: ast.expr) -> Any:
        """Parse an argument of a stage: a lambda or a constant."""
        tree = self.function(node, frozenset()) if isinstance(node, ast.Lambda) else self.expression(node, frozenset())
        try:
            e.check_size(tree)
            return tree if isinstance(tree, e.Lambda) else e.literal(tree)
        except QueryError as error:
            return self.refuse(error, node)

    # Expressions

    def expression(self, node: ast.AST, scope: frozenset[str]) -> e.Expr:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"Expected an expression at most {MAX_DEPTH} levels deep, got a deeper one"
            self.refuse(RefusedQueryError(message), node)
        tree = self.node(node, scope)
        self.depth -= 1
        return tree

    def node(self, node: ast.AST, scope: frozenset[str]) -> e.Expr:
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name(id=name):
                return self.name(node, name, scope)
            case ast.Attribute(value=value, attr=name):
                if name.startswith("_"):
                    self.fail(f"Expected a public name, got {name!r}: a leading underscore is refused", self.end(node))
                return e.Attr(self.expression(value, scope), name)
            case ast.Subscript(value=value, slice=index):
                return e.Item(self.expression(value, scope), self.index(index, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return self.unary(node, op, self.expression(operand, scope))
            case ast.BinOp(left=left, op=op, right=right):
                if type(op) not in BINARY:
                    self.fail(f"Expected one of the operators {' '.join(BINARY.values())}", node)
                return e.Binary(BINARY[type(op)], self.expression(left, scope), self.expression(right, scope))
            case ast.Compare():
                return self.compare(node, scope)
            case ast.Call():
                return self.call(node, scope)
            case ast.Lambda():
                self.fail("Expected a value, got a lambda: only stages and functions such as map take lambdas", node)
            case ast.Tuple(elts=items):
                return e.Tuple(tuple(self.expression(item, scope) for item in items))
            case ast.List(elts=items):
                return e.List(tuple(self.expression(item, scope) for item in items))
            case ast.Dict():
                return self.dictionary(node, scope)
        return self.fail(INSTEAD.get(type(node), f"A query cannot use {type(node).__name__}"), node)

    def end(self, node: ast.Attribute) -> ast.AST:
        """Return a node that begins at the attribute's name instead of at its target."""
        place = ast.Constant(None)
        place.lineno = node.end_lineno or node.lineno
        place.col_offset = (node.end_col_offset or 0) - len(node.attr.encode())
        return place

    def index(self, node: ast.expr, scope: frozenset[str]) -> e.Expr:
        """Parse an index, which may also be a slice or `...`, or a tuple of them."""
        match node:
            case ast.Tuple(elts=parts):
                return e.Tuple(
                    tuple(
                        self.expression(part, scope) if isinstance(part, ast.Tuple) else self.index(part, scope)
                        for part in parts
                    )
                )
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = (lower, upper, step)
                return e.Slice(*(None if end is None else self.expression(end, scope) for end in ends))
            case ast.Constant(value=value) if value is Ellipsis:
                return e.Ellipsis_()
        return self.expression(node, scope)

    def constant(self, node: ast.Constant) -> e.Expr:
        if node.value is Ellipsis:
            self.fail("Expected `...` only inside an index, as in x[..., 1:]", node)
        try:
            return e.constant(node.value)
        except QueryError as error:
            return self.refuse(error, node)

    def name(self, node: ast.AST, name: str, scope: frozenset[str]) -> e.Expr:
        if name in scope:
            return e.Var(name)
        if name in NAMED_CONSTANTS:
            return e.Const(NAMED_CONSTANTS[name])
        return self.fail(unknown("name", name, scope), node)

    def unary(self, node: ast.AST, op: ast.unaryop, operand: e.Expr) -> e.Expr:
        if isinstance(op, ast.Not):
            self.fail("Write `~` instead of `not`", node)
        if isinstance(op, ast.USub) and isinstance(operand, e.Const) and type(operand.value) in (int, float):
            try:
                return e.constant(-operand.value)  # type: ignore[operator]
            except QueryError as error:
                self.refuse(error, node)
        return e.Unary(UNARY[type(op)], operand)

    def compare(self, node: ast.Compare, scope: frozenset[str]) -> e.Expr:
        if len(node.ops) > 1:
            self.fail("Write (a < b) & (b < c) instead of a chained comparison", node)
        op = node.ops[0]
        if isinstance(op, ast.In | ast.NotIn):
            self.fail("Write x.contains(part) instead of `part in x`", node)
        if type(op) not in COMPARE:
            self.fail("Write == or isnan(x) instead of `is`", node)
        return e.Binary(
            COMPARE[type(op)], self.expression(node.left, scope), self.expression(node.comparators[0], scope)
        )

    def call(self, node: ast.Call, scope: frozenset[str]) -> e.Expr:
        args = list(node.args)
        match node.func:
            case ast.Attribute(attr=name) if _is_namespace(node.func) and "fn" not in scope:
                self.known(name, self.end(node.func))
            case ast.Attribute(value=value, attr=name):
                if name.startswith("_"):
                    self.fail(
                        f"Expected a public name, got {name!r}: a leading underscore is refused", self.end(node.func)
                    )
                if name not in FUNCTIONS:
                    self.fail(unknown("function", name, FUNCTIONS, where="called on a value"), self.end(node.func))
                args.insert(0, value)
            case ast.Name(id=name):
                self.known(name, node.func)
            case _:
                self.fail("A query can only call named functions", node)
        self.check_keywords(node)
        tree = e.Call(
            name,
            tuple(
                self.function(arg, scope) if isinstance(arg, ast.Lambda) else self.expression(arg, scope)
                for arg in args
            ),
            tuple((str(keyword.arg), self.expression(keyword.value, scope)) for keyword in node.keywords),
        )
        if name in FUNCTIONS:
            try:
                check_call(tree)
            except QueryError as error:
                self.refuse(error, node)
        return tree

    def known(self, name: str, node: ast.AST) -> None:
        if name.startswith("_"):
            self.fail(f"Expected a public name, got {name!r}: a leading underscore is refused", node)
        if name not in FUNCTIONS and self.functions is not None and name not in self.functions:
            self.fail(unknown("function", name, {*FUNCTIONS, *self.functions}), node)

    def function(self, node: ast.Lambda, scope: frozenset[str]) -> e.Lambda:
        a = node.args
        if a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults or not 1 <= len(a.args) <= 2:
            self.fail("Expected a lambda of one or two positional arguments", node)
        params = tuple(arg.arg for arg in a.args)
        for i, param in enumerate(params):
            if param in scope or param in NAMED_CONSTANTS or param in params[:i]:
                self.fail(
                    f"Expected an unused name for the lambda's argument, got {param!r}",
                    a.args[i],
                )
            if param.startswith("_"):
                self.fail(f"Expected a public name, got {param!r}: a leading underscore is refused", a.args[i])
        return e.Lambda(params, self.expression(node.body, scope | set(params)))

    def dictionary(self, node: ast.Dict, scope: frozenset[str]) -> e.Expr:
        entries = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                self.fail("Expected strings as the keys of a mapping", key or node)
            entries.append((key.value, self.expression(value, scope)))
        return e.Dict(tuple(entries))


def _is_namespace(function: ast.expr) -> TypeGuard[ast.Attribute]:
    """Return whether a function is written with the prefix of Python code, `fn.sqrt`."""
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "fn"
