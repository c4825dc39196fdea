"""Settings of the optimizer as controls: bounded, and in force at the next step."""

from __future__ import annotations

import gc
import threading

import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt


def adam(**groups):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 2))
    if not groups:
        return model, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    several = [{"params": part.parameters(), **more} for part, more in zip(model, groups["groups"], strict=True)]
    return model, torch.optim.AdamW(several, lr=1e-3, weight_decay=0.01)


def test_a_client_sets_the_learning_rate_at_the_next_event(desk):
    model, opt = adam()
    sgt.watch(model, desk.run, optimizer=opt)
    desk.run.observe("batch")
    with sg.connect(desk.run) as client:
        setting = threading.Thread(target=client.set, args=("optimizer.lr", 1e-4))
        setting.start()
        while setting.is_alive():
            desk.run.observe("batch")
        assert opt.param_groups[0]["lr"] == 1e-4
        assert desk.run.history[-1].old == 1e-3
        with pytest.raises(sg.CommandError, match=r"'optimizer\.lr': .*1\.0, got 2\.0 \(.*test_"):
            client.set("optimizer.lr", 2.0)


def test_names_with_one_group_and_with_several(desk):
    def names():
        return sorted(desk.telemetry.commands.queue.controls)

    sgt.watch(*adam()[:1], desk.run, optimizer=adam()[1]).close()
    assert names() == []
    model, opt = adam()
    watch = sgt.watch(model, desk.run, optimizer=opt)
    assert names() == ["optimizer.lr", "optimizer.lr_scale", "optimizer.weight_decay"]
    watch.close()
    model, opt = adam(groups=({"lr": 0.1}, {"lr": 0.2}))
    watch = sgt.watch(model, desk.run, optimizer=opt)
    of_groups = [f"optimizer.{i}.{key}" for i in (0, 1) for key in ("lr", "weight_decay")]
    assert names() == [*of_groups, "optimizer.lr", "optimizer.lr_scale"]
    answer = desk.ask("batch.optimizer.lr")
    groups = desk.ask("batch.optimizer.groups[1].lr")
    desk.run.observe("batch")
    assert (desk.one(answer), desk.one(groups)) == ({"0": 0.1, "1": 0.2}, 0.2)
    watch.close()
    model, opt = adam(groups=({"name": "body"}, {"name": "head"}))
    sgt.watch(model, desk.run, optimizer=opt, name="net")
    of_groups = [f"net.optimizer.{g}.{key}" for g in ("body", "head") for key in ("lr", "weight_decay")]
    assert names() == [*of_groups, "net.optimizer.lr", "net.optimizer.lr_scale"]


def test_bounds(desk):
    model, opt = adam()
    sgt.watch(model, desk.run, optimizer=opt, bounds={"lr": (1e-5, 1e-2)})
    lr, decay = (desk.telemetry.commands.queue.controls[f"optimizer.{key}"] for key in ("lr", "weight_decay"))
    assert (lr.min, lr.max, decay.min, decay.max) == (1e-5, 1e-2, 0.0, 1.0)
    with pytest.raises(sg.CommandError, match=r"0\.0001, got 0\.001"):
        sgt.watch(model, desk.run, optimizer=opt, name="x", bounds={"lr": (0.0, 1e-4)})


def test_a_learning_rate_that_is_a_tensor_is_filled(desk):
    model = nn.Linear(2, 2)
    lr = torch.tensor(0.5)
    opt = torch.optim.Adam(model.parameters(), lr=lr, foreach=False)
    sgt.watch(model, desk.run, optimizer=opt)
    answer = desk.ask("batch.optimizer.lr")
    desk.telemetry.commands.queue.controls["optimizer.lr"].set(0.25)
    desk.run.observe("batch")
    assert lr is opt.param_groups[0]["lr"]
    assert lr.item() == 0.25 == desk.one(answer)


def test_an_optimizer_that_is_gone(desk):
    model, opt = adam()
    sgt.watch(model, desk.run, optimizer=opt)
    control = desk.telemetry.commands.queue.controls["optimizer.lr"]
    answer = desk.ask("batch.optimizer.lr")
    del opt
    gc.collect()
    desk.run.observe("batch")
    assert (control.value, desk.values(answer), answer.n_errors) == (1e-3, [], 0)
    with pytest.raises(sg.CommandError, match="optimizer"):
        control.set(0.1)


def test_a_name_that_is_taken(desk):
    desk.run.control("optimizer.lr", 0.1)
    model, opt = adam()
    with pytest.raises(ValueError, match=r"'optimizer\.lr'.*test_opt"):
        sgt.watch(model, desk.run, optimizer=opt)
    assert list(desk.telemetry.steps) == []


def test_an_optimizer_within_another(desk):
    class Wrapper:
        """As Lightning's and Accelerate's."""

        def __init__(self, optimizer):
            self.optimizer = optimizer

    model, opt = adam()
    sgt.watch(model, desk.run, optimizer=Wrapper(Wrapper(opt)))
    desk.telemetry.commands.queue.controls["optimizer.lr"].set(0.5)
    assert opt.param_groups[0]["lr"] == 0.5


def steps(desk, model, opt, scheduler=None, n=1):
    """Train, and return the rates that the steps used."""
    used = []
    handle = opt.register_step_pre_hook(lambda opt, *rest: used.append([float(g["lr"]) for g in opt.param_groups]))
    for _ in range(n):
        opt.zero_grad()
        model(torch.ones(3, 4)).sum().backward()
        opt.step()
        if scheduler is not None:
            scheduler.step()
        desk.run.observe("batch")
    handle.remove()
    return used


def set_(desk, name, value):
    """Set a control at the next event, and return the acknowledgement."""
    found = []
    with sg.connect(desk.run) as client:
        setting = threading.Thread(target=lambda: found.append(client.set(name, value)))
        setting.start()
        while setting.is_alive():
            desk.run.observe("batch")
    return found[0]


def test_groups_of_which_some_have_names(desk):
    model, opt = adam(groups=({"name": "body"}, {"lr": 0.5}))
    sgt.watch(model, desk.run, optimizer=opt)
    assert {"optimizer.body.lr", "optimizer.1.lr"} <= {*desk.telemetry.commands.queue.controls}
    rates = desk.ask("batch.optimizer.lr")
    desk.run.observe("batch")
    assert desk.one(rates) == {"body": 1e-3, "1": 0.5}


def test_groups_whose_names_would_meet_have_their_indices(desk):
    model, opt = adam(groups=({"name": "1"}, {"lr": 0.5}))
    sgt.watch(model, desk.run, optimizer=opt)
    assert {"optimizer.0.lr", "optimizer.1.lr"} <= {*desk.telemetry.commands.queue.controls}


def test_a_rate_that_is_reduced_on_a_plateau_has_a_note(desk):
    model, opt = adam()
    sgt.watch(model, desk.run, optimizer=opt)
    assert set_(desk, "optimizer.lr", 0.01).note == ""
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=0)
    assert "ReduceLROnPlateau" in set_(desk, "optimizer.lr", 0.1).note
    for loss in (1.0, 2.0):
        scheduler.step(loss)
    assert opt.param_groups[0]["lr"] == 0.05  # as the note says


def test_one_rate_for_all_groups(desk):
    model, opt = adam(groups=({"lr": 0.1}, {"lr": 0.2}))
    sgt.watch(model, desk.run, optimizer=opt)
    assert set_(desk, "optimizer.lr", 0.05).old == 0.1  # of the first
    assert [group["lr"] for group in opt.param_groups] == [0.05, 0.05]
    assert set_(desk, "optimizer.1.lr", 0.5).note == ""
    assert [group["lr"] for group in opt.param_groups] == [0.05, 0.5]


@pytest.mark.parametrize("tensor", [False, True])
def test_a_scale_multiplies_what_a_scheduler_computes(desk, tensor):
    model = nn.Linear(4, 2)
    opt = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1) if tensor else 0.1, foreach=False)
    # Chainable: it computes each rate from the one before, so it must never see the factor.
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    rate = opt.param_groups[0]["lr"]
    watch = sgt.watch(model, desk.run, optimizer=opt)
    assert "'lr_scale'" in set_(desk, "optimizer.lr", 0.1).note
    assert set_(desk, "optimizer.weight_decay", 0.0).note == ""
    assert set_(desk, "optimizer.lr_scale", 2.0).note == ""
    used = steps(desk, model, opt, scheduler, n=3)
    assert [rates[0] for rates in used] == pytest.approx([0.2, 0.1, 0.05])
    assert float(opt.param_groups[0]["lr"]) == pytest.approx(0.0125)
    assert not tensor or opt.param_groups[0]["lr"] is rate
    watch.close()
    assert steps(desk, model, opt)[0][0] == pytest.approx(0.0125)


def test_a_scale_survives_a_step_that_fails(desk):
    model = nn.Linear(4, 2)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    sgt.watch(model, desk.run, optimizer=opt)
    set_(desk, "optimizer.lr_scale", 2.0)

    def fails():
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        opt.step(fails)
    assert steps(desk, model, opt) == [[pytest.approx(0.2)]]
    assert opt.param_groups[0]["lr"] == 0.1
