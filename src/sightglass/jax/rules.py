"""Logs in the loops and branches of programs that JAX transforms: they happen as often as in the program itself.

1. Under `jax.vmap`, JAX runs all branches of a `cond` whose predicate differs between lanes, and all lanes of a `while`
   until the last one has finished, and selects the results afterwards. Without a mask, a log would happen for the wrong
   lanes. So the two batching rules are wrapped: logs inside get a mask first.
2. Under differentiation, JAX takes out of a `scan` what depends on none of the values that change in it, effects
   included: a log of a constant would happen once. So the two rules of differentiation are wrapped: logs inside, at any
   depth, are first tied to a value that changes.

JAX's own rules handle all other programs. `install` is the one place where rules of JAX's are replaced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal, Primitive
from jax.extend.core.primitives import cond_p, scan_p, while_p
from jax.interpreters import ad, batching, mlir

from sightglass.core.errors import LogError, warn_user
from sightglass.jax import explicit
from sightglass.jax.pytree import PyTree

from .program import compat
from .program.collected import CollectedLogs
from .program.primitive import LogEvent, log_p
from .program.walk import RULES, Collector, Values, Walk
from .tap import tap_p

Masked = tuple[Values, CollectedLogs, Any]


class _Masking(Collector):
    """Logs each event again, under a mask, which is the state."""

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, Any]:
        for event in events:
            event.masked_by(state).bind()
        return {}, state


def _mask_tap(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> Masked:
    specs, operands, start = [], [values[0]], 1
    for spec in eqn.params["specs"]:
        own = values[start : start + spec.n_leaves]
        start += spec.n_leaves
        mask = explicit.repeated(state, own[-1], len(spec.axes))
        if spec.masked:
            mask, own = jnp.logical_and(own[0], mask), own[1:]
        operands += [mask, *own]
        specs.append(replace(spec, masked=True))
    return tap_p.bind(*operands, **{**eqn.params, "specs": tuple(specs)}), {}, state


def _walk() -> Walk:
    return Walk(_Masking(), {tap_p.name: _mask_tap})


def _cond(batch: Callable[..., Any]) -> Callable[..., Any]:
    def rule(
        axis: object,
        args: Sequence[Any],
        dims: Sequence[int | None],
        *,
        branches: Sequence[compat.AnyJaxpr],
        **params: Any,
    ) -> Any:
        walk = _walk()
        if dims[0] is None or not any(map(walk.contains_log, branches)):
            return batch(axis, args, dims, branches=branches, **params)

        def masked(number: int, branch: compat.AnyJaxpr) -> Any:
            return lambda index, *values: walk.run(branch, values, index == number)[0]

        index = explicit.abstract(args[0], drop=args[0].ndim)
        branches = tuple(
            jax.make_jaxpr(masked(i, branch))(index, *_avals(compat.opened(branch)[0].invars))
            for i, branch in enumerate(branches)
        )
        args, dims = [args[0], args[0], *args[1:]], [dims[0], dims[0], *dims[1:]]
        return batch(axis, args, dims, branches=branches, **params)

    return rule


def _avals(operands: Sequence[Any]) -> list[Any]:
    avals = [explicit.abstract(v.aval) for v in operands]
    return [aval.update(weak_type=getattr(v.aval, "weak_type", False)) for aval, v in zip(avals, operands, strict=True)]


def _while(batch: Callable[..., Any]) -> Callable[..., Any]:
    def rule(axis: object, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
        walk, test, body = _walk(), params["cond_jaxpr"], params["body_jaxpr"]
        n_test, n_body = params["cond_nconsts"], params["body_nconsts"]
        if not (walk.contains_log(test) or walk.contains_log(body)) or not _differs(dims, test, body, n_test, n_body):
            return batch(axis, args, dims, **params)
        if walk.contains_log(test):
            raise LogError(
                f"Cannot collect logs in the test of a while loop ({walk.first_log(test)}) under vmap when its lanes "
                "end at different times: log at the end of the loop's body instead"
            )

        def masked(*values: jax.Array) -> Values:
            consts, carry = values[: n_test + n_body], values[n_test + n_body :]
            (active,) = jax.core.eval_jaxpr(*compat.opened(test), *consts[:n_test], *carry)
            return walk.run(body, [*consts[n_test:], *carry], active)[0]

        masked.__name__ = compat.function_name(body)
        operands = [*compat.opened(test)[0].invars[:n_test], *compat.opened(body)[0].invars]
        params |= {"body_jaxpr": jax.make_jaxpr(masked)(*_avals(operands)), "body_nconsts": n_test + n_body}
        args, dims = [*args[:n_test], *args], [*dims[:n_test], *dims]
        return batch(axis, args, dims, **params)

    return rule


def _differs(
    dims: Sequence[int | None], test: compat.AnyJaxpr, body: compat.AnyJaxpr, n_test: int, n_body: int
) -> bool:
    """Return whether the test of a while loop may differ between lanes."""
    batched = [dim is not None for dim in dims]
    consts, carry = batched[n_test : n_test + n_body], batched[n_test + n_body :]
    while True:
        after = _reached(body, [*consts, *carry])
        grown = [a or b for a, b in zip(carry, after, strict=True)]
        if grown == carry:
            return any(_reached(test, [*batched[:n_test], *carry]))
        carry = grown


def _reached(jaxpr: compat.AnyJaxpr, inputs: Sequence[bool]) -> list[bool]:
    """Return which outputs depend on some of the inputs."""
    inner, _ = compat.opened(jaxpr)
    reached = {v for v, is_ in zip(inner.invars, inputs, strict=True) if is_}
    for eqn in inner.eqns:
        if any(not isinstance(v, Literal) and v in reached for v in eqn.invars):
            reached.update(eqn.outvars)
    return [not isinstance(v, Literal) and v in reached for v in inner.outvars]


tied_p: Any = Primitive("tied")
"""Returns its operands but the last, on which they depend as far as JAX can see; compiles to nothing."""
tied_p.multiple_results = True
tied_p.def_impl(lambda *values: list(values[:-1]))
tied_p.def_abstract_eval(lambda *avals: list(avals[:-1]))
ad.primitive_jvps[tied_p] = lambda primals, tangents: (tied_p.bind(*primals), tangents[:-1])
batching.primitive_batchers[tied_p] = lambda values, dims: (tied_p.bind(*values), dims[:-1])
mlir.register_lowering(tied_p, lambda context, *values: list(values[:-1]))


class _Tying(Collector):
    """Logs each event again, tied to the state, a value that changes in the loop."""

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, Any]:
        for event in events:
            leaves, tree = jax.tree.flatten(list(event.data.values()))  # a mapping would lose its order
            values = jax.tree.unflatten(tree, _tied_to(state, leaves))
            replace(event, data=dict(zip(event.data, values, strict=True))).bind()
        return {}, state


def _tie_all(walk: Walk, eqn: compat.Equation, values: Values, state: PyTree) -> Masked:
    """Emit what contains logs with all that it reads tied to the state: JAX drops the effects of a part."""
    if eqn.primitive.name.startswith("custom_"):  # JAX traces its derivative anew, and with it the logs
        return compat.bind(eqn, _tied_to(state, values)), {}, state
    if eqn.primitive is scan_p:
        eqn = eqn.replace(params={**eqn.params, "jaxpr": _tied(eqn.params["jaxpr"], eqn.params)})
    return RULES[eqn.primitive.name](walk, eqn, _tied_to(state, values), state)


def _tied_to(tie: Any, values: Values) -> Values:
    """Return values unchanged, which depend on the tie as far as JAX can see."""
    if all(isinstance(jax.typeof(value), jax.core.ShapedArray) for value in values):
        return tied_p.bind(*values, tie)  # type: ignore[no-any-return]
    return values  # a mutable array cannot be returned


def _differentiated(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule by which JAX differentiates a scan that first ties its logs to it."""

    def tied(*args: Any, jaxpr: compat.AnyJaxpr, **params: Any) -> Any:
        return rule(*args, jaxpr=_tied(jaxpr, params), **params)

    return tied


def _tied(body: compat.AnyJaxpr, params: Mapping[str, Any]) -> compat.AnyJaxpr:
    """Return the body of a scan with its logs tied to it."""
    if compat.effect not in body.effects:
        return body
    invars, walk = compat.opened(body)[0].invars, Walk(_Tying(), dict.fromkeys(RULES, _tie_all))
    if len(invars) == compat.scan_arity(params)[0]:
        warn_user(
            f"The log at {walk.first_log(body)} is in a scan that carries nothing and scans over nothing. If the scan "
            "is differentiated, JAX may compute such a log once for all rounds: scan over jnp.arange(n)",
        )
        return body

    def again(*values: jax.Array) -> Values:
        (tie,) = tied_p.bind(np.uint8(0), values[-1])  # an integer: it has no tangent
        return walk.run(body, values, tie)[0]

    again.__name__ = compat.function_name(body)
    return jax.make_jaxpr(again)(*_avals(invars))


def _scan_recomputed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule by which what JAX runs first of a scan keeps its logs: JAX drops them where it divides a call."""

    def kept(*args: Any) -> Any:
        first, *rest = rule(*args)
        return compat.as_jit(first) if compat.effect in first.effects else first, *rest

    return kept


def _while_recomputed(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule by which JAX runs a while loop first and again later that logs the first time only."""

    def once(*args: Any) -> Any:
        first, later, *rest = rule(*args)
        return first, later if first is None else _without_logs(later), *rest

    return once


def _without_logs(eqn: compat.Equation) -> Any:
    def silent(name: str, jaxpr: compat.AnyJaxpr) -> Any:
        eqns = [_without_logs(eqn) for eqn in compat.opened(jaxpr)[0].eqns if eqn.primitive is not log_p]
        return compat.with_equations(jaxpr, eqns)

    return compat.with_jaxprs(eqn, silent) if compat.effect in eqn.effects else eqn


def install() -> None:
    """Put these rules in front of JAX's own for `cond`, `while` and `scan`; importing `sightglass.jax` calls this.

    These are the only entries of JAX's tables that Sightglass replaces: JAX has no other way to see what `vmap` and
    differentiation make of a branch or a loop. Each hands a program without logs to JAX's own rule, unchanged.
    """
    for rules, primitive, around in (
        (batching.fancy_primitive_batchers, cond_p, _cond),
        (batching.fancy_primitive_batchers, while_p, _while),
        (ad.primitive_jvps, scan_p, _differentiated),
        (compat.linearizations, scan_p, _differentiated),
        (compat.recomputations, scan_p, _scan_recomputed),
        (compat.recomputations, while_p, _while_recomputed),
    ):
        if rules[primitive].__module__ != __name__:  # a second call changes nothing
            rules[primitive] = around(rules[primitive])
