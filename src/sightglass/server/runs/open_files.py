"""The open files of a run, shared by all requests."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sightglass.client.recorded.run import RecordedRun
from sightglass.storage.file_names import is_in_database, is_record_file
from sightglass.storage.file_system import leads_out
from sightglass.storage.format.block import Key
from sightglass.storage.format.index import BlockEntries
from sightglass.storage.format.series_names import in_order, kind_of
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .derived import DerivedSeriesOfRun

LEADS_OUT: Final = "A link that leads out of the folder is not followed"


class OpenFiles:
    """The files of one run directory.

    When another directory takes the place of this one, the files are retired: requests in progress finish with them,
    later requests open the new ones.

    Attributes:
        path: The path at which they were opened.
        recording: The recorded data.
        run: The same, for queries.
        derived: What charts compute from its series.
        n_borrowed: How many requests and streams use them.
        retired: Whether to close them after the last use.
        used_s: When they were last borrowed, on the monotonic clock.
    """

    def __init__(self, path: Path) -> None:
        """Open the files. Errors as in `Recording`."""
        self.path = path
        self._place = place_of(path)
        self.recording = Recording(path)
        self.run = RecordedRun(self.recording, follow=True)
        self.derived = DerivedSeriesOfRun(self.run, self.recording)
        self._n_damages = len(self.recording.damages)
        self.n_borrowed = 0
        self.retired = False
        self.used_s = time.monotonic()

    def are_at(self, path: Path) -> bool:
        """Return whether these are still the files at a path; also if the path is gone and nothing replaced it."""
        place = place_of(path)
        if place is None:
            return True
        vanished = len(self.recording.vanished)
        return path == self.path and place == self._place and not 0 < vanished == len(self.recording.parts)

    def found_damage(self) -> bool:
        """Return whether reading found more damage since the last call."""
        n = len(self.recording.damages)
        n, self._n_damages = self._n_damages, n
        return n != self._n_damages

    @property
    def generation(self) -> int:
        """A number that changes when the rows do: after a restart of the run, or in another directory."""
        return hash((self._place, *sorted({part.started for part in self.recording.parts})))

    def close(self) -> None:
        """Close the files."""
        self.run.close()


def place_of(path: Path) -> tuple[int, int] | None:
    """Return the identity of a directory, or `None` if it is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def links_out(path: Path, roots: Iterable[Path]) -> str:
    """Return what is wrong with a directory of which a link leads out of it and out of some folders, or an empty text.

    Others may be able to write to a folder of runs: with a link they would be shown what only this user can read.

    Args:
        path: The directory, a real path.
        roots: The folders, real paths.
    """
    inside = (path, *roots)
    links = [path] if os.path.realpath(path) != str(path) else []
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        links += [Path(entry.path) for entry in entries if entry.is_symlink()]
    targets = ((link.name, Path(os.path.realpath(link))) for link in links)
    out = [name for name, target in targets if not any(target.is_relative_to(folder) for folder in inside)]
    return f"Links out of the folder of runs are not followed: {', '.join(sorted(out))}" if out else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What a look into a run directory shows, without opening a file; the runs of a large folder are looked at once.

    Attributes:
        names: Of its files and folders, sorted, without links that lead out of it.
        empty: The record files that are empty.
        unreadable: The directory or the files in it that cannot be read, each with the reason.
    """

    names: Sequence[str] = ()
    empty: Sequence[str] = ()
    unreadable: Sequence[str] = ()


def listing(path: Path) -> Listing:
    """Look into a run directory."""
    if is_in_database(path):
        return Listing()
    try:
        with os.scandir(path) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except OSError as error:
        return Listing(unreadable=[f"{path.name}: {error.strerror}"])
    inside = [entry for entry in entries if not leads_out(entry)]
    known = {entry.name for entry in inside}
    why = {entry.name: _unreadable(entry) if entry.name in known else LEADS_OUT for entry in entries}
    empty = [entry.name for entry in inside if is_record_file(entry.name) and _is_empty(entry)]
    return Listing(
        names=[entry.name for entry in inside],
        empty=empty,
        unreadable=[f"{name}: {reason}" for name, reason in why.items() if reason],
    )


def _unreadable(entry: os.DirEntry[str]) -> str:
    if not os.access(entry.path, os.R_OK):
        return "Permission denied"
    return "" if entry.is_file() or entry.is_dir() else "Expected a regular file"


def _is_empty(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return not entry.stat().st_size
    return False


# The series of a run as its files' indices know them: fast for thousands of series, since no record is read.


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesInfo:
    """Facts about a series.

    Attributes:
        n: The number of records.
        first_step: The step of the first record; `None` if the series is empty.
        last_step: The step of the last record.
        type: The type of the latest value.
        logged_as: The dtype that arrays had when they were logged, if they are stored as another.
        stored_as: The dtype that all numbers are stored as, whatever they were, or empty.
    """

    n: int
    first_step: float | None
    last_step: float | None
    type: str
    logged_as: str = ""
    stored_as: str = ""


def is_scalar(type: str) -> bool:
    """Return whether a type, as a series names it, is that of a number."""
    return kind_of(type) == "scalar"


def series_infos(recording: Recording) -> dict[Key, SeriesInfo]:
    """Return the facts of all series. The caller holds the recording's lock."""
    if len({part.started for part in recording.parts}) > 1:  # the later process hides rows of the earlier
        keys = recording.keys()
        return {key: _of_series(recording.series(key)) for key in keys}
    found: dict[Key, list[BlockEntries]] = {}
    for part in recording.parts:
        for key, entries in part.entries().items():
            if len(entries):
                found.setdefault(key, []).append(BlockEntries.of(key, entries))
    return {key: _of_entries(found[key]) for key in sorted(found, key=in_order)}


def _of_entries(several: Sequence[BlockEntries]) -> SeriesInfo:
    rows, last = [entries.rows for entries in several], several[-1]
    return SeriesInfo(
        n=sum(int(part["n"].sum()) for part in rows),
        first_step=float(rows[0]["first_step"][0]),
        last_step=float(rows[-1]["last_step"][-1]),
        type=last.types[last.rows["type"][-1]],
        logged_as=last.logged_as,
        stored_as=last.stored_as,
    )


def _of_series(series: Series) -> SeriesInfo:
    first, last = series.span or (None, None)
    return SeriesInfo(n=len(series), first_step=first, last_step=last, type=series.type)
