"""A training gives the same bits whether nobody asks, or 20 clients come, ask anything, and go."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.query.generated import Author

import sightglass as sg

N_STEPS = 60
N_CLIENTS = 20
EPOCH = 10
MAX_STREAMS = 12  # at a time, of one client
KNOWN = {
    "arrays": ["x", "y", "out", "loss_each", "grads['w0']", "params['w1']"], "numbers": ["loss"],
    "mappings": ["grads", "params"], "lists": ["names"], "texts": ["phase"],
}  # fmt: skip

Observe = Callable[..., None]
Bits = list[bytes]


def ignore(event: str, **observables: Any) -> None:
    """Announce an event to nobody."""


# Trainings: each returns its outputs, gradients, checkpoints and random states, as bytes


def numpy_training(observe: Observe) -> Bits:
    """Train a network of two layers with NumPy, on batches and with noise from the global generators."""
    random.seed(1)
    np.random.seed(2)
    w = [np.random.normal(size=(8, 16)) * 0.3, np.random.normal(size=(16, 1)) * 0.3]
    data = np.random.normal(size=(256, 8))
    target = np.sin(data.sum(1, keepdims=True))
    grads = {f"w{i}": np.zeros_like(one) for i, one in enumerate(w)}
    momentum = [np.zeros_like(one) for one in w]
    found: Bits = []
    for step in range(N_STEPS):
        rows = random.sample(range(len(data)), 32)
        x, y = data[rows] + np.random.normal(size=(32, 8)) * 0.01, target[rows]
        hidden = np.tanh(x @ w[0])
        out = hidden @ w[1]
        error = out - y
        grads["w1"][...] = hidden.T @ error / len(x)
        grads["w0"][...] = x.T @ ((error @ w[1].T) * (1 - hidden**2)) / len(x)
        loss_each = error[:, 0] ** 2
        for i, one in enumerate(w):  # in place, as optimizers do: the arrays that were observed change
            momentum[i] *= 0.9
            momentum[i] += grads[f"w{i}"]
            one -= 0.1 * momentum[i]
        observe(
            "batch", step=step, x=x, y=y, out=out, loss_each=loss_each, loss=float(loss_each.mean()), grads=grads,
            params={"w0": w[0], "w1": w[1]}, names=["a", "none"], phase="a phase",
        )  # fmt: skip
        found += [out.tobytes(), loss_each.tobytes(), *(grad.tobytes() for grad in grads.values())]
        if step % EPOCH == EPOCH - 1:
            observe("epoch", step=step // EPOCH)
            found.append(pickle.dumps((w, momentum, random.getstate(), np.random.get_state())))
    return [*found, repr(random.getstate()).encode(), pickle.dumps(np.random.get_state())]


def torch_training(observe: Observe) -> Bits:
    """Train a network with dropout and batch norm with PyTorch; tensors are observed with their graphs."""
    torch = pytest.importorskip("torch")
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.randn(256, 8)
    target = data.sum(1, keepdim=True).sin()
    found: Bits = []
    for step in range(N_STEPS):
        rows = random.sample(range(len(data)), 32)
        x = (data[rows] + torch.from_numpy(np.random.normal(size=(32, 8))).float() * 0.01).requires_grad_()
        out = model(x)
        loss_each = (out - target[rows]) ** 2
        loss = loss_each.mean()
        seen = {
            "x": x, "y": target[rows], "out": out, "loss_each": loss_each, "names": ["a", "none"], "phase": "a phase",
        }  # fmt: skip
        weights = {"w0": model[0].weight, "w1": model[4].weight}
        observe(
            "forward", step=step, loss=loss, grads=weights, params=weights, **seen
        )  # before backward uses the graph
        optimizer.zero_grad()
        loss.backward()
        grads = {f"w{i}": layer.weight.grad for i, layer in enumerate((model[0], model[4]))}
        observe("batch", step=step, loss=loss, grads=grads, params=weights, **seen)
        optimizer.step()
        found += [bits(out), bits(loss), bits(x.grad), *(bits(p.grad) for p in model.parameters())]
        if step % EPOCH == EPOCH - 1:
            observe("epoch", step=step // EPOCH)
            found += [bits(value) for value in model.state_dict().values()]
            found += [pickle.dumps(optimizer.state_dict()["param_groups"]), bits(torch.get_rng_state())]
    return [*found, repr(random.getstate()).encode(), pickle.dumps(np.random.get_state()), bits(torch.get_rng_state())]


def jax_training(observe: Observe) -> Bits:
    """Train a network with a compiled step of JAX, and observe outside of it."""
    jax = pytest.importorskip("jax")
    random.seed(1)
    np.random.seed(2)
    data = np.random.normal(size=(256, 8)).astype(np.float32)
    target = np.sin(data.sum(1, keepdims=True))
    params = {"w0": jax.random.normal(jax.random.key(0), (8, 16)), "w1": jax.random.normal(jax.random.key(1), (16, 1))}

    def error(params: Any, x: Any, y: Any) -> Any:
        out = jax.numpy.tanh(x @ params["w0"]) @ params["w1"]
        return ((out - y) ** 2).mean(), (out, (out - y)[:, 0] ** 2)

    @jax.jit
    def update(params: Any, x: Any, y: Any) -> Any:
        (loss, (out, each)), grads = jax.value_and_grad(error, has_aux=True)(params, x, y)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss, out, each, grads

    found: Bits = []
    for step in range(N_STEPS):
        rows = random.sample(range(len(data)), 32)
        x, y = jax.numpy.asarray(data[rows] + np.random.normal(size=(32, 8)).astype(np.float32)), target[rows]
        params, loss, out, each, grads = update(params, x, y)
        observe(
            "batch", step=step, x=x, y=y, out=out, loss_each=each, loss=loss, grads=grads, params=params,
            names=["a", "none"], phase="a phase",
        )  # fmt: skip
        found += [bits(value) for value in (loss, out, *grads.values(), *params.values())]
        if step % EPOCH == EPOCH - 1:
            observe("epoch", step=step // EPOCH)
    return [*found, repr(random.getstate()).encode(), pickle.dumps(np.random.get_state())]


def bits(array: Any) -> bytes:
    """Return the bytes of an array of any library."""
    return np.asarray(array.detach() if hasattr(array, "detach") else array).tobytes()


class Crowd:
    """Clients that come, ask anything, and go, at events that a seed determines."""

    def __init__(self, run: sg.Run, seed: int) -> None:
        self.run = run
        self.random = random.Random(seed)
        self.clients: list[tuple[sg.RemoteRun, list[sg.Stream]]] = []
        self.n_asked = self.n_refused = 0

    def observe(self, event: str, **observables: Any) -> None:
        """Announce an event, among clients."""
        self.stir(event)
        self.run.observe(event, **observables)
        if event == "batch" and not observables["step"] % 7:
            self.run.end_group("batch")

    def stir(self, event: str) -> None:
        """Let a client come or go, and some of them ask or leave a stream."""
        choose = self.random
        if len(self.clients) < N_CLIENTS:
            self.clients.append((sg.connect(self.run), []))
        elif choose.random() < 0.1:
            client, _ = self.clients.pop(choose.randrange(N_CLIENTS))
            client.close()
        for client, streams in choose.sample(self.clients, min(3, len(self.clients))):
            if streams and choose.random() < 0.4:
                streams.pop(choose.randrange(len(streams))).close()
            elif len(streams) < MAX_STREAMS:
                self.ask(client, streams, choose.choice(("batch", event)))

    def ask(self, client: sg.RemoteRun, streams: list[sg.Stream], event: str) -> None:
        author = Author(self.random.randrange(2**32), self.random.randint(1, 9), KNOWN, hostile=True)
        self.n_asked += 1
        try:
            streams.append(client.stream(author.query(event)))
        except sg.SightglassError:
            self.n_refused += 1

    def leave(self) -> None:
        """Let all clients go."""
        for client, _ in self.clients:
            client.close()


TRAININGS = [numpy_training, torch_training, jax_training]


@pytest.mark.slow
@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_gives_the_same_bits_with_20_clients(training: Callable[[Observe], Bits]) -> None:
    alone = training(ignore)
    assert training(ignore) == alone, "the training itself repeats"
    with sg.init("crowd") as run:
        crowd = Crowd(run, 0)
        among = training(crowd.observe)
        crowd.leave()
    assert crowd.n_asked > 100
    assert crowd.n_refused < crowd.n_asked / 2
    assert among == alone


# Bystanders

LARGE = 500_000
HOSTILE = [
    "[" + ", ".join(f"sin(b.x * 1e300 + {i}).sum()" for i in range(30)) + "]",
    "[" + ", ".join(f"topk(b.x + {i}, 1)" for i in range(30)) + "]",
    "[" + ", ".join(["median(b.x)"] * 30) + "]",
    "[" + ", ".join(["histogram(b.x, bins=1000000)"] * 4) + "]",
    "b.names.map(lambda u: b.names.map(lambda v: b.names.map(lambda w: 1)))",
    "[" + ", ".join(f"b.x + {i}" for i in range(12)) + "]",
    "(b.x[None] - b.x[:, None]).sum()",
    "b.missing",
    "b.x.reshape(7, -1)",
]


@pytest.mark.slow
def test_a_bystander_gets_every_record_while_hostile_queries_come_and_go() -> None:
    choose = random.Random(0)
    x = np.random.default_rng(0).normal(size=LARGE)
    names = [f"n{i}" for i in range(300)]
    n = itertools.count()
    with sg.init("crowd") as run, sg.connect(run) as client, sg.connect(run) as enemy:
        loss = client.stream("batch.loss")
        mean = client.stream("batch.loss.mean(every=5)")
        first = client.stream("on('batch').map(lambda b: b.x[:100].sum()).last(every=1)")
        hostile: list[sg.Stream] = []
        for step in range(N_STEPS):
            if len(hostile) < N_CLIENTS:
                text = choose.choice(HOSTILE)
                hostile.append(enemy.stream(f"on('batch').map(lambda b: ({text}, {next(n)}))"))
            else:
                hostile.pop(choose.randrange(N_CLIENTS)).close()
            x[0] = step
            run.observe("batch", step=step, loss=float(step), x=x, names=names)
        run.close()  # before the clients leave, so that they get what is on its way
        sums = [float(np.sum([step, *x[1:100]])) for step in range(N_STEPS)]
    assert [(r.step, r.value) for r in loss] == [(step, float(step)) for step in range(N_STEPS)]
    assert [(r.value, r.complete) for r in mean] == [(5.0 * i + 2, True) for i in range(N_STEPS // 5)]
    np.testing.assert_allclose([r.value for r in first], sums, rtol=1e-12)
    assert loss.n_lost == mean.n_lost == first.n_lost == 0
