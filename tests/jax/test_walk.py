"""The walk emits the same program anew: what JAX was told about it stays in force."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend.core import Primitive

from sightglass.core.errors import LogError
from sightglass.jax import log, spool, strip, tap
from sightglass.jax.program.survey import equations

from .programs import divided, mesh, read, watch

X = jnp.arange(3.0)
P = jax.sharding.PartitionSpec


@jax.custom_vjp
def by_vjp(x):
    log({"primal": x})
    return jnp.sin(x)


def by_vjp_forward(x):
    log({"forward": x})
    return jnp.sin(x), x


def by_vjp_backward(x, ct):
    log({"backward": ct})
    return (100 * ct,)


by_vjp.defvjp(by_vjp_forward, by_vjp_backward)


@jax.custom_jvp
def by_jvp(x):
    log({"primal": x})
    return jnp.sin(x)


@by_jvp.defjvp
def by_jvp_rule(primals, tangents):
    log({"rule": primals[0]})
    return jnp.sin(primals[0]), 100 * tangents[0]


@pytest.mark.parametrize("f", [by_vjp, by_jvp])
@pytest.mark.parametrize("reduce", [None, "mean"])
def test_custom_rules_hold_under_derivatives_from_outside(f, reduce):
    slope, logs = jax.grad(spool(lambda x: f(x).sum(), reduce=reduce), has_aux=True)(X)
    assert slope.tolist() == [100.0] * 3
    assert read(logs) == {"primal": [[0.0, 1.0, 2.0]]}


@pytest.mark.parametrize(("f", "keys"), [(by_vjp, ["backward", "forward"]), (by_jvp, ["rule"])])
def test_custom_rules_log_under_derivatives_from_inside(f, keys):
    slope, logs = spool(jax.grad(lambda x: f(x).sum()))(X)
    assert slope.tolist() == [100.0] * 3
    assert sorted(logs) == keys


def test_forward_mode_from_outside():
    (_y, logs), (slope, _) = jax.jvp(spool(lambda x: by_jvp(x).sum()), (X,), (X,))
    assert slope == 300
    assert read(logs) == {"primal": [[0.0, 1.0, 2.0]]}


def jits(jaxpr, name):
    inner = [eqn.params for eqn, _ in equations(jaxpr.eqns) if eqn.primitive.name == "jit"]
    return (params for params in inner if params["name"] == name)


def test_an_inner_jit_keeps_its_name_and_its_shardings():
    sharding = jax.sharding.NamedSharding(mesh(), P("d"))

    def inner(x):
        log({"x": x.sum()})
        return x * 2

    def f(x):
        return jax.jit(inner, in_shardings=sharding, out_shardings=sharding)(x) + 1

    x = divided(jnp.arange(8.0))
    out, logs = jax.block_until_ready(spool(f)(x))
    assert out.tolist() == f(x).tolist()
    assert read(logs) == {"x": [28.0]}
    (params,) = jits(jax.make_jaxpr(spool(f))(x), "inner")
    assert sharding in params["in_shardings"]


def test_each_device_of_a_shard_map_has_a_row():
    def f(x):
        def shard(x):
            log({"mean": x.mean()}, step=lax.axis_index("d"))
            return x * 2

        return jax.shard_map(shard, mesh=mesh(), in_specs=P("d"), out_specs=P("d"))(x)

    x = divided(jnp.arange(8.0))
    out, logs = jax.block_until_ready(jax.jit(spool(f))(x))
    assert out.tolist() == (2 * x).tolist()
    assert read(logs) == {"mean": [0.5, 2.5, 4.5, 6.5]}
    assert logs.step["mean"].tolist() == [0, 1, 2, 3]
    _, seen = watch(f, x)
    assert sorted(s["mean"][0] for s in seen) == [0.5, 2.5, 4.5, 6.5]
    for reduce, want in (("mean", 3.5), ("max", 6.5), ("first", 0.5), ("last", 6.5), ("count", 4)):
        assert read(jax.block_until_ready(spool(f, reduce=reduce)(x))[1]) == {"mean": [want]}


def test_primitives_without_a_rule_are_refused_by_name():
    opaque_p = Primitive("opaque")
    opaque_p.def_effectful_abstract_eval(lambda x, jaxpr: (x, jaxpr.effects))

    def f(x):
        return opaque_p.bind(x, jaxpr=jax.make_jaxpr(lambda x: log({"x": x}) and x)(x))

    with pytest.raises(LogError, match=r"'opaque'.*test_walk.py:\d+"):
        spool(f)(1.0)


A, B = np.float32([[4, 1], [1, 3]]), np.float32([1, 2])


def solved(b):
    """Solve a linear system by three steps that log, of which two calls of the operator."""

    def operator(x):
        log({"x": x.sum()})
        return A @ x

    def solve(operator, b):
        log({"b": b.sum()})
        return lax.fori_loop(0, 3, lambda i, x: x + 0.1 * (b - operator(x)), jnp.zeros(2))

    return lax.custom_linear_solve(operator, b, solve, symmetric=True)


def solved_by_hand(b):
    x, sums = np.zeros(2, np.float32), []
    for _ in range(3):
        sums.append(float(x.sum()))
        x = x + np.float32(0.1) * (b - A @ x)
    return x, {"b": [float(b.sum())], "x": sums}


def test_a_linear_solver_logs_what_runs_and_keeps_its_derivative():
    x, wanted = solved_by_hand(B)
    for got, seen in (spool(solved)(B), jax.jit(spool(solved))(B), watch(solved, B)):
        np.testing.assert_allclose(got, x, rtol=1e-6)
        if isinstance(seen, list):
            seen = {key: [one[key][0] for one in seen if key in one] for key in wanted}
        else:
            seen = read(seen)
        for key in wanted:
            np.testing.assert_allclose(seen[key], wanted[key], rtol=1e-6)
    slopes = np.asarray(jax.jacrev(strip(solved))(B))
    np.testing.assert_allclose(jax.jacrev(lambda b: spool(solved)(b)[0])(B), slopes, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(lambda b: spool(solved, reduce="mean")(b)[0])(B), slopes, rtol=1e-6)
    _, logs = spool(jax.value_and_grad(lambda b: solved(b).sum()))(B)
    back = solved_by_hand(np.float32([1, 1]))[1]  # the transposed system, of the cotangent
    for key in wanted:
        np.testing.assert_allclose(read(logs)[key], [*wanted[key], *back[key]], rtol=1e-6)
    _, logs = spool(jax.vmap(solved, axis_name="lane"), lanes="each")(np.stack([B, 2 * B]))
    np.testing.assert_allclose(logs["b"], [3, 6])


def test_the_operator_of_conjugate_gradients_logs():
    def f(b):
        return jax.scipy.sparse.linalg.cg(lambda x: (log({"x": x.sum()}), A @ x)[1], b)[0]

    _, logs = spool(f, reduce="count")(B)
    assert read(logs) == {"x": [3]}
    assert len(watch(f, B)[1]) == 3
    with pytest.raises(LogError, match="axis_name"):
        spool(jax.vmap(f), capacity=9)(np.stack([B, B]))
    _, logs = spool(jax.vmap(f, axis_name="lane"), capacity=9)(np.stack([B, B]))
    assert np.asarray(logs.valid["x"]).sum(0).tolist() == [3, 3]


def test_a_root_finder_is_walked_or_refused_but_never_skipped():
    def f(x):
        def solve(g, y):
            log({"y": y})
            return y

        return lax.custom_root(lambda y: y - x, x, solve, lambda g, y: y / g(1.0))

    if "call_hi_primitive" in [eqn.primitive.name for eqn in jax.make_jaxpr(f)(1.0).eqns]:  # JAX 0.11 and newer
        with pytest.raises(LogError, match="call_hi_primitive"):
            spool(f)(1.0)
    else:
        assert read(spool(f)(1.0)[1]) == {"y": [1.0]}


def test_scans_keep_their_direction():
    def f(xs):
        def body(c, x):
            log({"c": c}, step=x)
            return c + x, c

        return lax.scan(body, 0.0, xs, reverse=True)

    (_, ys), logs = spool(f)(X)
    assert ys.tolist() == f(X)[1].tolist() == [3.0, 2.0, 0.0]
    assert read(logs) == {"c": [0.0, 2.0, 3.0]}, "in the order of time"
    assert logs.step["c"].tolist() == [2.0, 1.0, 0.0]


def branch(x):
    def yes(x):
        log({"x": x})
        return x

    return lax.cond(x > 0, yes, lambda x: 2 * x, x)


def count_to(n):
    def body(c):
        log({"c": c})
        return c + 1

    return lax.while_loop(lambda c: c < n, body, 0.0)


def test_lanes_of_a_vmap_that_part_ways():
    out, logs = spool(jax.vmap(branch))(X)
    assert (out.tolist(), logs["x"].tolist(), logs.valid["x"].tolist()) == (
        [0, 1, 2],
        [[0, 1, 2]],
        [[False, True, True]],
    )
    out, logs = spool(jax.vmap(count_to), capacity=2)(X + 1)
    assert out.tolist() == [1, 2, 3]
    assert logs["c"].T.tolist() == [[0, 0], [0, 1], [1, 2]]
    assert logs.valid["c"].T.tolist() == [[False, True], [True, True], [True, True]]
    assert logs.n_dropped["c"].tolist() == [0, 0, 1]
    _, logs = spool(jax.vmap(count_to), reduce="mean")(X + 1)
    assert read(logs) == {"c": [[0.0, 0.5, 1.0]]}


def test_lanes_of_a_vmap_around_a_tap():
    from sightglass.jax import tap

    seen = []
    jax.block_until_ready(jax.vmap(tap(branch, seen.append))(X))
    jax.effects_barrier()
    assert [logs.valid["x"].tolist() for logs in seen] == [[[False, True, True]]]


def test_a_log_in_the_test_of_a_loop():
    def f(n):
        def test(c):
            log({"test": c})
            return c < n

        return lax.while_loop(test, lambda c: c + 1, 0)

    out, logs = spool(f, capacity=8)(2)
    assert out == 2
    assert logs.slice[-3:]["test"].tolist() == [0, 1, 2]
    assert [s["test"] for s in watch(f, 2)[1]] == [[0], [1], [2]]
    with pytest.raises(LogError, match=r"while loop .*test_walk.py:\d+"):
        spool(jax.vmap(f), capacity=8)(jnp.arange(3))


def happened(logs, key):
    """Return what was really logged under a key."""
    return np.asarray(logs[key])[np.asarray(logs.valid[key])].ravel().tolist()


def test_a_shard_map_whose_devices_speak_with_each_other():
    def shard(x, c):
        log({"x": x}, step=c)
        total = lax.psum(x, "d")
        log({"total": total})

        def body(s, _):
            log({"s": s})
            lax.cond(s.sum() > 3, lambda: log({"big": s}) and None, lambda: None)
            return s * 2, None

        return lax.scan(body, x, None, length=3)[0] + total

    f = jax.shard_map(shard, mesh=mesh(), in_specs=(P("d"), P()), out_specs=P("d"))
    x = np.arange(4, dtype=np.float32)
    expected = x * 8 + 6
    spread = divided(x)
    out, logs = jax.jit(spool(f))(spread, 1)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(logs["x"].ravel(), x)
    np.testing.assert_array_equal(logs["total"].ravel(), [6, 6, 6, 6])
    np.testing.assert_array_equal(sorted(logs["s"].ravel()), sorted([*x, *(2 * x), *(4 * x)]))
    assert sorted(happened(logs, "big")) == [4.0, 4.0, 6.0, 8.0, 12.0]
    out, means = jax.jit(spool(f, reduce="mean"))(spread, 1)
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_allclose(means["s"].ravel(), [3.5])
    seen = []
    np.testing.assert_array_equal(tap(f, seen.append)(spread, 1), expected)
    jax.effects_barrier()
    assert len(seen) == 4 + 4 + 12 + 5
    with jax.set_mesh(mesh()):
        slopes = [jax.grad(lambda x, g=g: g(x).sum())(spread) for g in (lambda x: spool(f)(x, 1)[0], lambda x: f(x, 1))]
    np.testing.assert_array_equal(*slopes)


def test_a_key_whose_logs_have_different_steps_in_branches():
    def f(x):
        log({"a": x}, step=1)
        lax.cond(x > 0, lambda: log({"a": x * 2}) and None, lambda: None)
        lax.cond(x < 0, lambda: log({"a": x * 3}, epoch=2) and None, lambda: None)
        return x

    _, logs = jax.jit(spool(f))(np.float32(1))
    assert happened(logs, "a") == [1.0, 2.0]
