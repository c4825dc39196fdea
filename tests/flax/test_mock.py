"""Made-up captures look like real ones."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sightglass.flax as sgf

from .models import NNX, Drawing, Linen, X, Y, params_of

pytestmark = pytest.mark.smoke

SHAPE = X.shape


def described(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: (type(leaf).__name__, leaf.shape, leaf.dtype.name), tree)


def test_they_match_the_captures_of_a_pass() -> None:
    *_, real = jax.device_get(sgf.forward(Linen(), params_of(Linen()), (X, Y)))
    fake = sgf.mock_intermediates(Linen(), SHAPE, SHAPE)
    assert jax.tree.structure(fake) == jax.tree.structure(real)
    assert [leaf.shape for leaf in jax.tree.leaves(fake)] == [leaf.shape for leaf in jax.tree.leaves(real)]
    assert all(isinstance(leaf, np.ndarray) and leaf.dtype == np.float32 for leaf in jax.tree.leaves(fake))


@pytest.mark.parametrize("made", [False, True], ids=["function", "model"])
def test_nnx(made: bool) -> None:
    model: Any = NNX(nnx.Rngs(0)) if made else lambda: NNX(nnx.Rngs(0))
    *_, real = jax.device_get(sgf.forward(NNX(nnx.Rngs(0)), None, (X, Y)))
    fake = sgf.mock_intermediates(model, SHAPE, jax.ShapeDtypeStruct(SHAPE, "float32"))
    assert jax.tree.structure(fake) == jax.tree.structure(real)
    assert described(fake["plots"]["top"]) == (("ndarray", SHAPE, "float32"),)


class Typed(nn.Module):
    """Sows one value of each kind, of a size that could not be computed."""

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(4, 8)(tokens)
        for dtype in ("float32", "float16", "bfloat16", "int32", "uint8", "bool", "complex64"):
            self.sow("plots", dtype, x.astype(dtype))
        return nn.Dense(2**30)(x)


def test_types_and_nothing_is_computed() -> None:
    tokens = jax.ShapeDtypeStruct((2, 3), jnp.int32)
    plots = sgf.mock_intermediates(Typed(), tokens)["plots"]
    dtypes = {name: leaf.dtype.name for name, (leaf,) in plots.items()}
    assert dtypes == {name: {"bfloat16": "float32"}.get(name, name) for name in dtypes}
    assert len(dtypes) == 7
    assert all(len(np.unique(leaf)) > 1 for (leaf,) in plots.values())


def test_a_seed_gives_the_same_numbers() -> None:
    one, two, other = (sgf.mock_intermediates(Linen(), SHAPE, SHAPE, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one["plots"]["top"][0], two["plots"]["top"][0])
    assert (one["plots"]["top"][0] != other["plots"]["top"][0]).any()


def test_a_plot_is_drawn_from_them() -> None:
    assert set(Drawing.plot(sgf.mock_intermediates(Drawing(), SHAPE, SHAPE))) == {"hidden"}


@pytest.mark.parametrize("wrong", [[3, 4], "3", (3, "4"), 3])
def test_anything_but_a_shape_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"\(8, 64\)"):
        sgf.mock_intermediates(Linen(), wrong)
