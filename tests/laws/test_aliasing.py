"""A record says what was so when the event happened, whatever the program does to its arrays afterwards."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.query.lambdas import lambda_of

from sightglass.core.program_values.guarded import is_container
from sightglass.core.values import Histogram, to_host
from sightglass.query.evaluation import Evaluation
from sightglass.query.evaluator import evaluator
from sightglass.query.parser import parse
from sightglass.query.reduce.table import reducer

QUERIES = [
    "batch.x", "batch.x[1:]", "batch.x[0]", "batch.x[0, 1]", "batch.x[:, None]", "batch.x.T", "batch.x.real",
    "batch.x.ravel()", "batch.x.reshape(-1)", "batch.x.reshape((3, 2))", "+batch.x", "batch.x.first()",
    "batch.x.last()", "batch.x.clip(None, 1e9)", "round(batch.x)", "abs(batch.x)", "batch.x * 1", "batch.x.topk(6)",
    "batch.x.sample(9)", "batch.x.sample(1)", "maximum(batch.x, batch.x)",
    "where(batch.x == batch.x, batch.x, 0)", "batch.x.histogram()",
    "batch.x.sum(axis=0)", "batch.x.max(axis=())", "batch.one.item()", "batch.x.quantile(0.5)", "batch.x.diff()",
    "batch.x.cumsum()", "(batch.x, batch.x[0])", "[batch.x]", "{'a': batch.x, 'b': {'c': batch.x}}", "batch.d",
    "batch.d.w", "batch.d['w'][0]", "batch.d.map(lambda n, v: v)", "batch.d.map(lambda v: v[0])", "batch.d.values()",
    "batch.d.items()", "batch.d.filter(lambda n, v: n == 'w')", "batch.d.first()", "batch.l", "batch.l[0]",
    "batch.l.map(lambda v: v)", "batch.s.w", "batch.s.inner.w", "same(batch.x)", "batch.shared",
]  # fmt: skip
REDUCERS = [
    "first", "last", "min", "max", "sum", "mean", "var", "std", "collect", "sample(9)", "top(2, lambda x: x[0, 0])",
    "histogram(8)", "quantile(0.5)", "count",
]  # fmt: skip


def numpy_event(value: float) -> dict[str, Any]:
    return event(np.array([[value, 2, 3], [4, 5, 6.0]]), np.array([value]))


def torch_event(value: float) -> dict[str, Any]:
    torch = pytest.importorskip("torch")
    return event(torch.tensor([[value, 2, 3], [4, 5, 6.0]]), torch.tensor([value]))


def event(x: Any, one: Any) -> dict[str, Any]:
    plain = SimpleNamespace(w=x, inner=SimpleNamespace(w=x))
    return {"x": x, "one": one, "d": {"w": x, "v": x}, "l": [x, x], "s": plain, "shared": x, "cut": False}


def overwrite(observables: dict[str, Any]) -> None:
    for name in ("x", "one"):
        observables[name][...] = -777.0


def leaves(value: Any) -> list[float]:
    if isinstance(value, Histogram):
        return [*leaves(value.counts), *leaves(value.edges)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    if is_container(value) or isinstance(value, str):
        return []
    return [float(number) for number in np.asarray(to_host(value)).ravel()]


EVENTS = pytest.mark.parametrize("make", [numpy_event, torch_event])


@EVENTS
@pytest.mark.parametrize("text", QUERIES)
def test_a_value_never_changes_afterwards(text: str, make: Any) -> None:
    evaluation = Evaluation(parse(text), {"same": lambda x: x})
    observables = make(1.0)
    items = evaluation.across_events(evaluation.per_event(observables), ordinal=0, step=0, wall_time=0.0)
    before = leaves(items[0].value)
    overwrite(observables)
    assert before
    assert leaves(items[0].value) == before
    assert -777.0 not in before


@EVENTS
@pytest.mark.parametrize("text", QUERIES[:12])
def test_a_value_that_waits_for_its_tail_does_not_change_either(text: str, make: Any) -> None:
    evaluation = Evaluation(parse(f"on('batch').map(lambda batch: {text}).last(every=1)"))
    evaluation.holds = True
    observables = make(1.0)
    head = evaluation.per_event(observables)
    overwrite(observables)
    (item,) = evaluation.across_events(head, ordinal=0, step=0, wall_time=0.0)
    assert -777.0 not in leaves(item.value)


@EVENTS
@pytest.mark.parametrize("reducer", REDUCERS)
@pytest.mark.parametrize("path", ["b.x", "b.x[0:2]", "b.x.T.T", "+b.x"])
def test_a_reducer_stores_nothing_that_the_program_overwrites(reducer: str, path: str, make: Any) -> None:
    call, _, args = reducer.partition("(")
    text = f"on('batch').map(lambda b: {path}).{call}({args.removesuffix(')')})"
    reused, fresh = Evaluation(parse(text)), Evaluation(parse(text))
    shared = make(0.0)
    for i in range(4):
        new = make(float(i))
        shared["x"][...] = new["x"]
        for evaluation, observables in ((reused, shared), (fresh, new)):
            evaluation.across_events(evaluation.per_event(observables), ordinal=i, step=i, wall_time=0.0)
    overwrite(shared)
    assert [leaves(item.value) for item in reused.finish()] == [leaves(item.value) for item in fresh.finish()]


@EVENTS
@pytest.mark.parametrize("body", ["x", "x[:]", "where(x > a, x, a)", "a + x", "maximum(a, x)"])
def test_an_accumulator_shares_no_memory_with_the_program(body: str, make: Any) -> None:
    shared = make(1.0)
    made = reducer("reduce", {"fn": evaluator(lambda_of(f"lambda a, x: {body}")), "init": 0 * to_host(shared["x"])})
    state = made.update(made.start(), to_host(shared["x"]), 0)
    before = leaves(made.finish(state))
    overwrite(shared)
    assert leaves(made.finish(state)) == before


def test_an_observable_is_not_copied_if_nothing_stores_it() -> None:
    evaluation = Evaluation(parse("on('batch').map(lambda b: b.x).sum(every=1)"))
    observables = numpy_event(1.0)
    assert evaluation.per_event(observables).value is observables["x"]


def test_histograms_are_counted_at_the_event() -> None:
    evaluation = Evaluation(parse("batch.h"))
    samples = np.arange(6.0)
    (item,) = evaluation.across_events(
        evaluation.per_event({"h": Histogram(samples, bins=2)}), ordinal=0, step=0, wall_time=0.0
    )
    samples[:] = math.nan
    assert item.value.counts.tolist() == [3, 3]
