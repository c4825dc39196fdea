"""The query: an event and a chain of stages, as plain data.

>>> query = on("batch").map(lambda b: b.loss).mean(every=100)
>>> print(query)
on('batch').map(lambda b: b.loss).mean(every=100)

Queries are equal when their canonical texts are: the names of arguments do not matter.
"""

from __future__ import annotations

import keyword
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError

from . import expressions as e
from .functions import FUNCTIONS
from .limits import MAX_STAGES, MAX_TEXT
from .reducers import BUILDERS
from .stages import Chain, Every, Function, Group, Map, Per, Period, Reduce, Stage, When, Where, Window, event_name
from .tracer import as_tree, is_symbol, trace


@dataclass(frozen=True, eq=False)
class Query(Chain):
    """What to compute on an event of a run. Start one with `on`, and add stages with its methods."""

    event: str
    stages: tuple[Stage, ...] = ()

    def _with(self, stage: Stage) -> Query:
        if len(self.stages) >= MAX_STAGES:
            raise QueryError(f"Expected at most {MAX_STAGES} stages in a query, got more")
        if isinstance(stage, Reduce):
            stage = replace(stage, args=tuple((key, _plain(value)) for key, value in stage.args))
            _check(stage)
        query = replace(self, stages=(*self.stages, stage))
        if len(str(query)) > MAX_TEXT:
            raise RefusedQueryError(f"Expected a query of at most {MAX_TEXT} characters, got {len(str(query))}")
        return query

    def _function(self, fn: Function, n_params: int = 1) -> e.Lambda:
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
        """The tag of the query's records: a path such as "batch.loss", else the query's shortest text."""
        match self.stages:
            case (Map(fn=e.Lambda(params=(name,), body=body)),):
                path = _path(body, name)
                if path is not None:
                    return path if self.event == "log" else f"{self.event}.{path}"
        return self.short or str(self)

    @property
    def short(self) -> str | None:
        """The short form, `batch.loss.mean(every=100)`, of one map and reducers that name windows; else `None`."""
        if not self.stages or not _is_name(self.event):
            return None
        first, *rest = self.stages
        if not isinstance(first, Map) or any(not isinstance(s, Reduce) or isinstance(s.window, Group) for s in rest):
            return None
        body = e.write_body(first.fn, self.event)
        if body is None:
            return None
        if rest and not isinstance(first.fn.body, e.Attr | e.Item | e.Call):
            body = f"({body})"
        return ".".join([body, *(_write_stage(stage, e.write) for stage in rest)])

    @property
    def names(self) -> list[str]:
        """The names of the observables that the query reads."""
        seen: dict[str, None] = {}
        for i, stage in enumerate(self.stages):
            if isinstance(stage, Map | Where) and all(isinstance(before, Where) for before in self.stages[:i]):
                seen.update(dict.fromkeys(_names(stage.fn.body, stage.fn.params[0])))
            elif isinstance(stage, Reduce) and isinstance(stage.window, When):
                seen.update(dict.fromkeys(_names(stage.window.condition.body, stage.window.condition.params[0])))
        return list(seen)

    @cached_property
    def functions(self) -> list[str]:
        """The names of the functions that the query calls, besides the library's own."""
        trees: list[e.Expr] = []
        for stage in self.stages:
            if isinstance(stage, Reduce):
                trees += [value for _, value in stage.args if isinstance(value, e.Lambda)]
                trees += [stage.window.condition] if isinstance(stage.window, When) else []
            else:
                trees.append(stage.fn)
        return list(dict.fromkeys(name for tree in trees for name in _calls(tree) if name not in FUNCTIONS))

    @property
    def reads_all(self) -> bool:
        """Whether the query uses the event as a whole, and not only observables by name."""
        windows = (stage.window for stage in self.stages if isinstance(stage, Reduce))
        conditions = (window.condition for window in windows if isinstance(window, When))
        if any(reads_whole(condition.body, condition.params[0]) for condition in conditions):
            return True
        whole = True
        for i, stage in enumerate(self.stages):
            if not all(isinstance(before, Where) for before in self.stages[:i]):
                break
            if isinstance(stage, Map | Where) and reads_whole(stage.fn.body, stage.fn.params[0]):
                return True
            whole = not (isinstance(stage, Map) or (isinstance(stage, Reduce) and stage.name == "count"))
        return whole

    @property
    def seed(self) -> int:
        """The seed of the query's random choices."""
        return zlib.crc32(self.key.encode())

    def __str__(self) -> str:
        return _write(self, e.write)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Query) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


def _is_name(event: str) -> bool:
    """Return whether the parser takes the event's bare name for this event; Python normalises names."""
    plain = event.isidentifier() and not keyword.iskeyword(event) and not event.startswith("_")
    return plain and unicodedata.is_normalized("NFKC", event)


def on(event: str) -> Query:
    """Start a query on an event.

    Raises:
        QueryError: `event` is not a string, or is empty.
    """
    return Query(event_name(event))


def _plain(value: object) -> Any:
    """Check that a stage's argument can be part of a query, and convert NumPy scalars to Python's."""
    if isinstance(value, e.Lambda):
        return value
    if is_symbol(value):
        raise QuerySyntaxError(f"Expected a constant as a stage's argument, got {value!r}")
    tree = as_tree(value)
    e.check_size(tree)
    return e.literal(tree)


def _check(stage: Reduce) -> None:
    args = {key: (lambda *a: None) if isinstance(value, e.Lambda) else value for key, value in stage.args}
    BUILDERS[stage.name](**args)


def _names(tree: e.Expr, root: str) -> Iterator[str]:
    match tree:
        case e.Attr(target=e.Var(name=name), name=attribute) if name == root:
            yield attribute
        case e.Item(target=e.Var(name=name), index=e.Const(value=str(key))) if name == root:
            yield key
    for child in tree.children():
        yield from _names(child, root)


def _calls(tree: e.Expr) -> Iterator[str]:
    if isinstance(tree, e.Call):
        yield tree.name
    for child in tree.children():
        yield from _calls(child)


def reads_whole(tree: e.Expr, root: str) -> bool:
    """Return whether a tree uses a variable as a whole, and not only its attributes and items by name."""
    match tree:
        case e.Attr(target=e.Var(name=name)) if name == root:
            return False
        case e.Item(target=e.Var(name=name), index=e.Const(value=str())) if name == root:
            return False
        case e.Var(name=name):
            return name == root
    return any(reads_whole(child, root) for child in tree.children())


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
    return ".".join([f"on({query.event!r})", *(_write_stage(stage, write) for stage in query.stages)])


def _write_stage(stage: Stage, write: Callable[[e.Expr], str]) -> str:
    match stage:
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
            exact = f"{np.format_float_positional(seconds, trim='-')} s"  # '5 min' and '300 s' are the same window
            return [f"every={(exact if write is e.canonical else written)!r}"]
        case Per(event):
            return [f"per={event!r}"]
        case When(condition):
            return [f"when={write(condition)}"]
    return []
