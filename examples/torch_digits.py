"""Find out that gradients vanish in a PyTorch network, and cure it while it trains, by its learning rate.

Another process trains a deep sigmoid network on handwritten digits; `sg.init`, `sgt.watch` and `run.observe` are its
only lines for Sightglass. This process queries how large the gradients are, layer by layer, and how far a step moves
the weights, none of which was logged; then it sets the learning rate of the live optimizer, and sees both change.

    python examples/torch_digits.py
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np

import sightglass as sg

DEPTH, WIDTH, BATCH = 4, 64, 50
TIMID, BOLD = 1e-5, 1e-2
LAYERS = [f"{2 * i}.weight" for i in range(DEPTH + 1)]

LOSS = sg.on("batch").map(lambda b: b.loss).mean(every=50)
FLOW = sg.on("batch").map(lambda b: b.grads.map(lambda name, g: g.norm()))
RATIOS = sg.on("batch").map(lambda b: b.updates.map(lambda name, u: u.norm() / b.params[name].norm()))
DEAD = sg.on("batch").map(lambda b: (b.activations["1"].std(axis=0) < 1e-3).sum())


def train(name, directory):
    """Train until a client stops the run. A program of yours looks like this."""
    import torch
    from torch import nn

    import sightglass.torch as sgt
    from sightglass.demo import digits

    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels, *_ = map(torch.as_tensor, digits.load())
    hidden = [(nn.Linear(64 if i == 0 else WIDTH, WIDTH), nn.Sigmoid()) for i in range(DEPTH)]
    model = nn.Sequential(*itertools.chain(*hidden), nn.Linear(WIDTH, 10))
    opt = torch.optim.Adam(model.parameters(), lr=TIMID)
    with sg.init(name, dir=directory, budget=None) as run:
        sgt.watch(model, run, optimizer=opt)
        while not run.stopping:
            batch = torch.randint(0, len(images), (BATCH,))
            loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
            opt.zero_grad()
            loss.backward()
            opt.step()
            run.observe("batch", loss=loss.detach())


def fetch(run, query, n=5):
    """Send a new query to a run, and return its first n values."""
    stream = run.stream(query)
    values = [record.value for record in itertools.islice(stream, n)]
    stream.close()
    return values


def reaches(run):
    """Return the share of the last layer's gradient that reaches the first."""
    return float(np.median([flow[LAYERS[0]] / flow[LAYERS[-1]] for flow in fetch(run, FLOW)]))


def moves(run):
    """Return how far a step moves the weights of the first layer, relative to their size."""
    return float(np.median([ratio[LAYERS[0]] for ratio in fetch(run, RATIOS)]))


def main():
    name = f"torch-digits-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen([sys.executable, __file__, name, directory])
        try:
            run = sg.connect(name, wait_s=60)
            stuck = fetch(run, LOSS)[-1]
            before, step_before = reaches(run), moves(run)
            print(f"The loss stays at {stuck:.2f}; guessing gives {np.log(10):.2f}.")
            print(f"Of the last layer's gradient {before:.1e} reaches the first: it vanishes on the way.")
            print(f"Units of the first layer with the same output for every digit: {fetch(run, DEAD, 1)[0]:.0f}.")
            print(f"A step moves its weights by {step_before:.1e} of their size; 1e-3 is usual. Let us be bolder.")
            assert stuck > 2.2
            assert before < 1e-2

            run.set("optimizer.lr", BOLD)
            loss = run.stream(LOSS)
            sg.plot(loss, title="loss")
            learnt = next(record.value for record in loss if record.value < 0.3)
            after, step_after = reaches(run), moves(run)
            print(f"With a learning rate of {BOLD:g} it learns: the loss is {learnt:.2f},")
            print(f"{after:.1e} of the gradient reaches the first layer, and a step moves it by {step_after:.1e}.")
            assert after > 20 * before
            assert step_after > 3 * step_before
            run.stop()
            assert process.wait() == 0
        finally:
            process.kill()


if __name__ == "__main__":
    train(*sys.argv[1:]) if sys.argv[1:] else main()
