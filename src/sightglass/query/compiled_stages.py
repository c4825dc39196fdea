"""The stages of a query as functions of values, and what is known of their results before there are any."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sightglass.core.values import Value

from . import expressions as e
from .evaluator import evaluator
from .functions import FUNCTIONS
from .meter import Meter
from .pipeline import Pipeline
from .query import Query
from .reducers import reducer
from .reduction import Reducer, by_key
from .stages import Map, Reduce, Stage, When, Where

Functions = Mapping[str, Callable[..., Any]]

MAY_RETURN_VIEWS = frozenset(
    ("ravel", "pieces", "reshape", "item", "first", "last", "values", "items", "keys", "sample", "filter", "map",
     "where")
)  # fmt: skip


def compiled(
    stage: Stage, functions: Functions, event: str | None, meter: Meter | None = None, *, begins: bool = True
) -> Stage:
    """Return a stage with its lambdas compiled to functions."""

    def function(value: object, event: str | None = None) -> Value:
        if not isinstance(value, e.Lambda):
            return value
        return evaluator(value, functions=functions, event=event, meter=meter, begins=begins)

    match stage:
        case Map(fn):
            return Map(function(fn, event))
        case Where(fn):
            return Where(function(fn, event))
        case Reduce(name, args, window, by):
            return Reduce(name, tuple((key, function(value)) for key, value in args), window, by)


def maps_to_new(stages: Sequence[Stage]) -> bool:
    """Return whether the last map always computes a new value, which the program cannot overwrite."""
    last = next((stage.fn.body for stage in reversed(stages) if isinstance(stage, Map)), None)
    return makes_new(last) if last is not None else False


def computes_index(tree: e.Expr) -> bool:
    """Return whether an index in an expression is neither a name, a number nor a slice."""
    if isinstance(tree, e.Item) and not isinstance(tree.index, e.Const | e.Slice | e.Unary):
        return True
    return any(map(computes_index, tree.children()))


def makes_new(tree: e.Expr) -> bool:
    """Return whether an expression always computes a new value, which the program cannot overwrite."""
    match tree:
        case e.Binary() | e.Const():
            return True
        case e.Unary(op, part):
            return op != "+" or makes_new(part)
        case e.Call(name, args):
            if name == "map" and len(args) == 2 and isinstance(args[1], e.Lambda):
                return makes_new(args[1].body)
            return name in FUNCTIONS and name not in MAY_RETURN_VIEWS
        case e.Tuple(items) | e.List(items):
            return all(map(makes_new, items))
        case e.Dict(entries):
            return all(makes_new(value) for _, value in entries)
    return False


def remaining(query: Query, n_done: int, *, held: bool = False) -> Pipeline:
    """Return a query's stages after the first `n_done` as one pipeline for values on the host, without a run.

    Args:
        query: The query.
        n_done: How many of its stages are done already.
        held: Whether events whose ordinals are skipped were dropped by a condition; by default they failed.

    Raises:
        QueryError: It calls a function of the run or an unknown one, or one with arguments that it does not take.
    """
    stages = [
        compiled(stage, {}, query.event if all(isinstance(s, Where) for s in query.stages[:i]) else None)
        for i, stage in enumerate(query.stages)
        if i >= n_done
    ]
    return Pipeline(stages, seed=query.seed, held=held)


def last_reducer(query: Query) -> Reducer:
    """Return the reducer that ends a query; grouped by key, if it groups its values.

    Raises:
        QueryError: It calls an unknown function.
    """
    stage = compiled(query.stages[-1], {}, None)
    assert isinstance(stage, Reduce)
    made = reducer(stage.name, dict(stage.args), seed=query.seed)
    return made if stage.by is None else by_key(made)


def conditions(
    query: Query, functions: Functions | None = None, *, n_done: int = 0, meter: Meter | None = None
) -> list[Callable[[Any], Any]]:
    """Return the conditions of a query's windows, after the stages that are done, as functions of the event."""
    return [
        evaluator(
            stage.window.condition, functions=functions or {}, event=query.event, meter=meter, begins=meter is None
        )
        for stage in query.stages[n_done:]
        if isinstance(stage, Reduce) and isinstance(stage.window, When)
    ]


def key_function(
    query: Query, functions: Functions | None = None, *, n_done: int = 0, meter: Meter | None = None
) -> Callable[[Any], Any] | None:
    """Return what the first reducer after the stages that are done groups by, as a function of the event."""
    by = next((stage.by for stage in query.stages[n_done:] if isinstance(stage, Reduce)), None)
    if by is None:
        return None
    return evaluator(by, functions=functions or {}, event=query.event, meter=meter, begins=meter is None)
