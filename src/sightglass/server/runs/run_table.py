"""The table of all runs, live and recorded.

Theory of operation
    The table searches the directories that the server was started with, and this user's live runs, at most every
    `FRESH_S`, and so rarely that searching takes only a fraction of the time.

    Requests name a run by its key in this table and by nothing else; a key never becomes part of a path. The key is the
    run's id, or a digest of its path if the files lack an id or two paths have the same one. A renamed run keeps its
    key if it has an id; a run that takes another's place gets a key of its own. A run whose directory is gone stays in
    the table for `GONE_S`, and says so.

    The runs of a hub are live runs, too. Their directories are of other machines: nothing is read there, even if there
    is a directory of the same name here. One that is found here as well, live or recorded, is the same run by its id.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from sightglass.client.live_runs import Reachable
from sightglass.core.description import AlertsInfo
from sightglass.core.errors import TransportError, UnknownNameError
from sightglass.core.process.threads import pool
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message
from sightglass.protocol import discovery
from sightglass.server.http_errors import log_error, without_folders
from sightglass.storage import run_file
from sightglass.storage.object_file import Annotations
from sightglass.storage.run_listing import RunEntry, runs_in

if TYPE_CHECKING:
    from sightglass.client.hub_runs import RunsOnHub

from .run_columns import RunColumns
from .scalar_lines import Overviews
from .served_run import RunSummary, ServedRun

FILE_THREADS: Final = 4  # reading is mostly Python and NumPy; more threads would wait for the interpreter
LOOK_THREADS: Final = 1  # of its own: reading a large file must not hold up the news of others
LIVE_THREADS: Final = 16  # each waits for a run; one that hangs takes one of them
DESCRIBE_THREADS: Final = 4  # of their own: runs that do not answer must not hold up requests
MAX_OPEN: Final = 64  # runs; a run has a few files, a process usually 1,024 descriptors
UNUSED_S: Final = 300.0  # a reader who comes back later waits some milliseconds; the last blocks read can be large
MAX_DESCRIBED: Final = 16  # of the runs that ended: a description of a wide run takes megabytes
FRESH_S: Final = 1.0  # a new run appears within a second
FRESH_REST: Final = 3
"""After a search, this many times as long passes until the next one."""

DETAILS_S: Final = 0.25
"""The time that one search may spend on opening runs for their details; the others follow next time."""

LARGE_BYTES: Final = 64 * 2**20  # such runs are read after all smaller ones
GONE_S: Final = 3_600.0  # for a user to notice that a directory is gone
ID: Final = re.compile(r"[0-9a-f]{12}")
ID_SHOWN: Final = 4
MAX_ELSEWHERE: Final = 100  # of those that ended: each is looked at in each search


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The run at a path: its id and its key."""

    id: str
    key: str


class Runs:
    """The table of all runs.

    Attributes:
        directories: The directories that are searched for recorded runs.
        file_pool: Threads that read files.
        look_pool: The thread that looks for growth.
        live_pool: Threads that query live runs.
        describe_pool: Threads that describe live runs, and wait for those that do not answer.
        overviews: The overviews of series of numbers.
        columns: What series of numbers come to, for the table of runs.
    """

    def __init__(
        self, directories: Sequence[Path], *, hub: RunsOnHub | None = None, follow_links: bool = False
    ) -> None:
        self._hub = hub
        self._follow_links = follow_links
        self._notes: dict[Path, str] = {}
        self._on_hub: dict[str, Reachable] = {}
        self.directories = tuple(Path(os.path.realpath(path)) for path in directories)
        self.file_pool = pool("files", FILE_THREADS)
        self.look_pool = pool("look", LOOK_THREADS)
        self.live_pool = pool("live", LIVE_THREADS)
        self.describe_pool = pool("describe", DESCRIBE_THREADS)
        self.overviews = Overviews()
        self.columns = RunColumns()
        self._served: dict[str, ServedRun] = {}
        self._named: dict[str, _Named] = {}
        self._elsewhere: dict[str, Path] = {}  # by id, where runs write that were seen live, in other folders
        self._next_s = 0.0
        self._n_opened = itertools.count(1)
        self._lock = threading.Lock()

    @property
    def problem(self) -> str:
        """Why the list may be out of date or not complete; empty if it is neither."""
        problem = "" if self._hub is None else self._hub.problem
        hub = problem and f"The runs of the hub are those of before: {problem}"
        return ". ".join(filter(None, [hub, *self._notes.values()]))

    def summaries(self) -> list[RunSummary]:
        """Search for new runs unless that was done just now, and return all runs, the newest first."""
        self.refresh()
        found = titled([summary_of(source) for source in list(self._served.values())])
        return sorted(found, key=lambda run: (-(run.started or run.changed or 0.0), run.key))

    def all(self) -> list[ServedRun]:
        """Return all runs, in no order."""
        return list(self._served.values())

    def live(self) -> list[ServedRun]:
        """Return the live runs."""
        return [source for source in list(self._served.values()) if source.live]

    def known(self, key: str) -> ServedRun | None:
        """Return a run, or `None` if the last search did not find it."""
        return self._served.get(key)

    def find(self, key: str) -> ServedRun:
        """Return a run.

        Raises:
            UnknownNameError: No run has this key.
        """
        if key not in self._served:
            self.refresh()
        source = self._served.get(key)
        if source is None:
            raise UnknownNameError("run", key, list(self._served))
        entry = source.entry
        if entry is not None and source.on_hub is None and not discovery.alive(entry.id):
            self.refresh(at_once=True)
        return source

    def refresh(self, *, at_once: bool = False, details_s: float | None = None) -> None:
        """Search for runs that are new or gone, unless that was done just now.

        Args:
            at_once: Whether to search even then.
            details_s: How long to read the details of runs, by default `DETAILS_S`.
        """
        with self._lock:
            began_s = time.monotonic()
            if began_s < self._next_s and not at_once:
                return
            living = self._living()
            self._take(self._found(living), living, began_s)
            # The first list does not wait for the details of a large folder: it has them some seconds later.
            self._read_details(
                (time.monotonic() if self._next_s else began_s) + (DETAILS_S if details_s is None else details_s)
            )
            self._close_files()
            now_s = time.monotonic()
            self._next_s = now_s + FRESH_S * max(1.0, FRESH_REST * (now_s - began_s))

    def _living(self) -> dict[str, discovery.LiveRun]:
        """Return the live runs by their id, those of the hub without their directories."""
        here = self._living_here()
        found = self._hub.reachable() if self._hub is not None else ()
        self._on_hub = {one.route.id: one for one in found if one.route.id not in here and ID.fullmatch(one.route.id)}
        there = {id: one.entry for id, one in self._on_hub.items() if one.entry is not None}
        return {id: msgspec.structs.replace(entry, directory="") for id, entry in there.items()} | here

    def _living_here(self) -> dict[str, discovery.LiveRun]:
        """Return the live runs of this machine; if they cannot be read now, those that are known."""
        try:
            return {entry.id: entry for entry in discovery.entries()}
        except TransportError as error:
            log_error(error)
            known = [source.entry for source in self._served.values() if source.on_hub is None]
            return {entry.id: entry for entry in known if entry is not None}

    def _found(self, living: dict[str, discovery.LiveRun]) -> dict[str, RunEntry]:
        """Return the runs in the directories, and those elsewhere that live or were seen live here, by path."""
        found = {
            str(entry.path): entry
            for folder in self.directories
            for entry in self._search(folder)
        }  # fmt: skip
        ids = {entry.id for entry in found.values()}
        there = {run.id: run.directory for run in living.values() if run.directory and run.id not in ids}
        ended = [(id, directory) for id, directory in self._elsewhere.items() if id not in there]
        self._elsewhere = dict(ended[-MAX_ELSEWHERE:]) | {
            id: Path(os.path.realpath(place)) for id, place in there.items()
        }
        for id, directory in self._elsewhere.items():
            if id not in ids:
                entries = runs_in(directory, alive=discovery.alive).runs
                found |= {str(entry.path): entry for entry in entries if entry.id == id}
        return found

    def _search(self, folder: Path) -> list[RunEntry]:
        entries, self._notes[folder] = runs_in(folder, alive=discovery.alive, follow_links=self._follow_links)
        return entries

    def _take(self, found: dict[str, RunEntry], living: dict[str, discovery.LiveRun], began_s: float) -> None:
        """Put the runs that were found by a search into the table."""
        self._named = self._names(found)
        present = {named.key: found[place] for place, named in self._named.items()}
        lives = self._owners(living)
        for key in [*present, *lives]:
            if key not in self._served:
                self._served[key] = ServedRun(key, roots=self.directories, on_open=self._opened)
        now_s = time.monotonic()
        for key, source in list(self._served.items()):
            entry = lives.get(key)
            source.on_hub = self._on_hub.get(entry.id) if entry is not None else None
            source.entry = entry
            if key in present:
                source.gone_s = None
                if source.recorded is None or source.recorded_s <= began_s:
                    source.recorded, source.recorded_s = present[key], began_s
            elif source.recorded is not None and source.gone_s is None:
                source.note_gone(now_s)
            unrecorded = source.recorded is None
            long_gone = source.gone_s is not None and now_s - source.gone_s > GONE_S
            if source.entry is None and (unrecorded or long_gone):
                self._drop(source)
        ended = [source for source in self._served.values() if source.entry is None and source.description is not None]
        for source in ended[: max(0, len(ended) - MAX_DESCRIBED)]:
            source.description = None  # its files have more, while they can be read

    def _drop(self, source: ServedRun) -> None:
        del self._served[source.key]
        if not source.connection.holders:  # they still learn how the run ended
            source.connection.close(now=True)
        source.close_files()

    def _owners(self, living: dict[str, discovery.LiveRun]) -> dict[str, discovery.LiveRun]:
        """Return the live runs by key: the key of the directory they write to, or else their id."""
        keys: dict[str, str] = {}
        for place, named in self._named.items():
            run = living.get(named.id)
            if run is not None and (named.id not in keys or place == os.path.realpath(run.directory)):
                keys[named.id] = named.key
        return {keys.get(id, id): run for id, run in living.items()}

    def _names(self, found: dict[str, RunEntry]) -> dict[str, _Named]:
        """Give each run its key: the one it had at its path, or else its id, unless another run has that."""
        named = {
            place: _Named(id=entry.id, key=known.key)
            for place, entry in found.items()
            if (known := self._named.get(place)) is not None and _is_same(known, entry)
        }
        taken = {one.key for one in named.values()}
        for place, entry in found.items():
            if place not in named:
                key = entry.id if ID.fullmatch(entry.id) else _digest(place)
                key = _digest(f"{place}\0{entry.id}") if key in taken else key
                named[place] = _Named(id=entry.id, key=key)
                taken.add(key)
        return named

    def _read_details(self, deadline_s: float) -> None:
        """Read the details of the runs until a time on the monotonic clock: the newest first, large ones last."""
        recorded = [(source, source.recorded) for source in self._served.values() if source.recorded is not None]
        recorded.sort(key=lambda one: (one[1].n_bytes > LARGE_BYTES, -one[1].started))
        for source, _ in recorded:
            try:
                source.read_details(deadline_s)
            except Exception as error:  # noqa: BLE001  an odd file must not stop the list of runs
                source.note_problem(error)

    def _opened(self) -> None:
        if next(self._n_opened) % MAX_OPEN == 0:
            self._close_files()

    def _close_files(self) -> None:
        """Close the least recently used files if too many are open."""
        sources = list(self._served.values())
        used = [(used_s, source) for source in sources if (used_s := source.used_s()) is not None]
        used.sort(key=lambda one: one[0])
        for _, source in used[: max(0, len(used) - MAX_OPEN)]:
            source.close_files()

    def release_unused(self) -> None:
        """Disconnect from the live runs that are not used, and close files that were not used for `UNUSED_S`."""
        unused_since_s = time.monotonic() - UNUSED_S
        for source in list(self._served.values()):
            source.connection.close()
            source.close_files(unused_since_s=unused_since_s)

    def close(self) -> None:
        """Disconnect from all runs and close all files."""
        for threads in (self.live_pool, self.file_pool, self.look_pool, self.describe_pool):
            threads.shutdown(wait=False, cancel_futures=True)
        for source in list(self._served.values()):
            source.connection.close(now=True)
            source.close_files()
        if self._hub is not None:
            self._hub.close()


def summary_of(source: ServedRun) -> RunSummary:
    """Return the entry of a run; one that cannot be described is listed with that problem."""
    try:
        return source.summary()
    except Exception as error:  # noqa: BLE001  an odd run must not stop the list of runs
        log_error(error)
        return RunSummary(
            key=source.key, id="", name=source.key, own_name=source.key, title=source.key, state="recorded", live=False,
            hub_role="", source="sightglass", project="", directory="", host="", started=None, ended=None, changed=None,
            version="", described=0, last_step=None, config={}, metrics=[], why="", sentence="", commit="",
            alerts=AlertsInfo(), annotations=Annotations(),
            problem=without_folders(f"The run cannot be described: {message(error)}"),
        )  # fmt: skip


def titled(runs: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the runs with distinct titles: the name, and for runs of one name also the directory or the id.

    >>> titled([])
    []
    """
    every = list(runs)
    titles = [run.name for run in every]
    ways: tuple[Callable[[RunSummary], str], ...] = (
        lambda run: os.path.basename(run.directory),
        lambda run: run.id[:ID_SHOWN],
        lambda run: run.directory,
        lambda run: run.key,
    )
    for distinguish in ways:
        several = {title for title, n in Counter(titles).items() if n > 1}
        for i, run in enumerate(every):
            extra = distinguish(run) if titles[i] in several else ""
            if extra and extra != run.name:
                titles[i] = f"{run.name} ({extra})"
    return [msgspec.structs.replace(run, title=title) for run, title in zip(every, titles, strict=True)]


def _is_same(known: _Named, entry: RunEntry) -> bool:
    """Return whether the run at a path is the one that was there: by its id, or because it continues there."""
    if known.id in ("", entry.id):
        return True
    return known.id in {file.id for file in run_file.read_all(entry.path)}


def _digest(text: str) -> str:
    return "p" + hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
