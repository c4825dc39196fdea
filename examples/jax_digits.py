"""Look into a compiled training loop while it runs: every gradient, every activation, and nothing of it prepared.

A small network learns handwritten digits; one call of one compiled function is an epoch, a `lax.scan` over its batches.
One line logs all that the loop computes; without a query, the compiled program is the one without that line. Then
another process queries the run: how large are the gradients, layer by layer? Which units are zero for a whole batch? It
finds a layer whose units are half dead, calls an action that recycles them (Sokar et al. 2023,
https://arxiv.org/abs/2302.12902), sees that they are alive again, and stops the run.

    python examples/jax_digits.py
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
import threading
import time

# JAX 0.10 may compute wrong numbers on a CPU without this; it has to be set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np

import sightglass as sg
import sightglass.jax as sgx
from sightglass.demo import digits

SIZES = {"dense1": (64, 48), "dense2": (48, 32), "out": (32, 10)}
BATCH, N_BATCHES, RATE = 50, 30, 0.1

NORM = sg.on("batch").map(lambda b: b.grads.map(lambda layer: layer["kernel"].norm())).mean()
ONE = sg.on("batch").map(lambda b: (b.params, b.x, b.y, b.grads.map(lambda layer: layer["kernel"].norm()))).first()
DEAD = sg.on("batch").map(lambda b: b.activations.map(lambda units: (units == 0).all(axis=0).mean())).mean()
OUTPUTS = sg.on("batch").map(lambda b: b.activations["dense1"].histogram(bins=24)).last()
traced_on = []


# The training: an ordinary one, plus the lines with `sgx` and `run`.


def draw(rng, layer):
    """Draw the kernel of a layer; its biases are zero."""
    kernel = rng.normal(0, np.sqrt(2 / SIZES[layer][0]), SIZES[layer])
    return {"kernel": jnp.asarray(kernel, jnp.float32), "bias": jnp.zeros(SIZES[layer][1])}


def forward(params, x):
    """Return the logits, and the outputs of the hidden layers by name."""
    activations = {}
    for layer in ("dense1", "dense2"):
        x = activations[layer] = jax.nn.relu(x @ params[layer]["kernel"] + params[layer]["bias"])
    return x @ params["out"]["kernel"] + params["out"]["bias"], activations


def loss_of(params, x, y):
    logits, activations = forward(params, x)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1).mean(), activations


def train_epoch(params, batches, images, labels, test):
    """Train one pass over the images; a batch is the row numbers of its images."""
    traced_on.append(threading.current_thread())

    def step(params, rows):
        x, y = images[rows], labels[rows]
        (loss, activations), grads = jax.value_and_grad(loss_of, has_aux=True)(params, x, y)
        sgx.log(
            {"loss": loss, "grads": grads, "activations": activations, "params": params, "x": x, "y": y}, event="batch"
        )
        return jax.tree.map(lambda p, g: p - RATE * g, params, grads), loss

    def accuracy():  # called only if a query reads it
        return (forward(params, test[0])[0].argmax(axis=1) == test[1]).mean()

    params, losses = jax.lax.scan(step, params, batches)
    sgx.log({"accuracy": accuracy})
    return params, losses.mean()


def train(name, directory):
    """Train until a client stops the run. Half of the first layer's biases are far too low."""
    rng = np.random.default_rng(0)
    images, labels, *test = map(jnp.asarray, digits.load())
    params = {layer: draw(rng, layer) for layer in SIZES}
    params["dense1"]["bias"] = jnp.tile(jnp.array([0.0, -20.0]), SIZES["dense1"][1] // 2)

    def recycle(layer):
        """Reinitialise the units of a layer that are zero for all images; return how many."""
        dead = (forward(params, images)[1][layer] == 0).all(axis=0)
        params[layer] = jax.tree.map(lambda new, old: jnp.where(dead, new, old), draw(rng, layer), params[layer])
        return int(dead.sum())

    epoch = sgx.live(jax.jit(train_epoch), event="train")
    with sg.init(name, dir=directory) as run:
        run.action("recycle", recycle)
        for i in itertools.count():
            batches = rng.permutation(len(labels)).reshape(N_BATCHES, BATCH)
            params, loss = epoch(params, batches, images, labels, test)
            run.observe("epoch", step=i, loss=loss)  # from here on `params` are the new ones, for actions as well
            if run.stopping:
                break
            time.sleep(0.03)  # stands for a larger network
    assert traced_on.count(threading.main_thread()) == 1, "queries are compiled on another thread"
    example = params, batches, images, labels, test
    plain = jax.jit(sgx.strip(train_epoch)).lower(*example).as_text()
    assert epoch.lower(*example).as_text() == plain, "the training's own program is the one without logs"


# The client.


def main():
    name = f"jax-digits-{os.getpid()}"
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen([sys.executable, __file__, "--train", name, directory])
        try:
            run = sg.connect(name, wait_s=60)
            with run.stream(NORM) as norm, run.stream(ONE) as one, run.stream("train.accuracy") as accuracy:
                params, x, y, norms = next(iter(one)).value
                print(f"Accuracy on the test images: {next(iter(accuracy)).value:.3f}. What do the layers do?")
            sg.plot(norm, title="norm of the gradients by layer, the mean of an epoch")
            with run.stream(DEAD) as dead, run.stream(OUTPUTS) as outputs:
                before = next(iter(dead)).value
                next(iter(outputs))
                done = run.call("recycle", "dense1", at="epoch")
                after = next(record.value for record in dead if record.step > (done.step + 1) * N_BATCHES)
                run.stop()
                assert process.wait() == 0, "the training failed"
            sg.plot(outputs, title="outputs of dense1, the last batch", height=8)
            sg.plot(dead, title="how many units are zero for a whole batch", view="line", height=8)
        finally:
            process.kill()
    print(f"{before['dense1']:.0%} of dense1 were dead. At epoch {done.step}, {done.result} units were recycled.")

    grads = jax.jit(jax.grad(lambda params: loss_of(params, x, y)[0]))(params)
    for layer in SIZES:
        np.testing.assert_allclose(norms[layer], np.linalg.norm(grads[layer]["kernel"]), rtol=1e-4)
    assert before["dense1"] >= 0.5 > before["dense2"], "half of the first layer is dead"
    assert done.result >= SIZES["dense1"][1] // 2, "the action found these units, too"
    assert after["dense1"] < 0.25, "and they are alive again"


if __name__ == "__main__":
    train(*sys.argv[2:]) if sys.argv[1:2] == ["--train"] else main()
