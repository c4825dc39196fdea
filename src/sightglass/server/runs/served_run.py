"""One run, live or recorded, or both.

Its files are opened on demand, and closed when too many files are open. Methods that may block run in the thread pools
of `Runs`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from sightglass.client.describe import sentence_at_end
from sightglass.client.discover import connect, connect_to
from sightglass.client.live_runs import Reachable
from sightglass.client.run import RemoteRun
from sightglass.core.description import AlertsInfo, Description, Ending
from sightglass.core.errors import RunLostError, RunNotFoundError, SightglassError, StorageError
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message
from sightglass.protocol import discovery
from sightglass.server.http_errors import without_folders
from sightglass.storage import object_file, run_listing
from sightglass.storage.file_names import directories_of, is_there
from sightglass.storage.object_file import Annotations, Edit
from sightglass.storage.run_listing import RunEntry, standing

from .details import Details, Origin, read_inside, read_outside
from .open_files import OpenFiles, links_out
from .projects import project_of

CONNECT_S: Final = 3.0  # a live run on this machine answers within milliseconds
MAX_DETAILS_BYTES: Final = 2**30
"""The largest run that is opened only to learn its last step."""

SLOW_OPEN_S: Final = 0.05
"""Files that took longer to open stay open afterwards."""

DETAILS_REST: Final = 20
"""After reading the details of a run, this many times as long passes until the next time."""

COMMIT_DIGITS: Final = 10
CHANGED: Final = ", with changes"

BUSY_S: Final = 0.1  # until another reader of its files may have finished


class ServedRun:
    """One run.

    Attributes:
        key: Its key.
        recorded: The entry of its directory, if it has one.
        recorded_s: When that was read, on the monotonic clock.
        entry: The entry in the registry of live runs, or on the hub, while it lives.
        on_hub: The way to it over the hub; `None` for a run of this machine.
        description: Its last description while it lived.
        n_described: How many descriptions differed from the one before.
        silent: Whether it did not answer the last request.
        gone_s: When its directory was found to be gone, on the monotonic clock.
        connection: The connection to it while it lives.
    """

    def __init__(self, key: str, *, roots: Sequence[Path] = (), on_open: Callable[[], None] = lambda: None) -> None:
        """Start with only a key.

        Args:
            key: The key.
            roots: The folders that links in its directory may lead to.
            on_open: Called after files were opened.
        """
        self.key = key
        self._name = key
        self._roots = tuple(roots)
        self._on_open = on_open
        self.recorded: RunEntry | None = None
        self.recorded_s = 0.0
        self.entry: discovery.LiveRun | None = None
        self.on_hub: Reachable | None = None
        self.description: Description | None = None
        self.n_described = 0
        self.silent = False
        self.gone_s: float | None = None
        self.connection = RunConnection(self._connect, is_live=lambda: self.live)
        self._details = Details()
        self._next_details_s = 0.0
        self._last_event: float | None = None
        self._lock = threading.Lock()
        self._files: OpenFiles | None = None

    @property
    def path(self) -> Path | None:
        """The path of its files, if it has any."""
        if self.recorded is not None:
            return self.recorded.path
        directory = self.entry.directory if self.entry is not None else ""
        return Path(directory) if directory and run_listing.is_run(Path(directory)) else None

    @property
    def live(self) -> bool:
        """Whether it is running."""
        return self.entry is not None

    def summary(self) -> RunSummary:
        """Return its entry in the list of runs, without reading a file."""
        entry, on_hub, recorded, details = self.entry, self.on_hub, self.recorded, self._details
        directory = str(recorded.path) if recorded is not None else entry.directory if entry is not None else ""
        own_name = entry.name if entry is not None else recorded.name if recorded is not None else self._name
        self._name = own_name  # a run without files is asked for once more after its end
        annotated = recorded.annotations if recorded is not None else Annotations()
        starts = (recorded.started if recorded is not None else 0.0, entry.started if entry else 0.0, details.started)
        return RunSummary(
            key=self.key,
            id=entry.id if entry is not None else recorded.id if recorded is not None else "",
            name=annotated.name or own_name,
            own_name=own_name,
            title=annotated.name or own_name,
            state=self._state(),
            live=self.live,
            hub_role="" if on_hub is None else "controller" if on_hub.may_command else "viewer",
            source=details.origin or "sightglass",
            project=project_of(directory, self._roots) or ("" if on_hub is None else on_hub.project),
            directory=directory,
            host=entry.host if entry is not None else details.host,
            started=next((start for start in starts if start), None),
            ended=self._ended(details),
            changed=recorded.changed or None if recorded is not None else None,
            version=recorded.version if recorded is not None else "",
            described=self.n_described,
            last_step=self._last_step(details),
            config=self.config(),
            metrics=details.metrics,
            why=str(self._ending()),
            sentence=self._sentence(details),
            commit=self._commit(),
            alerts=self._alerts(),
            problem=without_folders(
                self._problem(directory)
                or (recorded.problem if recorded is not None else "")
                or details.problem(over=self._over)
            ),
            annotations=annotated,
        )

    def config(self) -> dict[str, Any]:
        """Return its configuration, without reading a file."""
        about = self.description
        return dict(about.config) if about is not None and self.live else self._details.config

    def _ending(self) -> Ending:
        if self.live:
            return Ending() if self.description is None else self.description.ending
        return Ending() if self.recorded is None else self.recorded.file.described.ending

    def _alerts(self) -> AlertsInfo:
        if self.live:
            return AlertsInfo() if self.description is None else self.description.alerts
        return AlertsInfo() if self.recorded is None else self.recorded.file.described.alerts

    def _sentence(self, details: Details) -> str:
        if self.live and self.description is not None:
            about = replace(self.description, state=self._state())
            return (about if about.state == "quiet" else about.timeless()).sentence
        about = replace(
            Description() if self.recorded is None else self.recorded.file.described, last_step=self._last_step(details)
        )
        started = details.started if self.recorded is None else self.recorded.started or details.started
        return sentence_at_end(about, state=self._state(), started=started, ended=self._ended(details))

    def _commit(self) -> str:
        about = self.description if self.live else None if self.recorded is None else self.recorded.file
        git = {} if about is None else about.facts.get("git", {})
        if not (isinstance(git, dict) and git.get("commit")):
            return ""
        return f"{str(git['commit'])[:COMMIT_DIGITS]}{CHANGED if git.get('dirty') else ''}"

    def _state(self) -> State:
        if self.entry is not None:
            live = self.description.state if self.description is not None else "running"
            known = live if live in ("quiet", "paused", "stopping") else "running"
            return "silent" if self.silent else known  # type: ignore[return-value]
        recorded = self.recorded
        if recorded is None:
            return "silent"
        if recorded.state not in ("writing", "recorded"):
            return recorded.state
        return self._details.state or standing(recorded.file, recorded.changed)

    @property
    def _over(self) -> bool:
        """Whether its files are not written any more."""
        return not self.live and self._state() not in ("running", "writing")

    def _ended(self, details: Details) -> float | None:
        """Return when it ended, or the last record of a program that does not say; `None` while it goes on."""
        if self.recorded is None or not self._over:
            return None
        return self.recorded.ended or details.ended

    def _last_step(self, details: Details) -> float | None:
        """Return the last recorded step, or the number of the last event of a run that does not record."""
        return self._last_event if details.last_step is None else details.last_step

    def _problem(self, directory: str) -> str:
        if self.gone_s is None:
            return ""
        what = "is another run's now, or cannot be read" if os.path.lexists(directory) else "is gone"
        return f"The directory {directory!r} {what}"

    # Files

    @contextlib.contextmanager
    def borrow(self) -> Iterator[OpenFiles]:
        """Open its files if they are not open, and keep them open while the context lasts.

        Raises:
            RunLostError: Its directory is gone, or the run does not record.
            DamagedError: None of its files can be read.
            StorageError: A link in its directory leads out of the folders.
        """
        with self._lock:
            path = self.path
            if problem := self._links_out(path):
                raise StorageError(problem)
            there = path is not None and self.gone_s is None
            if self._files is not None and path is not None and there and not self._files.are_at(path):
                self._retire(self._files)
            fresh = self._files is None
            if self._files is None:
                if path is None or not there or not is_there(path):
                    raise RunLostError(f"Run {self.summary().name!r} has no recording, or its directory is gone")
                self._files = OpenFiles(path)
            files = self._files
            files.n_borrowed += 1
            files.used_s = time.monotonic()
        try:
            if fresh:
                self._on_open()
            yield files
        finally:
            if files.found_damage():
                self._details = msgspec.structs.replace(self._details, looked=False)
                self._next_details_s = 0.0
            with self._lock:
                files.n_borrowed -= 1
                if files.retired and not files.n_borrowed:
                    files.close()

    def _links_out(self, path: Path | None) -> str:
        """Return what is wrong with the links in its directory, or an empty text."""
        if path is None:
            return ""
        own = [Path(os.path.realpath(self.entry.directory))] if self.entry and self.entry.directory else []
        return links_out(path, [*self._roots, *own])

    def annotate(self, edit: Edit) -> None:
        """Change its annotations.

        Raises:
            RunLostError: Its directory is gone, or the run does not record.
            StorageError: They cannot be written, or a link in its directory leads out of the folders.
            ValueError: There would be too many labels.
        """
        path = self.path
        if path is None or self.gone_s is not None or not is_there(path):
            raise RunLostError(f"Run {self.summary().name!r} has no recording, or its directory is gone")
        if problem := self._links_out(path):
            raise StorageError(problem)
        annotated, now_s = object_file.edit_annotations(path, edit), time.monotonic()
        if (recorded := self.recorded) is not None and recorded.path == path:
            self.recorded, self.recorded_s = msgspec.structs.replace(recorded, annotations=annotated), now_s

    def note_gone(self, now_s: float) -> None:
        """Note that its directory is gone. Open files stay open, unless another directory took its place."""
        self.gone_s = now_s
        if self.path is not None and self.path.exists() and self._lock.acquire(blocking=False):
            try:
                if self._files is not None:
                    self._retire(self._files)
            finally:
                self._lock.release()

    def _retire(self, files: OpenFiles) -> None:
        files.retired, self._files = True, None
        if not files.n_borrowed:
            files.close()

    def used_s(self) -> float | None:
        """Return when its files were last used, on the monotonic clock; `None` if they are not open."""
        files = self._files
        return files.used_s if files is not None else None

    def close_files(self, *, unused_since_s: float = math.inf) -> None:
        """Close its files, unless they are in use, or were after a time on the monotonic clock."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            if self._files is not None and not self._files.n_borrowed and self._files.used_s <= unused_since_s:
                self._retire(self._files)
        finally:
            self._lock.release()

    def stamp(self) -> str:
        """Return a text that changes when its files do; empty if it has no files."""
        path, digest = self.path, hashlib.blake2b(digest_size=12)
        if path is None:
            return ""
        entries: list[os.DirEntry[str]] = []
        for folder in directories_of(path):
            with contextlib.suppress(OSError), os.scandir(folder) as scan:
                digest.update(str(folder.stat().st_ino).encode())
                entries += sorted(scan, key=lambda entry: entry.name)
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                digest.update(f"{entry.name}\0{status.st_mtime_ns}\0{status.st_size}\0".encode("utf-8", "replace"))
        return digest.hexdigest()

    def read_details(self, deadline_s: float) -> float:
        """Read the details of its files, if they changed. Record files are opened only before a deadline.

        Returns:
            How long to wait before they can be read, in seconds, also if the files changed meanwhile; 0 if they have
            been read, or are not read at all.
        """
        recorded, details = self.recorded, self._details
        if recorded is None or self.gone_s is not None:
            return 0.0
        if details.version != recorded.version:
            problem = "" if recorded.plain else self._links_out(recorded.path)
            if problem:
                details = Details(version=recorded.version, damages=problem, looked=True)
            else:
                details = read_outside(recorded, details)
            self._details = details
        began_s = time.monotonic()
        was_open = self._files is not None
        if details.looked or began_s > deadline_s or (recorded.n_bytes > MAX_DETAILS_BYTES and not was_open):
            return 0.0
        if began_s < self._next_details_s or self._lock.locked():
            return max(BUSY_S, self._next_details_s - began_s)
        try:
            with self.borrow() as files:
                self._details = read_inside(details, files.recording)
        except (SightglassError, OSError) as error:
            self._details = msgspec.structs.replace(details, damages=str(error), looked=True)
        took_s = time.monotonic() - began_s
        if self._over and not was_open and took_s < SLOW_OPEN_S:
            self.close_files()
        self._next_details_s = began_s + DETAILS_REST * took_s
        now = self.recorded
        return 0.0 if now is None or now.version == recorded.version else max(BUSY_S, DETAILS_REST * took_s)

    def note_problem(self, error: Exception) -> None:
        """Note that its details cannot be read, until its files change."""
        self._details = msgspec.structs.replace(self._details, damages=f"Cannot be read: {message(error)}", looked=True)

    def describe(self) -> Description:
        """Return the description of the live run. Errors as in `RunConnection.remote`."""
        try:
            described = self.connection.remote().describe()
        except SightglassError:
            self.silent = True
            raise
        known, self.description, self.silent = self.description, described, False
        n_events = max((event.n_events for event in described.events.values()), default=0)
        self._last_event = float(n_events - 1) if n_events else None
        if known is None or described.timeless() != known.timeless():
            self.n_described += 1
        return described

    def _connect(self, pace_s: float) -> RemoteRun:
        """Connect to the live run. Errors as in `RunConnection.remote`."""
        ended = RunLostError(f"Run {self.summary().name!r} has ended: read its recording instead")
        if (entry := self.entry) is None:
            raise ended
        try:
            if (on_hub := self.on_hub) is not None:
                return connect_to(on_hub, timeout_s=CONNECT_S, pace_s=pace_s)
            return connect(entry.id, timeout_s=CONNECT_S, pace_s=pace_s)
        except RunNotFoundError:
            raise ended from None


# The connection of the page to a live run: made on demand, and closed after it was not used for `IDLE_S`.

PACE_S: Final = 0.01  # less than a frame of a screen; more messages would be drawn together
IDLE_S: Final = 15.0  # longer than the page takes between two requests


class RunConnection:
    """The connection to a live run.

    Attributes:
        holders: The number of streams that use it.
        pace_s: How long the live run may hold records back, to send them together.
    """

    def __init__(self, connect: Callable[[float], RemoteRun], *, is_live: Callable[[], bool]) -> None:
        """Connect only when it is needed.

        Args:
            connect: Connects with a pace in seconds.
            is_live: Returns whether the run lives.
        """
        self.holders = 0
        self.pace_s = PACE_S
        self._connect, self._is_live = connect, is_live
        self._lock = threading.Lock()
        self._holding = threading.Lock()
        self._remote: RemoteRun | None = None
        self._used_s = 0.0

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Keep the connection, once it is made, while the context lasts."""
        with self._holding:
            self.holders += 1
        try:
            yield
        finally:
            with self._holding:
                self.holders -= 1
                over = not self._is_live() and not self.holders
            if over:
                self.close(now=True)

    def remote(self) -> RemoteRun:
        """Return the connected run; connect first if necessary.

        Raises:
            RunLostError: The run has ended, or does not answer.
            RefusedError: The run refused the connection.
        """
        with self._lock:
            self._used_s = time.monotonic()
            if self._remote is not None and not self._remote.ended:
                return self._remote
            if self._remote is not None:
                self._remote.close()
                self._remote = None
            self._remote = self._connect(self.pace_s)
            self.set_pace(self.pace_s)  # it may have changed meanwhile
            return self._remote

    def set_pace(self, pace_s: float) -> None:
        """Let the live run hold records back for this long, without waiting for it."""
        self.pace_s, remote = pace_s, self._remote
        if remote is not None and remote.pace_s != pace_s:
            remote.pace_s = pace_s

    def close(self, *, now: bool = False) -> None:
        """Close the connection if it was not used for `IDLE_S`; with `now`, in any case."""
        if not self._lock.acquire(blocking=now):
            return  # another thread is connecting
        try:
            idle = self.holders == 0 and time.monotonic() - self._used_s > IDLE_S
            if self._remote is not None and (now or idle or self._remote.ended):
                self._remote.close()
                self._remote = None
        finally:
            self._lock.release()


# A run in the list of runs, as the page gets it.

State = Literal[
    "running", "quiet", "paused", "stopping", "silent", "writing", "ended", "failed", "terminated", "died", "recorded"
]  # fmt: skip


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list of runs.

    Attributes:
        key: Its key in URLs and messages.
        id: Its id; empty if its files lack one.
        name: What it is called, which other runs may share: what people named it, or its own name.
        own_name: The name that its program gave it, by which a live run is found.
        title: Its name, with what distinguishes it from other runs of that name.
        state: Its state, or how it ended; "silent" if it does not answer; "writing" if only its files show that it
            grows, and "recorded" once they have stopped.
        live: Whether it is running.
        hub_role: The role of this server on the hub over which it reaches the run: a "viewer" cannot send commands.
            Empty for the runs of this machine.
        source: The program that wrote its files.
        project: Its folder of those that are served, or its project on the hub; else empty.
        directory: Its run directory; empty if it does not record.
        host: Its host.
        started: In seconds since the Unix epoch, or `null` if it is unknown.
        ended: Likewise. Other programs rarely say when they end: then when the last record was made.
        changed: When its files last changed, or `null`.
        version: A text that changes when its files do; empty if it has none.
        described: A number that changes when the description of the live run does.
        last_step: The last known step, or `null`.
        config: Its configuration.
        metrics: The tags that its files call its metrics.
        why: Why it ended, or who asked it to stop: an exception with its place, a signal, a client; empty if not known.
        sentence: How it is, and why, such as "failed at batch 199 after 3 min: OSError: disk full"; of a live run
            without what changes with every event.
        commit: The first digits of its git commit, and ", with changes" if tracked files differed; empty if not known.
        alerts: Its alerts, as far as it could say: how many, and the last one.
        problem: Its faults, or empty.
        annotations: What people wrote down about it.
    """

    key: str
    id: str
    name: str
    own_name: str
    title: str
    state: State
    live: bool
    hub_role: Literal["", "viewer", "controller"]
    source: Origin
    project: str
    directory: str
    host: str
    started: float | None
    ended: float | None
    changed: float | None
    version: str
    described: int
    last_step: float | None
    config: dict[str, Any]
    metrics: list[str]
    why: str
    sentence: str
    commit: str
    alerts: AlertsInfo
    problem: str
    annotations: Annotations
