"""Which runs grow, whichever program writes them: the files of the runs that somebody looks at are looked at often.

Sizes and times are compared, because that works everywhere: the kernel tells nothing about files that another machine
writes. Most looks see that a directory and its latest files are the same; only if one differs, the directory is read.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Collection
from pathlib import Path
from typing import Final

import msgspec

from sightglass.protocol import discovery
from sightglass.storage import file_names, run_listing
from sightglass.storage.file_names import Stamp, stamp_of

from .run_table import Runs
from .served_run import ServedRun

MAX_LATEST: Final = 8  # earlier files do not grow; a search that looks at all of them comes every few seconds
LOOK_S: Final = 0.2  # a growth is to be on screen within a second, of which the request and the picture take half
LOOK_REST: Final = 50
"""After a look, this many times the processor time that it took passes until the next one: 2 % of a core at most."""


class Growth:
    """Looks at the files of some runs, again and again, from one thread at a time."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._looked_at: dict[str, WatchedDirectory] = {}
        self.rest_s = LOOK_S

    def look(self, keys: Collection[str]) -> list[ServedRun]:
        """Return the runs whose files changed, and whose `version` therefore did.

        Args:
            keys: The runs to look at; others are forgotten.
        """
        began_s = time.thread_time()
        self._looked_at = {key: directory for key, directory in self._looked_at.items() if key in keys}
        changed = [run for key in keys if (run := self._runs.known(key)) is not None and self._changed(run)]
        self.rest_s = max(LOOK_S, LOOK_REST * (time.thread_time() - began_s))
        return changed

    def _changed(self, run: ServedRun) -> bool:
        known, now_s = run.recorded, time.monotonic()
        if known is None or run.gone_s is not None:
            return False
        directory = self._looked_at.get(run.key)
        if directory is None or directory.path != known.path:
            directory = self._looked_at[run.key] = WatchedDirectory(known.path, known.version)
        if not directory.changed():
            return False
        found = run_listing.run_at(known.path, alive=discovery.alive)
        if found is None or found.id != known.id or found.version == directory.version:
            return False  # the search tells what became of a run that is gone, or that another one replaced
        directory.version = found.version
        name = found.file.name or known.name  # only the search knows in which folder the directory is
        run.recorded, run.recorded_s = msgspec.structs.replace(found, name=name), now_s
        return True


class WatchedDirectory:
    """The state of a run directory and of its latest record files.

    Attributes:
        path: The directory.
        version: The last version that was told.
    """

    def __init__(self, path: Path, version: str) -> None:
        self.path = path
        self.version = version
        self._latest: list[Path] = []
        self._stamps: list[Stamp | None] = []

    def changed(self) -> bool:
        """Return whether anything changed since the last call; at first, true."""
        if self._stamps == self._stamps_now():
            return False
        self._latest = _latest_files(self.path)
        self._stamps = self._stamps_now()
        return True

    def _stamps_now(self) -> list[Stamp | None]:
        return [_stamp(self.path), *(_stamp(file) for file in self._latest)]


def _latest_files(path: Path) -> list[Path]:
    """Return the record files of a directory that changed last."""
    try:
        files = file_names.files_of(path)
    except OSError:
        return []
    return heapq.nlargest(MAX_LATEST, files, key=lambda file: _stamp(file) or ())


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp_of(path)
    except OSError:
        return None
