"""Where events enter a run: `observe`, `log`, `end_group`, and the events of compiled steps.

The training thread evaluates queries inside `observe`, under the lock, so that they see consistent values. Other
threads take a turn of the same lock for a moment: the `io` thread to open and close subscriptions, the drain threads to
settle, in the order of the events, what they waited for.

Events are strictly ordered, and `wall_time` follows their order: within a run it only goes back where the machine's
clock was set back by a millisecond or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import warn
from sightglass.core.process.clock import CLOCK_S, EventClock
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.copier import freeze
from sightglass.core.program_values.guarded import (
    FAILURES,
    MAX_DEPTH,
    LostValue,
    class_name,
    message,
    parts,
    text,
)
from sightglass.core.values import PLAIN, SCALARS, Tensor, Text, array_kind
from sightglass.query.evaluation import PerEventResult
from sightglass.training.command_runner import CommandRunner
from sightglass.training.evaluation.lock import TurnLock
from sightglass.training.evaluation.subscription import LOG, Subscription
from sightglass.training.evaluation.subscriptions import EventSource, Origin, Subscriptions
from sightglass.training.recorder import Recorder

from .budget import Budget
from .deferred import NUMBERS, Tracks

WAKE_S: Final = 0.001  # the io thread sends records in batches: a wake-up per event would cost more than most queries
RESTING_WAKE_S: Final = 0.0001  # while the program rests, a wake-up takes nothing from it
RESTS: Final = 0.25  # of the time its thread has a processor: it sleeps, or waits for a device, data or requests
LOOK_S: Final = 0.02  # to read the clock of a thread takes 0.3 us

MAX_MISSED: Final = 10_000  # at once, about 10 ms: a client that skips more numbers must not hold up the run

PLAIN_STEPS: Final = frozenset((int, float, type(None)))
PLAIN_NAMES: Final = frozenset((str,))

UNNAMED: Final = "log"  # the tag under which a mapping that cannot be read at all is counted

Settled = tuple[int, Any, float, PerEventResult, Any]
"""An event whose head is on the host: index, step, wall time, head, further steps."""


class EventIntake:
    """Takes events in, and evaluates the subscriptions that read them.

    Attributes:
        clock: The time of the events.
        recorder: Records what is logged, snapshots and the ends of groups; `None` in a disabled run.
        closed: Whether the run has ended; events are then ignored.
        rests: Whether the thread that announces events mostly sleeps or waits, so that records are sent at once.
    """

    def __init__(
        self,
        *,
        lock: TurnLock,
        subscriptions: Subscriptions,
        commands: CommandRunner,
        clock: EventClock,
        budget: Budget,
        wake: Callable[[], None],
    ) -> None:
        self.clock = clock
        self.recorder: Recorder | None = None
        self.closed = False
        self._lock = lock
        self._mutex = lock.mutex
        self._subscriptions = subscriptions
        self._busy = subscriptions.busy
        self._commands = commands
        self._monotonic = clock.monotonic
        self._budget = budget
        self._wake = wake
        self.rests = False
        self._woken_s, self._wake_s = 0.0, WAKE_S
        self._looked = 0, 0.0, 0.0  # the thread, and when it had run for so long
        self._warned: set[tuple[str, str]] = set()

    def observe(self, event: str, observables: dict[str, Any]) -> None:
        """Take in an event that has subscriptions. Errors as in `take`."""
        source = self._busy.get(event)
        if source is None or "snapshot" in observables:
            self.take(event, observables)
            return
        mutex = self._mutex
        mutex.acquire()  # half as long as `with` takes
        try:
            index = source.next_index()
            self._post(source, index, observables.setdefault("step", index), observables)
        finally:
            mutex.release()
        if self._lock.n_waiting:
            self._lock.give_way()

    def take(
        self, event: str, observables: dict[str, Any], *, origin: Origin = "observe", steps: Tracks = None
    ) -> None:
        """Take in any event: it may be new, ask for a snapshot, or be the one that commands wait for.

        Raises:
            TypeError: The event's name is not a string.
            ValueError: The name is empty, or another source already produces events of this name.
        """
        if not isinstance(event, str):
            raise TypeError(f"Expected the name of an event as text, got {class_name(event)} {text(event, 100)}")
        if not event:
            raise ValueError("Expected the name of an event such as 'batch', got ''")
        snapshot = origin == "observe" and observables.pop("snapshot", False)
        if self.closed:
            return
        with self._mutex:
            source = self._subscriptions.source(event, origin)
            index = source.next_index()
            step = observables.setdefault("step", index)
            if source.describe_next or origin != "observe":
                source.describe(observables)
                self._subscriptions.refresh()
            now_s = self._monotonic()
            if snapshot:
                frozen = self._frozen(source, observables)
                source.snapshot = (index, frozen["step"], self.clock.wall(now_s), frozen)
                if self.recorder is not None:
                    self.recorder.snapshot(event, *source.snapshot)
                self._subscriptions.refresh()
            if source.subscriptions or source.delimits or source.joins:
                self._post(source, index, step, observables, steps, now_s)
            else:
                for provider in source.providers:
                    provider.provide(index, observables)
        self._lock.give_way()
        if origin != "publish":
            self._commands.apply_if_due(event, index, step, observables)

    def keep(self, event: str, observables: Mapping[str, Any], *, shown: Mapping[str, Any], note: str = "") -> None:
        """Take in an event of our own, and keep its observables for queries that come later, as a snapshot does.

        It is not recorded unless a query of it is, and no command is applied: other ranks may not have the event.

        Args:
            event: Its name, of `observe`.
            observables: The observables; nobody changes them any more.
            shown: The same as its description shows them.
            note: A remark for clients.
        """
        with self._mutex:
            if self.closed:
                return
            source = self._subscriptions.source(event)
            index, now_s = source.next_index(), self._monotonic()
            kept = {**observables, "step": index}
            source.describe({**shown, "step": index})
            source.note, source.snapshot = note, (index, index, self.clock.wall(now_s), kept)
            self._subscriptions.refresh()
            if source.wanted:
                self._post(source, index, index, kept, now_s=now_s)

    def miss(self, event: str, n: int) -> None:
        """Count `n` events of a published stream that did not arrive. Errors as in `take`."""
        if not n or self.closed:
            return
        with self._mutex:
            source = self._subscriptions.source(event, "publish")
            wall_time = self.clock.wall(self._monotonic())
            for _ in range(min(n, MAX_MISSED)):
                index = source.next_index()
                for subscription in source.subscriptions:
                    subscription.miss(index, wall_time)

    def log(self, data: Mapping[str, Any], step: float | None, steps: Mapping[str, float]) -> None:
        """Take in logged values, as the event "log"; nested mappings become tags with slashes.

        Raises:
            TypeError: The data are not a mapping, a name in them is not a string, or a step is not a number.
        """
        values = logged(data)
        step = values.pop("step", None) if step is None else step
        if steps or type(step) not in PLAIN_STEPS:
            for name, at in {"step": step, **steps}.items():
                if at is not None and not (isinstance(at, NUMBERS) or (name == "step" and array_kind(at))):
                    raise TypeError(f"Expected a number as {name!r}, got {class_name(at)} {text(at, 100)}")
        if self.closed:
            return
        with self._mutex:
            source = self._subscriptions.source(LOG, "log")
            index = source.next_index()
            step = index if step is None else step
            now_s = self._monotonic()
            if self.recorder is not None:
                self.recorder.log(index, step, self.clock.wall(now_s), values, steps or None)
            if source.describe_next or not values.keys() <= source.observables.keys():
                source.describe({**values, "step": step})
                self._subscriptions.refresh()
            if source.subscriptions or source.delimits or source.joins:
                self._post(source, index, step, {**values, "step": step}, steps or None, now_s)
        self.after(LOG, index, step)

    def log_number(self, tag: str, value: float, step: float) -> None:
        """Take in one logged number, at a quarter of the price of `log` while no query reads what is logged."""
        source, recorder = self._subscriptions.idle_log, self.recorder
        if source is None or recorder is None or type(tag) is not str or tag not in source.observables:
            self.log({tag: value}, step, {})
            return
        mutex, clock = self._mutex, self.clock
        mutex.acquire()  # half as long as `with` takes
        try:
            now_s = self._monotonic()
            wall_time = now_s + clock.offset_s if now_s - clock.read_s < CLOCK_S else clock.wall(now_s)
            recorder.log_number(source.next_index(), step, wall_time, {tag: value})
        finally:
            mutex.release()
        if self._lock.n_waiting:
            self._lock.give_way()

    def end_group(self, event: str) -> None:
        """Close the groups of an event here."""
        with self._mutex:
            source = self._subscriptions.sources.get(event)
            if source is None:
                return
            for subscription in source.subscriptions:
                subscription.tail.end_group(source.n_groups)
            source.n_groups += 1
            self._record_group(source, source.n_events)
        self._wake()

    def _frozen(self, source: EventSource, observables: Mapping[str, Any]) -> dict[str, Any]:
        """Copy the observables of an event; warn once of each that cannot be copied as a whole."""
        kept = freeze(observables, source.name)
        for name, (_, n_lost, first) in kept.items():
            source.n_lost += n_lost
            if first is not None and (source.name, name) not in self._warned:
                self._warned.add((source.name, name))
                more = "" if n_lost == 1 else f"; nor are {n_lost - 1} other parts of {name!r}"
                warn(f"Cannot keep {first.path} in the snapshot: {first.why}{more}")
        return {name: value for name, (value, _, _) in kept.items()}

    # Compiled steps

    def post_heads(
        self,
        source: EventSource,
        index: int,
        heads: Iterable[tuple[Subscription, PerEventResult]] = (),
        step: object = None,
        steps: Mapping[str, Any] | None = None,
    ) -> None:
        """Take in an event of a compiled step, with what was evaluated there. Does not wait for a device.

        Args:
            source: The event.
            index: Its number.
            heads: Subscriptions, each with its evaluated head; the values may be on a device.
            step: Its step, `None` for its number; may be on a device.
            steps: Further step tracks, by name.
        """
        with self._mutex:
            now_s = self._monotonic()
            wall_time = self.clock.wall(now_s)
            for subscription, head in heads:
                if not (subscription.suspended or self.closed):
                    at = index if step is None else step
                    subscription.post_head(index, at, wall_time, head, steps)
            self._close_groups(source, index)
            if now_s - self._woken_s >= self._wake_s:
                self._attend(source, now_s)

    def after(self, event: str, index: int, step: object = None) -> None:
        """Let other threads have the lock after an event, then apply the commands that wait for it."""
        self._lock.give_way()
        self._commands.apply_if_due(event, index, index if step is None else step)

    def settle(
        self,
        source: EventSource,
        heads: Mapping[Subscription, Iterable[Settled]],
        *,
        n_events: int,
        every: int = 1,
    ) -> None:
        """Take in events of a compiled step whose values are on the host already, on a drain thread.

        Args:
            source: The event.
            heads: For each subscription what was evaluated.
            n_events: How many events these are, for what they delimit.
            every: Of how many events one is among these.
        """
        for subscription, several in heads.items():
            subscription.settle_heads(several, every=every)
        for subscription in source.delimits:
            for _ in range(n_events):
                subscription.tail.boundary(source.name, settled=bool(subscription.within))
        now_s = self._monotonic()
        if now_s - self._woken_s >= self._wake_s:
            self._attend(source, now_s)

    def settle_group(self, source: EventSource, n_events: int) -> None:
        """Close the groups of an event after its first `n_events`, on a drain thread."""
        for subscription in source.subscriptions:
            subscription.tail.end_group(settled=True)
        self._record_group(source, n_events)

    def abandon(self) -> None:
        """Become a no-op in a forked child."""
        self.closed = True
        self._mutex = self._lock.mutex
        self._busy = self._subscriptions.busy

    def _post(  # noqa: PLR0917  the hot path: keyword arguments would cost
        self,
        source: EventSource,
        index: int,
        step: object,
        observables: Mapping[str, Any],
        steps: Tracks = None,
        now_s: float | None = None,
    ) -> None:
        if now_s is None:
            now_s = self._monotonic()
        clock = self.clock
        if source.providers:
            began_s = clock.cpu()
            for provider in source.providers:
                observables = provider.provide(index, observables)
            self._budget.provided_s += clock.cpu() - began_s
        wall_time = now_s + clock.offset_s if now_s - clock.read_s < CLOCK_S else clock.wall(now_s)
        if source.turns.crowded:
            source.turns.take(
                (*source.subscriptions, *source.joins),
                post=lambda one: one.post(index, step, wall_time, observables, steps),
                skip=lambda one: one.skip(index, wall_time),
            )
        else:
            for subscription in source.subscriptions:
                if not subscription.errors.suspended:
                    subscription.post(index, step, wall_time, observables, steps)
            for joined in source.joins:
                joined.post(index, step, wall_time, observables)
        if source.delimits:
            self._close_groups(source, index)
        if now_s - self._woken_s >= self._wake_s:
            self._attend(source, now_s)

    def _close_groups(self, source: EventSource, index: int) -> None:
        """Close the groups that an event delimits; those of events within it close when all of these have come."""
        for subscription in source.delimits:
            if subscription.within != source.name:
                subscription.tail.boundary(source.name, index)

    def _attend(self, source: EventSource, now_s: float) -> None:
        """Have records fetched, and look after the budget; every `WAKE_S` is often enough."""
        self._woken_s = now_s
        if now_s - self._looked[2] >= LOOK_S:
            self._look(now_s)
        source.turns.happened(now_s, (*source.subscriptions, *source.joins))
        for subscription in source.subscriptions:
            subscription.rows.look_for_room()
        self._wake()
        self._budget.attend(self._subscriptions.active.values(), now_s)

    def _look(self, now_s: float) -> None:
        """Find out whether the program rests."""
        thread, ran_s = threading.get_ident(), self.clock.cpu()
        before, ran_before_s, looked_s = self._looked
        self._looked = thread, ran_s, now_s
        share = (ran_s - ran_before_s) / (now_s - looked_s)
        self.rests = thread == before and 0 < share < RESTS
        self._wake_s = RESTING_WAKE_S if self.rests else WAKE_S

    def _record_group(self, source: EventSource, n_events: int) -> None:
        recorder = self.recorder
        if recorder is not None and (recorder.active or any(s.recorded for s in source.subscriptions)):
            recorder.group(source.name, n_events, self.clock.wall(self._monotonic()))


def logged(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return logged values by tag: nested mappings become tags with slashes, `Tensor` and `Text` their contents.

    What cannot be read becomes a `LostValue`, under the tag of the mapping that it is in.

    Raises:
        TypeError: The data are not a mapping, or a name is not a string.
    """
    if type(data) is dict and PLAIN.issuperset(map(type, data.values())) and PLAIN_NAMES.issuperset(map(type, data)):
        return dict(data)
    if not issubclass(type(data), Mapping):
        raise TypeError(f"Expected a mapping of names to values, got {class_name(data)}")
    values: dict[str, Any] = {}
    _flatten(data, "", values, ())
    return values


def _flatten(data: Mapping[str, Any], tag: str, values: dict[str, Any], inside: tuple[int, ...]) -> None:
    """Add the values of a mapping by their tags."""
    try:
        if id(data) in inside or len(inside) >= MAX_DEPTH:
            raise ValueError("it contains itself, or is nested too deeply")
        found = parts(data)
        pairs = [] if found is None else list(found.pairs)
    except FAILURES as error:
        values[tag or UNNAMED] = LostValue(message(error), f"log(…){f'[{tag!r}]' if tag else ''}")
        return
    for name, value in pairs:
        if not isinstance(name, str):
            raise TypeError(f"Expected names of logged values as text, got {class_name(name)} {text(name, 100)}")
        path = f"{tag}/{str.__str__(name)}" if tag else str.__str__(name)
        if issubclass(type(value), Mapping):
            _flatten(value, path, values, (*inside, id(data)))
        else:
            values[path] = _unwrapped(value)


def _unwrapped(value: Any) -> Any:
    """Return the content of a `Tensor` as an array, and of a `Text`."""
    if type(value) is Text:
        return value.value
    if type(value) is not Tensor:
        return value
    held = value.value
    try:
        return held if array_kind(held) or isinstance(held, SCALARS) else np.asarray(held)
    except FAILURES as error:
        return LostValue(message(error))
