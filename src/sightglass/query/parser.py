"""Parse the text of a query: Python's syntax, restricted to a whitelist.

There are two forms::

    on("batch").map(lambda b: abs(b.grads["dense"]).mean()).mean(every=100)
    abs(batch.grads["dense"]).mean()

In the short form the only free name is the event. Reducers that name their window may follow:
`batch.loss.mean(every=100)`. A tag with slashes, `train/loss`, is what was logged under it: `log["train/loss"]`.
Nothing is executed: each node of the syntax tree is allowed, or refused with a caret under its place.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Any, Final

from sightglass.core.errors import MAX_NAMES_SHOWN, QueryError, QuerySyntaxError, RefusedQueryError, unknown

from . import expressions as e
from .parsed_expressions import ExpressionReader, is_namespace
from .query import Query, on
from .stages import REDUCERS, STAGES, WINDOWS
from .tracer import NAMED_CONSTANTS

# A text is asked for several times on its way: checked, made canonical, sent. A page has a few dozen of them, of a few
# KB each once parsed.
MAX_PARSED: Final = 128

MODULES: Final = ("np", "numpy", "jnp", "torch", "math", "sg")
"""What functions are prefixed with in Python code."""

TAG: Final = re.compile(r"\s*([^\W\d][\w-]*(?:/[\w-]+)+)\s*")
"""A tag as people log it, `train/loss`: as an expression it would divide one event by another."""

SHORT_STAGES: Final = ("rolling", "scan", "ema")
"""The stages that need no window to be known as stages; `diff` is a function of arrays, too."""


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
    raise QuerySyntaxError(f"Expected a query such as on('batch').map(lambda b: b.loss) or 'batch.loss', got {query!r}")


@lru_cache(maxsize=MAX_PARSED)
def _parse_once(text: str) -> Query:
    return parse(text)


class _Reader(ExpressionReader):
    """Parses one text."""

    stage_names = STAGES
    reducer_names = REDUCERS

    def syntax(self) -> ast.expr:
        try:
            return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
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
        chain: list[tuple[ast.Attribute, ast.Call]] = []
        inner: ast.expr = node
        while isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            chain.append((inner.func, inner))
            inner = inner.func.value
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id == "on":
            return self.stages(self.on(inner), reversed(chain))
        return self.short(node)

    def on(self, node: ast.Call) -> Query:
        match node:
            case ast.Call(args=[ast.Constant(value=str(event))], keywords=[]) if event:
                return on(event)
        return self.fail('Expected one event name: on("batch")', node)

    def short(self, node: ast.expr) -> Query:
        stages: list[tuple[ast.Attribute, ast.Call]] = []
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_stage(node.func, node):
            stages.append((node.func, node))
            node = node.func.value
        free = self.free(node)
        if len(free) != 1:
            if tag := TAG.fullmatch(self.text):
                return parse(f"log[{tag[1]!r}]")
            names = ", ".join(map(repr, list(free)[:MAX_NAMES_SHOWN])) or "none"
            hint = ""
            if modules := [name for name in free if name in MODULES]:
                hint = f". Functions have no prefix in text: mean(batch.loss), not {modules[0]}.mean(batch.loss)"
            elif free:
                first, second = list(free)[:2]
                hint = f". Write on({first!r}).join({second!r}).map(lambda b: …) to read {second!r} beside {first!r}"
            self.fail(
                f"Expected one event in a query such as batch.loss, or on('batch')…; got {names}{hint}",
                list(free.values())[1] if free else node,
            )
        (event,) = free
        if event.startswith("_"):
            self.fail(f"Expected a public name, got {event!r}: a leading underscore is refused", free[event])
        query = on(event)
        if not (isinstance(node, ast.Name) and node.id == event):
            body = self.expression(node, frozenset({event}))
            try:
                query = query.map(e.Lambda((event,), body))
            except QueryError as error:
                self.refuse(error, node)
        return self.stages(query, reversed(stages))

    def free(self, node: ast.expr) -> dict[str, ast.Name]:
        """Return the names of values that no lambda binds; in a valid query, the event alone."""
        parts = list(ast.walk(node))
        bound = {arg.arg for part in parts if isinstance(part, ast.Lambda) for arg in part.args.args}
        called = [part.func for part in parts if isinstance(part, ast.Call)]
        functions = {id(part) for part in called} | {id(part.value) for part in called if is_namespace(part)}
        names = [part for part in parts if isinstance(part, ast.Name) and id(part) not in functions]
        names.sort(key=lambda part: (part.lineno, part.col_offset))
        return {part.id: part for part in names if part.id not in bound and part.id not in NAMED_CONSTANTS}

    def stages(self, query: Query, chain: Iterable[tuple[ast.Attribute, ast.Call]]) -> Query:
        for method, node in chain:
            name = method.attr
            if name not in STAGES:
                self.fail(unknown("stage", name, STAGES, where="of a query"), self.end(method))
            self.check_keywords(node)
            args = [self.argument(arg) for arg in node.args]
            kwargs = {str(keyword.arg): self.argument(keyword.value) for keyword in node.keywords}
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

    def argument(self, node: ast.expr) -> Any:
        """Parse an argument of a stage: a lambda or a constant."""
        tree = self.function(node, frozenset()) if isinstance(node, ast.Lambda) else self.expression(node, frozenset())
        try:
            e.check_size(tree)
            return tree if isinstance(tree, e.Lambda) else e.literal(tree)
        except QueryError as error:
            return self.refuse(error, node)


def _is_stage(function: ast.Attribute, node: ast.Call) -> bool:
    """Return whether a call in the short form is a stage: functions of values have no windows."""
    if function.attr in SHORT_STAGES:
        return True
    before = function.value
    slides = isinstance(before, ast.Call) and isinstance(before.func, ast.Attribute) and before.func.attr == "rolling"
    return function.attr in REDUCERS and (slides or any(keyword.arg in (*WINDOWS, "by") for keyword in node.keywords))
