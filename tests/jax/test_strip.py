"""`strip` is the program as if no log had been written."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from sightglass.jax import log, spool, strip, tap

from .programs import program


def step(note):
    def f(w, x):
        def loss(w):
            y = jnp.tanh(x @ w)
            note({"acts": y}, step=1)
            return y.mean()

        def body(w, _):
            value, slope = jax.value_and_grad(jax.checkpoint(loss))(w)
            note({"loss": value, "slope": jnp.sqrt((slope**2).sum())})
            return w - slope, value

        return lax.scan(body, w, None, length=3)

    return f


def nothing(data, **steps):
    return None


ARGS = jnp.ones((4, 4)), jnp.ones((2, 4))


def test_the_compiled_program_is_the_one_without_logs():
    wanted = program(step(nothing), *ARGS)
    assert program(strip(step(log)), *ARGS) == wanted
    assert program(step(log), *ARGS) == wanted


def test_it_hides_logs_from_further_out():
    seen = []
    out, logs = spool(tap(strip(step(log)), seen.append))(*ARGS)
    jax.effects_barrier()
    assert (dict(logs), seen) == ({}, [])
    assert jnp.allclose(out[0], step(nothing)(*ARGS)[0])


def test_it_keeps_the_function_s_name():
    assert strip(step(log)).__name__ == "f"
