"""What watching a small convolutional network costs a step on the processor: idle, gradient norms, a histogram.

Each row is a ratio of steps of the same run: steps with and without are taken in turn, and the least time of each
counts, with PyTorch on one thread; the client is another process. The step's time is what it takes by the clock. The
processor's, of all threads of the process, is told besides: it holds what the thread does that talks to clients, on
another core. There is no accelerator here: that nothing waits for one is not measured.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import torch
from torch import nn

import sightglass as sg
import sightglass.torch as sgt

BATCH = 32
N_STEPS = 2
N_ROUNDS = 61
LAYER = "3.2"
"""The last convolution's, 131,072 values at each step."""


class Net(nn.Sequential):
    """Four convolutions and a classifier, about 150,000 parameters."""

    def __init__(self) -> None:
        sizes = ((3, 32), (32, 32), (32, 64), (64, 64))
        layers = [nn.Sequential(nn.Conv2d(a, b, 3, padding=1, stride=1 + i % 2), nn.BatchNorm2d(b), nn.ReLU())
                  for i, (a, b) in enumerate(sizes)]  # fmt: skip
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class Loop:
    """A training loop, whose run may be asked."""

    def __init__(self, folder: str, *, watched: bool = False) -> None:
        torch.manual_seed(0)
        self.model = Net()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.x, self.y = torch.randn(BATCH, 3, 32, 32), torch.randint(0, 10, (BATCH,))
        self.run = sg.init("bench", dir=folder, budget=None)
        self.watched = sgt.watch(self.model, self.run, optimizer=self.opt) if watched else None

    def step(self) -> None:
        """Take a step of training, and announce it."""
        self.opt.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x), self.y)
        loss.backward()
        self.opt.step()
        self.run.observe("batch", loss=loss)

    def time(self) -> tuple[float, float]:
        """Return the time of a few steps, in seconds: by the clock, and the processor's."""
        started_s, worked_s = time.perf_counter(), time.process_time()
        for _ in range(N_STEPS):
            self.step()
        return time.perf_counter() - started_s, time.process_time() - worked_s


def more(loop: Loop, plain: Loop) -> tuple[float, float]:
    """Return what the steps of a loop take more than those of the other, in percent: by the clock, the processor's."""
    times_s: dict[int, list[tuple[float, float]]] = {id(loop): [], id(plain): []}
    for i in range(N_ROUNDS):
        for one in (loop, plain) if i % 2 else (plain, loop):  # the first one may meet other caches than the second
            times_s[id(one)].append(one.time())
    (clock_s, worked_s), (plain_s, plain_worked_s) = (
        map(min, zip(*times_s[id(one)], strict=True)) for one in (loop, plain)
    )
    return 100.0 * (clock_s / plain_s - 1.0), 100.0 * (worked_s / plain_worked_s - 1.0)


ASK = """
import sys, sightglass as sg
with sg.connect(sys.argv[1]) as run:
    for record in run.stream(sys.argv[2]):
        print("got", flush=True) if record.index == 0 else None
"""


def asked(loop: Loop, plain: Loop, query: sg.Query) -> tuple[float, float]:
    """Return what the steps of a loop take more while a client asks, from another process, in percent."""
    client = subprocess.Popen([sys.executable, "-c", ASK, loop.run.id, str(query)], stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        os.set_blocking(client.stdout.fileno(), False)
        while not client.stdout.read():
            loop.step()
        return more(loop, plain)
    finally:
        client.kill()
        client.wait()


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    """Yield the rows."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        plain, again, watched = Loop(folder), Loop(folder), Loop(folder, watched=True)
        for loop in (plain, again, watched):
            loop.time()
        yield "a step, unwatched", statistics.median(plain.time()[0] for _ in range(9)) / N_STEPS * 1e3, "ms", None
        yield "unwatched against unwatched: the noise", more(again, plain)[0], "%", None
        yield "watched, nobody asks: hooks", float(watched.watched.n_hooks if watched.watched else 0), "", 0.0
        yield "watched, nobody asks: more than unwatched", more(watched, plain)[0], "%", 1.0
        norms = sg.on("batch").map(lambda b: b.grads.map(lambda name, g: g.norm()))
        clock, worked = asked(watched, plain, norms)
        yield "norms of all gradients: more than unwatched", clock, "%", 3.0
        yield "the same, of all threads' processor time", worked, "%", None
        bins = sg.on("batch").map(lambda b: b.activations[LAYER].histogram(64))
        clock, worked = asked(watched, plain, bins)
        yield "histogram of a layer's activations: more", clock, "%", 3.0
        yield "the same, of all threads' processor time", worked, "%", None
        for loop in (plain, again, watched):
            loop.run.close()
