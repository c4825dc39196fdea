"""The value that a query has so far in each run of a fleet: the cells of a table, the parts of a reduction.

A query that ends in a reducer over the whole run has its value when the run ends. To have it earlier, the runs are
asked for what the reducer reads, and the reducer runs here, as over recorded runs. Of each run its state is kept, and
the records are dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from sightglass.client.recorded.partial import MAX_EVENTS, folded, whole_run
from sightglass.core.errors import QueryError
from sightglass.query.compiled_stages import last_reducer
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.query.reduction import State
from sightglass.query.stages import COUNTING, Map, Reduce, Where, WholeRun, event_functions

from .members import Member, Members
from .streams import FleetProducer, RunStream

PLACES: Final = ("last",)  # reducers that need no record from before they were asked


class _Cell:
    """The value in one run so far: its stream, how far that is read, and what the records came to."""

    def __init__(self, part: RunStream) -> None:
        self.part = part
        self.cursor = self.n_restarts = 0
        self.state: State = None


class Column:
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
        self._asked = FleetProducer(members, chosen, query if self.read is None else self.read)
        members.follow(self)

    def update(self) -> None:
        """Take in the records that have arrived; called on the fleet's thread, too."""
        with self._members.lock:
            for part in list(self._asked.parts):
                self._take(part, self._cells.setdefault(part.member, _Cell(part)))

    def _take(self, part: RunStream, cell: _Cell) -> None:
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
        looked = set[RunStream]()

        def known() -> bool:
            self._asked.update()
            new = [part for part in self._asked.parts if part.answered and part not in looked]
            for part in new:
                part.look()
            looked.update(new)
            return all(self._is_known(part, timeout_s, looked=part in looked) for part in self._asked.parts)

        self._members.wait_until(known, timeout_s)
        self.update()

    def _is_known(self, part: RunStream, timeout_s: float, *, looked: bool) -> bool:
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
