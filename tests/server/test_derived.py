"""Series that charts compute: expressions over tags, and series over a step track or over another series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sightglass as sg
from sightglass.client.recorded import tag_expression
from sightglass.core.columns import Columns
from sightglass.core.errors import QueryError, QuerySyntaxError, UnknownNameError
from sightglass.server.http_errors import Problem
from sightglass.server.runs import derived
from sightglass.server.runs.open_files import OpenFiles
from sightglass.server.runs.scalar_lines import Overview

TAGS = ("train/loss", "val/loss", "loss", "train/loss_scale", "lr", "a b (c)")


@pytest.fixture
def record(tmp_path):
    """Return a function that records calls of `log`, each as (values, step, step tracks), and opens the files."""

    def record(calls, **options):
        with sg.init("run", dir=tmp_path, **options) as run:
            for values, step, *tracks in calls:
                run.log(values, step=step, **(tracks[0] if tracks else {}))
        opened.append(OpenFiles(run.directory))
        return opened[-1]

    opened: list[OpenFiles] = []
    yield record
    for files in opened:
        files.close()


def points(files, text, x="step"):
    """Return the places on x and the values of a series."""
    columns = list(files.derived.get(text, x).blocks())
    return np.concatenate([c.steps for c in columns]).tolist(), np.concatenate([c.values for c in columns]).tolist()


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("train/loss - val/loss", "on('log').map(lambda log: log['train/loss'] - log['val/loss'])"),
        ("train/loss/val/loss", "on('log').map(lambda log: log['train/loss'] / log['val/loss'])"),
        ("train/loss_scale", "on('log').map(lambda log: log['train/loss_scale'])"),
        ("loss.ema(0.1)", "on('log').map(lambda log: log['loss']).ema(0.1)"),
        ("log(loss)", "on('log').map(lambda log: log(log['loss']))"),
        ("a b (c) * 2", "on('log').map(lambda log: log['a b (c)'] * 2)"),
        ("where(loss > inf, loss, lr)", "on('log').map(lambda log: where(log['loss'] > inf, log['loss'], log['lr']))"),
    ],
)
def test_a_tag_in_a_text_stands_for_its_value(text, query):
    found = tag_expression.read(text, TAGS)
    assert sg.parse(query).key == found.query.key


def test_a_text_without_a_tag_is_no_expression():
    assert tag_expression.read("batch.lossy.mean(every=10)", TAGS) is None
    assert tag_expression.read("batch['loss']", TAGS) is None


@pytest.mark.parametrize(
    ("text", "place"),
    [("train/loss - val/los", "val/los"), ("loss + other", "other"), ("loss.foo() + 1", "foo"), ("loss + lr )", ")")],
)
def test_what_is_wrong_is_shown_in_the_text_as_it_was_written(text, place):
    with pytest.raises(QuerySyntaxError) as caught:
        tag_expression.read(text, TAGS)
    assert caught.value.text == text
    assert abs(caught.value.column - text.rindex(place)) <= 1
    assert str(caught.value).splitlines()[1].strip() == text


def test_values_of_different_calls_are_paired_by_their_step(record):
    files = record([({"a": float(i)}, i) for i in range(10)] + [({"b": 10.0 * i}, i) for i in (2, 5, 9, 11)])
    assert points(files, "b - a") == ([2, 5, 9], [18, 45, 81])
    assert points(files, "a - b") == ([2, 5, 9], [-18, -45, -81])
    assert points(files, "a", "b") == ([20, 50, 90], [2, 5, 9])


def test_over_another_series_points_stand_in_its_order(record):
    files = record([({"y": float(i), "x": float((i * 7) % 10)}, i) for i in range(10)])
    xs, ys = points(files, "y", "x")
    assert xs == list(range(10))
    assert all((y * 7) % 10 == x for x, y in zip(xs, ys, strict=True))
    assert points(files, "y", "-x")[0] == list(range(-9, 1))


def test_over_a_step_track_points_are_in_their_own_order_and_records_without_it_are_left_out(record):
    calls = [({"y": float(i)}, i, {"epoch": i // 3}) for i in range(7)]
    files = record([*calls, ({"y": 7.0}, 7), ({"y": 8.0}, 8, {"epoch": 3})])
    xs, ys = points(files, "y", "epoch")
    assert xs[:7] == [0, 0, 0, 1, 1, 1, 2]
    assert np.isnan(xs[7])
    assert ys == list(range(9))
    line = Overview(0)
    series = files.derived.get("y", "epoch")
    line.extend(series)
    shown = line.line(series, x="step", low=-np.inf, high=np.inf, points=100, origin=0)
    assert shown.y.tolist() == [0, 1, 2, 3, 4, 5, 6, 8]


def test_a_reducer_of_the_language_goes_on_over_what_comes_later(tmp_path):
    with sg.init("grows", dir=tmp_path) as run:
        for i in range(5):
            run.log({"a": float(i), "b": 1.0}, step=i)
        run.flush()
        files = OpenFiles(run.directory)
        before = points(files, "(a - b).ema(0.5)")[1]
        assert len(points(files, "a", "b")[0]) == 5
        for i in range(5, 8):
            run.log({"a": float(i), "b": 0.5}, step=i)
        run.flush()
        xs, after = points(files, "(a - b).ema(0.5)")
        assert xs == list(range(8))
        assert after[:5] == before
        assert after[5:] == pytest.approx([3.28125, 4.390625, 5.4453125])
        assert points(files, "a", "b")[0] == [0.5] * 3 + [1.0] * 5
    files.close()


def test_recorded_queries_are_tags_too_and_other_queries_are_answered_as_the_run_answers_them(tmp_path):
    with sg.init("queries", dir=tmp_path, record=["batch.loss"]) as run:
        for i in range(20):
            run.observe("batch", step=i, loss=float(i))
            run.log({"half": i / 2}, step=i)
    files = OpenFiles(run.directory)
    assert points(files, "batch.loss - half") == (list(range(20)), [i / 2 for i in range(20)])
    expected = sg.open(run.directory).stream("batch.loss.mean(every=10)").to_arrays()
    assert points(files, "batch.loss.mean(every=10)") == (expected.steps.tolist(), expected.values.tolist())
    files.close()


def test_a_restart_is_marked_and_pairs_are_of_one_run(tmp_path):
    for n in range(2):
        with sg.init("again", files=sg.Files(into=tmp_path / "again")) as run:
            for i in range(5 * n, 10):
                run.log({"a": 100.0 * n + i}, step=i)
                if i % 2 == n:
                    run.log({"b": 100.0 * n}, step=i)
    files = OpenFiles(run.directory)
    for text in ("a - b", "(a - b).ema(1.0)"):
        xs, ys = points(files, text)
        assert ys == xs == [0, 2, 4, 5, 7, 9]
        assert files.derived.get(text, "step").restarts == (3,)
    files.close()


@pytest.mark.parametrize(
    ("text", "x", "error", "says"),
    [
        ("a - nothing", "step", QuerySyntaxError, "Unknown tag 'nothing'"),
        ("other/x - a", "step", QuerySyntaxError, "Unknown tag 'other/x'"),
        ("other/x - other/y", "step", QuerySyntaxError, "Unknown tag 'other/x'"),
        ("nothing", "step", UnknownNameError, "Unknown tag 'nothing'"),
        ("a", "nothing", QueryError, "Unknown tag 'nothing'"),
        ("a - late", "step", QueryError, "'a - late' at equal steps"),
        ("a", "late", QueryError, "'a' and 'late' at equal steps"),
        ("a[3]", "step", QueryError, "array before [3]"),
        ("(a, a)", "step", Problem, "Expected numbers under '(a, a)', got tuple"),
    ],
)
def test_what_cannot_be_computed_says_why(record, text, x, error, says):
    files = record([({"a": float(i)}, i) for i in range(5)] + [({"late": 1.0}, 100)])
    with pytest.raises(error) as caught:
        files.derived.get(text, x)
    assert says in str(caught.value)


def test_what_is_too_long_to_be_computed_is_refused(record, monkeypatch):
    monkeypatch.setattr(derived, "MAX_RECORDS", 4)
    files = record([({"a": float(i)}, i) for i in range(5)])
    with pytest.raises(Problem, match=r"4 records.*'a' has 5"):
        files.derived.get("a * 2", "step")


numbers = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=50, deadline=None)
@given(st.lists(numbers, min_size=1, max_size=20), st.lists(numbers, min_size=20, max_size=20))
def test_many_steps_at_once_give_what_each_gives_alone(first, second):
    text = "where(a > b, a / b, sqrt(a)) - step + abs(b)"
    found = tag_expression.read(text, ["a", "b"])
    assert found.is_elementwise
    both = [tag_expression.Evaluated(text, found, [Numbers(first), Numbers(second)]) for _ in range(2)]
    both[1]._at_once = None
    many, single = (one.since(0)[1] for one in both)
    np.testing.assert_array_equal(many.steps, single.steps)
    np.testing.assert_allclose(np.asarray(single.values, float), many.values, rtol=1e-12)


class Numbers:
    """A source of numbers."""

    tag, run, ended = "numbers", "run", True

    def __init__(self, values):
        self.values = np.array(values, float)

    def since(self, cursor):
        n = len(self.values)
        rows = np.arange(cursor, n)
        return n, Columns(index=cursor, steps=rows, wall_times=rows.astype(float), values=self.values[cursor:])
