"""Emit a program again from its jaxpr, with something else in place of its logs.

Theory of operation:

1. A jaxpr is read, never edited. An equation without a log is bound again as it is; one with a log is emitted through
   `jax.lax.scan`, `while_loop`, `switch`, `jax.jit`, `jax.checkpoint`, `jax.shard_map`, `jax.custom_jvp`,
   `jax.custom_vjp`.
2. Two values pass through the whole program. A *state* is a pytree: loops carry it. *Collected logs* are the values
   logged so far under each key, with a leading event axis: a scan stacks them, later ones are appended, so they stay in
   program order.
3. Consecutive events of one body, without a loop or branch between them, are taken together (`Collector.take`).
4. Branches that log a different number of events are padded to the longest; a mask marks what happened.
5. An outer derivative of the emitted program uses the user's custom rules and collects the logs of the primal.
6. A primitive that contains logs and has no rule here raises an error with its name.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.pytree import Array, PyTree

from . import compat
from .collected import CollectedLogs, joined, padded, stacked
from .primitive import LogEvent, Site, log_p
from .survey import Survey, branches, kind_of, survey

Values = list[jax.Array]
Rule = Callable[["Walk", Any, Values, Any], tuple[Values, CollectedLogs, Any]]
NONE: Mapping[str, Rule] = {}


class Collector(Protocol):
    """Decides what replaces the logs of a program. By default it collects nothing and passes its state on."""

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, PyTree]:
        """Take consecutive events of one body; return the logs they add, and the new state."""
        ...

    def collected_as(self, key: str, site: Site) -> str | None:
        """Return the name under which a key is collected; `None` if the state holds it, or if it is ignored."""
        return None

    def completed(self, found: Survey) -> Survey:
        """Return the logs that a part of the program will collect, given what it logs."""
        return found

    def run(self, walk: Walk, jaxpr: compat.AnyJaxpr, values: Sequence[Any], state: PyTree) -> Any:
        """Run a jaxpr in place of the walk, with the results of `Walk.run`; `None` to let the walk do it."""
        return None

    def enter(self, jaxpr: compat.AnyJaxpr) -> None:
        """Note that the walk enters an open jaxpr."""
        return  # a body, so that mypy does not take it for abstract

    def leave(self, jaxpr: compat.AnyJaxpr, collected: CollectedLogs, state: PyTree) -> tuple[CollectedLogs, PyTree]:
        """Return the collected logs and the state with which the walk leaves an open jaxpr."""
        return collected, state

    def fork(self, state: PyTree) -> PyTree:
        """Return the initial state of each device of a `shard_map`."""
        return state

    def merge(self, state: PyTree, shards: PyTree, n_shards: int) -> PyTree:
        """Return the state after a `shard_map`, given its devices' states along a new leading axis."""
        return state


class Walk:
    """One walk over a program and all the programs within it.

    Args:
        collector: Decides what replaces the logs.
        also: Rules for other primitives to replace, by name.
    """

    def __init__(self, collector: Collector, also: Mapping[str, Rule] = NONE) -> None:
        self.collector = collector
        self._also = also
        self._contains: dict[int, tuple[Any, bool]] = {}
        self._varying: frozenset[str] = frozenset()

    def run(self, jaxpr: compat.AnyJaxpr, values: Sequence[Any], state: PyTree) -> tuple[Values, CollectedLogs, Any]:
        """Run a jaxpr on values.

        Args:
            jaxpr: Closed, or open without constants.
            values: The values of its inputs.
            state: The state before.

        Returns:
            Its outputs, the logs it collected, and the state after.
        """
        replaced: tuple[Values, CollectedLogs, Any] | None = self.collector.run(self, jaxpr, values, state)
        if replaced is not None:
            return replaced
        inner, consts = compat.opened(jaxpr)
        env: dict[Any, Any] = dict(zip((*inner.constvars, *inner.invars), (*consts, *values), strict=True))
        parts: list[CollectedLogs] = []
        pending: list[LogEvent] = []
        self.collector.enter(inner)
        for eqn in inner.eqns:
            inputs = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
            if eqn.primitive is log_p:
                pending.append(LogEvent.of(eqn, [self.varied(value) for value in inputs]))
                continue
            with compat.SourceContext(eqn):
                if self.replaces(eqn):
                    if pending:
                        collected, state = self.collector.take(pending, state)
                        parts.append(collected)
                        pending = []
                    outputs, collected, state = self.emit(eqn, inputs, state)
                    parts.append(collected)
                else:
                    outputs = compat.bind(eqn, inputs)
            env.update(zip(eqn.outvars, outputs, strict=True))
        if pending:
            collected, state = self.collector.take(pending, state)
            parts.append(collected)
        collected, state = self.collector.leave(inner, joined(parts), state)
        return [v.val if isinstance(v, Literal) else env[v] for v in inner.outvars], collected, state

    def contains_log(self, jaxpr: compat.AnyJaxpr) -> bool:
        """Return whether a jaxpr contains a log, at any depth."""
        inner, _ = compat.opened(jaxpr)
        known = self._contains.get(id(inner))
        if known is None:
            found = any(eqn.primitive is log_p or self.replaces(eqn) for eqn in inner.eqns)
            known = self._contains[id(inner)] = (inner, found)
        return known[1]

    def first_log(self, jaxpr: compat.AnyJaxpr) -> str:
        """Return the user's file and line of the first log in a jaxpr."""
        eqns = compat.opened(jaxpr)[0].eqns
        return next(compat.where(eqn) for eqn in eqns if eqn.primitive is log_p or self.replaces(eqn))

    def expected_logs(self, jaxpr: compat.AnyJaxpr) -> Survey:
        """Return the logs that a jaxpr will collect."""
        return self.collector.completed(survey(jaxpr, self.collector.collected_as))

    def varied(self, tree: PyTree) -> Any:
        """Mark values as varying between the devices of the `shard_map` that the walk is in, if any."""
        return compat.varied(tree, self._varying) if self._varying else tree

    @contextlib.contextmanager
    def within(self, axes: frozenset[str]) -> Iterator[None]:
        """Enter a `shard_map` over these axes that checks which values vary between its devices."""
        outer, self._varying = self._varying, self._varying | axes
        try:
            yield
        finally:
            self._varying = outer

    def replaces(self, eqn: compat.Equation) -> bool:
        """Return whether an equation is not bound again as it is."""
        return eqn.primitive.name in self._also or any(map(self.contains_log, compat.subjaxprs(eqn.params)))

    def emit(self, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
        """Emit an equation that is not bound again as it is; return its outputs, its logs, and the state."""
        rule = self._also.get(eqn.primitive.name) or RULES.get(eqn.primitive.name)
        if rule is None:
            raise LogError(
                f"Cannot collect logs inside {eqn.primitive.name!r} ({compat.where(eqn)}): "
                f"move the log out of it, or call it under strip()"
            )
        return rule(self, eqn, values, state)


def _jit(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    def inner(state: PyTree, *values: jax.Array) -> tuple[Values, CollectedLogs, Any]:
        return walk.run(eqn.params["jaxpr"], values, state)

    params = eqn.params
    inner.__name__ = inner.__qualname__ = params["name"]
    options = compat.jit_options(params)
    options["donate_argnums"] = tuple(i + 1 for i in options["donate_argnums"])
    if compat.specified(params["in_shardings"]):
        options["in_shardings"] = (None, *params["in_shardings"])
    if compat.specified(params["out_shardings"]):
        options["out_shardings"] = (list(params["out_shardings"]), None, None)
    return jax.jit(inner, **options)(state, *values)  # type: ignore[no-any-return]


def _call(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    return walk.run(next(compat.subjaxprs(eqn.params)), values, state)


def _checkpoint(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    def inner(values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
        return walk.run(eqn.params["jaxpr"], values, state)

    again = jax.checkpoint(inner, policy=eqn.params["policy"], prevent_cse=eqn.params["prevent_cse"])
    return again(values, state)  # type: ignore[no-any-return]


def _scan(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    n_consts, n_carry = compat.scan_arity(eqn.params)
    consts, carry, xs = values[:n_consts], values[n_consts : n_consts + n_carry], values[n_consts + n_carry :]

    def body(carry: tuple[Values, PyTree], x: Values) -> Any:
        outputs, collected, state = walk.run(eqn.params["jaxpr"], [*consts, *carry[0], *x], carry[1])
        return (outputs[:n_carry], state), (outputs[n_carry:], collected)

    body.__name__ = compat.function_name(eqn.params["jaxpr"])
    params = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    (carry, state), (ys, collected) = lax.scan(body, (carry, state), xs, **params)
    return [*carry, *ys], stacked(collected, reverse=params["reverse"]), state


def _while(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    params = eqn.params
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts, carry = values[:n_cond], values[n_cond : n_cond + n_body], values[n_cond + n_body :]

    def test(carry: Values, state: PyTree) -> tuple[Any, Any]:
        (going,), _, state = walk.run(params["cond_jaxpr"], [*cond_consts, *carry], state)
        return going, state

    def body(carry: Values, state: PyTree) -> tuple[Values, Any]:
        carry, _, state = walk.run(params["body_jaxpr"], [*body_consts, *carry], state)
        return carry, state

    n_lane_axes = compat.opened(params["cond_jaxpr"])[0].outvars[0].aval.ndim
    if not (n_lane_axes or walk.contains_log(params["cond_jaxpr"])):

        def each(s: tuple[Values, PyTree]) -> tuple[Values, Any]:
            return body(*s)

        each.__name__ = compat.function_name(params["body_jaxpr"])
        carry, state = lax.while_loop(lambda s: test(*s)[0], each, (carry, state))
        return carry, {}, state

    # Logs in the test can leave the loop only through the carry, so each iteration ends with the test for the next one.
    # Under vmap the test may differ between lanes: finished lanes keep their values, as in JAX's own lowering.
    def iteration(loop: tuple[jax.Array, Values, PyTree]) -> Any:
        going, old, state = loop
        carry, state = body(old, state)
        carry = [_select(going, new, kept) for new, kept in zip(carry, old, strict=True)] if n_lane_axes else carry
        going, state = test(carry, state)
        return going, carry, state

    iteration.__name__ = compat.function_name(params["body_jaxpr"])
    going, state = test(carry, state)
    _, carry, state = lax.while_loop(lambda loop: jnp.any(loop[0]), iteration, (going, carry, state))
    return carry, {}, state


def _select(mask: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    """Choose between arrays by a mask of their leading axes."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - mask.ndim)), new, old)


def _cond(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    found = [walk.expected_logs(branch) for branch in eqn.params["branches"]]
    together = branches(found)

    def branch(jaxpr: compat.AnyJaxpr) -> Callable[..., tuple[Values, CollectedLogs, Any]]:
        def inner(values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
            outputs, collected, state = walk.run(jaxpr, values, state)
            return outputs, walk.varied(padded(collected, together)), state

        return inner

    index, *operands = values
    return lax.switch(index, [branch(jaxpr) for jaxpr in eqn.params["branches"]], operands, state)  # type: ignore[no-any-return]


def _shard_map(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    params = eqn.params
    spec: Any = jax.sharding.PartitionSpec
    axes = compat.manual_axes(params)
    order = tuple(axis for axis in params["mesh"].axis_names if axis in axes)
    n_shards = math.prod(params["mesh"].shape[axis] for axis in order)

    def inner(state: PyTree, *values: jax.Array) -> Any:
        with walk.within(axes if params["check_vma"] else frozenset()):
            outputs, collected, state = walk.run(params["jaxpr"], values, walk.varied(state))
        collected = jax.tree.map(lambda a: a[:, None], collected)
        return outputs, collected, jax.tree.map(lambda a: jnp.asarray(a)[None], state)

    mapped = jax.shard_map(
        inner,
        mesh=params["mesh"],
        in_specs=(spec(), *params["in_specs"]),
        out_specs=(list(params["out_specs"]), spec(None, order), spec(order)),
        axis_names=set(axes),
        check_vma=params["check_vma"],
    )
    outputs, collected, states = mapped(walk.collector.fork(state), *values)
    collected, states = explicit.gathered(collected, 2), explicit.gathered(states, 1)
    return outputs, stacked(collected), walk.collector.merge(state, states, n_shards)


def _custom_jvp(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    return _with_own_jvp(walk, eqn, values, state, lambda values: (eqn.params["call_jaxpr"], values))


def _linear_solve(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    return _with_own_jvp(walk, eqn, values, state, lambda values: compat.solver(eqn.params, values))


def _with_own_jvp(
    walk: Walk, eqn: compat.Equation, values: Values, state: PyTree, running: Callable[[Values], tuple[Any, Any]]
) -> tuple[Values, CollectedLogs, Any]:
    """Emit the jaxpr that runs in an equation, given its operands, and leave its derivative to the equation."""

    def primal(values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
        return walk.run(*running(values), state)

    def rule(primals: Sequence[Values], tangents: Sequence[Values]) -> Any:
        outputs, slopes = jax.jvp(lambda *values: compat.bind(eqn, values), tuple(primals[0]), tuple(tangents[0]))
        _, collected, state = inner(*primals)
        return (outputs, collected, state), (slopes, *jax.tree.map(_no_tangent, (collected, state)))

    inner: Any = jax.custom_jvp(primal)
    inner.defjvp(rule)
    return inner(values, state)  # type: ignore[no-any-return]


def _custom_vjp(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
    def primal(values: Values, state: PyTree) -> tuple[Values, CollectedLogs, Any]:
        return walk.run(eqn.params["call_jaxpr"], values, state)

    def forward(values: Values, state: PyTree) -> Any:
        outputs, pullback = jax.vjp(lambda *values: compat.bind(eqn, values), *values)
        _, collected, state = inner(values, state)
        return (outputs, collected, state), pullback

    inner: Any = jax.custom_vjp(primal)
    inner.defvjp(forward, lambda pullback, cotangents: (list(pullback(cotangents[0])), None))
    return inner(values, state)  # type: ignore[no-any-return]


def _no_tangent(value: jax.Array) -> Array:
    """Return the zero tangent of a value that has no derivative here."""
    if jnp.issubdtype(value.dtype, jnp.inexact):
        return jnp.zeros_like(value)
    return np.zeros(value.shape, jax.dtypes.float0)


RULES: dict[str, Rule] = {
    **dict.fromkeys(("jit", "pjit"), _jit),
    **dict.fromkeys(("core_call", "closed_call", "core_closed_call", "eval_jaxpr"), _call),
    **dict.fromkeys(("checkpoint", "remat", "remat2"), _checkpoint),
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "shard_map": _shard_map,
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
    "custom_linear_solve": _linear_solve,
}


# Pack equations without logs into few equations, so that emitting a program again takes little trace time.
#
# Theory of operation:
#
# 1. Binding an equation again takes as long as tracing it did. An inner `jax.jit` is a single equation, whatever its
#    size, and JAX does not trace its jaxpr again; XLA inlines it. So each run of pure equations becomes one.
# 2. A log has no results, so no equation depends on it: logs move behind the run that contains them, in their order. An
#    equation with any other effect ends a run.
# 3. Loops, branches and calls that contain logs are packed inside.
# 4. What only logs read is packed apart, so that a loop can leave it out in some rounds (`gate.py`).

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
