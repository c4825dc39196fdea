"""Smoothing: an average of the line itself, the same whatever the density of its points, in Python and in browsers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sightglass.core.buffer import Buffer, line_means
from sightglass.core.columns import Columns
from sightglass.views.encoding import Backlog
from sightglass.views.series_buffer import SeriesBuffer
from sightglass.views.smoothing import smooth

pytestmark = pytest.mark.smoke

CASES = json.loads((Path(__file__).parent / "smoothing.json").read_text())  # frontend/test/smooth.test.ts reads it too
WEIGHTS = st.floats(0.01, 0.999)
VALUES = st.floats(-1e6, 1e6)
LINES = st.lists(st.tuples(st.floats(0.01, 10), VALUES), min_size=2, max_size=30)


def column(values):
    return np.array([np.nan if value is None else float(value) for value in values])


def of(line):
    gaps, y = np.array(line).T
    return np.cumsum(gaps), y


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_numbers_are_those_of_the_browser(case):
    means = column(case["means"]) if "means" in case else None
    found = smooth(case["x"], column(case["y"]), case["weight"], extent=case["extent"], means=means)
    np.testing.assert_allclose(found, column(case["smoothed"]), rtol=1e-9)


@pytest.mark.parametrize("weight", [0.5, 0.9, 0.99])
def test_the_average_is_that_of_the_formula(weight):
    """Against the definition: the mean of the line, weighted by e^(-distance/scale), as a sum over tiny intervals."""
    x, y = np.array([0.0, 1.0, 1.5, 4.0, 9.0, 10.0]), np.array([2.0, -1.0, 3.0, 3.0, 0.0, 1.0])
    fine = np.linspace(0, 10, 2_000_001)
    line = np.interp(fine, x, y)
    for at, found in list(zip(x, smooth(x, y, weight, extent=10.0), strict=True))[1:]:
        past = fine <= at
        weights = weight ** (0.5 * 1000 / 10 * (at - fine[past]))
        assert found == pytest.approx(np.average(line[past], weights=weights), abs=1e-4)


@given(LINES, WEIGHTS, st.data())
def test_points_that_lie_on_the_line_change_nothing(line, weight, data):
    x, y = of(line)
    more = np.array(data.draw(st.lists(st.floats(x[0], x[-1]), max_size=40)))
    x_all = np.sort(np.concatenate([x, more[~np.isin(more, x)]]))
    extent = x[-1] - x[0]
    whole = smooth(x_all, np.interp(x_all, x, y), weight, extent=extent)
    slack = 1e-6 * (1 + abs(y).max())
    np.testing.assert_allclose(whole[np.isin(x_all, x)], smooth(x, y, weight, extent=extent), atol=slack)


@given(st.integers(2, 40), WEIGHTS, st.integers(0, 2**32 - 1))
def test_duplicates_on_a_constant_stretch_do_not_move_the_line(n, weight, seed):
    rng = np.random.default_rng(seed)
    x = np.arange(2.0 * n)
    y = np.repeat(rng.normal(size=n), 2)  # constant between 2i and 2i + 1
    first = 2 * int(rng.integers(n))
    more = np.sort(rng.uniform(first, first + 1, size=50))
    dense_x, dense_y = np.insert(x, first + 1, more), np.insert(y, first + 1, np.full(50, y[first]))
    dense = smooth(dense_x, dense_y, weight, extent=2.0 * n)
    sparse = smooth(x, y, weight, extent=2.0 * n)
    np.testing.assert_allclose(np.delete(dense, slice(first + 1, first + 51)), sparse, atol=1e-9)


@pytest.mark.parametrize("every", [2, 8, 20])
@pytest.mark.parametrize("weight", [0.8, 0.97, 0.999])
def test_a_stream_thinned_evenly_smooths_to_the_same_curve(every, weight):
    x = np.arange(20_001.0)
    y = np.exp(-x / 5000) + 0.3 * np.sin(x / 400)
    found = smooth(x[::every], y[::every], weight, extent=20_000.0)
    np.testing.assert_allclose(found, smooth(x, y, weight, extent=20_000.0)[::every], atol=2e-4)


def test_a_mean_over_20_steps_is_smoothed_as_the_line_it_is_the_mean_of():
    steps = np.arange(2000.0)
    loss = np.where(steps < 1000, 1.0, 0.5) + 0.05 * np.sin(steps)
    mean_steps, means = steps[19::20], loss.reshape(-1, 20).mean(axis=1)
    fine, coarse = smooth(steps, loss, 0.8, extent=1999.0), smooth(mean_steps, means, 0.8, extent=1999.0)
    np.testing.assert_allclose(coarse[mean_steps > 1150], 0.5, atol=0.01)
    np.testing.assert_allclose(np.interp(mean_steps, steps, fine)[mean_steps > 1150], 0.5, atol=0.01)


@given(LINES, WEIGHTS, st.sets(st.integers(0, 29)))
def test_it_stays_within_the_values_and_keeps_gaps(line, weight, gaps):
    x, y = of(line)
    y[[i for i in gaps if i < len(y)]] = np.nan
    assume(np.isfinite(y).any())
    found = smooth(x, y, weight, extent=float(x[-1] - x[0]))
    assert np.isnan(found).tolist() == np.isnan(y).tolist()
    slack = 1e-6 * (1 + np.nanmax(abs(y)))
    assert np.nanmin(found) >= np.nanmin(y) - slack
    assert np.nanmax(found) <= np.nanmax(y) + slack


def test_the_order_of_points_does_not_matter():
    rng = np.random.default_rng(1)
    x, y, order = np.arange(50.0), rng.normal(size=50), rng.permutation(50)
    np.testing.assert_allclose(smooth(x[order], y[order], 0.97, extent=49.0), smooth(x, y, 0.97, extent=49.0)[order])


def test_huge_and_tiny_values_do_not_overflow():
    y = [1e308, -1e308, 1e308, 1e-300]
    assert np.isfinite(smooth([0, 1, 2, 3], y, 0.99, extent=3.0)).all()
    assert smooth([0, 1, 2], [0.0, 0.0, 0.0], 0.5, extent=2.0).tolist() == [0.0, 0.0, 0.0]


# Thinned lines


class Skewed:
    """A stream of a million records, whose extremes lie far on one side of their mean."""

    tag, run, ended = "loss", "mnist", True
    n = 1_000_000
    y = np.random.default_rng(0).exponential(size=n) ** 2 + 3 * np.sin(np.arange(n) / 1e5)

    def since(self, cursor):
        end = min(cursor + 70_001, self.n)  # in portions, as it would arrive
        steps = np.arange(cursor, end)
        return end, Columns(index=cursor, steps=steps, wall_times=steps * 1.0, values=self.y[cursor:end])


class Held(Skewed):
    """What a buffer holds of such a stream."""

    def __init__(self, buffer):
        self.since = buffer.since


@pytest.mark.parametrize("weight", [0.6, 0.9, 0.99])
@pytest.mark.parametrize("max_rows", [1 << 14, 1 << 17])
def test_a_thinned_line_is_smoothed_as_the_whole_one(weight, max_rows):
    """In a view, behind a buffer that had thinned it before, and as a browser gets it."""
    source = Skewed()
    whole = smooth(np.arange(source.n), source.y, weight, extent=source.n)
    spread = whole[source.n // 10 :].std()

    def check(points):
        x, y, means = points
        found = smooth(x, y, weight, extent=source.n, means=means)
        later = x > source.n / 100  # the first points have no past
        assert len(x) < source.n / 4
        assert np.abs(found - whole[x.astype(int)])[later].max() < 0.05 * spread
        # Without the means, the average is one of extremes.
        biased = smooth(x, y, weight, extent=source.n)[later]
        assert np.abs(biased - whole[x.astype(int)][later]).max() > spread

    view = SeriesBuffer(source, max_points=max_rows)
    held, log = Buffer(max_rows=max_rows, max_bytes=2**30), Backlog()
    for _ in range(20):
        view.pull()
    for start in range(0, source.n, 70_001):
        columns = source.since(start)[1]
        held.add(columns)
        log.add(columns)
    check((*view.lines[""].columns, view.lines[""].means))
    late = SeriesBuffer(Held(held), max_points=max_rows // 2)
    late.pull()
    check((*late.lines[""].columns, late.lines[""].means))
    message = log.take(0, max_rows // 8).message
    x, y, areas = (np.frombuffer(message[name], float) for name in ("step", "y", "area"))
    check((x, y, line_means(x.astype(int), y, areas)))
