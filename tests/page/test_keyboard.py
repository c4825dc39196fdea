"""Everything by keys: shortcuts and their sheet, menus and dialogs, asking; and one sees where one is."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import sightglass as sg

from .looks import chart, drawn, go_to, has_url, until


@pytest.fixture(scope="module")
def training(place):
    return place.train("live")


@pytest.fixture(scope="module")
def server(place, training):
    with place.recording() as folder, sg.init("kept", dir=folder) as run:
        for step in range(100):
            run.log({"train/loss": 1 / (step + 1)}, step=step)
    return place.serve()


@pytest.fixture
def page(open_page, server):
    page = open_page(server.controller, expects=["status of 400"])
    expect(chart(page, "train/loss")).to_be_visible()
    return page


def begin(page):
    """Show the charts as they are by default."""
    go_to(page, "/charts")
    expect(chart(page, "train/loss")).to_be_visible()
    page.evaluate("document.activeElement.blur()")


def focused(page):
    return page.evaluate("() => [document.activeElement.tagName, document.activeElement.getAttribute('aria-label')]")


def press(page, keys):
    for key in keys.split():
        page.keyboard.press(key)


def test_shortcuts(page):
    the_skip_link_leads_to_the_content(page)
    the_sheet_lists_every_key(page)
    pages_by_two_keys(page)
    the_theme_by_a_key(page)
    charts_by_single_keys(page)


def test_charts_and_lists_by_keys(page):
    a_chart_is_read_by_keys(page)
    menus_and_dialogs_by_keys_give_the_focus_back(page)
    the_list_of_runs_is_one_tab_stop(page)
    sections_and_runs_are_reached_by_keys(page)


def test_asking_by_keys(page):
    a_run_is_queried_by_keys_alone(page)
    a_completion_replaces_the_text_that_it_was_computed_for(page)


def the_sheet_lists_every_key(page):
    begin(page)
    press(page, "?")
    sheet = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(sheet).to_be_visible()
    for text in (
        "Ask a run",
        "Filter runs",
        "Smooth more",
        "Next theme",
        "Show or hide this sheet",
        "In a table of values: copy",
    ):
        expect(sheet).to_contain_text(text)
    press(page, "?")
    expect(sheet).to_be_hidden()
    press(page, "?")
    expect(sheet).to_be_visible()
    press(page, "Escape")
    expect(sheet).to_be_hidden()


def pages_by_two_keys(page):
    for key, name in (
        ("t", "tensors"),
        ("m", "media"),
        ("r", "runs"),
        ("x", "control"),
        ("c", "charts"),
    ):
        press(page, f"g {key}")
        expect(
            page.get_by_role("navigation", name="Pages").get_by_role("link", name=name.capitalize())
        ).to_have_attribute("aria-current", "page")
        has_url(page, f"#/{name}")


def charts_by_single_keys(page):
    begin(page)
    for key, part in (
        ("x", "x=relative"),
        ("x", "x=wall"),
        ("y", "ylog=1"),
        ("l", "xlog=1"),
        ("o", "clip=1"),
        ("]", "smooth=0.1"),
        ("n", "runs="),
        ("a", "runs=*"),
    ):
        press(page, key)
        until(page, lambda part=part: part in page.url.replace("%2A", "*"))
    press(page, "[")
    until(page, lambda: "smooth" not in page.url)
    press(page, "b")
    expect(page.get_by_role("navigation", name="Runs")).to_be_hidden()
    press(page, "/")
    expect(page.get_by_role("searchbox", name="Filter runs")).to_be_focused()
    page.keyboard.type("yxlb?")  # in a box, keys are letters
    expect(page.get_by_role("searchbox", name="Filter runs")).to_have_value("yxlb?")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("searchbox", name="Filter runs").fill("")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Charts").focus()
    press(page, "t")
    expect(page.get_by_role("searchbox", name="Search tags")).to_be_focused()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Charts").focus()
    press(page, "c")
    expect(page.get_by_role("dialog", name="New chart")).to_be_visible()
    press(page, "Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def the_theme_by_a_key(page):
    ground = "getComputedStyle(document.body).backgroundColor"
    seen = {page.evaluate(ground)}
    for _ in range(2):
        press(page, "d")
        seen.add(page.evaluate(ground))
    assert len(seen) == 2
    press(page, "d")


def a_chart_is_read_by_keys(page):
    begin(page)
    plot = chart(page, "train/loss").get_by_role("img", name="Line chart")
    drawn(chart(page, "train/loss"), (63, 143, 196), n=10)
    plot.focus()
    press(page, "ArrowRight")
    legend = chart(page, "train/loss").locator(".legend")
    expect(legend).to_contain_text("step")
    first = legend.inner_text()
    press(page, "Shift+ArrowRight")
    until(page, lambda: legend.inner_text() != first)
    press(page, "Escape")
    expect(legend).to_be_hidden()


def menus_and_dialogs_by_keys_give_the_focus_back(page):
    begin(page)
    download = chart(page, "train/loss").get_by_role("button", name="Save or copy train/loss")
    download.focus()
    press(page, "Enter")
    items = page.get_by_role("menuitem")
    expect(items.first).to_be_focused()
    press(page, "ArrowDown")
    expect(items.nth(1)).to_be_focused()
    press(page, "ArrowUp ArrowUp")
    expect(items.last).to_be_focused()
    press(page, "Escape")
    expect(download).to_be_focused()
    enlarge = chart(page, "train/loss").get_by_role("button", name="Enlarge")
    enlarge.focus()
    press(page, "Enter")
    expect(page.get_by_role("dialog", name="train/loss")).to_be_visible()
    for _ in range(30):  # the focus stays inside
        press(page, "Tab")
        assert page.evaluate(
            "() => document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))"
        )
    press(page, "Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(enlarge).to_be_focused()


def the_skip_link_leads_to_the_content(page):
    press(page, "Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    press(page, "Enter")
    expect(page.get_by_role("main")).to_be_focused()


def a_run_is_queried_by_keys_alone(page):
    begin(page)
    press(page, "g a")
    box = page.get_by_role("combobox", name="Query")
    expect(page.get_by_text("Try", exact=True)).to_be_visible()
    for _ in range(30):
        press(page, "Tab")
        if focused(page) == ["INPUT", "Query"]:
            break
    expect(box).to_be_focused()
    page.keyboard.type("bat")
    expect(page.get_by_role("listbox").get_by_role("option").first).to_be_visible()
    press(page, "Tab")
    expect(box).to_have_value("batch.")
    page.keyboard.type("los")
    press(page, "ArrowDown")
    expect(page.get_by_role("listbox").get_by_role("option", selected=True)).to_contain_text("loss")
    press(page, "Enter")
    expect(box).to_have_value("batch.loss")
    press(page, "Escape")
    press(page, "Enter")
    panel = page.get_by_role("article", name="batch.loss", exact=True)
    drawn(panel, (63, 143, 196))
    view = panel.get_by_role("combobox", name="View")
    for _ in range(40):
        press(page, "Tab")
        if focused(page) == ["SELECT", "View"]:
            break
    expect(view).to_be_focused()
    press(page, "End")
    until(page, lambda: view.input_value() != "line")
    for _ in range(10):
        press(page, "Tab")
        if focused(page) == ["BUTTON", "Remove this panel"]:
            break
    press(page, "Enter")
    expect(panel).to_be_hidden()


def a_completion_replaces_the_text_that_it_was_computed_for(page):
    """However fast one types, and however late the page draws."""
    begin(page)
    press(page, "g a")
    box = page.get_by_role("combobox", name="Query")
    expect(page.get_by_text("Try", exact=True)).to_be_visible()
    slow = "window.requestAnimationFrame = (draw) => setTimeout(() => draw(performance.now()), 500)"
    page.evaluate(f"() => {{ {slow} }}")
    box.focus()
    page.keyboard.type("bat")
    page.keyboard.press("Tab")
    page.keyboard.type("l")
    page.evaluate(
        "() => new Promise(requestAnimationFrame)"
    )  # the page has drawn: what comes now is of another picture
    page.keyboard.type("os")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(box).to_have_value("batch.loss")
    box.fill("")
    page.keyboard.type("batch.los")
    page.keyboard.press("ArrowLeft")  # the list is still the one of the whole word
    page.keyboard.press("Tab")
    expect(box).to_have_value("batch.loss")


# What can be focused and shows no sign of it.
UNSEEN = """() => {
  const at = document.activeElement
  const style = getComputedStyle(at)
  const around = [at, at.parentElement].filter(Boolean).map((one) => getComputedStyle(one))
  const outlined = ({ outlineStyle, outlineWidth }) => outlineStyle !== 'none' && parseFloat(outlineWidth) > 0
  const ring = around.some(outlined) || style.boxShadow !== 'none'
  const box = at.getBoundingClientRect()
  return at === document.body || (ring && box.width > 0 && box.height > 0) ? '' : at.outerHTML.slice(0, 200)
}"""


def test_one_sees_where_the_focus_is_on_every_page(page):
    unseen, n_seen = [], 0
    for fragment in ("/charts", "/tensors", "/media", "/runs", "/control"):
        go_to(page, fragment)
        expect(page.get_by_role("main")).not_to_be_empty()
        page.evaluate("document.activeElement.blur()")
        for _ in range(35):
            press(page, "Tab")
            if found := page.evaluate(UNSEEN):
                unseen.append(f"{fragment}: {found}")
            n_seen += page.evaluate("() => document.activeElement !== document.body")
    assert not unseen
    assert n_seen > 5 * 10


def the_list_of_runs_is_one_tab_stop(page):
    begin(page)
    page.get_by_role("searchbox", name="Filter runs").focus()
    stops = []
    while not (stops and page.evaluate("() => document.activeElement.closest('main') !== null")):
        press(page, "Tab")
        stops.append(focused(page)[1])
        assert len(stops) < 10, stops
    in_list = [label for label in stops if label and re.search("live|kept", label)]
    assert len(in_list) == 1, stops
    while focused(page)[1] != in_list[0]:
        assert page.evaluate("() => document.activeElement !== document.body")
        press(page, "Shift+Tab")
    first, second = page.get_by_role("checkbox", name=re.compile("^Show ")).all()
    expect(first).to_be_focused()
    press(page, "ArrowDown")
    expect(second).to_be_focused()
    press(page, "ArrowDown ArrowRight")
    assert page.evaluate("() => document.activeElement.className") == "run-name"
    press(page, "ArrowRight ArrowRight Enter")
    expect(first).not_to_be_checked()  # only the other one is shown
    press(page, "ArrowUp ArrowLeft ArrowLeft ArrowLeft Space")
    expect(first).to_be_checked()
    press(page, "Tab")
    assert page.evaluate("() => document.activeElement.closest('.rows-row')") is None


def sections_and_runs_are_reached_by_keys(page):
    begin(page)
    box = page.get_by_role("checkbox", name="Show kept")
    box.focus()
    press(page, "Space")
    expect(box).not_to_be_checked()
    press(page, "Space")
    expect(box).to_be_checked()
    head = page.get_by_role("button", name=re.compile(r"^train"))
    head.focus()
    press(page, "Enter")
    expect(head).to_have_attribute("aria-expanded", "false")
    press(page, "Enter")
