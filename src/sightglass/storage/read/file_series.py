"""The series of one file, those of wide blocks included.

Rule 1: nothing is made for a series before it is asked for: a wide block adds its names to a dictionary, and as long as
the names are the same, another block adds a row to an index.
Rule 2: the blocks of a series are in the order of its records, whether they are wide or its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError
from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import BlockEntries, IndexRows
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.wide import columns_of, outline


class FileSeries(Mapping[Key, BlockEntries]):
    """The blocks of each series of a file; it may grow.

    Attributes:
        blocks: The blocks as they lie in the file: wide ones under the key that they have in common.
        columns: Of the key of wide blocks, which column each series has.
    """

    def __init__(self) -> None:
        """Begin without blocks."""
        self.blocks: dict[Key, BlockEntries] = {}
        self.columns: dict[Key, dict[str, int]] = {}
        self._wide: dict[str, tuple[Key, ...]] = {}

    def add(self, entries: BlockEntries) -> None:
        """Add the first blocks of a key.

        Raises:
            WireError: They are wide, and do not name their series.
        """
        key = entries.key
        if key.kind == "wide":
            columns = self.columns[key] = columns_of(key)
            again = {tag: (*self._wide[tag], key) for tag in columns.keys() & self._wide.keys()}
            self._wide.update(dict.fromkeys(columns, (key,)))
            self._wide.update(again)
        self.blocks[key] = entries

    def sources(self, key: Key) -> tuple[Key, ...]:
        """Return under which keys of `blocks` a series lies."""
        own = (key,) if key.kind != "wide" and key in self.blocks else ()
        wide = self._wide.get(key.tag, ()) if key.kind == "logged" else ()
        return own + wide

    def key_at(self, key: Key, offset: int) -> Key:
        """Return the key of the block of a series at an offset: the series itself, or a wide block."""
        sources = self.sources(key)
        return next((source for source in sources if offset in self.blocks[source].rows["offset"]), key)

    def pick(self, columns: Columns, key: Key, tag: str) -> Columns:
        """Return the records of one series of a wide block.

        Raises:
            DamagedError: The block has not a number for each of its series.
        """
        places, values = self.columns[key], columns.values
        if not isinstance(values, np.ndarray) or values.shape[1:] != (len(places),):
            raise DamagedError("a wide block has not a number for each of its series")
        return replace(columns, values=np.ascontiguousarray(values[:, places[tag]]))

    def __getitem__(self, key: Key) -> BlockEntries:
        found = [self.blocks[source] for source in self.sources(key)]
        if not found:
            raise KeyError(key)
        if len(found) == 1:
            return found[0] if found[0].key == key else BlockEntries(key, found[0].types, found[0].rows)
        return BlockEntries(key, found[0].types, _in_order([entries.rows for entries in found]))

    def __contains__(self, key: object) -> bool:
        return isinstance(key, Key) and bool(self.sources(key))

    def __iter__(self) -> Iterator[Key]:
        for key in self.blocks:
            if key.kind != "wide":
                yield key
        for tag in self._wide:
            key = Key(kind="logged", tag=tag)
            if key not in self.blocks:
                yield key

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _in_order(several: list[IndexRows]) -> IndexRows:
    rows = np.concatenate(several)
    return rows[np.argsort(rows["index"], kind="stable")]


def of_series(damage: Damage, key: Key, step: float) -> Damage:
    """Say whose records are damaged, and from which step on; those of a wide block belong to many series."""
    if key.kind == "wide":
        return replace(damage, what=f"{damage.what}: records of {outline(key)}", step=step)
    return replace(damage, tag=key.tag, step=step)
