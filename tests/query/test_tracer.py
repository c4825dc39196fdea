"""Lambdas are traced; what Python would decide at once is refused, with what to write instead."""

from __future__ import annotations

import copy
import enum
import math
import operator
import pickle
import re
import threading
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
from tests.query.lambdas import lambda_of

from sightglass.core.errors import QueryError, QuerySyntaxError, RefusedQueryError
from sightglass.query.parser import parse
from sightglass.query.query import on
from sightglass.query.tracer import fn, trace

DECIDE = "A query cannot decide with `if`, `and`, `or`, `not` or a chained comparison: "
REFUSALS: list[tuple[str, Callable[[Any], Any], str]] = [
    ("if", lambda b: 1 if b.x else 2, DECIDE),
    ("and", lambda b: b.x and b.y, DECIDE),
    ("or", lambda b: b.x or b.y, DECIDE),
    ("not", lambda b: not b.x, DECIDE),
    ("chained", lambda b: 0 < b.x < 1, DECIDE),
    ("max", lambda b: max(b.x, b.y), DECIDE),
    ("sorted", lambda b: sorted([b.x, b.y]), DECIDE),
    ("in list", lambda b: b.x in [1, 2], DECIDE),
    ("in", lambda b: 1 in b.x, "A query cannot use `in`: write .contains(x)"),
    ("len", lambda b: len(b.x), "A query cannot use len(): write .len(), or sightglass.fn.len(x)"),
    ("reversed", lambda b: list(reversed(b.x)), "A query cannot use len()"),
    ("for", lambda b: [v + 1 for v in b.x], "A query cannot loop or unpack: write .map(lambda name, value: …)"),
    ("unpack", lambda b: [*b.x], "A query cannot loop or unpack"),
    ("sum", lambda b: sum(b.x), "A query cannot loop or unpack: write .map(lambda name, value: …), or x[0], x[1]; "
     "instead of sum(x), any(x), sorted(x) and the like x.sum(), x.any(), x.sort()"),
    ("divmod", lambda b: divmod(b.x, 2), "A query cannot use divmod(): write (x // y, x % y)"),
    ("dict", lambda b: dict(b.x), "A query cannot loop or unpack"),
    ("float", lambda b: float(b.x), "A query cannot convert a symbolic value to a float"),
    ("sqrt", lambda b: math.sqrt(b.x), "instead of math.sqrt(x) and the like write sightglass.fn.sqrt(x)"),
    ("math.floor", lambda b: math.floor(b.x), "A query cannot convert a symbolic value to a float"),
    ("int", lambda b: int(b.x), "A query cannot convert a symbolic value to an int: write .round() or"),
    ("index", lambda b: [1, 2][b.x], "A query cannot use a symbolic value as the index of a Python object"),
    ("range", lambda b: range(b.x), "A query cannot use a symbolic value as the index"),
    ("slice", lambda b: "abc"[b.x :], "A query cannot use a symbolic value as the index"),
    ("str", lambda b: str(b.x), "A query cannot convert a symbolic value to a string"),
    ("print", lambda b: print(b.x), "A query cannot convert a symbolic value to a string"),
    ("format", lambda b: f"{b.x:.2f}", "A query cannot format a symbolic value: return the value itself"),
    ("array", lambda b: np.asarray(b.x), "A query cannot convert a symbolic value to an array"),
    ("look-up", lambda b: {1: 2}.get(b.x), "A query cannot look up a symbolic value in a Python set"),
    ("set", lambda b: {b.x}, "A query cannot look up a symbolic value"),
    ("copy", lambda b: copy.copy(b.x), "A query cannot copy or pickle a symbolic value"),
    ("deepcopy", lambda b: copy.deepcopy(b.x), "A query cannot copy or pickle"),
    ("pickle", lambda b: pickle.dumps(b.x), "A query cannot copy or pickle"),
]  # fmt: skip


@pytest.mark.parametrize(("function", "message"), [case[1:] for case in REFUSALS], ids=[case[0] for case in REFUSALS])
def test_operations_that_python_decides_say_what_to_write(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(QuerySyntaxError) as raised:
        trace(function)
    assert message in str(raised.value)
    assert ". In: b." in str(raised.value)


def _delete(b: Any) -> None:
    del b.x


def _delete_item(b: Any) -> None:
    del b["x"]


def _set(b: Any) -> None:
    b.x = 1


def _add(b: Any) -> None:
    b["x"] += 1


@pytest.mark.parametrize("function", [_delete, _delete_item, _set, _add])
def test_writing_is_refused(function: Callable[[Any], Any]) -> None:
    with pytest.raises(RefusedQueryError, match="'x'"):
        trace(function)


class Opaque:
    def __radd__(self, other: object) -> str:
        return "never"


class Color(enum.IntEnum):
    RED = 1


class Word(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "captured",
    [
        Opaque(),
        b"bytes",
        1j,
        np.complex64(1j),
        Decimal(1),
        object(),
        {1, 2},
        print,
        int,
        math,
        range(3),
        np.datetime64("2026"),
    ],
)
def test_captured_objects_are_refused(captured: Any) -> None:
    with pytest.raises(RefusedQueryError, match="constant"):
        trace(lambda b: b.x + captured)


@pytest.mark.parametrize("array", [np.zeros(3), np.zeros(()), np.array(["a"])])
def test_captured_arrays_are_refused(array: Any) -> None:
    with pytest.raises(RefusedQueryError, match=r"\(ndarray\)"):
        trace(lambda b: b.x + array)
    with pytest.raises(RefusedQueryError, match="array"):
        trace(lambda b: array * b.x)


@pytest.mark.parametrize(
    ("captured", "plain"),
    [(np.float32(0.5), 0.5), (np.int8(-3), -3), (np.bool_(True), True), (np.str_("a"), "a"), (Color.RED, 1),
     (Word("w"), "w"), (np.float64("nan"), math.nan), (np.uint64(2**64 - 1), 2**64 - 1)],
)  # fmt: skip
def test_scalars_become_python_numbers(captured: Any, plain: Any) -> None:
    assert trace(lambda b: b.x == captured) == trace(lambda b: b.x == plain)
    assert str(trace(lambda b: b.x == captured)) == str(trace(lambda b: b.x == plain))


@pytest.mark.parametrize("number", [2**64, -(2**63) - 1, 10**5000], ids=["65 bits", "64 bits", "many bits"])
def test_large_integers_are_refused(number: int) -> None:
    with pytest.raises(RefusedQueryError, match=r"-2\*\*63 to 2\*\*64 - 1, got \d+ bits"):
        trace(lambda b: b.x + number)


def test_underscores_and_odd_names_are_refused() -> None:
    for name in ("_x", "__class_getitem__", "__globals__", "__array_interface__"):
        with pytest.raises(AttributeError, match="underscore"):
            trace(lambda b, name=name: getattr(b.x, name))
    for name in ("a b", "class", "ﬁ", "1", "a.b", ""):
        with pytest.raises(RefusedQueryError, match="plain name"):
            trace(lambda b, name=name: getattr(b, name))
    with pytest.raises(RefusedQueryError, match="plain name"):
        trace(lambda b: fn.f(b.x, **{"a b": 1}))
    with pytest.raises(RefusedQueryError, match="plain name"):
        trace(lambda b: getattr(fn, "a b")(b.x))


def test_the_symbol_can_be_looked_at() -> None:
    seen: list[Any] = []
    trace(lambda b: seen.append(b.x["k"] + 1) or 0)
    (symbol,) = seen
    assert repr(symbol) == "<symbolic b.x['k'] + 1>"
    assert not hasattr(symbol, "_anything")
    assert callable(symbol)


def test_a_symbol_does_not_leave_its_lambda() -> None:
    kept: list[Any] = []
    with pytest.raises(RefusedQueryError, match="'v'"):
        trace(lambda b: b.p.map(lambda v: kept.append(v) or v) + kept[0])


def test_large_expressions_are_refused_at_once() -> None:
    def doubled(b: Any) -> Any:
        x = b.x
        for _ in range(200):
            x = x + x
        return x

    with pytest.raises(RefusedQueryError, match="64 levels"):
        trace(doubled)
    with pytest.raises(QuerySyntaxError, match=r"large expression$"):
        trace(lambda b: 1 if doubled(b) else 0)
    with pytest.raises(RefusedQueryError, match="1000 nodes"):
        trace(lambda b: [b.x] * 1001)
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(RefusedQueryError, match="64 levels"):
        trace(lambda b: itself)
    with pytest.raises(RefusedQueryError, match="65536 characters, got 70000"):
        trace(lambda b: b.x == "a" * 70_000)


def test_functions_of_all_kinds_are_traced() -> None:
    class Holder:
        def method(self, b: Any) -> Any:
            return b.loss

    def with_default(b: Any, k: float = 2.0) -> Any:
        return b.loss * k

    assert trace(Holder().method) == trace(lambda b: b.loss)
    assert trace(operator.attrgetter("loss")) == trace(lambda b: b.loss)
    assert trace(operator.itemgetter("loss")) == trace(lambda b: b["loss"])
    assert trace(operator.neg) == trace(lambda b: -b)
    assert trace(with_default) == trace(lambda b: b.loss * 2.0)
    assert trace(partial(with_default, k=3.0)) == trace(lambda b: b.loss * 3.0)
    assert trace(lambda *args: args[0].loss) == trace(lambda b: b.loss)
    assert trace(operator.add, n_params=2) == lambda_of("lambda a, b: a + b")
    assert trace(np.add, n_params=2) == lambda_of("lambda a, b: a + b")
    assert trace(lambda b: b.p.map(lambda v, k=2: v * k)) == trace(lambda b: b.p.map(lambda v: v * 2))
    for op in (
        "add",
        "sub",
        "mul",
        "truediv",
        "floordiv",
        "mod",
        "pow",
        "and_",
        "or_",
        "xor",
        "lt",
        "le",
        "eq",
        "ne",
        "ge",
    ):
        assert lambda_of(str(trace(lambda b, op=op: getattr(operator, op)(2, b.x)))).body is not None


@pytest.mark.parametrize(
    ("function", "n"), [(lambda: 1, 0), (lambda a, b: a, 2), (lambda a, *, k: a, 1), (lambda a, b, c: a, 3)]
)
def test_wrong_numbers_of_arguments(function: Callable[..., Any], n: int) -> None:
    if n == 1:
        with pytest.raises(TypeError):
            trace(function)
        return
    with pytest.raises(QuerySyntaxError, match=f"1 argument, .* {n}$"):
        trace(function)
    with pytest.raises(QueryError):
        on("b").map(function)


def test_values_that_are_not_functions() -> None:
    with pytest.raises(QuerySyntaxError, match="got 5"):
        on("b").map(5)  # type: ignore[arg-type]


NUMPY: list[tuple[Callable[[Any], Any], str]] = [
    (lambda b: np.sqrt(b.x), "sqrt(b.x)"),
    (lambda b: np.abs(b.x), "abs(b.x)"),
    (lambda b: np.negative(b.x), "-b.x"),
    (lambda b: np.subtract(1, b.x), "1 - b.x"),
    (lambda b: np.float64(2.0) * b.x, "2.0 * b.x"),
    (lambda b: np.power(b.x, 2), "b.x ** 2"),
    (lambda b: np.maximum(b.x, 0), "maximum(b.x, 0)"),
    (lambda b: np.mean(b.x), "b.x.mean()"),
    (lambda b: np.mean(b.x, axis=0), "b.x.mean(axis=0)"),
    (lambda b: np.linalg.norm(b.x), "b.x.norm()"),
    (lambda b: np.where(b.x > 0, b.x, 0), "where(b.x > 0, b.x, 0)"),
    (lambda b: np.clip(b.x, 0, 1), "b.x.clip(0, 1)"),
    (lambda b: np.quantile(b.x, 0.5), "b.x.quantile(0.5)"),
    (lambda b: np.round(b.x, 2), "round(b.x, 2)"),
    (lambda b: np.rint(b.x), "round(b.x)"),
    (lambda b: np.amax(b.x), "b.x.max()"),
    (lambda b: np.shape(b.x), "b.x.shape()"),
    (lambda b: np.logical_and(b.x, b.y), "(b.x != 0) & (b.y != 0)"),
    (lambda b: np.logical_not(b.x), "b.x == 0"),
    (lambda b: np.isnan(b.x), "isnan(b.x)"),
    (lambda b: b.x @ b.y, "matmul(b.x, b.y)"),
    (lambda b: np.matmul(b.x, b.y), "matmul(b.x, b.y)"),
    (lambda b: np.ones((2, 2)).tolist() @ b.x, "matmul([[1.0, 1.0], [1.0, 1.0]], b.x)"),
    (lambda b: np.concatenate([b.x, b.y], axis=1), "concat([b.x, b.y], axis=1)"),
    (lambda b: np.sort(b.x), "b.x.sort()"),
    (lambda b: b.x.mean(dim=0), "b.x.mean(axis=0)"),
    (lambda b: b.x.max(0), "b.x.max(0)"),
]

SPOKEN = [
    ("b.x @ b.y", "matmul(b.x, b.y)"), ("max(b.x, 0)", "maximum(b.x, 0)"),
    ("min(b.x, b.y, 1)", "minimum(minimum(b.x, b.y), 1)"),
    ("max(b.x)", "b.x.max()"), ("sum([b.x, b.y])", "[b.x, b.y].sum()"),
    ("b.x if b.y > 0 else 'low'", "where(b.y > 0, b.x, 'low')"),
    ("b.x.norm(dim=1)", "b.x.norm(axis=1)"), ("float(b.x)", "float(b.x)"), ("len(b.x)", "len(b.x)"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), SPOKEN)
def test_text_may_say_it_as_python_does(text: str, canonical: str) -> None:
    assert lambda_of(f"lambda b: {text}") == lambda_of(f"lambda b: {canonical}")
    query = on("e").map(lambda_of(f"lambda b: {text}"))
    assert parse(str(query)) == query


@pytest.mark.parametrize(("function", "text"), NUMPY)
def test_numpy_functions_are_written_down(function: Callable[[Any], Any], text: str) -> None:
    assert trace(function) == lambda_of(f"lambda b: {text}")


def test_numpy_functions_that_queries_lack() -> None:
    with pytest.raises(QuerySyntaxError, match=r"'sinh'.*numpy.sinh"):
        trace(lambda b: np.sinh(b.x))
    with pytest.raises(QuerySyntaxError, match=r"'hstack'.*numpy.hstack"):
        trace(lambda b: np.hstack([b.x, b.y]))
    with pytest.raises(QuerySyntaxError, match=r"numpy.unique.*x.unique\(\)"):
        trace(lambda b: np.unique(b.x))
    with pytest.raises(RefusedQueryError, match=r"numpy.add"):
        trace(lambda b: np.add.reduce(b.x))
    with pytest.raises(RefusedQueryError, match=r"numpy.sqrt.*__call__"):
        trace(lambda b: np.sqrt(b.x, where=True))


def test_calls_are_checked_where_they_are_written() -> None:
    with pytest.raises(QuerySyntaxError, match=r"'men'.*'mean'"):
        trace(lambda b: b.x.men())
    with pytest.raises(QuerySyntaxError, match=r"mean\(x, axis=None\)"):
        trace(lambda b: b.x.mean(ax=0))
    with pytest.raises(QuerySyntaxError, match=r"map.*argument 2"):
        trace(lambda b: b.x.map(3))
    with pytest.raises(RefusedQueryError, match="function"):
        trace(lambda b: b.x.mean(lambda v: v))
    with pytest.raises(RefusedQueryError, match=r"b.x\[0\]"):
        trace(lambda b: b.x[0]())
    with pytest.raises(RefusedQueryError, match=r"slice\(1, 2, None\)"):
        trace(lambda b: b.x.clip(slice(1, 2)))
    with pytest.raises(RefusedQueryError, match="Ellipsis"):
        trace(lambda b: ...)
    with pytest.raises(RefusedQueryError, match="got 1"):
        trace(lambda b: {1: b.x})


def test_shadowed_names_differ() -> None:
    tree = trace(lambda v: v.p.map(lambda v: v.q.map(lambda v, v_: v + v_)))
    assert str(tree) == "lambda v: v.p.map(lambda v_: v_.q.map(lambda v__, v___: v__ + v___))"
    assert tree == lambda_of("lambda a: a.p.map(lambda b: b.q.map(lambda c, d: c + d))")


def test_threads_trace_at_once() -> None:
    expected = trace(lambda x: x.p.map(lambda x: x + 1))
    barrier, results = threading.Barrier(4, timeout=10), []

    def work() -> None:
        def inner(x: Any) -> Any:
            barrier.wait()
            return x.p.map(lambda x: x + 1)

        results.append(trace(inner))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [str(tree) for tree in results] == [str(expected)] * 4


@pytest.mark.parametrize(
    "function", [lambda b: b.loss is None, lambda b: isinstance(b.loss, float), lambda b: 1, lambda b: None]
)
def test_what_python_decided_at_once_is_refused(function: Any) -> None:
    for add in (on("batch").map, on("batch").where, lambda f: on("batch").count(when=f)):
        with pytest.raises(QuerySyntaxError, match=r"`is` and `isinstance`.*x == None"):
            add(function)
    assert str(parse("on('batch').map(lambda b: 1)")) == "on('batch').map(lambda b: 1)"


def test_a_join_is_written_read_and_compared_as_text() -> None:
    query = on("batch").join("epoch").map(lambda b: b.loss / b.epoch.accuracy)
    assert str(query) == "on('batch').join('epoch').map(lambda b: b.loss / b.epoch.accuracy)"
    assert parse(str(query)) == query
    assert len({query, parse(str(query)), on("batch").map(lambda b: b.loss / b.epoch.accuracy)}) == 2
    assert query.names == ["loss"]
    assert query.short is None


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (lambda: on("a").join("a"), "than 'a' itself"),
        (lambda: on("a").join("b").join("b"), "'b' twice"),
        (lambda: on("a").count(every=3).join("b"), "join('b') directly after on('a')"),
        (lambda: on("a").where(lambda a: a.x > 0).join("b"), "join('b') directly after on('a')"),
        (lambda: on("a").join("event"), "got 'event'"),
        (lambda: on("a").join(""), "got ''"),
        (lambda: on("a").join(3), "got 3"),
        (lambda: parse("on('a').rolling(3).join('b')"), "after rolling"),
        (lambda: parse("a.x.join('b')"), "the stage 'join'"),
    ],
)
def test_a_join_that_has_no_meaning_is_refused_by_name(join, message) -> None:
    with pytest.raises(QueryError, match=re.escape(message)):
        join()
