"""Meshes whose axes are explicit, the default of `jax.make_mesh`: the logs are those of one device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import sightglass.jax as sgx
from sightglass.jax import log, spool

from .programs import divided, mesh, watch

X = np.arange(16, dtype=np.float32).reshape(8, 2)
REDUCTIONS = {
    **{name: name for name in ("mean", "sum", "min", "max", "first", "last", "std", "count")},
    "last_k": sgx.last_k(2),
    "histogram": sgx.histogram(4),
}


def each(**values: Any) -> dict[str, Any]:
    """Return values to log for each reduction, and for none."""
    return {f"{name}/{key}": value for name in (*REDUCTIONS, "all") for key, value in values.items()}


def looped(x: Any) -> Any:
    def body(c: Any, i: Any) -> Any:
        log(each(y=c, n=1), step=i)
        log(each(y=c * 2), lr=0.5)
        return c + 1, None

    return lax.scan(body, x, jnp.arange(3))[0]


def until_large(x: Any) -> Any:
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (log({"y": s[1]}), (s[0] + 1, s[1] + 1))[1], (0, x))[1]


def uneven(x: Any) -> Any:
    twice = lambda x: (log(each(y=x)), log(each(y=x + 1)), x)[2]  # noqa: E731
    return lax.cond(x.sum() > 0, twice, lambda x: (log(each(y=jnp.zeros((8, 2)))), x)[1], x)


def lanes(x: Any) -> Any:
    happens = lambda r: lax.cond(r.sum() > 9, lambda r: (log(each(y=r, k=1), step=3), r)[1], lambda r: r, r)  # noqa: E731
    return lax.scan(lambda c, _: (jax.vmap(happens)(c) + 1, None), x, None, length=3)[0]


def lanes_that_end(x: Any) -> Any:
    return jax.vmap(lambda r: lax.while_loop(lambda s: s.sum() < 20, lambda s: (log({"y": s}), s + 1)[1], r))(x)


def on_devices(x: Any) -> Any:
    spec = jax.sharding.PartitionSpec("d", None)
    return jax.shard_map(lambda x: (log({"y": x.mean(0)}), x)[1], mesh=mesh(), in_specs=spec, out_specs=spec)(x)


@pytest.fixture
def explicit() -> Iterator[None]:
    with jax.set_mesh(mesh()):
        yield


@pytest.mark.parametrize("f", [looped, uneven, lanes], ids=lambda f: f.__name__)
def test_logs_are_those_of_one_device(f: Any, explicit: None) -> None:
    reduce = {f"{name}/*": how for name, how in REDUCTIONS.items()}
    (out, logs), (want, expected) = spool(f, reduce=reduce)(divided(X)), _alone(f, reduce=reduce)
    np.testing.assert_array_equal(out, want)
    assert jax.tree.structure(logs) == jax.tree.structure(expected)
    assert {key.split("/")[0] for key in logs} == {*REDUCTIONS, "all"}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), logs, expected)


@pytest.mark.parametrize("f", [until_large, lanes_that_end], ids=lambda f: f.__name__)
def test_loops_of_any_length_are_those_of_one_device(f: Any, explicit: None) -> None:
    (_, logs), (_, expected) = spool(f, capacity=2)(divided(X)), _alone(f, capacity=2)
    jax.tree.map(np.testing.assert_array_equal, logs, expected)


@pytest.mark.parametrize("reduce", [None, "mean", "last", "var", sgx.last_k(3)], ids=str)
def test_devices_can_be_merged(reduce: Any, explicit: None) -> None:
    rows = X.reshape(4, 2, 2).mean(1)
    want = {None: rows, "mean": rows.mean(0)[None], "last": rows[-1:], "var": rows.var(0)[None]}.get(reduce, rows[-3:])
    np.testing.assert_allclose(np.asarray(spool(on_devices, reduce=reduce)(divided(X))[1]["y"]), want)


def test_values_stay_divided(explicit: None) -> None:
    out, logs = spool(looped, argnames="mean/y", reduce="mean")(divided(X))
    assert out.sharding.spec[0] == "d"
    assert logs["mean/y"].sharding.spec[1] == "d"


def test_events_arrive_one_by_one(explicit: None) -> None:
    _, seen = watch(lanes, divided(X), argnames="all/k")
    assert [event["all/k"] for event in seen] == [event["all/k"] for event in watch(lanes, X, argnames="all/k")[1]]


def _alone(f: Any, **options: Any) -> Any:
    with jax.set_mesh(jax.make_mesh((1,), ("one",))):
        return jax.device_get(spool(f, **options)(jnp.asarray(X)))
