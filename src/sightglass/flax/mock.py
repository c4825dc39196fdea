"""Mock intermediates: random values of the right shapes, to write `plot` without weights, data or training."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from sightglass.figures.drawing import usual

from .compat import INTERMEDIATES, PLOTS, PyTree, linen, nnx
from .forward import Meta, takes_mode, through_linen, through_nnx

ArrayShape: TypeAlias = tuple[int, ...] | jax.ShapeDtypeStruct | jax.Array | npt.NDArray[Any] | None

MAX_INTEGER = 16
"""Random integers are below this, so that they may be indices, counts and classes."""


def mock_intermediates(
    model: linen.Module | nnx.Module | Callable[[], nnx.Module], *shapes: ArrayShape, seed: int = 0
) -> Meta:
    """Return random intermediates with the shapes that a model would capture.

    Only shapes are computed: the model is neither initialized nor run, whatever its size.

    Args:
        model: A Linen model, an NNX model, or a function without arguments that returns an NNX model; its weights are
            then never allocated.
        shapes: The model's arguments: a shape such as `(8, 64)` stands for a float32 array; an object with a `shape`
            and a `dtype`, such as `jax.ShapeDtypeStruct((8, 64), "int32")`, for an array like it; `None` for `None`.
        seed: The seed of the random numbers.

    Returns:
        An argument for `plot`, with NumPy arrays. Floats are normal with mean 0 and variance 1; integers are from 0 to
        15. As in a `Plotter`, dtypes that NumPy lacks, such as bfloat16, become float32.

    Raises:
        TypeError: An item of `shapes` is not a shape and has none.
    """
    inputs = [_abstract(shape) for shape in shapes]
    if isinstance(model, linen.Module):
        shaped = jax.eval_shape(lambda *args: _capture_linen(model, args), *inputs)
    else:
        if not isinstance(model, nnx.Module):
            model = nnx.eval_shape(model)
        graph, state = nnx.split(model)
        shaped = jax.eval_shape(
            lambda state, *args: through_nnx(graph, state, (args, {}), deterministic=True, capture=True)[1],
            state,
            *inputs,
        )
    rng = np.random.default_rng(seed)
    return Meta(plots=_filled(shaped[PLOTS], rng), intermediates=_filled(shaped[INTERMEDIATES], rng))


def _capture_linen(model: linen.Module, args: Sequence[PyTree]) -> Meta:
    """Initialize a model, apply it and return what it captured."""
    key = jax.random.key(0)
    mode = {"deterministic": True} if takes_mode(type(model).__call__) else {}
    variables = dict(model.init({"params": key, "dropout": key}, *args, **mode))
    # `init` sows too; its values would be captured a second time.
    for name in (PLOTS, INTERMEDIATES):
        variables.pop(name, None)
    return through_linen(model, variables, (args, {}), deterministic=True, capture=True)[1]


def _abstract(shape: ArrayShape) -> jax.ShapeDtypeStruct | jax.Array | None:
    if shape is None or (hasattr(shape, "shape") and hasattr(shape, "dtype")):
        return shape
    if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape):
        return jax.ShapeDtypeStruct(shape, np.float32)
    raise TypeError(
        "Expected a shape such as (8, 64), or an object with one, such as jax.ShapeDtypeStruct((8, 64), 'int32'), "
        f"got {type(shape).__name__} {shape!r:.80}"
    )


def _filled(value: PyTree, rng: np.random.Generator) -> PyTree:
    """Return a collection with random arrays in place of shapes."""
    if isinstance(value, Mapping):
        return OrderedDict((name, _filled(item, rng)) for name, item in value.items())
    return jax.tree.map(lambda leaf: _random(leaf.shape, leaf.dtype, rng), value)


def _random(shape: tuple[int, ...], dtype: npt.DTypeLike, rng: np.random.Generator) -> Any:
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
