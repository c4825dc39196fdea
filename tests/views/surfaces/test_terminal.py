"""What the terminal shows: asserted on the drawing in plain text."""

from __future__ import annotations

import io
import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.profiles import examples
from tests.sources import ListSource
from tests.waiting import wait_until

from sightglass.core.columns import Record
from sightglass.core.errors import RunLostError, ViewError
from sightglass.core.source import Source
from sightglass.core.values import Figure, Histogram, Images, Text
from sightglass.views import plot
from sightglass.views.choose import choose
from sightglass.views.options import LINES, rgb
from sightglass.views.scales import Axis, axis_of, number
from sightglass.views.scene import scene_of
from sightglass.views.series_buffer import Points, SeriesBuffer
from sightglass.views.surfaces.terminal import TerminalView
from sightglass.views.surfaces.terminal.blocks import half_blocks
from sightglass.views.surfaces.terminal.live_display import live_display_of


class Stub(ListSource):
    """A source that holds records, and takes more."""

    def __init__(self, *values, tag="loss", steps=None, ended=True, **fields):
        self.tag, self.ended, self.records, self.fields = tag, ended, [], fields
        self.put(*values, steps=steps)

    def put(self, *values, steps=None):
        for i, value in enumerate(values):
            index = len(self.records)
            step = float(index if steps is None else steps[i])
            fields = {"run": "mnist", **self.fields}
            self.records.append(Record(tag=self.tag, index=index, step=step, wall_time=0.0, value=value, **fields))


def is_braille(char):
    return 0x2800 < ord(char) < 0x2900


def plot_rows(text):
    """The rows of the canvas of a chart with axes, without what stands left of the axis."""
    return [
        row[min(row.find(c) for c in "│┤" if c in row) + 1 :] for row in text.split("\n") if "│" in row or "┤" in row
    ]


def drawn(row):
    return [column for column, char in enumerate(row) if is_braille(char)]


def console(width=80, **options):
    return Console(file=io.StringIO(), width=width, height=24, **options)


def test_stub_is_a_source():
    assert isinstance(Stub(1.0), Source)


# Lines


def test_rising_line_has_its_largest_value_top_right_and_smallest_bottom_left():
    rows = plot_rows(str(TerminalView(Stub(*np.linspace(0, 1, 100).tolist()))))
    assert max(drawn(rows[0])) >= len(rows[0].rstrip()) - 1
    assert min(drawn(rows[-1])) == 0
    assert max(drawn(rows[-1])) < len(rows[0]) // 4


def test_spike_among_many_points_reaches_the_top_at_its_place():
    values = np.zeros(200_000)
    values[50_000] = 5.0
    rows = plot_rows(str(TerminalView(Stub(*values.tolist()))))
    assert drawn(rows[0])
    assert abs(drawn(rows[0])[0] / 75 - 0.25) < 0.03
    assert len(drawn(rows[-1])) > 60


def test_gap_is_not_crossed_and_marked_on_the_axis():
    values = [1.0] * 40 + [np.nan] * 20 + [1.0] * 40
    text = str(TerminalView(Stub(*values)))
    line = next(row for row in plot_rows(text) if drawn(row))
    inside = [column for column in drawn(line) if 0.42 < column / 75 < 0.58]
    axis = next(row for row in text.split("\n") if "└" in row)
    assert not inside
    assert axis.count("×") > 10
    assert 0.38 < (axis.index("×") - axis.index("└")) / 75 < 0.45


def test_none_is_a_gap_too():
    axis = next(row for row in str(TerminalView(Stub(1.0, None, 2.0))).split("\n") if "└" in row)
    assert axis.count("×") == 1


def test_infinities_are_arrows_at_the_edges():
    rows = plot_rows(str(TerminalView(Stub(0.0, np.inf, 1.0, -np.inf, 0.5))))
    assert "▲" in rows[0]
    assert "▼" in rows[-1]


def test_a_single_point_is_visible():
    assert any(drawn(row) for row in plot_rows(str(TerminalView(Stub(0.5)))))


def test_several_lines_have_a_legend_with_their_latest_values():
    text = str(TerminalView([Stub(1.0, 0.25, tag="train"), Stub(1.0, 0.75, tag="val")]))
    assert "━━ train 0.25   ━━ val 0.75" in text


def test_latest_value_is_worth_more_room_than_the_name_of_the_run():
    out = console(width=30)
    out.print(TerminalView(Stub(0.25, tag="batch.loss"), console=out).render())
    first = out.file.getvalue().split("\n")[0]
    assert "batch.loss 0.25" in first
    assert first.endswith("ended")


def test_equal_tags_are_distinguished_by_run():
    text = str(TerminalView([Stub(1.0, run="a"), Stub(2.0, run="b")]))
    assert "a · loss 1" in text
    assert "b · loss 2" in text


def test_an_exponential_is_straight_on_a_log_axis_and_hidden_points_are_counted():
    values = np.exp(-np.arange(60) / 6.0).tolist()
    rows = plot_rows(str(TerminalView(Stub(*values), log_y=True)))
    middle = [np.mean(drawn(row)) for row in rows]
    assert np.ptp(np.diff(middle)) < 2
    hidden = str(TerminalView(Stub(*values, 0.0, -1.0), log_y=True))
    assert "2 points at or below zero" in hidden


@pytest.mark.parametrize(("closed", "complete", "said"), [(False, True, "(open)"), (True, False, "(partial)")])
def test_open_and_partial_records_are_labelled(closed, complete, said):
    assert said in str(TerminalView(Stub(1.0, 2.0, closed=closed, complete=complete)))
    assert said not in str(TerminalView(Stub(1.0, 2.0)))


def test_partial_records_are_marked_on_the_axis():
    source = Stub(1.0, 2.0, 3.0)
    source.records[1] = Record(tag="loss", index=1, step=1.0, wall_time=0.0, value=2.0, complete=False)
    assert str(TerminalView(source)).count("◦") == 1


def test_mapping_can_be_lines():
    text = str(TerminalView(Stub({"a": 1.0, "b": {"c": 2.0}}, {"a": 3.0, "b": {"c": 4.0}}), view="line"))
    assert "a 3" in text
    assert "b/c 4" in text


def test_line_and_histogram_share_axes():
    text = str(TerminalView([Stub(1.0, 2.0), Stub(Histogram(np.arange(101)), Histogram(np.arange(101)), tag="w")]))
    assert "w (median, 10–90 %) 5" in text
    assert sum(len(drawn(row)) > 60 for row in plot_rows(text)) >= 3


# Other views


def test_one_bar_for_each_name_as_long_as_its_value():
    names = {"conv": 1.0, "dense": 2.0, "head": 4.0}
    rows = str(TerminalView(Stub(names))).split("\n")[1:]
    assert [row.split()[0] for row in rows] == list(names)
    lengths = [row.count("█") for row in rows]
    assert lengths[2] == pytest.approx(2 * lengths[1], abs=2)
    assert lengths[2] == pytest.approx(4 * lengths[0], abs=4)


def test_negative_bars_go_the_other_way():
    up, down = str(TerminalView(Stub({"a": 1.0, "b": -1.0}))).split("\n")[1:]
    assert up.index("█") >= len(down[: down.rindex("█")])
    assert "-1" in down


def test_bars_that_have_no_room_are_counted():
    text = str(TerminalView(Stub({f"n{i}": 1.0 for i in range(30)}), height=12))
    assert "and 20 more names" in text
    assert len(text.split("\n")) == 12


def test_not_finite_bars_are_marked():
    assert "×" in str(TerminalView(Stub({"a": 1.0, "b": np.nan})))


def test_histogram_is_highest_where_most_values_are_and_labels_its_edges():
    text = str(TerminalView(Stub(Histogram([0.0] * 2 + [5.0] * 10 + [10.0] * 3 + [np.nan], bins=10))))
    top = plot_rows(text)[0]
    assert 0.4 < top.index("█") / 70 < 0.6
    ends = text.split("└")[1].split("\n")[1].split()
    assert (ends[0], ends[-1]) == ("0", "10")
    assert "15 values" in text
    assert "1 NaN" in text


def test_several_histograms_are_outlines():
    text = str(TerminalView([Stub(Histogram([1.0, 2.0, 2.0]), tag="a"), Stub(Histogram([5.0, 6.0]), tag="b")]))
    assert "density of 3 values   2 values" in text
    assert any(drawn(row) for row in plot_rows(text))


def test_heat_map_is_dark_and_light_where_the_matrix_is_small_and_large():
    matrix = np.zeros((8, 8))
    matrix[0, 7] = 9.0
    rows = str(TerminalView(Stub(matrix))).split("\n")
    assert rows[1].rstrip().endswith("█")
    assert rows[-1].split() == ["0", "·░▒▓█", "9", "8", "x", "8"]
    assert sum(row.count("█") for row in rows[1:-1]) == sum(row.rstrip().endswith("█") for row in rows[1:-1]) * 4


def test_large_entry_of_a_large_matrix_is_not_averaged_away():
    matrix = np.zeros((500, 700))
    matrix[250, 350] = 1.0
    assert "█" in "".join(str(TerminalView(Stub(matrix))).split("\n")[1:-1])


def test_images_stand_side_by_side_with_captions():
    text = str(TerminalView(Stub(Images(np.ones((3, 8, 8)), ("one", "two", "three")))))
    captions = next(row for row in text.split("\n") if "one" in row)
    assert captions.split() == ["one", "two", "three"]
    assert "3 images of 8×8" in text


def test_colours_are_two_pixels_to_a_cell():
    out = console(force_terminal=True, color_system="truecolor")
    out.print(*half_blocks(np.array([[[255, 0, 0]], [[0, 0, 255]]], np.uint8)))
    assert out.file.getvalue().startswith("\x1b[38;2;255;0;0;48;2;0;0;255m▀\x1b[0m")


def test_figure_is_a_card_with_its_size():
    data = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR" + (640).to_bytes(4, "big") + (480).to_bytes(4, "big")
    assert "image/png, 640 x 480" in str(TerminalView(Stub(Figure(data))))


def test_path_ends_in_a_dot_and_carries_its_notes():
    text = str(TerminalView(Stub((0.0, 0.0, "start"), (1.0, 1.0), (2.0, 0.0), tag="walk")))
    assert text.count("○") == 1
    assert "start" in text
    assert text.count("●") == 1
    assert "walk (2, 0)" in text


def test_a_notice_says_that_a_triple_is_projected():
    assert "projection onto x and y" in str(TerminalView(Stub((0.0, 0.0, 1.0), (1.0, 1.0, 2.0))))


def test_log_shows_the_newest_text_last_and_cannot_move_the_cursor():
    text = str(TerminalView(Stub("first", Text("sec\x1b[2Jond\nline"))))
    rows = text.split("\n")[1:]
    assert rows[0].split() == ["0", "first"]
    assert rows[1].endswith("line")
    assert "\x1b" not in text


def test_table_shows_values_without_another_view():
    text = str(TerminalView(Stub({"a": "x"}, object)))
    assert re.search(r"step +time +a +value\n +0 +[\d:]{8} +x\n", text)
    assert "value" in text


# A view over time


def test_view_waits_before_the_first_value_and_then_draws():
    source = Stub(ended=False)
    view = TerminalView(source)
    assert "waiting for values" in str(view)
    source.put(1.0, 2.0)
    assert "loss 2" in str(view)
    assert not view.pull()
    source.put(3.0)
    assert view.pull()


def test_a_value_of_another_kind_is_counted_and_drawing_continues():
    source = Stub(1.0, 2.0)
    view = TerminalView(source)
    source.put("oops", np.ones((2, 2)), 3.0)
    text = str(view)
    assert "2 values not drawn: expected a number (last: float64[2, 2] at step 3)" in " ".join(text.split())
    assert "loss 3" in text


def test_first_drawable_value_decides():
    source = Stub(None, object())
    view = TerminalView(source)
    source.put(1.0, 2.0, 3.0)
    text = str(view)
    assert any(drawn(row) for row in plot_rows(text))
    assert "1 value not drawn" in text


def test_streams_that_cannot_share_raise_at_the_call_and_are_left_out_later():
    with pytest.raises(ViewError, match=r"'loss'.*'kernel'"):
        TerminalView([Stub(1.0), Stub(np.ones((2, 2)), tag="kernel")])
    late = Stub(tag="kernel")
    view = TerminalView([Stub(1.0, 2.0), late])
    late.put(np.ones((2, 2)))
    text = str(view)
    assert "cannot share a view" in text
    assert any(drawn(row) for row in plot_rows(text))


def test_refused_stream_leaves_the_view_as_it_was():
    view = TerminalView(Stub(1.0))
    with pytest.raises(ViewError):
        view.add(Stub(np.ones((2, 2)), tag="kernel"))
    assert [source.tag for source in view.sources] == ["loss"]


def test_add_and_remove():
    one, other = Stub(1.0, tag="one"), Stub(2.0, tag="other")
    view = TerminalView(one)
    view.add(other)
    view.add(other)
    assert "━━ one 1   ━━ other 2" in str(view)
    view.remove(one)
    assert "one" not in str(view)
    assert view.sources == (other,)


def test_a_lost_source_is_reported():
    class Lost(Stub):
        def since(self, cursor):
            raise RunLostError("Run 'mnist' does not answer any more")

    assert "does not answer any more" in str(TerminalView(Lost()))


def test_missed_records_are_counted():
    source = Stub(1.0, 2.0, 3.0)
    del source.records[1]
    assert "1 record missed" in str(TerminalView(source))


def test_memory_is_bounded_and_thinning_is_reported():
    trace = SeriesBuffer(Stub(), max_points=1000)
    source = trace.source
    for start in range(0, 10_000, 500):
        source.put(*np.sin(np.arange(start, start + 500) / 50).tolist())
        trace.pull()
    points = trace.lines[""]
    assert points.columns.shape[1] <= 1000
    assert points.n_seen == 10_000
    notices = scene_of([trace], choice=choose([trace.form])).notices
    assert notices == (f"loss: every {2**points.bits}th of 10,000, extremes kept",)


@given(st.lists(st.lists(st.floats(allow_nan=True, width=32), max_size=300), max_size=20))
def test_points_keep_their_extremes_in_bounded_memory(batches):
    points = Points(2, max_points=128)
    n = itertools.count()
    for batch in batches:
        indexes = np.array([next(n) for _ in batch], int)
        points.extend(indexes, np.array([indexes, batch]).reshape(2, -1))
    everything = np.array([y for batch in batches for y in batch])
    finite = everything[np.isfinite(everything)]
    assert points.columns.shape[1] <= 128
    assert points.n_seen == len(everything)
    if len(finite):
        assert finite.max() in points.columns[1]
        assert finite.min() in points.columns[1]
    if len(everything):
        np.testing.assert_equal(points.columns[1, -1], everything[-1])


values = st.one_of(
    st.floats(),
    st.integers(),
    st.text(),
    st.none(),
    st.tuples(st.floats(), st.floats()),
    st.tuples(st.floats(), st.floats(), st.text()),
    st.tuples(st.floats(), st.floats(), st.floats()),
    st.dictionaries(st.text(), st.floats(), max_size=5),
    st.lists(st.floats(allow_nan=True, width=32), max_size=50),
    st.builds(lambda n: np.arange(n * n, dtype=np.float32).reshape(n, n), st.integers(0, 90)),
    st.builds(lambda n: Images(np.zeros((n, 5, 7))), st.integers(1, 9)),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(values, max_size=12), st.integers(20, 120), st.integers(5, 40), st.booleans(), st.booleans())
def test_whatever_comes_is_drawn_within_its_room(given_values, width, height, log_y, color):
    view = TerminalView(Stub(*given_values), height=height, log_y=log_y)
    out = Console(
        file=io.StringIO(), width=width, height=50, force_terminal=color, color_system="truecolor" if color else None
    )
    rows = out.render_lines(view.render(), out.options, pad=False)
    assert max(sum(segment.cell_length for segment in row) for row in rows) <= width
    assert len(rows) <= max(height, 10)


def test_ascii_terminals_get_ascii():
    kinds = [1.0, {"a": 1.0, "b": -2.0}, Histogram([1.0, 2.0]), np.eye(9), Images(np.ones((2, 4, 4))), "é", (1.0, 2.0)]
    for value in kinds:
        out = Console(file=io.TextIOWrapper(io.BytesIO(), encoding="ascii"), width=80)
        out.print(TerminalView(Stub(value, value, run="é")).render())
        out.file.flush()
        assert out.file.buffer.getvalue().decode("ascii").strip()


# Live


def test_live_drawing_ends_with_its_streams_and_leaves_the_last_drawing():
    out = console(force_terminal=True, color_system=None, legacy_windows=False)
    source = Stub(1.0, ended=False)
    view = TerminalView(source, console=out)
    view.start()
    source.put(2.0)
    source.ended = True
    assert view.wait(timeout_s=60)
    view.close()
    view.close()
    assert "loss 2" in out.file.getvalue().rsplit("\x1b[?25h", 1)[-1]


def test_two_live_views_share_the_terminal():
    out = console(force_terminal=True, color_system=None, legacy_windows=False)
    sources = [Stub(1.0, tag="one", ended=False), Stub(2.0, tag="two", ended=False)]
    views = [TerminalView(source, console=out).start() for source in sources]
    for view in views:
        view.close()
    assert out.file.getvalue().count("\x1b[?25l") == 1
    assert "one 1" in out.file.getvalue()
    assert "two 2" in out.file.getvalue()


@pytest.mark.filterwarnings("ignore:Views in the terminal:RuntimeWarning")
@pytest.mark.parametrize("method", ["pull", "draw"])
def test_a_live_view_that_fails_stops_no_other(method, monkeypatch):
    out = console(force_terminal=True, color_system=None, legacy_windows=False)
    sources = [Stub(1.0, tag="bad", ended=False), Stub(2.0, tag="good", ended=False)]
    bad, good = (TerminalView(source, console=out).start() for source in sources)

    real = getattr(TerminalView, method)

    def fail():
        raise ZeroDivisionError("odd")

    with monkeypatch.context() as patch:
        patch.setattr(TerminalView, method, lambda view, **given: fail() if view is bad else real(view, **given))
        sources[1].put(7.0)
        sources[1].ended = True
        assert good.wait(timeout_s=60)
        display = live_display_of(out)
        wait_until(lambda: good not in display.views, "rich's thread goes on")
        assert "good 7" in out.file.getvalue()
        assert display.failures.n > 0
        if method == "draw":
            bad.close()
    bad.close()  # an error in the program's own call would be raised there
    assert ("Not drawn: ZeroDivisionError: odd" in out.file.getvalue()) == (method == "draw")


def test_show_without_a_terminal_draws_once():
    out = console()
    TerminalView(Stub(1.0, 2.0), console=out).show()
    assert out.file.getvalue().count("loss 2") == 1


def test_wait_gives_up():
    assert TerminalView(Stub(1.0, ended=False), console=console()).wait(timeout_s=0) is False


# plot


def test_plot_gives_a_view():
    view = plot(Stub(1.0, ended=False), surface="terminal", height=9, console=console())
    assert repr(view) == "<TerminalView of loss: line>"
    assert len(str(view).split("\n")) == 9


def test_plot_refuses_values_that_are_not_streams():
    with pytest.raises(TypeError, match=r"plot\(run.stream\('loss'\)\)"):
        plot("loss")
    with pytest.raises(TypeError, match=r"plot\(\*streams\)"):
        plot([Stub(1.0)])
    with pytest.raises(TypeError, match="got none"):
        plot()


def test_plot_guesses_surfaces_and_views():
    with pytest.raises(ViewError, match=r"'terminl'.*'terminal'"):
        plot(Stub(1.0), surface="terminl")
    with pytest.raises(ViewError, match=r"'lin'.*'line'"):
        plot(Stub(), view="lin")


# Axes and colours


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.integers(2, 10), st.booleans())
def test_ticks_are_within_the_limits_and_distinct(one, other, n, log):
    axis = axis_of([[one, other]], log=log)
    if axis is None:
        assert log
        return
    ticks = axis.ticks(n)
    assert len(ticks) <= 2 * n + 1
    labels = [label for _, label in ticks]
    categories = axis.to_pixels([value for value, _ in ticks], 100)
    assert ((categories > -0.5) & (categories < 99.5)).all()
    assert len(set(labels)) == len(labels)


def test_ticks_stand_at_nice_numbers():
    assert [label for _, label in Axis(low=0.03, high=0.97).ticks(5)] == ["0.2", "0.4", "0.6", "0.8"]
    assert [label for _, label in Axis(low=0, high=100_000).ticks(5)] == ["0", "20k", "40k", "60k", "80k", "100k"]
    assert [label for _, label in Axis(low=1e-4, high=1.0, log=True).ticks(5)] == ["1e-4", "0.001", "0.01", "0.1", "1"]


@pytest.mark.parametrize(
    ("value", "text"), [(1e-9, "1e-9"), (12345.678, "12,345.7"), (-0.5, "-0.5"), (np.inf, "+Inf"), (1e300, "1e300")]
)
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


@pytest.mark.parametrize("color", LINES)
@pytest.mark.parametrize("ground", ["#ffffff", "#161618"])
def test_colours_can_be_read_on_both_grounds(color, ground):
    def luminance(of):
        parts = [c / 255 for c in rgb(of)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    light, dark = sorted((luminance(color), luminance(ground)), reverse=True)
    assert (light + 0.05) / (dark + 0.05) >= 3
