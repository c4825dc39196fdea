"""The query: an event and a chain of stages, as plain data.

>>> query = on("batch").map(lambda b: b.loss).mean(every=100)
>>> print(query)
on('batch').map(lambda b: b.loss).mean(every=100)

Queries are equal when their canonical texts are: the names of arguments do not matter.
"""

from __future__ import annotations

import keyword
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError

from . import expressions as e
from .limits import MAX_STEPS, MAX_TEXT
from .reducers import BUILDERS
from .stages import Chain, Every, Group, Map, Per, Period, Reduce, Step, When, Where, Window, event_name
from .tracer import as_tree, is_symbol, trace


@dataclass(frozen=True, eq=False)
class Query(Chain):
    """A question to a run. Make one with `on`, and refine it with its methods."""

    event: str
    steps: tuple[Step, ...] = ()

    def _with(self, step: Step) -> Query:
        if len(self.steps) >= MAX_STEPS:
            raise QueryError(f"Expected at most {MAX_STEPS} steps in a query, got more")
        if isinstance(step, Reduce):
            step = replace(step, args=tuple((key, _plain(value)) for key, value in step.args))
            _check(step)
        query = replace(self, steps=(*self.steps, step))
        if len(str(query)) > MAX_TEXT:
            raise RefusedQueryError(f"Expected a query of at most {MAX_TEXT} characters, got {len(str(query))}")
        return query

    def _function(self, fn: Any, n_params: int = 1) -> e.Lambda:
        if isinstance(fn, e.Lambda):
            if len(fn.params) != n_params:
                raise QuerySyntaxError(
                    f"Expected a lambda of {n_params} arguments, got one of {len(fn.params)}: {fn!s:.200}"
                )
            e.check_size(fn)
            return fn
        return trace(fn, n_params=n_params)

    @cached_property
    def key(self) -> str:
        """The canonical text, which equal queries share."""
        return _write(self, e.canonical)

    @cached_property
    def tag(self) -> str:
        """The name of the series that answers this query: a path such as "batch.loss", else its shortest text."""
        match self.steps:
            case (Map(fn=e.Lambda(params=(name,), body=body)),):
                path = _path(body, name)
                if path is not None:
                    return path if self.event == "log" else f"{self.event}.{path}"
        return self.short or str(self)

    @property
    def short(self) -> str | None:
        """The short form, `batch.loss.mean(every=100)`, of a map and reducers with named windows; else `None`."""
        if not self.steps or not self.event.isidentifier() or keyword.iskeyword(self.event):
            return None
        first, *rest = self.steps
        if not isinstance(first, Map) or any(not isinstance(s, Reduce) or isinstance(s.window, Group) for s in rest):
            return None
        body = e.write_body(first.fn, self.event)
        if body is None:
            return None
        if rest and not isinstance(first.fn.body, e.Attr | e.Item | e.Call):
            body = f"({body})"
        return ".".join([body, *(_write_step(step, e.write) for step in rest)])

    @property
    def names(self) -> list[str]:
        """The observables of the event that the query reads by name."""
        seen: dict[str, None] = {}
        for i, step in enumerate(self.steps):
            if isinstance(step, Map | Where) and all(isinstance(before, Where) for before in self.steps[:i]):
                seen.update(dict.fromkeys(_names(step.fn.body, step.fn.params[0])))
            elif isinstance(step, Reduce) and isinstance(step.window, When):
                seen.update(dict.fromkeys(_names(step.window.condition.body, step.window.condition.params[0])))
        return list(seen)

    @property
    def reads_all(self) -> bool:
        """Whether the query reads the event other than by the names of observables."""
        windows = (step.window for step in self.steps if isinstance(step, Reduce))
        conditions = (window.condition for window in windows if isinstance(window, When))
        if any(_reads_whole(condition.body, condition.params[0]) for condition in conditions):
            return True
        whole = True
        for i, step in enumerate(self.steps):
            if not all(isinstance(before, Where) for before in self.steps[:i]):
                break
            if isinstance(step, Map | Where) and _reads_whole(step.fn.body, step.fn.params[0]):
                return True
            whole = not (isinstance(step, Map) or (isinstance(step, Reduce) and step.name == "count"))
        return whole

    @property
    def seed(self) -> int:
        """What random choices of this query are drawn from."""
        return zlib.crc32(self.key.encode())

    def __str__(self) -> str:
        return _write(self, e.write)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Query) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


def on(event: str) -> Query:
    """Begin a query: whenever this event happens."""
    return Query(event_name(event))


def _plain(value: Any) -> Any:
    """Check that an argument of a step can be part of a query, and make NumPy scalars plain."""
    if isinstance(value, e.Lambda):
        return value
    if is_symbol(value):
        raise QuerySyntaxError(f"Expected a constant as a step's argument, got {value!r}")
    tree = as_tree(value)
    e.check_size(tree)
    return e.literal(tree)


def _check(step: Reduce) -> None:
    args = {key: (lambda *a: None) if isinstance(value, e.Lambda) else value for key, value in step.args}
    BUILDERS[step.name](**args)


def _names(tree: e.Expr, root: str) -> Iterator[str]:
    match tree:
        case e.Attr(target=e.Var(name=name), name=attribute) if name == root:
            yield attribute
        case e.Item(target=e.Var(name=name), index=e.Const(value=str(key))) if name == root:
            yield key
    for child in tree.children():
        yield from _names(child, root)


def _reads_whole(tree: e.Expr, root: str) -> bool:
    match tree:
        case e.Attr(target=e.Var(name=name)) if name == root:
            return False
        case e.Item(target=e.Var(name=name), index=e.Const(value=str())) if name == root:
            return False
        case e.Var(name=name):
            return name == root
    return any(_reads_whole(child, root) for child in tree.children())


def _path(tree: e.Expr, root: str) -> str | None:
    match tree:
        case e.Attr(target=e.Var(name=name), name=attribute) if name == root:
            return attribute
        case e.Item(target=e.Var(name=name), index=e.Const(value=str(key))) if name == root:
            return key
        case e.Attr(target=target, name=attribute):
            inner = _path(target, root)
            return inner and f"{inner}.{attribute}"
        case e.Item(target=target, index=e.Const(value=str(key))):
            inner = _path(target, root)
            return inner and f"{inner}.{key}"
    return None


def _write(query: Query, write: Callable[[e.Expr], str]) -> str:
    return ".".join([f"on({query.event!r})", *(_write_step(step, write) for step in query.steps)])


def _write_step(step: Step, write: Callable[[e.Expr], str]) -> str:
    match step:
        case Map(fn):
            return f"map({write(fn)})"
        case Where(fn):
            return f"where({write(fn)})"
        case Reduce(name, args, window):
            written = [write(v) if isinstance(v, e.Expr) else write(as_tree(v)) for _, v in args]
            return f"{name}({', '.join([*written, *_write_window(window, write)])})"


def _write_window(window: Window, write: Callable[[e.Expr], str]) -> list[str]:
    match window:
        case Every(n):
            return [f"every={n}"]
        case Period(seconds, written):
            exact = f"{np.format_float_positional(seconds, trim='-')} s"  # '5 min' and '300 s' are one window
            return [f"every={(exact if write is e.canonical else written)!r}"]
        case Per(event):
            return [f"per={event!r}"]
        case When(condition):
            return [f"when={write(condition)}"]
    return []
