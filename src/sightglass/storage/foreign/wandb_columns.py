"""The values of a Weights & Biases log as columns, series by series, in the order of the file.

Numbers and texts are held in memory. Any other value stays in the file and is decoded when it is read. As in event
files, each kind of value under a tag is a series of its own.

What has no step or time of its own has that of the record before. Where such a record may be lost, it is lost, too.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path as FilePath
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns, plain, value_column
from sightglass.core.errors import WireError
from sightglass.core.values import Text, type_name
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Frame
from sightglass.storage.format.index import BlockEntries

from .event_columns import EventSeries
from .event_scan import Indexes
from .wandb_messages import STREAMS, LogMessage, Path, decode, describe
from .wandb_rows import STEP, TIME, Batch, Bools, RowKeys, read_rows
from .wandb_values import RowValue, convert

MAX_LINE: Final = 2**16  # of console output: a longer line is cut, so that what has no line ends takes no more memory

Damaged = Callable[[int, int, str], object]


@dataclass(slots=True)
class Moments:
    """When the records of a batch were made: steps and wall times, -1 and NaN where unknown, and the log event."""

    batch: Batch
    steps: Indexes
    wall_times: npt.NDArray[np.float64]
    ordinals: Indexes


class WandbColumns:
    """Sorts the values of a log into series, batch by batch.

    Attributes:
        files: The run's directory of files.
        series: The series, by their keys.
        passed_over: How many values cannot be shown, by what they are.
        lost: Where bytes of the file are damaged, ascending; filled by the caller.
        told: What the file says of its run, as fields of `run_file.RunFile`.
    """

    def __init__(self, files: FilePath, *, damaged: Damaged) -> None:
        """Start without series; `damaged` is called for malformed records, with offset, length and what is wrong."""
        self.files = files
        self.series: dict[Key, EventSeries] = {}
        self.passed_over: dict[str, int] = {}
        self.lost: list[int] = []
        self.told: dict[str, Any] = {}
        self._damaged = damaged
        self._by_kind: dict[tuple[Path, str], EventSeries] = {}
        self._keys = RowKeys()
        self._lines: dict[str, str | None] = {}
        self._n_lost = 0
        self._n_events = 0
        self._latest: list[tuple[float, int]] = [(0, 0), (0.0, 0)]  # step and time, and how many parts were lost before

    @property
    def n(self) -> int:
        """How many values there are."""
        return sum(series.n for series in self.series.values())

    def read(self, batch: Batch) -> None:
        """Take whole records."""
        rows = read_rows(batch, self._keys)
        records, numbers, values = rows.records, rows.numbers, rows.values
        at = Moments(batch, rows.steps, np.full(len(rows.steps), np.nan), np.zeros(len(rows.steps), np.int64))
        at.wall_times[records[numbers == TIME]] = values[numbers == TIME]
        at.steps[records[numbers == STEP]] = values[numbers == STEP]
        found = list(self._decode(rows.others, at))
        bearing = np.concatenate([records[numbers >= 0], np.array([i for i, _, _ in found], np.int64)])
        unplaced = self._place(at)
        if unplaced[bearing].any():
            for i in np.unique(bearing[unplaced[bearing]]).tolist():
                self._damaged(int(batch.offsets[i]), int(batch.lengths[i]), "the row whose step it has is damaged")
            kept, bearing = ~unplaced[records], bearing[~unplaced[bearing]]
            records, numbers, values = records[kept], numbers[kept], values[kept]
            found = [item for item in found if not unplaced[item[0]]]
        self._number(at, bearing)
        held: dict[tuple[Path, str], list[tuple[int, Any]]] = {}
        for i, path, value in found:
            if value.load is None:
                held.setdefault((path, value.kind), []).append((i, value.value))
            else:
                self._append(at, (path, value.kind), np.array([i]), [Stored(path)], value.type)
        for number, rows_of, column in _grouped(records, numbers, values):
            kind = self._keys.paths[number], "scalar"
            others = held.pop(kind, [])
            order = np.argsort(np.concatenate([rows_of, [i for i, _ in others]]).astype(np.int64), kind="stable")
            if others:
                several = [*column.tolist(), *(value for _, value in others)]
                rows_of = np.concatenate([rows_of, [i for i, _ in others]])[order].astype(np.int64)
                self._append(at, kind, rows_of, value_column([several[i] for i in order.tolist()]))
            else:
                self._append(at, kind, rows_of[order], column[order])
        for kind, items in held.items():
            self._append(at, kind, np.array([i for i, _ in items]), value_column([value for _, value in items]))

    def _append(self, at: Moments, kind: tuple[Path, str], rows: Indexes, values: Any, type_: str = "") -> None:
        """Append a block to the series of one kind of values under a path."""
        series = self._by_kind.get(kind)
        if series is None:
            types: list[str] = []
            key = Key(kind="logged", tag="/".join(kind[0]), values=kind[1])  # type: ignore[arg-type]
            while key in self.series:  # "a" within "b", and "b/a" itself
                key = replace(key, tag=f"{key.tag} ({'.'.join(kind[0])})")
            series = EventSeries(len(self.series), BlockEntries(key, types), types)
            self.series[key] = self._by_kind[kind] = series
        columns = Columns(
            index=0, steps=at.steps[rows], wall_times=at.wall_times[rows], values=values, ordinals=at.ordinals[rows]
        )
        frame = Frame(int(at.batch.offsets[rows[0]]), int(at.batch.lengths[rows[0]]))
        series.append(frame, type_ or type_name(plain(values[0])), columns)

    def _decode(self, others: Bools, at: Moments) -> Iterator[tuple[int, Path, RowValue]]:
        """Decode records one by one: yield the record, the path and the value of each."""
        for i in np.flatnonzero(others).tolist():
            payload = at.batch.payload(i)
            try:
                message = decode(payload, self._keys.flat)
                describe(payload, self.told)
            except WireError as error:
                self._damaged(int(at.batch.offsets[i]), int(at.batch.lengths[i]), f"it is not a record of W&B: {error}")
                continue
            if message.step is not None and 0 <= message.step < 2**62:
                at.steps[i] = message.step
            if message.wall_time is not None:
                at.wall_times[i] = message.wall_time
            if message.passed_over:
                self._pass_over(message.passed_over)
            self._forget_lines(int(at.batch.offsets[i]))
            for path, text in self._console(message):
                yield i, path, RowValue("text", "Text", text)
            for path, found in message.values.items():
                value = convert(found, self.files)
                if value.kind == "unknown":
                    self._pass_over(value.type)
                else:
                    yield i, path, value

    def _pass_over(self, what: str) -> None:
        self.passed_over[what] = self.passed_over.get(what, 0) + 1

    def _forget_lines(self, offset: int) -> None:
        """Forget lines that were begun before damage, as a part of them may be lost."""
        n_lost = bisect.bisect_left(self.lost, offset)
        if n_lost != self._n_lost:
            self._n_lost, self._lines = n_lost, dict.fromkeys(STREAMS.values())

    def _console(self, message: LogMessage) -> Iterator[tuple[Path, Text]]:
        """Yield the whole lines of console output: a record has a part of one, or several."""
        if message.text is not None:
            stream, text = message.text
            begun = self._lines.get(stream, "")
            if begun is None:  # up to the next line that is whole
                _, end, text = text.partition("\n")
                begun = "" if end else None
            if begun is None:
                return
            whole, end, begun = (begun + text).rpartition("\n")
            self._lines[stream] = _shown(begun)[-MAX_LINE:] + "\r" * begun.endswith("\r")
            if end:
                yield tuple(stream.split("/")), Text("\n".join(map(_shown, whole.split("\n"))))
        if message.has_ended:
            for stream, rest in self._lines.items():
                if rest and _shown(rest):
                    yield tuple(stream.split("/")), Text(_shown(rest))
            self._lines.clear()

    def _place(self, at: Moments) -> Bools:
        """Give records without a step or time those of the record before; return which may have those of a lost one."""
        at.wall_times[~np.isfinite(at.wall_times)] = np.nan
        n_lost = np.searchsorted(self.lost, at.batch.offsets)
        unplaced = np.zeros(len(n_lost), bool)
        columns = (at.steps, at.steps >= 0), (at.wall_times, ~np.isnan(at.wall_times))
        for i, (column, known) in enumerate(columns):
            value, n_before = self._latest[i]
            latest = np.maximum.accumulate(np.where(known, np.arange(len(column)), -1))
            column[:] = np.where(latest >= 0, column[latest], value)
            before = np.where(latest >= 0, n_lost[latest], n_before)
            unplaced |= before != n_lost
            self._latest[i] = column[-1].item(), int(before[-1])
        return unplaced

    def _number(self, at: Moments, bearing: Indexes) -> None:
        """Number the records that have values."""
        bears = np.zeros(len(at.steps), bool)
        bears[bearing] = True
        at.ordinals = self._n_events - 1 + np.cumsum(bears)
        self._n_events += int(bears.sum())


@dataclass(frozen=True, slots=True)
class Stored:
    """A value that stays in the file, under a path of its record."""

    path: Path


def _grouped(
    records: Indexes, numbers: Indexes, values: npt.NDArray[np.float64]
) -> Iterator[tuple[int, Indexes, npt.NDArray[np.float64]]]:
    """Yield the number of each key of numbers, with the records and the values of its items."""
    kept = np.flatnonzero(numbers >= 0)
    small = numbers[kept].astype(np.uint16) if len(kept) and numbers.max() < 2**16 else numbers[kept]
    kept = kept[np.argsort(small, kind="stable")]  # of 16 bits: by radix, several times as fast
    for members in np.split(kept, np.flatnonzero(np.diff(numbers[kept])) + 1):
        if len(members):
            yield int(numbers[members[0]]), records[members], values[members]


def _shown(line: str) -> str:
    """Return a line of a console as it stands in the end: without what a carriage return has overwritten."""
    return line.rstrip("\r").rpartition("\r")[2]
