"""The ranks of one program, asked as one run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Final, Literal

from sightglass.core.errors import QueryError, RunLostError, SightglassError
from sightglass.core.guarded import message
from sightglass.core.threads import Worker
from sightglass.core.unpatched import threading
from sightglass.query.parser import as_query
from sightglass.query.pieces import over_pieces
from sightglass.query.query import Query
from sightglass.query.stages import Reduce

from .arrivals import arrivals
from .live_runs import LiveRuns, Reachable
from .owned_rounds import OwnedRounds
from .rank_streams import RecordsOfRanks, WindowsOfRanks
from .record_buffer import RecordBuffer
from .run import RemoteRun
from .stream import Stream
from .window_merger import HOLD_S

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
        warnings.warn(
            f"Several programs named {group!r} are live: connected to the newest; {n_others} runs belong to others",
            stacklevel=4,
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
            by: "rank" for the results of all ranks as a mapping, instead of one result.
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
            except BaseException:
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
