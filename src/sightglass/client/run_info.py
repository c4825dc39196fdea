"""What a run says about itself, live or recorded: to list it, to choose it and to group it by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import UnknownNameError
from sightglass.storage import annotation_file, run_file
from sightglass.storage.annotation_file import Annotations
from sightglass.storage.foreign.settings import read_settings
from sightglass.storage.run_listing import RunEntry

from .describe import Description


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

    @property
    def live(self) -> bool:
        """Whether the run is live, and not only recorded."""
        return self.changed == 0.0

    @property
    def annotations(self) -> Annotations:
        """What people wrote down about it: another name, labels, notes."""
        return annotation_file.read(self.directory) if self.directory else Annotations()

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
        directory=str(entry.path), changed=entry.changed, n_bytes=entry.n_bytes, rank=rank,
    )  # fmt: skip


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


def holds(condition: Condition, info: RunInfo) -> bool:
    """Return whether a condition holds for a run; not if the run's configuration lacks an entry that it reads."""
    try:
        return bool(condition(info))
    except LACKS_ENTRY:
        return False
