"""What queries about a module may take of an event: each at most the limit, all of them by turns."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from sightglass.core.errors import PriceError, RefusedFunctionError
from sightglass.torch import capture
from sightglass.torch.capture import PartMeter, fitting
from sightglass.training.evaluation.budget import PATIENCE

from .conftest import Desk


def meters(*costs_s):
    made = [PartMeter() for _ in costs_s]
    for meter, cost_s in zip(made, costs_s, strict=True):
        meter.cost_s, meter.limit_s = cost_s, 0.02
    return made


def test_parts_that_fit_together_are_all_computed():
    assert fitting(meters(0.005, 0.01, 0.004), 0.02) == [True, True, True]


def test_of_parts_that_do_not_fit_the_cheapest_are_computed_and_none_waits_for_long():
    some = meters(0.001, 0.015, 0.012)
    counts = [0, 0, 0]
    for _ in range(10 * (PATIENCE + 1)):
        fits = fitting(some, 0.02)
        counts = [n + one for n, one in zip(counts, fits, strict=True)]
    assert counts[0] == 10 * (PATIENCE + 1)
    assert counts[2] > counts[1] >= 10


def test_one_slow_evaluation_is_not_the_cost():
    meter = PartMeter()
    for spent_s, cost_s in ((1.0, 0.0), (0.002, 0.002), (0.003, 0.002), (0.5, 0.003), (0.5, 0.5)):
        meter.spent_s = spent_s
        meter.restart()
        assert meter.cost_s == cost_s


def test_a_part_that_has_taken_its_limit_is_not_computed_further():
    (meter,) = meters(0.0)
    meter.restart()
    meter.look("grads")
    meter.spent_s = 0.019
    with pytest.raises(PriceError, match="19 ms in grads"):
        meter.look("grads")


def test_only_the_work_on_the_part_counts(monkeypatch):
    clock = SimpleNamespace(now_s=5.0)
    monkeypatch.setattr(capture, "time", SimpleNamespace(thread_time=lambda: clock.now_s))
    meter = PartMeter()
    meter.restart()
    meter.limit_s = 0.01
    clock.now_s += 0.02  # the program's own work
    meter.resume(clock.now_s)
    meter.check("grads")
    clock.now_s += 0.02
    with pytest.raises(PriceError, match="10 ms"):
        meter.check("grads")
    meter.pause(clock.now_s, 0.02)
    assert meter.spent_s == pytest.approx(0.02)
    meter.restart()
    meter.check("grads")


@pytest.fixture
def tight():
    desk = Desk(limits=sg.Limits(max_event_s=0.003))
    yield desk
    desk.run.close()


def test_a_part_that_takes_too_long_in_all_is_stopped_and_costs_only_its_query(tight):
    calls = []

    def slow(x):
        calls.append(x)
        return float(sum(range(50_000)))  # half a millisecond or more

    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(20)))
    opt = torch.optim.SGD(model.parameters(), 0.1)
    tight.run.function("slow", slow)
    sgt.watch(model, tight.run, optimizer=opt)
    every = tight.ask("batch.grads.map(lambda n, g: slow(g))")  # 40 tensors
    fine = tight.ask("batch.grads['0.weight'].norm()")
    n_steps = 0
    while not every.suspended:
        n_steps += 1
        assert n_steps < 50
        model(torch.randn(2, 4)).sum().backward()
        calls.clear()
        opt.step()
        tight.run.observe("batch")
        assert len(calls) < 40
    assert isinstance(every.last_error, PriceError | RefusedFunctionError)  # on a busy machine one call takes too long
    assert tight.values(every) == []
    assert len(tight.values(fine)) == n_steps - 1
