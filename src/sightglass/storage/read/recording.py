"""Recordings: the files of a run directory as one, by series.

Rule 1: nothing is discarded, and values are read on demand: opening reads the beginnings of frames only.
Rule 2: `visible_rows` decides which rows are visible, and under which numbers, when a run was restarted.
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
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import DamagedError, UnknownNameError
from sightglass.storage import run_file
from sightglass.storage.foreign import mindspore
from sightglass.storage.foreign.event_file import EventFile
from sightglass.storage.foreign.event_scan import file_dialect
from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import BlockEntries
from sightglass.storage.format.framing import Damage
from sightglass.storage.run_file import SUFFIX, RunEntry, RunFile, is_run, runs_in

from .record_file import RecordFile, name_of
from .segment_reader import SegmentReader
from .series import Series
from .visible_rows import Group, Restarts, VisibleRows

__all__ = ["Recording", "RunEntry", "Series", "is_run", "open_part", "runs_in"]

MAX_WATCHED: Final = 8  # the latest files: earlier ones do not grow

Open = Callable[[Path], RecordFile]


def open_part(path: Path) -> RecordFile:
    """Open a record file, whichever program wrote it.

    Raises:
        OSError: It cannot be read.
        DamagedError: It is not a record file, or has a newer version.
    """
    ours = path.suffix == SUFFIX or file_dialect(path) == "sightglass"
    return SegmentReader(path) if ours else EventFile(path)


class Recording:
    """The records of one rank of a run.

    Attributes:
        path: The run directory, or the one file.
        rank: The rank.
        ranks: All ranks that recorded something here.
        generation: Raised when a later process hides rows, after which rows have other numbers.
        vanished: Files that no longer exist; what was read of them stays.
        refused: Files that are not record files or cannot be read, and why.
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
        self.rank = min((rank_of(file) or 0 for file in self._paths()), default=0) if rank is None else rank
        self.ranks: list[int] = []
        self.generation = 0
        self.vanished: list[Path] = []
        self.refused: dict[Path, str] = {}
        self.lock = threading.RLock()
        self._open_part = open_part
        self._parts: dict[Path, RecordFile] = {}
        self._kept: set[Path] = set()  # files whose place another one took that has fewer records
        self._series: dict[Key, Series] = {}
        self._restarts = Restarts(())
        self._stamp: Any = None
        self._info: RunFile | None = None
        self.refresh()
        if self.refused and not self._parts:
            raise DamagedError(next(iter(self.refused.values())))

    @property
    def info(self) -> RunFile:
        """The run's description of itself; without one, its name is that of its directory."""
        if self._info is None:
            files = run_file.read_all(self.path)
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
    def damages(self) -> list[Damage]:
        """The damage found so far."""
        return [damage for part in self.parts for damage in part.damages]

    @property
    def torn(self) -> int:
        """How many bytes at the ends of files are not whole frames yet."""
        return sum(part.torn for part in self._parts.values())

    def keys(self) -> list[Key]:
        """Return all series, sorted."""
        return sorted(self._series, key=lambda key: (key.kind, key.tag, key.query))

    def tags(self) -> list[str]:
        """Return the tags under which something was recorded, sorted."""
        return sorted({key.tag for key in self._series if key.kind in ("logged", "stream")})

    def series(self, tag: str | Key) -> Series:
        """Return a series.

        Args:
            tag: Its tag, or the text of its query; a logged series comes before a stream of the same tag.

        Raises:
            UnknownNameError: Nothing was recorded under this tag.
        """
        if isinstance(tag, Key):
            found = [tag] if tag in self._series else []
        else:
            candidates = [key for key in self.keys() if key.kind in ("logged", "stream")]
            found = [key for key in candidates if key.tag == tag] or [key for key in candidates if key.query == tag]
        if not found:
            name = tag if isinstance(tag, str) else tag.query or tag.tag
            raise UnknownNameError("tag", name, self.tags(), where=f"in {str(self.path)!r}")
        return self._series[found[0]]

    def view(self, key: Key) -> VisibleRows:
        """Return the rows of a series that are visible."""
        return self._restarts.view(key)

    def changed(self) -> bool:
        """Return whether there may be something new, from the sizes and times of the latest files."""
        return bool(self._look() != self._stamp)

    def refresh(self) -> bool:
        """Look for new files and growth, and return whether there is any."""
        self._stamp, self._info = None, None
        n_parts, n_starts = len(self._parts), len({part.started for part in self._parts.values()})
        replaced = self._discover()
        stamp = self._look()  # what comes after this will be seen as a change
        grown = [part.refresh() for part in self._parts.values()]
        new = replaced or len(self._parts) > n_parts or any(grown)
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

    def _discover(self) -> bool:
        """Open the files that are new; return whether one took the place of another."""
        paths = self._paths()
        self.vanished = [path for path in self._parts if path not in paths]
        replaced = [path for path, part in self._parts.items() if part.replaced and path not in self._kept]
        reopened = [self._reopen(path) for path in replaced]
        ranks = {part.rank for part in self._parts.values()}
        for path in sorted(paths):
            rank = rank_of(path)
            if rank is not None:
                ranks.add(rank)
            if path in self._parts or path in self.refused or rank not in (None, self.rank):
                continue
            try:
                part = self._open_part(path)
            except DamagedError as error:
                self.refused[path] = str(error)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise  # otherwise a run would look empty because too many files are open
                continue  # it may be readable the next time
            else:
                ranks.add(part.rank)
                if part.rank == self.rank:
                    self._parts[path] = part
                else:
                    part.close()
        self.ranks = sorted(ranks)
        return any(reopened)

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
            self._kept.add(path)
            fresh.close()
            return False
        self._parts[path] = fresh
        for series in self._series.values():
            series.forget_block()
        return True

    def _paths(self) -> set[Path]:
        if self.path.is_file():
            return {self.path}
        try:
            return {self.path / name for name in os.listdir(self.path) if run_file.is_record_file(name)}
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
        groups: dict[float, list[RecordFile]] = {}
        for part in self.parts:
            groups.setdefault(part.started, []).append(part)
        keys = {key for part in self._parts.values() for key in part.entries()}
        found: list[tuple[Key, list[Group]]] = []
        by_part = {part: part.entries() for parts in groups.values() for part in parts}
        for key in keys:
            series = [
                (started, [(part, BlockEntries.of(key, by_part[part][key])) for part in parts if key in by_part[part]])
                for started, parts in groups.items()
            ]
            found.append((key, series))
            if key not in self._series:
                self._series[key] = Series(self, key)
        self._restarts = Restarts(found)


def rank_of(path: Path) -> int | None:
    """Return the rank of the process that wrote a file, from its name; `None` if the name does not say."""
    named = name_of(path) or mindspore.parse_name(path.name)
    return named[1] if named else None


def _n_rows(part: RecordFile) -> dict[Key, int]:
    """Return how many records each series of a file has."""
    return {key: int(BlockEntries.of(key, entries).rows["n"].sum()) for key, entries in part.entries().items()}


def _fields_of(info: RunFile) -> dict[str, Any]:
    return {name: getattr(info, name) for name in info.__struct_fields__}
