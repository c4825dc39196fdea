"""Plotly's figures on the page: drawn by Plotly, in a frame that reaches nothing, whatever stands in them."""

from __future__ import annotations

import io
import json

import numpy as np
import plotly.express as px
import plotly.graph_objects as go
import pytest
from PIL import Image as Pillow
from playwright.sync_api import expect

import sightglass as sg
from sightglass.core.plotly_json import MEDIA_TYPE

from .looks import box_of, go_to, until

STEPS = (0, 10)
WORDS = "<img src=x onerror=alert(1)><script>alert(2)</script><a href='javascript:alert(3)'>link</a>"
ELSEWHERE = "https://example.org/pixel.png"
REFUSED = ["example.org", "Content Security Policy", "csp"]  # what the browser says of each attempt
LOADED = "() => performance.getEntriesByType('resource').filter(({ name }) => name.endsWith('/plotly.js')).length"


def bars(step):
    return go.Figure(go.Bar(x=["a", "b", "c"], y=[1, 2, step]), {"title": f"<b>Bars</b> {step}", "height": 300})


def animated():
    return px.bar(x=["a", "b"] * 3, y=[1, 2, 2, 3, 3, 5], animation_frame=[0, 0, 1, 1, 2, 2], title="Moves")


def points():
    """More points than Plotly draws without WebGL, for which it compiles functions."""
    rng = np.random.default_rng(0)
    return px.scatter(x=rng.normal(size=3_000), y=rng.normal(size=3_000), title="Points")


def hostile():
    figure = go.Figure(go.Scatter(x=[1, 2], y=[1, 2], text=[WORDS] * 2, mode="markers+text", name=WORDS))
    figure.add_layout_image(source=ELSEWHERE, x=0, y=1, sizex=1, sizey=1)
    return figure.update_layout(title=WORDS)


@pytest.fixture(scope="session")
def server(shelf):
    with shelf.project("plotly") as folder, sg.init("drawn", dir=folder) as run:
        for step in STEPS:
            run.log({"bars": bars(step), "moves": animated(), "points": points(), "hostile": hostile()}, step=step)
        run.log({"odd": sg.Figure(b"{nothing", MEDIA_TYPE)}, step=0)
        run.log({"odd": bars(3)}, step=10)
    return shelf.server


def frame_of(page, name):
    """Return the frame of a figure, once it is drawn."""
    page.locator(".plotly-figure.is-drawn").first.wait_for()
    return page.frame_locator(f'iframe[title="{name}"]')


def inside(page):
    """Return the documents of the frames, as Playwright reaches them."""
    return [frame for frame in page.frames if frame.url.endswith("/figure-frame")]


def test_figures_are_drawn_and_saved(open_page, server):
    page = open_page(server.controller, "/charts?project=plotly", expects=["GPU stall", "WebGL", "GL Driver"])
    a_figure_is_drawn_by_plotly_which_is_fetched_then_and_once(page)
    a_figure_is_saved_as_it_was_recorded_and_as_a_picture(page)
    page.keyboard.press("Escape")
    a_step_without_a_figure_says_why_and_the_next_one_is_drawn(page)
    traces_that_plotly_compiles_functions_for_are_drawn_too(page)
    without_plotly_the_page_says_so_and_offers_the_json(open_page, server)


def a_figure_is_drawn_by_plotly_which_is_fetched_then_and_once(page):
    page.get_by_role("navigation").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.evaluate(LOADED) == 0
    go_to(page, "/media?project=plotly&media=bars")
    drawn = frame_of(page, "Bars 10: bar")
    expect(drawn.locator(".gtitle")).to_have_text("Bars 10")
    expect(drawn.locator(".bars .point")).to_have_count(3)
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("Home")
    expect(frame_of(page, "Bars 0: bar").locator(".gtitle")).to_have_text("Bars 0")
    page.get_by_role("list", name="Tags").get_by_role("button", name="moves").click()
    frame_of(page, "Moves: bar, 3 frames")
    assert page.evaluate(LOADED) == 1


def traces_that_plotly_compiles_functions_for_are_drawn_too(page):
    go_to(page, "/media?project=plotly&media=points")
    frame_of(page, "Points: scattergl")
    [frame] = inside(page)
    assert frame.evaluate("() => document.querySelectorAll('canvas').length") > 0


def test_a_figure_reaches_nothing_of_the_page_and_nothing_elsewhere(open_page, server):
    page = open_page(server.controller, "/media?project=plotly&media=hostile", expects=REFUSED)
    drawn = frame_of(page, "alert(2) link: scatter alert(2) link")
    # Plotly keeps what it does not know as text, and a link only if its address is one of the web.
    expect(drawn.locator(".gtitle")).to_contain_text("<script>alert(2)</script>")
    [frame] = inside(page)
    assert frame.evaluate("() => origin") == "null"
    links = "() => [...document.querySelectorAll('a')].map(one => one.href.baseVal ?? one.href)"
    assert set(frame.evaluate(links)) <= {""}
    assert not frame.evaluate("() => { try { return !!parent.document } catch { return false } }")
    assert not frame.evaluate("() => { try { return !!localStorage } catch { return false } }")
    refused = "url => fetch(url).then(() => 'answered', error => error.name)"
    for url in (ELSEWHERE, f"{server.base}/api/v1/session", "data:text/plain,x"):
        assert frame.evaluate(refused, url) == "TypeError"
    inline = """() => { const made = document.createElement('div')
      made.innerHTML = '<img src=x onerror="window.ran = 1">'; document.body.append(made)
      // A second image, which also fails to load, comes after the first.
      return new Promise(done => {
        const later = new Image()
        later.onerror = () => setTimeout(() => done(window.ran ?? 0))
        later.src = 'x'
      }) }"""
    assert frame.evaluate(inline) == 0


def a_step_without_a_figure_says_why_and_the_next_one_is_drawn(page):
    go_to(page, "/media?project=plotly&media=odd&when=0")
    words = page.locator(".plotly-words")
    expect(words).to_contain_text("not a figure of Plotly")
    expect(words).to_contain_text("Plotly cannot draw this figure: ")
    page.get_by_role("slider", name="Step").focus()
    page.keyboard.press("End")
    expect(frame_of(page, "Bars 3: bar").locator(".gtitle")).to_have_text("Bars 3")
    expect(words).to_have_count(0)


def a_figure_is_saved_as_it_was_recorded_and_as_a_picture(page):
    go_to(page, "/media?project=plotly&media=bars")
    frame_of(page, "Bars 10: bar")
    with page.expect_download() as got:
        page.get_by_role("button", name="Download Bars 10: bar as JSON").click()
    assert go.Figure(json.loads(got.value.path().read_bytes())) == go.Figure(json.loads(bars(10).to_json()))
    with page.expect_download() as got:
        page.get_by_role("button", name="Save Bars 10: bar as PNG").click()
    picture = Pillow.open(io.BytesIO(got.value.path().read_bytes()))
    assert picture.height == 600
    page.get_by_role("button", name="Open Bars 10: bar in full size").click()
    dialog = page.get_by_role("dialog", name="bars of drawn")
    dialog.locator(".is-drawn").wait_for()
    expect(dialog.get_by_role("button", name="Pixels")).to_have_count(0)


def without_plotly_the_page_says_so_and_offers_the_json(open_page, server):
    page = open_page(server.controller, expects=["404"])
    refusal = {"error": {"type": "MissingExtraError", "message": "Plotly is not installed where this page is served"}}
    page.route("**/plotly.js", lambda route: route.fulfill(status=404, json=refusal))
    page.goto(f"{server.base}/#/media?project=plotly&media=bars")
    words = page.locator(".plotly-words")
    expect(words).to_contain_text("Bars 10: bar")
    expect(words).to_contain_text("Plotly is not installed where this page is served")
    with page.expect_download() as got:
        page.get_by_role("button", name="Download Bars 10: bar as JSON").click()
    assert json.loads(got.value.path().read_bytes())["layout"]["title"]["text"] == "<b>Bars</b> 10"


def test_a_live_stream_of_figures_is_drawn_in_one_frame(own_place, open_page):
    with own_place.recording() as folder, sg.init("live", dir=folder) as run:
        run.log({"bars": bars(1)}, step=1)
        page = open_page(own_place.serve().controller, "/ask")
        box = page.get_by_role("combobox", name="Query").first
        box.fill('log["bars"]')
        box.press("Enter")
        drawn = page.frame_locator(".pictures iframe")
        for step in range(2, 5):
            until(
                page, lambda step=step: (run.log({"bars": bars(step)}, step=step), page.locator(".is-drawn").count())[1]
            )
            expect(drawn.locator(".gtitle")).to_have_text(f"Bars {step}")
        assert page.evaluate(LOADED) == 1
        assert len(inside(page)) == 1
        panel = box_of(page.locator(".pictures"))
        assert box_of(page.locator(".pictures iframe"))["width"] > 0.9 * panel["width"]
