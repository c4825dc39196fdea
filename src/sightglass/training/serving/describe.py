"""What a run reports about itself, as values that can be sent: events, controls, actions, functions, history."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sightglass.core.process.clock import Clock
from sightglass.core.program_values.copier import sendable
from sightglass.core.program_values.guarded import FAILURES, first_line
from sightglass.training.commands import CommandQueue, CommandResult
from sightglass.training.controls import Control, LentFunction
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.subscriptions import COMPILED, EventSource
from sightglass.training.evaluation.telemetry import Telemetry


def run(
    telemetry: Telemetry, functions: Mapping[str, Callable[..., Any]], *, about: Mapping[str, Any], clock: Clock
) -> dict[str, Any]:
    """Describe a run; the caller holds the lock. The keys are the fields of `client.describe.Description`."""
    sources = telemetry.subscriptions.sources
    for source in sources.values():  # the next event refreshes types and examples
        source.describe_next = source.origin not in COMPILED
    telemetry.subscriptions.refresh()
    queue = telemetry.commands.queue
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "state": "stopping" if queue.stopping else "paused" if queue.paused_by else "running",
        "wall_time": clock.wall(),
        **about,
        "events": {source.name: _event(source) for source in sources.values()},
        **_commands(queue),
        "functions": {name: first_line(getattr(f, "__wrapped__", f)) for name, f in list(functions.items())},
        "lent": {name: _lent(function) for name, function in list(functions.items())},
    }


def _lent(function: Callable[..., Any]) -> dict[str, Any]:
    if not isinstance(function, LentFunction):
        return {"viewers": False, "refused": "", "n_calls": 0, "n_refused": 0}
    return {name: getattr(function, name) for name in ("viewers", "refused", "n_calls", "n_refused")}


def _event(source: EventSource) -> dict[str, Any]:
    return {
        "origin": source.origin,
        "n_events": source.n_events,
        "snapshot": source.snapshot is not None,
        "n_lost": source.n_lost,
        "note": source.note or source.price,
        "observables": {
            name: {"type": facts.type, "example": facts.example, "fields": dict(facts.fields), "step": facts.step}
            for name, facts in source.observables.items()
        },
    }


def _commands(queue: CommandQueue) -> dict[str, Any]:
    return {
        "controls": {
            control.name: {
                "type": control.type,
                "value": _value(control),
                "min": sendable(control.min).value,
                "max": sendable(control.max).value,
                "choices": sendable(control.choices).value,
                "where": control.where,
            }
            for control in list(queue.controls.values())
        },
        "actions": {action.name: {"doc": action.doc, "where": action.where} for action in list(queue.actions.values())},
        "sets_attributes": queue.sets_attributes,
        "n_pending_commands": len(queue.pending),
    }


def stream(subscription: Subscription, clients: Sequence[str]) -> dict[str, Any]:
    """Describe a subscription: the clients that it goes to, its records, its cost; the caller holds the lock."""
    return {
        "stream": subscription.id,
        "query": str(subscription.query),
        "tag": subscription.query.tag,
        "clients": list(clients),
        "n_records": subscription.rows.n_made,
        "n_events": subscription.n_seen,
        "n_skipped": subscription.n_skipped,
        "n_dropped": subscription.rows.n_dropped,
        "n_unpaired": subscription.n_unpaired,
        "n_errors": subscription.n_errors,
        "last_error": str(subscription.last_error or ""),
        "stride": subscription.stride,
        "recorded": subscription.recorded,
        "spent_s": subscription.spent_s,
    }


def result(entry: CommandResult) -> dict[str, Any]:
    """Describe the result of a command, as an entry of the history."""
    return {
        "kind": entry.command.kind,
        "name": entry.command.name,
        "value": entry.command.value,
        "event": entry.event,
        "index": entry.index,
        "step": entry.step,
        "wall_time": entry.wall_time,
        "old": sendable(entry.old).value,
        "result": entry.result,
        "error": entry.error,
        "note": entry.note,
        "client": entry.command.by,
    }


def _value(control: Control) -> object:
    """Read a control, which may be an attribute of any object."""
    try:
        return sendable(control.value).value
    except FAILURES:
        return None
