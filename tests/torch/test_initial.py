"""The initial values of a module: asked for when they are long overwritten, and free of consequences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from sightglass.core.values import Histogram
from sightglass.training.run import wiring


def small():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def norms_of(model):
    return {name: pytest.approx(float(p.detach().norm())) for name, p in model.named_parameters()}


def note_of(run):
    return sg.connect(run).describe().events["initial"].note


@pytest.fixture(autouse=True)
def n_collectives(monkeypatch):
    """Count the collectives of each test; that there are none is asserted at its end."""
    called = []
    for name in ("all_reduce", "all_gather", "all_gather_into_tensor", "broadcast"):
        monkeypatch.setattr(torch.distributed, name, lambda *args, **kwargs: called.append(args))
    yield
    assert not called


def test_a_client_that_comes_late_is_told_how_the_parameters_began():
    model = small()
    wanted, weight = norms_of(model), model[0].weight.detach().clone()
    with sg.init("t") as run:
        sgt.watch(model, run, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
        for _ in range(3):
            nn.init.constant_(model[0].weight, 7.0)
            run.observe("batch")
        with sg.connect(run) as client:
            assert client.ask("initial.norms").value == wanted
            histogram = client.ask("initial.histograms['0.weight']").value
            each = client.ask("initial.histograms").value
        counts, edges = np.histogram(weight, bins=64)
        assert isinstance(histogram, Histogram)
        assert histogram.counts.sum() == counts.sum()
        assert histogram.edges == pytest.approx(edges, abs=1e-6)
        assert list(each) == list(wanted)


def test_neither_weights_nor_random_numbers_change_and_nothing_is_recorded(desk, n_hooks):
    model = small()
    before, state = [p.detach().clone() for p in model.parameters()], torch.get_rng_state()
    versions = [p._version for p in model.parameters()]
    sgt.watch(model, desk.run)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    assert [p._version for p in model.parameters()] == versions
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    assert n_hooks(model) == 0
    recorder = wiring(desk.run).telemetry.events.recorder
    assert recorder is not None
    assert not recorder.active
    assert desk.telemetry.budget.provided_s > 0  # it is charged


def test_a_query_of_the_run_records_them(tmp_path):
    model = small()
    wanted = norms_of(model)
    with sg.init("t", dir=tmp_path, record=["initial.norms"]) as run:
        sgt.watch(model, run)
    assert sg.open(run.directory).ask("initial.norms").value == wanted


def test_it_can_be_left_out():
    with sg.init("t") as run:
        sgt.watch(small(), run, initial=False)
        assert "initial" not in wiring(run).telemetry.subscriptions.sources


def test_several_modules_have_theirs_by_name_and_keep_the_first(desk):
    one, other = small(), nn.Linear(3, 3)
    wanted = norms_of(one), norms_of(other)
    for _ in range(2):  # such as a cell of a notebook that runs again
        sgt.watch(one, desk.run)
        sgt.watch(other, desk.run, name="other")
        for p in (*one.parameters(), *other.parameters()):
            nn.init.zeros_(p)
    assert desk.one(desk.ask("initial.norms")) == wanted[0]
    assert desk.one(desk.ask("initial.other.norms")) == wanted[1]
    with sg.connect(desk.run) as client:
        shown = client.describe().events["initial"]
    assert shown.n_events == 2
    assert {"0.weight", "2.bias"} <= shown.observables["norms"].fields.keys()


def test_another_module_of_the_same_name_replaces_it(desk):
    sgt.watch(small(), desk.run)
    model = small()
    sgt.watch(model, desk.run)
    assert desk.one(desk.ask("initial.norms")) == norms_of(model)


def test_a_tied_weight_is_found_under_both_names_and_listed_once(desk):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    sgt.watch(model, desk.run)
    both = desk.ask("initial.norms['0.weight'] - initial.norms['1.weight']")
    assert desk.one(both) == 0
    assert list(desk.one(desk.ask("initial.norms.map(lambda name, x: x)"))) == ["0.weight", "0.bias", "1.bias"]


def test_odd_parameters_are_left_out_and_named(desk):
    model = nn.Module()
    model.plain = nn.Parameter(torch.ones(4))
    model.bf16 = nn.Parameter(torch.ones(4, dtype=torch.bfloat16))
    model.nowhere = nn.Parameter(torch.ones(4, device="meta"))
    model.lazy = nn.LazyLinear(3)
    sgt.watch(model, desk.run)
    assert desk.one(desk.ask("initial.norms")) == {"plain": 2.0, "bf16": 2.0}
    assert "'nowhere'" in note_of(desk.run)
    assert "2 parameters had no shape yet" in note_of(desk.run)


@pytest.mark.parametrize(("limit", "value", "n"), [("MAX_KEPT", 3, 3), ("MAX_ITEMS", 20, 3), ("MAX_S", 0.0, 0)])
def test_what_does_not_fit_is_left_out_and_said(desk, monkeypatch, limit, value, n):
    monkeypatch.setattr(f"sightglass.training.evaluation.initial.{limit}", value)
    sgt.watch(small(), desk.run)  # of 24, 6, 12 and 2 items: the small ones first
    assert list(desk.one(desk.ask("initial.norms"))) == ["0.bias", "2.weight", "2.bias"][:n]
    assert f"{4 - n} of 4 parameters are left out, such as" in note_of(desk.run)


def test_an_event_of_the_programs_own_stays_as_it_is(desk):
    desk.run.observe("initial", snapshot=True, mine=1)
    with pytest.warns(RuntimeWarning, match="'initial'"):
        sgt.watch(small(), desk.run)
    assert desk.one(desk.ask("initial.mine")) == 1


def test_no_command_is_applied_with_it():
    """Only some ranks may watch: then the others would not take part in the broadcast of commands."""
    calls = []

    def agree(data):
        calls.append(data)
        return data

    with sg.init("t", ranks=sg.Ranks(agree=agree)) as run:
        n_calls = len(calls)
        sgt.watch(small(), run)
        assert len(calls) == n_calls
