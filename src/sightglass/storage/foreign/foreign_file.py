"""What the files of other programs have in common: each kind of value under a tag is a series of its own.

The index and numbers are in memory. Other values are, too (`HeldFile`), or are read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import QueryError
from sightglass.core.values import type_name
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Frame, RandomAccessFile
from sightglass.storage.format.index import BlockEntries, BlockEntry, SessionStart
from sightglass.storage.tensors import slices

from .event_columns import EventSeries


class ForeignFile:
    """A file of another program; see `record_file.RecordFile` for its attributes, of which it has the usual values.

    Attributes:
        series: Its series.
    """

    path: Path
    dialect: str = ""
    stored_as: str = ""
    number: int = 0
    rank: int = 0
    _file: RandomAccessFile

    @property
    def series(self) -> Mapping[Key, EventSeries]:
        """Its series."""
        raise NotImplementedError

    @property
    def torn(self) -> int:
        """How many bytes at the end are not a whole record yet."""
        return 0

    @property
    def session_starts(self) -> Sequence[SessionStart]:
        """Where the program says that it starts again; most continue in another file."""
        return ()

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many values cannot be shown, by what they are."""
        return MappingProxyType({})

    @property
    def stale(self) -> bool:
        """Whether the system no longer knows the file."""
        return self._file.stale

    @property
    def replaced(self) -> bool:
        """Whether it is stale, or another file has its path now, as where copies are renamed."""
        return self._file.replaced

    def entries(self) -> Mapping[Key, BlockEntries]:
        """Return the blocks of each series."""
        return {key: series.entries for key, series in self.series.items()}

    def blocks(self) -> Mapping[Key, BlockEntries]:
        """Return the blocks of each series: none of other programs holds several."""
        return self.entries()

    def sources(self, key: Key) -> tuple[Key, ...]:
        """Return a series, if it is in the file."""
        return (key,) if key in self.series else ()

    def revalidate(self) -> None:
        """Learn how long the file is by now, if its writer has closed it."""
        self._file.revalidate()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block, which is in memory."""
        return self._with(entry, self._block(entry).values)

    def load_slice(self, entry: BlockEntry, row: int, index: slices.Index | str) -> Any:
        """Read a part of the array in one record of a block.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: The array has no such part, or the record is not an array.
        """
        value = self.load(entry).values[row]
        if not isinstance(value, np.ndarray):
            raise QueryError(f"Expected an array to take {index!r:.60} of, got {type_name(value)}")
        return np.array(value[slices.resolve(index, value.shape)])

    def _block(self, entry: BlockEntry) -> Columns:
        return self.series[entry.key].blocks[entry.offset]

    def _with(self, entry: BlockEntry, values: Any) -> Columns:
        """Return a block with the values that were read of it."""
        block = self._block(entry)
        ordinals = entry.ordinal + block.ordinals.astype(np.int64)
        return replace(block, index=entry.index, values=values, ordinals=ordinals)


class HeldFile(ForeignFile):
    """A file whose values are all in memory: `refresh` opens it, and nothing else does."""

    stale = False
    replaced = False

    def __init__(self) -> None:
        """Start without values."""
        self._series: dict[Key, EventSeries] = {}
        self._n_blocks = 0

    @property
    def series(self) -> Mapping[Key, EventSeries]:
        """Its series."""
        return self._series

    def series_of(self, key: Key) -> EventSeries:
        """Return a series, a new one if need be."""
        if key not in self._series:
            types: list[str] = []
            self._series[key] = EventSeries(len(self._series), BlockEntries(key, types), types)
        return self._series[key]

    def append(self, series: EventSeries, type_: str, columns: Columns) -> None:
        """Append values to a series; `type_` is the type of the first."""
        series.append(Frame(self._n_blocks, len(columns.steps)), type_, columns)
        self._n_blocks += 1

    def revalidate(self) -> None:
        """Do nothing: `refresh` looks at all there is."""

    def close(self) -> None:
        """Do nothing: no file is open."""
