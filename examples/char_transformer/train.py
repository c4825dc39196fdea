"""Train a small GPT on Python's own help, and draw figures of its inside without slowing the training loop.

Each validation captures what the model's blocks have sown, and submits it. Another process draws the scores of the
tokens, what each attention head attends to, and at the end the loss around the weights. The figures are logged to the
run, where clients see them live, to Weights & Biases (offline here) at their steps, and written as PDFs to the folder
that `config.yaml` names. Meanwhile the loop continues.

    python examples/char_transformer/train.py [--root FOLDER]
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

# JAX 0.10 may compute wrong numbers on a CPU without this; it has to be set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np
import optax
import plots
import text
import wandb
import yaml
from flax.training.train_state import TrainState
from model import Thoughtbubbles

import sightglass as sg
from sightglass.figures import Plotter
from sightglass.flax import forward

CONFIG = Path(__file__).with_name("config.yaml")
DISTANCES = np.linspace(-0.5, 0.5, 11)

LOSS = sg.on("batch").map(lambda b: b.loss).mean(every=25)
GOING_ON = sg.on("validation").map(lambda v: np.exp(v.plots["ForkingBlock_3"]["new_cumulative_scores"][0]).mean())
"""The share of the text that goes through all blocks: clients can query what was sown, too."""


@jax.jit
def train_step(state, batch):
    """Return the next state, and the loss. Nothing is captured here, so sowing costs nothing."""

    def loss_of(params):
        return forward(state, params, batch, intermediates=False)[1]

    loss, grads = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def validate(state, batches):
    """Return the mean loss over batches, and what was captured in the first."""
    losses = jax.lax.map(lambda batch: forward(state, state.params, batch, intermediates=False)[1], batches)
    _, _, meta = forward(state, state.params, jax.tree.map(lambda b: b[0], batches))
    return losses.mean(), meta


@jax.jit
def losses_around(state, batch, first, second):
    """Return the losses on a slice through the space of the weights along two directions, shape (n, n)."""

    def loss_at(place):
        params = jax.tree.map(lambda w, a, b: w + place[0] * a + place[1] * b, state.params, first, second)
        return forward(state, params, batch, intermediates=False)[1]

    places = jnp.stack(jnp.meshgrid(DISTANCES, DISTANCES, indexing="ij"), axis=-1).reshape(-1, 2)
    return jax.lax.map(loss_at, places).reshape(len(DISTANCES), len(DISTANCES))


def direction(params, rng):
    """Draw a direction; each array's part of it is as long as the array (Li et al. 2018, arxiv.org/abs/1712.09913)."""

    def along(array):
        drawn = rng.standard_normal(array.shape)
        return np.float32(drawn * np.linalg.norm(array) / np.linalg.norm(drawn))

    return jax.tree.map(along, params)


def train(config, run, plotter):
    """Train, and return the losses on the validation text."""
    options, rng = config["training"], np.random.default_rng(config["training"]["seed"])
    learn, held_out = text.split()
    shape = options["batch"], config["model"]["length"]
    model = Thoughtbubbles(n_characters=len(text.CHARACTERS), **config["model"])
    params = jax.jit(model.init)(jax.random.key(options["seed"]), *text.draw(learn, rng, *shape))["params"]
    rate = optax.warmup_cosine_decay_schedule(0, options["learning_rate"], 40, options["n_steps"])
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(rate))
    batches = jax.tree.map(lambda *parts: np.stack(parts), *(text.draw(held_out, rng, *shape) for _ in range(4)))
    losses = []
    for step in range(options["n_steps"] + 1):
        if step % options["validate_every"] == 0:
            loss, meta = validate(state, batches)
            losses.append(float(loss))
            print(f"step {step:4}: a loss of {losses[-1]:.3f} a character on the validation text")
            wandb.log({"validation/loss": losses[-1]}, step=step)
            run.log({"validation/loss": losses[-1]}, step=step)
            run.observe("validation", step=step, loss=loss, **meta)
            plotter.submit(meta, step)
            plotter.plot(plots.attention, meta, text.decode(batches[0][0, 0]), step=step, name="analysis/attention")
        state, loss = train_step(state, text.draw(learn, rng, *shape))
        run.observe("batch", step=step, loss=loss, params=state.params)
        if run.stopping:
            break
    directions = direction(state.params, rng), direction(state.params, rng)
    around = losses_around(state, jax.tree.map(lambda b: b[0], batches), *directions)
    plotter.plot(plots.landscape, around, DISTANCES, step=step, name="analysis/landscape")
    return losses


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--root", help="in place of cluster.root")
    arguments = parser.parse_args()
    config = yaml.safe_load(arguments.config.read_text())
    config["cluster"]["root"] = arguments.root or config["cluster"]["root"]
    folder = Path(config["cluster"]["root"], config["project"], config["group"])
    folder.mkdir(parents=True, exist_ok=True)

    begun_s = time.monotonic()
    names = {"project": config["project"], "group": config["group"], "name": config["run_name"]}
    with (
        wandb.init(**names, config=config, dir=folder, mode="offline", settings=wandb.Settings(silent=True)),
        sg.init(config["run_name"], dir=folder, config=config) as run,
        Plotter.from_config(config, Thoughtbubbles) as plotter,
    ):
        client = sg.connect(run)  # or from any other process
        loss, going_on = client.stream(LOSS), client.stream(GOING_ON)
        losses = train(config, run, plotter)
        trained_s = time.monotonic() - begun_s
    print(f"{trained_s:.0f} s of training, then {time.monotonic() - begun_s - trained_s:.1f} s until all were drawn.")
    sg.plot(loss, title="loss, the mean of 25 batches", height=10)
    sg.plot(going_on, title="how much of the text goes through all blocks", view="line", height=8)
    written = sorted((folder / config["run_name"]).glob("*.pdf"))
    print("Figures:", *written, sep="\n  ")
    print(f"Read them in the recorded run, too: sightglass open {run.directory}")

    assert losses[0] > 4.2, "it began by guessing"
    assert losses[-1] < 0.6 * losses[0], "and it has learned"
    drawn = plotter.statistics()
    assert (drawn.n_errors, drawn.n_dropped, drawn.n_here) == (0, 0, 0), (
        f"all figures were drawn, in the child process: {drawn}"
    )
    steps = range(0, config["training"]["n_steps"] + 1, config["training"]["validate_every"])
    names = {f"analysis_{name}_step{step}.pdf" for name in ("cum_scores", "attention") for step in steps}
    assert {path.name for path in written} >= names | {f"analysis_landscape_step{steps[-1]}.pdf"}


if __name__ == "__main__":
    main()
