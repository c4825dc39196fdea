from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.errors import UnknownNameError
from sightglass.demo import network

pytestmark = pytest.mark.smoke

SIZES = (5, 7, 6, 3)


def in_float64(params):
    return {layer: {name: a.astype(np.float64) for name, a in arrays.items()} for layer, arrays in params.items()}


def leaves(tree):
    return [array for layer in tree.values() for array in layer.values()]


def make_batch(seed, *, n=11):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, SIZES[0])), rng.integers(0, SIZES[-1], n)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("activation", sorted(network.ACTIVATIONS))
def test_gradients_agree_with_finite_differences_in_every_parameter(activation, seed):
    params = in_float64(network.init(SIZES, seed=seed, activation=activation))
    rng, h = np.random.default_rng(seed), 1e-6
    for layer in params.values():
        # With zero biases a dead relu layer leaves the next one exactly on its kink, where there is no derivative.
        layer["bias"][:] = rng.normal(size=layer["bias"].shape)
    x, y = make_batch(seed)
    _, grads, _ = network.loss_and_grads(params, x, y, activation=activation)
    for values, gradient in zip(leaves(params), leaves(grads), strict=True):
        numeric = np.empty_like(values)
        for place in np.ndindex(values.shape):
            middle, losses = values[place], []
            for shifted in (middle + h, middle - h):
                values[place] = shifted
                losses.append(network.loss_and_grads(params, x, y, activation=activation)[0])
            values[place] = middle
            numeric[place] = (losses[0] - losses[1]) / (2 * h)
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-8)


def test_the_loss_of_a_network_of_zeros_is_the_log_of_the_number_of_classes():
    params = network.zeros_like(network.init(SIZES, seed=0))
    loss, _, _ = network.loss_and_grads(params, *make_batch(0))
    assert loss == pytest.approx(np.log(3))


def test_the_gradients_of_the_logits_sum_to_zero():
    _, grads, _ = network.loss_and_grads(network.init(SIZES, seed=0), *make_batch(0))
    assert grads["dense3"]["bias"].sum() == pytest.approx(0, abs=1e-12)


def test_forward_names_the_output_of_every_layer_and_the_last_is_the_logits():
    x, _ = make_batch(0)
    logits, activations = network.forward(network.init(SIZES, seed=0), x)
    assert {name: a.shape for name, a in activations.items()} == {
        "dense1": (11, 7),
        "dense2": (11, 6),
        "dense3": (11, 3),
    }
    assert activations["dense3"] is logits
    assert all((activations[name] >= 0).all() for name in ("dense1", "dense2"))
    assert (logits < 0).any()


@pytest.mark.parametrize("activation", sorted(network.ACTIVATIONS))
def test_huge_inputs_neither_overflow_nor_give_nan(activation):
    x, y = make_batch(0)
    loss, grads, _ = network.loss_and_grads(network.init(SIZES, seed=0), 1e6 * x, y, activation=activation)
    assert np.isfinite(loss)
    assert all(np.isfinite(array).all() for array in leaves(grads))


@settings(deadline=None, max_examples=examples(25))
@given(
    lr=st.floats(1e-4, 1),
    weight_decay=st.floats(0, 0.1),
    momentum=st.floats(0, 0.99),
)
def test_update_follows_its_formula_changes_nothing_in_place_and_stays_in_float32(lr, weight_decay, momentum):
    params, grads = network.init(SIZES, seed=0), network.init(SIZES, seed=1)
    velocity = network.init(SIZES, seed=2)
    before = [array.copy() for array in leaves(params) + leaves(grads) + leaves(velocity)]
    new, moved = network.update(params, grads, velocity, lr=lr, weight_decay=weight_decay, momentum=momentum)
    for p, g, v, p1, v1 in zip(*map(leaves, (params, grads, velocity, new, moved)), strict=True):
        np.testing.assert_allclose(v1, momentum * v + g, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(p1, p - lr * weight_decay * p - lr * v1, rtol=1e-4, atol=1e-5)
        assert p1.dtype == v1.dtype == np.float32
        assert not np.shares_memory(p, p1)
    after = leaves(params) + leaves(grads) + leaves(velocity)
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


def test_equal_seeds_give_equal_parameters_and_others_do_not():
    first, again, other = (leaves(network.init(SIZES, seed=seed)) for seed in (3, 3, 4))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize(("activation", "gain"), [("relu", 2), ("sigmoid", 1), ("tanh", 1)])
def test_the_spread_of_the_first_kernels_is_that_of_the_activation_times_the_scale(activation, gain):
    params = network.init((400, 300, 10), seed=0, activation=activation, scale=0.5)
    assert params["dense1"]["kernel"].std() == pytest.approx(0.5 * np.sqrt(gain / 400), rel=0.01)
    assert not params["dense1"]["bias"].any()


def test_a_deep_sigmoid_network_loses_its_gradient_and_relu_keeps_it():
    x, y = make_batch(0, n=64)

    def ratio(activation):
        params = network.init((5, *[32] * 6, 3), seed=0, activation=activation)
        _, grads, _ = network.loss_and_grads(params, x, y, activation=activation)
        sizes = [abs(layer["kernel"]).mean() for layer in grads.values()]
        return sizes[0] / sizes[-1]

    assert ratio("sigmoid") < 1e-3
    assert ratio("relu") > 0.05


def test_evaluate_and_accuracy_agree():
    params, (x, y) = network.init(SIZES, seed=0), make_batch(0)
    loss, pred = network.evaluate(params, x, y)
    assert loss == pytest.approx(network.loss_and_grads(params, x, y)[0])
    assert network.accuracy(params, x, y) == (pred == y).mean()
    assert network.accuracy(params, x, pred) == 1


def test_an_unknown_activation_is_refused_by_name():
    with pytest.raises(UnknownNameError, match=r"'rely'.*'relu'"):
        network.init(SIZES, seed=0, activation="rely")
