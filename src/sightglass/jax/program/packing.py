"""Pack equations without logs into few equations, so that emitting a program again takes little trace time.

Theory of operation:

1. Binding an equation again takes as long as tracing it did. An inner `jax.jit` is a single equation, whatever its
   size, and JAX does not trace its jaxpr again; XLA inlines it. So each run of pure equations becomes one.
2. A log has no results, so no equation depends on it: logs move behind the run that contains them, in their order. An
   equation with any other effect ends a run.
3. Loops, branches and calls that contain logs are packed inside.
4. What only logs read is packed apart, so that a loop can leave it out in some rounds (`gate.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from . import compat
from .primitive import log_p
from .structure import kind_of

# Binding this many equations again takes about as long as lowering one more function.
_WORTHWHILE = 20


def packed(jaxpr: compat.AnyJaxpr) -> Any:
    """Return a jaxpr, closed or open like this one, that computes and logs the same in fewer equations."""
    return _packed(jaxpr, functools.cache(compat.call_like))


def _packed(jaxpr: compat.AnyJaxpr, like: Callable[[], Any]) -> Any:
    inner, _ = compat.opened(jaxpr)
    needed = compat.variables(inner.outvars)
    parts: list[Sequence[Any]] = []
    for packable, group in itertools.groupby(reversed(inner.eqns), _is_packable):
        eqns = list(group)[::-1]
        part = _stretch(eqns, needed, like) if packable else [_packed_within(eqn, like) for eqn in eqns]
        needed.update(*(compat.variables(eqn.invars) for eqn in part))
        parts.append(part)
    return compat.with_equations(jaxpr, [eqn for part in reversed(parts) for eqn in part])


def _is_packable(eqn: compat.Equation) -> bool:
    return not eqn.effects or eqn.primitive is log_p


def _stretch(eqns: Sequence[Any], needed: set[Any], like: Callable[[], Any]) -> Sequence[Any]:
    """Pack the equations that are not logs into one."""
    logs = [eqn for eqn in eqns if eqn.primitive is log_p]
    pure = [eqn for eqn in eqns if eqn.primitive is not log_p]
    if len(pure) < _WORTHWHILE:
        return eqns
    outside = compat.needed(pure, needed)
    read = needed.union(*(compat.variables(log.invars) for log in logs))
    others = set(map(id, outside))
    only_logged = [eqn for eqn in pure if id(eqn) not in others]
    read_later = read.union(*(compat.variables(eqn.invars) for eqn in only_logged))
    parts = ((outside, read_later), (only_logged, read))
    return [*(one for eqns, read in parts for one in _shortened(eqns, read, like)), *logs]


def _shortened(eqns: Sequence[Any], needed: set[Any], like: Callable[[], Any]) -> Sequence[Any]:
    return [compat.as_one(eqns, needed, like())] if len(eqns) > 1 else eqns


def _packed_within(eqn: compat.Equation, like: Callable[[], Any]) -> Any:
    # A jit remembers the mesh it was traced on, and the body of a shard_map runs on another one.
    if compat.effect not in eqn.effects or kind_of(eqn) == "devices":
        return eqn
    return compat.with_jaxprs(eqn, lambda name, jaxpr: _packed(jaxpr, like))
