"""The expression tree: what a query computes, as plain data.

A tree is made by tracing a lambda (`trace`) or by reading text (`parse`), and turned into a function by `evaluate`.
Trees compare and hash by their canonical text (`text.canonical`), in which the names of arguments do not matter, while
types do: `True`, `1` and `1.0` are three constants.

Limits are checked when a tree is made: constants fit 64 bits, depth and number of nodes are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError

MAX_DEPTH: Final = 64
MAX_NODES: Final = 1_000
MAX_TEXT: Final = 64 * 1024
MAX_INT_BITS: Final = 64

BINARY: Final = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow",
    "&": "and_", "|": "or_", "^": "xor",
    "<": "lt", "<=": "le", "==": "eq", "!=": "ne", ">": "gt", ">=": "ge",
}  # fmt: skip
UNARY: Final = {"-": "neg", "+": "pos", "~": "invert"}


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
        from .text import canonical

        return canonical(self) == canonical(other)

    def __hash__(self) -> int:
        from .text import canonical

        return hash(canonical(self))

    def __str__(self) -> str:
        from .text import write

        return write(self)


@dataclass(frozen=True, slots=True, eq=False)
class Const(Expr):
    """A constant: `None`, a bool, an int of 64 bits, a float, or a text."""

    value: bool | int | float | str | None


@dataclass(frozen=True, slots=True, eq=False)
class Ellipsis_(Expr):
    """The dots of an index, `...`."""


@dataclass(frozen=True, slots=True, eq=False)
class Var(Expr):
    """An argument of a lambda around."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Attr(Expr):
    """`target.name`: an observable, a mapping's key, a field, and so on."""

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
    """A named function on values; also every method call, the value then being its first argument."""

    name: str
    args: tuple[Expr, ...]
    kwargs: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Lambda(Expr):
    """A function inside a query, such as the one that `.map` takes."""

    params: tuple[str, ...]
    body: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Tuple(Expr):
    """Several values side by side."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class List(Expr):
    """A list of values, as an index or an argument."""

    items: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Dict(Expr):
    """Named values."""

    entries: tuple[tuple[str, Expr], ...]


def constant(value: Any) -> Const:
    """Make a constant of a Python or NumPy scalar.

    Raises:
        RefusedQueryError: The value is no scalar, or an int that needs more than 64 bits.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) is bool:
        return Const(value)
    # A member of an enumeration, or of another subclass, is taken for its value.
    if isinstance(value, float):
        return Const(float.__float__(value))
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise RefusedQueryError(f"Expected a text of at most {MAX_TEXT} characters, got {len(value)}")
        return Const(str.__str__(value))
    if isinstance(value, int):
        value = int.__int__(value)
        if not -(2 ** (MAX_INT_BITS - 1)) <= value < 2**MAX_INT_BITS:
            raise RefusedQueryError(
                f"Expected an integer from -2**63 to 2**64 - 1, got one of {value.bit_length()} bits"
            )
        return Const(value)
    raise RefusedQueryError(
        f"Expected a constant (number, text, bool or None) in a query, got {type(value).__name__}. "
        "A query is data: offer other values as observables, or register a function with run.function(name, fn)."
    )


def check_size(tree: Expr) -> None:
    """Refuse a tree that is too deep or has too many nodes.

    Raises:
        RefusedQueryError: It is.
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
    """Count the nodes of a tree."""
    return 1 + sum(map(n_nodes, tree.children()))


def check_bound(tree: Expr) -> None:
    """Refuse a tree that has an argument of another lambda in it: one that was kept beyond its own.

    Raises:
        RefusedQueryError: It has.
    """
    stack: list[tuple[Expr, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, names = stack.pop()
        if isinstance(node, Lambda):
            names |= set(node.params)
        elif isinstance(node, Var) and node.name not in names:
            raise RefusedQueryError(f"Expected the arguments of this lambda only, got {node.name!r} of another one")
        stack.extend((child, names) for child in node.children())


def is_special(value: float) -> bool:
    """Tell whether a float has a name instead of digits: NaN or infinite."""
    return math.isnan(value) or math.isinf(value)
