"""Figures beside the model's own: functions of arrays, which are drawn in another process."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np

from sightglass.figures import label_panels
from sightglass.flax import sown


def attention(meta, text):
    """Draw a map for each head of each block: the characters that it attends to.

    Args:
        meta: What a pass captured: `weights` of shape (1, heads, length, length) from each block's attention.
        text: The characters, the first passage of the batch.
    """
    maps = [weights[0] for (weights,) in sown(meta["plots"], "weights").values()]
    figure, axes = plt.subplots(
        len(maps), len(maps[0]), figsize=(1.8 * len(maps[0]), 1.9 * len(maps)), squeeze=False, layout="constrained"
    )
    for i, (row, heads) in enumerate(zip(axes, maps, strict=True)):
        for j, (ax, weights) in enumerate(zip(row, heads, strict=True)):
            ax.imshow(np.sqrt(weights), cmap="magma", vmin=0, vmax=1, interpolation="nearest")
            ax.grid(visible=False)
            ax.set(xticks=[], yticks=[], title=f"block {i}, head {j}")
    figure.supxlabel(f"{text!r}"[:100], fontsize=8)
    return figure


def landscape(losses, distances):
    """Draw the loss over a slice through the space of the weights.

    Args:
        losses: By the places along the first direction and along the second, shape (n, n); in the middle stands the
            loss of the weights themselves.
        distances: How far along the two directions, shape (n,); 1 is as far as the weights are long.
    """
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    middle = len(distances) // 2
    mesh = left.contourf(distances, distances, losses.T, levels=24, cmap="viridis")
    left.contour(distances, distances, losses.T, levels=24, colors="white", linewidths=0.3)
    left.plot(0, 0, "o", color="white")
    left.set(xlabel="along the first direction", ylabel="along the second")
    figure.colorbar(mesh, ax=left, label="loss")
    right.plot(distances, losses[:, middle], label="first direction")
    right.plot(distances, losses[middle], label="second")
    right.set(xlabel="distance", ylabel="loss")
    right.legend()
    label_panels([left, right])
    return figure
