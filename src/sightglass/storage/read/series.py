"""Series: the records of one tag, by row and by step."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from threading import RLock
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

import numpy as np

from sightglass.core.columns import Columns, Record
from sightglass.core.errors import DamagedError, UnknownNameError
from sightglass.storage.format.block import Key, ValueKind
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.series_names import kind_of
from sightglass.storage.run_file import RunFile
from sightglass.storage.tensors import browse, slices
from sightglass.storage.tensors.compare import ATOL, RTOL, Comparison, Measure, When
from sightglass.storage.tensors.digests import STATISTICS
from sightglass.storage.tensors.statistics import Place, TensorStatistics

from .record_file import RecordFile
from .run_digests import RunDigests
from .run_series import Concatenation, Pieces, VisibleRows

# What a series shows of its tensors: tables, statistics, histograms, comparisons, searches; see `tensors.browse`.


class TensorViews:
    """The part of a series that is about its tensors."""

    __slots__ = ()

    def table(
        self: browse.TensorSource, step: float, index: browse.Index = "", *, max_cells: int = slices.MAX_CELLS
    ) -> slices.TensorTable:
        """Read a part of a tensor with at most two free dimensions, such as "[0, :, 2:5]"; see `browse.table`."""
        return browse.table(self, step, index, max_cells=max_cells)

    def statistics(self: browse.TensorSource, step: float, index: browse.Index | None = None) -> TensorStatistics:
        """Return statistics of a tensor, or of a part of it: shape, extremes, mean, norm, counts of NaN."""
        return browse.statistics(self, step, index)

    def histograms(self: browse.TensorSource, **options: Any) -> browse.Histograms:
        """Count the values at all steps in common bins; `browse.histograms` describes the options."""
        return browse.histograms(self, **options)

    def compare(
        self: browse.TensorSource,
        reference: browse.TensorSource | None = None,
        *,
        when: float | When = "same",
        measure: Measure = "difference",
        rtol: float = RTOL,
        atol: float = ATOL,
    ) -> Comparison:
        """Compare the tensors at all steps with those of another series or of this one.

        Args:
            reference: The other series, possibly of another run; by default this one.
            when: The step of the reference: a number, "same" (the nearest), "previous" or "first".
            measure: "difference", "relative" or "close"; see `tensors.compare.compared`.
            rtol: The relative tolerance of "close".
            atol: Its absolute tolerance.
        """
        return Comparison(self, self if reference is None else reference, when, measure, rtol, atol)

    def difference(
        self: browse.TensorSource,
        step: float,
        other_step: float,
        *,
        other: browse.TensorSource | None = None,
        index: browse.Index = "",
    ) -> Any:
        """Subtract the tensor at another step, of this series or another run's, from the one at a step."""
        reference = self if other is None else other
        return Comparison(self, reference, other_step, "difference", RTOL, ATOL).at(step, index)

    def find(self: browse.TensorSource, what: Place) -> browse.Found | None:
        """Search all steps for the first "nan", "inf", "posinf", "neginf", "zero", or the "min", "max", "absmax"."""
        return browse.find(self, what)


P = ParamSpec("P")
T = TypeVar("T")

HEAVY_BYTES: Final = 2**16  # larger blocks of one record are not read for their step: their heads have it
ARRAY: Final = re.compile(r"(\w+)\[([\d, ]*)\]")
MAX_WHOLE: Final = 2.0**53  # beyond it a float64 in a head may be another integer


class SeriesFiles(Protocol):
    """The files that a series is read from.

    Attributes:
        lock: Held while they are read or looked for growth.
        generation: Raised when rows get other numbers.
        digests: Statistics of tensors at each step.
    """

    lock: RLock
    generation: int
    digests: RunDigests

    @property
    def info(self) -> RunFile:
        """What the run says about itself."""

    def view(self, key: Key) -> VisibleRows:
        """Return the rows of a series that are visible."""

    def run_id(self, part: RecordFile) -> str:
        """Return the id of the run that wrote a file."""

    def reopen(self) -> bool:
        """Open files again that another machine has replaced, and return whether there were any."""


def _locked(method: Callable[Concatenate[Series, P], T]) -> Callable[Concatenate[Series, P], T]:
    """Let one thread at a time read the files, a second time if it finds some that have to be opened again."""

    @functools.wraps(method)
    def alone(self: Series, /, *args: P.args, **kwargs: P.kwargs) -> T:
        with self._files.lock:
            try:
                result = method(self, *args, **kwargs)
                if not self._files.reopen():
                    return result
            except DamagedError:
                if not self._files.reopen():
                    raise
            return method(self, *args, **kwargs)

    return alone


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesRun:
    """A run, one of several under one name, in a series.

    Attributes:
        id: Its id, or what tells it apart from the others.
        row: Which row of the series is its first.
        index: The index number of that row.
        ordinal: The number of its event; lower if the run's first rows are hidden.
    """

    id: str
    row: int
    index: int
    ordinal: int


class Series(TensorViews):
    """The records of one tag, in order; any thread may read them.

    Attributes:
        key: What identifies the series.
    """

    def __init__(self, files: SeriesFiles, key: Key) -> None:
        self.key = key
        self._files = files
        self._places: tuple[int, int, Any, Any] = (-1, 0, None, None)
        self._last: tuple[Any, Columns] | None = None

    @property
    def tag(self) -> str:
        """The tag."""
        return self.key.tag

    @property
    def kind(self) -> ValueKind:
        """What the values are: "scalar", "tensor", "histogram", "image", "audio", "table", "text", or "" for others."""
        return self.key.values or kind_of(self.type)

    @property
    def n(self) -> int:
        """How many records there are, including damaged ones."""
        return len(self)

    @_locked
    def __len__(self) -> int:
        return len(self._view)

    @property
    @_locked
    def type(self) -> str:
        """The type of the latest value, such as "float", "float32[3, 4]" or "Histogram"."""
        view = self._view
        if not len(view):
            return ""
        piece = view.pieces[-1]
        return str(view.sources[piece["source"]][1][int(piece["entry"])].type)

    @property
    @_locked
    def types(self) -> set[str]:
        """The types of its blocks, each that of the newest value in it."""
        sources = (entries for _, entries in self._view.sources)
        return {str(entries.types[i]) for entries in sources for i in np.unique(entries.rows["type"]).tolist()}

    @property
    @_locked
    def dtype(self) -> str:
        """The dtype that the latest array was logged with, such as "bool"; empty where values are not arrays."""
        array = ARRAY.fullmatch(self.type)
        return (array and next((e.logged_as for _, e in self._view.sources[::-1] if e.logged_as), array[1])) or ""

    @property
    @_locked
    def stored_as(self) -> str:
        """The dtype that all numbers were stored as, or empty where they have their own."""
        return next((entries.stored_as for _, entries in self._view.sources if entries.stored_as), "")

    @property
    @_locked
    def since(self) -> int:
        """The number of the event from which on it was recorded."""
        return int(self._first("since"))

    @property
    @_locked
    def n_missed(self) -> int:
        """How many events failed, were skipped or were dropped while it was recorded."""
        last: dict[float, int] = {}
        for part, entries in self._view.sources:
            last[part.started] = int(entries.rows["n_missed"][-1]) if len(entries) else 0
        return sum(last.values())

    @property
    @_locked
    def steps(self) -> Any:
        """Shape (n,), int64 or float64; without damaged records."""
        return self._read_places()[0]

    @property
    @_locked
    def wall_times(self) -> Any:
        """Shape (n,), float64, in seconds since the Unix epoch; without damaged records."""
        return self._read_places()[1]

    @property
    @_locked
    def span(self) -> tuple[float, float] | None:
        """The first and the greatest step, from the index; `None` without records.

        A block that a restart cut is read if a row that is hidden may have the greatest step.
        """
        view = self._view
        if not len(view):
            return None
        most, is_cut = view.column(view.pieces, "max_step"), view.pieces["high"] < view.column(view.pieces, "n")
        greatest = float(most[~is_cut].max(initial=-math.inf))
        for piece in view.pieces[is_cut & (most > greatest)]:
            with contextlib.suppress(DamagedError):
                steps = self._block(view, piece).steps[piece["low"] : piece["high"]]
                greatest = max(greatest, float(steps.max()))  # a piece has rows
        first = float(view.column(view.pieces[:1], "first_step")[0])
        return first, greatest if math.isfinite(greatest) else first

    @property
    @_locked
    def last_step(self) -> float:
        """The step of the last record, from the index if it says.

        Raises:
            IndexError: There are no records.
            DamagedError: The record is damaged.
        """
        view = self._view
        piece = view.pieces[-1]
        if view.column(view.pieces[-1:], "n")[0] == piece["high"]:
            return float(view.column(view.pieces[-1:], "last_step")[0])
        return float(self._block(view, piece).steps[piece["high"] - 1])

    @property
    @_locked
    def last_wall_time(self) -> float:
        """The time of the last record, from the index, without reading it; minus infinity without records."""
        view = self._view
        return float(view.column(view.pieces[-1:], "last_wall")[0]) if len(view) else -math.inf

    @_locked
    def place_at(self, wall_time: float) -> tuple[int, float, float] | None:
        """Return the row, the step and the time of the last record that was made by a time; `None` before the first.

        Raises:
            DamagedError: The block that holds it is damaged.
        """
        view = self._view
        made = np.flatnonzero(view.column(view.pieces, "first_wall") <= wall_time)
        for i in made[::-1].tolist():
            piece, stop = view.pieces[i], int(view.ends[i])
            if view.column(view.pieces[i : i + 1], "n")[0] == 1:  # the index says, and values may be large
                step, wall = (view.column(view.pieces[i : i + 1], name)[0] for name in ("last_step", "last_wall"))
                return stop - 1, float(step), float(wall)
            columns = self._block(view, piece)
            rows = np.flatnonzero(columns.wall_times[piece["low"] : piece["high"]] <= wall_time)
            if len(rows):  # a restart may hide the first rows of a block
                row = int(piece["low"] + rows[-1])
                place = stop - int(piece["high"]) + row
                return place, float(columns.steps[row]), float(columns.wall_times[row])
        return None

    @property
    @_locked
    def restarts(self) -> tuple[int, ...]:
        """The rows at which the run, restarted, continues."""
        return self._view.restarts

    @_locked
    def runs(self) -> list[SeriesRun]:
        """Return the runs that made the records: one, and one more for each restart."""
        view, found = self._view, list[SeriesRun]()
        for row in (0, *view.restarts) if len(view) else ():
            piece = view.between(row, row + 1)[0]
            part, _ = view.sources[piece["source"]]
            ordinal = int(piece["ordinal"]) + view.shifts[piece["group"]]
            id = self._files.run_id(part)
            found.append(SeriesRun(id=id, row=row, index=int(piece["index"]), ordinal=ordinal))
        return found

    @property
    @_locked
    def damages(self) -> list[Damage]:
        """The damage found so far in this series, or in bytes whose series is unknown."""
        return [d for part, _ in self._view.sources for d in part.damages if d.concerns(self.tag, self.key.values)]

    @_locked
    def parts(self, start: int = 0, stop: int | None = None) -> list[Columns]:
        """Read records, in pieces whose index numbers have no gaps, without damaged ones.

        Args:
            start: The number of the first, counted from 0.
            stop: The number after the last; by default all.
        """
        return self._join(start, stop).pieces()

    @_locked
    def columns(self, start: int = 0, stop: int | None = None) -> Columns:
        """Read records as one piece, without damaged ones; `parts` shows where that leaves gaps.

        Args:
            start: The number of the first, counted from 0.
            stop: The number after the last; by default all.
        """
        return self._join(start, stop).columns()

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Columns]:
        """Read records as they lie in the files, one block in memory at a time, without damaged ones.

        Arrays are read-only, and valid until the next block is read.

        Args:
            start: The number of the first, counted from 0.
            stop: The number after the last; by default all.
        """
        view = self._view
        start, stop, _ = slice(start, stop).indices(len(view))
        pieces = view.between(start, stop)
        for piece, columns in zip(pieces, view.read(pieces), strict=True):
            if columns is not None:
                yield columns
            elif self._reopened():
                yield from self.blocks(start, stop)
                return
            start += int(piece["high"] - piece["low"])

    def blocks_of(self, rows: Sequence[int]) -> Iterator[tuple[range, Columns | None]]:
        """Read the blocks that hold some rows, one block in memory at a time.

        Args:
            rows: The rows, increasing.

        Yields:
            The visible rows of a block and their records, or `None` in place of a damaged one.
        """
        view = self._view
        chosen = np.unique(np.searchsorted(view.ends, rows, side="right"))
        pieces = view.pieces[chosen]
        stops = view.ends[chosen]
        starts = stops - (pieces["high"] - pieces["low"])
        blocks = view.read(pieces)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True):
            with self._files.lock:
                columns = next(blocks)
            if columns is None and self._reopened():
                yield from self.blocks_of([row for row in rows if row >= start])
                return
            yield range(start, stop), columns

    @_locked
    def _reopened(self) -> bool:
        return self._files.reopen()

    @_locked
    def __getitem__(self, i: int) -> Record:
        """Read one record.

        Raises:
            IndexError: There are fewer records.
            TypeError: `i` is not an integer: `columns` and `parts` read several records.
            DamagedError: The record is damaged.
        """
        if not isinstance(i, int | np.integer):
            raise TypeError(f"Expected the number of a record, got {i!r:.100}; columns(start, stop) reads several")
        i = range(len(self))[i]
        view = self._view
        ((piece),) = view.between(i, i + 1)
        columns = self._block(view, piece)
        low, index = int(piece["low"]), int(piece["index"])
        return columns.moved(index - low - columns.index).record(low, tag=self.tag, run=self._files.info.name)

    def __iter__(self) -> Iterator[Record]:
        run = self._files.info.name
        for start, stop in itertools.pairwise([0, *self._view.ends.tolist()]):
            for columns in self.parts(start, stop):
                yield from (columns.record(i, tag=self.tag, run=run) for i in range(len(columns)))

    @_locked
    def at(self, step: float, index: slices.Index | slices.Entry | str | None = None) -> Any:
        """Read the value at a step; the last one if there are several.

        Args:
            step: The exact step.
            index: A part of an array, such as "[0, :, 2:5]" or an index as in NumPy; only that part is read.

        Raises:
            UnknownNameError: Nothing was recorded at this step; the message names the nearest.
            TypeError: `step` is not a number.
            DamagedError: The record is damaged.
            QueryError: The value does not have this part.
        """
        piece, row = self._find(step)
        part, entries = self._view.sources[piece["source"]]
        if index is not None:
            return part.load_slice(entries[int(piece["entry"])], row, index)
        return self._block(self._view, piece).record(row, tag=self.tag, run="").value

    @_locked
    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return the shape of the array at a step, without reading it; of a number, (). Errors as in `at`."""
        piece, _ = self._find(step)
        entry = self._view.sources[piece["source"]][1][int(piece["entry"])]
        match = ARRAY.fullmatch(entry.type) if entry.n == 1 else None
        if match:
            return tuple(map(int, filter(None, match[2].split(","))))
        return np.shape(browse.array_of(self.tag, self.at(step), texts=True))

    def statistics_by_step(self) -> dict[str, Any]:
        """Return statistics of the tensors or histograms at all steps, without damaged records, each computed once.

        They are kept beside the run once it has ended, so that they are there at once the next time.

        Returns:
            Arrays of shape (n,), such as `polars.DataFrame` takes: `step` and `wall_time`, and under the names of
            `tensors.digests.STATISTICS` what `TensorStatistics` describes: counts as int64, -1 where a histogram does
            not tell, the other statistics as float64, NaN where there is none.
        """
        digests = self._files.digests
        table = digests.read(self, range(len(self)))
        digests.save()
        table = table[table["known"] > 0]
        return {name: table[name].copy() for name in ("step", "wall_time", *STATISTICS)}

    def __repr__(self) -> str:
        return f"<Series {self.key.name!r}, {len(self)} records of {self.type}>"

    @property
    def _view(self) -> VisibleRows:
        return self._files.view(self.key)

    def _first(self, name: str) -> Any:
        view = self._view
        if not len(view):
            return 0
        piece = view.pieces[0]
        return view.sources[piece["source"]][1].rows[name][piece["entry"]]

    def _join(self, start: int, stop: int | None) -> Concatenation:
        view = self._view
        start, stop, _ = slice(start, stop).indices(len(view))
        return _read(view, view.between(start, stop), index=view.index(start))

    def _read_places(self) -> tuple[Any, Any]:
        """Return the steps and wall times, reading those that are new."""
        view, generation = self._view, self._files.generation
        known, n, steps, wall_times = self._places
        if known != generation:
            n, steps, wall_times = 0, np.empty(0, np.int64), np.empty(0)
        if n < len(view):
            pieces = view.between(n, len(view))
            found = [(steps, wall_times)] if n else []
            start = 0
            for heavy, run in groupby((view.column(pieces, "n") == 1) & (pieces["length"] > HEAVY_BYTES)):
                stop = start + sum(1 for _ in run)
                found.append((_head_places if heavy else _read_places)(view, pieces[start:stop]))
                start = stop
            steps, wall_times = (np.concatenate(columns) for columns in zip(*found, strict=True))
            self._places = generation, len(view), steps, wall_times
        return steps, wall_times

    def _block(self, view: VisibleRows, piece: np.void) -> Columns:
        """Read the block of a piece, which is cached for the next call.

        Raises:
            DamagedError: The block is damaged.
        """
        part, entries = view.sources[piece["source"]]
        entry = entries[int(piece["entry"])]
        place = part.path, entry.offset
        if self._last is None or self._last[0] != place:
            self._last = None  # two large arrays would take twice the memory
            self._last = place, part.load(entry)
        return self._last[1]

    def forget(self, *, places: bool) -> None:
        """Drop the cached block, because its file was replaced, and if told, the steps: some may be missing."""
        self._last = None
        if places:
            self._places = (-1, 0, None, None)

    def _find(self, step: float) -> tuple[Any, int]:
        """Find the last record at a step: the piece it is in, and its row in the block."""
        if not isinstance(step, int | float | np.number):
            raise TypeError(f"Expected a step as a number, got {step!r:.100}")
        view = self._view
        least, most = (view.column(view.pieces, name) for name in ("min_step", "max_step"))
        near = {float(x) for x in (most[most < step].max(initial=-np.inf), least[least > step].min(initial=np.inf))}
        problem: DamagedError | None = None
        for i in np.flatnonzero((least <= step) & (step <= most))[::-1].tolist():
            piece = view.pieces[i]
            if view.column(view.pieces[i : i + 1], "n")[0] == 1:
                return piece, 0
            try:
                steps = self._block(view, piece).steps[piece["low"] : piece["high"]]
            except DamagedError as error:
                problem = problem or error
                continue
            rows = np.flatnonzero(steps == step)
            if len(rows):
                return piece, int(piece["low"] + rows[-1])
            near |= {float(x) for x in steps}
        raise problem or self._missing(step, near)

    def _missing(self, step: float, near: set[float]) -> UnknownNameError | DamagedError:
        lost = next((damage for damage in self.damages if damage.step == step), None)
        if lost is not None:
            return DamagedError(str(lost))
        below = max((x for x in near if x < step), default=-np.inf)
        above = min((x for x in near if x > step), default=np.inf)
        nearest = [x for x in (below, above) if np.isfinite(x)]
        error = UnknownNameError("step", step, nearest)
        known = " and ".join(f"{x:.15g}" for x in nearest) or "none"
        error.args = (f"Nothing was recorded for {self.tag!r} at step {step:.15g}; the nearest steps are: {known}",)
        return error


def _read(view: VisibleRows, pieces: Pieces, index: int = 0) -> Concatenation:
    join = Concatenation(int((pieces["high"] - pieces["low"]).sum()), int(pieces["length"].sum()), index=index)
    for columns in view.read(pieces):
        if columns is not None:
            join.add(columns)
    return join


def _read_places(view: VisibleRows, pieces: Pieces) -> tuple[Any, Any]:
    columns = _read(view, pieces).columns()
    return columns.steps, columns.wall_times


def _head_places(view: VisibleRows, pieces: Pieces) -> tuple[Any, Any]:
    """Return the steps and wall times of blocks of one record, from their heads."""
    steps = view.column(pieces, "first_step")
    whole = (steps == np.trunc(steps)) & (np.abs(steps) < MAX_WHOLE)
    return steps.astype(np.int64) if whole.all() else steps, view.column(pieces, "first_wall")
