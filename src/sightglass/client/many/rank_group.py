"""The ranks of one program, asked as one run."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from types import MappingProxyType
from typing import Any, Final, Literal, NoReturn

import msgspec

from sightglass.client.connection import REPLY_S
from sightglass.client.live_runs import LiveRuns, Reachable
from sightglass.client.resumable_stream import RecordBuffer
from sightglass.client.run import RemoteRun, stacks_of
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Record
from sightglass.core.counts import Statistics, total_of
from sightglass.core.description import EventInfo
from sightglass.core.errors import QueryError, RunLostError, UnknownNameError, warn_user
from sightglass.core.process.stacks import Stacks, ThreadStack
from sightglass.query.parser import as_query
from sightglass.query.pieces import Finish, over_pieces
from sightglass.query.pipeline import last_reducer
from sightglass.query.query import Query, in_states
from sightglass.query.reduce.states import Numbering, WindowState, unpack
from sightglass.query.stages import Period, Reduce

from .members import Members
from .parts import Part, Parts, Union
from .window_merger import HOLD_S, MemberWindow, MergedWindow, WindowMerger

SLOW: Final = 1.25  # times the work of most ranks: less is the difference of their data


def ranks_of(group: str, runs: Sequence[Reachable]) -> dict[int, Reachable]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPace:
    """How fast the ranks of one program are; `print` shows a line for each.

    Ranks that act together take equally long from one event to the next, since all wait for the slowest. So it is found
    by what its training thread works itself (`busy_s`). A library that waits for a device by asking it again and again
    works, too. `longest_s` tells a rank that is slow now and then from one that always is.

    Attributes:
        event: The event.
        ranks: What each rank says of it: `interval_s`, `busy_s`, `longest_s`, which are `None` if not known.
        missing: Of which ranks nothing is known, and why.
    """

    event: str
    ranks: Mapping[int, EventInfo]
    missing: Mapping[int, str]

    @property
    def slow(self) -> list[int]:
        """The ranks that work a quarter longer than half of them do."""
        known = {rank: one.busy_s for rank, one in self.ranks.items() if one.busy_s is not None}
        return [rank for rank, busy_s in known.items() if busy_s > SLOW * median_low(known.values())]

    def __str__(self) -> str:
        lines = [f"{'rank':>6}  {'seconds':>9}  {'its work':>9}  {'longest':>9}   from {self.event} to {self.event}"]
        slow = self.slow
        for rank, one in self.ranks.items():
            shown = (
                f"{'–' if s is None else format(s, '.3g'):>9}" for s in (one.interval_s, one.busy_s, one.longest_s)
            )
            lines.append(f"{rank:>6}  {'  '.join(shown)}{'   slow: the others wait for it' if rank in slow else ''}")
        lines += [f"{rank:>6}  not known: {why}" for rank, why in self.missing.items()]
        return "\n".join(lines)


class RankGroup(RemoteRun):
    """The ranks of one program, as one run: `sightglass.connect` returns it for a group's name.

    `stream`, `stacks` and `pace` answer for all ranks. Everything else goes to the lowest rank, which passes commands
    on: all ranks apply them at the same event. Ranks that start later, or again, join.

    Attributes:
        n_ranks: How many ranks the program has.
    """

    def __init__(
        self, found: Mapping[int, Reachable], live: LiveRuns, *, timeout_s: float, options: Mapping[str, Any]
    ) -> None:
        """Connect to the ranks of a program.

        Args:
            found: Those that live.
            live: Has those that begin later; it is closed with the group.
            timeout_s: How long to wait for the replies of those that live.
            options: Further options of `Session`.

        Raises:
            RunLostError: None replies.
        """
        (entry, *_) = (run.entry for run in found.values() if run.entry)
        self._group, self.n_ranks = entry.group, entry.n_ranks
        program = entry.group, entry.job, entry.n_ranks

        def matches(one: Reachable) -> bool:
            return one.entry is not None and (one.entry.group, one.entry.job, one.entry.n_ranks) == program

        self._members = Members(live, matches=matches, ranked=True, options=options)
        try:
            self._members.settle(timeout_s)
            if not self.ranks:
                why = "; ".join(f"{one.name}: {one.why_left or 'no reply'}" for one in self._members.all)
                raise RunLostError(f"No rank of {self._group!r} could be reached: {why}")
        except BaseException:  # an interrupt, too
            self._members.close(0.0)
            raise
        super().__init__(self.ranks[min(self.ranks)]._session)
        self._members.follow(self)

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._group

    @property
    def ranks(self) -> dict[int, RemoteRun]:
        """The ranks that have joined, by their number: each is a run of its own."""
        joined = [(member.rank or 0, member.run) for member in self._members.all if member.joined]
        return dict(sorted(joined, key=lambda one: one[0]))  # of a rank that began again, the last

    @property
    def ended(self) -> bool:
        """Whether all ranks have ended, or this client has left them."""
        return all(run.ended for run in self.ranks.values())

    @property
    def lost(self) -> str:
        """Which ranks died, or are out of reach at the moment; else empty."""
        return "; ".join(f"rank {rank}: {run.lost}" for rank, run in self.ranks.items() if run.lost)

    def update(self) -> None:
        """Ask the lowest rank from now on; called when ranks join."""
        if ranks := self.ranks:
            self._session = ranks[min(ranks)]._session

    def stacks(self, *, timeout_s: float = REPLY_S) -> Stacks:
        """Return where all threads of all ranks are; `print` shows equal stacks once, with their ranks.

        Args:
            timeout_s: How long to wait for all replies. `missing` says of which ranks none came, and why.

        Raises:
            RunLostError: No rank answers; or as for `RemoteRun.stacks`.
        """
        deadline_s = time.monotonic() + timeout_s
        threads: list[ThreadStack] = []
        missing: dict[int, str] = {}
        asked = {rank: run._start_stacks() for rank, run in self.ranks.items()}
        for rank, (connection, pending) in asked.items():
            try:
                found = connection.wait_reply(pending, timeout_s=max(0.0, deadline_s - time.monotonic()))
                threads += [msgspec.structs.replace(one, rank=rank) for one in stacks_of(found)]
            except RunLostError as error:
                missing[rank] = str(error)
        if not threads:
            raise RunLostError("; ".join(missing.values()))
        return Stacks(run=self.name, threads=threads, missing=missing)

    def pace(self, event: str = "") -> RankPace:
        """Return how fast each rank is from one event to the next, and for which one the others wait.

        Args:
            event: The event; by default the one that happened most often on the lowest rank.

        Raises:
            UnknownNameError: The lowest rank has no such event, or none at all.
            RunLostError: No rank answers.
        """
        found: dict[int, Mapping[str, EventInfo]] = {}
        missing: dict[int, str] = {}
        for rank, run in self.ranks.items():
            try:
                found[rank] = run.describe().events
            except RunLostError as error:
                missing[rank] = str(error)
        if not found:
            raise RunLostError("; ".join(missing.values()))
        events = found[min(found)]
        name = event or max(events, key=lambda one: events[one].n_events, default="")
        if name not in events:
            raise UnknownNameError("event", name, events)
        missing |= {rank: f"no event {name!r}" for rank, infos in found.items() if name not in infos}
        ranks = {rank: infos[name] for rank, infos in found.items() if name in infos}
        return RankPace(event=name, ranks=ranks, missing=missing)

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
        for run in self.ranks.values():
            run._session.check_wait()
        producer: RecordsOfRanks | WindowsOfRanks
        if reduces:
            producer = WindowsOfRanks(
                self._members, asked, self.n_ranks, confirm=confirm, each=by is not None, hold_s=hold_s, finish=finish
            )
        else:
            producer = RecordsOfRanks(self._members, parsed, confirm=confirm)
        try:
            producer.settle(REPLY_S)
            for part in producer.parts:
                if part.error is not None:
                    raise part.error
                if not part.answered:
                    raise part.member.session.connection.no_reply()
        except BaseException:  # an interrupt, too: the ranks must not go on evaluating for nobody
            producer.close()
            raise
        buffer = RecordBuffer(tag=parsed.tag, run=self.name)
        return Stream(producer, buffer, note=producer.note, query=parsed.key, check_wait=producer.check_wait)

    def close(self) -> None:
        """Disconnect from all ranks, which continue."""
        self._members.close()

    def __repr__(self) -> str:
        state = ", ended" if self.ended else ""
        return f"<RankGroup {self.name!r}, {len(self.ranks)} of {self.n_ranks} ranks{state}>"


# The streams of the ranks of one program, as one: windows merged over ranks, or records with their rank.
#
# Both hold the members, not the group: a stream goes on when its group is dropped.

ADDED: Final = ("n_events", "n_dropped", "n_lost", "n_skipped", "n_errors", "spent_s")


def statistics_of(parts: Sequence[Part]) -> Statistics:
    """Return the counts of all ranks together."""
    total = total_of(part.stream.statistics() for part in parts if not part.buffer.ended)
    return Statistics(**{name: getattr(total, name) for name in ADDED})


def error_of(parts: Sequence[Part]) -> Exception | None:
    """Return why all ranks' streams failed; `None` if one did not."""
    errors = [part.error or part.buffer.error for part in parts]
    return errors[0] if errors and all(errors) else None


def note_of(parts: Sequence[Part], said: Mapping[str, Sequence[int]] = MappingProxyType({})) -> str:
    """Return which ranks died, what else is said of some, and which refuse the query."""
    dead = [part.rank for part in parts if part.died]
    notes = [f"Rank {', '.join(map(str, ranks))} {what}" for what, ranks in {"died": dead, **said}.items() if ranks]
    notes += [f"Rank {part.rank} does not answer it: {part.problem}" for part in parts if part.error is not None]
    return "; ".join(notes)


def refuse_to_close_groups() -> NoReturn:
    """Refuse to close the groups of ranks, which do so at different moments."""
    raise QueryError("Expected groups that the program ends with run.end_group(…): a client closes none over ranks")


class RecordsOfRanks(Union):
    """Produces the records of all ranks as they arrive, each with its rank."""

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse."""
        refuse_to_close_groups()

    def statistics(self) -> Statistics:
        """Return the counts of all ranks together."""
        return statistics_of(self.parts)

    def note(self) -> str:
        """Return which ranks do not answer, and why."""
        return note_of(self.parts)

    def _is_over(self, parts: Sequence[Part]) -> bool:
        return bool(parts) and all(part.buffer.ended for part in parts)

    def _error(self, parts: Sequence[Part]) -> Exception | None:
        return error_of(parts)


@dataclass(slots=True)
class _Read:
    """How far the windows of a rank were read.

    Attributes:
        cursor: The number of the next record.
        n_restarts: How many of its restarts were seen.
        awaited: Whether its windows are waited for.
        over: Whether its end was seen.
    """

    cursor: int = 0
    n_restarts: int = 0
    awaited: bool = True
    over: bool = False


class WindowsOfRanks(Parts):
    """Produces the windows of all ranks, merged."""

    def __init__(
        self,
        members: Members,
        query: Query,
        size: int,
        *,
        confirm: bool,
        each: bool,
        hold_s: float,
        finish: Finish | None = None,
    ) -> None:
        """Ask the ranks, and those that join later; arguments as for `RankGroup.stream`.

        Args:
            members: The ranks.
            query: The query, which ends in its only reducer.
            size: How many ranks the program has.
            confirm: As for `RankGroup.stream`.
            each: Whether each rank has its own result.
            hold_s: As for `RankGroup.stream`, as are the errors.
            finish: Makes the results of what was merged.
        """
        in_states(query, Numbering())  # it raises here what the ranks would refuse
        (stage,) = (stage for stage in query.stages if isinstance(stage, Reduce))
        self._finish = finish
        self._span_s = stage.window.seconds if isinstance(stage.window, Period) else 0.0
        self._merger = WindowMerger(last_reducer(query), range(size), hold_s=hold_s, each=each)
        self._hold_s, self._began_s = hold_s, time.monotonic()
        self._read: dict[Part, _Read] = {}
        self._absent = set(range(size))
        self._n = 0
        super().__init__(
            members, query, confirm=confirm, states=lambda member: Numbering(member.rank or 0, size)
        )  # fmt: skip

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the windows that are certain by now."""
        if buffer.ended:
            return
        now_s = time.monotonic()
        parts = sorted(self.parts, key=lambda part: part.rank)  # of one rank in the order in which they joined
        self._absent -= {part.rank for part in parts}
        made: list[MergedWindow[int]] = []
        if self._absent and now_s - self._began_s >= self._hold_s:
            for rank in self._absent:
                made += self._merger.leave(rank, now_s)
            self._absent = set()
        for part in parts:
            made += self._take(part, now_s)
        made += self._merger.take(now_s)
        over = bool(parts) and all(self._read[part].over for part in parts)
        made += self._merger.finish() if over else []
        buffer.extend([self._record(buffer, window) for window in made])
        if over:
            buffer.end(error_of(parts))

    def end_group(self, buffer: RecordBuffer) -> None:
        """Refuse."""
        refuse_to_close_groups()

    def statistics(self) -> Statistics:
        """Return the counts of all ranks, and how many windows wait, and states came too late."""
        merger, counts = self._merger, statistics_of(self.parts)
        return replace(
            counts, n_waiting=merger.n_waiting, n_unpaired=merger.n_late, n_errors=counts.n_errors + merger.n_errors,
            last_error=merger.last_error,
        )  # fmt: skip

    def note(self) -> str:
        """Return which ranks died, which are late, and which refuse the query."""
        late, restarted = self._merger.awaited, self._merger.restarted
        said = {"is late": late, "was restarted alone: its windows are left out until all are": restarted}
        return note_of(self.parts, said)

    def _take(self, part: Part, now_s: float) -> list[MergedWindow[int]]:
        """Take the new windows of a rank, and take note of its death, its return and its end."""
        merger, rank = self._merger, part.rank
        if part not in self._read:
            self._read[part] = _Read()
            merger.join(rank)
        read = self._read[part]
        if read.over:
            return []
        died, over = part.died, part.stream.ended  # before reading
        shift = round(part.member.ahead_s / self._span_s) if self._span_s else 0
        made: list[MergedWindow[int]] = []
        restarts = part.stream.restarts
        read.cursor, columns = part.stream.since(read.cursor)
        for record in columns.exact().records(tag="", run=""):
            while read.n_restarts < len(restarts) and restarts[read.n_restarts].index <= record.index:
                read.n_restarts += 1
                if not self._span_s:  # the numbers of time spans go on
                    merger.restart(rank)
            key, n_values, state = WindowState(*record.value)
            window = MemberWindow(
                state=unpack(state), n_values=n_values, step=record.step, n_events=record.n_events,
                wall_time=record.wall_time - shift * self._span_s, complete=record.complete, closed=record.closed,
                steps=record.steps,
            )  # fmt: skip
            made += merger.push(rank, key - shift, window, now_s)
        if over:
            read.over = True
            made += merger.leave(rank, now_s, ended=part.error is None and part.buffer.error is None)
        elif died and read.awaited:
            made += merger.leave(rank, now_s)
        elif not died and not read.awaited:
            merger.join(rank)
        read.awaited = not died
        return made

    def _record(self, buffer: RecordBuffer, window: MergedWindow[int]) -> Record:
        index, self._n = self._n, self._n + 1
        value = window.value if self._finish is None else self._finish(window.value)
        return Record(
            tag=buffer.tag, index=index, step=window.step, wall_time=window.wall_time, value=value,
            run=buffer.run, closed=window.closed, complete=window.complete, n_events=window.n_events,
            steps=window.steps, missing=window.missing, approximate=window.approximate,
        )  # fmt: skip
