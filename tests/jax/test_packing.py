"""Packing makes a program shorter, and changes nothing else."""

from __future__ import annotations

import re
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sightglass.jax import log, spool, strip, tap
from sightglass.jax.program import traced_function, walk
from sightglass.jax.program.compat import opened
from sightglass.jax.program.primitive import wanted_logs

from .programs import divided, mesh, program, read, watch

X = jnp.arange(3.0)


@pytest.fixture
def all_of_it(monkeypatch):
    """Pack even the shortest stretches."""
    monkeypatch.setattr(walk, "_WORTHWHILE", 1)


def long(x, n):
    for _ in range(n):
        x = jnp.sin(x) * 1.5
    return x


def logs_between(x, n=50):
    x = long(x, n)
    log({"a": x}, step=x.sum())
    y = long(x, n)
    log({"b": {"y": y, "twice": 2 * y}, "one": 1})
    return long(y, n), x


def few(x):
    return logs_between(x, 3)


def everything(x):
    def body(c, i):
        c = c + x * i
        log({"c": c}, step=i)
        c = lax.cond(c.sum() > 3, lambda c: (log({"big": c, "c": c}, step=i), c * 0.5)[1], lambda c: c + 1, c)
        return c, c.sum()

    @jax.checkpoint
    def again(x):
        log({"again": x * 2})
        return jnp.sin(x)

    @jax.custom_vjp
    def doubled(x):
        log({"doubled": x + 1})
        return 2 * x

    doubled.defvjp(lambda x: (doubled(x), None), lambda _, ct: (7 * ct,))
    log({"x": x})
    c, sums = lax.scan(body, x, jnp.arange(4.0))
    c = jax.jit(lambda c: (log({"c": c * 1}, step=9.0), again(doubled(c)))[1])(c)
    loss, grads = jax.value_and_grad(lambda w: (log({"w": w * 2}), jnp.square(w).sum())[1])(c)
    return loss, lax.while_loop(lambda v: v.sum() < 9, lambda v: (log({"v": v}), v + 1)[1], grads), sums


def without_packing(f):
    def flat(*args):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(traced_function, "packed", lambda jaxpr: jaxpr)
            return f(*args)

    return flat


def instructions(f):
    """Return what a compiled program consists of, in any order and by any name."""
    return Counter(re.findall(r" = (\S+ \w+)\(", program(f, X)))


def same(ours, theirs):
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def names(jaxpr):
    return ["jit" if eqn.primitive.name == "pjit" else eqn.primitive.name for eqn in opened(jaxpr)[0].eqns]


def traced(f):
    return traced_function.traced(f, [X], wanted_logs(None))[0]


def test_stretches_become_one_equation():
    """What only logs read is one of its own."""
    assert names(traced(logs_between)) == ["jit", "jit", "log", "log"]
    (scan,) = traced(lambda x: lax.scan(lambda c, _: logs_between(c), x, None, length=3)).eqns
    assert names(scan.params["jaxpr"]) == ["jit", "jit", "log", "log"]


def test_short_stretches_stay_as_they_are():
    assert names(traced(lambda x: (log({"x": x}), jnp.sin(x) * 2)[1])) == ["log", "sin", "mul"]


def test_nothing_is_traced_again():
    n = []

    @jax.custom_jvp
    def counted(x):
        n.append(1)
        return jnp.sin(x)

    counted.defjvp(lambda p, t: (counted(*p), t[0]))
    jax.jit(spool(lambda x: (log({"x": x}), [x := counted(x) for _ in range(30)])[1][-1])).trace(X)
    assert len(n) == 30


@pytest.mark.parametrize("f", [few, everything])
@pytest.mark.parametrize("around", [lambda f: f, jax.jit, jax.vmap, lambda f: spool(f, capacity=8), jax.checkpoint])
def test_values_and_logs_are_the_same(all_of_it, f, around):
    x = jnp.ones((2, 3)) * jnp.arange(2.0)[:, None] if around is jax.vmap else X
    make = lambda: around(spool(f, capacity=8, keep_logs=True))  # noqa: E731
    same(make()(x), without_packing(make())(x))


def test_derivatives_are_the_same(all_of_it):
    def loss(x, spooled):
        (y, z), logs = spooled(x)
        return y.sum() + z.sum() + logs["a"].sum() + logs["b"]["y"].sum()

    ours, theirs = spool(few), without_packing(spool(few))
    for derivative in (jax.grad, jax.jacfwd, lambda f: jax.grad(jax.checkpoint(f, static_argnums=1))):
        same(*(jax.jit(derivative(loss), static_argnums=1)(X, spooled) for spooled in (ours, theirs)))


def test_a_tap_sees_the_same(all_of_it):
    ours, theirs = watch(everything, X), without_packing(lambda x: watch(everything, x))(X)
    same(ours[0], theirs[0])
    assert ours[1] == theirs[1]
    same(spool(tap(everything, lambda logs: None), capacity=8)(X), spool(everything, capacity=8)(X))


def test_effects_keep_their_places(all_of_it):
    seen = []

    def f(x):
        log({"a": x * 2})
        jax.debug.callback(lambda v: seen.append(float(v)), x.sum(), ordered=True)
        x = jnp.sin(x)
        log({"a": x})
        jax.debug.callback(lambda v: seen.append(float(v)), 2 * x.sum(), ordered=True)
        return x

    _, logs = spool(f)(X)
    jax.effects_barrier()
    assert read(logs)["a"] == [(X * 2).tolist(), jnp.sin(X).tolist()]
    assert seen == [float(X.sum()), float(2 * jnp.sin(X).sum())]


def test_mutable_arrays(all_of_it):
    def f(x):
        ref = jax.new_ref(x * 2)
        log({"before": ref[...]})
        ref[...] = jnp.sin(ref[...] + 1) * 2
        log({"after": ref[...]})
        return ref[...] + 1

    same(spool(f)(X), without_packing(spool(f))(X))


def test_a_shard_map_is_left_alone(all_of_it):
    spec = jax.sharding.PartitionSpec("d")

    def f(x):
        def local(x):
            x = jnp.sin(x) * lax.axis_index("d")
            log({"x": x})
            return x * 2 + 1

        return jax.shard_map(local, mesh=mesh(), in_specs=spec, out_specs=spec)(x * 2 + 1)

    x = divided(jnp.arange(8.0))
    same(spool(f)(x), without_packing(spool(f))(x))


def test_the_program_is_the_same():
    ours, theirs = spool(logs_between), without_packing(spool(logs_between))
    assert instructions(ours) == instructions(theirs)


def test_the_users_lines_and_names_stay(all_of_it):
    def f(x):
        with jax.named_scope("here"):
            x = jnp.sin(x)
        log({"x": x})
        return jnp.cos(x)

    text = jax.jit(spool(f)).lower(X).as_text(debug_info=True)
    assert "here/sin" in text
    assert "test_packing.py" in text


def test_no_tracer_leaks(all_of_it):
    with jax.checking_leaks():
        spool(everything, capacity=8)(X)
        spool(spool(strip(everything)))(X)


def test_without_jit():
    with jax.disable_jit():
        ours = spool(few)(X)
    same(ours, spool(few)(X))


def test_under_an_explicit_mesh(all_of_it):
    with jax.set_mesh(mesh()):
        x = divided(jnp.arange(8.0))
        ours = spool(few)(x)
        same(ours, without_packing(spool(few))(x))
        assert ours[0][0].sharding.spec == jax.sharding.PartitionSpec("d")


def test_checks_of_jax_pass(all_of_it):
    with jax.enable_checks(True):
        jax.clear_caches()
        spool(everything, capacity=8)(X)
