"""The expression tree: what a query computes, as plain data; and its text.

A tree is made by tracing a lambda (`trace`) or by parsing text (`parse`), and compiled to a function by `evaluator`.
Trees compare and hash by their canonical text, in which the names of arguments do not matter, while types do: `True`,
`1` and `1.0` are three constants. Limits are checked when a tree is made.

The text is Python's own syntax, written by the standard library's `ast.unparse`, so that parentheses are right by
construction: `parse(write(tree)) == tree`. `canonical` numbers bound names in their order, so that two lambdas that
differ only in the names of their arguments have the same text.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from sightglass.core.errors import QuerySyntaxError, RefusedQueryError

from .limits import MAX_DEPTH, MAX_INT_BITS, MAX_NODES, MAX_TEXT

BINARY: Final = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "&": "and_", "|": "or_", "^": "xor",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip
UNARY: Final = {"-": "neg", "+": "pos", "~": "invert"}

BINARY_AST: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
COMPARE_AST: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt, "<=": ast.LtE, "==": ast.Eq, "!=": ast.NotEq, ">": ast.Gt, ">=": ast.GtE,
}  # fmt: skip
UNARY_AST: dict[str, type[ast.unaryop]] = {"-": ast.USub, "+": ast.UAdd, "~": ast.Invert}

METHODS: Final = frozenset((
    "all", "any", "argmax", "argmin", "argsort", "astype", "bincount", "clip", "contains", "cumsum", "diff", "dot",
    "endswith", "filter", "first", "histogram", "item", "items", "keys", "last", "leaves", "logsumexp", "map", "max",
    "mean", "median", "min", "nonzero", "norm", "percentile", "prod", "quantile", "ravel", "reshape", "sample", "shape",
    "size", "softmax", "sort", "startswith", "std", "sum", "topk", "unique", "values", "var",
))  # fmt: skip
"""The functions that are written as methods of their first argument: `x.mean()`, while others are `sqrt(x)`."""

NAMES: Final = frozenset(("nan", "inf", "fn", "on"))
"""Names that have a meaning in the text of a query and cannot name its event."""


class Expr:
    """A node of the tree."""

    __slots__ = ()

    def children(self) -> Iterator[Expr]:
        """Yield the nodes directly below this one."""
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if isinstance(value, Expr):
                yield value
            elif isinstance(value, tuple):
                for item in value:
                    if isinstance(item, Expr):
                        yield item
                    elif isinstance(item, tuple):
                        yield from (part for part in item if isinstance(part, Expr))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Expr):
            return NotImplemented
        return canonical(self) == canonical(other)

    def __hash__(self) -> int:
        return hash(canonical(self))

    def __str__(self) -> str:
        return write(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A constant: `None`, a bool, an int of 64 bits, a float, or a string."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Ellipsis_(Expr):
    """The dots of an index, `...`."""


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """An argument of an enclosing lambda."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Attr(Expr):
    """`target.name`: an observable, a key of a mapping, a field of an object."""

    target: Expr
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Item(Expr):
    """`target[index]`."""

    target: Expr
    index: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Slice(Expr):
    """`start:stop:step` in an index."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Unary(Expr):
    """An operator on one value."""

    op: str
    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Binary(Expr):
    """An operator on two values."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Call(Expr):
    """A call of a named function; a method call is one with the value as its first argument."""

    name: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Lambda(Expr):
    """A function inside a query, such as the argument of `.map`."""

    params: tuple[str, ...]
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Tuple(Expr):
    """A tuple of values."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class List(Expr):
    """A list of values; also as an index or an argument."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dict(Expr):
    """A dict of values with string keys."""

    entries: tuple[tuple[str, Expr], ...]


def constant(value: object) -> Const:
    """Return the constant for a Python or NumPy scalar.

    Raises:
        RefusedQueryError: The value is not a scalar, or is an int of more than 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) is bool:
        return Const(value)
    # A member of an enumeration, or of another subclass, stands for its value.
    if isinstance(value, float):
        return Const(float.__float__(value))
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise RefusedQueryError(f"Expected a string of at most {MAX_TEXT} characters, got {len(value)}")
        return Const(str.__str__(value))
    if isinstance(value, int):
        value = int.__int__(value)
        if not -(2 ** (MAX_INT_BITS - 1)) <= value < 2**MAX_INT_BITS:
            raise RefusedQueryError(f"Expected an integer from -2**63 to 2**64 - 1, got {value.bit_length()} bits")
        return Const(value)
    raise RefusedQueryError(
        f"Expected a constant (number, string, bool or None) in a query, got {type(value).__name__}. "
        "Pass other values to `observe`, or register a function with run.function(name, fn)."
    )


def check_size(tree: Expr) -> None:
    """Check the depth of a tree and its number of nodes.

    Raises:
        RefusedQueryError: The tree exceeds `MAX_DEPTH` or `MAX_NODES`.
    """
    n_nodes = 0
    stack = [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        n_nodes += 1
        if depth > MAX_DEPTH:
            raise RefusedQueryError(f"Expected an expression at most {MAX_DEPTH} levels deep, got a deeper one")
        if n_nodes > MAX_NODES:
            raise RefusedQueryError(f"Expected an expression of at most {MAX_NODES} nodes, got a larger one")
        stack.extend((child, depth + 1) for child in node.children())


def n_nodes(tree: Expr) -> int:
    """Return the number of nodes of a tree."""
    return 1 + sum(map(n_nodes, tree.children()))


def check_bound(tree: Expr) -> None:
    """Check that a tree uses no argument of another lambda, such as one stored in a variable while tracing.

    Raises:
        RefusedQueryError: The tree uses one.
    """
    stack: list[tuple[Expr, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, names = stack.pop()
        if isinstance(node, Lambda):
            names |= set(node.params)
        elif isinstance(node, Var) and node.name not in names:
            raise RefusedQueryError(f"Expected only arguments of this lambda, got {node.name!r} of another lambda")
        stack.extend((child, names) for child in node.children())


def literal(tree: Expr) -> Any:
    """Return the Python value of a tree of constants.

    Raises:
        QuerySyntaxError: The tree contains a node that is not a constant, a tuple, a list or a dict.
    """
    match tree:
        case Const(value):
            return value
        case Tuple(items):
            return tuple(map(literal, items))
        case List(items):
            return list(map(literal, items))
        case Dict(entries):
            return {key: literal(value) for key, value in entries}
    raise QuerySyntaxError(f"Expected a constant, got {tree!s:.200}")


# Text


def write(tree: Expr) -> str:
    """Return a tree as text, with the original names of arguments."""
    return ast.unparse(_node(tree, {}))


def write_body(function: Lambda, name: str) -> str | None:
    """Return the body of a lambda of one argument, renamed to `name`.

    `None` if the text would be read as another query: the body binds that name, does not use it, or is that name alone.
    """
    if len(function.params) != 1 or name in _bound(function.body) or name in NAMES:
        return None
    if isinstance(function.body, Var) or not _uses(function.body, function.params[0]):
        return None
    return ast.unparse(_node(function.body, {function.params[0]: name}))


def _bound(tree: Expr) -> set[str]:
    names = set(tree.params) if isinstance(tree, Lambda) else set()
    return names.union(*(_bound(child) for child in tree.children()))


def _uses(tree: Expr, name: str) -> bool:
    return (isinstance(tree, Var) and tree.name == name) or any(_uses(child, name) for child in tree.children())


def canonical(tree: Expr) -> str:
    """Return the text that equal trees share: bound names are numbered in the order of their binding."""
    return ast.unparse(_node(tree, {}, numbering=[0]))


def _node(tree: Expr, names: dict[str, str], numbering: list[int] | None = None) -> ast.expr:
    def node(part: Expr) -> ast.expr:
        return _node(part, names, numbering)

    match tree:
        case Const(value):
            return _constant(value)
        case Ellipsis_():
            return ast.Constant(...)
        case Var(name):
            return ast.Name(names.get(name, name))
        case Attr(target, name):
            return ast.Attribute(node(target), name)
        case Item(target, index):
            return ast.Subscript(node(target), node(index))
        case Slice(start, stop, step):
            return ast.Slice(*(None if part is None else node(part) for part in (start, stop, step)))
        case Unary(op, operand):
            return ast.UnaryOp(UNARY_AST[op](), node(operand))
        case Binary(op, left, right) if op in COMPARE_AST:
            return ast.Compare(node(left), [COMPARE_AST[op]()], [node(right)])
        case Binary(op, left, right):
            return ast.BinOp(node(left), BINARY_AST[op](), node(right))
        case Call(name, args, kwargs):
            return _call(name, [node(arg) for arg in args], [(key, node(value)) for key, value in kwargs])
        case Lambda():
            return _lambda(tree, names, numbering)
        case Tuple(items):
            return ast.Tuple([node(item) for item in items])
        case List(items):
            return ast.List([node(item) for item in items])
        case Dict(entries):
            return ast.Dict([ast.Constant(key) for key, _ in entries], [node(value) for _, value in entries])
    raise TypeError(f"Expected an expression, got {type(tree).__name__}")


def _constant(value: bool | int | float | str | None) -> ast.expr:
    if isinstance(value, float) and not math.isfinite(value):
        name: ast.expr = ast.Name("nan" if math.isnan(value) else "inf")
        return ast.UnaryOp(ast.USub(), name) if value < 0 else name
    if isinstance(value, int | float) and not isinstance(value, bool) and math.copysign(1, value) < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _call(name: str, args: list[ast.expr], kwargs: list[tuple[str, ast.expr]]) -> ast.expr:
    keywords = [ast.keyword(key, value) for key, value in kwargs]
    if name in METHODS and args and (not isinstance(args[0], ast.Constant) or name in ("max", "min")):
        return ast.Call(ast.Attribute(args[0], name), args[1:], keywords)
    return ast.Call(ast.Name(name), args, keywords)


def _lambda(tree: Lambda, names: dict[str, str], numbering: list[int] | None) -> ast.expr:
    renamed = dict(names)
    params = list(tree.params)
    if numbering is not None:
        for i, param in enumerate(tree.params):
            renamed[param] = params[i] = f"v{numbering[0]}"
            numbering[0] += 1
    else:
        renamed.update(zip(params, params, strict=True))
    arguments = ast.arguments([], [ast.arg(param) for param in params], None, [], [], None, [])
    return ast.Lambda(arguments, _node(tree.body, renamed, numbering))
