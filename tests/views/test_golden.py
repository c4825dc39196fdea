"""Every view looks as it did: see `golden`, and write the pictures anew when they change for the better."""

from __future__ import annotations

import pytest
from tests.views import golden

AGAIN = "look at build/golden after `python -m tests.views.golden`, and commit what it wrote if it is right"
# Another release of Matplotlib or another font moves a few tiles by a level; a missing title moves more.
TOLERANCE = 0.06


@pytest.mark.parametrize("name", golden.VIEWS)
def test_the_terminal_shows_the_golden_picture(name):
    stored = (golden.FOLDER / "terminal.txt").read_text().split("=== ")
    pictures = dict(part.split("\n", 1) for part in stored if part)
    assert golden.terminal_picture(name) + "\n" == pictures[name], AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", golden.VIEWS)
def test_matplotlib_draws_the_golden_picture(name, theme):
    pytest.importorskip("matplotlib")
    drawn = golden.ink_of(golden.matplotlib_png(name, dark=theme == "dark"))
    assert golden.difference(drawn, golden.stored_ink()[f"{name}, {theme}"]) < TOLERANCE, AGAIN


def test_pictures_of_different_views_differ():
    pytest.importorskip("matplotlib")
    stored = golden.stored_ink()
    names = [key for key in stored if key.endswith("light")]
    for one in names:
        for other in names:
            assert one == other or golden.difference(stored[one], stored[other]) > 1.5 * TOLERANCE
