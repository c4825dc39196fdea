"""Pack what holds no log into few equations, so that running a program again costs little trace time.

Theory of operation:

1. To bind an equation again costs as much as tracing it did. An inner `jax.jit` is one equation, whatever is in it, and
   JAX does not trace its jaxpr again; XLA inlines it. So each stretch of pure equations becomes one.
2. A log has no results, so nothing in a stretch waits for it: logs are put behind the stretch in which they stand,
   which leaves their order as it is. An equation that has any other effect ends a stretch.
3. Loops, branches and calls that hold logs are packed inside.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from . import compat
from .primitive import log_p

# A shorter stretch costs no less as one equation, and the program is easier to read as it is.
_SHORT = 16


def packed(jaxpr: Any) -> Any:
    """Return a jaxpr that computes and logs the same, in fewer equations.

    Args:
        jaxpr: Closed, or open.
    """
    inner, _ = compat.opened(jaxpr)
    needed = compat.variables(inner.outvars)
    parts: list[Sequence[Any]] = []
    for pure, group in itertools.groupby(reversed(inner.eqns), _may_be_packed):
        eqns = list(group)[::-1]
        part = _stretch(eqns, needed) if pure else [_packed_within(eqn) for eqn in eqns]
        needed.update(*(compat.variables(eqn.invars) for eqn in part))
        parts.append(part)
    return compat.with_equations(jaxpr, [eqn for part in reversed(parts) for eqn in part])


def _may_be_packed(eqn: Any) -> bool:
    return not eqn.effects or eqn.primitive is log_p


def _stretch(eqns: Sequence[Any], needed: set[Any]) -> Sequence[Any]:
    """Make one equation of those that are no logs, with those of their results that are needed behind them."""
    logs = [eqn for eqn in eqns if eqn.primitive is log_p]
    if len(eqns) - len(logs) < _SHORT:
        return eqns
    pure = [eqn for eqn in eqns if eqn.primitive is not log_p]
    return [compat.as_one(pure, needed.union(*(compat.variables(log.invars) for log in logs))), *logs]


def _packed_within(eqn: Any) -> Any:
    # The body of a shard_map runs on another mesh than the one that is in force here, and that a jit would remember.
    if compat.effect not in eqn.effects or eqn.primitive.name == "shard_map":
        return eqn
    return eqn.replace(params={name: _packed_parameter(value) for name, value in eqn.params.items()})


def _packed_parameter(value: Any) -> Any:
    if compat.is_jaxpr(value):
        return packed(value)
    return tuple(map(_packed_parameter, value)) if type(value) is tuple else value
