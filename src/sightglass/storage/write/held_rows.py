"""Records that are held until they make a block: the pieces of each series, or group of series."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.guarded import message
from sightglass.core.values import n_bytes
from sightglass.storage.format.block import Key
from sightglass.storage.format.wide import TALL_ROWS

from .merge import join_columns
from .segment import Rows
from .series_states import SeriesState

FULL_ROWS: Final = 4_096  # the head of a block then costs a twentieth of a byte for each record
FULL_BYTES: Final = 4 * 2**20
PIECE_BYTES: Final = 1_000  # about what a piece takes in memory besides its values


class HeldRows:
    """Holds the pieces of all series.

    Attributes:
        n_rows: How many records are held.
        n_bytes: About how many bytes they take.
    """

    def __init__(self) -> None:
        """Begin empty."""
        self.n_rows = 0
        self.n_bytes = 0
        self._holding: dict[Key, SeriesState] = {}
        self._retired: list[Rows] = []  # of groups that were split: these come before later records of their series

    def add(self, series: SeriesState, columns: Columns) -> None:
        """Hold a piece of a series or a group."""
        values, n_missed = columns.values, series.n_missed + series.n_lost
        size = PIECE_BYTES + (values.nbytes if isinstance(values, np.ndarray) else sum(map(n_bytes, values)))
        series.pieces.append(Rows(key=series.key, columns=columns, since=series.since, n_missed=n_missed))
        series.n_rows += len(columns)
        series.n_bytes += size
        self.n_rows += len(columns) * series.n_series
        self.n_bytes += size
        self._holding[series.key] = series

    def retire(self, group: SeriesState) -> None:
        """Keep what a group holds apart from records that come later: it is to be split."""
        if group.pieces:
            blocks = [*_blocks(group, self._release(group))]
            self._retired += blocks
            self.n_rows += sum(rows.n_records for rows in blocks)

    def take(self, *, all: bool, lose: Callable[[SeriesState, int, str], None]) -> Iterator[Rows]:
        """Take away the pieces of full blocks, or all pieces.

        Args:
            all: Whether to take all.
            lose: Called for pieces that make no block: of which series, how many records, and why.
        """
        while self._retired:
            rows = self._retired.pop(0)
            self.n_rows -= rows.n_records
            yield rows
        for series in list(self._holding.values()):
            if all or series.n_rows >= FULL_ROWS or series.n_bytes >= FULL_BYTES:
                pieces = self._release(series)
                try:
                    blocks = list(_blocks(series, pieces))
                except Exception as error:  # noqa: BLE001  whatever its values do, it costs only its own series
                    lose(series, sum(len(piece.columns) for piece in pieces), message(error))
                    continue
                yield from blocks

    def drop(self) -> int:
        """Drop all records that are held, and return how many there were; their numbers stay a hole."""
        n_dropped, self.n_rows, self.n_bytes = self.n_rows, 0, 0
        for series in self._holding.values():
            series.n_lost += series.n_rows
            series.pieces, series.n_rows, series.n_bytes = [], 0, 0
        self._holding.clear()
        self._retired.clear()
        return n_dropped

    def _release(self, series: SeriesState) -> list[Rows]:
        """Take away what a series or a group holds."""
        pieces, series.pieces = series.pieces, []
        self.n_rows -= series.n_rows * series.n_series
        self.n_bytes -= series.n_bytes
        series.n_rows = series.n_bytes = 0
        del self._holding[series.key]
        return pieces


def _blocks(series: SeriesState, pieces: Iterable[Rows]) -> Iterator[Rows]:
    """Join pieces to blocks: those of a group to a wide block, or to one for each series if there are many rows."""
    for rows in _together(pieces):
        if not series.tags or len(rows.columns) < TALL_ROWS:
            yield rows
            continue
        for tag, values in zip(series.tags, np.ascontiguousarray(rows.columns.values.T), strict=True):
            yield replace(rows, key=Key(kind="logged", tag=tag), columns=replace(rows.columns, values=values))


def _together(pieces: Iterable[Rows]) -> Iterator[Rows]:
    """Join pieces of one series that fit together."""
    group: list[Rows] = []
    for piece in pieces:
        if group and not _fit(group[-1].columns, piece.columns):
            yield replace(group[-1], columns=join_columns([one.columns for one in group]))
            group = []
        group.append(piece)
    if group:
        yield replace(group[-1], columns=join_columns([one.columns for one in group]))


def _fit(one: Columns, other: Columns) -> bool:
    return other.index == one.index + len(one) and _form(one) == _form(other)


def _form(columns: Columns) -> Any:
    values = columns.values
    form = str(values.dtype) if isinstance(values, np.ndarray) else ""
    return form, columns.steps.dtype, columns.n_events is None, columns.tracks is None
