"""Where commands are applied: at events, in `Run.apply`, or in `Run.apply_async`; outside the lock of the run.

By default a command waits for the next event of the thread that made the run, which is the training's in most
programs: there nothing reads a control at the same time. What the program declares with `thread="any"` is applied on
the thread of whichever event comes first. Each command is taken out of the queue under the lock, so it is applied once.

A slow action does not block the `io` thread, which takes the lock in between.

An event in a running event loop of asyncio never waits: it would hold up the other tasks. There a pause takes effect in
`Run.apply_async`, if the program awaits that, and is refused if it does not.

In a program of several ranks all of them apply a command at the same event: see `agreement`; or, with
`sg.Ranks(agree=…)`, by a broadcast of the program's own at each event.

`EventThreads` knows which threads announce the events of a run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from sightglass.core.errors import CommandError, UnsendableError, unknown
from sightglass.core.process.clock import Clock, WorkClock
from sightglass.core.process.current_run import acting
from sightglass.core.process.ranks import Agree
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import FAILURES

from .commands import AgreedCommands, Command, CommandQueue, CommandResult, Place, agreed, pack
from .controls import attribute_path
from .evaluation.compiled import CompiledSteps
from .evaluation.deferred import host_step
from .evaluation.lock import TurnLock
from .evaluation.subscriptions import Subscriptions

PAUSE_POLL_S: Final = 1.0  # a paused run is woken by commands; the poll only bounds the delay if a wake-up is missed
PAUSE_ASYNC_POLL_S: Final = 0.05  # an event loop cannot wait for the condition; nobody notices so short a delay
Observables = Mapping[str, Any] | None
APPLY: Final = "apply"  # the event of commands that `Run.apply` applies
APPLIES: Final = "run.apply()"  # its name among ranks: an event of the program may be named "apply"
NOT_AWAITED: Final = (
    "Expected a program that awaits run.apply_async() in its event loop, where a pause lets other tasks go on: inside "
    "observe it would hold up the whole loop"
)


class CommandRunner:
    """Applies the commands of a run.

    Attributes:
        queue: The commands that wait, and the controls and actions that they are about.
        threads: Which threads announce events.
        on_result: Called with each result, under the lock.
        lock: The lock of the run.
        changed: Its condition; notified when a command arrives, and when the run resumes.
        subscriptions: The events of the run.
        steps: The compiled steps.
        clock: The time.
        n_applies: How many times `Run.apply` has looked for commands.
        at: The event at which the run's thread applies commands now, or is paused, and its number.
        agreement: How this rank and the others apply commands together; `None` if it has no others, or if the program
            supplies a broadcast.
        interval_s: Returns the usual seconds between two events of a name; `None` if they are not known.
        run: The id of the run.
    """

    def __init__(
        self,
        *,
        lock: TurnLock,
        subscriptions: Subscriptions,
        steps: CompiledSteps,
        clock: WorkClock,
        wake: Callable[[], None],
        agree: Agree | None = None,
        leads: bool = True,
    ) -> None:
        """Start without commands.

        Args:
            lock: The lock of the run.
            subscriptions: The events of the run.
            steps: The compiled steps, whose plans all ranks agree on with the commands.
            clock: The time.
            wake: Called when there is a result.
            agree: The broadcast of a program of several processes.
            leads: Whether this is rank 0, whose commands all ranks apply.
        """
        self.queue = CommandQueue()
        self.queue.on_applied = self._applied
        self.threads = EventThreads(clock)
        self.on_result: Callable[[CommandResult], None] = lambda result: None
        self.agreement: AgreedCommands | None = None
        self.interval_s: Callable[[str], float | None] = lambda event: None
        self.lock = lock
        self.changed = threading.Condition(lock.mutex)
        self.subscriptions = subscriptions
        self.steps = steps
        self.clock = clock
        self._wake = wake
        self._agree = agree
        self._leads = leads
        self.n_applies = 0
        self.at: tuple[str, int] | None = None
        self.run = ""
        self._closed = False
        if agree is not None:
            subscriptions.alert(True)

    @property
    def agrees(self) -> bool:
        """Whether several processes apply commands together."""
        return self._agree is not None or self.agreement is not None

    def add(self, command: Command) -> None:
        """Let a command wait for its event.

        Raises:
            CommandError: It cannot succeed.
        """
        if self.agrees:
            try:
                pack(command)
            except UnsendableError as error:
                raise CommandError(str(error)) from None
        with self.lock.turn():
            action = self.queue.actions.get(command.name) if command.kind == "call" else None
            if self.agrees and action is not None and action.awaits:
                raise CommandError(
                    f"Expected a plain function as action {command.name!r} in a program of several ranks, got an async "
                    "one: their event loops do not run alike"
                )
            self.queue.add(self._reachable(command))
            self._alert()
        if self.agreement is not None:
            self.agreement.wake()

    def release(self, client: str) -> None:
        """End the pause of a client that is gone; its other commands stay in force."""
        with self.lock.turn():
            proposed = () if self.agreement is None else self.agreement.commands()
            if self.queue.release(client, proposed):
                self._alert()

    def waits_for(self, command: Command) -> str:
        """Return what applies a command that waits, for its client; the run's name follows."""
        action = self.queue.actions[command.name] if command.kind == "call" else None
        if action is not None and action.awaits:
            return "Waiting for `await run.apply_async()` in"
        event = f" {command.at!r}" if command.at else ""
        anywhere = self.queue.anywhere(command) and not self.agrees
        return f"Waiting for the next event{event} of {'run' if anywhere else 'the thread that began run'}"

    def stuck(self, command: Command, since_s: float) -> str:
        """Return why a command will hardly be applied, because other threads announce all events; else empty."""
        action = self.queue.actions.get(command.name) if command.kind == "call" else None
        if action is not None and action.awaits:
            return self.threads.unawaited(command.name)
        if self.queue.anywhere(command) and not self.agrees:
            return ""
        what = {"set": "the control", "call": "the action"}.get(command.kind, "")
        return self.threads.stuck(command.at, since_s, what=what and f"{what} {command.name!r}")

    def apply_if_due(self, event: str, index: int, step: object, observables: Observables = None) -> None:
        """Apply the commands that wait for this event on this thread.

        Holds the thread that made the run here while the run is paused.
        """
        own = self.threads.saw(event)
        if self.agreement is not None:
            if own and self.agreement.busy:
                self._apply_and_pause(event, index, step, observables=observables)
            return
        waits = bool(self._agree or self.queue.pending or self.queue.paused_by)
        if own and waits and self._agree is None and in_event_loop(awaits=self.threads.awaits):
            self._apply_in_loop(event, index, step, observables)
        elif own and waits:
            self._apply_and_pause(event, index, step, observables=observables)
        elif self._agree is None and self._has_due(event, "elsewhere"):
            self._apply_due(event, index, step, "elsewhere", observables)
            self.calm()

    def apply(self, step: float | None) -> None:
        """Apply the commands that wait, on this thread; holds it while the run is paused.

        Raises:
            RuntimeError: Several processes agree on commands, and this is not the thread that made the run.
        """
        own = self.threads.applies()
        if self._agree is not None and not own:
            raise RuntimeError("Expected apply() on the thread that called init: all ranks apply commands together")
        agrees = self._agree is not None or (self.agreement is not None and own)
        if not (agrees or (self.agreement is None and (self.queue.pending or self.queue.paused_by))):
            return
        index, self.n_applies = self.n_applies, self.n_applies + 1
        if self.agreement is None or self.agreement.busy:
            self._apply_and_pause(APPLY, index, index if step is None else step, "apply")

    async def apply_async(self, step: float | None, *, sleep: Callable[[float], Awaitable[None]]) -> None:
        """Apply the commands that wait, in the event loop of this thread, and await async actions.

        Args:
            step: The step at which they take effect; `None` for a number.
            sleep: Waits for some seconds, while the event loop does something else.

        Raises:
            RuntimeError: Several processes agree on commands: their event loops do not run alike.
        """
        if self._agree is not None:
            raise RuntimeError("Expected apply() with ranks=…: the event loops of several processes do not run alike")
        self.threads.applies(awaits=True)
        if self.agreement is not None or not (self.queue.pending or self.queue.paused_by):
            return
        index, self.n_applies = self.n_applies, self.n_applies + 1
        await self._await_due(index, step)
        while self.queue.paused_by is not None and not self._closed:
            await sleep(PAUSE_ASYNC_POLL_S)
            await self._await_due(index, step)
        self.calm()

    def leave(self, *, apply: bool) -> None:
        """Agree with no other rank any more, since the run ends, and `apply` what was agreed on for later events."""
        if self.agreement is not None:
            left = self.agreement.leave()
            for command in left if apply and self.threads.is_own else ():
                with acting(self.run):
                    self.queue.apply(command, event=APPLY, index=0, step=math.nan, wall_time=self.clock.wall())

    def close(self) -> None:
        """Resume a paused run, which has ended; the caller holds the lock."""
        self._closed = True
        self.changed.notify_all()

    def _alert(self) -> None:
        self.subscriptions.alert(True)
        self.changed.notify_all()

    def calm(self) -> None:
        """Let events go the short way again if no command waits."""
        with self.lock.mutex:
            busy = self.agreement is not None and self.agreement.busy
            self.subscriptions.alert(bool(self.queue.pending) or self._agree is not None or busy or self._closed)

    def _reachable(self, command: Command) -> Command:
        """Return a command that waits for an event of the training thread.

        A command for an event within a compiled step waits for the call of the step, one that sets an attribute for the
        event that offers it.

        Raises:
            CommandError: The event never happens on that thread, or does not offer the attribute.
        """
        self.queue.check(command)
        if self.queue.is_attribute(command):
            return self._at_its_event(command)
        source = self.subscriptions.sources.get(command.at) if command.at else None
        if source is not None and source.origin == "attached":
            raise CommandError(
                f"Expected an event of the training thread, got at={command.at!r}, which is logged in JAX"
            )
        owner = next((s.name for s in self.subscriptions.sources.values() if source in s.nested), command.at)
        return msgspec.structs.replace(command, at=owner)

    def _at_its_event(self, command: Command) -> Command:
        event = attribute_path(command.name).event
        observed = [name for name, source in self.subscriptions.sources.items() if source.origin == "observe"]
        if event not in observed:
            raise CommandError(unknown("event", event, observed, where="so far"))
        if command.at not in (None, event):
            raise CommandError(f"Expected at={event!r} or None for {command.name}, got at={command.at!r}")
        return msgspec.structs.replace(command, at=event)

    def _apply_and_pause(
        self, event: str, index: int, step: object, place: Place = "event", observables: Observables = None
    ) -> None:
        self.at = _agreed_name(event, place), index
        self._apply_due(event, index, step, place, observables)
        while self.queue.paused_by is not None and not self._closed:
            with self.changed:
                due = self._has_due(event, place) if self.agreement is None else self.agreement.has_due(*self.at)
                if self.queue.paused_by is not None and not due:
                    self.changed.wait(PAUSE_POLL_S)
            self._apply_due(event, index, step, place, observables)
        self.at = None
        self.calm()

    def _apply_in_loop(self, event: str, index: int, step: object, observables: Observables) -> None:
        """Apply the commands of an event in an event loop, which must go on: pauses are left to `apply_async`."""
        lately = self.threads.awaits_lately
        now: list[Command] = []
        later: list[Command] = []
        refused: list[Command] = []
        with self.lock.mutex:
            for one in self.queue.pending:
                pauses = one.kind == "pause" and one.at in (None, event)
                if lately and (pauses or one.at is None):  # `apply_async` comes soon
                    later.append(msgspec.structs.replace(one, at=None))
                elif pauses:
                    refused.append(one)
                else:
                    now.append(one)
            self.queue.pending = now
        self._apply_due(event, index, step, "event", observables)
        with self.lock.mutex:
            self.queue.pending = later + self.queue.pending
        for pause in refused:
            number = _step_number(step, index)
            self.queue.refuse(pause, NOT_AWAITED, event=event, index=index, step=number, wall_time=self.clock.wall())
        self.calm()

    def _has_due(self, event: str, place: Place) -> bool:
        return any(self.queue.is_due(command, event, place) for command in self.queue.pending)

    def _apply_due(self, event: str, index: int, step: object, place: Place, observables: Observables = None) -> None:
        if self.agreement is not None:
            due, plans = self.agreement.reach(_agreed_name(event, place), index)
            for plan in plans:
                self.steps.adopt(plan)
        else:
            with self.lock.mutex:
                due = self.queue.due(event, place) if self._leads or self._agree is None else []
        if self._agree is not None:
            due, plan = agreed(due, self.steps.propose() if self._leads else {}, self._agree)
            self.steps.adopt(plan)
        for command in due:
            number = _step_number(step, index)
            with acting(self.run):
                self.queue.apply(
                    command, event=event, index=index, step=number, wall_time=self.clock.wall(),
                    observables=observables,
                )  # fmt: skip

    async def _await_due(self, index: int, step: float | None) -> None:
        number = index if step is None else _step_number(step, index)
        while not self._closed:
            with self.lock.mutex:
                command = self.queue.next_due(APPLY)
            if command is None:
                return
            await self.queue.apply_async(command, event=APPLY, index=index, step=number, wall_time=self.clock.wall())

    def _applied(self, result: CommandResult) -> None:
        with self.lock.mutex:
            self.on_result(result)
            self.changed.notify_all()  # another thread may be paused, and this one has resumed it
        self._wake()


def _agreed_name(event: str, place: Place) -> str:
    return APPLIES if place == "apply" else event


def in_event_loop(*, awaits: bool) -> bool:
    """Return whether an event loop of asyncio runs on this thread, which an event must not hold up.

    The cells of a notebook run in the kernel's loop, which waits for them anyway; unless the program `awaits`.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or ("ipykernel" in sys.modules and not awaits):
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _step_number(step: object, index: int) -> float:
    """Return a step as a number on the host, or the event's number where it is not a number."""
    try:
        return host_step(step)
    except FAILURES:
        return index


# Which threads announce the events of a run: commands wait for those of one thread, and may wait in vain.
#
# An idle event is counted without a look at its thread. But the first event of each name is seen, and so are all events
# while a command waits; that is all that is needed.

# Longer than most steps take. A client whose command waits for this long is told where the events come from.
SILENT_S: Final = 10.0
LATELY_S: Final = 10.0  # an event loop that awaits commands does so many times in it
MAX_EVENTS: Final = 1_000  # events of other threads to remember, each with the name of one thread


class EventThreads:
    """Notes the thread of each event that is seen. The thread that makes this is the run's own.

    Attributes:
        awaits: Whether the program has awaited commands in an event loop.
        own_events: The events that the run's own thread has announced.
        native_id: The number that the system has for this thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._own = threading.get_ident()
        self.native_id = threading.get_native_id()
        self._own_s: float | None = None
        self.own_events: set[str] = set()
        self._others: dict[str, tuple[str, float]] = {}
        self.awaits = False
        self._awaited_s = -math.inf
        self._await_every_s = 0.0

    @property
    def is_own(self) -> bool:
        """Whether this is the run's own thread."""
        return threading.get_ident() == self._own

    @property
    def awaits_lately(self) -> bool:
        """Whether commands were awaited a short time ago, so that they will be again soon."""
        limit_s = max(LATELY_S, 2 * self._await_every_s)
        return self._clock.monotonic() - self._awaited_s < limit_s

    def saw(self, event: str) -> bool:
        """Note an event of this thread; return whether this is the run's own thread."""
        if self.is_own:
            self._own_s = self._clock.monotonic()
            self.own_events.add(event)
            return True
        if event in self._others or len(self._others) < MAX_EVENTS:
            self._others[event] = threading.current_thread().name, self._clock.monotonic()
        return False

    def applies(self, *, awaits: bool = False) -> bool:
        """Note that this thread applies commands by itself; return whether it is the run's own."""
        self._own_s = self._clock.monotonic()
        if awaits:
            self._await_every_s = self._own_s - self._awaited_s if self.awaits else 0.0
            self.awaits, self._awaited_s = True, self._own_s
        return self.is_own

    def stuck(self, at: str | None, since_s: float, *, what: str) -> str:
        """Return why a command will hardly be applied; empty if it can be.

        Args:
            at: The event that it waits for; `None` for any.
            since_s: Since when it waits, by the monotonic clock.
            what: The control or the action that it is about; empty for other commands.
        """
        heard = [(seen_s, event, thread) for event, (thread, seen_s) in self._others.items() if at in (None, event)]
        if not heard or at in self.own_events:
            return ""
        seen_s, event, thread = max(heard)
        silent = "so far"
        if at is None and self._own_s is not None:
            silent_s = self._clock.monotonic() - max(self._own_s, since_s)
            if silent_s < SILENT_S or seen_s < since_s:
                return ""
            silent = f"for {silent_s:.0f} s"
        declare = f"declare {what} with thread='any', or " if what else ""
        return (
            f"No event{f' {at!r}' if at else ''} of the thread that called init {silent}: {event!r} comes from thread "
            f"{thread!r}. In the program, {declare}call run.apply() where commands may be applied"
        )

    def unawaited(self, name: str) -> str:
        """Return why the call of an async action will hardly come; empty if it can."""
        if self.awaits:
            return ""
        return f"Action {name!r} is an async function, and the program has not awaited run.apply_async() so far"
