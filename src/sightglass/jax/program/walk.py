"""Run a jaxpr forwards with something in the place of its logs: the program is emitted anew.

Theory of operation:

1. A jaxpr is read, never edited. An equation that holds no log is bound again as it is; one that does is emitted
   through `jax.lax.scan`, `while_loop`, `switch`, `jax.jit`, `jax.checkpoint`, `jax.shard_map`, `jax.custom_jvp`,
   `jax.custom_vjp`.
2. Two things are threaded through. A *state* is a pytree that goes in and comes out: a carry of loops. A *track* is
   what one key has logged so far, with a leading event axis; a scan stacks tracks, and what comes after is appended, so
   that a track stands in program order.
3. Events of one body that follow upon each other, with no loop or branch in between, are taken together
   (`Collector.take`).
4. Branches that log differently are padded to the most talkative one; a mask says what happened.
5. An outer derivative of the emitted program uses the user's custom rules: the primal's logs are what is collected.
6. A primitive that holds logs and has no rule here is refused by name.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import Literal

from sightglass.core.errors import LogError

from . import compat
from .primitive import LogEvent, Site, log_p
from .survey import Survey, branches, survey


class Track(NamedTuple):
    """What one key has logged.

    Attributes:
        value: The values; each leaf has shape (n_events, *batch, *shape).
        steps: The steps, by name, of shapes (n_events, *batch, *shape).
        valid: Which of them happened, shape (n_events, *batch); `None` if all did.
    """

    value: Any
    steps: dict[str, Any]
    valid: Any


Tracks = dict[str, Track]
Values = list[Any]
Rule = Callable[["Walk", Any, Values, Any], tuple[Values, Tracks, Any]]
NONE: Mapping[str, Rule] = {}


class Collector(Protocol):
    """What is put in the place of logs."""

    def take(self, events: Sequence[LogEvent], state: Any) -> tuple[Tracks, Any]:
        """Take events that follow upon each other in one body; return the tracks they make, and the new state."""
        ...

    def track(self, key: str, site: Site) -> str | None:
        """Return the name of the track that a key makes; `None` if it is kept in the state, or not taken."""
        ...

    def completed(self, found: Survey) -> Survey:
        """Return what tracks will be like, given what was found in a part of the program."""
        ...

    def enter(self, jaxpr: Any) -> None:
        """See that an open jaxpr is begun."""
        ...

    def leave(self, jaxpr: Any, tracks: Tracks, state: Any) -> tuple[Tracks, Any]:
        """Return the tracks with which an open jaxpr is left, and the state."""
        ...

    def fork(self, state: Any) -> Any:
        """Return the state with which each device of a `shard_map` begins."""
        ...

    def merge(self, state: Any, shards: Any, n_shards: int) -> Any:
        """Return the state after a `shard_map`, given the states of its devices along a new leading axis."""
        ...


class Walk:
    """One walk over a program and all the programs within it.

    Args:
        collector: What is put in the place of logs.
        also: Rules for further primitives that are to be replaced, by name.
    """

    def __init__(self, collector: Collector, also: Mapping[str, Rule] = NONE) -> None:
        self.collector = collector
        self._also = also
        self._holds: dict[int, tuple[Any, bool]] = {}
        self._varying: frozenset[str] = frozenset()

    def run(self, jaxpr: Any, values: Sequence[Any], state: Any) -> tuple[Values, Tracks, Any]:
        """Run a jaxpr on values.

        Args:
            jaxpr: Closed, or open without constants.
            values: What its inputs stand for.
            state: The state to go in with.

        Returns:
            Its outputs, the tracks of what it logged, and the state to go on with.
        """
        inner, consts = compat.opened(jaxpr)
        env: dict[Any, Any] = dict(zip((*inner.constvars, *inner.invars), (*consts, *values), strict=True))
        parts: list[Tracks] = []
        pending: list[LogEvent] = []
        self.collector.enter(inner)
        for eqn in inner.eqns:
            inputs = [v.val if isinstance(v, Literal) else env[v] for v in eqn.invars]
            if eqn.primitive is log_p:
                pending.append(LogEvent.of(eqn, [self.varied(value) for value in inputs]))
                continue
            with compat.SourceContext(eqn):
                if self._touches(eqn):
                    if pending:
                        tracks, state = self.collector.take(pending, state)
                        parts.append(tracks)
                        pending = []
                    outputs, tracks, state = self._emit(eqn, inputs, state)
                    parts.append(tracks)
                else:
                    outputs = compat.bind(eqn, inputs)
            env.update(zip(eqn.outvars, outputs, strict=True))
        if pending:
            tracks, state = self.collector.take(pending, state)
            parts.append(tracks)
        tracks, state = self.collector.leave(inner, joined(parts), state)
        return [v.val if isinstance(v, Literal) else env[v] for v in inner.outvars], tracks, state

    def holds(self, jaxpr: Any) -> bool:
        """Return whether there is a log anywhere in a jaxpr."""
        inner, _ = compat.opened(jaxpr)
        known = self._holds.get(id(inner))
        if known is None:
            found = any(eqn.primitive is log_p or self._touches(eqn) for eqn in inner.eqns)
            known = self._holds[id(inner)] = (inner, found)
        return known[1]

    def place(self, jaxpr: Any) -> str:
        """Return the user's file and line of the first log in a jaxpr."""
        eqns = compat.opened(jaxpr)[0].eqns
        return next(compat.where(eqn) for eqn in eqns if eqn.primitive is log_p or self._touches(eqn))

    def expects(self, jaxpr: Any) -> Survey:
        """Tell which tracks a jaxpr will make."""
        return self.collector.completed(survey(jaxpr, self.collector.track))

    def varied(self, tree: Any) -> Any:
        """Return values as ones that differ between the devices of the `shard_map` that is walked through, if any."""
        return compat.varied(tree, self._varying) if self._varying else tree

    @contextlib.contextmanager
    def within(self, axes: frozenset[str]) -> Iterator[None]:
        """Walk through a `shard_map` over such axes that checks what differs between its devices."""
        outer, self._varying = self._varying, self._varying | axes
        try:
            yield
        finally:
            self._varying = outer

    def _touches(self, eqn: Any) -> bool:
        return eqn.primitive.name in self._also or any(map(self.holds, compat.subjaxprs(eqn.params)))

    def _emit(self, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
        rule = self._also.get(eqn.primitive.name) or RULES.get(eqn.primitive.name)
        if rule is None:
            raise LogError(
                f"Logs inside {eqn.primitive.name!r} cannot be taken ({compat.where(eqn)}): "
                f"move the log out of it, or run it under strip()"
            )
        return rule(self, eqn, values, state)


def joined(parts: Iterable[Tracks]) -> Tracks:
    """Append tracks to each other, key by key."""
    every: dict[str, list[Track]] = {}
    for part in parts:
        for key, track in part.items():
            every.setdefault(key, []).append(track)
    return {key: _appended(tracks) for key, tracks in every.items()}


def _appended(tracks: list[Track]) -> Track:
    if len(tracks) == 1:
        return tracks[0]
    if any(track.valid is not None for track in tracks):
        shape = next(track.valid.shape[1:] for track in tracks if track.valid is not None)
        tracks = [t if t.valid is not None else t._replace(valid=jnp.ones((_n(t), *shape), bool)) for t in tracks]
    return Track(*jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *map(tuple, tracks)))


def _n(track: Track) -> int:
    return int(jax.tree.leaves(track.value)[0].shape[0])


def _stacked(tracks: Tracks, *, reverse: bool = False) -> Tracks:
    """Make one event axis of the two in front, in the order in which things happened."""

    def flat(leaf: Any) -> Any:
        leaf = jnp.flip(leaf, 0) if reverse else leaf
        return leaf.reshape((-1 if leaf.size else leaf.shape[0] * leaf.shape[1], *leaf.shape[2:]))

    stacked: Tracks = jax.tree.map(flat, tracks)
    return stacked


def _jit(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    def inner(state: Any, *values: Any) -> tuple[Values, Tracks, Any]:
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


def _call(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    return walk.run(next(compat.subjaxprs(eqn.params)), values, state)


def _checkpoint(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    def inner(values: Values, state: Any) -> tuple[Values, Tracks, Any]:
        return walk.run(eqn.params["jaxpr"], values, state)

    again = jax.checkpoint(inner, policy=eqn.params["policy"], prevent_cse=eqn.params["prevent_cse"])
    return again(values, state)  # type: ignore[no-any-return]


def _scan(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    n_consts, n_carry = compat.scan_arity(eqn)
    consts, carry, xs = values[:n_consts], values[n_consts : n_consts + n_carry], values[n_consts + n_carry :]

    def body(carry: Any, x: Values) -> Any:
        outputs, tracks, state = walk.run(eqn.params["jaxpr"], [*consts, *carry[0], *x], carry[1])
        return (outputs[:n_carry], state), (outputs[n_carry:], tracks)

    params = {name: eqn.params[name] for name in ("length", "reverse", "unroll")}
    (carry, state), (ys, tracks) = lax.scan(body, (carry, state), xs, **params)
    return [*carry, *ys], _stacked(tracks, reverse=params["reverse"]), state


def _while(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    params = eqn.params
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts, carry = values[:n_cond], values[n_cond : n_cond + n_body], values[n_cond + n_body :]

    def test(carry: Values, state: Any) -> tuple[Any, Any]:
        (going,), _, state = walk.run(params["cond_jaxpr"], [*cond_consts, *carry], state)
        return going, state

    def body(carry: Values, state: Any) -> tuple[Values, Any]:
        carry, _, state = walk.run(params["body_jaxpr"], [*body_consts, *carry], state)
        return carry, state

    n_lane_axes = compat.opened(params["cond_jaxpr"])[0].outvars[0].aval.ndim
    if not (n_lane_axes or walk.holds(params["cond_jaxpr"])):
        carry, state = lax.while_loop(lambda s: test(*s)[0], lambda s: body(*s), (carry, state))
        return carry, {}, state

    # What the test logs can only leave through the carry, so the test of the next round is made at the end of this one.
    # Under vmap the test may differ between lanes: those that are done keep what they have, as in JAX's own lowering.
    def round_(loop: Any) -> Any:
        going, old, state = loop
        carry, state = body(old, state)
        carry = [_select(going, new, kept) for new, kept in zip(carry, old, strict=True)] if n_lane_axes else carry
        going, state = test(carry, state)
        return going, carry, state

    going, state = test(carry, state)
    _, carry, state = lax.while_loop(lambda loop: jnp.any(loop[0]), round_, (going, carry, state))
    return carry, {}, state


def _select(mask: Any, new: Any, old: Any) -> Any:
    """Choose between arrays by a mask of their leading axes."""
    return jnp.where(mask.reshape(mask.shape + (1,) * (new.ndim - mask.ndim)), new, old)


def _cond(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    found = [walk.expects(branch) for branch in eqn.params["branches"]]
    together = branches(found)

    def branch(jaxpr: Any) -> Callable[..., tuple[Values, Tracks, Any]]:
        def inner(values: Values, state: Any) -> tuple[Values, Tracks, Any]:
            outputs, tracks, state = walk.run(jaxpr, values, state)
            return outputs, walk.varied(_padded(tracks, together)), state

        return inner

    index, *operands = values
    return lax.switch(index, [branch(jaxpr) for jaxpr in eqn.params["branches"]], operands, state)  # type: ignore[no-any-return]


def _padded(tracks: Tracks, together: Survey) -> Tracks:
    """Bring the tracks of a branch to the shape that all branches share."""
    padded: Tracks = {}
    for key, expected in together.items():
        missing = (expected.n_events or 0) - (_n(tracks[key]) if key in tracks else 0)
        valid = jnp.zeros((missing, *expected.batch), bool) if expected.masked else None
        blank = jax.tree.map(
            lambda a, n=missing: lax.full((n, *a.shape), 0, a.dtype), Track(expected.value, expected.steps, None)
        )
        parts = [tracks[key]] if key in tracks else []
        if expected.masked and parts and parts[0].valid is None:
            parts = [parts[0]._replace(valid=jnp.ones((_n(parts[0]), *expected.batch), bool))]
        padded[key] = _appended([*parts, blank._replace(valid=valid)]) if missing else parts[0]
    return padded


def _shard_map(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    params = eqn.params
    spec: Any = jax.sharding.PartitionSpec
    axes = compat.manual_axes(params)
    order = tuple(axis for axis in params["mesh"].axis_names if axis in axes)
    n_shards = math.prod(params["mesh"].shape[axis] for axis in order)

    def inner(state: Any, *values: Any) -> Any:
        with walk.within(axes if params["check_vma"] else frozenset()):
            outputs, tracks, state = walk.run(params["jaxpr"], values, walk.varied(state))
        return outputs, jax.tree.map(lambda a: a[:, None], tracks), jax.tree.map(lambda a: jnp.asarray(a)[None], state)

    mapped = jax.shard_map(
        inner,
        mesh=params["mesh"],
        in_specs=(spec(), *params["in_specs"]),
        out_specs=(list(params["out_specs"]), spec(None, order), spec(order)),
        axis_names=set(axes),
        check_vma=params["check_vma"],
    )
    outputs, tracks, states = mapped(walk.collector.fork(state), *values)
    return outputs, _stacked(tracks), walk.collector.merge(state, states, n_shards)


def _custom_jvp(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    def primal(values: Values, state: Any) -> tuple[Values, Tracks, Any]:
        return walk.run(eqn.params["call_jaxpr"], values, state)

    def rule(primals: Any, tangents: Any) -> Any:
        outputs, slopes = jax.jvp(lambda *values: compat.bind(eqn, values), tuple(primals[0]), tuple(tangents[0]))
        _, tracks, state = inner(*primals)
        return (outputs, tracks, state), (slopes, *jax.tree.map(_no_tangent, (tracks, state)))

    inner: Any = jax.custom_jvp(primal)
    inner.defjvp(rule)
    return inner(values, state)  # type: ignore[no-any-return]


def _custom_vjp(walk: Walk, eqn: Any, values: Values, state: Any) -> tuple[Values, Tracks, Any]:
    def primal(values: Values, state: Any) -> tuple[Values, Tracks, Any]:
        return walk.run(eqn.params["call_jaxpr"], values, state)

    def forward(values: Values, state: Any) -> Any:
        outputs, pullback = jax.vjp(lambda *values: compat.bind(eqn, values), *values)
        _, tracks, state = inner(values, state)
        return (outputs, tracks, state), pullback

    inner: Any = jax.custom_vjp(primal)
    inner.defvjp(forward, lambda pullback, cotangents: (list(pullback(cotangents[0])), None))
    return inner(values, state)  # type: ignore[no-any-return]


def _no_tangent(value: Any) -> Any:
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
}
