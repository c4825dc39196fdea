"""Several optimizers on one module: updates, gradients, state and controls of each, and never a false number."""

from __future__ import annotations

import copy
import io
import re

import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt
from sightglass.core.errors import PriceError, RefusedError
from sightglass.torch.optimizer_steps import OptimizerSteps

from .conftest import Desk


def numbers(mapping):
    return {name: float(value.norm()) for name, value in mapping.items()}


class Training:
    """A training of a module by several optimizers, that remembers what each step really changed."""

    def __init__(self, desk, model, *optimizers, watched=None):
        self.model, self.optimizers, self.run = model, optimizers, desk.run
        self.watch = sgt.watch(model, desk.run, optimizer=optimizers if watched is None else watched)
        self.updates: dict[str, torch.Tensor] = {}
        self.grads: dict[str, torch.Tensor] = {}

    def step(self):
        self.updates, self.grads = {}, {}
        self.model(torch.randn(5, 8)).square().mean().backward()
        for optimizer in self.optimizers:
            named = dict(self.model.named_parameters())
            held = {id(p) for group in optimizer.param_groups for p in group["params"]}
            mine = [name for name, p in named.items() if id(p) in held]
            before = {name: named[name].detach().clone() for name in mine}
            optimizer.step()
            self.updates |= {name: named[name].detach() - before[name] for name in mine}
            self.grads |= {name: named[name].grad.clone() for name in mine}
        self.model.zero_grad()
        self.run.observe("batch")


def two_layers():
    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))


UPDATES = "batch.updates.map(lambda name, u: norm(u))"
GRADS = "batch.grads.map(lambda name, g: norm(g))"


def muon(model):
    if not hasattr(torch.optim, "Muon"):
        pytest.skip("this PyTorch has no Muon")
    matrices = [p for p in model.parameters() if p.ndim == 2]
    rest = [p for p in model.parameters() if p.ndim != 2]
    return torch.optim.Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=0.01)


PAIRS = {
    "sgd and adam": lambda m: (torch.optim.SGD(m[0].parameters(), 0.1), torch.optim.Adam(m[1].parameters(), 0.1)),
    "muon and adamw": muon,
    "groups": lambda m: (
        torch.optim.SGD([{"params": [m[0].weight], "lr": 0.1}, {"params": [m[0].bias], "lr": 0.3}]),
        torch.optim.AdamW([{"params": [m[1].weight]}, {"params": [m[1].bias], "weight_decay": 0.5}], lr=0.2),
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_each_parameter_is_read_around_the_step_of_its_optimizer(desk, pair):
    model = two_layers()
    training = Training(desk, model, *PAIRS[pair](model))
    updates, grads, one = desk.ask(UPDATES), desk.ask(GRADS), desk.ask("batch.updates['1.bias']")
    training.step()
    for _ in range(3):
        training.step()
        assert desk.values(updates)[-1] == pytest.approx(numbers(training.updates), rel=1e-6)
        assert desk.values(grads)[-1] == pytest.approx(numbers(training.grads), rel=1e-6)
        assert torch.equal(torch.as_tensor(desk.values(one)[-1]), training.updates["1.bias"])
    assert list(desk.values(updates)[-1]) == ["0.weight", "0.bias", "1.weight", "1.bias"]


def test_parameters_may_change_places_between_optimizers(desk):
    model = two_layers()
    pair = [torch.optim.SGD(layer.parameters(), rate) for layer, rate in zip(model, (0.1, 0.2), strict=True)]
    training = Training(desk, model, *pair)
    updates, grads = desk.ask(UPDATES), desk.ask(GRADS)
    training.step()
    training.step()
    first, second = (optimizer.param_groups[0] for optimizer in pair)
    first["params"], second["params"] = second["params"], first["params"]
    for _ in range(2):
        training.step()
        assert desk.values(updates)[-1] == pytest.approx(numbers(training.updates), rel=1e-6)
        assert desk.values(grads)[-1] == pytest.approx(numbers(training.grads), rel=1e-6)


def test_an_update_is_never_told_of_a_parameter_that_no_given_optimizer_holds(desk):
    model = two_layers()
    first, second = PAIRS["sgd and adam"](model)
    training = Training(desk, model, first, second, watched=first)
    updates, grads = desk.ask(UPDATES), desk.ask(GRADS)
    other = desk.ask("batch.updates['1.weight'].norm()")
    training.step()
    training.step()
    wanted = {name: value for name, value in numbers(training.updates).items() if name[0] == "0"}
    assert desk.one(updates) == pytest.approx(wanted)
    assert desk.one(grads) == pytest.approx(numbers(training.grads))  # those of the second where they are accumulated
    assert other.suspended
    assert desk.values(other) == []
    assert "'1.weight'" in str(other.last_error)
    assert "watch(…, optimizer=[…])" in str(other.last_error)
    with sg.connect(desk.run) as client:
        told = client.describe().events["batch"].observables
    assert set(told["updates"].fields) == {"0.weight", "0.bias"}
    assert set(told["grads"].fields) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_an_optimizer_of_another_module_gives_no_update(desk):
    training = Training(desk, two_layers(), torch.optim.SGD(two_layers().parameters(), 0.1))
    updates = desk.ask(UPDATES)
    training.step()
    training.step()
    assert updates.suspended
    assert "of the module" in str(updates.last_error)
    assert desk.values(updates) == []


def test_of_a_parameter_that_two_optimizers_hold_the_last_step_counts(desk):
    model = two_layers()
    shared = model[0].weight
    first = torch.optim.SGD([shared], lr=0.5)
    second = torch.optim.Adam([shared, model[1].weight], lr=0.1)
    training = Training(desk, model, first, second)
    updates = desk.ask(UPDATES)
    training.step()
    training.step()
    assert desk.one(updates) == pytest.approx(numbers(training.updates))
    assert set(desk.one(updates)) == {"0.weight", "1.weight"}
    first.zero_grad()
    model(torch.randn(5, 8)).sum().backward()
    before = shared.detach().clone()
    first.step()  # this time the other one makes no step
    desk.run.observe("batch")
    assert desk.values(updates)[-1] == {"0.weight": pytest.approx(float((shared.detach() - before).norm()))}


def test_an_adversarial_training_in_one_module(desk):
    """Gradients of the discriminator gathered in the generator's step are not those of its own step."""
    model = nn.ModuleDict({"generator": nn.Linear(3, 8), "critic": nn.Linear(8, 1)})
    opts = [torch.optim.Adam(model[part].parameters(), lr=0.1) for part in ("generator", "critic")]
    sgt.watch(model, desk.run, optimizer=opts)
    grads, updates = desk.ask(GRADS), desk.ask(UPDATES)
    for _ in range(2):
        wanted_grads, wanted = {}, {}
        for part, opt, sign in (("critic", opts[1], 1), ("generator", opts[0], -1)):
            opt.zero_grad()
            (sign * model["critic"](model["generator"](torch.randn(5, 3))).mean()).backward()
            own = {f"{part}.{name}": p for name, p in model[part].named_parameters()}
            before = {name: p.detach().clone() for name, p in own.items()}
            opt.step()
            wanted |= {name: float((p.detach() - before[name]).norm()) for name, p in own.items()}
            wanted_grads |= {name: float(p.grad.norm()) for name, p in own.items()}
        desk.run.observe("batch")
    assert desk.one(grads) == pytest.approx(wanted_grads)
    assert desk.one(updates) == pytest.approx(wanted)


def test_settings_and_state_by_optimizer(desk):
    model = two_layers()
    first = torch.optim.SGD(model[0].parameters(), 0.1, momentum=0.9)
    second = torch.optim.Adam([{"params": [p], "name": n} for n, p in model[1].named_parameters()], lr=0.2)
    training = Training(desk, model, first, second)
    rates = desk.ask("batch.optimizer.lr")
    moment = desk.ask("batch.optimizer['1'].state['1.bias'].exp_avg_sq")
    states = desk.ask("(len(batch.optimizer['0'].state), len(batch.optimizer['1'].state))")
    training.step()
    assert desk.one(rates) == {"0": 0.1, "1": {"weight": 0.2, "bias": 0.2}}
    assert torch.equal(torch.as_tensor(desk.one(moment)), second.state[model[1].bias]["exp_avg_sq"])
    assert desk.one(states) == (2, 2)


def test_controls_of_each_optimizer(desk):
    model = two_layers()
    first = torch.optim.SGD(model[0].parameters(), 0.1)
    second = torch.optim.AdamW([{"params": [p], "name": n} for n, p in model[1].named_parameters()], lr=0.2)
    watch = sgt.watch(model, desk.run, optimizer=[first, second])
    controls = desk.telemetry.commands.queue.controls
    of_second = [f"optimizer.1.{group}.{key}" for group in ("bias", "weight") for key in ("lr", "weight_decay")]
    of_all = [
        "optimizer.0.lr",
        "optimizer.0.lr_scale",
        "optimizer.0.weight_decay",
        "optimizer.1.lr",
        "optimizer.1.lr_scale",
    ]
    assert sorted(controls) == sorted([*of_all, *of_second])
    controls["optimizer.1.bias.lr"].set(0.5)
    controls["optimizer.0.lr"].set(0.25)
    assert (first.param_groups[0]["lr"], [group["lr"] for group in second.param_groups]) == (0.25, [0.2, 0.5])
    watch.close()
    sgt.watch(model, desk.run, optimizer=[first])
    assert sorted(controls) == ["optimizer.lr", "optimizer.lr_scale", "optimizer.weight_decay"]


@pytest.mark.parametrize("given", [[], ()])
def test_no_optimizer_in_a_list_is_none(desk, given):
    model = two_layers()
    sgt.watch(model, desk.run, optimizer=given)
    grads = desk.ask(GRADS)
    for _ in range(2):
        model(torch.randn(5, 8)).square().mean().backward()
        desk.run.observe("batch")
    assert set(desk.one(grads)) == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_the_same_optimizer_twice_is_one(desk):
    model = two_layers()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    sgt.watch(model, desk.run, optimizer=[opt, opt])
    assert "optimizer.lr" in desk.telemetry.commands.queue.controls


def test_wrong_arguments(desk):
    opt = torch.optim.SGD(two_layers().parameters(), 0.1)
    with pytest.raises(TypeError, match=r"torch\.optim, got float"):
        sgt.watch(two_layers(), desk.run, optimizer=[opt, 0.1])
    with pytest.raises(TypeError, match=r"torch\.optim, got str"):
        sgt.watch(two_layers(), desk.run, optimizer="adam")


def test_hooks_are_on_the_optimizers_of_what_is_asked_only(desk, n_hooks):
    model = two_layers()
    training = Training(desk, model, *PAIRS["sgd and adam"](model))
    first, second = training.optimizers
    update = desk.ask("batch.updates['1.bias'].norm()")
    training.step()
    assert (n_hooks(model, first), n_hooks(model, second)) == (0, 2)
    grad = desk.ask("batch.grads['0.bias'].norm()")
    training.step()
    assert (n_hooks(model, first), n_hooks(model, second), training.watch.n_hooks) == (1, 2, 3)
    desk.leave(update, grad)
    training.step()
    assert n_hooks(model, *training.optimizers) == 0


def test_copies_of_an_optimizer_that_is_asked_carry_no_hook(desk, n_hooks):
    model = two_layers()
    training = Training(desk, model, *PAIRS["sgd and adam"](model))
    desk.ask(UPDATES)
    training.step()
    training.step()
    file = io.BytesIO()
    torch.save(training.optimizers, file)
    file.seek(0)
    for other in (*copy.deepcopy(training.optimizers), *torch.load(file, weights_only=False)):
        assert n_hooks(nn.Module(), other) == 0


@pytest.fixture
def n_clones(monkeypatch):
    """Return a list that gets the bytes of each clone of a tensor."""
    made, clone = [], torch.Tensor.clone

    def counted(self, **options):
        made.append(self.nbytes)
        return clone(self, **options)

    monkeypatch.setattr(torch.Tensor, "clone", counted)
    return made


def test_only_what_is_asked_is_copied_and_only_for_events_that_are_evaluated(desk, n_clones, monkeypatch):
    model = two_layers()
    opt = torch.optim.SGD(model.parameters(), 0.1)
    sgt.watch(model, desk.run, optimizer=opt)
    update, _ = desk.ask("batch.updates['0.bias'].norm()"), desk.ask("batch.updates['0.bias'].max()")

    def step():
        model(torch.randn(5, 8)).square().mean().backward()
        n_clones.clear()
        opt.step()
        copied = [*n_clones]
        desk.run.observe("batch")
        return copied

    assert step() == []
    assert step() == [8 * 4]
    assert step() == []  # into the same memory
    desk.leave(_)
    update.stride = 4
    step()  # it is known at an event whether the next one is evaluated
    n_rows = len(desk.values(update))
    copies = []
    remember = OptimizerSteps._copied
    monkeypatch.setattr(OptimizerSteps, "_copied", lambda *args: copies.append(args) or remember(*args))
    for _ in range(16):
        step()
    assert len(copies) == len(desk.values(update)) - n_rows == 4


def test_updates_beyond_the_limit_are_refused_with_their_size():
    desk = Desk(limits=sg.Limits(max_event_s=5.0))
    model = nn.Sequential(*(nn.Linear(2048, 2048, bias=False) for _ in range(5)))  # 16 MiB each
    opt = torch.optim.SGD(model.parameters(), 0.1)
    sgt.watch(model, desk.run, optimizer=opt)
    first = desk.ask("batch.updates['0.weight'].norm()")
    every, three = desk.ask(UPDATES), desk.ask(" + ".join(f"batch.updates['{i}.weight'].norm()" for i in (1, 2, 3)))
    fifth = desk.ask("batch.updates['4.weight'].norm()")
    for _ in range(2):
        model(torch.randn(1, 2048)).sum().backward()
        opt.step()
        desk.run.observe("batch")
    assert (first.suspended, every.suspended, three.suspended, fifth.suspended) == (False, True, False, True)
    assert isinstance(every.last_error, RefusedError)
    assert re.search("5 parameters .*80 MiB; at most 64 MiB", str(every.last_error))
    assert len(desk.values(first)) == len(desk.values(three)) == 1
    desk.run.close()


def test_copies_that_take_too_long_are_not_made(desk, n_clones):
    model = two_layers()
    training = Training(desk, model, torch.optim.SGD(model.parameters(), 0.1))
    desk.ask("batch.updates['0.weight'].norm()")
    training.step()
    (work,) = training.watch._queries.works
    assert 1e-9 < work.meter.copy_s < 1e-5  # of 256 bytes
    training.watch._queries.choose(1, 1e-9)
    assert training.watch.due("updates") == []
    error = work.hand_over()
    assert isinstance(error, PriceError)
    assert "the copies" in str(error)
    training.watch._queries.choose(1, 1.0)
    assert training.watch.due("updates") == ["0.weight"]


def test_one_large_parameter_can_be_asked():
    desk = Desk(limits=sg.Limits(max_event_s=5.0))
    model = nn.Linear(4096, 4096 + 1024, bias=False)  # 80 MiB
    opt = torch.optim.SGD(model.parameters(), 0.1)
    sgt.watch(model, desk.run, optimizer=opt)
    update = desk.ask("batch.updates.weight.norm()")
    for _ in range(2):
        model(torch.randn(1, 4096)).sum().backward()
        opt.step()
        desk.run.observe("batch")
    assert desk.one(update) > 0
    desk.run.close()


def test_a_copy_that_fails_costs_the_query_and_not_the_step(desk, monkeypatch):
    model = two_layers()
    training = Training(desk, model, torch.optim.SGD(model.parameters(), 0.1))
    update, grad = desk.ask("batch.updates['0.bias'].norm()"), desk.ask("batch.grads['0.bias'].norm()")
    training.step()

    def broken(tensor):
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr("sightglass.torch.optimizer_steps.local", broken)
        for _ in range(3):
            training.step()
    assert update.suspended
    assert "no memory" in str(update.last_error)
    assert len(desk.values(grad)) == 3


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # by PyTorch's compiler itself
def test_a_compiled_step_is_not_compiled_again(desk):
    model = two_layers()
    first, second = PAIRS["sgd and adam"](model)
    sgt.watch(model, desk.run, optimizer=[first, second])
    programs = []

    def backend(graph, example):
        programs.append(graph)
        return graph.forward

    compiled = torch.compile(second.step, backend=backend)

    def step():
        model(torch.randn(5, 8)).square().mean().backward()
        wanted = float(model[1].weight.grad.norm())
        first.step()
        compiled()
        model.zero_grad()
        desk.run.observe("batch")
        return wanted

    try:
        for _ in range(3):
            step()
        n_compiled = len(programs)
        assert n_compiled
        all_of_them, update = desk.ask(UPDATES), desk.ask("batch.updates['1.weight'].norm()")
        grad = desk.ask("batch.grads['1.weight'].norm()")
        step()
        wanted = [step(), step()]
        assert desk.values(grad) == pytest.approx(wanted)
        assert set(desk.values(all_of_them)[-1]) == {"0.weight", "0.bias"}
        assert "the optimizer's step is compiled" in str(update.last_error)
        desk.leave(all_of_them, update, grad)
        step()
        assert len(programs) == n_compiled
    finally:
        torch.compiler.reset()


TIED = ("{}.params", "{}.grads", "{}.updates", "{}.optimizer.state")


@pytest.mark.parametrize("place", TIED)
def test_a_tied_weight_has_both_of_its_names_and_is_listed_once(desk, place):
    model = nn.Sequential(nn.Embedding(8, 4), nn.Linear(4, 8, bias=False))
    model[1].weight = model[0].weight
    optimizer = torch.optim.Adam(model.parameters())
    sgt.watch(model, desk.run, optimizer=optimizer)
    at = place.format("b")
    of = ".exp_avg" if "state" in at else ""
    each = [desk.ask(f"on('batch').map(lambda b: {at}['{name}']{of}.norm())") for name in ("0.weight", "1.weight")]
    listed = desk.ask(f"on('batch').map(lambda b: {at}.map(lambda name, x: x{of}.norm()).keys())")
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.arange(8)).square().mean().backward()
        optimizer.step()
        desk.run.observe("batch")
    assert desk.values(each[0])[-1] == desk.values(each[1])[-1] > 0
    assert desk.values(listed)[-1] == ["0.weight"]
