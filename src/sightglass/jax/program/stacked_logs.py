"""Logs of a loop that its rows tell: what it scans over and stacks is there after a round, as it was in it.

A training that returns its metrics from a `lax.scan`, as many do, also logs them. Such a log needs no program that
computes the round again: it is read from the rows that the loop has written anyway.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import jax

from . import compat
from .control import control_p
from .primitive import MARK, UNNAMED, log_p
from .structure import sites, within
from .work import work

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
