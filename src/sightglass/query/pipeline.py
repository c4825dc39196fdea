"""Stages that values pass in order: maps and conditions, and reducers with their windows.

A run's queries and a client's streams use the same `Pipeline`; in a client its functions are any of Python.

The stages of a query become functions of values first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core.values import Value

from . import expressions as e
from .arrays import truth
from .evaluator import evaluator
from .functions import FUNCTIONS
from .meter import Meter
from .query import Query
from .reduce.reducer import Place, Reducer, by_key
from .reduce.states import Numbering
from .reduce.table import reducer
from .running import Running, Sliding
from .stages import Each, Every, Group, Last, Map, Per, Period, Reduce, Stage, When, Where
from .windows import NOWHERE, Fold, PipelineItem, StateFold

Reducing = Fold | Running | Sliding

NONE: Final = -1  # no stage
QUICK_TYPES = frozenset((float, int, bool, str, type(None)))


def is_quick(value: object) -> bool:
    """Return whether a value is a plain number or text, or a pair of these, such as a number with its key."""
    if type(value) is tuple and len(value) == 2:
        return type(value[0]) in QUICK_TYPES and type(value[1]) in QUICK_TYPES
    return type(value) in QUICK_TYPES


@dataclass(frozen=True, slots=True)
class _Mapped:
    fn: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class _Keyed:
    """Puts what a reducer groups by beside each value."""


@dataclass(frozen=True, slots=True)
class _Filtered:
    fn: Callable[[Any], Any]


class Pipeline:
    """Stages that values pass in order.

    Attributes:
        folds: The reducers, each with its index among the stages.
        by: The function that the first reducer groups by; `None` if there is none, or if values come with its result.
        key: Its result for the event of the next `post`.
    """

    def __init__(
        self,
        stages: Iterable[Stage],
        *,
        seed: int = 0,
        held: bool = False,
        keyed: bool = False,
        states: Numbering | None = None,
        meter: Meter | None = None,
    ) -> None:
        """Begin before the first event.

        Args:
            stages: The stages; their functions are Python functions.
            seed: The seed of random choices.
            held: Whether events whose ordinals are skipped were dropped by a condition; by default they failed.
            keyed: Whether values come as (key, value), if the first reducer groups by keys.
            states: How events are numbered, if the results of reducers are their states.
            meter: What sliding windows may take of an event; `None` for any time.
        """
        self._held = held
        self._operations: list[_Mapped | _Keyed | _Filtered | Reducing] = []
        self.by: Callable[[Any], Any] | None = None
        self.key: Any = None
        for stage in stages:
            if isinstance(stage, Reduce) and stage.by is not None and not keyed:
                self.by = stage.by
                self._operations.append(_Keyed())
            self._operations.append(_operation(stage, seed, states, meter))
        self.folds = [(i, operation) for i, operation in enumerate(self._operations) if isinstance(operation, Reducing)]
        self._groups = [(i, fold) for i, fold in self.folds if isinstance(fold, Fold)]
        self._periods = [(i, fold) for i, fold in self._groups if isinstance(fold.window, Period)]
        self._whens = [(i, fold) for i, fold in self._groups if isinstance(fold.window, When)]
        self._next = -1
        self._failing = self._left_at = NONE

    def post(
        self, item: PipelineItem | None, *, ordinal: int, wall_time: float, closes: Sequence[bool] = ()
    ) -> list[PipelineItem]:
        """Process an event and return the items that come out.

        Args:
            item: The event's value, or `None` without one.
            ordinal: The number of the event.
            wall_time: When the event happened.
            closes: For each reducer with `when`, whether its condition held; missing ones did not.
        """
        out: list[PipelineItem] = []
        with np.errstate(all="ignore"):
            self._pass_to(ordinal, wall_time, out)
            self._operate(0, ordinal, item, out)
            for (i, fold), close in zip(self._whens, closes, strict=False):
                if close:
                    self._push(i + 1, fold.close(place=self._place_before(i), mark=ordinal), out)
        self._next = ordinal + 1
        return out

    def post_first(self, value: object, ordinal: int, place: Place) -> Sequence[PipelineItem]:
        """Process a quick value where the first stage is a reducer: a fast path of `post`, see `is_quick`."""
        out: list[PipelineItem] = []
        if self._periods or ordinal > self._next >= 0:
            self._pass_to(ordinal, place[1], out)
        group = self.folds[0][1].offer(ordinal, value, place)
        if group is not None:
            if len(self._operations) == 1 and group.passed:
                out.append(group)
            else:
                self._push(1, group, out)
        self._next = ordinal + 1
        return out

    def _pass_to(self, ordinal: int, wall_time: float, out: list[PipelineItem]) -> None:
        """Close the groups that end between the last event and this one; missing events in between failed."""
        for i, fold in self._periods:
            self._push(i + 1, fold.passes(wall_time, self._place_before(i)), out)
        if ordinal > self._next >= 0 and self.folds:
            window = self.folds[0][1].window
            every = window.n if isinstance(window, Every) else ordinal
            boundary = self._next + every - 1 - self._next % every
            for missing in sorted({min(boundary, ordinal - 1), ordinal - 1}):
                self._operate(0, missing, _missed(missing, complete=self._held), out)

    def proves(self, passed: bool, items: Sequence[PipelineItem]) -> bool:
        """Return whether an event without an error shows that the stages that failed before need not fail.

        One that a condition left out before them does not, nor one whose window is still open.

        Args:
            passed: Whether it reached the first reducer, or came out.
            items: What came out.
        """
        first = self.folds[0][0] if self.folds else NONE
        if not (items or self._left_at >= self._failing or (passed and self._failing <= first)):
            return False
        self._failing = self._left_at = NONE
        return True

    def miss(self, *, ordinal: int, wall_time: float) -> list[PipelineItem]:
        """Count an event that was not evaluated: its group is incomplete."""
        return self.post(_missed(ordinal), ordinal=ordinal, wall_time=wall_time)

    def boundary(self, event: str, mark: int | None = None) -> list[PipelineItem]:
        """Close the groups whose window is `per` this event; `mark` is its number."""
        return self._close(lambda fold: isinstance(fold.window, Per) and fold.window.event == event, mark=mark)

    def hold(self, *, ordinal: int, wall_time: float) -> list[PipelineItem]:
        """Count an event that a condition dropped."""
        return self.post(_missed(ordinal, complete=True), ordinal=ordinal, wall_time=wall_time)

    def begin_group(self) -> None:
        """Begin a group of the run."""
        if self.folds and isinstance(self.folds[0][1], Fold):
            self.folds[0][1].begin()

    def end_group(self, mark: int | None = None) -> list[PipelineItem]:
        """End a group of the run: close the groups of reducers that name no window; `mark` is its number."""
        return self._close(lambda fold: isinstance(fold.window, Group), mark=mark)

    def finish(self) -> list[PipelineItem]:
        """Close the open groups at the end, with `closed=False`."""
        return self._close(lambda fold: True, closed=False)

    def _place_before(self, i: int) -> Place:
        """Return where the last value of the reducers before a stage is from."""
        return next((fold.place for j, fold in reversed(self._groups) if j < i and fold.place is not NOWHERE), NOWHERE)

    def _close(
        self, which: Callable[[Fold], bool], *, closed: bool = True, mark: int | None = None
    ) -> list[PipelineItem]:
        out: list[PipelineItem] = []
        with np.errstate(all="ignore"):
            for i, fold in self._groups:
                if which(fold):
                    self._push(i + 1, fold.close(closed=closed, place=self._place_before(i), mark=mark), out)
        return out

    def _push(self, start: int, group: PipelineItem | None, out: list[PipelineItem]) -> None:
        if group is not None:
            self._operate(start, group.ordinal, group, out)

    def _operate(self, start: int, ordinal: int, item: PipelineItem | None, out: list[PipelineItem]) -> None:
        i = start
        try:
            for i in range(start, len(self._operations)):
                operation = self._operations[i]
                if isinstance(operation, Reducing):
                    self._push(i + 1, _offer(operation, ordinal, item), out)
                    return
                if item is None or not item.passed:
                    continue
                if isinstance(operation, _Mapped):
                    item.value = operation.fn(item.value)
                elif isinstance(operation, _Keyed):
                    item.value = self.key, item.value
                elif not truth(operation.fn(item.value)):
                    item.passed, self._left_at = False, i
        except BaseException:
            self._failing, self._left_at = max(self._failing, i), NONE
            raise
        if item is not None and item.passed:
            out.append(item)


def _missed(ordinal: int, *, complete: bool = False) -> PipelineItem:
    return PipelineItem(ordinal, *NOWHERE[:2], None, complete=complete, passed=False)


def _offer(fold: Reducing, ordinal: int, item: PipelineItem | None) -> PipelineItem | None:
    if item is None:
        return fold.skip(ordinal, None)
    place = (item.step, item.wall_time, item.steps)
    if item.passed:
        fold.approximate = fold.approximate or item.approximate
        group = fold.offer(ordinal, item.value, place, item.n_events, item.complete)
    else:
        group = fold.skip(ordinal, place if item.step == item.step else None, complete=item.complete)
    if group is not None and not item.closed:
        group.closed = False
    return group


def _operation(
    stage: Stage, seed: int, states: Numbering | None, meter: Meter | None
) -> _Mapped | _Filtered | Reducing:
    match stage:
        case Map(fn):
            return _Mapped(fn)
        case Where(fn):
            return _Filtered(fn)
        case Reduce(name, args, window, by):
            made = reducer(name, dict(args), seed=seed)
            made = made if by is None else by_key(made)
            if isinstance(window, Each):
                return Running(made, window)
            if isinstance(window, Last):
                return Sliding(made, window, meter)
            return Fold(made, window) if states is None else StateFold(made, window, states)


# The stages of a query as functions of values, and what is known of their results before there are any.

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
