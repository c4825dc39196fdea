"""What a forward pass would capture, made up: to write `plot` without weights, data or training."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from sightglass.figures.drawing import usual

from .compat import INTERMEDIATES, PLOTS, linen, nnx
from .forward import Meta, takes_mode, through_linen, through_nnx

MAX_INTEGER = 16
"""Integers are below it, so that they may be indices, counts and classes."""


def mock_intermediates(model: Any, *shapes: Any, seed: int = 0) -> Meta:
    """Return what a model would capture, of the right shapes, with random numbers in it.

    Nothing is computed but shapes: the model is neither initialized nor run, whatever its size.

    Args:
        model: A Linen model; an NNX model, or a function without arguments that makes one, without its weights then.
        shapes: What the model is called with: a shape, such as `(8, 64)`, stands for an array of float32; what has a
            `shape` and a `dtype`, such as `jax.ShapeDtypeStruct((8, 64), "int32")`, for an array like it; `None` for
            itself.
        seed: Of the random numbers.

    Returns:
        What `plot` is called with: NumPy arrays. Floats are normal, of mean 0 and variance 1; integers are from 0 to
        15. As in a `Plotter`, types that NumPy lacks, such as bfloat16, become float32.

    Raises:
        TypeError: Something is neither a shape nor has one.
    """
    inputs = [_abstract(shape) for shape in shapes]
    if isinstance(model, linen.Module):
        shaped = jax.eval_shape(lambda *given: _capture_linen(model, given), *inputs)
    else:
        if not isinstance(model, nnx.Module):
            model = nnx.eval_shape(model)
        graph, state = nnx.split(model)
        shaped = jax.eval_shape(
            lambda state, *given: through_nnx(graph, state, (given, {}), deterministic=True, capture=True)[1],
            state,
            *inputs,
        )
    rng = np.random.default_rng(seed)
    return Meta(plots=_filled(shaped[PLOTS], rng), intermediates=_filled(shaped[INTERMEDIATES], rng))


def _capture_linen(model: Any, given: tuple[Any, ...]) -> Meta:
    """Initialize a model and apply it."""
    key = jax.random.key(0)
    mode = {"deterministic": True} if takes_mode(type(model).__call__) else {}
    variables = dict(model.init({"params": key, "dropout": key}, *given, **mode))
    # `init` sows, too; what is there already would be sown a second time.
    for name in (PLOTS, INTERMEDIATES):
        variables.pop(name, None)
    return through_linen(model, variables, (given, {}), deterministic=True, capture=True)[1]


def _abstract(shape: Any) -> Any:
    if shape is None or (hasattr(shape, "shape") and hasattr(shape, "dtype")):
        return shape
    if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape):
        return jax.ShapeDtypeStruct(shape, np.float32)
    raise TypeError(
        "Expected a shape such as (8, 64), or something that has one, such as jax.ShapeDtypeStruct((8, 64), 'int32'), "
        f"got {type(shape).__name__} {shape!r:.80}"
    )


def _filled(value: Any, rng: np.random.Generator) -> Any:
    """Return a collection with random arrays in the places of shapes."""
    if isinstance(value, Mapping):
        return OrderedDict((name, _filled(item, rng)) for name, item in value.items())
    return jax.tree.map(lambda leaf: _random(leaf.shape, leaf.dtype, rng), value)


def _random(shape: tuple[int, ...], dtype: Any, rng: np.random.Generator) -> Any:
    match np.dtype(dtype).kind:
        case "b":
            return rng.random(shape) < 0.5
        case "i" | "u":
            return rng.integers(MAX_INTEGER, size=shape).astype(dtype)
        case "c":
            return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
        case "f":
            return rng.standard_normal(shape).astype(dtype)
    return usual(rng.standard_normal(shape).astype(dtype))
