"""The query: an event and a chain of `where`, `map`, reducers and their windows, as plain data.

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
from typing import Any, Final

import numpy as np

from sightglass.core.clock import duration
from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError

from . import expressions as e
from . import text
from .tracer import as_tree, is_symbol, trace

Function = Callable[..., Any] | e.Lambda

WINDOWS: Final = ("every", "per", "when")
MAX_STEPS: Final = 32


@dataclass(frozen=True, slots=True)
class Every:
    """Closes on each n-th event of the run."""

    n: int


@dataclass(frozen=True, slots=True)
class Period:
    """Closes at the multiples of a time span; `text` is how it was written."""

    seconds: float
    text: str


@dataclass(frozen=True, slots=True)
class Per:
    """Closes at another event."""

    event: str


@dataclass(frozen=True, slots=True)
class When:
    """Closes where a condition on the event holds."""

    condition: Any


@dataclass(frozen=True, slots=True)
class Group:
    """Closes where the run, or the client, says so."""


Window = Every | Period | Per | When | Group


def window(*, every: int | str | None = None, per: str | None = None, when: Any = None) -> Window:
    """Make a window of the one keyword that is given, or the run's own groups of none.

    Raises:
        QueryError: More than one is given, or one is wrong.
    """
    given = [name for name, value in zip(WINDOWS, (every, per, when), strict=True) if value is not None]
    if len(given) > 1:
        raise QueryError(f"Expected one window, got {' and '.join(given)}")
    if isinstance(every, str):
        try:
            return Period(duration(every), every)
        except ValueError as error:
            raise QueryError(str(error)) from None
    if every is not None:
        return Every(_count(every))
    if per is not None:
        return Per(event_name(per))
    return Group() if when is None else When(when)


def _count(every: Any) -> int:
    if isinstance(every, bool) or not isinstance(every, int | np.integer) or not 1 <= every < 2**63:
        raise QueryError(f"Expected every to be a number of events or a time such as '5 min', got {every!r}")
    return int(every)


@dataclass(frozen=True, slots=True)
class Map:
    """Computes a new value from each."""

    fn: Any


@dataclass(frozen=True, slots=True)
class Where:
    """Lets pass what a condition holds for."""

    fn: Any


@dataclass(frozen=True, slots=True)
class Reduce:
    """Makes one value of the many in a window; `args` are (name, value) pairs, functions among them."""

    name: str
    args: tuple[tuple[str, Any], ...]
    window: Window


Step = Map | Where | Reduce


def event_name(name: object) -> str:
    """Return an event's name.

    Raises:
        QueryError: It is no text, or empty.
    """
    if isinstance(name, str) and name:
        return name
    raise QueryError(f"Expected the name of an event as text, got {name!r}")


class Chain:
    """The verbs that queries and streams share; each gives a new chain with one more step.

    A reducer's window is named by one of `every` (a number of events, or a time such as "5 min"), `per` (another event)
    and `when` (a condition on the event); with none, the run's own groups close it.
    """

    __slots__ = ()

    def _with(self, step: Step) -> Any:
        raise TypeError(f"Expected a query or a stream, got {type(self).__name__}")

    def _function(self, fn: Any, n_params: int = 1) -> Any:
        raise TypeError(f"Expected a query or a stream, got {type(self).__name__}")

    def map(self, fn: Function) -> Any:
        """Compute a new value from each."""
        return self._with(Map(self._function(fn)))

    def where(self, fn: Function) -> Any:
        """Let pass only what a condition holds for."""
        return self._with(Where(self._function(fn)))

    def count(self, **window: Any) -> Any:
        """Count values."""
        return self._reduce("count", (), window)

    def sum(self, **window: Any) -> Any:
        """Add values up, in 64 bits."""
        return self._reduce("sum", (), window)

    def mean(self, **window: Any) -> Any:
        """Average values."""
        return self._reduce("mean", (), window)

    def var(self, **window: Any) -> Any:
        """Return the variance of the population of values."""
        return self._reduce("var", (), window)

    def std(self, **window: Any) -> Any:
        """Return the standard deviation of the population of values."""
        return self._reduce("std", (), window)

    def min(self, **window: Any) -> Any:
        """Return the smallest value; NaN if any is."""
        return self._reduce("min", (), window)

    def max(self, **window: Any) -> Any:
        """Return the largest value; NaN if any is."""
        return self._reduce("max", (), window)

    def first(self, **window: Any) -> Any:
        """Return the first value."""
        return self._reduce("first", (), window)

    def last(self, **window: Any) -> Any:
        """Return the last value."""
        return self._reduce("last", (), window)

    def quantile(self, q: float | list[float] | tuple[float, ...], **window: Any) -> Any:
        """Return the q-quantile, 0 <= q <= 1, or several: exact for 1,024 values, within 0.5 % of the value beyond."""
        return self._reduce("quantile", (("q", tuple(q) if isinstance(q, list) else q),), window)

    def histogram(self, bins: int = 64, **window: Any) -> Any:
        """Count values in at most `bins` equal bins, which widen as values come; counts are exact."""
        return self._reduce("histogram", (("bins", bins),), window)

    def top(self, k: int, by: Function | None = None, **window: Any) -> Any:
        """Keep the k values that are largest, or for which `by` is, the largest first."""
        args = (("k", k),) if by is None else (("k", k), ("by", self._function(by)))
        return self._reduce("top", args, window)

    def sample(self, k: int, **window: Any) -> Any:
        """Keep k random values, in their order; the seed comes from the query."""
        return self._reduce("sample", (("k", k),), window)

    def collect(self, limit: int = 1000, **window: Any) -> Any:
        """Keep the first `limit` values as a list."""
        return self._reduce("collect", (("limit", limit),), window)

    def reduce(self, fn: Function, init: Any, **window: Any) -> Any:
        """Fold values with a function of (accumulator, value); structure, shape and type stay those of `init`."""
        return self._reduce("reduce", (("fn", self._function(fn, 2)), ("init", init)), window)

    def _reduce(self, name: str, args: tuple[tuple[str, Any], ...], named: dict[str, Any]) -> Any:
        wrong = next((key for key in named if key not in WINDOWS), None)
        if wrong is not None:
            raise TypeError(f"Unexpected argument {wrong!r} for {name}; windows are named by {', '.join(WINDOWS)}")
        if named.get("when") is not None:
            named = {**named, "when": self._function(named["when"])}
        return self._with(Reduce(name, args, window(**named)))


REDUCERS: Final = ("count", "sum", "mean", "var", "std", "min", "max", "first", "last", "quantile", "histogram", "top",
                   "sample", "collect", "reduce")  # fmt: skip
STEPS: Final = ("map", "where", *REDUCERS)


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
        if len(str(query)) > e.MAX_TEXT:
            raise RefusedQueryError(f"Expected a query of at most {e.MAX_TEXT} characters, got {len(str(query))}")
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
        return _write(self, text.canonical)

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
        body = text.write_body(first.fn, self.event)
        if body is None:
            return None
        if rest and not isinstance(first.fn.body, e.Attr | e.Item | e.Call):
            body = f"({body})"
        return ".".join([body, *(_write_step(step, text.write) for step in rest)])

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
        return _write(self, text.write)

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return self.key == other.key if isinstance(other, Query) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.key)


def on(event: str) -> Query:
    """Begin a query: whenever this event happens."""
    return Query(event_name(event))


def as_query(query: Query | str) -> Query:
    """Return a query, reading it if it is text.

    Raises:
        QueryError: It is neither, or cannot be read.
    """
    if isinstance(query, Query):
        return query
    if isinstance(query, str):
        from .parser import parse

        return parse(query)
    raise QuerySyntaxError(f"Expected a query such as on('batch').map(lambda b: b.loss) or 'batch.loss', got {query!r}")


def _plain(value: Any) -> Any:
    """Check that an argument of a step can be part of a query, and make NumPy scalars plain."""
    if isinstance(value, e.Lambda):
        return value
    if is_symbol(value):
        raise QuerySyntaxError(f"Expected a constant as a step's argument, got {value!r}")
    from .parser import literal

    tree = as_tree(value)
    e.check_size(tree)
    return literal(tree)


def _check(step: Reduce) -> None:
    from .reducers import BUILDERS

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
            return [f"every={(exact if write is text.canonical else written)!r}"]
        case Per(event):
            return [f"per={event!r}"]
        case When(condition):
            return [f"when={write(condition)}"]
    return []
