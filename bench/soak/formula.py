"""What every record must be: each value is a formula of the number of its event, which is also its step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from sightglass.core.columns import Record
from sightglass.core.counts import Statistics
from sightglass.core.values import Histogram

RATE = 300  # events a second
GROUP = 100  # events between two calls of `end_group`, and in a window of the reducers
LOG_EVERY = 10  # events between two calls of `log`
STATE_EVERY = 300  # events between two snapshots, and between two logged tensors
SIZE = 16  # of the tensor


def loss(n: int) -> float:
    """Return the loss of an event: a float whose last bits matter."""
    return (n * 2_654_435_761 % 2**32) / 3.0


def losses(n: Any) -> Any:
    """Return the losses of several events."""
    return (np.asarray(n, np.int64) * 2_654_435_761 % 2**32) / 3.0


def tensor(n: int) -> Any:
    """Return the small tensor of an event."""
    return np.arange(n, n + SIZE, dtype=np.float32)


def observables(n: int) -> dict[str, Any]:
    """Return what an event offers."""
    return {"n": n, "loss": loss(n), "x": tensor(n), "parts": {"a": n, "b": -n}}


@dataclass(frozen=True)
class Question:
    """A query, and what its records must be.

    Attributes:
        query: The query.
        value: Returns what a record of this step, over this many events, must hold.
        stride: How many events lie between two records.
        counted: Whether it is known how many records a hole has. An event that a condition might have held back counts
            as one, and so does any number of the run's groups; a publisher's own holes are not in its numbers.
        contiguous: Whether the events of an incomplete window follow one another.
    """

    query: str
    value: Callable[[int, int], Any]
    stride: int = 1
    counted: bool = True
    contiguous: bool = True


def window(step: int, n: int) -> range:
    """Return the events of a window that ends with an event."""
    return range(step - n + 1, step + 1)


EVENTS = (
    Question("batch.loss", lambda step, n: loss(step)),
    Question("batch.x", lambda step, n: tensor(step)),
    Question("batch.parts", lambda step, n: {"a": step, "b": -step}),
    Question("(batch.n, batch.loss)", lambda step, n: (step, loss(step))),
    Question("batch.x.max() - batch.x.min()", lambda step, n: SIZE - 1),
    Question(
        "on('batch').where(lambda e: e.n % 7 == 0).map(lambda e: e.n)", lambda step, n: step, stride=7, counted=False
    ),
    Question("log['logged/loss']", lambda step, n: loss(step), stride=LOG_EVERY),
    Question("state.params", lambda step, n: tensor(step), stride=STATE_EVERY),
)
REDUCERS = (
    Question("batch.n.mean(every=100)", lambda step, n: step - (n - 1) / 2, stride=GROUP),
    Question("on('batch').map(lambda e: e.n).sum()", lambda step, n: sum(window(step, n)), stride=GROUP, counted=False),
    Question("batch.n.max(every=100)", lambda step, n: step, stride=GROUP),
    Question("batch.n.quantile(0.5, every=100)", lambda step, n: step - (n - 1) / 2, stride=GROUP),
    Question("batch.n.top(3, every=100)", lambda step, n: list(window(step, min(n, 3)))[::-1], stride=GROUP),
    Question("batch.n.collect(5, every=100)", lambda step, n: list(window(step, n))[:5], stride=GROUP),
    Question("batch.n.histogram(every=100)", lambda step, n: n, stride=GROUP),
    Question("batch.loss.min(every=100)", lambda step, n: min(map(loss, window(step, n))), stride=GROUP),
)
SLEEPER = (EVENTS[0], Question("batch.n + 1", lambda step, n: step + 1))  # shared with others, and its own
RECORDED = ("batch.loss", "batch.x", "batch.n.mean(every=100)")


class StreamCheck:
    """Checks the records of a stream, one by one.

    Attributes:
        n: How many records came.
        n_wrong: How many of them were not what they must be.
        n_missing: How many did not come, by the gaps in the index.
        last_step: The step of the last one.
        wrong: The first one that was wrong, in words.
    """

    def __init__(self, question: Question) -> None:
        self.question = question
        self.n = self.n_wrong = self.n_missing = 0
        self.last_step = -1
        self.wrong = ""
        self._last_index = -1
        self._was_complete = False

    def take(self, record: Record) -> None:
        """Check a record."""
        step, value = int(record.step), record.value
        if isinstance(value, Histogram):
            value = int(np.sum(value.counts))
        expected = self.question.value(step, record.n_events)
        if (record.complete or self.question.contiguous) and not same(value, expected):
            self._note(f"step {step}: expected {expected!r:.100}, got {value!r:.100}")
        if self.n:
            n_between = record.index - self._last_index
            self.n_missing += n_between - 1
            # The last window ends with the run; before it, records lie as far apart as their numbers.
            n_steps, stride = step - self.last_step, self.question.stride
            is_due = n_steps == n_between * stride if self.question.counted else n_steps >= n_between
            whole = (record.complete and self._was_complete) or self.question.contiguous
            if not is_due and record.closed and whole:
                self._note(f"index {self._last_index} to {record.index}, but step {self.last_step} to {step}")
        self.n, self.last_step, self._last_index = self.n + 1, step, record.index
        self._was_complete = record.complete

    def _note(self, what: str) -> None:
        self.n_wrong += 1
        self.wrong = self.wrong or f"{self.question.query}: {what}"

    def report(self, counts: Statistics) -> dict[str, Any]:
        """Return the counts, with what the stream says that did not come, or was forgotten before it was read."""
        n_counted = counts.n_lost + counts.n_thinned + max(0, counts.n_forgotten - self.n)  # what was read is, too
        # A reducer in the client has no gaps: the counts are those of the stream that it reads.
        n_uncounted = abs(self.n_missing - n_counted) if self.question.contiguous else 0
        return {"query": self.question.query, "n": self.n, "n_wrong": self.n_wrong, "wrong": self.wrong,
                "n_lost": counts.n_lost, "n_thinned": counts.n_thinned, "n_uncounted": n_uncounted,
                "last_step": self.last_step, "stride": self.question.stride,
                "counts": f"{self.n_missing:,} missing, {counts.n_lost:,} lost, {counts.n_thinned:,} thinned, "
                f"{counts.n_forgotten:,} forgotten of {self.n:,} read"}  # fmt: skip


def same(value: Any, expected: Any) -> bool:
    """Return whether a value is exactly the expected one, in type and shape too where it is an array."""
    if isinstance(expected, np.ndarray):
        return isinstance(value, np.ndarray) and value.dtype == expected.dtype and np.array_equal(value, expected)
    return bool(value == expected)
