"""The one way through a tree: in which order its parts are computed, and which of them as one chain.

`evaluator` makes a function of each part, `price` the spec of its value; both know operations by one table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from sightglass.core.errors import QuerySyntaxError

from . import expressions as e
from .arrays import ArraySpec
from .functions import FUNCTIONS

FUSED: Final = frozenset(("sum", "prod", "mean", "norm", "min", "max", "any", "all", "var", "std"))
TEMPORARY: Final = frozenset(("norm", "var", "std"))
"""The statistics that copy their argument, unless they are computed in blocks."""

Part = TypeVar("Part")
Scope = TypeVar("Scope")


class Interpreter(Generic[Part, Scope]):
    """Goes through a tree; a subclass says what becomes of each kind of part."""

    def part(self, tree: e.Expr, scope: Scope) -> Part:
        """Return what becomes of an expression.

        Args:
            tree: The expression.
            scope: The arguments of the lambdas around it.
        """
        return self.chain(tree, scope) if is_elementwise(tree) or is_fused(tree) else self.whole(tree, scope)

    def whole(self, tree: e.Expr, scope: Scope) -> Part:
        """Return what becomes of an expression that does not begin a chain."""
        match tree:
            case e.Const(value):
                return self.constant(value)
            case e.Ellipsis_():
                return self.constant(...)
            case e.Var(name):
                return self.variable(name, scope)
            case e.Attr(target, name):
                return self.attribute(self.part(target, scope), name)
            case e.Item(target, index):
                return self.item(self.part(target, scope), self.part(index, scope), tree)
            case e.Slice(start, stop, step):
                return self.slice_of([None if end is None else self.part(end, scope) for end in (start, stop, step)])
            case e.Call(_, args, kwargs):
                given = [self.part(arg, scope) for arg in args]
                return self.call(tree, given, {key: self.part(arg, scope) for key, arg in kwargs})
            case e.Lambda():
                return self.function(tree, scope)
            case e.Tuple(items):
                return self.several([self.part(item, scope) for item in items], items, tuple)
            case e.List(items):
                return self.several([self.part(item, scope) for item in items], items, list)
            case e.Dict(entries):
                keys, items = [key for key, _ in entries], tuple(item for _, item in entries)
                parts = [self.part(item, scope) for item in items]
                return self.several(parts, items, lambda found: dict(zip(keys, found, strict=True)))
        raise QuerySyntaxError(f"Expected an expression, got {type(tree).__name__}: {tree}")

    def constant(self, value: object) -> Part:
        """Return a constant."""
        raise NotImplementedError

    def variable(self, name: str, scope: Scope) -> Part:
        """Return an argument of a lambda."""
        raise NotImplementedError

    def attribute(self, of: Part, name: str) -> Part:
        """Return an attribute."""
        raise NotImplementedError

    def item(self, of: Part, at: Part, tree: e.Item) -> Part:
        """Return an item, or a part of an array."""
        raise NotImplementedError

    def slice_of(self, ends: Sequence[Part | None]) -> Part:
        """Return a slice in an index."""
        raise NotImplementedError

    def several(self, parts: Sequence[Part], trees: Sequence[e.Expr], make: Callable[[Sequence[Any]], Any]) -> Part:
        """Return a container of several values."""
        raise NotImplementedError

    def call(self, tree: e.Call, args: Sequence[Part], kwargs: Mapping[str, Part]) -> Part:
        """Return the result of a call that is not in a chain."""
        raise NotImplementedError

    def function(self, tree: e.Lambda, scope: Scope) -> Part:
        """Return a lambda, which can use the arguments of the lambdas around it."""
        raise NotImplementedError

    def chain(self, tree: e.Expr, scope: Scope) -> Part:
        """Return what becomes of an expression that works item by item, or of a statistic of one.

        Large arrays go through the chain of its operations in blocks.
        """
        raise NotImplementedError


def is_elementwise(tree: e.Expr) -> bool:
    """Return whether an expression computes each item of its result from one item of each operand."""
    if type(tree) is e.Call:
        return tree.name in FUNCTIONS and FUNCTIONS[tree.name].cost.result == "each" and len(tree.args) > 0
    return type(tree) in (e.Unary, e.Binary)


def is_fused(tree: e.Expr) -> bool:
    """Return whether an expression is a statistic of all items of an expression that is evaluated in blocks."""
    if type(tree) is not e.Call or tree.name not in FUSED or len(tree.args) != 1 or tree.kwargs:
        return False
    return tree.name in TEMPORARY or is_elementwise(tree.args[0])


def can_cut(arrays: list[ArraySpec]) -> bool:
    """Return whether `Blocks` evaluates an operation on these arrays in blocks."""
    first = arrays[0]
    if first.device or first.kind != "torch":
        return not first.device and first.kind == "numpy"
    return all(spec.shape == first.shape and not spec.strided for spec in arrays if spec.shape)
