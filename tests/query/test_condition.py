"""Conditions: the pair of whether one holds, and of the value that it is about."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.core.errors import EvaluationError, QueryError
from sightglass.query.condition import as_condition, holds
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import as_query


def values(query, losses):
    """Return the values of the records that a query has over events with these losses."""
    evaluation, items = Evaluation(query), []
    for i, loss in enumerate(losses):
        items += evaluation.across_events(evaluation.per_event({"loss": loss}), ordinal=i, step=i, wall_time=float(i))
    return [item.value for item in [*items, *evaluation.finish()]]


@pytest.mark.parametrize(
    ("condition", "pairs"),
    [
        ("batch.loss > 3", "(batch.loss > 3, batch.loss)"),
        ("3 < batch.loss", "(3 < batch.loss, batch.loss)"),
        ("abs(batch.loss) >= 3", "(abs(batch.loss) >= 3, abs(batch.loss))"),
        ("isnan(batch.loss)", "(isnan(batch.loss), isnan(batch.loss))"),
        ("(batch.loss > 3) & batch.low", "((batch.loss > 3) & batch.low, (batch.loss > 3) & batch.low)"),
    ],
)
def test_a_comparison_is_about_the_side_that_varies(condition, pairs):
    assert as_condition(condition) == as_query(f"on('batch').map(lambda batch: {pairs})")


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=12), st.floats(-10, 10))
def test_the_pairs_have_what_the_query_says(losses, limit):
    for what in ("batch.loss", "batch.loss.mean(every=2)"):
        plain = values(as_query(f"{what} > {limit!r}"), losses)
        about = values(as_query(what), losses)
        assert values(as_condition(f"{what} > {limit!r}"), losses) == [*zip(plain, about, strict=True)]


def test_of_a_query_that_ends_in_where_every_record_counts():
    query = as_condition(sg.on("batch").map(lambda b: b.loss).where(lambda loss: loss > 1))
    assert values(query, [0.0, 2.0, 0.5, 3.0]) == [(True, 2.0), (True, 3.0)]


def test_of_a_reducer_the_result_counts():
    assert values(as_condition("batch.loss.max(every=2)"), [0.0, 2.0]) == [(2.0, 2.0)]


def test_an_array_is_no_condition():
    with pytest.raises(EvaluationError):
        holds(sg.Record(tag="t", index=0, step=0, wall_time=0.0, value=(np.array([True, False]), 0), run="r"))


@pytest.mark.parametrize("text", ["batch.loss >", "3 > 2", ""])
def test_what_is_no_query_is_refused(text):
    with pytest.raises(QueryError):
        as_condition(text)
