"""Lines whose run began again, or whose steps go back: broken there, marked, and the pass before fades."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.sources import ListSource

from sightglass.core.columns import Record, Restart
from sightglass.views.options import Options
from sightglass.views.passes import parts_of, passes_of
from sightglass.views.sheets import rows_of, table_of
from sightglass.views.stream_set import StreamSet
from sightglass.views.surfaces.notebook.view_streams import NotebookStreams
from sightglass.views.surfaces.terminal import TerminalView

pytestmark = pytest.mark.smoke

CASES = json.loads((Path(__file__).parent / "passes.json").read_text())  # frontend/test/passes.test.ts reads it too


class Restarted(ListSource):
    """A stream whose run began again before some of its records."""

    tag, run, note = "loss", "mnist", ""

    def __init__(self, *passes, marked=True):
        self.records, restarts = [], []
        for number, steps in enumerate(passes):
            if number:
                restarts.append(Restart(index=len(self.records), run_id=f"run {number}"))
            for step in steps:
                n = len(self.records)
                self.records.append(self.record(n, step, self.value(step, number)))
        self.restarts = tuple(restarts) if marked else ()

    def record(self, n, step, value):
        return Record(tag=self.tag, index=n, step=float(step), wall_time=1e9 + n, value=value, run=self.run)

    @staticmethod
    def value(step, number):
        return 1 / (1 + step) + number / 10


def scene_of(source, **options):
    streams = StreamSet([source], options=Options(**options))
    streams.pull()
    return streams.scene


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_parts_are_those_of_the_browser(case):
    x = np.array(case["x"], float)
    passes = passes_of(x, restarts=case["restarts"], counts=True)
    parts = passes and parts_of(x, passes, history=case["history"])
    assert (parts and [[part.rows.start, part.rows.stop, pytest.approx(part.alpha)] for part in parts]) == case["parts"]


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("smooth", [0.0, 0.9])
def test_a_line_never_goes_back(marked, smooth):
    scene = scene_of(Restarted(range(50), range(30), marked=marked), smooth=smooth)
    earlier, newest = scene.series
    assert (len(earlier.x), len(newest.x)) == (50, 30)
    assert all((np.diff(series.x) > 0).all() for series in scene.series)
    assert (earlier.label, newest.label) == ("", "loss")
    assert earlier.alpha < newest.alpha == 1
    assert newest.state == "earlier passes faint"
    assert scene.restarts == ((0.0,) if marked else ())


def test_a_run_that_goes_on_is_broken_and_does_not_fade():
    scene = scene_of(Restarted(range(50), range(50, 80)))
    assert [(len(series.x), series.alpha, series.state) for series in scene.series] == [(50, 1, ""), (30, 1, "")]
    assert scene.restarts == (50.0,)


def test_other_x_do_not_go_back():
    for x in ("index", "wall", "relative"):
        scene = scene_of(Restarted(range(50), range(30)), x=x)
        assert [series.alpha for series in scene.series] == [1, 1]
        assert len(scene.restarts) == 1


class ClockSetBack(ListSource):
    """A stream at one record a second, whose clock was set back by 20 s after the first 50."""

    tag, run = "loss", "mnist"

    def __init__(self, n=80):
        times = [at - 20 * (at >= 50) for at in range(n)]
        self.records = [
            Record(tag=self.tag, index=i, step=float(i), wall_time=1e9 + at, value=float(i), run=self.run)
            for i, at in enumerate(times)
        ]


@pytest.mark.parametrize("smooth", [0.0, 0.9])
def test_time_goes_on_where_a_clock_was_set_back(smooth):
    (line,) = scene_of(ClockSetBack(), x="relative", smooth=smooth).series
    assert line.x.tolist() == [*range(50), *range(49, 79)]
    earlier, whole, newest = scene_of(ClockSetBack(), x="wall", smooth=smooth).series
    assert [(len(one.x), one.alpha) for one in (earlier, whole, newest)] == [(21, 0.31), (30, 1), (30, 1)]
    assert all((np.diff(one.x) > 0).all() for one in (earlier, whole, newest))
    (line,) = scene_of(ClockSetBack(), smooth=smooth).series
    assert line.x.tolist() == [*range(80)]


def test_each_pass_is_smoothed_by_itself():
    whole = scene_of(Restarted(range(40)), smooth=0.95, x_limits=(0, 40)).series[0]
    earlier = scene_of(Restarted(range(40), range(40)), smooth=0.95, x_limits=(0, 40)).series[0]
    np.testing.assert_allclose(earlier.y, whole.y)


def test_records_out_of_order_are_one_line_in_the_order_of_steps():
    rng = np.random.default_rng(0)
    scene = scene_of(Restarted(rng.permutation(200)))
    [series] = scene.series
    assert (np.diff(series.x) > 0).all()


def test_the_newest_points_may_be_of_two_passes():
    scene = scene_of(Restarted(range(50), range(10)), last=20)
    assert [len(series.x) for series in scene.series] == [10, 10]


def test_the_terminal_marks_the_place():
    text = str(TerminalView([Restarted(range(50), range(50, 90))]))
    assert "restarted" in text
    assert text.count("┊") > 5
    assert "earlier passes faint" in str(TerminalView([Restarted(range(50), range(30))]))


@pytest.mark.parametrize("view", ["table", "log"])
def test_tables_and_logs_have_a_row(view):
    class Texts(Restarted):
        @staticmethod
        def value(step, number):
            return f"epoch {step}"

    source = Texts(range(5), range(3))
    streams = StreamSet([source], view=view)
    streams.pull()
    texts = [row.value.text for _, row in rows_of(streams.scene, 100)]
    assert texts == [*(f"epoch {i}" for i in range(5)), "restarted", *(f"epoch {i}" for i in range(3))]
    assert "restarted" in str(TerminalView([source], view=view))


def test_a_table_of_names_gets_no_column_for_it():
    class Named(Restarted):
        @staticmethod
        def value(step, number):
            return {"loss": step, "name": "a"}

    streams = StreamSet([Named(range(2), range(1))], view="table")
    streams.pull()
    table = table_of(streams.scene, 100)
    assert table.names == ("step", "time", "loss", "name")
    assert [row[2:] for row in table.rows] == [("0", "a"), ("1", "a"), ("restarted", ""), ("0", "a")]
    assert table.numeric == (True, False, True, False)


def test_a_note_is_shown_as_long_as_there_is_one():
    source = Restarted(range(3))
    source.note = "Unknown event 'epoch' so far. Waiting for the first."
    streams = StreamSet([source])
    streams.pull()
    assert streams.scene.notices == (f"loss: {source.note}",)
    assert source.note in str(TerminalView([source]))
    source.note = ""
    assert streams.pull()
    assert streams.scene.notices == ()


def test_a_stream_without_a_record_shows_its_note():
    source = Restarted(())
    source.note = "Unknown event 'epoch' so far. Waiting for the first."
    assert source.note in str(TerminalView([source]))


@pytest.mark.parametrize("view", ["line", "table"])
def test_notebooks_learn_of_notes_and_restarts(view):
    source = Restarted(range(5), range(3))
    source.note = "compiling"
    streams = NotebookStreams([source], view=view)
    assert streams.settings["notices"] == ["loss: compiling"]
    [stream] = streams.streams.values()
    assert stream.backlog.take(0, 100).message["restarts"] == [5]
    assert "restarts" not in stream.backlog.take(6, 100).message


def test_plotly_and_matplotlib_draw_a_rule():
    pytest.importorskip("plotly")
    pytest.importorskip("matplotlib")
    from sightglass.views.surfaces.matplotlib import MatplotlibView
    from sightglass.views.surfaces.plotly import PlotlyView

    source = Restarted(range(50), range(50, 80))
    layout = PlotlyView([source]).figure.layout
    ([rule], [label]) = layout.shapes, layout.annotations
    assert (rule.x0, label.x, label.text, label.bgcolor) == (50, 50, "restarted", layout.plot_bgcolor)
    assert not PlotlyView([Restarted(range(9))]).figure.layout.shapes
    view = MatplotlibView([source], window=False)
    view.update()
    texts = [text.get_text() for axes in view.figure.axes for text in axes.texts]
    assert texts.count("restarted") == 1
    view.close()
