"""A query is text and text is a query: `parse(str(q)) == q`, whatever the tree."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.query.lambdas import lambda_of

from sightglass.core.errors import QueryError
from sightglass.query import expressions as e
from sightglass.query.expressions import canonical
from sightglass.query.parser import parse
from sightglass.query.query import Query, on
from sightglass.query.tracer import fn, trace

pytestmark = pytest.mark.smoke

NAMES = ["b", "x", "loss", "λ", "é1", "mean", "sum", "shape", "on", "v0", "v1", "fn_", "event", "a_b", "Z"]
TEXTS = ["", "a b", "'", '"', "\n", "\\", "a\r\nb", "\x00", "'''\"\"\"", "\ud800", "λ", "\u2028", "{x}", "%d"]
NUMBERS = [0, 1, -1, 7, 2**63, -(2**63), 2**64 - 1, 0.0, -0.0, 1.0, 5e-324, 1e308, -2.5, math.nan, math.inf, -math.inf]
constants = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.sampled_from([*NUMBERS, *TEXTS])
).map(e.Const)


class Grower:
    """Makes trees as tracing does: no sign before a number, slices in an index only, lambdas as arguments only."""

    def __init__(self, seed: int, size: int) -> None:
        self.random = Random(seed)
        self.size = size

    def leaf(self, scope: tuple[str, ...]) -> e.Expr:
        choose = self.random.choice
        if self.random.random() < 0.5:
            return e.Var(choose(scope))
        return e.Const(choose([None, True, False, choose(NUMBERS), choose(TEXTS), self.random.gauss(0, 1e9)]))

    def several(self, scope: tuple[str, ...]) -> tuple[e.Expr, ...]:
        return tuple(self.tree(scope) for _ in range(self.random.randrange(4)))

    def named(self, names: list[str], scope: tuple[str, ...]) -> tuple[tuple[str, e.Expr], ...]:
        return tuple((name, self.tree(scope)) for name in self.random.sample(names, self.random.randrange(3)))

    def function(self, scope: tuple[str, ...], n_params: int) -> e.Lambda:
        free = [name for name in NAMES if name not in scope]
        params = tuple(self.random.sample(free, n_params))
        return e.Lambda(params, self.tree((*scope, *params)))

    def index(self, scope: tuple[str, ...], *, nested: bool = False) -> e.Expr:
        match self.random.randrange(4 + (not nested)):
            case 0:
                return e.Slice(*(self.random.choice([None, self.tree(scope)]) for _ in range(3)))
            case 1:
                return e.Ellipsis_()
            case 4:
                return e.Tuple(tuple(self.index(scope, nested=True) for _ in range(self.random.randrange(4))))
        return self.tree(scope)

    def tree(self, scope: tuple[str, ...]) -> e.Expr:
        self.size -= 1
        if self.size < 0:
            return self.leaf(scope)
        choose, tree = self.random.choice, lambda: self.tree(scope)
        match self.random.randrange(12):
            case 0 | 1:
                return e.Attr(tree(), choose(NAMES))
            case 2:
                return e.Item(tree(), self.index(scope))
            case 3:
                operand = tree()
                number = isinstance(operand, e.Const) and type(operand.value) in (int, float)
                return operand if number else e.Unary(choose(sorted(e.UNARY)), operand)
            case 4 | 5:
                return e.Binary(choose(sorted(e.BINARY)), tree(), tree())
            case 6:
                return e.Call(choose(["abs", "mean", "sqrt", "norm", "keys"]), (tree(),))
            case 7:
                return e.Call("sum", (tree(),), (("axis", tree()),))
            case 8 if len(scope) < 6:
                return e.Call(choose(["map", "filter"]), (tree(), self.function(scope, choose([1, 2]))))
            case 9:
                return e.Call(f"user_{choose(NAMES)}", self.several(scope), self.named(NAMES, scope))
            case 10:
                return choose([e.Tuple, e.List])(self.several(scope))
            case 11:
                return e.Dict(self.named(TEXTS, scope))
        return self.leaf(scope)


def lambdas(*n_params: int) -> st.SearchStrategy[e.Lambda]:
    """Grow lambdas from a seed and a size: quick, and smaller sizes are simpler."""
    seeds, sizes = st.integers(0, 2**32), st.integers(0, 25)
    return st.builds(lambda seed, size, n: Grower(seed, size).function((), n), seeds, sizes, st.sampled_from(n_params))


windows = st.sampled_from(
    [{}, {"every": 7}, {"every": "5 min"}, {"every": "250 ms"}, {"per": "epoch"}, {"per": "ä'\n"}]
)
shares = st.floats(0, 1)
starts = st.sampled_from([0, -0.0, [1, (2,)], {"a": math.nan}])
stages = st.one_of(
    st.builds(lambda f: lambda q: q.map(f), lambdas(1)),
    st.builds(lambda f: lambda q: q.where(f), lambdas(1)),
    st.builds(lambda n, w: lambda q: getattr(q, n)(**w), st.sampled_from(["count", "mean", "last", "std"]), windows),
    st.builds(lambda w: lambda q: q.median(**w), windows),
    st.builds(lambda p, w: lambda q: q.percentile(100 * p, **w), shares, windows),
    st.builds(lambda p, w: lambda q: q.quantile(p, **w), shares | st.lists(shares, min_size=1), windows),
    st.builds(lambda b, w: lambda q: q.histogram(b, **w), st.integers(1, 10**6), windows),
    st.builds(lambda k, f, w: lambda q: q.top(k, f, **w), st.integers(1, 9), st.none() | lambdas(1), windows),
    st.builds(lambda f, i, w: lambda q: q.reduce(f, i, **w), lambdas(2), starts, windows),
    st.builds(lambda f: lambda q: q.mean(when=f), lambdas(1)),
)  # fmt: skip


def build(event: str, chain: list[Any]) -> Query:
    query = on(event)
    for stage in chain:
        query = stage(query)
    return query


@settings(max_examples=examples(300))
@given(lambdas(1, 2))
def test_a_tree_survives_its_text(tree: e.Lambda) -> None:
    again = lambda_of(str(tree))
    assert again == tree
    assert hash(again) == hash(tree)
    assert str(again) == str(tree)


@settings(max_examples=examples(150))
@given(st.text(min_size=1, max_size=10), st.lists(stages, max_size=4))
def test_a_query_survives_its_text(event: str, chain: list[Any]) -> None:
    query = build(event, chain)
    again = parse(str(query))
    assert again == query
    assert hash(again) == hash(query)
    assert parse(query.key) == query
    assert again.seed == query.seed
    assert again.tag == query.tag
    assert query.short is None or parse(query.short) == query


@settings(max_examples=examples(100))
@given(lambdas(1, 2))
def test_canonical_text_is_a_fixed_point_and_forgets_names(tree: e.Lambda) -> None:
    assert canonical(lambda_of(canonical(tree))) == canonical(tree)


@settings(max_examples=examples(100))
@given(constants, constants)
def test_constants_are_equal_if_type_and_digits_are(a: e.Const, b: e.Const) -> None:
    same = type(a.value) is type(b.value) and repr(a.value) == repr(b.value)
    assert (a == b) is same


@settings(max_examples=examples(100))
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        query = parse(text)
    except QueryError:
        return
    assert parse(str(query)) == query


TOKENS = [*"b.x()[],:+-1={}*~_ \n", "lambda ", "**", "'a'", "...", "on", "fn", "map", "mean", "every", " not ", " if ",
          " else ", " for ", " in ", "nan", "yield "]  # fmt: skip


@settings(max_examples=examples(150))
@given(st.lists(st.sampled_from(TOKENS), max_size=14))
def test_any_tokens_are_read_or_refused(tokens: list[str]) -> None:
    try:
        query = parse("".join(tokens))
    except QueryError:
        return
    assert parse(str(query)) == query


PAIRS: list[tuple[Any, str]] = [
    (lambda b: b.loss, "lambda x: x.loss"),
    (lambda b: abs(b.grads["dense"]).mean(), "lambda b: abs(b.grads['dense']).mean()"),
    (lambda b: fn.sqrt(b.x), "lambda b: sqrt(b.x)"),
    (lambda b: fn.sqrt(b.x), "lambda b: fn.sqrt(b.x)"),
    (lambda b: fn.mean(b.x, axis=0), "lambda b: b.x.mean(axis=0)"),
    (lambda b: b.x[..., 1:, ::-2, None], "lambda b: b.x[..., 1:, ::-2, None]"),
    (lambda b: b.x[[0, 2]], "lambda b: b.x[[0, 2]]"),
    (lambda b: {"a": b.x, "b": (b.y, [1, -2.5])}, "lambda b: {'a': b.x, 'b': (b.y, [1, -2.5])}"),
    (lambda b: b.p.map(lambda name, value: value.mean() + b.x), "lambda b: b.p.map(lambda n, v: v.mean() + b.x)"),
    (lambda b: b.p.map(lambda b_: b_.map(lambda b__: b__ + b_)), "lambda q: q.p.map(lambda r: r.map(lambda s: s + r))"),
    (lambda b: -(b.x**2), "lambda b: -(b.x ** 2)"),
    (lambda b: (-b.x) ** 2, "lambda b: (-b.x) ** 2"),
    (lambda b: ~(b.x > 1) & (b.y != 2) | (b.z <= -0.0), "lambda b: ~(b.x > 1) & (b.y != 2) | (b.z <= -0.0)"),
    (lambda b: 2**b.x % 3 // 4 ^ b.y, "lambda b: 2 ** b.x % 3 // 4 ^ b.y"),
    (lambda b: round(b.x, 2), "lambda b: round(b.x, 2)"),
    (lambda b: b.x + math.nan, "lambda b: b.x + nan"),
    (lambda b: b.x < -math.inf, "lambda b: b.x < -inf"),
    (lambda sum: sum.x.sum(), "lambda a: a.x.sum()"),
    (lambda nan: nan.x, "lambda a: a.x"),
    (lambda _x: _x.x, "lambda a: a.x"),
]


@pytest.mark.parametrize(("function", "text"), PAIRS)
def test_lambda_and_text_make_one_tree(function: Any, text: str) -> None:
    assert trace(function) == lambda_of(text)
    assert lambda_of(str(trace(function))) == trace(function)


def test_short_form_is_the_long_one() -> None:
    assert parse("batch.loss") == on("batch").map(lambda b: b.loss)
    assert parse("fn.sqrt(batch.loss)") == parse("sqrt(batch.loss)") == on("batch").map(lambda b: fn.sqrt(b.loss))
    assert parse("batch.loss.mean(every=100)") == on("batch").map(lambda b: b.loss).mean(every=100)
    assert parse("batch.loss.mean()") == on("batch").map(lambda b: b.loss.mean())
    assert parse("batch.mean(per='epoch')") == on("batch").mean(per="epoch")
    assert parse("batch.p.map(lambda n, v: v.x).last(every='1 h').max(when=lambda b: b.z)") == on("batch").map(
        lambda b: b.p.map(lambda n, v: v.x)
    ).last(every="1 h").max(when=lambda b: b.z)


SHORTLESS = [
    "on('batch').map(lambda b: 7)",
    "on('batch').map(lambda b: 7).mean(every=2)",
    "on('batch').map(lambda b: b)",
    "on('_batch').map(lambda b: b.loss)",
    "on('\ufb01').map(lambda b: b.loss)",
]


@pytest.mark.parametrize("text", SHORTLESS)
def test_a_query_has_no_short_form_that_is_another_query(text: str) -> None:
    query = parse(text)
    assert query.short is None


def test_windows_of_one_length_are_one_window() -> None:
    assert on("b").count(every="5 min").key == on("b").count(every="300 s").key
    assert on("b").count(every="5 min") != on("b").count(every=300)
    assert str(on("b").count(every="5 min")) == "on('b').count(every='5 min')"


def test_trees_differ_by_type_only() -> None:
    written = {str(trace(lambda b, c=c: b.x == c)) for c in (1, 1.0, True, "1")}
    assert len({lambda_of(text) for text in written}) == 4
    assert trace(lambda b: b.x == 0.0) != trace(lambda b: b.x == -0.0)


def test_queries_are_values() -> None:
    query = on("batch").map(lambda b: b.loss).mean(every=3)
    assert query in {parse(str(query))}
    assert query != "batch.loss"
    assert replace(query, event="other") != query
    assert pickle.loads(pickle.dumps(query)) == query
