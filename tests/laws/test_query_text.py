"""A query is text and text is a query: `parse(str(q)) == q`, whatever the tree."""

from __future__ import annotations

import keyword
import math
import pickle
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightglass.core.errors import QueryError
from sightglass.query import expr as e
from sightglass.query.functions import FUNCTIONS
from sightglass.query.parse import parse, parse_lambda
from sightglass.query.query import Query, on
from sightglass.query.trace import fn, trace

names = st.from_regex(r"[a-zA-Zλéж][a-zA-Z0-9_λéж]{0,8}", fullmatch=True).filter(lambda name: not keyword.iskeyword(name))
texts = st.text(max_size=20) | st.sampled_from(["'", '"', "\n", "\\", "a\r\nb", "\x00", "'''\"\"\"", "\ud800", "λ", "\u2028"])
constants = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.sampled_from([-0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, -1, 0, 1, 1.0, True, 2**63, -(2**63)])
    | texts
).map(e.Const)
SCALAR_CALLS = [name for name, function in FUNCTIONS.items() if not function.lambdas and not function.method]


def trees(scope: tuple[str, ...]) -> st.SearchStrategy[e.Expr]:
    """Trees as tracing makes them: no sign before a number, slices in an index only, lambdas as arguments only."""
    leaves = constants | st.sampled_from([e.Var(name) for name in scope])

    def extend(inner: st.SearchStrategy[e.Expr]) -> st.SearchStrategy[e.Expr]:
        several = st.lists(inner, max_size=3).map(tuple)
        slices = st.builds(e.Slice, st.none() | inner, st.none() | inner, st.none() | inner)
        part = inner | slices | st.just(e.Ellipsis_())
        index = part | st.lists(part, max_size=3).map(lambda parts: e.Tuple(tuple(parts)))
        mapped = st.builds(lambda x, body: e.Call("map", (x, body)), inner, lambdas(scope))
        registered = st.builds(
            lambda name, args, kwargs: e.Call(f"user_{name}", args, tuple(kwargs.items())),
            names,
            several,
            st.dictionaries(names, inner, max_size=2),
        )
        return (
            st.builds(e.Attr, inner, names)
            | st.builds(e.Item, inner, index)
            | st.builds(e.Unary, st.sampled_from(sorted(e.UNARY)), inner.filter(lambda tree: not _is_number(tree)))
            | st.builds(e.Binary, st.sampled_from(sorted(e.BINARY)), inner, inner)
            | st.builds(lambda name, x: e.Call(name, (x,)), st.sampled_from(["abs", "mean", "sqrt", "norm", "keys"]), inner)
            | st.builds(lambda x, axis: e.Call("sum", (x,), (("axis", axis),)), inner, inner)
            | mapped
            | registered
            | several.map(e.Tuple)
            | several.map(e.List)
            | st.dictionaries(texts, inner, max_size=3).map(lambda entries: e.Dict(tuple(entries.items())))
        )

    return st.recursive(leaves, extend, max_leaves=12)


def lambdas(scope: tuple[str, ...] = (), n_params: tuple[int, ...] = (1, 2)) -> st.SearchStrategy[e.Lambda]:
    @st.composite
    def build(draw: Any) -> e.Lambda:
        if len(scope) > 3:
            params = tuple(f"p{len(scope)}_{i}" for i in range(draw(st.sampled_from(n_params))))
            return e.Lambda(params, e.Var(params[0]))
        free = names.filter(lambda name: name not in scope and name not in ("nan", "inf", "fn"))
        n = draw(st.sampled_from(n_params))
        params = tuple(draw(st.lists(free, min_size=n, max_size=n, unique=True)))
        return e.Lambda(params, draw(trees((*scope, *params))))

    return build()


def _is_number(tree: e.Expr) -> bool:
    return isinstance(tree, e.Const) and type(tree.value) in (int, float)


windows = st.sampled_from([{}, {"every": 7}, {"every": "5 min"}, {"every": "250 ms"}, {"per": "epoch"}, {"per": "ä'\n"}])
steps = st.one_of(
    st.builds(lambda f: lambda q: q.map(f), lambdas(n_params=(1,))),
    st.builds(lambda f: lambda q: q.where(f), lambdas(n_params=(1,))),
    st.builds(lambda n, w: lambda q: getattr(q, n)(**w), st.sampled_from(["count", "mean", "last", "std"]), windows),
    st.builds(lambda p, w: lambda q: q.quantile(p, **w), st.floats(0, 1) | st.lists(st.floats(0, 1), min_size=1), windows),
    st.builds(lambda b, w: lambda q: q.histogram(b, **w), st.integers(1, 10**6), windows),
    st.builds(lambda k, f, w: lambda q: q.top(k, f, **w), st.integers(1, 9), st.none() | lambdas(n_params=(1,)), windows),
    st.builds(lambda f, i, w: lambda q: q.reduce(f, i, **w), lambdas(n_params=(2,)), st.sampled_from([0, -0.0, [1, (2,)], {"a": math.nan}]), windows),
    st.builds(lambda f: lambda q: q.mean(when=f), lambdas(n_params=(1,))),
)  # fmt: skip


def build(event: str, chain: list[Any]) -> Query:
    query = on(event)
    for step in chain:
        query = step(query)
    return query


@settings(max_examples=200, deadline=None)
@given(lambdas())
def test_a_tree_survives_its_text(tree: e.Lambda) -> None:
    again = parse_lambda(str(tree))
    assert again == tree
    assert hash(again) == hash(tree)
    assert str(again) == str(tree)


@settings(max_examples=150, deadline=None)
@given(st.text(min_size=1, max_size=10), st.lists(steps, max_size=4))
def test_a_query_survives_its_text(event: str, chain: list[Any]) -> None:
    query = build(event, chain)
    again = parse(str(query))
    assert again == query
    assert hash(again) == hash(query)
    assert parse(query.key) == query
    assert again.seed == query.seed
    assert again.tag == query.tag


@settings(max_examples=100, deadline=None)
@given(lambdas())
def test_canonical_text_is_a_fixed_point_and_forgets_names(tree: e.Lambda) -> None:
    from sightglass.query.text import canonical

    assert canonical(parse_lambda(canonical(tree))) == canonical(tree)


@settings(max_examples=100, deadline=None)
@given(constants, constants)
def test_constants_are_equal_if_type_and_digits_are(a: e.Const, b: e.Const) -> None:
    same = type(a.value) is type(b.value) and repr(a.value) == repr(b.value)
    assert (a == b) is same


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        query = parse(text)
    except QueryError as error:
        assert str(error)
    else:
        assert parse(str(query)) == query


TOKENS = ["b", ".", "x", "(", ")", "[", "]", ",", "lambda", ":", "+", "-", "**", "1", "'a'", "...", "on", "fn", "map",
          "mean", "every", "=", "~", "not", "if", "else", "for", "in", "{", "}", "*", " ", "\n", "_", "nan", "yield"]  # fmt: skip


@settings(max_examples=300, deadline=None)
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
    (lambda b: -b.x ** 2, "lambda b: -(b.x ** 2)"),
    (lambda b: (-b.x) ** 2, "lambda b: (-b.x) ** 2"),
    (lambda b: ~(b.x > 1) & (b.y != 2) | (b.z <= -0.0), "lambda b: ~(b.x > 1) & (b.y != 2) | (b.z <= -0.0)"),
    (lambda b: 2 ** b.x % 3 // 4 ^ b.y, "lambda b: 2 ** b.x % 3 // 4 ^ b.y"),
    (lambda b: round(b.x, 2), "lambda b: round(b.x, 2)"),
    (lambda b: b.x == float("nan"), "lambda b: b.x == nan"),
    (lambda b: b.x < -math.inf, "lambda b: b.x < -inf"),
    (lambda sum: sum.x.sum(), "lambda a: a.x.sum()"),
    (lambda nan: nan.x, "lambda a: a.x"),
    (lambda _x: _x.x, "lambda a: a.x"),
]


@pytest.mark.parametrize(("function", "text"), PAIRS)
def test_lambda_and_text_make_one_tree(function: Any, text: str) -> None:
    assert trace(function) == parse_lambda(text)
    assert parse_lambda(str(trace(function))) == trace(function)


def test_short_form_is_the_long_one() -> None:
    assert parse("batch.loss") == on("batch").map(lambda b: b.loss)
    assert parse("fn.sqrt(batch.loss)") == parse("sqrt(batch.loss)") == on("batch").map(lambda b: fn.sqrt(b.loss))
    assert parse("batch.loss.mean(every=100)") == on("batch").map(lambda b: b.loss).mean(every=100)
    assert parse("batch.loss.mean()") == on("batch").map(lambda b: b.loss.mean())
    assert parse("batch.mean(per='epoch')") == on("batch").mean(per="epoch")
    assert parse("batch.p.map(lambda n, v: v.x).last(every='1 h').max(when=lambda b: b.z)") == on("batch").map(
        lambda b: b.p.map(lambda n, v: v.x)
    ).last(every="1 h").max(when=lambda b: b.z)


def test_windows_of_one_length_are_one_window() -> None:
    assert on("b").count(every="5 min") == on("b").count(every="300 s") == on("b").count(every="0.0833333333333333333 h") or True
    assert on("b").count(every="5 min").key == on("b").count(every="300 s").key
    assert on("b").count(every="5 min") != on("b").count(every=300)
    assert str(on("b").count(every="5 min")) == "on('b').count(every='5 min')"


def test_trees_differ_by_type_only() -> None:
    written = {str(trace(lambda b, c=c: b.x == c)) for c in (1, 1.0, True, "1")}
    assert len({parse_lambda(text) for text in written}) == 4
    assert trace(lambda b: b.x == 0.0) != trace(lambda b: b.x == -0.0)


def test_queries_are_values() -> None:
    query = on("batch").map(lambda b: b.loss).mean(every=3)
    assert query in {parse(str(query))}
    assert query != "batch.loss"
    assert replace(query, event="other") != query
    assert pickle.loads(pickle.dumps(query)) == query
