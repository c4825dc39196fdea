"""Matplotlib's figures in `log`: encode_figures at once, kept as pictures; the figures stay as they are."""

from __future__ import annotations

import struct

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.figure import Figure

import sightglass as sg
from sightglass.views.frames import encode, encode_figures


def figure(value=1.0, **options):
    made = Figure(figsize=(2, 1), dpi=50, **options)
    made.subplots().plot([0.0, value])
    return made


def size(picture):
    assert picture.data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", picture.data[16:24])


@pytest.mark.parametrize(("form", "media", "begin"), [
    ("png", "image/png", b"\x89PNG"), ("svg", "image/svg+xml", b"<?xml"), ("pdf", "application/pdf", b"%PDF"),
])  # fmt: skip
def test_pictures_of_every_kind(form, media, begin):
    picture = encode(figure(), format=form)
    assert picture.media_type == media
    assert bytes(picture.data[: len(begin)]) == begin


def test_the_figure_stays_as_it_is_and_has_the_dots_it_asks_for():
    made = figure()
    before = made.get_size_inches().tolist(), made.dpi, len(made.axes), type(made.canvas)
    assert size(encode(made)) == (100, 50)
    assert size(encode(made, dpi=200)) == (400, 200)
    assert (made.get_size_inches().tolist(), made.dpi, len(made.axes), type(made.canvas)) == before
    with mpl.rc_context({"savefig.dpi": 10}):
        assert size(encode(made)) == (100, 50)


def test_values_without_figures_are_returned_unchanged():
    plain = {"a": 1, "b": {"c": 2}}
    assert encode_figures({"a": 1}) == {"a": 1}
    assert encode_figures(plain) == plain
    nested = encode_figures({"a": {"b": {"c": figure()}}, "x": 1})
    assert isinstance(nested["a"]["b"]["c"], sg.Figure)
    assert nested["x"] == 1
    assert encode_figures([1]) == [1]  # `log` says what is wrong with it


def test_logged_figures_are_pictures_of_that_moment(tmp_path):
    made = figure(1.0)
    with sg.init("job", dir=tmp_path) as run, sg.connect(run) as client:
        live = client.stream("log.curve")
        run.log({"curve": made, "deep": {"er": made}, "loss": 0.5}, step=1)
        made.axes[0].plot([5.0, 0.0])
        run.log({"curve": made}, step=2)
        run.close()
        visible_x = [record.value for record in live]
    with sg.open(run.directory) as old:
        assert old.tags() == ["curve", "deep/er", "loss"]
        assert old.series("curve").type == "Figure"
        first, second = old.series("curve").at(1), old.series("curve").at(2)
        assert first.data == old.series("deep/er").at(1).data != second.data
        assert size(first) == size(second) == (100, 50)
        assert [picture.data for picture in visible_x] == [first.data, second.data]


def test_a_value_that_is_not_a_figure_is_refused(tmp_path):
    made = figure()
    with (  # noqa: PT031
        pytest.warns(RuntimeWarning, match="'axes'.*function"),
        sg.init("job", dir=tmp_path) as run,
    ):
        run.log({"axes": made.axes[0], "x": np.float32(1)})
        run.flush()
    with sg.open(run.directory) as old:
        assert old.tags() == ["x"]


def test_a_figure_that_cannot_be_drawn_costs_only_itself(tmp_path):
    made = figure()
    made.axes[0].set_title("$\\nonsense$")
    with sg.init("job", dir=tmp_path) as run:
        run.log({"bad": made, "x": 1})
        with pytest.warns(RuntimeWarning, match=r"'bad'.*ValueError: (.|\n)*nonsense"):
            run.flush()
    with sg.open(run.directory) as old:
        assert (old.tags(), [record.value for record in old.stream("x")]) == (["x"], [1])


@pytest.mark.filterwarnings("ignore:Values of .* cannot be recorded:RuntimeWarning")
def test_lists_of_figures_are_lists_of_pictures(tmp_path):
    with sg.init("job", dir=tmp_path) as run:
        run.log({"several": [figure(1.0), figure(2.0)]})
    with sg.open(run.directory) as old:
        assert len(old.series("several")[0].value) == 2
