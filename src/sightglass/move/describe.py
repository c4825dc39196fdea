"""What a run tells of itself, as plain values that travel: its events, controls, actions, functions, streams and history."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.clock import Clock
from ..core.values import to_host
from ..emit.acts import Done
from ..emit.observe import Emitter

if TYPE_CHECKING:
    from .agent import Agent


def run(agent: Agent, emitter: Emitter, functions: Mapping[str, Callable[..., Any]], clock: Clock) -> dict[str, Any]:
    """Describe a run; the caller holds the emitter's lock. The names are those of `client.describe.Description`."""
    ledger = emitter.ledger
    state = "stopping" if ledger.stopping else "paused" if ledger.paused_by else "running"
    for channel in emitter.demand.channels.values():
        channel.describe_next = True  # the next event refreshes types and examples
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
                "value": to_host(control.value),
                "min": control.min,
                "max": control.max,
                "choices": control.choices,
                "where": control.where,
            }
            for control in ledger.controls.values()
        },
        "actions": {action.name: {"doc": action.doc, "where": action.where} for action in ledger.actions.values()},
        "functions": {name: first_line(function) for name, function in functions.items()},
        "streams": streams(agent, emitter),
        "n_clients": len(agent.clients),
        "n_pending_acts": len(ledger.pending),
    }


def streams(agent: Agent, emitter: Emitter) -> list[dict[str, Any]]:
    """Describe the streams that are being answered, with what they cost; the caller holds the emitter's lock."""
    return [
        {
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
            "spent_s": answer.total_spent_s + answer.spent_s,
        }
        for answer in emitter.demand.answers.values()
    ]


def done(entry: Done) -> dict[str, Any]:
    """Describe what became of an act."""
    return {
        "kind": entry.act.kind,
        "name": entry.act.name,
        "value": entry.act.value,
        "event": entry.event,
        "index": entry.index,
        "step": entry.step,
        "wall_time": entry.wall_time,
        "old": entry.old,
        "result": entry.result,
        "error": entry.error,
    }


def first_line(function: Callable[..., Any]) -> str:
    """Return the first line of a function's docstring."""
    return (getattr(function, "__doc__", None) or "").strip().partition("\n")[0]
