"""A watched module: what is offered, when it is taken, and that it is left as it was."""

from __future__ import annotations

import gc
import re
import weakref

import pytest
import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt


def small():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2))


class Loop:
    """A training loop of one step, watched; `zero` says how gradients are cleared before the event."""

    def __init__(self, desk, model=None, *, optimizer=True, zero="none", watch=True, **options):
        self.model = model or small()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.zero = zero
        self.run = desk.run
        self.watch = (
            sgt.watch(self.model, desk.run, optimizer=self.opt if optimizer else None, **options) if watch else None
        )
        self.grads: dict[str, torch.Tensor] = {}

    def step(self, x=None, *, observe=True):
        x = torch.randn(5, 4) if x is None else x
        loss = self.model(x).square().mean()
        loss.backward()
        self.grads = {name: p.grad.clone() for name, p in self.model.named_parameters() if p.grad is not None}
        self.opt.step()
        if self.zero is not None:
            self.opt.zero_grad(set_to_none=self.zero == "none")
        if observe:
            self.run.observe("batch", loss=loss.item())


@pytest.mark.parametrize("optimizer", [True, False])
@pytest.mark.parametrize("zero", ["none", "in place"])
def test_gradients_are_those_of_the_step_however_they_are_cleared(desk, optimizer, zero):
    loop = Loop(desk, optimizer=optimizer, zero=zero)
    norms = desk.ask("batch.grads.map(lambda name, g: norm(g))")
    one = desk.ask("batch.grads['2.weight']")
    loop.step()
    loop.step()
    assert desk.one(norms) == pytest.approx({name: float(g.norm()) for name, g in loop.grads.items()})
    assert torch.equal(torch.as_tensor(desk.one(one)), loop.grads["2.weight"])
    assert list(desk.one(norms)) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_buffers_are_read_at_the_event(desk):
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    loop = Loop(desk, model)
    mean = desk.ask("batch.buffers['1.running_mean']")
    sizes = desk.ask("batch.buffers.map(lambda name, x: x.size)")
    for _ in range(2):
        loop.step()
        assert torch.equal(torch.as_tensor(desk.values(mean)[-1]), model[1].running_mean)
    assert desk.values(sizes)[-1] == {"1.running_mean": 3, "1.running_var": 3, "1.num_batches_tracked": 1}
    with sg.connect(desk.run) as client:
        told = client.describe().events["batch"].observables["buffers"]
    assert told.fields["1.num_batches_tracked"] == "int64[]"


def test_activations_are_taken_before_they_are_overwritten_in_place(desk):
    loop = Loop(desk)
    before, after = desk.ask("batch.activations['0']"), desk.ask("batch.activations['1']")
    loop.step()
    x = torch.randn(5, 4)
    wanted = nn.functional.linear(x, loop.model[0].weight, loop.model[0].bias).detach()
    loop.step(x)
    assert wanted.min() < 0
    assert torch.equal(torch.as_tensor(desk.one(before)), wanted)
    assert torch.equal(torch.as_tensor(desk.one(after)), wanted.relu())


def test_gradients_of_activations_are_those_of_what_a_module_returned(desk, n_hooks):
    loop = Loop(desk)
    flow = desk.ask("batch.activation_grads.map(lambda name, g: norm(g))")
    hidden = desk.ask("batch.activation_grads['0']")  # which the module behind it overwrites in place
    whole = desk.ask("batch.activation_grads['']")
    loop.step()
    x = torch.randn(5, 4)
    weights = [p.detach().clone() for p in loop.model.parameters()]
    loop.step(x)
    a, b, c, d = weights
    before = (x @ a.T + b).requires_grad_()
    after = before.clamp(min=0) @ c.T + d
    back = torch.autograd.grad(after.square().mean(), [before, after])
    assert torch.allclose(torch.as_tensor(desk.one(hidden)), back[0])
    assert torch.allclose(torch.as_tensor(desk.one(whole)), back[1])
    assert list(desk.one(flow)) == ["0", "1", "2"]
    desk.leave(flow, hidden, whole)
    loop.step()
    assert n_hooks(loop.model) == 0


def test_parameters_without_a_gradient_have_none(desk):
    loop = Loop(desk)
    flow = desk.ask("batch.activation_grads['2']")
    loop.step()
    with torch.no_grad():
        loop.model(torch.randn(5, 4))
    desk.run.observe("batch", loss=0.0)
    assert desk.values(flow) == []


def test_parameters_are_read_at_the_event_and_are_not_changed_later(desk):
    loop = Loop(desk)
    kept = desk.ask("batch.params['0.weight'][0:2]")
    loop.step()
    wanted = loop.model[0].weight[0:2].detach().clone()
    loop.step()
    first, second = desk.values(kept)
    assert torch.equal(torch.as_tensor(first), wanted)
    assert not torch.equal(torch.as_tensor(second), wanted)


def test_updates_are_what_the_step_changed(desk):
    loop = Loop(desk)
    ratio = desk.ask("batch.updates.map(lambda name, u: norm(u) / norm(batch.params[name]))")
    update = desk.ask("batch.updates['0.bias']")
    loop.step()
    before = {name: p.detach().clone() for name, p in loop.model.named_parameters()}
    loop.step()
    wanted = {n: float((p - before[n]).detach().norm() / p.detach().norm()) for n, p in loop.model.named_parameters()}
    assert desk.one(ratio) == pytest.approx(wanted)
    assert torch.equal(torch.as_tensor(desk.one(update)), loop.model[0].bias.detach() - before["0.bias"])


def test_settings_and_state_of_the_optimizer(desk):
    loop = Loop(desk)
    lr = desk.ask("batch.optimizer.lr")
    buffer = desk.ask("batch.optimizer.state['0.bias'].momentum_buffer")
    loop.step()
    loop.step()
    assert desk.values(lr) == [0.1, 0.1]
    state = loop.opt.state[loop.model[0].bias]["momentum_buffer"]
    assert torch.equal(torch.as_tensor(desk.values(buffer)[-1]), state)


def test_dead_units_and_questions_of_several_tensors(desk):
    loop = Loop(desk)
    dead = desk.ask("batch.activations['1'].max(axis=0) == 0")
    both = desk.ask("batch.grads['0.bias'].norm() * batch.loss + batch.params['0.bias'].norm()")
    loop.model[0].bias.data[:3] = -100.0
    loop.step()
    loop.step()
    assert desk.one(dead).tolist()[:3] == [True, True, True]
    assert desk.one(both) > 0


def test_there_are_hooks_only_while_a_query_needs_that_very_tensor(desk, n_hooks):
    loop = Loop(desk)
    loop.step()
    before = n_hooks(loop.model, loop.opt)
    loss, params = desk.ask("batch.loss"), desk.ask("batch.params.map(lambda n, p: norm(p))")
    loop.step()
    assert n_hooks(loop.model, loop.opt) == before == 0
    relu = desk.ask("batch.activations['1'].mean()")
    loop.step()
    assert n_hooks(loop.model, loop.opt) == n_hooks(loop.model[1]) == 1
    grads = desk.ask("batch.grads['0.bias'].norm()")
    loop.step()
    assert n_hooks(loop.model, loop.opt) == loop.watch.n_hooks == 2
    desk.leave(relu)
    loop.step()
    assert n_hooks(loop.model, loop.opt) == 1
    desk.leave(grads, loss, params)
    loop.step()
    assert n_hooks(loop.model, loop.opt) == loop.watch.n_hooks == 0
    assert "batch" in desk.telemetry.subscriptions.idle


def test_hooks_without_an_optimizer_are_on_the_parameter_asked(desk, n_hooks):
    loop = Loop(desk, optimizer=False)
    answer = desk.ask("batch.grads['2.bias'].norm()")
    loop.step()
    assert n_hooks(loop.model, loop.opt) == 1
    assert len(loop.model[2].bias._post_accumulate_grad_hooks) == 1
    desk.leave(answer)
    loop.step()
    assert n_hooks(loop.model, loop.opt) == 0


@pytest.mark.parametrize("how", ["run", "watch"])
def test_none_are_left_at_the_end(desk, n_hooks, how):
    loop = Loop(desk)
    desk.ask("batch.activations.map(lambda n, a: a.mean())")
    desk.ask("batch.updates.map(lambda n, u: norm(u))")
    loop.step()
    assert n_hooks(loop.model, loop.opt) == 5
    (desk.run if how == "run" else loop.watch).close()
    assert n_hooks(loop.model, loop.opt) == 0
    loop.step()


def kept_graph(model):
    """Call a model, let go of what came out, and count what its graph still keeps; PyTorch itself keeps some."""
    saved = []

    class Kept:
        """What a graph keeps in a tensor's place, as long as there is the graph."""

        def __init__(self, tensor):
            self.tensor = tensor
            saved.append(weakref.ref(self))

    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.tensor):
        model(torch.randn(5, 4)).sum()
    gc.collect()
    return len(saved), sum(kept() is not None for kept in saved)


def test_an_activation_holds_no_graph(desk):
    loop = Loop(desk)
    wanted = kept_graph(loop.model)
    desk.ask("batch.activations.map(lambda n, a: a)")
    loop.step()
    assert kept_graph(loop.model) == wanted
    assert {name: a.grad_fn for name, a in loop.watch._queries.works[0].found.items()} == {
        "0": None,
        "1": None,
        "2": None,
    }


def test_an_event_without_a_step_is_skipped(desk):
    loop = Loop(desk)
    norm, loss = desk.ask("batch.grads['0.bias'].norm()"), desk.ask("batch.loss")
    loop.step()
    loop.step()
    desk.run.observe("batch", loss=0.5)
    loop.step()
    assert len(desk.values(norm)) == 2
    assert len(desk.values(loss)) == 4
    assert (norm.n_errors, norm.suspended) == (0, False)


def test_the_last_call_before_the_event_counts(desk):
    loop = Loop(desk)
    answer = desk.ask("batch.activations['0'].mean()")
    loop.step()
    loop.step(observe=False)
    x = torch.randn(5, 4)
    wanted = float(nn.functional.linear(x, loop.model[0].weight, loop.model[0].bias).detach().mean())
    loop.step(x)
    assert desk.one(answer) == pytest.approx(wanted)


def test_a_tensor_that_two_names_share_is_listed_once_and_found_by_both(desk):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, x):
            return self.head(self.embed(x))

    loop = Loop(desk, Tied())
    each = desk.ask("batch.grads.map(lambda n, g: norm(g))")
    params = desk.ask("batch.params.map(lambda n, p: norm(p))")
    names = [desk.ask(f"batch.grads['{name}.weight'].norm()") for name in ("embed", "head")]
    loop.step()
    loop.step()
    assert list(desk.one(each)) == list(desk.values(params)[0]) == ["embed.weight"]
    assert desk.one(names[0]) == desk.one(names[1]) == desk.one(each)["embed.weight"]


def test_a_lazy_module_is_watched_before_it_knows_its_shape(desk):
    model = nn.Sequential(nn.LazyLinear(6), nn.ReLU(), nn.LazyLinear(2))
    sgt.watch(model, desk.run)
    answer = desk.ask("batch.params.map(lambda n, p: p.size)")
    grads = desk.ask("batch.grads.map(lambda n, g: g.size)")
    desk.run.observe("batch")
    for _ in range(2):
        model(torch.randn(3, 4)).sum().backward()
        desk.run.observe("batch")
    wanted = {"0.weight": 24, "0.bias": 6, "2.weight": 12, "2.bias": 2}
    assert answer.last_error is None
    assert desk.values(answer) == [{}, wanted, wanted]
    assert desk.values(grads)[-1] == wanted


def test_mixed_precision(desk):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    types = desk.ask("batch.activations.map(lambda n, a: a.dtype)")
    mean = desk.ask("batch.activations['0']")
    for _ in range(2):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loop.step()
    assert desk.one(types) == {"0": "bfloat16", "1": "bfloat16", "2": "bfloat16"}
    assert str(desk.one(mean).dtype) == "float32"  # which holds every bfloat16


@pytest.mark.parametrize("fused", [True, False])
def test_scaled_gradients_are_shown_as_the_step_used_them(desk, fused):
    model = small()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    sgt.watch(model, desk.run, optimizer=opt)
    answer = desk.ask("batch.grads['2.bias']")
    for _ in range(2):
        opt.zero_grad()
        loss = model(torch.randn(5, 4)).square().mean()
        (wanted,) = torch.autograd.grad(loss, [model[2].bias], retain_graph=True)
        scaler.scale(loss).backward()
        scaler.step(opt)
        scaler.update()
        desk.run.observe("batch")
    assert desk.one(answer) == pytest.approx(wanted.numpy(), rel=1e-5)


def test_clipped_gradients_are_shown_as_the_step_used_them(desk):
    loop = Loop(desk)
    answer = desk.ask("batch.grads.map(lambda n, g: norm(g)**2).values().sum()**0.5")
    for _ in range(2):
        loop.model(torch.randn(5, 4)).square().sum().backward()
        nn.utils.clip_grad_norm_(loop.model.parameters(), 0.25)
        loop.opt.step()
        loop.opt.zero_grad()
        desk.run.observe("batch")
    assert desk.one(answer) == pytest.approx(0.25, rel=1e-4)


def test_unknown_names_are_refused_with_the_known_ones(desk):
    loop = Loop(desk)
    module, parameter = desk.ask("batch.activations['9'].mean()"), desk.ask("batch.grads['2.weihgt'].norm()")
    loop.step()
    assert module.suspended
    assert parameter.suspended
    assert str(module.last_error) == "Unknown module '9'. Known: 0, 1, 2."
    assert re.search("'2.weihgt'.*'2.weight'", str(parameter.last_error))


def test_under_a_transformation_the_error_says_what_to_offer(desk):
    loop = Loop(desk)
    asked = desk.ask("batch.activations['0'].mean()")
    for _ in range(2):
        per_sample = torch.func.vmap(loop.model)(torch.randn(5, 4))
        desk.run.observe("batch")
    assert per_sample.shape[0] == 5
    assert "torch.func" in str(asked.last_error)


def test_an_error_in_a_part_costs_the_query_and_not_the_run(desk, n_hooks):
    loop = Loop(desk)
    desk.run.function("broken", lambda x: 1 / 0)
    answer = desk.ask("batch.grads.map(lambda n, g: broken(g))")
    fine = desk.ask("batch.grads['0.bias'].norm()")
    for _ in range(5):
        loop.step()
    assert answer.suspended
    assert "ZeroDivisionError" in str(answer.last_error)
    assert len(desk.values(fine)) == 4


def test_large_tensors_are_refused_before_they_are_copied(desk):
    loop = Loop(desk, nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2**22 + 2**18)))
    answer = desk.ask("batch.grads")
    for _ in range(4):
        loop.step(torch.randn(1, 4))
    assert answer.suspended
    assert "64 MiB" in str(answer.last_error)


def test_several_modules_of_one_event(desk, n_hooks):
    one, two = small(), small()
    opts = [torch.optim.SGD(m.parameters(), lr=lr) for m, lr in ((one, 0.1), (two, 0.2))]
    for model, opt, name in zip((one, two), opts, ("generator", "critic"), strict=True):
        sgt.watch(model, desk.run, optimizer=opt, name=name)
    lr = desk.ask("(batch.generator.optimizer.lr, batch.critic.optimizer.lr)")
    norms = desk.ask("(batch.generator.grads['0.bias'].norm(), batch.critic.activations['0'].std())")
    for _ in range(2):
        for model, opt in zip((one, two), opts, strict=True):
            model(torch.randn(5, 4)).sum().backward()
            opt.step()
        desk.run.observe("batch")
    assert desk.values(lr) == [(0.1, 0.2)] * 2
    assert len(desk.one(norms)) == 2
    assert {"generator.optimizer.lr", "critic.optimizer.weight_decay"} <= desk.telemetry.commands.queue.controls.keys()
    assert n_hooks(one, opts[0]) == 1 == n_hooks(two, opts[1])


def test_watching_again_takes_the_place_of_the_first(desk, n_hooks):
    first = Loop(desk)
    answer = desk.ask("batch.grads['0.bias'].norm()")
    first.step()
    second = Loop(desk)
    second.step()
    second.step()
    assert n_hooks(first.model, first.opt) == 0
    assert n_hooks(second.model, second.opt) == 1
    assert desk.values(answer)[-1] == pytest.approx(float(second.grads["0.bias"].norm()))


def test_asking_before_watching(desk):
    desk.ask("batch.loss")
    desk.run.observe("batch", loss=1.0)
    loop = Loop(desk)
    answer = desk.ask("batch.grads['0.bias'].norm()")
    loop.step()
    loop.step()
    assert desk.one(answer) == pytest.approx(float(loop.grads["0.bias"].norm()))


def test_a_query_of_the_same_text_shares_the_work(desk):
    loop = Loop(desk)
    first = desk.ask("batch.grads['0.bias'].norm()")
    loop.step()
    second = desk.ask("batch.grads['0.bias'].norm()")
    loop.step()
    loop.step()
    assert len(loop.watch._queries.works) == 1
    assert desk.values(first) == desk.values(second)
    assert len(desk.values(first)) == 2


def test_reducers_and_windows_behind_a_part(desk):
    loop = Loop(desk)
    answer = desk.ask("batch.grads['0.bias'].norm().mean(every=2)")
    wanted = []
    for _ in range(4):
        loop.step()
        wanted.append(float(loop.grads["0.bias"].norm()))
    assert desk.values(answer) == pytest.approx([wanted[1], (wanted[2] + wanted[3]) / 2])


def test_a_thinned_query_computes_only_for_its_events(desk):
    loop = Loop(desk)
    calls = []
    desk.run.function("noted", lambda x: (calls.append(1), x)[1])
    answer = desk.ask("batch.grads['0.bias'].map(lambda g: g).norm() + noted(batch.grads['0.bias']).sum() * 0")
    answer = desk.ask("noted(batch.grads['0.bias']).sum()")
    answer.stride = 4
    for _ in range(13):
        loop.step()
    assert answer.n_skipped == 9
    assert len(desk.values(answer)) == 3  # of events 4, 8, 12; at event 0 the hook was not there yet


def test_modules_that_return_several_tensors(desk):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 2)

        def forward(self, x):
            return self.head(self.lstm(x[:, None])[0][:, 0])

    loop = Loop(desk, Two())
    each = desk.ask("batch.activations.map(lambda n, a: a.shape)")
    hidden = desk.ask("batch.activations.lstm[1][0].shape")
    loop.step()
    loop.step()
    assert desk.one(each) == {"lstm[0]": (5, 1, 3), "lstm[1][0]": (1, 5, 3), "lstm[1][1]": (1, 5, 3), "head": (5, 2)}
    assert desk.one(hidden) == (1, 5, 3)


def test_a_deleted_module_has_no_observables(desk):
    loop = Loop(desk)
    desk.ask("batch.params.map(lambda n, p: norm(p))")
    loop.step()
    gone = weakref.ref(loop.model)
    del loop
    gc.collect()
    assert gone() is None
    desk.run.observe("batch", loss=1.0)


def test_wrong_arguments(desk):
    with pytest.raises(TypeError, match=r"torch\.nn\.Module.*got function"):
        sgt.watch(lambda x: x, desk.run)
    with pytest.raises(TypeError, match=r"torch\.optim, got float"):
        sgt.watch(small(), desk.run, optimizer=0.1)
    with pytest.raises(ValueError, match="dots"):
        sgt.watch(small(), desk.run, name="a.b")


def test_a_disabled_run_watches_nothing():
    with sg.init("t", mode="disabled") as run:
        assert sgt.watch(small(), run) is None


def test_describe_lists_the_observables(desk):
    loop = Loop(desk)
    loop.step()
    with sg.connect(desk.run) as client:
        told = client.describe().events["batch"].observables
        assert told["params"].fields["0.weight"] == "float32[6, 4]"
        assert told["activations"].fields == {"0": "Linear", "1": "ReLU", "2": "Linear"}
        assert [*told] == [
            "loss", "step", "params", "buffers", "grads", "updates", "activations", "inputs", "activation_grads",
            "eval_activations", "eval_inputs", "optimizer", "rank",
        ]  # fmt: skip
        stream = client.stream(sg.on("batch").map(lambda b: b.grads.map(lambda name, g: abs(g).mean())))
        loop.step()
        loop.step()
        assert stream.wait(1)
        assert list(stream.latest.value) == ["0.weight", "0.bias", "2.weight", "2.bias"]
