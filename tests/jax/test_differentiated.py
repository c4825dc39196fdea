"""A log in a loop happens in each of its rounds, once, under every transformation of JAX, whatever it logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import sightglass as sg
from sightglass.jax import log, spool, tap

from .queried_run import QueriedRun

RATE = jnp.float32(0.1)
Function = Callable[[Any], Any]


def leaf(c: Any) -> Any:
    """Log a constant, a value that changes, and both."""
    log({"constant": RATE * 2})
    log({"number": 3.0})
    log({"changes": c})
    log({"mixed": c, "with": RATE})
    return jnp.sin(c)


def scan(f: Function, n: int, *, over: bool = False) -> Function:
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, jnp.arange(n) if over else None, length=n)[0]


def of_nothing(f: Function) -> Function:
    """Call a function of a constant, whose result the loop does not need."""
    return lambda c: (f(RATE), jnp.sin(c))[1]


def loop(f: Function, n: int) -> Function:
    return lambda x: lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, f(s[1])), (0, x))[1]


def branch(f: Function) -> Function:
    return lambda c: lax.cond(c > -10.0, f, lambda c: c, c)


def constant_branch(f: Function) -> Function:
    return of_nothing(lambda rate: lax.cond(rate > 0, f, lambda c: c, rate))


def over_lanes(f: Function) -> Function:
    return lambda c: jnp.mean(jax.vmap(f)(jnp.stack([c, c])))


NESTS: dict[str, tuple[Function, int]] = {
    "scan": (scan(leaf, 5), 5),
    "scan over steps": (scan(leaf, 5, over=True), 5),
    "scan of scan": (scan(scan(leaf, 3), 5), 15),
    "scan of a constant scan": (scan(of_nothing(scan(leaf, 3)), 5), 15),
    "scan of fori": (scan(lambda x: lax.fori_loop(0, 3, lambda _, c: leaf(c), x), 5), 15),
    "scan of jit": (scan(jax.jit(leaf), 5), 5),
    "scan of a constant jit": (scan(of_nothing(jax.jit(leaf)), 5), 5),
    "scan of cond": (scan(branch(leaf), 5), 5),
    "scan of a constant cond": (scan(constant_branch(leaf), 5), 5),
    "scan of a constant cond of scan": (scan(constant_branch(scan(leaf, 3)), 5), 15),
    "scan of remat": (scan(jax.checkpoint(leaf), 5), 5),
    "remat of scan": (jax.checkpoint(scan(leaf, 5)), 5),
    "scan of vmap": (scan(over_lanes(leaf), 5), 5),
    "scan of grad": (scan(jax.grad(leaf), 5), 5),
    "scan of grad of scan": (scan(jax.grad(scan(leaf, 3)), 5), 15),
}
LOOPS: dict[str, tuple[Function, int]] = {  # how often they run is known when they ran
    "while": (lambda x: loop(leaf, 4)(lax.stop_gradient(x)) + x, 4),
    "scan of while": (scan(lambda c: loop(leaf, 4)(lax.stop_gradient(c)) + c, 5), 20),
    "scan of a constant while": (scan(of_nothing(loop(leaf, 4)), 5), 20),
}
DERIVATIVES: dict[str, Callable[[Function], Function]] = {
    "value": lambda f: f,
    "grad": jax.grad,
    "grad of remat": lambda f: jax.grad(jax.checkpoint(f)),
    "vmap of grad": lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, x + 1])),
    "grad of vmap": lambda f: lambda x: jax.grad(lambda y: jnp.sum(jax.vmap(f)(y)))(jnp.stack([x, x + 1])),
    "grad of jit": lambda f: jax.grad(jax.jit(f)),
    "hessian": jax.hessian,
    "jvp": lambda f: lambda x: jax.jvp(f, (x,), (1.0,)),
    "linearize": lambda f: lambda x: jax.linearize(f, x)[1](1.0),
}
KEYS = ("constant", "number", "changes", "mixed", "with")


@pytest.mark.parametrize("derivative", ["grad", "grad of remat", "vmap of grad", "hessian", "linearize"])
@pytest.mark.parametrize("nest", NESTS)
def test_each_round_logs_once(nest: str, derivative: str) -> None:
    """The others are in `bench classes`."""
    function, n = NESTS[nest]
    _, logs = jax.eval_shape(spool(DERIVATIVES[derivative](function)), jnp.float32(1))
    assert {key: logs[key].shape[0] for key in logs} == dict.fromkeys(KEYS, n)


@pytest.mark.parametrize("derivative", ["value", "grad of remat", "jvp", "linearize"])
@pytest.mark.parametrize("nest", LOOPS)
def test_each_round_of_a_while_loop_logs_once(nest: str, derivative: str) -> None:
    (function, n), seen = LOOPS[nest], Counter[str]()
    jax.block_until_ready(
        tap(DERIVATIVES[derivative](function), lambda entry: seen.update(list(entry)))(jnp.float32(1))
    )
    jax.effects_barrier()
    assert seen == dict.fromkeys(KEYS, n)


@pytest.mark.parametrize("derivative", ["grad", "vmap of grad", "hessian"])
def test_what_is_logged_and_what_is_computed_stay_the_same(derivative: str) -> None:
    function = DERIVATIVES[derivative](NESTS["scan of scan"][0])
    results, logs = jax.jit(spool(function))(jnp.float32(1))
    np.testing.assert_array_equal(results, jax.jit(function)(jnp.float32(1)))
    np.testing.assert_array_equal(logs["constant"], np.full(15, RATE * 2))
    _, plain = spool(DERIVATIVES["vmap of grad" if "vmap" in derivative else "value"](NESTS["scan of scan"][0]))(1.0)
    np.testing.assert_allclose(logs["changes"], plain["changes"], rtol=1e-6)
    _, sums = jax.jit(spool(function, reduce="sum"))(jnp.float32(1))
    np.testing.assert_allclose(sums["constant"], 15 * RATE * 2, rtol=1e-6)


def test_a_scan_of_nothing_warns_where_it_logs() -> None:
    def f(x: Any) -> Any:
        return jnp.sum(lax.scan(lambda c, _: (log({"x": x}), (c, x * 2))[1], None, None, length=3)[1])

    with pytest.warns(RuntimeWarning, match=r"test_differentiated\.py.* carries nothing"):
        jax.eval_shape(spool(jax.grad(f)), jnp.float32(1))


def test_a_live_log_of_a_constant_stays_with_its_loop(tmp_path: Any) -> None:
    def layer(c: Any, _: Any) -> Any:
        return leaf(c), None

    queried = QueriedRun(dir=tmp_path)
    try:
        step = queried.live(jax.jit(jax.grad(lambda x: lax.scan(layer, x, None, length=5)[0])), jnp.float32(1))
        observables = {name: set(event.observables) for name, event in queried.client.describe().events.items()}
        assert observables["batch_layer"] == set(KEYS)
        total = queried.query(lambda: step(jnp.float32(1)), sg.on("batch_layer").map(lambda b: b.number).sum(every=5))
        assert queried.values(total) == []
        assert total.latest.value == 15.0
    finally:
        queried.close()
