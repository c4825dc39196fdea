"""States of reducers that travel: what several processes send merges to what one process finds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core import codec
from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, RefusedQueryError, WireError
from sightglass.core.values import Histogram
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.query.pipeline import last_reducer
from sightglass.query.query import in_states
from sightglass.query.reduce.states import LAST, MAX_PACKED_BYTES, Numbering, WindowState, pack, unpack
from sightglass.query.reduce.table import reduce_columns, reducer
from sightglass.query.windows import PipelineItem

REDUCERS = [
    "count()", "sum()", "mean()", "var()", "std()", "min()", "max()", "first()", "last()",
    "median()", "percentile(30)", "quantile([0, 0.3, 1])",
    "histogram(9)", "top(3)", "sample(3)", "collect(5)", "argmax()", "argmin()", "distinct(4)", "rate()",
    "mean(by=lambda b: b.k)", "top(2, by=lambda b: b.k)",
]  # fmt: skip
NUMBERS = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6), st.sampled_from([math.nan, math.inf, 0.5]))


def records(text: str, events: list[tuple[int, Any]], numbering: Numbering | None = None) -> list[PipelineItem]:
    """Return what comes out of a query for events of (number, value of x)."""
    query = parse(text)
    evaluation = Evaluation(query if numbering is None else in_states(query, numbering))
    out: list[PipelineItem] = []
    for i, x in events:
        first, stride = numbering or (0, 1)
        at = first + stride * i
        head = evaluation.per_event({"x": x, "k": at % 3})
        out += evaluation.across_events(head, ordinal=i, step=float(at), wall_time=float(at))
    return out + evaluation.finish()


def sent(item: PipelineItem) -> WindowState:
    """Return the state that a client reads of a record."""
    blob, buffers = codec.encode(item.value)
    return WindowState(*codec.decode(blob, [bytes(buffer) for buffer in buffers]))


@pytest.mark.parametrize("call", REDUCERS)
@settings(max_examples=examples(25), deadline=None)
@given(
    values=st.lists(NUMBERS | st.lists(st.integers(0, 9), min_size=2, max_size=2).map(np.array), max_size=30)
    | st.lists(NUMBERS, max_size=60)
    | st.lists(st.fixed_dictionaries({"a": NUMBERS, "b": NUMBERS}), max_size=20),
    size=st.integers(1, 4),
)
def test_the_states_of_several_processes_merge_to_the_answer_of_one(call: str, values: list[Any], size: int) -> None:
    text = f"on('b').map(lambda b: b.x).{call}"
    try:
        whole = records(text, list(enumerate(values)))
    except (EvaluationError, RefusedQueryError):
        return  # such as the largest of arrays: no process answers
    reducer, total = last_reducer(parse(text)), None
    for rank in range(size):
        own = [(i, value) for i, value in enumerate(values[rank::size])]
        for item in records(text, own, Numbering(rank, size)):
            state = unpack(sent(item).state)
            with np.errstate(all="ignore"):  # as those who merge do
                total = state if total is None else reducer.merge(total, state)
    assert (total is None) == (not values)
    if values:
        same(reducer.finish(total), whole[-1].value)


def same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, Histogram):
        np.testing.assert_array_equal(found.counts, wanted.counts)
        np.testing.assert_array_equal(found.edges, wanted.edges)
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key in wanted:
            same(found[key], wanted[key])
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6 if isinstance(wanted, float) else 0)


@pytest.mark.parametrize(("call", "why"), [
    ("mean(every=2).max(every=2)", "only reducer"), ("mean(every=2).map(lambda v: v + 1)", "only reducer"),
    ("rolling(3).mean()", "rolling"), ("ema(0.5)", "ema"), ("diff()", "diff"), ("scan(lambda a, v: a + v, 0)", "scan"),
    ("reduce(lambda a, v: a + v, 0)", "reduce"), ("map(lambda v: v)", "only reducer"),
])  # fmt: skip
def test_what_does_not_merge_is_refused_by_name(call: str, why: str) -> None:
    with pytest.raises(QueryError, match=why):
        in_states(parse(f"on('b').map(lambda b: b.x).{call}"), Numbering())


@pytest.mark.parametrize(("call", "first", "keys"), [
    ("sum(every=3)", 4, [1, 2, 3]), ("sum(every='2 s')", 3, [1, 2, 3, 4]), ("sum(per='run')", 5, [0]),
    ("sum(when=lambda b: b.x % 4 == 0)", 3, [4, 8, LAST]), ("sum(per='epoch')", 0, [LAST]), ("sum()", 0, [LAST]),
])  # fmt: skip
def test_a_window_has_the_same_key_wherever_a_client_joins(call: str, first: int, keys: list[int]) -> None:
    items = records(f"on('b').map(lambda b: b.x).{call}", [(i, i) for i in range(first, 10)], Numbering())
    assert [item.value.key for item in items] == keys


def test_groups_have_the_numbers_of_their_boundaries() -> None:
    for call, close in (("sum(per='epoch')", "boundary"), ("sum()", "end_group")):
        evaluation = Evaluation(in_states(parse(f"on('b').map(lambda b: b.x).{call}"), Numbering()))
        ends = evaluation.boundary if close == "boundary" else lambda name, mark, e=evaluation: e.end_group(mark)
        evaluation.across_events(evaluation.per_event({"x": 1}), ordinal=7, step=7.0, wall_time=0.0)
        assert [item.value[:2] for item in ends("epoch", 4)] == [(4, 1)]
        assert [item.value[:2] for item in ends("epoch", 5)] == [(5, 0)], "a group without a value is not awaited"
        evaluation.across_events(evaluation.per_event({"x": 1}), ordinal=8, step=8.0, wall_time=0.0)
        with pytest.raises(EvaluationError, match="groups"):
            ends("epoch", None)


def test_a_query_in_states_is_another_subscription_with_the_same_sample() -> None:
    query = parse("on('b').map(lambda b: b.x).sample(3, every=10)")
    states = in_states(query, Numbering(1, 8))
    assert len({query, states, in_states(query, Numbering(2, 8))}) == 3
    assert (str(states), states.seed) == (str(query), query.seed)


def test_a_quantile_of_many_values_travels_as_its_sketch() -> None:
    values = np.random.default_rng(0).normal(size=(4, 2_000))
    text = "on('b').map(lambda b: b.x).quantile(0.9)"
    reducer = last_reducer(parse(text))
    total = None
    for rank, own in enumerate(values):
        (item,) = records(text, list(enumerate(own.tolist())), Numbering(rank, 4))
        state = unpack(sent(item).state)
        assert reducer.finish(state) == pytest.approx(reducer.finish(unpack(pack(state))))
        total = state if total is None else reducer.merge(total, state)
    (whole,) = records(text, list(enumerate(values.T.ravel().tolist())))
    assert reducer.finish(total) == pytest.approx(whole.value, rel=1e-6)


@pytest.mark.parametrize("data", [
    ("unknown", 1), ("quantiles",), ("quantiles", (1, 2)), ("bins", ("a", 1, 2, 3, 4, 5, 6)), ("dict", 3), (),
    ("branch",), ("dict", ([], 1)),
])  # fmt: skip
def test_what_is_no_state_is_refused(data: Any) -> None:
    with pytest.raises(WireError, match="reducer"):
        unpack(data)


def test_a_state_that_is_too_large_is_refused() -> None:
    with pytest.raises(RefusedQueryError, match="16 MiB"):
        pack((1, np.zeros(MAX_PACKED_BYTES // 8 + 1)))


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std"])
def test_infinities_of_both_signs_do_not_warn_in_bulk(name):
    """Warnings are errors in tests: before, NumPy's reached the log of the page's server."""
    values = np.array([math.inf, -math.inf])
    columns = Columns(index=0, steps=np.arange(2), wall_times=np.zeros(2), values=values)
    assert math.isnan(reducer(name, {}).finish(reduce_columns(reducer(name, {}), columns)))
