"""Logs under `jax.vmap` inside branches and loops whose lanes differ.

JAX runs all branches of a `cond` whose predicate differs between lanes, and all lanes of a `while` until the last one
has finished, and selects the results afterwards. Without a mask, a log would happen for the wrong lanes. So the two
batching rules are wrapped: logs inside get a mask first. JAX's own rules handle all other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Literal
from jax.extend.core.primitives import cond_p, while_p
from jax.interpreters import batching

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.pytree import PyTree

from .program import compat
from .program.collected import CollectedLogs
from .program.log_event import LogEvent
from .program.walk import Collector, Values, Walk
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
        mask = explicit.repeated(state, own[-1], spec.n_batch)
        if spec.masked:
            mask, own = jnp.logical_and(own[0], mask), own[1:]
        operands += [mask, *own]
        specs.append(replace(spec, masked=True, n_leaves=len(own) + 1))
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


batching.fancy_primitive_batchers[cond_p] = _cond(batching.fancy_primitive_batchers[cond_p])
batching.fancy_primitive_batchers[while_p] = _while(batching.fancy_primitive_batchers[while_p])
