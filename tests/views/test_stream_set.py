"""What all surfaces share: options, the streams of a view's streams, and the picture that is taken of it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sources import ListSource

from sightglass.core.columns import Record
from sightglass.core.errors import SightglassError, ViewError
from sightglass.core.values import Histogram
from sightglass.views.distributions import over_steps
from sightglass.views.options import Options, options_of
from sightglass.views.scene import frames_of
from sightglass.views.series_buffer import SeriesBuffer
from sightglass.views.smoothing import smooth
from sightglass.views.stream_set import StreamSet

pytestmark = pytest.mark.smoke

X = "'step', 'relative', 'wall', 'index'"


class Stub(ListSource):
    """A source that is filled by hand."""

    def __init__(self, *values, tag="loss", run="mnist", steps=None, **fields):
        self.tag, self.ended, self.run, self.records, self.fields = tag, False, run, [], fields
        self.put(*values, steps=steps)

    def put(self, *values, steps=None):
        for i, value in enumerate(values):
            n = len(self.records)
            step = float(n if steps is None else steps[i])
            more = {"steps": {"tokens": 100 * step}, **self.fields}
            self.records.append(
                Record(tag=self.tag, index=n, step=step, wall_time=50 + 2.0 * n, value=value, run=self.run, **more)
            )


def taken(*sources, second=(), view=None, **options):
    streams = StreamSet(sources, view=view, second=second, options=Options(**options))
    assert streams.pull()
    return streams.scene


def xs(scene):
    return [series.x.tolist() for series in scene.series]


# Options


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({"smooth": 1.0}, "0.9, got 1.0"),
        ({"smooth": float("nan")}, "0.9, got nan"),
        ({"over": "ridges"}, "over 'ridges'. Did you mean 'ridge'?"),
        ({"history": -1}, "at least 0, got -1"),
        ({"last": 1.5}, "at least 0, got 1.5"),
        ({"y_limits": (2, 1)}, "y_limits as (low, high), got (2, 1)"),
        ({"x_limits": (0, float("inf"))}, "two finite numbers, got (0, inf)"),
        ({"y_limits": (0, 1), "log_y": True}, "a logarithmic axis, got (0, 1)"),
        ({"x": ""}, f"{X}, a step track's name, or a stream, got ''"),
        ({"x": 3}, f"{X}, a step track's name, or a stream, got 3"),
    ],
)
def test_invalid_options_are_refused(given_options, expected):
    with pytest.raises(ViewError) as caught:
        Options(**given_options)
    assert expected in str(caught.value)


def test_unknown_options_are_refused_with_the_known_ones():
    with pytest.raises(TypeError, match=r"'smoth'.*'smooth'"):
        options_of({"smoth": 0.5}, surface="terminal", own=("height",))


# x


@pytest.mark.parametrize(
    ("x", "places", "name"),
    [
        ("step", [10, 20, 30], "step"),
        ("index", [0, 1, 2], "record"),
        ("relative", [0, 2, 4], "seconds"),
        ("wall", [50, 52, 54], "time"),
        ("tokens", [1000, 2000, 3000], "tokens"),
    ],
)
def test_x_of_lines_is_as_chosen(x, places, name):
    scene = taken(Stub(1.0, 2.0, 3.0, steps=[10, 20, 30]), x=x)
    assert xs(scene) == [places]
    assert scene.axes == (name, "", "")


def test_records_without_a_step_track_are_left_out():
    source = Stub(1.0, 2.0)
    source.records[0] = Record(tag="loss", index=0, step=0.0, wall_time=0.0, value=1.0)
    scene = taken(source, x="tokens")
    assert xs(scene) == [[100]]


def test_another_stream_can_be_x_matched_by_step():
    tokens = Stub(5.0, 7.0, 9.0, tag="tokens", steps=[0, 2, 3])
    loss = Stub(1.0, 2.0, 3.0, 4.0)
    streams = StreamSet([loss], options=Options(x=tokens))
    streams.pull()
    assert xs(streams.scene) == [[5, 7, 9]]
    assert streams.scene.series[0].y.tolist() == [1, 3, 4]
    assert streams.scene.axes[0] == "tokens"
    loss.put(5.0)
    tokens.put(11.0, steps=[4])
    assert streams.pull()
    assert xs(streams.scene) == [[5, 7, 9, 11]]


def test_another_stream_is_matched_within_epochs_that_repeat_their_steps():
    loss = Stub(*map(float, range(9)), steps=[0, 1, 2] * 3)
    tokens = Stub(100.0, 102.0, 110.0, 112.0, 121.0, tag="tokens", steps=[0, 2, 0, 2, 1])
    streams = StreamSet([loss], options=Options(x=tokens))
    streams.pull()
    assert xs(streams.scene) == [[100, 102, 110, 112, 121]]
    assert streams.scene.series[0].y.tolist() == [0, 2, 3, 5, 7]


def test_a_short_stream_as_x_meets_all_its_partners_in_a_long_one():
    n, at = 20_000, [5_001, 5_002, 5_003, 17_007]
    tokens = Stub(*map(float, at), tag="tokens", steps=at)
    loss = Stub(*map(float, range(n)))
    buffer = SeriesBuffer(loss, x=tokens, max_points=256)
    for _ in range(3):
        buffer.pull()
    assert buffer.lines[""].columns.tolist() == [at, at]


def test_a_view_ends_when_no_partner_can_come_any_more():
    loss, tokens = Stub(1.0, 2.0), Stub(10.0, tag="tokens")
    streams = StreamSet([loss], options=Options(x=tokens))
    streams.pull()
    loss.ended = True
    streams.pull()
    assert not streams.ended
    tokens.put(20.0)
    tokens.ended = True
    streams.pull()
    assert streams.ended
    assert xs(streams.scene) == [[10, 20]]


def test_bands_over_another_stream():
    streams = StreamSet([Stub([1.0, 2.0], [3.0, 4.0])], view="line", options=Options(x=Stub(7.0, 8.0, tag="tokens")))
    streams.pull()
    assert xs(streams.scene) == [[7, 8]]
    assert streams.scene.series[0].y.tolist() == [1.5, 3.5]


def test_only_the_newest_points_are_drawn_if_asked():
    assert xs(taken(Stub(*range(10)), last=3)) == [[7, 8, 9]]


def test_a_close_look_loses_nothing():
    values = np.zeros(100_000)
    values[50_000] = 1.0
    streams = StreamSet([Stub(*values.tolist())])
    streams.pull()
    close = streams.take(visible_x=(49_990.0, 50_010.0), n_pixels=100).series[0]
    assert close.x.tolist() == list(range(49_989, 50_012))
    assert close.y.max() == 1
    assert len(streams.take(n_pixels=100).series[0].x) < 1000


# Lines


def test_smoothing_keeps_the_raw_line_behind():
    [series] = taken(Stub(4.0, 0.0, 0.0), smooth=0.99).series
    assert series.raw.tolist() == [4, 0, 0]
    np.testing.assert_allclose(series.y, smooth([0, 1, 2], [4, 0, 0], 0.99, extent=2.0))
    assert 0 < series.y[2] < series.y[1] < 4


def test_all_lines_of_a_chart_are_smoothed_alike():
    fine = Stub(*[float(i % 2) for i in range(101)])
    coarse = Stub(0.0, 1.0, 0.0, tag="coarse", steps=[40, 50, 60])
    _, alone = taken(fine, coarse, smooth=0.9).series
    np.testing.assert_allclose(alone.y, smooth([40, 50, 60], [0, 1, 0], 0.9, extent=100.0))


def test_a_closer_look_is_smoothed_less():
    streams = StreamSet([Stub(*[float(i) for i in range(1001)])], options=Options(smooth=0.99))
    streams.pull()
    lags = []
    for visible_x in (None, (400.0, 500.0)):
        [series] = streams.take(visible_x=visible_x).series
        lags.append(500 - np.interp(500.0, series.x, series.y))
    assert 0 < lags[1] < lags[0] / 5


def test_what_is_not_drawn_counts_in_the_smoothed_line():
    source = Stub(*[1.0] * 500, *[0.0] * 10)
    [series] = taken(source, smooth=0.999, last=10).series
    assert len(series.y) == 10
    assert series.y[0] > 0.5


def test_distributions_are_one_line_with_a_band():
    rng = np.random.default_rng(0)
    [series] = taken(Stub(*[Histogram(rng.normal(size=1000) + i) for i in range(3)]), view="line").series
    assert (series.low < series.y).all()
    assert (series.y < series.high).all()
    np.testing.assert_allclose(series.y, [0, 1, 2], atol=0.15)


def test_streams_can_be_read_on_a_second_axis():
    loss, accuracy = Stub(1.0), Stub(90.0, tag="accuracy")
    assert [series.second for series in taken(loss, accuracy, second=[accuracy]).series] == [False, True]
    assert [series.label for series in taken(loss, second=[accuracy]).series] == ["loss", "accuracy"]
    streams = StreamSet([loss])
    streams.add(accuracy, second=True)
    streams.pull()
    assert [series.second for series in streams.scene.series] == [False, True]
    streams.remove(accuracy)
    streams.add(accuracy)
    streams.pull()
    assert [series.second for series in streams.scene.series] == [False, False]


def test_runs_have_a_colour_each_and_tags_a_dash_each():
    sources = [Stub(1.0, tag=tag, run=run) for run in ("a", "b") for tag in ("loss", "accuracy")]
    series = taken(*sources).series
    assert len({one.color for one in series[:2]}) == 1
    assert series[0].color != series[2].color
    assert [one.dash for one in series] == [0, 1, 0, 1]
    alone = taken(*sources[:2]).series
    assert len({one.color for one in alone}) == 2
    assert {one.dash for one in alone} == {0}


def test_lines_of_mappings_do_not_take_each_other_s_colours():
    names, loss = Stub({"a": 1.0, "b": 2.0}, tag="norms"), Stub(1.0)
    series = taken(names, loss).series
    assert [one.label for one in series] == ["norms · a", "norms · b", "loss"]
    assert len({one.color for one in series}) == 3


# Frames


def test_frames_fade_and_only_the_newest_has_a_name():
    scene = taken(Stub(*[{"dense": float(i), "out": 2.0 * i} for i in range(5)]), view="line", frames=True, history=3)
    assert scene.categories == ("dense", "out")
    assert [series.y.tolist() for series in scene.series] == [[1, 2], [2, 4], [3, 6], [4, 8]]
    assert [series.label for series in scene.series] == ["", "", "", "loss"]
    alphas = [series.alpha for series in scene.series]
    assert alphas == sorted(alphas)
    assert alphas[-1] == 1
    assert alphas[-2] < 0.5


def test_frames_of_vectors_have_their_indices_as_categories_and_a_missing_name_is_a_gap():
    assert taken(Stub(np.array([3.0, 1.0])), view="line", frames=True).categories == ("0", "1")
    scene = taken(Stub({"a": 1.0}, {"a": 2.0, "b": 3.0}), view="line", frames=True)
    np.testing.assert_array_equal(scene.series[0].y, [1, np.nan])


def test_kept_frames_are_bounded_in_number_and_bytes():
    streams = StreamSet([Stub(*[{"a": float(i)} for i in range(1000)])])
    streams.pull()
    [item] = streams.scene.items
    assert 64 <= len(item.values) <= 256
    assert item.values[0].index == 0
    assert [record.value["a"] for _, record in frames_of(item, 2)] == [997, 998, 999]
    large = StreamSet([Stub(*[np.zeros((1024, 1024)) for _ in range(8)])])
    large.pull()
    assert 1 <= len(large.scene.items[0].values) <= 4
    assert large.scene.items[0].values[-1].index == 7


# Distributions


def test_distributions_over_the_steps_keep_every_count():
    rng = np.random.default_rng(1)
    values = [rng.normal(i, 1 + i, size=500 + i) for i in range(4)]
    records = Stub(*[Histogram(value) for value in values]).records
    over = over_steps(records, n_bins=20)
    assert over.counts.shape == (4, 20)
    np.testing.assert_allclose(over.counts.sum(axis=1), [500, 501, 502, 503])
    assert over.edges[0] == min(value.min() for value in values)
    middles = (over.edges[1:] + over.edges[:-1]) / 2
    for i, value in enumerate(values):
        assert (over.counts[i] * middles).sum() / len(value) == pytest.approx(value.mean(), abs=0.3)
    assert over_steps(Stub(Histogram([np.nan])).records) is None
    assert over_steps(Stub(np.array([2.0, 2.0])).records).counts.sum() == 2


# Life


def test_a_stream_that_cannot_share_the_view_is_refused_and_changes_nothing():
    streams = StreamSet([Stub(1.0)])
    with pytest.raises(SightglassError, match="share a view"):
        streams.add(Stub(np.zeros((2, 2)), tag="kernel"), second=True)
    streams.pull()
    assert len(streams.sources) == len(streams.scene.series) == 1


def test_pulling_while_another_thread_pulls_changes_nothing():
    streams = StreamSet([Stub(1.0)])
    with streams._lock:
        assert not streams.pull()
    assert streams.pull()


def test_pulling_without_new_records_changes_nothing():
    source = Stub(1.0)
    streams = StreamSet([source])
    assert streams.pull()
    assert not streams.pull()
    source.put(2.0)
    assert streams.pull()
    assert streams.scene.series[0].y.tolist() == [1, 2]


# Failures


class Failing(Stub):
    """A source with a stage that fails from the third record on."""

    def since(self, cursor):
        if len(self.records) > 2:
            raise ZeroDivisionError("division by zero")
        return super().since(cursor)


def test_a_stage_that_fails_ends_its_stream_and_no_other():
    bad, good = Failing(1.0, 2.0, tag="bad"), Stub(1.0, tag="good")
    streams = StreamSet([bad, good])
    assert streams.pull()
    bad.put(3.0)
    good.put(4.0)
    assert streams.pull()
    good.put(5.0)
    assert streams.pull()
    assert [len(series.x) for series in streams.scene.series] == [2, 3]
    [notice] = streams.scene.notices
    assert notice.endswith("ZeroDivisionError: division by zero")
    assert not streams.ended
    good.ended = True
    assert streams.pull()
    assert streams.ended


class Odd:
    """A value that cannot be read: it says that it is an array."""

    shape, dtype, ndim = (2,), np.dtype("f8"), 1

    def __array__(self, *_, **__):
        raise RecursionError("no end")

    def __repr__(self):
        raise OSError("closed")

    __str__ = __repr__

    def __array_namespace__(self, **_):
        return np


def test_a_value_that_cannot_be_read_costs_its_record():
    source = Stub(1.0, 2.0)
    streams = StreamSet([source])
    streams.pull()
    source.put(Odd(), 3.0, Odd(), 4.0)
    assert streams.pull()
    [series] = streams.scene.series
    assert series.y.tolist() == [1.0, 2.0, 3.0, 4.0]
    [notice] = streams.scene.notices
    assert "2 values not drawn" in notice


def test_a_scene_that_cannot_be_drawn_is_drawn_again(monkeypatch):
    source = Stub(1.0)
    streams = StreamSet([source])
    update, errors = streams._update, [MemoryError("no room")]

    def fail():
        if errors:
            raise errors.pop()
        update()

    monkeypatch.setattr(streams, "_update", fail)
    with pytest.raises(MemoryError):
        streams.pull()
    assert streams.pull()
    assert [series.y.tolist() for series in streams.scene.series] == [[1.0]]
    assert not streams.pull()
