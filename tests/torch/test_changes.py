"""A module that changes while somebody asks: names, hooks and controls follow."""

from __future__ import annotations

import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt


class Loop:
    def __init__(self, desk, *, optimizer=True):
        self.model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        self.model[0].requires_grad_(False)
        self.run = desk.run
        self.opt = torch.optim.SGD(self.model[2].parameters(), lr=0.1)
        self.watch = sgt.watch(self.model, desk.run, optimizer=self.opt if optimizer else None)

    def step(self):
        self.opt.zero_grad()
        self.model(torch.randn(5, 4)).square().mean().backward()
        self.opt.step()
        self.run.observe("batch")


def test_a_head_that_is_swapped_is_read_from_the_next_event_on(desk, n_hooks):
    loop = Loop(desk)
    outputs = desk.ask("batch.activations.map(lambda n, a: a.shape)")
    head = desk.ask("batch.activations['2'].shape")
    grads = desk.ask("batch.grads.map(lambda n, g: g.shape)")
    loop.step()
    loop.step()
    old = loop.model[2]
    loop.model[2] = nn.Linear(4, 3)
    loop.model.append(nn.Tanh())
    loop.opt.add_param_group({"params": loop.model[2].parameters()})
    loop.step()
    loop.step()
    assert desk.values(outputs)[-1] == {"0": (5, 4), "1": (5, 4), "2": (5, 3), "3": (5, 3)}
    assert desk.values(head)[-1] == (5, 3)
    assert desk.values(grads)[-1] == {"2.weight": (3, 4), "2.bias": (3,)}
    assert n_hooks(old) == 0
    with sg.connect(desk.run) as client:
        assert client.describe().events["batch"].observables["params"].fields["2.weight"] == "float32[3, 4]"
    desk.leave(outputs, head, grads)
    loop.step()
    assert n_hooks(loop.model, loop.opt) == 0


def test_layers_that_are_unfrozen_are_read_from_the_next_event_on(desk):
    for optimizer in (True, False):
        loop = Loop(desk, optimizer=optimizer)
        grads = desk.ask("batch.grads.map(lambda n, g: g.shape)")
        loop.step()
        loop.step()
        assert list(desk.values(grads)[-1]) == ["2.weight", "2.bias"]
        loop.model[0].requires_grad_(True)
        loop.step()
        loop.step()
        assert list(desk.values(grads)[-1]) == ["0.weight", "0.bias", "2.weight", "2.bias"]
        desk.leave(grads)
        loop.step()
        loop.watch.close()


def test_a_parameter_that_is_replaced_takes_its_hook_along(desk, n_hooks):
    loop = Loop(desk, optimizer=False)
    size = desk.ask("batch.grads['2.bias'].shape")
    loop.step()
    old = loop.model[2]
    loop.model[2] = nn.Linear(4, 3)
    loop.step()
    loop.step()
    assert desk.values(size)[-1] == (3,)
    assert n_hooks(old) == 0


def test_a_module_that_is_removed_ends_the_query_about_it(desk):
    loop = Loop(desk)
    loop.model.append(nn.Tanh())
    last, first = desk.ask("batch.activations['3'].mean()"), desk.ask("batch.activations['0'].mean()")
    loop.step()
    loop.step()
    del loop.model[3]
    loop.step()
    loop.step()
    assert str(last.last_error) == "Unknown module '3'. Known: 0, 1, 2."
    assert last.suspended
    assert len(desk.values(first)) == 3


def test_groups_that_are_added_get_controls(desk):
    loop = Loop(desk)
    rate = desk.ask("batch.optimizer.lr")
    loop.step()
    controls = desk.telemetry.commands.queue.controls
    assert {*controls} == {"optimizer.lr", "optimizer.weight_decay", "optimizer.lr_scale"}
    loop.opt.add_param_group({"params": loop.model[0].parameters(), "lr": 0.5})
    loop.step()
    assert {"optimizer.0.lr", "optimizer.1.lr", "optimizer.1.weight_decay", "optimizer.lr"} <= {*controls}
    controls["optimizer.1.lr"].set(0.25)
    assert [group["lr"] for group in loop.opt.param_groups] == [0.1, 0.25]
    controls["optimizer.lr"].set(0.2)
    assert [group["lr"] for group in loop.opt.param_groups] == [0.2, 0.2]
    assert desk.values(rate)[0] == 0.1
    loop.watch.close()
    assert not controls
