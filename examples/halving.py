"""Stop the poor trainings of a sweep early: successive halving on a fleet.

27 networks with different learning rates and widths learn handwritten digits, each in a process of its own. All train
for 3 epochs, the best third of them for 9, the best third of those for 27: successive halving (K. Jamieson,
A. Talwalkar, *Non-stochastic Best Arm Identification and Hyperparameter Optimization*, AISTATS 2016,
https://arxiv.org/abs/1502.07943). At the end, all 27 are trained in full, to compare.

You learn how to follow the runs of a sweep as one (`sg.fleet`), how to compare them while they train (`fleet.table`),
and how to act on a selection of them (`fleet.where(…).stop()`).

    python examples/halving.py
"""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

import sightglass as sg
from sightglass.demo import digits, network

GRID = list(itertools.product((0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0), (8, 16, 32)))
RUNGS, KEEP = (3, 9, 27), 3
PATIENCE_S = 120  # for 27 processes that start at once


def epochs_of(lr, width):
    """Train a network, and yield its loss on the test images after each epoch."""
    images, labels, test_images, test_labels = digits.load()
    params = network.init([images.shape[1], width, digits.N_CLASSES], seed=0)
    velocity, rng = network.zeros_like(params), np.random.default_rng(0)
    for _ in range(RUNGS[-1]):
        for rows in rng.permutation(len(images)).reshape(-1, 50):
            _, grads, _ = network.loss_and_grads(params, images[rows], labels[rows])
            params, velocity = network.update(params, grads, velocity, lr=lr)
        yield network.evaluate(params, test_images, test_labels)[0]


def train(lr, width, directory):
    """Train as a run, for as many epochs as its control says."""
    with sg.init(name_of(lr, width), dir=directory, config={"lr": lr}, record=["epoch.loss", "epoch.done"]) as run:
        epochs = run.control("epochs", 0, min=0, max=RUNGS[-1])
        for done, loss in enumerate(epochs_of(lr, width), 1):
            run.observe("epoch", step=done, loss=loss, done=done)
            while done >= epochs.value and done < RUNGS[-1] and not run.stopping:
                run.apply()
                time.sleep(0.01)
            if run.stopping:
                break


def name_of(lr, width):
    return f"halving-{lr:g}-{width}"


def halve(fleet):
    """Train all runs to the first rung, the best of them to the next, and so on; return the table of the last one."""
    names = list(fleet)
    for epochs in RUNGS:
        going = fleet.where(lambda run, names=names: run.name in names)
        going.set("epochs", epochs)
        # Columns are read in their order: the loss is at least that of the epoch which is done.
        table = going.table(done="epoch.done.last(per='run')", loss="epoch.loss.last(per='run')")
        while min(done or 0 for done in table.column("done")) < epochs:
            time.sleep(0.05)
            table = going.table(done="epoch.done.last(per='run')", loss="epoch.loss.last(per='run')")
        ranked = sorted(table, key=lambda row: row["loss"] if math.isfinite(row["loss"]) else math.inf)
        names = [row["run"] for row in ranked[: len(ranked) // KEEP]]
        best = ranked[0]
        print(f"after {epochs:2} epochs, best of {len(table):2}: {best['run']} with a loss of {best['loss']:.3f}")
        if epochs < RUNGS[-1]:
            going.where(lambda run, names=names: run.name not in names).stop()
    return ranked


def start(lr, width, directory):
    """Start a training in a process of its own."""
    command = [sys.executable, __file__, str(lr), str(width), directory]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.Popen(command, env=environment)


def main():
    processes = []
    with tempfile.TemporaryDirectory(prefix="sg") as directory, sg.fleet("halving-*") as fleet:
        try:
            processes += [start(lr, width, directory) for lr, width in GRID]
            fleet.wait(len(GRID), timeout_s=PATIENCE_S)
            ranked = halve(fleet)
            statuses = [process.wait() for process in processes]
            with sg.open(directory) as recorded:
                n_epochs = sum(recorded.table(done="epoch.done.last(per='run')").column("done"))
        finally:
            for process in processes:
                process.kill()

    in_full = {name_of(lr, width): list(epochs_of(lr, width))[-1] for lr, width in GRID}
    best = min(in_full, key=lambda name: in_full[name] if math.isfinite(in_full[name]) else math.inf)
    share = n_epochs / (len(GRID) * RUNGS[-1])
    print(f"all in full:     {len(GRID)} runs, the best {best} with a loss of {in_full[best]:.3f}")
    print(f"Halving took {n_epochs} epochs, {share:.0%} of {len(GRID) * RUNGS[-1]}.")
    assert statuses == [0] * len(GRID), "every training ends well, stopped or not"
    assert ranked[0]["run"] == best, "halving finds the winner"
    assert ranked[0]["loss"] == in_full[best], "and the same one"
    assert share <= 0.4, "with less work"


if __name__ == "__main__":
    with np.errstate(all="ignore"):  # some of these learning rates are far too large: that is the point
        train(float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]) if len(sys.argv) > 1 else main()
