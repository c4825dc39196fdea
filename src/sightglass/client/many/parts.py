"""The streams of a query in several runs: a part for each, which later runs join, and the union of their records."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from sightglass.client.connection import PendingReply
from sightglass.client.describe import coverage_of
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream, with_beginning
from sightglass.client.streams.derived import UnionProducer
from sightglass.client.streams.stream import Stream
from sightglass.client.subscription import SubscriptionProducer, note_of_stream
from sightglass.core.counts import Statistics
from sightglass.core.description import StreamInfo, read_struct
from sightglass.core.errors import QueryError, RunLostError, SightglassError
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message
from sightglass.query.parser import as_query
from sightglass.query.pipeline import last_reducer
from sightglass.query.query import Query
from sightglass.query.reduce.reducer import State
from sightglass.query.reduce.states import Numbering
from sightglass.query.reduce.table import COUNTING
from sightglass.query.stages import Map, Reduce, Where, WholeRun, event_functions

from .members import Member, Members
from .partial import MAX_EVENTS, folded, whole_run


class Part:
    """The stream of a query in one run of several, which is opened without waiting.

    Attributes:
        member: The run.
        buffer: The records.
        stream: The stream of them.
        n_read: How many of its records were read.
        asked_s: When it was asked.
        late: Where the stream begins, if not with the run; empty if it does.
        error: Why the run does not answer, or `None`.
    """

    def __init__(
        self, member: Member, query: Query, text: str, *, confirm: bool, states: Numbering | None = None
    ) -> None:
        self.member = member
        name = member.name if member.rank is None else member.session.run
        self.buffer = RecordBuffer(tag=text, run=name, client=member.session)
        self.n_read = 0
        self.asked_s = time.monotonic()
        self.late = ""
        self.error: Exception | None = None
        self._resumable = ResumableStream(text, self.buffer, confirm=confirm, states=states)
        self._reply: PendingReply | None = None
        self._counts: PendingReply | None = None
        self._opened = False
        self.stream = Stream(
            SubscriptionProducer(member.session, self._resumable), self.buffer, query=query.key, note=self._note,
            check_wait=member.run._check_wait,
        )  # fmt: skip

    @property
    def rank(self) -> int:
        """The number of its rank."""
        return self.member.rank or 0

    @property
    def died(self) -> bool:
        """Whether the run's process died, and no other one has replaced it so far."""
        return self.member.session.died or isinstance(self.buffer.error, RunLostError)

    @property
    def answered(self) -> bool:
        """Whether the run has answered, or cannot."""
        return self._opened or self.error is not None or bool(self.member.why_left)

    @property
    def problem(self) -> str:
        """Why the run does not answer, or does not any more; empty if there is nothing to say."""
        error = self.error or self.buffer.error
        return "" if error is None else message(error)

    def look(self) -> None:
        """Ask the run how many records it has made so far."""
        self._counts = None
        if self._opened and not (self.member.why_left or self.member.session.why_lost()):
            with contextlib.suppress(SightglassError):  # it takes no messages: what has arrived must do
                self._counts = self.member.session.connection.start_query("statistics")

    @property
    def caught_up(self) -> bool:
        """Whether all records have arrived that the run had made when `look` was called."""
        if self._counts is None or self.buffer.ended or self.member.why_left:
            return True
        if not self._counts.wait(0):
            return False
        try:
            entries = self._counts.result()
        except SightglassError:
            return True
        streams = (read_struct(StreamInfo, entry) for entry in entries)
        made = next((stream.n_records for stream in streams if stream.stream == self._resumable.number), 0)
        return (self.buffer.next_index or 0) >= made + self._resumable.base

    def advance(self) -> None:
        """Open the stream, as soon as there is a connection; take in the run's reply."""
        if self._opened or self.error is not None or self.buffer.ended:
            return
        try:
            if self._reply is None:
                self._reply = self.member.session.start_stream(self._resumable, timeout_s=0.0)
            elif self._reply.wait(0):
                opened = self._reply.result()
                self.late, self._opened = opened.late, True
        except RunLostError:  # tried again when there is a connection
            self.member.session.close_stream(self._resumable)
            self._resumable.closed, self._reply = False, None
        except SightglassError as error:
            self.error = error
            self.stream.close()

    def fill(self) -> None:
        """Fill a hole in its records, if there is one, from what the run recorded."""
        if self._resumable.waiting is not None:
            self.stream.since(self.buffer.n)

    def _note(self) -> str:
        note = note_of_stream(self.member.session, self._resumable)
        return with_beginning(note, self.late, self.buffer)()


class Parts:
    """The streams of a query in several runs. It follows the runs' members, and asks those that join.

    Attributes:
        query: The query.
        text: Its text, as it was given.
        parts: The streams of the runs.
        closed: Whether the runs are not asked any more.
    """

    def __init__(
        self,
        members: Members,
        query: Query | str,
        *,
        chosen: Callable[[], Sequence[Member]] | None = None,
        confirm: bool = False,
        states: Callable[[Member], Numbering] | None = None,
    ) -> None:
        """Ask the runs, and those that join later, without waiting.

        Args:
            members: The runs.
            query: The query.
            chosen: Returns those of them to ask; by default all that have joined.
            confirm: As in `RemoteRun.stream`.
            states: How the events of a run are numbered, to be asked for the states of windows instead of values.

        Raises:
            QueryError: The query is not valid.
        """
        self.query = as_query(query)
        self.text = query if isinstance(query, str) else str(self.query)
        self.parts: list[Part] = []
        self._members, self._chosen, self._confirm, self._states = members, chosen or members.joined, confirm, states
        self.closed = False
        self._lock = threading.Lock()
        members.follow(self)
        self.update()

    def update(self) -> None:
        """Ask the runs that joined, and take in what the others replied."""
        with self._lock:
            if self.closed:
                return
            asked = {part.member for part in self.parts}
            for member in self._chosen():
                if member not in asked and member.present:
                    states = None if self._states is None else self._states(member)
                    part = Part(member, self.query, self.text, confirm=self._confirm, states=states)
                    self.parts.append(part)
            for part in self.parts:
                part.advance()

    def settle(self, timeout_s: float) -> None:
        """Wait until each run has answered, for at most this long."""

        def answered() -> bool:
            self.update()
            return all(part.answered for part in self.parts)

        self._members.wait_until(answered, timeout_s)

    def close(self) -> None:
        """Stop asking; the runs stop evaluating the query unless another client uses it."""
        with self._lock:
            self.closed = True
        self._members.unfollow(self)
        for part in self.parts:
            part.stream.close()

    def check_wait(self) -> None:
        """Refuse to wait for a record on a thread that one of the runs waits for."""
        for part in self.parts:
            part.member.run._check_wait()


class Union(Parts):
    """Produces the records of all runs as they arrive, by wall time among those that arrived together."""

    def __init__(self, members: Members, query: Query | str, **options: Any) -> None:
        """Ask the runs. Arguments and errors as of `Parts`."""
        self._union = UnionProducer([])
        self._n_joined = 0
        super().__init__(members, query, **options)

    def stream(self) -> Stream:
        """Return the one stream."""
        return Stream(
            self, RecordBuffer(tag=self.text, run=""), query=self.query.key, note=self.note, members=self._drawn,
            check_wait=self.check_wait,
        )  # fmt: skip

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records of all runs."""
        if buffer.ended:
            return
        parts = list(self.parts)
        for part in parts[self._n_joined :]:
            self._union.add(part.stream, rank=part.member.rank)
        self._n_joined = len(parts)
        for part in parts:
            part.fill()
        closed = self.closed or self._members.closed  # before reading: what arrived until then is read
        over = self._is_over(parts)
        fresh = [i for i, part in enumerate(parts) if part.buffer.n != part.n_read]
        for i in fresh:
            parts[i].n_read = parts[i].buffer.n
        if fresh:
            buffer.tag = parts[fresh[0]].buffer.tag
            self._union.take(buffer, fresh)
        buffer.n_lost = sum(part.buffer.n_lost for part in parts)
        if over or closed:
            buffer.end(self._error(parts))

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group in each run."""
        for part in self.parts:
            if not part.buffer.ended:
                part.stream.end_group()

    def statistics(self) -> Statistics:
        """Return how many of the runs failed to answer, and the last reason."""
        problems = [part.problem for part in self.parts if part.problem]
        return Statistics(n_errors=len(problems), last_error=problems[-1] if problems else "")

    def note(self) -> str:
        """Return which runs do not answer, or not in full, and why."""
        if not self.parts:
            return "no run has joined the fleet so far"
        notes = {part.member.name: part.problem or part.stream.note for part in self.parts}
        return coverage_of(self.text, {name: note for name, note in notes.items() if note}, len(notes))

    def raise_refused(self) -> None:
        """Raise the first error, if every run that answered refused the query."""
        answers = [part.error for part in self.parts if part.answered]
        if answers and all(answers):
            self.close()
            raise answers[0]  # type: ignore[misc]  # none of them is `None`

    def _is_over(self, parts: Sequence[Part]) -> bool:
        """Return whether all streams have ended, and no run joins any more."""
        return not self._members.follows and self._members.settled and all(part.buffer.ended for part in parts)

    def _error(self, parts: Sequence[Part]) -> Exception | None:
        """Return the error that the stream ends with."""
        return None

    def _drawn(self) -> list[Stream]:
        return [part.stream for part in self.parts if part.buffer.n]


# The value that a query has so far in each run of a fleet: the cells of a table, the parts of a reduction.
#
# A query that ends in a reducer over the whole run has its value when the run ends. To have it earlier, the runs are
# asked for what the reducer reads, and the reducer runs here, as over recorded runs. Of each run its state is kept, and
# the records are dropped.

PLACES: Final = ("last",)  # reducers that need no record from before they were asked


class _Cell:
    """The value in one run so far: its stream, how far that is read, and what the records came to."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.cursor = self.n_restarts = 0
        self.state: State = None


class LatestValues:
    """The values of a query in the runs of a fleet so far."""

    def __init__(self, members: Members, chosen: Callable[[], Sequence[Member]], query: Query | str) -> None:
        """Ask the runs, and those that join later, without waiting.

        Raises:
            QueryError: The query is not valid.
        """
        self.query = as_query(query)
        self.read = _read_by(self.query)
        self._members = members
        self._cells: dict[Member, _Cell] = {}
        self._asked = Parts(members, query if self.read is None else self.read, chosen=chosen)
        members.follow(self)

    def update(self) -> None:
        """Take in the records that have arrived; called on the fleet's thread, too."""
        with self._members.lock:
            for part in list(self._asked.parts):
                self._take(part, self._cells.setdefault(part.member, _Cell(part)))

    def _take(self, part: Part, cell: _Cell) -> None:
        end, columns = part.stream.since(cell.cursor)
        if self.read is not None and len(columns):
            restarts = part.stream.restarts
            if len(restarts) > cell.n_restarts:  # the run that was replaced does not count
                cell.n_restarts = len(restarts)
                cell.state = None
                columns = columns.after(restarts[-1].index)
            cell.state = folded(self.query, cell.state, columns, part.member.number * MAX_EVENTS)
        cell.cursor = end
        part.stream.forget(end - 1)  # the newest stays: it is the value of a query without such a reducer

    def settle(self, timeout_s: float) -> None:
        """Wait for what the runs have made so far, and of each for a value, but only this long after it was asked."""
        looked = set[Part]()

        def known() -> bool:
            self._asked.update()
            new = [part for part in self._asked.parts if part.answered and part not in looked]
            for part in new:
                part.look()
            looked.update(new)
            return all(self._is_known(part, timeout_s, looked=part in looked) for part in self._asked.parts)

        self._members.wait_until(known, timeout_s)
        self.update()

    def _is_known(self, part: Part, timeout_s: float, *, looked: bool) -> bool:
        part.fill()
        late = time.monotonic() - part.asked_s > timeout_s
        over = bool(part.problem or part.member.why_left)
        return over or (looked and part.caught_up and (late or part.buffer.n > 0))

    def state(self, member: Member) -> State:
        """Return the state of the query's last reducer in a run; `None` without a value."""
        cell = self._cells.get(member)
        return None if cell is None else cell.state

    def value(self, member: Member) -> Any:
        """Return the value in a run so far; `None` if there is none."""
        cell = self._cells.get(member)
        if cell is None:
            return None
        if self.read is None:
            record = cell.part.buffer.latest()
            return None if record is None else record.value
        return None if cell.state is None else last_reducer(self.query).finish(cell.state)

    def waits(self, member: Member) -> bool:
        """Return whether a run has no value yet, and may have one later."""
        cell = self._cells.get(member)
        return self.value(member) is None and not (member.why_left or (cell is not None and cell.part.problem))

    def problem(self, member: Member) -> str:
        """Return why a run has no value, or not of all its events; empty if it has."""
        if member not in self._cells:
            return member.why_left or "it has not answered so far"
        part = self._cells[member].part
        if part.buffer.n_lost and self.read is not None:
            return f"{part.buffer.n_lost:,} records were lost"
        if part.problem and not part.buffer.n:
            return part.problem
        last = self.query.stages[-1] if self.query.stages else None
        partial = self.read is not None and isinstance(last, Reduce) and last.name not in PLACES
        return part.stream.note if partial or not part.buffer.n else ""

    def close(self) -> None:
        """Stop asking."""
        self._members.unfollow(self)
        self._asked.close()


def _read_by(query: Query) -> Query | None:
    """Return what a query's last reducer, over a whole run, reads; `None` if the query does not end in such a one."""
    last = query.stages[-1] if query.stages else None
    if not isinstance(last, Reduce) or not isinstance(last.window, WholeRun) or event_functions(last):
        return None
    before = query.stages[:-1]
    if all(isinstance(stage, Where) for stage in before):  # what it reads is the event
        if last.name not in COUNTING:
            return None
        before = (*before, _step_of(query.event))
    return replace(query, stages=before)


def _step_of(event: str) -> Map:
    (stage,) = as_query(f"on({event!r}).map(lambda e: e.step)").stages
    assert isinstance(stage, Map)
    return stage


def checked(query: Query) -> Query:
    """Return a query whose states merge over runs.

    Raises:
        QueryError: It does not end in a reducer without a window, its states do not merge, or it reads the event.
    """
    whole = whole_run(query)
    if _read_by(whole) is None:
        raise QueryError(f"Expected a reducer without by= and of values, got {query}: live runs do not merge it")
    return whole
