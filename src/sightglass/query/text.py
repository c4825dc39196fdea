"""Expression trees as text. `parse` reads what this module writes: `parse(write(tree)) == tree`.

The text is Python's own syntax, written by the standard library's `ast.unparse`, so that parentheses are right by
construction. `canonical` renames bound names by their order, so that two lambdas that differ only in the names of their
arguments have one text.
"""

from __future__ import annotations

import ast
import math

from . import expressions as e

BINARY_AST: dict[str, type[ast.operator]] = {
    "+": ast.Add, "-": ast.Sub, "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow,
    "&": ast.BitAnd, "|": ast.BitOr, "^": ast.BitXor,
}  # fmt: skip
COMPARE_AST: dict[str, type[ast.cmpop]] = {
    "<": ast.Lt, "<=": ast.LtE, "==": ast.Eq, "!=": ast.NotEq, ">": ast.Gt, ">=": ast.GtE,
}  # fmt: skip
UNARY_AST: dict[str, type[ast.unaryop]] = {"-": ast.USub, "+": ast.UAdd, "~": ast.Invert}


NAMES = frozenset(("nan", "inf", "fn", "on"))


def write(tree: e.Expr) -> str:
    """Write a tree as text, with the names its author gave."""
    return ast.unparse(_node(tree, {}))


def write_body(function: e.Lambda, name: str) -> str | None:
    """Write what a lambda of one argument computes, its argument called `name`; `None` if that name is taken inside."""
    if len(function.params) != 1 or name in _bound(function.body) or name in NAMES:
        return None
    return ast.unparse(_node(function.body, {function.params[0]: name}))


def _bound(tree: e.Expr) -> set[str]:
    names = set(tree.params) if isinstance(tree, e.Lambda) else set()
    return names.union(*(_bound(child) for child in tree.children()))


def canonical(tree: e.Expr) -> str:
    """Write a tree as the text that equal trees share: bound names are numbered in the order of their binding."""
    return ast.unparse(_node(tree, {}, numbering=[0]))


def _node(tree: e.Expr, names: dict[str, str], numbering: list[int] | None = None) -> ast.expr:
    def node(part: e.Expr) -> ast.expr:
        return _node(part, names, numbering)

    match tree:
        case e.Const(value):
            return _constant(value)
        case e.Ellipsis_():
            return ast.Constant(...)
        case e.Var(name):
            return ast.Name(names.get(name, name))
        case e.Attr(target, name):
            return ast.Attribute(node(target), name)
        case e.Item(target, index):
            return ast.Subscript(node(target), node(index))
        case e.Slice(start, stop, step):
            return ast.Slice(*(None if part is None else node(part) for part in (start, stop, step)))
        case e.Unary(op, operand):
            return ast.UnaryOp(UNARY_AST[op](), node(operand))
        case e.Binary(op, left, right) if op in COMPARE_AST:
            return ast.Compare(node(left), [COMPARE_AST[op]()], [node(right)])
        case e.Binary(op, left, right):
            return ast.BinOp(node(left), BINARY_AST[op](), node(right))
        case e.Call(name, args, kwargs):
            return _call(name, [node(arg) for arg in args], [(key, node(value)) for key, value in kwargs])
        case e.Lambda():
            return _lambda(tree, names, numbering)
        case e.Tuple(items):
            return ast.Tuple([node(item) for item in items])
        case e.List(items):
            return ast.List([node(item) for item in items])
        case e.Dict(entries):
            return ast.Dict([ast.Constant(key) for key, _ in entries], [node(value) for _, value in entries])
    raise TypeError(f"Expected an expression, got {type(tree).__name__}")


def _constant(value: bool | int | float | str | None) -> ast.expr:
    if isinstance(value, float) and e.is_special(value):
        name: ast.expr = ast.Name("nan" if math.isnan(value) else "inf")
        return ast.UnaryOp(ast.USub(), name) if value < 0 else name
    if isinstance(value, int | float) and not isinstance(value, bool) and math.copysign(1, value) < 0:
        return ast.UnaryOp(ast.USub(), ast.Constant(-value))
    return ast.Constant(value)


def _call(name: str, args: list[ast.expr], kwargs: list[tuple[str, ast.expr]]) -> ast.expr:
    from .functions import METHODS

    keywords = [ast.keyword(key, value) for key, value in kwargs]
    if name in METHODS and args and not isinstance(args[0], ast.Constant):
        return ast.Call(ast.Attribute(args[0], name), args[1:], keywords)
    return ast.Call(ast.Name(name), args, keywords)


def _lambda(tree: e.Lambda, names: dict[str, str], numbering: list[int] | None) -> ast.expr:
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
