"""Pack what holds no log into few equations, so that running a program again costs little trace time.

Theory of operation:

1. To bind an equation again costs as much as tracing it did. An inner `jax.jit` is one equation whatever is in it, and
   JAX does not trace its jaxpr again; XLA inlines it. So each stretch of pure equations becomes one.
2. A log has no results, so nothing in a stretch waits for it: logs are put behind the stretch in which they stand, in
   their order. An equation with any other effect ends a stretch.
3. Loops, branches and calls that hold logs are packed inside.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from . import compat
from .primitive import log_p

# To bind this many equations again costs about as much as to lower one more function.
_WORTHWHILE = 20


def packed(jaxpr: Any) -> Any:
    """Return a jaxpr, closed or open as it is, that computes and logs the same in fewer equations."""
    return _packed(jaxpr, functools.cache(compat.call_like))


def _packed(jaxpr: Any, like: Callable[[], Any]) -> Any:
    inner, _ = compat.opened(jaxpr)
    needed = compat.variables(inner.outvars)
    parts: list[Sequence[Any]] = []
    for packable, group in itertools.groupby(reversed(inner.eqns), _is_packable):
        eqns = list(group)[::-1]
        part = _stretch(eqns, needed, like) if packable else [_packed_within(eqn, like) for eqn in eqns]
        needed.update(*(compat.variables(eqn.invars) for eqn in part))
        parts.append(part)
    return compat.with_equations(jaxpr, [eqn for part in reversed(parts) for eqn in part])


def _is_packable(eqn: Any) -> bool:
    return not eqn.effects or eqn.primitive is log_p


def _stretch(eqns: Sequence[Any], needed: set[Any], like: Callable[[], Any]) -> Sequence[Any]:
    """Make one equation of those that are no logs."""
    logs = [eqn for eqn in eqns if eqn.primitive is log_p]
    pure = [eqn for eqn in eqns if eqn.primitive is not log_p]
    if len(pure) < _WORTHWHILE:
        return eqns
    return [compat.as_one(pure, needed.union(*(compat.variables(log.invars) for log in logs)), like()), *logs]


def _packed_within(eqn: Any, like: Callable[[], Any]) -> Any:
    # A jit keeps the mesh it was made on, and the body of a shard_map runs on another one.
    if compat.effect not in eqn.effects or eqn.primitive.name == "shard_map":
        return eqn
    return eqn.replace(params={name: _packed_parameter(value, like) for name, value in eqn.params.items()})


def _packed_parameter(value: Any, like: Callable[[], Any]) -> Any:
    if compat.is_jaxpr(value):
        return _packed(value, like)
    return tuple(_packed_parameter(item, like) for item in value) if type(value) is tuple else value
