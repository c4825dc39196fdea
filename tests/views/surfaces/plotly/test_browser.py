"""The HTML file in a real browser: what is drawn there, and what is written."""

from __future__ import annotations

import asyncio
import io

import numpy as np
import pytest
from PIL import Image as Pixels
from playwright.sync_api import sync_playwright
from tests.browser import launch
from tests.sources import ListSource

from sightglass.core.columns import Record
from sightglass.core.values import Images
from sightglass.views.options import LINES, rgb
from sightglass.views.surfaces.plotly import PlotlyView

NAME = "<b>loss</b> & <img src=x onerror='document.title=\"read\"'>"


class Stub(ListSource):
    def __init__(self, values, tag):
        self.tag, self.ended = tag, True
        self.records = [Record(tag=tag, index=i, step=float(i), wall_time=0.0, value=v) for i, v in enumerate(values)]


@pytest.fixture(scope="module")
def page():
    with sync_playwright() as playwright:
        loop = asyncio.get_running_loop()
        browser = launch(playwright)
        page = browser.new_page(viewport={"width": 900, "height": 460}, offline=True)
        asyncio._set_running_loop(None)
        yield lambda path: opened(page, path, loop)
        asyncio._set_running_loop(loop)
        browser.close()


def opened(page, path, loop):
    """Open a file; return its texts, its title and its pixels, of shape (height, width, 3)."""
    asyncio._set_running_loop(loop)
    try:
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector(".js-plotly-plot .main-svg .infolayer")
        page.wait_for_function("document.querySelector('.js-plotly-plot')._fullData !== undefined")
        texts = page.eval_on_selector_all("svg text", "all => all.map(one => one.textContent)")
        picture = np.asarray(Pixels.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)
        title = page.title()
        assert errors == []
        return texts, title, picture
    finally:
        asyncio._set_running_loop(None)


def near(picture, color, *, tolerance=12):
    """Where a picture has a colour."""
    return (abs(picture - np.array(rgb(color))) <= tolerance).all(axis=-1)


def test_line_falls_in_its_colour_and_its_name_is_text(page, tmp_path):
    PlotlyView(Stub(np.linspace(4, 0, 200).tolist(), NAME)).save(tmp_path / "line.html")
    texts, title, picture = page(tmp_path / "line.html")
    assert any(NAME[:20] in text for text in texts)
    assert title != "read"
    rows, columns = np.nonzero(near(picture, LINES[0])[90:])
    left, right = rows[columns < 150], rows[columns > 750]
    assert len(left) > 50
    assert left.mean() + 100 < right.mean()


def test_gap_is_left_white(page, tmp_path):
    PlotlyView(Stub([1.0] * 40 + [np.nan] * 20 + [1.0] * 40, "loss")).save(tmp_path / "gap.html")
    _, _, picture = page(tmp_path / "gap.html")
    columns = np.nonzero(near(picture, LINES[0])[90:].any(axis=0))[0]
    gaps = np.diff(columns)
    assert gaps.max() > 100
    assert (gaps > 3).sum() == 1


def test_dark_ground_and_captions_below_images(page, tmp_path):
    pictures = np.zeros((3, 8, 8, 3), np.uint8)
    pictures[1, ..., 0] = 255
    view = PlotlyView(Stub([Images(pictures, ("zero", "one", "two"))], "worst"), dark=True)
    view.save(tmp_path / "images.html")
    texts, _, picture = page(tmp_path / "images.html")
    assert [text for text in texts if text in ("zero", "one", "two")] == ["zero", "one", "two"]
    assert near(picture, "#16191d", tolerance=2).mean() > 0.3
    rows, columns = np.nonzero(near(picture, "#ff0000", tolerance=2))
    assert len(rows) == pytest.approx((np.ptp(rows) + 1) * (np.ptp(columns) + 1), rel=0.02)
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), abs=3)
