"""Laws of histograms over steps: nothing is lost, and what need not be smeared is not."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sightglass.core.errors import UnknownNameError
from sightglass.core.values import Histogram
from sightglass.storage.tensors import counting, histograms
from sightglass.storage.tensors.counting import N_SAMPLES
from sightglass.storage.tensors.histograms import count, percentiles, series
from sightglass.storage.tensors.statistics import BLOCK

LARGEST = float(np.finfo(np.float64).max)
KINDS = [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint64, np.bool_]
ODD = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 5e-324, LARGEST, -LARGEST, 1.0, 1e-9])
tensors = st.sampled_from(KINDS).flatmap(
    lambda kind: arrays(kind, st.integers(0, 30), elements=st.floats() | ODD if kind == np.float64 else None)
)
finite = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def edges(draw):
    return np.array(sorted(draw(st.sets(finite, min_size=2, max_size=8))))


@st.composite
def stored(draw):
    """A histogram as somebody stored it: also with bins of no width, also with none at all."""
    elements = finite | st.sampled_from([0.0, 1.0, 2.0, LARGEST, -LARGEST])
    places = sorted(draw(st.lists(elements, min_size=1, max_size=8)))
    counts = draw(st.lists(st.integers(0, 10**12), min_size=len(places) - 1, max_size=len(places) - 1))
    return Histogram.from_counts(counts, places, n_nan=draw(st.integers(0, 9)), n_neginf=draw(st.integers(0, 9)))


def total(step):
    return step.total if isinstance(step, Histogram) else int(np.isfinite(step).sum())


def bounded(step):
    """Where a step's finite values are."""
    if isinstance(step, Histogram):
        solid = np.flatnonzero(step.counts)
        return [step.edges[solid[0]], step.edges[solid[-1] + 1]] if len(solid) else []
    values = step[np.isfinite(step)].astype(np.float64)
    return [values.min(), values.max()] if len(values) else []


@given(
    st.lists(tensors | stored(), max_size=5),
    st.integers(1, 20) | edges(),
    st.sampled_from(["linear", "symlog"]),
    st.none() | st.sampled_from([(0.0, 1.0), (0.1, 0.9), (0.0, 0.01)]),
)
def test_no_value_is_lost(steps, bins, scale, clip):
    found = series(steps, bins=bins, scale=scale, clip_quantiles=clip)
    assert found.counts.dtype == np.int64
    assert found.counts.shape == (len(steps), bins if isinstance(bins, int) else len(bins) - 1)
    assert (found.counts >= 0).all()
    assert found.counts.sum(axis=1).tolist() == [total(step) for step in steps]
    assert np.isfinite(found.edges).all()
    assert (found.edges[1:] > found.edges[:-1]).all()
    for i, step in enumerate(steps):
        outside = [found.n_nan[i], found.n_posinf[i], found.n_neginf[i]]
        if isinstance(step, Histogram):
            assert outside == [step.n_nan, step.n_posinf, step.n_neginf]
        else:
            plain = step.astype(np.float64)
            assert outside == [np.isnan(plain).sum(), np.isposinf(plain).sum(), np.isneginf(plain).sum()]


@given(st.lists(tensors | stored(), max_size=5), st.integers(1, 20), st.sampled_from(["linear", "symlog"]))
@example([Histogram.from_counts([1], [-1.2e307, 5e-324])], 1, "linear")
def test_the_bins_span_all_steps(steps, bins, scale):
    found = series(steps, bins=bins, scale=scale)
    for step in steps:
        for end in bounded(step):
            assert found.edges[0] <= end <= found.edges[-1]


@given(tensors, edges())
def test_tensors_are_counted_exactly(array, bins):
    found = count(array, bins)
    for i, n in enumerate(found):
        low = -math.inf if i == 0 else bins[i]
        high = math.inf if i == len(found) - 1 else bins[i + 1]
        assert n == sum(low <= v < high for v in array.astype(np.float64).tolist() if math.isfinite(v))


@given(tensors, st.integers(1, 20))
def test_one_tensor_is_counted_as_numpy_does(array, bins):
    values = array[np.isfinite(array)].astype(np.float64)
    found = series([array], bins=bins)
    if len(values) and max(map(abs, values)) < 1e300:
        np.testing.assert_array_equal(found.counts[0], np.histogram(values, found.edges)[0])


@given(stored())
@example(Histogram.from_counts([1, 0], [0, 5e-324, 1e308]))
def test_bins_that_stay_keep_their_counts(histogram):
    own = histogram.edges
    if len(own) > 1 and (own[1:] > own[:-1]).all():
        np.testing.assert_array_equal(count(histogram, own), histogram.counts)


@given(stored(), edges())
def test_rebinned_counts_are_where_they_were(histogram, bins):
    """Whatever lies surely inside of a bin is counted there, and nothing that surely does not."""
    own, found = histogram.edges, count(histogram, bins)
    ends = np.array([-math.inf, *bins[1:-1], math.inf])
    for i, n in enumerate(found):
        inside = (own[:-1] >= ends[i]) & (own[1:] <= ends[i + 1]) & ((own[:-1] < own[1:]) | (own[:-1] < ends[i + 1]))
        near = (own[1:] >= ends[i]) & (own[:-1] <= ends[i + 1])
        assert histogram.counts[inside].sum() <= n <= histogram.counts[near].sum()


@given(stored(), st.data())
def test_joining_bins_joins_their_counts(histogram, data):
    own = histogram.edges
    if len(own) < 2 or (own[1:] == own[:-1]).any():
        return
    inner = data.draw(st.lists(st.booleans(), min_size=len(own) - 2, max_size=len(own) - 2))
    chosen = np.flatnonzero([True, *inner, True])
    assert count(histogram, own[chosen]).tolist() == [histogram.counts[a:b].sum() for a, b in pairwise(chosen)]


@given(st.lists(arrays(np.float64, 20, elements=st.floats(-5, 5)), min_size=1, max_size=4))
def test_stored_histograms_of_common_edges_stay_as_they_are(steps):
    steps = [Histogram.from_counts(count(values, np.linspace(-5, 5, 65)), np.linspace(-5, 5, 65)) for values in steps]
    found = series(steps)
    np.testing.assert_array_equal(found.edges, steps[0].edges)
    np.testing.assert_array_equal(found.counts, [step.counts for step in steps])


def test_edges_that_differ_are_not_adopted():
    first, second = Histogram(np.arange(10.0)), Histogram(np.arange(20.0))
    assert series([first, second]).edges[-1] == 19
    assert series([first, np.arange(20.0)]).edges[-1] == 19
    assert len(series([first, first], bins=10).edges) == 11


@pytest.mark.parametrize("keep", [np.asarray, Histogram], ids=["tensor", "histogram"])
@pytest.mark.parametrize("scale", ["linear", "symlog"])
def test_a_constant_at_the_end_of_the_range_loses_nothing(keep, scale):
    """MindSpore Insight loses half of it: it pads the constant's own bins, and cuts what the common range does not."""
    found = series([keep(np.linspace(0, 1, 1000)), keep(np.full(1000, 1.0))], bins=30, scale=scale)
    assert found.counts.sum(axis=1).tolist() == [1000, 1000]
    assert found.counts[1, -1] >= 500
    assert np.count_nonzero(found.counts[1]) <= 2


def test_counts_add_up_where_bins_do_not_match():
    """MindSpore Insight rounds the share of each bin up, and shows up to half as many values again."""
    step = Histogram.from_counts([1] * 10, np.linspace(0, 1, 11))
    other = Histogram.from_counts([0, 7], [-0.3, 0.1, 1.7])
    found = series([step, other], bins=30)
    assert found.counts.sum(axis=1).tolist() == [10, 7]
    assert found.counts.max() == 1


def test_stored_bins_without_a_width_are_points():
    step = Histogram.from_counts([3, 5, 2], [0, 1, 1, 2])
    assert count(step, [0, 1, 2]).tolist() == [3, 7]
    assert count(step, [0, 0.5, 0.99, 1.01, 2]).tolist() == [2, 1, 5, 2]


def test_edges_at_infinity_are_read():
    step = Histogram.from_counts([0, 5, 0], [-np.inf, 0, 1, np.inf])
    found = series([step], bins=5)
    assert (found.edges[0], found.edges[-1]) == (0, 1)
    assert found.counts.tolist() == [[1] * 5]


def test_bins_wider_than_the_largest_float_are_read():
    step = Histogram.from_counts([8], [-LARGEST, LARGEST])
    assert count(step, [-1, 0, 1]).tolist() == [4, 4]
    assert series([step], bins=4).counts.tolist() == [[2] * 4]


def test_a_lone_value_that_is_not_drawn_is_in_the_range():
    array = np.full(100 * N_SAMPLES, np.nan, np.float32)
    array[12345] = 7
    found = series([array], scale="symlog", clip_quantiles=(0, 1))
    assert found.edges[0] <= 7 <= found.edges[-1]
    assert found.threshold == 7


def test_an_outlier_step_flattens_nothing_when_clipped():
    rng = np.random.default_rng(0)
    steps = [rng.normal(size=1000) for _ in range(50)]
    steps[20] = steps[20] * 1e9
    wide, clipped = series(steps, bins=64), series(steps, bins=64, clip_quantiles=(0.02, 0.98))
    assert np.count_nonzero(wide.counts[0]) <= 2
    assert np.count_nonzero(clipped.counts[0]) > 50
    assert clipped.edges[-1] < 10
    assert clipped.counts[20, [0, -1]].sum() > 990
    assert (clipped.counts.sum(axis=1) == 1000).all()


def test_symlog_bins_show_every_magnitude():
    rng = np.random.default_rng(0)
    step = np.concatenate([rng.choice([-1, 1], 10_000) * 10.0 ** rng.uniform(-6, 2, 10_000), np.zeros(100)])
    linear, symlog = series([step]), series([step], scale="symlog")
    assert np.count_nonzero(linear.counts > 20) < np.count_nonzero(symlog.counts > 20)
    assert 1e-6 < symlog.threshold < 1e-4
    widths = np.diff(np.sign(symlog.edges) * np.log1p(np.abs(symlog.edges) / symlog.threshold))
    np.testing.assert_allclose(widths, widths[0])
    assert linear.threshold is None


def test_the_threshold_is_the_lower_decile_within_twelve_decades():
    assert series([np.arange(-1, 100)], scale="symlog").threshold == pytest.approx(10, abs=1)
    assert series([np.array([1e-300] * 9 + [1.0])], scale="symlog").threshold == 1e-12
    assert series([np.zeros(3)], scale="symlog").threshold == 1


@pytest.mark.parametrize("value", [0, 1e-300, 0.1, -3e20, LARGEST, -LARGEST, 5e-324])
@pytest.mark.parametrize("scale", ["linear", "symlog"])
def test_a_constant_has_a_range(value, scale):
    found = series([np.full(5, value)] * 2, scale=scale)
    assert found.edges[0] <= value <= found.edges[-1]
    assert (np.diff(found.edges) > 0).all()
    assert (found.counts.max(axis=1) == 5).all()


def test_steps_without_a_finite_value_are_empty():
    found = series([np.array([np.nan, np.inf]), np.zeros(0), Histogram(())], percentiles=(50,))
    assert not found.counts.any()
    assert np.isnan(found.percentiles).all()
    assert (found.edges[0], found.edges[-1]) == (0, 1)
    assert (found.n_nan.tolist(), found.n_posinf.tolist()) == ([1, 0, 0], [1, 0, 0])
    mixed = series([np.array([np.nan]), np.array([2.0, 4.0])], bins=2)
    assert mixed.counts.tolist() == [[0, 0], [1, 1]]


def test_no_steps_are_no_rows():
    found = series([], bins=3, percentiles=(1, 2))
    assert (found.counts.shape, found.n_nan.shape, found.percentiles.shape) == ((0, 3), (0,), (0, 2))


def test_blocks_are_counted_together_and_the_range_is_exact():
    array = np.zeros((3, BLOCK), np.float32)
    array[2, -1], array[1, 7], array[0, 0] = 8, -8, np.nan
    assert array.size > N_SAMPLES
    found = series([array], bins=4)
    assert found.edges.tolist() == [-8, -4, 0, 4, 8]
    assert found.counts.tolist() == [[1, 0, array.size - 3, 1]]
    assert found.n_nan.tolist() == [1]
    assert series([array], scale="symlog").threshold > 0


@pytest.mark.parametrize(("n_bytes", "again"), [(2**28, []), (24, [2]), (0, [2, 1, 0])])
def test_steps_are_loaded_one_at_a_time_and_those_that_are_not_kept_twice(monkeypatch, n_bytes, again):
    monkeypatch.setattr(histograms, "MAX_KEPT_BYTES", n_bytes)

    class Lazy:
        def __init__(self):
            self.loaded = []

        def __len__(self):
            return 3

        def __getitem__(self, i):
            self.loaded.append(i)
            return np.arange(i + 1)

    steps = Lazy()
    series(steps, percentiles=(50,), scale="symlog", clip_quantiles=(0.1, 0.9))
    assert steps.loaded == [0, 1, 2, *again]


qs = st.lists(st.floats(0, 100), min_size=1, max_size=5)


@given(tensors, qs)
@example(np.array([LARGEST, -LARGEST]), [0.0, 25.0, 100.0])
@example(np.full(3, 0.1), [33.3])
def test_percentiles_of_tensors_are_exact(array, qs):
    values = array[np.isfinite(array)].astype(np.float64)
    found = percentiles(array, qs)
    if not len(values):
        assert np.isnan(found).all()
        return
    assert (values.min() <= found).all()
    assert (found <= values.max()).all()
    with np.errstate(all="ignore"):
        expected = np.percentile(values / 4, qs)
    np.testing.assert_allclose(found / 4, expected, rtol=1e-9, atol=1e-12 * np.abs(values / 4).max())


@given(arrays(np.float64, st.integers(1, 60), elements=st.floats(-100, 100)), qs)
def test_percentiles_of_histograms_are_within_a_bin(values, qs):
    histogram = Histogram(values)
    found = percentiles(histogram, qs)
    width = histogram.edges[1] - histogram.edges[0]
    lower, upper = (np.percentile(values, qs, method=method) for method in ("lower", "higher"))
    below = np.percentile(values, np.clip(np.array(qs) - 100 / len(values), 0, 100), method="lower")
    above = np.percentile(values, np.clip(np.array(qs) + 100 / len(values), 0, 100), method="higher")
    assert (found >= np.minimum(lower, below) - 1.01 * width).all()
    assert (found <= np.maximum(upper, above) + 1.01 * width).all()


@given(stored())
@example(Histogram.from_counts([1], [-1, 1e-20]))
@example(Histogram.from_counts([1], [-LARGEST, LARGEST]))
@example(Histogram.from_counts([3], [1.5e308, 1.6e308]))
def test_percentiles_of_histograms_rise_from_end_to_end(histogram):
    found = percentiles(histogram, np.linspace(0, 100, 11))
    if not histogram.total:
        assert np.isnan(found).all()
        return
    assert [found[0], found[-1]] == bounded(histogram)
    assert (found[1:] >= found[:-1]).all()


def test_percentiles_interpolate_within_bins():
    histogram = Histogram.from_counts([0, 10, 0, 30, 0], [0, 1, 2, 3, 4, 5])
    assert percentiles(histogram, [0, 12.5, 25, 62.5, 100]).tolist() == [1, 1.5, 2, 3.5, 4]


def test_percentiles_come_with_the_series():
    steps = [np.arange(101), Histogram.from_counts([100], [0, 1])]
    assert series(steps, percentiles=(5, 95)).percentiles.tolist() == [[5, 95], [0.05, 0.95]]


def test_percentiles_leave_the_tensor_alone():
    array = np.array([3.0, 1, 2])
    percentiles(array, [50])
    series([array], percentiles=(50,))
    assert array.tolist() == [3, 1, 2]


def large(kind):
    """Values of several blocks, which follow each other in some order, with some that are not finite."""
    rng = np.random.default_rng(0)
    match kind:
        case "normal":
            array = rng.standard_normal(5 * BLOCK + 1).astype(np.float32)
        case "sorted":
            array = np.sort(rng.standard_cauchy(5 * BLOCK + 1))
        case "ties":
            array = np.round(np.maximum(rng.standard_normal(5 * BLOCK + 1), 0), 1)
        case "outliers":
            array = np.append(np.zeros(5 * BLOCK), 1e30)
        case _:
            array = rng.integers(-300, 300, 5 * BLOCK + 1)
    if array.dtype.kind == "f":
        array[[3, BLOCK, 4 * BLOCK]] = np.nan, np.inf, -np.inf
    return array


@pytest.mark.parametrize("kind", ["normal", "sorted", "ties", "outliers", "integers"])
@pytest.mark.parametrize("n_deviations", [0, counting.N_DEVIATIONS])
@pytest.mark.parametrize("n_shared", [2 * BLOCK, counting.N_SHARED])
def test_large_tensors_are_counted_exactly_however_well_the_sample_tells(monkeypatch, kind, n_deviations, n_shared):
    monkeypatch.setattr(counting, "N_DEVIATIONS", n_deviations)
    monkeypatch.setattr(counting, "N_SHARED", n_shared)
    array, qs = large(kind), (0, 0.001, 5, 50, 50.001, 75, 99.9, 100)
    values = array[np.isfinite(array)]
    found = series([array.reshape(-1, 1)], bins=50, percentiles=qs)
    np.testing.assert_array_equal(found.counts[0], np.histogram(values.astype(np.float64), found.edges)[0])
    np.testing.assert_allclose(found.percentiles[0], np.percentile(values.astype(np.float64), qs), rtol=1e-12)
    n = int(array.dtype.kind == "f")
    assert (found.n_nan[0], found.n_posinf[0], found.n_neginf[0]) == (n, n, n)


def test_a_percentile_of_which_no_finite_value_was_drawn_is_exact():
    array = np.full(5 * BLOCK, np.nan)
    array[7] = 3
    assert percentiles(array, (0, 50, 100)).tolist() == [3, 3, 3]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2"])
def test_extended_types_are_counted(name):
    array = np.array([0, 1, 2, np.nan], getattr(pytest.importorskip("ml_dtypes"), name))
    found = series([array], bins=2, percentiles=(50, 75), scale="symlog")
    assert (found.counts.sum(), found.n_nan[0]) == (3, 1)
    assert found.percentiles.tolist() == [[1, 1.5]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"bins": 0}, "1,000,000 bins, got 0"),
        ({"bins": 10**6 + 1}, "1,000,000 bins, got 1000001"),
        ({"bins": [1.0]}, "one dimension, got shape (1,)"),
        ({"bins": [[1, 2]]}, "one dimension, got shape (1, 2)"),
        ({"bins": [1, 1]}, "increasing order, got [1.0, 1.0]"),
        ({"bins": [0, np.inf]}, "increasing order, got [0.0, inf]"),
        ({"clip_quantiles": (0.9, 0.1)}, "0 to 1 to clip to, got (0.9, 0.1)"),
        ({"clip_quantiles": (0, 99)}, "0 to 1 to clip to, got (0, 99)"),
        ({"percentiles": (101,)}, "percentiles from 0 to 100, got (101,)"),
        ({"percentiles": (np.nan,)}, "percentiles from 0 to 100, got (nan,)"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match="Expected") as caught:
        series([np.zeros(3)], **arguments)
    assert message in str(caught.value)


def test_unknown_scales_are_refused():
    with pytest.raises(UnknownNameError, match=r"'log'.*'symlog'"):
        series([], scale="log")


@pytest.mark.parametrize("step", [np.array(["a"]), np.array([1j])])
def test_only_real_numbers_are_counted(step):
    for ask in (lambda: series([step]), lambda: count(step, [0, 1]), lambda: percentiles(step, [50])):
        with pytest.raises(TypeError, match=r"\[1\]"):
            ask()


@given(
    st.sampled_from([np.float64, np.float32, np.float16, np.int64, np.uint8]).flatmap(
        lambda kind: arrays(kind, st.integers(0, 300))
    ),
    st.integers(1, 20),
)
def test_percentiles_are_the_same_whatever_the_bins(array, n_bins):
    qs = (0, 5, 37.5, 50, 100)
    found = series([array, np.zeros(3)], bins=n_bins, percentiles=qs).percentiles[0]
    assert np.array_equal(found, percentiles(array, qs), equal_nan=True)


def test_the_number_of_bins_follows_the_number_of_values():
    def n_bins(*steps):
        return len(series(steps).edges) - 1

    assert [n_bins(np.arange(n)) for n in (0, 1, 30, 1_000, 10**5)] == [4, 4, 5, 31, 64]
    assert n_bins(np.arange(10), np.arange(400)) == 20
    assert n_bins(Histogram(np.arange(900), bins=7), np.arange(100)) == 30
    assert n_bins(Histogram.from_counts([1] * 7, range(8)), Histogram.from_counts([2] * 7, range(8))) == 7
