"""Queries about all pieces of an array that is spread over processes, such as a parameter under FSDP.

`pieces(x)` gives each process the items that it counts for: those of its own piece, and of a copy that several hold,
one process all of them and the others none. To reduce all pieces, each process sends one part for each event, and the
parts are merged: the norm of an array is the root of the sum of the squared norms of its pieces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sightglass.core.errors import QueryError

from . import expressions as e
from .interpreter import is_elementwise
from .query import Query
from .reduce.table import ENTRIES
from .stages import Map, Reduce, Where

PIECES: Final = "pieces"
OVER_ITEMS: Final = tuple(name for name, entry in ENTRIES.items() if entry.over_items)
OVER_PIECES: Final = ("norm", "sum", "mean", "size", "min", "max")

Finish = Callable[[Any], Any]
"""Makes the result of merged parts."""


def over_pieces(query: Query) -> tuple[Query, Finish | None]:
    """Return a query whose merged windows are what a query asks of all pieces, and what makes the results of them.

    A query without pieces is returned as it is.

    Raises:
        QueryError: It computes with pieces what cannot be made of them.
    """
    lambdas = [stage.fn for stage in query.stages if isinstance(stage, Map | Where)]
    if not any(_reads_pieces(fn) for fn in lambdas):
        return query, None
    *before, last = query.stages
    if isinstance(last, Reduce) and last.name in OVER_ITEMS and before:
        *before, last = before
        if isinstance(last, Map) and _is_items(last.fn.body) and not any(map(_stage_reads_pieces, before)):
            return query, None
    elif isinstance(last, Map) and not any(map(_stage_reads_pieces, before)):
        match last.fn.body:
            case e.Call(name="map", args=(e.Expr() as target, e.Lambda() as inner)) if not _reads_pieces(target):
                if (found := _part(inner.body)) is not None:
                    part, finish = found
                    body: e.Expr = e.Call("map", (target, replace(inner, body=part)))
                    return _summed(query, last, body), lambda value: {key: finish(one) for key, one in value.items()}
            case e.Call(name=("min" | "max") as name, args=(items,), kwargs=()) if _is_items(items):
                has_some = replace(last.fn, body=e.Binary(">", e.Call("size", (items,)), e.Const(0)))
                some = replace(query, stages=(*before, Where(has_some), last))
                return (some.min(every=1) if name == "min" else some.max(every=1)), _same
            case body if (found := _part(body)) is not None:
                return _summed(query, last, found[0]), found[1]
    raise QueryError(
        f"Expected {', '.join(OVER_PIECES)} of pieces(x), or of what is computed from it item by item, without a "
        f"window; or {', '.join(OVER_ITEMS)} of such items; got {query}. In a mapping, min and max do not merge"
    )


def _summed(query: Query, last: Map, body: e.Expr) -> Query:
    """Return a query whose parts are added up at each event."""
    return replace(query, stages=(*query.stages[:-1], replace(last, fn=replace(last.fn, body=body)))).sum(every=1)


def _part(tree: e.Expr) -> tuple[e.Expr, Finish] | None:
    """Return what a process sends of an expression, and what makes the result of the sum; `None` if it has none."""
    match tree:
        case e.Attr(target=items, name="size") if _is_items(items):
            return tree, _same
        case e.Call(name=name, args=(items,), kwargs=()) if _is_items(items):
            if name in ("sum", "size"):
                return tree, _same
            if name == "mean":
                return e.Tuple((e.Call("sum", (items,)), e.Call("size", (items,)))), _mean
            if name == "norm":
                square = e.Binary("**", e.Call("astype", (tree, e.Const("float64"))), e.Const(2))
                return square, math.sqrt
    return None


def _same(value: Any) -> Any:
    return value


def _mean(value: Any) -> Any:
    total, n = value
    return total / n if n else math.nan


def _is_items(tree: e.Expr) -> bool:
    """Return whether an expression is pieces, or is computed from pieces of one array item by item."""
    if isinstance(tree, e.Call) and tree.name == PIECES:
        return len(tree.args) == 1 and _is_path(tree.args[0])
    if not is_elementwise(tree):
        return False
    parts = [part for part in tree.children() if not isinstance(part, e.Const)]
    return bool(parts) and all(map(_is_items, parts)) and len({str(part) for part in _pieces_in(tree)}) == 1


def _is_path(tree: e.Expr) -> bool:
    """Return whether an expression only reads a value of the program: a part of an array is another one."""
    while isinstance(tree, e.Attr) or (isinstance(tree, e.Item) and isinstance(tree.index, e.Const)):
        if isinstance(tree, e.Item) and not isinstance(tree.index.value, str):  # type: ignore[attr-defined]
            return False
        tree = tree.target
    return isinstance(tree, e.Var)


def _pieces_in(tree: e.Expr) -> list[e.Expr]:
    own = [tree] if isinstance(tree, e.Call) and tree.name == PIECES else []
    return own + [found for part in tree.children() for found in _pieces_in(part)]


def _reads_pieces(tree: e.Expr) -> bool:
    return bool(_pieces_in(tree))


def _stage_reads_pieces(stage: object) -> bool:
    return isinstance(stage, Map | Where) and _reads_pieces(stage.fn)
