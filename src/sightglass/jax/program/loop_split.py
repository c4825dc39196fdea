"""A program with one outermost loop, as three programs: what is before the loop, its rounds, and what is after it.

Theory of operation:

1. The program is traced with all its logs. The loop is the one outermost `lax.scan`, or the one of several that logs.
   Inner `jax.jit`s around it are opened, and their shardings kept as constraints.
2. What needs its results comes after it, all else before it. Both are emitted again, without logs. Values that only
   the end needs are handed over.
3. Some rounds of the loop are a `lax.while_loop` from one number to another, which are arguments: one compiled program
   serves any number of rounds. As in JAX's own lowering of a scan, a round reads row i of what is scanned over, and
   writes row i of what is stacked, in place.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.pytree import PyTree
from sightglass.training.controls import Control

from . import compat
from .collected import CollectedLogs, StackedLogs, stacked_logs
from .control import controls_in
from .primitive import EVERYTHING, LogEvent, call_wanting, wanted
from .survey import kind_of, sites, within
from .walk import Collector, Walk

CALLS: Final = ("jit", "pjit", "closed_call", "core_call", "core_closed_call")
Values = list[jax.Array]


class LoopInputs(NamedTuple):
    """What the rounds of a loop need.

    Attributes:
        consts: What it does not change.
        xs: What it scans over.
        carry: What it carries.
        ys: What it stacks.
    """

    consts: Values
    xs: Values
    carry: Values
    ys: Values


@dataclass(frozen=True, slots=True, eq=False)
class SplitProgram:
    """A program around its one loop.

    Attributes:
        length: How many rounds the loop has.
        round: The jaxpr of a round.
        reverse: Whether it begins with the last row.
        controls: The controls that a round reads.
        stacked: Its logs that the rows tell.
    """

    length: int
    round: Any
    reverse: bool
    controls: tuple[Control, ...]
    stacked: StackedLogs | None
    _after: Any
    _structure: Any

    def run(
        self, given: LoopInputs, start: jax.Array, stop: jax.Array, controls: Sequence[jax.Array]
    ) -> tuple[Values, Values]:
        """Run some rounds, within a trace, with the logs that are wanted.

        Args:
            given: What they need.
            start: The first round.
            stop: The round after the last.
            controls: The values of `self.controls`.

        Returns:
            What the loop carries and what it stacks.
        """
        numbers, n_carry = dict(zip(self.controls, controls, strict=True)), len(given.carry)

        def read(walk: Walk, eqn: Any, values: Values, state: PyTree) -> tuple[Values, CollectedLogs, PyTree]:
            return [numbers[eqn.params["control"]]], {}, state

        walk = Walk(_Again(), {"control": read})

        def one(state: tuple[jax.Array, Values, Values]) -> tuple[jax.Array, Values, Values]:
            i, carry, ys = state
            at = self._at(i)
            row = [lax.dynamic_index_in_dim(x, at, keepdims=False) for x in given.xs]
            outputs, _, _ = walk.run(self.round, [*given.consts, *carry, *row], None)
            made = zip(ys, outputs[n_carry:], strict=True)
            return i + 1, outputs[:n_carry], [lax.dynamic_update_index_in_dim(y, new, at, 0) for y, new in made]

        _, carry, ys = lax.while_loop(lambda state: state[0] < stop, one, (start, list(given.carry), list(given.ys)))
        return carry, ys

    def log_rows(self, consts: Values, xs: Values, ys: Values, start: jax.Array, stop: jax.Array) -> None:
        """Log what the rows of some rounds that are done tell, within a trace: `stacked`."""
        stacked = self.stacked
        assert stacked is not None

        def one(i: jax.Array) -> jax.Array:
            at = self._at(i)
            row = [lax.dynamic_index_in_dim(a, at, keepdims=False) for a in (*xs, *(ys[k] for k in stacked.ys))]
            Walk(_Again()).run(stacked.jaxpr, [*consts, *row], None)
            return i + 1

        lax.while_loop(lambda i: i < stop, one, start)

    def _at(self, i: jax.Array) -> jax.Array:
        """Return the row of a round."""
        return self.length - 1 - i if self.reverse else i

    def results(self, carry: Values, ys: Values, kept: Values) -> Any:
        """Return the results of the program, within a trace."""
        results, _, _ = Walk(_Again()).run(self._after, [*kept, *carry, *ys], None)
        return jax.tree.unflatten(self._structure, results)


class _Again(Collector):
    """Logs again what is wanted where the program is emitted."""

    def take(self, events: Sequence[LogEvent], state: PyTree) -> tuple[CollectedLogs, PyTree]:
        wants = wanted.value
        for event in events if wants is not None else ():
            is_explicit = event.site.explicit
            data = {key: value for key, value in event.data.items() if wants.include(key, explicit=is_explicit)}
            if data:
                event.with_data(data).bind()
        return {}, state


def split(
    function: Callable[..., Any], arrays: Sequence[jax.Array], name: str
) -> tuple[SplitProgram, LoopInputs, Values]:
    """Split the program of a function, and emit what is before its loop, within a trace.

    Args:
        function: The function of these arrays.
        arrays: Its arguments.
        name: The name of the user's function.

    Returns:
        The program, what the first round needs, and the values that only the end needs.

    Raises:
        LogError: It has not exactly one outermost `lax.scan` to run in chunks.
    """
    jaxpr, results = call_wanting(EVERYTHING, jax.make_jaxpr(function, return_shape=True), *arrays)
    while len(path := _loop(jaxpr, name)) > 1:
        jaxpr = jax.make_jaxpr(functools.partial(_opened, jaxpr, path))(*arrays)
    inner, _ = compat.opened(jaxpr)
    eqn = inner.eqns[path[0]]
    before, after = _divided(inner.eqns, eqn)
    needed = compat.variables(inner.outvars).union(*(compat.variables(e.invars) for e in after))
    kept = [v for v in dict.fromkeys((*inner.invars, *(v for e in before for v in e.outvars))) if v in needed]
    end = compat.part(jaxpr, after, [*kept, *eqn.outvars], inner.outvars)
    params, structure = eqn.params, jax.tree.structure(results)
    read = tuple(dict.fromkeys(controls_in(params["jaxpr"])))
    n_consts, n_carry = compat.scan_arity(eqn.params)
    stacked = stacked_logs(params["jaxpr"], n_consts, n_carry)
    program = SplitProgram(params["length"], params["jaxpr"], params["reverse"], read, stacked, end, structure)
    begin = compat.part(jaxpr, before, inner.invars, [*eqn.invars, *kept])
    values, _, _ = Walk(_Again()).run(begin, arrays, None)
    given, rest = values[: len(eqn.invars)], values[len(eqn.invars) :]
    avals = [atom.aval for atom in eqn.invars]
    carry = [_own(v, a) for v, a in zip(given[n_consts:], avals[n_consts:], strict=True)][:n_carry]
    ys = [_unwritten(atom.aval) for atom in eqn.outvars[n_carry:]]
    return program, LoopInputs(given[:n_consts], given[n_consts + n_carry :], carry, ys), rest


def _divided(eqns: Sequence[Any], loop: Any) -> tuple[list[Any], list[Any]]:
    """Return the equations that do not need the results of a loop, and those that do."""
    before: list[Any] = []
    after: list[Any] = []
    made = compat.variables(loop.outvars)
    for eqn in eqns:
        if made & compat.variables(eqn.invars):
            after.append(eqn)
            made |= compat.variables(eqn.outvars)
        elif eqn is not loop:
            before.append(eqn)
    return before, after


def _own(value: Any, aval: Any) -> jax.Array:
    """Copy what the loop takes over: it may be an argument of the user's, or stand there twice."""
    return jnp.copy(jnp.asarray(value, aval.dtype))


def _unwritten(aval: Any) -> jax.Array:
    """Return rows that no round has written: NaN where the type has it."""
    return explicit.filled(aval, np.nan if jnp.issubdtype(aval.dtype, jnp.inexact) else 0)


def _loop(jaxpr: compat.AnyJaxpr, name: str) -> tuple[int, ...]:
    """Return the path to the loop: the positions of the calls around it, and its own."""
    found = list(_outermost(jaxpr))
    wished = [one for one in found if one[1]] or [one for one in found if one[2] == "scan"] or found
    if len(wished) == 1 and wished[0][2] == "scan":
        return wished[0][0]
    places = ", ".join(f"{kind} at {place}" for _, _, kind, place in wished) or "none"
    raise LogError(
        f"Expected one outermost lax.scan in {name!r} to run in chunks, got {places}: let one scan be around all "
        "rounds of the training, or log in one loop only"
    )


def _outermost(jaxpr: compat.AnyJaxpr, path: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], bool, str, str]]:
    """Yield each outermost loop: its path, whether it logs, its kind, and the user's line."""
    for i, eqn in enumerate(compat.opened(jaxpr)[0].eqns):
        kind, inner = eqn.primitive.name, [one.jaxpr for one in within(eqn)]
        if kind in CALLS:
            for each in inner:
                yield from _outermost(each, (*path, i))
        elif kind_of(eqn) == "loop" or any(any(_outermost(each)) for each in inner):
            yield (*path, i), any(sites([eqn])), kind, compat.where(eqn)


def _opened(jaxpr: compat.AnyJaxpr, path: Sequence[int], *values: Any) -> Values:
    """Evaluate a jaxpr within a trace, and the calls along a path as a part of it."""
    inner, consts = compat.opened(jaxpr)
    env = dict(zip((*inner.constvars, *inner.invars), (*consts, *values), strict=True))
    for i, eqn in enumerate(inner.eqns):
        inputs = compat.read(env, eqn.invars)
        with compat.SourceContext(eqn):
            if i == path[0] and path[1:]:
                inputs = _divided_as(inputs, eqn.params.get("in_shardings"))
                outputs = _opened(next(compat.subjaxprs(eqn.params)), path[1:], *inputs)
                outputs = _divided_as(outputs, eqn.params.get("out_shardings"))
            else:
                outputs = compat.bind(eqn, inputs)
        env.update(zip(eqn.outvars, outputs, strict=True))
    return compat.read(env, inner.outvars)


def _divided_as(values: Values, shardings: Sequence[Any] | None) -> Values:
    """Divide values between devices as the options of an inner jit say."""
    if shardings is None:
        return values
    return [
        value
        if not compat.specified([sharding])
        else explicit.divided(value, sharding)
        if explicit.on_mesh(value)
        else lax.with_sharding_constraint(value, sharding)
        for value, sharding in zip(values, shardings, strict=True)
    ]
