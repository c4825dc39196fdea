"""Successive halving over a hub: stop the poor trainings of a sweep that run on machines which you cannot reach.

The trainings and the halving are those of `halving.py`, with nine learning rates. Here the trainings open no port, and
share no folder with you: they join a hub (`SIGHTGLASS_HUB`), and so does the fleet (`sg.fleet(…, hub=…)`). No other
line differs.

You learn how to start a hub, and how to act on runs of other machines as one.

    python examples/hub_halving.py

does all of it on this machine. On a cluster, the three parts are:

    sightglass hub --listen 0.0.0.0:4222                                     # on the login node
    SIGHTGLASS_HUB=run.hub python examples/hub_halving.py train 0.01 0.1     # on each node, with its learning rates
    python examples/hub_halving.py halve controller.hub                      # where you are
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile

import numpy as np

import sightglass as sg
from halving import GRID, PATIENCE_S, RUNGS, epochs_of, halve, name_of, start

WIDTH = 16
RATES = [lr for lr, width in GRID if width == WIDTH]


@contextlib.contextmanager
def hub(folder):
    """Run a hub on this machine, with its keys in a folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "sightglass", "hub", "--dir", folder, "--listen", f"127.0.0.1:{port}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            print(process.stdout.readline(), end="")
            yield
        finally:
            process.terminate()


@contextlib.contextmanager
def trainings(rates, directory):
    """Train with these learning rates, each in a process of its own."""
    processes = []
    try:
        processes += [start(lr, WIDTH, directory) for lr in rates]
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


def halve_over(controller):
    """Stop the poor ones early, and check that the best one learned what it would have learned alone."""
    with sg.fleet("halving-*", hub=controller) as fleet:
        fleet.wait(len(RATES), timeout_s=PATIENCE_S)
        (best,) = halve(fleet)
    (lr,) = [lr for lr in RATES if name_of(lr, WIDTH) == best["run"]]
    alone = list(epochs_of(lr, WIDTH))[-1]
    print(f"{best['run']} alone: a loss of {alone:.3f} after {RUNGS[-1]} epochs")
    assert best["loss"] == alone, "it learned the same"


def train(rates):
    """Train on this machine until somebody has decided which are good, and stopped the others."""
    with tempfile.TemporaryDirectory(prefix="sg") as directory, trainings(rates, directory) as processes:
        assert not any(process.wait() for process in processes), "every training ends well, stopped or not"
    print(f"{len(processes)} trainings ended.")


def everything():
    """Run the hub, the trainings and the halving on this machine."""
    with tempfile.TemporaryDirectory(prefix="sg") as folder, hub(folder):
        os.environ["SIGHTGLASS_HUB"] = f"{folder}/run.hub"
        with trainings(RATES, folder) as processes:
            halve_over(f"{folder}/controller.hub")
            assert not any(process.wait() for process in processes), "every training ends well"


def main():
    match sys.argv[1:]:
        case ["train", *rates]:
            train([float(rate) for rate in rates] or RATES)
        case ["halve", controller]:
            halve_over(controller)
        case _:
            everything()


if __name__ == "__main__":
    with np.errstate(all="ignore"):  # some of these learning rates are far too large: that is the point
        main()
