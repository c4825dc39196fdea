"""What Plotly's figures hold, compared with what the streams said."""

from __future__ import annotations

import html
import subprocess
import sys
from datetime import datetime

import numpy as np
import plotly.graph_objects as go
import plotly.io as pio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.sources import ListSource
from tests.views import golden

from sightglass.core.columns import Record
from sightglass.core.errors import MissingExtraError, ViewError
from sightglass.core.process.threads import UNTIL_WOKEN
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Text
from sightglass.storage.format.png import encode_png, picture
from sightglass.views import plot
from sightglass.views.choose import VIEWS
from sightglass.views.options import Options
from sightglass.views.series_buffer import SeriesBuffer
from sightglass.views.stream_set import StreamSet
from sightglass.views.surfaces.plotly import PlotlyView
from sightglass.views.surfaces.plotly import view as surface
from sightglass.views.surfaces.plotly.figure_data import FigureData, changed, refresh
from sightglass.views.surfaces.plotly.images import across
from sightglass.views.surfaces.plotly.paint import HEAD, PAINTERS, draw
from sightglass.views.surfaces.plotly.style import DARK, LIGHT, plain


class Stub(ListSource):
    """A source that holds records, and takes more."""

    def __init__(self, *values, tag="loss", steps=None, ended=True, **fields):
        self.tag, self.ended, self.records, self.fields = tag, ended, [], fields
        self.put(*values, steps=steps)

    def put(self, *values, steps=None, **more):
        for i, value in enumerate(values):
            index = len(self.records)
            step = float(index if steps is None else steps[i])
            fields = {"run": "mnist", "wall_time": 1.7e9 + index, **self.fields, **more}
            self.records.append(Record(tag=self.tag, index=index, step=step, value=value, **fields))


def shown(figure):
    """The traces of a figure that have a place in the legend."""
    return [trace for trace in figure.data if trace.showlegend]


def texts(figure):
    """All that a figure says, as a reader sees it."""
    return html.unescape(figure.to_json())


# Lines


def test_line_has_the_points_and_its_name_the_last_value():
    figure = PlotlyView(Stub(3.0, 2.0, 1.5, steps=[10, 20, 30], tag="batch.loss")).figure
    (line,) = figure.data
    assert (line.type, line.mode) == ("scatter", "lines+markers")
    assert line.x.tolist() == [10, 20, 30]
    assert line.y.tolist() == [3, 2, 1.5]
    assert "<b>batch.loss</b>" in figure.layout.title.text
    assert "1.5" in figure.layout.title.text
    assert "mnist · all 3 · step 30 · ended" in figure.layout.title.subtitle.text
    assert figure.layout.xaxis.title.text == "step"
    assert not figure.layout.showlegend


def test_several_lines_have_a_legend_with_values_and_colours_of_their_own():
    figure = PlotlyView([Stub(1.0, 2.0, tag="a"), Stub(3.0, 4.0, tag="b")]).figure
    assert [trace.name for trace in shown(figure)] == ["a  <b>2</b>", "b  <b>4</b>"]
    assert len({trace.line.color for trace in shown(figure)}) == 2
    assert figure.layout.showlegend


def test_runs_have_one_colour_each_and_tags_one_dash():
    runs = [Stub(1.0, 2.0, tag=tag, run=run) for run in ("one", "two") for tag in ("loss", "accuracy")]
    lines = PlotlyView(runs).figure.data
    assert lines[0].line.color == lines[1].line.color != lines[2].line.color == lines[3].line.color
    assert [line.line.dash for line in lines] == ["solid", "dash", "solid", "dash"]


def test_smoothed_line_has_the_raw_one_behind_it():
    raw, line = PlotlyView(Stub(0.0, 1.0, 0.0, 1.0), smooth=0.99).figure.data
    assert raw.y.tolist() == [0, 1, 0, 1]
    assert "rgba" in raw.line.color
    assert raw.showlegend is False
    assert line.y[0] == 0 < line.y[2] < line.y[1] < 1


def test_gap_stays_a_gap_and_is_marked_once():
    values = [1.0] * 10 + [np.nan] * 5 + [2.0] * 10 + [np.inf, -np.inf]
    line, marks = PlotlyView(Stub(*values)).figure.data
    assert np.isnan(line.y[10:15]).all()
    assert line.connectgaps is False
    assert marks.yaxis == "y9"
    assert list(marks.text) == ["loss: NaN, 10 to 14", "loss: +Inf", "loss: -Inf"]
    assert marks.x.tolist() == [12, 25, 26]
    assert list(marks.marker.symbol) == ["x-thin-open", "triangle-up", "triangle-down"]


def test_values_from_a_part_of_their_window_are_marked():
    source = Stub(1.0, 2.0)
    source.put(3.0, complete=False)
    marks = PlotlyView(source).figure.data[-1]
    assert (list(marks.x), list(marks.text)) == ([2.0], ["computed from a part of its window"])


def test_distribution_over_the_steps_is_a_band_that_stops_at_gaps():
    source = Stub(*[Histogram(np.arange(101))] * 2, Histogram([np.nan]), *[Histogram(np.arange(101))] * 2, tag="w")
    band, line, _ = PlotlyView(source, view="line").figure.data
    assert (band.fill, band.showlegend) == ("toself", False)
    parts = np.split(band.y, np.flatnonzero(np.isnan(band.y)))
    assert [len(part[np.isfinite(part)]) for part in parts] == [4, 4, 0]
    assert line.y[0] == pytest.approx(50, abs=1)
    assert (np.nanmin(band.y), np.nanmax(band.y)) == (pytest.approx(10, abs=1), pytest.approx(90, abs=1))


def test_second_axis_is_at_the_right_and_both_are_named():
    loss, accuracy = Stub(1.0, tag="loss"), Stub(90.0, tag="<accuracy>")
    figure = PlotlyView(loss, second=[accuracy]).figure
    assert [trace.yaxis for trace in figure.data] == ["y", "y2"]
    assert (figure.layout.yaxis2.side, figure.layout.yaxis2.overlaying) == ("right", "y")
    assert figure.layout.yaxis.title.text == "loss"
    assert figure.layout.yaxis2.title.text == "&lt;accuracy&gt;"


def test_limits_of_log_axes_are_exponents_of_ten():
    view = PlotlyView(Stub(1.0, 10.0, 0.0, -1.0, steps=[1, 2, 3, 4]), log_x=True, log_y=True, y_limits=(0.1, 100.0),
                      x_limits=(1, 10))  # fmt: skip
    layout = view.figure.layout
    assert (layout.xaxis.type, layout.yaxis.type) == ("log", "log")
    assert list(layout.yaxis.range) == pytest.approx([-1, 2])
    assert list(layout.xaxis.range) == pytest.approx([0, 1])
    assert "2 points at or below zero" in view.notices[0]
    assert "2 points at or below zero" in layout.title.subtitle.text


def test_clip_leaves_outliers_out_of_the_range_but_not_out_of_the_line():
    figure = PlotlyView(Stub(*np.linspace(0, 1, 500).tolist(), 1e6), clip=True).figure
    assert figure.layout.yaxis.range[1] < 2
    assert figure.data[0].y.max() == 1e6


def test_time_of_day_is_a_date_here():
    figure = PlotlyView(Stub(1.0, 2.0), x="wall").figure
    assert figure.layout.xaxis.type == "date"
    assert figure.data[0].x[0] / 1000 == (datetime.fromtimestamp(1.7e9) - datetime(1970, 1, 1)).total_seconds()


def test_frames_are_lines_over_names_of_which_older_ones_fade():
    source = Stub(*[{"a": float(i), "<b>": float(i * i)} for i in range(8)], tag="grads")
    figure = PlotlyView(source, view="line", frames=True, history=3).figure
    assert len(figure.data) == 4
    assert [trace.y.tolist() for trace in figure.data] == [[4, 16], [5, 25], [6, 36], [7, 49]]
    assert list(figure.data[-1].x) == ["a", "&lt;b&gt;"]
    alphas = [float(trace.line.color.split(",")[-1].rstrip(")")) for trace in figure.data[:-1]]
    assert alphas == sorted(alphas)
    assert alphas[0] < alphas[-1] <= 0.5
    assert figure.data[-1].line.color.startswith("#")


def test_frames_of_bars_are_outlines_behind_the_newest():
    source = Stub(*[{"a": float(i), "b": 1.0} for i in range(5)], tag="norms")
    figure = PlotlyView(source, frames=True, history=2).figure
    assert [trace.y.tolist() for trace in figure.data] == [[2, 1], [3, 1], [4, 1]]
    assert {trace.offsetgroup for trace in figure.data} == {"0"}
    assert [trace.marker.color for trace in figure.data[:-1]] == ["rgba(0, 0, 0, 0)"] * 2


# Paths


def test_path_in_x_and_y_marks_its_end():
    line, head = PlotlyView(Stub((0.0, 1.0), (2.0, 3.0), tag="xy")).figure.data
    assert (line.x.tolist(), line.y.tolist()) == ([0, 2], [1, 3])
    assert (head.x.tolist(), head.y.tolist(), head.mode) == ([2], [3], "markers")


def test_scatter_is_points_only():
    (points,) = PlotlyView(Stub((0.0, 1.0), (2.0, 3.0)), view="scatter").figure.data
    assert points.mode == "markers"


def test_notes_are_shown_as_they_are():
    *_, notes = PlotlyView(Stub((0.0, 1.0, "<b>a</b> $x$"), (1.0, 2.0, "b" * 90))).figure.data
    assert html.unescape(notes.text[0]) == "<b>a</b> $x$"
    assert "<" not in notes.text[0]
    assert "$" not in notes.text[0]
    assert len(notes.text[1]) == 40
    assert notes.customdata[1] == "b" * 90


def test_path_in_space():
    line, head = PlotlyView(Stub((0.0, 1.0, 2.0), (3.0, 4.0, 5.0), tag="p")).figure.data
    assert (line.type, line.z.tolist()) == ("scatter3d", [2, 5])
    assert head.z.tolist() == [5]


# Bars and distributions


def test_one_bar_for_each_name_with_its_value():
    view = PlotlyView(Stub({"conv": 1.0, "dense": {"w": -2.5}, "odd": np.nan}, tag="norms"))
    (bars,) = view.figure.data
    assert list(bars.x) == ["conv", "dense/w", "odd"]
    assert bars.y.tolist()[:2] == [1, -2.5]
    assert list(bars.text) == ["1", "-2.5", "NaN"]


def test_many_or_long_names_lie_and_those_beyond_the_limit_are_counted():
    view = PlotlyView(Stub({f"layer{i}/<kernel>": float(i) for i in range(1500)}))
    (bars,) = view.figure.data
    assert bars.orientation == "h"
    assert len(bars.y) == 1000
    assert bars.y[7] == "layer7/&lt;kernel&gt;"
    assert any("500 more names are not drawn" in notice for notice in view.notices)


def test_vector_is_bars_by_place():
    (bars,) = PlotlyView(Stub(np.array([1.0, 2.0, 4.0]))).figure.data
    assert (list(bars.x), bars.y.tolist(), bars.orientation) == (["0", "1", "2"], [1, 2, 4], "v")


def test_histogram_has_the_counts_at_its_bins_and_a_notice_of_non_finite_values():
    view = PlotlyView(Stub(Histogram([0.0] * 2 + [5.0] * 10 + [10.0] * 3 + [np.nan, np.inf], bins=10), tag="w"))
    (bars,) = view.figure.data
    assert bars.y.sum() == 15
    assert bars.y.max() == 10
    assert (bars.x[0] - bars.width[0] / 2, bars.x[-1] + bars.width[-1] / 2) == (0, 10)
    assert view.notices == ("w: 15 values, and 1 NaN, 1 +Inf not shown",)


def test_several_histograms_are_densities_of_one_area():
    view = PlotlyView([Stub(Histogram(np.arange(100.0)), tag="a"), Stub(Histogram([1.0, 2.0]), tag="b")])
    for outline in view.figure.data:
        assert np.trapezoid(outline.y, outline.x) == pytest.approx(1)


def test_numbers_as_a_histogram_are_all_numbers():
    (bars,) = PlotlyView(Stub(1.0, 2.0, 2.0, 3.0), view="histogram").figure.data
    assert bars.y.sum() == 4


def test_ridges_have_the_newest_in_front_at_the_bottom():
    source = Stub(*[Histogram(np.full(10, float(i))) for i in range(60)], tag="w")
    ridges = PlotlyView(source, over="ridge").figure.data
    assert len(ridges) == 40
    assert [ridge.y.min() for ridge in ridges] == list(range(39, -1, -1))
    peaks = [ridge.x[ridge.y.argmax()] for ridge in ridges]
    assert peaks == sorted(peaks)
    assert peaks[-1] == pytest.approx(59, abs=1)


def test_heat_has_a_column_for_each_step_that_sums_to_all():
    source = Stub(*[Histogram(np.linspace(0, i + 1, 50)) for i in range(5)], steps=[0, 10, 20, 30, 40], tag="w")
    (heat,) = PlotlyView(source, over="heat").figure.data
    assert heat.x.tolist() == [0, 10, 20, 30, 40]
    assert np.nansum(heat.z, axis=0) == pytest.approx(np.ones(5))


# Pictures


def test_heat_map_has_row_0_on_top_and_is_diverging_around_zero():
    figure = PlotlyView(Stub(np.array([[1.0, -2.0], [0.5, np.nan]]), tag="k")).figure
    (heat,) = figure.data
    assert heat.z[0].tolist() == [1, -2]
    assert (heat.zmin, heat.zmax) == (-2, 2)
    assert figure.layout.yaxis.autorange == "reversed"
    assert "k: 2 x 2, 1 not finite" in texts(figure)


def test_large_matrix_is_shrunk_and_keeps_its_largest():
    matrix = np.zeros((3000, 700))
    matrix[1234, 567] = -9.0
    view = PlotlyView(Stub(matrix))
    (heat,) = view.figure.data
    assert heat.z.shape == (512, 512)
    assert heat.z.min() == -9
    assert "reduced to 512 x 512 cells" in view.notices[0]


def test_images_stand_in_a_grid_with_captions():
    pictures = np.zeros((6, 8, 8), np.uint8)
    pictures[3] = 255
    figure = PlotlyView(Stub(Images(pictures, tuple(f"<{i}>" for i in range(6))), tag="worst")).figure
    images, captions = figure.layout.images, figure.layout.annotations
    assert all(one.source.startswith("data:image/png;base64,") for one in images)
    assert [html.unescape(one.text) for one in captions] == [f"<{i}>" for i in range(6)]
    assert len({one.x for one in captions}) == len({one.x for one in images}) == across(6, 8, 8)


@pytest.mark.parametrize("n", [1, 5, 40])
def test_captions_have_room_of_their_own_in_pixels(n):
    pictures = Images(np.zeros((n, 8, 12), np.uint8), tuple(map(str, range(n))))
    figure = PlotlyView(Stub(pictures, tag="worst")).figure
    high = figure.layout.height - HEAD
    tops = sorted({one.y for one in figure.layout.images}, reverse=True)
    for image, caption in zip(figure.layout.images, figure.layout.annotations, strict=True):
        below = next((top for top in tops if top < image.y), 0.0)
        assert caption.y == pytest.approx(image.y - image.sizey)
        assert (caption.y - below) * high >= 16  # a line of text of 11 pixels


@pytest.mark.parametrize(
    "value",
    [
        Image(np.zeros((4, 5, 3), np.uint8), "one"),
        np.zeros((4, 5, 4), np.uint8),
        np.zeros((2, 4, 5, 1), np.uint8),
        Images(np.random.default_rng(0).random((3, 4, 5))),
        [(np.zeros((4, 5)), "sampled", 0.5)] * 7,
    ],
)
def test_images_of_every_form(value):
    assert PlotlyView(Stub(value)).figure.layout.images


def test_figure_is_put_into_the_page():
    data = encode_png(np.zeros((2, 3), np.uint8))
    assert picture(data) is not None
    figure = PlotlyView(Stub(Figure(data), tag="f")).figure
    assert figure.layout.images[0].source.startswith("data:image/png;base64,")
    view = PlotlyView(Stub(Figure(b"%PDF", "application/pdf"), tag="f"))
    assert not view.figure.layout.images
    assert view.notices == ("f: application/pdf, 0.0 kB, at step 0, which browsers cannot embed",)


# Words


def test_log_is_a_table_with_the_newest_on_top():
    (table,) = PlotlyView(Stub("one", Text("<b>two</b>"), tag="log")).figure.data
    assert table.type == "table"
    assert [list(column) for column in table.cells["values"]] == [["1", "0"], ["&lt;b&gt;two&lt;/b&gt;", "one"]]


def test_table_of_several_streams_names_them():
    (table,) = PlotlyView([Stub(1.0, tag="a"), Stub(2.0, tag="b")], view="table").figure.data
    assert list(table.header["values"]) == ["step", "time", "stream", "value"]
    assert sorted(table.cells["values"][2]) == ["a", "b"]
    assert list(table.cells.align) == ["right", "left", "left", "right"]


# Names


@given(st.text(max_size=60))
def test_no_name_is_ever_read_as_html_or_tex(name):
    written = plain(name)
    assert not set(written) & set("<>$")
    assert html.unescape(written) == name or "&" in name or not name.isprintable()


@pytest.mark.parametrize("view", sorted(VIEWS))
def test_every_view_escapes_names(view):
    name = "<img src=x onerror=alert(1)> %{y}"
    value = {"line": 1.0, "xy": (1.0, 2.0), "scatter": (1.0, 2.0), "annotated": (1.0, 2.0, name), "line3d": (1.0,) * 3,
             "bars": {name: 1.0}, "histogram": Histogram([1.0]), "heatmap": np.eye(3),
             "images": Image(np.zeros((4, 4), np.uint8), name),
             "picture": Figure(encode_png(np.zeros((2, 2), np.uint8))),
             "sounds": Audio(np.zeros(4), 8_000), "sheet": Table({name: [name]}),
             "log": name, "table": name}[view]  # fmt: skip
    figure = PlotlyView([Stub(value, tag=name), Stub(value, tag="b")], view=view, second=()).figure
    assert view in PAINTERS
    assert "<img" not in figure.to_json().replace("\\u003c", "<")
    templates = [trace.hovertemplate for trace in figure.data if "hovertemplate" in trace and trace.hovertemplate]
    assert all("img" not in template for template in templates)


# Updates


def test_an_updated_figure_equals_a_new_one():
    source = Stub(1.0, 2.0, ended=False)
    view = PlotlyView(source)
    source.put(np.nan, 5.0, np.inf)
    whole = PlotlyView(Stub(1.0, 2.0, np.nan, 5.0, np.inf, ended=False))
    assert view.figure.to_json() == whole.figure.to_json()


@settings(max_examples=examples(30), deadline=None)
@given(st.permutations(["line", "table", "log", "histogram", "bars"]), st.integers(0, 6))
def test_any_drawing_can_follow_any_other(views, n):
    values = [1.0, np.nan, 2.0, -np.inf, 3.0, 4.0][:n]
    figure, old = go.Figure(layout={"template": "none"}), FigureData()
    for i, view in enumerate(views):
        options = Options(smooth=0.5 * (i % 2), clip=i == 1, dark=i == 2, log_y=i == 3)
        streams = StreamSet(Stub(*values, tag=f"s{i}"), view=view, second=(), options=options)
        streams.pull()
        new = draw(streams.scene)
        old = refresh(figure, old, new)
        fresh = go.Figure(layout={"template": "none"})
        refresh(fresh, FigureData(), new)
        assert solid(figure.to_plotly_json()) == solid(fresh.to_plotly_json())


def solid(tree):
    """A figure without what cannot be seen: attributes without a value, and hidden axes."""
    if isinstance(tree, list | tuple):
        return [solid(one) for one in tree]
    if not isinstance(tree, dict):
        return np.nan_to_num(tree, nan=7e77).tolist() if isinstance(tree, np.ndarray) else tree
    kept = {name: solid(value) for name, value in tree.items() if name != "uid"}
    hidden = {name for name, one in kept.items() if isinstance(one, dict) and one.get("visible") is False}
    return {name: value for name, value in kept.items() if value not in ({}, [], (), None) and name not in hidden}


def test_nothing_is_sent_when_nothing_changed():
    streams = StreamSet(
        [Stub(1.0, np.nan, 2.0), Stub(Histogram([1.0]), tag="w")], options=Options(smooth=0.5, clip=True)
    )
    streams.pull()
    one, other = draw(streams.scene), draw(streams.scene)
    assert not changed(one.layout, other.layout)
    assert not any(changed(a, b) for a, b in zip(one.traces, other.traces, strict=True))


def test_only_what_changed_is_sent():
    source = Stub(1.0, 2.0, ended=False, tag="loss")
    streams = StreamSet([source, Stub(3.0, tag="other")])
    streams.pull()
    before = draw(streams.scene)
    source.put(0.5)
    streams.pull()
    after = draw(streams.scene)
    sent = [changed(a, b) for a, b in zip(before.traces, after.traces, strict=True)]
    assert sorted(sent[0]) == ["name", "x", "y"]
    assert sent[1] == {}
    assert sorted(changed(before.layout, after.layout)) == ["title"]


def test_streams_come_and_go():
    a, b = Stub(1.0, 2.0, tag="a"), Stub(3.0, 4.0, tag="b")
    view = PlotlyView(a)
    view.add(b, second=True)
    assert [trace.yaxis for trace in view.figure.data] == ["y", "y2"]
    view.remove(a)
    assert view.sources == (b,)
    assert [trace.y.tolist() for trace in view.figure.data] == [[3, 4]]
    with pytest.raises(ViewError, match="share"):
        view.add(Stub(np.eye(3), tag="kernel"))


def test_a_view_without_records_says_that_it_waits():
    source = Stub(ended=False)
    view = PlotlyView(source)
    assert view.figure.layout.annotations[0].text == "waiting for values …"
    source.put(1.0)
    assert view.figure.layout.annotations == ()
    assert view.figure.data[0].y.tolist() == [1]


def test_close_keeps_the_last_drawing(tmp_path):
    source = Stub(1.0, ended=False)
    view = PlotlyView(source)
    source.put(2.0)
    view.close()
    source.put(3.0)
    view.close()
    assert view.figure.data[0].y.tolist() == [1, 2]
    view.save(tmp_path / "loss.html")
    source.ended = True
    assert view.wait(5)
    assert view.figure.data[0].y.tolist() == [1, 2]


# The widget


@pytest.fixture
def widget(monkeypatch):
    """A view as in a notebook, whose thread does not run: each round is a call."""
    monkeypatch.setattr(surface, "in_notebook", lambda: True)
    monkeypatch.setattr(surface.Worker, "wake", lambda self: None)

    def make(*sources, **options):
        view = PlotlyView(sources, **options)
        sent = []
        names = ["_py2js_update", "_py2js_addTraces", "_py2js_deleteTraces", "_py2js_restyle", "_py2js_relayout"]
        view.figure.observe(lambda change: sent.append(change.new) if change.new else None, names)
        return view, sent

    return make


def test_widget_is_sent_one_message_for_all_that_changed(widget):
    a, b = Stub(1.0, tag="a", ended=False), Stub(2.0, tag="b", ended=False)
    view, sent = widget(a, b)
    assert isinstance(view.figure, go.FigureWidget)
    a.put(3.0, 4.0)
    b.put(5.0)
    assert view.round(0.0) == 0.25
    assert len(sent) == 1
    assert view.figure.data[0].y.tolist() == [1, 3, 4]


def test_widget_is_sent_nothing_when_nothing_came(widget):
    view, sent = widget(Stub(1.0, ended=False))
    assert view.round(0.0) == 0.25
    assert sent == []


def test_widget_rests_when_its_streams_ended(widget):
    source = Stub(1.0, ended=False)
    view, _ = widget(source)
    source.ended = True
    assert view.round(0.0) == UNTIL_WOKEN
    assert "ended" in view.figure.layout.title.subtitle.text


def test_zoom_of_the_viewer_stays_and_shows_every_point(widget):
    values = np.sin(np.arange(50_000)).tolist()
    source = Stub(*values, ended=False)
    view, _ = widget(source, clip=True)
    assert len(view.figure.data[0].x) < 9000
    view.figure.update_layout(xaxis_range=[1000, 1500], yaxis_range=[-0.5, 0.5])
    view.round(0.0)
    assert view.figure.data[0].x.tolist() == list(range(999, 1502))
    source.put(1000.0)
    view.round(0.0)
    assert "1,000" in view.figure.layout.title.text
    assert list(view.figure.layout.xaxis.range) == [1000, 1500]
    assert list(view.figure.layout.yaxis.range) == [-0.5, 0.5]
    view.figure.update_layout(xaxis_autorange=True)
    view.round(0.0)
    assert view.figure.data[0].x[0] == 0


# Outside


def test_plot_chooses_the_surface_and_keeps_it_up_to_date():
    source = Stub(1.0, ended=False)
    view = plot(source, surface="plotly", title="<T>", height=300, dark=True)
    assert isinstance(view, PlotlyView)
    assert (view.figure.layout.height, view.figure.layout.paper_bgcolor) == (300, DARK.background)
    assert "<b>&lt;T&gt;</b>" in view.figure.layout.title.text
    source.put(2.0)
    source.ended = True
    assert view.wait(5)
    assert view.figure.data[0].y.tolist() == [1, 2]
    assert repr(view) == "<PlotlyView of loss: line>"


def test_default_template_of_the_process_is_neither_used_nor_changed(monkeypatch):
    monkeypatch.setattr(pio.templates, "default", "plotly_dark")
    figure = PlotlyView(Stub(1.0)).figure
    assert pio.templates.default == "plotly_dark"
    assert not figure.layout.template.layout.to_plotly_json()
    assert figure.layout.paper_bgcolor == LIGHT.background


def test_wait_gives_up():
    assert not PlotlyView(Stub(1.0, ended=False)).wait(0)


def test_save_writes_one_file_that_needs_no_network(tmp_path):
    PlotlyView(Stub(1.0, 2.0, tag="</script><b>x")).save(tmp_path / "loss.html")
    text = (tmp_path / "loss.html").read_text(encoding="utf-8")
    assert "Plotly.newPlot" in text
    assert 'src="http' not in text
    assert "</script><b>x" not in text


def test_save_refuses_other_formats(tmp_path, monkeypatch):
    view = PlotlyView(Stub(1.0))
    with pytest.raises(ViewError, match=r"\.html.*'\.docx'"):
        view.save(tmp_path / "loss.docx")
    monkeypatch.setattr(surface, "find_spec", lambda name: None)
    with pytest.raises(ViewError, match=r"'loss\.png'.*kaleido"):
        view.save(tmp_path / "loss.png")


def test_missing_plotly_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(MissingExtraError, match=r"surface='plotly'.*'plotly'.*'sightglass\[plot\]'"):
        PlotlyView(Stub(1.0))


@pytest.mark.parametrize("height", [10, "tall"])
def test_height_has_bounds(height):
    with pytest.raises(ViewError, match="120 pixels"):
        PlotlyView(Stub(1.0), height=height)


def test_unknown_option_is_named():
    with pytest.raises(TypeError, match=r"'smoth'.*'smooth'"):
        PlotlyView(Stub(1.0), smoth=0.9)


def test_drawing_needs_no_plotly():
    code = "import sys, sightglass.views.surfaces.plotly.paint; sys.exit('plotly' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_odd_values_everywhere_do_not_stop_it():
    for value in ([np.nan] * 3, [np.inf], [1e308, -1e308], [0.0] * 5, [None, 1.0]):
        for options in ({}, {"log_y": True}, {"clip": True}, {"smooth": 0.9}, {"view": "histogram"}, {"view": "table"}):
            PlotlyView(Stub(*value), **options).figure.to_json()
    changing = PlotlyView(Stub(1.0, "text", np.eye(2), 2.0))
    assert any("2 values not drawn" in notice for notice in changing.notices)
    assert SeriesBuffer(Stub()).kind is None


def test_every_golden_view_is_drawn_light_and_dark_and_what_has_no_picture_is_a_table():
    cells = {}
    for name, make in golden.VIEWS.items():
        for dark in (False, True):
            sources, options = make()
            figure = PlotlyView(sources, dark=dark, **options).figure.to_dict()
            layout = figure["layout"]
            assert figure["data"] or layout.get("images"), name
            assert (layout["paper_bgcolor"] == "#ffffff") == (not dark), name
            cells |= {name: [list(one["cells"]["values"]) for one in figure["data"] if one["type"] == "table"]}
    assert cells["text"] == [[["2", "1", "0"], ["halved the learning rate", "warmed up", "began"]]]
    assert cells["sounds"][0][1][1] == "1 s, 8,000 Hz, stereo, float64, peak 1"
    assert cells["sheet"][0][0] == ["cat", "dog", "", "bird", "horse"]
