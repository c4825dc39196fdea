"""Every view in a notebook and on the page shows what it showed: see `tests/views/golden.py`."""

from __future__ import annotations

import pytest
from tests.views import browser_facts, facts, golden

# Places depend on the widths of axes, so on fonts.
WITHIN = 0.04


def check(surface, theme, found):
    assert found.keys() == golden.names(surface)
    lost = {name: facts.differences(found[name], golden.stored(surface, name, theme), within=WITHIN) for name in found}
    assert {name: one for name, one in lost.items() if one} == {}, golden.AGAIN


@pytest.mark.slow
@pytest.mark.parametrize("theme", golden.THEMES)
def test_a_notebook_shows_the_golden_pictures(browser, tmp_path, theme):
    check("notebook", theme, browser_facts.notebook_facts(browser, golden.VIEWS, theme, tmp_path / "all.png"))


@pytest.fixture(scope="module")
def server(place):
    with place.recording() as folder:
        browser_facts.record(folder, golden.VIEWS)
    return place.serve()


@pytest.mark.slow
@pytest.mark.parametrize("theme", golden.THEMES)
def test_the_page_shows_the_golden_pictures(browser, server, tmp_path, theme):
    check(
        "page", theme, browser_facts.page_facts(browser, server.controller, golden.VIEWS, theme, tmp_path / "all.png")
    )
