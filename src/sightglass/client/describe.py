"""The description of a run, live or recorded: frozen data with a readable text.

`RunInfo` lists and chooses runs; `EventNamespace` makes events attributes of a run.
"""

from __future__ import annotations

import functools
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

from sightglass.core.errors import SightglassError, UnknownNameError, unknown
from sightglass.core.process.clock import elapsed
from sightglass.core.redact import visible
from sightglass.query.parser import as_query, is_plain, query_of
from sightglass.query.query import Query
from sightglass.storage import object_file, run_file
from sightglass.storage.foreign.settings import read_settings
from sightglass.storage.format import series_names
from sightglass.storage.format.block import Key
from sightglass.storage.object_file import Annotations
from sightglass.storage.run_file import RunFile
from sightglass.storage.run_listing import RunEntry

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


# What a run says about itself, live or recorded: to list it, to choose it and to group it by.


class Config(Mapping[str, Any]):
    """A run's configuration, whose entries are attributes, too: `config.optimizer.lr`."""

    def __init__(self, entries: Mapping[str, Any], *, run: str, path: str = "") -> None:
        self._entries = entries
        self._run = run
        self._path = path

    def __getitem__(self, name: str) -> Any:
        value = self._entries[name]
        return Config(value, run=self._run, path=f"{self._path}{name}.") if isinstance(value, Mapping) else value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._entries:
            raise UnknownNameError("entry", self._path + name, self._entries, where=f"in the config of {self._run!r}")
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self._entries))


# Files of other programs have no index: all of them is read to find the last record, which takes a second for these.
MAX_SCANNED_BYTES: Final = 256 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run that `runs` found, or that `where` chooses by what it says about itself.

    Attributes:
        name: The run's name.
        id: The run's id, 12 hexadecimal digits; empty if its files do not say.
        state: Of a live run "running", "paused" or "stopping"; "silent" if it is alive but does not answer; "out of
            reach" if it is on another machine and does not answer. Of a recorded run "ended", "failed", "terminated"
            if it was sent SIGTERM, "died" if it did not close, "recorded" if its files do not say.
        pid: The number of its process; 0 if that is unknown.
        host: The name of its machine.
        started: When it began, in seconds since the Unix epoch; 0 if unknown.
        directory: Its run directory or file, or empty.
        description: The run's description; `None` if it did not answer, or is recorded.
        changed: When its files were last written to, in seconds since the Unix epoch; 0 for a live run.
        n_bytes: The size of its files.
        rank: The rank whose configuration `config` is; `None` for the lowest.
    """

    name: str
    id: str
    state: str
    pid: int
    host: str
    started: float
    directory: str
    description: Description | None = field(default=None, repr=False)  # it is long: `print(info.description)`
    changed: float = 0.0
    n_bytes: int = 0
    rank: int | None = None
    _noted_end: float | None = field(default=None, repr=False)

    @property
    def live(self) -> bool:
        """Whether the run is live, and not only recorded."""
        return self.changed == 0.0

    @property
    def ended(self) -> float | None:
        """When it ended, in seconds since the Unix epoch; where its files do not say, when their last record was made.

        `None` for a live run, where no record can be read, and where finding the last one would take long.
        """
        if self._noted_end or self.live or self.n_bytes > MAX_SCANNED_BYTES:
            return self._noted_end
        return _last_record(self.directory, self.changed)

    @property
    def annotations(self) -> Annotations:
        """What people wrote down about it: another name, labels, notes."""
        return object_file.read_annotations(self.directory) if self.directory else Annotations()

    @property
    def config(self) -> Config:
        """Its configuration; entries are attributes, too: `run.config.optimizer.lr`."""
        if self.description is not None:
            return Config(self.description.config, run=self.name)
        if not self.directory:
            return Config({}, run=self.name)
        files = run_file.read_all(Path(self.directory), cached=True)
        config = run_file.together(files, rank=self.rank).config if files else read_settings(Path(self.directory))
        return Config(config, run=self.name)


def live_info(description: Description) -> RunInfo:
    """Return what a live run says about itself."""
    return RunInfo(
        name=description.name, id=description.id, state=description.state, pid=description.pid, host=description.host,
        started=description.started, directory=description.directory, description=description,
    )  # fmt: skip


def recorded_info(entry: RunEntry, *, rank: int | None = None) -> RunInfo:
    """Return what the files of a run say about it."""
    return RunInfo(
        name=entry.name, id=entry.id, state=entry.state, pid=0, host="", started=entry.started,
        directory=str(entry.path), changed=entry.changed, n_bytes=entry.n_bytes, rank=rank, _noted_end=entry.ended,
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _last_record(directory: str, _changed: float) -> float | None:
    """Return when the last record in a directory was made, as long as its files are the same."""
    from sightglass.storage.read.recording import Recording  # most runs say when they ended

    try:
        with Recording(directory) as recording:
            return recording.ended
    except (SightglassError, OSError):
        return None


Condition = Callable[[RunInfo], object]
LACKS_ENTRY: Final = (UnknownNameError, KeyError)
"""What a function of a `RunInfo` raises that reads an entry which the run's configuration lacks."""


def check_condition(condition: object) -> None:
    """Raise if runs cannot be chosen by this.

    Raises:
        TypeError: It is not a function, such as the text that other tools take here.
    """
    if not callable(condition):
        raise TypeError(f"Expected a function such as lambda run: run.config.lr < 0.1, got {condition!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRuns:
    """Which runs a condition chooses, and why others are left out, by their keys.

    Attributes:
        chosen: Those for which it holds.
        lacking: Those whose configuration lacks what it reads.
        failed: Those for which it fails otherwise, such as for a text where the others have a number.
    """

    chosen: list[Any]
    lacking: dict[Any, Exception]
    failed: dict[Any, Exception]


def choose(condition: Condition, infos: Mapping[Any, RunInfo]) -> ChosenRuns:
    """Choose runs: one for which the condition cannot be evaluated costs the others nothing.

    Raises:
        Exception: What the condition raises, if it can be evaluated for none of the runs, and not all lack an entry.
    """
    choice = ChosenRuns(chosen=[], lacking={}, failed={})
    for key, info in infos.items():
        try:
            if condition(info):
                choice.chosen.append(key)
        except LACKS_ENTRY as error:
            choice.lacking[key] = error
        except Exception as error:  # noqa: BLE001  a condition is the user's
            choice.failed[key] = error
    if choice.failed and len(choice.failed) + len(choice.lacking) == len(infos):
        raise next(iter(choice.failed.values()))
    return choice


def holds(condition: Condition, info: RunInfo) -> bool:
    """Return whether a condition holds for a run; not if the run's configuration lacks an entry that it reads."""
    try:
        return bool(condition(info))
    except LACKS_ENTRY:
        return False


# Events as attributes of a run: `run.batch.<TAB>` completes the observables, and `run.batch.loss` is a query.
#
# Completion reads only attributes that exist: it evaluates no property. So the events become attributes whenever the
# run describes itself: in `describe()`, when its own names are completed, and, in IPython, on connecting. Attributes of
# the class stay: write `sightglass.on("stream")` for an event named "stream".


class EventNamespace:
    """The observables of an event as attributes, or as items where their names are not valid Python names.

    Each is a query, to pass to `run.stream`.
    """

    def __init__(self, event: str, observables: Mapping[str, ObservableInfo]) -> None:
        self._event = event
        self._types = {name: info.type for name, info in observables.items()}
        self.__dict__.update({name: query_of(event, [name]) for name in observables if is_plain(name)})

    def __getitem__(self, name: str) -> Query:
        if name not in self._types:
            raise KeyError(unknown("observable", name, self._types, where=f"at event {self._event!r}"))
        return query_of(self._event, [name])

    def __call__(self, *args: object, **values: object) -> NoReturn:
        """Raise TypeError: a client that calls `log` means the program's own run."""
        raise TypeError(
            f"Only the program announces event {self._event!r}. A client publishes a stream: publish(name, stream)"
        )

    def __dir__(self) -> list[str]:
        return [name for name in self._types if is_plain(name)]

    def __repr__(self) -> str:
        types = ", ".join(f"{name}: {type}" for name, type in self._types.items())
        return f"<event {self._event!r}: {types or 'no observables yet'}>"

    def _ipython_key_completions_(self) -> list[str]:
        return list(self._types)


class EventAttributes(ABC):
    """A run whose events become attributes when it describes itself."""

    @abstractmethod
    def describe(self) -> Description:
        """Return the description of the run, and set its events as attributes."""

    def _set_event_attributes(self, events: Mapping[str, EventInfo]) -> None:
        """Set events as attributes, except those whose names are taken."""
        own = self.__dict__
        for name, event in events.items():
            is_taken = hasattr(type(self), name) or (name in own and not isinstance(own[name], EventNamespace))
            if is_plain(name) and not is_taken:
                own[name] = EventNamespace(name, event.observables)

    def _complete_in_ipython(self) -> None:
        """Set the attributes at once if this is IPython, where the next key may be a tab."""
        get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
        if get_ipython and get_ipython() is not None:
            self.__dir__()

    def __dir__(self) -> list[str]:
        try:
            self.describe()
        except SightglassError:
            pass  # the run is gone; the names it had are still completed
        return [*super().__dir__()]
