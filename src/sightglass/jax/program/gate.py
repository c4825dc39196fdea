"""Emit a round of a loop so that what only its logs need is computed in some rounds.

Theory of operation:

1. The equations of the round are divided. What its results need, and what has another effect, is *now*. The logs of the
   gated events and all that nothing else needs is *later*: it is emitted together, at the end of the round, under a
   condition. What the loop carries does not pass through the condition, as XLA would copy it there.
2. An inner `jax.jit` that logs is opened, so that its equations are divided, too. Those of other calls, branches and
   loops stay together: if one of their results is needed, all of it is computed in every round.
3. The condition stands in the body of the loop, around what `vmap` has made of the logs, so it is one number and never
   becomes a select.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from . import compat
from .collected import CollectedLogs
from .primitive import LogEvent, log_p
from .survey import sites
from .walk import Values, Walk


class _Promise:
    """Stands for a value that is computed later."""


class _Later(NamedTuple):
    """An equation to emit later: its inputs may be promises, its results are."""

    eqn: Any
    inputs: list[Any]
    results: list[_Promise]


class GatedRound:
    """A round of a loop, the first part of which is emitted.

    Args:
        walk: The walk over the program.
        events: The events whose logs are gated.
    """

    def __init__(self, walk: Walk, events: frozenset[str]) -> None:
        self._walk = walk
        self._events = events
        self._parts: list[_Later | CollectedLogs] = []

    def begin(self, jaxpr: Any, values: Sequence[Any], state: Any) -> tuple[Values, list[CollectedLogs], Any]:
        """Emit what is needed in every round.

        Returns:
            The results of the round, the logs it collected so far, and the state.
        """
        results, state = self._begin(jaxpr, values, [True] * len(compat.opened(jaxpr)[0].outvars), state)
        return results, [part for part in self._parts if isinstance(part, dict)], state

    def rest(self) -> Iterator[CollectedLogs]:
        """Emit the rest, within the condition; yields all logs of the round in the order of the program."""
        made: dict[_Promise, Any] = {}
        for part in self._parts:
            if isinstance(part, dict):
                yield part
                continue
            inputs = [made[value] if isinstance(value, _Promise) else value for value in part.inputs]
            outputs, collected, _ = self._emit(part.eqn, inputs, None)
            made.update(zip(part.results, outputs, strict=True))
            if collected:
                yield collected

    def _begin(self, jaxpr: Any, values: Sequence[Any], wanted: Sequence[bool], state: Any) -> tuple[list[Any], Any]:
        """Emit what is needed for the wanted results; the others may be promises."""
        inner, consts = compat.opened(jaxpr)
        env: dict[Any, Any] = dict(zip((*inner.constvars, *inner.invars), (*consts, *values), strict=True))
        now = self._now(inner, wanted)
        for eqn in inner.eqns:
            inputs = compat.read(env, eqn.invars)
            if id(eqn) not in now:
                results: list[Any] = [_Promise() for _ in eqn.outvars]
                self._parts.append(_Later(eqn, inputs, results))
            elif self._opens(eqn):
                needed = [v in now[id(eqn)] for v in eqn.outvars]
                results, state = self._begin(eqn.params["jaxpr"], inputs, needed, state)
            else:
                results, collected, state = self._emit(eqn, inputs, state)
                if collected:
                    self._parts.append(collected)
            env.update(zip(eqn.outvars, results, strict=True))
        return compat.read(env, inner.outvars), state

    def _emit(self, eqn: Any, inputs: Values, state: Any) -> tuple[Values, CollectedLogs, Any]:
        with compat.SourceContext(eqn):
            if eqn.primitive is log_p:
                return [], *self._walk.collector.take([LogEvent.of(eqn, inputs)], state)
            if self._walk.replaces(eqn):
                return self._walk.emit(eqn, inputs, state)
            return compat.bind(eqn, inputs), {}, state

    def _now(self, inner: Any, wanted: Sequence[bool]) -> dict[int, set[Any]]:
        """Return the equations that are needed in every round, by identity, each with what is needed after it."""
        needed = compat.variables([v for v, is_wanted in zip(inner.outvars, wanted, strict=True) if is_wanted])
        now: dict[int, set[Any]] = {}
        for eqn in reversed(inner.eqns):
            if compat.variables(eqn.outvars) & needed or not self._is_gated(eqn):
                now[id(eqn)] = compat.variables(eqn.outvars) & needed
                needed |= compat.variables(eqn.invars)
        return now

    def _is_gated(self, eqn: Any) -> bool:
        """Return whether an equation has no effect but logs of the gated events."""
        return not eqn.effects - {compat.effect} and all(site.event in self._events for site, _ in sites([eqn]))

    def _opens(self, eqn: Any) -> bool:
        params = eqn.params
        if eqn.primitive.name not in ("jit", "pjit") or not self._walk.replaces(eqn):
            return False
        return not any(compat.specified(params[name]) for name in ("in_shardings", "out_shardings"))
