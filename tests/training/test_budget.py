"""The budget: work is charged and waiting is not; dear streams are thinned first, and all is restored in seconds."""

from __future__ import annotations

import operator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightglass.core.columns import COMPLETE
from sightglass.training.evaluation.budget import (
    CHEAP_S,
    CREDIT_S,
    DEBT_FOR_S,
    FLOOR_HZ,
    LEAST,
    Account,
    Load,
    floors,
    shared,
    thinned,
)
from sightglass.training.evaluation.cost import Cost

from .conftest import Bench, FakeClock

pytestmark = pytest.mark.smoke

shares = st.lists(st.floats(0, 10), max_size=8)
budgets = st.floats(0.001, 1)
FREE = 2**30
SHARE = operator.attrgetter("share")
ANY = {"max_event_s": 100.0}  # here, the budget alone decides
EVENT_S = 0.0005  # two thousand events a second
modelled = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_short_evaluations_of_what_was_computed_ahead_read_no_files():
    clock = FakeClock()
    clock.queued = lambda: pytest.fail("read a file of the system")
    cost = Cost(clock)
    for n in range(1, 40):
        cost.ahead(0.005, 0.005)
        cost.begin()
        clock.work(0.0001)
        cost.end(n)
    assert cost.cost_s == pytest.approx(0.0051)


@given(shares, budgets)
def test_thinned_streams_stay_within_the_budget(costs, budget):
    strides = thinned(costs, budget, [FREE] * len(costs))
    assert all(stride & (stride - 1) == 0 and 1 <= stride <= FREE for stride in strides)
    assert sum(cost / stride for cost, stride in zip(costs, strides, strict=True)) <= budget * (1 + 1e-9)


@given(shares, budgets)
def test_the_most_expensive_are_thinned_first_and_none_in_vain(costs, budget):
    strides = thinned(costs, budget, [FREE] * len(costs))
    left = [cost / stride for cost, stride in zip(costs, strides, strict=True)]
    thinned_ones = [i for i, stride in enumerate(strides) if stride > 1]
    for i in thinned_ones:
        assert 2 * left[i] >= max(left) * (1 - 1e-9)
    if thinned_ones:  # one halving less, of the one that was halved last, would be too much
        assert sum(left) + max(left[i] for i in thinned_ones) > budget * (1 - 1e-9)
    else:
        assert sum(costs) <= budget * (1 + 1e-9)


@given(shares, budgets, st.lists(st.integers(0, 10), min_size=8, max_size=8))
def test_no_stride_is_above_its_limit(costs, budget, powers):
    largest = [2**power for power in powers[: len(costs)]]
    strides = thinned(costs, budget, largest)
    assert all(stride <= limit for stride, limit in zip(strides, largest, strict=True))
    if sum(cost / stride for cost, stride in zip(costs, strides, strict=True)) > budget * (1 + 1e-9):
        assert strides == largest


@given(st.lists(st.tuples(st.floats(1e-7, 0.02), st.floats(0.1, 1e5)), min_size=1, max_size=20), budgets)
def test_what_fits_is_never_thinned(rates, budget):
    account = Account(budget)
    total = sum(cost_s * per_s for cost_s, per_s in rates)
    loads = [Load(cost_s, per_s * min(1.0, budget / total), 1) for cost_s, per_s in rates]
    for _ in range(50):
        account.charge(0.1, 0.1 * min(total, budget) * (1 - 1e-9))
        assert account.strides(loads) == [1] * len(loads)


@given(st.floats(0.01, 1e6), budgets)
def test_however_long_nobody_asks_there_is_no_more_credit_than_for_a_start(idle_s, budget):
    account = Account(budget)
    account.charge(idle_s, 0.0)
    account.charge(0.1, CREDIT_S + budget)
    assert account.strides([Load(0.05, 100.0, 1)]) != [1]


loads = st.builds(Load, st.floats(1e-7, 0.1), st.floats(0.1, 1e5), st.just(1))


def fair_share(several, floors, budget):
    """Return the level to which streams can be filled, each from its floor to its whole share, by bisection."""
    low, high = 0.0, max(load.share for load in several)
    for _ in range(100):
        level = (low + high) / 2
        taken = sum(min(load.share, max(floor, level)) for load, floor in zip(several, floors, strict=True))
        low, high = (level, high) if taken <= budget else (low, level)
    return low


@given(st.lists(loads, min_size=1, max_size=60), budgets, st.floats(0, 10), st.floats(0, 1), st.randoms())
def test_a_debt_is_shared_fairly(several, budget, debt_s, beside, random):
    account = Account(budget)
    account.charge(0.1, CREDIT_S + debt_s + budget, beside_s=beside * 0.1)
    left = budget - account._beside
    largest = floors(several, (1 - LEAST) * left)
    strides = account.strides(several)
    taken = [load.share / stride for load, stride in zip(several, strides, strict=True)]
    held = [load.share / stride for load, stride in zip(several, largest, strict=True)]
    assert sum(held) <= (1 - LEAST) * left * (1 + 1e-9), "floors leave room for the others"
    assert sum(taken) <= left * (1 + 1e-9)
    level = fair_share(several, held, sum(held) + LEAST * left)
    for load, stride in zip(several, strides, strict=True):
        assert stride == 1 or load.share > level * (1 - 1e-6)
    shuffled = random.sample(several, len(several))
    assert sorted(zip(map(SHARE, shuffled), account.strides(shuffled), strict=True)) == sorted(
        zip(map(SHARE, several), strides, strict=True)
    )


@given(st.lists(loads, max_size=20), budgets)
def test_floors_are_lowered_from_the_dearest_on_and_only_if_they_exceed_their_part(several, budget):
    whole, lowered = floors(several, 1e9), floors(several, budget)
    held = [load.share / stride for load, stride in zip(several, whole, strict=True)]
    for load, stride, floor in zip(several, whole, held, strict=True):
        assert stride == 1 or load.per_s / stride >= load.floor_per_s
        assert floor <= 2 * FLOOR_HZ * CHEAP_S * (1 + 1e-9)
    if sum(held) <= budget:
        assert lowered == whole
    for floor, before, after in zip(held, whole, lowered, strict=True):
        assert after == before or floor >= budget / len(several) * (1 - 1e-9)


@given(shares, budgets, budgets, st.lists(st.integers(0, 10), min_size=8, max_size=8))
def test_a_larger_budget_makes_no_stride_larger(costs, one, other, powers):
    largest = [2**power for power in powers[: len(costs)]]
    more, less = (thinned(costs, budget, largest) for budget in (max(one, other), min(one, other)))
    assert all(a <= b for a, b in zip(more, less, strict=True))


@pytest.mark.parametrize("n_dear", [1, 4, 20, 200])
def test_beside_many_dear_streams_in_debt_cheap_ones_that_fit_are_never_thinned(n_dear):
    account = Account(0.05)
    account.charge(1.0, 100.0)
    cheap = [Load(1e-6, 100.0, 1) for _ in range(10)]  # 0.1 % of the time together
    strides = account.strides([*[Load(0.01, 100.0, 1)] * n_dear, *cheap])
    assert strides[n_dear:] == [1] * len(cheap)
    assert min(strides[:n_dear]) > 1


def test_a_burst_is_free_and_the_long_run_is_bounded():
    account = Account(0.05)
    loads = [Load(0.02, 25.0, 1)]
    account.charge(1.0, CREDIT_S * 0.9)
    assert account.strides(loads) == [1]
    account.charge(1.0, 0.5)
    assert account.strides(loads)[0] > 1


def test_after_any_debt_the_account_is_in_credit_within_seconds():
    account = Account(0.05)
    account.charge(1.0, 1_000.0)
    account.charge(DEBT_FOR_S, 0.0)
    assert account.strides([Load(0.02, 1.9, 1)]) == [1]


# On the events of a run


class Work:
    """A function of queries that works, and that is interrupted meanwhile, by the fake clock."""

    def __init__(self, clock, cost_s):
        self.clock, self.cost_s = clock, cost_s
        self.interrupted_s = 0.0
        self.told = True
        self.n = 0
        self.spent_s = 0.0

    def __call__(self, x):
        self.n += 1
        cost_s = self.cost_s(self.n) if callable(self.cost_s) else self.cost_s
        self.spent_s += cost_s
        self.clock.work(cost_s)
        waits_s = self.interrupted_s(self.n) if callable(self.interrupted_s) else self.interrupted_s
        self.clock.preempt(waits_s, told=self.told)
        return x


@pytest.fixture
def work(clock):
    """Return functions that cost a tenth and a thousandth of a second."""
    return {"dear": Work(clock, 0.1), "cheap": Work(clock, 0.001)}


@pytest.fixture
def model():
    """Return a function that makes a bench with functions of its own; Hypothesis makes several in one test."""
    made = []

    def make(budget=0.05, **costs):
        clock = FakeClock()
        work = {name: Work(clock, cost_s) for name, cost_s in costs.items()}
        made.append(Bench(clock, work, budget=budget, **ANY))
        return made[-1], work

    yield make
    for one in made:
        one.telemetry.close()


def train(b, clock, n, event_s=0.01):
    for _ in range(n):
        clock.work(event_s)
        b.observe("batch", loss=1.0)


def test_streams_over_budget_are_thinned_and_every_skip_is_counted(bench, clock, work):
    b = bench(work, budget=0.05, **ANY)
    dear, cheap = b.ask("dear(batch.loss)"), b.ask("cheap(batch.loss)")
    count = b.ask("on('batch').map(lambda e: dear(e.loss)).count(every=100)")
    start_s = clock.now_s
    train(b, clock, 20_000)
    assert dear.stride > cheap.stride
    for subscription in (dear, cheap):
        assert subscription.n_seen + subscription.n_skipped == 20_000
        assert len(subscription.rows) == subscription.n_seen
    assert dear.n_skipped > 10_000
    assert work["dear"].spent_s + work["cheap"].spent_s <= 0.05 * (clock.now_s - start_s) + 3 * CREDIT_S
    assert dear.spent_s == pytest.approx(0.1 * dear.n_seen, rel=1e-3)
    assert dear.cost.cost_s == pytest.approx(0.1)
    thin = [row for row in count.rows if row[3] < 100]
    assert thin
    assert all(row[4] is not None and not row[4][1] & COMPLETE for row in thin)
    assert sum(row[3] for row in count.rows) == count.n_seen
    assert len(count.rows) == 200


def test_what_a_compiled_step_thins_by_itself_is_not_thinned_again(bench, clock, work):
    b = bench(work, budget=0.05, **ANY)
    asked, beside = b.ask("batch.loss"), b.ask("cheap(batch.loss)")
    asked.cost.device_s = 10 * CREDIT_S  # its first call
    for n in range(20_000):
        asked.cost.device_s += 0.015 if n % 32 == 0 else 0.0
        train(b, clock, 1)
    assert (asked.stride, asked.n_seen) == (1, 20_000)
    assert asked.spent_s == pytest.approx(10 * CREDIT_S + 625 * 0.015)
    assert 0.01 <= work["cheap"].spent_s / (20_000 * 0.01) <= 0.035, "half of the budget remains for other streams"
    assert beside.stride > 1


def test_cheap_streams_are_spared(bench, clock, work):
    b = bench(work, budget=0.2, **ANY)
    dear, cheap = b.ask("dear(batch.loss)"), b.ask("cheap(batch.loss)")
    train(b, clock, 3_000)
    assert (dear.n_skipped > 0, cheap.n_skipped) == (True, 0)


def test_without_a_budget_nothing_is_thinned_but_the_cost_is_known(bench, clock, work):
    b = bench(work, budget=None, **ANY)
    dear = b.ask("dear(batch.loss)")
    assert dear.cost.cost_s == 0.0
    train(b, clock, 2_000)
    assert (dear.n_seen, dear.n_skipped, dear.stride) == (2_000, 0, 1)
    assert dear.cost.cost_s == pytest.approx(0.1)
    assert dear.spent_s == pytest.approx(200.0)


@pytest.mark.parametrize("told", [True, False])
def test_on_a_busy_machine_cheap_queries_are_not_thinned(model, told):
    """Six busy processes beside a loop of 2,000 events a second: each slice of 3 ms is followed by a wait of 9 ms."""
    b, work = model(cheap=6e-6)
    clock = b.clock
    several = [b.ask("cheap(batch.loss)"), b.ask("cheap(batch.loss).mean(every=100)"), b.ask("cheap(batch.loss) + 1")]
    work["cheap"].told = told
    work["cheap"].interrupted_s = lambda n: 0.009 if n % 7 == 0 else 0.0
    train(b, clock, 20_000, EVENT_S)
    for subscription in several:
        assert (subscription.stride, subscription.n_skipped) == (1, 0)
        assert subscription.cost.cost_s == pytest.approx(6e-6, rel=0.01)
    assert [row[3] for row in several[1].rows] == [1.0] * 200


@modelled
@given(
    st.floats(1e-6, 2e-5),
    st.lists(st.floats(0, 1e3), min_size=1, max_size=5),
    st.integers(2, 7),
    st.booleans(),
)
def test_interruptions_of_any_length_never_thin_a_cheap_query(cost_s, spikes, apart, told):
    clock = FakeClock()
    work = Work(clock, cost_s)
    b = Bench(clock, {"f": work}, budget=0.05, **ANY)
    asked = b.ask("f(batch.loss)")
    work.told = told
    work.interrupted_s = lambda n: spikes[n % len(spikes)] if n % apart == 0 else 0.0
    train(b, clock, 1_000, EVENT_S)
    b.telemetry.close()
    assert (asked.stride, asked.n_skipped) == (1, 0)


@pytest.mark.parametrize("cost_s", [0.0002, 0.002, 0.02])
def test_an_expensive_query_is_thinned_alike_on_an_idle_and_on_a_busy_machine(model, cost_s):
    answered = []
    for busy in (False, True):
        b, work = model(f=cost_s)
        clock = b.clock
        asked = b.ask("f(batch.loss)")
        waits = lambda n, x=cost_s: 3 * x if x > 0.001 or n % 5 == 0 else 0.0  # noqa: E731
        work["f"].interrupted_s = waits if busy else 0.0
        for _ in range(15_000):
            clock.work(EVENT_S)
            if busy:
                clock.preempt(3 * EVENT_S)
            b.observe("batch", loss=1.0)
        answered.append(asked.n_seen)
    assert 0.5 <= answered[0] / answered[1] <= 2


@pytest.mark.parametrize("pattern", ["same", "one in ten", "one in a hundred", "phases"])
@pytest.mark.parametrize("event_s", [0.0005, 0.01])
def test_the_share_of_the_long_run_is_bounded(model, pattern, event_s):
    cost = {
        "same": lambda n: 0.01,
        "one in ten": lambda n: 0.02 if n % 10 == 0 else 1e-6,
        "one in a hundred": lambda n: 0.02 if n % 100 == 0 else 1e-6,
        "phases": lambda n: 0.005 if n // 300 % 2 else 1e-6,
    }[pattern]
    b, work = model(f=cost)
    clock = b.clock
    b.ask("f(batch.loss)")
    train(b, clock, 20_000, event_s)  # rare slow evaluations are found meanwhile, and the credit is spent
    start_s, spent_s = clock.now_s, work["f"].spent_s
    train(b, clock, 40_000, event_s)
    elapsed_s = clock.now_s - start_s
    floor_s = FLOOR_HZ * CHEAP_S * elapsed_s
    assert work["f"].spent_s - spent_s <= 1.1 * 0.05 * elapsed_s + CREDIT_S / 4 + floor_s


@modelled
@given(st.floats(1e-5, 0.02), st.floats(EVENT_S, 0.02), st.integers(1, 3), st.floats(0.02, 0.3))
def test_the_share_is_bounded_for_any_cost(cost_s, event_s, n_queries, budget):
    clock = FakeClock()
    works = {f"f{i}": Work(clock, cost_s * (i + 1) / 3) for i in range(n_queries)}
    b = Bench(clock, works, budget=budget, **ANY)
    for name in works:
        b.ask(f"{name}(batch.loss)")
    start_s = clock.now_s
    train(b, clock, 4_000, event_s)
    b.telemetry.close()
    elapsed_s = clock.now_s - start_s
    floor_s = n_queries * FLOOR_HZ * CHEAP_S * elapsed_s
    assert sum(work.spent_s for work in works.values()) <= 1.1 * budget * elapsed_s + 1.2 * CREDIT_S + floor_s


@pytest.mark.parametrize("cost_s", [0.0005, 0.005, 0.02])
@pytest.mark.parametrize("event_s", [EVENT_S, 0.01])
def test_what_became_cheap_is_restored_within_seconds(model, cost_s, event_s):
    b, work = model(f=cost_s)
    clock = b.clock
    asked = b.ask("f(batch.loss)")
    while clock.now_s < 1_015.0:
        train(b, clock, 1, event_s)
    assert asked.stride > 1 or cost_s / event_s <= 0.05
    work["f"].cost_s = 1e-6
    until_s = clock.now_s + 5.0
    while clock.now_s < until_s:
        train(b, clock, 1, event_s)
    assert asked.stride == 1
    n_skipped = asked.n_skipped
    train(b, clock, 100, event_s)
    assert asked.n_skipped == n_skipped


def test_a_first_evaluation_that_takes_seconds_is_forgiven(model):
    b, _work = model(f=lambda n: 3.0 if n == 1 else 1e-5)
    asked = b.ask("f(batch.loss)")
    train(b, b.clock, 1_000)
    assert (asked.stride, asked.n_skipped) == (1, 0)


def test_a_cheap_stream_keeps_a_few_evaluations_a_second_beside_dear_ones(model):
    b, _work = model(dear=0.05, cheap=0.0005)
    b.ask("dear(batch.loss)")
    several = [b.ask(f"cheap(batch.loss) + {i}") for i in range(20)]
    train(b, b.clock, 1_000, EVENT_S)
    for _ in range(10):
        before = [one.n_seen for one in several]
        began_s = b.clock.now_s
        while b.clock.now_s < began_s + 1.0:
            train(b, b.clock, 1, EVENT_S)
        assert all(one.n_seen - n >= 3 for one, n in zip(several, before, strict=True))


def test_work_of_libraries_on_their_own_threads_is_charged(bench, clock):
    b = bench({"f": lambda x: (clock.work(0.001), clock.pass_(0.009), x)[2]}, budget=0.05, **ANY)
    asked = b.ask("f(batch.loss)")
    train(b, clock, 5_000)
    assert asked.cost.cost_s == pytest.approx(0.01)
    assert asked.stride > 4


def test_rare_evaluations_that_are_slow_are_found_in_a_fast_loop(model):
    b, work = model(f=lambda n: 0.005 if n % 50 == 0 else 1e-6)
    asked = b.ask("f(batch.loss)")
    train(b, b.clock, 40_000, 0.00004)
    assert asked.n_skipped > 1_000
    found_s, spent_s = work["f"].spent_s, asked.spent_s
    train(b, b.clock, 20_000, 0.00004)
    assert asked.spent_s - spent_s == pytest.approx(work["f"].spent_s - found_s, rel=0.2)


def test_recorded_streams_are_given_up_only_beyond_the_budget(model):
    b, _work = model(f=1e-4, g=0.01)
    fits, dear = b.ask("f(batch.loss)"), b.ask("g(batch.loss)")
    fits.recorded = dear.recorded = True
    train(b, b.clock, 2_000)
    assert (fits.recorded, fits.n_skipped) == (True, 0)
    assert not dear.recorded


def test_a_recorded_stream_outlives_one_slow_evaluation(model):
    b, _work = model(f=lambda n: 5.0 if n in (1, 500) else 2e-4)
    asked = b.ask("f(batch.loss)")
    asked.recorded = True
    train(b, b.clock, 3_000)
    assert (asked.recorded, asked.n_skipped) == (True, 0)


WINDOWED = [
    "batch.loss.mean(every=7)",
    "batch.loss.count(every=5)",
    "batch.loss.count(per='epoch')",
    "batch.loss.sum()",
    "batch.loss.mean(every=3).max(every=4)",
    "on('batch').where(lambda b: b.loss % 3 == 0).map(lambda b: b.loss).count(every=6)",
    "on('batch').map(lambda b: b.loss).max(when=lambda b: b.loss % 11 == 0)",
]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(WINDOWED), st.integers(0, 5), st.integers(1, 40), st.integers(0, 3))
def test_windows_are_the_same_whether_each_skipped_event_is_told_or_not(query, power, epoch, start):
    rows = []
    for told in (False, True):
        b = Bench(FakeClock(), {}, budget=None, **ANY)
        for i in range(start):
            b.observe("batch", loss=float(i))
        asked = b.ask(query)
        asked.stride = 2**power
        if told:
            asked.tail._every = 0
        for i in range(start, 150):
            b.observe("batch", loss=float(i))
            if i % epoch == 0:
                b.observe("epoch")
                b.telemetry.events.end_group("batch")
        b.telemetry.close()
        rows.append([str(row) for row in asked.rows])
    assert rows[0] == rows[1]


def test_evaluations_that_are_stopped_are_charged(bench, clock, work):
    b = bench(work, budget=0.05, **ANY)
    asked = b.ask("cheap(batch.loss)")
    train(b, clock, 1)
    spent_s = asked.spent_s
    asked.cost.stopped(0.02)
    assert asked.spent_s == pytest.approx(spent_s + 0.02)


class Providing:
    """Provides nothing, which takes time if the event is answered."""

    wants_event = False

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def provide(self, index, observables):
        self.clock.work(self.seconds)
        return observables

    def describe(self):
        return {}

    def note(self, query):
        return ""


@pytest.mark.parametrize("entailed", ["sent", "provided"])
def test_what_answers_entail_is_charged_too(model, entailed):
    """Evaluations take 4 % of the time, and what they entail takes 2 %: together more than the budget."""
    b, work = model(one=4e-4)
    asked = b.ask("one(batch.loss)")
    if entailed == "provided":
        b.telemetry.subscriptions.source("batch").providers = (Providing(b.clock, 2e-4),)
    n_before, began_s = 0, 0.0
    for step in range(20_000):
        if step == 10_000:  # the credit is spent
            n_before, began_s = work["one"].n, b.clock.now_s
        n = work["one"].n
        train(b, b.clock, 1)
        if entailed == "sent":
            b.telemetry.budget.sent(2e-4 * (work["one"].n - n))
    entailed_s = 2e-4 * (10_000 if entailed == "provided" else work["one"].n - n_before)
    share = (4e-4 * (work["one"].n - n_before) + entailed_s) / (b.clock.now_s - began_s)
    assert 0.025 < share < 0.052
    assert asked.n_skipped > 1_000


@pytest.mark.parametrize(("cpu_s", "n_bytes"), [(0.01, 0), (0.0, 10_000_000)])
def test_a_stream_of_large_records_is_thinned_for_sending_them_and_no_other_is(model, cpu_s, n_bytes):
    b, _work = model(f=1e-5)
    large, cheap = b.ask("f(batch.loss)"), b.ask("f(batch.loss) + 1")
    n_before, began_s = 0, 0.0
    for step in range(4_000):
        if step == 2_000:  # the credit is spent
            n_before, began_s = large.n_seen, b.clock.now_s
        train(b, b.clock, 1)
        for _ in large.rows.take():
            large.cost.sent(cpu_s, n_bytes)
            b.telemetry.budget.sent(cpu_s)  # as a part of what the io thread spends
        cheap.cost.sent(1e-4, 8)
    assert 0.005 < 0.01 * (large.n_seen - n_before) / (b.clock.now_s - began_s) < 0.052
    assert (cheap.stride, cheap.n_skipped) == (1, 0)
    assert large.spent_s == pytest.approx(0.01 * large.n_seen, rel=0.1)


def test_giving_way_counts_but_cannot_thin_streams_alone(bench, clock, work):
    work["cheap"].cost_s = 1e-5
    b = bench(work, budget=0.05, **ANY)
    asked = b.ask("cheap(batch.loss)")
    lock = b.telemetry.lock
    for _ in range(3_000):
        clock.work(0.001)
        lock.handover_s += 0.0005
        b.observe("batch", loss=1.0)
    assert (asked.stride, asked.n_skipped) == (1, 0)
    assert lock.handover_s < 0.2


# Who shares what is left

users = st.sampled_from("abcd")
held = st.lists(st.tuples(users, st.sampled_from((b"1", b"2", b"3"))), min_size=1, max_size=4, unique=True)
several_held = st.lists(st.tuples(st.floats(1e-6, 1.0), held), min_size=1, max_size=40)


@given(several_held, budgets)
def test_one_alone_gets_what_it_would_without_others(streams, budget):
    alone = [[("a", b"1")] for _ in streams]
    costs = [cost for cost, _ in streams]
    largest = [FREE] * len(costs)
    assert shared(costs, budget, largest, alone) == thinned(costs, budget, largest)


@given(several_held, budgets)
def test_a_user_within_its_part_is_not_thinned_whatever_others_ask(streams, budget):
    costs, holders = zip(*streams, strict=True)
    strides = shared(costs, budget, [FREE] * len(costs), holders)
    names = {user for several in holders for user, _ in several}
    for name in names:
        mine = [i for i, several in enumerate(holders) if name in {user for user, _ in several}]
        asked = sum(costs[i] / len({user for user, _ in holders[i]}) for i in mine)
        if asked <= budget / len(names) * (1 - 1e-9):
            assert [strides[i] for i in mine] == [1] * len(mine)


@given(several_held, budgets, st.integers(1, 300))
def test_asking_more_takes_nothing_from_another_user(streams, budget, n):
    costs = [cost for cost, _ in streams]
    mine, theirs = [budget / 4], [[("me", b"0")]]
    one = shared([*mine, *costs[:1]], budget, [FREE] * 2, [*theirs, [("other", b"1")]])
    many = shared(
        [*mine, *costs[:1] * n], budget, [FREE] * (n + 1), [*theirs, *([("other", bytes([i % 250]))] for i in range(n))]
    )
    assert one[0] == many[0] == 1


@given(several_held, budgets)
def test_what_is_shared_stays_within_the_budget_where_nobody_shares_a_stream(streams, budget):
    costs, holders = [cost for cost, _ in streams], [several[:1] for _, several in streams]
    strides = shared(costs, budget, [FREE] * len(costs), holders)
    assert sum(cost / stride for cost, stride in zip(costs, strides, strict=True)) <= budget * (1 + 1e-6)


@given(st.floats(0.001, 0.2), budgets)
def test_those_who_read_a_stream_together_pay_parts_of_it(cost, budget):
    """A stream that two users read costs each half: it takes as much from the others of each."""
    both, mine = [("a", b"1"), ("b", b"2")], [("a", b"1")]
    alone = shared([cost, budget], budget, [FREE] * 2, [[("b", b"2")], mine])
    together = shared([cost, budget], budget, [FREE] * 2, [both, mine])
    assert together[0] <= alone[0]


@pytest.mark.parametrize("n_clients", [1, 250])
def test_a_viewer_with_many_streams_leaves_another_stream_alone(model, n_clients):
    b, _work = model(f=2e-5, g=2e-5)
    mine = b.ask("f(batch.loss)")
    mine.holders = (("me", b"0"),)
    theirs = [b.ask(f"g(batch.loss) + {i}") for i in range(250)]
    for i, one in enumerate(theirs):
        one.holders = (("viewer", bytes([i % n_clients])),)
    train(b, b.clock, 3_000, 0.005)
    seen = mine.n_seen
    train(b, b.clock, 1_000, 0.005)
    assert mine.n_seen - seen == 1_000
    assert min(one.stride for one in theirs) > 1


def test_what_viewers_ask_changes_nothing_of_what_is_recorded(model):
    b, _work = model(f=1e-4, g=2e-4)
    kept = b.ask("f(batch.loss)")
    kept.recorded = True
    for i in range(100):
        b.ask(f"g(batch.loss) + {i}").holders = (("viewer", bytes([i])),)
        train(b, b.clock, 30, 0.005)
    assert (kept.recorded, kept.n_skipped) == (True, 0)
