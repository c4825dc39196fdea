"""What a run tells of itself, as values that travel: its events, controls, actions, functions, streams, history."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sightglass.core import codec
from sightglass.core.clock import Clock
from sightglass.training.commands import CommandResult
from sightglass.training.controls import Control
from sightglass.training.events import Emitter
from sightglass.training.subscription import Subscription

if TYPE_CHECKING:
    from .agent import Agent

MAX_TEXT: Final = 1_000


def run(agent: Agent, emitter: Emitter, functions: Mapping[str, Callable[..., Any]], clock: Clock) -> dict[str, Any]:
    """Describe a run; the caller holds the emitter's lock. The names are those of `client.describe.Description`."""
    ledger = emitter.ledger
    state = "stopping" if ledger.stopping else "paused" if ledger.paused_by else "running"
    for channel in emitter.demand.channels.values():
        # The next event refreshes types and examples.
        channel.describe_next = channel.origin not in ("live", "attached")
    emitter.demand.refresh()
    return {
        "name": agent.run,
        "id": agent.id,
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "state": state,
        "wall_time": clock.wall(),
        **agent.about,
        "events": {
            channel.name: {
                "origin": channel.origin,
                "n_events": channel.n_events,
                "kept": channel.kept is not None,
                "note": channel.note or channel.price,
                "observables": {
                    name: {"type": offered.type, "example": offered.example, "fields": dict(offered.fields)}
                    for name, offered in channel.offered.items()
                },
            }
            for channel in emitter.demand.channels.values()
        },
        "controls": {
            control.name: {
                "type": control.type,
                "value": _value(control),
                "min": control.min,
                "max": control.max,
                "choices": sendable(control.choices),
                "where": control.where,
            }
            for control in list(ledger.controls.values())
        },
        "actions": {
            action.name: {"doc": action.doc, "where": action.where} for action in list(ledger.actions.values())
        },
        "functions": {name: first_line(function) for name, function in list(functions.items())},
        "streams": streams(agent, emitter),
        "n_clients": len(agent.clients),
        "n_pending_acts": len(ledger.pending),
    }


def streams(agent: Agent, emitter: Emitter) -> list[dict[str, Any]]:
    """Describe the streams that are being answered; the caller holds the emitter's lock."""
    return [stream(agent, answer) for answer in emitter.demand.answers.values()]


def stream(agent: Agent, answer: Subscription) -> dict[str, Any]:
    """Describe a stream: who asks, what came of it, what it costs."""
    return {
        "stream": answer.id,
        "query": str(answer.query),
        "tag": answer.query.tag,
        "clients": agent.subscribers(answer),
        "n_records": answer.n_rows,
        "n_events": answer.n_seen,
        "n_skipped": answer.n_skipped,
        "n_dropped": answer.n_dropped,
        "n_errors": answer.n_errors,
        "last_error": str(answer.last_error or ""),
        "stride": answer.stride,
        "kept": answer.kept,
        "spent_s": answer.total_spent_s + answer.spent_s,
    }


def done(entry: CommandResult) -> dict[str, Any]:
    """Describe what became of an act."""
    return {
        "kind": entry.act.kind,
        "name": entry.act.name,
        "value": sendable(entry.act.value),
        "event": entry.event,
        "index": entry.index,
        "step": entry.step,
        "wall_time": entry.wall_time,
        "old": sendable(entry.old),
        "result": sendable(entry.result),
        "error": entry.error,
        "client": entry.act.by,
    }


def sendable(value: Any) -> Any:
    """Return a value that travels: of what cannot, its text."""
    try:
        codec.encode(value)
    except Exception:  # noqa: BLE001  values are the program's own
        return text(value)
    return value


def text(value: Any) -> str:
    """Return a value's text, or its type where it has none."""
    try:
        return f"{value!r:.{MAX_TEXT}}"
    except Exception:  # noqa: BLE001  values are the program's own
        return type(value).__name__


def _value(control: Control) -> Any:
    """Read a control, which may be an attribute of anything."""
    try:
        value = control.value
    except Exception:  # noqa: BLE001  values are the program's own
        return None
    return value if isinstance(value, bool | int | float | str) else sendable(value)


def first_line(function: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring."""
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
