"""The ranks of one program, asked as one run."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from sightglass.client.live_runs import LiveRuns, Reachable
from sightglass.client.many.window_merger import HOLD_S, MemberWindow, MergedWindow, WindowMerger
from sightglass.client.resumable_stream import RecordBuffer
from sightglass.client.run import RemoteRun
from sightglass.client.session import Session
from sightglass.client.streams.arrivals import arrivals
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Columns, Record
from sightglass.core.counts import Statistics
from sightglass.core.errors import QueryError, RunLostError, SightglassError, warn_user
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message
from sightglass.query.parser import as_query
from sightglass.query.pieces import Finish, over_pieces
from sightglass.query.pipeline import last_reducer
from sightglass.query.query import Query, in_states
from sightglass.query.reduction import Numbering, WindowState, unpack
from sightglass.query.stages import Period, Reduce

CLOSE_S: Final = 2.0  # a round takes milliseconds, and on a busy machine connecting to a rank that begins takes longer
LOOK_S: Final = 1.0  # how late a rank that starts may be noticed; reading the registry takes less than a millisecond

Connect = Callable[[Reachable], RemoteRun]


def members(group: str, runs: Sequence[Reachable]) -> dict[int, Reachable]:
    """Return the live ranks of the newest program of a group, by their number; none if there is no group.

    A single rank is a group only if its program says so: the environment may name ranks that never begin a run.

    Args:
        group: The name of the group.
        runs: The live runs, the newest first.
    """
    named = [(run.entry, run) for run in runs if run.entry and run.entry.group == group and run.entry.n_ranks > 1]
    found: dict[int, Reachable] = {}
    for entry, run in named:
        if entry.job == named[0][0].job:
            found.setdefault(entry.rank, run)
    if len(found) < 2 and not any(entry.declared for entry, run in named if run in found.values()):
        return {}
    n_others = len(named) - len(found)
    if n_others:
        warn_user(
            f"Several programs named {group!r} are live: connected to the newest; {n_others} runs belong to others",
            UserWarning,
        )
    return dict(sorted(found.items()))


class RankGroup(RemoteRun):
    """The ranks of one program, as one run: `sightglass.connect` returns it for a group's name.

    `stream` answers for all ranks. Everything else goes to the lowest rank: commands reach all ranks through
    `Ranks(agree=…)`. Ranks that start later, or again, join.

    Attributes:
        n_ranks: How many ranks the program has.
        ranks: The ranks that are connected, by their number: each is a run of its own.
    """

    def __init__(self, group: str, found: dict[int, Reachable], connect: Connect, live: LiveRuns) -> None:
        """Connect to the ranks that were found; `live` has those that begin later, and is closed with the group."""
        self._group, self._connect, self._live = group, connect, live
        first = next(run.entry for run in found.values() if run.entry)
        self.n_ranks, self._job = first.n_ranks, first.job
        self.ranks: dict[int, RemoteRun] = {}
        self._ids: dict[int, str] = {}
        self._problems: dict[int, str] = {}
        self._producers: list[RecordsOfRanks | WindowsOfRanks] = []
        self._guard = threading.Lock()
        self._closing = False
        self._rounds = OwnedRounds(self, leave=live.close)
        for rank, run in found.items():
            self._join(rank, run)
        if not self.ranks:
            raise RunLostError(f"No rank of {group!r} could be reached: {'; '.join(self._problems.values())}")
        super().__init__(self.ranks[min(self.ranks)]._session)
        self._watch = Worker("ranks", self._rounds.round)
        self._watch.wake()

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._group

    @property
    def ended(self) -> bool:
        """Whether all ranks have ended, or this client has left them."""
        return all(run.ended for run in list(self.ranks.values()))

    @property
    def lost(self) -> str:
        """Which ranks died, or are out of reach at the moment; else empty."""
        return "; ".join(f"rank {rank}: {run.lost}" for rank, run in sorted(self.ranks.items()) if run.lost)

    def stream(
        self,
        query: Query | str,
        *,
        confirm: bool = False,
        since: Literal["start"] | None = None,
        by: Literal["rank"] | None = None,
        hold_s: float = HOLD_S,
    ) -> Stream:
        """Send a query to all ranks, and return one stream.

        A reducer merges over ranks, window by window: a mean is that of all their events. Event `i` of rank `r` counts
        as event `i * n_ranks + r`, which is the order of `first`, `last` and `collect`. Windows with `every=n` belong
        together by their number, with `per` and groups by the number of the boundary, with a time span by their time,
        with `when` if the condition held at the same event. Without a reducer, records come with their `rank`.

        `norm`, `sum`, `mean`, `size`, `min` and `max` of `pieces(x)` are those of the whole array that is spread over
        the ranks, at each event.

        Args:
            query: As for `RemoteRun.stream`. With a reducer, it ends in this reducer, whose states merge.
            confirm: Likewise, for all ranks.
            since: Not for several ranks.
            by: "rank" for the results of all ranks as a mapping from their numbers, instead of one result.
            hold_s: How long a window waits for ranks that are late. After that it is not complete, and `missing` of its
                record names them. A rank that died is not waited for.

        Raises:
            QueryError: The query is not valid, or its reducer does not merge.
            UnconfirmedError: The query has a cost that must be confirmed.
            RunLostError: A rank does not answer.
        """
        parsed = as_query(query)
        asked, finish = over_pieces(parsed)
        if finish is not None and by is not None:
            raise QueryError(f"Expected by=None for a query over all pieces, got by={by!r}")
        reduces = any(isinstance(stage, Reduce) for stage in asked.stages)
        if since is not None:
            raise QueryError("Expected since=None for several ranks: open their directory with sightglass.open")
        if by not in (None, "rank") or (by and not reduces):
            raise QueryError(f"Expected by='rank' with a reducer, such as last(every=1), or None, got by={by!r}")
        producer: RecordsOfRanks | WindowsOfRanks
        if reduces:
            each = by is not None
            producer = WindowsOfRanks(
                asked, self.n_ranks, confirm=confirm, each=each, hold_s=hold_s, finish=finish
            )  # fmt: skip
        else:
            producer = RecordsOfRanks(parsed, confirm=confirm)
        with self._guard:
            try:
                for rank, run in sorted(self.ranks.items()):
                    if not run.ended:
                        producer.open(rank, run)
            except BaseException:  # an interrupt
                producer.close()
                raise
            self._producers.append(producer)
        buffer = RecordBuffer(tag=parsed.tag, run=self.name)
        return Stream(producer, buffer, note=lambda: self._note(producer), query=parsed.key)

    def close(self) -> None:
        """Disconnect from all ranks, which continue."""
        self._closing = True
        self._watch.close(CLOSE_S)  # first, so that no rank joins any more
        for run in list(self.ranks.values()):
            run.close()
        self._live.close()

    def __repr__(self) -> str:
        state = ", ended" if self.ended else ""
        return f"<RankGroup {self.name!r}, {len(self.ranks)} of {self.n_ranks} ranks{state}>"

    def round(self, now_s: float) -> float | None:
        """Let ranks join that start later, or again after their client has given up."""
        if self._closing:
            return None
        try:
            found = self._live.reachable()
        except SightglassError:  # this process lacks descriptors now
            return LOOK_S
        for one in found:
            entry = one.entry
            if entry and (entry.group, entry.job, entry.n_ranks) == (self._group, self._job, self.n_ranks):
                known = self.ranks.get(entry.rank)
                if known is None or (known.ended and entry.id != self._ids[entry.rank]):
                    self._join(entry.rank, one)
        return LOOK_S

    def _join(self, rank: int, found: Reachable) -> None:
        try:
            run = self._connect(found)
        except SightglassError as error:
            self._problems[rank] = f"rank {rank}: {message(error)}"
            return
        if self._closing:
            run.close()
            return
        with self._guard:
            self._rounds.add(run)
            self.ranks[rank], self._ids[rank] = run, found.route.id
            self._producers = [producer for producer in self._producers if not producer.closed]
            for producer in self._producers:
                try:
                    producer.open(rank, run)
                except SightglassError as error:  # it costs this rank's part of one stream
                    producer.refused[rank] = message(error)
        if hasattr(self, "_session") and rank < min(set(self.ranks) - {rank}, default=rank):
            self._session = self.ranks[rank]._session
        arrivals.notify()

    @staticmethod
    def _note(producer: RecordsOfRanks | WindowsOfRanks) -> str:
        """Return which ranks died, which are late, and which refuse the query."""
        said = {"died": producer.dead()}
        if isinstance(producer, WindowsOfRanks):
            said["is late"] = producer.late()
            said["was restarted alone: its windows are left out until all are"] = producer.restarted()
        notes = [f"Rank {', '.join(map(str, ranks))} {what}" for what, ranks in said.items() if ranks]
        notes += [f"Rank {rank} does not answer it: {why}" for rank, why in producer.refused.items()]
        return "; ".join(notes)


# The streams of the ranks of one program, as one: windows merged over ranks, or records with their rank.
#
# A producer has one stream for each rank. They are added by any thread as ranks appear.

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


# Rounds on a thread, for an owner that may be dropped without being closed.
#
# The thread holds its owner weakly. Once the owner is garbage collected, it leaves the owner's runs, and ends.

OWNER_REST_S: Final = 1.0  # how late an owner that was dropped may be noticed, and a run of it that is held on its own


class Owner(Protocol):
    """What has rounds on a thread of its own."""

    def round(self, now_s: float) -> float | None:
        """Run a round; see `core.process.threads`."""


class OwnedRounds:
    """The rounds of an owner, and what follows when it is gone.

    A client of a single run that somebody still holds keeps its connection, and the thread, until it is dropped, too.
    """

    def __init__(self, owner: Owner, *, leave: Callable[[], None]) -> None:
        """Prepare the rounds; `leave` is called when the owner is gone, and must not hold it."""
        self._owner = weakref.ref(owner)
        self._leave = leave
        self._runs: list[tuple[weakref.ref[RemoteRun], Session]] = []

    def add(self, run: RemoteRun) -> None:
        """Leave a run, too, when the owner is gone."""
        self._runs.append((weakref.ref(run), run._session))

    def round(self, now_s: float) -> float | None:
        """Run a round of the owner, or leave the runs that nobody holds."""
        owner = self._owner()
        if owner is not None:
            return owner.round(now_s)
        self._leave()
        for run, session in self._runs:
            if run() is None:
                session.close(0.0)
        self._runs = [(run, session) for run, session in self._runs if run() is not None]
        return OWNER_REST_S if self._runs else None
