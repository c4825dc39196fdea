"""Parse the expressions in the text of a query: each node of Python's syntax tree is allowed, or refused with a caret.

Nothing is executed.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Collection, Mapping
from typing import Final, NoReturn, TypeGuard

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError, caret, unknown

from . import expressions as e
from .functions import FUNCTIONS, axis_for_dim, check_call, over_events
from .limits import MAX_DEPTH, MAX_TEXT
from .tracer import NAMED_CONSTANTS

BINARY = {node: op for op, node in e.BINARY_AST.items()}
COMPARE = {node: op for op, node in e.COMPARE_AST.items()}
UNARY = {node: op for op, node in e.UNARY_AST.items()}

LARGEST: Final = {"max": "maximum", "min": "minimum"}

INSTEAD: dict[type[ast.AST], str] = {
    ast.BoolOp: "Write `&` and `|` instead of `and` and `or`, with parentheses around comparisons",
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


class ExpressionReader:
    """Parses expressions of one text.

    Attributes:
        parsed: What Python's parser read of the text, character by character.
        stage_names: The names of a query's stages, which may be meant by an unknown function.
        reducer_names: Those of them that are reducers.
        results: What stands for parts of the syntax tree that were read before, by their ids.
        joined: The events that are joined so far.
    """

    stage_names: Collection[str] = ()
    reducer_names: Collection[str] = ()

    def __init__(self, text: str, functions: Collection[str] | None) -> None:
        if not isinstance(text, str):
            raise QuerySyntaxError(f"Expected a query as text, got {type(text).__name__}")
        if len(text) > MAX_TEXT:
            raise RefusedQueryError(f"Expected a query of at most {MAX_TEXT} characters, got {len(text)}")
        self.text = text.replace("\r\n", "\n").replace("\r", "\n").strip()
        self.parsed = self.text
        self.functions = functions
        self.depth = 0
        self.results: Mapping[int, e.Expr] = {}
        self.joined: set[str] = set()

    def place(self, node: ast.AST) -> int:
        """Return the position in the text where a node begins; Python counts columns in bytes."""
        lines = self.parsed.split("\n")
        row = getattr(node, "lineno", 1) - 1
        column = len(lines[row].encode()[: getattr(node, "col_offset", 0)].decode(errors="ignore"))
        return sum(len(line) + 1 for line in lines[:row]) + column

    def fail(self, message: str, node: ast.AST) -> NoReturn:
        """Raise an error with a caret under the node."""
        raise QuerySyntaxError(message, text=self.text, column=self.place(node))

    def refuse(self, error: QueryError, node: ast.AST) -> NoReturn:
        """Raise an error again, with a caret under the node."""
        if isinstance(error, RefusedQueryError):
            raise RefusedQueryError(f"{error}\n{caret(self.text, self.place(node))}") from None
        self.fail(str(error), node)

    def check_nodes(self, node: ast.AST) -> None:
        """Refuse what a query does not have, and say what to write instead, before names are looked up."""
        for part in ast.walk(node):
            if type(part) in INSTEAD:
                self.fail(INSTEAD[type(part)], part)
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "isinstance":
                self.fail("Write x.dtype == 'float32' and the like instead of isinstance", part)

    def check_keywords(self, node: ast.Call) -> None:
        """Refuse unpacking, and a keyword that comes twice."""
        names: set[str] = set()
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail("A query cannot unpack", keyword.value)
            if keyword.arg in names:
                self.fail(f"Expected {keyword.arg!r} once", keyword)
            names.add(keyword.arg)

    def enter(self, node: ast.AST) -> None:
        """Go one level deeper. Whoever does subtracts 1 from `depth` afterwards."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = f"Expected an expression at most {MAX_DEPTH} levels deep, got a deeper one"
            self.refuse(RefusedQueryError(message), node)

    def expression(self, node: ast.AST, scope: frozenset[str]) -> e.Expr:
        """Parse an expression; `scope` are the names that it may use."""
        self.enter(node)
        tree = self.results.get(id(node)) or self._node(node, scope)
        self.depth -= 1
        return tree

    def _node(self, node: ast.AST, scope: frozenset[str]) -> e.Expr:
        match node:
            case ast.Constant():
                return self._constant(node)
            case ast.Name(id=name):
                return self._name(node, name, scope)
            case ast.Attribute(value=value, attr=name):
                if name.startswith("_"):
                    self.fail(f"Expected a public name, got {name!r}: a leading underscore is refused", self.end(node))
                return e.Attr(self.expression(value, scope), name)
            case ast.Subscript(value=value, slice=index):
                return e.Item(self.expression(value, scope), self._index(index, scope))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(node, op, self.expression(operand, scope))
            case ast.BinOp(left=left, op=ast.MatMult(), right=right):
                return e.Call("matmul", (self.expression(left, scope), self.expression(right, scope)), ())
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return e.Call("where", tuple(self.expression(part, scope) for part in (test, body, orelse)), ())
            case ast.BinOp(left=left, op=op, right=right):
                if type(op) not in BINARY:
                    self.fail(f"Expected one of the operators {' '.join(BINARY.values())}", node)
                return e.Binary(BINARY[type(op)], self.expression(left, scope), self.expression(right, scope))
            case ast.Compare():
                return self._compare(node, scope)
            case ast.Call():
                return self._call(node, scope)
            case ast.Lambda():
                self.fail("Expected a value, got a lambda: only stages and functions such as map take lambdas", node)
            case ast.Tuple(elts=items):
                return e.Tuple(tuple(self.expression(item, scope) for item in items))
            case ast.List(elts=items):
                return e.List(tuple(self.expression(item, scope) for item in items))
            case ast.Dict():
                return self._dictionary(node, scope)
        return self.fail(f"A query cannot use {type(node).__name__}", node)

    def end(self, node: ast.Attribute) -> ast.AST:
        """Return a node that begins at the attribute's name instead of at its target."""
        place = ast.Constant(None)
        place.lineno = node.end_lineno or node.lineno
        place.col_offset = (node.end_col_offset or 0) - len(node.attr.encode())
        return place

    def _index(self, node: ast.expr, scope: frozenset[str]) -> e.Expr:
        """Parse an index, which may also be a slice or `...`, or a tuple of them."""
        match node:
            case ast.Tuple(elts=parts):
                return e.Tuple(
                    tuple(
                        self.expression(part, scope) if isinstance(part, ast.Tuple) else self._index(part, scope)
                        for part in parts
                    )
                )
            case ast.Slice(lower=lower, upper=upper, step=step):
                ends = (lower, upper, step)
                return e.Slice(*(None if end is None else self.expression(end, scope) for end in ends))
            case ast.Constant(value=value) if value is Ellipsis:
                return e.Ellipsis_()
        return self.expression(node, scope)

    def _constant(self, node: ast.Constant) -> e.Expr:
        if node.value is Ellipsis:
            self.fail("Expected `...` only inside an index, as in x[..., 1:]", node)
        try:
            return e.constant(node.value)
        except QueryError as error:
            return self.refuse(error, node)

    def _name(self, node: ast.AST, name: str, scope: frozenset[str]) -> e.Expr:
        if name in scope:
            return e.Var(name)
        if name in NAMED_CONSTANTS:
            return e.Const(NAMED_CONSTANTS[name])
        if name in self.joined and scope:
            self.fail(f"Expected the event that is joined as an attribute: {min(scope)}.{name}", node)
        return self.fail(unknown("name", name, scope), node)

    def _unary(self, node: ast.AST, op: ast.unaryop, operand: e.Expr) -> e.Expr:
        if isinstance(op, ast.Not):
            self.fail("Write `~` instead of `not`", node)
        if isinstance(op, ast.USub) and isinstance(operand, e.Const) and type(operand.value) in (int, float):
            try:
                return e.constant(-operand.value)  # type: ignore[operator]
            except QueryError as error:
                self.refuse(error, node)
        return e.Unary(UNARY[type(op)], operand)

    def _compare(self, node: ast.Compare, scope: frozenset[str]) -> e.Expr:
        if len(node.ops) > 1:
            self.fail(self._chained(node), node)
        op = node.ops[0]
        if isinstance(op, ast.In | ast.NotIn):
            self.fail("Write x.contains(part) instead of `part in x`", node)
        if type(op) not in COMPARE:
            self.fail("Write x == None, or isnan(x), instead of `is`", node)
        return e.Binary(
            COMPARE[type(op)], self.expression(node.left, scope), self.expression(node.comparators[0], scope)
        )

    def _chained(self, node: ast.Compare) -> str:
        """Return how to write several comparisons: `a > 1 | b > 1` is read as `a > (1 | b) > 1`."""
        middle = node.comparators[0]
        if len(node.ops) == 2 and isinstance(middle, ast.BinOp) and isinstance(middle.op, ast.BitOr | ast.BitAnd):
            operator = BINARY[type(middle.op)]
            with contextlib.suppress(RecursionError):  # of operands that are too deep
                first = ast.unparse(ast.Compare(node.left, node.ops[:1], [middle.left]))
                second = ast.unparse(ast.Compare(middle.right, node.ops[1:], node.comparators[1:]))
                return f"Write parentheses around comparisons: ({first}) {operator} ({second})"
        return "Write (a < b) & (b < c) instead of a chained comparison"

    def _call(self, node: ast.Call, scope: frozenset[str]) -> e.Expr:
        args = list(node.args)
        match node.func:
            case ast.Attribute(attr=name) if is_namespace(node.func) and "fn" not in scope:
                self._known(name, self.end(node.func))
            case ast.Attribute(value=value, attr=name):
                if name.startswith("_"):
                    self.fail(
                        f"Expected a public name, got {name!r}: a leading underscore is refused", self.end(node.func)
                    )
                if name not in FUNCTIONS:
                    told = self.of_stage(name) or unknown(
                        "function", name, FUNCTIONS, where="called on a value", elsewhere=self.stage_names
                    )
                    self.fail(told, self.end(node.func))
                args.insert(0, value)
            case ast.Name(id=name):
                self._known(name, node.func)
                if name in LARGEST and len(args) > 1:
                    return self._largest(node, LARGEST[name], scope)
            case _:
                self.fail("A query can only call named functions", node)
        self.check_keywords(node)
        trees = tuple(
            self.function(arg, scope) if isinstance(arg, ast.Lambda) else self.expression(arg, scope) for arg in args
        )
        named = tuple((str(keyword.arg), self.expression(keyword.value, scope)) for keyword in node.keywords)
        if name not in FUNCTIONS:
            return e.Call(name, trees, named)
        tree = e.Call(name, trees, axis_for_dim(named))
        try:
            check_call(tree)
        except QueryError as error:
            self.refuse(error, node)
        return tree

    def _largest(self, node: ast.Call, name: str, scope: frozenset[str]) -> e.Expr:
        """Read `max(a, b)` as Python does: of several values; the axis of an array is written `x.max(0)`."""
        if node.keywords:
            self.fail("Write x.max(axis=0) for an axis; max(a, b) takes values only", node.keywords[0])
        first, *others = (self.expression(arg, scope) for arg in node.args)
        for other in others:
            first = e.Call(name, (first, other), ())
        return first

    def _known(self, name: str, node: ast.AST) -> None:
        if name.startswith("_"):
            self.fail(f"Expected a public name, got {name!r}: a leading underscore is refused", node)
        if name not in FUNCTIONS and self.functions is not None and name not in self.functions:
            told = unknown("function", name, {*FUNCTIONS, *self.functions})
            self.fail(self.of_stage(name) if name in self.reducer_names else told, node)

    def of_stage(self, name: str) -> str:
        """Return how to write a stage that is called as a function, or nothing for other names."""
        if name in self.reducer_names:
            return f"Expected a function of one value, got the reducer {name!r}. {over_events(name)}"
        if name in self.stage_names:
            return f"Expected a function of one value, got the stage {name!r}: write the long form, on('batch').…"
        return ""

    def function(self, node: ast.Lambda, scope: frozenset[str]) -> e.Lambda:
        """Parse a lambda, which may use the names around it, too."""
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

    def _dictionary(self, node: ast.Dict, scope: frozenset[str]) -> e.Expr:
        entries = []
        for key, value in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                self.fail("Expected strings as the keys of a mapping", key or node)
            entries.append((key.value, self.expression(value, scope)))
        return e.Dict(tuple(entries))


def is_namespace(function: ast.expr) -> TypeGuard[ast.Attribute]:
    """Return whether a function is written with the prefix of Python code, `fn.sqrt`."""
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id == "fn"
