"""What the simulated training offers, and the questions that clients ask about it, each with the right answer.

Every value follows from the seed and the number of its event, so each record can be checked by itself: a record with
step s of n events holds what its reducer makes of the last n values up to event s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

GROUP = 9  # batches between two `end_group`
EPOCH = 20  # batches between two epochs
PUBLISHED = "best"  # the event that a client publishes
FAILS = 11  # of so many device values one fails


def loss(seed: int, i: int) -> float:
    """Return a number with few digits, so that sums do not depend on their order."""
    return ((i * 2_654_435_761 + seed * 40_503) % 1_021) / 64


def vector(seed: int, i: int) -> np.ndarray[Any, Any]:
    """Return a small array."""
    return np.asarray([loss(seed, i), i, -i, seed % 100], np.float32)


def fails(i: int) -> bool:
    """Return whether the device loses the value of an event."""
    return i % FAILS == 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A query, and how its answer is computed.

    Attributes:
        query: Its text.
        event: The event that it reads.
        value: Returns the value of an event, by the seed and the event's number.
        takes: Returns whether an event has a value, by the same.
        reduce: The reducer, or `None`.
        every: The number of events of a group; 0 for groups of another kind.
        per: The event that closes groups, or "end_group".
    """

    query: str
    value: Callable[[int, int], Any]
    event: str = "batch"
    takes: Callable[[int, int], bool] = lambda seed, i: True
    reduce: Callable[[Sequence[Any]], Any] | None = None
    every: int = 0
    per: str = ""

    def answer(self, seed: int, step: int, n_events: int) -> Any:
        """Return the value that a record with this step must have."""
        if self.reduce is None:
            return self.value(seed, step)
        return self.reduce([self.value(seed, i) for i in self.events(seed, step, n_events)])

    def events(self, seed: int, step: int, n_events: int) -> list[int]:
        """Return the numbers of the last `n_events` events with values, up to a step."""
        found: list[int] = []
        i = step
        while i >= 0 and len(found) < n_events:
            if self.takes(seed, i):
                found.append(i)
            i -= 1
        return found[::-1]


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return math.fsum(values) / len(values)


QUESTIONS = (
    Question(query="batch.loss", value=loss),
    Question(query="batch.n", value=lambda seed, i: i),
    Question(query="batch.text", value=lambda seed, i: f"batch {i}"),
    Question(query="batch.vector", value=vector),
    Question(query="on('batch').map(lambda b: b.vector * 2)", value=lambda seed, i: vector(seed, i) * 2),
    Question(
        query="on('batch').where(lambda b: b.loss > 8).map(lambda b: b.loss)", value=loss,
        takes=lambda seed, i: loss(seed, i) > 8,
    ),
    Question(query="batch.device", value=loss, takes=lambda seed, i: not fails(i)),
    Question(query="epoch.accuracy", event="epoch", value=loss),
    Question(query="log['val/x']", event="log", value=loss),
    Question(query="init.weight", event="init", value=loss),
    Question(query="best.value", event=PUBLISHED, value=loss),
    Question(query="on('batch').map(lambda b: b.loss).mean(every=7)", value=loss, reduce=mean, every=7),
    Question(query="on('batch').map(lambda b: b.n).sum(every=5)", value=lambda seed, i: i, reduce=sum, every=5),
    Question(query="on('batch').map(lambda b: b.loss).max(per='epoch')", value=loss, reduce=max, per="epoch"),
    Question(query="on('batch').map(lambda b: b.loss).min()", value=loss, reduce=min, per="end_group"),
    Question(query="on('batch').map(lambda b: b.n).last()", value=lambda seed, i: i, reduce=max, per="end_group"),
    Question(query="on('batch').map(lambda b: b.loss).count(every='200 ms')", value=loss, reduce=len),
    Question(
        query="on('batch').where(lambda b: b.loss > 8).map(lambda b: b.loss).sum(every=10)", value=loss,
        takes=lambda seed, i: loss(seed, i) > 8, reduce=math.fsum,
    ),
    Question(
        query="on('batch').map(lambda b: b.device).sum(every=4)", value=loss, takes=lambda seed, i: not fails(i),
        reduce=math.fsum,
    ),
    Question(
        query="on('batch').map(lambda b: b.loss).mean(when=lambda b: b.n % 6 == 5)", value=loss, reduce=mean, every=6,
    ),
)  # fmt: skip
