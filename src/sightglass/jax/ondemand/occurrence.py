"""Where the events of a step happen and which observables they have, found in its jaxpr.

Rules:

1. The step's own event happens once per call, and the round of a loop is an event of its own (see `placed`).
2. A log belongs to the event that it names, or else to that of the innermost loop around it. Logs in a loop inside that
   event are stacked, as by `spool`.
3. Any other event that logs name happens in the innermost loop body that contains all of them.
4. If such an event is one log, under a condition that differs between the lanes of a `vmap`, it happens once for each
   lane in which the log does. The number of the lane is a step, named after the axis.
5. The devices of a `shard_map` are not separate events: their logs are stacked, too.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.program import compat
from sightglass.jax.program.primitive import IN_LOG, MARK, UNNAMED, Site, log_p
from sightglass.jax.program.survey import TEST, ExpectedLog, Inner, Path, Survey, kind_of, sites, survey, within


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """Where an event happens.

    Attributes:
        event: Its name.
        body: The open jaxpr of the loop body in which it happens; `None` where it happens once a call.
        n_per_call: How often it happens in a call; `None` if the program decides.
        logs: What is logged there, by key.
        n_rounds: How many rounds its loop has each time it runs; `None` if the program decides.
        lanes: The names of the axes of the lanes, if it happens once for each of these.
        unavailable: Why other keys cannot be queried.
        is_log: Whether it is one log of its own name: it happens where that log does, such as in a branch.
    """

    event: str
    body: compat.AnyJaxpr | None
    n_per_call: int | None
    logs: Survey
    unavailable: dict[str, str]
    n_rounds: int | None = None
    lanes: tuple[str, ...] = ()
    is_log: bool = False

    @property
    def sign(self) -> str | None:
        """Return a key that is logged whenever the event happens, if it is one log and its keys were traced."""
        return next((key for key in self.logs if self.is_log and not key.startswith(MARK)), None)

    @property
    def observables(self) -> dict[str, Any]:
        """Return the shapes and dtypes of what queries can read, by name; steps included."""
        known: dict[str, Any] = {}
        steps: dict[str, Any] = dict.fromkeys(self.lanes, compat.Aval((), jnp.int32))
        for key, expected in self.logs.items():
            if key.startswith(MARK):
                steps = {**expected.value, **steps} if self.lanes or surely_once(expected) else steps
            elif self.lanes:
                known[key] = jax.tree.map(lambda a: explicit.abstract(a, drop=len(self.lanes)), expected.value)
            elif expected.n_events == 1 and not (expected.masked and expected.n_batch):
                known[key] = expected.value
            else:
                known[key] = expected.stacked
        return {**{name: compat.Aval((), a.dtype) for name, a in steps.items()}, **known}


def surely_once(expected: ExpectedLog) -> bool:
    """Return whether a log happens exactly once each time its event does."""
    return expected.n_events == 1 and not expected.masked


def occurrences(program: PlacedProgram) -> dict[str, Occurrence]:
    """Find the events of a step; its own is always in the result."""
    found: dict[str, list[tuple[Site, Path]]] = {program.own: []}
    for site, path in sites(compat.opened(program.jaxpr)[0].eqns):
        found.setdefault(site.event, []).append((site, path))
    return {event: _occurrence(event, several, program) for event, several in found.items()}


def _occurrence(event: str, several: Sequence[tuple[Site, Path]], program: PlacedProgram) -> Occurrence:
    bodies = program.bodies
    body: compat.AnyJaxpr | None = bodies[program.own]
    n: int | None = 1
    n_per_call: int | None = 1
    n_rounds: int | None = None
    for level in _shared([path for _, path in several]) if event != program.own else ():
        if level.jaxpr is not bodies[program.own]:
            n = None if n is None or level.n is None else n * level.n
        if level.kind == "loop":
            body, n_per_call, n_rounds = level.jaxpr, n, level.n
        if level.jaxpr is bodies.get(event):
            break
    keys = [key for site, _ in several for key in site.keys]
    logs, unavailable = _logs_of(program.jaxpr if body is None else body, event, keys)
    lanes: tuple[str, ...] = ()
    is_log = event not in bodies and len(several) == 1 and not unavailable
    if is_log and body is not None and logs:
        found = list(logs.values())
        if all(expected.by_lane and expected.n_events == 1 for expected in found):
            lanes, n_per_call = found[0].lanes, None
    return Occurrence(
        event=event,
        body=body,
        n_per_call=n_per_call,
        n_rounds=n_rounds,
        logs=logs,
        unavailable=unavailable,
        lanes=lanes,
        is_log=is_log,
    )


def _shared(paths: Sequence[Path]) -> list[Inner]:
    """Return the levels that all paths share, as far as the first that runs once per device."""
    shared: list[Inner] = []
    for levels in zip(*paths, strict=False):
        if any(level is not levels[0] for level in levels) or levels[0].kind == "devices":
            break
        shared.append(levels[0])
    return shared


def _logs_of(jaxpr: compat.AnyJaxpr, event: str, keys: Sequence[str]) -> tuple[Survey, dict[str, str]]:
    """Return what is logged for an event under each key, and why some keys cannot be queried."""
    found: Survey = {}
    unavailable: dict[str, str] = {}
    several = [frozenset(keys)]
    while several:  # all keys in one survey, and each in one of its own only if some do not fit together
        wanted = several.pop()

        def named(key: str, site: Site, wanted: frozenset[str] = wanted) -> str | None:
            return key if key in wanted and site.event == event else None

        try:
            found |= survey(jaxpr, named)
        except LogError as error:
            if len(wanted) == 1:
                unavailable |= dict.fromkeys(wanted, str(error))
            else:
                several = [frozenset((key,)) for key in reversed(dict.fromkeys(keys))]
    logs: Survey = {}
    for key in dict.fromkeys(keys):
        expected = found.get(key)
        if expected is not None and expected.n_events is None:
            unavailable[key] = (
                f"The log under {key!r} at {expected.where} is in a while loop inside event {event!r}: how often "
                f"it happens per event is not known. To make each round an event, leave out event= there"
            )
        elif expected is not None:
            logs[key] = expected
    return logs, {key: problem for key, problem in unavailable.items() if not key.startswith(MARK)}


# Which event each log of a step belongs to. Only loops and names decide it: no other log changes it.
#
# Rules:
#
# 1. A log that names an event belongs to it.
# 2. Any other log belongs to the innermost loop around it: "batch_update" for a loop whose body is the function
#    `update`, in a step whose own event is "batch". Of several loops with one function, the second is "batch_update_2".
#    A function without a public name is a "loop", or the "test" of one.
# 3. A log outside of loops belongs to the step's own event. So does one directly in the rounds that `chunked` counts.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedProgram:
    """A step's program, in which each log has the name of its event.

    Attributes:
        jaxpr: The program.
        own: The step's own event.
        bodies: The open jaxpr of each loop that logs, by its event. That of the own event is `None`, or the body of the
            outermost loop where each of its rounds counts as a call.
    """

    jaxpr: Any
    own: str
    bodies: dict[str, compat.AnyJaxpr | None]


def placed(jaxpr: compat.AnyJaxpr, own: str, *, counts_rounds: bool = False) -> PlacedProgram:
    """Name the events of a program, which was traced with all its logs in it.

    Args:
        jaxpr: The program.
        own: The step's own event.
        counts_rounds: Whether each round of the outermost loop counts as a call.
    """
    names = _LoopNames(own)
    bodies: dict[str, compat.AnyJaxpr | None] = {own: None}

    def inside(jaxpr: Any, event: str, *, on_devices: bool, in_log: bool) -> Any:
        inner, _ = compat.opened(jaxpr)
        return compat.with_equations(jaxpr, [equation(eqn, event, on_devices, in_log) for eqn in inner.eqns])

    def equation(eqn: Any, event: str, on_devices: bool, in_log: bool) -> Any:
        if eqn.primitive is log_p:
            site = eqn.params["site"]
            if site.event == UNNAMED:
                eqn = eqn.replace(params={**eqn.params, "site": dataclasses.replace(site, event=event)})
            return eqn
        if compat.effect not in eqn.effects:
            if not in_log:
                names.count(eqn)
            return eqn
        in_log = in_log or IN_LOG in compat.name_stack(eqn)
        kind = kind_of(eqn)
        on_devices = on_devices or kind == "devices"

        def placed_within(name: str, jaxpr: Any) -> Any:
            if kind != "loop":
                return inside(jaxpr, event, on_devices=on_devices, in_log=in_log)
            is_round = counts_rounds and bodies[own] is None and name != TEST
            of_loop = own if is_round else names.next(jaxpr, name, in_log=in_log)
            body = inside(jaxpr, event if on_devices else of_loop, on_devices=on_devices, in_log=in_log)
            if not on_devices:
                bodies[of_loop] = compat.opened(body)[0]
            return body

        return compat.with_jaxprs(eqn, placed_within)

    return PlacedProgram(jaxpr=inside(jaxpr, own, on_devices=False, in_log=False), own=own, bodies=bodies)


class _LoopNames:
    """Names loops in the order of the program, whether they log or not, so that a log renames no other loop."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._counts: Counter[str] = Counter()

    def next(self, body: compat.AnyJaxpr, part: str, *, in_log: bool = False) -> str:
        """Return the name of the next loop's event.

        Args:
            body: What it repeats.
            part: As which of its parameters.
            in_log: Whether only a log computes it: it may be missing next time, so these loops have names of their own.
        """
        function, other = compat.function_name(body), "test" if part == TEST else "loop"
        own = f"{self._own}_log" if in_log else self._own
        name = f"{own}_{function if function.isidentifier() and function[0] != '_' else other}"
        self._counts[name] += 1
        return name if self._counts[name] == 1 else f"{name}_{self._counts[name]}"

    def count(self, eqn: compat.Equation) -> None:
        """Count the loops in an equation that logs nothing; those that only a log computes may be missing next time."""
        programs = within(eqn)
        if programs and IN_LOG in compat.name_stack(eqn):
            return
        for inner in programs:
            if inner.kind == "loop":
                self.next(inner.jaxpr, inner.name)
            for each in inner.jaxpr.eqns:
                self.count(each)
