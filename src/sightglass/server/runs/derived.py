"""Series that a chart computes from those of a run: an expression over tags, or a series over another x.

Records are joined by their step before anything is thinned, so no pair is ever wrong. Then they are a series of numbers
like any other, with the place on x as its step. Over a step track x goes on like steps do; over another series it may
go anywhere, so the records are put in its order.
"""

from __future__ import annotations

import itertools
import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sightglass.client.recorded import tag_expression
from sightglass.client.recorded.plan import parse, plan
from sightglass.client.recorded.run import RecordedRun
from sightglass.client.recorded.tag_expression import Evaluated, concatenated, pieces_of
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Columns, Restart
from sightglass.core.errors import EvaluationError, QueryError, QuerySyntaxError, RunLostError, UnknownNameError
from sightglass.core.joins import SourceJoin
from sightglass.core.process.unpatched import threading
from sightglass.core.source import Source, client_of, made_by, restarts_of_runs, runs_of
from sightglass.server.http_errors import too_large
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording
from sightglass.storage.run_file import is_of_machine

from .scalar_lines import X, numbers

MAX_RECORDS: Final = 2**23  # read for one series: 200 MB while it is computed
MAX_KEPT_BYTES: Final = 128 * 2**20  # of the computed series of a run
_NAME: Final = re.compile(r"[\w/-]+")
_generations = itertools.count(1)
AXES: Final[tuple[X, ...]] = ("step", "wall", "relative")


def axis_of(x: str) -> X:
    """Return the axis of an overview that has the places on x: a computed series has them as its steps."""
    return next((axis for axis in AXES if axis == x), "step")


class DerivedSeries:
    """A computed series, for an `Overview`.

    Attributes:
        key: What identifies it.
        generation: A number that changes when the rows do.
        in_order: Whether its steps are those of a program, which begin again where they go back; else they ascend.
        of_machine: Whether its steps are seconds, see `run_file.is_of_machine`.
        restarts: The rows at which the run, restarted, continues.
    """

    def __init__(self, text: str, x: str, *sources: Source, in_order: bool, of_machine: bool) -> None:
        """Begin without records.

        Args:
            text: What is computed.
            x: What it is over.
            sources: The values, and the places on x unless x is one of `AXES`.
            in_order: Whether x goes on like steps do.
            of_machine: See the attribute.
        """
        self.key = Key(kind="stream", tag=text, query=f"x {x}")  # no query begins like this
        self.in_order = in_order
        self.of_machine = of_machine
        self.generation = next(_generations)
        self.restarts: tuple[int, ...] = ()
        self._sources = sources
        self._join = SourceJoin(sources) if len(sources) > 1 else None
        self._cursor = self._n_seen = 0
        self._columns = concatenated((), 0)

    @property
    def tag(self) -> str:
        """The expression, or the tag."""
        return self.key.tag

    @property
    def n_bytes(self) -> int:
        """The memory that it takes."""
        return 24 * len(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Columns]:
        """Yield the records from one row to before another."""
        yield self._columns.slice(start, stop)

    def refresh(self) -> None:
        """Take in what came.

        Raises:
            QueryError: The expression fails, or there are no values at all.
            RunLostError: The run was started again in its files.
        """
        new = list(self._new())
        if not sum(map(len, new)):
            if not len(self):
                raise self._why_empty()
            return
        for part in new:
            n = len(self._columns)
            found = np.asarray(numbers(self.tag, part.values), np.float64)
            self._columns = concatenated((self._columns, replace(part, values=found)), 0)
            if self.in_order:
                self.restarts = (*self.restarts, *self._restarted(n))
        if not self.in_order:
            self.generation = next(_generations)
            order = np.argsort(self._columns.steps, kind="stable")
            self._columns = replace(
                self._columns, steps=self._columns.steps[order], wall_times=self._columns.wall_times[order],
                values=self._columns.values[order],
            )  # fmt: skip

    def _new(self) -> Iterator[Columns]:
        if self._join is None:
            self._cursor, columns = self._sources[0].since(self._cursor)
            if len(columns):
                yield columns
            return
        for mine, across in pieces_of(self._join):
            self._numbers = mine.numbers
            places = np.asarray(numbers(self._sources[1].tag, across.values), np.float64)
            yield replace(mine, steps=places, indexes=None, n_events=None, flags=None)

    def _restarted(self, n: int) -> Iterable[int]:
        """Return the rows from `n` on at which the run continues."""
        known = restarts_of_runs(self._sources[0])
        begun, self._n_seen = known[self._n_seen :], len(known)
        if self._join is None:
            return [restart.index for restart in begun]
        return [n + int(np.searchsorted(self._numbers, restart.index)) for restart in begun]

    def _why_empty(self) -> Exception:
        first = self._sources[0]
        for source in self._sources:
            if isinstance(source, Evaluated) and source.last_error:
                return EvaluationError(source.last_error)
            if isinstance(source, Once) and source.error is not None:
                return source.error
        if self._join is not None:
            return QueryError(f"Expected {first.tag!r} and {self._sources[1].tag!r} at equal steps, found none")
        return QueryError(f"Expected the tags of {first.tag!r} at equal steps, found none")


class Once:
    """A stream that is read once, so that what was read need not stay in memory."""

    def __init__(self, stream: Stream, track: str = "") -> None:
        """Begin with its first record.

        Args:
            stream: The stream.
            track: The step track whose values take the place of its values, or "".
        """
        self.tag, self.run = track or stream.tag, stream.run
        self.client, self.run_id, self.run_ids = client_of(stream), made_by(stream)[0], tuple(runs_of(stream))
        self._stream, self._track = stream, track

    @property
    def ended(self) -> bool:
        """Whether no further record can arrive."""
        return self._stream.ended

    @property
    def error(self) -> Exception | None:
        """Why the stream failed."""
        return self._stream.error

    @property
    def restarts(self) -> tuple[Restart, ...]:
        """Where runs that began again have their first records."""
        return restarts_of_runs(self._stream)

    def since(self, cursor: int, /) -> tuple[int, Columns]:
        """Return the new records."""
        cursor, columns = self._stream.since(cursor)
        self._stream.forget(cursor)
        if self.error is not None:
            raise self.error
        if self._track:
            tracks = columns.tracks if columns.tracks is not None else [{}] * len(columns)
            columns = replace(columns, values=np.array([track.get(self._track, np.nan) for track in tracks], float))
        return cursor, columns


class DerivedSeriesOfRun:
    """The computed series of one run, kept for the next requests.

    Records are read under the lock of the recording, each for itself, and computed without it: a long expression keeps
    nobody waiting who reads other series.

    Attributes:
        lock: Held while the series are used. Never take it under the lock of the recording.
    """

    def __init__(self, run: RecordedRun, recording: Recording) -> None:
        self.lock = threading.Lock()
        self._run = run
        self._recording = recording
        self._kept: OrderedDict[tuple[str, str], DerivedSeries] = OrderedDict()

    def get(self, text: str, x: str) -> DerivedSeries:
        """Return a series, up to date.

        Args:
            text: A tag, an expression over tags, or a query.
            x: A member of `AXES`, the name of a step track, or a text like `text`.

        Raises:
            QueryError: A text is not valid, is not answered by what was recorded, or fails.
            Problem: There are too many records.
        """
        series = self._kept.pop((text, x), None)
        try:
            if series is not None:
                series.refresh()
        except RunLostError:  # the files have another run's records now
            series = None
        if series is None:
            series = self._made(text, x)
            series.refresh()  # one that fails is not kept
        self._kept[text, x] = series
        n_bytes = sum(kept.n_bytes for kept in self._kept.values())
        while n_bytes > MAX_KEPT_BYTES and len(self._kept) > 1:
            n_bytes -= self._kept.popitem(last=False)[1].n_bytes
        return series

    def _made(self, text: str, x: str) -> DerivedSeries:
        source, read = self._source(text)
        first = read[0]
        if x in AXES:
            return DerivedSeries(text, x, source, in_order=True, of_machine=self._of_machine(read))
        if self._has_track(first, x):
            track = self._read(first, track=x)
            return DerivedSeries(text, x, source, track, in_order=True, of_machine=False)
        try:
            across, read_across = self._source(x)
        except (QueryError, UnknownNameError) as error:
            raise QueryError(f"Expected x as a step track of {first!r} or as a series. {error}") from None
        self._of_machine([*read, *read_across])
        return DerivedSeries(text, x, source, across, in_order=False, of_machine=False)

    def _of_machine(self, texts: Sequence[str]) -> bool:
        """Return whether the series that some texts read have seconds as their steps.

        Raises:
            QueryError: Some have and others have not, so that equal steps mean nothing.
        """
        keys = list(self._recording.keys())
        of_machine = {text: any(map(is_of_machine, plan(parse(text, keys), keys).all_keys)) for text in texts}
        if len(set(of_machine.values())) > 1:
            seconds, steps = (next(text for text in texts if of_machine[text] is which) for which in (True, False))
            raise QueryError(
                f"Expected series that share their steps: those of {seconds!r} are seconds, those of {steps!r} are not."
                " Draw them over time, in one chart"
            )
        return True in of_machine.values()

    def _source(self, text: str) -> tuple[Source, Sequence[str]]:
        """Return what a text stands for, and the texts of the series that it reads."""
        tags = self._run.tags()
        if text in tags:
            return self._read(text), [text]
        if self._answered(text):
            return self._read(text), [text]
        expression = tag_expression.read(text, tags)
        if expression is not None:
            return Evaluated(text, expression, [self._read(tag) for tag in expression.tags]), expression.tags
        if _NAME.fullmatch(text):
            self._recording.series(text)  # which knows what is close to it
        try:
            return self._read(text), [text]
        except QuerySyntaxError:
            tag_expression.check_names(text, tags)  # of tags that other runs have
            raise

    def _answered(self, text: str) -> bool:
        """Return whether the run answers a text as a query."""
        try:
            self._run.series_of(text)
        except QueryError:
            return False
        return True

    def _read(self, text: str, track: str = "") -> Once:
        """Query the run."""
        recording = self._recording
        keys = list(recording.keys())
        # Unlike `stream`, this does not wait for what a live run may still record.
        n = sum(len(recording.series(key)) for key in plan(parse(text, keys), keys).all_keys)
        if n > MAX_RECORDS:
            raise too_large(f"Expected at most {MAX_RECORDS:,} records to compute from, {text!r} has {n:,}")
        stream = self._run.stream(text)
        stream.bound(max_records=2 * MAX_RECORDS, max_bytes=2**32)
        return Once(stream, track)

    def _has_track(self, text: str, name: str) -> bool:
        """Return whether the first or the last record has a step track."""
        if (series := self._run.series_of(text)) is None or not len(series):
            return False
        ends = (series.columns(row, row + 1).tracks for row in (0, len(series) - 1))
        return any(name in track for tracks in ends for track in tracks or ())
