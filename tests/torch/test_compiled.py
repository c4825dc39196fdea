"""Modules that are compiled: nothing is compiled again unless a controller confirmed it, nothing else is touched."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from sightglass.core.errors import RefusedError, UnconfirmedError


class Counting:
    """A backend that counts what it compiles; it computes as PyTorch does."""

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


@pytest.fixture
def n_resets(monkeypatch):
    """Count how often all compiled programs are discarded."""
    resets, real = [], torch.compiler.reset
    monkeypatch.setattr(torch.compiler, "reset", lambda: (resets.append(1), real()))
    return lambda: len(resets)


class Net(nn.Sequential):
    """A class of the program's own: PyTorch does not compile the `forward` of its own containers in place."""

    def __init__(self):
        super().__init__(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

    def forward(self, x):
        return self[2](self[1](self[0](x)))


WAYS = ("wrapped", "original", "in place", "function")
DECLARED = ("wrapped", "in place")


class Loop:
    """A compiled step; `way` says what is compiled and what is watched."""

    def __init__(self, desk, way="wrapped", model=None, **options):
        self.backend, self.run = Counting(), desk.run
        self.model = model or Net()
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
def test_nothing_is_compiled_again_unless_that_was_confirmed(desk, way, n_resets, n_hooks):
    loop = Loop(desk, way)
    other = Counting()
    bystander = torch.compile(Net(), backend=other, fullgraph=True)
    assert loop.compiled(2) == 1
    bystander(torch.randn(5, 4))
    one = desk.ask("batch.activations['1'].mean()")
    each = desk.ask("batch.activations.map(lambda n, a: a.mean())")
    grads = desk.ask("batch.grads['0.bias'].norm()")
    assert loop.compiled(6) == 0
    bystander(torch.randn(5, 4))
    for answer in (one, each):
        assert isinstance(answer.last_error, UnconfirmedError)
        assert "are compiled again" in str(answer.last_error)
    assert len(desk.values(grads)) == 5
    desk.leave(one, each, grads)
    assert loop.compiled(2) == 0
    bystander(torch.randn(5, 4))
    assert (other.n_graphs, n_resets(), n_hooks(loop.model, loop.opt)) == (1, 0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_one_compilation_when_asked_and_one_after_the_last_query_ends(desk, way, n_hooks, n_resets):
    loop = Loop(desk, way)
    assert loop.compiled(3) == 1
    relu = desk.ask("batch.activations['1'].mean()", confirmed=True)
    assert loop.compiled(6) == 1
    again = desk.ask("batch.activations['1'].std()", confirmed=True)  # of the same tensor: the program is the same
    assert loop.compiled(3) == 0
    first = desk.ask("batch.activations['0'].mean()", confirmed=True)
    assert loop.compiled(3) == 1
    assert n_resets() == 2
    x = torch.randn(5, 4)
    wanted = nn.functional.linear(x, loop.model[0].weight, loop.model[0].bias).detach()
    loop.step(x)
    assert desk.values(first)[-1] == pytest.approx(float(wanted.mean()))
    assert desk.values(relu)[-1] == pytest.approx(float(wanted.relu().mean()))
    assert desk.values(again)[-1] == pytest.approx(float(wanted.relu().std(correction=0)))
    desk.leave(first)
    assert loop.compiled(3) == 0
    desk.leave(relu, again)
    assert loop.compiled(3) <= 1
    assert (n_resets(), n_hooks(loop.model, loop.opt), loop.watch.n_hooks) == (2, 0, 0)


@pytest.mark.parametrize("way", DECLARED)
def test_what_a_compiled_module_returns_costs_no_compilation(desk, way, n_resets):
    loop = Loop(desk, way)
    assert loop.compiled(2) == 1
    out, back = desk.ask("batch.activations['']"), desk.ask("batch.activation_grads[''].norm()")
    assert loop.compiled(2) == 0
    x = torch.randn(5, 4)
    wanted = nn.Sequential.forward(loop.model, x).detach()
    loop.step(x)
    assert torch.equal(torch.as_tensor(desk.values(out)[-1]), wanted)
    assert desk.values(back)[-1] == pytest.approx(float((wanted * 2 / wanted.numel()).norm()))
    desk.leave(out, back)
    assert loop.compiled(2) == 0
    assert n_resets() == 0


@pytest.mark.parametrize("way", WAYS)
def test_or_a_clear_refusal(desk, way, n_hooks):
    loop = Loop(desk, way, recompile=False)
    loop.step()
    answer, grads = desk.ask("batch.activations['1'].mean()", confirmed=True), desk.ask("batch.grads['0.bias'].norm()")
    assert loop.compiled(4) == 0
    assert answer.suspended
    assert "module is compiled" in str(answer.last_error)
    assert len(loop.model[1]._forward_hooks) == 0
    assert len(desk.values(grads)) >= 2


def test_the_same_numbers_with_the_default_backend(desk):
    loop = Loop(desk)
    model = loop.model
    loop.call = torch.compile(model, backend="aot_eager", fullgraph=True)
    answer = desk.ask("batch.activations['2']", confirmed=True)
    loop.step()
    loop.step()
    assert answer.last_error is None
    x = torch.randn(5, 4)
    wanted = model(x).detach()
    loop.step(x)
    assert torch.allclose(torch.as_tensor(desk.values(answer)[-1]), wanted)


class Pair(nn.Module):
    """A module that returns several tensors."""

    def forward(self, x):
        return x.relu(), {"low": x.min(), "none": None, "both": (x.max(), x.sum())}


class Paired(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.pair = nn.Linear(4, 6), Pair()

    def forward(self, x):
        x, more = self.pair(self.first(x))
        return x + more["low"] + more["both"][1]


@pytest.mark.parametrize("way", WAYS)
def test_modules_inside_that_return_several_tensors(desk, way, n_hooks):
    loop = Loop(desk, way, Paired())
    assert loop.compiled(3) == 1
    each = desk.ask("batch.activations.map(lambda n, a: a.max())", confirmed=True)
    low, sizes = (desk.ask(f"batch.activations.pair[1]{of}", confirmed=True) for of in (".low", ".both"))
    whole = desk.ask("batch.activations['pair[0]']", confirmed=True)
    assert loop.compiled(6) == 1
    x = torch.randn(5, 4)
    wanted = loop.model.first(x).detach()
    loop.step(x)
    assert [*desk.values(each)[-1]] == ["first", "pair[0]", "pair[1][low]", "pair[1][both][0]", "pair[1][both][1]"]
    assert desk.values(low)[-1] == pytest.approx(float(wanted.min()))
    assert [float(one) for one in desk.values(sizes)[-1]] == pytest.approx([float(wanted.max()), float(wanted.sum())])
    assert torch.allclose(torch.as_tensor(desk.values(whole)[-1]), wanted.relu())
    desk.leave(each, low, sizes, whole)
    loop.step()
    assert n_hooks(loop.model, loop.opt) == 0


def test_inputs_inside_compiled_modules_are_refused(desk, n_hooks):
    loop = Loop(desk)
    loop.step()
    outer, inner = desk.ask("batch.inputs[''].shape"), desk.ask("batch.inputs['1'].shape", confirmed=True)
    assert loop.compiled(2) == 0
    assert desk.one(outer) == (5, 4)
    assert "module is compiled" in str(inner.last_error)


def test_gradients_inside_compiled_modules_are_refused(desk, n_hooks):
    loop = Loop(desk, "wrapped")
    loop.step()
    answer = desk.ask("batch.activation_grads['1'].norm()", confirmed=True)
    loop.step()
    assert "module is compiled" in str(answer.last_error)
    assert answer.suspended
    loop.step()
    assert n_hooks(loop.model) == 0


class Both(nn.Module):
    """Returns what it computes twice."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x):
        return self.linear(x), 2.0 * x.sum()


def test_gradients_of_a_compiled_module_that_returns_several_tensors(desk, n_resets):
    loop = Loop(desk, "wrapped", Both())
    compiled = loop.call
    loop.call = lambda x: sum(compiled(x))
    assert loop.compiled(2) == 1
    whole, first = (desk.ask(f"batch.activation_grads['{name}'].norm()") for name in ("", "[0]"))
    assert loop.compiled(10) == 0
    assert desk.values(first)
    assert whole.last_error is None
    assert "b.activation_grads['[0]']" in loop.watch.note(whole.query)
    assert n_resets() == 0


def test_a_module_with_hooks_of_its_own_is_not_compiled_again_unasked(desk, n_resets):
    model = Net()
    model[0].register_forward_hook(lambda module, args, output: output * 2)
    loop = Loop(desk, "function", model)
    assert loop.compiled(2) == 1
    answer = desk.ask("batch.activations['0'].mean()")
    assert loop.compiled(4) == 0
    assert isinstance(answer.last_error, UnconfirmedError)
    assert n_resets() == 0


def test_a_program_that_compiles_nothing_is_never_reset(desk, n_resets):
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2), nn.Identity())
    opt = torch.optim.AdamW(model.parameters())
    sgt.watch(model, desk.run, optimizer=opt)

    def step():
        model[:3](torch.randn(3, 4)).sum().backward()
        opt.step()
        desk.run.observe("batch")

    step()
    answers = [desk.ask("batch.activations['0'].norm()"), desk.ask("batch.activations['3'].norm()")]
    for _ in range(4):
        step()
    answers.append(desk.ask("batch.activation_grads['0'].norm()"))
    for _ in range(4):
        step()
    assert [len(desk.values(answer)) for answer in answers] == [7, 0, 3]
    assert [answer.last_error for answer in answers] == [None] * 3
    desk.leave(*answers)
    step()
    assert n_resets() == 0


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x):
        return self.act(self.fc(x))


class Blocks(nn.Module):
    """More blocks than PyTorch compiles variants of a program, each compiled in place."""

    def __init__(self, backend):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(10))
        self.head = nn.Linear(4, 2)
        for block in self.blocks:
            block.compile(backend=backend, fullgraph=True)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("query", ["['blocks.7.fc'].mean()", ".map(lambda n, a: a.mean())"])
def test_one_program_serves_all_blocks_that_are_compiled_in_place(desk, query):
    backend = Counting()
    model = Blocks(backend)
    sgt.watch(model, desk.run)

    def compiled(n_steps):
        before = backend.n_graphs
        for _ in range(n_steps):
            model(torch.randn(3, 4, requires_grad=True)).sum().backward()
            desk.run.observe("batch")
        return backend.n_graphs - before

    assert compiled(2) == 1
    outside = desk.ask("batch.activations['blocks.7'].mean()")
    assert compiled(2) == 0
    answer = desk.ask("batch.activations" + query, confirmed=True)
    assert compiled(4) == 1
    assert len(desk.values(answer)) == 3
    assert len(desk.values(outside)) == 5
    desk.leave(answer)
    assert compiled(2) <= 1


def test_a_program_that_compiles_later_is_told_the_price_then(desk, n_resets):
    loop = Loop(desk, "function")
    compiled, loop.call = loop.call, loop.model
    early = desk.ask("batch.activations['1'].mean()")
    assert loop.compiled(4) == 0
    assert early.last_error is None
    n_early = len(desk.values(early))
    loop.call = compiled
    assert loop.compiled(5) == 1
    assert n_early == 3
    assert isinstance(early.last_error, UnconfirmedError)
    late = desk.ask("batch.activations['1'].mean()", confirmed=True)
    assert loop.compiled(4) == 1
    assert len(desk.values(late)) > 0
    assert n_resets() == 1


def test_what_else_is_compiled_leaves_modules_called_from_python_alone(desk, n_resets):
    loop = Loop(desk, "function")
    loop.call = loop.model
    answer = desk.ask("batch.activations['1'].mean()")
    for _ in range(4):
        torch.compile(lambda x: x + 1.0, backend="eager")(torch.ones(3))
        loop.step()
    loop.compiled(3)
    assert answer.last_error is None
    assert len(desk.values(answer)) == 6
    assert n_resets() == 0


def test_copies_of_a_module_with_an_operator_inside_have_no_hook(desk):
    loop = Loop(desk, "original")
    loop.step()
    wanted = pickle.dumps(loop.model.state_dict()), pickle.dumps(loop.model)
    answer = desk.ask("batch.activations.map(lambda n, a: a.mean())", confirmed=True)
    for _ in range(4):
        loop.call(torch.randn(5, 4))
        loop.run.observe("batch")
    assert len(desk.values(answer)) > 0
    assert len(loop.model[1]._forward_hooks) == 1
    assert (pickle.dumps(loop.model.state_dict()), pickle.dumps(loop.model)) == wanted
    for twin in (copy.deepcopy(loop.model), copy.copy(loop.model[1]), pickle.loads(pickle.dumps(loop.model))):
        assert [len(module._forward_hooks) for module in twin.modules()] == [0] * len([*twin.modules()])
        assert not any("__reduce_ex__" in vars(module) for module in twin.modules())


def test_a_client_is_told_the_price_first(desk):
    loop = Loop(desk)
    assert loop.compiled(2) == 1
    with sg.connect(desk.run) as client:
        with pytest.raises(UnconfirmedError, match="compiled again"):
            client.stream("batch.activations['1'].mean()")
        assert loop.compiled(2) == 0
        stream = client.stream("batch.activations['1'].mean()", confirm=True)
        assert loop.compiled(4) == 1
        assert stream.wait(1)
        stream.close()
        client.stream("batch.activations[''].mean()")


def test_what_compiled_programs_hide_ends_with_the_price(desk):
    loop = Loop(desk, "function")
    assert loop.compiled(2) == 1
    with sg.connect(desk.run) as client:
        hidden, fine = client.stream("batch.activations['1'].mean()"), client.stream("batch.grads['0.bias'].norm()")
        loop.compiled(4)
        with pytest.raises(UnconfirmedError, match=r"controller's key.*confirm=True"):
            hidden.wait(1, timeout_s=20)
        assert fine.wait(1)
        with pytest.raises(UnconfirmedError):
            client.stream("batch.activations['1'].mean()")
        again = client.stream("batch.activations['1'].mean()", confirm=True)
        assert loop.compiled(4) == 1
        assert again.wait(1)


@pytest.mark.parametrize("way", WAYS)
def test_a_single_call_inside_a_compiled_program_is_refused(desk, way):
    loop = Loop(desk, way)
    answer, last = (desk.ask(f"batch.activations['{name}'].mean()", confirmed=True) for name in ("1@0", "1"))
    for _ in range(5):
        loop.step()
    assert isinstance(answer.last_error, RefusedError)
    assert desk.values(last)
