"""Modules that are compiled: one compilation at each change of what is asked, none in between, or a refusal."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import sightglass.torch as sgt


class Counting:
    """A backend that counts what it compiles, and the calls of that; it computes as PyTorch does."""

    def __init__(self):
        self.n_graphs = 0

    def __call__(self, graph, example):
        self.n_graphs += 1
        return graph.forward


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Net(nn.Sequential):
    """A class of the program's own: PyTorch does not compile the `forward` of its own containers in place."""

    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, x):
        return self[2](self[1](self[0](x)))


WAYS = ("wrapped", "original", "in place", "function")


class Loop:
    """A compiled step; `way` says what is compiled and what is watched."""

    def __init__(self, desk, way="wrapped", **options):
        self.backend, self.run = Counting(), desk.run
        self.model = Net()
        compiled = torch.compile(self.model, backend=self.backend, fullgraph=True) if way != "in place" else None
        self.call = compiled
        if way == "in place":
            self.model.compile(backend=self.backend, fullgraph=True)
            self.call = self.model
        if way == "function":
            model = self.model
            self.call = torch.compile(lambda x: model(x) * 1.0, backend=self.backend, fullgraph=True)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        watched = compiled if way == "wrapped" else self.model
        self.watch = sgt.watch(watched, desk.run, optimizer=self.opt, **options)

    def step(self, x=None):
        self.opt.zero_grad()
        x = torch.randn(5, 4) if x is None else x
        self.call(x).square().mean().backward()
        self.opt.step()
        self.run.observe("batch")

    def compiled(self, n_steps=1):
        """Return how many graphs were compiled in so many steps."""
        before = self.backend.n_graphs
        for _ in range(n_steps):
            self.step()
        return self.backend.n_graphs - before


def test_names_are_the_modules_own(desk):
    loop = Loop(desk)
    loop.step()
    assert set(desk.telemetry.subscriptions.sources["batch"].observables["params"].fields) == {
        "0.weight", "0.bias", "2.weight", "2.bias",
    }  # fmt: skip


def test_parameters_and_gradients_compile_nothing(desk):
    loop = Loop(desk)
    assert loop.compiled(3) == 1
    answers = desk.ask("batch.grads['0.bias'].norm()"), desk.ask("batch.params['0.bias'].norm()")
    assert loop.compiled(3) == 0
    desk.leave(*answers)
    assert loop.compiled(3) == 0
    assert [len(desk.values(answer)) for answer in answers] == [2, 3]


@pytest.mark.parametrize("way", WAYS)
def test_one_compilation_at_each_change_of_queries(desk, way, n_hooks):
    loop = Loop(desk, way)
    assert loop.compiled(3) == 1
    relu = desk.ask("batch.activations['1'].mean()")
    assert loop.compiled(6) == 1
    assert loop.watch._compiled.n_resets == 1
    again = desk.ask("batch.activations['1'].std()")  # of the same tensor: the program is the same
    assert loop.compiled(3) == 0
    first = desk.ask("batch.activations['0'].mean()")
    assert loop.compiled(3) == 1
    x = torch.randn(5, 4)
    wanted = nn.functional.linear(x, loop.model[0].weight, loop.model[0].bias).detach()
    loop.step(x)
    assert desk.values(first)[-1] == pytest.approx(float(wanted.mean()))
    assert desk.values(relu)[-1] == pytest.approx(float(wanted.relu().mean()))
    assert desk.values(again)[-1] == pytest.approx(float(wanted.relu().std(correction=0)))
    desk.leave(relu, again, first)
    assert loop.compiled(3) == 1
    assert n_hooks(loop.model, loop.opt) == 0


@pytest.mark.parametrize("way", WAYS)
def test_or_a_clear_refusal(desk, way, n_hooks):
    loop = Loop(desk, way, recompile=False)
    loop.step()
    answer, grads = desk.ask("batch.activations['1'].mean()"), desk.ask("batch.grads['0.bias'].norm()")
    assert loop.compiled(4) == 0
    if not desk.values(answer):  # which the oldest PyTorch answers without a compilation: it calls modules in a program
        assert answer.suspended
        assert "Activations are not available: the module " in str(answer.last_error)
        assert len(loop.model[1]._forward_hooks) == 0
    assert len(desk.values(grads)) >= 2


def test_the_same_numbers_with_the_default_backend(desk):
    loop = Loop(desk)
    model = loop.model
    loop.call = torch.compile(model, backend="aot_eager", fullgraph=True)
    answer = desk.ask("batch.activations['2']")
    loop.step()
    loop.step()
    assert answer.last_error is None
    x = torch.randn(5, 4)
    wanted = model(x).detach()
    loop.step(x)
    assert torch.allclose(torch.as_tensor(desk.values(answer)[-1]), wanted)


def test_gradients_of_activations_are_refused_in_compiled_modules(desk, n_hooks):
    loop = Loop(desk, "wrapped")
    loop.step()
    answer = desk.ask("batch.activation_grads['1'].norm()")
    loop.step()
    assert "Gradients of activations are not available: the module is compiled" in str(answer.last_error)
    assert answer.suspended
    loop.step()
    assert n_hooks(loop.model) == 0
