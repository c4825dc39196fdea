"""Logs that a program collects: with a leading event axis, joined in the order of the program."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp

from sightglass.jax import explicit

from . import compat
from .control import control_p
from .primitive import MARK, UNNAMED, log_p
from .survey import Survey, sites, within, work


class CollectedLog(NamedTuple):
    """The values logged under one key.

    Attributes:
        value: The values; each leaf has shape (n_events, *batch, *shape).
        steps: The steps, by name, of shapes (n_events, *batch, *shape).
        valid: A mask of those that happened, shape (n_events, *batch); `None` if all did.
    """

    value: Any
    steps: dict[str, Any]
    valid: Any


CollectedLogs = dict[str, CollectedLog]


def joined(parts: Iterable[CollectedLogs]) -> CollectedLogs:
    """Concatenate collected logs, key by key."""
    every: dict[str, list[CollectedLog]] = {}
    for part in parts:
        for key, log in part.items():
            every.setdefault(key, []).append(log)
    return {key: _appended(logs) for key, logs in every.items()}


def _appended(logs: list[CollectedLog]) -> CollectedLog:
    if len(logs) == 1:
        return logs[0]
    mask = next((log.valid for log in logs if log.valid is not None), None)
    if mask is not None:
        logs = [log if log.valid is not None else _all_valid(log, mask.shape[1:]) for log in logs]
    return CollectedLog(*jax.tree.map(lambda *leaves: jnp.concatenate(explicit.alike(leaves)), *map(tuple, logs)))


def _all_valid(log: CollectedLog, shape: tuple[int, ...]) -> CollectedLog:
    return log._replace(valid=jnp.ones((_n_events(log), *shape), bool))


def _n_events(log: CollectedLog) -> int:
    return int(jax.tree.leaves(log.value)[0].shape[0])


def stacked(collected: CollectedLogs, *, reverse: bool = False) -> CollectedLogs:
    """Merge the two leading axes into one event axis, in the order in which the events happened."""

    def flat(leaf: jax.Array) -> jax.Array:
        leaf = jnp.flip(leaf, 0) if reverse else leaf
        return jax.lax.collapse(leaf, 0, 2)

    logs: CollectedLogs = jax.tree.map(flat, collected)
    return logs


def padded(collected: CollectedLogs, together: Survey) -> CollectedLogs:
    """Pad the logs of a branch to the shape that all branches share."""
    logs: CollectedLogs = {}
    for key, expected in together.items():
        missing = (expected.n_events or 0) - (_n_events(collected[key]) if key in collected else 0)
        valid = jnp.zeros((missing, *expected.batch), bool) if expected.masked else None
        blank = jax.tree.map(
            lambda a, n=missing: explicit.filled(explicit.abstract(a, lead=(n,))),
            CollectedLog(expected.value, expected.steps, None),
        )
        parts = [collected[key]] if key in collected else []
        if expected.masked and parts and parts[0].valid is None:
            parts = [_all_valid(parts[0], expected.batch)]
        logs[key] = _appended([*parts, blank._replace(valid=valid)]) if missing else parts[0]
    return logs


# Logs of a loop that its rows tell: what it scans over and stacks is there after a round, as it was in it.
#
# A training that returns its metrics from a `lax.scan`, as many do, also logs them. Such a log needs no program that
# computes the round again: it is read from the rows that the loop has written anyway.

# What is computed from rows is computed twice: in the round, and to read the log.
MAX_SHARE: Final = 0.01


@dataclass(frozen=True, slots=True, eq=False)
class StackedLogs:
    """The logs of a round that its rows tell.

    Attributes:
        jaxpr: These logs, given the loop's constants, a row of what it scans over, and one of what it stacks.
        ys: Which of the arrays that it stacks are read.
        keys: What is logged.
    """

    jaxpr: Any
    ys: tuple[int, ...]
    keys: frozenset[str]


def stacked_logs(round: compat.AnyJaxpr, n_consts: int, n_carry: int) -> StackedLogs | None:
    """Return the logs of a loop's round that its rows tell; `None` if there are none, or if they are expensive.

    Args:
        round: The jaxpr of a round, with its logs.
        n_consts: How many of its inputs are constants.
        n_carry: How many it carries.
    """
    inner, _ = compat.opened(round)
    given = [*inner.invars[:n_consts], *inner.invars[n_consts + n_carry :]]
    stacked: dict[Any, int] = {}
    for i, atom in enumerate(inner.outvars[n_carry:]):
        stacked |= dict.fromkeys(compat.variables([atom]).difference(given, stacked), i)
    n_logged = Counter(key for site, _ in sites(inner.eqns) for key in site.keys)
    known = {*inner.constvars, *given, *stacked}
    taken: list[Any] = []
    for eqn in inner.eqns:
        if eqn.primitive is log_p:
            taken += _known_part(eqn, known, n_logged)
        elif _is_plain(eqn) and compat.variables(eqn.invars) <= known and known.isdisjoint(eqn.outvars):
            taken.append(eqn)
            known |= compat.variables(eqn.outvars)
    taken = compat.needed(taken, set())
    logs = [eqn for eqn in taken if eqn.primitive is log_p]
    read = set().union(*(compat.variables(log.invars) for log in logs))
    derived = compat.part(round, [eqn for eqn in taken if eqn.primitive is not log_p], [*given, *stacked], list(read))
    keys = frozenset(key for log in logs for key in log.params["site"].keys)
    if not keys or work(derived) > MAX_SHARE * work(round):
        return None
    return StackedLogs(compat.part(round, taken, [*given, *stacked], []), tuple(stacked.values()), keys)


def _known_part(eqn: Any, known: set[Any], n_logged: Counter[str]) -> list[Any]:
    """Return a log as far as its values are known; nothing if its steps are not, or if not all rounds have it."""
    site = eqn.params["site"]
    if site.event != UNNAMED or eqn.params["masked"]:
        return []
    data, steps = jax.tree.unflatten(site.tree, eqn.invars)
    is_known = [compat.variables(jax.tree.leaves(value)) <= known for value in (*data, *steps)]
    kept = {
        key: value
        for key, value, known_value in zip(site.keys, data, is_known, strict=False)
        if known_value and n_logged[key] == 1
    }
    if not all(is_known[len(data) :]) or all(key.startswith(MARK) for key in kept):
        return []
    values, tree = jax.tree.flatten((list(kept.values()), steps))
    site = dataclasses.replace(site, keys=tuple(kept), tree=tree)
    return [eqn.replace(invars=values, params={**eqn.params, "site": site})]


def _is_plain(eqn: Any) -> bool:
    return not eqn.effects and eqn.primitive is not control_p and not within(eqn)
