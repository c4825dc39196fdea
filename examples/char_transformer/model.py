"""A small GPT in Linen, and one whose blocks judge their tokens; what it sows is drawn by its own `plot`.

A block of `Thoughtbubbles` gives each token a score. Scores add up from block to block, as logarithms, and tokens
attend to each other in proportion to them: what the network finds not worth going on with fades. It is the idea of
Thoughtbubbles (https://arxiv.org/abs/2510.00219), without its forks.
"""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns

from sightglass.flax import Module


class Attention(nn.Module):
    """Causal attention; `bias` is how much each token is attended to, as a logarithm, shape (batch, length)."""

    n_heads: int

    @nn.compact
    def __call__(self, x, bias):
        n, length, width = x.shape
        qkv = nn.DenseGeneral((3, self.n_heads, width // self.n_heads), use_bias=False)(x)
        q, k, v = jnp.moveaxis(qkv, 2, 0)
        logits = jnp.einsum("bihd,bjhd->bhij", q, k) / jnp.sqrt(q.shape[-1]) + bias[:, None, None, :]
        past = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(past, logits, -jnp.inf))
        self.sow("plots", "weights", weights[:1])  # only what is drawn
        return nn.Dense(width)(jnp.einsum("bhij,bjhd->bihd", weights, v).reshape(n, length, width))


class Block(nn.Module):
    """A plain block: it returns the scores unchanged."""

    n_heads: int

    @nn.compact
    def __call__(self, x, cumulative_scores):
        x = x + Attention(self.n_heads)(nn.LayerNorm()(x), cumulative_scores)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))), cumulative_scores


class ForkingBlock(nn.Module):
    """A block that judges its tokens first."""

    n_heads: int

    @nn.compact
    def __call__(self, x, cumulative_scores):
        judged = nn.Dense(1, bias_init=nn.initializers.constant(2.0))(nn.LayerNorm()(x))[..., 0]
        new_cumulative_scores = cumulative_scores + jax.nn.log_sigmoid(judged)
        self.sow("plots", "new_cumulative_scores", new_cumulative_scores)
        x = x + Attention(self.n_heads)(nn.LayerNorm()(x), new_cumulative_scores)
        return x + nn.Dense(x.shape[-1])(nn.gelu(nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x)))), new_cumulative_scores


class GPT(Module):
    """Predicts the next character. Called with characters and those that follow, it returns (logits, loss)."""

    n_characters: int
    width: int
    n_heads: int
    n_blocks: int
    length: int
    block = Block

    @nn.compact
    def __call__(self, x, y):
        positions = self.param("positions", nn.initializers.normal(0.02), (self.length, self.width))
        h = nn.Embed(self.n_characters, self.width)(x) + positions[: x.shape[1]]
        scores = jnp.zeros(x.shape)
        for _ in range(self.n_blocks):
            h, scores = self.block(self.n_heads)(h, scores)
        logits = nn.Dense(self.n_characters)(nn.LayerNorm()(h))
        return logits, -jnp.take_along_axis(jax.nn.log_softmax(logits), y[..., None], axis=-1).mean()


class Thoughtbubbles(GPT):
    """A GPT whose blocks judge their tokens, and which draws the scores."""

    block = ForkingBlock

    # fmt: off
    @staticmethod
    def plot(intermediates):
        scores = [v["new_cumulative_scores"]
                  for v in intermediates["plots"].values()]
        scores = jnp.exp(jnp.stack(jnp.array(scores))[:, 0, 0])

        fig, ax = plt.subplots(figsize=(10, 6))
        sns.heatmap(np.array(scores).astype(np.float32), ax=ax)
        return {"analysis/cum_scores": fig}
    # fmt: on
