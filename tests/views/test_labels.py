"""What views say about themselves: names of axes, and how much of a stream they show."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sources import ListSource

from sightglass.core.columns import Record
from sightglass.core.values import Histogram
from sightglass.views.distributions import evenly
from sightglass.views.labels import Shown, axis_names
from sightglass.views.options import Options
from sightglass.views.scene import scene_of
from sightglass.views.series_buffer import SeriesBuffer
from sightglass.views.sheets import table_of
from sightglass.views.stream_set import StreamSet, shared

pytestmark = pytest.mark.smoke

CASES = json.loads((Path(__file__).parent / "axis_names.json").read_text())  # frontend/test/labels.test.ts reads it too
SHOWN = json.loads((Path(__file__).parent / "shown.json").read_text())  # frontend/test/shown.test.ts reads it too


class Stub(ListSource):
    """A source that is filled by hand."""

    def __init__(self, *values, tag="loss", run="mnist", first=0):
        self.tag, self.run, self.ended = tag, run, False
        self.records = [
            Record(tag=tag, index=first + n, step=10.0 * n, wall_time=1e9 + n, value=value, run=run)
            for n, value in enumerate(values)
        ]


def taken(*sources, view=None, second=(), **options):
    streams = StreamSet(sources, view=view, second=second, options=Options(**options))
    streams.pull()
    return streams.scene


# Axes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["tag"])
def test_axes_have_the_names_in_the_querys_tuple(case):
    assert list(axis_names(case["tag"])) == case["names"]


@given(st.text("(,)['\"] .ab\\", max_size=20))
def test_any_tag_gives_three_names(tag):
    assert len(axis_names(tag)) == 3


def test_streams_that_share_axes_share_their_names_or_have_none():
    one, other = Stub((1.0, 2.0), tag="(batch.epoch, batch.loss)"), Stub((1.0, 2.0), tag="(batch.step, batch.loss)")
    assert taken(one).axes[:2] == ("epoch", "loss")
    assert taken(one, other).axes[:2] == ("x", "y")


def test_two_y_axes_are_named_by_their_lines():
    loss, accuracy = Stub(1.0), Stub(90.0, tag="accuracy")
    scene = taken(loss, accuracy, second=[accuracy])
    assert (scene.side(second=False), scene.side(second=True)) == ("loss", "accuracy")
    assert taken(loss).side(second=False) == ""


# How much is shown


@pytest.mark.parametrize("case", SHOWN, ids=lambda case: case["text"])
def test_a_sentence_says_how_much_is_shown(case):
    given = {name: value for name, value in case.items() if name != "text"}
    assert str(Shown(**given)) == case["text"]


def test_the_subtitle_says_that_all_is_shown():
    assert taken(Stub(*map(float, range(1204)))).subtitle == "mnist · all 1,204 · step 12,030"
    assert taken(Stub(1.0, 2.0), Stub(3.0, tag="b")).subtitle == "mnist · all 3 · step 10"
    assert taken(Stub({"a": 1.0})).subtitle == "mnist · step 0"  # bars: the latest value


def test_a_view_of_the_last_points_says_so():
    scene = taken(Stub(*map(float, range(100))), last=40)
    assert scene.notices == ("loss: last 40 of 100",)
    assert "all" not in scene.subtitle


def test_a_thinned_line_says_so():
    source = Stub(*map(float, range(1000)))
    buffer = SeriesBuffer(source, max_points=64)
    buffer.pull()
    drawn, choice, _ = shared([buffer], None)
    scene = scene_of(drawn, choice=choice)
    every = 2 ** buffer.lines[""].bits
    assert scene.notices == (f"loss: every {every}th of 1,000, extremes kept",)


def test_missing_records_are_not_called_all():
    source = Stub(1.0, 2.0, 3.0)
    del source.records[1]
    scene = taken(source)
    assert scene.notices == ("loss: 1 record missed",)
    assert "all" not in scene.subtitle


# Distributions over steps


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=100), st.integers(2, 50))
def test_some_records_are_chosen_evenly(steps, n_max):
    records = [Record(tag="h", index=i, step=step, wall_time=0.0, value=None) for i, step in enumerate(sorted(steps))]
    found = evenly(records, n_max)
    assert len(found) <= n_max
    assert (found[0], found[-1]) == (records[0], records[-1])
    assert (np.diff([record.index for record in found]) > 0).all()


def test_ridges_cover_what_is_held_and_say_so():
    source = Stub(*[Histogram(np.arange(4.0) + i) for i in range(100)])
    for over, said in (("ridge", ("loss: 40 of 100, evenly over the run",)), ("heat", ())):
        assert taken(source, over=over).notices == said
    steps = [record.step for record in evenly(source.records, 40)]
    assert (steps[0], steps[-1]) == (0.0, 990.0)
    assert max(np.diff(steps)) <= 2 * min(np.diff(steps)) + 10


def test_many_distributions_are_held_evenly():
    source = Stub(*[Histogram([1.0, 2.0])] * 3000)
    scene = taken(source, over="ridge")
    assert scene.notices == ("loss: 40 of 3,000, evenly over the run",)
    steps = [record.step for record in evenly(scene.items[0].values, 40)]
    assert (steps[0], steps[-1]) == (0.0, 29_990.0)
    assert max(np.diff(steps)) < 3 * 29_990 / 39


def test_distributions_that_begin_late_say_so():
    assert taken(Stub(*[Histogram([1.0, 2.0])] * 30, first=270), over="heat").notices == ("loss: last 30 of 300",)


# Tables


def test_a_mapping_is_split_into_columns():
    table = table_of(taken(Stub({"loss": 0.5, "name": "a"}, {"loss": 2.0, "n": 3}), view="table"), 10)
    assert table.names == ("step", "time", "loss", "name", "n")
    assert table.numeric == (True, False, True, False, True)
    assert [row[2:] for row in table.rows] == [("0.5", "a", ""), ("2", "", "3")]


def test_other_values_have_a_column_of_their_own():
    table = table_of(taken(Stub({"value": 1.0}, "text", tag="a"), Stub(2.5, tag="b"), view="table"), 10)
    assert table.names == ("step", "time", "stream", "value", "value")
    assert table.numeric == (True, False, False, True, False)
    assert [(row[0], *row[2:]) for row in table.rows] == [
        ("0", "a", "1", ""),
        ("0", "b", "", "2.5"),
        ("10", "a", "", "text"),
    ]


def test_a_table_of_many_names_counts_those_without_a_column():
    table = table_of(taken(Stub({f"n{i}": float(i) for i in range(100)}), view="table"), 10)
    assert len(table.names) == 26
    assert table.n_more == 76
