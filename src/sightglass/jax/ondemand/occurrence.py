"""Where the events of a step happen and which observables they have, found in its jaxpr.

Rules:

1. A log belongs to the event that it names, or else to the step's own.
2. An event happens in the innermost loop body that contains all its logs, once each time that body runs. If no loop
   contains them all, it happens once per call of the step. Logs in a loop inside that body are stacked, as by `spool`.
3. The devices of a `shard_map` are not separate events: their logs are stacked, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sightglass.core.errors import LogError
from sightglass.jax.program import compat
from sightglass.jax.program.primitive import MARK, Site, log_p
from sightglass.jax.program.survey import ExpectedLog, Survey, survey

UNNAMED = "log"
LevelKind = Literal["loop", "branch", "devices", "call"]


class _Level(NamedTuple):
    """One level of nesting: the equation, which of its jaxprs, and how often that jaxpr runs; `None` if not known."""

    eqn: int
    part: int
    kind: LevelKind
    jaxpr: compat.AnyJaxpr
    n: int | None


_Located = tuple[Site, tuple[_Level, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Where an event happens.

    Attributes:
        event: Its name.
        body: The open jaxpr of the loop body in which it happens; `None` where it happens once a call.
        n_per_call: How often it happens in a call; `None` if the program decides.
        logs: What is logged there, by key.
        unavailable: Why other keys cannot be queried.
    """

    event: str
    body: compat.AnyJaxpr | None
    n_per_call: int | None
    logs: Survey
    unavailable: dict[str, str]

    @property
    def observables(self) -> dict[str, Any]:
        """Return the shapes and dtypes of what queries can read, by name; steps included."""
        known: dict[str, Any] = {}
        steps: dict[str, Any] = {}
        for key, expected in self.logs.items():
            if key.startswith(MARK):
                steps = {**expected.value, **steps} if surely_once(expected) else steps
            elif expected.n_events == 1 and not (expected.masked and expected.n_batch):
                known[key] = expected.value
            else:
                known[key] = expected.stacked
        return {**{name: compat.Aval((), a.dtype) for name, a in steps.items()}, **known}


def surely_once(expected: ExpectedLog) -> bool:
    """Return whether a log happens exactly once each time its event does."""
    return expected.n_events == 1 and not expected.masked


def event_of(site: Site, own: str) -> str:
    """Return the event that a log belongs to, in a step whose own event is `own`."""
    return own if site.event == UNNAMED else site.event


def occurrences(jaxpr: compat.AnyJaxpr, own: str) -> dict[str, Occurrence]:
    """Find the events of a step.

    Args:
        jaxpr: The step's program, traced with all its logs in it.
        own: The step's own event, which is always in the result.
    """
    found: dict[str, list[_Located]] = {own: []}
    for site, path in _sites(jaxpr, ()):
        found.setdefault(event_of(site, own), []).append((site, path))
    return {event: _occurrence(event, several, jaxpr, own) for event, several in found.items()}


def _sites(jaxpr: compat.AnyJaxpr, path: tuple[_Level, ...]) -> Iterator[_Located]:
    for eqn in compat.opened(jaxpr)[0].eqns:
        if eqn.primitive is log_p:
            yield eqn.params["site"], path
            continue
        for part, inner in enumerate(compat.subjaxprs(eqn.params)):
            yield from _sites(inner, (*path, _level(eqn, part, compat.opened(inner)[0])))


def _level(eqn: compat.Equation, part: int, inner: compat.AnyJaxpr) -> _Level:
    match eqn.primitive.name:
        case "scan":
            return _Level(id(eqn), part, "loop", inner, eqn.params["length"])
        case "while":
            return _Level(id(eqn), part, "loop", inner, None)
        case "cond":
            return _Level(id(eqn), part, "branch", inner, None)
        case "shard_map":
            return _Level(id(eqn), part, "devices", inner, None)
    return _Level(id(eqn), part, "call", inner, 1)


def _occurrence(
    event: str, several: Sequence[tuple[Site, tuple[_Level, ...]]], jaxpr: compat.AnyJaxpr, own: str
) -> Occurrence:
    body: compat.AnyJaxpr | None = None
    n: int | None = 1
    n_per_call: int | None = 1
    for level in _shared([path for _, path in several]):
        n = None if n is None or level.n is None else n * level.n
        if level.kind == "loop":
            body, n_per_call = level.jaxpr, n
    logs, unavailable = _logs_of(
        jaxpr if body is None else body, event, own, [k for site, _ in several for k in site.keys]
    )
    return Occurrence(event=event, body=body, n_per_call=n_per_call, logs=logs, unavailable=unavailable)


def _shared(paths: Sequence[tuple[_Level, ...]]) -> list[_Level]:
    """Return the levels that all paths share, as far as the first that runs once per device."""
    shared: list[_Level] = []
    for levels in zip(*paths, strict=False):
        if any(level[:2] != levels[0][:2] for level in levels) or levels[0].kind == "devices":
            break
        shared.append(levels[0])
    return shared


def _logs_of(jaxpr: compat.AnyJaxpr, event: str, own: str, keys: Sequence[str]) -> tuple[Survey, dict[str, str]]:
    logs: Survey = {}
    unavailable: dict[str, str] = {}
    for key in dict.fromkeys(keys):

        def named(name: str, site: Site, key: str = key) -> str | None:
            return name if name == key and event_of(site, own) == event else None

        try:
            found = survey(jaxpr, named)
        except LogError as error:
            unavailable[key] = str(error)
            continue
        for expected in found.values():
            if expected.n_events is None:
                unavailable[key] = (
                    f"The log under {key!r} at {expected.where} is in a while loop inside event {event!r}: how often "
                    f"it happens per event is not known. Give it an event of its own: log(…, event='…')"
                )
            else:
                logs[key] = expected
    return logs, {key: problem for key, problem in unavailable.items() if not key.startswith(MARK)}
