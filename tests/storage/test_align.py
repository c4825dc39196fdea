"""Records that follow upon each other and have the same steps are one moment."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.columns import Record
from sightglass.storage.align import moments

pytestmark = pytest.mark.smoke

RECORDS = st.lists(
    st.builds(
        Record,
        tag=st.sampled_from("abc"),
        index=st.just(0),
        step=st.integers(0, 2),
        wall_time=st.just(0.0),
        value=st.integers(),
        steps=st.sampled_from([{}, {"epoch": 1}]),
    )
)


@given(RECORDS)
def test_nothing_is_lost_or_moved(records):
    found = list(moments(records))
    flat = [(tag, value, moment.step, moment.steps) for moment in found for tag, value in moment.values.items()]
    assert flat == [(record.tag, record.value, record.step, record.steps) for record in records]


@given(RECORDS)
def test_consecutive_rows_cannot_be_joined(records):
    found = list(moments(records))
    for one, other in pairwise(found):
        same = (one.step, one.steps) == (other.step, other.steps)
        assert not same or next(iter(other.values)) in one.values
