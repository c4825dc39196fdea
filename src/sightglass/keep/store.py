"""Recordings: the files of a run directory as one, by series.

Rule 1: nothing is thrown away, and nothing is read before it is asked for: opening reads the beginnings of frames.
Rule 2: which rows are seen, and under which numbers, when a run was restarted: see `view`.
Rule 3: a row keeps its number as long as no later process hides it. Rows that are damaged have a number, too; they are
left out of what is read, which leaves a hole in the index, and `damages` tells of them.
Rule 4: files that come, grow or vanish while they are read are no exceptions. What was read of a file stays.
Rule 5: one thread at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, UnknownNameError
from sightglass.core.record import Record

from . import runfile, slices
from .block import Key
from .entries import Entries
from .framing import Damage
from .join import Join
from .reader import Part, Segment, name_of
from .runfile import RunEntry, RunFile, is_run, runs_in
from .view import Group, Restarts, View

__all__ = ["Recording", "RunEntry", "Series", "is_run", "open_part", "runs_in"]

HEAVY_BYTES: Final = 2**16
MAX_WHOLE: Final = 2.0**53
MAX_WATCHED: Final = 8

Open = Callable[[Path], Part]


def open_part(path: Path) -> Part:
    """Open a record file, whoever wrote it.

    Raises:
        OSError: It cannot be read.
        DamagedError: It is no record file, or one of a newer version.
    """
    return Segment(path)


class Recording:
    """What one rank of a run kept.

    Attributes:
        path: The run directory, or the one file.
        rank: Whose.
        ranks: All ranks that kept something here.
        generation: Raised when a later process hides rows, after which rows have other numbers.
        vanished: Files that were there and are not any more; what was read of them stays.
        refused: Files that are none of ours or cannot be read, and why.
    """

    def __init__(self, path: str | os.PathLike[str], *, rank: int = 0, open_part: Open = open_part) -> None:
        """Open what is there; there may be nothing yet.

        Raises:
            DamagedError: The one file, or every file of the directory, is none of ours, or of a newer version.
        """
        self.path = Path(path)
        self.rank = rank
        self.ranks: list[int] = []
        self.generation = 0
        self.vanished: list[Path] = []
        self.refused: dict[Path, str] = {}
        self._open_part = open_part
        self._parts: dict[Path, Part] = {}
        self._series: dict[Key, Series] = {}
        self._restarts = Restarts(())
        self._stamp: Any = None
        self._info: RunFile | None = None
        self.refresh()
        if self.refused and not self._parts:
            raise DamagedError(next(iter(self.refused.values())))

    @property
    def info(self) -> RunFile:
        """What the run says of itself; its name is its directory's if it says nothing."""
        if self._info is None:
            files = runfile.read_all(self.path)
            info = runfile.together(files, rank=self.rank)
            name = info.name or (self.path.stem if self.path.is_file() else self.path.resolve().name)
            started = info.started or min((part.started for part in self._parts.values()), default=0.0)
            self._info = RunFile(**{**_told(info), "name": name, "started": started})
        return self._info

    @property
    def parts(self) -> list[Part]:
        """The files, in the order in which they were written."""
        return sorted(self._parts.values(), key=lambda part: (part.started, part.number, str(part.path)))

    @property
    def damages(self) -> list[Damage]:
        """What was found to be damaged so far."""
        return [damage for part in self.parts for damage in part.damages]

    @property
    def torn(self) -> int:
        """How many bytes at the ends of files are no whole frames yet."""
        return sum(part.torn for part in self._parts.values())

    def keys(self) -> list[Key]:
        """Return all series, sorted."""
        return sorted(self._series, key=lambda key: (key.kind, key.tag, key.query))

    def tags(self) -> list[str]:
        """Return the tags under which something was kept, sorted."""
        return sorted({key.tag for key in self._series if key.kind in ("logged", "stream")})

    def series(self, tag: str | Key) -> Series:
        """Return a series.

        Args:
            tag: Its tag, or the text of its query; of several, what was logged comes first.

        Raises:
            UnknownNameError: Nothing was kept under it.
        """
        if isinstance(tag, Key):
            found = [tag] if tag in self._series else []
        else:
            asked = [key for key in self.keys() if key.kind in ("logged", "stream")]
            found = [key for key in asked if key.tag == tag] or [key for key in asked if key.query == tag]
        if not found:
            name = tag if isinstance(tag, str) else tag.query or tag.tag
            raise UnknownNameError("tag", name, self.tags(), where=f"in {str(self.path)!r}")
        return self._series[found[0]]

    def changed(self) -> bool:
        """Tell whether it may be that there is something new, at the price of a few looks at the file system."""
        return bool(self._look() != self._stamp)

    def refresh(self) -> bool:
        """Look for new files and growth, and tell whether there is any."""
        self._stamp, self._info = None, None
        n_parts, n_starts = len(self._parts), len({part.started for part in self._parts.values()})
        self._discover()
        stamp = self._look()  # what comes after this will be seen as a change
        grown = [part.refresh() for part in self._parts.values()]
        new = len(self._parts) > n_parts or any(grown)
        if n_starts and len({part.started for part in self._parts.values()}) > n_starts:
            self.generation += 1
        if new:
            self._gather()
        self._stamp = stamp
        return new

    def close(self) -> None:
        """Close the files."""
        for part in self._parts.values():
            part.close()

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Recording {str(self.path)!r}, {len(self._parts)} files, {len(self._series)} series>"

    def _discover(self) -> None:
        """Open the files that are new."""
        paths = self._paths()
        self.vanished = [path for path in self._parts if path not in paths]
        ranks = {part.rank for part in self._parts.values()}
        for path in sorted(paths):
            named = name_of(path)
            if named is not None:
                ranks.add(named[1])
            if path in self._parts or path in self.refused or (named is not None and named[1] != self.rank):
                continue
            try:
                part = self._open_part(path)
            except DamagedError as error:
                self.refused[path] = str(error)
            except OSError:
                continue  # it may be there the next time
            else:
                ranks.add(part.rank)
                if part.rank == self.rank:
                    self._parts[path] = part
                else:
                    part.close()
        self.ranks = sorted(ranks)

    def _paths(self) -> set[Path]:
        if self.path.is_file():
            return {self.path}
        try:
            return {self.path / name for name in os.listdir(self.path) if runfile.is_record_file(name)}
        except OSError:
            return set()

    def _look(self) -> Any:
        """Return what changes when something is written."""
        watched = [self.path, *(part.path for part in self.parts[-MAX_WATCHED:])]
        stamps = []
        for path in watched:
            with contextlib.suppress(OSError):
                status = path.stat()
                stamps.append((status.st_mtime_ns, status.st_size))
        return stamps

    def _gather(self) -> None:
        """Sort the blocks of all files by series and by process."""
        groups: dict[float, list[Part]] = {}
        for part in self.parts:
            groups.setdefault(part.started, []).append(part)
        keys = {key for part in self._parts.values() for key in part.entries()}
        found: list[tuple[Key, list[Group]]] = []
        by_part = {part: part.entries() for parts in groups.values() for part in parts}
        for key in keys:
            series = [
                (started, [(part, Entries.of(key, by_part[part][key])) for part in parts if key in by_part[part]])
                for started, parts in groups.items()
            ]
            found.append((key, series))
            if key not in self._series:
                self._series[key] = Series(self, key)
        self._restarts = Restarts(found)

    def _view(self, key: Key) -> View:
        return self._restarts.view(key)


def _told(info: RunFile) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}


class Series:
    """What was kept under one tag: an ordered sequence of records.

    Attributes:
        key: What makes the series.
    """

    def __init__(self, recording: Recording, key: Key) -> None:
        self.key = key
        self._recording = recording
        self._places: tuple[int, int, Any, Any] = (-1, 0, None, None)
        self._last: tuple[Any, Columns] | None = None

    @property
    def tag(self) -> str:
        """The tag."""
        return self.key.tag

    @property
    def n(self) -> int:
        """How many records there are; those that are damaged are counted."""
        return len(self._view)

    def __len__(self) -> int:
        return len(self._view)

    @property
    def type(self) -> str:
        """The type of the latest value, such as "float", "float32[3, 4]" or "Histogram"."""
        view = self._view
        if not len(view):
            return ""
        piece = view.pieces[-1]
        return str(view.sources[piece["source"]][1][int(piece["entry"])].type)

    @property
    def stored_as(self) -> str:
        """The dtype that numbers were stored as whatever they were, or empty where nothing was lost."""
        return next((part.stored_as for part, _ in self._view.sources if part.stored_as), "")

    @property
    def since(self) -> int:
        """The number of the event from which on it was kept."""
        return int(self._first("since"))

    @property
    def n_missed(self) -> int:
        """How many events failed, were skipped or were dropped while it was kept."""
        last: dict[float, int] = {}
        for part, entries in self._view.sources:
            last[part.started] = int(entries.rows["n_missed"][-1]) if len(entries) else 0
        return sum(last.values())

    @property
    def steps(self) -> Any:
        """Shape (n,), int64 or float64; without damaged records."""
        return self._read_places()[0]

    @property
    def wall_times(self) -> Any:
        """Shape (n,), float64, in seconds since the Unix epoch; without damaged records."""
        return self._read_places()[1]

    @property
    def damages(self) -> list[Damage]:
        """What was found to be damaged so far of this series, or of nobody knows what."""
        return [d for part, _ in self._view.sources for d in part.damages if d.tag in (self.key.tag, "")]

    def parts(self, start: int = 0, stop: int | None = None) -> list[Columns]:
        """Read records, in pieces whose index numbers have no gaps; damaged ones are left out.

        Args:
            start: The number of the first, counted from 0.
            stop: The number behind the last; by default all.
        """
        return self._join(start, stop).pieces()

    def columns(self, start: int = 0, stop: int | None = None) -> Columns:
        """Read records as one piece; damaged ones are left out, whatever gaps that leaves: `parts` tells where.

        Args:
            start: The number of the first, counted from 0.
            stop: The number behind the last; by default all.
        """
        return self._join(start, stop).columns()

    def __getitem__(self, i: int) -> Record:
        """Read one record.

        Raises:
            IndexError: There are not so many.
            DamagedError: It is damaged.
        """
        i = range(len(self))[i]
        view = self._view
        ((piece),) = view.between(i, i + 1)
        columns = self._block(view, piece)
        low, index = int(piece["low"]), int(piece["index"])
        return columns.moved(index - low - columns.index).record(low, tag=self.tag, run=self._recording.info.name)

    def __iter__(self) -> Iterator[Record]:
        return map(self.__getitem__, range(len(self)))

    def at(self, step: float, index: slices.Index | slices.Entry | str | None = None) -> Any:
        """Read the value at a step; the last one if there are several.

        Args:
            step: Exactly this one.
            index: Which part of an array, such as "[0, :, 2:5]" or what NumPy takes; only that part is read.

        Raises:
            UnknownNameError: Nothing was kept at this step; the message names the nearest.
            DamagedError: It is damaged.
            QueryError: The value has no such part.
        """
        piece, row = self._find(step)
        part, entries = self._view.sources[piece["source"]]
        if index is not None:
            return part.load_slice(entries[int(piece["entry"])], row, index)
        return self._block(self._view, piece).record(row, tag=self.tag, run="").value

    def __repr__(self) -> str:
        return f"<Series {self.tag!r}, {len(self)} records of {self.type}>"

    @property
    def _view(self) -> View:
        return self._recording._view(self.key)

    def _first(self, name: str) -> Any:
        view = self._view
        if not len(view):
            return 0
        piece = view.pieces[0]
        return view.sources[piece["source"]][1].rows[name][piece["entry"]]

    def _join(self, start: int, stop: int | None) -> Join:
        view = self._view
        start, stop, _ = slice(start, stop).indices(len(view))
        return _read(view, view.between(start, stop), index=view.index(start))

    def _read_places(self) -> tuple[Any, Any]:
        """Return the steps and wall times, reading those that are new."""
        view, generation = self._view, self._recording.generation
        known, n, steps, wall_times = self._places
        if known != generation:
            n, steps, wall_times = 0, np.empty(0, np.int64), np.empty(0)
        if n < len(view):
            pieces = view.between(n, len(view))
            found = [(steps, wall_times)] if n else []
            start = 0
            for heavy, run in groupby((view.column(pieces, "n") == 1) & (pieces["length"] > HEAVY_BYTES)):
                stop = start + sum(1 for _ in run)
                found.append((_told_places if heavy else _read_places)(view, pieces[start:stop]))
                start = stop
            steps, wall_times = (np.concatenate(columns) for columns in zip(*found, strict=True))
            self._places = generation, len(view), steps, wall_times
        return steps, wall_times

    def _block(self, view: View, piece: Any) -> Columns:
        """Read the block of a piece, or take it from the last time.

        Raises:
            DamagedError: It is damaged.
        """
        part, entries = view.sources[piece["source"]]
        entry = entries[int(piece["entry"])]
        place = part.path, entry.offset
        if self._last is None or self._last[0] != place:
            self._last = place, part.load(entry)
        return self._last[1]

    def _find(self, step: float) -> tuple[Any, int]:
        """Find the last record at a step: the piece it is in, and its row in the block."""
        view = self._view
        least, most = (view.column(view.pieces, name) for name in ("min_step", "max_step"))
        near = {float(x) for x in (most[most < step].max(initial=-np.inf), least[least > step].min(initial=np.inf))}
        problem: DamagedError | None = None
        for i in np.flatnonzero((least <= step) & (step <= most))[::-1].tolist():
            piece = view.pieces[i]
            if view.column(view.pieces[i : i + 1], "n")[0] == 1:
                return piece, 0
            try:
                steps = self._block(view, piece).steps[piece["low"] : piece["high"]]
            except DamagedError as error:
                problem = problem or error
                continue
            rows = np.flatnonzero(steps == step)
            if len(rows):
                return piece, int(piece["low"] + rows[-1])
            near |= {float(x) for x in steps}
        raise problem or self._unknown(step, near)

    def _unknown(self, step: float, near: set[float]) -> UnknownNameError:
        below = max((x for x in near if x < step), default=-np.inf)
        above = min((x for x in near if x > step), default=np.inf)
        nearest = [x for x in (below, above) if np.isfinite(x)]
        error = UnknownNameError("step", step, nearest)
        told = " and ".join(f"{x:.15g}" for x in nearest) or "none"
        error.args = (f"Nothing was kept of {self.tag!r} at step {step:.15g}; the nearest steps are: {told}",)
        return error


def _read(view: View, pieces: Any, index: int = 0) -> Join:
    join = Join(int((pieces["high"] - pieces["low"]).sum()), int(pieces["length"].sum()), index=index)
    for columns in view.read(pieces):
        if columns is not None:
            join.add(columns)
    return join


def _read_places(view: View, pieces: Any) -> tuple[Any, Any]:
    columns = _read(view, pieces).columns()
    return columns.steps, columns.wall_times


def _told_places(view: View, pieces: Any) -> tuple[Any, Any]:
    """Return the steps and wall times of blocks of one record, as their heads tell."""
    steps = view.column(pieces, "first_step")
    whole = (steps == np.trunc(steps)) & (np.abs(steps) < MAX_WHOLE)
    return steps.astype(np.int64) if whole.all() else steps, view.column(pieces, "first_wall")
