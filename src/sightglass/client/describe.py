"""What a run says about itself, for those who look for it: `recorded_description` has it from its files.

`RunInfo` lists and chooses runs; `EventNamespace` makes events attributes of a run.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from sightglass.core.description import Description, Ending, EventInfo, ObservableInfo, StreamInfo
from sightglass.core.errors import SightglassError, UnknownNameError, unknown, warn_user
from sightglass.query.parser import as_query, is_plain, query_of
from sightglass.query.query import Query
from sightglass.storage import object_file, run_file
from sightglass.storage.foreign.settings import read_settings
from sightglass.storage.format import series_names
from sightglass.storage.format.block import Key
from sightglass.storage.object_file import Annotations
from sightglass.storage.run_file import RunFile, is_of_machine
from sightglass.storage.run_listing import RunEntry


def recorded_description(
    file: RunFile,
    *,
    state: str,
    directory: str,
    series: Mapping[Key, tuple[int, str, float | None]],
    ended: float | None = None,
) -> Description:
    """Describe a run from its files.

    Args:
        file: What the run wrote about itself; it lacks the end if the run died.
        state: See `run_listing.standing`; or "running".
        directory: The run directory.
        series: The number of records of each series, their type, and the step of the last one.
        ended: When the run ended, as far as its files say.
    """
    streams = [
        StreamInfo(
            stream=i, tag=key.tag, query=as_query(key.query).short or key.query, n_records=n, n_events=n, recorded=True
        )
        for i, (key, (n, *_)) in enumerate(series.items())
        if key.kind == "stream"
    ]
    steps = [step for key, (*_, step) in series.items() if step is not None and not is_of_machine(key)]
    return msgspec.structs.replace(
        file.described, name=file.name, id=file.id, pid=file.pid, host=file.host, state=state, started=file.started,
        facts=file.facts, config=file.config, directory=directory, n_clients=0,
        wall_time=file.ended or ended or file.started, last_step=max(steps, default=None),
        events={**_recorded_events(series), **file.described.events}, streams=streams,
    )  # fmt: skip


def _recorded_events(series: Mapping[Key, tuple[int, str, float | None]]) -> dict[str, EventInfo]:
    """Return the events whose observables were recorded."""
    events: dict[str, dict[str, Any]] = {}
    names = series_names.shown(series)
    for key, (n, type, _) in series.items():
        if key.kind not in ("logged", "stream", "snapshot"):
            continue
        query = as_query(key.query) if key.kind == "stream" else None
        name = "log" if key.kind == "logged" else query.event if query else key.tag
        event = events.setdefault(name, {"n_events": 0, "observables": {}})
        event["n_events"] = max(event["n_events"], n)
        if key.kind == "logged":
            event["origin"] = "log"
            event["observables"][names[key]] = ObservableInfo(type=type)
        elif key.kind == "snapshot":
            event["snapshot"] = True
        elif query and len(query.names) == 1 and query.tag == f"{name}.{query.names[0]}":
            event["observables"][query.names[0]] = ObservableInfo(type=type)
    return {name: EventInfo(**event) for name, event in events.items()}


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
        state: Of a live run "running", "quiet" (see `Description`), "paused" or "stopping"; "silent" if it is alive but
            does not answer; "out of reach" if it is on another machine and does not answer. Of a recorded run "ended",
            "failed", "terminated" if it was sent SIGTERM, "died" if it did not close. Of one whose files do not say,
            "writing" while they change, and "recorded" later.
        pid: The number of its process; 0 if that is unknown.
        host: The name of its machine.
        started: When it began, in seconds since the Unix epoch; 0 if unknown.
        directory: Its run directory or file, or empty.
        description: The run's description; `None` if it did not answer, or is recorded.
        changed: When its files were last written to, in seconds since the Unix epoch; 0 for a live run.
        n_bytes: The size of its files.
        rank: The rank whose configuration `config` is; `None` for the lowest.
        ending: Why it ended, as far as it could say: an exception, a signal, or the client that stopped it.
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
    ending: Ending = field(default=Ending(), repr=False)
    _noted_end: float | None = field(default=None, repr=False)
    _at_end: Description = field(default=Description(), repr=False)

    @property
    def sentence(self) -> str:
        """How it is, and why, in one sentence, see `Description.sentence`."""
        if self.description is not None:
            return self.description.sentence
        return sentence_at_end(self._at_end, state=self.state, started=self.started, ended=self._noted_end)

    @property
    def live(self) -> bool:
        """Whether the run is live, and not only recorded."""
        return self.changed == 0.0

    @property
    def ended(self) -> float | None:
        """When it ended, in seconds since the Unix epoch; where its files do not say, when their last record was made.

        `None` while it goes on, where no record can be read, and where finding the last one would take long.
        """
        return None if self.state in ("running", "writing") else self._seen_until

    @property
    def duration_s(self) -> float | None:
        """How long it has run, in seconds: until it ended, or until its last record so far; `None` as in `ended`."""
        until = time.time() if self.live else self._seen_until
        return max(0.0, until - self.started) if self.started and until else None

    @property
    def _seen_until(self) -> float | None:
        """When it ended, or its last record was made."""
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


def sentence_at_end(about: Description, *, state: str, started: float | None, ended: float | None) -> str:
    """Return the sentence about a run that answers no more; `about` is its description at the end."""
    end = ended or started or 0.0
    return msgspec.structs.replace(about, state=state, started=started or 0.0, wall_time=end).sentence


def live_info(description: Description) -> RunInfo:
    """Return what a live run says about itself."""
    return RunInfo(
        name=description.name, id=description.id, state=description.state, pid=description.pid, host=description.host,
        started=description.started, directory=description.directory, description=description,
        ending=description.ending,
    )  # fmt: skip


def recorded_info(entry: RunEntry, *, rank: int | None = None) -> RunInfo:
    """Return what the files of a run say about it."""
    return RunInfo(
        name=entry.name, id=entry.id, state=entry.state, pid=0, host="", started=entry.started,
        directory=str(entry.path), changed=entry.changed, n_bytes=entry.n_bytes, rank=rank, _noted_end=entry.ended,
        ending=entry.file.described.ending, _at_end=entry.file.described,
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


MAX_NAMED: Final = 3  # runs in the sentence: what the first ones lack, the others mostly lack, too


def coverage_of(query: object, problems: Mapping[str, str], n_runs: int) -> str:
    """Return which runs a result of several runs does not stand for in full, and why: everywhere the same sentence.

    Args:
        query: What the runs were asked.
        problems: Why runs do not answer, or not for all of their events, by their names.
        n_runs: How many runs were asked.

    Returns:
        The sentence; empty if the result stands for all runs.
    """
    if not problems:
        return ""
    some = "; ".join(f"{name}: {problem}" for name, problem in itertools.islice(problems.items(), MAX_NAMED))
    more = f" … and {len(problems) - MAX_NAMED:,} more" if len(problems) > MAX_NAMED else ""
    return f"{len(problems):,} of {n_runs:,} runs do not answer {query} in full: {some}{more}"


def warn_of_coverage(query: object, problems: Mapping[str, str], n_runs: int) -> None:
    """Warn of which runs a result does not stand for in full, if there are any."""
    if sentence := coverage_of(query, problems, n_runs):
        warn_user(sentence)


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
