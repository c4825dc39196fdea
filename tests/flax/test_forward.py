"""One pass: what it returns is what the model returns, and what is captured is what was sown, where it was sown."""

from __future__ import annotations

from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from flax.training.train_state import TrainState

from sightglass.flax import forward

from .models import NNX, Linen, X, Y, params_of, same, shapes

H = ((3, 4), (3, 4))


def linen(n: int = 2, sows: bool = True) -> tuple[Any, Any]:
    """Return what `forward` takes for a model in Linen."""
    model = Linen(n, sows)
    return TrainState.create(apply_fn=model.apply, params=params_of(model), tx=optax.sgd(0.1)), params_of(model)


def of_nnx(n: int = 2, sows: bool = True) -> tuple[Any, Any]:
    """Return what `forward` takes for a model in NNX, in its functional form."""
    return nnx.split(NNX(nnx.Rngs(0), n, sows))


BOTH = pytest.mark.parametrize("given", [linen, of_nnx])


# What is captured


def test_linen_is_nested_by_path() -> None:
    _, _, meta = forward(*linen(), (X, Y))
    assert set(meta) == {"plots", "intermediates"}
    blocks = {"Block_0": {"h": H}, "Block_1": {"h": H}}
    assert shapes(meta["plots"]) == {**blocks, "Inner_0": {"deep": {"h": H}}, "top": ((3, 4),)}
    out = {"out": ((3, 4),)}
    assert shapes(meta["intermediates"]) == {"Block_0": out, "Block_1": out, "Inner_0": {"deep": out}}


def test_nnx_is_nested_by_path() -> None:
    _, _, meta = forward(*of_nnx(), (X, Y))
    assert shapes(meta["plots"]) == {"blocks": {"0": {"h": H}, "1": {"h": H}}, "top": ((3, 4),)}
    assert shapes(meta["intermediates"]) == {"plain": {"out": ((3, 4),)}}


@BOTH
def test_sown_values_are_in_order(given: Any) -> None:
    _, _, meta = forward(*given(), (X, Y))
    first, second = next(iter(jax.tree.leaves(meta["plots"], is_leaf=lambda leaf: isinstance(leaf, tuple))))
    np.testing.assert_array_equal(jnp.tanh(first), second)


@BOTH
def test_names_stand_in_natural_order_compiled_or_not(given: Any) -> None:
    state, params = given(n=12)
    for f in (forward, lambda s, p, b: jax.jit(lambda p, b: forward(s, p, b))(p, b)):
        plots = jax.device_get(f(state, params, (X, Y))[2])["plots"]
        names = [int(name.rpartition("_")[2]) for name in plots.get("blocks", plots) if name[-1].isdecimal()]
        assert names == [*range(12)] + ([0] if "blocks" not in plots else []), "Inner_0 comes last"


# What is not changed


@BOTH
def test_the_output_is_the_same_to_the_bit(given: Any) -> None:
    state, params = given()
    plain, _ = given(sows=False)
    seen = [
        same(forward(s, params, (X, Y), intermediates=False)[:2], forward(state, params, (X, Y))[:2])
        for s in (state, plain if given is linen else state)
    ]
    compiled = [jax.jit(lambda p, c=c: forward(state, p, (X, Y), intermediates=c)[:2])(params) for c in (True, False)]
    assert seen == [True, True]
    assert same(*compiled)


@BOTH
def test_without_a_capture_the_program_is_that_without_sows(given: Any) -> None:
    state, params = given()
    unsown, _ = given(sows=False)

    def program(state: Any, **options: Any) -> str:
        return str(jax.make_jaxpr(lambda p, b: forward(state, p, b, **options))(params, (X, Y)))

    assert program(state, intermediates=False) == program(unsown, intermediates=False) == program(unsown)
    assert program(state) != program(unsown)
    assert forward(state, params, (X, Y), intermediates=False)[2] == {"plots": {}, "intermediates": {}}


@BOTH
def test_without_a_capture_the_compiled_program_is_that_of_the_model_alone(given: Any) -> None:
    state, params = given()
    model = NNX(nnx.Rngs(0), sows=False)
    model.eval()
    graph = nnx.graphdef(model)

    def alone(params: Any, batch: Any) -> Any:
        if given is linen:
            return Linen(sows=False).apply({"params": params}, *batch, deterministic=True)
        return nnx.merge(graph, params)(*batch)

    def ours(params: Any, batch: Any) -> Any:
        return forward(state, params, batch, intermediates=False)[:2]

    texts = [jax.jit(f).lower(params, (X, Y)).as_text() for f in (alone, ours)]
    assert texts[0].replace("jit_alone", "") == texts[1].replace("jit_ours", "")


class Costly(nn.Module):
    """Sows what is computed for that alone."""

    sows: bool

    @nn.compact
    def __call__(self, x: Any) -> Any:
        if self.sows:
            self.sow("plots", "norms", jnp.linalg.norm(x @ x.T, axis=0))
        return x, x.sum()


def test_values_only_computed_to_be_sown_are_not_in_the_compiled_program() -> None:
    def text(sows: bool, capture: bool) -> str:
        return jax.jit(lambda x: forward(Costly(sows), {}, (x,), intermediates=capture)).lower(X).as_text()

    assert text(True, False) == text(False, False) != text(True, True)


def test_an_nnx_model_stays_as_it_was() -> None:
    model = NNX(nnx.Rngs(0))
    before = jax.tree.map(jnp.copy, nnx.state(model))
    for deterministic in (True, False):
        forward(model, None, (X, Y), deterministic)
    assert same(before, nnx.state(model))
    assert not model.drop.deterministic
    assert not any(hasattr(part, "__captures__") for _, part in nnx.iter_modules(model))


def test_a_pass_that_fails_changes_nothing() -> None:
    model = NNX(nnx.Rngs(0))
    with pytest.raises(TypeError):
        forward(model, None, (jnp.ones((3, 5)), Y))
    assert not any(hasattr(part, "__captures__") for _, part in nnx.iter_modules(model))
    assert model.sow("plots", "h", X) is False


# Ways to call it


def test_jit_and_gradients_go_through() -> None:
    state, params = linen()

    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        def loss_of(params: Any) -> Any:
            _, loss, meta = forward(state, params, batch)
            return loss, meta

        return jax.value_and_grad(loss_of, has_aux=True)(state.params)

    (loss, meta), grads = step(state, (X, Y))
    _, expected, eager = forward(state, params, (X, Y))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert jax.tree.structure(meta) == jax.tree.structure(eager)
    assert max(float(abs(g).max()) for g in jax.tree.leaves(grads)) > 0


@pytest.mark.parametrize("batch", [(X, Y), [X, Y], {"x": X, "y": Y}], ids=["tuple", "list", "mapping"])
def test_batches(batch: Any) -> None:
    state, params = linen()
    assert same(forward(state, params, batch), forward(state, params, (X, Y)))


def test_forms_of_an_nnx_model() -> None:
    model = NNX(nnx.Rngs(0))
    graph, state = nnx.split(model)
    only, weights, rest = nnx.split(model, nnx.Param, ...)
    expected = forward(model, None, (X, Y))
    assert same(forward(graph, state, (X, Y)), expected)
    assert same(forward(only, (weights, rest), (X, Y)), expected)
    other = jax.tree.map(lambda w: w * 2, weights)
    assert not same(forward(model, other, (X, Y)), expected)
    assert same(forward(model, other, (X, Y)), forward(only, (other, rest), (X, Y)))


def test_a_model_is_as_good_as_a_train_state() -> None:
    state, params = linen()
    assert same(forward(Linen(), params, (X, Y)), forward(state, params, (X, Y)))


class Classifier(nn.Module):
    """As most are written: it returns logits alone, has statistics of batches, and takes no mode."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        self.sow("plots", "x", x)
        return nn.BatchNorm(use_running_average=True)(x)


def test_a_model_without_a_loss() -> None:
    variables = Classifier().init(jax.random.key(0), X)
    ask = partial(forward, Classifier(), variables["params"], X, variables={"batch_stats": variables["batch_stats"]})
    logits, loss, meta = ask(loss=lambda logits, x: (logits - x).sum())
    assert logits.shape == X.shape
    assert float(loss) == float((logits - X).sum())
    assert shapes(meta["plots"]) == {"x": ((3, 4),)}
    with pytest.raises(TypeError, match=r"\(logits, loss\)"):
        ask()
    with pytest.raises(TypeError, match=r"'deterministic'.*Classifier"):
        ask(deterministic=False)


def test_dropout_can_be_enabled() -> None:
    state, params = linen()
    key = {"dropout": jax.random.key(1)}
    quiet, noisy = forward(state, params, (X, Y)), forward(state, params, (X, Y), deterministic=False, rngs=key)
    assert float((noisy[0] == 0).mean()) > 0.1
    assert float((quiet[0] == 0).mean()) == 0.0
    model = NNX(nnx.Rngs(0))
    assert float((forward(model, None, (X, Y), deterministic=False)[0] == 0).mean()) > 0.1
    assert float((forward(model, None, (X, Y))[0] == 0).mean()) == 0.0
