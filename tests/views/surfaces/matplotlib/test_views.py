"""What Matplotlib draws: asserted on the artists' data, and on the pixels."""

from __future__ import annotations

import gc
import io
import threading
import tracemalloc
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from matplotlib import pyplot as plt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from tests.profiles import examples

from sightglass.core.columns import of_records
from sightglass.core.errors import MissingExtraError, ViewError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Images
from sightglass.views.choose import VIEWS
from sightglass.views.options import ALARM, LINES, color_map
from sightglass.views.stream_set import StreamSet
from sightglass.views.surfaces.matplotlib import MatplotlibView
from sightglass.views.surfaces.matplotlib import view as module
from sightglass.views.surfaces.matplotlib.figure_painter import FigurePainter
from sightglass.views.surfaces.matplotlib.style import rc_params

# A failing example of any floats is as good as the smallest, and each one takes a second.
WITHOUT_SHRINKING = {
    "suppress_health_check": [HealthCheck.function_scoped_fixture],
    "phases": [Phase.explicit, Phase.reuse, Phase.generate],
}
ANY = np.random.default_rng(0)


def drawn(*sources, **options):
    view = MatplotlibView(sources, window=False, **options)
    view.update()
    view.figure.canvas.draw()
    return view


def pixels(view):
    view.figure.canvas.draw()
    return np.asarray(view.figure.canvas.buffer_rgba())[..., :3].copy()


def has_color(view, color, *, n=20, within=12):
    away = abs(pixels(view).astype(int) - (255 * np.array(to_rgb(color))).round()).max(axis=-1)
    return (away <= within).sum() >= n


def texts(view):
    found = [text.get_text() for text in view.figure.findobj(mpl.text.Text) if text.get_visible()]
    return [text for text in found if text]


def lines(view):
    """The lines that have points, without those of axes, legend and marks."""
    found = [line for axes in view.figure.axes for line in axes.get_lines()]
    return [line for line in found if line.get_linestyle() != "None" and len(line.get_xdata())]


def marks(view, char):
    found = [one for one in view.figure.findobj(Line2D) if one.get_marker() == char and one.get_linestyle() == "None"]
    return [x for one in found for x in one.get_xdata() if one.get_transform() != one.axes.transData]


def main_axes(view):
    return view.figure.axes[0]


# Lines


def test_a_line_has_the_records_as_its_points(stub):
    view = drawn(stub(3.0, 1.0, 2.0))
    (line,) = lines(view)
    assert line.get_xdata().tolist() == [0, 1, 2]
    assert line.get_ydata().tolist() == [3, 1, 2]
    assert line.get_color() == LINES[0]
    assert has_color(view, LINES[0])


def test_each_line_has_its_color_label_and_latest_value(stub):
    view = drawn(stub(1.0, 0.25), stub(2.0, 0.5, tag="val/loss"), title="training")
    assert has_color(view, LINES[0])
    assert has_color(view, LINES[1])
    for text in ("training", "loss  0.25", "val/loss  0.5", "mnist · all 4 · step 1 · ended"):
        assert text in texts(view)


def test_one_line_alone_needs_no_legend_below_its_name(stub):
    text = texts(drawn(stub(1.0, 0.25)))
    assert text.count("loss  0.25") == 1
    assert texts(drawn(stub(1.0), stub(2.0, tag="other")))[:2] != ["loss, other"]


def test_a_spike_among_many_points_is_drawn(stub):
    values = np.zeros(200_000)
    values[71_828] = 7.0
    (line,) = lines(drawn(stub(*values.tolist())))
    assert len(line.get_xdata()) < 10_000
    assert line.get_xdata()[line.get_ydata() == 7.0].tolist() == [71_828]


def test_nan_is_a_gap_with_a_mark_and_infinities_stand_at_the_edges(stub):
    view = drawn(stub(1.0, 2.0, float("nan"), 3.0, float("inf"), 4.0, 5.0, float("-inf"), 6.0))
    (line,) = lines(view)
    assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == [2, 4, 7]
    assert marks(view, "x") == [2]
    assert marks(view, "^") == [4]
    assert marks(view, "v") == [7]
    assert has_color(view, ALARM, n=5)


def test_a_point_between_gaps_is_seen(stub):
    (line,) = lines(drawn(stub(float("nan"), 1.0, float("nan"), 2.0, 3.0)))
    assert line.get_marker() == "o"
    assert line.get_markevery() == [1]


def test_records_made_of_a_part_of_their_window_are_marked(stub):
    assert marks(drawn(stub(1.0, 2.0, complete=False)), "o") == [0, 1]
    assert marks(drawn(stub(1.0, 2.0)), "o") == []


def test_the_raw_line_is_drawn_under_the_smoothed_one(stub):
    values = [4.0, 0.0, 4.0, 0.0]
    raw, smooth = sorted(lines(drawn(stub(*values), smooth=0.999)), key=lambda line: line.get_zorder())
    assert raw.get_ydata().tolist() == values
    assert raw.get_alpha() < 0.5
    assert abs(smooth.get_ydata()[-1] - 2) < 0.5


def test_a_histogram_among_lines_is_a_band(stub):
    source = stub(*[Histogram(ANY.normal(size=200)) for _ in range(5)], tag="grads")
    view = drawn(source, stub(*[0.0] * 5))
    (band,) = [c for c in main_axes(view).collections if len(c.get_paths())]
    x, y = band.get_paths()[0].vertices.T
    assert (x.min(), x.max()) == (0, 4)
    assert y.min() < -0.5 < 0.5 < y.max()
    assert any(
        text.startswith("grads (median, 10–90 %)  ") or text == "grads (median, 10–90 %)" for text in texts(view)
    )


def test_the_second_axis_has_a_scale_of_its_own_at_the_right(stub):
    left, right = stub(0.0, 1.0), stub(0.0, 1e6, tag="tokens")
    view = drawn(left, right, second=[right])
    scales = [axes.get_ylim()[1] for axes in view.figure.axes]
    assert min(scales) < 2
    assert max(scales) > 1e6
    assert "tokens (right)  1,000,000" in texts(view)


def test_limits_and_log_scales_are_as_chosen(stub):
    source = stub(0.001, 0.1, 10.0, -1.0)
    view = drawn(source, log_y=True, x_limits=(1, 2), y_limits=(0.01, 100))
    axes = main_axes(view)
    assert (axes.get_xlim(), axes.get_ylim()) == ((1, 2), (0.01, 100))
    assert axes.get_yscale() == "log"
    assert any("1 point at or below zero not shown on the logarithmic axis" in text for text in texts(view))
    assert main_axes(drawn(source, log_x=True)).get_xscale() == "log"


def test_outliers_are_left_out_of_the_range_when_clipped(stub):
    values = [*ANY.random(999).tolist(), 1e9]
    assert main_axes(drawn(stub(*values))).get_ylim()[1] > 1e9
    assert main_axes(drawn(stub(*values), clip=True)).get_ylim()[1] < 2


def test_wall_time_is_read_as_time_of_day(stub):
    view = drawn(stub(*range(100)), x="wall")
    axis = main_axes(view).xaxis
    assert 3 <= len(axis.get_ticklabels()) <= 8
    assert any(":" in label.get_text() for label in axis.get_ticklabels())  # others say only the seconds
    assert axis.get_offset_text().get_text().startswith("2026-")


def test_frames_fade_the_older_they_are_over_the_names_of_the_newest(stub):
    source = stub(*[{"dense1": float(i), "dense2": i / 2} for i in range(6)], tag="norms")
    view = drawn(source, view="line", frames=True, history=3)
    found = lines(view)
    assert [line.get_ydata().tolist() for line in found] == [[i, i / 2] for i in range(2, 6)]
    alphas = [line.get_alpha() for line in found]
    assert alphas == sorted(alphas)
    assert alphas[-1] == 1
    assert [label.get_text() for label in main_axes(view).get_xticklabels()] == ["dense1", "dense2"]


def test_paths_are_lines_in_x_and_y_and_end_with_a_dot(stub):
    points = [(0.0, 1.0), (2.0, 3.0), (1.0, 5.0)]
    view = drawn(stub(*points))
    (line,) = lines(view)
    assert [*zip(line.get_xdata(), line.get_ydata(), strict=True)] == points
    heads = [one for one in main_axes(view).get_lines() if one.get_marker() == "o" and len(one.get_xdata()) == 1]
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in heads] == [points[-1]]


def test_scattered_points_have_no_line(stub):
    view = drawn(stub((0.0, 1.0), (2.0, 3.0)), view="scatter")
    assert lines(view) == []
    (dots,) = [one for one in main_axes(view).get_lines() if len(one.get_xdata()) == 2]
    assert dots.get_marker() == "o"
    assert has_color(view, LINES[0], n=5, within=70)


def test_notes_stand_at_their_points(stub):
    view = drawn(stub((0.0, 1.0, "begin"), (2.0, 3.0, "end")))
    assert {text.get_text(): text.xy for text in main_axes(view).texts if text.get_text()} == {
        "begin": (0.0, 1.0),
        "end": (2.0, 3.0),
    }


def test_lines_in_space_have_three_dimensions(stub):
    points = [(0.0, 1.0, 2.0), (3.0, 4.0, 5.0)]
    view = drawn(stub(*points))
    axes = main_axes(view)
    assert axes.name == "3d"
    assert [*zip(*axes.get_lines()[0].get_data_3d(), strict=True)] == points
    assert axes.get_zlim()[0] < 2 < 5 < axes.get_zlim()[1]


# Other views


def test_bars_have_the_length_and_the_text_of_their_values(stub):
    view = drawn(stub({"a": 1.5, "b": -2.0, "c": float("nan")}))
    assert [bar.get_width() for bar in main_axes(view).patches] == [1.5, -2.0, 0.0]
    for text in ("a", "b", "c", "1.5", "-2", "NaN"):
        assert text in texts(view)


def test_bars_of_frames_show_where_they_were(stub):
    view = drawn(stub({"a": 1.0}, {"a": 2.0}, {"a": 5.0}), frames=True)
    assert [bar.get_width() for bar in main_axes(view).patches] == [5.0]
    before = [line for line in main_axes(view).get_lines() if line.get_alpha() is not None]
    assert [line.get_xdata()[0] for line in before] == [1.0, 2.0]
    assert before[0].get_alpha() < before[1].get_alpha()


def test_vectors_are_bars_that_stand_side_by_side(stub):
    view = drawn(stub(np.array([1.0, 2.0]), tag="v"), stub(np.array([3.0, 4.0]), tag="w"))
    bars = main_axes(view).patches
    assert [bar.get_height() for bar in bars] == [1, 2, 3, 4]
    assert bars[0].get_x() < bars[2].get_x() < bars[1].get_x()
    assert {"v", "w"} <= {*texts(view)}


def test_ten_thousand_names_are_as_many_bars_as_fit_and_a_count(stub):
    view = drawn(stub({f"layer{i}": 1.0 for i in range(10_000)}))
    n = len(main_axes(view).patches)
    assert 4 <= n < 40
    assert f"… {10_000 - n:,} more" in texts(view)


def test_a_histogram_has_the_counts_and_the_edges(stub):
    histogram = Histogram([1.0, 2.0, 2.0, np.nan], bins=4)
    view = drawn(stub(histogram))
    values, edges, _ = main_axes(view).patches[0].get_data()
    assert values.tolist() == histogram.counts.tolist()
    assert edges.tolist() == histogram.edges.tolist()
    assert "loss  3 values, 1 NaN" in texts(view)


def test_several_histograms_are_densities_over_each_other(stub):
    view = drawn(stub(Histogram(ANY.normal(size=100))), stub(Histogram(ANY.normal(size=1000)), tag="other"))
    steps = [patch.get_data() for patch in main_axes(view).patches[::2]]
    assert [float((values * np.diff(edges)).sum()) for values, edges, _ in steps] == pytest.approx([1, 1])
    assert has_color(view, LINES[0])
    assert has_color(view, LINES[1])


def test_ridges_stand_one_behind_the_other_the_newest_in_front(stub):
    source = stub(*[Histogram(ANY.normal(i, 1, 500)) for i in range(6)], tag="acts")
    view = drawn(source, over="ridge")
    (ridges,) = main_axes(view).collections
    bases = [path.vertices[0, 1] for path in ridges.get_paths()]
    assert bases == [5, 4, 3, 2, 1, 0]
    peaks = [path.vertices[path.vertices[:, 1].argmax(), 0] for path in ridges.get_paths()]
    assert np.corrcoef(peaks, range(6))[0, 1] > 0.9


def test_heat_over_the_steps_has_a_column_for_each(stub):
    source = stub(*[Histogram(ANY.normal(i, 1, 500)) for i in range(6)], tag="acts")
    (mesh,) = main_axes(drawn(source, over="heat")).collections
    shares = mesh.get_array().filled(0)
    assert shares.shape[1] == 6
    assert shares.sum(axis=0) == pytest.approx(np.ones(6))


def test_a_matrix_of_both_signs_diverges_from_zero(stub):
    view = drawn(stub(np.array([[1.0, -4.0], [0.0, 2.0]])))
    (image,) = main_axes(view).images
    assert image.get_clim() == (-4, 4)
    low, high = (color_map(end, diverging=True) / 255 for end in (0.0, 1.0))
    assert has_color(view, low)
    assert image.cmap(1.0)[:3] == pytest.approx(high)
    assert "2 x 2" in texts(view)


def test_non_finite_entries_of_a_matrix_have_a_color_and_are_counted(stub):
    view = drawn(stub(np.array([[1.0, np.nan], [0.5, 2.0]])))
    (image,) = main_axes(view).images
    assert image.get_clim() == (0.5, 2)
    assert has_color(view, "#e050aa")
    assert "2 x 2, 1 not finite" in texts(view)


def test_the_largest_entry_of_a_huge_matrix_is_not_lost(stub):
    matrix = np.zeros((3000, 2000))
    matrix[1234, 567] = 9.0
    (image,) = main_axes(drawn(stub(matrix))).images
    assert image.get_array().max() == 9
    assert image.get_array().size < matrix.size


def test_images_stand_in_a_grid_with_their_captions(stub):
    pictures = np.stack([np.full((4, 4), level) for level in (0.0, 0.25, 0.5, 1.0)])
    view = drawn(stub(Images(pictures, ("one", "two", "three", "four"))))
    images = main_axes(view).images
    assert [image.get_array().mean() for image in images] == [0, 0.25, 0.5, 1]
    assert {"one", "two", "three", "four", "4 images of 4 × 4"} <= {*texts(view)}
    assert has_color(view, (0.25, 0.25, 0.25), n=500, within=2)


def test_images_that_do_not_fit_are_counted(stub):
    view = drawn(stub(Images(ANY.random((900, 8, 8)))))
    n = len(main_axes(view).images)
    assert 30 < n < 900
    assert f"900 images of 8 × 8 · {900 - n} more do not fit" in texts(view)


def test_encoded_figures_are_shown(stub):
    data = io.BytesIO()
    plt.imsave(data, np.full((40, 60, 3), (0.2, 0.8, 0.4)), format="png")
    view = drawn(stub(Figure(data.getvalue())))
    assert has_color(view, (0.2, 0.8, 0.4), n=10_000, within=2)
    told = " ".join(texts(drawn(stub(Figure(b"<svg/>", "image/svg+xml")))))
    assert "cannot show image/svg+xml" in told


def test_logs_and_tables_show_the_last_rows(stub):
    text = texts(drawn(stub(*[f"line {i}" for i in range(99)])))
    assert "line 98" in text
    assert "line 0" not in text
    assert {"step", "time", "a", "b", "1", "x"} <= {*texts(drawn(stub({"a": 1, "b": "x"})))}


def test_a_view_without_values_says_so(stub):
    assert "waiting for values …" in texts(drawn(stub(ended=False)))
    assert "no values" in texts(drawn(stub()))
    assert "no finite value yet …" in texts(drawn(stub(float("nan"), float("nan"))))
    assert "no finite value above zero yet …" in texts(drawn(stub(-1.0), log_y=True))


def test_every_view_is_drawn(stub):
    values = {
        "xy": (1.0, 2.0), "scatter": (1.0, 2.0), "annotated": (1.0, 2.0, "n"), "line3d": (1.0, 2.0, 3.0),
        "heatmap": np.eye(3), "images": Images(np.zeros((2, 3, 3))), "picture": Figure(b""), "log": "x",
        "sounds": Audio(np.zeros(4), 8_000), "sheet": Table({"a": [1, 2]}),
    }  # fmt: skip
    for view in VIEWS:
        shown = drawn(stub(values.get(view, 1.0), values.get(view, 2.0)), view=view)
        assert view in repr(shown)
        assert pixels(shown).std() > 1, view


# Names, notices, themes


def test_names_are_never_read_as_mathematics_or_markup(stub):
    name = r"$\frac{1}{0$<b>&amp;\a_$"
    for source in (stub(1.0, 2.0, tag=name), stub({name: 1.0}), stub({name: 1.0}, {name: 2.0}), stub(name)):
        for options in ({}, {"title": name}):
            view = drawn(source, **options)
            assert any(name in text for text in texts(view))
    frames = drawn(stub({name: 1.0, "b": 2.0}), view="line", frames=True)
    assert any(label.get_text().startswith("$") for label in main_axes(frames).get_xticklabels())


def test_characters_that_no_font_has_do_not_warn(stub):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        view = drawn(stub(1.0, tag="a\U000e0fffb"))
    assert "a□b  1" in texts(view) or "a�b  1" in texts(view)


def test_notices_are_shown_below_the_plot(stub):
    view = drawn(stub(1.0, "text", 2.0))
    assert any("1 value not drawn: expected a number" in text for text in texts(view))


def test_dark_and_light_grounds(stub):
    light, dark = (pixels(drawn(stub(1.0, 2.0), dark=dark)) for dark in (False, True))
    assert light.mean() > 230
    assert dark.mean() < 40


def test_the_ground_follows_the_users_figures(stub):
    with mpl.rc_context({"figure.facecolor": "black"}):
        assert pixels(drawn(stub(1.0, 2.0))).mean() < 40
    assert pixels(drawn(stub(1.0, 2.0))).mean() > 230
    assert pixels(drawn(stub(1.0, 2.0), figure=plt.figure(facecolor="black"))).mean() < 40


def test_settings_of_the_user_stay_and_do_not_matter(stub, tmp_path):
    expected = pixels(drawn(stub(1.0, 2.0), dark=False))
    mine = {"lines.linewidth": 9, "text.usetex": True, "axes.grid": False, "font.size": 30, "figure.figsize": (1, 1)}
    with mpl.rc_context(mine):
        before = dict(mpl.rcParams)
        view = MatplotlibView(stub(1.0, 2.0), dark=False, path=tmp_path / "a.png")
        view.start()
        view.wait()
        view.close()
        assert dict(mpl.rcParams) == before
        found = drawn(stub(1.0, 2.0), dark=False)
    assert np.array_equal(pixels(found), expected)


# Live


def test_new_records_update_the_same_artists(stub):
    source = stub(1.0, 2.0, ended=False)
    view = drawn(source)
    (line,) = lines(view)
    assert view.update() is False
    source.put(5.0)
    assert view.update() is True
    assert lines(view) == [line]
    assert line.get_ydata().tolist() == [1, 2, 5]
    assert main_axes(view).get_ylim()[1] >= 5


def test_streams_are_added_and_removed(stub):
    first, second = stub(1.0, 2.0), stub(3.0, 4.0, tag="other")
    view = drawn(first)
    view.add(second, second=True)
    view.update()
    assert len(lines(view)) == 2
    view.remove(first)
    view.update()
    assert [line.get_ydata().tolist() for line in lines(view)] == [[3, 4]]
    assert view.sources == (second,)
    with pytest.raises(ViewError, match="share a view"):
        view.add(stub("text"))


def test_a_stream_may_turn_into_another_view(stub):
    source = stub(ended=False)
    view = drawn(source)
    for value, name in ((1.0, "line"), (np.eye(3), "line")):
        source.put(value)
        view.update()
        assert name in repr(view)
    assert pixels(view).std() > 1


def test_steps_that_go_back_and_ragged_vectors_are_drawn(stub):
    back = stub(1.0, 2.0, 3.0)
    back.records[2] = back.records[1]
    assert len(lines(drawn(back))) == 1
    ragged = drawn(stub(np.ones(3), np.ones(5), np.ones(2)), view="line", frames=True)
    assert [int(np.isfinite(line.get_ydata()).sum()) for line in lines(ragged)] == [2, 2, 2]


@settings(max_examples=examples(25), deadline=None, **WITHOUT_SHRINKING)
@given(
    values=st.lists(st.floats(width=64), min_size=1, max_size=8),
    options=st.fixed_dictionaries(
        {}, optional={"log_y": st.booleans(), "smooth": st.just(0.5), "clip": st.just(True), "x": st.just("wall")}
    ),
)
def test_any_floats_can_be_drawn(stub, values, options):
    for view in ("line", "histogram", "bars"):
        drawn(stub(*values), view=view, **options)
    drawn(stub(*[(value, 2 * value if abs(value) < 1e300 else value) for value in values]))
    drawn(stub(np.array([values])))


def test_memory_is_flat_over_many_updates(stub):
    source = stub(1.0, 2.0, ended=False)
    view = MatplotlibView(source, window=False, last=100)

    def run(n):
        for i in range(n):
            source.records = source.records[-1:]
            source.put(float(i % 7))
            view.update()

    source.since = lambda cursor: (cursor + 1, of_records(source.records[-1:], tag="loss", run="mnist"))
    tracemalloc.start()
    run(1200)  # what is measured is kept for the last thousand texts
    n_artists, grown = len(view.figure.findobj()), []
    for _ in range(3):
        before = _allocated()
        run(250)
        grown.append(_allocated() - before)
    tracemalloc.stop()
    assert len(view.figure.findobj()) == n_artists
    # Now and then there is one tick more than ever before, and it stays; what leaks grows every time.
    assert min(grown) < 50_000, grown


def _allocated():
    """How much the package and Matplotlib hold, in bytes; the snapshots themselves take memory too."""
    gc.collect()
    held = tracemalloc.take_snapshot().filter_traces(
        [tracemalloc.Filter(True, "*/src/sightglass/*"), tracemalloc.Filter(True, "*/site-packages/matplotlib/*")]
    )
    return sum(one.size for one in held.statistics("filename"))


def test_no_thread_is_started(stub, tmp_path):
    before = threading.active_count()
    view = MatplotlibView(stub(1.0, ended=False), path=tmp_path / "a.png")
    view.start()
    view.wait(0.05)
    assert threading.active_count() == before
    view.close()


# The layout

NAMES = ("train/loss", "a/rather/long/name/of/a/layer/with/everything/in/it/kernel")


def boxes(view):
    """What stands around the plots, and the plots, as boxes in pixels."""
    figure = view.figure
    figure.canvas.draw()
    legend, caption = figure.legends[0], figure._supxlabel
    around = {"legend": legend.get_window_extent(), "caption": caption.get_window_extent()}
    return around, [axes.get_window_extent() for axes in figure.axes]


def apart(one, other):
    return one.x1 <= other.x0 + 1 or other.x1 <= one.x0 + 1 or one.y1 <= other.y0 + 1 or other.y1 <= one.y0 + 1


@pytest.mark.parametrize("size", [(8.0, 4.5), (6.4, 3.0), (3.25, 2.4)])
@pytest.mark.parametrize("n", [1, 4, 12, 40])
@pytest.mark.parametrize("name", NAMES)
def test_a_legend_covers_no_data_and_is_not_cut_off(stub, name, n, size):
    view = drawn(*[stub(*ANY.random(50), tag=f"{name}{i}") for i in range(n)], size=size)
    around, plots = boxes(view)
    for box in around.values():
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= view.figure.bbox.x1
        assert box.y1 <= view.figure.bbox.y1
        assert all(apart(box, plot) for plot in plots)
    assert apart(*around.values())
    # The plot has most of the room.
    assert plots[0].height > 0.3 * view.figure.bbox.height
    assert plots[0].width > 0.7 * view.figure.bbox.width


def test_streams_without_a_place_in_the_legend_are_counted(stub):
    view = drawn(*[stub(1.0, 2.0, tag=f"{NAMES[1]}{i}") for i in range(40)])
    shown = [text.get_text() for text in view.figure.legends[0].get_texts()]
    assert shown[-1] == f"+{41 - len(shown)} more"


def test_the_layout_is_made_again_only_when_something_may_have_moved(stub, monkeypatch):
    runs = []
    execute = ConstrainedLayoutEngine.execute
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda self, fig: (runs.append(1), execute(self, fig)))
    source, figure = stub(*range(100), ended=False), mpl.figure.Figure()
    FigureCanvasAgg(figure)
    streams, params = StreamSet([source]), rc_params(dark=False)
    with mpl.rc_context(params):
        painter = FigurePainter(figure, live=True)

    def n_runs():
        runs.clear()
        streams.pull()
        with mpl.rc_context(params):
            painter.paint(streams.scene, ended=False)
        figure.canvas.draw()
        return len(runs)

    assert n_runs() > 0
    source.put(50.0)  # leaves room ahead
    assert n_runs() > 0
    source.put(51.0)
    assert n_runs() == 0
    source.put(1e9)
    assert n_runs() == 1
    assert n_runs() == 0
    figure.set_size_inches(3, 2)
    assert n_runs() > 0
    streams.add(stub(1.0, tag="other"))
    assert n_runs() > 0


# Figures of others


def test_axes_of_others_are_drawn_in_and_the_rest_stays(stub):
    figure, (left, right) = plt.subplots(1, 2)
    right.plot([1, 2], [3, 4])
    view = MatplotlibView(stub(5.0, 6.0), axes=left)
    view.update()
    assert any(line.get_ydata().tolist() == [5, 6] for line in left.get_lines() if len(line.get_ydata()))
    assert [line.get_ydata().tolist() for line in right.get_lines()] == [[3, 4]]
    assert view.figure is figure
    figure.canvas.draw()


def test_views_that_need_other_axes_take_the_place_of_the_given_ones(stub):
    figure, (left, right) = plt.subplots(1, 2)
    MatplotlibView(stub((1.0, 2.0, 3.0)), axes=left).update()
    (space,) = [axes for axes in figure.axes if axes.name == "3d"]
    assert space.get_position(original=True).bounds == pytest.approx(left.get_position().bounds)
    assert right.axison
    assert not left.axison


def test_a_part_of_a_figure_will_do(stub):
    figure = plt.figure()
    top, _ = figure.subfigures(2, 1)
    MatplotlibView(stub(1.0, 2.0), figure=top).update()
    figure.canvas.draw()
    assert top.axes


@pytest.mark.parametrize("given", ["figure", "axes"])
def test_a_part_of_a_figure_is_saved_with_the_whole(stub, tmp_path, given):
    figure = plt.figure(figsize=(4, 2))
    top, _ = figure.subfigures(2, 1)
    part = {"figure": top} if given == "figure" else {"axes": top.subplots()}
    view = MatplotlibView(stub(1.0, 2.0), path=tmp_path / "written.png", **part)
    view.start()
    view.save(tmp_path / "saved.png")
    written, saved, shown = map(plt.imread, (tmp_path / "written.png", tmp_path / "saved.png", io.BytesIO(view._png())))
    assert np.array_equal(written, saved)
    assert [image.shape[1] / image.shape[0] for image in (saved, shown)] == [2, 2]


# Errors


def test_an_unknown_option_is_refused_with_the_known_ones(stub):
    with pytest.raises(TypeError, match="'smooth'"):
        MatplotlibView(stub(1.0), smoth=1)
    with pytest.raises(ViewError, match="'lines'"):
        MatplotlibView(stub(1.0), view="lines")


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    import importlib
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in [name for name in sys.modules if name.startswith("sightglass.views.surfaces.matplotlib")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(MissingExtraError, match=r"sightglass\[plot\]"):
        importlib.import_module("sightglass.views.surfaces.matplotlib")


def test_without_a_display_the_error_names_the_alternative(stub):
    view = MatplotlibView(stub(1.0))
    with pytest.warns(UserWarning, match="path="):
        view.start()
    with pytest.raises(ViewError, match="window"):
        view.show()
    with pytest.raises(ViewError, match="--out"):
        MatplotlibView(stub(1.0), window=True)


def test_in_a_notebook_with_pictures_it_is_shown_once(stub, monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(display, "display_png", lambda data, raw: shown.append(data))
    monkeypatch.setattr(module, "_is_inline", lambda: True)
    view = MatplotlibView(stub(1.0))
    view.start()
    view.start()
    view.show()
    assert len(shown) == 1
    assert shown[0].startswith(b"\x89PNG")


def test_an_update_that_fails_is_tried_again_and_reaches_no_toolkit():
    from sightglass.views.surfaces.matplotlib.display import Window

    errors, figure = [ZeroDivisionError("odd")], mpl.figure.Figure()
    FigureCanvasAgg(figure)
    n_ticks = []

    def tick():
        n_ticks.append(1)
        if errors:
            raise errors.pop()

    window = Window(figure, animated_artists=list, tick=tick, resized=lambda: None)
    with pytest.warns(RuntimeWarning, match="ZeroDivision"):
        window._on_tick()
    window._on_tick()
    assert (len(n_ticks), window.failures.n) == (2, 1)
