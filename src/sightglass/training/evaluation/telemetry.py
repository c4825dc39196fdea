"""The inside of a run: events, subscriptions, commands, deferred work and compiled steps around one lock."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sightglass.core.process.clock import EventClock, WorkClock
from sightglass.core.process.ranks import Agree
from sightglass.core.process.threads import Worker
from sightglass.query.meter import HeldMemory
from sightglass.training.command_runner import CommandRunner
from sightglass.training.options import EVENT_S

from .aside import Aside
from .budget import Budget, Turns
from .compiled import CompiledSteps
from .deferred import DeferredWork
from .events import EventIntake
from .lock import TurnLock
from .subscription import Subscription
from .subscriptions import Subscriptions


class Telemetry:
    """What a run is made of, without clients, sockets and files.

    Attributes:
        lock: Held while queries are evaluated and while subscriptions change.
        subscriptions: The events of the run, and who reads them.
        steps: The compiled steps.
        deferred: The work that waits for devices.
        memory: What queries hold between events.
        aside: The place for a query that does not fit into an event.
        commands: The commands of clients.
        budget: What queries may cost.
        clock: The time of the events.
        events: Where events enter.
        wake: Called when there are new records or results.
    """

    def __init__(
        self,
        *,
        clock: WorkClock,
        budget: float | None,
        agree: Agree | None = None,
        leads: bool = True,
        worker: type[Worker] = Worker,
        max_event_s: float = EVENT_S,
    ) -> None:
        """Start without events.

        Args:
            clock: The time.
            budget: The share of the run's time that queries may take; `None` for any.
            agree: The broadcast of a program of several processes.
            leads: Whether this is rank 0.
            worker: Runs the loops that wait for devices.
            max_event_s: The seconds that queries may take of an event.
        """
        self.wake: Callable[[], None] = lambda: None
        self.lock = TurnLock()
        self.subscriptions = Subscriptions(partial(Turns, max_event_s))
        self.steps = CompiledSteps()
        self.deferred = DeferredWork(self.lock, wake=self._wake, worker=worker)
        self.aside = Aside(self.deferred.defer_aside)
        self.memory = HeldMemory(lambda: (self.aside, *self.subscriptions.active.values()))
        self.commands = CommandRunner(
            lock=self.lock, subscriptions=self.subscriptions, steps=self.steps, clock=clock, wake=self._wake,
            agree=agree, leads=leads,
        )  # fmt: skip
        self.clock = EventClock(clock)
        self.budget = Budget(budget, clock=clock, lock=self.lock)
        self.events = EventIntake(
            lock=self.lock, subscriptions=self.subscriptions, commands=self.commands, clock=self.clock,
            budget=self.budget, wake=self._wake,
        )  # fmt: skip

    @property
    def closed(self) -> bool:
        """Whether the run has ended."""
        return self.events.closed

    def open(self, subscription: Subscription, *, replay: bool = True) -> None:
        """Start to evaluate a subscription, first on the snapshot of its event, unless it joins others."""
        with self.lock.turn():
            source = self.subscriptions.sources.get(subscription.event)
            # What it joins may have happened since.
            if replay and source is not None and source.snapshot is not None and not subscription.query.joins:
                index, step, wall_time, observables = source.snapshot
                subscription.post(index, step, wall_time, observables)
            self.subscriptions.open(subscription)
            self.steps.subscriptions_changed()

    def close_subscription(self, subscription: Subscription) -> None:
        """Stop evaluating a subscription."""
        with self.lock.turn():
            self.subscriptions.close(subscription)
            self.steps.subscriptions_changed()
            if not self.subscriptions.active:
                self.aside.kept.clear()

    def flush(self, timeout_s: float) -> None:
        """Wait until all deferred work is settled."""
        self.steps.flush(timeout_s)
        self.deferred.flush(timeout_s)

    def close(self, *, timeout_s: float = 2.0) -> None:
        """End the run: emit what is open in windows, and ignore events from now on."""
        if self.steps:
            self.flush(timeout_s)
        with self.lock.mutex:
            if self.closed:
                return
            for subscription in self.subscriptions.active.values():
                subscription.tail.finish()
        self.flush(timeout_s)
        with self.lock.mutex:
            self.events.closed = True
            self.subscriptions.alert(True)
            self.subscriptions.busy.clear()
            self.commands.close()
        self.steps.close()
        self.deferred.close()

    def abandon(self) -> None:
        """Become a no-op in a forked child, where the threads that hold the lock do not exist."""
        self.lock.abandon()
        self.subscriptions.abandon()
        self.deferred.abandon()
        self.events.abandon()

    def _wake(self) -> None:
        self.wake()
