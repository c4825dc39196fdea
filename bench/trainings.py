"""Generated trainings, some with a planted fault: what `bench diagnose` judges.

Each trains a small network with NumPy, and records what people log: losses, norms of gradients by layer, the share of
dead units, the time that it waited for data, and the use of its machine. Only the clock and the machine are made up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.process.clock import SystemClock
from sightglass.query.parser import as_query
from sightglass.storage.format.block import Key
from sightglass.storage.run_directory import RunDirectory
from sightglass.storage.run_file import RunFile
from sightglass.storage.write.writer import RecordWriter

BEGAN: Final = 1.7e9
SAMPLE_S: Final = 10.0

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a training is like; the defaults are a healthy one.

    Attributes:
        name: Its name.
        fault: The kind of finding that is planted, or empty.
        seed: Of its data, its weights and its clock.
        depth: How many hidden layers it has.
        act: "relu", "tanh" or "sigmoid".
        scale: By how much the initial weights differ from the usual ones.
        bias: The initial biases of hidden units.
        task: "regression", "classes", or "likelihood", whose loss is negative.
        lr: The learning rate by the share of the training that is over.
        optimizer: "sgd", "momentum" or "adam".
        clip: The largest norm of all gradients.
        batch: Examples a step.
        n_steps: Steps.
        n_train: Examples in all.
        spoil: What happens to the inputs of a step.
        step_s: Seconds of a step, by the share that is over.
        data_share: The share of a step that it waits for data.
        machine: What its machine does: numbers by the seconds since its start.
    """

    name: str
    fault: str = ""
    seed: int = 0
    depth: int = 2
    act: str = "relu"
    scale: float = 1.0
    bias: float = 0.0
    task: str = "classes"
    lr: Callable[[float], float] = lambda share: 0.05
    optimizer: str = "momentum"
    clip: float = np.inf
    batch: int = 32
    n_steps: int = 600
    n_train: int = 2_000
    spoil: Callable[[int, Array], Array] = lambda step, x: x
    step_s: Callable[[float], float] = lambda share: 0.4
    data_share: float = 0.05
    machine: dict[str, Callable[[float], float]] = field(default_factory=dict)


def record(training: Training, folder: Path) -> Path:
    """Train, and record it; return its directory."""
    directory = folder / training.name
    about = RunFile(name=training.name, id=f"{training.seed:012x}", started=BEGAN, host="h", pid=1)
    writer = RecordWriter(RunDirectory(directory, shared=True, about=lambda: about).open, clock=SystemClock())
    rows: dict[str, list[tuple[int, float, float, Any, None, int]]] = {}
    for step, now, numbers in _steps(training):
        for tag, value in numbers.items():
            series = rows.setdefault(tag, [])
            series.append((len(series), step, BEGAN + now, value, None, len(series)))
    for tag, series in rows.items():
        query = as_query(tag) if tag.startswith("system.") else None
        writer.rows(Key(kind="stream", tag=tag, query=query.key) if query else Key(kind="logged", tag=tag), series)
        writer.flush(60)
    writer.close(60)
    return directory


def _steps(training: Training) -> Iterator[tuple[float, float, dict[str, float]]]:
    """Yield the step, the seconds since the start, and the numbers of each record."""
    rng = np.random.default_rng(training.seed)
    now, sampled = 0.0, 0.0
    for step, numbers in enumerate(_trained(training, rng)):
        took_s = training.step_s(step / training.n_steps) * float(rng.lognormal(0, 0.15))
        now += took_s + (8.0 if step % 200 == 199 else 0.0)  # it evaluates, or saves a checkpoint
        yield step, now, {**numbers, "data_time": took_s * training.data_share * float(rng.lognormal(0, 0.2))}
        while sampled <= now:
            usage = {**_usual(rng, sampled), **{name: use(sampled) for name, use in training.machine.items()}}
            yield round(sampled), sampled, {f"system.{name}": value for name, value in usage.items()}
            sampled += SAMPLE_S


def _usual(rng: np.random.Generator, at_s: float) -> dict[str, float]:
    return {
        "cpu_percent": float(rng.uniform(20, 90)), "memory_percent": 40 + float(rng.normal()), "disk_percent": 61.0,
        "process_memory_gb": 2.0 - 0.8 * float(np.exp(-at_s / 40)) + float(rng.normal(0, 0.02)),
        "gpu0_percent": float(np.clip(rng.normal(85, 12), 0, 100)),
    }  # fmt: skip


def _trained(training: Training, rng: np.random.Generator) -> Iterator[dict[str, float]]:
    """Train, and yield what each step logs."""
    x, y = _data(training.task, training.n_train, rng)
    x_val, y_val = _data(training.task, 400, np.random.default_rng(training.seed + 10_000))
    sizes = [x.shape[1], *[32] * training.depth, y.shape[1]]
    gain = {"relu": 2.0, "tanh": 1.0, "sigmoid": 1.0}[training.act]
    weights = [rng.normal(0, training.scale * np.sqrt(gain / n), (n, m)) for n, m in itertools.pairwise(sizes)]
    biases = [np.full(m, training.bias) for m in sizes[1:-1]] + [np.zeros(sizes[-1])]
    parameters = [*weights, *biases]
    moments = [(np.zeros_like(p), np.zeros_like(p)) for p in parameters]
    for step in range(training.n_steps):
        chosen = rng.integers(0, len(x), training.batch)
        with np.errstate(all="ignore"):
            loss, grads, dead = _backward(training, weights, biases, training.spoil(step, x[chosen]), y[chosen])
            norms = [float(np.linalg.norm(grad)) for grad in grads]
            total = float(np.sqrt(np.sum(np.square(norms))))
            shrink = min(1.0, training.clip / total) if total > 0 else 1.0
            rate = training.lr(step / training.n_steps)
            for parameter, grad, moment in zip(parameters, grads, moments, strict=True):
                parameter -= rate * _update(training.optimizer, grad * shrink, moment, step)
            numbers = {"train/loss": loss, "lr": rate, "dead_fraction": dead}
            numbers |= {f"grad_norm/layer{i}": norm for i, norm in enumerate(norms[: len(weights)])}
            if step % 20 == 19:
                numbers["val/loss"] = _backward(training, weights, biases, x_val, y_val)[0]
        yield numbers


def _data(task: str, n: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return inputs and targets; the rule behind them is the same for training and validation."""
    x = rng.normal(size=(n, 8))
    rule = np.random.default_rng(5).normal(size=(8, 4))
    scores = np.tanh(x @ rule) @ np.random.default_rng(6).normal(size=(4, 4)) + rng.normal(0, 0.3, (n, 4))
    if task == "classes":
        return x, np.eye(4)[scores.argmax(1)]
    return x, scores[:, :1]


def _backward(
    training: Training, weights: list[Array], biases: list[Array], x: Array, y: Array
) -> tuple[float, list[Array], float]:
    """Return the loss, the gradients of weights and biases, and the share of units that are zero for all examples."""
    hidden, dead = [x], [0.0]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        z = hidden[-1] @ weight + bias
        hidden.append(ACTIVATIONS[training.act](z))
        dead.append(float((hidden[-1] == 0).all(0).mean()))
    out = hidden[-1] @ weights[-1] + biases[-1]
    if training.task == "classes":
        shares = np.exp(out - out.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        loss, delta = float(-np.log((shares * y).sum(1)).mean()), (shares - y) / len(x)
    else:
        loss, delta = float(np.square(out - y).mean()), 2 * (out - y) / len(x)
        if training.task == "likelihood":
            loss -= 5.0
    grads: list[Array] = []
    by_bias: list[Array] = []
    for i in range(len(weights) - 1, -1, -1):
        grads.insert(0, hidden[i].T @ delta)
        by_bias.insert(0, delta.sum(0))
        if i:
            h = hidden[i]
            slope = {"relu": (h > 0).astype(float), "tanh": 1 - h * h, "sigmoid": h * (1 - h)}[training.act]
            delta = (delta @ weights[i].T) * slope
    return loss, [*grads, *by_bias], max(dead)


def _sigmoid(z: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-z)))


ACTIVATIONS: Final[dict[str, Callable[[Array], Array]]] = {
    "relu": lambda z: np.maximum(z, 0),
    "tanh": lambda z: np.asarray(np.tanh(z)),
    "sigmoid": _sigmoid,
}


def _update(optimizer: str, grad: Array, moment: tuple[Array, Array], step: int) -> Array:
    first, second = moment
    if optimizer == "sgd":
        return grad
    if optimizer == "momentum":
        first *= 0.9
        first += grad
        return 0.3 * first
    first += 0.1 * (grad - first)
    second += 0.001 * (grad * grad - second)
    n = step + 1
    return 0.1 * np.asarray(first / (1 - 0.9**n) / (np.sqrt(second / (1 - 0.999**n)) + 1e-8))


def _cosine(share: float) -> float:
    return 0.05 * (0.5 + 0.5 * float(np.cos(np.pi * share)))


def _warm_restarts(share: float) -> float:
    return _cosine(share * 4 % 1)


HEALTHY: Final[tuple[Training, ...]] = tuple(
    Training(name=f"healthy-{i:02}", seed=5_000 + i, **options)  # type: ignore[arg-type]
    for i, options in enumerate(
        [
            {},
            {"optimizer": "sgd", "lr": lambda s: 0.1},
            {"optimizer": "adam"},
            {"depth": 4},
            {"act": "tanh", "depth": 3},
            {"act": "sigmoid", "depth": 1, "lr": lambda s: 0.3},
            {"task": "regression"},
            {"task": "likelihood"},
            {"task": "regression", "optimizer": "adam"},
            {"lr": _cosine},
            {"lr": _warm_restarts},
            {"batch": 4},
            {"batch": 1, "lr": lambda s: 0.005, "n_steps": 3_000},
            {"n_steps": 60},
            {"n_steps": 5_000, "step_s": lambda s: 0.02},
            {"n_train": 60, "n_steps": 2_000},  # it overfits: its loss goes to nothing, that of validation rises
            {"n_train": 200, "n_steps": 1_500},
            {"lr": lambda s: 0.05 * min(1.0, s / 0.1)},
            {"lr": lambda s: 0.002, "n_steps": 3_000},
            {"clip": 1.0, "batch": 2},
            {"lr": lambda s: 0.5 if s < 0.01 else 0.05, "clip": 1.0},
            {"spoil": lambda step, x: 5 * x if step % 150 == 149 else x},  # a batch of outliers at times
            {"step_s": lambda s: 0.4 if s > 0.02 else 5.0},  # it compiles at first
            {"step_s": lambda s: 0.4 + 0.3 * (0.4 < s < 0.6)},  # another job came and went
            {"data_share": 0.15},
            {"machine": {"gpu0_percent": lambda t: 60.0}},
            {"machine": {"disk_percent": lambda t: 88.0}},
            {"machine": {"process_memory_gb": lambda t: 3 + 0.1 * (t % 100 > 50)}},
            {"depth": 3, "optimizer": "adam", "batch": 8},
            {"task": "regression", "act": "tanh", "lr": _cosine, "n_steps": 2_000},
        ]
    )
)
"""Thirty that a person would call healthy."""

PLANTED: Final[tuple[Training, ...]] = tuple(
    Training(name=f"planted-{i:02}", seed=7_000 + i, fault=fault, **options)  # type: ignore[arg-type]
    for i, (fault, options) in enumerate(
        [
            (
                "divergence",
                {"task": "regression", "optimizer": "sgd", "lr": lambda s: 0.02 if s < 0.5 else 3.0, "clip": 1.0},
            ),
            ("divergence", {"lr": lambda s: 0.05 if s < 0.6 else 20.0, "clip": 2.0}),
            ("divergence", {"task": "regression", "optimizer": "adam", "lr": lambda s: 0.01 + 40 * s * s}),
            ("divergence", {"act": "tanh", "lr": lambda s: 0.05 if s < 0.7 else 30.0, "clip": 1.0, "n_steps": 2_000}),
            ("nan", {"spoil": lambda step, x: np.where(np.arange(8) == 3, np.nan, x) if step == 333 else x}),
            ("nan", {"task": "regression", "optimizer": "sgd", "lr": lambda s: 2.0}),
            ("nan", {"depth": 4, "lr": lambda s: 0.05 if s < 0.4 else 1e6}),
            ("infinity", {"lr": lambda s: 0.05 if s < 0.8 else 400.0, "clip": 1.0}),
            ("plateau", {"lr": lambda s: 0.0}),
            ("plateau", {"lr": lambda s: 1e-7, "n_steps": 3_000}),
            ("plateau", {"bias": -50.0, "depth": 3}),
            ("plateau", {"act": "sigmoid", "depth": 8}),
            (
                "exploding",
                {"task": "regression", "optimizer": "sgd", "lr": lambda s: 0.02 if s < 0.6 else 5.0, "clip": 50.0},
            ),
            ("exploding", {"spoil": lambda step, x: 1e6 * x if step == 400 else x, "clip": 1.0}),
            ("exploding", {"depth": 6, "lr": lambda s: 0.01 if s < 0.7 else 10.0, "clip": 5.0}),
            ("vanishing", {"act": "sigmoid", "depth": 10}),
            ("vanishing", {"act": "sigmoid", "depth": 9, "lr": lambda s: 0.02}),
            ("vanishing", {"act": "tanh", "depth": 6, "scale": 0.05}),
            ("dead units", {"bias": -4.0}),
            ("dead units", {"lr": lambda s: 3.0 if s < 0.02 else 0.01, "depth": 3, "clip": 20.0}),
            ("slower", {"step_s": lambda s: 0.4 + 0.6 * s}),
            ("slower", {"step_s": lambda s: 0.1 * (1 + 4 * s), "n_steps": 2_000}),
            ("waiting for data", {"data_share": 0.6}),
            ("waiting for data", {"data_share": 0.45, "step_s": lambda s: 0.05, "n_steps": 3_000}),
            ("memory grows", {"machine": {"process_memory_gb": lambda t: 2 + t / 100}}),
            ("memory grows", {"machine": {"process_memory_gb": lambda t: 8 + t / 60}, "n_steps": 1_500}),
            ("memory full", {"machine": {"memory_percent": lambda t: min(98.0, 40 + t)}}),
            ("disk full", {"machine": {"disk_percent": lambda t: min(99.5, 90 + t / 10)}}),
            ("gpu idle", {"machine": {"gpu0_percent": lambda t: 3.0}}),
            ("gpu idle", {"machine": {"gpu1_percent": lambda t: 0.0}}),
        ]
    )
)
"""Thirty with one planted fault each; others may follow from it."""
