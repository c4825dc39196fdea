"""Which expressions are evaluated in blocks: chains of operations that work item by item, and statistics of these."""

from __future__ import annotations

from typing import Final

from . import expressions as e
from .arrays import ArraySpec
from .functions import FUNCTIONS

FUSED: Final = frozenset(("sum", "prod", "mean", "norm", "min", "max", "any", "all", "var", "std"))
TEMPORARY: Final = frozenset(("norm", "var", "std"))
"""The statistics that copy their argument, unless they are computed in blocks."""


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
