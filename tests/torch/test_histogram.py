"""Histograms that PyTorch counts on the host: the same as NumPy's, but for values on an edge."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.values import Histogram
from sightglass.query.functions import FUNCTIONS, statistics
from sightglass.query.functions.statistics import MIN_LANED, PIECE

histogram = FUNCTIONS["histogram"].call


@given(
    st.lists(st.floats(width=32), min_size=1, max_size=60),
    st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16]),
    st.integers(1, 40),
)
def test_nothing_is_lost_and_little_is_moved(values, dtype, bins):
    x = torch.tensor(values, dtype=dtype)
    got, wanted = histogram(x, bins), Histogram(x.double().numpy(), bins=bins)
    assert (got.total, got.n_nan, got.n_posinf, got.n_neginf) == (
        wanted.total, wanted.n_nan, wanted.n_posinf, wanted.n_neginf,
    )  # fmt: skip
    assert got.edges == pytest.approx(wanted.edges, rel=1e-6, abs=1e-30)
    on_edge = sum(np.isclose(wanted.edges, float(v), rtol=1e-5).any() for v in x if torch.isfinite(v))
    assert np.abs(np.cumsum(got.counts) - np.cumsum(wanted.counts)).max() <= on_edge


@pytest.mark.parametrize(
    "x",
    [
        torch.arange(10),
        torch.ones(3),
        torch.tensor([True, False]),
        torch.tensor([1e30, 1e30 * (1 + 1e-6)]),
        torch.tensor([]),
    ],
    ids=["integers", "one value", "bools", "narrow", "none"],
)
def test_others_are_counted_by_numpy(x):
    assert histogram(x, 4) == Histogram(x.numpy(), bins=4)


def test_views_and_graphs():
    x = torch.randn(6, 8, requires_grad=True)
    assert histogram(x[:, ::2].T, 5) == histogram(x.detach()[:, ::2].contiguous(), 5)


@pytest.mark.parametrize("bins", [1, 2, 64, 84, 85, 127, 128, 255, 256])
def test_neighbours_that_count_in_turns_are_all_counted(monkeypatch, bins):
    x = torch.relu(torch.randn(PIECE + MIN_LANED + 1, generator=torch.Generator().manual_seed(0)))
    got = histogram(x, bins)
    monkeypatch.setattr(statistics, "MIN_LANED", len(x) + 1)
    assert got == histogram(x, bins)
    assert got.counts[0] >= int((x == 0).sum())
    assert got.total == len(x)
