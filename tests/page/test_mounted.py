"""The module of views without a page around it, as notebooks mount it: tools, zoom, themes, coming and going."""

from __future__ import annotations

import json
import re
from importlib import resources

import pytest
from playwright.sync_api import expect

from .looks import box_of, until

ORIGIN = "http://mounted.test/"
MODULE = resources.files("sightglass.views") / "static" / "views.js"
# Listeners and observers that are not taken away again are counted, from before anything is mounted.
PAGE = """<!doctype html><meta charset="utf-8"><body style="margin: 20px">
<div id="cell" style="width: 640px"></div><div id="other" style="width: 640px"></div>
<script>
  window.held = new Map()
  window.frames_asked = 0
  for (const target of [window, document, document.body]) {
    const { addEventListener, removeEventListener } = target
    const key = (name, listener, options) => [name, !!(options?.capture ?? options)].join()
    const at = (name, listener, options) => {
      const all = held.get(listener) ?? new Set()
      held.set(listener, all)
      return [all, key(name, listener, options)]
    }
    target.addEventListener = function (name, listener, options) {
      const [all, k] = at(name, listener, options)
      all.add(k)
      return addEventListener.call(target, name, listener, options)
    }
    target.removeEventListener = function (name, listener, options) {
      const [all, k] = at(name, listener, options)
      all.delete(k)
      return removeEventListener.call(target, name, listener, options)
    }
  }
  window.n_held = () => [...held.values()].reduce((sum, all) => sum + all.size, 0)
  window.n_observers = 0
  for (const name of ['ResizeObserver', 'MutationObserver']) {
    const { observe, disconnect } = window[name].prototype
    const open = new Set()
    window[name].prototype.observe = function (...args) { open.add(this); return observe.apply(this, args) }
    window[name].prototype.disconnect = function () { open.delete(this); return disconnect.call(this) }
    Object.defineProperty(window, `open_${name}`, { get: () => open.size })
  }
</script>
<script type="module">
  import { mount } from './views.js'
  window.mount = mount
  window.cell = document.getElementById('cell')
  window.other = document.getElementById('other')
  const count = (n, of) => Array.from({ length: n }, (_, i) => of(i))
  window.line = (n, of = (i) => i) => ({ step: count(n, (i) => i), y: count(n, of) })
  // The last model of the chart.
  const onModel = (model) => (window.model = model)
  window.draw = (options = {}) => mount(cell, { view: 'line', names: ['loss'], ...options, onModel })
</script>"""


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 900, "height": 800}, accept_downloads=True)
    problems = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda m: m.type == "error" and problems.append(m.text))
    page.route(
        f"{ORIGIN}**",
        lambda route: (
            route.fulfill(path=str(MODULE), content_type="text/javascript")
            if route.request.url.endswith("views.js")
            else route.fulfill(body="" if "favicon" in route.request.url else PAGE, content_type="text/html")
        ),
    )
    begin(page)
    yield page
    page.close()
    assert problems == []


def begin(page):
    """Load the module again, with nothing mounted."""
    page.emulate_media(color_scheme="light")
    page.goto(ORIGIN)
    page.wait_for_function("!!window.mount")


def test_zoom_and_scrolling(page):
    zoom_by_dragging_move_with_shift_and_show_all_again(page)
    begin(page)
    a_wheel_without_a_key_goes_on_scrolling_the_notebook(page)
    begin(page)
    a_million_points_are_all_there_when_one_comes_near(page)


def test_values_tools_and_files(page):
    values_stand_under_the_cursor_in_names_that_are_escaped(page)
    begin(page)
    tools_appear_for_pointers_and_keys_and_change_the_options(page)
    begin(page)
    the_shown_view_is_saved(page)


def test_streams_limits_and_notices(page):
    streams_may_be_styled_before_and_after_their_records(page)
    begin(page)
    records_are_forgotten_before_they_are_sent_again(page)
    begin(page)
    limits_and_names_of_x_and_notices(page)
    begin(page)
    ten_thousand_names_are_counted(page)


def test_views_come_and_go_and_follow_their_surroundings(page):
    auto_follows_its_surroundings(page)
    begin(page)
    a_view_may_be_taken_out_and_put_back_and_be_there_twice(page)
    begin(page)
    a_view_may_be_made_before_its_element_is_in_the_page(page)


def test_every_view_is_a_picture_and_leaves_nothing_behind(page):
    for view in VIEWS:
        every_view_is_a_picture_too_and_lines_and_areas_are_svg(page, view)
        page.evaluate("view.destroy()")
    for view in ("line", *VIEWS):
        nothing_is_left_of_a_view_that_was_destroyed(page, view)


def shown(page):
    """The span of x in view."""
    return page.evaluate("model.xs")


def chart(page):
    return page.locator("#cell .u-over")


def zoom_by_dragging_move_with_shift_and_show_all_again(page):
    page.evaluate("window.view = draw(); view.push(line(1001, (i) => Math.sin(i / 50)))")
    until(page, lambda: page.evaluate("window.model?.lines[0].x.length") == 1001)
    box = box_of(chart(page))
    middle = box["y"] + box["height"] / 2

    def drag(start, end):
        page.mouse.move(box["x"] + start * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + (start + end) / 2 * box["width"], middle, steps=3)
        page.mouse.move(box["x"] + end * box["width"], middle, steps=3)
        page.mouse.up()

    drag(0.25, 0.5)
    until(page, lambda: shown(page)[0] == pytest.approx(250, abs=5) and shown(page)[1] == pytest.approx(500, abs=5))
    page.keyboard.down("Shift")
    drag(0.8, 0.4)
    page.keyboard.up("Shift")
    until(page, lambda: shown(page)[0] == pytest.approx(350, abs=8) and shown(page)[1] == pytest.approx(600, abs=8))
    before = shown(page)
    page.mouse.wheel(60, 0)
    until(page, lambda: shown(page)[0] > before[0] + 10)
    chart(page).dblclick()
    until(page, lambda: shown(page) == [0, 1000])
    page.locator("#cell .chart-plot").focus()
    page.keyboard.press("+")
    until(page, lambda: shown(page)[1] - shown(page)[0] == pytest.approx(1000 / 1.5))
    page.keyboard.press("PageDown")
    until(page, lambda: shown(page)[1] == pytest.approx(1000))
    page.keyboard.press("0")
    until(page, lambda: shown(page) == [0, 1000])


def a_wheel_without_a_key_goes_on_scrolling_the_notebook(page):
    page.evaluate("document.body.style.height = '3000px'; window.view = draw(); view.push(line(10))")
    chart(page).hover()
    page.mouse.wheel(0, 120)
    until(page, lambda: page.evaluate("scrollY") > 0)
    assert shown(page) == [0, 9]


def values_stand_under_the_cursor_in_names_that_are_escaped(page):
    page.evaluate(
        "window.view = draw({ labels: { loss: '<img src=x onerror=window.hit=1> 損失' } }); view.push(line(5))"
    )
    page.evaluate("view.push(line(5, (i) => i * i), 'b')")
    chart(page).hover(position={"x": 5, "y": 50})
    values = page.locator("#cell").get_by_role("group", name="Values at the cursor")
    expect(values).to_contain_text("<img src=x onerror=window.hit=1> 損失")
    expect(values).to_contain_text("step 0")
    assert page.evaluate("window.hit") is None


def tools_appear_for_pointers_and_keys_and_change_the_options(page):
    page.evaluate(
        "window.told = []; window.view = draw({ onOptions: (o) => told.push(o) });view.push(line(50, (i) => i % 7 + 1))"
    )
    tools = page.locator("#cell").get_by_role("toolbar", name="Tools of this view")
    expect(tools).to_have_css("opacity", "0")
    page.locator("#cell .chart-plot").focus()
    page.keyboard.press("Tab")
    expect(tools).to_have_css("opacity", "1")
    expect(tools.get_by_role("button", name="Show everything")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    options = page.locator("#cell").get_by_role("group", name="Options")
    expect(options.get_by_role("slider")).to_be_focused()
    page.keyboard.press("End")
    until(page, lambda: page.evaluate("model.lines[0].raw?.length") == 50)
    options.get_by_role("button", name="log y").click()
    until(page, lambda: page.evaluate("model.ylog"))
    assert page.evaluate("told.at(-2).smooth") == 0.99
    assert page.evaluate("told.at(-1)") == {"ylog": True}
    page.keyboard.press("Escape")
    expect(options).to_be_hidden()
    expect(tools.get_by_role("button", name="Options of this view")).to_be_focused()


def the_shown_view_is_saved(page):
    page.evaluate("window.view = draw({ title: 'Loss & co' }); view.push(line(3, (i) => [1, NaN, 3][i]))")

    def save(what):
        page.locator("#cell").hover()
        page.get_by_role("button", name="Save or copy").click()
        with page.expect_download() as download:
            page.get_by_role("menuitem", name=what).click()
        return download.value.suggested_filename, download.value.path().read_bytes()

    name, csv = save("Save CSV")
    assert (name, csv.decode()) == (
        "Loss_co.csv",
        'stream,step,wall_time,value\n"loss",0,0,1\n"loss",1,1,NaN\n"loss",2,2,3\n',
    )
    name, svg = save("Save SVG")
    assert name == "Loss_co.svg"
    assert b"Loss &amp; co" in svg
    name, png = save("Save PNG")
    assert name == "Loss_co.png"
    assert png.startswith(b"\x89PNG")


VIEWS = {
    "bars": "[{ 'a<b': 1, b: -2 }]",
    "histogram": "[[1, 2, 3, 4, 5, 5, 5]]",
    "scatter": "[[1, 2], [2, 3], [5, NaN]]",
    "annotated": "[[1, 2, '<b>here</b>'], [2, 3, '']]",
    "line3d": "[[1, 2, 3], [2, 3, 4]]",
    "heatmap": "[{ dtype: 'uint8', shape: [2, 2], data: new Uint8Array([1, 2, 3, 4]) }]",
    "images": "[{ dtype: 'uint8', shape: [2, 2, 3], data: new Uint8Array(12).fill(200) }]",
    "log": "['<script>window.hit=1</script>', 'ö']",
    "table": "[{ a: 1, b: 'x' }]",
}


def every_view_is_a_picture_too_and_lines_and_areas_are_svg(page, view):
    page.evaluate(
        "([view, values]) => { const all = eval(values); window.view = mount(cell, { view, title: 'a <b>' });"
        " window.view.push({ step: all.map((_, i) => i), values: all }) }",
        [view, VIEWS[view]],
    )
    expect(page.locator("#cell").get_by_text("No records yet")).to_have_count(0)
    expect(page.locator("#cell").get_by_role("heading", name="a <b>")).to_be_visible()
    size = page.evaluate("view.png().then(createImageBitmap).then(({ width, height }) => [width, height])")
    assert size == [1280, 640]
    svg = page.evaluate("view.svg()")
    assert (svg is not None) == (view in {"histogram", "scatter", "annotated", "line3d"})
    if svg is not None:
        wrong = "(svg) => new DOMParser().parseFromString(svg, 'image/svg+xml').querySelector('parsererror') !== null"
        assert not page.evaluate(wrong, svg)
        assert not re.search("NaN|Infinity|undefined", svg)
    assert page.evaluate("window.hit") is None


def auto_follows_its_surroundings(page):
    page.evaluate("window.view = draw(); view.push(line(3))")
    host = page.locator("#cell > div")
    expect(host).to_have_attribute("data-theme", "light")
    page.evaluate("document.body.dataset.jpThemeLight = 'false'")
    expect(host).to_have_attribute("data-theme", "dark")
    page.evaluate("document.body.dataset.jpThemeLight = 'true'")
    expect(host).to_have_attribute("data-theme", "light")
    page.evaluate("delete document.body.dataset.jpThemeLight; document.body.className = 'vscode-dark'")
    expect(host).to_have_attribute("data-theme", "dark")
    page.evaluate("document.body.className = ''")
    expect(host).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")
    expect(host).to_have_attribute("data-theme", "dark")
    page.evaluate("view.setTheme('light')")
    expect(host).to_have_attribute("data-theme", "light")


def streams_may_be_styled_before_and_after_their_records(page):
    page.evaluate(
        "window.view = draw({ names: ['a'] });"
        "view.setStream('b', { label: 'bee', color: '#ff0000', dash: [2, 2], second: true });"
        "view.push(line(3), 'a'); view.push(line(4), 'b')"
    )
    key = page.locator("#cell").get_by_role("list", name="Lines")
    expect(key.get_by_role("listitem")).to_have_text(["a2", "bee3→"])
    found = "model.lines.map(({ label, style, second }) => [label, style.color, second ?? false])"
    until(page, lambda: page.evaluate(found) == [["a", "#3f8fc4", False], ["bee", "#ff0000", True]])
    page.evaluate("view.setStream('a', { label: 'ay' }); view.setStream('b', { second: false })")
    until(page, lambda: page.evaluate(found) == [["ay", "#3f8fc4", False], ["bee", "#ff0000", False]])
    page.evaluate("view.remove('b')")
    until(page, lambda: page.evaluate(found) == [["ay", "#3f8fc4", False]])


def records_are_forgotten_before_they_are_sent_again(page):
    page.evaluate("window.view = draw({ names: ['a', 'b'] }); view.push(line(3), 'a'); view.push(line(3), 'b')")
    until(page, lambda: page.evaluate("window.model?.lines.length") == 2)
    page.evaluate("view.reset('a'); view.push(line(2), 'a')")
    until(page, lambda: page.evaluate("model.lines.map(({ x }) => x.length)") == [2, 3])
    page.evaluate("view.reset()")
    expect(page.locator("#cell").get_by_text("No records yet")).to_be_visible()
    expect(page.locator("#cell").get_by_role("list", name="Lines")).to_have_count(0)


def limits_and_names_of_x_and_notices(page):
    page.evaluate("window.view = draw({ xlimits: [2, 4], ylimits: [-1, 9], xname: 'epoch' }); view.push(line(10))")
    until(page, lambda: page.evaluate("window.model && [model.xs, model.ys]") == [[2, 4], [-1, 9]])
    chart(page).hover()
    expect(page.locator("#cell").get_by_role("group", name="Values at the cursor")).to_contain_text("epoch 3")
    page.evaluate(
        "view.setOptions({ xlimits: null, ylimits: null }); view.setNotices(['2 records <b>lost</b>', 'ended'])"
    )
    until(page, lambda: shown(page) == [0, 9])
    expect(page.locator("#cell .view-notices li")).to_have_text(["2 records <b>lost</b>", "ended"])
    page.evaluate("view.setNotices([])")
    expect(page.locator("#cell .view-notices")).to_have_count(0)


def ten_thousand_names_are_counted(page):
    page.evaluate(
        "window.view = draw(); const all = {}; for (let i = 0; i < 10000; i++) all[`n${i}`] = i;"
        "view.push({ step: [0, 1], values: [all, all] })"
    )
    expect(page.locator("#cell")).to_contain_text("The first 64 names are drawn, 9,936 are not")


def a_view_may_be_taken_out_and_put_back_and_be_there_twice(page):
    page.evaluate(
        "window.a = draw(); window.b = mount(other, { view: 'line' }); for (const v of [a, b]) v.push(line(3))"
    )
    for place in ("cell", "other"):
        expect(page.locator(f"#{place} canvas")).to_be_visible()
    page.evaluate("window.kept = cell; cell.remove(); a.push(line(7)); document.body.dataset.jpThemeLight = 'false'")
    expect(page.locator("#other > div")).to_have_attribute("data-theme", "dark")
    page.evaluate("document.body.prepend(kept)")
    expect(page.locator("#cell > div")).to_have_attribute("data-theme", "dark")
    # The steps begin again, so the line is drawn in two parts.
    until(page, lambda: page.evaluate("model.lines.reduce((n, line) => n + line.x.length, 0)") == 10)
    assert page.evaluate("model.ink.text") == page.evaluate(
        "getComputedStyle(cell.firstChild).getPropertyValue('--muted').trim()"
    )
    page.evaluate("a.destroy()")
    expect(page.locator("#cell canvas")).to_have_count(0)
    page.evaluate("b.push(line(3))")
    expect(page.locator("#other canvas")).to_be_visible()


def a_view_may_be_made_before_its_element_is_in_the_page(page):
    page.evaluate(
        "window.apart = document.createElement('div'); window.view = mount(apart, { view: 'line' }); view.push(line(3))"
    )
    page.evaluate("document.body.append(apart)")
    expect(page.locator("canvas")).to_be_visible()


def nothing_is_left_of_a_view_that_was_destroyed(page, view):
    counts = "[n_held(), open_ResizeObserver, open_MutationObserver]"
    make = (
        "([view, values]) => { const all = eval(values); window.view = mount(cell, { view });"
        " window.view.push({ step: all.map((_, i) => i), values: all }) }"
    )
    values = VIEWS.get(view, "[1, 2, 3]")
    # What is made once for all views, as uPlot's, is made by the first.
    page.evaluate(make, [view, values])
    expect(page.locator("#cell .view-tools")).to_have_count(1)
    page.evaluate("view.destroy()")
    before = page.evaluate(counts)
    page.evaluate(make, [view, values])
    expect(page.locator("#cell .view-tools")).to_have_count(1)
    page.locator("#cell").hover()
    page.get_by_role("button", name="Save or copy").click()
    expect(page.get_by_role("menu")).to_be_visible()
    page.evaluate("view.destroy(); view.push({ step: [9], y: [9] }); view.setNotices(['late'])")
    assert page.evaluate("cell.childElementCount") == 0
    until(page, lambda: page.evaluate(counts) == before)


def a_million_points_are_all_there_when_one_comes_near(page):
    page.evaluate(
        """() => {
          const n = 1000000, step = Float64Array.from({ length: n }, (_, i) => i)
          const y = step.map((i) => (i === 654321 ? 9 : Math.sin(i)))
          window.view = draw({ max_points: 2 ** 20 })
          view.push({ step: new DataView(step.buffer), y: new DataView(y.buffer) })
        }"""
    )
    until(page, lambda: page.evaluate("window.model?.lines[0].y.includes(9)"))
    assert page.evaluate("model.lines[0].x.at(-1)") == 999_999
    page.evaluate("view.setOptions({ xlimits: [654300, 654400] })")
    until(page, lambda: shown(page) == [654300, 654400])
    assert json.loads(page.evaluate("JSON.stringify(Array.from(model.lines[0].x))")) == list(range(654299, 654401))
