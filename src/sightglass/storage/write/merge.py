"""Small blocks merged: series by series, as long as they have the same form.

Rule 1: blocks are held until the next one of their series does not follow them (a hole, another type, a column that the
others do not have), or makes too many. The merged block has the numbers of the first and the `n_missed` of the last.
Rule 2: small blocks are decoded many at once: those whose heads say that their columns lie alike.
Rule 3: a block that would not be written again to the same bytes is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.columns import Columns
from sightglass.storage.format import block
from sightglass.storage.format.block import COLUMNS, HEAD_BYTES, Key
from sightglass.storage.format.index import Heads, IndexRows, heads_at

MERGED_ROWS: Final = 4_096  # as many as a block that was full when it was written
MERGED_BYTES: Final = 2**18
HELD_BYTES: Final = 16 * 2**20  # in memory at most, with the blocks that are read
PAYLOAD_BYTES: Final = 4 * 2**20  # of wide blocks, which are larger
N_SMALL: Final = 4_096  # so many at once that the fixed cost of NumPy calls is small, in some milliseconds
N_ALIKE: Final = 256  # decoded in one step, of about a millisecond
STEP_ITEMS: Final = 64

LAYOUT: Final = np.dtype([("n", "<i8"), ("n_dims", "<i8"), ("size", "<i8"), ("offsets", "<i8", 7), ("codes", "<i8", 7)])
"""What blocks that are decoded at once have in common: where their columns lie, and how long they are."""

Numbers = npt.NDArray[np.int64]
Steps = Generator[None, None, None]
"""Work that is done a little at each `next`."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records of one series that follow each other; without columns, a block that is copied as it is."""

    place: int
    key: Key
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
    form: object
    n_rows: int = 0
    n_bytes: int = 0


class Merge:
    """Merges the small blocks of one file."""

    def __init__(self, heads: Heads, put: Callable[[Sequence[Buffer]], None]) -> None:
        """Begin empty.

        Args:
            heads: The reader of the heads of the file.
            put: Called with the payload of each block, in parts.
        """
        self._heads = heads
        self._put = put
        self._payloads: list[bytes] = []
        self._n_payload_bytes = 0
        self._names: list[int] = []
        self._pending: set[Key] = set()  # whose blocks are in `_payloads`
        self._held: dict[Key, _Held] = {}
        self._n_held_bytes = 0

    @property
    def full(self) -> bool:
        """Whether so many blocks wait to be sorted that it is time for `sort`."""
        return len(self._payloads) >= N_SMALL or self._n_payload_bytes >= PAYLOAD_BYTES

    def take(self, payload: bytes, name: int) -> None:
        """Add a small block, with the number that `Heads.read` gave for it."""
        self._payloads.append(payload)
        self._n_payload_bytes += len(payload)
        self._names.append(name)
        self._pending.add(self._heads.named[name].key)

    def sort(self) -> Steps:
        """Join the small blocks that were added into pieces, and hold these."""
        payloads, names = self._payloads, np.array(self._names, np.int64)
        self._payloads, self._names, self._n_payload_bytes = [], [], 0
        self._pending.clear()
        if not payloads:
            return
        heads = heads_at(b"".join(payload[:HEAD_BYTES] for payload in payloads), HEAD_BYTES * np.arange(len(payloads)))
        yield
        series = np.array([named.series for named in self._heads.named])[names]
        rank = np.empty(len(series), np.int64)
        rank[np.argsort(series, kind="stable")] = np.arange(len(series))
        layouts = _layouts(heads, payloads)
        order = np.lexsort((rank, layouts))
        yield
        pieces: list[_Piece] = []
        for some in _split(order, np.diff(layouts[order]) != 0, N_ALIKE):
            starts = heads["offsets"][some, 0].tolist()
            tails = [payloads[i][start:] for i, start in zip(some.tolist(), starts, strict=True)]
            columns = None if heads["n_dims"][some[0]] else block.decode_alike(tails, heads[some[0]])
            if columns is None:
                for i in some.tolist():
                    pieces.append(self._alone(i, payloads[i], names[i], heads[i]))
                    if heads["n_dims"][i]:
                        yield
            else:
                pieces += self._pieces(some, names[some], heads[some], rank[some], columns, n_bytes=len(tails[0]))
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

    def _alone(self, place: int, payload: bytes, name: int, head: np.void) -> _Piece:
        """Decode a block by itself; one that would not be written again to the same bytes is copied as it is."""
        named, since, n_missed = self._heads.named[name], int(head["since"]), int(head["n_missed"])
        columns: Columns | None = block.decode(memoryview(payload))
        assert columns is not None
        again = block.encode(named.key, columns, segment=named.segment, since=since, n_missed=n_missed)
        if b"".join(again) != payload:
            columns = None
        n_bytes = len(payload) if columns is None or named.key.kind != "wide" else columns.values.nbytes
        return _Piece(
            place, named.key, named.segment, since, n_missed, n_bytes, columns, payload if columns is None else b""
        )

    def _pieces(
        self, places: Numbers, names: Numbers, heads: IndexRows, rank: Numbers, columns: dict[str, Any], *, n_bytes: int
    ) -> Iterator[_Piece]:
        """Cut blocks that were decoded at once, series by series, into pieces in which one record follows the other."""
        n = int(heads["n"][0])
        breaks = (np.diff(rank) != 1) | (np.diff(names) != 0) | (np.diff(heads["since"]) != 0)
        breaks |= np.diff(heads["index"]) != n
        if "ordinals" not in columns:
            columns = {**columns, "ordinals": heads["ordinal"][:, None] + np.arange(n)}
        for piece in _split(np.arange(len(places)), breaks, max(1, MERGED_ROWS // n)):
            start, stop = int(piece[0]), int(piece[-1]) + 1
            parts: dict[str, Any] = {
                name: column[start:stop].flatten()  # a copy: a piece is to hold nothing else in memory
                if isinstance(column, np.ndarray)
                else list(chain.from_iterable(column[start:stop]))
                for name, column in columns.items()
            }
            named = self._heads.named[names[start]]
            yield _Piece(
                int(places[start]), named.key, named.segment,
                int(heads["since"][start]), int(heads["n_missed"][stop - 1]),
                n_bytes * len(piece),
                Columns(index=int(heads["index"][start]), **parts),
            )  # fmt: skip

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
        columns = join_columns([piece.columns for piece in held.pieces if piece.columns is not None])
        self._put(block.encode(first.key, columns, segment=first.segment, since=last.since, n_missed=last.n_missed))
        self._n_held_bytes -= held.n_bytes
        del self._held[first.key]


def _layouts(heads: IndexRows, payloads: Sequence[bytes]) -> Numbers:
    """Number the layouts of blocks."""
    layouts = np.zeros(len(heads), LAYOUT)
    first = heads["offsets"][:, 0].astype(np.int64)
    layouts["n"], layouts["n_dims"], layouts["codes"] = heads["n"], heads["n_dims"], heads["codes"]
    layouts["size"] = np.fromiter(map(len, payloads), np.int64, len(payloads)) - first
    layouts["offsets"] = np.where(heads["codes"] != block.ABSENT, heads["offsets"] - first[:, None], 0)
    return np.unique(layouts.view(f"V{LAYOUT.itemsize}"), return_inverse=True)[1]


def _split(items: Numbers, breaks: npt.NDArray[np.bool_], n_each: int) -> Iterator[Numbers]:
    """Cut items where there is a break between two, and into at most `n_each`."""
    for start, stop in pairwise([0, *(np.flatnonzero(breaks) + 1).tolist(), len(items)]):
        for place in range(start, stop, n_each):
            yield items[place : min(stop, place + n_each)]


def _form(piece: _Piece) -> object:
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


def join_columns(parts: Sequence[Columns]) -> Columns:
    """Join columns of one form, whose records follow each other."""
    if len(parts) == 1:
        return parts[0]

    def column(name: str) -> Any:
        columns = [getattr(part, name) for part in parts]
        if columns[0] is None:
            return None
        return np.concatenate(columns) if isinstance(columns[0], np.ndarray) else list(chain.from_iterable(columns))

    return Columns(index=parts[0].index, **{name: column(name) for name in COLUMNS})
