"""`tap` sees each log as it happens, in program order, and cannot hurt the program."""

from __future__ import annotations

import functools
import operator
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from sightglass.jax import log, spool, tap

from .programs import watch

pytestmark = pytest.mark.smoke

X = jnp.arange(3.0)


def program(xs):
    def body(c, x):
        log({"a": c}, step=x)
        log({"b": x})
        c = lax.cond(x > 0, lambda c: (log({"c": c}), c + 1)[1], lambda c: c, c)
        lax.fori_loop(0, 2, lambda i, n: (log({"d": n}), n + 1)[1], 0)
        log({"a": c})
        return c, None

    return lax.scan(body, 0.0, xs)[0]


def test_events_come_in_program_order():
    _, seen = watch(program, X)
    rounds = [["a", "b", "d", "d", "a"], ["a", "b", "c", "d", "d", "a"], ["a", "b", "c", "d", "d", "a"]]
    assert [key for event in seen for key in event] == functools.reduce(operator.iadd, rounds, [])


def test_it_gets_numpy_arrays_with_an_event_axis():
    seen = []
    tap(
        lambda x: (log({"x": x, "k": jax.random.key(1), "h": jnp.bfloat16(2)}, step=3), x)[1], seen.append, prefix="p/"
    )(X)
    jax.effects_barrier()
    (logs,) = seen
    assert type(logs["p/x"]) is np.ndarray
    assert logs["p/x"].shape == (1, 3)
    assert logs["p/k"].tolist() == [[0, 1]]
    assert logs["p/h"].dtype == jnp.bfloat16
    assert logs.step["p/x"].tolist() == [3]


def test_without_a_callback_it_prints(capfd):
    tap(lambda x: (log({"x": x}, step=3), x)[1])(1.0)
    jax.effects_barrier()
    assert "x  float32[1]  1  step 3" in capfd.readouterr().out


def test_a_callback_that_raises_is_counted_and_warned_of_once():
    def bad(logs):
        raise ValueError("no")

    tapped = tap(program, bad)
    with pytest.warns(RuntimeWarning, match=r"ValueError: no .*test_tap.py:\d+"):
        jax.block_until_ready(tapped(X)), jax.effects_barrier()
    statistics = tapped.statistics()
    assert statistics.n_events == statistics.n_errors == 17


def test_outer_transformations_see_the_same_logs():
    seen = []

    def f(x):
        return (log({"x": x}), x)[1]

    _, logs = spool(tap(f, seen.append))(1.0)
    jax.effects_barrier()
    assert (len(seen), list(logs)) == (1, ["x"])
    tap(spool(f), seen.append)(1.0)
    jax.effects_barrier()
    assert len(seen) == 1, "what a spool took is gone"
    tap(tap(f, seen.append), seen.append)(1.0)
    jax.effects_barrier()
    assert len(seen) == 3


def test_under_derivatives_and_batches_from_outside():
    seen = []

    def f(x):
        def layer(c, y):
            log({"c": c.sum()})
            return c * y, None

        return lax.scan(jax.checkpoint(layer), x, X + 1)[0].sum()

    assert jax.grad(tap(f, seen.append))(X).tolist() == jax.grad(f)(X).tolist()
    jax.effects_barrier()
    assert [logs["c"].tolist() for logs in seen] == [[3.0], [3.0], [6.0]]
    seen.clear()
    jax.vmap(tap(f, seen.append))(jnp.ones((2, 3)))
    jax.effects_barrier()
    assert [logs["c"].shape for logs in seen] == [(1, 2)] * 3


def test_logs_inside_a_loop_are_not_hoisted():
    f = jax.grad(lambda x: lax.scan(lambda c, y: ((log({"y": y * 2}), c * y)[1], None), x, X + 1)[0])
    assert [event["y"] for event in watch(f, 1.0)[1]] == [[2.0], [4.0], [6.0]]


def test_one_callback_for_logs_that_follow_upon_each_other():
    def f(x):
        return (log({"a": x}), log({"b": x}), log({"c": x}), x)[-1]

    jaxpr = str(jax.make_jaxpr(tap(f, print))(1.0))
    assert jaxpr.count("tap[") == 1


def test_calls_from_several_threads():
    seen = []
    tapped = tap(program, seen.append)
    threads = [threading.Thread(target=tapped, args=(X,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    jax.effects_barrier()
    assert len(seen) == 4 * 17
