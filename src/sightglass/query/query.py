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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError, cut
from sightglass.core.values import array_kind, to_host, type_name

from . import expressions as e
from .functions import FUNCTIONS
from .limits import MAX_STAGES, MAX_TEXT
from .reduce.reducer import Reducer
from .reduce.states import Numbering
from .reduce.table import COUNTING, reducer
from .stages import (
    RUN,
    ByValue,
    Chain,
    Every,
    Function,
    Group,
    Last,
    Map,
    Per,
    Period,
    Reduce,
    Stage,
    When,
    Where,
    WholeRun,
    Window,
    event_functions,
    event_name,
)  # fmt: skip
from .tracer import as_tree, is_symbol, trace

FIELDS: Final = "event"
MAX_INITIAL: Final = 900  # numbers of an array: with the rows that hold them, they fit into an expression
RESERVED: Final = ("step", FIELDS)  # what every event has


def with_fields(observables: Mapping[str, Any], *, index: int, wall_time: float) -> Mapping[str, Any]:
    """Return the observables of an event with its number and time as `event`, unless the program offers one."""
    if FIELDS in observables:
        return observables
    return {**observables, FIELDS: {"index": index, "wall_time": wall_time}}


@dataclass(frozen=True, eq=False)
class Query(Chain):
    """What to compute on an event of a run. Start one with `on`, and add stages with its methods."""

    event: str
    stages: tuple[Stage, ...] = ()
    joins: tuple[str, ...] = ()
    states: Numbering | None = None  # set where windows give states instead of results, see `in_states`

    def join(self, event: str) -> Query:
        """Put the latest event of another name beside each event, as an observable of that name.

        `on("batch").join("epoch").map(lambda b: b.loss / b.epoch.accuracy)` divides by the accuracy of the last epoch
        before each batch. A batch before the first epoch is left out, and counted as `n_unpaired`.

        Raises:
            QueryError: A stage stands before it, the event is joined already, or is the query's own.
        """
        name = event_name(event)
        if self.stages:
            raise QueryError(f"Expected join({name!r}) directly after on({self.event!r}), before other stages")
        if name == self.event:
            raise QueryError(
                f"Expected another event to join than {name!r} itself: earlier values of the same event are read by "
                "rolling(n), diff() and scan(…)"
            )
        if name in self.joins:
            raise QueryError(f"Expected each event to be joined once, got {name!r} twice")
        if name in RESERVED:
            raise QueryError(f"Expected an event to join, got {name!r}, which each event has itself")
        return self._checked(replace(self, joins=(*self.joins, name)))

    def _with(self, stage: Stage) -> Query:
        if isinstance(stage, Reduce):
            if stage.by is not None and any(isinstance(before, Reduce) for before in self.stages):
                raise QueryError(f"Expected by= on the first reducer, which sees events; {stage.name} sees records")
            stage = replace(stage, args=tuple((key, _plain(value)) for key, value in stage.args))
            _built(stage)
        return self._checked(replace(self, stages=(*self.stages, stage)))

    @staticmethod
    def _checked(query: Query) -> Query:
        if len(query.stages) + len(query.joins) > MAX_STAGES:
            raise QueryError(f"Expected at most {MAX_STAGES} stages in a query, got more")
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
        tree = trace(fn, n_params=n_params)
        if n_params == 1 and isinstance(tree.body, e.Const):
            raise QuerySyntaxError(
                f"Expected a function that reads its argument, got one that returns {tree.body} whatever it gets. "
                "Python decides `is` and `isinstance` at once: write x == None, or compare x.dtype. "
                "The text of a query may have a constant"
            )
        return tree

    @cached_property
    def key(self) -> str:
        """The canonical text, which equal queries share; of one in states, with its numbering."""
        text = _write(self, e.canonical)
        return text if self.states is None else f"{text} in states {self.states.first} {self.states.stride}"

    @cached_property
    def tag(self) -> str:
        """The tag of the query's records: a path such as "batch.loss", else the query's shortest text."""
        match self.stages:
            case (Map(fn=e.Lambda(params=(name,), body=body)),) if not self.joins:
                path = _path(body, name)
                if path is not None:
                    return path if self.event == "log" else f"{self.event}.{path}"
        return self.short or str(self)

    @cached_property
    def reads_fields(self) -> bool:
        """Whether the query reads `b.event`, unless the program offers an observable of this name."""
        return FIELDS in self.names

    @property
    def asked(self) -> str:
        """What a message calls the value of an event: "batch.stats", or "the result"."""
        maps = [stage.fn for stage in self.stages if isinstance(stage, Map)]
        path = _path(maps[0].body, maps[0].params[0]) if len(maps) == 1 else None
        return f"{self.event}.{path}" if path else "the result" if maps else self.event

    @property
    def short(self) -> str | None:
        """The short form, `batch.loss.mean(every=100)`, of one map and reducers that name windows; else `None`."""
        if not self.stages or self.joins or not _is_name(self.event):
            return None
        first, *rest = self.stages
        if not isinstance(first, Map) or not all(isinstance(stage, Reduce) and _says_window(stage) for stage in rest):
            return None
        body = e.write_body(first.fn, self.event)
        if body is None:
            return None
        if rest and not isinstance(first.fn.body, e.Attr | e.Item | e.Call):
            body = f"({body})"
        return ".".join([body, *(_write_stage(stage, e.write) for stage in rest)])

    @property
    def advice(self) -> str:
        """What a client is told whose stream begins late: the call that keeps the records."""
        return f"run.record({cut(self.short or str(self))!r}) keeps what comes"

    @property
    def names(self) -> list[str]:
        """The names of the observables that the query reads of its event; not of those that it joins."""
        seen: dict[str, None] = {}
        for i, stage in enumerate(self.stages):
            if isinstance(stage, Map | Where) and all(isinstance(before, Where) for before in self.stages[:i]):
                seen.update(dict.fromkeys(_names(stage.fn.body, stage.fn.params[0])))
            elif isinstance(stage, Reduce):
                for fn in event_functions(stage):
                    seen.update(dict.fromkeys(_names(fn.body, fn.params[0])))
        return [name for name in seen if name not in self.joins]

    @cached_property
    def functions(self) -> list[str]:
        """The names of the functions that the query calls, besides the library's own."""
        trees: list[e.Expr] = []
        for stage in self.stages:
            if isinstance(stage, Reduce):
                trees += [value for _, value in stage.args if isinstance(value, e.Lambda)]
                trees += event_functions(stage)
            else:
                trees.append(stage.fn)
        return list(dict.fromkeys(name for tree in trees for name in _calls(tree) if name not in FUNCTIONS))

    @property
    def reads_all(self) -> bool:
        """Whether the query uses the event as a whole, and not only observables by name."""
        functions = (fn for stage in self.stages if isinstance(stage, Reduce) for fn in event_functions(stage))
        if any(reads_whole(fn.body, fn.params[0]) for fn in functions):
            return True
        whole = True
        for i, stage in enumerate(self.stages):
            if not all(isinstance(before, Where) for before in self.stages[:i]):
                break
            if isinstance(stage, Map | Where) and reads_whole(stage.fn.body, stage.fn.params[0]):
                return True
            whole = not (isinstance(stage, Map) or (isinstance(stage, Reduce) and stage.name in COUNTING))
        return whole

    @property
    def seed(self) -> int:
        """The seed of the query's random choices."""
        return zlib.crc32(_write(self, e.canonical).encode())

    def __str__(self) -> str:
        return _write(self, e.write)

    __repr__ = __str__

    def __format__(self, spec: str) -> str:
        """Return the text for a message, `f"{query}"`, cut if it is long; `str(query)` is all of it."""
        return format(cut(str(self)), spec)

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


def in_states(query: Query, numbering: Numbering) -> Query:
    """Return a query whose windows give the states of its reducer, to be merged with those of other processes.

    Raises:
        QueryError: It does not end in its only reducer, or in one whose states do not merge.
    """
    reducers = [stage for stage in query.stages if isinstance(stage, Reduce)]
    if len(reducers) != 1 or query.stages[-1] is not reducers[0]:
        raise QueryError(f"Expected a query that ends in its only reducer, to merge it over processes, got {query}")
    (last,) = reducers
    if isinstance(last.window, ByValue) or _built(last).merge is None:
        name = "rolling" if isinstance(last.window, Last) else last.name
        raise QueryError(
            f"Expected a reducer that merges over processes, got {name}: it depends on the order of all values"
        )
    return replace(query, states=numbering)


def _plain(value: object) -> Any:
    """Check that a stage's argument can be part of a query, and convert NumPy scalars to Python's."""
    if isinstance(value, e.Lambda):
        return value
    if is_symbol(value):
        raise QuerySyntaxError(f"Expected a constant as a stage's argument, got {value!r}")
    tree = as_tree(_listed(value))
    e.check_size(tree)
    return e.literal(tree)


def _listed(value: Any) -> Any:
    """Return an accumulator's initial value with lists of numbers for its arrays, which text has no other form for."""
    if type(value) is dict:
        return {key: _listed(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_listed, value))
    if not array_kind(value):
        return value
    array = to_host(value)
    if array.dtype.kind not in "biuf" or not 0 < array.size <= MAX_INITIAL:
        raise RefusedQueryError(
            f"Expected an array of 1 to {MAX_INITIAL} real numbers as a stage's argument, got {type_name(array)}. "
            "Reduce the values to smaller ones first"
        )
    return array.tolist()


def _built(stage: Reduce) -> Reducer:
    """Return a stage's reducer, with functions that do nothing; raises a `QueryError` if an argument is not valid."""
    args = {key: (lambda *a: None) if isinstance(value, e.Lambda) else value for key, value in stage.args}
    return reducer(stage.name, args)


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
    joins = [f"join({event!r})" for event in query.joins]
    return ".".join([f"on({query.event!r})", *joins, *(_write_stage(stage, write) for stage in query.stages)])


def _write_stage(stage: Stage, write: Callable[[e.Expr], str]) -> str:
    match stage:
        case Map(fn):
            return f"map({write(fn)})"
        case Where(fn):
            return f"where({write(fn)})"
        case Reduce(name, args, window):
            written = [write(v) if isinstance(v, e.Expr) else write(as_tree(v)) for _, v in args]
            before = f"rolling({_write_span(window.span, write)})." if isinstance(window, Last) else ""
            by = [] if stage.by is None else [f"by={write(stage.by)}"]
            return f"{before}{name}({', '.join([*written, *by, *_write_window(window, write)])})"


def _says_window(stage: Reduce) -> bool:
    """Return whether the text of a reducer tells it from the function of the same name."""
    return (not isinstance(stage.window, Group) or stage.by is not None) and stage.name != "diff"


def _write_window(window: Window, write: Callable[[e.Expr], str]) -> list[str]:
    match window:
        case Every() | Period():
            return [f"every={_write_span(window, write)}"]
        case WholeRun():
            return [f"per={RUN!r}"]
        case Per(event):
            return [f"per={event!r}"]
        case When(condition):
            return [f"when={write(condition)}"]
    return []


def _write_span(span: Every | Period, write: Callable[[e.Expr], str]) -> str:
    """Return a number of events, or a time; in a canonical text, '5 min' and '300 s' are the same."""
    if isinstance(span, Every):
        return str(span.n)
    return repr(f"{np.format_float_positional(span.seconds, trim='-')} s" if write is e.canonical else span.text)
