"""Answering a query from what was kept: which series it takes, and what it makes of their records.

Rule 1: a query whose records were kept is answered by them as they are.
Rule 2: a kept query that another one begins with is the beginning of its answer; what remains is computed from there.
Rule 3: else the event is put together again: from logged values, from kept queries of one observable each, or else from
snapshots, for those may be of some events only; whichever gives all the names that the query reads. It begins with the
first event of which all was kept that is needed, as a query that was asked then would have.
Rule 4: what delimits groups must have been kept, too: the run's own ends of groups are; another event must be.

Records are ordered by wall time, as the events were. The result is that of the live stream, wherever that missed
nothing; groups in which a condition held everything back leave no record here, not even a count of 0.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, UnknownNameError
from sightglass.keep.block import Key
from sightglass.query import expr as e
from sightglass.query.arrays import truth
from sightglass.query.parse import parse
from sightglass.query.pipeline import Pipeline, conditions, rest
from sightglass.query.query import Group, Map, Per, Query, Reduce, Step, When, Where
from sightglass.query.window import Item

LOG: Final = "log"
MAX_ERRORS: Final = 3
MAX_SHOWN: Final = 12

How = Literal["records", "prefix", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a query is answered.

    Attributes:
        query: The query.
        how: From its own records, from those of a kept query that it begins with, or from events put together again.
        keys: The series it takes; of an event, by the names that they give ("" for all of them at once).
        n_done: How many steps of the query those records went through already.
        held: Whether missing events were held back by a condition, rather than lost.
        marks: The series that delimit its groups, by the event they delimit at ("" for the run's own ends of groups).
    """

    query: Query
    how: How
    keys: Mapping[str, Key]
    n_done: int = 0
    held: bool = False
    marks: Mapping[str, Sequence[Key]] = field(default_factory=dict)


def plan(query: Query, kept: Sequence[Key]) -> Plan:
    """Choose what answers a query.

    Raises:
        QueryError: Nothing that was kept does; the message lists what was.
    """
    streams = {key.query: key for key in kept if key.kind == "stream"}
    if query.key in streams:
        return Plan(query=query, how="records", keys={"": streams[query.key]})
    made = _from_prefix(query, streams) or _from_event(query, kept, streams)
    if made is None:
        raise QueryError(f"{query} cannot be answered from what was kept. {listed(kept)}")
    how, keys, n_done, held = made
    marks = _marks(query, n_done, kept)
    if how == "prefix" and n_done == len(query.steps):
        return Plan(query=query, how="records", keys=keys)
    return Plan(query=query, how=how, keys=keys, n_done=n_done, held=held, marks=marks)


def listed(kept: Sequence[Key]) -> str:
    """List what was kept, for people."""
    streams = sorted(key.tag for key in kept if key.kind == "stream")
    snapshots = sorted(f"on({key.tag!r})" for key in kept if key.kind == "snapshot")
    logged = sorted(f"{key.tag!r}" for key in kept if key.kind == "logged")
    parts = [
        f"{what}: {', '.join(names[:MAX_SHOWN])}{_more(len(names) - MAX_SHOWN)}."
        for what, names in (("Recorded", streams), ("Snapshots", snapshots), ("Logged", logged))
        if names
    ]
    return " ".join(parts) or "Nothing was kept."


def _more(n: int) -> str:
    return f" and {n} more" if n > 0 else ""


_Made = tuple[How, Mapping[str, Key], int, bool]


def _from_prefix(query: Query, streams: Mapping[str, Key]) -> _Made | None:
    """Find the longest kept query that this one begins with."""
    path = _logged_path(query)
    texts = {Query(query.event, query.steps[:n]).key: n for n in range(1, len(query.steps) + 1)}
    best = max((n for text, n in texts.items() if text in streams), default=0)
    if not best or path is not None or any(_sees_event(step) for step in query.steps[best:]):
        return None
    done = query.steps[:best]
    held = any(isinstance(step, Where) for step in done)
    return "prefix", {"": streams[Query(query.event, done).key]}, best, held


def _sees_event(step: Step) -> bool:
    return isinstance(step, Reduce) and isinstance(step.window, When)


def _logged_path(query: Query) -> str | None:
    """Return the tag that a query about the log begins with, if its first step is that and nothing else."""
    first = query.steps[0] if query.steps else None
    return _name(first.fn) if query.event == LOG and isinstance(first, Map) else None


def _from_event(query: Query, kept: Sequence[Key], streams: Mapping[str, Key]) -> _Made | None:
    """Find series that give the names that a query reads of its event."""
    known = _observables(query.event, kept, streams)
    path = _logged_path(query)
    if path in known and not any(_sees_event(step) for step in query.steps[1:]):
        return "prefix", {"": known[path]}, 1, True
    names = query.names
    if _reads_all(query):
        names = list(known) if query.event == LOG else []
    needed = [name for name in names if name != "step" or name in known]
    if needed and all(name in known for name in needed):
        return "event", {name: known[name] for name in needed}, 0, query.event == LOG
    every = _every(query.event, kept)
    if every and set(names) <= {"step"} and (_counts(query) or not _reads_all(query)):
        return "event", {"step": every[0]}, 0, False
    snapshot = next((key for key in kept if key.kind == "snapshot" and key.tag == query.event), None)
    return None if snapshot is None else ("event", {"": snapshot}, 0, False)


def _observables(event: str, kept: Sequence[Key], streams: Mapping[str, Key]) -> dict[str, Key]:
    """Return the series that give one observable of an event, by its name."""
    if event == LOG:
        return {key.tag: key for key in kept if key.kind == "logged"}
    found = {}
    for text, key in streams.items():
        query = parse(text)
        if query.event == event and len(query.steps) == 1 and isinstance(query.steps[0], Map):
            name = _name(query.steps[0].fn)
            if name is not None:
                found[name] = key
    return found


def _name(fn: e.Lambda) -> str | None:
    """Return the observable that a function reads and gives as it is."""
    match fn:
        case e.Lambda(params=(root,), body=e.Attr(target=e.Var(name=name), name=attribute)) if name == root:
            return attribute
        case e.Lambda(params=(root,), body=e.Item(target=e.Var(name=name), index=e.Const(value=str(key)))) if (
            name == root
        ):
            return key
    return None


def _reads_all(query: Query) -> bool:
    """Tell whether a query takes the event as a whole, and not only names in it."""
    first = next((i for i, step in enumerate(query.steps) if not isinstance(step, Where)), len(query.steps))
    if first == len(query.steps) or isinstance(query.steps[first], Reduce):
        return True
    lambdas = [step.fn for step in query.steps[: first + 1] if isinstance(step, Map | Where)]
    lambdas += [s.window.condition for s in query.steps if isinstance(s, Reduce) and isinstance(s.window, When)]
    return any(_bare(fn.body, fn.params[0]) for fn in lambdas)


def _counts(query: Query) -> bool:
    """Tell whether a query counts events, whatever they are."""
    first = query.steps[0] if query.steps else None
    return isinstance(first, Reduce) and first.name == "count" and not _sees_event(first)


def _bare(tree: e.Expr, root: str) -> bool:
    match tree:
        case e.Attr(target=e.Var(name=name)) if name == root:
            return False
        case e.Item(target=e.Var(name=name), index=e.Const(value=str())) if name == root:
            return False
        case e.Var(name=name):
            return name == root
    return any(_bare(child, root) for child in tree.children())


def _marks(query: Query, n_done: int, kept: Sequence[Key]) -> dict[str, Sequence[Key]]:
    """Return the series that tell where the groups of the remaining steps end."""
    marks: dict[str, Sequence[Key]] = {}
    for step in query.steps[n_done:]:
        window = step.window if isinstance(step, Reduce) else None
        if isinstance(window, Group):
            marks[""] = [key for key in kept if key.kind == "groups" and key.tag == query.event]
        elif isinstance(window, Per):
            marks[window.event] = _events(window.event, kept)
    return marks


def _every(event: str, kept: Sequence[Key]) -> list[Key]:
    """Return the streams that have a record for every event of a name, from when they were kept."""
    queries = [(key, parse(key.query)) for key in kept if key.kind == "stream"]
    return [
        key for key, query in queries if query.event == event and all(isinstance(step, Map) for step in query.steps)
    ]


def _events(event: str, kept: Sequence[Key]) -> Sequence[Key]:
    """Return series that have a record for every event of a name.

    Raises:
        QueryError: There is none.
    """
    if event == LOG:
        found = [key for key in kept if key.kind == "logged"]
    else:
        # Each may have begun late. Snapshots may be of some events only.
        found = _every(event, kept) or [key for key in kept if key.kind == "snapshot" and key.tag == event]
    if not found:
        needs = f"per={event!r} needs a record of each event {event!r}, such as of on({event!r}).map(lambda e: e.step)"
        raise QueryError(f"{needs}. {listed(kept)}")
    return found


class _Mark(NamedTuple):
    """Where groups end.

    Attributes:
        wall_time: When.
        ordinal: The number of the event.
        event: Its name, or "" for the run's own ends of groups.
        turn: How often the clock was set back before.
    """

    wall_time: float
    ordinal: int
    event: str
    turn: int


class Replay:
    """What remains of a query, being computed from records of the kept series.

    Attributes:
        n_errors: How many events failed.
        last_error: The last failure, or empty.
    """

    def __init__(self, plan: Plan, functions: Mapping[str, Callable[..., Any]] | None = None) -> None:
        """Compile what remains.

        Raises:
            QueryError: It calls a function of the run's that is not known here.
        """
        self.plan = plan
        self.n_errors = 0
        self.last_error = ""
        self._n_in_row = 0
        self._begun = False
        self._pipeline: Pipeline = rest(plan.query, plan.n_done, functions, held=plan.held)
        self._conditions = conditions(plan.query, functions, n_done=plan.n_done)
        self._reduced = any(isinstance(step, Reduce) for step in plan.query.steps[: plan.n_done])
        self._last: Item | None = None
        self._pending: dict[str, deque[_Mark]] = {}
        self._marked: dict[str, tuple[float, int]] = {}
        self._turn, self._highest = 0, -math.inf

    def mark(self, event: str, ordinals: Any, wall_times: Any) -> None:
        """Take in where groups end; before the records that came in the same time.

        Args:
            event: Which mark of the plan.
            ordinals: Shape (n,): the numbers of the events that delimit; of the run's own ends of groups, that of the
                event behind.
            wall_times: Shape (n,).
        """
        marks = self._pending.setdefault(event, deque())
        for ordinal, wall_time in zip(ordinals.tolist(), wall_times.tolist(), strict=True):
            wall_time_before, turn = self._marked.get(event, (wall_time, 0))
            self._marked[event] = wall_time, turn + (wall_time < wall_time_before)
            marks.append(_Mark(wall_time, ordinal, event, self._marked[event][1]))

    def post(self, columns: Mapping[str, Columns], since: int = 0) -> Iterator[Item]:
        """Take records in, and yield what comes out.

        Args:
            columns: Of each series the records that came, by the names of the plan's keys.
            since: The number of the event from which on they were kept.

        Raises:
            EvaluationError: Three events in a row failed.
        """
        for item, seen in self._items(columns):
            if self._last is not None and item.wall_time < self._last.wall_time:
                self._turn, self._highest = self._turn + 1, self._last.wall_time
            while due := [marks for marks in self._pending.values() if marks and self._lies_before(marks, item)]:
                yield from self._close(min(due, key=lambda marks: marks[0]).popleft().event)
            if self._last is None and self.plan.held and item.ordinal > since:
                self._pipeline.hold(ordinal=since, wall_time=item.wall_time)
            self._last = item
            yield from self._offer(item, seen)

    def catch_up(self) -> Iterator[Item]:
        """Close the groups that end behind all the records that came."""
        for mark in sorted(itertools.chain.from_iterable(self._pending.values()), key=lambda mark: (mark.turn, mark)):
            yield from self._close(mark.event)
        self._pending.clear()

    def end_group(self) -> list[Item]:
        """Close the groups that no window was named for."""
        return self._pipeline.end_group()

    def finish(self, n_events: int = 0) -> list[Item]:
        """Close what is open at the end of the run.

        Args:
            n_events: How many events there were, as far as that is known: the last ones may have been held back.
        """
        held: list[Item] = []
        if self.plan.held and not self._reduced and self._last is not None and n_events - 1 > self._last.ordinal:
            held = self._pipeline.hold(ordinal=n_events - 1, wall_time=self._last.wall_time)
        return [*held, *self._pipeline.finish()]

    @property
    def has_reducer(self) -> bool:
        """Whether any step here makes one record of many."""
        return bool(self._pipeline.folds)

    def _lies_before(self, marks: Sequence[_Mark], item: Item) -> bool:
        """Tell whether the first of some marks lies before a record.

        The numbers of its events tell, where there are such; else the time, and how often the clock was set back until
        then, as far as the marks and the records show that.
        """
        mark = marks[0]
        if mark.event == "" and not self._reduced:
            return mark.ordinal <= item.ordinal
        if mark.turn > self._turn:
            return False
        if mark.turn < self._turn and (
            mark.wall_time <= self._highest or (len(marks) > 1 and marks[1].turn > mark.turn)
        ):
            return True
        return mark.wall_time < item.wall_time

    def _close(self, event: str) -> list[Item]:
        return self._pipeline.boundary(event) if event else self._pipeline.end_group()

    def _offer(self, item: Item, seen: Any) -> list[Item]:
        ordinal, wall_time = item.ordinal, item.wall_time
        try:
            closes = [truth(condition(seen)) for condition in self._conditions]
            items = self._pipeline.post(item, ordinal=ordinal, wall_time=wall_time, closes=closes)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, QueryError) as error:
            absent = isinstance(error, UnknownNameError) and error.what == "observable"
            if absent and self.plan.query.event == LOG:
                return self._pipeline.hold(ordinal=ordinal, wall_time=wall_time)
            if absent and not self._begun:
                return []  # one series begins later than another
            self.n_errors += 1
            self._n_in_row += not absent  # it was not kept for a while, or not offered
            self.last_error = f"{error} (step {item.step})"
            if self._n_in_row >= MAX_ERRORS:
                raise EvaluationError(self.last_error, event=self.plan.query.event, step=item.step) from error
            return self._pipeline.miss(ordinal=ordinal, wall_time=wall_time)
        self._n_in_row = 0
        self._begun = True
        return items

    def _items(self, columns: Mapping[str, Columns]) -> Iterator[tuple[Item, Any]]:
        if not columns:
            return
        if self.plan.how == "prefix":
            for item in _each(columns[""]):
                yield item, None
        elif "" in self.plan.keys:
            for item in _each(columns[""]):
                yield item, item.value
        else:
            yield from _events_of(columns)


def _each(columns: Columns) -> Iterator[Item]:
    """Yield records as items."""
    ordinals = (
        columns.ordinals.tolist()
        if columns.ordinals is not None
        else range(columns.index, columns.index + len(columns))
    )
    values = columns.values.tolist() if _is_plain(columns.values) else columns.values
    for i, (ordinal, step, wall_time) in enumerate(
        zip(ordinals, columns.steps.tolist(), columns.wall_times.tolist(), strict=True)
    ):
        item = Item(ordinal, step, wall_time, values[i])
        if columns.n_events is not None:
            item.n_events = int(columns.n_events[i])
        if columns.flags is not None:
            item.complete, item.closed = bool(columns.flags[i] & 1), bool(columns.flags[i] & 2)
        if columns.tracks is not None:
            item.steps = columns.tracks[i] or None
        yield item


def _is_plain(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype in (np.float64, np.int64, np.bool_)


def _events_of(columns: Mapping[str, Columns]) -> Iterator[tuple[Item, Any]]:
    """Put events together from the series of their observables."""
    series = [zip(itertools.repeat(name), _each(part)) for name, part in columns.items()]
    event: dict[str, Any] = {}
    last: Item | None = None
    for name, item in heapq.merge(*series, key=lambda entry: entry[1].ordinal):
        if last is not None and item.ordinal != last.ordinal:
            yield _event(last, event)
            event = {}
        event[name] = item.value
        last = item
    if last is not None:
        yield _event(last, event)


def _event(item: Item, event: dict[str, Any]) -> tuple[Item, Any]:
    observables = {**event, "step": item.step}
    return Item(item.ordinal, item.step, item.wall_time, observables, steps=item.steps), observables


def horizon(columns: Columns, wall_time: float) -> Columns:
    """Return the records up to a time; those behind it may still lack what happened between them."""
    if math.isinf(wall_time):
        return columns
    return columns.slice(0, int(np.searchsorted(columns.wall_times, wall_time, side="right")))
