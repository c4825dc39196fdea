"""What works item by item gives the same in blocks as at once, for every dtype and layout."""

from __future__ import annotations

import tracemalloc
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.query.lambdas import lambda_of

from sightglass.core.errors import RefusedQueryError
from sightglass.query.blocks import BLOCK, MIN_ITEMS
from sightglass.query.evaluator import evaluator
from sightglass.query.functions import FUNCTIONS

N = MIN_ITEMS + BLOCK // 2 + 7


def ask(text: str, **observables: Any) -> Any:
    return evaluator(lambda_of(f"lambda b: {text}"), event="batch")(observables)


def values(dtype: str) -> np.ndarray[Any, Any]:
    x = np.random.default_rng(0).normal(size=2 * N)
    return (x > 0) if dtype == "bool" else (x * 5).astype(dtype)


LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "contiguous": lambda x: x[:N],
    "every second": lambda x: x[::2],
    "backwards": lambda x: x[:N][::-1],
    "rows of columns": lambda x: x[: N // 2 * 2].reshape(2, -1).T,
    "read-only": lambda x: np.broadcast_to(x[:N], (1, N)),
    "byte-swapped": lambda x: x[:N].astype(x.dtype.newbyteorder(">")),
}
MAPS: dict[str, Callable[[Any], Any]] = {
    "b.x * 2 - 1": lambda x: x * 2 - 1,
    "-(b.x + b.x)": lambda x: -(x + x),
    "abs(b.x) > 1.5": lambda x: abs(x) > 1.5,
    "where(b.x > 0, b.x, 0)": lambda x: np.where(x > 0, x, 0),
    "clip(b.x, -1, 1)": lambda x: np.clip(x, -1, 1),
    "maximum(b.x, 1)": lambda x: np.maximum(x, 1),
    "isfinite(b.x / 2)": lambda x: np.isfinite(x / 2),
}
STATISTICS = ("sum", "mean", "norm", "min", "max", "any", "all", "var", "std")
UNORDERED = {("min", "complex128"), ("max", "complex128")}
DTYPES = ("float64", "float32", "float16", "int32", "int64", "uint8", "complex128")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("text", MAPS)
def test_an_expression_on_blocks_is_the_expression(text: str, layout: str) -> None:
    for dtype in DTYPES[:-1]:
        x = LAYOUTS[layout](values(dtype))
        with np.errstate(all="ignore"):
            expected = MAPS[text](x)
        found = ask(text, x=x)
        assert (found.dtype.newbyteorder("="), found.shape) == (expected.dtype.newbyteorder("="), expected.shape)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, dtype) for name in STATISTICS for dtype in DTYPES if (name, dtype) not in UNORDERED],
)
def test_a_statistic_of_blocks_is_the_statistic(name: str, dtype: str) -> None:
    for layout in LAYOUTS.values():
        x = layout(values(dtype))
        with np.errstate(all="ignore"):
            doubled = x * np.asarray(2, x.dtype)
            exact = doubled.astype(np.complex128 if dtype == "complex128" else np.float64)
            expected = np.linalg.norm(exact) if name == "norm" else getattr(np, name)(exact)
        text = f"({name}(b.x * 2), {name}(b.x + b.x))"
        found = ask(text, x=x)
        tolerance = 2e-3 if dtype == "float16" else 1e-5 if dtype == "float32" else 1e-12
        for one in found:
            if dtype == "uint8" and name not in ("any", "all"):
                continue  # NumPy's own wrapping
            np.testing.assert_allclose(one, expected, rtol=tolerance)


def test_integers_and_bools_are_exact_on_blocks() -> None:
    x = np.arange(N)
    assert ask("sum(b.x * 3)", x=x) == 3 * N * (N - 1) // 2
    assert ask("sum(b.x > 10)", x=x) == N - 11
    assert ask("max(b.x * b.x)", x=x) == (N - 1) ** 2


def test_non_finite_values_pass_through_blocks() -> None:
    x = np.zeros(N)
    x[7], x[-1] = np.inf, np.nan
    assert np.isnan(ask("sum(b.x * 1)", x=x))
    assert np.isnan(ask("max(b.x * 1)", x=x))
    assert ask("sum(isnan(b.x))", x=x) == 1
    assert ask("max(where(isnan(b.x), 0, b.x))", x=x) == np.inf


def test_operands_broadcast_over_blocks() -> None:
    x, row = np.arange(2.0 * N).reshape(-1, 2), np.array([10.0, 20.0])
    np.testing.assert_array_equal(ask("b.x + b.row", x=x, row=row), x + row)
    assert ask("sum(b.x - b.row)", x=x, row=row) == pytest.approx((x - row).sum())
    with pytest.raises(RefusedQueryError, match="broadcast"):
        ask("b.x + b.row", x=x, row=np.zeros(3))
    with pytest.raises(RefusedQueryError, match="64 MiB, got 3052 MiB"):
        ask("b.x[:, None] + b.x", x=np.zeros(20_000))


def test_temporaries_are_those_of_a_block() -> None:
    x = np.ones(64 * BLOCK)
    ask("b.x + 1", x=x[:N])
    tracemalloc.start()
    try:
        ask("norm(sqrt(abs(b.x * 3 + 1)) - b.x)", x=x)
        reduced = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        ask("sqrt(abs(b.x * 3 + 1)) - b.x", x=x)
        mapped = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert reduced < x.nbytes / 4
    assert mapped < x.nbytes * 1.25


def test_torch_tensors_are_evaluated_in_blocks_of_their_own_library() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(float(N), requires_grad=True)
    found = ask("b.x * 2 + 1", x=x)
    assert isinstance(found, torch.Tensor)
    assert not found.requires_grad
    assert torch.equal(found, x.detach() * 2 + 1)
    assert float(ask("mean(b.x * 2)", x=x)) == pytest.approx(N - 1, rel=1e-5)
    assert float(ask("norm(b.x - 1)", x=x)) == pytest.approx(float((x.detach() - 1).norm()), rel=1e-5)


ARGUMENTS = {
    "clip": "-1, 1", "where": "b.x, 0", "maximum": "0", "minimum": "0", "quantile": "0.5", "percentile": "50",
    "topk": "3", "reshape": "-1, 1", "sample": "3", "bincount": "9", "searchsorted": "b.x", "isin": "[0, 1]",
    "astype": "'float32'", "dot": "b.x", "cosine": "b.x", "cov": "b.x", "corr": "b.x",
}  # fmt: skip
OTHERS = {  # of mappings and texts, of several arrays, of matrices, and of an array of one item
    "keys", "values", "items", "leaves", "map", "filter", "contains", "startswith", "endswith", "stack", "concat",
    "matmul", "svdvals", "item", "float",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - OTHERS))
def test_every_function_gives_on_large_arrays_what_it_gives_by_itself(name: str) -> None:
    x = values("int64")[:N] if name in ("bincount", "sample") else values("float64")[:N]
    text = f"{name}(b.x{', ' * (name in ARGUMENTS)}{ARGUMENTS.get(name, '')})"
    with np.errstate(all="ignore"):
        arguments = eval(f"[{ARGUMENTS.get(name, '')}]", {"b": types.SimpleNamespace(x=x)})
        expected = FUNCTIONS[name].call(x, *arguments)
    found = ask(text, x=x)
    for one, other in zip(
        *((value if isinstance(value, tuple) else (value,)) for value in (found, expected)), strict=True
    ):
        if isinstance(other, np.ndarray | np.number):
            assert np.shape(one) == np.shape(other)
            np.testing.assert_allclose(one, other, rtol=1e-9)
        else:
            assert one == other
