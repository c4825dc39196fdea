"""The example's model: its `plot` is the one that the design of plot systems prints, and draws what the blocks sow."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from sightglass.figures import theme
from sightglass.flax import draws, mock_intermediates, sown

PRINTED = """
@staticmethod
def plot(intermediates):
    scores = [v["new_cumulative_scores"]
              for v in intermediates["plots"].values()]
    scores = jnp.exp(jnp.stack(jnp.array(scores))[:, 0, 0])

    fig, ax = plt.subplots(figsize=(10, 6))
    sns.heatmap(np.array(scores).astype(np.float32), ax=ax)
    return {"analysis/cum_scores": fig}
"""

N_BLOCKS, LENGTH = 12, 16


@pytest.fixture(scope="module")
def models() -> Iterator[Any]:
    pytest.importorskip("seaborn")
    path = Path(__file__).parents[2] / "examples" / "char_transformer" / "model.py"
    spec = importlib.util.spec_from_file_location("char_transformer_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_its_plot_draws_one_row_a_block_in_order(models: Any) -> None:
    assert textwrap.dedent(inspect.getsource(models.Thoughtbubbles.plot)).strip() == PRINTED.strip()
    model = models.Thoughtbubbles(n_characters=7, width=8, n_heads=2, n_blocks=N_BLOCKS, length=LENGTH)
    tokens = jax.ShapeDtypeStruct((3, LENGTH), "int32")
    meta = mock_intermediates(model, tokens, tokens)
    with theme():
        figures = models.Thoughtbubbles.plot(meta)
    assert list(figures) == ["analysis/cum_scores"]
    (mesh,) = figures["analysis/cum_scores"].axes[0].collections
    rows = [scores[0] for (scores,) in sown(meta["plots"], "new_cumulative_scores").values()]
    np.testing.assert_allclose(mesh.get_array().reshape(N_BLOCKS, LENGTH), np.exp(rows), rtol=1e-5)
    models.plt.close("all")


def test_its_plain_model_draws_nothing(models: Any) -> None:
    assert [draws(kind) for kind in (models.GPT, models.Thoughtbubbles)] == [False, True]
