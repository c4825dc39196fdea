"""What a program does with a watched module: it copies, saves, sends and computes the same as without queries."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

import sightglass as sg
import sightglass.torch as sgt

EVERYTHING = (
    "batch.activations.map(lambda n, a: abs(a).mean())",
    "batch.activation_grads.map(lambda n, g: g.norm())",
    "batch.activations['']",
    "batch.grads.map(lambda n, g: g.norm())",
    "batch.updates.map(lambda n, u: u.norm())",
    "batch.params.map(lambda n, p: p.sample(16))",
)


def small():
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(6, 2))


class Loop:
    """A training whose module is watched, and asked by a client about everything."""

    def __init__(self, desk, model=None, **options):
        self.model = model or small()
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.run = desk.run
        self.watch = sgt.watch(self.model, desk.run, optimizer=self.opt, **options)
        self.client = sg.connect(desk.run)

    def ask(self, *queries):
        """Open streams, and let two steps pass."""
        streams = [self.client.stream(query) for query in queries or EVERYTHING]
        self.step()
        self.step()
        return streams

    def step(self):
        self.opt.zero_grad()
        loss = self.model(torch.randn(5, 4)).square().mean()
        loss.backward()
        self.opt.step()
        self.run.observe("batch", loss=loss.item())
        return loss.detach()


@pytest.fixture
def loop(desk):
    loop = Loop(desk)
    yield loop
    loop.client.close()


def saved(model):
    file = io.BytesIO()
    torch.save(model, file)
    return file.getvalue()


def test_a_checkpoint_has_the_same_bytes_while_a_client_asks(loop):
    loop.step()
    things = loop.model, loop.model.state_dict(), loop.opt.state_dict(), loop.opt
    wanted = [(saved(thing), pickle.dumps(thing)) for thing in things]
    streams = [loop.client.stream(query) for query in EVERYTHING]
    for _ in range(2):
        loop.model(torch.randn(5, 4)).sum()
        loop.run.observe("batch", loss=0.0)
    assert streams[0].wait(1)
    assert loop.watch.n_hooks > 4
    assert [(saved(thing), pickle.dumps(thing)) for thing in things] == wanted


def test_a_checkpoint_loads_without_this_package(loop, tmp_path):
    loop.ask()
    torch.save(loop.model, tmp_path / "model.pt")
    program = (
        "import sys, torch\n"
        "model = torch.load(sys.argv[1], weights_only=False)\n"
        "model(torch.ones(1, 4))\n"
        "assert not any(name.startswith('sightglass') for name in sys.modules)\n"
        "print(sum(len(m._forward_hooks) for m in model.modules()))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "model.pt")], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "0"


@pytest.mark.parametrize(
    "how", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), AveragedModel], ids=["deepcopy", "pickle", "EMA"]
)
def test_a_copy_has_no_hook_and_feeds_no_answer(loop, n_hooks, how):
    mean = loop.ask(*EVERYTHING[:2], "batch.activations['0'].mean()")[-1]
    twin = how(loop.model)
    assert n_hooks(twin) == 0
    x = torch.randn(5, 4)
    wanted = float(nn.functional.linear(x, loop.model[0].weight, loop.model[0].bias).detach().mean())
    loop.model(x)
    twin(x + 100.0).sum().backward()
    loop.run.observe("batch", loss=0.0)
    assert mean.wait(2)[-1].value == pytest.approx(wanted, abs=1e-6)


def test_a_module_with_pickling_of_its_own_is_copied_too(desk, n_hooks):
    class Own(nn.Linear):
        """Copies all its attributes, whatever they are."""

        def __getstate__(self):
            return dict(self.__dict__)

        def __deepcopy__(self, memo):
            twin = type(self).__new__(type(self))
            twin.__dict__ = copy.deepcopy(self.__dict__, memo)
            return twin

    globals()["Own"] = Own
    Own.__qualname__ = "Own"
    loop = Loop(desk, nn.Sequential(Own(4, 4), nn.Linear(4, 2)))
    with loop.client:
        loop.ask()
        for twin in (copy.deepcopy(loop.model), pickle.loads(saved_pickle := pickle.dumps(loop.model))):
            twin(torch.randn(5, 4))
            assert n_hooks(twin) == 0
        assert b"sightglass" not in saved_pickle


def test_a_replica_runs_with_its_own_parameters(loop):
    """DataParallel makes replicas that share the attributes of the module."""
    loop.ask()
    replica = loop.model[0]._replicate_for_data_parallel()
    replica.weight, replica.bias = torch.zeros(6, 4), torch.ones(6)
    assert torch.equal(replica(torch.randn(5, 4)), torch.ones(5, 6))


def run_of(steps, *, clients):
    """Return all a training computes, and the random state behind it."""
    torch.manual_seed(5)
    with sg.init("t", budget=None) as run:
        model = small()
        opt = torch.optim.AdamW(model.parameters(), lr=0.01)
        watch = sgt.watch(model, run, optimizer=opt)
        found = []
        with sg.connect(run) as client:
            streams = [client.stream(query) for query in (EVERYTHING if clients else ())]
            for _ in range(steps):
                opt.zero_grad()
                out = model(torch.randn(5, 4))
                loss = out.square().mean()
                loss.backward()
                grads = [p.grad.clone() for p in model.parameters()]
                opt.step()
                run.observe("batch", loss=loss.detach())
                found += [out.detach(), *grads]
            assert all(stream.wait(1) for stream in streams)
            assert bool(watch.n_hooks) == clients
            return found, saved(model), saved(opt.state_dict()), torch.get_rng_state()


def test_outputs_gradients_checkpoints_and_random_state_are_equal_to_the_bit():
    asked, alone = run_of(6, clients=True), run_of(6, clients=False)
    assert all(map(torch.equal, asked[0], alone[0]))
    assert asked[1:3] == alone[1:3]
    assert torch.equal(asked[3], alone[3])


def test_an_output_with_a_hook_is_saved_without_a_warning(desk):
    class Keeps(nn.Linear):
        def forward(self, x):
            self.last = super().forward(x)
            return self.last

    loop = Loop(desk, nn.Sequential(Keeps(4, 4), nn.Linear(4, 2)))
    with loop.client, warnings.catch_warnings():
        warnings.simplefilter("error")
        loop.ask(EVERYTHING[1])
        saved(loop.model(torch.randn(5, 4)))
        saved(loop.model[0].last)


def test_a_parameter_that_a_module_returns_keeps_no_hooks(desk):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self):
            return self.weight

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = Table()

        def forward(self, x):
            return x * self.table()

    loop = Loop(desk, Net())
    with loop.client:
        (stream,) = loop.ask("batch.activation_grads['table'].norm()")
        loop.step()
        with torch.no_grad():
            loop.model(torch.ones(1, 4))
        assert stream.wait(1)
        assert len(loop.model.table.weight._backward_hooks) == 1
        stream.close()
        loop.client.describe()
        loop.step()
        assert not loop.model.table.weight._backward_hooks


scripting = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


class Mixed(nn.Module):
    """A module with a scripted part."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.s = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
        self.b = nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.s(self.a(x)))


@scripting
def test_a_refused_question_ends_alone(desk):
    loop = Loop(desk, Mixed())
    with loop.client as first, sg.connect(desk.run) as second:
        norms = first.stream("batch.grads.map(lambda n, g: g.norm())")
        loop.step()
        loop.step()
        each = second.stream("batch.activations.map(lambda n, a: a.mean())")
        inside = second.stream("batch.activations['s.0'].mean()")
        scripted = first.stream("batch.activations['s'].mean()")
        for _ in range(3):
            loop.step()
        with pytest.raises(sg.RefusedError, match="TorchScript"):
            inside.wait(1, timeout_s=20)
        assert each.wait(1, timeout_s=20)[-1].value.keys() == {"a", "s", "b"}
        assert scripted.wait(1, timeout_s=20)
        assert len(norms.wait(4, timeout_s=20)) >= 4
        assert not norms.ended


def test_an_error_of_one_query_leaves_the_others(desk, monkeypatch):
    """A parameter that takes no hook, for example, because the program computes it."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    real = nn.Parameter.register_post_accumulate_grad_hook

    def refuse(self, hook):
        if self is model[0].weight:
            raise RuntimeError("not this one")
        return real(self, hook)

    monkeypatch.setattr(nn.Parameter, "register_post_accumulate_grad_hook", refuse)
    sgt.watch(model, desk.run)
    bad, good = desk.ask("batch.grads['0.weight'].norm()"), desk.ask("batch.grads['1.weight'].norm()")
    each = desk.ask("batch.grads.map(lambda n, g: g.norm())")
    for _ in range(3):
        model(torch.randn(5, 4)).sum().backward()
        desk.run.observe("batch")
    assert "RuntimeError: not this one" in str(bad.last_error)
    assert len(desk.values(good)) == 2
    assert list(desk.values(each)[-1]) == ["0.bias", "1.weight", "1.bias"]


def test_a_tensor_that_cannot_be_read_costs_its_query_only(desk):
    class Odd(torch.Tensor):
        """A tensor on which every function fails, once the module has returned it."""

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if armed:
                raise RuntimeError(f"no {func}")
            return super().__torch_function__(func, types, args, kwargs or {})

    class Returns(nn.Module):
        def forward(self, x):
            return x.as_subclass(Odd)

    armed = []
    model = nn.Sequential(nn.Linear(4, 4), Returns())
    sgt.watch(model, desk.run)
    odd, fine = desk.ask("batch.activations['1'].mean()"), desk.ask("batch.activations['0'].mean()")
    desk.run.observe("batch")
    for _ in range(4):
        armed.append(1)
        model(torch.randn(5, 4))
        armed.clear()
        desk.run.observe("batch")
    assert "RuntimeError" in str(odd.last_error)
    assert len(desk.values(fine)) == 4


@scripting
def test_a_traced_program_is_the_programs_own(loop):
    loop.ask()
    loop.model.eval()
    x = torch.randn(5, 4)
    wanted = torch.jit.trace(copy.deepcopy(loop.model), x).code
    assert torch.jit.trace(loop.model, x).code == wanted


class Steps(torch.utils.data.Dataset):
    """A dataset that holds a run and what watches a model, as a Trainer does."""

    def __init__(self, run, watched):
        self.run = run
        self.watched = watched

    def __len__(self):
        return 4

    def __getitem__(self, i):
        self.watched.close()
        return i, self.run.stopping, self.run.name


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork")
def test_workers_of_a_data_loader_get_handles_that_do_nothing(desk, method):
    run = desk.run
    model = torch.nn.Linear(2, 1)
    watched = sgt.watch(model, run)
    loader = torch.utils.data.DataLoader(Steps(run, watched), num_workers=1, multiprocessing_context=method)
    assert [(int(i), bool(stopping), name) for i, stopping, (name,) in loader] == [
        (i, False, run.name) for i in range(4)
    ]
    run.observe("batch")  # it is watched still
    assert copy.deepcopy(watched) is watched


def test_handles_beside_weights_are_saved_with_them(desk, tmp_path):
    run = desk.run
    model = torch.nn.Linear(2, 1)
    watched, lr = sgt.watch(model, run), run.control("lr", 0.5)
    torch.save({"model": model.state_dict(), "run": run, "lr": lr, "watched": watched}, tmp_path / "all.pt")
    again = torch.load(tmp_path / "all.pt", weights_only=False)
    assert (again["run"], again["lr"], again["watched"]) == (run, lr, watched)
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    assert set(torch.load(tmp_path / "weights.pt", weights_only=True)) == {"weight", "bias"}
