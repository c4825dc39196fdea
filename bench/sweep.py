"""A sweep as people have them: 60 runs with a nested configuration and seeds, some of which crashed, one with a NaN."""

from __future__ import annotations

import contextlib
import math
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import sightglass as sg

N_RUNS, N_SEEDS, N_STEPS = 60, 4, 300
CRASHED = (7, 23, 41)
SEEDS = (36, 37, 38, 39)  # of one configuration
WITH_NAN, NAN_STEP = 12, 137
WITH_SPIKE, SPIKE_STEP, SPIKE = 33, 211, 40.0


class Sweep(NamedTuple):
    """What is true of the runs.

    Attributes:
        best: The title of the run with the highest `val/accuracy`.
        best_accuracy: Its highest value.
        two: The two runs whose configurations are compared.
        differing: The keys in which these differ.
        good: The number of runs whose highest `val/accuracy` is above 0.8, with Adam.
        spike: The run whose `train/loss` has a spike, and its step.
        nan: The run whose `train/loss` is NaN once, and that step.
        seeds_mean: The mean of the accuracy of the four runs of `SEEDS`, after half of their steps.
        lr_rank: The rank correlation of the learning rates with the highest `val/accuracy`.
        crashed: A run that crashed, and why.
        n_steps: How many steps a run has that did not crash.
    """

    best: str
    best_accuracy: float
    two: tuple[str, str]
    differing: set[str]
    good: int
    seeds_mean: float
    lr_rank: float
    spike: tuple[str, int] = (f"sweep-{WITH_SPIKE:02}", SPIKE_STEP)
    nan: tuple[str, int] = (f"sweep-{WITH_NAN:02}", NAN_STEP)
    crashed: tuple[str, str] = (f"sweep-{CRASHED[0]:02}", "CUDA out of memory")
    n_steps: int = N_STEPS


class CrashError(Exception):
    """What ends some of the runs."""


def config_of(number: int) -> dict[str, object]:
    """Return the configuration of a run; runs in a row differ by the seed only."""
    point = number // N_SEEDS
    return {
        "data": {"augment": point % 5 > 0, "batch": 64},
        "lr": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2][point % 5],
        "seed": number % N_SEEDS,
        "model": {"act": "gelu" if point % 2 else "relu", "depth": 4 + point % 3, "width": 64},
        "opt": {"name": ["adam", "sgd", "lion"][point % 3], "wd": [0.0, 0.01, 0.1][point // 5]},
    }


def make(folder: Path) -> Sweep:
    """Record the sweep."""
    rng = random.Random(0)
    accuracies: dict[str, list[float]] = {}
    for number in range(N_RUNS):
        name = f"sweep-{number:02}"
        accuracies[name] = []
        with contextlib.suppress(CrashError):
            _train(folder, name, number, rng, accuracies[name])
    peaks = {name: max(values) for name, values in accuracies.items()}
    best = max(peaks, key=lambda name: peaks[name])
    good = sum(peak > 0.8 and config_of(int(name[-2:]))["opt"]["name"] == "adam" for name, peak in peaks.items())  # type: ignore[index]
    two = (N_RUNS - 1, N_RUNS - N_SEEDS - 1)
    flat = [_flat(config_of(number)) for number in two]
    differing = {key for key in flat[0] if flat[0][key] != flat[1][key]}
    half = [accuracies[f"sweep-{number:02}"][N_STEPS // 10 - 1] for number in SEEDS]
    rates = [float(config_of(int(name[-2:]))["lr"]) for name in peaks]  # type: ignore[arg-type]
    lr_rank = float(np.corrcoef(_ranks(rates), _ranks(list(peaks.values())))[0, 1])
    return Sweep(
        best, peaks[best], (f"sweep-{two[0]:02}", f"sweep-{two[1]:02}"), differing, good, sum(half) / len(half), lr_rank
    )


def _ranks(values: list[float]) -> npt.NDArray[np.float64]:
    """Return the mean rank of each value among all."""
    _, place, n = np.unique(values, return_inverse=True, return_counts=True)
    ranks: npt.NDArray[np.float64] = (np.cumsum(n) - (n - 1) / 2)[place]
    return ranks


def _train(folder: Path, name: str, number: int, rng: random.Random, accuracies: list[float]) -> None:
    config = config_of(number)
    ceiling, rate = 0.6 + 0.35 * rng.random(), float(config["lr"]) * 20  # type: ignore[arg-type]
    n_steps = 90 if number in CRASHED else N_STEPS
    with sg.init(name, dir=folder, config=config) as run:
        for step in range(n_steps):
            loss = 2.5 * math.exp(-rate * step / 10) + 0.2 * (1 - ceiling) + 0.05 * rng.random()
            if number == WITH_NAN and step == NAN_STEP:
                loss = math.nan
            if number == WITH_SPIKE and step == SPIKE_STEP:
                loss = SPIKE
            values = {"train/loss": loss, "train/grad_norm": 3 * loss + rng.random(), "lr": config["lr"]}
            if step % 5 == 4:
                accuracy = ceiling * (1 - math.exp(-rate * step / 5)) + 0.02 * rng.random()
                accuracies.append(accuracy)
                values |= {"val/accuracy": accuracy, "val/loss": loss + 0.1 * rng.random()}
            run.log(values, step=step)
        if n_steps < N_STEPS:
            raise CrashError(f"{name}: CUDA out of memory")


def _flat(config: object, prefix: str = "") -> dict[str, object]:
    if not isinstance(config, dict):
        return {prefix: config}
    found: dict[str, object] = {}
    for key, value in config.items():
        found |= _flat(value, f"{prefix}.{key}" if prefix else key)
    return found
