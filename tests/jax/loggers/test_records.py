"""Records of logs: numbered, named by their leaves, and put together by steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.columns import Record
from sightglass.jax import logdict
from sightglass.jax.loggers.record_sink import RecordNumbers, together
from sightglass.storage.align import moments


def record(tag, index, step, **steps):
    return Record(tag=tag, index=index, step=step, wall_time=0.0, value=index, steps=steps)


STEPS = st.lists(st.integers(0, 5), max_size=8)


@given(st.dictionaries(st.sampled_from("abc"), STEPS))
def test_together_keeps_every_record_and_the_order_of_each_tag(steps):
    by_tag = {tag: [record(tag, i, step) for i, step in enumerate(own)] for tag, own in steps.items()}
    found = together(by_tag)
    assert {tag: [r for r in found if r.tag == tag] for tag in by_tag} == by_tag
    assert len(found) == sum(map(len, by_tag.values()))


@given(st.dictionaries(st.sampled_from("abc"), STEPS.map(sorted)))
def test_together_sorts_steps_that_do_not_decrease(steps):
    by_tag = {tag: [record(tag, i, step) for i, step in enumerate(own)] for tag, own in steps.items()}
    found = [r.step for r in together(by_tag)]
    assert found == sorted(found)


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sets(st.sampled_from("abc"), min_size=1)), max_size=8, unique_by=lambda e: e[0]
    )
)
def test_logs_of_one_step_stay_together(events):
    by_tag = {tag: [record(tag, i, step) for i, (step, tags) in enumerate(events) if tag in tags] for tag in "abc"}
    found = list(moments(together(by_tag)))
    assert {moment.step: set(moment.values) for moment in found} == dict(events)
    assert len(found) == len(events)


def test_inner_loops_are_not_mixed():
    by_tag = {
        tag: [record(tag, i, i % 2, epoch=i // 2) for i in range(4)] + [record(tag, 4, 1, epoch=1)] for tag in "ab"
    }
    found = [(r.tag, r.step, r.steps["epoch"]) for r in together(by_tag)]
    assert found == [(tag, *at) for at in [(0, 0), (1, 0), (0, 1), (1, 1), (1, 1)] for tag in "ab"]


class Pair(NamedTuple):
    x: object
    y: object


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    w: object
    b: object


def test_leaves_are_tags_and_several_numbers_stay_together():
    one, row = np.ones(1), np.ones((1, 2))
    value = {"layer": Layer(row, one), "pair": Pair(one, one), "point": (one, 2 * one), "list": [row, one]}
    records = RecordNumbers().records(logdict({"v": value}), wall_time=5.0)
    found = {r.tag: np.asarray(r.value).tolist() for r in records}
    assert found == {
        "v/layer/w": [1, 1], "v/layer/b": 1, "v/pair/x": 1, "v/pair/y": 1, "v/point": [1, 2], "v/list/0": [1, 1],
        "v/list/1": 1,
    }  # fmt: skip
    assert {(r.index, r.step, r.wall_time) for r in records} == {(0, 0, 5.0)}


def test_steps_default_to_the_events_numbers():
    numbers = RecordNumbers()
    logs = logdict({"x": np.arange(2)}, n_dropped={"x": np.int32(3)})
    found = [(r.index, r.step) for _ in range(2) for r in numbers.records(logs, wall_time=0.0)]
    assert found == [(3, 3), (4, 4), (8, 8), (9, 9)]
