"""One evaluator: it gives what Python and NumPy give, and IEEE 754 where Python raises."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.query.lambdas import lambda_of

from sightglass.core.values import Histogram
from sightglass.query import expressions as e
from sightglass.query.evaluator import evaluator


def ask(text: str, **observables: Any) -> Any:
    return evaluator(lambda_of(f"lambda b: {text}"), event="batch")(observables)


SCALARS = {"x": 1.5, "n": 7, "k": -3, "z": 0.0, "t": True, "h": np.float32(0.25), "w": np.int64(-2)}
ARRAYS = {
    "a": np.linspace(-2, 2, 6).reshape(2, 3),
    "i": np.arange(-3, 3).reshape(2, 3),
    "r": np.array([1.0, -0.5, 0.0]),
    "f": np.linspace(0, 1, 6, dtype=np.float32).reshape(2, 3),
}


class Calculator:
    """Grows an expression of numbers and the function that computes it with operators alone."""

    def __init__(self, seed: int, size: int, names: list[str]) -> None:
        self.random = Random(seed)
        self.size = size
        self.names = names

    def grow(self) -> tuple[str, Callable[[Mapping[str, Any]], Any]]:
        self.size -= 1
        kind = self.random.randrange(5) if self.size > 0 else self.random.randrange(2)
        match kind:
            case 0:
                name = self.random.choice(self.names)
                return f"b.{name}", operator.itemgetter(name)
            case 1:
                number = self.random.choice([0, 1, 2, 3, 0.5, 2.0, 10])
                return repr(number), lambda env: number
            case 2:
                text, inner = self.grow()
                call: tuple[str, Callable[[Any], Any]] = self.random.choice([("-{}", operator.neg), ("abs({})", abs)])
                return f"({call[0].format(text)})", lambda env: call[1](inner(env))
        left, right = self.grow(), self.grow()
        op = self.random.choice(["+", "-", "*", "/", "//", "%", "<", "<=", "==", "!=", ">", ">="])
        apply = getattr(operator, e.BINARY[op])
        return f"({left[0]} {op} {right[0]})", lambda env: apply(left[1](env), right[1](env))


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12))
def test_expressions_of_scalars_are_pythons(seed: int, size: int) -> None:
    text, plain = Calculator(seed, size, ["x", "n", "k", "z", "t"]).grow()
    got = ask(text, **SCALARS)
    try:
        expected = plain(SCALARS)
    except (ZeroDivisionError, OverflowError):
        return  # IEEE 754 goes on where Python stops: below
    assert type(got) is type(expected)
    assert got == expected or (math.isnan(got) and math.isnan(expected))


@settings(max_examples=examples(300))
@given(seed=st.integers(0, 2**32), size=st.integers(1, 12))
def test_expressions_of_arrays_are_numpys(seed: int, size: int) -> None:
    text, plain = Calculator(seed, size, ["a", "i", "r", "f", "h", "w", "x"]).grow()
    try:
        with np.errstate(all="ignore"):
            expected = plain({**SCALARS, **ARRAYS})
    except (TypeError, ZeroDivisionError):
        return  # the sign of bools, 1 / 0
    got = ask(text, **SCALARS, **ARRAYS)
    assert np.asarray(got).dtype == np.asarray(expected).dtype
    np.testing.assert_array_equal(got, expected)


INDICES = [
    "0", "-1", "1:", "::-1", "...", "None", "[0, 1, 1]", "b.m", "b.p", "...,0", "0, ...", ":, [1, 0]", "b.p, b.p",
    "b.m, None", "[1], :, None", "b.p[:, None], b.p", "None, ..., b.p", "[]", "b.q, 1:", "b.x > 0", "(), 0",
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES)
def test_arrays_are_indexed_as_in_numpy(index: str) -> None:
    x = np.arange(12.0).reshape(3, 4)
    observables = {"x": x, "p": np.array([2, 0]), "q": np.array([[2], [0]]), "m": np.array([True, False, True])}
    plain = eval(f"x[{index.replace('b.', '')}]", {}, observables)
    np.testing.assert_array_equal(ask(f"b.x[{index}]", **observables), plain)


STATISTICS = ["sum", "prod", "mean", "std", "var", "min", "max", "argmin", "argmax", "any", "all"]


@pytest.mark.parametrize("name", STATISTICS)
@pytest.mark.parametrize("axis", ["", "axis=0", "axis=1", "1"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "bool"])
def test_statistics_are_numpys(name: str, axis: str, dtype: str) -> None:
    x = np.random.default_rng(0).normal(size=(3, 5)).round(1).astype(dtype)
    keywords = {"axis": int(axis[-1])} if axis else {}
    expected = getattr(np, name)(x, **keywords)
    got = ask(f"b.x.{name}({axis})", x=x)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert np.asarray(got).dtype == np.asarray(expected).dtype


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "b.x.norm()": np.linalg.norm,
    "b.x.norm(axis=1)": lambda x: np.linalg.norm(x, axis=1),
    "b.x.quantile(0.3)": lambda x: np.quantile(x, 0.3),
    "b.x.median()": np.median,
    "b.x.topk(3)": lambda x: np.sort(x.ravel())[::-1][:3],
    "b.x.ravel()": np.ravel,
    "b.x.reshape(5, 4)": lambda x: x.reshape(5, 4),
    "b.x.reshape((2, -1))": lambda x: x.reshape(2, -1),
    "b.x.diff()": np.diff,
    "b.x.cumsum()": np.cumsum,
    "b.x.clip(-1, None)": lambda x: np.clip(x, -1, None),
    "where(b.x > 0, b.x, 0)": lambda x: np.where(x > 0, x, 0),
    "maximum(b.x, 0.1)": lambda x: np.maximum(x, 0.1),
    "b.x.shape": np.shape,
    "b.x.T": np.transpose,
    "b.x.first()": lambda x: x[0],
    "b.x.last()": lambda x: x[-1],
    "b.x.len()": len,
    "round(b.x, 1)": lambda x: np.round(x, 1),
    "sign(b.x)": np.sign,
    "expm1(b.x)": np.expm1,
    "log1p(abs(b.x))": lambda x: np.log1p(abs(x)),
    "[b.x[0], b.x[1]].mean(axis=0)": lambda x: x[:2].mean(axis=0),
    "[[1, 2], [3, 4]].sum(axis=0)": lambda x: [4, 6],
}


def test_functions_of_arrays_are_numpys() -> None:
    x = np.random.default_rng(1).normal(size=(4, 5))
    for text, expected in FUNCTIONS.items():
        np.testing.assert_allclose(ask(text, x=x), expected(x), err_msg=text)
    low, high = ask("b.x.quantile([0.25, 0.75])", x=x)
    np.testing.assert_allclose((low, high), np.quantile(x, [0.25, 0.75]))
    assert ask("b.x.histogram(7)", x=x) == Histogram(x, bins=7)
    assert math.isnan(ask("b.x.mean()", x=np.zeros(0)))
    assert ask("b.x.dtype == 'float64'", x=x) is True
