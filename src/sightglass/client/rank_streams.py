"""The streams of the ranks of one program, as one: windows merged over ranks, or records with their rank.

A producer has one stream for each rank. They are added by any thread as ranks appear.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from sightglass.core.columns import Columns
from sightglass.core.counts import Statistics
from sightglass.core.errors import QueryError, RunLostError
from sightglass.core.record import Record
from sightglass.query.compiled_stages import last_reducer
from sightglass.query.pieces import Finish
from sightglass.query.query import Query, in_states
from sightglass.query.stages import Period, Reduce
from sightglass.query.states import Numbering, WindowState, unpack

from .record_buffer import RecordBuffer
from .run import RemoteRun
from .stream import Stream
from .window_merger import MemberWindow, MergedWindow, WindowMerger

ADDED: Final = ("n_events", "n_dropped", "n_lost", "n_skipped", "n_errors", "spent_s")


@dataclass(slots=True)
class RankStream:
    """The stream of one rank.

    Attributes:
        run: The client of the rank's run.
        stream: The stream.
        cursor: How far it was read.
        n_restarts: How many of its restarts were seen.
        waited_for: Whether its windows are waited for.
        over: Whether its end was seen.
        shift: How many time spans its clock is ahead of this client's.
    """

    run: RemoteRun
    stream: Stream
    cursor: int = 0
    n_restarts: int = 0
    waited_for: bool = True
    over: bool = False
    shift: int = 0

    @property
    def died(self) -> bool:
        """Whether the rank's process died, and no other one has replaced it so far."""
        return self.run._session.died or isinstance(self.stream.error, RunLostError)

    def read(self) -> Columns:
        """Return its new records."""
        self.cursor, columns = self.stream.since(self.cursor)
        return columns


class RankStreams:
    """What the producers of a group's streams share.

    Attributes:
        ranks: The streams of the ranks, by their number.
        refused: Why ranks that joined later do not answer, by their number.
        closed: Whether the stream was closed.
    """

    def __init__(self, ask: Callable[[int, RemoteRun], RankStream]) -> None:
        """Begin without a rank; `ask` opens the stream of one."""
        self.ranks: dict[int, RankStream] = {}
        self.refused: dict[int, str] = {}
        self.closed = False
        self._ask = ask
        self._new: deque[tuple[int, RankStream]] = deque()

    def open(self, rank: int, run: RemoteRun) -> None:
        """Ask a rank; raises what `RemoteRun.stream` raises."""
        self._new.append((rank, self._ask(rank, run)))

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse: ranks close groups at different moments."""
        raise QueryError("Expected groups that the program ends with run.end_group(…): a client closes none over ranks")

    def close(self) -> None:
        """Close the streams of all ranks."""
        self.closed = True
        self._take_new()
        for one in self.ranks.values():
            one.stream.close()

    def statistics(self) -> Statistics:
        """Return the counts of all ranks together."""
        every = [one.stream.statistics() for one in list(self.ranks.values()) if not one.over]
        return replace(Statistics(), **{name: sum(getattr(each, name) for each in every) for name in ADDED})

    def dead(self) -> list[int]:
        """Return the ranks that died."""
        return [rank for rank, one in self.ranks.items() if one.died]

    def _take_new(self) -> list[int]:
        """Take in the ranks that were opened since the last call, and return them."""
        new = []
        while self._new:
            rank, self.ranks[rank] = self._new.popleft()
            new.append(rank)
        return new

    def _error(self) -> Exception | None:
        """Return why all streams failed; `None` if one did not."""
        errors = [one.stream.error for one in self.ranks.values()]
        return errors[0] if errors and all(errors) else None


class RecordsOfRanks(RankStreams):
    """Produces the records of all ranks as they arrive, each with its rank."""

    def __init__(self, query: Query, *, confirm: bool) -> None:
        """Begin without a rank."""
        super().__init__(self._records_of)
        self._query, self._confirm, self._n = query, confirm, 0

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records of all ranks, by wall time among those that arrived together."""
        self._take_new()
        over = bool(self.ranks) and all(one.stream.ended for one in self.ranks.values())
        fresh = [
            replace(record, rank=rank)
            for rank, one in sorted(self.ranks.items())
            for record in one.read().records(tag=one.stream.tag, run=one.stream.run)
        ]
        fresh.sort(key=lambda record: record.wall_time)
        buffer.extend([replace(record, index=self._n + i) for i, record in enumerate(fresh)])
        self._n += len(fresh)
        if over:
            buffer.end(self._error())

    def _records_of(self, rank: int, run: RemoteRun) -> RankStream:
        return RankStream(run, RemoteRun.stream(run, self._query, confirm=self._confirm))


class WindowsOfRanks(RankStreams):
    """Produces the windows of all ranks, merged."""

    def __init__(
        self, query: Query, size: int, *, confirm: bool, each: bool, hold_s: float, finish: Finish | None = None
    ) -> None:
        """Begin without a rank. Arguments as for `RankGroup.stream`, as are the errors; `finish` makes the results."""
        super().__init__(self._windows_of)
        self._size = size
        in_states(query, Numbering())
        self._query, self._confirm, self._hold_s = query, confirm, hold_s
        (stage,) = (stage for stage in query.stages if isinstance(stage, Reduce))
        self._finish = finish
        self._span_s = stage.window.seconds if isinstance(stage.window, Period) else 0.0
        self._merger = WindowMerger(last_reducer(query), range(size), hold_s=hold_s, each=each)
        self._began_s = time.monotonic()
        self._n = 0
        self._absent = set(range(size))

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the windows that are certain by now."""
        if buffer.ended:
            return
        now_s = time.monotonic()
        for rank in self._take_new():
            self._merger.join(rank)
        self._absent -= self.ranks.keys()
        made: list[MergedWindow[int]] = []
        if self._absent and now_s - self._began_s >= self._hold_s:
            for rank in self._absent:
                made += self._merger.leave(rank, now_s)
            self._absent = set()
        for rank, one in sorted(self.ranks.items()):
            made += self._advance_rank(rank, one, now_s)
        made += self._merger.take(now_s)
        over = bool(self.ranks) and all(one.over for one in self.ranks.values())
        made += self._merger.finish() if over else []
        buffer.extend([self._record(buffer, window) for window in made])
        if over:
            buffer.end(self._error())

    def statistics(self) -> Statistics:
        """Return the counts of all ranks, and how many windows wait, and states came too late."""
        merger, counts = self._merger, super().statistics()
        return replace(
            counts, n_waiting=merger.n_waiting, n_unpaired=merger.n_late, n_errors=counts.n_errors + merger.n_errors,
            last_error=merger.last_error,
        )  # fmt: skip

    def late(self) -> list[int]:
        """Return the ranks that the oldest window waits for."""
        return self._merger.awaited

    def restarted(self) -> list[int]:
        """Return the ranks that were restarted while others go on."""
        return self._merger.restarted

    def _windows_of(self, rank: int, run: RemoteRun) -> RankStream:
        shift = 0
        if self._span_s:
            asked_s = time.time()
            there_s = run.describe().wall_time
            shift = round((there_s - (asked_s + time.time()) / 2) / self._span_s)
        numbering = Numbering(rank, self._size)
        return RankStream(run, run._stream_states(self._query, numbering, confirm=self._confirm), shift=shift)

    def _advance_rank(self, rank: int, one: RankStream, now_s: float) -> list[MergedWindow[int]]:
        """Take the new windows of a rank, and take note of its death, its return and its end."""
        if one.over:
            return []
        merger, died, over = self._merger, one.died, one.stream.ended  # before reading
        made: list[MergedWindow[int]] = []
        restarts = one.stream.restarts
        for record in one.read().exact().records(tag="", run=""):
            while one.n_restarts < len(restarts) and restarts[one.n_restarts].index <= record.index:
                one.n_restarts += 1
                if not self._span_s:  # the numbers of time spans go on
                    merger.restart(rank)
            key, n_values, state = WindowState(*record.value)
            window = MemberWindow(
                state=unpack(state), n_values=n_values, step=record.step, n_events=record.n_events,
                wall_time=record.wall_time - one.shift * self._span_s, complete=record.complete, closed=record.closed,
                steps=record.steps,
            )  # fmt: skip
            made += merger.push(rank, key - one.shift, window, now_s)
        if over:
            one.over = True
            made += merger.leave(rank, now_s, ended=one.stream.error is None)
        elif died and one.waited_for:
            made += merger.leave(rank, now_s)
        elif not died and not one.waited_for:
            merger.join(rank)
        one.waited_for = not died
        return made

    def _record(self, buffer: RecordBuffer, window: MergedWindow[int]) -> Record:
        index, self._n = self._n, self._n + 1
        value = window.value if self._finish is None else self._finish(window.value)
        return Record(
            tag=buffer.tag, index=index, step=window.step, wall_time=window.wall_time, value=value,
            run=buffer.run, closed=window.closed, complete=window.complete, n_events=window.n_events,
            steps=window.steps, missing=window.missing,
        )  # fmt: skip
