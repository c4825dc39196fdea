"""The order of recorded events: of several names by time and by set-backs of the clock; and which run made them."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from sightglass.core.columns import APPROXIMATE, CLOSED, COMPLETE, Columns
from sightglass.query.query import with_fields
from sightglass.query.reads import Latest
from sightglass.query.windows import PipelineItem

from .plan import LOG


class Boundary(NamedTuple):
    """A moment between records: the end of a group, or an event that a query joins.

    Attributes:
        wall_time: In seconds since the Unix epoch.
        ordinal: The number of the event; for the run's own ends of groups, of the next one.
        event: Its name, or "" for the run's own ends of groups.
        turn: How often the clock was set back before.
        observables: Those of a joined event; `None` if one of them is not recorded.
    """

    wall_time: float
    ordinal: int
    event: str
    turn: int
    observables: Mapping[str, Any] | None = None


class SetBacks:
    """Counts how often the clock was set back between times.

    Attributes:
        n: How often, so far.
        highest: The time before the last of these; -inf if there is none.
    """

    __slots__ = ("_last", "highest", "n")

    def __init__(self) -> None:
        self.n, self.highest = 0, float("-inf")
        self._last = float("-inf")

    def pass_to(self, wall_time: float) -> int:
        """Go on to a time; return how often the clock was set back until then."""
        if wall_time < self._last:
            self.n, self.highest = self.n + 1, self._last
        self._last = wall_time
        return self.n


class RunStarts:
    """Says of which run, restarted under its name, what is computed from recorded events is.

    A window is of the run of its last event.
    """

    def __init__(self) -> None:
        self._ahead: deque[tuple[int, str]] = deque()
        self._passed: deque[tuple[float, str]] = deque()
        self._last_s = -math.inf

    def add(self, starts: Iterable[tuple[int, str]]) -> None:
        """Add the numbers of the first events of runs, and the ids of these, before the events are passed."""
        self._ahead.extend(starts)

    def pass_to(self, ordinal: int, wall_time: float) -> None:
        """Go on to an event."""
        while self._ahead and self._ahead[0][0] <= ordinal:
            # After a clock was set back, times do not say which window ended before the restart.
            self._passed.append((wall_time if wall_time > self._last_s else -math.inf, self._ahead.popleft()[1]))
        self._last_s = wall_time

    def begun_by(self, wall_time: float) -> str:
        """Return the id of the run that a result with this time begins; empty if it is of the same run as the last."""
        found = ""
        while self._passed and self._passed[0][0] <= wall_time:
            found = self._passed.popleft()[1]
        return found


def first_is_before(boundaries: Sequence[Boundary], wall_time: float, turns: SetBacks) -> bool:
    """Return whether the first of some boundaries lies before a record of this time, as far as both show the clock."""
    boundary = boundaries[0]
    if boundary.turn > turns.n:
        return False
    if boundary.turn < turns.n and (
        boundary.wall_time <= turns.highest or (len(boundaries) > 1 and boundaries[1].turn > boundary.turn)
    ):
        return True
    return boundary.wall_time < wall_time


# Items of the pipeline, and whole events, from recorded series.


def items_of(columns: Columns) -> Iterator[PipelineItem]:
    """Yield records as items of the pipeline."""
    ordinals = (
        columns.ordinals.tolist()
        if columns.ordinals is not None
        else range(columns.index, columns.index + len(columns))
    )
    values = columns.values.tolist() if _is_plain(columns.values) else columns.values
    for i, (ordinal, step, wall_time) in enumerate(
        zip(ordinals, columns.steps.tolist(), columns.wall_times.tolist(), strict=True)
    ):
        item = PipelineItem(ordinal, step, wall_time, values[i])
        if columns.n_events is not None:
            item.n_events = int(columns.n_events[i])
        if columns.flags is not None:
            flags = int(columns.flags[i])
            item.complete, item.closed = bool(flags & COMPLETE), bool(flags & CLOSED)
            item.approximate = bool(flags & APPROXIMATE)
        if columns.tracks is not None:
            item.steps = columns.tracks[i] or None
        yield item


def _is_plain(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (np.float64, np.int64, np.bool_)


def events_of(columns: Mapping[str, Columns]) -> Iterator[PipelineItem]:
    """Rebuild events from the series of their observables."""
    series = [zip(itertools.repeat(name), items_of(part)) for name, part in columns.items()]
    event: dict[str, Any] = {}
    last: PipelineItem | None = None
    for name, item in heapq.merge(*series, key=lambda entry: entry[1].ordinal):
        if last is not None and item.ordinal != last.ordinal:
            yield _event(last, event)
            event = {}
        event[name] = item.value
        last = item
    if last is not None:
        yield _event(last, event)


def _event(item: PipelineItem, event: dict[str, Any]) -> PipelineItem:
    observables = {**event, "step": item.step}
    return PipelineItem(item.ordinal, item.step, item.wall_time, observables, steps=item.steps)


# The recorded events of one name that a query joins, read in their order while its own events pass.


class JoinedEvents:
    """The events of one name.

    Attributes:
        latest: The last one that was passed.
        ahead: The next two, if there are as many: the second shows whether one between them is not recorded.
    """

    def __init__(self, event: str, names: Iterable[str], *, reads_fields: bool = True) -> None:
        """Begin before the first one.

        Args:
            event: Their name.
            names: The observables that are read; "" for events that were recorded whole.
            reads_fields: Whether the query reads the number or the wall time of these events.
        """
        self.latest = Latest()
        self.ahead: deque[Boundary] = deque()
        self._event = event
        self._names = frozenset(names)
        self._reads_fields = reads_fields
        self._turns = SetBacks()
        self._unread: Iterator[Boundary] = iter(())
        self._begun = False

    def add(self, pieces: Iterable[Mapping[str, Columns]], *, since: int) -> None:
        """Add new events: their observables by name, or the events themselves by "", in pieces that hold whole events.

        Args:
            pieces: The events.
            since: The number of the first one that is recorded.
        """
        if since and not self._begun:
            self.latest.lose()  # what comes first has a partner that is not recorded
        self._begun = True
        self._unread = itertools.chain(self._unread, self._boundaries(pieces))
        self._look_ahead()

    def advance(self) -> None:
        """Pass the next event. It is the latest one, unless one that is not recorded may have followed."""
        boundary = self.ahead.popleft()
        self._look_ahead()
        follows = not self.ahead or self._event == LOG or self.ahead[0].ordinal == boundary.ordinal + 1
        if boundary.observables is None or not follows:
            self.latest.lose()
        else:
            self.latest.hold(boundary.observables)

    def _look_ahead(self) -> None:
        self.ahead.extend(itertools.islice(self._unread, 2 - len(self.ahead)))

    def _boundaries(self, pieces: Iterable[Mapping[str, Columns]]) -> Iterator[Boundary]:
        is_whole = "" in self._names
        for item in itertools.chain.from_iterable(items_of(p[""]) if is_whole else events_of(p) for p in pieces):
            observables = item.value
            if self._reads_fields:
                observables = with_fields(observables, index=item.ordinal, wall_time=item.wall_time)
            whole = is_whole or self._names <= observables.keys()
            if whole or self._event != LOG:  # calls of `log` differ in their names: those without them are passed over
                turn = self._turns.pass_to(item.wall_time)
                yield Boundary(item.wall_time, item.ordinal, self._event, turn, observables if whole else None)
