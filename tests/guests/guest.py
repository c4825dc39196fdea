"""What the programs of this folder share: each trains as its public example does, with or without a run.

A program is a generator: `train(run)` yields when it is set up, and after each round, such as an epoch, what a test
compares. Without a run it never calls Sightglass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

import sightglass as sg


@dataclass(frozen=True, kw_only=True, slots=True)
class Round:
    """Where a training is.

    Attributes:
        losses: The losses of all steps so far.
        weights: The parameters now, by reference.
        seen: What else a program knows of its last step: the truth of a question is computed from it.
    """

    losses: list[float]
    weights: list[Any]
    seen: SimpleNamespace = field(default_factory=SimpleNamespace)

    def bits(self) -> list[bytes]:
        """Return the bytes of losses and parameters."""
        weights = [w.detach() if hasattr(w, "detach") else w for w in self.weights]
        return [np.asarray(one).tobytes() for one in (self.losses, *weights)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Guest:
    """A program, and what its users would ask.

    Attributes:
        train: Begins the training, with a run or without.
        questions: Queries, and what computes the value of the last record by hand, if anything does.
        control: A control, a value for it, and a question whose last answer is that value once it is in force.
        losses: The question whose records are the losses by step.
    """

    train: Callable[[sg.Run | None], Iterator[Round]]
    questions: Mapping[str, Callable[[Round], Any] | None]
    control: tuple[str, Any, str]
    losses: str = "batch.loss"


def begun(guest: Guest, run: sg.Run | None) -> Iterator[Round]:
    """Return a training that is set up, and has taken no step."""
    training = guest.train(run)
    next(training)
    return training


def after(n_rounds: int, training: Iterator[Round]) -> Round:
    """Take rounds, and return the last one."""
    return [next(training) for _ in range(n_rounds)][-1]
