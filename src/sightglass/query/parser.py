"""Parse the text of a query: Python's syntax, restricted to a whitelist.

There are two forms::

    on("batch").map(lambda b: abs(b.grads["dense"]).mean()).mean(every=100)
    abs(batch.grads["dense"]).mean()

In the short form the only free name is the event. Reducers that name their window may follow, then further stages,
functions and operators: `batch.loss.mean(every=100)`, `log10(batch.loss.mean(every=100)) * 2`. Results of one event,
reducer and window may be combined: `batch.loss.mean(every=4) - batch.reference.mean(every=4)`. A tag with slashes,
`train/loss`, is what was logged under it: `log["train/loss"]`.
Nothing is executed: each node of the syntax tree is allowed, or refused with a caret under its place.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from keyword import iskeyword, kwlist
from typing import Any, Final, TypeGuard

from sightglass.core.errors import MAX_NAMES_SHOWN, QueryError, QuerySyntaxError, RefusedQueryError, unknown
from sightglass.core.values import Value

from . import expressions as e
from .expression_reader import ExpressionReader, is_namespace
from .functions import FUNCTIONS
from .query import Query, on
from .reduce.table import REDUCERS, SEQUENTIAL
from .stages import STAGES, WINDOWS, Map
from .tracer import NAMED_CONSTANTS

# A text is asked for several times on its way: checked, made canonical, sent. A page has a few dozen of them, of a few
# KB each once parsed.
MAX_PARSED: Final = 128

MODULES: Final = ("np", "numpy", "jnp", "torch", "math", "sg")
"""What functions are prefixed with in Python code."""

TAG: Final = re.compile(r"\s*([^\W\d][\w-]*(?:/[\w-]+)+)\s*")
"""A tag as people log it, `train/loss`: as an expression it would divide one event by another."""

TAGS: Final = re.compile(r"(?:log\.)?[^\W\d]\w*(?:/[^\W\d]\w*)+")

KEYWORD_NAMES: Final = re.compile(
    rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|(?<=\.)(?P<name>{"|".join(kwlist)})\b""", re.DOTALL
)
"""Names that are words of Python, such as `batch.return`, outside of quotes."""

SHORT_STAGES: Final = ("rolling", "scan", "ema")
"""The stages that need no window to be known as stages; `diff` is a function of arrays, too."""

MAX_RESULTS: Final = 100  # of an expression: each is parsed for itself
BEHIND_STAGES: Final = ("join", "map", "where", *SEQUENTIAL)
"""What is a stage behind another one, and may be a function of a value elsewhere."""


def parse(text: str, *, functions: Collection[str] | None = None) -> Query:
    """Parse a query.

    Args:
        text: The query, in either form.
        functions: The names of the functions that the run registered; other unknown functions are refused. With
            `None`, every unknown function is taken for a registered one.

    Raises:
        QuerySyntaxError: The text is not a query; the message has a caret under the place.
        RefusedQueryError: The query exceeds a limit, or uses a value that cannot be part of a query.
    """
    return _Reader(text, functions).query()


def as_query(query: Query | str) -> Query:
    """Return a query; parse it if it is text.

    Raises:
        QueryError: `query` is not a query or a string, or the text is not valid.
    """
    if isinstance(query, Query):
        return query
    if isinstance(query, str):
        return _parse_once(str(query))
    raise QuerySyntaxError(f"Expected a query such as 'batch.loss' or sg.on('batch').mean(every=9), got {query!r:.200}")


@lru_cache(maxsize=MAX_PARSED)
def _parse_once(text: str) -> Query:
    return parse(text)


class _Reader(ExpressionReader):
    """Parses one text."""

    stage_names = STAGES
    reducer_names = REDUCERS

    def __init__(self, text: str, functions: Collection[str] | None) -> None:
        super().__init__(text, functions)
        self.staged: set[int] = set()
        self.behind_on: set[int] = set()

    def syntax(self) -> ast.expr:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            self.parsed = KEYWORD_NAMES.sub(_as_name, self.text)
            with contextlib.suppress(SyntaxError, RecursionError, MemoryError, ValueError):
                return ast.parse(self.parsed, mode="eval").body
            lines = self.text.split("\n")
            row = min(max(error.lineno or 1, 1), len(lines)) - 1
            column = error.offset - 1 if error.offset else len(lines[row])  # Python says 0 for the end
            place = sum(len(line) + 1 for line in lines[:row]) + column
            why = "" if error.msg == "invalid syntax" else f": {error.msg}"
            message = f"Expected a query such as batch.loss or batch.loss.mean(every=100), found invalid syntax{why}"
            raise QuerySyntaxError(message, text=self.text, column=min(place, len(self.text))) from None
        except (RecursionError, MemoryError, ValueError, OverflowError) as error:
            what = str(error) or type(error).__name__
            raise RefusedQueryError(f"Expected a query that can be parsed, got: {what}") from None

    # The chain of stages

    def query(self) -> Query:
        node = self.syntax()
        self.check_nodes(node)
        self.survey(node)
        return self.chain(node)

    def survey(self, node: ast.expr) -> None:
        """Note which parts of an expression have the result of a stage in them, and which are stages behind `on(…)`."""
        parents: dict[int, ast.AST] = {}
        stages: list[ast.AST] = []
        rest: list[ast.AST] = [node]
        while rest:
            part = rest.pop()
            method = part.func if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) else None
            if _is_on(part) or (method is not None and isinstance(part, ast.Call) and _is_stage(method, part)):
                stages.append(part)
            if not isinstance(part, ast.Lambda):
                for child in ast.iter_child_nodes(part):
                    parents[id(child)] = part
                    rest.append(child)
        for stage in stages:
            place: ast.AST | None = stage
            while place is not None and id(place) not in self.staged:
                self.staged.add(id(place))
                place = parents.get(id(place))
            place = stage if _is_on(stage) else None
            while place is not None:
                self.behind_on.add(id(place))
                above = parents.get(id(place))
                chained = isinstance(above, ast.Attribute) or (isinstance(above, ast.Call) and above.func is place)
                place = above if chained else None

    def chain(self, node: ast.expr) -> Query:
        """Return the query of an expression and the stages behind it."""
        stages: list[tuple[ast.Attribute, ast.Call]] = []
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and self.is_stage(node.func, node):
            stages.append((node.func, node))
            node = node.func.value
        if _is_on(node):
            return self.stages(self.on(node), reversed(stages))
        query = self.combined(node) if id(node) in self.staged else self.short(node)
        return self.stages(query, reversed(stages))

    def is_stage(self, function: ast.Attribute, node: ast.Call) -> bool:
        """Return whether a call is a stage: functions of values have no windows, and come before all stages."""
        if _is_stage(function, node) or id(function.value) in self.behind_on:
            return True
        return function.attr in BEHIND_STAGES and id(function.value) in self.staged

    def combined(self, node: ast.expr) -> Query:
        """Return the query of an expression of results: of one, or of several of one event, reducer and window."""
        parts: list[ast.expr] = []
        rest: list[ast.AST] = [node]
        while rest:
            part = rest.pop()
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and self.is_stage(part.func, part):
                parts.append(part)
            elif not isinstance(part, ast.Lambda):
                rest += ast.iter_child_nodes(part)
        if len(parts) > MAX_RESULTS:
            message = f"Expected at most {MAX_RESULTS} results of reducers in an expression, got {len(parts)}"
            self.refuse(RefusedQueryError(message), node)
        parts.sort(key=lambda part: (part.lineno, part.col_offset))
        self.enter(node)
        keys = {id(part): self.chain(part) for part in parts}
        self.depth -= 1
        queries = {query.key: query for query in keys.values()}
        name = next(name for i in itertools.count() if (name := f"v{i}") not in self.text)
        first, *others = queries.values()
        if others:
            first, of = self.together(list(queries.values()), parts[1]), e.Var(name)
            trees: dict[str, e.Expr] = {key: e.Item(of, e.Const(f"r{i}")) for i, key in enumerate(queries)}
        else:
            trees = dict.fromkeys(queries, e.Var(name))
        inside = {id(inner) for part in parts for inner in ast.walk(part)}
        if free := self.free(node, without=inside):
            found, place = next(iter(free.items()))
            self.fail(
                f"Expected results of reducers alone, got {found!r} beside them: reduce it, too, such as "
                f"{found}.x.last(every=100)", place,
            )  # fmt: skip
        self.results = {**self.results, **{part: trees[query.key] for part, query in keys.items()}}
        body = self.expression(node, frozenset({name}))
        try:
            return first.map(e.Lambda((name,), body))
        except QueryError as error:
            return self.refuse(error, node)

    def together(self, queries: Sequence[Query], node: ast.expr) -> Query:
        """Return one query whose results are mappings of those of several."""
        first, bodies = queries[0], []
        for i, query in enumerate(queries):
            *before, reducer = query.stages
            match before:
                case [Map(e.Lambda(params=params, body=body))] if params == (query.event,):
                    bodies.append((f"r{i}", body))
            if len(bodies) <= i or (query.event, reducer) != (first.event, first.stages[-1]):
                self.fail(
                    "Expected results of one event, reducer and window, such as a.mean(every=100) - b.mean(every=100); "
                    "join the streams of others: a.zip(b).map(lambda pair: …)", node,
                )  # fmt: skip
        mapped = on(first.event).map(e.Lambda((first.event,), e.Dict(tuple(bodies))))
        return replace(mapped, stages=(*mapped.stages, first.stages[-1]))

    def on(self, node: ast.Call) -> Query:
        match node:
            case ast.Call(args=[ast.Constant(value=str(event))], keywords=[]) if event:
                return on(event)
        return self.fail('Expected one event name: on("batch")', node)

    def short(self, node: ast.expr) -> Query:
        """Return the query of an expression of one event."""
        free = self.free(node)
        if len(free) != 1:
            if tag := TAG.fullmatch(self.text):
                return parse(f"log[{tag[1]!r}]")
            names = (", ".join(map(repr, list(free)[:MAX_NAMES_SHOWN])) or "none") + self.meant(list(free))
            self.fail(
                f"Expected one event in a query such as batch.loss, or on('batch')…; got {names}",
                list(free.values())[1] if free else node,
            )
        (event,) = free
        if event.startswith("_"):
            self.fail(f"Expected a public name, got {event!r}: a leading underscore is refused", free[event])
        query = on(event)
        if isinstance(node, ast.Name) and node.id == event:
            return query
        body = self.expression(node, frozenset({event}))
        try:
            return query.map(e.Lambda((event,), body))
        except QueryError as error:
            return self.refuse(error, node)

    def meant(self, names: Sequence[str]) -> str:
        """Return what to write instead of an expression of several names."""
        if modules := [name for name in names if name in MODULES]:
            return f". Functions have no prefix in text: mean(batch.loss), not {modules[0]}.mean(batch.loss)"
        if TAGS.search(self.text):
            return f". A tag with slashes is an entry of log: {TAGS.sub(_of_log, self.text)}"
        if called := [name for name in names[1:] if name in FUNCTIONS]:
            return f". {called[0]!r} is a function: write lambda x: {called[0]}(x)"
        if len(names) < 2:
            return ""
        first, second = names[:2]
        return f". Write on({first!r}).join({second!r}).map(lambda b: …) to read {second!r} beside {first!r}"

    def free(self, node: ast.expr, *, without: Collection[int] = ()) -> dict[str, ast.Name]:
        """Return the names of values that no lambda binds, `without` some nodes; in a valid query, the event alone."""
        parts = list(ast.walk(node))
        bound = {arg.arg for part in parts if isinstance(part, ast.Lambda) for arg in part.args.args}
        called = [part.func for part in parts if isinstance(part, ast.Call)]
        functions = {id(part) for part in called} | {id(part.value) for part in called if is_namespace(part)}
        left_out = {*functions, *without}
        names = [part for part in parts if isinstance(part, ast.Name) and id(part) not in left_out]
        names.sort(key=lambda part: (part.lineno, part.col_offset))
        return {part.id: part for part in names if part.id not in bound and part.id not in NAMED_CONSTANTS}

    def stages(self, query: Query, chain: Iterable[tuple[ast.Attribute, ast.Call]]) -> Query:
        for method, node in chain:
            name = method.attr
            if name not in STAGES:
                self.fail(unknown("stage", name, STAGES, where="of a query"), self.end(method))
            self.check_keywords(node)
            self.check_arguments(name, node)
            args = [self.argument(arg) for arg in node.args]
            kwargs = {str(keyword.arg): self.argument(keyword.value) for keyword in node.keywords}
            self.joined |= {arg for arg in args if name == "join" and isinstance(arg, str)}
            if name == "join" and not isinstance(query, Query):
                self.fail("Expected a reducer after rolling, such as rolling(100).mean()", node)
            method_of = getattr(query, name)
            try:
                inspect.signature(method_of).bind(*args, **kwargs)
                query = method_of(*args, **kwargs)
            except TypeError as error:
                hint = (
                    f". Name a window: {name}(every=100)" if len(args) == 1 and name in REDUCERS and not kwargs else ""
                )
                self.fail(f"Wrong arguments for {name}: {error}{hint}", node)
            except QueryError as error:
                self.refuse(error, node)
            last = node
        if not isinstance(query, Query):
            self.fail("Expected a reducer after rolling, such as rolling(100).mean()", last)
        return query

    def check_arguments(self, name: str, node: ast.Call) -> None:
        """Refuse arguments that look like what is meant, and say how that is written."""
        for keyword in node.keywords:
            value, given = keyword.value, keyword.arg
            if name in SEQUENTIAL and given in (*WINDOWS, "by"):
                self.fail(f"{name} takes no window: it has a result for every value", keyword)
            if given == "per" and isinstance(value, ast.Name):
                self.fail(f"Expected the name of an event in quotes: per={value.id!r}", value)
            if given == "every" and isinstance(value, ast.Lambda):
                condition = ast.get_source_segment(self.text, value)
                self.fail(
                    f"Expected a number of events or a time; a condition closes windows by when={condition}", value
                )
        functions = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg in ("when", "by", "key")]
        functions += [("", value) for value in node.args[:1] if name in ("map", "where", "reduce", "scan")]
        for given, value in functions:
            if not isinstance(value, ast.Lambda) and (free := self.free(value)):
                (root, *_), source = free, ast.get_source_segment(self.text, value)
                equals = f"{given}=" if given else ""
                if root in FUNCTIONS:
                    root, source = "x", f"{root}(x)"
                self.fail(f"Expected a function: {equals}lambda {root}: {source}", value)

    def argument(self, node: ast.expr) -> Any:
        """Parse an argument of a stage: a lambda or a constant."""
        tree = self.function(node, frozenset()) if isinstance(node, ast.Lambda) else self.expression(node, frozenset())
        try:
            e.check_size(tree)
            return tree if isinstance(tree, e.Lambda) else e.literal(tree)
        except QueryError as error:
            return self.refuse(error, node)


def _is_stage(function: ast.Attribute, node: ast.Call) -> bool:
    """Return whether a call is a stage by itself, whatever it follows."""
    windowed = any(keyword.arg in (*WINDOWS, "by") for keyword in node.keywords)
    if function.attr in SHORT_STAGES or (function.attr in SEQUENTIAL and windowed):
        return True
    if function.attr == "where":  # the function of values has three arguments
        return len(node.args) == 1 and isinstance(node.args[0], ast.Lambda)
    before = function.value
    slides = isinstance(before, ast.Call) and isinstance(before.func, ast.Attribute) and before.func.attr == "rolling"
    return function.attr in REDUCERS and (slides or windowed)


def _is_on(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "on"


def _as_name(found: re.Match[str]) -> str:
    """Return a word of Python as a name: Python reads letters of full width as the usual ones, but not as a keyword."""
    name = found["name"]
    return found[0] if name is None else f"{chr(ord(name[0]) + ord('ａ') - ord('a'))}{name[1:]}"


def _of_log(tag: re.Match[str]) -> str:
    return f'log["{tag[0].removeprefix("log.")}"]'


# Queries from names: an event, and a path to one of its values.


def query_of(event: str, path: Sequence[str] = ()) -> Query:
    """Return the query for an event, an observable, or a value inside an observable.

    >>> str(query_of("batch", ["grads", "dense"]))
    "on('batch').map(lambda value: value.grads['dense'])"
    """
    asked = on(event)
    if not path:
        return asked

    def walk(value: Value) -> Any:
        for i, name in enumerate(path):
            value = getattr(value, name) if i == 0 and is_plain(name) else value[name]
        return value

    mapped: Query = asked.map(walk)
    return mapped


def is_plain(name: str) -> bool:
    """Return whether a query can write a name as an attribute."""
    return name.isidentifier() and not iskeyword(name) and not name.startswith("_")
