"""A multi-layer perceptron in plain NumPy, with its gradients written out by hand.

Theory of operation: the network is a dict of layers, "dense1" to "denseN", each a dict of a kernel of shape (n_inputs,
n_outputs) and a bias of shape (n_outputs,). All functions are pure: `update` returns new arrays and leaves the old ones
unchanged, because a snapshot of an earlier event or a checkpoint may still hold them. Backpropagation goes from the
logits down: with a layer's input h, z = h W + b and d = dL/dz, the gradients are dL/dW = hᵀ d and dL/db = Σ d, and the
layer below receives (d Wᵀ) times the slope of its activation.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import UnknownNameError

Array = npt.NDArray[Any]
Params = Mapping[str, Mapping[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A non-linearity.

    Attributes:
        apply: The function, element by element.
        slope: Its derivative, as a function of its output.
        gain: The factor on the variance of a kernel that preserves the size of signals from layer to layer: 2 for relu
            (He et al. 2015, https://arxiv.org/abs/1502.01852), else 1 (LeCun et al. 1998).
    """

    apply: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    gain: float


ACTIVATIONS = {
    "relu": Activation(apply=lambda z: np.maximum(z, 0), slope=lambda h: (h > 0).astype(h.dtype), gain=2.0),
    # The logistic function by way of tanh: no overflow at either end.
    "sigmoid": Activation(apply=lambda z: 0.5 * (1 + np.tanh(0.5 * z)), slope=lambda h: h * (1 - h), gain=1.0),
    "tanh": Activation(apply=np.tanh, slope=lambda h: 1 - h * h, gain=1.0),
}


def init(sizes: Sequence[int], *, seed: int, activation: str = "relu", scale: float = 1.0) -> Params:
    """Draw the initial parameters: normal kernels, zero biases.

    Args:
        sizes: The widths from the inputs to the logits; one layer lies between each two.
        seed: The seed of the random numbers.
        activation: The activation whose gain sets the spread of the kernels.
        scale: A factor on that spread, sqrt(gain / n_inputs).

    Returns:
        The parameters, float32.

    Example:
        >>> {name: layer["kernel"].shape for name, layer in init([64, 32, 10], seed=0).items()}
        {'dense1': (64, 32), 'dense2': (32, 10)}
    """
    rng = np.random.default_rng(seed)
    gain = _activation(activation).gain
    params = {}
    for i, (n_inputs, n_outputs) in enumerate(itertools.pairwise(sizes), start=1):
        kernel = rng.normal(0.0, scale * math.sqrt(gain / n_inputs), (n_inputs, n_outputs))
        params[f"dense{i}"] = {"kernel": kernel.astype(np.float32), "bias": np.zeros(n_outputs, np.float32)}
    return params


def forward(params: Params, x: Array, *, activation: str = "relu") -> tuple[Array, dict[str, Array]]:
    """Compute the logits.

    Args:
        params: The parameters, as `init` returns them.
        x: Inputs of shape (n_samples, n_inputs).
        activation: The activation of each layer except the last.

    Returns:
        The logits of shape (n_samples, n_classes), and the output of every layer by name; the last is the logits.
    """
    apply = _activation(activation).apply
    *_, last = params
    activations = {}
    h = x
    for name, layer in params.items():
        z = h @ layer["kernel"] + layer["bias"]
        h = z if name == last else apply(z)
        activations[name] = h
    return h, activations


def loss_and_grads(
    params: Params, x: Array, y: Array, *, activation: str = "relu"
) -> tuple[float, Params, dict[str, Array]]:
    """Compute the mean softmax cross-entropy and its gradients.

    Args:
        params: The parameters, as `init` returns them.
        x: Inputs of shape (n_samples, n_inputs).
        y: Classes of shape (n_samples,), integers from 0.
        activation: The activation of each layer except the last.

    Returns:
        The loss in nats, gradients in the structure of `params`, and the output of every layer by name.
    """
    logits, activations = forward(params, x, activation=activation)
    log_p = _log_softmax(logits)
    rows = np.arange(len(y))
    loss = -float(log_p[rows, y].mean())
    delta = np.exp(log_p)
    delta[rows, y] -= 1
    delta /= len(y)

    slope = _activation(activation).slope
    names = list(params)
    inputs = [x, *(activations[name] for name in names[:-1])]
    grads = {}
    for i in reversed(range(len(names))):
        grads[names[i]] = {"kernel": inputs[i].T @ delta, "bias": delta.sum(axis=0)}
        if i:
            delta = (delta @ params[names[i]]["kernel"].T) * slope(inputs[i])
    return loss, {name: grads[name] for name in names}, activations


def evaluate(params: Params, x: Array, y: Array, *, activation: str = "relu") -> tuple[float, Array]:
    """Return the mean loss in nats and the predicted classes, shape (n_samples,)."""
    logits, _ = forward(params, x, activation=activation)
    return -float(_log_softmax(logits)[np.arange(len(y)), y].mean()), logits.argmax(axis=1)


def accuracy(params: Params, x: Array, y: Array, *, activation: str = "relu") -> float:
    """Return the share of the samples, from 0 to 1, whose class is predicted correctly."""
    logits, _ = forward(params, x, activation=activation)
    return float((logits.argmax(axis=1) == y).mean())


def zeros_like(params: Params) -> Params:
    """Return zeros in the structure of the parameters: the initial velocity."""
    return _combine(np.zeros_like, params)


def update(
    params: Params, grads: Params, velocity: Params, *, lr: float, weight_decay: float = 0.0, momentum: float = 0.9
) -> tuple[Params, Params]:
    """Take one step of stochastic gradient descent with momentum.

    Nothing is changed in place. Weight decay is decoupled from the gradient (Loshchilov and Hutter 2019,
    https://arxiv.org/abs/1711.05101) and shrinks kernels and biases alike.

    Returns:
        The parameters and the velocity after the step.
    """
    moved = _combine(lambda v, g: momentum * v + g, velocity, grads)
    return _combine(lambda p, v: (1 - lr * weight_decay) * p - lr * v, params, moved), moved


def _activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise UnknownNameError("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


def _log_softmax(logits: Array) -> Array:
    shifted: Array = logits - logits.max(axis=1, keepdims=True)
    normalised: Array = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return normalised


def _combine(function: Callable[..., Array], *trees: Params) -> Params:
    first = trees[0]
    return {layer: {name: function(*(tree[layer][name] for tree in trees)) for name in first[layer]} for layer in first}
