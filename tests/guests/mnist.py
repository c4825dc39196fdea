"""The convolutional network of PyTorch's examples, with Adadelta, a schedule and a test after each epoch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import sightglass.torch as sgt

from .guest import Guest, Round

N_TRAIN, N_TEST, N_BATCH, WIDTH = 128, 64, 16, 12
N_STEPS = N_TRAIN // N_BATCH  # of an epoch


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 8, 3)
        self.dropout1, self.dropout2 = nn.Dropout(0.25), nn.Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(8 * 4 * 4, 32), nn.Linear(32, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        x = F.relu(self.fc1(torch.flatten(self.dropout1(x), 1)))
        return F.log_softmax(self.fc2(self.dropout2(x)), dim=1)


def digits(n, rng):
    """Return pictures of ten kinds with noise, and their kinds."""
    labels = torch.from_numpy(rng.integers(10, size=n))
    patterns = torch.from_numpy(np.random.default_rng(0).normal(size=(10, 1, WIDTH, WIDTH)).astype(np.float32))
    return patterns[labels] + torch.from_numpy(rng.normal(size=(n, 1, WIDTH, WIDTH)).astype(np.float32)), labels


def train(run=None):
    torch.manual_seed(1)
    rng = np.random.default_rng(1)
    (x, y), (test_x, test_y) = digits(N_TRAIN, rng), digits(N_TEST, rng)
    model = ConvNet()
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    losses, epoch = [], 0
    if run is not None:
        sgt.watch(model, run, optimizer=optimizer)
    seen = SimpleNamespace(model=model, optimizer=optimizer)
    yield Round(losses=losses, weights=[*model.parameters()], seen=seen)
    while run is None or not run.stopping:
        model.train()
        for batch, rows in enumerate(torch.randperm(N_TRAIN).split(N_BATCH)):
            optimizer.zero_grad()
            output = model(x[rows])
            loss = F.nll_loss(output, y[rows])
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            if run is not None:
                offered = {
                    "output": output.detach(),
                    "target": y[rows],
                    "rows": rows,
                    "half": ["even", "odd"][batch % 2],
                }
                run.observe("batch", step=len(losses) - 1, loss=loss.detach(), epoch=epoch, **offered)
        model.eval()
        with torch.no_grad():
            scores = model(test_x)
        test_loss, predicted = F.nll_loss(scores, test_y).item(), scores.argmax(dim=1)
        accuracy = (predicted == test_y).float().mean().item()
        if run is not None:
            run.observe("epoch", step=epoch, accuracy=accuracy, test_loss=test_loss, predicted=predicted, target=test_y)
            run.log({"test": {"accuracy": accuracy, "loss": test_loss}}, step=epoch)
            run.end_group("batch")
        seen = SimpleNamespace(model=model, optimizer=optimizer, epoch=epoch, accuracy=accuracy)
        seen.output, seen.target, seen.predicted, seen.test_y = output.detach(), y[rows], predicted, test_y
        yield Round(losses=losses, weights=[*model.parameters()], seen=seen)
        scheduler.step()
        epoch += 1


def named(f):
    """Return what computes a number of each parameter."""
    return lambda r: {name: float(f(p.detach())) for name, p in r.seen.model.named_parameters()}


def of_gradients(f):
    return lambda r: {name: float(f(p.grad)) for name, p in r.seen.model.named_parameters()}


def last(r):
    """Return the losses of the last epoch."""
    return r.losses[-N_STEPS:]


GUEST = Guest(
    train=train,
    control=("optimizer.lr", 0.125, "batch.optimizer.lr"),
    questions={
        # The loss
        "batch.loss": lambda r: r.losses[-1],
        "batch.loss.mean(every=4)": lambda r: np.mean(r.losses[-4:]),
        "batch.loss.quantile([0.5, 0.9], per='epoch')": lambda r: tuple(np.quantile(last(r), [0.5, 0.9])),
        "on('batch').map(lambda b: b.loss).mean()": lambda r: np.mean(last(r)),  # a group is an epoch
        "batch.loss.rolling(5).mean()": lambda r: np.mean(r.losses[-5:]),
        "batch.loss.ema(0.1)": None,
        "on('batch').map(lambda b: b.loss).diff()": lambda r: r.losses[-1] - r.losses[-2],
        "batch.loss.argmin(per='run')": lambda r: {"step": np.argmin(r.losses), "value": min(r.losses)},
        "on('batch').where(lambda b: b.loss > 2).count(per='epoch')": lambda r: sum(loss > 2 for loss in last(r)),
        "batch.loss.mean(by=lambda b: b.half, per='epoch')": lambda r: {
            "even": np.mean(last(r)[::2]), "odd": np.mean(last(r)[1::2]),
        },
        "on('batch').map(lambda b: (b.loss, b.step)).top(1, key=lambda pair: pair[0], per='epoch')": lambda r: [
            (max(last(r)), len(r.losses) - N_STEPS + np.argmax(last(r)))
        ],
        "on('batch').join('epoch').map(lambda b: b.loss - b.epoch.test_loss)": None,
        "on('batch').map(lambda b: b.event.wall_time).diff()": None,
        "batch.loss.rate(per='epoch')": None,
        # Gradients, parameters, updates
        "batch.grads.map(lambda name, g: g.norm())": of_gradients(torch.norm),
        "on('batch').map(lambda b: b.grads.map(lambda name, g: (g * g).sum()).values().sum() ** 0.5)": lambda r: (
            sum(float((p.grad**2).sum()) for p in r.seen.model.parameters()) ** 0.5
        ),
        "batch.grads.map(lambda name, g: isnan(g).any())": of_gradients(lambda g: g.isnan().any()),
        "batch.grads.map(lambda name, g: abs(g).max())": of_gradients(lambda g: g.abs().max()),
        "batch.grads['conv1.weight'].histogram(16).counts.sum()": lambda r: r.seen.model.conv1.weight.numel(),
        "batch.grads['fc2.weight'].histogram(16)": None,
        "abs(batch.grads['fc1.weight']).topk(3)": lambda r: r.seen.model.fc1.weight.grad.abs().flatten().topk(3).values,
        "batch.params.map(lambda name, p: p.norm())": named(torch.norm),
        "batch.params.map(lambda name, p: p.std())": named(lambda p: p.std(correction=0)),
        "batch.params.map(lambda name, p: p.size)": named(torch.numel),
        "batch.params['fc2.weight'][0, 2:6]": lambda r: r.seen.model.fc2.weight.detach()[0, 2:6],
        "svdvals(batch.params['fc2.weight'])": None,
        "on('batch').map(lambda b: b.updates.map(lambda name, u: u.norm() / b.params[name].norm()))": None,
        "batch.updates['fc2.bias'].quantile(0.9)": None,
        "cosine(batch.grads['fc2.weight'], batch.updates['fc2.weight'])": None,
        "initial.norms": None,
        "on('batch').join('initial').map(lambda b: b.params['fc2.bias'].norm() - b.initial.norms['fc2.bias'])": None,
        "on('batch').map(lambda b: b.grads['fc2.bias']).rolling(2).collect().map(lambda g: cosine(g[0], g[-1]))": None,
        # Activations
        "batch.activations.map(lambda name, a: a.mean())": None,
        "batch.activations['conv1'].histogram(16)": None,
        "batch.activations['fc2'].argmax(axis=1)": lambda r: r.seen.output.argmax(dim=1),
        "(batch.activations['fc1'].max(axis=0) <= 0).sum()": None,
        "batch.activation_grads.map(lambda name, g: g.norm())": None,
        "batch.inputs['fc1'].std()": None,
        "batch.eval_activations['fc2'].std()": None,
        # Examples and classes
        "(batch.output.argmax(axis=1) == batch.target).mean()": lambda r: (
            (r.seen.output.argmax(dim=1) == r.seen.target).float().mean()
        ),
        "on('batch').map(lambda b: where(b.output.argmax(axis=1) != b.target, b.rows, -1))": None,
        "exp(batch.output).max(axis=1).mean()": lambda r: r.seen.output.exp().max(dim=1).values.mean().item(),
        "batch.target.bincount(10)": lambda r: r.seen.target.bincount(minlength=10),
        "epoch.accuracy": lambda r: r.seen.accuracy,
        "epoch.accuracy.argmax(per='run')": None,
        "epoch.predicted[-1]": lambda r: r.seen.predicted[-1],
        "epoch.predicted[epoch.target == 3]": lambda r: r.seen.predicted[r.seen.test_y == 3],
        "test/accuracy": lambda r: r.seen.accuracy,
        # The optimizer
        "batch.optimizer.lr": lambda r: 0.7 ** r.seen.epoch,
        "batch.optimizer.lr.distinct(per='run')": None,
        "batch.optimizer.state['fc2.weight'].square_avg.mean()": lambda r: (
            r.seen.optimizer.state[r.seen.model.fc2.weight]["square_avg"].mean()
        ),
    },
)  # fmt: skip
