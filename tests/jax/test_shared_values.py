"""Values that the lanes of a `vmap` share have lanes where the axis has a name: each program against a loop by hand."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sightglass.jax import log, spool, strip, tap

from .programs import divided, mesh, program
from .queried_run import QueriedRun

N_LANES, CAPACITY = 4, 16


def alone(x):
    log({"done": 1}, step=7)
    return x


def beside_another(x):
    log({"x": x, "done": 1.5})
    return x


def a_tree_without_steps(x):
    log({"tree": {"a": 1, "b": jnp.arange(2)}})
    return x


def scanned(x):
    def body(i, _):
        log({"i": i, "one": jnp.int32(1)}, step=i)
        return i + 1, None

    lax.scan(body, 0, None, length=3)
    return x


def scanned_nothing(x):
    lax.fori_loop(0, 2, lambda i, c: (log({"done": True}), c)[1], x)
    return x


def under_a_shared_condition(x):
    return lax.cond(jnp.int32(2) > 1, lambda: (log({"done": 1}), x)[1], lambda: x)


def under_a_condition(x):
    return lax.cond(x > 1, lambda: (log({"done": 1}), x)[1], lambda: x)


def in_a_shared_while(x):
    lax.while_loop(lambda i: i < 3, lambda i: (log({"i": i, "done": 1}), i + 1)[1], 0)
    return x


def in_a_while(x):
    return lax.while_loop(lambda c: c < 3, lambda c: (log({"done": 1}), c + 1)[1], x)


def loss(x):
    log({"done": 1, "x": x})
    return x**2


def differentiated(x):
    return jax.grad(loss)(x)


def recomputed(x):
    return jax.grad(jax.checkpoint(loss))(x)


def scanned_and_differentiated(x):
    def loss(x):
        return lax.scan(lambda c, i: (c * (log({"done": 1, "i": i}) and 2.0), None), x, jnp.arange(3))[0]

    return jax.grad(loss)(x)


def compiled_within(x):
    return x + jax.jit(lambda: (log({"done": 1}), 3.0)[1])()


@jax.custom_jvp
def _doubled(x):
    log({"done": 1})
    return 2 * x


_doubled.defjvp(lambda primals, tangents: (_doubled(*primals), 2 * tangents[0]))


def with_a_rule(x):
    return jax.grad(_doubled)(x)


PROGRAMS = [
    alone, beside_another, a_tree_without_steps, scanned, scanned_nothing, under_a_shared_condition, under_a_condition,
    in_a_shared_while, in_a_while, differentiated, recomputed, scanned_and_differentiated, compiled_within, with_a_rule,
]  # fmt: skip


def events_of(logs, *lanes):
    """Return the events under each key of each lane."""
    found = {}
    for event in logs.events():
        at = tuple(int(event.steps.pop(name)) for name in lanes)
        leaves = [leaf.tolist() for leaf in jax.tree.leaves(event.value)]
        found.setdefault((event.tag, *at), []).append((leaves, {k: float(v) for k, v in event.steps.items()}))
    return found


def by_hand(f, *shape):
    """Return the events of each lane, from a call for each."""
    found = {}
    for at in itertools.product(*map(range, shape)):
        _, logs = spool(f, capacity=CAPACITY)(jnp.float32(sum(at)))
        found |= {(*key, *at): events for key, events in events_of(logs).items()}
    return found


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_each_lane_has_what_it_would_log_alone(f):
    xs, wanted, seen = jnp.arange(N_LANES, dtype=jnp.float32), by_hand(f, N_LANES), []
    mapped = jax.vmap(f, axis_name="env")
    out, logs = jax.jit(spool(mapped, lanes="each", capacity=CAPACITY))(xs)
    assert events_of(logs, "env") == wanted
    np.testing.assert_array_equal(out, jax.jit(strip(mapped))(xs))
    tap(mapped, seen.append, lanes="each")(xs)
    jax.effects_barrier()
    tapped = {}
    for one in seen:
        for key, events in events_of(one, "env").items():
            tapped.setdefault(key, []).extend(events)
    assert tapped == wanted


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("names", [("a", "b"), ("a", None), (None, "b")], ids=str)
def test_each_named_axis_has_lanes(f, names):
    xs = jnp.arange(2, dtype=jnp.float32)[:, None] + jnp.arange(3)
    mapped = functools.reduce(lambda g, name: jax.vmap(g, axis_name=name), names[::-1], f)
    _, logs = spool(mapped, capacity=CAPACITY)(xs)
    wanted = by_hand(f, 2, 3)
    for key in logs:
        shape = jax.tree.leaves(logs[key])[0].shape
        named = tuple(n for n, name in zip((2, 3), names, strict=True) if name)
        assert shape[1 : 1 + len(named)] == named or shape[1:3] == (2, 3), key
        assert any(key == tag for tag, *_ in wanted)
    if None not in names:
        _, each = spool(mapped, capacity=CAPACITY, lanes="each")(xs)
        assert events_of(each, *names) == wanted


def test_a_log_that_names_its_axis_has_lanes_without_a_name_of_the_vmap():
    def f(x):
        log({"direct": 1}, axis="env")
        jax.jit(lambda: log({"within": 1}, axis="env") and None)()
        lax.scan(lambda c, _: (c, log({"scanned": 1}, axis="env") and None), 0, None, length=2)

    _, logs = spool(jax.vmap(f), lanes="each")(jnp.arange(N_LANES))
    assert {key: logs.env[key].tolist() for key in logs} == {
        "direct": [0, 1, 2, 3], "within": [0, 1, 2, 3], "scanned": [0, 1, 2, 3] * 2,
    }  # fmt: skip


def test_it_names_the_innermost_axis_only():
    envs = jax.vmap(lambda x: log({"done": 1}, axis="env") and None)
    _, logs = spool(jax.vmap(envs), lanes="each")(jnp.zeros((2, 3)))
    assert logs.env["done"].tolist() == [0, 1, 2]
    seen = []
    jax.vmap(tap(envs, seen.append, lanes="mean"))(jnp.zeros((2, 3)))
    jax.effects_barrier()
    assert [logs["done"].tolist() for logs in seen] == [[1]]


def test_without_a_name_a_shared_value_stays_one():
    _, logs = spool(jax.vmap(lambda x: log({"done": 1, "x": x}) and log({"alone": 1}) and None))(jnp.arange(3))
    assert (logs["done"].shape, logs["alone"].shape) == ((1, 3), (1,))


def test_no_argument_need_be_mapped():
    every = jax.vmap(alone, in_axes=None, axis_size=N_LANES, axis_name="env")
    out, logs = spool(every, lanes="each")(jnp.float32(1))
    assert (logs["done"].tolist(), logs.env["done"].tolist(), out.tolist()) == ([1] * 4, [0, 1, 2, 3], [1] * 4)


def test_sums_count_each_lane():
    def rounds(xs):
        return lax.scan(lambda c, _: (jax.vmap(alone, axis_name="env")(c), None), xs, None, length=5)[0]

    for lanes, wanted in (("stack", [[5] * 4]), ("each", [5] * 4), ("mean", [5])):
        _, logs = jax.jit(spool(rounds, reduce="sum", lanes=lanes))(jnp.zeros(N_LANES))
        assert logs["done"].tolist() == wanted


def test_around_a_tap_it_has_lanes_and_around_a_spool_none():
    seen = []
    jax.vmap(tap(alone, seen.append), axis_name="env")(jnp.zeros(N_LANES))
    jax.effects_barrier()
    assert [logs["done"].tolist() for logs in seen] == [[[1] * N_LANES]]
    _, logs = jax.vmap(spool(alone), axis_name="env")(jnp.zeros(N_LANES))
    assert logs["done"].tolist() == [[1]] * N_LANES


def test_the_axes_of_a_mesh_are_no_lanes():
    def each(x):
        log({"done": 1})
        return x

    spec = jax.sharding.PartitionSpec("d")
    with jax.set_mesh(mesh()):
        sharded = jax.shard_map(each, in_specs=spec, out_specs=spec)
        _, logs = spool(sharded)(divided(jnp.zeros(8)))
        assert logs["done"].tolist() == [1] * 4
        _, logs = jax.jit(spool(jax.vmap(each, axis_name="env")))(divided(jnp.zeros((8, 2))))
        assert logs["done"].tolist() == [[1] * 8]


def test_lanes_on_the_axis_of_a_mesh():
    automatic = jax.make_mesh((4,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    with jax.set_mesh(automatic):
        mapped = jax.vmap(beside_another, axis_name="env", spmd_axis_name="d")
        _, logs = jax.jit(spool(mapped))(jnp.zeros(8))
    assert (logs["done"].tolist(), logs["x"].shape) == ([[1.5] * 8], (1, 8))


def test_a_program_without_collected_logs_is_the_one_without_logs():
    for f in PROGRAMS:
        mapped, xs = jax.vmap(f, axis_name="env"), jnp.zeros(N_LANES)
        assert program(mapped, xs) == program(strip(mapped), xs) == program(spool_of_nothing(mapped), xs)


def spool_of_nothing(f):
    return lambda x: spool(strip(f))(x)[0]


def test_a_live_query_has_them():
    queried = QueriedRun()
    try:
        step = queried.live(jax.jit(jax.vmap(beside_another, axis_name="env")), jnp.zeros(N_LANES))
        found = queried.client.describe().events["batch"].observables["done"]
        done = queried.query(lambda: step(jnp.ones(N_LANES)), "batch.done.sum()")
        step(jnp.ones(N_LANES))
        assert queried.values(done) == [6.0]
        assert "[4]" in str(found)
    finally:
        queried.close()
