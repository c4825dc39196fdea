"""Figures in a terminal: coarse pictures, animations that play, and words for what has no picture."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from rich.console import Console
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.values import Figure
from sightglass.storage.format.png import encode_png
from sightglass.views import frames
from sightglass.views.surfaces.terminal import TerminalView
from sightglass.views.surfaces.terminal.pictures import film_of

COLORS = np.array([[200, 0, 0], [0, 200, 0], [0, 0, 200]], np.uint8)
MOVING = frames.as_png(np.repeat(COLORS, 12 * 20, axis=0).reshape(3, 12, 20, 3))


def console(**options) -> Console:
    given = {"force_terminal": True, "color_system": "truecolor", "width": 60, "height": 20, **options}
    return Console(file=io.StringIO(), legacy_windows=False, **given)


def drawn(drawing: object, on: Console) -> str:
    with on.capture() as captured:
        on.print(drawing)
    return captured.get()


@pytest.fixture
def kept(tmp_path: Path):
    """Return a function that returns the view of a recorded figure."""

    def view_of(value: object, on: Console) -> TerminalView:
        with sg.init("r", dir=tmp_path) as run:
            run.log({"it": value}, step=2)
        assert run.directory is not None
        return TerminalView(sg.open(run.directory).stream(sg.on("log").map(lambda e: e["it"])), console=on)

    return view_of


def test_a_picture_is_as_large_as_the_terminal_allows_and_has_its_colours() -> None:
    pixels = np.zeros((100, 50, 3), np.uint8)
    pixels[:50] = 10, 20, 30
    pixels[50:] = 250, 240, 230
    film = film_of(Figure(encode_png(pixels)), 80, 10)
    assert film is not None
    [picture] = film.frames
    assert picture.shape == (20, 10, 3)
    assert {tuple(color) for color in picture[:10].reshape(-1, 3)} == {(10, 20, 30)}
    assert {tuple(color) for color in picture[10:].reshape(-1, 3)} == {(250, 240, 230)}


def test_each_frame_is_shown_for_its_time() -> None:
    film = film_of(Figure(MOVING), 20, 6)
    assert film is not None
    assert film.ends_ms == (100, 200, 300)
    assert [film.place(at_ms) for at_ms in (0, 99, 100, 250, 299, 300, 10_050)] == [0, 0, 1, 2, 2, 0, 1]
    assert np.array_equal([frame[0, 0] for frame in film.frames], COLORS)


def test_an_animation_is_drawn_at_its_first_frame_where_the_stream_has_ended(kept) -> None:
    on = console()
    drawing = kept(Figure(MOVING), on).render()
    assert "38;2;200;0;0" in drawn(drawing, on)
    assert "38;2;0;0;200" in drawn(replace(drawing, at_ms=250), on)
    assert "A terminal shows figures coarsely" in drawn(drawing, on)


def test_an_animation_of_a_live_stream_plays(tmp_path: Path) -> None:
    on = console()
    with sg.init("r", dir=tmp_path) as run:
        stream = sg.connect(run).stream(sg.on("log").map(lambda e: e["it"]))
        view = TerminalView(stream, console=on)
        run.log({"it": Figure(MOVING)}, step=0)
        colors, seen = {"38;2;200;0;0", "38;2;0;200;0", "38;2;0;0;200"}, set()

        def all_frames() -> bool:
            if view.pull():  # as the live display does before it repaints
                text = drawn(view.draw(height=20), on)
                seen.update(code for code in colors if code in text)
            return seen == colors

        wait_until(all_frames, lambda: f"frames of three colours, seen were {seen}")
        run.log({"it": Figure(encode_png(np.zeros((4, 4), np.uint8)))}, step=1)
        wait_until(lambda: not view.pull(), "the last frame of the animation, then the still picture")


@pytest.mark.parametrize("options", [{"no_color": True}, {"color_system": None}])
def test_without_colours_there_are_words(kept, options) -> None:
    on = console(**options)
    text = drawn(kept(Figure(MOVING), on).render(), on)
    assert "image/png, 20 x 12" in text
    assert "A terminal cannot show figures" in text
    assert "▀" not in text


def test_a_figure_of_plotly_is_its_title_and_traces(kept) -> None:
    on = console(color_system=None)
    text = drawn(kept(go.Figure(go.Bar(y=[1], name="loss"), {"title": "<b>A\x1b[2J</b> title"}), on).render(), on)
    assert "title: bar loss, at step 2" in text
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("data", [b"", MOVING[:200], b"\x89PNG\r\n\x1a\n" + bytes(40), b"GIF89a" + b"\xff" * 60])
def test_a_damaged_file_has_no_picture(kept, data: bytes) -> None:
    on = console()
    text = drawn(kept(Figure(data), on).render(), on)
    assert "A terminal cannot show figures" in text


def test_a_picture_that_says_it_is_huge_is_not_decoded() -> None:
    huge = bytearray(encode_png(np.zeros((2, 2), np.uint8)))
    huge[16:24] = (60_000).to_bytes(4, "big") * 2
    assert film_of(Figure(bytes(huge)), 80, 10) is None
