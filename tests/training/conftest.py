"""What the tests of the training side share: a clock that is moved by hand, and telemetry without clients."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from sightglass.query.evaluation import Evaluation
from sightglass.query.meter import MAX_BYTES, Meter
from sightglass.query.parser import parse
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.options import EVENT_S


class FakeClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.cpu_s = self.queued_s = 0.0

    def wall(self) -> float:
        return self.now_s + 1_000_000.0

    def monotonic(self) -> float:
        return self.now_s

    def cpu(self) -> float:
        return self.cpu_s

    def queued(self) -> float:
        return self.queued_s

    def ran(self, thread: int) -> float | None:
        return self.cpu_s

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds

    def work(self, seconds: float) -> None:
        """Let the thread compute."""
        self.now_s += seconds
        self.cpu_s += seconds

    def preempt(self, seconds: float, *, told: bool = True) -> None:
        """Let the thread wait for a processor; the system may not tell."""
        self.now_s += seconds
        self.queued_s += seconds * told


class Bench:
    """Telemetry, and the subscriptions that were opened on it."""

    def __init__(self, clock: FakeClock, functions: dict[str, Callable[..., Any]], **options: Any) -> None:
        self.clock = clock
        self.functions = functions
        self.limited = options.pop("aside", False)
        self.telemetry = Telemetry(clock=clock, **{"budget": None, **options})
        self._numbers = itertools.count(1)

    def ask(self, text: str) -> Subscription:
        query = parse(text, functions=self.functions)
        meter = Meter(limit_s=EVENT_S, max_bytes=MAX_BYTES, memory=self.telemetry.memory) if self.limited else None
        evaluation = Evaluation(query, self.functions, meter=meter)
        subscription = Subscription(
            next(self._numbers), query, evaluation, clock=self.clock, defer=self.telemetry.deferred.defer,
            aside=self.telemetry.aside if self.limited else None,
        )  # fmt: skip
        self.telemetry.open(subscription)
        return subscription

    def observe(self, event: str, /, **observables: Any) -> None:
        """Do what `Run.observe` does."""
        count = self.telemetry.subscriptions.idle.get(event)
        if count is not None:
            count()
        else:
            self.telemetry.events.observe(event, observables)

    def log(self, data: Any, step: Any = None, **steps: Any) -> None:
        self.telemetry.events.log(data, step, steps)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def bench(clock):
    """Return a function that makes benches; all are closed in the end."""
    made = []

    def make(functions: dict[str, Callable[..., Any]] | None = None, **options: Any) -> Bench:
        made.append(Bench(clock, functions or {}, **options))
        return made[-1]

    yield make
    for one in made:
        one.telemetry.close()


@pytest.fixture
def values():
    """Return a function that lists the values of a subscription's rows."""
    return lambda subscription: [row[3] for row in subscription.rows]
