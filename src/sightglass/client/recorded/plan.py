"""Choose the recorded series that answer a query.

Rule 1: if the query itself was recorded, its records are the answer.
Rule 2: if a recorded query is the beginning of this one, its records are the input of the remaining stages.
Rule 3: else events are rebuilt, from logged values, from recorded queries of one observable each, from the recorded
event itself, or from snapshots (last, because they may be of some events only); the source must have all names that the
query reads. The stream begins with the first event whose needed series were all recorded, like a query that was sent
then.
Rule 4: of an event that the query joins, each one must be recorded, with the observables that are read. Snapshots may
be of some events only.
Rule 5: the boundaries of groups must be recorded too: the ends of groups always are; another event must be.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from sightglass.core.errors import QueryError, cut
from sightglass.query import expressions as e
from sightglass.query.parser import as_query
from sightglass.query.query import FIELDS, Query, reads_whole
from sightglass.query.reads import joined_paths
from sightglass.query.reduce.columns import NAMES
from sightglass.query.reduce.table import COUNTING
from sightglass.query.stages import Group, Map, Per, Reduce, Stage, Where, WholeRun, event_functions
from sightglass.storage.format import series_names
from sightglass.storage.format.block import Key

LOG: Final = "log"
EVENTS_OWN: Final = frozenset(("step", FIELDS))  # of any event, whatever was recorded of it
# An error message names at most this many series of a kind: more do not help to find a misspelt one.
MAX_SHOWN: Final = 12

How = Literal["records", "prefix", "event"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """How recorded series answer a query.

    Attributes:
        query: The query.
        how: From its own records, from those of a recorded query that it begins with, or from rebuilt events.
        keys: The series to read; for events, by the names of the observables they hold ("" for a whole event).
        n_done: How many stages of the query the recorded values went through already.
        held: Whether events without a record were held back by a condition; else they were lost.
        boundaries: The series that delimit the query's groups, by event ("" for the run's own ends of groups).
        joined: For each event that the query joins, the series to read, by the names of the observables.
    """

    query: Query
    how: How
    keys: Mapping[str, Key]
    n_done: int = 0
    held: bool = False
    boundaries: Mapping[str, Sequence[Key]] = field(default_factory=dict)
    joined: Mapping[str, Mapping[str, Key]] = field(default_factory=dict)

    @property
    def all_keys(self) -> list[Key]:
        """All series that are read."""
        several = (self.keys, *self.joined.values())
        return [*(key for keys in several for key in keys.values()), *itertools.chain(*self.boundaries.values())]


def parse(query: Query | str, keys: Sequence[Key]) -> Query:
    """Return a query, of its text or of the tag of a series, which need not be valid as a query.

    A tag with the name of a reducer after it, such as "val/accuracy.max", is that reducer over the whole run.

    Raises:
        QueryError: It is not valid.
    """
    if not isinstance(query, str):
        return as_query(query)
    try:
        parsed = as_query(query)
        if any(key.query == parsed.key for key in keys):
            return parsed
    except QueryError:
        parsed = None
    found = _by_tag(query, keys)
    tag, _, name = query.rpartition(".")
    if found is None and name in NAMES and (total := _by_tag(tag, keys)) is not None:
        found = replace(total, stages=(*total.stages, Reduce(name=name, args=(), window=WholeRun())))
    return found or parsed or as_query(query)


def _by_tag(tag: str, keys: Sequence[Key]) -> Query | None:
    if tag in series_names.named(keys):
        return as_query(f"on('log').map(lambda e: e[{tag!r}])")
    return next((as_query(key.query) for key in keys if key.kind == "stream" and key.tag == tag), None)


def plan(query: Query, keys: Sequence[Key]) -> ReplayPlan:
    """Choose what answers a query.

    Raises:
        QueryError: The recorded series do not answer it; the message lists them.
    """
    streams = {key.query: key for key in keys if key.kind == "stream"}
    if query.key in streams:
        return ReplayPlan(query=query, how="records", keys={"": streams[query.key]})
    chosen = _from_prefix(query, streams) or _from_event(query, keys, streams)
    if chosen is None:
        raise QueryError(f"{_lacks(query)}. {list_recorded(keys)}")
    boundaries = _boundaries(query, chosen.n_done, keys)
    if chosen.how == "event":
        chosen = replace(chosen, joined={event: _joined(query, event, keys, streams) for event in query.joins})
    if chosen.how == "prefix" and chosen.n_done == len(query.stages):
        return ReplayPlan(query=query, how="records", keys=chosen.keys)
    return replace(chosen, boundaries=boundaries)


def _lacks(query: Query) -> str:
    """Return why a query has no answer, in the words in which it was written."""
    text = query.short or str(query)
    tag, _, name = text.rpartition(".")
    if tag and name in NAMES:  # such as the series "loss" of the text "loss.min"
        return f"No records of {cut(tag)!r} are there to answer {cut(text)!r} from"
    return f"{cut(text)} cannot be answered from the recorded series"


def list_recorded(keys: Sequence[Key]) -> str:
    """List recorded series for an error message."""
    streams = sorted(key.tag for key in keys if key.kind == "stream")
    snapshots = sorted(f"on({key.tag!r})" for key in keys if key.kind == "snapshot")
    logged = sorted(f"{name!r}" for name in series_names.shown(keys).values())
    lists = [
        f"{kind}: {', '.join(map(cut, names[:MAX_SHOWN]))}{_more(len(names) - MAX_SHOWN)}."
        for kind, names in (("Recorded", streams), ("Snapshots", snapshots), ("Logged", logged))
        if names
    ]
    return " ".join(lists) or "Nothing was recorded."


def _more(n: int) -> str:
    return f" and {n} more" if n > 0 else ""


def _from_prefix(query: Query, streams: Mapping[str, Key]) -> ReplayPlan | None:
    """Find the longest recorded query that this one begins with."""
    parts = {n: replace(query, stages=query.stages[:n]) for n in range(1, len(query.stages) + 1)}
    texts = {part.key: n for n, part in parts.items()}
    best = max((n for text, n in texts.items() if text in streams), default=0)
    if not best or _logged_tag(query) is not None or any(reads_event(stage) for stage in query.stages[best:]):
        return None
    done = query.stages[:best]
    held = bool(query.joins) or any(isinstance(stage, Where) for stage in done)
    keys = {"": streams[parts[best].key]}
    return ReplayPlan(query=query, how="prefix", keys=keys, n_done=best, held=held)


def reads_event(stage: Stage) -> bool:
    """Return whether a reducer reads the event itself: to close its window, or to group by it."""
    return isinstance(stage, Reduce) and bool(event_functions(stage))


def _logged_tag(query: Query) -> str | None:
    """Return the tag that a query of the log selects first, or `None` if its first stage computes something."""
    first = query.stages[0] if query.stages else None
    return _observable_of(first.fn) if query.event == LOG and isinstance(first, Map) else None


def _from_event(query: Query, keys: Sequence[Key], streams: Mapping[str, Key]) -> ReplayPlan | None:
    """Find series that hold the observables which a query reads."""
    known = _observables(query.event, keys, streams)
    tag = _logged_tag(query)
    if tag in known and not query.joins and not any(reads_event(stage) for stage in query.stages[1:]):
        return ReplayPlan(query=query, how="prefix", keys={"": known[tag]}, n_done=1, held=True)
    names = query.names
    if _reads_all(query) or (query.event == LOG and _counts(query)):
        names = list(series_names.shown(keys).values()) if query.event == LOG else []
    needed = [name for name in names if name not in EVENTS_OWN or name in known]
    if needed and all(name in known for name in needed):
        return ReplayPlan(
            query=query, how="event", keys={name: known[name] for name in needed}, held=query.event == LOG
        )
    every = _streams_of_each(query.event, keys)
    if every and set(names) <= EVENTS_OWN and (_counts_events(query) or not _reads_all(query)):
        return ReplayPlan(query=query, how="event", keys={"step": every[0]})
    snapshot = next((key for key in keys if key.kind == "snapshot" and key.tag == query.event), None)
    whole = streams.get(Query(query.event).key, snapshot)
    return None if whole is None else ReplayPlan(query=query, how="event", keys={"": whole})


def _joined(query: Query, event: str, keys: Sequence[Key], streams: Mapping[str, Key]) -> dict[str, Key]:
    """Return the series that hold what a query reads of an event that it joins.

    Raises:
        QueryError: There are none.
    """
    known, every = _observables(event, keys, streams), _streams_of_each(event, keys)
    names = list(dict.fromkeys(path[0] if path else "" for path in joined_paths(query, event)))
    needed = [name for name in names if name not in EVENTS_OWN or name in known]
    if needed and all(name in known for name in needed):
        return {name: known[name] for name in needed}
    if every and not needed:
        return {"step": every[0]}
    if (whole := streams.get(Query(event).key)) is not None:
        return {"": whole}
    parts = (f".map(lambda e: e[{name!r}])" if name else "" for name in needed or ["step"])
    needs = ", ".join(f"on({event!r}){part}" for part in parts)
    raise QueryError(f"join({event!r}) needs records of each event {event!r}: {needs}. {list_recorded(keys)}")


def _observables(event: str, keys: Sequence[Key], streams: Mapping[str, Key]) -> dict[str, Key]:
    """Return the series that hold one observable of an event, by its name."""
    if event == LOG:
        return series_names.named(keys)
    found = {}
    for text, key in streams.items():
        query = as_query(text)
        if query.event == event and len(query.stages) == 1 and isinstance(query.stages[0], Map):
            name = _observable_of(query.stages[0].fn)
            if name is not None:
                found[name] = key
    return found


def _observable_of(fn: e.Lambda) -> str | None:
    """Return the name of the observable that a function returns unchanged."""
    match fn:
        case e.Lambda(params=(root,), body=e.Attr(target=e.Var(name=name), name=attribute)) if name == root:
            return attribute
        case e.Lambda(params=(root,), body=e.Item(target=e.Var(name=name), index=e.Const(value=str(key)))) if (
            name == root
        ):
            return key
    return None


def _reads_all(query: Query) -> bool:
    """Return whether a query reads the event as a whole, and not only observables by name."""
    first = next((i for i, stage in enumerate(query.stages) if not isinstance(stage, Where)), len(query.stages))
    if first == len(query.stages):
        return True
    stage = query.stages[first]
    if isinstance(stage, Reduce) and stage.name not in COUNTING:
        return True
    lambdas = [stage.fn for stage in query.stages[: first + 1] if isinstance(stage, Map | Where)]
    lambdas += [fn for stage in query.stages if isinstance(stage, Reduce) for fn in event_functions(stage)]
    return any(reads_whole(fn.body, fn.params[0]) for fn in lambdas)


def _counts_events(query: Query) -> bool:
    """Return whether a query counts events, whatever their observables."""
    return _counts(query) and not reads_event(query.stages[0])


def _counts(query: Query) -> bool:
    """Return whether a query counts events first."""
    first = query.stages[0] if query.stages else None
    return isinstance(first, Reduce) and first.name in COUNTING


def _boundaries(query: Query, n_done: int, keys: Sequence[Key]) -> dict[str, Sequence[Key]]:
    """Return the series that delimit the groups of the remaining stages, by event."""
    boundaries: dict[str, Sequence[Key]] = {}
    for stage in query.stages[n_done:]:
        window = stage.window if isinstance(stage, Reduce) else None
        if isinstance(window, Group):
            boundaries[""] = [key for key in keys if key.kind == "groups" and key.tag == query.event]
        elif isinstance(window, Per):
            boundaries[window.event] = _series_of_each(window.event, keys)
    return boundaries


def _streams_of_each(event: str, keys: Sequence[Key]) -> list[Key]:
    """Return the recorded queries with a record for each event of a name, from when they were first recorded."""
    queries = [(key, as_query(key.query)) for key in keys if key.kind == "stream"]
    return [
        key for key, query in queries if query.event == event and all(isinstance(stage, Map) for stage in query.stages)
    ]


def _series_of_each(event: str, keys: Sequence[Key]) -> Sequence[Key]:
    """Return the series that together have a record for each event of a name.

    Raises:
        QueryError: No series has.
    """
    if event == LOG:
        found = [key for key in keys if key.kind == "logged"]
    else:
        # Each may have begun late. Snapshots may be of some events only.
        found = _streams_of_each(event, keys) or [key for key in keys if key.kind == "snapshot" and key.tag == event]
    if not found:
        needs = f"per={event!r} needs a record of each event {event!r}, such as of on({event!r}).map(lambda e: e.step)"
        raise QueryError(f"{needs}. {list_recorded(keys)}")
    return found
