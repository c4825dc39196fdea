"""`log` is nothing until somebody wants it."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sightglass.core.errors import LogError
from sightglass.jax import log, spool, tap


def test_an_unwanted_log_is_not_in_the_program():
    jaxpr = jax.make_jaxpr(lambda x: (log({"x": jnp.sin(x)}, step=x), x)[1])(1.0)
    assert not jaxpr.effects
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == ["sin"]


def test_it_returns_its_values():
    logs = log({"loss": jnp.float32(0.5), "grads": {"w": jnp.ones(2)}}, step=3, prefix="a/")
    assert list(logs) == ["a/loss", "a/grads"]
    assert logs["a/loss"].tolist() == [0.5]
    assert logs["a/grads"]["w"].shape == (1, 2)
    assert logs.step["a/loss"].tolist() == [3]


def test_a_function_is_called_only_where_it_is_taken():
    calls = []

    def f(x):
        log({"svd": lambda: calls.append(1) or {"u": x + 1}, "x": x})
        return x

    f(1.0)
    assert calls == []
    spool(f, argnames="x")(1.0)
    assert calls == []
    assert spool(f, argnames="svd")(1.0)[1]["svd"]["u"].tolist() == [2.0]
    assert calls == [1]


@pytest.mark.parametrize(
    "value",
    [True, 3, 2.5, 1j, np.float64(2), np.int8(3), np.ones((2, 3), np.uint8), jnp.bfloat16(1.5),
     jnp.ones(2, jnp.float8_e4m3fn), jnp.zeros((0, 2))],
    ids=str,
)  # fmt: skip
def test_kinds_of_values(value):
    want = jnp.asarray(value)[None]
    _, logs = spool(lambda x: (log({"v": value, "x": x}), x)[1])(value)
    for key in ("v", "x"):
        assert (logs[key].dtype, logs[key].shape) == (want.dtype, want.shape)
        assert (np.asarray(logs[key]) == np.asarray(want)).all()


def test_int4_and_keys_and_nothing():
    def f(key):
        log({"key": key, "i4": jnp.arange(3).astype(jnp.int4), "none": None, "tree": {"a": None, "b": [1, 2.0]}})
        return key

    key = jax.random.key(7)
    _, logs = spool(f)(key)
    assert list(logs) == ["key", "i4", "tree"]
    assert logs["key"].dtype == key.dtype
    assert jax.random.key_data(logs["key"]).tolist() == [jax.random.key_data(key).tolist()]
    assert logs["i4"].dtype == jnp.int4
    assert logs["tree"]["b"][1].tolist() == [2.0]


def test_texts_are_refused_with_the_users_line():
    def f(x):
        log({"x": {"name": "abc"}})
        return x

    with pytest.raises(LogError, match=r"'abc' of 'x'.*test_log.py:\d+"):
        spool(f)(1.0)
    with pytest.raises(LogError, match="mapping"):
        spool(log)(1.0)
    with pytest.raises(LogError, match="object of 'x'"):
        spool(lambda x: log({"x": object()}))(1.0)


def test_explicit_prefix_and_argnames_reach_every_depth():
    def f(x):
        def body(c, _):
            log({"a": c}, explicit=True)
            log({"b": c, "c": c}, prefix="q/")
            return c, None

        return jax.jit(lambda x: jax.lax.scan(jax.checkpoint(body), x, None, length=1)[0])(x)

    def keys(*args, **options):
        return list(spool(f, *args, **options)(1.0)[1])

    assert keys() == ["q/b", "q/c"]
    assert keys(["a", "q/b"]) == ["a", "q/b"]
    assert keys("a", prefix="p/") == ["p/a"]
    with pytest.raises(LookupError, match="'d'"):
        spool(f, argnames="d")(1.0)


def test_importing_touches_no_device():
    code = (
        "import sightglass.jax, jax; from jax._src import xla_bridge; assert not xla_bridge.backends_are_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_programs_around_it_do_not_change():
    def f(x):
        log({"x": x})
        return x * 2

    tap(f, lambda logs: None)(1.0), spool(f)(1.0)
    assert jax.jit(f).lower(1.0).compile()(1.0) == 2
    assert jax.eval_shape(spool(f), 1.0)[1]["x"].shape == (1,)
    with jax.checking_leaks():
        assert jax.jit(spool(f))(3.0)[0] == 6
    exported = jax.export.export(jax.jit(f))(1.0)
    assert exported.call(1.0) == 2
    assert jax.export.export(jax.jit(spool(f)))(1.0).call(3.0)[1]["x"].tolist() == [3.0]
