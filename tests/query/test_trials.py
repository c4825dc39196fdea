"""Trials of operations: on made-up arrays, once, off the training thread; then the price is what they took."""

from __future__ import annotations

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from tests.query.lambdas import lambda_of

from sightglass.core.errors import PriceError
from sightglass.query.costs import CostModel, OperationCost
from sightglass.query.evaluation import Evaluation
from sightglass.query.functions import FUNCTIONS
from sightglass.query.meter import MAX_BYTES, Meter
from sightglass.query.parser import parse
from sightglass.query.price import Price, price_of
from sightglass.query.trials import MAX_ITEMS, trial_of

N = 4_000_000
OBSERVABLES: dict[str, Any] = {
    "x": np.broadcast_to(np.float64(1.5), (N,)), "u": np.broadcast_to(np.uint8(3), (N,)),
    "half": np.ones(N, np.float16), "c": np.broadcast_to(np.complex64(1j), (N,)),
    "flags": np.broadcast_to(np.bool_(True), (N,)), "matrix": np.broadcast_to(np.float32(1), (2_000, 2_000)),
    "i": np.broadcast_to(np.int32(7), (N,)), "places": np.broadcast_to(np.int64(7), (N,)),
}  # fmt: skip
CALLS = (
    "b.x.sort()", "b.u.max()", "b.half.mean()", "b.c.norm()", "b.x[b.flags]", "b.x[b.places]", "b.matrix.sum(axis=0)",
    "b.matrix.max(axis=1)", "corr(b.x, b.i)", "stack([b.x, b.x])", "b.x.quantile([0.1, 0.9])", "b.x.median()",
    "b.x.histogram(bins=50)", "b.x.topk(5)", "nonzero(b.x)", "b.i.unique()", "bincount(b.u, 9)", "b.x.cumsum()",
    "isin(b.i, [1, 2])", "where(b.flags, b.x, 0)", "b.x.round(2)", "b.x.clip(0, 1)", "b.u.astype('float32')", "-b.i",
    "b.x + b.u", "b.x ** 2.5", "b.x > 0", "exp(b.x)", "b.x[::2].sort()", "b.matrix.T.sort()", "softmax(b.x)",
)  # fmt: skip


def priced(text: str, model: CostModel) -> Price:
    return price_of(lambda_of(f"lambda b: {text}"), [OBSERVABLES], model)


def ticking(seconds: float) -> Any:
    """Return a clock by which each trial takes this long."""
    ticks = itertools.count()
    return lambda: next(ticks) * seconds


@pytest.mark.parametrize("text", CALLS)
def test_after_a_trial_the_price_is_what_it_took(text: str) -> None:
    model = CostModel()
    model.calibrated = True
    before = priced(text, model)
    keys = [trial.key for trial in before.untried]
    assert keys, text
    model.want(before.untried)
    assert (model.wanted, model.exact) == (True, False)
    model.measure(ticking(1e-6))  # a millionth of a second: there is nothing as cheap
    after = priced(text, model)
    assert (model.wanted, model.exact, after.untried) == (False, True, ())
    assert set(keys) <= model._learned.keys(), "its arguments can be made up"
    new_s = model.new_ns * after.n_bytes / 1e9  # new memory is not part of a trial
    assert after.seconds < before.seconds
    assert after.seconds < 1e-3 + 2.1 * new_s


def test_an_operation_is_tried_once_also_if_it_fails() -> None:
    model, cost = CostModel(), OperationCost(ns=10.0, result="same")
    spec = next(iter(priced("b.x.sort()", model).untried)).operands[0]
    trial = trial_of("sort", cost, [spec], [spec], {"axis": "no axis"}, (N,))
    assert trial is not None
    model.calibrated = True
    model.want([trial])
    model.measure()
    assert model.exact
    assert model.knows(trial.key)
    assert not model._learned
    model.want([trial])
    assert model.exact


def test_made_up_arrays_are_shorter_than_the_program_s_and_have_its_dtype_and_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []
    model = CostModel()
    model.calibrated = True
    model.want(priced("[b.x[::2].sort(), b.half.sort()]", model).untried)
    sort = FUNCTIONS["sort"].call
    monkeypatch.setattr(type(FUNCTIONS["sort"]), "call", property(lambda self: lambda x: seen.append(x) or sort(x)))
    model.measure()
    assert {(x.dtype.name, x.flags.c_contiguous) for x in seen} == {("float64", False), ("float16", True)}
    assert all(x.size <= MAX_ITEMS for x in seen)
    assert all(len(np.unique(x[:100])) > 10 for x in seen)


LARGER = ("b.x[None] - b.x[:, None]", "b.i[:, None] > b.x", "where(b.flags[None], b.x[:, None], 0)",
          "matmul(b.x[:, None], b.x[None])", "stack([b.x] * 40)", "concat([b.x] * 40)")  # fmt: skip


@pytest.mark.parametrize("text", LARGER)
def test_what_is_made_in_a_trial_is_not_larger_either(text: str) -> None:
    model = CostModel()
    model.calibrated = True
    untried = priced(text.replace("[b.x] * 40", f"[{', '.join(['b.x'] * 40)}]"), model).untried
    model.want(untried)
    tracemalloc.start()
    model.measure()
    _, peak = tracemalloc.get_traced_memory()  # of what NumPy asked for, also where it got nothing
    tracemalloc.stop()
    assert peak < 10 * 8 * MAX_ITEMS
    assert {trial.key for trial in untried} <= model._learned.keys()


def test_functions_of_the_run_other_libraries_and_small_arrays_are_not_tried() -> None:
    torch = pytest.importorskip("torch")
    model = CostModel()
    for text in ("confusion(b.x)", "b.t.sort()", "b.small.sort()", "len(b.text)"):
        found = price_of(
            parse(f"on('b').map(lambda b: {text})", functions={"confusion": len}).stages[0].fn,  # type: ignore[union-attr]
            [{**OBSERVABLES, "t": torch.ones(N), "small": np.ones(10), "text": "a" * N}],
            model,
        )
        assert found.untried == (), text


@pytest.fixture
def cheap() -> Evaluation:
    """A query whose operation the table says to be too slow."""
    model, ticks = CostModel(), itertools.count()
    model.calibrated, model.new_ns = True, 0.1
    meter = Meter(limit_s=0.02, max_bytes=MAX_BYTES, model=model, cpu_s=lambda: next(ticks) * 1e-6)
    return Evaluation(parse("b.u.median()"), meter=meter)


def test_a_refused_query_is_answered_once_its_operation_was_tried(cheap: Evaluation) -> None:
    observables = {"u": np.resize(np.arange(100, dtype=np.uint8), 1_000_000)}
    model = cheap.meter.model
    for _ in range(3):
        with pytest.raises(PriceError, match="median"):
            cheap.per_event(observables)
    assert not model.exact
    model.measure(ticking(1e-6))
    result = cheap.per_event(observables)
    assert result.value == 49.5


def test_a_query_that_is_slow_is_refused_after_its_trial_too(cheap: Evaluation) -> None:
    observables = {"u": np.resize(np.arange(100, dtype=np.uint8), 1_000_000)}
    with pytest.raises(PriceError):
        cheap.per_event(observables)
    cheap.meter.model.measure(ticking(0.1))
    with pytest.raises(PriceError, match=r"got 1[12]\d ms"):
        cheap.per_event(observables)
    assert cheap.meter.model.exact


@pytest.mark.parametrize(
    ("text", "dtype"),
    [("abs(b.u)", "uint8"), ("b.u > 1", "bool"), ("b.u + 1", "uint8"), ("b.u * 1.5", "float64"),
     ("sqrt(b.i)", "float64"),
     ("b.half * 2", "float16"), ("where(b.flags, b.u, b.i)", "int32"), ("b.u.astype('float32')", "float32")],
)  # fmt: skip
def test_the_memory_of_a_result_is_that_of_its_dtype(text: str, dtype: str) -> None:
    model = CostModel()
    n_bytes = priced(f"({text}).sort()", model).n_bytes
    item = np.dtype(dtype).itemsize
    copies = 2 if dtype.startswith(("float", "complex")) else 1 + max(item, 8) / item  # sort: of integers, any width
    assert n_bytes <= 2 * N * item * copies


@pytest.mark.parametrize(
    ("text", "n_most"),
    [("len(b.text)", 100), ("b.text.startswith('ab')", 100), ("b.text.contains('ab')", 3 * 4_000_000),
     ("b.texts.contains('ab')", 100 * 1_000 + 3 * 1_000_000), ("len(b.m)", 100), ("b.m.keys().len()", 10_000 * 200)],
)  # fmt: skip
def test_texts_and_mappings_cost_what_is_done_with_them(text: str, n_most: float) -> None:
    model = CostModel()
    model.factors = dict.fromkeys(model.factors, 1.0)
    value = {
        "text": "abcd" * 1_000_000,
        "texts": ["a" * 1_000] * 1_000,
        "m": dict.fromkeys(map(str, range(10_000)), 1.0),
    }
    assert price_of(lambda_of(f"lambda b: {text}"), [value], model).seconds * 1e9 <= n_most + 5_000
