"""What clients are told while a query has no records: what it waits for, or that it asks for something else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sightglass.core.errors import unknown, unknown_event
from sightglass.query import expressions as e
from sightglass.query.query import RESERVED, Query
from sightglass.query.reduce.table import REDUCERS
from sightglass.query.stages import Group, Map, Per, Reduce
from sightglass.training.evaluation.subscription import LOG
from sightglass.training.evaluation.subscriptions import EventSource

LOST: Final = "The latest {!r} was not read, since nobody asked: pairs begin with the next one."
LONG_CALL_S: Final = 10.0  # after this, who asked begins to wonder whether anything happens


def note(query: Query, sources: Mapping[str, EventSource], *, lost: Iterable[str]) -> str:
    """Return a remark for the user: what a query waits for, or that it asks for something else than it seems.

    Args:
        query: The query.
        sources: The events of the run.
        lost: The joined events of which the latest was not read.
    """
    return (
        for_first(query, sources)
        or _hint(query, sources)
        or "".join(map(LOST.format, lost))
        or _compiling(query, sources[query.event])
        or _lacking(query, sources[query.event])
        or _long_call(sources[query.event])
        or sources[query.event].note_of(query)
    )


def for_first(query: Query, sources: Mapping[str, EventSource]) -> str:
    """Say that a query waits for its event, or for a name in the log, that is unknown so far."""
    if query.event not in sources:
        offered = {name: source.observables for name, source in sources.items()}
        return unknown_event(query.event, offered) + " Waiting for the first."
    if query.event == LOG:
        logged = sources[LOG].observables
        for name in query.names:
            if name not in logged:
                return unknown("name", name, logged, where="in the log so far") + " Waiting for it to be logged."
    return ""


def _compiling(query: Query, source: EventSource) -> str:
    """Say that a step is compiled with a query."""
    seconds = source.compiling(query.key)
    if seconds is None:
        return ""
    return f"Compiling for {int(seconds)} s: records begin when the step runs with this query."


def _lacking(query: Query, source: EventSource) -> str:
    """Say that a compiled step does not log for an event as it is called now."""
    if not source.lacks(query.key):
        return ""
    return (
        f"The step does not log for event {query.event!r} with the shapes and static arguments that it is called with "
        "now; records begin with a call that does."
    )


def _long_call(source: EventSource) -> str:
    """Say that a compiled step is inside of a call that takes long, or is not called any more."""
    seconds = int(source.called())
    if seconds < LONG_CALL_S:
        return ""
    ago = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"The last call of {source.name!r} began {ago} ago; it will be asked at the next call."


def _hint(query: Query, sources: Mapping[str, EventSource]) -> str:
    """Say that names are unknown so far, that groups wait, or that a function of one number is not a reducer."""
    source = sources[query.event]
    if source.origin == "observe" and source.observables and query.event != LOG:
        known = {*source.observables, *RESERVED}
        for name in query.names:
            if name not in known:
                message = unknown("observable", name, known, where=f"at event {query.event!r} so far")
                is_logged = LOG in sources and name in sources[LOG].observables
                return f"{message} It is logged: ask {LOG}.{name}." if is_logged else message
    for joined in query.joins:
        if joined not in sources:
            return unknown("event", joined, sources, where="so far") + " Pairs begin when it happens."
    for stage in query.stages:
        window = stage.window if isinstance(stage, Reduce) else None
        if isinstance(window, Per) and window.event not in sources:
            return unknown("event", window.event, sources, where="so far") + " Groups close when it happens."
        if isinstance(window, Group) and not source.n_groups and source.origin == "observe":
            return f"Groups close at end_group({query.event!r}), which the run has not called so far; or name a window."
    match query.stages:
        case (Map(fn=e.Lambda(body=e.Call(name=name, args=(e.Attr(target=e.Var(), name=observable),), kwargs=()))),):
            facts = source.observables.get(observable)
            if name in REDUCERS and facts is not None and facts.type in ("float", "int"):
                path = f"{query.event}.{observable}"
                return (
                    f"{path} is a number, and {name} of it a function of that number alone. "
                    f"For many events write {path}.{name}(every=100)."
                )
    return ""
