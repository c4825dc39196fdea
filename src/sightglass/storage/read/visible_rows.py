"""Which rows of a series are visible, and under which numbers; `restarts` says which are hidden.

Rule 1: no file is changed. Files of one process follow each other and hide nothing, except rows that the writer
repeated: where a write took effect although it failed, and could not be taken back, the next file has the same rows.
Rule 2: numbers continue. The first visible row of a later process has the index after the last visible one before it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError
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
