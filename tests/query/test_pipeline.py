"""What a pipeline does when events fail, clocks go back, and values are infinite."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

pytestmark = pytest.mark.smoke


def run(text: str, values: list[Any], *, times: list[float] | None = None, failing: tuple[int, ...] = ()) -> list[Any]:
    """Post values as events one second apart; return (ordinal, value, n_events, complete, closed) of the records."""
    evaluation = Evaluation(parse(text))
    items = []
    for i, value in enumerate(values):
        if i not in failing:
            head = evaluation.per_event({"x": value})
            wall_time = float(i) if times is None else times[i]
            items += evaluation.across_events(head, ordinal=i, step=i, wall_time=wall_time)
    items += evaluation.finish()
    return [(item.ordinal, item.value, item.n_events, item.complete, item.closed) for item in items]


def test_an_event_that_failed_leaves_its_group_incomplete_and_closed_in_time() -> None:
    values = list(range(9))
    whole = run("batch.x.sum(every=3)", values)
    assert whole == [(0, 3, 3, True, True), (1, 12, 3, True, True), (2, 21, 3, True, True)]
    assert run("batch.x.sum(every=3)", values, failing=(4,)) == [whole[0], (1, 8, 2, False, True), whole[2]]
    assert run("batch.x.sum(every=3)", values, failing=(2,)) == [(0, 1, 2, False, True), *whole[1:]]
    assert run("batch.x.sum(every=3)", values, failing=(5, 6)) == [
        whole[0],
        (1, 7, 2, False, True),
        (2, 15, 2, False, True),
    ]
    assert run("batch.x.sum(per='epoch')", values, failing=(4,)) == [(0, 32, 8, False, False)]


def test_an_error_in_a_reducer_costs_the_event() -> None:
    evaluation = Evaluation(parse("batch.x.sum(every=2)"))
    records = []
    for i, value in enumerate([1, "text", 2, 3]):
        head = evaluation.per_event({"x": value})
        if i == 1:
            with pytest.raises(EvaluationError, match="got str"):
                evaluation.across_events(head, ordinal=i, step=i, wall_time=i)
        else:
            records += evaluation.across_events(head, ordinal=i, step=i, wall_time=i)
    assert [(item.value, item.complete) for item in records] == [(1, False), (5, True)]


def test_a_clock_that_is_set_back_opens_no_new_group() -> None:
    times = [1.0, 5.0, 11.0, 12.0, 9.0, 13.0, 21.0]
    assert run("batch.count(every='10 s')", [0] * 7, times=times) == [
        (0, 2, 2, True, True),
        (1, 4, 4, True, True),
        (2, 1, 1, False, False),
    ]


@pytest.mark.parametrize("by_s", [-3600.0, -25.0, 25.0, 3600.0])
def test_a_clock_that_is_set_closes_a_group_and_the_next_ones_follow_it(by_s: float) -> None:
    times = [1e9 + i + by_s * (i >= 15) for i in range(60)]
    found = run("batch.count(every='10 s')", [0] * 60, times=times)
    assert sum(item[2] for item in found) == 60
    assert 7 <= len(found) <= 8  # a group of at most ten seconds each, and one that is cut
    assert max(item[2] for item in found) <= 10


@pytest.mark.parametrize(
    "name", ["sum", "mean", "var", "std", "min", "max", "quantile(0.5)", "histogram(4)", "last", "top(1)"]
)
def test_infinite_values_warn_of_nothing(name: str) -> None:
    name, _, args = name.partition("(")
    text = f"on('batch').map(lambda b: b.x).{name}({args.rstrip(')')}{', ' if args else ''}every=2)"
    values = [math.inf, -math.inf, math.nan, 1e308, 1e308, 1e308]
    assert len(run(text, values)) == 3
    if name != "top":
        assert len(run(text, [np.array([value, 1.0]) for value in values])) == 3


def test_large_values_are_refused_where_they_would_be_stored() -> None:
    large = np.zeros(20_000_000, np.float32)
    assert run("batch.x.norm().mean(every=1)", [large]) == [(0, 0.0, 1, True, True)]
    for text in ("batch.x", "batch.x + 0", "(batch.x, 1)", "batch.x.last(every=1)", "batch.x.mean(every=1)"):
        with pytest.raises(RefusedQueryError, match=r"64 MiB, got \d+ MiB"):
            run(text, [large])


def test_conditions_of_windows_and_stages_are_single_values() -> None:
    with pytest.raises(EvaluationError, match=r"bool\[2\]"):
        run("on('batch').where(lambda b: b.x > 0)", [np.zeros(2)])
    with pytest.raises(EvaluationError, match=r"bool\[2\]"):
        run("on('batch').map(lambda b: b.x).sum(when=lambda b: b.x > 0)", [np.zeros(2)])
    with pytest.raises(EvaluationError, match=r"bool\[2\]"):
        run("on('batch').map(lambda b: b.x).last(every=1).where(lambda x: x > 0)", [np.zeros(2)])


def test_a_count_behind_a_reducer_counts_its_leading_empty_groups() -> None:
    evaluation = Evaluation(parse("on('batch').map(lambda b: b.x).count(per='epoch').sum().count(every=1)"))
    items = []
    for i, what in enumerate(("batch", "end", "batch", "epoch", "end", "end")):
        match what:
            case "batch":
                items += evaluation.across_events(evaluation.per_event({"x": 1}), ordinal=i, step=i, wall_time=i)
            case "epoch":
                items += evaluation.boundary("epoch")
            case "end":
                items += evaluation.end_group()
    assert [(item.value, item.step) for item in items] == [(0, 0), (1, 2), (0, 2)]


def test_a_count_that_closes_before_the_groups_it_counts_is_zero() -> None:
    text = "on('batch').collect(when=lambda b: b.x == 3).count(when=lambda b: b.x == 1)"
    assert [value for _, value, *_ in run(text, [0, 1, 2, 3, 1])] == [0, 1, 1]
