"""Find out why a training does not learn, while it runs, without stopping it to log more; then start a better one.

Another process trains a deep sigmoid network, and its loss does not fall. Nothing was logged beforehand, and one query
leads to the next: how large are the gradients, layer by layer? Do the weights grow? How were they initialised? You
learn how to query a live run for each of these, how a snapshot (`observe(..., snapshot=True)`) answers queries about
the past, how to compute with the records, and how to stop the run and compare it with a better one.

    python examples/vanishing_gradients.py
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import tempfile

import numpy as np

import sightglass as sg

DEPTH, WIDTH = 6, 64
FIRST, LAST = "dense1", f"dense{DEPTH}"
ON_LOG_SCALE = {"view": "line", "log_y": True}

LOSS = sg.on("batch").map(lambda b: b.loss).mean(every=20)
FLOW = sg.on("batch").map(lambda b: b.grads.map(lambda layer: abs(layer["kernel"]).mean())).mean(every=20)
NORMS = sg.on("batch").map(lambda b: b.params.map(lambda layer: layer["kernel"].norm())).first(every=20)
FIRST_VALUES = sg.on("init").map(lambda e: e.params["dense1"]["kernel"].histogram(bins=40))


@contextlib.contextmanager
def training(name, directory, *arguments):
    """Train in a child process until the context ends, and yield a client of the run."""
    command = [sys.executable, "-m", "sightglass.demo.train", "--forever", "--quiet", "--delay-ms", "4"]
    name = f"{name}-{os.getpid()}"
    process = subprocess.Popen(
        [*command, "--name", name, "--dir", directory, "--depth", str(DEPTH), "--width", str(WIDTH), *arguments]
    )
    try:
        run = sg.connect(name, wait_s=60)
        yield run
        run.stop()
        assert process.wait() == 0, f"{name} failed"
    finally:
        process.kill()


def fetch(run, query, title, *, n=5, **view):
    """Send a new query to a run; plot and return its first n values."""
    stream = run.stream(query)
    values = [record.value for record in itertools.islice(stream, n)]
    stream.close()
    sg.plot(stream, title=title, **view)
    return values


def ratio(flow):
    """Return the share of the last layer's gradient that arrives at the first: the median over the records."""
    return float(np.median([value[FIRST] / value[LAST] for value in flow]))


def spread(histogram):
    """Return the standard deviation of the values in a histogram, from the centres of its bins."""
    centres = (histogram.edges[1:] + histogram.edges[:-1]) / 2
    return float(np.sqrt((histogram.counts * centres**2).sum() / histogram.total))


def diagnose(run):
    """Send one query after another; return the findings."""
    loss = fetch(run, LOSS, "loss")
    print(f"The loss stays at {loss[-1]:.2f}; guessing gives {np.log(10):.2f}.\n")

    flow = fetch(run, FLOW, "mean |gradient| by layer", **ON_LOG_SCALE)
    print(f"Of the gradient at {LAST}, {ratio(flow):.1e} arrives at {FIRST}: it vanishes on the way.\n")

    norms = fetch(run, NORMS, "norm of the weights by layer")
    growth = {name: abs(norms[-1][name] / norms[0][name] - 1) for name in norms[0]}
    print(f"The weights of one layer grow by {max(growth.values()):.1%}, those of {FIRST} by {growth[FIRST]:.3%}.\n")

    [first_values] = fetch(run, FIRST_VALUES, f"first weights of {FIRST}", n=1)
    print(f"Its weights were drawn with a spread of {spread(first_values):.3f}.\n")
    return loss[-1], ratio(flow), growth, spread(first_values)


def main():
    with tempfile.TemporaryDirectory() as directory:
        with training("sigmoid", directory, "--activation", "sigmoid", "--init-scale", "0.5") as run:
            bad_loss, bad_ratio, growth, bad_spread = diagnose(run)
        print("Stopped. The slope of a sigmoid is 1/4 at most, six layers deep. Next: relu, with a matching spread.\n")
        with training("relu", directory, "--activation", "relu", "--init-scale", "1") as run:
            good_flow = fetch(run, FLOW, "mean |gradient| by layer", **ON_LOG_SCALE)
            [first_values] = fetch(run, FIRST_VALUES, f"first weights of {FIRST}", n=1)
            good_loss = fetch(run, LOSS, "loss", n=10)[-1]
    print(f"Of the gradient at {LAST}, {ratio(good_flow):.2f} arrives at {FIRST}, and the loss is {good_loss:.2f}.")

    assert bad_loss > 2.2, "the sigmoid network only guesses"
    assert bad_ratio < 1e-3, "its gradient vanishes"
    assert growth[FIRST] < max(growth.values()) / 10, "its first layer does not move"
    assert bad_spread < 0.08 < spread(first_values), "the second network begins wider"
    assert ratio(good_flow) > 0.1, "the gradient of relu arrives"
    assert good_loss < 1.5, "and the network learns"


if __name__ == "__main__":
    main()
