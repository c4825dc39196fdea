"""A live step whose own code transforms what it logs: asking changes nothing of what it returns."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from tests.waiting import wait_until

from sightglass.jax import log, spool, tap


def inner(x):
    def body(c, v):
        log({"v": v}, step=v)
        return c + v, None

    return lax.scan(body, 0.0, x)[0]


inner_jitted = jax.jit(inner)


def test_an_inner_spool_returns_the_same_logs_with_and_without_queries(queried):
    @jax.jit
    def f(x):
        out, logs = spool(inner)(x)
        log({"out": out})
        return out, logs

    x = jnp.arange(3.0)
    _, before = f(x)
    step = queried.live(f, x)
    stream = queried.query(lambda: step(x), "batch.out")
    _, after = step(x)
    assert list(after) == list(before) == ["v"]
    np.testing.assert_array_equal(after["v"], before["v"])
    assert queried.values(stream) == [3.0]


def test_an_inner_tap_sees_the_same_logs_with_and_without_queries(queried):
    seen = []

    @jax.jit
    def f(x):
        out = tap(inner, lambda logs: seen.append(sorted(logs)))(x)
        log({"out": out})
        return out

    x = jnp.arange(3.0)
    step = queried.live(f, x)
    queried.query(lambda: step(x), "batch.out")
    jax.effects_barrier()
    seen.clear()
    jax.block_until_ready(step(x))
    jax.effects_barrier()
    assert seen == [["v"]] * 3


def test_logs_that_an_inner_spool_keeps_can_be_queried(queried):
    @jax.jit
    def f(n):
        def body(c):
            log({"c": c}, event="env", step=c)
            return c + 1

        out, logs = spool(lambda n: lax.while_loop(lambda c: c < n, body, 0), reduce="last", keep_logs=True)(n)
        log({"last": logs["c"][0]})
        return out

    step = queried.live(f, 4)
    env, last = queried.query(lambda: step(4), "env.c", "batch.last")
    step(4)
    assert queried.values(env) == [0, 1, 2, 3]
    assert queried.values(last) == [3]


def test_the_solver_of_a_linear_system_is_answered(queried):
    def solve(operator, b):
        log({"b": b})
        return lax.fori_loop(0, 3, lambda i, x: (log({"x": x}), x + 0.25 * (b - operator(x)))[1], 0.0)

    step = queried.live(jax.jit(lambda b: lax.custom_linear_solve(lambda x: 2 * x, b, solve, solve)), 4.0)
    b, x = queried.query(lambda: step(4.0), "batch.b", "batch_loop.x")
    assert step(8.0) == 3.5
    assert queried.values(b) == [8.0]
    assert queried.values(x) == [0.0, 2.0, 3.0]


def test_an_act_that_waits_for_an_event_within_waits_for_the_call(queried):
    @jax.jit
    def f(x):
        def body(c, _):
            log({"c": c}, event="inner")
            return c + 1, None

        return lax.scan(body, x, None, length=3)[0]

    control = queried.run.control("lr", 0.1)
    step = queried.live(f, 0)
    queried.query(lambda: step(0), "inner.c")
    act = queried.telemetry.commands.queue
    from sightglass.training.commands import Command

    queried.telemetry.commands.add(Command(id=1, client="c", kind="set", name="lr", value=0.5, at="inner"))
    assert control.value == 0.1
    step(0)
    assert control.value == 0.5
    assert act.history[-1].event == "batch"


def test_a_cell_that_is_run_again_takes_the_place_of_its_step(queried):
    def cell(factor):
        @jax.jit
        def train(x):
            log({"loss": x.sum() * factor})
            return x + 1

        return queried.live(train, jnp.ones(2))

    first = cell(1)
    stream = queried.query(lambda: first(jnp.ones(2)), "batch.loss")
    second = cell(10)
    np.testing.assert_array_equal(first(jnp.ones(2)), [2.0, 2.0])
    assert queried.values(stream) == []
    wait_until(lambda: (jax.block_until_ready(second(jnp.ones(2))), stream.latest.value == 20.0)[1])


def test_a_step_that_was_called_before_anybody_asked_is_looked_into_when_somebody_does(queried):
    assert "batch" not in queried.client.describe().events  # it is connected, and asks for nothing
    step = queried.live(inner_jitted, jnp.arange(3.0))
    stream = queried.query(lambda: step(jnp.arange(3.0)), "batch_body.v")
    assert stream.latest.value in {0.0, 1.0, 2.0}


def test_an_event_that_a_static_argument_moves_into_a_loop_is_refused(queried):
    def f(x, looped):
        def body(c, _):
            log({"c": c}, event="inner")
            return c + 1, None

        return lax.scan(body, x, None, length=3)[0] if looped else body(x, None)[0]

    plain = jax.jit(f, static_argnums=1)
    step = queried.live(plain, 0, False)
    queried.query(lambda: step(0, False), "inner.c")
    assert "Error" in queried.refused(lambda: step(0, True), "on('inner').map(lambda b: b.c + 1)")
    assert step(0, True) == 3
