"""Laws of thinning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sightglass.views.thinning import thin, thin_indices, thin_path

ANY = st.floats(allow_nan=True, allow_infinity=True, width=32)
series = arrays(np.float64, st.integers(0, 400), elements=ANY | st.just(np.nan) | st.sampled_from([0.0, np.inf]))
pixels = st.integers(1, 40)


@given(series, pixels)
def test_extremes_are_kept(y, n):
    _, kept = thin(np.arange(len(y)), y, n)
    for of in (y[np.isfinite(y)], y[~np.isnan(y)]):
        for extreme in (np.min, np.max):
            if len(of):
                assert extreme(of) in kept


@given(series, pixels)
def test_ends_are_kept_and_order_too(y, n):
    x, kept = thin(np.arange(len(y)), y, n)
    assert (np.diff(x) > 0).all()
    np.testing.assert_array_equal(kept, y[x.astype(int)])
    if len(y):
        assert (x[0], x[-1]) == (0, len(y) - 1)


@given(series, pixels)
def test_no_line_crosses_a_gap(y, n):
    x, kept = thin(np.arange(len(y)), y, n)
    for i in range(len(x) - 1):
        if not np.isnan(kept[i]) and not np.isnan(kept[i + 1]):
            assert not np.isnan(y[x[i] : x[i + 1]]).any()


@given(series, pixels)
def test_extremes_of_every_run_are_kept(y, n):
    kept = set(thin_indices(y, n).tolist())
    run = -(-len(y) // n) if len(y) > 2 * n else 1
    for start in range(0, len(y), run):
        at = [i for i in range(start, min(start + run, len(y))) if np.isfinite(y[i])]
        if at:
            assert min(y[i] for i in at) in {y[i] for i in at if i in kept}
            assert max(y[i] for i in at) in {y[i] for i in at if i in kept}


@given(series, pixels)
def test_size_is_bounded(y, n):
    _, kept = thin(np.arange(len(y)), y, n)
    finite = np.isfinite(y).all()
    # Two to a run and both ends; the runs are rounded up, which can leave one more at the end.
    assert len(kept) <= (2 * n + 4 if finite else 8 * n + 12)


@given(series, pixels)
def test_thinning_again_changes_nothing_that_matters(y, n):
    once = thin(np.arange(len(y)), y, n)
    x, twice = thin(*once, n)
    finite = y[np.isfinite(y)]
    if len(finite):
        assert {finite.min(), finite.max()} <= set(twice.tolist())
    assert len(x) <= len(once[0])


@given(arrays(np.int64, st.integers(0, 300)), pixels)
def test_integers_stay_exact(y, n):
    _, kept = thin(np.arange(len(y)), y, n)
    assert kept.dtype == np.int64
    if len(y):
        assert {int(y.min()), int(y.max())} <= set(kept.tolist())


@given(arrays(np.float64, 300, elements=st.floats(-1e9, 1e9)), arrays(np.float64, 300, elements=st.floats(-1e9, 1e9)))
def test_path_keeps_extremes_of_x_too(x, y):
    kept_x, kept_y = thin_path(x, y, 10)
    assert {x.min(), x.max()} <= set(kept_x.tolist())
    assert {y.min(), y.max()} <= set(kept_y.tolist())
    assert len(kept_x) < 300


def test_short_input_is_returned_untouched():
    x, y = np.arange(20), np.random.default_rng(0).normal(size=20)
    kept_x, kept_y = thin(x, y, 10)
    assert kept_x is x
    assert kept_y is y


def test_spike_in_a_million_points_survives():
    y = np.zeros(1_000_000)
    y[123_456] = 1
    x, kept = thin(np.arange(len(y)), y, 100)
    assert x[kept.argmax()] == 123_456
    assert len(kept) < 210


@pytest.mark.parametrize(("x", "y"), [(np.arange(3), np.arange(4)), (np.zeros((2, 2)), np.zeros((2, 2)))])
def test_shapes_that_differ_are_refused(x, y):
    with pytest.raises(ValueError, match="shape"):
        thin(x, y, 10)


def test_no_pixel_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        thin(np.arange(3), np.arange(3), 0)
