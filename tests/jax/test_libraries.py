"""Flax NNX and Equinox: models are trained under every transformation, and what they log is seen."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests.waiting import wait_until

import sightglass.jax as sgx
from sightglass.core.errors import LogError
from sightglass.jax import log, spool, tap

from .queried_run import QueriedRun

linen = pytest.importorskip("flax.linen")
nnx = pytest.importorskip("flax.nnx")
eqx = pytest.importorskip("equinox")
X = jnp.ones((8, 3))
DESCENT = optax.sgd(0.1)  # an optimizer with another one is another program


@pytest.fixture
def queried() -> Iterator[QueriedRun]:
    made = QueriedRun()
    with made.run:
        yield made


# Linen


class Layer(linen.Module):
    @linen.compact
    def __call__(self, x: Any, _: None) -> Any:
        x = linen.Dense(3)(x)
        log({"h": x.sum()})
        return x, None


def test_a_log_in_a_scan_of_linens_is_collected_or_refused_with_what_to_do() -> None:
    scanned = linen.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)()
    params = scanned.init(jax.random.key(0), X, None)
    if jax.__version_info__ < (0, 11):
        assert spool(scanned.apply)(params, X, None)[1]["h"].shape == (4,)
    else:
        with pytest.raises(ValueError, match="data dependency") as caught:
            spool(scanned.apply)(params, X, None)
        assert caught.value.__notes__[0].startswith("From JAX 0.11 on, Flax Linen's nn.scan accepts no effect")


# NNX


def nnx_model() -> tuple[Any, Any]:
    model = nnx.Sequential(nnx.Linear(3, 4, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1)), jnp.tanh)
    return model, nnx.Optimizer(model, DESCENT, wrt=nnx.Param)


def nnx_step(model: Any, optimizer: Any, x: Any) -> Any:
    loss, grads = nnx.value_and_grad(lambda m: (m(x) ** 2).mean())(model)
    optimizer.update(model, grads)
    log({"loss": loss})
    return loss


def numbers(model: Any, optimizer: Any) -> Any:
    """Return all state as one array, with the counters of the random numbers and of the optimizer in it."""
    leaves = jax.tree.leaves(nnx.to_pure_dict(nnx.state((model, optimizer))))
    plain = [jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in leaves]
    return np.concatenate([np.asarray(a, float).ravel() for a in plain])


def collected(seen: list[Any]) -> list[float]:
    jax.effects_barrier()
    return [float(logs["loss"][0]) for logs in seen]


def nnx_runs(transform: Callable[..., Any]) -> tuple[list[float], Any]:
    """Train for three steps; return the losses, and all state."""
    model, optimizer = nnx_model()
    step = transform(nnx_step)
    losses = [float(step(model, optimizer, X)) for _ in range(3)]
    return losses, numbers(model, optimizer)


@functools.cache
def plain_nnx_runs() -> tuple[list[float], Any]:
    return nnx_runs(nnx.jit)


def spooled(step: Callable[..., Any], seen: list[Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        out, logs = spool(step)(*args)
        seen.append(jax.tree.map(np.asarray, logs) if not isinstance(out, jax.core.Tracer) else {"loss": [np.nan]})
        return out

    return call


@pytest.mark.parametrize("how", ["tap", "tap of jit", "jit of tap", "spool", "spool of jit", "jit of spool"])
def test_nnx_is_trained(how: str) -> None:
    seen: list[Any] = []
    transforms: dict[str, Callable[..., Any]] = {
        "tap": lambda f: tap(f, seen.append),
        "tap of jit": lambda f: tap(nnx.jit(f), seen.append),
        "jit of tap": lambda f: nnx.jit(tap(f, seen.append)),
        "spool": lambda f: spooled(f, seen),
        "spool of jit": lambda f: spooled(nnx.jit(f), seen),
        "jit of spool": lambda f: nnx.jit(spooled(f, seen)),
    }
    want, state = plain_nnx_runs()
    losses, trained = nnx_runs(transforms[how])
    np.testing.assert_allclose(losses, want, rtol=1e-6)
    np.testing.assert_allclose(trained, state, rtol=1e-5)
    if how != "jit of spool":
        np.testing.assert_allclose(collected(seen), want, rtol=1e-6)


def test_nnx_is_trained_live(queried: QueriedRun) -> None:
    want, state = plain_nnx_runs()
    step = queried.live(nnx.jit(nnx_step), *nnx_model(), X)
    stream = queried.query(lambda: step(*nnx_model(), X), "batch.loss")

    def answered() -> list[Any]:
        losses, trained = nnx_runs(lambda _: step)
        np.testing.assert_allclose(losses, want, rtol=1e-6)
        np.testing.assert_allclose(trained, state, rtol=1e-5)
        return queried.values(stream)

    # A model that was never trained may have other types than one that was, and so another program.
    np.testing.assert_allclose(wait_until(lambda: len(values := answered()) == 3 and values, "three answers"), want)


def test_logs_in_nnx_transforms() -> None:
    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def deep(x: Any, layer: Any) -> Any:
        log({"norm": jnp.linalg.norm(x)})
        return layer(x)

    @nnx.vmap(in_axes=0, out_axes=0)
    def layers(key: Any) -> Any:
        return nnx.Linear(3, 3, rngs=nnx.Rngs(params=key))

    stack = layers(jax.random.split(jax.random.key(0), 4))
    out, logs = spool(nnx.jit(deep))(X, stack)
    np.testing.assert_allclose(out, deep(X, stack), rtol=1e-5)
    assert logs["norm"].shape == (4,)
    grads, logs = nnx.grad(spool(lambda stack: deep(X, stack).sum()), has_aux=True)(stack)
    assert logs["norm"].shape == (4,)
    assert float(jnp.abs(grads.kernel[...]).sum()) > 0
    each = nnx.vmap(lambda layer, x: (log({"y": layer(x).sum()}), layer(x))[1], in_axes=(0, None))
    assert spool(each)(stack, X)[1]["y"].shape == (1, 4)


def test_a_model_that_changes_its_structure_is_refused() -> None:
    def step(model: Any) -> None:
        model.name = "trained"
        log({"a": 1})

    with pytest.raises(LogError, match="NNX"):
        tap(step, print)(nnx.Linear(1, 1, rngs=nnx.Rngs(0)))


# Equinox


def eqx_model() -> Any:
    model = eqx.nn.MLP(3, 1, 4, 2, activation=jax.nn.relu, key=jax.random.key(0))
    return eqx.tree_at(lambda m: m.layers[0].bias, model, jnp.ones(4))


def eqx_step(model: Any, x: Any, inference: bool = True) -> Any:
    dropout = eqx.nn.Dropout(0.5, inference=inference)

    def loss_of(model: Any) -> Any:
        loss = (dropout(eqx.filter_vmap(model)(x)) ** 2).mean()
        log({"loss": loss})
        return loss

    loss, grads = eqx.filter_value_and_grad(loss_of)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads)), dropout, loss


def eqx_runs(step: Callable[..., Any]) -> tuple[list[float], Any]:
    model, losses = eqx_model(), []
    for _ in range(3):
        model, dropout, loss = step(model, X)
        losses.append(float(loss))
    assert model.activation is jax.nn.relu
    assert dropout.inference is True
    return losses, jax.device_get(eqx.filter(model, eqx.is_array))


@functools.cache
def plain_eqx_runs() -> tuple[list[float], Any]:
    return eqx_runs(eqx.filter_jit(eqx_step))


@pytest.mark.parametrize("how", ["tap", "tap of jit", "jit of tap", "spool", "spool of jit", "jit of spool"])
def test_equinox_is_trained(how: str) -> None:
    seen: list[Any] = []
    want, weights = plain_eqx_runs()
    transforms: dict[str, Callable[..., Any]] = {
        "tap": lambda f: tap(f, seen.append),
        "tap of jit": lambda f: tap(eqx.filter_jit(f), seen.append),
        "jit of tap": lambda f: eqx.filter_jit(tap(f, seen.append)),
        "spool": lambda f: lambda *args: spool(f)(*args)[0],
        "spool of jit": lambda f: lambda *args: spool(eqx.filter_jit(f))(*args)[0],
        "jit of spool": lambda f: eqx.filter_jit(lambda *args: spool(f)(*args)[0]),
    }
    losses, trained = eqx_runs(transforms[how](eqx_step))
    np.testing.assert_allclose(losses, want, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), trained, weights)
    if "tap" in how:
        np.testing.assert_allclose(collected(seen), want, rtol=1e-6)


def test_equinox_is_trained_live(queried: QueriedRun) -> None:
    want, weights = plain_eqx_runs()
    step = queried.live(eqx.filter_jit(eqx_step), eqx_model(), X)
    stream = queried.query(lambda: step(eqx_model(), X), "batch.loss")
    losses, trained = eqx_runs(step)
    np.testing.assert_allclose(losses, want, rtol=1e-6)
    np.testing.assert_allclose(queried.values(stream), want, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), trained, weights)


def test_numbers_in_modules_stay_numbers() -> None:
    def f(dropout: Any, x: Any) -> Any:
        log({"x": x})
        return x if dropout.inference else x + 1  # a traced number would not do

    assert tap(f, lambda logs: None)(eqx.nn.Dropout(0.5, inference=True), 1.0) == 1.0
    assert spool(f)(eqx.nn.Dropout(0.5, inference=False), 1.0)[0] == 2.0


def test_lanes_of_equinox() -> None:
    f = eqx.filter_vmap(
        spool(lambda model, x: (log({"y": model(x)[0]}), model)[1]), in_axes=(None, 0), out_axes=(None, 0)
    )
    model, logs = f(eqx_model(), X)
    assert logs["y"].shape == (8, 1)
    assert model.activation is jax.nn.relu


def test_other_functions_are_refused_with_the_way_out(queried: QueriedRun) -> None:
    with pytest.raises(LogError, match=r"jax\.jit.*nnx\.jit.*eqx\.filter_jit"):
        sgx.live(lambda x: x, queried.run)  # type: ignore[arg-type]
