"""Whatever a program is made of, `spool`, `tap` and `strip` give its values and see what a plain run would log."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")
jax = pytest.importorskip("jax")
pytestmark = pytest.mark.slow

import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from sightglass.jax import log, spool, strip, tap  # noqa: E402

CAPACITY = 256
FORWARD, REVERSE = "forward", "reverse"


@dataclass(frozen=True)
class Seen:
    """One event: its key, its value and step for each lane, and the lanes for which it happened."""

    key: str
    value: Any
    step: Any
    lanes: Any


Out = list[Seen]


@dataclass(frozen=True)
class Node:
    """A function of a vector of two numbers: `run` in JAX; `plain` in Python, on all lanes at once, with its logs."""

    inner: tuple[Node, ...] = ()
    n: int = 0

    def run(self, x: Any) -> Any:
        raise NotImplementedError

    def plain(self, x: Any, lanes: Any, out: Out) -> Any:
        return self.inner[0].plain(x, lanes, out)


class Log(Node):
    def run(self, x):
        log({f"k{self.n}": x}, step=x.sum())
        return x

    def plain(self, x, lanes, out):
        if lanes.any():
            out.append(Seen(f"k{self.n}", x, x.sum(-1), lanes))
        return x


class Add(Node):
    def run(self, x):
        return jnp.sin(x) * 0.9 + self.n * 0.3 - 0.4

    def plain(self, x, lanes, out):
        return np.sin(x) * 0.9 + self.n * 0.3 - 0.4


class Seq(Node):
    def run(self, x):
        for node in self.inner:
            x = node.run(x)
        return x

    def plain(self, x, lanes, out):
        for node in self.inner:
            x = node.plain(x, lanes, out)
        return x


class Jit(Node):
    def run(self, x):
        return jax.jit(self.inner[0].run)(x)


class Remat(Node):
    def run(self, x):
        return jax.checkpoint(self.inner[0].run)(x)


class CustomJvp(Node):
    def run(self, x):
        f = jax.custom_jvp(self.inner[0].run)
        f.defjvp(lambda p, t: jax.jvp(self.inner[0].run, p, t))
        return f(x)


class CustomVjp(Node):
    def run(self, x):
        f = jax.custom_vjp(self.inner[0].run)
        f.defvjp(lambda x: (self.inner[0].run(x), None), lambda _, ct: (2 * ct,))
        return f(x)


class Scan(Node):
    def run(self, x):
        return lax.scan(lambda c, i: (self.inner[0].run(c + 0.1 * i), c), x, jnp.arange(self.n))[0]

    def plain(self, x, lanes, out):
        for i in range(self.n):
            x = self.inner[0].plain(x + 0.1 * i, lanes, out)
        return x


class Fori(Scan):
    def run(self, x):
        return lax.fori_loop(0, self.n, lambda i, c: self.inner[0].run(c + 0.1 * i), x)


class While(Node):
    """Loops once, or n times, as the vector tells."""

    def run(self, x):
        bound = jnp.where(x.sum() > 0.13, self.n, 1)

        def body(c):
            return (c[0] + 1, self.inner[0].run(c[1] + 0.1 * c[0]))

        return lax.while_loop(lambda c: c[0] < bound, body, (0, x))[1]

    def plain(self, x, lanes, out):
        bound = np.where(x.sum(-1) > 0.13, self.n, 1)
        for i in range(self.n):
            going = i < bound
            if not going.any():
                break
            x = np.where(going[..., None], self.inner[0].plain(x + 0.1 * i, lanes & going, out), x)
        return x


class Cond(Node):
    def run(self, x):
        return lax.cond(x.sum() > 0.13, self.inner[1].run, self.inner[0].run, x)

    def plain(self, x, lanes, out):
        taken = x.sum(-1) > 0.13
        return choose(x, lanes, out, self.inner, [~taken, taken])


class Switch(Node):
    def run(self, x):
        index = (x.sum() > 0.13).astype(int) + (x.sum() > 0.6)
        return lax.switch(index, [node.run for node in self.inner], x)

    def plain(self, x, lanes, out):
        index = (x.sum(-1) > 0.13).astype(int) + (x.sum(-1) > 0.6)
        return choose(x, lanes, out, self.inner, [index == i for i in range(3)])


def choose(x: Any, lanes: Any, out: Out, nodes: Any, taken: Any) -> Any:
    result = x
    for node, mine in zip(nodes, taken, strict=True):
        if mine.any():
            result = np.where(mine[..., None], node.plain(x, lanes & mine, out), result)
    return result


class Vmap(Node):
    def run(self, x):
        return jax.vmap(self.inner[0].run)(jnp.stack([x, x - 0.5, 0.5 * x])).sum(0) / 3

    def plain(self, x, lanes, out):
        ys = self.inner[0].plain(np.stack([x, x - 0.5, 0.5 * x], -2), np.stack([lanes] * 3, -1), out)
        return ys.sum(-2) / 3


class Map(Node):
    def run(self, x):
        return lax.map(self.inner[0].run, jnp.stack([x, x - 0.5])).sum(0) / 2

    def plain(self, x, lanes, out):
        return (self.inner[0].plain(x, lanes, out) + self.inner[0].plain(x - 0.5, lanes, out)) / 2


class Slope(Node):
    """A derivative: its logs are those of the primal, once."""

    def plain(self, x, lanes, out):
        self.inner[0].plain(x, lanes, out)
        slope = strip(self.run)
        for _ in range(lanes.ndim):
            slope = jax.vmap(slope)
        return np.asarray(slope(jnp.asarray(x)))


class Grad(Slope):
    def run(self, x):
        return jax.grad(lambda x: self.inner[0].run(x).sum())(x) * 0.5


class ValueAndGrad(Slope):
    def run(self, x):
        value, slope = jax.value_and_grad(lambda x: self.inner[0].run(x).sum())(x)
        return slope * 0.5 + value


class Vjp(Slope):
    def run(self, x):
        y, pullback = jax.vjp(self.inner[0].run, x)
        return pullback(y)[0] * 0.5


class Linearize(Slope):
    def run(self, x):
        y, push = jax.linearize(self.inner[0].run, x)
        return push(0.5 * x) + y


class Jvp(Slope):
    def run(self, x):
        y, slope = jax.jvp(self.inner[0].run, (x,), (0.5 * x,))
        return y + slope


class Jacfwd(Slope):
    def run(self, x):
        return jax.jacfwd(self.inner[0].run)(x).sum(0) * 0.5


WRAPPERS = (Jit, Remat, CustomJvp, Map, Scan, Fori)
REVERSES = (Grad, ValueAndGrad, Vjp)
FORWARDS = (Jvp, Jacfwd, Linearize)
ALL = (*WRAPPERS, CustomVjp, While, Cond, Switch, Vmap, *REVERSES, *FORWARDS)


@st.composite
def programs(draw: Any, depth: int = 3, within: frozenset[str] = frozenset()) -> Node:
    """Draw a program; within derivatives only what JAX can differentiate that way."""
    if depth == 0:
        return Seq((Add(n=draw(st.integers(0, 2))), Log(n=draw(st.integers(0, 1))), Add(n=1)))
    kinds = [
        kind
        for kind in ALL
        if not (kind is While and REVERSE in within)
        and not (kind is CustomVjp and FORWARD in within)
        and not (kind in REVERSES and within)
        and not (kind in FORWARDS and within)
        and not (kind is Vmap and "vmap" in within)
    ]
    kind = draw(st.sampled_from(kinds))
    inside = within
    if kind in REVERSES:
        inside |= {REVERSE}
    if kind in FORWARDS:
        inside |= {FORWARD} | ({REVERSE} if kind is Linearize else set())
    if kind is Vmap:
        inside |= {"vmap"}
    n_inner = {Cond: 2, Switch: 3}.get(kind, 1)
    inner = tuple(draw(programs(depth=depth - 1, within=inside)) for _ in range(n_inner))
    node = kind(inner, draw(st.integers(1, 3)))
    if draw(st.booleans()):
        return Seq(
            (Log(n=draw(st.integers(0, 1))), node, Add(n=draw(st.integers(0, 2))), Log(n=draw(st.integers(0, 1))))
        )
    return Seq((node, Log(n=draw(st.integers(0, 1)))))


def holds(node: Node, kind: type) -> bool:
    return isinstance(node, kind) or any(holds(inner, kind) for inner in node.inner)


def distinct(node: Node, numbers: Any) -> Node:
    """Give each log a key of its own: values with and without a batch axis do not share one."""
    if isinstance(node, Log):
        return Log(n=next(numbers))
    return type(node)(tuple(distinct(inner, numbers) for inner in node.inner), node.n)


def expected(node: Node, x: Any) -> tuple[Any, Out]:
    out: Out = []
    return node.plain(np.asarray(x, np.float64), np.ones((), bool), out), out


def spooled(logs: Any) -> Out:
    """Read what happened out of a logdict."""
    out: Out = []
    for key in logs:
        values, steps = np.asarray(logs[key]), np.asarray(logs.step[key])
        valid = np.asarray(logs.valid[key]) if key in logs.valid else np.ones(values.shape[:-1], bool)
        out += [Seen(key, v, s, ok) for v, s, ok in zip(values, steps, valid, strict=True) if ok.any()]
    return out


def tapped(f: Callable[..., Any], *args: Any) -> tuple[Any, Out]:
    got: list[Any] = []
    watched = tap(f, got.append)
    result = jax.block_until_ready(watched(*args))
    jax.effects_barrier()
    assert watched.statistics().n_errors == 0
    return result, [seen for logs in got for seen in spooled(logs)]


def by_key(out: Out) -> Out:
    return [seen for key in sorted({s.key for s in out}) for seen in out if seen.key == key]


def by_lane(out: Out) -> Out:
    """Take the lanes of a `vmap` apart: in a ring buffer each lane has its own last events."""
    apart = []
    for s in out:
        values, steps, lanes = s.value, s.step, s.lanes
        if not np.ndim(lanes):
            values, steps, lanes = values[None], np.asarray(steps)[None], np.asarray(lanes)[None]
        for lane in zip(*np.nonzero(lanes), strict=True):
            apart.append(Seen(f"{s.key} {lane}", values[lane], steps[lane], np.True_))
    return by_key(apart)


def same(found: Out, wanted: Out) -> None:
    assert [s.key for s in found] == [s.key for s in wanted]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(a.lanes, b.lanes)
        np.testing.assert_allclose(a.value[a.lanes], b.value[b.lanes], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(a.step[a.lanes], b.step[b.lanes], rtol=1e-4, atol=1e-5)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def check(node: Node, x: Any) -> None:
    f = node.run
    value = f(x)
    _, wanted = expected(node, x)
    result, logs = spool(f, capacity=CAPACITY)(x)
    close(result, value)
    same(by_lane(spooled(logs)), by_lane(wanted))
    result, seen = tapped(f, x)
    close(result, value)
    in_order = (lambda out: out) if not holds(node, Vmap) else by_key
    same(in_order(seen), in_order(wanted))
    close(strip(f)(x), value)
    close(f(x), value)
    assert not jax.make_jaxpr(f)(x).effects, "a plain call holds no log, after all of these"


@given(programs(), st.sampled_from([(0.3, -0.1), (-0.7, 0.2), (0.5, 0.4)]))
@settings(max_examples=int(os.environ.get("SIGHTGLASS_JAX_EXAMPLES", "12")), deadline=None)
def test_programs(node: Node, x: tuple[float, float]) -> None:
    check(distinct(node, count()) if holds(node, Vmap) else node, jnp.asarray(x))


LEAF = Seq((Add(n=1), Log(n=0), Add(n=2)))


def makes_sense(kind: type[Node], outer: type[Node] | None) -> bool:
    """Leave out what JAX cannot differentiate, what is the same again, and derivatives of derivatives."""
    if (outer is Grad and kind is While) or (outer is Jvp and kind is CustomVjp) or (outer is Vmap and kind is Vmap):
        return False
    return not (outer in (Grad, Jvp) and kind in (*REVERSES, *FORWARDS))


OUTER = (None, Jit, Scan, Cond, Vmap, Grad, Jvp)
PAIRS = [(kind, outer) for outer in OUTER for kind in ALL if makes_sense(kind, outer)]


@pytest.mark.parametrize(("kind", "outer"), PAIRS, ids=lambda kind: kind and kind.__name__)
def test_each_kind_in_each(kind: type[Node], outer: type[Node] | None) -> None:
    node: Node = kind((LEAF,) * {Cond: 2, Switch: 3}.get(kind, 1), 3)
    node = Seq((Log(n=1), node, Log(n=1)))
    if outer is not None:
        node = outer((node,) * (2 if outer is Cond else 1), 2)
    node = Seq((node, Add(n=0), Log(n=1)))
    check(distinct(node, count()) if holds(node, Vmap) else node, jnp.asarray([0.3, -0.1]))


@given(programs(depth=2))
@settings(max_examples=examples(5), deadline=None)
def test_twice_is_once(node: Node) -> None:
    node, x = distinct(node, count()), jnp.asarray([0.3, -0.1])
    (_, kept), again = spool(spool(node.run, keep_logs=True, capacity=CAPACITY), capacity=CAPACITY)(x)
    same(spooled(kept), spooled(again))
    _, nothing = spool(spool(node.run, capacity=CAPACITY), capacity=CAPACITY)(x)
    assert not nothing
