"""The rest of a query: whatever has been done already, the records are those of the whole."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import QueryError
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.query.pipeline import conditions, remaining
from sightglass.query.query import Query
from sightglass.query.windows import PipelineItem

QUERIES = [
    "on('batch').map(lambda b: b.x)",
    "on('batch').map(lambda b: b.x).map(lambda x: x * 2).where(lambda x: x > 3).map(lambda x: -x)",
    "on('batch').where(lambda b: b.x > 1).map(lambda b: b.x)",
    "on('batch').map(lambda b: b.x).where(lambda x: x > 1).mean(every=3)",
    "on('batch').map(lambda b: b.x).sum(every=3).map(lambda x: x + 1).max(every=2)",
    "on('batch').map(lambda b: b.x).sample(2, every=5)",
    "on('batch').map(lambda b: b.x).collect(every='3 s')",
    "on('batch').map(lambda b: b.x).count().last()",
    "on('batch').map(lambda b: b.x).min(per='epoch').mean(per='epoch')",
    "on('batch').map(lambda b: b.x).reduce(lambda acc, x: acc * 2 + x, 1, every=4)",
]
happenings = st.lists(st.integers(-3, 9) | st.sampled_from(["end", "epoch"]), max_size=30)


def drive(pipeline: Any, events: list[Any], post: Any) -> list[Any]:
    out: list[Any] = []
    n = 0
    for event in events:
        if event == "end":
            out += pipeline.end_group()
        elif event == "epoch":
            out += pipeline.boundary("epoch")
        else:
            out += post(event, n)
            n += 1
    out += pipeline.finish()
    return [(i.ordinal, i.step, i.wall_time, i.value, i.n_events, i.complete, i.closed) for i in out]


def whole(query: Query, events: list[Any]) -> list[Any]:
    evaluation = Evaluation(query)

    def post(x: int, n: int) -> list[PipelineItem]:
        return evaluation.across_events(evaluation.per_event({"x": x}), ordinal=n, step=2 * n, wall_time=n + 0.5)

    return drive(evaluation, events, post)


@pytest.mark.parametrize(
    ("text", "n_done"), [(text, n) for text in QUERIES for n in (0, 1) if n == 0 or "where(lambda b" not in text]
)
@given(events=happenings)
def test_what_remains_is_the_whole_query_on_the_event_or_on_the_values_of_the_first_map(
    text: str, n_done: int, events: list[Any]
) -> None:
    query = parse(text)
    pipeline = remaining(query, n_done)

    def post(x: int, n: int) -> list[PipelineItem]:
        return pipeline.post(PipelineItem(n, 2 * n, n + 0.5, x if n_done else {"x": x}), ordinal=n, wall_time=n + 0.5)

    assert drive(pipeline, events, post) == whole(query, events)


@given(events=happenings)
def test_dropped_events_leave_groups_complete_and_failed_events_do_not(events: list[Any]) -> None:
    query = parse("on('batch').where(lambda b: b.x > 1).map(lambda b: b.x).sum(every=3)")
    for held in (True, False):
        pipeline = remaining(query, 2, held=held)

        def post(x: int, n: int, pipeline: Any = pipeline) -> list[PipelineItem]:
            return pipeline.post(PipelineItem(n, 2 * n, n + 0.5, x), ordinal=n, wall_time=n + 0.5) if x > 1 else []

        found = drive(pipeline, events, post)
        expected = whole(query, events)
        assert [(value, closed) for *_, value, _, _, closed in found[:-1]] == [
            (value, closed) for *_, value, _, _, closed in expected[: len(found) - 1]
        ]
        if held and found:
            assert [row[3] for row in found] == [row[3] for row in expected]


def test_everything_done_passes_values_on() -> None:
    query = parse("on('batch').map(lambda b: b.x).where(lambda x: x > 1)")
    item = PipelineItem(0, 0, 0.0, -5)
    assert remaining(query, 2).post(item, ordinal=0, wall_time=0.0) == [item]
    assert remaining(query, 1).post(PipelineItem(0, 0, 0.0, -5), ordinal=0, wall_time=0.0) == []


def test_conditions_are_functions_of_the_event_in_the_order_of_the_windows() -> None:
    query = parse(
        "on('batch').map(lambda b: b.x).sum(when=lambda b: b.a > 1).mean(every=2).max(when=lambda b: b.step == 3)"
    )
    first, second = conditions(query)
    assert (first({"a": 2}), first({"a": 1})) == (True, False)
    assert (second({"step": 3}), second({"step": 4})) == (True, False)
    assert conditions(parse("batch.x.mean(every=3)")) == []
    with pytest.raises(LookupError, match=r"'a'.*'batch'"):
        first({"b": 1})


def test_windows_with_conditions_close_when_they_hold() -> None:
    query = parse("on('batch').map(lambda b: b.x).sum(when=lambda b: b.a > 1).max(when=lambda b: b.a > 2)")
    pipeline = remaining(query, 1)
    out = []
    for n, a in enumerate([0, 2, 0, 3, 0]):
        out += pipeline.post(PipelineItem(n, n, n, 10**n), ordinal=n, wall_time=n, closes=[a > 1, a > 2])
    assert [item.value for item in out] == [1100]
    assert [(item.value, item.closed) for item in pipeline.finish()] == [(10_000, False)]


def test_functions_of_the_run_are_refused() -> None:
    with pytest.raises(QueryError, match="'double'"):
        remaining(parse("on('batch').map(lambda b: double(b.x)).map(lambda x: double(x))"), 1)


def test_functions_of_stages_that_are_done_may_be_unknown() -> None:
    pipeline = remaining(parse("on('batch').map(lambda b: double(b.x)).max(every=2)"), 1)
    pipeline.post(PipelineItem(0, 0, 0.0, 1), ordinal=0, wall_time=0.0)
    assert [item.value for item in pipeline.post(PipelineItem(1, 1, 1.0, 5), ordinal=1, wall_time=1.0)] == [5]
