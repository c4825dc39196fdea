"""The budget: the most expensive streams are thinned first, every skipped event is counted, all is restored later."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.training.budget import CREDIT_S, MAX_STRIDE, REVIEW_S, Account, thinned

pytestmark = pytest.mark.smoke

shares = st.lists(st.floats(0, 10), max_size=8)
budgets = st.floats(0.001, 1)


@given(shares, budgets)
def test_thinned_streams_stay_within_the_budget(costs, budget):
    strides = thinned(costs, budget)
    assert all(stride & (stride - 1) == 0 and 1 <= stride <= MAX_STRIDE for stride in strides)
    assert sum(cost / stride for cost, stride in zip(costs, strides, strict=True)) <= budget


@given(shares, budgets)
def test_the_most_expensive_are_thinned_first_and_none_in_vain(costs, budget):
    strides = thinned(costs, budget)
    left = [cost / stride for cost, stride in zip(costs, strides, strict=True)]
    thinned_ones = [i for i, stride in enumerate(strides) if stride > 1]
    for i in thinned_ones:
        assert 2 * left[i] >= max(left)
    if thinned_ones:  # one halving less, of the one that was halved last, would be too much
        assert sum(left) + max(left[i] for i in thinned_ones) > budget * (1 - 1e-9)
    else:
        assert sum(costs) <= budget


@given(shares, budgets)
def test_what_fits_is_not_thinned(costs, budget):
    if sum(costs) <= budget:
        assert thinned(costs, budget) == [1] * len(costs)


def test_a_burst_is_free_and_the_long_run_is_bounded():
    account = Account(0.05, now_s=0.0)
    assert account.review(1.0, [CREDIT_S * 0.9], [1]) == [1]
    assert account.review(2.0, [0.5], [1])[0] > 1


class Slow:
    """A function of queries that takes a while, by the fake clock."""

    def __init__(self, clock, cost_s):
        self.clock, self.cost_s = clock, cost_s

    def __call__(self, x):
        self.clock.pass_(self.cost_s)
        return x


@pytest.fixture
def slow(clock):
    """Return functions that cost a tenth and a thousandth of a second."""
    return {"dear": Slow(clock, 0.1), "cheap": Slow(clock, 0.001)}


def train(b, clock, n):
    for _ in range(n):
        clock.pass_(0.01)
        b.observe("batch", loss=1.0)


def test_streams_over_budget_are_thinned_and_every_skip_is_counted(bench, clock, slow):
    b = bench(slow, budget=0.05)
    dear, cheap = b.ask("dear(batch.loss)"), b.ask("cheap(batch.loss)")
    count = b.ask("on('batch').map(lambda e: dear(e.loss)).count(every=100)")
    start_s = clock.now_s
    train(b, clock, 20_000)
    assert dear.stride > cheap.stride
    for subscription in (dear, cheap):
        assert subscription.n_seen + subscription.n_skipped == 20_000
        assert len(subscription.rows) == subscription.n_seen
    assert dear.n_skipped > 10_000
    spent_s = 0.1 * (dear.n_seen + count.n_seen) + 0.001 * cheap.n_seen
    assert spent_s <= 0.05 * (clock.now_s - start_s) + 3 * CREDIT_S
    assert dear.total_spent_s + dear.spent_s == pytest.approx(0.1 * dear.n_seen, rel=1e-3)
    thin = [row for row in count.rows if row[3] < 100]
    assert thin
    assert all(row[4] is not None and row[4][1] is False for row in thin)
    assert sum(row[3] for row in count.rows) == count.n_seen
    assert len(count.rows) == 200


def test_cheap_streams_are_spared(bench, clock, slow):
    b = bench(slow, budget=0.2)
    dear, cheap = b.ask("dear(batch.loss)"), b.ask("cheap(batch.loss)")
    train(b, clock, 3_000)
    assert (dear.n_skipped > 0, cheap.n_skipped) == (True, 0)


def test_what_became_cheap_is_restored(bench, clock, slow):
    b = bench(slow, budget=0.05)
    dear = b.ask("dear(batch.loss)")
    train(b, clock, 1_000)
    assert dear.stride > 1
    slow["dear"].cost_s = 0.0
    train(b, clock, int(100 * (60 + REVIEW_S)))
    assert dear.stride == 1
    n_skipped = dear.n_skipped
    train(b, clock, 100)
    assert dear.n_skipped == n_skipped


def test_without_a_budget_nothing_is_thinned(bench, clock, slow):
    b = bench(slow, budget=None)
    dear = b.ask("dear(batch.loss)")
    train(b, clock, 2_000)
    assert (dear.n_seen, dear.n_skipped, dear.stride) == (2_000, 0, 1)
