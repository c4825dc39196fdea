"""What a run reports about itself, as values that can be sent: events, controls, actions, functions, history."""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from sightglass.core.description import (
    ActionInfo,
    ControlInfo,
    Description,
    Ending,
    EventInfo,
    HistoryEntry,
    LentFunctionInfo,
    ObservableInfo,
    StreamInfo,
)
from sightglass.core.process.clock import Clock
from sightglass.core.program_values.copier import sendable
from sightglass.core.program_values.guarded import FAILURES, first_line
from sightglass.training.commands import CommandResult
from sightglass.training.controls import Action, Control, LentFunction
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.subscriptions import COMPILED, EventSource
from sightglass.training.evaluation.telemetry import Telemetry


def run(
    telemetry: Telemetry,
    functions: Mapping[str, Callable[..., Any]],
    *,
    about: Mapping[str, Any],
    clock: Clock,
    streams: Sequence[StreamInfo],
    n_clients: int,
    failures: Mapping[str, str],
    pulse: Pulse,
) -> Description:
    """Describe a run; the caller holds the lock. `about` has the fields that do not change."""
    sources = telemetry.subscriptions.sources
    for source in sources.values():  # the next event refreshes types and examples
        source.describe_next = source.origin not in COMPILED
    telemetry.subscriptions.refresh()
    queue = telemetry.commands.queue
    events = {source.name: _event(source, pulse, clock.monotonic()) for source in sources.values()}
    timed = [event for event in events.values() if event.interval_s is not None]
    going = "quiet" if timed and all(event.is_quiet for event in timed) else "running"
    return Description(
        pid=os.getpid(), host=socket.gethostname(), wall_time=clock.wall(),
        **{"ending": Ending(stopped_by=queue.stopped_by), **about},
        state="stopping" if queue.stopping else "paused" if queue.paused_by else going,
        events=events,
        controls={one.name: _control(one) for one in list(queue.controls.values())},
        actions={one.name: _action(one) for one in list(queue.actions.values())},
        alerts=queue.alerts, sets_attributes=queue.sets_attributes, n_pending_commands=len(queue.pending),
        functions={name: first_line(getattr(f, "__wrapped__", f)) for name, f in list(functions.items())},
        lent={name: _lent(function) for name, function in list(functions.items())},
        streams=streams, n_clients=n_clients, failures=failures,
    )  # fmt: skip


def _lent(function: Callable[..., Any]) -> LentFunctionInfo:
    if not isinstance(function, LentFunction):
        return LentFunctionInfo()
    return LentFunctionInfo(
        viewers=function.viewers, refused=function.refused, n_calls=function.n_calls, n_refused=function.n_refused
    )


def _event(source: EventSource, pulse: Pulse, now_s: float) -> EventInfo:
    return EventInfo(
        origin=source.origin, n_events=source.n_events, snapshot=source.snapshot is not None, n_lost=source.n_lost,
        note=source.note or source.price, age_s=pulse.age_s(source.name, now_s),
        interval_s=pulse.interval_s(source.name), busy_s=pulse.busy_s(source.name),
        longest_s=pulse.longest_s(source.name),
        observables={
            name: ObservableInfo(type=facts.type, example=facts.example, fields=dict(facts.fields), step=facts.step)
            for name, facts in source.observables.items()
        },
    )  # fmt: skip


def _action(action: Action) -> ActionInfo:
    return ActionInfo(doc=action.doc, where=action.where, signature=action.signature, parameters=action.parameters)


def _control(control: Control) -> ControlInfo:
    return ControlInfo(
        type=control.type, value=_value(control), min=_number(control.min), max=_number(control.max),
        choices=sendable(control.choices).value, where=control.where,
    )  # fmt: skip


def stream(subscription: Subscription, clients: Sequence[str], *, n_failures: int = 0) -> StreamInfo:
    """Describe a subscription: the clients that it goes to, its records, its cost; the caller holds the lock."""
    return StreamInfo(
        stream=subscription.id, query=str(subscription.query), tag=subscription.query.tag, clients=list(clients),
        n_records=subscription.rows.n_made, n_events=subscription.n_seen, n_skipped=subscription.n_skipped,
        n_dropped=subscription.rows.n_dropped, n_unpaired=subscription.n_unpaired, n_errors=subscription.n_errors,
        n_failures=n_failures, last_error=str(subscription.last_error or ""), stride=subscription.stride,
        recorded=subscription.recorded, spent_s=subscription.spent_s,
    )  # fmt: skip


def result(entry: CommandResult) -> HistoryEntry:
    """Describe the result of a command, as an entry of the history."""
    return HistoryEntry(
        kind=entry.command.kind, name=entry.command.name, value=entry.command.value, event=entry.event,
        index=entry.index, step=entry.step, wall_time=entry.wall_time, old=sendable(entry.old).value,
        result=entry.result, error=entry.error, note=entry.note, client=entry.command.by,
    )  # fmt: skip


def _value(control: Control) -> object:
    """Read a control, which may be an attribute of any object."""
    try:
        return sendable(control.value).value
    except FAILURES:
        return None


def _number(bound: float | None) -> float | None:
    return getattr(bound, "item", lambda: bound)()  # NumPy's numbers are made Python's


# How long ago events happened. A run is quiet if that is much longer than usual for all of them: it is stuck, or
# evaluates for long.

N_INTERVALS: Final = 31  # the usual one is their median: an evaluation or a checkpoint between two events is no rule


@dataclass(slots=True)
class _Seen:
    n_events: int
    last_s: float
    ran_s: float | None
    intervals_s: deque[float] = field(default_factory=lambda: deque(maxlen=N_INTERVALS))
    busy_s: deque[float] = field(default_factory=lambda: deque(maxlen=N_INTERVALS))


class Pulse:
    """When each event last happened, and how often it usually does, as the `io` thread sees it.

    An event that nobody reads costs the training a count, and no clock is read. So the counts are looked at from second
    to second.
    """

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._seen: dict[str, _Seen] = {}

    def look(self, sources: Iterable[EventSource], now_s: float, *, paused: bool, ran_s: float | None = None) -> None:
        """Take note of what happened since the last look; while the run is paused, no time passes for it.

        Args:
            sources: The events.
            now_s: The time.
            paused: Whether the run is paused.
            ran_s: For how many seconds the thread that announces the events has run; `None` if that is not known.
        """
        for source in sources:
            n = source.n_events
            seen = self._seen.get(source.name)
            if seen is None:
                if n:
                    seen = self._seen[source.name] = _Seen(n, now_s, ran_s)
                    seen.intervals_s.extend([(now_s - self._began_s) / n] * (n > 1))  # not more than that
            elif n > seen.n_events:
                seen.intervals_s.append((now_s - seen.last_s) / (n - seen.n_events))
                if ran_s is not None and seen.ran_s is not None:
                    seen.busy_s.append((ran_s - seen.ran_s) / (n - seen.n_events))
                seen.n_events, seen.last_s, seen.ran_s = n, now_s, ran_s
            elif paused:
                seen.last_s = now_s

    def age_s(self, event: str, now_s: float) -> float | None:
        """Return for how many seconds an event has not happened; `None` if it never did."""
        seen = self._seen.get(event)
        return None if seen is None else max(0.0, now_s - seen.last_s)

    def interval_s(self, event: str) -> float | None:
        """Return the usual seconds between two events; `None` if it happened once, or never."""
        seen = self._seen.get(event)
        return median(seen.intervals_s) if seen is not None and seen.intervals_s else None

    def busy_s(self, event: str) -> float | None:
        """Return for how many seconds from one event to the next the thread usually works; `None` if not known."""
        seen = self._seen.get(event)
        return median(seen.busy_s) if seen is not None and seen.busy_s else None

    def longest_s(self, event: str) -> float | None:
        """Return the most seconds between two events at the last looks; `None` if it happened once, or never."""
        seen = self._seen.get(event)
        return max(seen.intervals_s) if seen is not None and seen.intervals_s else None
