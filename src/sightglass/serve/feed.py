"""One stream that viewers share: what came of it, kept in bounded memory, and packed once for all of them.

Theory of operation
    A feed pulls the records of a stream, in a thread; viewers take from it what they have not seen, on the loop.
    Records are numbered as they arrive. Numbers are kept as columns, up to `MAX_POINTS`; beyond, all of them are
    thinned, extremes and gaps kept. Of other values the last `MAX_ITEMS`, or `MAX_ITEM_BYTES` of them, are kept. The
    first value decides which it is; what is no number among numbers is a gap, and counted.

    When the connection is lost but the run lives, the feed asks again. What came before is not taken twice: the run
    repeats its last records, with the numbers they had, or, if it forgot the stream, begins anew with later ones.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.client.stream import Stream
from sightglass.core.errors import RunLostError
from sightglass.core.record import Record
from sightglass.move import registry
from sightglass.see.choose import Form, choose, form_of, is_number
from sightglass.see.thin import keep

from . import wire
from .sources import Source

MAX_POINTS: Final = 2**18
MAX_ITEMS: Final = 256
MAX_ITEM_BYTES: Final = 32 * 2**20
MAX_MESSAGE_BYTES: Final = 8 * 2**20
RETRY_S: Final = 300.0
MAX_STORED: Final = 20_000
MAX_STORED_BYTES: Final = 64 * 2**20
"""How much a live stream keeps by itself; the feed keeps what viewers need."""

COLUMNS: Final = ("number", "index", "step", "wall", "y")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A value that is no number, packed; `number` counts the records as they arrived."""

    number: int
    index: int
    step: float
    wall: float
    value: Any
    n_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """What a viewer takes at once: a message, the cursor behind it, how many records it stands for and leaves out."""

    message: dict[str, Any]
    cursor: int
    n: int
    n_left_out: int


class Feed:
    """A stream that viewers share.

    Attributes:
        source: The run.
        query: The query as it was asked.
        live: Whether a live run answers it.
        stream: The stream, when it was opened.
        n: How many records came.
        n_unfit: How many of them were no numbers where numbers were expected.
        view: What `see.choose` says of the latest value, or `None` before the first.
        ended: Whether no more can come.
        error: Why it ended, if it did not end well.
        lost_s: When the connection was lost, on the monotonic clock, while it is not made anew.
    """

    def __init__(self, source: Source, query: str, *, confirm: bool) -> None:
        self.source = source
        self.query = query
        self.confirm = confirm
        self.live = source.live
        self.stream: Stream | None = None
        self.n = self.n_unfit = 0
        self.view: dict[str, Any] | None = None
        self.ended = False
        self.error: Exception | None = None
        self.lost_s: float | None = None
        self._form: Form | None = None
        self._cursor = 0
        self._last = (-1, -np.inf)
        self._resumed = False
        self._numeric: bool | None = None
        self._columns = {name: np.empty(1024, np.int64 if name in COLUMNS[:2] else np.float64) for name in COLUMNS}
        self._size = 0
        self._items: deque[Item] = deque()
        self._n_item_bytes = 0
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._closed = False

    # In threads

    def open(self) -> None:
        """Ask the run. Errors as in `RemoteRun.stream` and `RecordedRun.stream`."""
        if self.live:
            self.source.holders += 1
            self._held.callback(self._let_go)
            try:
                self.stream = self._asked()
            except BaseException:
                self._held.close()
                raise
            return
        try:
            run = self._held.enter_context(self.source.borrow())
            self.stream = run.stream(self.query)
            self._take_all()
        except BaseException:
            self._held.close()
            raise

    def _asked(self) -> Stream:
        stream = self.source.remote().stream(self.query, confirm=self.confirm)
        # A page that stays open for a day is not to keep a day's records here.
        stream._store._max_records, stream._store._max_bytes = MAX_STORED, MAX_STORED_BYTES
        return stream

    def _let_go(self) -> None:
        self.source.holders -= 1

    def pull(self) -> bool:
        """Take what is new, and tell whether anything is."""
        if self.ended or self.stream is None or self.lost_s is not None:
            return False
        over = self.stream.ended
        self._cursor, records = self.stream.since(self._cursor)
        if records:
            self._take(records)
        if over and not records:
            error = self.stream._store.error
            if self.live and isinstance(error, RunLostError) and self._lives() and not self._closed:
                self.lost_s, self.error = time.monotonic(), error
                return False
            self.error, self.ended = error, True
        return bool(records) or self.ended

    def reconnect(self) -> bool:
        """Ask anew after the connection was lost, as long as the run lives, and tell whether anything came of it."""
        if self.lost_s is None or self._closed:
            return False
        try:
            self.stream = self._asked()
        except Exception:  # noqa: BLE001  whatever it is: what ended the stream is what is told
            if self._lives() and time.monotonic() - self.lost_s < RETRY_S:
                return False
            self.ended = True
        else:
            self._cursor, self._resumed = 0, True
            self.error = None
        self.lost_s = None
        return True

    def _lives(self) -> bool:
        return self.source.entry is not None and registry.alive(self.source.entry.id)

    def _take_all(self) -> None:
        """Take what a recorded run has; of numbers without making records of them."""
        if self.stream is None:
            return
        arrays = self.stream.to_arrays()
        values = arrays.values
        if len(values) and values.ndim == 1 and values.dtype.kind in "biuf":
            self._cursor = len(values)
            self._see(values[-1].item())
            self._numeric = True
            if len(values) > MAX_POINTS:
                kept = keep(values, MAX_POINTS // 4)
            else:
                kept = np.arange(len(values))
            self._append(kept, kept, arrays.steps[kept], arrays.wall_times[kept], values[kept])
            self.n = len(values)

    def _take(self, records: Sequence[Record]) -> None:
        if self._resumed:
            records = [record for record in records if self._new(record)]
            if not records:
                return
            self._resumed = False
        last = records[-1]
        self._last = (last.index, last.wall_time)
        self._see(last.value)
        if self._numeric is None:
            first = next((record.value for record in records if record.value is not None), None)
            self._numeric = first is None or is_number(first)
        numbers = np.arange(self.n, self.n + len(records))
        index, step, wall = (
            np.asarray([getattr(record, name) for record in records]) for name in ("index", "step", "wall_time")
        )
        if self._numeric:
            self._append(numbers, index, step, wall, np.asarray([self._number(record.value) for record in records]))
            self.n += len(records)
            return
        items = [
            self._item(self.n + i, record)
            for i, record in enumerate(records[-MAX_ITEMS:], len(records) - min(len(records), MAX_ITEMS))
        ]
        with self._lock:
            self._items.extend(items)
            self._n_item_bytes += sum(item.n_bytes for item in items)
            while len(self._items) > MAX_ITEMS or (len(self._items) > 1 and self._n_item_bytes > MAX_ITEM_BYTES):
                self._n_item_bytes -= self._items.popleft().n_bytes
            self.n += len(records)

    def _new(self, record: Record) -> bool:
        """Tell whether a record, after the run was asked again, is none that came before."""
        index, wall_time = self._last
        return record.wall_time > wall_time or (record.index > index and record.wall_time == wall_time)

    def _number(self, value: Any) -> float:
        if value is None:
            return float("nan")
        if isinstance(value, bool | int | float) or is_number(value):
            try:
                return float(value)
            except OverflowError:
                return float("inf") if value > 0 else -float("inf")
        self.n_unfit += 1
        return float("nan")

    def _item(self, number: int, record: Record) -> Item:
        try:
            value = wire.pack(record.value)
        except Exception as error:  # noqa: BLE001  a picture that cannot be drawn is not to end the stream
            value = {"problem": f"{type(error).__name__}: {error}"[:500]}
        n_bytes = len(wire.encode_msgpack(value))
        if n_bytes > MAX_MESSAGE_BYTES:
            value, n_bytes = {"too_large": f"{n_bytes:,} bytes"}, 100
        return Item(number=number, index=record.index, step=float(record.step), wall=record.wall_time, value=value,
                    n_bytes=n_bytes)  # fmt: skip

    def _append(self, number: Any, index: Any, step: Any, wall: Any, y: Any) -> None:
        with self._lock:
            n = len(number)
            if self._size + n > MAX_POINTS:
                kept = keep(self._columns["y"][: self._size], MAX_POINTS // 8)
                for column in self._columns.values():
                    column[: len(kept)] = column[kept]
                self._size = len(kept)
            room = len(self._columns["y"])
            if self._size + n > room:
                room = max(2 * room, self._size + n)
                self._columns = {name: np.resize(column, room) for name, column in self._columns.items()}
            for name, column in zip(COLUMNS, (number, index, step, wall, y), strict=True):
                self._columns[name][self._size : self._size + n] = column
            self._size += n

    def _see(self, value: Any) -> None:
        form = form_of(value)
        if form != self._form:
            self._form = form
            made = choose([form])
            self.view = {"view": made.view, "kinds": list(made.kinds), "possible": list(made.possible),
                         "form": {"kind": form.kind, "length": form.length}}  # fmt: skip

    def close(self) -> None:
        """Let the run rest."""
        self._closed = True
        if self.stream is not None and self.live:
            self.stream.close()
        self._held.close()

    # On the loop

    def take(self, cursor: int, points: int) -> Taken | None:
        """Return what came after a cursor, thinned if it is more than can be shown; `None` if there is nothing."""
        if cursor >= self.n:
            return None
        with self._lock:
            n = self.n
            return self._numbers(cursor, n, points) if self._numeric else self._values(cursor, n)

    def _numbers(self, cursor: int, n: int, points: int) -> Taken:
        start = int(np.searchsorted(self._columns["number"][: self._size], cursor))
        part = {name: column[start : self._size] for name, column in self._columns.items()}
        if len(part["y"]) > 2 * points:
            kept = keep(part["y"], points)
            part = {name: column[kept] for name, column in part.items()}
        packed = {name: wire.floats(part[name]) for name in ("step", "wall", "y")}
        message = {"first": cursor, "n": n - cursor, "index": wire.integers(part["index"]), **packed}
        return Taken(message=message, cursor=n, n=n - cursor, n_left_out=n - cursor - len(part["y"]))

    def _values(self, cursor: int, n: int) -> Taken:
        chosen: list[Item] = []
        size = 0
        for item in reversed(self._items):
            size += item.n_bytes
            if item.number < cursor or (chosen and size > MAX_MESSAGE_BYTES):
                break
            chosen.append(item)
        chosen.reverse()
        message = {
            "first": cursor, "n": n - cursor, "step": wire.floats([item.step for item in chosen]),
            "wall": wire.floats([item.wall for item in chosen]),
            "index": wire.integers([item.index for item in chosen]), "values": [item.value for item in chosen],
        }  # fmt: skip
        return Taken(message=message, cursor=n, n=n - cursor, n_left_out=n - cursor - len(chosen))
