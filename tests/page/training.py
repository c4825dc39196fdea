"""A training that the page watches: it offers a bit of everything, and says what it does. python training.py NAME."""

from __future__ import annotations

import itertools
import math
import os
import sys
import time
from typing import Any

import numpy as np

import sightglass as sg

EPOCH = 100


def say(*words: object) -> None:
    """Tell the test, by a line."""
    print(*words, flush=True)


def train(name: str, folder: str, *, pace_s: float = 0.01) -> None:
    """Train until stopped."""
    rng = np.random.default_rng(0)
    config = {"lr": 0.1, "seed": 0, "opt": {"name": "adam"}}
    os.environ.pop("SIGHTGLASS_FACTS", None)
    with sg.init(name, dir=folder, config=config, budget=None, facts=sg.Facts(system=False)) as run:
        controls = {
            "lr": run.control("lr", 0.1, min=0.0, max=1.0),
            "warmup": run.control("warmup", 100, min=0, max=1000),
            "patience": run.control("patience", 5, min=1),
            "augment": run.control("augment", True),
            "schedule": run.control("schedule", "cosine", choices=["cosine", "linear"]),
            "label": run.control("label", "first"),
        }
        before = {key: control.value for key, control in controls.items()}

        def checkpoint(name: str = "latest", *, keep: int = 3) -> str:
            """Save the weights."""
            say("called", "checkpoint", name, repr(keep))
            return "saved"

        def explode() -> None:
            """Fail."""
            raise ValueError("no space left for explode")

        run.action("checkpoint", checkpoint)
        run.action("explode", explode)
        x = np.linspace(-1, 1, 40).reshape(8, 5)
        for step in itertools.count():
            if run.stopping:
                break
            if step == 1:
                say("ready", run.id)  # the first event was: what is offered is known
            observe(run, step, x, rng)
            for key, control in controls.items():
                if control.value != before[key]:
                    before[key] = control.value
                    say("set", key, repr(control.value))
            run.log({"train/loss": 1 / (1 + step), "train/lr": controls["lr"].value}, step=step)
            if step % EPOCH == 0:
                run.log({"kernel": sg.Tensor(x + step), "acts": sg.Histogram(rng.normal(size=200))}, step=step)
            if step % EPOCH == EPOCH - 1:
                run.end_group("batch")
            if step % 20 == 0:
                say("step", step)
            time.sleep(pace_s)
    say("done", step)


def observe(run: Any, step: int, x: np.ndarray, rng: np.random.Generator) -> None:
    """Announce one step with all that can be asked for."""
    loss = 1 + math.sin(step / 20) / 2
    run.observe(
        "batch",
        step=step,
        loss=loss,
        ramp=step % EPOCH,
        grads={"dense": x * loss, "bias": x[0]},
        params={"dense": x, "bias": x[1]},
        vector=x[0] * loss,
        matrix=x * loss,
        noise=rng.normal(size=100),
        digit=sg.Image(np.full((8, 8), step % 256, np.uint8), caption="a digit"),
        note=f"<img src=x onerror=alert({step})> step {step}",
    )


if __name__ == "__main__":
    pace = float(sys.argv[3]) if len(sys.argv) > 3 else 0.01
    train(sys.argv[1], sys.argv[2], pace_s=pace)
