"""What a run says about itself: structs that the run fills in, and that everybody else reads.

They cross the wire, and lie in `run.json`, as mappings: `as_mapping` makes these, because a control's value may be an
array, which needs `core.codec`. `read_struct` makes structs of them again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from .process.clock import elapsed, spoken
from .redact import visible

# More would not fit the line of an observable in a terminal of 80 columns.
MAX_FIELDS_SHOWN: Final = 6
MAIN_PACKAGES: Final = (
    "torch", "jax", "flax", "tensorflow", "keras", "lightning", "transformers", "sklearn", "xgboost", "numpy"
)  # fmt: skip

_DECIMAL: Final = re.compile(r"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?")  # JSON allows neither .2 nor 1.
QUIET_TIMES: Final = 10.0
QUIET_S: Final = 10.0
"""Fast events may pause for some seconds, such as to collect garbage or to write a checkpoint."""

S = TypeVar("S", bound=msgspec.Struct)


class ObservableInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One observable: its type, with dtype and shape for arrays; an example; a mapping's fields by path.

    Of an object, the fields are the numbers that it stores. `step` is the step of the event that the example is from,
    if the run knows it.
    """

    type: str = ""
    example: str = ""
    fields: Mapping[str, str] = {}
    step: int | float | None = None


class EventInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One event of a run: where it comes from, how often it happened, its observables, and a remark.

    `n_lost` counts the values, or parts of them, that could not be copied for snapshots. `age_s` is how many seconds
    ago it last happened, `interval_s` how many usually lie between two, `busy_s` for how many of these the thread that
    called `init` works itself, without waiting, and `longest_s` how many there were at most lately; `None` if that is
    not known.
    """

    origin: str = "observe"
    n_events: int = 0
    snapshot: bool = False
    observables: Mapping[str, ObservableInfo] = {}
    note: str = ""
    n_lost: int = 0
    age_s: float | None = None
    interval_s: float | None = None
    busy_s: float | None = None
    longest_s: float | None = None

    @property
    def is_quiet(self) -> bool:
        """Whether it has not happened for ten times as long as usual."""
        if self.age_s is None or self.interval_s is None:
            return False
        return self.age_s > max(QUIET_S, QUIET_TIMES * self.interval_s)


class ControlInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One control of a run; `where` is the line that declared it."""

    type: str = ""
    value: Any = None
    min: int | float | None = None
    max: int | float | None = None
    choices: Sequence[Any] | None = None
    where: str = ""


class ParameterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of an action, which can be given by name; without a `default`, as text, it must be given."""

    name: str = ""
    type: str = ""
    default: str = ""


class ActionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One action of a run: the first line of its docstring, its arguments, and the line that declared it."""

    doc: str = ""
    where: str = ""
    signature: str = ""
    parameters: Sequence[ParameterInfo] = ()


def call_value(args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Return the arguments of a call as the value of a command: a list, or a mapping where some have names."""
    return {"args": list(args), "keywords": dict(keywords)} if keywords else list(args)


def arguments_of(value: Any) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a call, those with names apart, from the value of a command.

    A value that is not a list is the only argument.
    """
    match value:
        case None:
            return (), {}
        case {"args": list(args), "keywords": dict(keywords), **others} if not others:
            return args, keywords
    return (value if isinstance(value, list | tuple) else (value,)), {}


def parse_value(text: str) -> object:
    """Read a value as JSON, or as Python's True, False and None, or as a number such as .2; anything else is text."""
    if _DECIMAL.fullmatch(text):
        return float(text)
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


class LentFunctionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One function of the run that queries may call: whether viewers may, too, and why it is refused, if it is.

    `n_calls` counts its calls, `n_refused` the queries that asked for it after it was refused.
    """

    viewers: bool = False
    refused: str = ""
    n_calls: int = 0
    n_refused: int = 0


class StreamInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One query that a run evaluates: its clients, whether it is recorded, its costs. Counts as in `Statistics`."""

    stream: int = 0
    query: str = ""
    tag: str = ""
    clients: Sequence[str] = ()
    n_records: int = 0
    n_events: int = 0
    n_skipped: int = 0
    n_dropped: int = 0
    n_unpaired: int = 0
    n_errors: int = 0
    n_failures: int = 0
    last_error: str = ""
    stride: int = 1
    spent_s: float = 0.0
    recorded: bool = False


class StackFrame(msgspec.Struct, frozen=True, kw_only=True):
    """One call in a stack: the file as tracebacks name it, the line that runs, the function."""

    file: str = ""
    line: int = 0
    function: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Why a run ended; all empty if by itself, or if it could not say.

    Attributes:
        error: The exception that ended it, with its message, without secrets.
        frames: The last calls before the exception, the innermost last.
        signal: The name of the signal, such as "SIGTERM".
        stopped_by: The client that asked it to stop.
    """

    error: str = ""
    frames: tuple[StackFrame, ...] = ()
    signal: str = ""
    stopped_by: str = ""

    def __str__(self) -> str:
        if self.error:
            at = self.frames[-1] if self.frames else None
            where = f" ({os.path.basename(at.file)}, line {at.line}, in {at.function})" if at else ""
            return visible(f"{self.error.partition(chr(10))[0]}{where}")
        return visible(self.signal or (f"stopped by {self.stopped_by}" if self.stopped_by else ""))


class AlertsInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The alerts of a run so far: how many, and the title, the level and the time of the last one."""

    n: int = 0
    title: str = ""
    level: str = ""
    wall_time: float = 0.0


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a run; `state` of a live run is "running", "quiet", "paused" or "stopping".

    It is quiet if none of its events has happened for ten times as long as usual, and for ten seconds: it is stuck, or
    evaluates for long. `RemoteRun.stacks` says where it is.

    `functions` has the first lines of the docstrings of the run's own functions, `lent` has who may call them.
    `sets_attributes` is whether numbers inside offered objects can be set, such as `batch.optimizer.lr`.
    `alerts_may` has the commands that rules of alerts may send: "stop", "pause", and the names of controls.
    `failures` has the parts of the run that failed in the background: how often, and the last error.
    `ending` is why it ended, or who asked it to stop.
    `facts` are about its program, see `sightglass.Facts`: "command", "python", "packages", "git" and others.
    `alerts` counts its alerts; the history has them.
    `last_step` is the highest last step of what was recorded; a live run does not know it.
    """

    name: str = ""
    id: str = ""
    pid: int = 0
    host: str = ""
    state: str = ""
    wall_time: float = 0.0
    started: float = 0.0
    config: Mapping[str, Any] = {}
    directory: str = ""
    events: Mapping[str, EventInfo] = {}
    controls: Mapping[str, ControlInfo] = {}
    actions: Mapping[str, ActionInfo] = {}
    functions: Mapping[str, str] = {}
    streams: Sequence[StreamInfo] = ()
    n_clients: int = 0
    n_pending_commands: int = 0
    failures: Mapping[str, str] = {}
    lent: Mapping[str, LentFunctionInfo] = {}
    sets_attributes: bool = False
    alerts_may: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}
    ending: Ending = Ending()
    alerts: AlertsInfo = AlertsInfo()
    last_step: int | float | None = None

    @property
    def sentence(self) -> str:
        """How the run is, and why: everywhere the same sentence.

        Such as "running, batch 12,345, 38/s, the last 0.2 s ago", or "failed at batch 200 after 3 min: OSError: …".
        """
        every = [(name, event) for name, event in self.events.items() if event.n_events]
        name, main = max(every, key=lambda item: (item[0] != "log", item[1].n_events), default=("", EventInfo()))
        place = f"{name} {main.n_events - 1:,}" if name else ""
        if not (name and self.id) and self.last_step is not None:  # other programs have steps, and no events
            place = f"step {self.last_step:,.15g}"
        why = f": {self.ending}" if str(self.ending) else ""
        match self.state:
            case "quiet":
                usual = f", usually one event every {spoken(main.interval_s)}" if main.interval_s else ""
                parts = [f"quiet for {spoken(main.age_s or 0.0)}{usual}", place]
            case "running" | "paused" | "stopping":
                rate = f"{1 / main.interval_s:.3g}/s" if main.interval_s and self.state != "paused" else ""
                parts = [self.state, place, rate, "" if main.age_s is None else f"the last {spoken(main.age_s)} ago"]
            case _:
                took_s = self.wall_time - self.started if self.started else 0.0
                after = f" after {spoken(took_s)}" if took_s > 0 else ""
                parts = [f"{self.state}{f' at {place}' if place else ''}{after}"]
        return visible(", ".join(filter(None, parts)) + why)

    def timeless(self) -> Description:
        """Return it without what changes by itself: when it was made, and how long ago events happened."""
        none = dict.fromkeys(("age_s", "interval_s", "busy_s", "longest_s"))
        events = {name: replace(event, **none) for name, event in self.events.items()}
        return replace(self, wall_time=0.0, events=events)

    def __str__(self) -> str:
        age = elapsed(self.wall_time - self.started)
        id, host = f" ({self.id})" if self.id else "", f" on {self.host}" if self.host else ""
        process = f", process {self.pid}" if self.pid else ""
        lines = [f"run {self.name}{id}  {self.state} for {age}{host}{process}"]
        lines.append(f"  {self.sentence}")
        if self.config:
            lines.append("  config  " + ", ".join(f"{key}={value!r}" for key, value in self.config.items()))
        lines += _fact_lines(self.facts)
        for name, event in self.events.items():
            lost = f" without {_count(event.n_lost, 'value')} that could not be copied" if event.n_lost else ""
            snapshot = f", with a snapshot{lost}" if event.snapshot else ""
            lines.append(f"  event {name!r}, {event.n_events} so far{_silence(event)}{snapshot}")
            lines.extend([f"    ({event.note})"] if event.note else [])
            lines.extend(_observable_line(key, observable) for key, observable in event.observables.items())
        for name, control in self.controls.items():
            bounds = "" if control.min is None and control.max is None else f"  from {control.min} to {control.max}"
            choices = f"  one of {list(control.choices)}" if control.choices else ""
            lines.append(f"  control {name} = {control.value!r}  {control.type}{bounds}{choices}")
        lines.extend(
            f"  action {name}{action.signature}  {action.doc}".rstrip() for name, action in self.actions.items()
        )
        lines.extend(_function_line(name, doc, self.lent.get(name)) for name, doc in self.functions.items())
        lines.extend(
            f"  stream {stream.query}  {_count(stream.n_records, 'record')}, {_count(len(stream.clients), 'client')}"
            f"{', recorded' if stream.recorded else ''}"
            for stream in self.streams
        )
        if self.alerts.n:
            lines.append(f"  {_count(self.alerts.n, 'alert')}, the last: {self.alerts.title}")
        lines.extend(f"  failed in {where}: {text}" for where, text in self.failures.items())
        return visible("\n".join(lines))


class HistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One command in a run's history, or an alert: its name is the title, its value the text, its note the level.

    `error` is empty if the command succeeded; `client` is empty for a command of the run itself;
    `note` is what its client was told.
    """

    kind: str = ""
    name: str = ""
    value: Any = None
    event: str = ""
    index: int = -1
    step: int | float = -1
    wall_time: float = 0.0
    old: Any = None
    result: Any = None
    error: str = ""
    client: str = ""
    note: str = ""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """The run's reply to a command.

    Attributes:
        applied: Whether the run has applied the command. If not, it still waits for an event, which `note` names; if
            the run expects no such event, the reply comes at once, and `note` says what to do.
        event: The event at which it was applied.
        index: The event's number.
        step: The event's step.
        wall_time: When it was applied, in seconds since the Unix epoch.
        old: The control's value before.
        result: The control's value after, or what the action returned.
        note: The run's remark: what a command waits for, or that a scheduler will overwrite the value that was set.
    """

    applied: bool = False
    event: str = ""
    index: int = -1
    step: int | float = -1
    wall_time: float = 0.0
    old: Any = None
    result: Any = None
    note: str = ""


def as_mapping(value: Any) -> Any:
    """Return structs, also those in lists and mappings, as mappings of their fields; other values stay as they are."""
    if isinstance(value, msgspec.Struct):
        return {name: as_mapping(getattr(value, name)) for name in value.__struct_fields__}
    if type(value) in (list, tuple):
        return type(value)(as_mapping(item) for item in value)
    return {key: as_mapping(item) for key, item in value.items()} if type(value) is dict else value


def read_struct(kind: type[S], entries: object) -> S:
    """Read a struct from a mapping of its fields, which another version may have written.

    A field that is unknown here is ignored. One that is missing, or has another type, has its default, and costs the
    others nothing. Numbers that JSON lacks may be the texts "nan", "inf" and "-inf".
    """
    try:
        return msgspec.convert(entries, kind)  # a tenth of the time that the fields take one by one
    except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
        known = {}
        for field in msgspec.structs.fields(kind):
            if isinstance(entries, Mapping) and field.name in entries:
                try:
                    known[field.name] = _read_field(field.type, entries[field.name])
                except (msgspec.MsgspecError, ValueError, OverflowError, RecursionError):
                    continue
        return kind(**known)


def _read_field(kind: Any, value: object) -> Any:
    """Read a field. Of a struct, or of a mapping or list of structs, what can be read is."""
    parts = typing.get_args(kind)
    if parts and _is_struct(parts[-1]) and isinstance(value, Mapping):
        return {str(name): read_struct(parts[-1], item) for name, item in value.items()}
    if parts and _is_struct(parts[-1]) and isinstance(value, list | tuple):
        return [read_struct(parts[-1], item) for item in value]
    if _is_struct(kind):
        return read_struct(kind, value)
    return msgspec.convert(value, kind, strict=value not in ("nan", "inf", "-inf"))


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


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


def _silence(event: EventInfo) -> str:
    """Say for how long an event has not happened, if that is much longer than usual."""
    if not event.is_quiet or event.age_s is None:
        return ""
    return f", the last {elapsed(event.age_s)} ago, usually every {event.interval_s:.2g} s"


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
