"""The runs, live and recorded: found, opened, connected to, and forgotten.

Theory of operation
    `Runs` is a table of what was found: in the directories that the server was started with, and among the live runs of
    this user. A run is named by its key in this table and by nothing else; a key never becomes part of a path. The key
    is the run's id, or, where the files tell none or two places the same, a digest of its place. A run that is gone
    stays in the table and says so; one that was renamed keeps its key, if it has an id.

    A `Source` is one run. Its files are opened when somebody asks, and closed when more than `MAX_OPEN` are open; it is
    connected to when somebody asks, and left when nobody has needed it for `IDLE_S`. Everything here may block and is
    called in the thread pools, but for what says otherwise.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sightglass.client.connect import connect
from sightglass.client.describe import Description
from sightglass.client.recorded import RecordedRun
from sightglass.client.remote import RemoteRun
from sightglass.core.errors import DamagedError, RunLostError, RunNotFoundError, SightglassError, UnknownNameError
from sightglass.keep import runfile
from sightglass.keep.foreign.events import whose
from sightglass.keep.read.store import Recording, Series
from sightglass.keep.runfile import SUFFIX, RunEntry, runs_in
from sightglass.move import registry

from .overview import Overview

State = Literal["running", "paused", "stopping", "ended", "failed", "died", "unknown"]
Origin = Literal["sightglass", "mindspore", "tensorboard"]

FILE_THREADS: Final = 4
ASK_THREADS: Final = 16
POLL_THREADS: Final = 4
MAX_OPEN: Final = 64
MAX_OVERVIEW_BYTES: Final = 64 * 2**20
MAX_LOOKED_INTO_BYTES: Final = 64 * 2**20
"""How large the files of a run may be that is opened only to tell its last step in the list."""

FRESH_S: Final = 1.0
LOOK_S: Final = 0.25
"""For how long one look at the directories may go on to open runs for their details; the others come next time."""

CONNECT_S: Final = 3.0
IDLE_S: Final = 15.0
ID: Final = re.compile(r"[0-9a-f]{12}")


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as the list of runs tells of it.

    Attributes:
        key: What names it in all other addresses.
        id: Its id; empty where its files tell none.
        name: Its name.
        state: What it does, or how it ended; "unknown" if nobody can tell.
        live: Whether it runs on this machine and can be asked.
        source: Who wrote its files.
        directory: Its run directory; empty if it keeps nothing.
        host: Its machine.
        started: In seconds since the Unix epoch, or `null` if that is not known.
        ended: The same, or `null`.
        last_step: The last step that is known of, or `null`.
        config: What it was configured with.
        problem: What is wrong with it, or empty.
    """

    key: str
    id: str
    name: str
    state: State
    live: bool
    source: Origin
    directory: str
    host: str
    started: float | None
    ended: float | None
    last_step: float | None
    config: dict[str, Any]
    problem: str


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be read to be known of a run: `stamp` tells of which state of its files."""

    stamp: tuple[float, int]
    host: str = ""
    config: dict[str, Any] = {}
    last_step: float | None = None
    problem: str = ""
    looked: bool = False


class Source:
    """One run.

    Attributes:
        key: Its key.
        recorded: What its directory tells, if it has one.
        entry: What the registry of live runs tells, while it lives.
        description: What it last told of itself while it lived.
        silent: Whether it did not answer when it was last asked.
        gone: Whether its directory was there and is not any more.
        holders: How many hold the connection.
    """

    def __init__(self, key: str) -> None:
        self.key = key
        self.recorded: RunEntry | None = None
        self.entry: registry.Entry | None = None
        self.description: Description | None = None
        self.silent = False
        self.gone = False
        self.holders = 0
        self._details: Details | None = None
        self._origin: Origin | None = None
        self._lock = threading.Lock()
        self._link_lock = threading.Lock()
        self._remote: RemoteRun | None = None
        self._used_s = 0.0
        self._opened: RecordedRun | None = None
        self._recording: Recording | None = None
        self._n_borrowed = 0

    @property
    def path(self) -> Path | None:
        """Where its files are."""
        if self.recorded is not None:
            return self.recorded.path
        directory = self.entry.directory if self.entry is not None else ""
        return Path(directory) if directory and runfile.is_run(Path(directory)) else None

    @property
    def live(self) -> bool:
        """Whether it can be asked."""
        return self.entry is not None

    def told(self) -> Run:
        """Return what the list of runs tells of it; reads nothing."""
        entry, recorded, about = self.entry, self.recorded, self.description
        details = self._details or Details(stamp=(0.0, 0))
        place = recorded.path if recorded is not None else None
        directory = str(place) if place is not None else entry.directory if entry is not None else ""
        return Run(
            key=self.key,
            id=entry.id if entry is not None else recorded.id if recorded is not None else "",
            name=entry.name if entry is not None else recorded.name if recorded is not None else self.key,
            state=self._state(),
            live=self.live,
            source=self._origin or "sightglass",
            directory=directory,
            host=entry.host if entry is not None else details.host,
            started=_started(recorded, entry),
            ended=recorded.ended if recorded is not None and not self.live else None,
            last_step=self._last_step(details),
            config=dict(about.config) if about is not None else details.config,
            problem=f"Its directory {directory!r} is gone" if self.gone else details.problem,
        )

    def _state(self) -> State:
        if self.entry is not None:
            told = self.description.state if self.description is not None else "running"
            return "unknown" if self.silent else told if told in ("paused", "stopping") else "running"  # type: ignore[return-value]
        state = self.recorded.state if self.recorded is not None else "unknown"
        return "unknown" if state == "recorded" else state

    def _last_step(self, details: Details) -> float | None:
        """Return the last step of what was kept, or the number of the last event of a run that keeps nothing."""
        if details.last_step is not None or self.description is None:
            return details.last_step
        return max((event.n_events - 1 for event in self.description.events.values()), default=-1.0)

    # Files

    @contextlib.contextmanager
    def borrow(self) -> Iterator[RecordedRun]:
        """Open its files, if they are not open, and keep them open meanwhile.

        Raises:
            RunLostError: Its directory is gone, or it keeps nothing.
            DamagedError: It has no file that can be read.
        """
        with self._lock:
            if self._opened is None:
                path = self.path
                if path is None or not path.is_dir():
                    raise RunLostError(f"Nothing was recorded of run {self.told().name!r}, or its directory is gone")
                self._recording = Recording(path)
                self._opened = RecordedRun(self._recording, follow=True)
            self._n_borrowed += 1
            opened = self._opened
        try:
            yield opened
        finally:
            with self._lock:
                self._n_borrowed -= 1

    @property
    def is_open(self) -> bool:
        """Whether its files are open."""
        return self._opened is not None

    def close_files(self) -> bool:
        """Close its files if nobody has them in use, and tell whether they are closed."""
        with self._lock:
            if self._n_borrowed or self._opened is None:
                return self._opened is None
            self._opened.close()
            self._opened = self._recording = None
            return True

    def recording(self, run: RecordedRun) -> Recording:
        """Return the recording of what was borrowed."""
        recording = self._recording
        if recording is None or run is not self._opened:
            raise RunLostError(f"Run {run.name!r} was closed")
        return recording

    def stamp(self) -> str:
        """Return a text that changes when its files do; empty if it has none."""
        path, told = self.path, hashlib.blake2b(digest_size=12)
        if path is None:
            return ""
        with contextlib.suppress(OSError), os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                with contextlib.suppress(OSError):
                    status = entry.stat()
                    told.update(f"{entry.name}\0{status.st_mtime_ns}\0{status.st_size}\0".encode("utf-8", "replace"))
        return told.hexdigest()

    def look(self, deadline_s: float) -> None:
        """Read the details of what was recorded, if they changed; what takes longer only until a deadline."""
        recorded = self.recorded
        if recorded is None or self.gone:
            return
        stamp, known = (recorded.changed, recorded.n_bytes), self._details
        if known is not None and known.stamp == stamp and known.looked:
            return
        if known is None or known.stamp != stamp:
            told = runfile.together(runfile.read_all(recorded.path))
            last = known.last_step if known is not None else None
            known = Details(stamp=stamp, host=told.host, config=told.config, last_step=last,
                            problem=known.problem if known is not None else "")  # fmt: skip
            self._details = known
        if self._origin is None:
            self._origin = _origin(recorded.path)
        if time.monotonic() > deadline_s or (recorded.n_bytes > MAX_LOOKED_INTO_BYTES and not self.is_open):
            return
        last_step, problem = self._look_inside()
        self._details = msgspec.structs.replace(known, last_step=last_step, problem=problem, looked=True)

    def _look_inside(self) -> tuple[float | None, str]:
        try:
            with self.borrow() as run:
                recording = self.recording(run)
                with recording.lock:
                    recording.refresh()
                    every = recording.keys()
                    steps = [places[1] for key in every if (places := ends(recording.series(key)))]
                    refused = [f"{path.name}: {why}" for path, why in recording.refused.items()]
                    damages = [f"{damage}" for damage in recording.damages[:1]]
                return max(steps, default=None), "; ".join([*refused[:3], *damages])
        except (SightglassError, OSError) as error:
            return None, str(error)

    # The live run

    def remote(self) -> RemoteRun:
        """Return the connection, connecting if there is none, or it was lost.

        Raises:
            RunNotFoundError: It does not live any more.
            RunLostError: It does not answer.
            RefusedError: It does not want us.
        """
        with self._link_lock:
            self._used_s = time.monotonic()
            if self._remote is not None and not self._remote.ended:
                return self._remote
            if self.entry is None:
                raise RunLostError(f"Run {self.told().name!r} has ended: it can be looked at, not asked")
            if self._remote is not None:
                self._remote.close()
                self._remote = None
            try:
                self._remote = connect(self.entry.id, timeout_s=CONNECT_S)
            except RunNotFoundError:
                raise RunLostError(f"Run {self.entry.name!r} has ended: it can be looked at, not asked") from None
            return self._remote

    def describe(self) -> Description:
        """Ask the live run what it is. Errors as in `remote`."""
        try:
            self.description = self.remote().describe()
            self.silent = False
        except SightglassError:
            self.silent = True
            raise
        return self.description

    def leave(self, *, now: bool = False) -> None:
        """Leave the live run, if nobody has needed it for a while."""
        if not self._link_lock.acquire(blocking=now):
            return  # somebody is connecting
        try:
            idle = self.holders == 0 and time.monotonic() - self._used_s > IDLE_S
            if self._remote is not None and (now or idle or self._remote.ended):
                self._remote.close()
                self._remote = None
        finally:
            self._link_lock.release()


class Runs:
    """The table of all runs.

    Attributes:
        directories: Where recorded runs are looked for.
        files: The pool for what reads files.
        asks: The pool for what asks live runs.
        polls: The pool for asking them how they are, which those who do not answer keep waiting.
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = tuple(directories)
        self.files = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="sightglass-files")
        self.asks = ThreadPoolExecutor(ASK_THREADS, thread_name_prefix="sightglass-asks")
        self.polls = ThreadPoolExecutor(POLL_THREADS, thread_name_prefix="sightglass-polls")
        self._sources: dict[str, Source] = {}
        self._keys: dict[str, str] = {}
        self._refreshed_s = -FRESH_S
        self._lock = threading.Lock()
        self._overviews: OrderedDict[tuple[str, Any], Overview] = OrderedDict()
        self._overview_lock = threading.Lock()

    def told(self) -> list[Run]:
        """Return all runs, the newest first; looks for new ones if that was not done just now."""
        self.refresh()
        told = [source.told() for source in list(self._sources.values())]
        return sorted(told, key=lambda run: (-(run.started or 0.0), run.key))

    def live(self) -> list[Source]:
        """Return the live runs that were found."""
        return [source for source in list(self._sources.values()) if source.live]

    def find(self, key: str) -> Source:
        """Return a run.

        Raises:
            UnknownNameError: No run has this key.
        """
        if key not in self._sources:
            self.refresh()
        if key not in self._sources:
            raise UnknownNameError("run", key, list(self._sources))
        source = self._sources[key]
        if source.live and not registry.alive(source.entry.id if source.entry else ""):
            self.refresh(at_once=True)
        return source

    def refresh(self, *, at_once: bool = False) -> None:
        """Look for runs that are new or gone, unless that was done just now."""
        with self._lock:
            if time.monotonic() - self._refreshed_s < FRESH_S and not at_once:
                return
            found = [entry for folder in self.directories for entry in runs_in(folder, alive=registry.alive)]
            living = {entry.id: entry for entry in registry.entries()}
            for entry in living.values():
                directory = Path(entry.directory) if entry.directory else None
                if directory is not None and not any(one.id == entry.id for one in found):
                    found += [one for one in runs_in(directory, alive=registry.alive) if one.id == entry.id][:1]
            self._take(found, living)
            deadline_s = time.monotonic() + LOOK_S
            for source in list(self._sources.values()):
                source.look(deadline_s)
            self._close_files()
            self._refreshed_s = time.monotonic()

    def _take(self, found: Sequence[RunEntry], living: dict[str, registry.Entry]) -> None:
        """Put what was found into the table."""
        places = {str(entry.path.resolve()): entry for entry in found}
        present: set[str] = set()
        for place, entry in places.items():
            key = self._key(place, entry, places)
            present.add(key)
            source = self._sources.setdefault(key, Source(key))
            if source.recorded is not None and source.recorded.path != entry.path:
                source.close_files()
            if source.gone:
                source.close_files()
            source.recorded, source.gone = entry, False
        for id in living:
            if id not in self._sources:
                self._sources[id] = Source(id)
        for key, source in list(self._sources.items()):
            source.entry = living.get(key)
            if key not in present and source.recorded is not None:
                source.gone = True
            if key not in present and source.recorded is None and source.entry is None:
                source.leave(now=True)
                del self._sources[key]  # it lived, kept nothing, and is over

    def _key(self, place: str, entry: RunEntry, places: dict[str, RunEntry]) -> str:
        """Return the key of a run at a place: its id, unless another place that is there has it."""
        holders = {key: other for other, key in self._keys.items() if other in places and other != place}
        known = self._keys.get(place)
        if known is None or known in holders:
            digest = "p" + hashlib.blake2b(place.encode("utf-8", "replace"), digest_size=8).hexdigest()
            known = entry.id if ID.fullmatch(entry.id) and entry.id not in holders else digest
            self._keys[place] = known
        return known

    def _close_files(self) -> None:
        opened = [source for source in self._sources.values() if source.is_open]
        for source in opened[: max(0, len(opened) - MAX_OPEN)]:
            source.close_files()

    def overview(self, source: Source, recording: Recording, series: Series) -> Overview:
        """Return the overview of a series of numbers, up to date; called under the recording's lock."""
        generation = hash(tuple(sorted({(part.started, str(part.path.parent)) for part in recording.parts})))
        place = (source.key, series.key)
        with self._overview_lock:
            overview = self._overviews.pop(place, None)
        if overview is None or overview.generation != generation:
            overview = Overview(generation)
        overview.extend(series)
        with self._overview_lock:
            self._overviews[place] = overview
            total = sum(one.n_bytes for one in self._overviews.values()) if len(self._overviews) % 16 == 1 else 0
            while total > MAX_OVERVIEW_BYTES and len(self._overviews) > 1:
                total -= self._overviews.popitem(last=False)[1].n_bytes
        return overview

    def sweep(self) -> None:
        """Leave the live runs that nobody needs."""
        for source in list(self._sources.values()):
            source.leave()

    def close(self) -> None:
        """Leave all runs, and close all files."""
        for pool in (self.asks, self.files, self.polls):
            pool.shutdown(wait=False, cancel_futures=True)
        for source in list(self._sources.values()):
            source.leave(now=True)
            source.close_files()


def _started(recorded: RunEntry | None, entry: registry.Entry | None) -> float | None:
    for told in (recorded, entry):
        if told is not None and told.started:
            return told.started
    return None


def ends(series: Series) -> tuple[float, float] | None:
    """Return the first and the last step of a series, as its index tells; `None` if it is empty."""
    view = series._view  # the rows that are seen: reading their blocks would take as long as the files are
    if not len(view):
        return None
    first = view.column(view.pieces[:1], "first_step")[0]
    return float(first), float(view.column(view.pieces, "max_step").max())


def _origin(path: Path) -> Origin:
    """Tell who wrote the files of a run."""
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(path))
        if any(name.endswith(SUFFIX) for name in names) or runfile.NAME in names:
            return "sightglass"
        for name in names:
            if runfile.is_record_file(name):
                with contextlib.suppress(OSError, DamagedError):
                    dialect = whose(path / name)
                    if dialect is not None:
                        return dialect
    return "sightglass"
