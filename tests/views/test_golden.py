"""Every view looks as it did: see `golden`, and write the pictures again when they change for the better."""

from __future__ import annotations

import pytest
from tests.views import facts, golden


@pytest.fixture(autouse=True)
def away(tmp_path, monkeypatch):
    """Leave no pictures behind."""
    monkeypatch.setattr(golden, "SHOWN", tmp_path)


@pytest.mark.parametrize("name", golden.VIEWS)
def test_the_terminal_shows_the_golden_picture(name):
    stored = (golden.FOLDER / "terminal.txt").read_text().split("=== ")
    pictures = dict(part.split("\n", 1) for part in stored if part)
    assert golden.terminal_picture(name) + "\n" == pictures[name], golden.AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("name", golden.VIEWS)
def test_matplotlib_draws_the_golden_picture(name):
    pytest.importorskip("matplotlib")
    for theme in golden.THEMES:
        found, expected = golden.matplotlib_facts(name, theme), golden.stored("matplotlib", name, theme)
        assert facts.differences(found, expected, within=0.02) == [], f"{theme}: {golden.AGAIN}"


def test_whatever_is_lost_is_a_difference():
    for surface in ("matplotlib", "page"):
        for name in golden.names(surface):
            for theme in golden.THEMES:
                expected = golden.stored(surface, name, theme)
                for i, fact in enumerate(expected):
                    rest = [*expected[:i], *expected[i + 1 :]]
                    assert len(facts.differences(rest, expected, within=0.02)) == 1, fact


def test_numbers_may_differ_a_little_and_words_and_colors_not_at_all():
    fact = "line #3f8fc4 - None 1: 200 points, x 0 to 199, y -0.05 to 1.02"
    assert facts.same(fact, fact.replace("1.02", "1.03"), within=0.02)
    for change in (("1.02", "1.2"), ("#3f8fc4", "#3f8fc5"), ("200", "150"), ("None", "o")):
        assert not facts.same(fact, fact.replace(*change), within=0.02)
