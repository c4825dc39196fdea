"""`spool` returns what was logged, at the price of metrics plumbed by hand."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from sightglass.core.errors import LogError
from sightglass.jax import log, spool, strip, tap

from .programs import read

X = jnp.arange(3.0)


def running(xs):
    def body(c, x):
        log({"c": c + x}, step=x)
        return c + x, None

    return lax.scan(body, 0.0, xs)[0]


def by_hand(xs):
    def body(c, x):
        return c + x, log({"c": c + x}, step=x)

    total, logs = lax.scan(body, 0.0, xs)
    return total, jax.tree.map(lambda leaf: leaf.reshape(-1), logs)


def test_a_spooled_program_gives_the_tree_of_one_plumbed_by_hand():
    ours, theirs = spool(running)(X), by_hand(X)
    assert jax.tree.structure(ours) == jax.tree.structure(theirs)
    assert jax.tree.map(lambda leaf: leaf.tolist(), ours[1].data) == {"c": [0.0, 1.0, 3.0]}


def test_it_costs_as_much_as_plumbing_by_hand():
    costs = [jax.jit(f).lower(jnp.ones(100)).compile().cost_analysis() for f in (spool(running), by_hand)]
    for what in ("flops", "bytes accessed"):
        ours, theirs = (cost.get(what, 0.0) for cost in costs)
        assert ours <= 1.02 * theirs + 64


def test_a_second_call_does_not_trace_again():
    n = []

    def f(x):
        n.append(1)
        log({"x": x})
        return x

    spooled = spool(f)
    for x in (X, X + 1, X):
        spooled(x)
    assert len(n) == 1
    spooled(X[:2])
    assert len(n) == 2


def test_branches_that_log_differently():
    def f(x):
        def yes(x):
            log({"a": x, "both": x})
            return x

        def no(x):
            log({"both": x})
            log({"both": 2 * x})
            return x

        return lax.cond(x > 0, yes, no, x)

    assert read(spool(f)(1.0)[1]) == {"both": [1.0, None], "a": [1.0]}
    assert read(spool(f)(-1.0)[1]) == {"both": [-1.0, -2.0], "a": [None]}


def test_branches_that_log_alike_need_no_mask():
    def same(x):
        return lax.cond(x > 0, lambda x: log({"a": x})["a"][0], lambda x: log({"a": -x})["a"][0], x)

    out, logs = spool(same)(-3.0)
    assert (out, read(logs), logs.valid) == (3.0, {"a": [3.0]}, {})


def test_branches_with_keys_that_are_prng_keys():
    def f(x):
        def yes(x):
            log({"key": jax.random.key(1)})
            return x

        return lax.cond(x > 0, yes, lambda x: x, x)

    assert spool(f)(-1.0)[1].valid["key"].tolist() == [False]
    assert spool(f)(1.0)[1].valid["key"].tolist() == [True]


def test_steps_that_only_some_events_have():
    def f(x):
        log({"x": x}, step=1)
        log({"x": x}, epoch=2.0)
        return x

    _, logs = spool(f)(1.0)
    assert logs.to_numpy().step["x"].tolist()[0] == 1
    assert jnp.isnan(logs.epoch["x"][0])


def loop(n):
    def body(c):
        log({"c": c}, step=c)
        return c + 1

    return lax.while_loop(lambda c: c < n, body, 0)


def test_while_loops_keep_the_last():
    out, logs = spool(loop, capacity=3)(5)
    assert (out, read(logs), logs.n_dropped["c"]) == (5, {"c": [2, 3, 4]}, 2)
    assert logs.step["c"].tolist() == [2, 3, 4]
    out, logs = spool(loop, capacity=3)(2)
    assert (out, read(logs), logs.n_dropped["c"]) == (2, {"c": [None, 0, 1]}, 0)
    assert read(spool(loop, reduce="mean")(5)[1]) == {"c": [2.0]}


def test_while_loops_without_a_capacity_are_refused():
    with pytest.raises(LogError, match=r"'c'.*test_spool.py:\d+.*spool\(f, capacity=n\)"):
        spool(loop)(5)


def test_logs_that_cannot_be_stacked_are_refused_with_both_places():
    def f(x):
        log({"x": x})
        log({"x": x[0]})
        return x

    with pytest.raises(LogError, match=r"'x'.*float32\[3\] at .*py:\d+, but float32\[\] at .*py:\d+"):
        spool(f)(X)


@pytest.mark.parametrize(
    ("reduce", "want"),
    [
        ("mean", 4 / 3),
        ("sum", 4),
        ("min", 0),
        ("max", 3),
        ("first", 0),
        ("last", 3),
        ("count", 3),
        (jnp.median, 1),
        (jnp.mean, 4 / 3),
    ],
)
def test_reductions(reduce, want):
    _, logs = spool(running, reduce=reduce)(X)
    assert logs["c"].tolist() == [pytest.approx(want)]
    _, logs = spool(running, reduce={"c": reduce})(X)
    assert logs["c"].tolist() == [pytest.approx(want)]
    with pytest.raises(LookupError, match="'d'"):
        spool(running, reduce={"d": reduce})(X)


@pytest.mark.parametrize("reduce", ["last", "mean"])
def test_reductions_take_constant_memory(reduce):
    megabyte = jnp.ones(250_000)

    def f(c):
        def body(c, i):
            log({"c": c * i})
            return c + 1, None

        return lax.scan(body, c, jnp.arange(1000.0))[0]

    memory = jax.jit(spool(f, reduce=reduce)).lower(megabyte).compile().memory_analysis()
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes < 10e6


def test_every_thins():
    _, logs = spool(running, every=2)(X)
    assert read(logs) == {"c": [0.0, 3.0]}
    assert logs.step["c"].tolist() == [0.0, 2.0]
    assert spool(running, every=2)(jnp.ones(4000))[1]["c"].shape == (2000,)


def test_under_a_vmap_outside_and_inside():
    def f(x):
        log({"x": x})
        log({"x": x + 10})
        return x

    assert jax.vmap(spool(f))(X)[1]["x"].tolist() == [[0, 10], [1, 11], [2, 12]]
    assert spool(jax.vmap(f))(X)[1]["x"].tolist() == [[0, 1, 2], [10, 11, 12]]
    assert spool(jax.vmap(f, in_axes=1))(jnp.ones((2, 5)))[1]["x"].shape == (2, 5, 2)


def test_nesting():
    def f(x):
        log({"a": x, "b": x})
        return x

    def keys(*logs):
        return [list(each) for each in logs]

    (_, inner), outer = spool(spool(f))(1.0)
    assert keys(inner, outer) == [["a", "b"], []]
    (_, inner), outer = spool(spool(f, keep_logs=True))(1.0)
    assert keys(inner, outer) == [["a", "b"], ["a", "b"]]
    (_, inner), outer = spool(spool(f, argnames="a", prefix="p/"))(1.0)
    assert keys(inner, outer) == [["p/a"], ["b"]]
    assert keys(spool(strip(f))(1.0)[1]) == [[]]
    assert not spool(lambda x: x)(1.0)[1]


def test_static_and_donated_arguments_stay_so():
    @functools.partial(jax.jit, static_argnums=1, static_argnames="mode", donate_argnums=0)
    def f(x, n, mode="a"):
        log({mode: x * n})
        return x + n

    x = X + 0
    out, logs = spool(f)(x, 3, mode="b")
    assert (out.tolist(), read(logs)) == ([3, 4, 5], {"b": [[0, 3, 6]]})
    assert x.is_deleted()


def test_a_plain_call_afterwards_is_untouched():
    seen = []
    inner = jax.jit(lambda x: (log({"x": x}), x + 1)[1])

    def f(x):
        return inner(inner(x))

    for _ in range(2):
        assert read(spool(f)(1.0)[1]) == {"x": [1.0, 2.0]}
        tap(f, seen.append)(1.0)
        jax.effects_barrier()
    assert len(seen) == 4
    assert f(1.0) == jax.jit(f)(1.0) == 3
    jax.effects_barrier()
    assert len(seen) == 4
    assert not jax.make_jaxpr(f)(1.0).effects


def test_a_variable_around_the_function_is_read_once_as_under_jit() -> None:
    around = {"n": 1.0}

    def f(x: jax.Array) -> jax.Array:
        log({"x": x})
        return x + around["n"]

    spooled, jitted = spool(f), jax.jit(f)
    assert spooled(1.0)[0] == jitted(1.0) == 2.0
    around["n"] = 5.0
    assert spooled(1.0)[0] == jitted(1.0) == 2.0
    assert spooled(jnp.ones(2))[0].tolist() == [6.0, 6.0]  # another shape is traced anew
