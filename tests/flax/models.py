"""Small models that sow, in Linen and in NNX; the same without a single sow; and what to feed them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from flax import nnx

import sightglass.flax as sgf

X = np.arange(12.0, dtype=np.float32).reshape(3, 4) / 12  # NumPy: nothing may run on JAX while tests are collected
Y = np.ones((3, 4), np.float32)


class Block(nn.Module):
    """Sows what goes into the activation under "h", what comes out under "h" again, and into the other collection."""

    sows: bool = True

    @nn.compact
    def __call__(self, x: Any, _: Any = None) -> Any:
        before = nn.Dense(4)(x)
        x = nn.tanh(before)
        if self.sows:
            self.sow("plots", "h", before)
            self.sow("plots", "h", x)
            self.sow("intermediates", "out", x)
        return x, None


class Inner(nn.Module):
    sows: bool = True

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return Block(self.sows, name="deep")(x)[0]


class Linen(sgf.Module):
    """Blocks at two depths, and something sown by the model itself."""

    n: int = 2
    sows: bool = True

    @nn.compact
    def __call__(self, x: Any, y: Any, deterministic: bool = False) -> Any:
        for _ in range(self.n):
            x, _ = Block(self.sows)(x)
        x = Inner(self.sows)(x)
        x = nn.Dropout(0.5, deterministic=deterministic)(x)
        if self.sows:
            self.sow("plots", "top", x)
        return x, jnp.mean((x - y) ** 2)


class Drawing(Linen):
    @staticmethod
    def plot(intermediates: Any) -> dict[str, Any]:
        from matplotlib.figure import Figure

        figure = Figure()
        figure.subplots().plot(intermediates["plots"]["Block_0"]["h"][0][0])
        return {"hidden": figure}


class NNXBlock(sgf.NNXModule):
    def __init__(self, rngs: nnx.Rngs, sows: bool = True) -> None:
        self.dense = nnx.Linear(4, 4, rngs=rngs)
        self.sows = sows

    def __call__(self, x: Any) -> Any:
        before = self.dense(x)
        x = nnx.tanh(before)
        if self.sows:
            self.sow("plots", "h", before)
            self.sow("plots", "h", x)
        return x


class PlainBlock(nnx.Module):
    """Not derived from ours, and sowing into Flax's own collection."""

    def __call__(self, x: Any) -> Any:
        self.sow(nnx.Intermediate, "out", x)
        return x


class NNX(sgf.NNXModule):
    def __init__(self, rngs: nnx.Rngs, n: int = 2, sows: bool = True) -> None:
        self.blocks = nnx.List([NNXBlock(rngs, sows) for _ in range(n)])
        self.norm = nnx.BatchNorm(4, rngs=rngs)
        self.drop = nnx.Dropout(0.5, rngs=rngs)
        self.plain = PlainBlock() if sows else (lambda x: x)
        self.sows = sows

    def __call__(self, x: Any, y: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        x = self.plain(self.drop(self.norm(x)))
        if self.sows:
            self.sow("plots", "top", x)
        return x, jnp.mean((x - y) ** 2)


def params_of(model: nn.Module) -> Any:
    return model.init(jax.random.key(0), X, Y, deterministic=True)["params"]


def shapes(tree: Any) -> Any:
    """Return a collection with shapes in the places of arrays, as plain dicts."""
    return {
        name: shapes(value) if isinstance(value, dict) else jax.tree.map(lambda leaf: leaf.shape, value)
        for name, value in tree.items()
    }


def same(a: Any, b: Any) -> bool:
    """Tell whether two trees of arrays are equal to the bit."""
    return jax.tree.structure(a) == jax.tree.structure(b) and all(
        x.dtype == y.dtype and bits(x) == bits(y) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True)
    )


def bits(array: Any) -> bytes:
    data = jax.random.key_data(array) if jnp.issubdtype(array.dtype, jax.dtypes.prng_key) else array
    return np.asarray(data).tobytes()
