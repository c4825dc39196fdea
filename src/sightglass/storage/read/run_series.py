"""The series of a run: what each of its processes wrote to each, put together when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import CLOSED, COMPLETE, Columns
from sightglass.core.errors import DamagedError
from sightglass.storage.file_names import writer_of
from sightglass.storage.format.block import Array, Key, Values, columns_of, outline
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.index import ROW, BlockEntries, BlockEntry, IndexRows
from sightglass.storage.run_file import RunFile

from .record_file import RecordFile

# Many blocks of one series as one piece: memory is allocated once, and each block is copied into its place.

USUAL: Final = {"n_events": (np.int64, 1), "flags": (np.uint8, COMPLETE | CLOSED)}
PLAIN: Final = (np.float64, np.int64, np.bool_)


class Concatenation:
    """Concatenates columns; their index numbers may have gaps.

    Attributes:
        n: How many records it has.
    """

    def __init__(self, room: int, max_bytes: int, *, index: int = 0) -> None:
        """Allocate memory.

        Args:
            room: How many records will be added at most.
            max_bytes: How many bytes their values can have at most; more is never allocated.
            index: The index of the result if no record is added.
        """
        self.n = 0
        self._index = index
        self._room = room
        self._max_bytes = max_bytes
        self._cuts: list[tuple[int, int]] = []
        self._next = -1
        self._steps: Any = None
        self._values: Any = None
        self._tracks: list[Any] | None = None
        self._wall_times = np.empty(room, np.float64)
        self._ordinals: Any = None
        self._ordinals_are = "steps"  # as long as they are the same array; else "numbers", or "unknown"
        self._others: dict[str, Any] = dict.fromkeys(USUAL)

    def add(self, columns: Columns) -> None:
        """Append records, at least one; they are copied, unless their values are a list."""
        start, stop = self.n, self.n + len(columns)
        if columns.index != self._next:
            self._cuts.append((start, columns.index))
        self._next = columns.index + len(columns)
        self._add_ordinals(columns, start, stop)
        self._add_steps(columns.steps, start, stop)
        self._wall_times[start:stop] = columns.wall_times
        for name, (dtype, usual) in USUAL.items():
            column = getattr(columns, name)
            if column is not None and self._others[name] is None:
                self._others[name] = np.full(self._room, usual, dtype)
            if column is not None:
                self._others[name][start:stop] = column
        if columns.tracks is not None and self._tracks is None:
            self._tracks = [{} for _ in range(start)]
        if self._tracks is not None:
            self._tracks += columns.tracks or [{} for _ in range(stop - start)]
        self._add_values(columns.values, start, stop)
        self.n = stop

    def _add_ordinals(self, columns: Columns, start: int, stop: int) -> None:
        """Append ordinals; not copied as long as they are the steps: allocating memory takes most of the time."""
        if columns.ordinals is None or self._ordinals_are == "unknown":
            self._ordinals_are, self._ordinals = "unknown", None
            return
        if self._ordinals_are == "steps":
            if columns.ordinals is columns.steps:
                return
            self._ordinals_are, self._ordinals = "numbers", np.empty(self._room, np.int64)
            if start:
                self._ordinals[:start] = self._steps[:start]
        self._ordinals[start:stop] = columns.ordinals

    def columns(self) -> Columns:
        """Return all records, numbered from the first one's index regardless of gaps; columns may share memory."""
        return self._part(0, self.n, self._cuts[0][1] if self._cuts else self._index)

    def pieces(self) -> list[Columns]:
        """Return the records in pieces without gaps."""
        cuts = [*self._cuts, (self.n, 0)]
        return [self._part(start, stop, index) for (start, index), (stop, _) in pairwise(cuts)]

    def _part(self, start: int, stop: int, index: int) -> Columns:
        parts: dict[str, Any] = {
            "steps": self._steps, "wall_times": self._wall_times, "values": self._values,
            "ordinals": self._steps if self._ordinals_are == "steps" else self._ordinals,
            "tracks": self._tracks, **self._others,
        }  # fmt: skip
        if not self.n:
            parts["steps"], parts["values"] = np.empty(0, np.int64), []
        cut: dict[str, Any] = {k: None if v is None else v[start:stop] for k, v in parts.items()}
        return Columns(index=index, **cut)

    def _add_steps(self, steps: Array, start: int, stop: int) -> None:
        if self._steps is None:
            self._steps = np.empty(self._room, steps.dtype)
        elif self._steps.dtype != steps.dtype:
            self._steps = self._steps.astype(np.float64)
        self._steps[start:stop] = steps

    def _add_values(self, values: Values, start: int, stop: int) -> None:
        array = values if isinstance(values, np.ndarray) else None
        if self._values is None:
            self._values = [] if array is None else self._make_room(array)
        room = self._values
        if (
            array is not None
            and not isinstance(room, list)
            and (array.dtype, array.shape[1:]) == (room.dtype, room.shape[1:])
        ):
            room[start:stop] = array
            return
        if not isinstance(room, list):
            self._values = as_list(room[:start])
        self._values += values if array is None else as_list(array.copy())

    def _make_room(self, values: Array) -> Values:
        shape = (self._room, *values.shape[1:])
        fits = math.prod(shape) * values.dtype.itemsize <= self._max_bytes
        return np.empty(shape, values.dtype) if fits else []


def as_list(values: Array) -> list[Any]:
    """Return a column of values as a list, with Python's own numbers for NumPy's default types."""
    return values.tolist() if values.ndim == 1 and values.dtype in PLAIN else list(values)


# The series of one file, those of wide blocks included.
#
# Rule 1: nothing is made for a series before it is asked for: a wide block adds its names to a dictionary, and as long
# as the names are the same, another block adds a row to an index.
# Rule 2: the blocks of a series are in the order of its records, whether they are wide or its own.


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


# Which rows of a series are visible, and under which numbers; `restarts` says which are hidden.
#
# Rule 1: no file is changed. Files of one process follow each other and hide nothing, except rows that the writer
# repeated: where a write took effect although it failed, and could not be taken back, the next file has the same rows.
# Rule 2: numbers continue. The first visible row of a later process has the index after the last visible one before it.

Source = tuple[RecordFile, BlockEntries]
Group = tuple[float, list[Source]]
"""When a process began, and what it wrote to a series."""

PIECE: Final = np.dtype(
    [(name, "<i8") for name in ("group", "source", "entry", "low", "high", "index", "ordinal", "length")]
)
Pieces = npt.NDArray[np.void]
"""Of dtype `PIECE`."""


@dataclass(frozen=True, slots=True, eq=False)
class VisibleRows:
    """The rows of a series that are visible.

    Attributes:
        sources: The files and their blocks.
        pieces: Shape (n_pieces,), dtype `PIECE`: rows `low` to `high` of block `entry` of a source; the index of the
            first of them, and the ordinal of the block's first, from the file; the length of the payload.
        ends: Shape (n_pieces,): how many rows there are up to the end of each piece.
        shifts: How much is added to the ordinals of each group.
        restarts: The rows at which a later process of the run continues.
    """

    sources: list[Source]
    pieces: Pieces
    ends: Any
    shifts: list[int]
    restarts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def index(self, row: int) -> int:
        """Return the index of a row, or the one after the last."""
        if row >= len(self):
            return int(self.pieces["index"][-1] + self.pieces["high"][-1] - self.pieces["low"][-1]) if len(self) else 0
        return int(self.between(row, row + 1)["index"][0])

    def between(self, start: int, stop: int) -> Pieces:
        """Return the pieces of some rows, cut to them."""
        if stop <= start:
            return self.pieces[:0]
        first, last = np.searchsorted(self.ends, [start, stop - 1], side="right")
        pieces = self.pieces[first : last + 1].copy()
        skipped = start - (self.ends[first - 1] if first else 0)
        pieces["low"][0] += skipped
        pieces["index"][0] += skipped
        pieces["high"][-1] -= self.ends[last] - stop
        return pieces

    def column(self, pieces: Pieces, name: str) -> Any:
        """Return a column of the index for the blocks of some pieces."""
        if not len(pieces):
            return np.empty(0, ROW[name])
        starts = np.cumsum([0, *(len(entries) for _, entries in self.sources)])
        column = np.concatenate([entries.rows[name] for _, entries in self.sources])
        return column[starts[pieces["source"]] + pieces["entry"]]

    def read(self, pieces: Pieces) -> Iterator[Columns | None]:
        """Read pieces; `None` for damaged ones. Arrays may be valid until the next piece only."""
        start = 0
        for source, run in groupby(pieces["source"].tolist()):
            stop = start + sum(1 for _ in run)
            part, entries = self.sources[source]
            chosen = pieces[start:stop]
            blocks = loads(part, BlockEntries(entries.key, entries.types, entries.rows[chosen["entry"]]))
            for columns, piece in zip(blocks, chosen.tolist(), strict=True):
                yield None if columns is None else self._cut(columns, piece)
            start = stop

    def _cut(self, columns: Columns, piece: tuple[int, ...]) -> Columns:
        group, _, _, low, high, index, *_ = piece
        shift = self.shifts[group]
        if (low, high) != (0, len(columns)):
            columns = columns.slice(low, high)
        if shift and columns.ordinals is not None:
            columns = replace(columns, ordinals=columns.ordinals + shift)
        return columns.moved(index - columns.index)


def loads(part: RecordFile, entries: BlockEntries) -> Iterator[Columns | None]:
    """Read blocks one after the other; `None` for damaged ones."""
    many = getattr(part, "loads", None)
    if many is not None:
        yield from many(entries)
        return
    for entry in entries:
        try:
            yield part.load(entry)
        except DamagedError:
            yield None


def make(
    groups: Sequence[Group],
    limits: Sequence[float],
    shifts: Sequence[int],
    at_once: Collection[tuple[float, float]] = (),
) -> VisibleRows:
    """Return the visible rows of what several processes wrote to one series.

    Args:
        groups: The earliest first.
        limits: For each, the step from which on its rows are hidden.
        shifts: For each, how much is added to its ordinals.
        at_once: Pairs of processes that wrote at the same time, as they began.
    """
    sources: list[Source] = []
    parts: list[Pieces] = []
    end: int | None = None
    for number, ((_, mine), limit) in enumerate(zip(groups, limits, strict=True)):
        visible = []
        for place, source in enumerate(mine):
            pieces = _once(source, _visible(source, limit), mine[place + 1 :])
            pieces["group"], pieces["source"] = number, len(sources)
            sources.append(source)
            visible.append(pieces)
        joined = _joined(visible)
        if len(joined):
            if end is not None:
                joined["index"] += end - joined["index"][0]
            end = int(joined["index"][-1] + joined["high"][-1] - joined["low"][-1])
        parts.append(joined)
    pieces = _joined(parts)
    ends = np.cumsum(pieces["high"] - pieces["low"])
    return VisibleRows(sources, pieces, ends, list(shifts), _restarts(groups, pieces, ends, at_once))


def _restarts(
    groups: Sequence[Group], pieces: Pieces, ends: Any, at_once: Collection[tuple[float, float]]
) -> tuple[int, ...]:
    """Return the rows at which a process continues; the files of other programs do not say which are of one process."""
    if len(groups) == 1:
        return ()
    ours = [all(part.dialect == "sightglass" for part, _ in sources) for _, sources in groups]
    seams = np.flatnonzero(np.diff(pieces["group"])).tolist()
    pairs = [(int(pieces["group"][at]), int(pieces["group"][at + 1])) for at in seams]
    return tuple(
        int(ends[at])
        for at, (one, other) in zip(seams, pairs, strict=True)
        if ours[one] and ours[other] and (groups[one][0], groups[other][0]) not in at_once
    )


def _joined(parts: Sequence[Pieces]) -> Pieces:
    """Join pieces; those of the one file of a run are not copied, which may be megabytes whenever the file grows."""
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, PIECE), *parts])


def _once(source: Source, pieces: Pieces, later: Sequence[Source]) -> Pieces:
    """Return the pieces of a file without those that the next file of its process repeats."""
    part, entries = source
    following = next((others.rows[0] for _, others in later if len(others)), None)
    # Numbers begin again where a query is recorded a second time, and in each file of other programs.
    if following is None or part.dialect != "sightglass" or not _repeats(following, entries.rows[-1:]).any():
        return pieces
    return pieces[~_repeats(following, entries.rows[pieces["entry"]])]


def _repeats(row: np.void, earlier: IndexRows) -> npt.NDArray[np.bool_]:
    """Return which blocks have no record from before the first one of another block."""
    found: npt.NDArray[np.bool_] = (earlier["index"] >= row["index"]) & (earlier["first_wall"] >= row["first_wall"])
    return found


def _visible(source: Source, limit: float) -> Pieces:
    """Return the rows of a file whose steps are below a limit, and below where its program started again later."""
    part, entries = source
    rows = entries.rows
    limits = np.full(len(rows), limit)
    for one in part.session_starts:
        before = rows["offset"] < one.offset
        limits[before] = np.minimum(limits[before], one.step)
    pieces = np.zeros(len(rows), PIECE)
    pieces["entry"], pieces["high"] = np.arange(len(rows)), rows["n"]
    for name in ("index", "ordinal", "length"):
        pieces[name] = rows[name]
    if (limits == math.inf).all():
        return pieces
    partly = np.flatnonzero((rows["min_step"] < limits) & (rows["max_step"] >= limits)).tolist()
    split: dict[int, list[tuple[int, int]]] = {i: _runs(part, entries, i, limits[i]) for i in partly}
    if not split:
        return pieces[~(rows["min_step"] >= limits)]
    out = []
    for i in np.flatnonzero(~(rows["min_step"] >= limits)).tolist():
        for low, high in split.get(i, [(0, int(rows["n"][i]))]):
            piece = pieces[i].copy()
            piece["low"], piece["high"], piece["index"] = low, high, piece["index"] + low
            out.append(piece)
    return np.array(out, PIECE)


def _runs(part: RecordFile, entries: BlockEntries, i: int, limit: float) -> list[tuple[int, int]]:
    """Return which rows of a block have steps below a limit; none of a damaged block."""
    columns = next(loads(part, entries[i : i + 1]))
    if columns is None:
        return []
    seen = np.concatenate([[False], ~(np.asarray(columns.steps) >= limit), [False]])
    edges = np.flatnonzero(seen[1:] != seen[:-1])
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


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

    def unhidden(self) -> Overlaps:
        """Return of which processes neither hides rows of the other: the later one repeats nothing of the earlier."""
        told = self.told()
        later = [started for started in self._processes if started in told and not told[started].repeats]
        return self.overlaps() | {(one, other) for other in later for one in self._processes if one < other}

    def retracted(self) -> dict[float, float]:
        """Return, by when a process began, the step from which on its records are void, as a later one says."""
        parts = [(began, part) for began, parts in self._processes.items() for part in parts]
        starts = [(began, part, one) for began, part in parts for one in part.session_starts]
        found: dict[float, float] = {}
        for began, part in parts if starts else ():
            last_s, writer = last_wall_time(part), writer_of(part.path.name)
            for later, other, one in starts:  # one that wrote still is another program
                if later > began and one.wall_time >= last_s and writer_of(other.path.name) == writer:
                    found[began] = min(found.get(began, math.inf), one.step)
        return found

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
