"""Reducers that give a value for every value: running ones and sliding windows, beside plain Python."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.errors import EvaluationError, PriceError, QueryError, RefusedQueryError
from sightglass.core.program_values.copier import snapshot
from sightglass.query.costs import CostModel
from sightglass.query.evaluation import Evaluation
from sightglass.query.meter import Meter
from sightglass.query.parser import parse
from sightglass.query.pipeline import is_quick
from sightglass.query.query import Query, on
from sightglass.query.reads import copied, paths
from sightglass.query.reduce import numbers
from sightglass.query.reduce.sketches import Quantiles
from sightglass.query.windows import PipelineItem

NUMBERS = st.lists(st.floats(-1e3, 1e3) | st.integers(-1000, 1000) | st.just(math.nan), max_size=60)


def answers(query: Query | str, values: list[Any], *, times: list[float] | None = None, first: int = 0) -> list[Any]:
    """Return what comes out for the values of `b.x`, with its step; `None` stands for an event that was missed."""
    evaluation, out = Evaluation(parse(query) if isinstance(query, str) else query), list[PipelineItem]()
    for i, value in enumerate(values):
        wall_time = times[i] if times else float(i)
        if value is None:
            out += evaluation.miss(ordinal=first + i, wall_time=wall_time)
            continue
        head = evaluation.per_event({"x": value})
        out += evaluation.across_events(head, ordinal=first + i, step=float(first + i), wall_time=wall_time)
    return out + evaluation.finish()


def values_of(items: list[PipelineItem]) -> list[Any]:
    return [item.value for item in items]


REDUCERS = {
    "count": len, "sum": sum, "mean": lambda v: float(np.mean(v)), "var": lambda v: float(np.var(v)),
    "std": lambda v: float(np.std(v)), "min": lambda v: float(np.min(v)), "max": lambda v: float(np.max(v)),
    "first": lambda v: v[0], "last": lambda v: v[-1], "median()": lambda v: float(np.median(v)),
    "percentile(50)": lambda v: float(np.median(v)),
    "quantile(0.5)": lambda v: float(np.quantile(v, 0.5)),
    "collect(1000)": list, "top(1)": lambda v: [max(v, key=lambda x: -math.inf if math.isnan(x) else x)],
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCERS)
@settings(max_examples=examples(60), deadline=None)
@given(values=NUMBERS, n=st.integers(1, 12))
def test_a_sliding_window_is_the_reducer_of_the_last_values(name: str, values: list[Any], n: int) -> None:
    call = name if name.endswith(")") else f"{name}()"
    found = values_of(answers(f"on('b').map(lambda b: b.x).rolling({n}).{call}", values))
    wanted = [REDUCERS[name](values[max(0, i - n + 1) : i + 1]) for i in range(len(values))]
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-7)


def test_a_long_sliding_window_forgets_what_has_left() -> None:
    n = 785
    values = np.random.default_rng(0).normal(size=2048).tolist()
    values[5], values[700] = math.inf, math.nan
    found = values_of(answers(f"on('b').map(lambda b: b.x).rolling({n}).mean()", values))
    with np.errstate(all="ignore"):
        wanted = [np.mean(values[max(0, i - n + 1) : i + 1]) for i in range(len(values))]
    np.testing.assert_allclose(found, wanted, rtol=1e-9)
    assert math.isfinite(found[-1])


@pytest.mark.parametrize("reducer", ["mean", "sum", "min", "max"])
@settings(max_examples=examples(60), deadline=None)
@given(
    floats=st.lists(st.none() | st.floats(-1e6, 1e6) | st.sampled_from([math.inf, math.nan]), max_size=30),
    n=st.integers(1, 6),
    odd=st.integers(0, 30),
)
def test_floats_slide_as_other_numbers_do(reducer: str, floats: list[Any], n: int, odd: int) -> None:
    ask = lambda values: answers(f"on('b').map(lambda b: b.x).rolling({n}).{reducer}()", values)  # noqa: E731
    others = [x if x is None else np.float64(x) for x in floats]
    mixed = [*floats[:odd], *others[odd:]]
    for found in (ask(floats), ask(mixed)):
        for one, other in itertools.zip_longest(found, ask(others)):
            np.testing.assert_allclose(one.value, other.value, rtol=1e-12, atol=1e-9)
            assert (one.ordinal, one.complete, one.n_events) == (other.ordinal, other.complete, other.n_events)


@pytest.mark.parametrize("odd", range(1, 12))
def test_a_value_of_another_shape_costs_its_event_alone(odd: int) -> None:
    evaluation, found = Evaluation(parse("on('b').map(lambda b: b.x).rolling(3).sum()")), []
    for i in range(16):
        try:
            head = evaluation.per_event({"x": np.ones(3 if i == odd else 2)})
            found += evaluation.across_events(head, ordinal=i, step=i, wall_time=float(i))
        except EvaluationError:
            evaluation.miss(ordinal=i, wall_time=float(i))
    assert [item.ordinal for item in found] == [i for i in range(16) if i != odd]
    assert all(item.value.tolist() == [3.0, 3.0] for item in found[2:])


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.floats(0, 3), st.integers(-9, 9)), max_size=40))
def test_a_sliding_time_is_the_reducer_of_the_last_seconds(events: list[tuple[float, int]]) -> None:
    times, values = np.cumsum([gap for gap, _ in events]).tolist(), [value for _, value in events]
    found = values_of(answers("on('b').map(lambda b: b.x).rolling('4 s').sum()", values, times=times))
    assert found == [
        sum(v for t, v in zip(times[: i + 1], values, strict=False) if t > times[i] - 4) for i in range(len(values))
    ]


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.floats(-10, 10), max_size=30), st.floats(0.01, 1))
def test_running_reducers_are_loops_of_python(values: list[float], alpha: float) -> None:
    sums, averages = [], []
    total, average = 0.0, None
    for value in values:
        total += value
        sums.append(total)
        average = value if average is None or alpha == 1 else average + alpha * (value - average)
        averages.append(average)
    assert values_of(answers("on('b').map(lambda b: b.x).scan(lambda a, x: a + x, 0.0)", values)) == sums
    assert values_of(answers(on("b").map(lambda b: b.x).ema(alpha), values)) == averages
    differences = values_of(answers("on('b').map(lambda b: b.x).diff()", values))
    assert differences == [b - a for a, b in itertools.pairwise(values)]


INITIAL = "on('b').map(lambda b: b.x).scan(lambda acc, x: 0.9 * acc + 0.1 * x, "


@pytest.mark.parametrize(
    "query",
    [
        INITIAL + "[0, 0, 0])",
        INITIAL + "init=[0.0, 0, 0])",
        on("b").map(lambda b: b.x).scan(lambda acc, x: 0.9 * acc + 0.1 * x, np.zeros(3)),
        on("b")
        .map(lambda b: b.x)
        .reduce(lambda acc, x: {"a": 0.9 * acc["a"] + 0.1 * x}, {"a": np.zeros(3)}, per="run"),
        on("b").map(lambda b: b.x[None]).scan(lambda acc, x: 0.9 * acc + 0.1 * x, np.zeros((1, 3), np.float32)),
    ],
)
def test_an_accumulator_begins_as_an_array(query: Query | str) -> None:
    values = list(np.random.default_rng(0).normal(size=(5, 3)))
    wanted = functools.reduce(lambda acc, x: 0.9 * acc + 0.1 * x, values, np.zeros(3))
    found = answers(query, values)[-1].value
    np.testing.assert_allclose(np.ravel(found["a"] if isinstance(found, dict) else found), wanted)
    if isinstance(query, Query):
        assert parse(str(query)) == query


@pytest.mark.parametrize("init", [np.zeros(901), np.zeros(0), np.zeros(2, complex), np.array(["a"])])
def test_other_arrays_do_not_begin_an_accumulator(init: Any) -> None:
    with pytest.raises(RefusedQueryError, match="1 to 900"):
        on("b").scan(lambda acc, x: acc + x, init)


def test_an_accumulator_keeps_the_shape_of_its_list() -> None:
    with pytest.raises(EvaluationError, match=r"\['int', 'int'\].*int64\[3\]"):
        answers("on('b').map(lambda b: b.x).scan(lambda acc, x: x, [0, 0])", [np.arange(3)])


def test_records_keep_the_numbers_and_steps_of_their_events() -> None:
    found = answers("on('b').where(lambda b: b.x != 3).map(lambda b: b.x).rolling(2).sum()", [1, 2, 3, 4], first=7)
    assert [(item.ordinal, item.step, item.value) for item in found] == [(7, 7.0, 1), (8, 8.0, 3), (10, 10.0, 6)]
    nested = answers("on('b').map(lambda b: b.x).diff().sum(every=3)", [1, 2, 4, 8, 16, 32])
    assert [(item.value, item.n_events) for item in nested] == [(3, 2), (28, 3)]


@pytest.mark.parametrize(
    ("query", "first", "values", "complete"),
    [
        ("scan(lambda a, x: a + x, 0)", 0, [1, 2, None, 4], [True, True, False]),
        ("ema(0.5)", 3, [1, 2], [False, False]),
        ("diff()", 3, [1, 2, 3, None, 5, 6], [True, True, False, True]),
        ("rolling(2).sum()", 3, [1, 2, 3, None, 5, 6], [False, True, True, False, True]),
        ("rolling('2 s').sum()", 3, [1, 2, 3, None, 5, 6, 7, 8], [False, False, True, False, False, True, True]),
    ],
)
def test_what_missed_something_is_not_complete(query: str, first: int, values: list[Any], complete: list[bool]) -> None:
    found = answers(f"on('b').map(lambda b: b.x).{query}", values, first=first)
    assert [item.complete for item in found] == complete


def test_arrays_and_mappings_are_reduced_part_by_part() -> None:
    arrays = [np.arange(3) * i for i in range(4)]
    found = values_of(answers("on('b').map(lambda b: b.x).rolling(2).mean()", arrays))
    np.testing.assert_array_equal(found[-1], np.arange(3) * 2.5)
    found = values_of(answers("on('b').map(lambda b: {'a': b.x, 'b': -b.x}).diff()", [1, 4, 9]))
    assert found == [{"a": 3, "b": -3}, {"a": 5, "b": -5}]


def test_a_window_of_large_arrays_is_refused() -> None:
    with pytest.raises(RefusedQueryError, match="64 MiB, got 76 MiB"):
        answers("on('b').map(lambda b: b.x).rolling(1000).mean()", [np.zeros(10_000)])
    with pytest.raises(QueryError, match=r"1 to 100,000.*got 1000000"):
        on("b").rolling(1_000_000)


def test_where_the_extreme_was_and_how_often_values_come() -> None:
    values = [3, math.nan, 9, 9, 1]
    (found,) = values_of(answers("on('b').map(lambda b: b.x).where(lambda x: x == x).argmax(per='run')", values))
    assert found == {"step": 2.0, "value": 9}
    (found,) = values_of(answers("on('b').map(lambda b: b.x).where(lambda x: x == x).argmin(per='run')", values))
    assert found == {"step": 4.0, "value": 1}
    assert values_of(answers("on('b').rate(every=3)", [0] * 6, times=[0, 1, 4, 5, 5.5, 6])) == [0.5, 2.0]
    assert values_of(answers("on('b').map(lambda b: b.x).distinct(3, every=6)", [2, 1, 2, 1.0, 5, 7])) == [[2, 1, 5]]


def test_the_window_of_the_whole_run_closes_at_its_end() -> None:
    (item,) = answers("on('b').map(lambda b: b.x).mean(per='run')", [1, 2, 6])
    assert (item.value, item.closed, item.complete, item.n_events) == (3.0, True, True, 3)


@pytest.mark.parametrize(
    "text",
    [
        "b.x.rolling(100).mean()", "b.x.ema(0.1)", "b.x.scan(lambda a, x: a + x, 0)", "b.x.mean(per='run')",
        "b.x.rolling('5 min').quantile(0.9).max(every=10)", "on('b').map(lambda b: b.x).diff()",
        "b.x.argmax(per='epoch')", "b.x.distinct(5, every=10)", "on('b').rate(every='1 s')",
        "b.x.mean(by=lambda b: b.label, every=10)", "b.x.count(by=lambda b: b.label)",
    ],
)  # fmt: skip
def test_texts_are_read_as_they_are_written(text: str) -> None:
    query = parse(text)
    assert parse(str(query)) == query
    assert (query.short or str(query)) == text.replace("b.x.quantile", "b.x.quantile")
    assert parse(query.key) == query


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("b.x.rolling(3)", "rolling(100).mean()"),
        ("b.x.rolling(3).mean(every=2)", "after rolling"),
        ("b.x.rolling(0).mean()", "from 1 to 100,000"),
        ("b.x.rolling('3 apples').mean()", "3 apples"),
        ("b.x.ema(2)", "alpha above 0 and at most 1, got 2"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, message: str) -> None:
    with pytest.raises(QueryError) as raised:
        parse(text)
    assert message in str(raised.value)


def grouped(query: str, events: list[dict[str, Any]]) -> list[Any]:
    evaluation, out = Evaluation(parse(query)), list[PipelineItem]()
    for i, event in enumerate(events):
        out += evaluation.across_events(evaluation.per_event(event), ordinal=i, step=float(i), wall_time=float(i))
    return values_of(out + evaluation.finish())


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", 3, True]), st.integers(-9, 9)), max_size=30), st.integers(1, 9))
def test_each_group_has_a_result_of_its_own(pairs: list[tuple[Any, int]], n: int) -> None:
    events = [{"label": label, "x": x} for label, x in pairs]
    wanted = []
    for window in batches(pairs, n):
        groups: dict[str, list[int]] = {}
        for label, x in window:
            groups.setdefault(str(label), []).append(x)
        wanted.append(groups)
    found = grouped(f"on('b').map(lambda b: b.x).collect(by=lambda b: b.label, every={n})", events)
    assert found == wanted
    found = grouped(f"on('b').count(by=lambda b: b.label, every={n})", events)
    assert found == [{key: len(values) for key, values in groups.items()} for groups in wanted]


def batches(items: list[Any], n: int) -> list[list[Any]]:
    return [items[i : i + n] for i in range(0, len(items), n)]


def test_groups_beyond_the_thousandth_share_a_name() -> None:
    found = grouped("on('b').map(lambda b: b.x).sum(by=lambda b: b.x, per='run')", [{"x": i} for i in range(1500)])
    assert len(found[0]) == 1001
    assert found[0]["(others)"] == sum(range(1000, 1500))


def test_a_sliding_window_has_groups() -> None:
    events = [{"k": "ab"[i % 2], "x": i} for i in range(6)]
    assert grouped("on('b').map(lambda b: b.x).rolling(3).max(by=lambda b: b.k)", events)[-1] == {"b": 5, "a": 4}
    assert grouped("on('b').map(lambda b: b.x).argmax(by=lambda b: b.k, every=6)", events) == [
        {"a": {"step": 4.0, "value": 4}, "b": {"step": 5.0, "value": 5}}
    ]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("on('b').map(lambda b: b.x).mean(every=2).max(by=lambda b: b.k)", "by= on the first"),
        ("on('b').map(lambda b: b.x).mean(by='k')", "lambda b: b.loss"),
    ],
)
def test_groups_need_events(query: str, message: str) -> None:
    with pytest.raises(QueryError) as raised:
        parse(query)
    assert message in str(raised.value)


def test_arrays_are_no_keys() -> None:
    with pytest.raises(EvaluationError, match="group by"):
        grouped("on('b').map(lambda b: b.x).sum(by=lambda b: b.k)", [{"k": np.arange(3), "x": 1}])


@pytest.mark.parametrize("reducer", ["sum()", "collect(9)", "quantile(0.5)"])
def test_a_value_that_cannot_be_reduced_costs_itself_alone(reducer: str) -> None:
    evaluation = Evaluation(parse(f"on('b').map(lambda b: b.x).rolling(2).{reducer}"))
    found = []
    for i, x in enumerate([1.0, 2.0, {"a": "text"}, 3.0, 4.0, 5.0]):
        head = evaluation.per_event({"x": x})
        try:
            found += evaluation.across_events(head, ordinal=i, step=float(i), wall_time=float(i))
        except EvaluationError:
            found += evaluation.miss(ordinal=i, wall_time=float(i))
    last = {"sum()": 9.0, "collect(9)": [4.0, 5.0], "quantile(0.5)": 4.5}[reducer]
    assert found[-1].value == last
    assert [item.ordinal for item in found if item.ordinal != 2] == [0, 1, 3, 4, 5]  # a list takes a mapping, too


def test_a_long_sliding_quantile_is_exact() -> None:
    n = 1500  # more than a sketch is exact for
    values = np.random.default_rng(0).normal(size=4000).tolist()
    found = values_of(answers(f"on('b').map(lambda b: b.x).rolling({n}).quantile([0, 0.3, 1])", values))
    wanted = [np.quantile(values[max(0, i - n + 1) : i + 1], [0, 0.3, 1]) for i in range(0, len(values), 97)]
    np.testing.assert_allclose(found[::97], wanted, rtol=1e-12)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, 1, True]) | st.floats(-5, 5), max_size=40),
    st.integers(1, 6),
    st.floats(0, 1),
)
def test_a_sliding_quantile_is_that_of_a_window_of_its_own(values: list[Any], n: int, q: float) -> None:
    found = values_of(answers(on("b").map(lambda b: b.x).rolling(n).quantile(q), values))
    for i, one in enumerate(found):
        alone = Quantiles()
        for value in values[max(0, i - n + 1) : i + 1]:
            alone.add(float(value))
        np.testing.assert_allclose(one, alone.at(q), rtol=1e-12, atol=1e-12)


def test_a_sliding_quantile_goes_on_with_arrays() -> None:
    values = [1.0, 5.0, np.array([2.0, 8.0]), 3.0]
    assert values_of(answers("on('b').map(lambda b: b.x).rolling(3).quantile(1)", values)) == [1.0, 5.0, 8.0, 8.0]


def test_long_distinct_texts_are_within_the_rule_of_harm():
    made = Evaluation(parse("on('batch').map(lambda b: b.x).distinct(limit=100000, every=1000000)"))
    for i in range(15):
        made.number(f"{i:05}" + "x" * 2**20, i, (i, 0.0, None))
    assert made.held_bytes > 15 * 2**20
    with pytest.raises(RefusedQueryError, match="64 MiB"):
        made.number("y" * 2**26, 15, (15, 0.0, None))


def test_a_long_text_is_no_key():
    made = Evaluation(parse("batch.x.mean(by=lambda b: b.k, every=2)"))
    head = made.per_event({"x": 1.0, "k": "k" * 1_001, "step": 0})
    with pytest.raises(EvaluationError, match=r"1,000 characters.*1,001"):
        made.across_events(head, ordinal=0, step=0, wall_time=0.0)


@pytest.mark.parametrize(
    ("chain", "n_refused"),
    [
        ("rolling(100_000).last()", 8_000),
        ("collect(1_000_000, per='run')", 1_290),
        ("distinct(100_000, per='run')", 1_290),
    ],
)
def test_long_texts_are_refused_where_they_would_not_fit(chain: str, n_refused: int) -> None:
    """A window may hold 64 MiB; what does not fit costs its event, and a sliding window says so at the first one."""
    evaluation, n_errors = Evaluation(parse(f"on('b').map(lambda b: b.x).{chain}")), 0
    for i in range(8_000):
        try:
            head = evaluation.per_event({"x": f"{i:04}" * 2_500})
            evaluation.across_events(head, ordinal=i, step=i, wall_time=float(i))
        except RefusedQueryError:
            n_errors += 1
    assert evaluation.held_bytes <= 65 * 2**20
    assert n_errors == n_refused


@pytest.mark.parametrize("chain", ["collect", "collect(limit=50)", "top"])
def test_groups_together_hold_no_more_than_a_window_may(chain: str) -> None:
    arguments, end = chain.partition("(")[::2]
    call = f"{arguments}({end[:-1] + ', ' if end else '100, key=lambda x: len(x), ' if arguments == 'top' else ''}"
    evaluation = Evaluation(parse(f"on('b').map(lambda b: b.x).{call}by=lambda b: b.k, per='run')"))
    n_refused = 0
    for i in range(20_000):
        try:
            head = evaluation.per_event({"x": f"{i:05}" * 2_000, "k": i % 1_000})
            evaluation.across_events(head, ordinal=i, step=i, wall_time=float(i))
        except RefusedQueryError:
            n_refused += 1
    assert n_refused > 10_000  # before, none was, and this took 200 MB
    assert evaluation.held_bytes <= 68 * 2**20


def test_keys_are_copied_where_a_query_is_evaluated_aside() -> None:
    query = parse("on('b').map(lambda b: b.x.sum()).mean(by=lambda b: b.info.key[0], every=1)")
    observables = {"x": np.ones(3), "info": {"key": np.array([7, 8])}, "other": object()}
    copies = copied(observables, paths(query), lambda path, value: snapshot(value))
    observables["x"][:], observables["info"]["key"][:] = 0.0, 0
    evaluation = Evaluation(query)
    (item,) = evaluation.across_events(evaluation.per_event(copies), ordinal=0, step=0, wall_time=0.0)
    assert set(copies) == {"x", "info"}
    assert item.value == {"7": 3.0}


@pytest.mark.parametrize("chain", ["top(5)", "sample(5)", "distinct(100_000)", "histogram()", "collect(100_000)"])
@pytest.mark.parametrize("span", ["100_000", "'1 d'"])
def test_a_window_that_takes_too_long_to_reduce_again_is_refused(chain: str, span: str) -> None:
    meter = Meter(limit_s=1e-3, cpu_s=itertools.count(0.0, 2e-3).__next__)
    evaluation = Evaluation(parse(f"on('b').map(lambda b: b.x).rolling({span}).{chain}"), meter=meter)
    n_answered = 0

    def ask() -> None:
        nonlocal n_answered
        for i in range(2_000):
            evaluation.number(i % 7, i, (float(i), float(i), None))
            n_answered += 1

    with pytest.raises(PriceError, match="every=…"):
        ask()
    assert n_answered == 0 or span == "'1 d'"


@pytest.mark.parametrize("chain", ["quantile(0.5)", "histogram(64)", "top(3, key=lambda v: v[0])"])
def test_arrays_in_a_window_are_priced_from_the_first_one_on(chain: str) -> None:
    """One takes as long as thousands of numbers, so few of them are too many."""
    times_ns = itertools.count(0, 3_000_000)  # each look at the clock finds 3 ms more
    meter = Meter(limit_s=20e-3, cpu_s=lambda: next(times_ns) / 1e9)
    evaluation = Evaluation(parse(f"on('b').map(lambda b: b.x).rolling('1 h').{chain}"), meter=meter)
    n_answered = 0

    def ask() -> None:
        nonlocal n_answered
        for i in range(50):
            evaluation.across_events(evaluation.per_event({"x": np.ones(9) * i}), ordinal=i, step=i, wall_time=float(i))
            n_answered += 1

    with pytest.raises(PriceError, match=r"rolling\(…\)"):
        ask()
    assert n_answered <= 20 // 3


def test_a_long_window_of_the_first_values_reads_those_alone() -> None:
    meter = Meter(limit_s=1e-3, cpu_s=itertools.count(0.0, 1e-6).__next__)
    evaluation = Evaluation(parse("on('b').map(lambda b: b.x).rolling(100_000).collect(100)"), meter=meter)
    records = [record for i in range(2_000) for record in evaluation.number(i, i, (float(i), float(i), None))]
    assert records[-1].value == list(range(100))
    assert records[-1].n_events == 2_000


class Merges:
    """Counts how often parts of mappings are merged: once for each name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n = 0
        wide = numbers.check_alike

        def counted(a: object, b: object) -> None:
            self.n += 1
            wide(a, b)

        monkeypatch.setattr(numbers, "check_alike", counted)


@pytest.mark.parametrize("span", ["1000", "'1000 s'"])
def test_no_event_merges_more_than_a_part_of_a_window_of_mappings(monkeypatch: pytest.MonkeyPatch, span: str) -> None:
    merges, at_most = Merges(monkeypatch), []
    evaluation = Evaluation(parse(f"on('b').map(lambda b: b.x).rolling({span}).var()"))
    for i in range(3_000):
        before = merges.n
        head = evaluation.per_event({"x": {"a": float(i)}})
        (record,) = evaluation.across_events(head, ordinal=i, step=i, wall_time=float(i))
        at_most.append(merges.n - before)
    assert record.value["a"] == pytest.approx(np.var(np.arange(2_000, 3_000)))
    assert max(at_most[1_200:]) <= 30
    assert max(at_most) <= 150


def test_a_time_that_has_passed_costs_nothing_to_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    merges = Merges(monkeypatch)
    evaluation = Evaluation(parse("on('b').map(lambda b: b.x).rolling('1000 s').var()"))
    for i in range(900):
        head = evaluation.per_event({"x": {"a": float(i)}})
        evaluation.across_events(head, ordinal=i, step=i, wall_time=float(i))
    before = merges.n
    head = evaluation.per_event({"x": {"a": 5.0}})
    (record,) = evaluation.across_events(head, ordinal=900, step=900, wall_time=1_895.0)
    assert record.value == {"a": pytest.approx(np.var([896, 897, 898, 899, 5]))}
    assert merges.n - before <= 100


def test_a_mapping_that_takes_long_to_merge_is_refused() -> None:
    meter = Meter(limit_s=1e-3, cpu_s=itertools.count(0.0, 5e-4).__next__)
    evaluation = Evaluation(parse("on('b').map(lambda b: b.x).rolling(1000).mean()"), meter=meter)

    def ask() -> None:
        for i in range(100):
            head = evaluation.per_event({"x": {"a": float(i)}})
            evaluation.across_events(head, ordinal=i, step=i, wall_time=float(i))

    with pytest.raises(PriceError, match="mean of 1,000"):
        ask()


QUICK = st.integers(-5, 5) | st.floats(-5, 5) | st.booleans() | st.sampled_from(["a", "b"])


@settings(max_examples=examples(100), deadline=None)
@given(
    events=st.lists(st.tuples(QUICK, QUICK | st.just(np.float64(2.0)) | st.just(np.array([1.0, 2.0]))), max_size=30),
    chain=st.sampled_from(["mean(by=lambda b: b.k, every=4)", "count(by=lambda b: b.k, every=4)", "last(every=3)",
                           "rolling(3).sum(by=lambda b: b.k)", "collect(by=lambda b: b.k, every=4)"]),
)  # fmt: skip
def test_quick_values_give_the_same_records_as_all_others(events: list[tuple[Any, Any]], chain: str) -> None:
    found = []
    for quickly in (True, False):
        evaluation, records = Evaluation(parse(f"on('b').map(lambda b: b.x).{chain}")), []
        assert evaluation.only is not None
        for i, (key, x) in enumerate(events):
            value = evaluation.only({"k": key, "x": x})
            try:
                if quickly and is_quick(value):
                    made = evaluation.number(value, i, (float(i), float(i), None))
                else:
                    head = evaluation.finish_per_event(value)
                    made = evaluation.across_events(head, ordinal=i, step=float(i), wall_time=float(i))
            except EvaluationError as error:
                records.append(str(error))
                continue
            records += [(one.ordinal, one.step, one.n_events, one.complete, repr(one.value)) for one in made]
        found.append(records)
    assert found[0] == found[1]


def test_events_are_counted_without_a_look_at_their_observables() -> None:
    evaluation = Evaluation(parse("on('b').count(by=lambda b: b.k, every=2)"))
    assert evaluation.only is not None
    assert evaluation.only({"k": "a", "x": object()}) == ("a", None)


def test_a_window_that_is_refused_asks_for_exact_prices() -> None:
    meter = Meter(limit_s=1e-3, model=CostModel())
    assert not meter.model.calibrated
    evaluation = Evaluation(parse("on('b').map(lambda b: b.x).rolling(100_000).top(5)"), meter=meter)
    with pytest.raises(PriceError):
        evaluation.number(1.0, 0, (0.0, 0.0, None))
    assert meter.model.wanted
