"""An object of a user that holds a run, as trackers' users write it, and what another process sees of it."""

from __future__ import annotations

import warnings
from typing import Any

import sightglass as sg


class Settings:
    """Settings of an optimizer."""

    decay = 0.125


class Trainer:
    """Holds a run and controls of it."""

    def __init__(self, run: sg.Run) -> None:
        self.run = run
        self.lr = run.control("lr", 0.5, min=0.0, max=1.0)
        self.decay = run.control("decay", bind=(Settings(), "decay"), min=0.0, max=1.0)


def of_another_process(trainer: Trainer) -> dict[str, Any]:
    """Use all of it, and return what it says."""
    run = trainer.run
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            run.observe("batch", step=step, loss=1.0)
            run.log({"y": 1.0})
        run.control("more", 1)
        run.action("save", print)
        run.function("double", abs)
        run.close()
    return {
        "known": (run.name, run.id, dict(run.config), run.directory),
        "values": (trainer.lr.value, trainer.decay.value),
        "stopping": run.stopping,
        "warned": [str(one.message).partition(":")[0] for one in caught],
    }
