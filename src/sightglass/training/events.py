"""Where events enter: `observe`, `log` and `end_group` of a run, and the drain thread that waits for devices.

Who owns what. The training thread evaluates queries inside `observe`, under `lock`, so that they see consistent
values. The `io` thread (`move.io`) takes the same lock for a moment to open and close answers and to take their rows
away. The `drain` thread waits for devices outside the lock, and takes it to settle what it waited for, in the order
of the events.

Acts are applied on the thread that made the emitter, outside the lock, so that a slow action does not silence the
agent.

Events are strictly ordered, and `wall_time` is their order: within a run it only goes back where the machine's clock is
set back by a millisecond or more.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from sightglass.core.clock import Clock
from sightglass.core.errors import CommandError, UnsendableError
from sightglass.core.ranks import Agree
from sightglass.core.threads import Background
from sightglass.core.values import PLAIN, SCALARS, Tensor, Text, array_kind, freeze
from sightglass.query.pipeline import PerEventResult

from .budget import Account
from .commands import Command, CommandQueue, CommandResult, VariantPlan, agreed, pack
from .subscription import LOG, NUMBERS, Subscription, host_step
from .subscriptions import EventSource, Origin, Subscriptions

WAKE_S: Final = 0.001
HANDOVER_S: Final = 0.0002
SWITCH_INTERVAL_S: Final = 0.001
DRAIN_REST_S: Final = 0.003
CLOCK_S: Final = 0.05
CLOCK_NOISE_S: Final = 0.001

NO_PLAN: Final = VariantPlan()

Settled = tuple[int, Any, float, PerEventResult, Any]
"""An event whose head is on the host: index, step, wall time, head, further steps."""


class Recorder(Protocol):
    """What is given records that are to be kept. It never raises because of a disk, and never waits for one."""

    @property
    def active(self) -> bool:
        """Whether it was given anything yet."""

    def log(
        self, index: int, step: Any, wall_time: float, values: dict[str, Any], steps: Mapping[str, float] | None
    ) -> None:
        """Keep what one call of `run.log` gave; the mapping is the recorder's own."""

    def group(self, event: str, ordinal: int, wall_time: float) -> None:
        """Keep that the groups of an event ended before its event number `ordinal`."""

    def snapshot(self, event: str, index: int, step: Any, wall_time: float, observables: Mapping[str, Any]) -> None:
        """Keep the snapshot of an event."""


class CompiledStep(Protocol):
    """A step that is looked into: it sees what is asked, and offers what it finds out about when somebody asks."""

    event: str

    def survey(self) -> bool:
        """Begin to find out what the step offers, if that can be; returns whether it is known, or cannot be."""

    def asked(self) -> None:
        """See that what is asked has changed."""

    def propose(self) -> VariantPlan:
        """Say, on the rank that clients ask, what all ranks are to compile into the step."""

    def adopt(self, plan: VariantPlan) -> None:
        """Follow a plan from the next call on."""

    def flush(self, timeout_s: float) -> None:
        """Wait until what is under way in the step has been handed over."""

    def close(self) -> None:
        """See the run end."""


class Emitter:
    """Takes events in, and lets them be answered.

    Attributes:
        lock: Held while queries are evaluated, and by whoever changes what is asked.
        demand: What is being asked right now.
        ledger: The acts that wait, and the controls and actions they are about.
        steps: The steps that are watched from inside.
    """

    def __init__(self, *, clock: Clock, budget: float | None, agree: Agree | None = None, leads: bool = True) -> None:
        self.lock = threading.RLock()
        self.demand = Subscriptions()
        self.ledger = CommandQueue()
        self.closed = False
        self.on_done: Callable[[CommandResult], None] = lambda done: None
        self.wake: Callable[[], None] = lambda: None
        self.steps: list[CompiledStep] = []
        self.recorder: Recorder | None = None
        self._changed = threading.Condition(self.lock)
        self._busy = self.demand.busy
        self._clock = clock
        self._monotonic = clock.monotonic
        self._wall_offset_s = clock.wall() - clock.monotonic()
        self._clock_read_s = clock.monotonic()
        self._account = Account(budget, now_s=clock.monotonic()) if budget is not None else None
        self._kept_account = Account(budget, now_s=clock.monotonic()) if budget is not None else None
        self._agree = agree
        self._leads = leads
        self._thread = threading.get_ident()
        self._woken_s = 0.0
        self._waiting = 0
        self._drains: dict[str, _Drain] = {}
        self._switch_interval_s: float | None = None
        if agree:
            self.demand.alert(True)

    def observe(self, event: str, observables: dict[str, Any]) -> None:
        """Take an event in that somebody may ask for. Errors as in `take`."""
        channel = self._busy.get(event)
        if channel is None or "snapshot" in observables:
            self.take(event, observables)
            return
        with self.lock:
            index = channel.next_index()
            self._post(channel, index, observables.setdefault("step", index), observables)
        if self._waiting:
            time.sleep(HANDOVER_S)

    def take(self, event: str, observables: dict[str, Any], *, origin: Origin = "observe", steps: Any = None) -> None:
        """Take an event in, the long way: it may be new, be kept, or be the one that acts wait for.

        Raises:
            TypeError: The event's name is no text.
            ValueError: The event comes from elsewhere already.
        """
        if not isinstance(event, str):
            raise TypeError(f"Expected the name of an event as text, got {type(event).__name__} {event!r}")
        snapshot = origin == "observe" and observables.pop("snapshot", False)
        if self.closed:
            return
        mine = origin != "publish" and threading.get_ident() == self._thread
        with self.lock:
            channel = self.demand.channel(event, origin)
            index = channel.next_index()
            step = observables.setdefault("step", index)
            if channel.describe_next or origin != "observe":
                channel.describe(observables)
                self.demand.refresh()
            now_s = self._monotonic()
            if snapshot:
                wall_time = self._wall(now_s)
                channel.kept = (index, freeze(step), wall_time, freeze(observables))
                if self.recorder is not None:
                    self.recorder.snapshot(event, *channel.kept)
                self.demand.refresh()
            if channel.answers or channel.delimits:
                self._post(channel, index, step, observables, steps, now_s)
            else:
                for bringer in channel.brings:
                    bringer.bring(index, observables)
        self._give_way()
        if mine:
            self._act_if_due(event, index, step)

    def happened(
        self,
        channel: EventSource,
        index: int,
        heads: Iterable[tuple[Subscription, PerEventResult]] = (),
        step: Any = None,
        steps: Mapping[str, Any] | None = None,
    ) -> None:
        """Take in an event that happened in a compiled step, with what was evaluated there; waits for no device.

        Args:
            channel: The event.
            index: Its number.
            heads: The answers it is for, and what was evaluated for each; the values may rest on a device.
            step: Its step, `None` for its number; may rest on a device.
            steps: Further step tracks, by name.
        """
        with self.lock:
            now_s = self._monotonic()
            wall_time = self._wall(now_s)
            for answer, head in heads:
                if not (answer.suspended or self.closed):
                    now_s = answer.post_head(index, index if step is None else step, wall_time, head, steps, now_s)
            self._posted(channel, now_s)

    def between(self, event: str, index: int, step: Any = None) -> None:
        """Apply acts, and rest while the run is paused, behind an event that was taken in."""
        self._give_way()
        if threading.get_ident() == self._thread:
            self._act_if_due(event, index, index if step is None else step)

    def settle(self, channel: EventSource, heads: Mapping[Subscription, Iterable[Settled]], *, n_events: int) -> None:
        """Take in events, on a drain thread, that happened within a compiled step, and are on the host already."""
        for answer, several in heads.items():
            answer.settle_heads(several)
        for answer in channel.delimits:
            for _ in range(n_events):
                (answer.settle_boundary if answer.within else answer.boundary)(channel.name)
        self._look_after(channel, self._monotonic())

    def settle_group(self, channel: EventSource, n_events: int) -> None:
        """Close the groups of an event, on a drain thread, behind so many events of it."""
        for answer in channel.answers:
            answer.settle_group()
        self._record_group(channel, n_events)

    @property
    def agrees(self) -> bool:
        """Whether several processes act together."""
        return self._agree is not None

    def now_s(self) -> float:
        """Return the time by the clock that queries' shares are measured with, in seconds."""
        return self._monotonic()

    def wall_time(self) -> float:
        """Return the wall time now, in seconds since the Unix epoch, in step with the events'."""
        return self._monotonic() + self._wall_offset_s

    def log(self, data: Mapping[str, Any], step: float | None, steps: Mapping[str, float]) -> None:
        """Take logged values in, as the event "log"; nested mappings become tags with slashes.

        Raises:
            TypeError: The data are no mapping, a name in it is no text, or a step is no number.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"Expected a mapping of names to values, got {type(data).__name__}")
        values = logged(data)
        step = values.pop("step", None) if step is None else step
        for name, at in {"step": step, **steps}.items():
            if at is not None and not (isinstance(at, NUMBERS) or (name == "step" and array_kind(at))):
                raise TypeError(f"Expected a number as {name!r}, got {type(at).__name__} {at!r:.100}")
        if self.closed:
            return
        with self.lock:
            channel = self.demand.channel(LOG, "log")
            index = channel.next_index()
            step = index if step is None else step
            now_s = self._monotonic()
            if self.recorder is not None:
                self.recorder.log(index, step, self._wall(now_s), values, steps or None)
            if channel.describe_next or not values.keys() <= channel.offered.keys():
                channel.describe({**values, "step": step})
                self.demand.refresh()
            if channel.answers or channel.delimits:
                self._post(channel, index, step, {**values, "step": step}, steps or None, now_s)
        self._give_way()
        if threading.get_ident() == self._thread:
            self._act_if_due(LOG, index, step)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Hold the lock, as another thread than the training's. Python's locks are not fair: the training makes way."""
        if not self.lock.acquire(blocking=False):
            self._waiting += 1
            try:
                self.lock.acquire()
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            self.lock.release()

    def survey(self) -> bool:
        """Find out what the steps offer that are watched from inside; returns whether that is known."""
        known = [step.survey() for step in self.steps]  # all begin, even if the first one has to wait
        return all(known)

    def end_group(self, event: str) -> None:
        """Close the groups of an event here."""
        with self.lock:
            channel = self.demand.channels.get(event)
            if channel is None:
                return
            for answer in channel.answers:
                answer.end_group()
            self._record_group(channel, channel.n_events)
        self.wake()

    def _record_group(self, channel: EventSource, n_events: int) -> None:
        recorder = self.recorder
        if recorder is not None and (recorder.active or any(answer.kept for answer in channel.answers)):
            recorder.group(channel.name, n_events, self._wall(self._monotonic()))

    def replay(self, answer: Subscription) -> None:
        """Give a new answer the snapshot that its event kept."""
        channel = self.demand.channels.get(answer.event)
        if channel is not None and channel.kept is not None:
            index, step, wall_time, observables = channel.kept
            answer.post(index, step, wall_time, observables, None, self._clock.monotonic())

    def open(self, answer: Subscription, *, replay: bool = True) -> None:
        """Begin to answer, first with the snapshot that the event kept."""
        with self.turn():
            if replay:
                self.replay(answer)
            self.demand.open(answer)
            for watched in self.steps:
                watched.asked()
            if self._switch_interval_s is None:
                # A host busy in Python would keep the io thread waiting for five milliseconds at a time.
                self._switch_interval_s = sys.getswitchinterval()
                sys.setswitchinterval(min(SWITCH_INTERVAL_S, self._switch_interval_s))

    def close_answer(self, answer: Subscription) -> None:
        """Stop answering."""
        with self.turn():
            self.demand.close(answer)
            for watched in self.steps:
                watched.asked()
            if not self.demand.answers:
                self._restore_switch_interval()

    def add(self, act: Command) -> None:
        """Let an act wait for its event.

        Raises:
            CommandError: It cannot succeed.
        """
        if self._agree is not None:
            try:
                pack(act)
            except UnsendableError as error:
                raise CommandError(str(error)) from None
        with self.turn():
            self.ledger.add(self._reachable(act))
            self.demand.alert(True)
            self._changed.notify_all()

    def _reachable(self, act: Command) -> Command:
        """Return an act that waits for an event of the training's own thread.

        What happens within a call of a compiled step is waited for at the call.

        Raises:
            CommandError: The event never comes by that thread.
        """
        channel = self.demand.channels.get(act.at) if act.at else None
        if channel is not None and channel.origin == "attached":
            raise CommandError(
                f"Expected an event of the training's own thread, got at={act.at!r}, which is logged in JAX"
            )
        owner = next((c.name for c in self.demand.channels.values() if channel in c.parts), act.at)
        return msgspec.structs.replace(act, at=owner)

    def release(self, client: str) -> None:
        """Let the pause of a client that is gone end; its other acts stay in force."""
        with self.turn():
            if self.ledger.release(client):
                self.demand.alert(True)
                self._changed.notify_all()

    def defer(self, wait: Callable[[], None] | None, settle: Callable[[BaseException | None], None]) -> None:
        """Let the drain thread take up the rest of an event's evaluation."""
        self._drained("drain", wait, settle)

    def defer_loop(self, settle: Callable[[BaseException | None], None]) -> None:
        """Let what happened within a call be taken up while the call goes on, on a drain thread that never waits."""
        self._drained("loops", None, settle)

    def _drained(
        self, lane: str, wait: Callable[[], None] | None, settle: Callable[[BaseException | None], None]
    ) -> None:
        drain = self._drains.get(lane)
        if drain is None:
            drain = self._drains[lane] = _Drain(self, lane)
        drain.put((wait, settle))

    def flush(self, timeout_s: float) -> None:
        """Wait until all that was deferred is settled."""
        for step in self.steps:
            step.flush(timeout_s)
        for drain in list(self._drains.values()):
            drain.flush(timeout_s)

    def close(self, *, timeout_s: float = 2.0) -> None:
        """End the run: emit what is open, and take nothing in any more."""
        if self.steps:
            self.flush(timeout_s)
        with self.lock:
            if self.closed:
                return
            for answer in self.demand.answers.values():
                answer.finish()
        self.flush(timeout_s)
        with self.lock:
            self.closed = True
            self.demand.alert(True)
            self.demand.busy.clear()
            self._changed.notify_all()
            self._restore_switch_interval()
        for step in self.steps:
            step.close()
        for drain in self._drains.values():
            drain.close()

    def abandon(self) -> None:
        """Become a no-op in a forked child, whose locks may be held by threads that do not exist there."""
        self.lock = threading.RLock()
        self.closed = True
        self.demand = Subscriptions()
        self._busy = self.demand.busy
        self._drains = {}

    def _post(  # noqa: PLR0917  the hot path: keywords would cost
        self,
        channel: EventSource,
        index: int,
        step: Any,
        observables: Mapping[str, Any],
        steps: Any = None,
        now_s: float | None = None,
    ) -> None:
        if now_s is None:
            now_s = self._monotonic()
        if channel.brings:
            for bringer in channel.brings:
                observables = bringer.bring(index, observables)
        wall_time = now_s + self._wall_offset_s if now_s - self._clock_read_s < CLOCK_S else self._wall(now_s)
        for answer in channel.answers:
            if not answer.suspended:
                now_s = answer.post(index, step, wall_time, observables, steps, now_s)
        self._posted(channel, now_s)

    def _posted(self, channel: EventSource, now_s: float) -> None:
        """Close the groups that an event delimits; of what happens within it, when all of that has come."""
        for answer in channel.delimits:
            if answer.within != channel.name:
                answer.boundary(channel.name)
        self._look_after(channel, now_s)

    def _look_after(self, channel: EventSource, now_s: float) -> None:
        """See now and then that records are fetched, and that all is within the budget."""
        if now_s - self._woken_s >= WAKE_S:
            self._woken_s = now_s
            for answer in channel.answers:
                answer.look_for_room()
            self.wake()
            if self._account is not None and self._account.due(now_s):
                self._review(self._account, now_s)

    def _wall(self, now_s: float) -> float:
        """Return the wall time of a monotonic one; the machine's clock is read now and then, to see if it was set."""
        if now_s - self._clock_read_s >= CLOCK_S:
            before_s, wall_s, self._clock_read_s = self._monotonic(), self._clock.wall(), self._monotonic()
            offset_s = wall_s - before_s
            settled = self._clock_read_s - before_s < CLOCK_NOISE_S
            if settled and abs(offset_s - self._wall_offset_s) > CLOCK_NOISE_S:
                self._wall_offset_s = offset_s
        return now_s + self._wall_offset_s

    def cost(self, answer: Subscription) -> str:
        """Say what part of the run's time an answer takes, and what its budget is."""
        budget = "no budget" if self._account is None else f"the budget is {self._account.budget:.1%}"
        return f"{answer.share:.1%} of the run's time ({budget})"

    def _review(self, account: Account, now_s: float) -> None:
        """Thin what is asked until it is within the budget; what is kept is never thinned, but given up beyond it."""
        answers = list(self.demand.answers.values())
        asked = [answer for answer in answers if not answer.kept]
        kept = [answer for answer in answers if answer.kept]
        assert self._kept_account is not None
        for bucket, several in ((account, asked), (self._kept_account, kept)):
            elapsed_s = bucket.elapsed(now_s)
            strides = bucket.review(now_s, [a.spent_s for a in several], [a.stride for a in several])
            for answer, stride in zip(several, strides, strict=True):
                answer.share = answer.spent_s * answer.stride / elapsed_s
                answer.stride = stride
                answer.kept = answer.kept and stride == 1
        for answer in answers:
            answer.total_spent_s += answer.spent_s
            answer.spent_s = 0.0

    def _give_way(self) -> None:
        """Let who waits for the lock have it."""
        if self._waiting:
            time.sleep(HANDOVER_S)

    def _act_if_due(self, event: str, index: int, step: Any) -> None:
        if self._agree or self.ledger.pending or self.ledger.paused_by:
            self._act(event, index, step)

    def _act(self, event: str, index: int, step: Any) -> None:
        """Apply the acts whose event this is, and rest here while the run is paused."""
        self._carry_out(event, index, step)
        while self.ledger.paused_by is not None and not self.closed:
            with self._changed:
                if not any(act.at in (None, event) for act in self.ledger.pending):
                    self._changed.wait(1.0)
            self._carry_out(event, index, step)
        with self.lock:
            self.demand.alert(bool(self.ledger.pending) or self._agree is not None or self.closed)

    def _carry_out(self, event: str, index: int, step: Any) -> None:
        with self.lock:
            due = self.ledger.due(event) if self._leads or self._agree is None else []
        if self._agree is not None:
            plans = {watched.event: watched.propose() for watched in self.steps} if self._leads else {}
            due, plans = agreed(due, plans, self._agree)
            for watched in self.steps:
                watched.adopt(plans.get(watched.event, NO_PLAN))
        for act in due:
            done = self.ledger.carry_out(
                act, event=event, index=index, step=_known(step, index), wall_time=self._clock.wall()
            )
            with self.lock:
                self.on_done(done)
            self.wake()

    def _restore_switch_interval(self) -> None:
        if self._switch_interval_s is not None:
            sys.setswitchinterval(self._switch_interval_s)
            self._switch_interval_s = None


def _known(step: Any, index: int) -> Any:
    """Return a step on the host, or the event's number where the step is none."""
    try:
        return host_step(step)
    except Exception:  # noqa: BLE001  steps are the program's own
        return index


def logged(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return logged values by their tags: nested mappings become tags with slashes, `Tensor` and `Text` what they hold.

    Raises:
        TypeError: A name is no text.
    """
    if {*map(type, data.values())} <= PLAIN and {*map(type, data)} == {str}:
        return dict(data)
    return dict(_flat(data, ""))


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if not isinstance(name, str):
            raise TypeError(f"Expected names of logged values as text, got {type(name).__name__} {name!r}")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}/")
        elif isinstance(value, Tensor):
            held = value.value
            yield f"{prefix}{name}", held if array_kind(held) or isinstance(held, SCALARS) else np.asarray(held)
        else:
            yield f"{prefix}{name}", value.value if isinstance(value, Text) else value


_Deferred = tuple[Callable[[], None] | None, Callable[[BaseException | None], None]]


class _Drain:
    """The thread that waits for devices; what it is given is settled in order."""

    def __init__(self, emitter: Emitter, name: str) -> None:
        self._queue: queue.SimpleQueue[_Deferred | threading.Event | None] = queue.SimpleQueue()
        self._emitter = emitter
        self._thread = Background(name, self._run)

    def put(self, item: _Deferred) -> None:
        self._queue.put(item)

    def flush(self, timeout_s: float) -> None:
        reached = threading.Event()
        self._queue.put(reached)
        reached.wait(timeout_s)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(1.0)

    def _next(self) -> _Deferred | threading.Event | None:
        """Return what is next. Whoever puts something in meets a thread that rests, more often than one that wakes."""
        if self._queue.empty():
            time.sleep(DRAIN_REST_S)
        return self._queue.get()

    def _run(self) -> None:
        while (item := self._next()) is not None:
            if isinstance(item, threading.Event):
                item.set()
                continue
            wait, settle = item
            failure: BaseException | None = None
            try:
                if wait is not None:
                    wait()
            except (Exception, SystemExit) as error:  # noqa: BLE001  such as a buffer that was donated; it costs its event
                failure = error
            with self._emitter.turn():
                settle(failure)
            self._emitter.wake()
