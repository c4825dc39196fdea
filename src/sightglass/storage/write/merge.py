"""Small blocks put together: series by series, as long as they say the same.

Rule 1: blocks are held until the next one of their series does not follow them (a hole, another type, a column that the
others have not), or makes too many. What is written has the numbers of the first and the `n_missed` of the last.
Rule 2: small blocks are decoded many at once, those that are equally long together (`alike`).
Rule 3: a block that would not be written again to the same bytes is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.format import block
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Buffer
from sightglass.storage.format.protobuf import read_varint

from .alike import decode_alike

MERGED_ROWS: Final = 4_096
MERGED_BYTES: Final = 2**18
HELD_BYTES: Final = 16 * 2**20
N_SMALL: Final = 4_096
N_ALIKE: Final = 256
STEP_ITEMS: Final = 64

_COLUMNS: Final = {
    block.STEPS: "steps", block.WALL_TIMES: "wall_times", block.VALUES: "values", block.ORDINALS: "ordinals",
    block.N_EVENTS: "n_events", block.FLAGS: "flags", block.TRACKS: "tracks",
}  # fmt: skip

Steps = Generator[None, None, None]
"""Work that is done a little at each `next`."""


@dataclass(frozen=True, slots=True)
class _Small:
    """A small block: what `told` behind its head, and the numbers of its head."""

    payload: bytes
    told: bytes
    key: Key
    type: str
    segment: int
    numbers: tuple[int, ...]
    """(series, place in it, n, index, ordinal, since, n_missed)."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records of one series that follow each other; without columns, a block that is copied as it is."""

    place: int
    key: Key
    type: str
    segment: int
    since: int
    n_missed: int
    n_bytes: int
    columns: Columns | None
    payload: bytes = b""


@dataclass(slots=True)
class _Held:
    """Pieces of one series that will be a block."""

    pieces: list[_Piece]
    form: Any
    n_rows: int = 0
    n_bytes: int = 0


class Merge:
    """Puts the small blocks of one file together."""

    def __init__(self, put: Callable[[Sequence[Buffer]], None]) -> None:
        """Begin with nothing; `put` is given the payload of each block, in parts."""
        self._put = put
        self._series: dict[Key, list[int]] = {}  # its number, and how many blocks came so far
        self._small: list[_Small] = []
        self._pending: set[Key] = set()  # whose blocks are in `_small`
        self._held: dict[Key, _Held] = {}
        self._n_held_bytes = 0

    @property
    def full(self) -> bool:
        """Whether so many blocks wait to be sorted that it is time for `sort`."""
        return len(self._small) >= N_SMALL

    def take(self, payload: bytes, key: Key, type_: str, counts: Sequence[int], segment: int) -> None:
        """Take in a small block.

        Args:
            payload: Its event.
            key: Its series.
            type_: The type of its first value.
            counts: n, index, ordinal, since and n_missed, as its head tells.
            segment: The number of the file, as its head tells.
        """
        series = self._series.setdefault(key, [len(self._series), 0])
        series[1] += 1
        told = payload[_behind_head(payload) :]
        self._pending.add(key)
        self._small.append(_Small(payload, told, key, type_, segment, (*series, *counts)))

    def sort(self) -> Steps:
        """Sort the small blocks that were read into pieces, and hold these."""
        small, self._small = self._small, []
        self._pending.clear()
        alike: dict[tuple[int, int], list[int]] = {}
        for i in sorted(range(len(small)), key=lambda i: small[i].numbers[0]):
            alike.setdefault((len(small[i].told), small[i].numbers[2]), []).append(i)
        yield
        table = np.array([one.numbers for one in small], np.int64)
        yield
        pieces: list[_Piece] = []
        several = [
            (n, places[start : start + N_ALIKE])
            for (_, n), places in alike.items()
            for start in range(0, len(places), N_ALIKE)
        ]
        for n, some in several:
            for which, columns in decode_alike([small[i].told for i in some], n):
                chosen = np.asarray(some)[which]
                if columns is None:
                    pieces += [_alone(small[i], i) for i in chosen.tolist()]
                else:
                    pieces += _pieces(small, table, chosen, columns, n)
                yield
        for i, piece in enumerate(sorted(pieces, key=lambda piece: piece.place)):
            self._hold(piece)
            if i % STEP_ITEMS == 0:
                yield
        if self._n_held_bytes > HELD_BYTES:
            yield from self._emit_all()

    def finish(self, key: Key) -> Steps:
        """Write all there is of a series."""
        if key in self._pending:
            yield from self.sort()
        if key in self._held:
            self._emit(self._held[key])

    def finish_all(self) -> Steps:
        """Write all there is."""
        yield from self.sort()
        yield from self._emit_all()

    def _emit_all(self) -> Steps:
        for held in list(self._held.values()):
            self._emit(held)
            yield

    def _hold(self, piece: _Piece) -> None:
        held = self._held.get(piece.key)
        form = _form(piece)
        if held is not None and not (form == held.form and _follows(held, piece)):
            self._emit(held)
            held = None
        if piece.columns is None:
            self._put([piece.payload])
            return
        held = held or _Held([], form)
        held.pieces.append(piece)
        held.n_rows += len(piece.columns)
        held.n_bytes += piece.n_bytes
        self._n_held_bytes += piece.n_bytes
        self._held.pop(piece.key, None)
        self._held[piece.key] = held  # at the end: what is held is in the order of the last records

    def _emit(self, held: _Held) -> None:
        """Write a block."""
        first, last = held.pieces[0], held.pieces[-1]
        columns = _joined([piece.columns for piece in held.pieces if piece.columns is not None])
        head = block.head_of(first.key, columns, segment=first.segment, since=last.since, n_missed=last.n_missed)
        if head.type != first.type:
            raise DamagedError(f"Expected values of type {first.type!r}, got {head.type!r}")
        self._put(block.encode(head, columns))
        self._n_held_bytes -= held.n_bytes
        del self._held[first.key]


def _behind_head(payload: bytes) -> int:
    """Return where the columns of a block begin, which `Heads` could read, if it lies as `encode` writes it."""
    view = memoryview(payload)
    try:
        _, place = read_varint(view, 11)
        n, place = read_varint(view, place + 1)
    except WireError:
        return 0
    return place + n + 5


def _alone(small: _Small, place: int) -> _Piece:
    """Decode a block by itself; one that would not be written again to the same bytes is copied as it is."""
    since, n_missed = small.numbers[5:]
    view = memoryview(small.payload)
    head = block.decode_head(view)
    columns: Columns | None = block.decode(view, head)
    assert columns is not None
    if b"".join(block.encode(head, columns)) != small.payload:
        columns = None
    return _Piece(place, small.key, small.type, small.segment, since, n_missed, len(small.told), columns, small.payload)


def _pieces(small: list[_Small], table: Any, chosen: Any, columns: dict[int, Any], n: int) -> Iterator[_Piece]:
    """Cut blocks that were decoded at once, series by series, into pieces in which one record follows the other."""
    series, place, _, index_, ordinal, since, n_missed = table[chosen].T
    breaks = (np.diff(series) != 0) | (np.diff(place) != 1) | (np.diff(index_) != n) | (np.diff(since) != 0)
    n_each = max(1, MERGED_ROWS // n)
    starts = [0, *(np.flatnonzero(breaks) + 1).tolist(), len(chosen)]
    cuts = [cut for start, stop in pairwise(starts) for cut in range(start, stop, n_each)]
    if block.ORDINALS not in columns:
        columns = {**columns, block.ORDINALS: ordinal[:, None] + np.arange(n)}
    for start, stop in pairwise([*cuts, len(chosen)]):
        parts = {
            _COLUMNS[number]: column[start:stop].flatten()  # a copy: what is held holds nothing else
            if isinstance(column, np.ndarray)
            else list(chain.from_iterable(column[start:stop]))
            for number, column in columns.items()
        }
        first = small[int(chosen[start])]
        yield _Piece(
            int(chosen[start]), first.key, first.type, first.segment, int(since[start]), int(n_missed[stop - 1]),
            (stop - start) * len(first.told), Columns(index=int(index_[start]), **parts),
        )  # fmt: skip


def _form(piece: _Piece) -> Any:
    """Return what the pieces of one block have in common."""
    columns = piece.columns
    if columns is None:
        return None
    values = columns.values
    form = (values.dtype, values.shape[1:]) if isinstance(values, np.ndarray) else ()
    present = [column is None for column in (columns.n_events, columns.flags, columns.tracks)]
    return piece.since, columns.steps.dtype, form, present


def _follows(held: _Held, piece: _Piece) -> bool:
    last = held.pieces[-1].columns
    assert last is not None
    assert piece.columns is not None
    fits = held.n_rows + len(piece.columns) <= MERGED_ROWS and held.n_bytes + piece.n_bytes <= MERGED_BYTES
    return fits and piece.columns.index == last.index + len(last)


def _joined(parts: list[Columns]) -> Columns:
    if len(parts) == 1:
        return parts[0]

    def column(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        if columns[0] is None:
            return None
        return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else list(chain.from_iterable(columns))

    return Columns(index=parts[0].index, **{name: column(name) for name in _COLUMNS.values()})
