"""Recordings: the files of a run directory as one, by series.

Rule 1: nothing is discarded, and values are read on demand: opening reads the beginnings of frames only.
Rule 2: `run_series.VisibleRows` decides which rows are visible, and under which numbers, when a run was restarted.
Rule 3: a row has the same number as long as no later process hides it. Damaged rows have a number, too; reading leaves
them out, which leaves a hole in the index, and `damages` lists them.
Rule 4: files that appear, grow or vanish while they are read do not raise. What was read of a file stays.
Rule 5: one thread at a time.
Rule 6: a file that was compacted is opened again. It has the same rows in fewer blocks, so that the index of a run that
is followed for days is bounded: by the small blocks of the file that is being written.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import DamagedError, UnknownNameError
from sightglass.core.process.unpatched import threading
from sightglass.storage import file_names, run_file
from sightglass.storage.file_names import SUFFIX, rank_of
from sightglass.storage.file_system import LOCAL, FileStatus
from sightglass.storage.foreign.event_file import EventFile
from sightglass.storage.foreign.event_scan import OtherFileError, file_dialect
from sightglass.storage.foreign.mlflow_run import MlflowRun
from sightglass.storage.foreign.tensorboard_charts import ChartLayout
from sightglass.storage.foreign.trackio_run import TrackioRun
from sightglass.storage.foreign.wandb_file import WandbFile
from sightglass.storage.format import series_names
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.index import BlockEntries
from sightglass.storage.run_file import RunFile
from sightglass.storage.run_listing import RunEntry, is_run, runs_in

from .record_file import RecordFile
from .restarts import Restarts
from .run_digests import RunDigests
from .run_series import RunSeries, VisibleRows, last_wall_time
from .segment_reader import SegmentReader
from .series import Series
from .statistic_series import StatisticSeries, has_statistics, named_in, split

__all__ = ["Recording", "RunEntry", "Series", "is_run", "open_part", "runs_in"]

LATE: Final = (errno.ENOENT, errno.ESTALE, errno.EIO)  # in a network, a name can be seen before its file
PROJECTOR: Final = "projector_config.pbtxt"
"""TensorBoard's list of embeddings."""

MAX_WATCHED: Final = 8  # the latest files: earlier ones do not grow

HELD: Final[Mapping[str, type[MlflowRun] | type[TrackioRun]]] = {"mlflow": MlflowRun, "trackio": TrackioRun}
"""Runs that are one file each, whatever they lie in."""

Open = Callable[[Path], RecordFile]


def open_part(path: Path) -> RecordFile:
    """Open a record file, whichever program wrote it.

    Raises:
        OSError: It cannot be read.
        DamagedError: It is not a record file, or has a newer version.
    """
    dialect = "sightglass" if path.suffix == SUFFIX else file_dialect(path)
    if dialect == "sightglass":
        return SegmentReader(path)
    if dialect is not None and dialect in HELD:
        return HELD[dialect](path)
    return WandbFile(path) if file_names.is_part(path.name) else EventFile(path)


class Recording:
    """The records of one rank of a run.

    Attributes:
        path: The run directory, or the one file.
        rank: The rank.
        ranks: All ranks that recorded something here.
        generation: Raised when a later process hides rows, after which rows have other numbers.
        vanished: Files that no longer exist; what was read of them stays.
        refused: Files that are not record files or cannot be read, and why.
        digests: Statistics of its tensors at each step.
    """

    def __init__(self, path: str | os.PathLike[str], *, rank: int | None = None, open_part: Open = open_part) -> None:
        """Open the files that exist; there may be none yet.

        Args:
            path: The run directory, or one file.
            rank: Whose files; by default those of the lowest rank.
            open_part: Opens a file.

        Raises:
            DamagedError: The one file, or every file of the directory, is not a record file, or has a newer version.
        """
        self.path = Path(path)
        self._unopened = False
        self.rank = min((rank_of(file) or 0 for file in self._paths()), default=0) if rank is None else rank
        self.ranks: list[int] = []
        self.generation = 0
        self.vanished: list[Path] = []
        self.refused: dict[Path, str] = {}
        self.lock = threading.RLock()
        self._open_part = open_part
        self._parts: dict[Path, RecordFile] = {}
        self._others: set[Path] = set()
        self._refused_at: dict[Path, FileStatus] = {}  # other files with fewer records that took the place of one
        self._series: dict[Key, Series] = {}  # those that were asked for
        self._found = RunSeries()
        self._keys: list[Key] | None = None
        self._shape: list[tuple[Path, int]] = []
        self._restarts = Restarts(self._found)
        self._run_ids: dict[float, str] = {}
        self._stamp: Any = None
        self._forgotten: set[RecordFile] = set()
        self._info: RunFile | None = None
        self.digests = RunDigests(self)
        self.refresh()
        if self.refused and not self._parts:
            raise DamagedError(next(iter(self.refused.values())))
        if self._others and not self._parts and not run_file.read_all(self.path):
            raise DamagedError(f"Expected record files in {str(self.path)!r}, found others with names like theirs")

    @property
    def info(self) -> RunFile:
        """The run's description of itself; without one, its name is that of its directory."""
        if self._info is None:
            told = [RunFile(**part.told, repeats=False) for part in self.parts if part.told]
            files = told or run_file.read_all(self.path)
            info = run_file.together(files, rank=self.rank)
            name = info.name or (self.path.stem if self.path.is_file() else self.path.resolve().name)
            started = info.started or min((part.started for part in self._parts.values()), default=0.0)
            self._info = RunFile(**{**_fields_of(info), "name": name, "started": started})
        return self._info

    @property
    def parts(self) -> list[RecordFile]:
        """The files, in the order in which they were written."""
        return sorted(self._parts.values(), key=lambda part: (part.started, part.number, str(part.path)))

    @property
    def passed_over(self) -> dict[str, int]:
        """How many values in the files cannot be shown, by what they are; TensorBoard's embeddings lie beside them."""
        found = Counter({"embeddings": 1} if (self.path / PROJECTOR).is_file() else ())
        for part in self.parts:
            found.update(part.passed_over)
        return dict(sorted(found.items()))

    @property
    def last_wall_time(self) -> float:
        """When the last record was made, in seconds since the Unix epoch; 0 without any."""
        return max(map(last_wall_time, self.parts), default=0.0)

    @property
    def ended(self) -> float | None:
        """When the run ended; where its files do not say, when their last record was made. `None` without records."""
        return self.info.ended or self.last_wall_time or None

    @property
    def metrics(self) -> list[str]:
        """The tags that the files call the metrics of their runs; only TensorBoard's do."""
        every = (tag for part in self.parts if isinstance(part, EventFile) for tag in part.metrics)
        return list(dict.fromkeys(every))

    @property
    def charts(self) -> list[ChartLayout]:
        """The charts of several tags that the files ask for; only TensorBoard's do."""
        every = (chart for part in self.parts if isinstance(part, EventFile) for chart in part.charts)
        return list(dict.fromkeys(every))

    @property
    def damages(self) -> list[Damage]:
        """The damage found so far."""
        return [damage for part in self.parts for damage in part.damages]

    @property
    def torn(self) -> int:
        """How many bytes at the ends of files are not whole frames yet."""
        return sum(part.torn for part in self._parts.values())

    @property
    def overlap(self) -> str:
        """Which processes wrote at the same time, as a sentence, or empty; no restart hides rows of the other."""
        pairs = self._found.overlaps()
        if not pairs:
            return ""
        n = len({started for pair in pairs for started in pair})
        return (
            f"{n} processes wrote rank {self.rank} at the same time; each series has the records of one after the other"
        )

    def keys(self) -> list[Key]:
        """Return all series, sorted."""
        with self.lock:
            if self._keys is None:
                self._keys = sorted(self._found, key=series_names.in_order)
            return self._keys.copy()

    def tags(self) -> list[str]:
        """Return the tags under which something was recorded, sorted; see `series_names.listed`."""
        return series_names.listed(self.keys())

    def series(self, tag: str | Key) -> Series:
        """Return a series.

        Args:
            tag: Its tag, or the text of its query; a logged series comes before a stream of the same tag. "w:tensor"
                are the tensors of the tag "w", see `series_names`; "norm(w)" is a statistic of them, see
                `statistic_series`.

        Raises:
            UnknownNameError: Nothing was recorded under this tag.
        """
        with self.lock:
            key = tag if isinstance(tag, Key) else self._named(tag)
            if key in self._found:
                if key not in self._series:
                    self._series[key] = Series(self, key)
                return self._series[key]
            found = self._of_kind(key) or self._statistic(key)
            if found is None:
                name = tag if isinstance(tag, str) else tag.query or tag.tag
                raise UnknownNameError("tag", name, self.tags(), where=f"in {str(self.path)!r}")
            return found

    def series_like(self, tag: str, like: Series) -> Series:
        """Return the series of a tag that has values of the kind of another series. Errors as in `series`."""
        found = self.series(tag)
        if like.kind in ("", found.kind) or series_names.split(tag)[1]:
            return found
        return self.series(f"{tag}:{like.kind}")

    def _named(self, name: str) -> Key:
        """Return the series that a name means, or what it would be."""
        for key in series_names.candidates(name):
            if key in self._found:
                return key
        streams = [key for key in self.keys() if key.kind == "stream"]
        named = [key for key in streams if key.tag == name] or [key for key in streams if key.query == name]
        return named[0] if named else Key(kind="logged", tag=name)

    def keys_in(self, query: str) -> list[Key]:
        """Return what the text of a query names besides `keys()`, for `series`: statistics, and kinds of own tags."""
        names = (*named_in(query), *series_names.in_query(query))
        found = dict.fromkeys(Key(kind="logged", tag=name) for name in names)
        return [key for key in found if key not in self._found and (self._of_kind(key) or self._statistic(key))]

    def _of_kind(self, key: Key) -> Series | None:
        """Return a series of our own whose tag and kind a name says: our files do not tell kinds apart."""
        tag, kind = series_names.split(key.tag)
        own = Key(kind="logged", tag=tag)
        return found if kind and own in self._found and (found := self.series(own)).kind == kind else None

    def _statistic(self, key: Key) -> StatisticSeries | None:
        """Return a statistic of tensors if that is what the tag of a series says."""
        parts = split(key.tag)
        if parts is None:
            return None
        name, tag = parts
        kinds = (
            *series_names.candidates(tag),
            *(one for one in self.keys() if one.kind == "stream" and one.tag == tag),
        )
        found = [*(self.series(one) for one in kinds if one in self._found), self._of_kind(Key(kind="logged", tag=tag))]
        return next(
            (StatisticSeries(self, one, name) for one in found if one is not None and has_statistics(one)), None
        )

    def view(self, key: Key) -> VisibleRows:
        """Return the rows of a series that are visible."""
        return self._restarts.view(key)

    def run_id(self, part: RecordFile) -> str:
        """Return the id of the run that wrote a file; if nothing tells it, what sets the run apart from others.

        It is empty for other programs' files. Processes that wrote at the same time have one in common, because
        neither continues the other.
        """
        if part.dialect != "sightglass":
            return ""
        return self._identified()[part.started]

    @property
    def run_ids(self) -> tuple[str, ...]:
        """The ids of the runs of all processes, in the order in which these began."""
        with self.lock:
            return tuple(dict.fromkeys(self._identified().values()))

    def _identified(self) -> dict[float, str]:
        """Return the id of the run of each process, by when it began."""
        starts = {part.started for part in self._parts.values()}
        if not starts <= self._run_ids.keys():
            self._run_ids = self._identify(starts)
        return self._run_ids

    def _identify(self, starts: set[float]) -> dict[float, str]:
        together = {started for pair in self._found.overlaps() for started in pair}
        told = self._found.told()
        return {
            started: str(self.path) if started in together
            else (told[started].id if started in told else "") or f"{self.path} {started}"
            for started in sorted(starts)
        }  # fmt: skip

    def changed(self) -> bool:
        """Return whether there may be something new, from the sizes and times of the latest files."""
        return self._unopened or self._has_stale() or bool(self._look() != self._stamp)

    def refresh(self) -> bool:
        """Look for new files and growth, and return whether there is any."""
        self._stamp, self._info = None, None
        n_parts, n_starts = len(self._parts), len({part.started for part in self._parts.values()})
        followed = self._followed()
        replaced = self._discover()
        if len(self._parts) > n_parts:
            for part in self._followed() - followed:
                part.revalidate()  # before records of the next file are seen, all of this one's have to be
        stamp = self._look()  # what comes after this will be seen as a change
        n_sessions = self._n_session_starts()
        grown = [part for part in self._parts.values() if part.refresh()]
        new = replaced or len(self._parts) > n_parts or bool(grown)
        restarted = bool(n_starts) and len({part.started for part in self._parts.values()}) > n_starts
        again = n_starts and self._n_session_starts() > n_sessions
        if restarted or again or followed.intersection(grown):  # records that came late have numbers that others had
            self.generation += 1
        if new:
            self._gather()
        self._stamp = stamp
        return new

    def _n_session_starts(self) -> int:
        return sum(len(part.session_starts) for part in self._parts.values())

    def reopen(self) -> bool:
        """Open files again that another machine has replaced, and return whether there were any."""
        if not self._has_stale():
            return False
        self.refresh()
        self._forgotten = {part for part in self._parts.values() if part.stale}  # not again for each record
        return True

    def close(self) -> None:
        """Close the files."""
        for part in self._parts.values():
            part.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Recording {str(self.path)!r}, {len(self._parts)} files, {len(self._found)} series>"

    def _followed(self) -> set[RecordFile]:
        """Return the files after which their process began another."""
        parts = self.parts
        return {part for part, after in itertools.pairwise(parts) if part.started == after.started}

    def _has_stale(self) -> bool:
        return any(part.stale and part not in self._forgotten for part in self._parts.values())

    def _discover(self) -> bool:
        """Open the files that are new; return whether one took the place of another."""
        self._unopened = False
        paths = self._paths()
        self.vanished = [path for path in self._parts if path not in paths]
        replaced = [path for path, part in self._parts.items() if part.replaced and self._may_replace(path)]
        reopened = [self._reopen(path) for path in replaced]
        ranks = {part.rank for part in self._parts.values()}
        for path in sorted(paths):
            rank = rank_of(path)
            if rank is not None:
                ranks.add(rank)
            if path in self._parts or path in self.refused or path in self._others or rank not in (None, self.rank):
                continue
            try:
                part = self._open_part(path)
            except OtherFileError:
                self._others.add(path)
            except DamagedError as error:
                self.refused[path] = str(error)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # otherwise a run would look empty because too many files are open
                self._unopened |= error.errno in LATE
            else:
                ranks.add(part.rank)
                if part.rank == self.rank:
                    self._parts[path] = part
                else:
                    part.close()
        self.ranks = sorted(ranks)
        return any(reopened)

    def _may_replace(self, path: Path) -> bool:
        """Return whether what is at a path now may have the records of the file that was there."""
        with contextlib.suppress(OSError):
            return path not in self._refused_at or LOCAL.status(path) != self._refused_at[path]
        return False

    def _reopen(self, path: Path) -> bool:
        """Open the file that took the place of another, unless it has fewer records; return whether that was done.

        The other file is closed when no reader has it any more.
        """
        try:
            fresh = self._open_part(path)
        except (DamagedError, OSError):
            return False
        n_rows, n_before = _n_rows(fresh), _n_rows(self._parts[path])
        if any(n_rows.get(key, 0) < n for key, n in n_before.items()):
            with contextlib.suppress(OSError):
                self._refused_at[path] = LOCAL.status(path)
            fresh.close()
            return False
        before = self._parts[path]
        if n_rows != n_before and (before.damages or before in self._followed()):
            self.generation += 1  # records came between others, which have other numbers now
        was_stale, self._parts[path] = before.stale, fresh
        self._shape = []
        for series in self._series.values():
            series.forget(places=was_stale)
        return True

    def _paths(self) -> set[Path]:
        if self.path.is_file():
            return {self.path}
        try:
            return set(file_names.files_of(self.path))
        except OSError as error:
            self._unopened |= error.errno in (errno.ESTALE, errno.EIO)
            return set()

    def _look(self) -> Any:
        """Return what changes when something is written."""
        watched = [*file_names.directories_of(self.path), *(part.path for part in self.parts[-MAX_WATCHED:])]
        stamps = []
        for path in watched:
            with contextlib.suppress(OSError):
                stamps.append(file_names.stamp_of(path)[:2])
        return stamps

    def _told(self) -> list[RunFile]:
        """Return what the processes of this rank say of themselves, in their order."""
        return [run for run in run_file.read_all(self.path) if run.rank == self.rank]

    def _gather(self) -> None:
        """Put together what is in all files."""
        self._found = RunSeries(self.parts, self._told)
        shape = [(part.path, len(part.blocks())) for part in self.parts]
        if shape != self._shape:  # else the series are the same
            self._shape, self._keys = shape, None
        self._restarts = Restarts(self._found)


def may_name(query: str) -> bool:
    """Return whether the text of a query may name more than the keys of a run, see `Recording.keys_in`."""
    return bool(series_names.in_query(query)) or any(split(name) is not None for name in named_in(query))


def _n_rows(part: RecordFile) -> dict[Key, int]:
    """Return how many records each series of a file has."""
    return {key: int(BlockEntries.of(key, entries).rows["n"].sum()) for key, entries in part.blocks().items()}


def _fields_of(info: RunFile) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}
