"""The series of a run: what each of its processes wrote to each, put together when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import BlockEntries, BlockEntry
from sightglass.storage.run_file import RunFile

from .record_file import RecordFile
from .visible_rows import Group

Overlaps = frozenset[tuple[float, float]]
"""Pairs of processes that wrote at the same time: when each began, the earlier one first."""


class RunSeries(Mapping[Key, Sequence[Group]]):
    """What each process wrote to each series, the earliest process first."""

    def __init__(self, parts: Sequence[RecordFile] = (), told: Callable[[], Sequence[RunFile]] = tuple) -> None:
        """Take the files, in the order in which they were written.

        Args:
            parts: The files with the records.
            told: Returns what the processes say of themselves, in their order.
        """
        self._told = told
        self._processes: dict[float, list[RecordFile]] = {}
        for part in parts:
            self._processes.setdefault(part.started, []).append(part)
        self._entries = {part: part.entries() for part in parts}
        self._keys: dict[Key, None] | None = None

    def __getitem__(self, key: Key) -> list[Group]:
        found = self._of(key, self._entries)
        if not any(sources for _, sources in found):
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return any(key in entries for entries in self._entries.values())

    def __iter__(self) -> Iterator[Key]:
        if self._keys is None:
            self._keys = dict.fromkeys(key for entries in self._entries.values() for key in entries)
        return iter(self._keys)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def place(self, key: Key) -> Hashable:
        """Return what series have in common whose records lie in the same blocks."""
        return tuple(part.sources(key) for part in self._entries)

    def blocks(self) -> dict[Key, list[Group]]:
        """Return the same by the keys of blocks as they lie in the files: wide ones stand for all their series."""
        blocks = {part: part.blocks() for part in self._entries}
        return {key: self._of(key, blocks) for key in dict.fromkeys(key for some in blocks.values() for key in some)}

    def overlaps(self) -> Overlaps:
        """Return which processes wrote at the same time.

        An earlier process still wrote when a later one began if it has records that the later one had not seen then.
        Other programs' files do not say what was seen: there it has records of a later time than when the other began.
        """
        if len(self._processes) < 2:
            return frozenset()
        ours = [
            (started, max((last_wall_time(part) for part in parts), default=0.0), parts[0].rank)
            for started, parts in self._processes.items()
        ]
        told = self.told()
        return frozenset(
            (one, other)
            for i, (one, last_s, rank) in enumerate(ours)
            for other, _, _ in ours[i + 1 :]
            if _still_wrote(process_of(one, rank), last_s, other, told.get(other))
        )

    def told(self) -> dict[float, RunFile]:
        """Return what each process says of itself, by when it began, for those of which that is known."""
        found: dict[float, RunFile] = {}
        free = list(self._told())
        for started in sorted(self._processes):
            # A process says who it is before its first file, whose name has whole milliseconds.
            before = [run for run in free if run.order < started * 1000 + 1]
            if before:
                found[started] = before[-1]
                free.remove(before[-1])
        return found

    def _of(self, key: Key, entries: Mapping[RecordFile, Mapping[Key, Sequence[BlockEntry]]]) -> list[Group]:
        return [
            (started, [(part, BlockEntries.of(key, entries[part][key])) for part in parts if key in entries[part]])
            for started, parts in self._processes.items()
        ]


def process_of(started: float, rank: int) -> str:
    """Return how the names of the files of a process begin."""
    return f"{round(started * 1000)}-rank{rank}"


def _still_wrote(process: str, last_s: float, began: float, other: RunFile | None) -> bool:
    """Return whether a process still wrote when another one began.

    Args:
        process: How the names of its files begin.
        last_s: When it made its last record.
        began: When the other one began, as the names of its files say.
        other: What the other one says of itself.
    """
    if other is None or not other.place:  # another program, or an earlier version wrote it
        return began < last_s
    return other.seen.get(process, -math.inf) < last_s


def last_wall_time(part: RecordFile) -> float:
    """Return when a file's last record was made, in seconds since the Unix epoch."""
    several = (BlockEntries.of(key, entries).rows for key, entries in part.blocks().items())
    return max((float(rows["last_wall"][-1]) for rows in several if len(rows)), default=0.0)
