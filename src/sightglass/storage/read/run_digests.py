"""The digests of a run's tensors: made as they are asked for, kept in memory, and beside the run once it has ended.

Rule 1: a record is read once. What is kept beside the run counts as long as its record files are the same.
Rule 2: nothing is written beside a run whose files changed in the last `SETTLED_S`.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import QueryError
from sightglass.core.process.unpatched import threading
from sightglass.storage import cache_file
from sightglass.storage.format.block import Key
from sightglass.storage.tensors.browse import TensorSource
from sightglass.storage.tensors.digests import ROW, UNREADABLE, Table, digest

NAME: Final = ".sightglass-statistics"
VERSION: Final = 3
MAX_FILE_BYTES: Final = 64 * 2**20  # of 400,000 records
SETTLED_S: Final = 10.0  # coarser than the times of any file system
LOST: Final = np.zeros(1, ROW)[0]
LOST["known"] = UNREADABLE
WORTH_S: Final = 0.25  # of computing; less is done again sooner than a file is read


class RunFiles(Protocol):
    """The files of a run; see `Recording`."""

    path: Path
    rank: int
    generation: int

    def changed(self) -> bool:
        """Return whether there may be something new."""


class KeyedSource(TensorSource, Protocol):
    """A series of a run."""

    key: Key

    def blocks_of(self, rows: Sequence[int]) -> Iterator[tuple[range, Columns | None]]:
        """Read the blocks that hold some rows; see `Series.blocks_of`."""


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    files: dict[str, tuple[int, int]]
    tables: list[tuple[Key, bytes]]


class RunDigests:
    """The digests of a run's tensors and histograms; any thread may ask for them."""

    def __init__(self, recording: RunFiles) -> None:
        self._recording = recording
        self._lock = threading.RLock()
        self._generation = recording.generation
        self._tables: dict[Key, Table] | None = None
        self._unsaved_s = 0.0

    def read(self, series: KeyedSource, rows: Iterable[int] = (), *, until_s: float = float("inf")) -> Table:
        """Return the digests of a series, a row for each record.

        Args:
            series: The series, one of the run's.
            rows: Which records to read if they are not known.
            until_s: When to stop reading them, on the monotonic clock; the first is read in any case.
        """
        with self._lock:
            table = self._table(series)
            wanted = np.zeros(len(table), np.bool_)
            wanted[list(rows)] = True
            wanted &= table["known"] == 0
            began_s = time.monotonic()
            for row, found in _digests(series, np.flatnonzero(wanted)):
                table[row] = found
                if time.monotonic() >= until_s:
                    break
            self._unsaved_s += time.monotonic() - began_s
            return table.copy()

    def save(self) -> None:
        """Keep what was computed beside the run, if it is worth that and the run has come to rest."""
        with self._lock:
            if self._unsaved_s < WORTH_S or not self._tables or self._recording.changed():
                return
            files = cache_file.files_of(self._recording.path, rank=self._recording.rank)
            if not files or max(changed for _, changed in files.values()) / 1e9 > time.time() - SETTLED_S:
                return
            self._unsaved_s = 0.0
            tables = [(key, table.tobytes()) for key, table in self._tables.items()]
            with contextlib.suppress(UnicodeEncodeError):  # a tag with half of a surrogate pair
                data = msgspec.msgpack.encode(_Stored(version=VERSION, files=files, tables=tables))
                if len(data) < MAX_FILE_BYTES:
                    cache_file.keep(self._recording.path, self._name, data, like=next(iter(files)))

    @property
    def _name(self) -> str:
        return f"{NAME}-rank{self._recording.rank}"

    def _table(self, series: KeyedSource) -> Table:
        """Return the table of a series, as long as the series is now."""
        if self._generation != self._recording.generation:
            self._generation, self._tables = self._recording.generation, {}
        if self._tables is None:
            self._tables = self._load()
        n, table = len(series), self._tables.get(series.key)
        if table is None or len(table) > n:
            table = np.zeros(n, ROW)
        elif len(table) < n:
            table = np.concatenate([table, np.zeros(n - len(table), ROW)])
        self._tables[series.key] = table
        return table

    def _load(self) -> dict[Key, Table]:
        """Return what is kept of files that are still the same."""
        data = cache_file.kept(self._recording.path, self._name, max_bytes=MAX_FILE_BYTES)
        if data is None:
            return {}
        try:
            stored = msgspec.msgpack.decode(data, type=_Stored)
            tables = {key: np.frombuffer(rows, ROW).copy() for key, rows in stored.tables}
        except (msgspec.MsgspecError, ValueError):
            return {}
        files = cache_file.files_of(self._recording.path, rank=self._recording.rank)
        return tables if stored.version == VERSION and stored.files == files else {}


def _digests(series: KeyedSource, rows: npt.NDArray[np.intp]) -> Iterator[tuple[int, np.void]]:
    """Yield the digests of some rows, each with its number."""
    for of_block, columns in series.blocks_of(rows.tolist()):
        for row in rows[slice(*np.searchsorted(rows, [of_block.start, of_block.stop]))].tolist():
            try:
                yield row, LOST if columns is None else digest(columns, row - of_block.start, tag=series.tag)
            except QueryError:
                yield row, LOST
