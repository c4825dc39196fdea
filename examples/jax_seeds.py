"""Train eight networks at once, and record eight runs that you can open and compare.

`jax.vmap` over seeds makes one compiled program of eight trainings. The state of a logger carries the seed, so that
each log is written for its own training. `MultiLogger` passes every log to two loggers: one writes record files, a
directory for each seed; the other logs to a live run. Afterwards the recorded runs show which seed was best, and how
much the seeds differ, and they agree with what the program returned.

    python examples/jax_seeds.py
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

# JAX 0.10 may compute wrong numbers on a CPU without this; it has to be set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np

import sightglass as sg
import sightglass.jax as sgx
from sightglass.demo import digits
from sightglass.jax.loggers import MultiLogger, RunLogger, SaveLogger

N_SEEDS, N_EPOCHS, BATCH, WIDTH, RATE = 8, 12, 50, 24, 0.2
N_STEPS = 1500 // BATCH
IMAGES, LABELS, TEST_IMAGES, TEST_LABELS = map(jnp.asarray, digits.load())


def init(key):
    """Draw the parameters."""
    first, second = jax.random.split(key)
    return {
        "hidden": jax.random.normal(first, (IMAGES.shape[1], WIDTH)) * 0.2,
        "out": jax.random.normal(second, (WIDTH, digits.N_CLASSES)) * 0.2,
    }


def logits(params, x):
    return jax.nn.relu(x @ params["hidden"]) @ params["out"]


def loss_of(params, x, y):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits(params, x)), y[:, None], axis=1).mean()


def train(key):
    """Train a network; return its accuracy on the test images after each epoch."""

    def step(state, rows):
        params, n = state
        loss, grads = jax.value_and_grad(loss_of)(params, IMAGES[rows], LABELS[rows])
        sgx.log({"loss": loss}, step=n)
        return (jax.tree.map(lambda p, g: p - RATE * g, params, grads), n + 1), None

    def epoch(state, key):
        order = jax.random.permutation(key, len(LABELS)).reshape(-1, BATCH)
        (params, n), _ = jax.lax.scan(step, state, order)
        accuracy = (logits(params, TEST_IMAGES).argmax(axis=1) == TEST_LABELS).mean()
        sgx.log({"test/accuracy": accuracy}, step=n)
        return (params, n), accuracy

    keys = jax.random.split(key, N_EPOCHS)
    return jax.lax.scan(epoch, (init(key), 0), keys)[1]


def train_all(logger):
    """Train a network for each seed, in one program; return their accuracies, shape (n_seeds, n_epochs)."""

    def one(seed):
        return logger.spool(train, logger.init(seed))(jax.random.key(seed))

    return np.asarray(jax.jit(jax.vmap(one))(jnp.arange(N_SEEDS)))


def last_of(run):
    """Return the accuracy that a recorded run ended with."""
    return float(run.stream("test/accuracy").latest.value)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seeds"
        with sg.init("jax-seeds", dir=folder) as run, MultiLogger(SaveLogger(path), RunLogger(run)) as logger:
            accuracies = train_all(logger)

        with sg.open(path) as seeds, sg.open(run.directory) as together:
            sg.plot(*(seeds[name].stream("test/accuracy") for name in sorted(seeds)), title="accuracy", height=12)
            finals = {int(name): last_of(seed) for name, seed in seeds.items()}
            best = max(finals, key=finals.get)
            mean, spread = np.mean([*finals.values()]), np.std([*finals.values()])
            print(f"seed {best} was best with {finals[best]:.4f}; all: {mean:.4f} ± {spread:.4f}")

            assert sorted(finals) == list(range(N_SEEDS)), "there is a run for each seed"
            for seed in range(N_SEEDS):
                accuracy, loss = (seeds[str(seed)].stream(tag).to_arrays() for tag in ("test/accuracy", "loss"))
                np.testing.assert_array_equal(accuracy.values, accuracies[seed], "the program returned the same")
                np.testing.assert_array_equal(loss.steps, np.arange(N_EPOCHS * N_STEPS), "no step is missing")
                same = together.stream(f"{seed}/loss").to_arrays()
                np.testing.assert_array_equal(loss.values, same.values, "both loggers received the same values")

    assert finals[best] == accuracies[:, -1].max(), "the best of the runs is the best of the program"
    np.testing.assert_allclose([mean, spread], [accuracies[:, -1].mean(), accuracies[:, -1].std()], rtol=1e-5)
    assert mean > 0.9, "all have learned"
    assert 0 < spread < 0.05, "one a little better than the other"


if __name__ == "__main__":
    main()
