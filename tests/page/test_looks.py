"""Every page at every size, light and dark: nothing beyond the edges, nothing cut off, nothing serious to axe-core."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import box_of, chart, drawn, go_to, overflow, until, violations
from .tabs import SIZES

QUERIES = ("batch.loss", "batch.matrix", "batch.vector", "batch.loss.histogram(16, every=20)", "batch.note")
BLUE = (63, 143, 196)


@pytest.fixture(scope="module")
def training(place):
    return place.train("live-training")


@pytest.fixture(scope="module")
def server(place, training):
    rng = np.random.default_rng(0)
    with place.recording() as folder:
        for i in range(3):
            with sg.init(
                f"a-run-with-a-rather-long-name-{i}",
                dir=folder,
                config={"lr": 10.0**-i, "opt": {"name": "adam" * (i + 1)}},
            ) as run:
                for step in range(100):
                    run.log({"train/loss": 1 / (step + 1 + i), "a/rather/long/tag/" + "x" * 60: float(step)}, step=step)
                run.log(
                    {"kernel": sg.Tensor(rng.normal(size=(3, 20, 30))), "acts": sg.Histogram(rng.normal(size=300))},
                    step=0,
                )
                run.log({"digits": sg.Images(rng.random((6, 8, 8))), "note": "a text " * 30}, step=0)
                run.log({"worst": sg.Table({"loss": [0.5, 0.25], "name": ["a", "b"]})}, step=0)
    return place.serve()


def key_of(page, name):
    """The key of a run, as addresses hold it."""
    page.get_by_role("row").filter(has_text=name).get_by_role("button", name=name, exact=True).click()
    return until(page, lambda: re.search(r"run=(\w+)", page.url))[1]


def asks(key):
    return "/charts?" + "&".join(f"ask={key}||{query}" for query in QUERIES)


PAGES = {
    "charts": ("/charts", lambda page: chart(page, "train/loss").locator("canvas")),
    "tensors": ("/tensors?tensor=kernel&heat=1&from={kept}", lambda page: page.get_by_role("grid")),
    "histograms": ("/tensors?tensor=acts&from={kept}", lambda page: page.get_by_role("img", name="Histograms of acts")),
    "overview": ("/tensors?as=overview&from={kept}", lambda page: page.locator(".overview")),
    "tables": ("/media?media=worst", lambda page: page.get_by_role("grid").or_(page.get_by_role("table"))),
    "media": ("/media?media=digits", lambda page: page.locator("main img").first),
    "texts": ("/media?media=note", lambda page: page.get_by_role("log").first),
    "runs": ("/runs", lambda page: page.get_by_role("row").nth(1)),
    "details": ("/runs?run={live}", lambda page: page.get_by_role("complementary")),
    "run": ("/run?run={kept}", lambda page: page.get_by_role("region", name="Run").get_by_role("status")),
    "live run": ("/run?run={live}", lambda page: page.get_by_role("region", name="Run").get_by_role("status")),
    "views": ("/runs?views=1&tint=opt.name", lambda page: page.get_by_role("application").nth(2)),
    "compare": ("/runs?compare=1", lambda page: page.get_by_role("row").nth(1)),
    "ask": ("{asks}", lambda page: page.get_by_role("region", name="Asked").locator("canvas").first),
    "fleet": (
        "/charts?asked=live-*&ask=live-*||batch.loss",
        lambda page: page.get_by_role("region", name="Asked").locator("canvas"),
    ),
    "control": ("/control?asked={live}", lambda page: page.get_by_role("form", name="lr", exact=True)),
    "help": ("/charts", None),
    "new chart": ("/charts", None),
    "saved views": ("/charts", None),
    "settings": ("/charts?own=gap|train/loss - train/loss&own=bad|train/loss - train/los&tags=train/loss", None),
    "expression": ("/charts?own=gap|train/loss - train/loss&tags=train/loss", None),
}


@pytest.fixture(scope="module")
def keys():
    return {}


def visit(page, keys, name):
    fragment, sign = PAGES[name]
    go_to(page, fragment.format(**keys, asks=asks(keys["live"])))
    if name == "settings":
        chart(page, "train/loss").get_by_role("button", name=re.compile("^Settings of")).click()
        sign = lambda page: page.get_by_role("group", name="This chart alone")  # noqa: E731
    elif name == "expression":
        chart(page, "train/loss").locator("canvas").wait_for()
        page.keyboard.press("c")
        page.get_by_label("Expression over tags").fill("tra")
        sign = lambda page: page.get_by_role("option", name="train/loss")  # noqa: E731
    elif sign is None:
        expect(chart(page, "train/loss").locator("canvas")).to_be_visible()
        page.keyboard.press({"help": "?", "new chart": "c", "saved views": "v"}[name])
        sign = lambda page: page.get_by_role("dialog")  # noqa: E731
    expect(sign(page).first).to_be_visible()
    if name == "ask":
        drawn(page.get_by_role("region", name="Asked").get_by_role("article", name="batch.loss", exact=True), BLUE)


@pytest.fixture
def look(open_page, server, keys):
    """Return a function that opens the page at a size."""

    def look(size, scheme):
        page = open_page(server.controller, "/runs", size=size, scheme=scheme)
        expect(page.get_by_role("row").filter(has_text="live-training")).to_be_visible()
        if not keys:
            other = open_page(server.controller, "/runs", size="wide")
            keys["live"] = key_of(other, "live-training")
            keys["kept"] = key_of(other, "a-run-with-a-rather-long-name-1")
            other.close()
        return page

    return look


def leave(page):
    """Close what stands open."""
    while page.get_by_role("dialog").or_(page.get_by_role("group", name="This chart alone")).count():
        page.keyboard.press("Escape")


@pytest.mark.parametrize(("size", "scheme"), [("phone", "dark"), ("laptop", "light")])
def test_axe_finds_nothing_and_nothing_stands_beyond_the_edges_or_is_cut_off(look, keys, size, scheme):
    page = look(size, scheme)
    found = []
    for name in PAGES:
        visit(page, keys, name)
        found += [f"{name}: {one}" for one in violations(page) + overflow(page)]
        if size == "laptop":
            width, height = SIZES["wide"]
            page.set_viewport_size({"width": width, "height": height})
            found += [f"{name}, wide: {one}" for one in overflow(page)]
            width, height = SIZES["laptop"]
            page.set_viewport_size({"width": width, "height": height})
        leave(page)
    assert not found, "\n".join(found)


def test_themes_follow_the_system_and_the_reader(open_page, server):
    shots = {}
    for scheme in ("light", "dark"):
        page = open_page(server.controller, "/charts?filter=long-name&runs=*", scheme=scheme)
        expect(chart(page, "train/loss").locator("canvas")).to_be_visible()
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        shots[scheme] = (ground, page.screenshot())
    assert shots["light"][0] != shots["dark"][0]
    assert shots["light"][1] != shots["dark"][1]
    theme = page.get_by_role("button", name=re.compile("^Theme"))
    theme.click()
    expect(theme).to_have_accessible_name("Theme: light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == shots["light"][0]
    page.reload()
    expect(theme).to_have_accessible_name("Theme: light")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == shots["light"][0]
    charts_follow_the_theme(page)


def charts_follow_the_theme(page):
    canvas = chart(page, "train/loss").locator("canvas")
    expect(canvas).to_be_visible()
    seen = """canvas => {
      const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true })
      copy.drawImage(canvas, 0, 0)
      const { data } = copy.getImageData(0, 0, canvas.width, canvas.height)
      let darkest = 255
      for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 250) darkest = Math.min(darkest, data[i])
      return darkest
    }"""
    light = until(page, lambda: canvas.evaluate(seen))
    page.get_by_role("button", name=re.compile("^Theme")).click()
    until(page, lambda: canvas.evaluate(seen) != light)


def test_a_phone_shows_one_thing_at_a_time(open_page, server):
    page = open_page(server.controller, size="phone")
    expect(chart(page, "train/loss")).to_be_visible()
    runs = page.get_by_role("navigation", name="Runs")
    expect(runs).to_be_hidden()
    page.get_by_role("button", name="List of runs").tap()
    expect(runs).to_be_visible()
    page.get_by_role("button", name="Close the list of runs").tap(position={"x": 370, "y": 400})
    expect(runs).to_be_hidden()
    page.get_by_role("button", name="View", exact=True).tap()
    page.get_by_role("button", name="log y").tap()
    expect(page.get_by_role("button", name="log y")).to_have_attribute("aria-pressed", "true")
    box = box_of(chart(page, "train/loss").locator(".u-over"))
    page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(chart(page, "train/loss").locator(".legend")).to_contain_text("step")
