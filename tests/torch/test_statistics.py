"""Statistics that need no evaluator: the numbers are those of the evaluator, and the limits hold."""

from __future__ import annotations

import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from sightglass.core.errors import PriceError
from sightglass.query.blocks import MIN_ITEMS
from sightglass.query.evaluation import Evaluation
from sightglass.query.functions import FUNCTIONS
from sightglass.query.parser import parse
from sightglass.torch.capture import PartMeter, Work
from sightglass.torch.precompute import COUNTED, READ, Offers, split, statistic

STATISTICS = ["norm(g)", "g.mean()", "g.sum()", "g.min()", "g.max()", "abs(g).max()", "abs(g).mean()", "norm(abs(g))"]
histogram = FUNCTIONS["histogram"].call
NUMBERS = st.tuples(
    st.lists(st.floats(width=32), min_size=1, max_size=12), st.sampled_from([torch.float32, torch.float64])
)
OFFERS = Offers(timed=frozenset(("grads",)), settled=frozenset())


def the_statistic(body, params="g"):
    _, (part,) = split(parse(f"batch.grads.map(lambda {params}: {body})"), OFFERS)
    return statistic(part.tree)


def evaluated(body, tensors):
    query = parse(f"batch.grads.map(lambda g: {body})")
    return list(Evaluation(query).per_event({"grads": dict(enumerate(tensors))}).value.values())


@given(
    st.sampled_from(STATISTICS),
    st.lists(NUMBERS, min_size=1, max_size=4),
)
def test_they_are_those_of_the_evaluator(body, values):
    tensors = [torch.tensor(some, dtype=dtype) for some, dtype in values]
    found = the_statistic(body)
    assert found.n_taken(tensors) == len(tensors)
    assert [one.item() for one in found.of_each(tensors)] == pytest.approx(
        [found.of(x).item() for x in tensors], rel=0, abs=0, nan_ok=True
    )
    assert [one.item() for one in found.of_each(tensors)] == pytest.approx(evaluated(body, tensors), nan_ok=True)
    assert found.numbers(tensors) == pytest.approx(evaluated(body, tensors), nan_ok=True)


@pytest.mark.parametrize("body", STATISTICS)
def test_no_device_is_waited_for(body):
    elsewhere = torch.ones(3, device="meta")  # whose numbers cannot be had, as waiting would require
    for found in the_statistic(body).numbers([elsewhere, elsewhere]):
        assert (found.device.type, found.shape) == ("meta", ())


@pytest.mark.parametrize("body", STATISTICS)
@pytest.mark.parametrize("n", [1000, MIN_ITEMS - 1, MIN_ITEMS, READ])
def test_those_of_large_tensors_are_as_exact(body, n):
    tensors = [torch.randn(n) + 1]
    found = the_statistic(body)
    if found.n_taken(tensors):
        assert found.numbers(tensors) == pytest.approx(evaluated(body, tensors), rel=1e-6)
    else:
        assert n >= MIN_ITEMS


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(0),
        torch.ones(2, dtype=torch.float16),
        torch.ones(2, dtype=torch.int64),
        torch.ones(2, dtype=torch.complex64),
        torch.ones(1).expand(READ + 1),
        nn.Parameter(torch.ones(2)),
        (torch.ones(2),),
        ValueError("it cannot be read"),
        None,
    ],
)
def test_what_they_do_not_take_is_left_to_the_evaluator(x):
    found, some = the_statistic("g.mean()"), [torch.ones(2), x, torch.ones(3)]
    assert [found.n_taken(some), found.n_taken(some, 1), found.n_taken(some, 2)] == [1, 0, 1]


def test_histograms_of_small_tensors():
    found, x = the_statistic("g.histogram(5)"), torch.randn(100)
    assert [found.of(x), *found.numbers([x]), *evaluated("g.histogram(5)", [x])] == [histogram(x, 5)] * 3
    assert the_statistic("g.histogram()").of(x) == histogram(x)
    assert the_statistic("g.histogram(len(name))", "name, g") is None
    assert not found.n_taken([torch.zeros(COUNTED + 1)])


@given(
    st.integers(1, 300),
    st.lists(NUMBERS, min_size=2, max_size=5),
)
def test_histograms_of_small_tensors_are_counted_together(bins, values):
    tensors = [torch.tensor(some, dtype=dtype) for some, dtype in values]
    tensors += [torch.randn(5), torch.randn(2, 7, dtype=torch.float64).T, torch.randn(5_000)]
    found = the_statistic(f"g.histogram({bins})").numbers(tensors)
    assert found == [histogram(x, bins) for x in tensors]


@pytest.mark.parametrize("body", ["g.mean(axis=0)", "norm(g) / 2", "g.std()", "norm(g).mean()", "abs(g)"])
def test_other_expressions_are_left_to_the_evaluator(body):
    assert the_statistic(body) is None


def test_a_lambda_of_the_name_alone_is_no_statistic():
    _, (part,) = split(parse("batch.grads.map(lambda name, g: norm(g))"), OFFERS)
    assert statistic(part.tree) is not None
    assert the_statistic("norm(name)", "name, g") is None


def test_tensors_of_a_module_that_returns_several_need_no_evaluator():
    _, (part,) = split(parse("batch.grads.map(lambda g: g.mean())"), OFFERS)
    x = torch.arange(6.0)
    work = Work(part, compute=None, meter=PartMeter(), statistic=statistic(part.tree), names=("a",), is_answer=True)
    work.take({}, [("a", (x, None)), ("a[0]", x)])
    assert work.hand_over() == {"a[0]": 2.5}


def test_tensors_that_need_the_evaluator_leave_the_others_to_their_statistic():
    tensors = [torch.ones(2), torch.full((3,), 2.0).half(), torch.ones(5), torch.ones(2**17), torch.ones(2**20)] * 3
    named = [(str(i), x) for i, x in enumerate(tensors)]
    for body in ("norm(g)", "g.sum()", "g.histogram(4)"):
        _, (part,) = split(parse(f"batch.grads.map(lambda g: {body})"), OFFERS)
        meter = PartMeter()
        meter.resume(time.thread_time())
        work = Work(part, part.compiled({}, "batch", meter), meter, statistic(part.tree), is_answer=True)
        work.names = tuple(name for name, _ in named)
        work.take({}, named)
        found = work.hand_over()
        assert list(found) == list(work.names)
        assert found == {name: pytest.approx(evaluated(body, [x])[0]) for name, x in named}


def test_the_clock_is_read_between_statistics_that_take_long_together():
    _, (part,) = split(parse("batch.grads.map(lambda g: g.histogram(4))"), OFFERS)
    meter = PartMeter()
    work = Work(part, part.compiled({}, "batch", meter), meter, statistic(part.tree), is_answer=True)
    work.names = tuple(map(str, range(40)))
    meter.limit_s = 0.001
    meter.restart()
    meter.resume(time.thread_time())
    work.take({}, [(name, torch.randn(2**18)) for name in work.names])
    assert len(work.found) < len(work.names)
    assert isinstance(work.hand_over(), PriceError)
