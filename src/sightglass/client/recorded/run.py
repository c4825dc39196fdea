"""Recorded runs: opened from their files, asked like live ones."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sightglass.client.describe import Description, known_fields, recorded_description
from sightglass.client.event_attributes import EventAttributes
from sightglass.client.record_buffer import RecordBuffer
from sightglass.client.run import HistoryEntry
from sightglass.client.stream import Stream
from sightglass.core.errors import (
    DamagedError,
    QueryError,
    QuerySyntaxError,
    RunLostError,
    RunNotFoundError,
    UnknownNameError,
    unknown,
)
from sightglass.protocol import discovery
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.storage.export.export import Exported, Form, export
from sightglass.storage.format.block import Key
from sightglass.storage.read.check import Report, check
from sightglass.storage.read.recording import Recording, Series
from sightglass.storage.run_file import RunEntry, is_run, lives, runs_in

from .plan import plan
from .playback import SETTLED_S, Playback

POLL_S: Final = 0.1
MAX_RECORDS: Final = 2**31
MAX_BYTES: Final = 8 * 2**30
PASSED_BY: Final = (DamagedError, UnknownNameError)
"""What a run in a folder may raise without keeping the others from being asked."""


class RecordedRun(EventAttributes):
    """A run, as its files tell of it. Made by `sightglass.open`.

    It answers the queries that a live run answers, wherever what they need was kept.
    """

    def __init__(self, recording: Recording, *, follow: bool = False) -> None:
        self._recording = recording
        self._follow = follow
        self._closed = False

    @property
    def name(self) -> str:
        """The run's name."""
        return self._recording.info.name

    @property
    def id(self) -> str:
        """The run's id; empty where the files do not tell."""
        return self._recording.info.id

    @property
    def config(self) -> Mapping[str, Any]:
        """What it was configured with."""
        return self._recording.info.config

    @property
    def directory(self) -> Path:
        """Where its files are."""
        return self._recording.path

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that wrote here; see `rank`."""
        return self._recording.ranks

    def rank(self, rank: int) -> RecordedRun:
        """Return what another rank of the same program kept.

        Raises:
            UnknownNameError: It kept nothing here.
        """
        if rank not in self.ranks:
            raise UnknownNameError("rank", rank, self.ranks, where=f"in {str(self.directory)!r}")
        return RecordedRun(Recording(self._recording.path, rank=rank), follow=self._follow)

    @property
    def ended(self) -> bool:
        """Whether no more can come: the run is over, or is not followed."""
        return not self._follow or not self._live()

    def describe(self) -> Description:
        """Return what the files tell of the run: what was kept of which events, the controls and actions it had."""
        self._check_open()
        with self._recording.lock:
            self._recording.refresh()
            series = {key: self._recording.series(key) for key in self._keys()}
            description = recorded_description(
                self._recording.info, state=self._state(), directory=str(self.directory),
                series={key: (len(one), one.type) for key, one in series.items()},
            )  # fmt: skip
        self._set_event_attributes(description.events)
        return description

    def tags(self) -> list[str]:
        """Return the tags under which something was kept, sorted."""
        return sorted({key.tag for key in self._keys() if key.kind in ("logged", "stream")})

    def series(self, tag: str) -> Series:
        """Return what was kept under a tag: `steps`, `wall_times`, `[i]`, `at(step)`, `at(step, "[0, :, 2:5]")`.

        Raises:
            UnknownNameError: Nothing was.
        """
        self._check_open()
        with self._recording.lock:
            self._recording.refresh()
            return self._recording.series(tag)

    def stream(self, query: Query | str) -> Stream:
        """Ask a question about what was kept.

        Args:
            query: Such as `on("batch").map(lambda b: b.loss)`, or its text, or "batch.loss"; or a tag of logged values.

        Raises:
            QueryError: The query cannot be read, or not be answered from what was kept; the message lists that.
        """
        deadline_s = time.monotonic() + SETTLED_S
        while True:
            keys, over = self._keys(), self.ended or time.monotonic() > deadline_s
            try:
                asked = _tagged(query, keys) if isinstance(query, str) else as_query(query)
                chosen = plan(asked, keys)
                break
            except QuerySyntaxError as error:
                raise _meant(query, keys, error) from None
            except QueryError as error:
                if over:
                    raise _meant(query, keys, error) from None
                time.sleep(POLL_S)  # what was given just now is not in the files yet
        played = Playback(chosen, self._recording, over=lambda: self.ended, closed=lambda: self._closed)
        buffer = RecordBuffer(tag=asked.tag, run=self.name, max_records=MAX_RECORDS, max_bytes=MAX_BYTES)
        return Stream(played, buffer, query=asked.key)

    def series_of(self, query: Query | str) -> Series | None:
        """Return the series whose records are what a query asks for; `None` if that has to be computed.

        Args:
            query: As in `stream`.

        Raises:
            QueryError: The query cannot be read, or not be answered from what was kept.
        """
        keys = self._keys()
        asked = _tagged(query, keys) if isinstance(query, str) else as_query(query)
        chosen = plan(asked, keys)
        if chosen.how != "records":
            return None
        (key,) = chosen.keys.values()
        return self._recording.series(key)

    @property
    def history(self) -> list[HistoryEntry]:
        """The acts that were applied to the run while it kept something, the oldest first."""
        acts = Key(kind="acts", tag="acts")
        if acts not in self._keys():
            return []
        return [
            HistoryEntry(**known_fields(HistoryEntry, entry)) for entry in self._recording.series(acts).columns().values
        ]

    def export(
        self,
        to: Form,
        *,
        out: str | os.PathLike[str] | None = None,
        tags: Sequence[str] = (),
        overwrite: bool = False,
    ) -> Exported:
        """Write what was recorded as "parquet", "csv", "npz", "tensorboard" or "mindspore": see `keep.export`."""
        with self._recording.lock:
            return export(self._recording, to=to, out=out, tags=tags, overwrite=overwrite)

    def check(self) -> Report:
        """Read every byte of the run's files, and report what is damaged and what is intact."""
        return check(self.directory)

    def close(self) -> None:
        """Close the files; streams end, and what was read of them stays."""
        with self._recording.lock:
            self._closed = True
            self._recording.close()

    def __enter__(self) -> RecordedRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.tags())} tags, {self._state()}"
        return f"<RecordedRun {self.name!r} in {str(self.directory)!r}, {state}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_run

        return bundle_of_run(self)

    def _check_open(self) -> None:
        if self._closed:
            raise RunLostError(f"Recorded run {self.name!r} in {str(self.directory)!r} was closed: open it anew")

    def _keys(self) -> list[Key]:
        self._check_open()
        with self._recording.lock:
            self._recording.refresh()
            return list(self._recording.keys())

    def _live(self) -> bool:
        changed = 0.0
        for part in self._recording.parts:
            with contextlib.suppress(OSError):
                changed = max(changed, part.path.stat().st_mtime)
        return lives(self._recording.info, changed, alive=discovery.alive)

    def _state(self) -> str:
        info = self._recording.info
        if info.ended is not None:
            return info.state
        return "running" if self._live() else "died" if info.id else "recorded"


def _tagged(text: str, keys: Sequence[Key]) -> Query:
    """Read a query, or the tag of a series, which need not be the text of a query."""
    try:
        query = as_query(text)
        if any(key.query == query.key for key in keys):
            return query
    except QueryError:
        query = None
    for key in keys:
        if key.kind == "logged" and key.tag == text:
            return as_query(f"on('log').map(lambda e: e[{text!r}])")
        if key.kind == "stream" and key.tag == text:
            return as_query(key.query)
    return query or as_query(text)


def _meant(query: Query | str, keys: Sequence[Key], error: QueryError) -> QueryError:
    """Return an error about a query; about what is more like a tag than a query, one that says which tag was meant."""
    if not isinstance(query, str) or "(" in query:
        return error
    tags = sorted({key.tag for key in keys if key.kind == "logged"})
    close = difflib.get_close_matches(query, tags, n=1)
    return QueryError(unknown("tag", query, tags)) if close else error


class RecordedRuns(Mapping[str, RecordedRun]):
    """The recorded runs in a folder, by their paths in it, the newest first. Made by `sightglass.open`."""

    def __init__(self, folder: Path, *, rank: int | None = None, follow: bool = False) -> None:
        self.directory = folder
        self._rank = rank
        self._follow = follow
        self._paths = {entry.path.relative_to(folder).as_posix(): entry.path for entry in found(folder)}
        self._opened: dict[str, RecordedRun] = {}

    def __getitem__(self, name: str) -> RecordedRun:
        if name not in self._paths:
            raise UnknownNameError("run", name, self._paths, where=f"in {str(self.directory)!r}")
        if name not in self._opened:
            self._opened[name] = _opened(self._paths[name], rank=self._rank, follow=self._follow)
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

    def tags(self) -> list[str]:
        """Return the tags under which any of the runs kept something, sorted."""
        tags: set[str] = set()
        for name in self:
            with contextlib.suppress(*PASSED_BY), self.borrow(name) as run:
                tags.update(run.tags())
        return sorted(tags)

    def stream(self, query: Query | str) -> Stream:
        """Ask all runs that kept what the query needs; each record bears the name of its run.

        Raises:
            QueryError: The query cannot be read, or none of the runs can answer it.
        """
        streams, problem = [], None
        for name in self:
            try:
                with self.borrow(name) as run:
                    stream = run.stream(query)
                    stream.since(0)  # all is read before the files are closed
                    streams.append(stream)
            except (QueryError, *PASSED_BY) as error:
                problem = problem or error
        if not streams:
            raise problem or QueryError(f"There is no run in {str(self.directory)!r}")
        return streams[0].union(*streams[1:])

    @contextlib.contextmanager
    def borrow(self, name: str) -> Iterator[RecordedRun]:
        """Open a run for a moment, if it is not open anyway: there may be more of them than files that may be open."""
        if name in self._opened:
            yield self[name]
            return
        run = _opened(self._paths[name], rank=self._rank, follow=self._follow)
        if not run.ended:
            self._opened[name] = run
            yield run
            return
        with run:
            yield run

    def close(self) -> None:
        """Close all that were opened."""
        for run in self._opened.values():
            run.close()

    def __enter__(self) -> RecordedRuns:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RecordedRuns in {str(self.directory)!r}: {', '.join(itertools.islice(self._paths, 8))}>"


def open(path: str | os.PathLike[str], *, rank: int | None = None, follow: bool = False) -> RecordedRun | RecordedRuns:
    """Open a recorded run: a run directory, a file that `Stream.save` wrote, or a folder of runs.

    Summary directories of MindSpore and log directories of TensorBoard open the same way.

    Args:
        path: Where it is.
        rank: Which rank's files, where several wrote there; by default the lowest one's.
        follow: Whether streams go on while another process is still writing.

    Returns:
        A `RecordedRun`, or of a folder with several runs in it `RecordedRuns`, by their names.

    Raises:
        RunNotFoundError: There is nothing that was recorded.
        DamagedError: It is a file of another kind, or of a newer version.
        UnknownNameError: The rank kept nothing there.
    """
    place = Path(path)
    if not os.fspath(path) or not place.exists():
        raise RunNotFoundError(f"There is no {os.fspath(path)!r}")
    if place.is_file() or is_run(place):
        return _opened(place, rank=rank, follow=follow)
    runs = RecordedRuns(place, rank=rank, follow=follow)
    if not runs:
        raise RunNotFoundError(f"Nothing was recorded in {str(place)!r}: there are no record files, nor runs with such")
    return runs


def _opened(path: Path, *, rank: int | None, follow: bool) -> RecordedRun:
    recording = Recording(path, rank=rank)
    if rank is not None and rank not in recording.ranks and not follow:
        recording.close()
        raise UnknownNameError("rank", rank, recording.ranks, where=f"in {str(path)!r}")
    return RecordedRun(recording, follow=follow)


def found(folder: Path) -> list[RunEntry]:
    """List the recorded runs in a folder, the newest first."""
    return runs_in(folder, alive=discovery.alive)
