"""Which of the series that were kept answer a query.

Rule 1: a query whose records were kept is answered by them as they are.
Rule 2: a kept query that another one begins with is the beginning of its answer; what remains is computed from there.
Rule 3: else the event is put together again: from logged values, from kept queries of one observable each, or else from
snapshots, for those may be of some events only; whichever gives all the names that the query reads. It begins with the
first event of which all was kept that is needed, as a query that was asked then would have.
Rule 4: what delimits groups must have been kept, too: the run's own ends of groups are; another event must be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from sightglass.core.errors import QueryError
from sightglass.query import expressions as e
from sightglass.query.parser import parse
from sightglass.query.query import Query
from sightglass.query.stages import Group, Map, Per, Reduce, Stage, When, Where
from sightglass.storage.format.block import Key

LOG: Final = "log"
MAX_SHOWN: Final = 12

How = Literal["records", "prefix", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """How a query is answered.

    Attributes:
        query: The query.
        how: From its own records, from those of a kept query that it begins with, or from events put together again.
        keys: The series it takes; of an event, by the names that they give ("" for all of them at once).
        n_done: How many stages of the query those records went through already.
        held: Whether missing events were held back by a condition, rather than lost.
        marks: The series that delimit its groups, by the event they delimit at ("" for the run's own ends of groups).
    """

    query: Query
    how: How
    keys: Mapping[str, Key]
    n_done: int = 0
    held: bool = False
    marks: Mapping[str, Sequence[Key]] = field(default_factory=dict)


def plan(query: Query, kept: Sequence[Key]) -> ReplayPlan:
    """Choose what answers a query.

    Raises:
        QueryError: Nothing that was kept does; the message lists what was.
    """
    streams = {key.query: key for key in kept if key.kind == "stream"}
    if query.key in streams:
        return ReplayPlan(query=query, how="records", keys={"": streams[query.key]})
    made = _from_prefix(query, streams) or _from_event(query, kept, streams)
    if made is None:
        raise QueryError(f"{query} cannot be answered from what was kept. {listed(kept)}")
    how, keys, n_done, held = made
    marks = _marks(query, n_done, kept)
    if how == "prefix" and n_done == len(query.stages):
        return ReplayPlan(query=query, how="records", keys=keys)
    return ReplayPlan(query=query, how=how, keys=keys, n_done=n_done, held=held, marks=marks)


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
    texts = {Query(query.event, query.stages[:n]).key: n for n in range(1, len(query.stages) + 1)}
    best = max((n for text, n in texts.items() if text in streams), default=0)
    if not best or path is not None or any(sees_event(stage) for stage in query.stages[best:]):
        return None
    done = query.stages[:best]
    held = any(isinstance(stage, Where) for stage in done)
    return "prefix", {"": streams[Query(query.event, done).key]}, best, held


def sees_event(stage: Stage) -> bool:
    """Tell whether a stage has a condition on the event."""
    return isinstance(stage, Reduce) and isinstance(stage.window, When)


def _logged_path(query: Query) -> str | None:
    """Return the tag that a query about the log begins with, if its first stage is that and nothing else."""
    first = query.stages[0] if query.stages else None
    return _name(first.fn) if query.event == LOG and isinstance(first, Map) else None


def _from_event(query: Query, kept: Sequence[Key], streams: Mapping[str, Key]) -> _Made | None:
    """Find series that give the names that a query reads of its event."""
    known = _observables(query.event, kept, streams)
    path = _logged_path(query)
    if path in known and not any(sees_event(stage) for stage in query.stages[1:]):
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
        if query.event == event and len(query.stages) == 1 and isinstance(query.stages[0], Map):
            name = _name(query.stages[0].fn)
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
    first = next((i for i, stage in enumerate(query.stages) if not isinstance(stage, Where)), len(query.stages))
    if first == len(query.stages) or isinstance(query.stages[first], Reduce):
        return True
    lambdas = [stage.fn for stage in query.stages[: first + 1] if isinstance(stage, Map | Where)]
    lambdas += [s.window.condition for s in query.stages if isinstance(s, Reduce) and isinstance(s.window, When)]
    return any(_bare(fn.body, fn.params[0]) for fn in lambdas)


def _counts(query: Query) -> bool:
    """Tell whether a query counts events, whatever they are."""
    first = query.stages[0] if query.stages else None
    return isinstance(first, Reduce) and first.name == "count" and not sees_event(first)


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
    """Return the series that tell where the groups of the remaining stages end."""
    marks: dict[str, Sequence[Key]] = {}
    for stage in query.stages[n_done:]:
        window = stage.window if isinstance(stage, Reduce) else None
        if isinstance(window, Group):
            marks[""] = [key for key in kept if key.kind == "groups" and key.tag == query.event]
        elif isinstance(window, Per):
            marks[window.event] = _events(window.event, kept)
    return marks


def _every(event: str, kept: Sequence[Key]) -> list[Key]:
    """Return the streams that have a record for every event of a name, from when they were kept."""
    queries = [(key, parse(key.query)) for key in kept if key.kind == "stream"]
    return [
        key for key, query in queries if query.event == event and all(isinstance(stage, Map) for stage in query.stages)
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
