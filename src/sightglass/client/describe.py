"""The description of a run, live or recorded: frozen data with a readable text."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sightglass.core.clock import elapsed
from sightglass.core.visible import visible
from sightglass.query.parser import as_query
from sightglass.storage.format import series_names
from sightglass.storage.format.block import Key
from sightglass.storage.run_file import RunFile

# More would not fit the line of an observable in a terminal of 80 columns.
MAX_FIELDS_SHOWN: Final = 6
MAIN_PACKAGES: Final = (
    "torch", "jax", "flax", "tensorflow", "keras", "lightning", "transformers", "sklearn", "xgboost", "numpy"
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservableInfo:
    """One observable: its type, with dtype and shape for arrays; an example; a mapping's fields by path.

    Of an object, the fields are the numbers that it stores. `step` is the step of the event that the example is from,
    if the run knows it.
    """

    type: str
    example: str = ""
    fields: Mapping[str, str]
    step: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventInfo:
    """One event of a run: where it comes from, how often it happened, its observables, and a remark.

    `n_lost` counts the values, or parts of them, that could not be copied for snapshots.
    """

    origin: str
    n_events: int
    snapshot: bool
    observables: Mapping[str, ObservableInfo]
    note: str = ""
    n_lost: int = 0


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
class LentFunctionInfo:
    """One function of the run that queries may call: whether viewers may, too, and why it is refused, if it is.

    `n_calls` counts its calls, `n_refused` the queries that asked for it after it was refused.
    """

    viewers: bool = False
    refused: str = ""
    n_calls: int = 0
    n_refused: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """One query that a run evaluates: its clients, whether it is recorded, its costs. Counts as in `Statistics`."""

    stream: int
    query: str
    tag: str
    clients: Sequence[str]
    n_records: int
    n_events: int
    n_skipped: int
    n_dropped: int
    n_unpaired: int = 0
    n_errors: int
    last_error: str
    stride: int
    spent_s: float
    recorded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """The description of a run; `state` of a live run is "running", "paused" or "stopping".

    `functions` has the first lines of the docstrings of the run's own functions, `lent` has who may call them.
    `sets_attributes` is whether numbers inside offered objects can be set, such as `batch.optimizer.lr`.
    `failures` has the parts of the run that failed in the background: how often, and the last error.
    `facts` are about its program, see `sightglass.Facts`: "command", "python", "packages", "git" and others.
    """

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
    n_pending_commands: int
    failures: Mapping[str, str] = field(default_factory=dict)
    lent: Mapping[str, LentFunctionInfo] = field(default_factory=dict)
    sets_attributes: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        age = elapsed(self.wall_time - self.started)
        lines = [f"run {self.name} ({self.id})  {self.state} for {age} on {self.host}, process {self.pid}"]
        if self.config:
            lines.append("  config  " + ", ".join(f"{key}={value!r}" for key, value in self.config.items()))
        lines += _fact_lines(self.facts)
        for name, event in self.events.items():
            lost = f" without {_count(event.n_lost, 'value')} that could not be copied" if event.n_lost else ""
            snapshot = f", with a snapshot{lost}" if event.snapshot else ""
            lines.append(f"  event {name!r}, {event.n_events} so far{snapshot}")
            lines.extend([f"    ({event.note})"] if event.note else [])
            lines.extend(_observable_line(key, observable) for key, observable in event.observables.items())
        for name, control in self.controls.items():
            bounds = "" if control.min is None and control.max is None else f"  from {control.min} to {control.max}"
            choices = f"  one of {list(control.choices)}" if control.choices else ""
            lines.append(f"  control {name} = {control.value!r}  {control.type}{bounds}{choices}")
        lines.extend(f"  action {name}  {action.doc}".rstrip() for name, action in self.actions.items())
        lines.extend(_function_line(name, doc, self.lent.get(name)) for name, doc in self.functions.items())
        lines.extend(
            f"  stream {stream.query}  {_count(stream.n_records, 'record')}, {_count(len(stream.clients), 'client')}"
            f"{', recorded' if stream.recorded else ''}"
            for stream in self.streams
        )
        lines.extend(f"  failed in {where}: {text}" for where, text in self.failures.items())
        return visible("\n".join(lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """One command in a run's history.

    `error` is empty if the command succeeded; `client` is empty for a command of the run itself;
    `note` is what its client was told.
    """

    kind: str
    name: str
    value: Any
    event: str
    index: int
    step: float
    wall_time: float
    old: Any
    result: Any
    error: str
    client: str = ""
    note: str = ""


def _fact_lines(facts: Mapping[str, Any]) -> list[str]:
    """Return the lines about a program; its packages are those that a training is known by."""
    lines = []
    if facts.get("command"):
        lines.append(f"  command  {shlex.join(map(str, facts['command']))}")
    if facts.get("git"):
        git = facts["git"]
        branch = f" on {git['branch']}" if git.get("branch") else ""
        lines.append(f"  commit  {git.get('commit')}{branch}{', with changes' if git.get('dirty') else ''}")
    if facts.get("python"):
        packages = facts.get("packages") or {}
        known = [f"{name} {packages[name]}" for name in MAIN_PACKAGES if name in packages]
        lines.append("  versions  " + ", ".join([f"Python {facts['python']}", *known]))
    return lines


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _function_line(name: str, doc: str, lent: LentFunctionInfo | None) -> str:
    line = f"  function {name}  {doc}".rstrip() + ("  (viewers may call it)" if lent and lent.viewers else "")
    return f"{line}\n    (refused: {lent.refused})" if lent and lent.refused else line


def _observable_line(name: str, observable: ObservableInfo) -> str:
    fields = list(observable.fields.items())
    inside = ", ".join(f"{path}: {type}" for path, type in fields[:MAX_FIELDS_SHOWN])
    more = ", …" if len(fields) > MAX_FIELDS_SHOWN else ""
    example = f" = {observable.example}" if observable.example else ""
    return f"    {name}: {observable.type}{example}{f' ({inside}{more})' if fields else ''}"


def description_of(info: Mapping[str, Any]) -> Description:
    """Return the description in a run's reply; entries that this version does not know are left out."""
    return Description(
        **{
            key: info.get(key)
            for key in ("name", "id", "pid", "host", "state", "wall_time", "n_clients", "n_pending_commands")
        },  # type: ignore[arg-type]
        started=info.get("started", 0.0),
        config=info.get("config") or {},
        directory=info.get("directory", ""),
        events={
            name: EventInfo(
                origin=event["origin"],
                n_events=event["n_events"],
                snapshot=event["snapshot"],
                note=event.get("note", ""),
                n_lost=event.get("n_lost", 0),
                observables={
                    key: ObservableInfo(**known_fields(ObservableInfo, value))
                    for key, value in event["observables"].items()
                },
            )
            for name, event in info["events"].items()
        },
        controls={name: ControlInfo(**known_fields(ControlInfo, value)) for name, value in info["controls"].items()},
        actions={name: ActionInfo(**known_fields(ActionInfo, value)) for name, value in info["actions"].items()},
        functions=info["functions"],
        streams=[StreamInfo(**known_fields(StreamInfo, value)) for value in info["streams"]],
        failures=info.get("failures", {}),
        lent={
            name: LentFunctionInfo(**known_fields(LentFunctionInfo, value))
            for name, value in info.get("lent", {}).items()
        },
        sets_attributes=info.get("sets_attributes", False),
        facts=info.get("facts") or {},
    )


def known_fields(cls: type, entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that a class has fields for; newer versions may send more."""
    return {key: value for key, value in entries.items() if key in cls.__slots__}  # type: ignore[attr-defined]


def recorded_description(
    file: RunFile, *, state: str, directory: str, series: Mapping[Key, tuple[int, str]]
) -> Description:
    """Describe a run from its files.

    Args:
        file: What the run wrote about itself; it lacks the end if the run died.
        state: "running", "ended", "failed", "terminated", "died" or "recorded".
        directory: The run directory.
        series: The number of records of each series, and their type.
    """
    info = dict(file.described)
    info.update(name=file.name, id=file.id, pid=file.pid, host=file.host, state=state, started=file.started)
    info.update(
        facts=file.facts, config=file.config, directory=directory, wall_time=file.ended or file.started, n_clients=0
    )
    info["events"] = {**_recorded_events(series), **info.get("events", {})}
    info["streams"] = [
        {
            **dict.fromkeys(("n_skipped", "n_dropped", "n_errors", "spent_s"), 0), "stream": i, "tag": key.tag,
            "query": as_query(key.query).short or key.query, "clients": (), "n_records": n, "n_events": n,
            "last_error": "", "stride": 1, "recorded": True,
        }
        for i, (key, (n, _)) in enumerate(series.items())
        if key.kind == "stream"
    ]  # fmt: skip
    empty: dict[str, Any] = {"controls": {}, "actions": {}, "functions": {}, "n_pending_commands": 0}
    return description_of({**empty, **info})


def _recorded_events(series: Mapping[Key, tuple[int, str]]) -> dict[str, Any]:
    """Return entries for the events whose observables were recorded."""
    events: dict[str, Any] = {}
    names = series_names.shown(series)
    for key, (n, type) in series.items():
        if key.kind not in ("logged", "stream", "snapshot"):
            continue
        query = as_query(key.query) if key.kind == "stream" else None
        name = "log" if key.kind == "logged" else query.event if query else key.tag
        event = events.setdefault(name, {"origin": "observe", "n_events": 0, "snapshot": False, "observables": {}})
        event["n_events"] = max(event["n_events"], n)
        if key.kind == "logged":
            event["origin"] = "log"
            event["observables"][names[key]] = {"type": type, "example": "", "fields": {}}
        elif key.kind == "snapshot":
            event["snapshot"] = True
        elif query and len(query.names) == 1 and query.tag == f"{name}.{query.names[0]}":
            event["observables"][query.names[0]] = {"type": type, "example": "", "fields": {}}
    return events
