"""Logs that are constants, of several types under one key, without `jit`, and beside NaN: the same everywhere."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import sightglass.jax as sgx
from sightglass.core.errors import LogError
from sightglass.jax import log, logdict, spool, tap

from .programs import read, watch


def counted(x: Any) -> Any:
    return lax.scan(lambda c, _: ((log({"k": c, "n": 1}, step=0), c + 1)[1], None), x, None, length=3)[0]


# Constants under vmap


@pytest.mark.parametrize(
    "f", [counted, jax.jit(lambda x: (log({"k": x, "n": 1}, step=0), x + 3)[1])], ids=["scan", "jit"]
)
def test_constants_have_lanes(f: Any) -> None:
    outside, inside = spool(jax.vmap(f))(jnp.arange(2.0)), jax.vmap(spool(f))(jnp.arange(2.0))
    for key in ("k", "n"):
        np.testing.assert_array_equal(outside[1][key], np.moveaxis(inside[1][key], 0, 1))
        np.testing.assert_array_equal(outside[1].step[key], np.zeros(outside[1][key].shape))
    assert outside[1]["n"].dtype == jnp.int32
    _, seen = watch(jax.vmap(f), jnp.arange(2.0))
    assert [event["n"] for event in seen] == [[[1, 1]]] * len(outside[1]["n"])


def test_a_constant_in_a_branch_has_lanes() -> None:
    def f(x: Any) -> Any:
        lax.cond(x > 0, lambda: log({"n": True, "x": x}) and None, lambda: None)
        return x

    _, seen = watch(jax.vmap(jax.jit(f)), jnp.arange(2.0))
    assert [event["x"] for event in seen] == [[[0.0, 1.0]]] or seen


# Types


REAL = [(0, 1.5), (jnp.float32(1), jnp.bfloat16(2)), (True, jnp.int8(3)), (jnp.int32(2), jnp.uint8(1))]
KINDS = [None, "last", "max", "sum", "mean", sgx.last_k(4)]


@pytest.mark.parametrize(
    ("a", "b", "reduce"),
    [
        *((*pair, reduce) for pair in REAL for reduce in KINDS),
        *((1.0, 1j, reduce) for reduce in KINDS if reduce != "max"),  # complex numbers have no order
    ],
    ids=str,
)
def test_types_are_promoted_as_by_concatenate(a: Any, b: Any, reduce: Any) -> None:
    a, b = jnp.asarray(a), jnp.asarray(b)

    def f(x: Any) -> Any:
        def body(c: Any, _: Any) -> Any:
            lax.cond(c > 1, lambda: log({"r": a}) and None, lambda: log({"r": b}) and None)
            log({"r": a})
            return c + 1, None

        return lax.scan(body, x, None, length=4)[0]

    events = jnp.concatenate([row[None] for row in (b, a, b, a, a, a, a, a)])
    logs = spool(f, reduce=reduce)(0)[1]
    want = logdict({"r": events}).reduce(reduce)["r"] if isinstance(reduce, str) else events
    assert logs["r"].dtype == want.dtype
    np.testing.assert_allclose(np.asarray(logs["r"]), np.asarray(want)[-len(logs["r"]) :], rtol=1e-6)


def test_types_of_steps_are_promoted() -> None:
    logs = spool(lambda x: (log({"a": x}, step=1), log({"a": x}, step=2.5), x)[2])(1.0)[1]
    assert logs.step["a"].tolist() == [1.0, 2.5]


def test_keys_and_numbers_are_not_stacked() -> None:
    with pytest.raises(LogError, match="stacked"):
        spool(lambda x: (log({"a": x}), log({"a": jax.random.key(0)}), x)[2])(1.0)


# Debugging


def once(x: Any) -> Any:
    log({"k": x})
    return x


@pytest.mark.parametrize("f", [once, counted, jax.jit(counted)], ids=["once", "scan", "jit"])
def test_without_jit_everything_is_seen(f: Any) -> None:
    want, logs = spool(f)(1.0)
    with jax.disable_jit():
        out, seen = watch(f, 1.0)
        assert out == want
        assert [event["k"] for event in seen] == [[float(k)] for k in logs["k"]]
        np.testing.assert_array_equal(spool(f)(1.0)[1]["k"], logs["k"])
        assert spool(f, reduce="mean")(1.0)[1]["k"] == logs["k"].mean()
        _, seen = watch(jax.vmap(f), jnp.arange(2.0))
        assert len(seen) == len(logs["k"])


def test_what_was_not_logged_is_no_nan_to_debug() -> None:
    with jax.debug_nans(True):
        logs = spool(lambda x: (log({"x": x}), log({"x": x}, lr=x), x)[2])(1.0)[1]
        assert [event.steps for event in logs.events()] == [{}, {"lr": 1.0}]
        never = spool(lambda x: lax.cond(x > 5, lambda: log({"x": x}) and None, lambda: None), reduce="mean")(1.0)[1]
        assert not list(never.events())
        assert watch(lambda x: (log({"x": x / 0}), x)[1], 1.0)[0] == 1.0
        with pytest.raises(FloatingPointError):
            spool(lambda x: (log({"x": x / x}), x)[1])(0.0)


# Nothing happened, too much happened


@pytest.mark.parametrize("reduce", ["mean", "std", "min", "last"])
def test_a_reduction_of_nothing_is_nan(reduce: str) -> None:
    def f(x: Any) -> Any:
        return lax.cond(x > 5, lambda: (log({"x": x}), x)[1], lambda: x)

    for logs in (spool(f, reduce=reduce)(1.0)[1], spool(f)(1.0)[1].reduce(reduce)):
        assert np.isnan(logs["x"]).tolist() == [True]
        assert logs.valid["x"].tolist() == [False]


def test_sums_of_integers_do_not_wrap() -> None:
    def f(x: Any) -> Any:
        return lax.scan(lambda c, i: ((log({"k": i}), c)[1], None), x, jnp.full(8, 2**30))[0]

    assert spool(f, reduce="sum")(1.0)[1]["k"].tolist() == [2**31 - 1]


# The interface


def test_filter_takes_the_value_too() -> None:
    logs = logdict({"a": jnp.ones(2), "b": jnp.zeros(2)}, {"step": {"a": jnp.arange(2), "b": jnp.arange(2)}})
    assert list(logs.filter(lambda key, value: key == "a")) == ["a"]
    assert list(logs.filter(lambda key, value: bool(value.any()))) == ["a"]
    assert list(logs.step.filter(lambda key, step: key == "b")) == ["b"]
    assert list(logs.filter(lambda key: key == "a")) == ["a"]
    assert list(logs.filter(lambda key, also="b": key in ("a", also))) == ["a", "b"]
    assert list(logs.filter({"a"}.__contains__)) == ["a"]
    assert list(log({"a": 1.0, "b": 2.0}).filter(lambda key, value: value[0] > 1)) == ["b"]


def test_reductions_can_be_imported() -> None:
    logs = spool(counted, reduce={"k": sgx.every(2), "n": sgx.histogram(4)})(0.0)[1]
    assert read(logs.filter(lambda key: key == "k")) == {"k": [0.0, 2.0]}
    assert spool(counted, argnames="k", reduce=sgx.last_k(2))(0.0)[1]["k"].tolist() == [1.0, 2.0]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_prefix_is_text(wanted: bool) -> None:
    def f(x: Any) -> Any:
        log({"a": x}, prefix=3)  # type: ignore[arg-type]
        return x

    with pytest.raises(LogError, match="prefix="):
        (spool(f) if wanted else f)(1.0)


def test_a_callback_that_exits_does_not_end_the_program() -> None:
    def leave(logs: logdict) -> None:
        raise SystemExit(3)

    watched = tap(lambda x: (log({"x": x}), x)[1], leave)
    with pytest.warns(RuntimeWarning, match="SystemExit"):
        jax.block_until_ready((watched(1.0), jax.effects_barrier()))
    assert watched.statistics().n_errors == 1


def test_a_logdict_can_be_exported() -> None:
    pytest.importorskip("flatbuffers")
    from jax import export

    program = export.export(jax.jit(spool(counted)))(1.0)
    out, logs = export.deserialize(program.serialize()).call(1.0)
    assert out == 4
    assert logs["k"].tolist() == [1.0, 2.0, 3.0]
    assert logs.step["n"].tolist() == [0, 0, 0]
