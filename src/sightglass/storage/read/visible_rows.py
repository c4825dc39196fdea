"""Which rows of a series are visible, and under which numbers, when a run was restarted.

Rule 1: no file is changed. A process that continues at a lower step hides, in each series, what earlier processes wrote
from that step on. Files of one process follow each other and hide nothing, except rows that the writer repeated: where
a write took effect although it failed, and could not be taken back, the next file has the same rows.
Rule 2: numbers continue. The first visible row of a later process has the index after the last visible one before it.
Numbers of events move by the same amount for all series of one event, so they still fit together: the series that has
the first record of the event in the later process decides by how much.
Rule 3: ends of groups have no steps of their own: they are visible if their events are.
Rule 4: nothing hides the history of commands: they were applied, whether or not their steps are still visible.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, QueryError
from sightglass.query.parser import as_query
from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import ROW, BlockEntries, IndexRows

from .record_file import RecordFile

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
    """

    sources: list[Source]
    pieces: Pieces
    ends: Any
    shifts: list[int]

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


def make(groups: Sequence[Group], limits: Sequence[float], shifts: Sequence[int]) -> VisibleRows:
    """Return the visible rows of what several processes wrote to one series.

    Args:
        groups: The earliest first.
        limits: For each, the step from which on its rows are hidden.
        shifts: For each, how much is added to its ordinals.
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
    return VisibleRows(sources, pieces, np.cumsum(pieces["high"] - pieces["low"]), list(shifts))


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
    """Return the rows of a file whose steps are below a limit."""
    part, entries = source
    rows = entries.rows
    pieces = np.zeros(len(rows), PIECE)
    pieces["entry"], pieces["high"] = np.arange(len(rows)), rows["n"]
    for name in ("index", "ordinal", "length"):
        pieces[name] = rows[name]
    if limit == math.inf:
        return pieces
    partly = np.flatnonzero((rows["min_step"] < limit) & (rows["max_step"] >= limit))
    split: dict[int, list[tuple[int, int]]] = {int(i): _runs(part, entries, int(i), limit) for i in partly}
    if not split:
        return pieces[~(rows["min_step"] >= limit)]
    out = []
    for i in np.flatnonzero(~(rows["min_step"] >= limit)).tolist():
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


def limits_of(groups: Sequence[Group]) -> list[float]:
    """Return, for each process, the step from which on its rows are hidden by later ones."""
    limits = []
    limit = math.inf
    for _, sources in reversed(groups):
        limits.append(limit)
        first = next((float(entries.rows["first_step"][0]) for _, entries in sources if len(entries)), math.inf)
        limit = min(limit, first if not math.isnan(first) else math.inf)
    return limits[::-1]


def event_of(key: Key) -> str:
    """Return the event that the ordinals of a series count."""
    match key.kind:
        case "logged":
            return "log"
        case "groups" | "snapshot":
            return key.tag
        case "stream":
            try:
                return as_query(key.query).event
            except QueryError:
                return f"\0{key.query}"
    return f"\0{key.kind}"


class Restarts:
    """How the processes of one run follow each other: the visible rows of all its series."""

    def __init__(self, series: Iterable[tuple[Key, Sequence[Group]]]) -> None:
        """Take the blocks of each series from each process, the earliest first."""
        self._groups = dict(series)
        self._views: dict[Key, VisibleRows] = {}
        self._counted: dict[str, tuple[list[int], list[float]]] = {}
        self._keys: dict[str, list[Key]] | None = None

    def view(self, key: Key) -> VisibleRows:
        """Return the rows of a series that are visible."""
        if key not in self._views:
            self._views[key] = self._make(key, self._groups[key])
        return self._views[key]

    def _make(self, key: Key, groups: Sequence[Group]) -> VisibleRows:
        n = len(groups)
        if n == 1 or all(not sources for _, sources in groups[:-1]):
            return make(groups, [math.inf] * n, self._shifts(key)[0] if n > 1 else [0])
        if key.kind == "commands":
            return _counting(groups)
        shifts, cuts = self._shifts(key)
        if key.kind == "groups":
            limits = [min(cuts[k + 1 :], default=math.inf) - shifts[k] + 1 for k in range(n)]
        else:
            limits = limits_of(groups)
        return make(groups, limits, shifts)

    def _shifts(self, key: Key) -> tuple[list[int], list[float]]:
        """Return how much is added to the ordinals of an event for each process, and where each continues."""
        event = event_of(key)
        if self._keys is None:
            self._keys = {}
            for other in self._groups:
                if other.kind not in ("groups", "commands"):
                    self._keys.setdefault(event_of(other), []).append(other)
        if event not in self._counted:
            self._counted[event] = self._count(self._keys.get(event, []), len(self._groups[key]))
        return self._counted[event]

    def _count(self, keys: Sequence[Key], n: int) -> tuple[list[int], list[float]]:
        groups = {key: self._groups[key] for key in keys}
        views = {key: make(found, limits_of(found), [0] * n) for key, found in groups.items()}
        shifts, cuts = [0], [math.inf]
        for k in range(1, n):
            ends = {key: _end(view, k, shifts) for key, view in views.items()}
            firsts = {key: first for key, view in views.items() if (first := _first(view, k)) is not None}
            both = [key for key in firsts if ends[key] is not None]
            if both:
                anchor = min(both, key=lambda key: firsts[key])
                end = ends[anchor]
                shifts.append((end or 0) - firsts[anchor])
                cuts.append(end or 0)
            else:
                end = max((end for end in ends.values() if end is not None), default=0)
                shifts.append(end if firsts else shifts[-1])
                cuts.append(end if firsts else math.inf)
        return shifts, cuts


def _first(view: VisibleRows, group: int) -> int | None:
    """Return the first ordinal that a process has."""
    pieces = view.pieces[view.pieces["group"] == group]
    return int(pieces["ordinal"][0]) if len(pieces) else None


def _end(view: VisibleRows, group: int, shifts: Sequence[int]) -> int | None:
    """Return the ordinal after the last visible one of earlier processes."""
    pieces = view.pieces[view.pieces["group"] < group][-1:]
    if not len(pieces):
        return None
    columns = next(view.read(pieces))
    piece = pieces[0]
    if columns is None or columns.ordinals is None:
        last = int(piece["ordinal"] + piece["high"] - 1)
    else:
        last = int(columns.ordinals[-1])
    return last + shifts[int(piece["group"])] + 1


def _counting(groups: Sequence[Group]) -> VisibleRows:
    """Return all rows of a series whose ordinals are its own."""
    n = len(groups)
    view = make(groups, [math.inf] * n, [0] * n)
    shifts = [0]
    for k in range(1, n):
        shifts.append((_end(view, k, shifts) or 0) - (_first(view, k) or 0))
    return VisibleRows(view.sources, view.pieces, view.ends, shifts)
