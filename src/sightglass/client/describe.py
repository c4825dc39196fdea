"""What a run tells of itself, as frozen data with a readable text."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sightglass.query.parser import as_query
from sightglass.storage.format.block import Key
from sightglass.storage.run_file import RunFile

MAX_FIELDS_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservableInfo:
    """One observable: its type, with dtype and shape for arrays; an example; and what is inside a mapping, by path."""

    type: str
    example: str = ""
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventInfo:
    """One event of a run: where it comes from, how often it happened, what it offers, what else there is to know."""

    origin: str
    n_events: int
    kept: bool
    observables: Mapping[str, ObservableInfo]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlInfo:
    """One control of a run; `where` is the line that declared it."""

    type: str
    value: Any
    min: float | None
    max: float | None
    choices: Sequence[Any] | None
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionInfo:
    """One action of a run."""

    doc: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """One stream that a run answers: who asks, whether it is recorded, what it costs. Counts as in `Statistics`."""

    stream: int
    query: str
    tag: str
    clients: Sequence[str]
    n_records: int
    n_events: int
    n_skipped: int
    n_dropped: int
    n_errors: int
    last_error: str
    stride: int
    spent_s: float
    kept: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What a run tells of itself; `state` is "running", "paused" or "stopping"."""

    name: str
    id: str
    pid: int
    host: str
    state: str
    wall_time: float
    started: float
    config: Mapping[str, Any]
    directory: str
    events: Mapping[str, EventInfo]
    controls: Mapping[str, ControlInfo]
    actions: Mapping[str, ActionInfo]
    functions: Mapping[str, str]
    streams: Sequence[StreamInfo]
    n_clients: int
    n_pending_acts: int

    def __str__(self) -> str:
        age = time.strftime("%H:%M:%S", time.gmtime(max(0.0, self.wall_time - self.started)))
        lines = [f"run {self.name} ({self.id})  {self.state} for {age} on {self.host}, process {self.pid}"]
        if self.config:
            lines.append("  config  " + ", ".join(f"{key}={value!r}" for key, value in self.config.items()))
        for name, event in self.events.items():
            lines.append(f"  event {name!r}, {event.n_events} so far{', kept' if event.kept else ''}")
            lines.extend([f"    ({event.note})"] if event.note else [])
            lines.extend(_observable(key, observable) for key, observable in event.observables.items())
        for name, control in self.controls.items():
            bounds = "" if control.min is None and control.max is None else f"  from {control.min} to {control.max}"
            choices = f"  one of {list(control.choices)}" if control.choices else ""
            lines.append(f"  control {name} = {control.value!r}  {control.type}{bounds}{choices}")
        lines.extend(f"  action {name}  {action.doc}".rstrip() for name, action in self.actions.items())
        lines.extend(f"  function {name}  {doc}".rstrip() for name, doc in self.functions.items())
        lines.extend(
            f"  stream {stream.query}  {stream.n_records} records, {len(stream.clients)} clients"
            f"{', recorded' if stream.kept else ''}"
            for stream in self.streams
        )
        return "\n".join(lines)


def _observable(name: str, observable: ObservableInfo) -> str:
    fields = list(observable.fields.items())
    inside = ", ".join(f"{key}: {kind}" for key, kind in fields[:MAX_FIELDS_SHOWN])
    more = ", …" if len(fields) > MAX_FIELDS_SHOWN else ""
    example = f" = {observable.example}" if observable.example else ""
    return f"    {name}: {observable.type}{example}{f' ({inside}{more})' if fields else ''}"


def description(told: Mapping[str, Any]) -> Description:
    """Make a description of what a run told; what this version does not know is left out."""
    return Description(
        **{
            key: told.get(key)
            for key in ("name", "id", "pid", "host", "state", "wall_time", "n_clients", "n_pending_acts")
        },  # type: ignore[arg-type]
        started=told.get("started", 0.0),
        config=told.get("config") or {},
        directory=told.get("directory", ""),
        events={
            name: EventInfo(
                origin=event["origin"],
                n_events=event["n_events"],
                kept=event["kept"],
                note=event.get("note", ""),
                observables={
                    key: ObservableInfo(**known(ObservableInfo, value)) for key, value in event["observables"].items()
                },
            )
            for name, event in told["events"].items()
        },
        controls={name: ControlInfo(**known(ControlInfo, value)) for name, value in told["controls"].items()},
        actions={name: ActionInfo(**known(ActionInfo, value)) for name, value in told["actions"].items()},
        functions=told["functions"],
        streams=[StreamInfo(**known(StreamInfo, value)) for value in told["streams"]],
    )


def known(kind: type, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a kind has fields for; what newer versions tell besides is left out."""
    return {key: value for key, value in told.items() if key in kind.__slots__}  # type: ignore[attr-defined]


def recorded(told: RunFile, *, state: str, directory: str, kept: Mapping[Key, tuple[int, str]]) -> Description:
    """Describe a run from what it wrote.

    Args:
        told: What it said of itself; the end is missing if it died.
        state: Whether it runs, ended, failed, died or says nothing.
        directory: Where it is.
        kept: How many records each series has, and their type.
    """
    about = dict(told.described)
    about.update(name=told.name, id=told.id, pid=told.pid, host=told.host, state=state, started=told.started)
    about.update(config=told.config, directory=directory, wall_time=told.ended or told.started, n_clients=0)
    about["events"] = {**_recorded_events(kept), **about.get("events", {})}
    about["streams"] = [
        {
            **dict.fromkeys(("n_skipped", "n_dropped", "n_errors", "spent_s"), 0), "stream": i, "tag": key.tag,
            "query": as_query(key.query).short or key.query, "clients": (), "n_records": n, "n_events": n,
            "last_error": "", "stride": 1, "kept": True,
        }
        for i, (key, (n, _)) in enumerate(kept.items())
        if key.kind == "stream"
    ]  # fmt: skip
    empty: dict[str, Any] = {"controls": {}, "actions": {}, "functions": {}, "n_pending_acts": 0}
    return description({**empty, **about})


def _recorded_events(kept: Mapping[Key, tuple[int, str]]) -> dict[str, Any]:
    """Tell of events by what was kept of them."""
    events: dict[str, Any] = {}
    for key, (n, kind) in kept.items():
        if key.kind not in ("logged", "stream", "snapshot"):
            continue
        query = as_query(key.query) if key.kind == "stream" else None
        name = "log" if key.kind == "logged" else query.event if query else key.tag
        event = events.setdefault(name, {"origin": "observe", "n_events": 0, "kept": False, "observables": {}})
        event["n_events"] = max(event["n_events"], n)
        if key.kind == "logged":
            event["origin"] = "log"
            event["observables"][key.tag] = {"type": kind, "example": "", "fields": {}}
        elif key.kind == "snapshot":
            event["kept"] = True
        elif query and len(query.names) == 1 and query.tag == f"{name}.{query.names[0]}":
            event["observables"][query.names[0]] = {"type": kind, "example": "", "fields": {}}
    return events
