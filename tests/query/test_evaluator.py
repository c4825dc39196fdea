"""What a query reads and computes: as Python and NumPy would, and nothing that was not offered."""

from __future__ import annotations

import math
import operator
import os
import re
import sys
from collections import defaultdict, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.query.lambdas import lambda_of

from sightglass.core.errors import EvaluationError, QueryError, RefusedQueryError, UnknownNameError
from sightglass.core.values import Histogram
from sightglass.query.evaluator import evaluator

pytestmark = pytest.mark.smoke

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
    "%": operator.mod, "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
    ">=": operator.ge,
}  # fmt: skip
small = (
    st.integers(-5, 5) | st.booleans() | st.floats(-1e3, 1e3) | st.sampled_from([math.nan, math.inf, -math.inf, -0.0])
)


def evaluate(text: str, /, **observables: Any) -> Any:
    return evaluator(lambda_of(f"lambda b: {text}"), event="batch")(observables)


def of_ieee(op: str, a: Any, b: Any) -> Any:
    """Compute as Python does, and where it raises, as NumPy does."""
    try:
        return OPERATORS[op](a, b)
    except ZeroDivisionError:
        with np.errstate(all="ignore"):
            return OPERATORS[op](np.float64(a), np.float64(b)).item()


@st.composite
def sums(draw: st.DrawFn, names: str = "xyz", depth: int = 3) -> tuple[str, Callable[[dict[str, Any]], Any]]:
    """Draw an expression, as text and as what it means."""
    if depth == 0 or draw(st.booleans()):
        name = draw(st.sampled_from(names))
        return f"b.{name}", lambda env: env[name]
    op = draw(st.sampled_from(["+", "-", "*", "/"]))
    (left, of_left), (right, of_right) = draw(sums(names, depth - 1)), draw(sums(names, depth - 1))
    return f"({left} {op} {right})", lambda env: of_ieee(op, of_left(env), of_right(env))


@settings(max_examples=examples(150))
@given(expression=sums(), x=small, y=small, z=small)
def test_numbers_are_those_of_python_and_division_by_zero_is_ieee(expression: Any, x: Any, y: Any, z: Any) -> None:
    text, meaning = expression
    found, wanted = evaluate(text, x=x, y=y, z=z), meaning({"x": x, "y": y, "z": z})
    assert type(found) is type(wanted)
    assert repr(found) == repr(wanted)


@settings(max_examples=examples(60))
@given(expression=sums(), seed=st.integers(0, 99), n=st.integers(0, 4))
def test_arrays_are_those_of_numpy(expression: Any, seed: int, n: int) -> None:
    text, meaning = expression
    rng = np.random.default_rng(seed)
    env = {"x": rng.integers(-2, 3, n), "y": rng.random(n).astype(np.float32), "z": 2}
    with np.errstate(all="ignore"):
        wanted = meaning(env)
    found = evaluate(text, **env)
    assert getattr(found, "dtype", type(found)) == getattr(wanted, "dtype", type(wanted))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", OPERATORS)
@settings(max_examples=examples(15))
@given(a=small, b=small)
def test_every_operator_on_numbers(op: str, a: Any, b: Any) -> None:
    assert repr(evaluate(f"b.x {op} b.y", x=a, y=b)) == repr(of_ieee(op, a, b))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("b.n ** 0.5", math.nan),
        ("0 ** b.n", math.inf),
        ("1e308 * 10 ** 2", math.inf),
        ("2.0 ** 5000", math.inf),
        ("b.n / 0", -math.inf),
        ("0 / 0", math.nan),
        ("b.n // 0", -math.inf),
        ("b.n % 0", math.nan),
        ("(-1) ** 10001", -1),
        ("1 ** 10001", 1),
        ("~True", False),
        ("~1", -2),
        ("True & False", False),
        ("5 ^ 1", 4),
        ("'a' + 'b'", "ab"),
        ("'a' < 'b'", True),
        ("'a' == 1", False),
        ("None == None", True),
        ("None != 0", True),
        ("'abc'[1:]", "bc"),
        ("[1, 2, 3][-1]", 3),
        ("(1, 2)[0]", 1),
        ("{'a': 1}['a']", 1),
        ("{'a': {'b': 2}}.a.b", 2),
        ("[1, 2, 3].sum()", 6),
        ("[1.5, 2].mean()", 1.75),
        ("[[1, 2], [3, 4]].sum(axis=0)[1]", 6),
        ("([1, 2] * 2 == [2, 4]).all()", True),
        ("len('abc')", 3),
        ("'abc'.contains('b')", True),
        ("[1, 2].contains(2)", True),
        ("{'a': 1}.contains('a')", True),
        ("'abc'.startswith('ab')", True),
        ("'abc'.endswith('bc')", True),
        ("round(2.5)", 2.0),
        ("round(2.567, 2)", 2.57),
        ("abs(-3)", 3),
        ("sqrt(-1)", math.nan),
        ("log(0)", -math.inf),
        ("maximum(1, nan)", math.nan),
        ("where(True, 1, 2)", 1),
        ("clip(5, 0, 3)", 3),
        ("quantile([1, 2, 3], 0.5)", 2.0),
        ("isnan(nan)", True),
        ("mean(b.n)", -8.0),
        ("item(5)", 5),
        ("first([7, 8])", 7),
        ("last({'a': 1, 'b': 2})", 2),
        ("topk([3, 1, 2], 2)[0]", 3),
        ("ravel(5)[0]", 5),
        ("norm(-2)", 2),
        ("{'a': 1, 'b': 2}.map(lambda n, v: v * 2).b", 4),
        ("[1, 2].map(lambda i, v: i * 10 + v)[1]", 12),
        ("{'a': 1, 'b': 2}.filter(lambda n, v: v > 1).keys()[0]", "b"),
        ("leaves({'a': 1})", {}),
        ("leaves(5)", {}),
        ("{'a': 1}.items()[0][0]", "a"),
        ("{'a': 1}.map(lambda v: {'c': 2}.map(lambda w: v + w)).a.c", 3),
    ],
)
def test_small_things(text: str, wanted: Any) -> None:
    found = evaluate(text, n=-8)
    assert repr(getattr(found, "item", lambda: found)()) == repr(wanted)


class Slotted:
    __slots__ = ("_secret", "w")

    def __init__(self) -> None:
        self.w, self._secret = 3, 4


class Child(Slotted):
    __slots__ = ("v",)

    def __init__(self) -> None:
        super().__init__()
        self.v = 5


@dataclass(frozen=True)
class Config:
    lr: float = 0.1
    inner: Any = field(default_factory=lambda: {"deep": [Slotted()]})


class Trap:
    """An object of which each way of reading it, but for plain storage, does something."""

    stored_on_class = 1

    def __init__(self) -> None:
        self.plain = 7

    @property
    def prop(self) -> int:
        raise AssertionError("a property was run")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"__getattr__({name!r}) was run")

    def method(self) -> int:
        raise AssertionError("a method was run")


class Hidden:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("a property was run")


class Lazy(Mapping[str, int]):
    def __getitem__(self, key: str) -> int:
        if key != "a":
            raise KeyError(key)
        return 5

    def __len__(self) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        return iter("a")


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("b.m.a", 1),
        ("b.m['a']", 1),
        ("b.m['with space']", 2),
        ("b.m.nested.deep", 3),
        ("b.lazy.a", 5),
        ("b.lazy['a']", 5),
        ("b.point.y", 2),
        ("b.point[0]", 1),
        ("b.config.lr", 0.1),
        ("b.config.inner.deep[0].w", 3),
        ("b.child.w + b.child.v", 8),
        ("b.trap.plain", 7),
        ("b.space.x.y", 6),
        ("b.array.shape", (2, 3)),
        ("leaves([[b.array, b.array + 1], 'x'])['0.1'].sum() - b.array.sum()", 6.0),
        ("leaves({'a': [b.array, 1], 'b': {'c': b.array}}).keys()", ["a.0", "b.c"]),
        ("b.array.T.shape", (3, 2)),
        ("b.array.ndim", 2),
        ("b.array.size", 6),
        ("b.array.dtype", "float64"),
        ("b.scalar.dtype", "float32"),
        ("b.h.total", 2),
        ("b.h.counts.sum()", 2),
    ],
)
def test_parts_of_observables_can_be_read(text: str, wanted: Any) -> None:
    assert evaluate(text, **OFFERED) == wanted


OFFERED: dict[str, Any] = {
    "m": {"a": 1, "with space": 2, "nested": {"deep": 3}}, "lazy": Lazy(), "point": Point(1, 2), "config": Config(),
    "child": Child(), "trap": Trap(), "space": SimpleNamespace(x=SimpleNamespace(y=6)), "array": np.zeros((2, 3)),
    "scalar": np.float32(1), "h": Histogram([1.0, 2.0]), "hidden": Hidden(), "os": os, "cls": Config, "fn": len,
    "method": Trap().method, "objects": np.array([os, len], object), "listed": [os, Trap], "named": {"os": os},
    "structured": np.zeros(2, [("float", "f4"), ("o", "O")]), "generator": (i for i in ()),
    "code": (lambda: 0).__code__,
    "frame": sys._getframe(), "space_of_os": SimpleNamespace(os=os, f=len), "bytes": b"abc", "none": None,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("b.trap.prop", UnknownNameError, "Unknown attribute 'prop' of Trap. Known: plain."),
        ("b.trap.method", UnknownNameError, "Unknown attribute 'method' of Trap. Known: plain."),
        ("b.trap.stored_on_class", UnknownNameError, "Unknown attribute 'stored_on_class' of Trap. Known: plain."),
        ("b.hidden.x", UnknownNameError, "Unknown attribute 'x' of Hidden. Known: none."),
        ("b.child.lost", UnknownNameError, "Unknown attribute 'lost' of Child. Known: v, w."),
        ("b.config.lrr", UnknownNameError, "Unknown attribute 'lrr' of Config. Did you mean 'lr'? Known: inner, lr."),
        ("b.array.tofile", UnknownNameError, "Unknown attribute 'tofile' of an array."),
        ("b.array.base", UnknownNameError, "Unknown attribute 'base' of an array."),
        ("b.array.ctypes", UnknownNameError, "Unknown attribute 'ctypes' of an array."),
        ("b.array.dtype.type", UnknownNameError, "Unknown attribute 'type' of str. Known: none."),
        ("b.generator.gi_frame", UnknownNameError, "Unknown attribute 'gi_frame' of generator. Known: none."),
        ("b.frame.f_globals", UnknownNameError, "Unknown attribute 'f_globals' of frame. Known: none."),
        ("b.code.co_consts", UnknownNameError, "Unknown attribute 'co_consts' of code. Known: none."),
        ("b.m.keys", UnknownNameError, "Unknown key 'keys'."),
        ("b.m['b']", UnknownNameError, "Unknown key 'b'."),
        ("b.m[b.array]", UnknownNameError, "Unknown key "),
        ("b.lazy.b", UnknownNameError, "Unknown key 'b'. Known: a."),
        ("b.os", RefusedQueryError, "'os' … got a module"),
        ("b.cls", RefusedQueryError, "'cls' … got a type"),
        ("b.fn", RefusedQueryError, "'fn' … got a builtin_function_or_method"),
        ("b.method", RefusedQueryError, "'method' … got a method"),
        ("b.named.os", RefusedQueryError, "'os' … got a module"),
        ("b.named.map(lambda n, v: v.sep)", RefusedQueryError, "'the target of .sep' … got a module"),
        ("b.listed[0]", RefusedQueryError, "0 … got a module"),
        ("b.listed[0:1].first().sep", RefusedQueryError, "0 … got a module"),
        ("b.objects[0]", RefusedQueryError, "0 … got a module"),
        ("b.objects + 1", RefusedQueryError, "0 … got a module"),
        ("b.structured + 1", RefusedQueryError, "got mapping of 2. Use .map(lambda name, value: …)"),
        ("b.space_of_os.os", RefusedQueryError, "'os' … got a module"),
        ("b.space_of_os.f", RefusedQueryError, "'f' … got a builtin_function_or_method"),
        ("b.m + 1", RefusedQueryError, "got mapping of 3. Use .map(lambda name, value: …)"),
        ("b.bytes * 2", RefusedQueryError, "'*' … bytes and int"),
        ("b.none + 1", RefusedQueryError, "'+', got NoneType and int"),
        ("b.m[0:1]", UnknownNameError, "Unknown key "),
        ("[1, 2][5]", EvaluationError, "index below 2, got 5"),
        ("5[0]", EvaluationError, "before [0], got int"),
        ("len(5)", RefusedQueryError, "array, got int"),
        ("keys(5)", RefusedQueryError, "mapping, got int"),
        ("startswith(5, 'a')", RefusedQueryError, "string, got int"),
        ("b.array.item()", RefusedQueryError, "one item, got float64[2, 3]"),
        ("b.array.map(lambda v: v)", RefusedQueryError, "iterate over, got float64[2, 3]"),
        ("b.array + b.array[:, 0]", RefusedQueryError, "got (2, 3) and (2,)"),
        ("b.array['a']", EvaluationError, "an index, got str"),
        ("b.arr", UnknownNameError, "'arr' at event 'batch'. Did you mean 'array'?"),
        ("b.arr + 1", UnknownNameError, "'arr' at event 'batch'. Did you mean 'array'?"),
    ],
)
def test_nothing_else_can_be_read(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        evaluate(text, **OFFERED)
    assert all(part in str(caught.value) for part in message.split(" … "))


def test_reading_a_mapping_makes_nothing_in_it() -> None:
    made: defaultdict[str, list[int]] = defaultdict(list)
    for text in ("b.made.x", "b.made['x']"):
        with pytest.raises(UnknownNameError):
            evaluate(text, made=made)
    assert made == {}


def test_registered_functions_are_called_with_values_and_give_no_way_out() -> None:
    functions = {"double": lambda x, by=2: x * by, "module": lambda: os}
    double = evaluator(lambda_of("lambda b: double(b.x, by=3)"), functions=functions, event="batch")
    assert double({"x": 2}) == 6
    away = evaluator(lambda_of("lambda b: module().path"), functions=functions, event="batch")
    with pytest.raises(RefusedQueryError, match=r"'the target of \.path'.*module"):
        away({})
    with pytest.raises(QueryError, match=r"'dubble'.*'double'"):
        evaluator(lambda_of("lambda b: dubble(b.x)"), functions=functions, event="batch")
    with pytest.raises(QueryError, match="double"):
        evaluator(lambda_of("lambda b: double()"), functions=functions, event="batch")


def test_inner_lambdas_see_the_arguments_around_them() -> None:
    found = evaluate("b.d.map(lambda n, v: b.d.map(lambda m, w: v * w + b.x))", d={"a": 2, "c": 3}, x=1)
    assert found == {"a": {"a": 5, "c": 7}, "c": {"a": 7, "c": 10}}


def test_a_plain_observable_is_handed_on_as_it_is() -> None:
    x = np.zeros(3)
    assert evaluate("b.x", x=x) is x
    assert evaluate("b", x=x) == {"x": x}


def test_nothing_is_warned_of(recwarn: pytest.WarningsRecorder) -> None:
    for text in (
        "b.x / 0",
        "log(b.x)",
        "b.e.mean()",
        "b.e.std()",
        "b.x * 1e308 * 10",
        "b.i // 0",
        "sqrt(-1.0 - b.x)",
        "0 / 0",
    ):
        evaluate(text, x=np.zeros(2), e=np.zeros(0), i=np.zeros(2, int))
    assert not recwarn.list


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data(), st.integers(0, 9))
def test_functions_along_an_axis_are_those_of_numpy(shape: list[int], data: st.DataObject, seed: int) -> None:
    x = np.random.default_rng(seed).normal(size=shape)
    axis, q = data.draw(st.integers(-len(shape), len(shape) - 1)), data.draw(st.floats(0, 1))
    axes = tuple(data.draw(st.permutations(range(len(shape))))[: data.draw(st.integers(1, len(shape)))])
    calls = {
        f"b.x.diff(axis={axis})": np.diff(x, axis=axis),
        f"b.x.cumsum(axis={axis})": np.cumsum(x, axis=axis),
        f"b.x.median(dim={axis})": np.median(x, axis=axis),
        f"b.x.median(axis={axes})": np.median(x, axis=axes),
        f"b.x.quantile({q!r}, axis={axis})": np.quantile(x, q, axis=axis),
        f"b.x.quantile([{q!r}, 1], axis={axes})": np.quantile(x, [q, 1], axis=axes),
        f"b.x.percentile({100 * q!r}, axis={axis})": np.quantile(x, 100 * q / 100, axis=axis),
    }
    for text, wanted in calls.items():
        np.testing.assert_allclose(evaluate(text, x=x), wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b.x.median(axis=2)", "has 2, got axis=2"),
        ("b.x.quantile(0.5, axis=(0, -2))", "got axis=(0, -2)"),
        ("b.x.cumsum(axis='rows')", "got axis='rows'"),
        ("b.x.diff(axis=(0, 1))", "one axis, got axis=(0, 1)"),
        ("median(1.5, axis=0)", "has none"),
        ("b.wide.quantile([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9], axis=0)", "64 MiB, got 69 MiB"),
    ],
)
def test_an_axis_that_is_not_there_is_refused(text: str, message: str) -> None:
    wide = np.broadcast_to(np.float32(0), (2, 1_000_000))
    with pytest.raises(RefusedQueryError, match=re.escape(message)):
        evaluate(text, x=np.zeros((2, 3)), wide=wide)
