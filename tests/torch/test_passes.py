"""What modules take and return in each pass: training and evaluation, several tensors, and their gradients."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from sightglass.torch.calls import tensors_of


class Mixed(nn.Module):
    """A module of modules that take and return several tensors."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.attn = nn.MultiheadAttention(4, 2, batch_first=True)
        self.lstm = nn.LSTM(4, 3, batch_first=True)
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        x = self.inner(x)[:, None]
        x, _ = self.attn(x, x, x, need_weights=False)
        self.seen, (self.hidden, _) = self.lstm(x)
        for one in (self.seen, self.hidden):
            if one.requires_grad:
                one.retain_grad()
        return self.head(self.seen[:, 0] + self.hidden[0])


class Loop:
    """A watched training loop."""

    def __init__(self, desk, model):
        self.model, self.run = model, desk.run
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        self.watch = sgt.watch(model, desk.run, optimizer=self.opt)

    def step(self, x=None, *, observe=True):
        self.opt.zero_grad()
        self.model(torch.randn(5, 4) if x is None else x).square().mean().backward()
        self.opt.step()
        if observe:
            self.run.observe("batch")

    def evaluate(self, x, *, modes=("eval", "no grad")):
        """Make an evaluation pass, told by the module's mode, by missing gradients, or by both."""
        self.model.train("eval" not in modes)
        with torch.set_grad_enabled("no grad" not in modes):
            self.model(x)
        self.model.train()


def test_modules_of_several_tensors_are_in_maps_by_the_way_to_each(desk):
    loop = Loop(desk, Mixed())
    outputs = desk.ask("batch.activations.map(lambda n, a: a.shape)")
    grads = desk.ask("batch.activation_grads.map(lambda n, g: g.norm())")
    one, deep = desk.ask("batch.activation_grads['lstm[0]'].norm()"), desk.ask("batch.activations['lstm[1][0]']")
    loop.step()
    loop.step()
    assert desk.one(outputs) == {
        "inner": (5, 4), "attn[0]": (5, 1, 4), "lstm[0]": (5, 1, 3), "lstm[1][0]": (1, 5, 3), "lstm[1][1]": (1, 5, 3),
        "head": (5, 2),
    }  # fmt: skip
    found = desk.one(grads)
    assert list(found) == ["inner", "attn[0]", "lstm[0]", "lstm[1][0]", "head"]  # the loss reads no cell state
    assert found["lstm[0]"] == desk.one(one) == pytest.approx(float(loop.model.seen.grad.norm()))
    assert found["lstm[1][0]"] == pytest.approx(float(loop.model.hidden.grad.norm()))
    assert torch.equal(torch.as_tensor(desk.one(deep)), loop.model.hidden.detach())


def test_inputs_are_what_modules_take(desk, n_hooks):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.relu = nn.Linear(4, 4), nn.ReLU(inplace=True)
            self.attn = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            x = self.relu(self.first(x))[:, None]
            return self.attn(x, x, value=x, need_weights=False)[0]

    loop = Loop(desk, Net())
    sizes = desk.ask("batch.inputs.map(lambda n, x: x.shape)")
    whole, relu = desk.ask("batch.inputs['']"), desk.ask("batch.inputs.relu.min()")
    value, query = desk.ask("batch.inputs['attn[value]'].sum()"), desk.ask("batch.inputs['attn']['0'].sum()")
    loop.step()
    x = torch.randn(5, 4)
    low = float(loop.model.first(x).detach().min())
    loop.step(x)
    assert desk.one(sizes) == {
        "first": (5, 4), "relu": (5, 4), "attn[0]": (5, 1, 4), "attn[1]": (5, 1, 4), "attn[value]": (5, 1, 4)
    }  # fmt: skip
    assert torch.equal(torch.as_tensor(desk.one(whole)), x)
    assert low < 0
    assert desk.one(relu) == pytest.approx(low)  # before the module overwrites it
    assert desk.one(value) == desk.one(query)
    desk.leave(sizes, whole, relu, value, query)
    loop.step()
    assert n_hooks(loop.model) == 0


@pytest.mark.parametrize("modes", [("eval",), ("no grad",), ("eval", "no grad")])
def test_an_evaluation_takes_nothing_from_the_training(desk, modes):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    each = desk.ask("batch.activations.map(lambda n, a: a.max())")
    one, into = desk.ask("batch.activations['0']"), desk.ask("batch.inputs[''].max()")
    loop.step()
    x = torch.randn(5, 4)
    wanted = loop.model[0](x).detach()
    loop.step(x, observe=False)
    loop.evaluate(1000 * torch.ones(3, 4), modes=modes)
    desk.run.observe("batch")
    assert torch.equal(torch.as_tensor(desk.one(one)), wanted)
    assert desk.one(each)["0"] == pytest.approx(float(wanted.max()))
    assert desk.one(into) == pytest.approx(float(x.max()))
    loop.evaluate(torch.ones(3, 4), modes=modes)
    loop.step(x)
    assert desk.values(into)[-1] == pytest.approx(float(x.max()))


def test_a_program_that_only_evaluates_is_answered(desk):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 4)))
    answer = desk.ask("batch.activations['0'].shape")
    for n in (2, 3):
        loop.evaluate(torch.ones(n, 4))
        desk.run.observe("batch")
    assert desk.one(answer) == (3, 4)


def test_evaluation_passes_are_asked_by_their_own_name(desk):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)))
    outputs, inputs = desk.ask("batch.eval_activations.map(lambda n, a: a.mean())"), desk.ask("batch.eval_inputs['']")
    loop.step()
    loop.step()
    x = torch.randn(3, 4)
    wanted = float(loop.model[0](x).detach().mean())
    loop.evaluate(x)
    loop.step()
    assert desk.one(outputs) == {"0": pytest.approx(wanted), "1": pytest.approx(wanted)}
    assert torch.equal(torch.as_tensor(desk.one(inputs)), x)
    with sg.connect(desk.run) as client:
        assert {"inputs", "eval_activations", "eval_inputs"} <= {*client.describe().events["batch"].observables}


def test_several_names_of_one_module_leave_no_hook_in_any_order(desk, n_hooks):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model.append(model[0])
    loop = Loop(desk, model)
    first, second = desk.ask("batch.activations['0'].mean()"), desk.ask("batch.activations['2'].mean()")
    loop.step()
    loop.step()
    assert desk.one(first) == desk.one(second)
    desk.leave(first)
    loop.step()
    desk.leave(second)
    loop.step()
    assert n_hooks(model) == 0


class Twice(nn.Module):
    """A module whose inner module is called twice in a pass, as weights that are shared are."""

    def __init__(self, inner=None):
        super().__init__()
        self.inner = inner or nn.Linear(4, 4)
        self.calls = []

    def forward(self, x):
        x = self.inner(x)
        self.calls += [x] if isinstance(x, torch.Tensor) else [*x]
        x = self.inner(x if isinstance(x, torch.Tensor) else x[0] + x[1][0])
        self.calls += [x] if isinstance(x, torch.Tensor) else [*x]
        for one in self.calls:
            if isinstance(one, torch.Tensor) and one.requires_grad:
                one.retain_grad()
        return x if isinstance(x, torch.Tensor) else x[0]


def is_equal(found, wanted):
    return torch.allclose(torch.as_tensor(found), wanted.detach())


def test_a_gradient_is_of_the_same_call_as_the_output(desk):
    loop = Loop(desk, Twice())
    output, grad = desk.ask("batch.activations.inner"), desk.ask("batch.activation_grads.inner")
    each = desk.ask("batch.activation_grads.map(lambda n, g: g.norm())")
    loop.step()
    loop.model.calls.clear()
    loop.step()
    first, second = loop.model.calls
    assert is_equal(desk.one(output), second)
    assert is_equal(desk.one(grad), second.grad)  # that of the first call is computed later
    assert desk.one(each) == {"inner": pytest.approx(float(second.grad.norm()))}
    assert not torch.allclose(first.grad, second.grad)


def test_gradients_of_a_module_of_several_tensors_are_of_one_call(desk):
    loop = Loop(desk, Twice(nn.LSTM(4, 4)))
    grads = desk.ask("batch.activation_grads.map(lambda n, g: g.norm())")
    loop.step()
    loop.model.calls.clear()
    loop.step()
    *_, (last, _) = zip(*[iter(loop.model.calls)] * 2, strict=True)
    assert desk.one(grads) == {"inner[0]": pytest.approx(float(last.grad.norm()))}  # its state went nowhere


def test_each_call_can_be_asked_by_its_number(desk, n_hooks):
    loop = Loop(desk, Twice())
    texts = [f"batch.{kind}['inner@{i}']" for i in (0, 1) for kind in ("activations", "inputs", "activation_grads")]
    asked = [desk.ask(text) for text in texts]
    each = desk.ask("batch.activations.map(lambda n, a: a.mean())")
    whole, third = desk.ask("batch.activations['@0'].shape"), desk.ask("batch.activations['inner@2']")
    loop.step()
    loop.model.calls.clear()
    x = torch.randn(5, 4)
    for _ in range(9):
        loop.model.calls.clear()
        loop.evaluate(torch.ones(3, 4))  # which is numbered by itself
        loop.model.calls.clear()
        loop.step(x)
    first, second = loop.model.calls
    wanted = [first, x, first.grad, second, first, second.grad]
    assert [is_equal(desk.values(one)[-1], value) for one, value in zip(asked, wanted, strict=True)] == [True] * 6
    assert desk.values(each)[-1] == {"inner": pytest.approx(float(second.detach().mean()))}  # as without numbers
    assert desk.values(whole)[-1] == (5, 4)
    assert desk.values(third) == []
    assert "not called so often" in desk.telemetry.subscriptions.sources["batch"].note_of(third.query)
    desk.leave(*asked, each, whole, third)
    loop.step()
    assert n_hooks(loop.model) == 0


def test_the_numbers_of_tensors_of_a_call_stand_behind_its_number(desk):
    loop = Loop(desk, Twice(nn.LSTM(4, 4)))
    state = desk.ask("batch.activations['inner@0[1][0]']")
    loop.step()
    loop.model.calls.clear()
    loop.step()
    assert is_equal(desk.one(state), loop.model.calls[1][0])


def test_batches_whose_gradients_are_accumulated_are_numbered_from_event_to_event(desk):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 2)))
    asked = [desk.ask(f"batch.activations['0@{i}']") for i in range(3)]
    last = desk.ask("batch.activations['0']")
    loop.step()
    for n in (3, 2):
        batches = [torch.randn(5, 4) for _ in range(n)]
        wanted = [nn.functional.linear(batch, loop.model[0].weight, loop.model[0].bias) for batch in batches]
        for batch in batches:
            loop.model(batch).square().mean().backward()
        desk.run.observe("batch")
        found = [desk.values(one)[-1] for one in asked]
        assert [is_equal(one, value) for one, value in zip(found, wanted, strict=False)] == [True] * n
        assert is_equal(desk.values(last)[-1], wanted[-1])
    assert [len(desk.values(one)) for one in asked] == [2, 2, 1]


def test_an_event_of_each_pass_has_all_of_it(desk):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 2)))
    sgt.watch(loop.model, desk.run, event="micro")
    each, whole = desk.ask("micro.activation_grads['0'].norm()"), desk.ask("batch.grads['0.weight']")
    desk.run.observe("micro")
    loop.step()
    wanted = []
    loop.opt.zero_grad()
    for _ in range(3):
        y = loop.model(torch.randn(5, 4))
        y.retain_grad()
        y.square().mean().backward()
        wanted.append(pytest.approx(float(y.grad.norm())))
        desk.run.observe("micro")
    loop.opt.step()
    grad = loop.model[0].weight.grad.clone()
    desk.run.observe("batch")
    assert desk.values(each)[-3:] == wanted
    assert is_equal(desk.values(whole)[-1], grad)  # of all three


def test_a_number_is_part_of_a_modules_own_name_if_it_has_one(desk):
    model = nn.Sequential()
    model.add_module("inner@0", nn.Linear(4, 2))
    loop = Loop(desk, model)
    output, unknown = desk.ask("batch.activations['inner@0'].shape"), desk.ask("batch.grads['inner@0.bias@1']")
    first = desk.ask("batch.activations['inner@0@0'].shape")
    loop.step()
    loop.step()
    assert desk.one(output) == desk.one(first) == (5, 2)
    assert "Unknown parameter" in str(unknown.last_error)


def test_a_module_inside_attention_is_refused_with_the_reason(desk):
    loop = Loop(desk, Mixed())
    answer = desk.ask("batch.activations['attn.out_proj'].mean()")
    loop.step()
    assert re.search("'attn.out_proj'.*MultiheadAttention", str(answer.last_error))


def test_tensors_are_found_in_any_value_and_their_number_is_limited():
    one = torch.zeros(1)
    nested: list[object] = [one]
    nested.append(nested)
    assert [name for name, _ in tensors_of("m", {"a": (one, None, [one]), "b": 3})] == ["m[a][0]", "m[a][2][0]"]
    assert [name for name, _ in tensors_of("m", one)] == ["m"]
    assert len([*tensors_of("m", nested)]) < 1000
