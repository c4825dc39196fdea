"""The theme: a mapping of settings, put back behind the block; sizes of columns; letters on panels."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys

import numpy as np
import pytest

mpl = pytest.importorskip("matplotlib")
from matplotlib.figure import Figure  # noqa: E402

from sightglass.core.errors import UnknownNameError  # noqa: E402
from sightglass.views.theme import (  # noqa: E402
    CONTEXTS,
    FONT_SIZES,
    GOLDEN,
    SCALED,
    SIZES,
    STYLES,
    apply_theme,
    figure_size,
    label_panels,
    rc,
    theme,
)


@pytest.fixture(autouse=True)
def put_back():
    with mpl.rc_context():
        yield


def colors():
    return [entry["color"] for entry in mpl.rcParams["axes.prop_cycle"]]


def test_the_look():
    with theme():
        rcp = mpl.rcParams
        assert rcp["font.family"] == ["serif"]
        stack = rcp["font.serif"]
        assert stack.index("Times New Roman") < stack.index("DejaVu Serif")
        assert colors() == ["#3A8FA3", "#C46000", "#2A8A5E", "#9E4A72", "#6559A8", "#B83000"]
        assert (rcp["axes.spines.top"], rcp["axes.spines.right"]) == (False, False)
        assert (rcp["axes.grid"], rcp["axes.grid.axis"]) == (True, "y")
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1, 2])
        figure.canvas.draw()
        assert any(line.get_visible() for line in axes.get_ygridlines())
        assert not any(line.get_visible() for line in axes.get_xgridlines())


@pytest.mark.parametrize("style", STYLES)
def test_everything_is_as_before_behind_the_block_also_after_an_error(style):
    before = dict(mpl.rcParams)
    with pytest.raises(ZeroDivisionError), theme(style, size="neurips", context="talk"):
        raise ZeroDivisionError
    assert dict(mpl.rcParams) == before


def test_applying_it_twice_is_applying_it_once_and_replaces_nothing_of_matplotlibs():
    before = {name: getattr(mpl.axes.Axes, name) for name in ("__init__", "plot", "clear")}
    backend = mpl.rcParams["backend"]
    apply_theme()
    once = dict(mpl.rcParams)
    apply_theme()
    assert dict(mpl.rcParams) == once
    assert {name: getattr(mpl.axes.Axes, name) for name in before} == before
    assert mpl.rcParams["backend"] == backend
    apply_theme(style="dark")
    apply_theme()
    assert dict(mpl.rcParams) == once


def test_ticks_are_unchanged():
    apply_theme()
    figure = Figure(figsize=(3, 3))
    categories, dates, logarithm, polar = (figure.add_subplot(2, 2, i + 1, polar=i == 3) for i in range(4))
    categories.bar(["a", "b", "c"], [1, 2, 3])
    dates.plot([datetime.date(2024, 1, day) for day in range(1, 29)], range(28))
    logarithm.semilogx([1, 1e6], [0, 1])
    polar.plot([0, math.pi], [0, 1])
    figure.canvas.draw()
    assert [label.get_text() for label in categories.get_xticklabels()] == ["a", "b", "c"]
    assert type(dates.xaxis.get_major_locator()).__name__ == "AutoDateLocator"
    assert type(logarithm.xaxis.get_major_locator()).__name__ == "LogLocator"
    assert type(polar.xaxis.get_major_locator()).__name__ == "ThetaLocator"
    assert type(Figure().subplots().xaxis.get_major_locator()).__name__ == "AutoLocator"


def test_context_and_font_scale_change_every_size():
    small, large, scaled = rc(), rc(context="talk"), rc(font_scale=2)
    for name in SCALED:
        assert large[name] == pytest.approx(small[name] * CONTEXTS["talk"])
        assert scaled[name] == pytest.approx(small[name] * (2 if name in FONT_SIZES else 1))
    assert set(FONT_SIZES) <= set(SCALED)
    # Whatever has a size in the style sheet grows.
    sized = {n for n, v in small.items() if "size" in n and isinstance(v, int | float) and n != "figure.figsize"}
    assert sized <= set(SCALED)


def test_sizes():
    assert figure_size("neurips") == (5.5, 5.5 * GOLDEN)
    assert figure_size("ieee/full", ratio=0.5, rows=2, columns=3) == (7.16, pytest.approx(7.16 / 3 * 0.5 * 2))
    assert all(2 < column <= full < 8 for column, full in SIZES.values())
    assert rc(size="icml")["figure.figsize"] == list(figure_size("icml"))
    assert rc(size=(3, 2))["figure.figsize"] == [3, 2]
    with theme(size="column"):
        assert tuple(Figure().get_size_inches()) == figure_size("column")


@pytest.mark.parametrize(("call", "told"), [
    (lambda: rc("drak"), "'dark'"),
    (lambda: rc(context="tlak"), "'talk'"),
    (lambda: figure_size("neurps"), "'neurips'"),
    (lambda: figure_size("icml/half"), "'icml/half'"),
])  # fmt: skip
def test_unknown_names_get_a_suggestion(call, told):
    with pytest.raises(UnknownNameError, match=told):
        call()


@pytest.mark.parametrize("call", [
    lambda: rc(font_scale=0), lambda: rc(font_scale=math.nan), lambda: figure_size("icml", ratio=0),
    lambda: rc(size=(0, 1)),
])  # fmt: skip
def test_numbers_are_above_zero(call):
    with pytest.raises(ValueError, match="above 0"):
        call()


def test_panels_have_letters_and_are_labelled_once():
    figure = Figure()
    axes = figure.subplots(4, 7)
    label_panels(axes)
    apply_theme(axes)
    labels = [[text.get_text() for text in panel.texts] for panel in axes.ravel()]
    assert labels == [[f"({letter})"] for letter in "abcdefghijklmnopqrstuvwxyz"] + [["(aa)"], ["(ab)"]]
    label_panels(axes[0, 0], form="{}.", first="A")
    assert axes[0, 0].texts[0].get_text() == "A."
    label_panels({"x": axes[0, 1]})
    with pytest.raises(TypeError, match="got int"):
        label_panels([3])


def contrast(one, other):
    def luminance(color):
        r, g, b = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in mpl.colors.to_rgb(color))
        return 0.2126 * r + 0.7152 * g + 0.0722 * b

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("style", STYLES)
def test_everything_can_be_seen(style):
    with theme(style):
        ground = mpl.rcParams["axes.facecolor"]
        assert all(contrast(color, ground) >= 3 for color in colors())
        assert contrast(mpl.rcParams["text.color"], ground) >= 7
        assert contrast(mpl.rcParams["xtick.labelcolor"], ground) >= 7


def test_lines_in_print_differ_in_more_than_colour():
    with theme("paper"):
        axes = Figure().subplots()
        lines = [axes.plot(np.arange(3))[0] for _ in range(6)]
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == 6


def test_no_warning_and_no_pyplot():
    script = (
        "import sys, io\nfrom sightglass.views.theme import theme\nassert 'matplotlib' not in sys.modules\n"
        "from matplotlib.figure import Figure\n"
        "for style in ('light', 'dark', 'paper'):\n"
        "    with theme(style):\n        f = Figure(); f.subplots().set_title('x'); f.savefig(io.BytesIO())\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
